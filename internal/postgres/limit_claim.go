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

// A place is a row that names a step and its fence. It counts while the step is in progress under
// that fence, so it is freed without an update.
//
// A step whose key is full stays in the queue while places keep coming free. It is parked when it
// blocks others or no place comes free; claims then skip it until there is one.

// hasLimits is true if steps of namespaces $1 and handlers $2 may have limits or due times.
var hasLimits = mayHaveLimits("$1", "$2")

// mayHaveLimits is hasLimits with the parameters that have the namespaces and handlers.
func mayHaveLimits(namespaces, handlers string) string {
	return `(EXISTS (SELECT FROM tasker.limit_queues) AND EXISTS (
        SELECT FROM tasker.limit_queues l
        WHERE l.namespace = ANY (array_append(` + namespaces + `::text[], '')) AND l.handler || '' = ANY (array_append(` + handlers + `::text[], ''))
    ) OR EXISTS (SELECT FROM tasker.due_queues) AND EXISTS (
        SELECT FROM tasker.due_queues l WHERE l.namespace = ANY (` + namespaces + `::text[]) AND l.handler || '' = ANY (` + handlers + `::text[])
    ))`
}

// limitedQueues remembers which claimants met limits. It is a hint.
type limitedQueues struct {
	mu   sync.Mutex
	sets map[string]*limitedSet
}

type limitedSet struct {
	until  time.Time
	asides time.Time // when a claim last looked for steps to put aside
	moved  time.Time // when a report last gave places back and took steps
	cursor int64     // of the keys for which steps were put aside
	shape  limitProfile
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
		s.until = time.Now().Add(holdCheckWindow)
	}
	f(s)
}

// looked notes after which key the claimant looks next at what is put aside.
func (q *limitedQueues) looked(c Claimant, upto int64) {
	q.change(c, func(s *limitedSet) { s.cursor = upto })
}

// claim returns the next claim of the claimant, with the last scan position and assumed limits.
func (q *limitedQueues) claim(c Claimant, l claimMode) limitedClaim {
	claim := limitedClaim{Claimant: c, look: l}
	q.change(c, func(s *limitedSet) { claim.cursor, claim.shape = s.cursor, s.shape })
	return claim
}

func (q *limitedQueues) reshape(c Claimant, shape limitProfile) {
	q.change(c, func(s *limitedSet) { s.shape = shape })
}

// takesOther stores the limits of the claimant's steps and reports whether the claim missed some.
func (q *limitedQueues) takesOther(claim *limitedClaim, last ClaimResult) bool {
	if !last.reshaped {
		return false
	}
	q.reshape(claim.Claimant, last.shape)
	more := last.shape < claim.shape
	claim.shape = min(claim.shape, last.shape)
	return more
}

// mayPutAside reports whether no recent claim of the same queues looked for steps to park.
func (q *limitedQueues) mayPutAside(c Claimant) (may bool) {
	q.change(c, func(s *limitedSet) {
		if may = time.Since(s.asides) >= asideEvery; may {
			s.asides = time.Now()
		}
	})
	return may
}

// reported notes that a report gave places back and took steps.
func (q *limitedQueues) reported(c Claimant) {
	q.change(c, func(s *limitedSet) { s.moved = time.Now() })
}

// moves reports whether places came free and were taken again a moment ago.
func (q *limitedQueues) moves(c Claimant) (yes bool) {
	q.change(c, func(s *limitedSet) { yes = time.Since(s.moved) < asideEvery })
	return yes
}

// limitRest is how long a claim rests at most while steps wait for a limit.
const (
	limitRest   = 250 * time.Millisecond
	limitRestMS = "250"
)

// How far one claim goes: so many transactions, of which each puts at most so many steps aside.
const (
	limitRounds = 8
	maxAside    = 1000
	asideEvery  = time.Second // for steps that are in the way of no others
	moreLooks   = 2           // of a claim that finds nothing, at keys for which steps are put aside
)

// Where claims with limits find steps.
var (
	eachQueue   = limitSource{queues: everyQueue(byUrgency)}
	manyWaiting = limitSource{queues: queuesWithAside}
	namedSteps  = limitSource{}
)

// limitStatements are the statements of claims with limits that find steps in one way.
type limitStatements struct {
	makeKeys, lockKeys, lockFree, lockFreeOld, full string

	claim, claimUnheld       [limitShapes]string // of named steps only the first
	claimOld, claimUnheldOld [limitShapes]string // what has waited for long comes first
}

func newLimitStatements(s limitSource) limitStatements {
	l := limitStatements{makeKeys: makeKeys(s), lockKeys: lockKeys(s)}
	if !s.named() {
		l.lockFree, l.lockFreeOld, l.full = lockFreeKeys(s, false), lockFreeKeys(s, true), fullSteps(s.queues)
	}
	for s.shape = range limitShapes {
		if s.shape == weighted || !s.named() {
			l.claim[s.shape], l.claimUnheld[s.shape] = claimLimitedSteps(s, withoutHolds, false), claimLimitedSteps(s, withHolds, false)
		}
		if !s.named() {
			l.claimOld[s.shape], l.claimUnheldOld[s.shape] = claimLimitedSteps(s, withoutHolds, true), claimLimitedSteps(s, withHolds, true)
		}
	}
	return l
}

var (
	limitedEach  = newLimitStatements(eachQueue)
	limitedMany  = newLimitStatements(manyWaiting)
	limitedNamed = newLimitStatements(namedSteps)
)

// limited returns the statements that suit a claimant.
func (c Claimant) limited() limitStatements {
	if len(c.Namespaces)*len(c.Handlers) > manyQueues {
		return limitedMany
	}
	return limitedEach
}

// A limitedClaim is one claim with limits, in one transaction.
type limitedClaim struct {
	Claimant
	size   claimSize
	look   claimMode
	steps  []tasker.StepRef // only these; nil: what is most urgent
	freed  []tasker.StepRef // the same transaction has reported these
	cursor int64
	shape  limitProfile
	looks  int  // further ones at keys for which steps are put aside
	waits  bool // for the keys of all steps that it looks at, and makes those that are missing
}

// queue adds the statements to a batch, and returns how many come before the one that hands out.
func (l limitedClaim) queue(b *pgx.Batch) int {
	c, of, before := l.Claimant, l.limited(), b.Len()
	args := []any{c.Namespaces, c.Handlers, l.size.limit, c.WorkerUUID, c.Lease, noNil(c.Without), l.size.budget}
	switch {
	case l.steps != nil:
		of, l.shape = limitedNamed, weighted
		tasks, steps := refArrays(l.steps)
		l.queueLocks(b, of, tasks, steps)
		args = append(args, tasks, steps)
	case l.shape == sharedOnly && !l.waits:
		b.Queue(lockOnlyQueueKeys, c.Namespaces, c.Handlers)
	default:
		l.queueLocks(b, of, l.size.limit, l.cursor)
	}
	if l.steps == nil {
		if l.shape != sharedOnly {
			args = append(args, l.cursor)
		}
		turns, shares := l.look.turn.of(c.Namespaces)
		args = append(args, turns, shares)
	}
	b.Queue(dropSlots)
	claim, unheld := of.claim[l.shape], of.claimUnheld[l.shape]
	if age := l.age(); age != nil {
		claim, unheld, args = of.claimOld[l.shape], of.claimUnheldOld[l.shape], append(args, age)
	}
	sql, args := l.look.statement(claim, unheld, args)
	b.Queue(sql, args...)
	return b.Len() - before - 1
}

// queueLocks adds the statements that lock the keys of queues and steps; which are arguments that say which steps.
func (l limitedClaim) queueLocks(b *pgx.Batch, of limitStatements, which ...any) {
	c := l.Claimant
	which = append([]any{c.Namespaces, c.Handlers}, which...)
	if l.waits {
		b.Queue(of.makeKeys, which...)
	}
	freedTasks, freedSteps := refArrays(l.freed)
	b.Queue(lockQueueKeys, c.Namespaces, c.Handlers, freedTasks, freedSteps)
	free := []any{c.Namespaces, c.Handlers, l.size.limit, noNil(c.Without), l.cursor}
	switch age := l.age(); {
	case l.waits:
		b.Queue(of.lockKeys, which...)
	case age != nil:
		b.Queue(of.lockFreeOld, append(free, age)...)
	default:
		b.Queue(of.lockFree, free...)
	}
}

// age is from which age on steps come first; nil: none do.
func (l limitedClaim) age() *time.Duration {
	if l.steps != nil {
		return nil
	}
	return l.look.turn.from()
}

// readClaim reads the answers of a claim in a batch, after so many statements without one.
func readClaim(results pgx.BatchResults, before int) (ClaimResult, error) {
	for range before {
		if _, err := results.Exec(); err != nil {
			return ClaimResult{}, fmt.Errorf("lock the keys of limits: %w", err)
		}
	}
	list, err := answered[claimRow](results)
	if err != nil {
		return ClaimResult{}, fmt.Errorf("claim steps: %w", err)
	}
	return claimResult(list), nil
}

func (db *DB) runLimited(ctx context.Context, l limitedClaim) (result ClaimResult, err error) {
	err = retry(ctx, func() error {
		var batch pgx.Batch
		before := l.queue(&batch)
		results := db.pool.SendBatch(ctx, &batch)
		defer func() { _ = results.Close() }()
		if result, err = readClaim(results, before); err != nil {
			return err
		}
		return results.Close() // only now is it committed
	})
	return result, wrap(err, "claim steps with limits")
}

// claimLimited hands out steps that may have limits.
func (db *DB) claimLimited(ctx context.Context, c Claimant, size claimSize, l claimMode) (ClaimResult, error) {
	claim := db.limits.claim(c, l)
	var all ClaimResult
	for round := 0; ; round++ {
		claim.size = claimSize{limit: size.limit - len(all.Steps), budget: size.budget - all.bytes}
		next, err := db.runLimited(ctx, claim)
		if (err != nil || next.held) && len(all.Steps) > 0 {
			return all, nil // what is handed out is committed
		}
		if err != nil || next.held {
			return next, err
		}
		if db.limits.takesOther(&claim, next) && round < limitRounds {
			continue
		}
		all.add(next)
		if round == limitRounds || len(all.Steps) >= size.limit || all.bytes >= size.budget || all.Blocked() {
			claim.goOn(db, next)
			break
		}
		again, err := db.shouldRetryClaim(ctx, &claim, next, len(all.Steps) > 0)
		if err != nil && len(all.Steps) == 0 {
			return all, err
		}
		if !again {
			break
		}
	}
	err := db.limitRetryDelay(ctx, c, &all)
	if len(all.Steps) > 0 {
		return all, nil // what is handed out is committed
	}
	return all, err
}

// goOn has the next look at what is put aside begin where the last one ended.
func (l *limitedClaim) goOn(db *DB, last ClaimResult) {
	if last.more {
		l.cursor = last.lookAt
		db.limits.looked(l.Claimant, l.cursor)
	}
}

// shouldRetryClaim reports whether another round may find more. It waits for locked keys, continues with
// further parked keys and parks steps that block others or wait for a limit: at once after an
// empty claim, now and then otherwise.
func (db *DB) shouldRetryClaim(ctx context.Context, claim *limitedClaim, last ClaimResult, found bool) (bool, error) {
	moves := db.limits.moves(claim.Claimant)
	if last.unlocked && !claim.waits && (!found || !moves) {
		claim.waits = true
		return true, nil
	}
	at := claim.cursor
	claim.waits = false
	claim.goOn(db, last)
	again := !found && (last.busy || last.more && claim.looks < moreLooks)
	if again && last.more {
		claim.looks++
	}
	behind := !found && (last.further || last.blocked)
	if behind || (last.further || last.again > 0 && !moves) && db.limits.mayPutAside(claim.Claimant) {
		moved, err := db.putAside(ctx, claim.Claimant, at)
		return again || behind && moved > 0, err
	}
	return again, nil
}

// limitRetryDelay looks whether steps wait for a limit, if a claim found nothing.
func (db *DB) limitRetryDelay(ctx context.Context, c Claimant, all *ClaimResult) error {
	if all.again > 0 || len(all.Steps) > 0 {
		return nil
	}
	waits, err := db.waitsForLimit(ctx, c)
	if waits {
		all.again = limitRest
	}
	return err
}

// parkSteps parks steps at the heads of queues with full keys, and moves parked steps to full keys.
func (db *DB) putAside(ctx context.Context, c Claimant, after int64) (int64, error) {
	list, err := one[fullList](ctx, db.pool, c.limited().full, c.Namespaces, c.Handlers, maxAside, after)
	if err != nil {
		return 0, fmt.Errorf("find steps that wait for limits: %w", err)
	}
	moved, err := db.setAsideLimited(ctx, list)
	if err == nil && moved == 0 && slices.Contains(list.Aside, false) { // perhaps the rows are outdated
		moved, err = db.RemoveOutdated(ctx, c, nil)
	}
	if err != nil || !slices.Contains(list.Aside, true) {
		return moved, err
	}
	changed, err := db.pool.Exec(ctx, changeKey, list.Tasks, list.Steps, list.Keys, list.Aside)
	if err != nil {
		return 0, fmt.Errorf("put steps aside under another key: %w", err)
	}
	return moved + changed.RowsAffected(), nil
}

// A fullList is steps, each with a key of its limits that has no places.
type fullList struct {
	Tasks, Steps []tasker.ID
	Keys         []int64
	Aside        []bool // they are put aside under another key
}

func (db *DB) setAsideLimited(ctx context.Context, list *fullList) (int64, error) {
	if len(list.Steps) == 0 {
		return 0, nil
	}
	tag, err := db.pool.Exec(ctx, setAsideLimited, list.Tasks, list.Steps, list.Keys)
	return tag.RowsAffected(), wrap(err, "put steps aside that wait for limits")
}

// ParkLimited puts those of enqueued steps aside that wait for a limit, and returns the others.
func (db *DB) ParkLimited(ctx context.Context, steps []tasker.StepRef) ([]tasker.StepRef, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	tasks, ids := refArrays(steps)
	list, err := one[fullList](ctx, db.pool, stepsOfFullKeys, tasks, ids)
	if err != nil {
		return nil, fmt.Errorf("find steps that wait for limits: %w", err)
	}
	if _, err := db.setAsideLimited(ctx, list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(steps, func(s tasker.StepRef) bool { return slices.Contains(list.Steps, s.StepUUID) }), nil
}

// takeLimited hands out those of the steps that are enqueued and whose limits have places.
func (db *DB) takeLimited(ctx context.Context, c Claimant, steps []tasker.StepRef, l claimMode) (ClaimResult, error) {
	var all ClaimResult
	for round := 0; ; round++ {
		next, err := db.runLimited(ctx, limitedClaim{
			Claimant: c, look: l, steps: steps, waits: true, size: claimSize{limit: len(steps), budget: tasker.MaxClaimBytes - all.bytes},
		})
		if (err != nil || next.held) && len(all.Steps) > 0 {
			return all, nil // what is handed out is committed
		}
		if err != nil || next.held {
			return next, err
		}
		all.add(next)
		if !next.unlocked && !next.busy || len(all.Steps) == len(steps) || round == limitRounds {
			return all, nil
		}
	}
}
