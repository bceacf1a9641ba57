package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
)

// Claims of queues in which steps may have limits are made in three statements of a transaction: one
// locks the keys of the limits, the next counts who has a place of them, and then so many steps
// are handed out as there are places. That the count is a statement of its own is what makes it
// exact: it sees what whoever had the lock before has committed.
//
// A place is not given back. It is a row that says which step was claimed under which fence, and it
// counts while the step is in progress under it: whoever ends, cancels or takes back the lease
// has freed the place. Rows that do not count any more are removed by whoever counts.
//
// A step that cannot be handed out is put aside under the key that has no place, so that the next
// claim does not look at it again before there is one.

// hasLimits is true where a step of the queues of the namespaces $1 and handlers $2 may have a limit, or
// come first because of when it is due.
const hasLimits = `(EXISTS (SELECT FROM tasker.limit_queues) AND EXISTS (
        SELECT FROM tasker.limit_queues l
        WHERE l.namespace = ANY (array_append($1::text[], '')) AND l.handler || '' = ANY (array_append($2::text[], ''))
    ) OR EXISTS (SELECT FROM tasker.due_queues) AND EXISTS (
        SELECT FROM tasker.due_queues l WHERE l.namespace = ANY ($1::text[]) AND l.handler || '' = ANY ($2::text[])
    ))`

// limitedQueues remembers which claimants met limits, and the keys for which their last claim
// looked. Both are hints.
type limitedQueues struct {
	mu   sync.Mutex
	sets map[string]*limitedSet
}

type limitedSet struct {
	until  time.Time
	keys   []limitPlace
	cursor int64 // of the keys for which steps were put aside
}

// maxLimitedSets bounds what is remembered; all is forgotten beyond it.
const maxLimitedSets = 1000

func (c Claimant) queues() string {
	return strings.Join(c.Namespaces, "\x00") + "\x01" + strings.Join(c.Handlers, "\x00")
}

// mayHave reports whether the claimant met limits a moment ago.
func (q *limitedQueues) mayHave(c Claimant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.sets) == 0 {
		return false
	}
	s := q.sets[c.queues()]
	return s != nil && time.Now().Before(s.until)
}

// seen notes that the claimant met limits.
func (q *limitedQueues) seen(c Claimant) { q.change(c, func(*limitedSet) {}) }

func (q *limitedQueues) change(c Claimant, f func(*limitedSet)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := c.queues()
	s := q.sets[key]
	if s == nil {
		if q.sets == nil || len(q.sets) >= maxLimitedSets {
			q.sets = map[string]*limitedSet{}
		}
		s = &limitedSet{}
		q.sets[key] = s
	}
	if s.until.Before(time.Now()) {
		s.until = time.Now().Add(askFor)
	}
	f(s)
}

func (q *limitedQueues) hint(c Claimant) (keys []limitPlace, cursor int64) {
	q.change(c, func(s *limitedSet) { keys, cursor = s.keys, s.cursor })
	return keys, cursor
}

// A limitPlace is a key of a limit.
type limitPlace struct {
	LimitID int64
	Key     string
}

func comparePlaces(a, b limitPlace) int {
	return cmp.Or(cmp.Compare(a.LimitID, b.LimitID), cmp.Compare(a.Key, b.Key))
}

// A limitCount is how a key of a limit stands.
type limitCount struct {
	LimitKeyID    int64
	LimitID       int64
	Key           string
	MaxInProgress *int64
	PerSecond     *float64
	Burst         *int
	Debt          float64 // seconds until as many can begin at once as the burst allows
	Held          int64

	taken int64
}

// room is how many more steps may be handed out.
func (k *limitCount) room() int64 {
	n := int64(math.MaxInt32)
	if k.MaxInProgress != nil {
		n = *k.MaxInProgress - k.Held - k.taken
	}
	if k.PerSecond != nil {
		n = min(n, int64(math.Floor(float64(*k.Burst)-k.Debt**k.PerSecond+1e-9))-k.taken)
	}
	return max(n, 0)
}

// again is after how long a step may be handed out that waits for the key.
func (k *limitCount) again() time.Duration {
	if k.PerSecond == nil || k.MaxInProgress != nil && *k.MaxInProgress-k.Held-k.taken <= 0 {
		return limitRest // whoever ends a lease wakes those who wait in the same process
	}
	missing := float64(k.taken+1) - (float64(*k.Burst) - k.Debt**k.PerSecond)
	return min(max(time.Duration(missing / *k.PerSecond * float64(time.Second)), time.Millisecond), limitRest)
}

// limitRest is how long a claim rests at most while steps wait for a limit.
const limitRest = 250 * time.Millisecond

// A limitedStep is a step that may be handed out if its limits have places.
type limitedStep struct {
	TaskUUID    tasker.ID
	StepUUID    tasker.ID
	Namespace   string
	Handler     string
	Priority    int
	StateSince  time.Time
	InputsBytes *int64
	Aside       *int64 // the key under which it is put aside; nil: it is in the queue
	LimitIDs    []int64
	Keys        []string
}

func (s limitedStep) places() []limitPlace {
	list := make([]limitPlace, len(s.Keys))
	for i := range s.Keys {
		list[i] = limitPlace{s.LimitIDs[i], s.Keys[i]}
	}
	return list
}

// How far one claim goes: so many transactions, of which each puts at most so many steps aside.
const (
	limitRounds = 8
	maxAside    = 1000
)

// claimLimited hands out steps that may have limits.
func (db *DB) claimLimited(ctx context.Context, c Claimant, size claimSize, l look) (ClaimResult, error) {
	keys, cursor := db.limits.hint(c)
	depth := max(size.limit, 16)
	var all ClaimResult
	for round := 0; ; round++ {
		a := admission{claimant: c, size: claimSize{size.limit - len(all.Steps), size.budget - all.bytes, depth}, gates: noNil(l.gates), keys: keys, cursor: cursor}
		next, err := db.claimRound(ctx, &a)
		if err != nil && len(all.Steps) > 0 {
			return all, nil // what is handed out is committed
		}
		if err != nil {
			return ClaimResult{}, fmt.Errorf("claim steps with limits: %w", err)
		}
		all.add(next)
		keys, cursor = a.wanted, a.cursor
		db.limits.change(c, func(s *limitedSet) { s.keys, s.cursor = fewKeys(keys), cursor })
		if !a.goOn || round == limitRounds || len(all.Steps) >= size.limit || all.bytes >= size.budget || all.InTheWay() {
			break
		}
		if len(next.Steps) == 0 && len(a.unlocked) == 0 {
			depth = min(depth*lookFurther, maxAside)
		}
	}
	if len(all.Steps) == 0 && all.again == 0 {
		waits, err := db.waitsForLimit(ctx, c)
		if err != nil {
			return ClaimResult{}, err
		}
		if waits {
			all.again = limitRest
		}
	}
	return all, nil
}

// takeLimited hands out those of the steps that are enqueued and whose limits have places.
func (db *DB) takeLimited(ctx context.Context, c Claimant, steps []tasker.StepRef, l look) (ClaimResult, error) {
	var all ClaimResult
	var keys []limitPlace
	for round := 0; ; round++ {
		a := admission{
			claimant: c, size: claimSize{len(steps), tasker.MaxClaimBytes - all.bytes, len(steps) + 1}, gates: noNil(l.gates), named: steps, keys: keys,
		}
		next, err := db.claimRound(ctx, &a)
		if err != nil && len(all.Steps) > 0 {
			return all, nil // what is handed out is committed
		}
		if err != nil {
			return ClaimResult{}, fmt.Errorf("take steps with limits: %w", err)
		}
		all.add(next)
		if keys = a.wanted; len(a.unlocked) == 0 || round == limitRounds {
			return all, nil
		}
	}
}

// fewKeys returns the keys, or none if they are so many that the next steps will have others.
func fewKeys(keys []limitPlace) []limitPlace {
	if len(keys) > 16 {
		return nil
	}
	return keys
}

// An admission is one transaction of a claim with limits.
type admission struct {
	claimant Claimant
	size     claimSize
	gates    []tasker.ID
	named    []tasker.StepRef // only these; nil: what is most urgent
	keys     []limitPlace     // that are locked, in their order
	cursor   int64

	counts   map[limitPlace]*limitCount
	taken    []limitedStep
	refused  []limitedStep // each by the key at its place in blocked
	blocked  []int64
	wanted   []limitPlace // the keys of what was looked at
	unlocked []limitPlace // those of them that were not locked
	again    time.Duration
	goOn     bool // there may be more to hand out
}

func (db *DB) claimRound(ctx context.Context, a *admission) (result ClaimResult, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		*a = admission{claimant: a.claimant, size: a.size, gates: a.gates, named: a.named, keys: a.keys, cursor: a.cursor}
		if err := a.lock(ctx, tx); err != nil {
			return err
		}
		list, err := a.candidates(ctx, tx)
		if err != nil {
			return err
		}
		a.admit(list)
		if err := a.putAside(ctx, tx); err != nil {
			return err
		}
		result, err = a.lease(ctx, tx)
		return err
	})
	if err != nil {
		return ClaimResult{}, err
	}
	result.again = a.again
	return result, nil
}

// lock locks the keys, makes those that are not there, and counts their places.
func (a *admission) lock(ctx context.Context, tx *Tx) error {
	a.counts = make(map[limitPlace]*limitCount, len(a.keys))
	if len(a.keys) == 0 {
		return nil
	}
	type locked struct {
		LimitKeyID int64
		limitPlace
	}
	ids, texts := make([]int64, len(a.keys)), make([]string, len(a.keys))
	for i, k := range a.keys {
		ids[i], texts[i] = k.LimitID, k.Key
	}
	list, err := collect[locked](ctx, tx, lockLimitKeys, ids, texts)
	if err != nil {
		return err
	}
	if len(list) < len(a.keys) {
		if _, err := tx.Exec(ctx, makeLimitKeys, ids, texts); err != nil {
			return err
		}
		if list, err = collect[locked](ctx, tx, lockLimitKeys, ids, texts); err != nil {
			return err
		}
	}
	keys := make([]int64, len(list))
	for i, k := range list {
		keys[i] = k.LimitKeyID
	}
	counts, err := collect[limitCount](ctx, tx, countLimitKeys, keys)
	if err != nil {
		return err
	}
	for i := range counts {
		a.counts[limitPlace{counts[i].LimitID, counts[i].Key}] = &counts[i]
	}
	return nil
}

func (a *admission) candidates(ctx context.Context, tx *Tx) ([]limitedStep, error) {
	c := a.claimant
	if a.named != nil {
		tasks, steps := refArrays(a.named)
		return collect[limitedStep](ctx, tx, limitedNamed, c.Namespaces, c.Handlers, tasks, c.WorkerUUID, a.gates, noNil(c.Without), steps)
	}
	args := []any{c.Namespaces, c.Handlers, a.size.depth, c.WorkerUUID, a.gates, noNil(c.Without), a.cursor}
	if len(c.Namespaces)*len(c.Handlers) > manyQueues {
		return collect[limitedStep](ctx, tx, limitedCandidatesMany, args...)
	}
	return collect[limitedStep](ctx, tx, limitedCandidates, args...)
}

// admit chooses, in the order of urgency, the steps whose limits have places.
func (a *admission) admit(list []limitedStep) {
	seen := map[limitPlace]bool{}
	a.goOn = len(list) >= a.size.depth
	last := int64(0)
	for _, s := range list {
		if s.Aside != nil {
			last = max(last, *s.Aside)
		}
		full, known := a.blocker(s, seen)
		switch {
		case !known:
			a.goOn = true
		case full != nil:
			a.refused, a.blocked = append(a.refused, s), append(a.blocked, full.LimitKeyID)
			if wait := full.again(); a.again == 0 || wait < a.again {
				a.again = wait
			}
		case len(a.taken) < a.size.limit:
			a.taken = append(a.taken, s)
			for _, p := range s.places() {
				a.counts[p].taken++
			}
		default:
			a.goOn = true
		}
	}
	a.cursor = last
	for p := range seen {
		a.wanted = append(a.wanted, p)
		if a.counts[p] == nil {
			a.unlocked = append(a.unlocked, p)
		}
	}
	slices.SortFunc(a.wanted, comparePlaces)
}

// blocker returns the first key of a step that has no place; known is false when one is not locked.
func (a *admission) blocker(s limitedStep, seen map[limitPlace]bool) (full *limitCount, known bool) {
	known = true
	for _, p := range s.places() {
		seen[p] = true
		k := a.counts[p]
		if k == nil {
			known = false
		} else if full == nil && k.room() == 0 {
			full = k
		}
	}
	return full, known || full != nil
}

// putAside puts what has no place aside, so that it is not looked at again before there is one.
func (a *admission) putAside(ctx context.Context, tx *Tx) error {
	type list struct {
		tasks, steps []tasker.ID
		keys         []int64
	}
	var queued, other list
	for i, s := range a.refused {
		to := &queued
		if s.Aside != nil {
			if *s.Aside == a.blocked[i] {
				continue
			}
			to = &other
		}
		to.tasks, to.steps, to.keys = append(to.tasks, s.TaskUUID), append(to.steps, s.StepUUID), append(to.keys, a.blocked[i])
	}
	if len(queued.tasks) > 0 {
		if _, err := tx.Exec(ctx, setAsideLimited, queued.tasks, queued.steps, queued.keys); err != nil {
			return err
		}
	}
	if len(other.tasks) > 0 {
		if _, err := tx.Exec(ctx, changeKey, other.tasks, other.steps, other.keys); err != nil {
			return err
		}
	}
	return nil
}

// lease hands out what was admitted, with its places, and has the rates count it.
func (a *admission) lease(ctx context.Context, tx *Tx) (ClaimResult, error) {
	if len(a.taken) == 0 {
		return ClaimResult{Steps: []Claimed{}}, nil
	}
	c := a.claimant
	var tasks, steps, placed []tasker.ID
	var aside []bool
	var keys []int64
	byStep := make(map[tasker.ID][]limitPlace, len(a.taken))
	for _, s := range a.taken {
		tasks, steps, aside = append(tasks, s.TaskUUID), append(steps, s.StepUUID), append(aside, s.Aside != nil)
		byStep[s.StepUUID] = s.places()
		for _, p := range byStep[s.StepUUID] {
			placed, keys = append(placed, s.StepUUID), append(keys, a.counts[p].LimitKeyID)
		}
	}
	rows, err := collect[claimRow](ctx, tx, leaseLimited, c.Namespaces, c.Handlers, tasks, c.WorkerUUID, c.Lease, noNil(c.Without), a.size.budget,
		steps, aside, noNil(placed), noNil(keys))
	if err != nil {
		return ClaimResult{}, err
	}
	result := claimResult(rows)
	charged := map[int64]float64{}
	for _, s := range result.Steps {
		for _, p := range byStep[s.StepUUID] {
			if k := a.counts[p]; k.PerSecond != nil {
				charged[k.LimitKeyID]++
			}
		}
	}
	return result, a.charge(ctx, tx, charged)
}

func (a *admission) charge(ctx context.Context, tx *Tx, steps map[int64]float64) error {
	if len(steps) == 0 {
		return nil
	}
	var keys []int64
	var counts []float64
	for k, n := range steps {
		keys, counts = append(keys, k), append(counts, n)
	}
	_, err := tx.Exec(ctx, chargeKeys, keys, counts)
	return err
}
