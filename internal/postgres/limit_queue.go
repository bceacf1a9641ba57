package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// limitedQueues records which claimants have encountered limits. It is only a hint.
type limitedQueues struct {
	mu   sync.Mutex
	sets map[string]*limitState
}

type limitState struct {
	until    time.Time // end of the hint
	parkedAt time.Time // when a claim last parked steps whose queue has no free slot
	cursor   int64     // key after which the next scan of keys with parked steps begins
	running  chan struct{}
}

// maxLimitedSets is the number of claimants at which the cache is cleared.
const maxLimitedSets = 1000

func (c Claimant) queueKey() string {
	return strings.Join(c.Namespaces, "\x00") + "\x01" + strings.Join(c.Handlers, "\x00")
}

// mayHaveLimits reports whether the claimant has encountered limits recently.
func (q *limitedQueues) mayHaveLimits(c Claimant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.sets) == 0 {
		return false // avoids building the key
	}
	s := q.sets[c.queueKey()]
	return s != nil && time.Now().Before(s.until)
}

func (q *limitedQueues) recordSeen(c Claimant) { q.update(c, func(*limitState) {}) }

func (q *limitedQueues) update(c Claimant, f func(*limitState)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := c.queueKey()
	s := q.sets[key]
	if s == nil {
		if q.sets == nil || len(q.sets) >= maxLimitedSets {
			q.sets = map[string]*limitState{}
		}
		s = &limitState{}
		q.sets[key] = s
	}
	if s.until.Before(time.Now()) {
		s.until = time.Now().Add(holdCheckWindow)
	}
	f(s)
}

func (q *limitedQueues) cursorOf(c Claimant) (key int64) {
	q.update(c, func(s *limitState) { key = s.cursor })
	return key
}

func (q *limitedQueues) setCursor(c Claimant, key int64) {
	q.update(c, func(s *limitState) { s.cursor = key })
}

// parkInterval is the interval at which claims park steps whose queue has no free slot. Such steps
// block no others.
const parkInterval = time.Second

// canPark reports whether to park steps whose queue has no free slot: no recent claim from the same
// queues has done so.
func (q *limitedQueues) canPark(c Claimant) (may bool) {
	q.update(c, func(s *limitState) {
		if may = time.Since(s.parkedAt) >= parkInterval; may {
			s.parkedAt = time.Now()
		}
	})
	return may
}

// enter waits until no other claim of this server from the same queues is running. Concurrent claims
// would choose the same steps. The caller must call leave.
func (q *limitedQueues) enter(ctx context.Context, c Claimant) (leave func(), err error) {
	var running chan struct{}
	q.update(c, func(s *limitState) {
		if s.running == nil {
			s.running = make(chan struct{}, 1)
		}
		running = s.running
	})
	select {
	case running <- struct{}{}:
		return func() { <-running }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type claimConditions struct {
	Held  bool // steps are held, so each must be checked
	Works bool // the worker gets work
}

// A sharedLimit is a limit of all steps in some queues, with the free slots of its key. An empty
// namespace or handler means every one. The key is 0 if it does not exist yet.
type sharedLimit struct {
	QueueName
	LimitID int64
	countedKey
}

func (l sharedLimit) covers(q QueueName) bool {
	return (l.Namespace == "" || l.Namespace == q.Namespace) && (l.Handler == "" || l.Handler == q.Handler)
}

// parkedQueue is a queue with parked steps and the first of their keys, at most maxParkedKeys.
type parkedQueue struct {
	QueueName
	Keys []int64
}

// maxParkedKeys is the maximum number of keys with parked steps that a claim reads per queue.
const maxParkedKeys = 64

// A countedKey is a key with its free slots.
type countedKey struct {
	LimitKeyID int64
	Free, Most int
	RetryMS    *int64 // time until a rate frees the next slot
}

func (k countedKey) toSlots() keySlots {
	slots := keySlots{free: k.Free, most: k.Most}
	if k.RetryMS != nil {
		slots.retry = time.Duration(*k.RetryMS) * time.Millisecond
	}
	return slots
}

// sharedKeys returns the keys that all steps in a queue share.
func (r *limitedRound) sharedKeys(q QueueName) (keys []int64) {
	for _, l := range r.shared {
		if l.covers(q) {
			keys = append(keys, l.LimitKeyID)
		}
	}
	return keys
}

func (r *limitedRound) isShared(key int64) bool {
	return slices.ContainsFunc(r.shared, func(l sharedLimit) bool { return l.LimitKeyID == key })
}

// nextCursor returns where the next scan of keys with parked steps begins: after the last key of
// this one, or at the beginning if there are no more.
func (r *limitedRound) nextCursor() (cursor int64) {
	for _, q := range r.parkedIn {
		if n := len(q.Keys); n == maxParkedKeys && (cursor == 0 || q.Keys[n-1] < cursor) {
			cursor = q.Keys[n-1]
		}
	}
	return cursor
}

// A limitKey identifies a key that does not exist yet.
type limitKey struct {
	LimitID int64
	Key     string
}

// makeLimitKeys creates keys. Most exist already: creating a task creates those of its template.
func (db *DB) makeLimitKeys(ctx context.Context, list []limitKey) error {
	limits, keys := make([]int64, len(list)), make([]string, len(list))
	for i, k := range list {
		limits[i], keys[i] = k.LimitID, k.Key
	}
	return exec(ctx, db.pool, "create the keys of limits", statement("makeLimitKeys"), limits, keys)
}

// A candidateRow is a candidate with the limits that templates assign to it.
type candidateRow struct {
	tasker.StepRef
	QueueName
	Priority    int
	StateSince  time.Time
	InputsBytes *int64
	DueAt       *time.Time
	Parked      *int64
	Old         bool
	LimitIDs    []int64
	Keys        []string
	LimitKeyIDs []int64 // 0 if the key does not exist yet
	Weights     []int
	Most        []int
}

// claimCandidates contains the candidates of a claim.
type claimCandidates struct {
	list       []*candidate
	unmeasured []tasker.StepRef
	tooLarge   []tasker.StepRef
	capacities map[int64]keySlots // of all keys, as if all slots were free
	missing    map[limitKey]int64 // keys that do not exist yet, with negative ids
}

// addCandidates adds the candidates of rows.
func (r *limitedRound) addCandidates(rows []candidateRow) {
	c := &r.candidates
	if c.capacities == nil {
		c.capacities, c.missing = map[int64]keySlots{}, map[limitKey]int64{}
	}
	for _, row := range rows {
		switch {
		case row.InputsBytes == nil:
			c.unmeasured = append(c.unmeasured, row.StepRef)
		case *row.InputsBytes > tasker.MaxInputBytes:
			c.tooLarge = append(c.tooLarge, row.StepRef)
		default:
			c.list = append(c.list, c.newCandidate(row, r.sharedKeys(row.QueueName)))
		}
	}
}

// missingKeys returns the keys of steps that do not exist yet.
func (c claimCandidates) missingKeys(steps []*candidate) (list []limitKey) {
	for k, id := range c.missing {
		if slices.ContainsFunc(steps, func(s *candidate) bool {
			return slices.ContainsFunc(s.Needs, func(n neededSlots) bool { return n.key == id })
		}) {
			list = append(list, k)
		}
	}
	return list
}

// newCandidate returns the candidate of a row. The keys of templates precede the shared ones, so
// that a step is parked under the key that blocks the fewest others.
func (c *claimCandidates) newCandidate(r candidateRow, shared []int64) *candidate {
	s := &candidate{
		StepRef: r.StepRef, QueueName: r.QueueName, Priority: r.Priority, StateSince: r.StateSince, DueAt: r.DueAt, Old: r.Old,
		Bytes: min(int(*r.InputsBytes), maxStepSize),
	}
	if r.Parked != nil {
		s.Parked = *r.Parked
	}
	for i, id := range r.LimitKeyIDs {
		if id == 0 {
			k := limitKey{r.LimitIDs[i], r.Keys[i]}
			if c.missing[k] == 0 {
				c.missing[k] = -int64(len(c.missing) + 1)
			}
			id = c.missing[k]
		}
		c.capacities[id] = keySlots{free: r.Most[i], most: r.Most[i]}
		s.Needs = append(s.Needs, neededSlots{id, r.Weights[i]})
	}
	for _, id := range shared {
		s.Needs = append(s.Needs, neededSlots{id, 1})
	}
	return s
}

// begin begins the transaction, locks the shared keys, counts their free slots and reads candidates.
func (r *limitedRound) begin(ctx context.Context, conn *pooledConn) error {
	var batch pgx.Batch
	batch.Queue(statement("begin"))
	batch.Queue(statement("lockSharedKeys"), r.Namespaces, r.Handlers)
	batch.Queue(statement("countSharedSlots"), r.Namespaces, r.Handlers)
	batch.Queue(statement("findClaimConditions"), r.WorkerUUID)
	if r.steps == nil {
		freedTasks, freedSteps := toRefArrays(r.freed)
		batch.Queue(statement("selectReadyCandidates"), r.Namespaces, r.Handlers, r.size.limit, nonNil(r.Without), nonNil(r.mode.gates), r.mode.turn.minAge(),
			max(r.size.limit, leastDepth))
		batch.Queue(statement("findParkedKeys"), r.Namespaces, r.Handlers, r.cursor)
		batch.Queue(statement("parkedKeysOfSteps"), nonNil(freedTasks), nonNil(freedSteps))
	} else {
		tasks, steps := toRefArrays(r.steps)
		batch.Queue(statement("selectNamedCandidates"), r.Namespaces, r.Handlers, tasks, steps, nonNil(r.Without), nonNil(r.mode.gates))
	}
	results := conn.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }()
	if _, err := results.Exec(); err != nil {
		return classifyError(err)
	}
	if err := r.readShared(results); err != nil {
		return fmt.Errorf("lock the shared keys of limits: %w", err)
	}
	conditions, err := readBatchRows[claimConditions](results)
	if err != nil {
		return fmt.Errorf("read the conditions of claims: %w", err)
	}
	r.conditions = conditions[0]
	rows, err := readBatchRows[candidateRow](results)
	if err != nil {
		return fmt.Errorf("read candidates: %w", err)
	}
	r.addCandidates(rows)
	if r.steps == nil {
		if r.parkedIn, err = readBatchRows[parkedQueue](results); err == nil {
			r.freedKeys, err = scanBatchRows(results, pgx.RowTo[int64])
		}
		if err != nil {
			return fmt.Errorf("find the keys of parked steps: %w", err)
		}
	}
	return classifyError(results.Close())
}

// readShared reads the shared limits and the locked ones of their keys.
func (r *limitedRound) readShared(results pgx.BatchResults) error {
	locked, err := scanBatchRows(results, pgx.RowTo[int64])
	if err == nil {
		r.shared, err = readBatchRows[sharedLimit](results)
	}
	for _, l := range r.shared {
		if slices.Contains(locked, l.LimitKeyID) {
			r.keys[l.LimitKeyID] = l.toSlots()
		} else {
			r.missing = append(r.missing, limitKey{LimitID: l.LimitID})
		}
	}
	return err
}

// readParked reads the candidates among parked steps: the first ones of keys with free slots.
func (r *limitedRound) readParked(ctx context.Context, conn *pooledConn) error {
	var namespaces, handlers []string
	var keys []int64
	var depths []int
	var counted []bool
	for _, q := range r.parkedIn {
		shared, free := r.sharedKeys(q.QueueName), r.size.limit
		for _, key := range shared {
			free = min(free, r.keys[key].free)
		}
		all := slices.Concat(q.Keys, r.freedKeys, shared)
		slices.Sort(all)
		for _, key := range slices.Compact(all) {
			namespaces, handlers, keys = append(namespaces, q.Namespace), append(handlers, q.Handler), append(keys, key)
			depths, counted = append(depths, max(free, 0)), append(counted, slices.Contains(shared, key))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	rows, err := collect[candidateRow](ctx, conn, statement("selectParkedCandidates"), namespaces, handlers, keys, depths, counted,
		nonNil(r.Without), nonNil(r.mode.gates), r.mode.turn.minAge())
	if err != nil {
		return fmt.Errorf("read parked candidates: %w", classifyError(err))
	}
	r.addCandidates(rows)
	return nil
}
