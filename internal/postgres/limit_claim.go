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

// A slot is a row that contains a step and its fence. It counts as long as the step is in progress
// with that fence, so no update is needed to free it.
//
// If the key of a step is full, the step stays in the queue as long as slots become free regularly.
// It is parked if it blocks other steps or no slot becomes free. Claims then skip it until its key
// has a free slot.

// hasLimits is true if steps with namespaces $1 and handlers $2 may have limits or due times.
var hasLimits = mayHaveLimitsSQL("$1", "$2")

func mayHaveLimitsSQL(namespaces, handlers string) string {
	return `(EXISTS (SELECT FROM tasker.limit_queues) AND EXISTS (
        SELECT FROM tasker.limit_queues l
        WHERE l.namespace = ANY (array_append(` + namespaces + `::text[], '')) AND l.handler || '' = ANY (array_append(` + handlers + `::text[], ''))
    ) OR EXISTS (SELECT FROM tasker.due_queues) AND EXISTS (
        SELECT FROM tasker.due_queues l WHERE l.namespace = ANY (` + namespaces + `::text[]) AND l.handler || '' = ANY (` + handlers + `::text[])
    ))`
}

// limitedQueues records which claimants have encountered limits. It is only a hint.
type limitedQueues struct {
	mu   sync.Mutex
	sets map[string]*limitState
}

type limitState struct {
	until      time.Time // end of the hint
	parkedAt   time.Time // time of the last scan for steps to park
	reportedAt time.Time // when a report last freed slots and claimed steps
	cursor     int64     // position of the scan of keys that have parked steps
	shape      limitProfile
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

// setCursor stores the key after which the claimant's next scan of parked steps begins.
func (q *limitedQueues) setCursor(c Claimant, key int64) {
	q.update(c, func(s *limitState) { s.cursor = key })
}

// newClaim returns a claim of the claimant that has its cursor and the limits that it is assumed to
// have.
func (q *limitedQueues) newClaim(c Claimant, l claimMode) limitedClaim {
	claim := limitedClaim{Claimant: c, mode: l}
	q.update(c, func(s *limitState) { claim.cursor, claim.shape = s.cursor, s.shape })
	return claim
}

func (q *limitedQueues) setProfile(c Claimant, shape limitProfile) {
	q.update(c, func(s *limitState) { s.shape = shape })
}

// adoptProfile stores which limits the claimant's steps actually have. It reports whether the claim
// has ignored some of them.
func (q *limitedQueues) adoptProfile(claim *limitedClaim, last ClaimResult) bool {
	if !last.reshaped {
		return false
	}
	q.setProfile(claim.Claimant, last.shape)
	more := last.shape < claim.shape
	claim.shape = min(claim.shape, last.shape)
	return more
}

// canPark reports whether to scan for steps to park: no recent claim from the same queues has done
// so.
func (q *limitedQueues) canPark(c Claimant) (may bool) {
	q.update(c, func(s *limitState) {
		if may = time.Since(s.parkedAt) >= parkInterval; may {
			s.parkedAt = time.Now()
		}
	})
	return may
}

// recordReport records that a report freed slots and claimed steps.
func (q *limitedQueues) recordReport(c Claimant) {
	q.update(c, func(s *limitState) { s.reportedAt = time.Now() })
}

// hasMoved reports whether slots were recently freed and claimed again.
func (q *limitedQueues) hasMoved(c Claimant) (yes bool) {
	q.update(c, func(s *limitState) { yes = time.Since(s.reportedAt) < parkInterval })
	return yes
}

// limitDelay is the maximum delay between claims while steps wait for a limit.
const (
	limitDelay   = 250 * time.Millisecond
	limitDelayMS = "250"
)

const (
	limitRounds  = 8           // maximum number of transactions in one claim
	maxParked    = 1000        // maximum number of steps that are parked in one transaction
	parkInterval = time.Second // interval of scans for steps that do not block others
	extraScans   = 2           // number of scans of further keys with parked steps if a claim finds none
)

var (
	eachQueue   = limitSource{queues: everyQueueSQL(byUrgency)}
	manyWaiting = limitSource{queues: queuesWithParked}
	namedSteps  = limitSource{}
)

// limitStatements contains the statements for claims with limits from one source of steps.
type limitStatements struct {
	makeKeys, lockKeys, lockFree, lockFreeOld, full string

	claim, claimUnheld       [limitShapes]string // for named steps, only the first shape is set
	claimOld, claimUnheldOld [limitShapes]string // claims by age
}

func newLimitStatements(s limitSource) limitStatements {
	l := limitStatements{makeKeys: makeKeysSQL(s), lockKeys: lockKeysSQL(s)}
	if !s.isNamed() {
		l.lockFree, l.lockFreeOld, l.full = lockFreeKeysSQL(s, false), lockFreeKeysSQL(s, true), fullStepsSQL(s.queues)
	}
	for s.shape = range limitShapes {
		if s.shape == weighted || !s.isNamed() {
			l.claim[s.shape], l.claimUnheld[s.shape] = claimLimitedStepsSQL(s, withoutHolds, false), claimLimitedStepsSQL(s, withHolds, false)
		}
		if !s.isNamed() {
			l.claimOld[s.shape], l.claimUnheldOld[s.shape] = claimLimitedStepsSQL(s, withoutHolds, true), claimLimitedStepsSQL(s, withHolds, true)
		}
	}
	return l
}

var (
	limitedEach  = newLimitStatements(eachQueue)
	limitedMany  = newLimitStatements(manyWaiting)
	limitedNamed = newLimitStatements(namedSteps)
)

func (c Claimant) limitStatements() limitStatements {
	if len(c.Namespaces)*len(c.Handlers) > manyQueues {
		return limitedMany
	}
	return limitedEach
}

// A limitedClaim is a claim that checks limits, in one transaction.
type limitedClaim struct {
	Claimant
	size   claimSize
	mode   claimMode
	steps  []tasker.StepRef // claim only these steps; nil claims the most urgent ones
	freed  []tasker.StepRef // steps that were reported in the same transaction
	cursor int64
	shape  limitProfile
	scans  int  // number of extra scans of keys with parked steps
	waits  bool // wait for the keys of all scanned steps and create those that are missing
}

// enqueue adds the statements of the claim to a batch. It returns how many of them precede the one
// that claims.
func (l limitedClaim) enqueue(b *pgx.Batch) int {
	c, of, before := l.Claimant, l.limitStatements(), b.Len()
	args := []any{c.Namespaces, c.Handlers, l.size.limit, c.WorkerUUID, c.Lease, nonNil(c.Without), l.size.budget}
	switch {
	case l.steps != nil:
		of, l.shape = limitedNamed, weighted
		tasks, steps := toRefArrays(l.steps)
		l.queueLocks(b, of, tasks, steps)
		args = append(args, tasks, steps)
	case l.shape == sharedOnly && !l.waits:
		b.Queue(statement("lockOnlyQueueKeys"), c.Namespaces, c.Handlers)
	default:
		l.queueLocks(b, of, l.size.limit, l.cursor)
	}
	if l.steps == nil {
		if l.shape != sharedOnly {
			args = append(args, l.cursor)
		}
		turns, shares := l.mode.turn.turnsAndShares(c.Namespaces)
		args = append(args, turns, shares)
	}
	b.Queue(statement("dropSlots"))
	claim, unheld := of.claim[l.shape], of.claimUnheld[l.shape]
	if age := l.age(); age != nil {
		claim, unheld, args = of.claimOld[l.shape], of.claimUnheldOld[l.shape], append(args, age)
	}
	sql, args := l.mode.buildStatement(claim, unheld, args)
	b.Queue(sql, args...)
	return b.Len() - before - 1
}

// queueLocks adds the statements that lock the keys of queues and steps. The argument which selects
// the steps.
func (l limitedClaim) queueLocks(b *pgx.Batch, of limitStatements, which ...any) {
	c := l.Claimant
	which = append([]any{c.Namespaces, c.Handlers}, which...)
	if l.waits {
		b.Queue(of.makeKeys, which...)
	}
	freedTasks, freedSteps := toRefArrays(l.freed)
	b.Queue(lockQueueKeys, c.Namespaces, c.Handlers, freedTasks, freedSteps)
	free := []any{c.Namespaces, c.Handlers, l.size.limit, nonNil(c.Without), l.cursor}
	switch age := l.age(); {
	case l.waits:
		b.Queue(of.lockKeys, which...)
	case age != nil:
		b.Queue(of.lockFreeOld, append(free, age)...)
	default:
		b.Queue(of.lockFree, free...)
	}
}

// age returns the minimum age for a claim by age, or nil for a claim by urgency.
func (l limitedClaim) age() *time.Duration {
	if l.steps != nil {
		return nil
	}
	return l.mode.turn.minAge()
}

// readClaim reads the result of a claim from a batch. The argument before is the number of
// statements that precede it.
func readClaim(results pgx.BatchResults, before int) (ClaimResult, error) {
	for range before {
		if _, err := results.Exec(); err != nil {
			return ClaimResult{}, fmt.Errorf("lock the keys of limits: %w", err)
		}
	}
	list, err := readBatchRows[claimRow](results)
	if err != nil {
		return ClaimResult{}, fmt.Errorf("claim steps: %w", err)
	}
	return newClaimResult(list), nil
}

func (db *DB) runLimited(ctx context.Context, l limitedClaim) (result ClaimResult, err error) {
	err = retry(ctx, func() error {
		var batch pgx.Batch
		before := l.enqueue(&batch)
		results := db.pool.SendBatch(ctx, &batch)
		defer func() { _ = results.Close() }()
		if result, err = readClaim(results, before); err != nil {
			return err
		}
		return results.Close() // this commits the transaction
	})
	return result, wrapError(err, "claim steps with limits")
}

// claimLimited claims steps that may have limits.
func (db *DB) claimLimited(ctx context.Context, c Claimant, size claimSize, l claimMode) (ClaimResult, error) {
	claim := db.limits.newClaim(c, l)
	var all ClaimResult
	for round := 0; ; round++ {
		claim.size = claimSize{limit: size.limit - len(all.Steps), budget: size.budget - all.bytes}
		next, err := db.runLimited(ctx, claim)
		if err != nil || next.held {
			if len(all.Steps) > 0 {
				return all, nil // the claimed steps are committed
			}
			return next, err
		}
		if db.limits.adoptProfile(&claim, next) && round < limitRounds {
			continue
		}
		all.add(next)
		if round == limitRounds || len(all.Steps) >= size.limit || all.bytes >= size.budget || all.IsBlocked() {
			claim.saveCursor(db, next)
			break
		}
		retry, err := db.shouldRetryClaim(ctx, &claim, next, len(all.Steps) > 0)
		if err != nil && len(all.Steps) == 0 {
			return all, err
		}
		if !retry {
			break
		}
	}
	if all.again > 0 || len(all.Steps) > 0 {
		return all, nil
	}
	waits, err := db.isWaitingForLimit(ctx, c)
	if waits {
		all.again = limitDelay
	}
	return all, err
}

// saveCursor stores where the next scan of parked steps begins: where the last one ended.
func (l *limitedClaim) saveCursor(db *DB, last ClaimResult) {
	if last.more {
		l.cursor = last.lookAt
		db.limits.setCursor(l.Claimant, l.cursor)
	}
}

// shouldRetryClaim reports whether another round may find more steps, and prepares that round. The
// claim then waits for locked keys or scans further keys with parked steps. It also parks steps
// that block others or wait for a limit, immediately after an empty claim and otherwise at
// intervals.
func (db *DB) shouldRetryClaim(ctx context.Context, claim *limitedClaim, last ClaimResult, found bool) (bool, error) {
	moves := db.limits.hasMoved(claim.Claimant)
	if last.unlocked && !claim.waits && (!found || !moves) {
		claim.waits = true
		return true, nil
	}
	at := claim.cursor
	claim.waits = false
	claim.saveCursor(db, last)
	retry := !found && (last.busy || last.more && claim.scans < extraScans)
	if retry && last.more {
		claim.scans++
	}
	blocked := !found && (last.further || last.blocked)
	if blocked || (last.further || last.again > 0 && !moves) && db.limits.canPark(claim.Claimant) {
		moved, err := db.parkBlocking(ctx, claim.Claimant, at)
		return retry || blocked && moved > 0, err
	}
	return retry, nil
}

// parkBlocking parks steps that are at the heads of queues and have full keys. Parked steps that
// another key blocks are moved to that key. It returns the number of steps.
func (db *DB) parkBlocking(ctx context.Context, c Claimant, after int64) (int64, error) {
	list, err := queryOne[fullList](ctx, db.pool, c.limitStatements().full, c.Namespaces, c.Handlers, maxParked, after)
	if err != nil {
		return 0, fmt.Errorf("find steps that wait for limits: %w", err)
	}
	moved, err := db.parkFullSteps(ctx, list)
	if err == nil && moved == 0 && slices.Contains(list.Parked, false) { // the rows may be outdated
		moved, err = db.RemoveOutdated(ctx, c, nil)
	}
	if err != nil || !slices.Contains(list.Parked, true) {
		return moved, err
	}
	changed, err := db.pool.Exec(ctx, statement("changeKey"), list.Tasks, list.Steps, list.Keys, list.Parked)
	if err != nil {
		return 0, fmt.Errorf("park steps under another key: %w", err)
	}
	return moved + changed.RowsAffected(), nil
}

// A fullList contains steps and, for each, one key that is full.
type fullList struct {
	Tasks, Steps []tasker.ID
	Keys         []int64
	Parked       []bool // already parked, under another key
}

func (db *DB) parkFullSteps(ctx context.Context, list *fullList) (int64, error) {
	if len(list.Steps) == 0 {
		return 0, nil
	}
	tag, err := db.pool.Exec(ctx, statement("parkFullSteps"), list.Tasks, list.Steps, list.Keys)
	return tag.RowsAffected(), wrapError(err, "park steps that wait for limits")
}

// ParkLimited parks those of the enqueued steps that wait for a limit, and returns the others.
func (db *DB) ParkLimited(ctx context.Context, steps []tasker.StepRef) ([]tasker.StepRef, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	tasks, ids := toRefArrays(steps)
	list, err := queryOne[fullList](ctx, db.pool, statement("stepsOfFullKeys"), tasks, ids)
	if err != nil {
		return nil, fmt.Errorf("find steps that wait for limits: %w", err)
	}
	if _, err := db.parkFullSteps(ctx, list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(steps, func(s tasker.StepRef) bool { return slices.Contains(list.Steps, s.StepUUID) }), nil
}

// takeLimited claims those of the given steps that are enqueued and whose limits have free slots.
func (db *DB) takeLimited(ctx context.Context, c Claimant, steps []tasker.StepRef, l claimMode) (ClaimResult, error) {
	var all ClaimResult
	for round := 0; ; round++ {
		next, err := db.runLimited(ctx, limitedClaim{
			Claimant: c, mode: l, steps: steps, waits: true, size: claimSize{limit: len(steps), budget: tasker.MaxClaimBytes - all.bytes},
		})
		if err != nil || next.held {
			if len(all.Steps) > 0 {
				return all, nil // the claimed steps are committed
			}
			return next, err
		}
		all.add(next)
		if !next.unlocked && !next.busy || len(all.Steps) == len(steps) || round == limitRounds {
			return all, nil
		}
	}
}
