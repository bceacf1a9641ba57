package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// A slot is a row that contains a step and its fence. It counts as long as the step is in progress
// with that fence, so no update is needed to free it.
//
// A claim with limits is a transaction. It locks the keys that whole queues share and reads
// candidates. It then locks the other keys that the most urgent ones need, counts the free slots in
// a later statement, and leases the steps that fit (see [admission]). Every claim that has locked a
// key before is visible to that count, so limits are exact.
//
// Deadlocks cannot occur: all claims lock shared keys first, in one order. They skip locked keys of
// templates or wait for them in one order, and they skip locked steps.
//
// A claim that gets fewer steps than it wants parks those whose keys are full. Later claims skip
// them until the key has a free slot.

const (
	limitDelay  = 250 * time.Millisecond // maximum delay between claims while steps wait for a limit
	limitRounds = 5                      // maximum number of transactions in one claim
	leastDepth  = 64                     // minimum number of steps to read of a queue with limits of templates
)

// A limitedClaim is a claim that checks limits. Each round is a transaction.
type limitedClaim struct {
	Claimant
	db     *DB
	size   claimSize
	mode   claimMode
	steps  []tasker.StepRef // claim only these steps; nil claims the most urgent ones
	cursor int64            // key after which the scan of keys with parked steps begins
	waits  bool             // wait for locked keys of templates instead of skipping them
	parks  *bool            // park steps whose queue has no free slot; nil before this is needed
}

// claimLimited claims steps that may have limits.
func (db *DB) claimLimited(ctx context.Context, c Claimant, size claimSize, l claimMode) (ClaimResult, error) {
	leave, err := db.limits.enter(ctx, c)
	if err != nil {
		return ClaimResult{}, wrapError(err, "wait for another claim")
	}
	defer leave()
	claim := limitedClaim{Claimant: c, db: db, size: size, mode: l, cursor: db.limits.cursorOf(c)}
	result, err := claim.run(ctx)
	db.limits.setCursor(c, claim.cursor)
	return result, err
}

// run repeats the claim while another round may find more steps.
func (l *limitedClaim) run(ctx context.Context) (all ClaimResult, err error) {
	want := l.size
	for round := 1; ; round++ {
		l.size = claimSize{limit: want.limit - len(all.Steps), budget: want.budget - all.bytes}
		next, again, err := l.claim(ctx, len(all.Steps) > 0)
		if err != nil && len(all.Steps) > 0 {
			return all, nil // these steps are already leased; the next claim will return the error
		}
		if err != nil || next.held {
			return next, err
		}
		all.add(next)
		if !again || round == limitRounds || len(all.Steps) >= want.limit || all.bytes >= want.budget || all.IsBlocked() {
			return all, nil
		}
	}
}

// claim executes one round. It reports whether another round may find more steps. Set found if an
// earlier round has found some.
func (l *limitedClaim) claim(ctx context.Context, found bool) (result ClaimResult, again bool, err error) {
	r := limitedRound{limitedClaim: l}
	if err = l.db.inBatches(ctx, r.execute); err != nil {
		return result, false, fmt.Errorf("claim steps with limits: %w", err)
	}
	if len(r.missing) > 0 {
		return result, true, l.db.makeLimitKeys(ctx, r.missing)
	}
	if r.result.held || !r.conditions.Works {
		return r.result, false, nil
	}
	if len(r.verdict.admitted) < l.size.limit {
		r.result.again = r.retryAfter()
	}
	found = found || len(r.result.Steps) > 0
	again = r.parked || len(r.result.Steps) < len(r.verdict.admitted)
	before := l.cursor
	switch l.cursor = r.nextCursor(); {
	case found:
	case r.verdict.unlocked && !l.waits:
		l.waits, again = true, true
	case l.cursor != before: // there are keys with parked steps that the claim has not read
		again = true
	}
	return r.result, again, nil
}

// parksShared reports whether to park steps whose queue has no free slot.
func (l *limitedClaim) parksShared() bool {
	if l.parks == nil {
		l.parks = new(l.db.limits.canPark(l.Claimant))
	}
	return *l.parks
}

// newAdmission returns an admission of the size of the claim.
func (l *limitedClaim) newAdmission(keys map[int64]keySlots) admission {
	a := admission{limit: l.size.limit, budget: l.size.budget, keys: keys}
	if t := l.mode.turn; t != nil {
		a.turns = make(map[string]namespaceTurn, len(t.namespaces))
		for i, n := range t.namespaces {
			a.turns[n] = namespaceTurn{t.turns[i], t.shares[i]}
		}
	}
	return a
}

// A limitedRound is one round of a claim.
type limitedRound struct {
	*limitedClaim
	conditions claimConditions
	shared     []sharedLimit
	parkedIn   []parkedQueue
	freedKeys  []int64 // keys whose slots a report has freed, and that have parked steps
	candidates claimCandidates
	keys       map[int64]keySlots // free slots of the locked keys
	named      []int64            // locked keys of templates
	missing    []limitKey         // keys that must be created first
	verdict    verdict
	result     ClaimResult
	parked     bool // steps that block others were parked
}

// execute executes the round in a transaction, which ends with its last batch.
func (r *limitedRound) execute(ctx context.Context, conn *pooledConn) error {
	*r = limitedRound{limitedClaim: r.limitedClaim, keys: map[int64]keySlots{}}
	if err := r.begin(ctx, conn); err != nil {
		return err
	}
	r.result.held = r.conditions.Held && !r.mode.asks
	if r.result.held || !r.conditions.Works || len(r.missing) > 0 {
		return exec(ctx, conn, "end a claim", statement("rollback"))
	}
	if err := r.readParked(ctx, conn); err != nil {
		return err
	}
	likely := r.findLikely()
	if r.missing = r.candidates.missingKeys(likely); len(r.missing) > 0 {
		return exec(ctx, conn, "end a claim", statement("rollback"))
	}
	if err := r.lockNamedKeys(ctx, conn, likely); err != nil {
		return fmt.Errorf("lock the keys of limits: %w", err)
	}
	r.verdict = r.newAdmission(r.keys).decide(r.candidates.list)
	r.result = ClaimResult{Unmeasured: r.candidates.unmeasured, TooLarge: r.candidates.tooLarge, old: r.verdict.old}
	return r.lease(ctx, conn)
}

// findLikely returns the steps that would be admitted if all slots of their templates were free.
func (r *limitedRound) findLikely() []*candidate {
	keys := maps.Clone(r.candidates.capacities)
	maps.Copy(keys, r.keys)
	return r.newAdmission(keys).decide(r.candidates.list).admitted
}

// lockNamedKeys locks the keys of templates that steps need and counts their free slots.
func (r *limitedRound) lockNamedKeys(ctx context.Context, conn *pooledConn, steps []*candidate) error {
	for _, c := range steps {
		for _, n := range c.Needs {
			if _, locked := r.keys[n.key]; !locked {
				r.named = append(r.named, n.key)
			}
		}
	}
	if len(r.named) == 0 {
		return nil
	}
	slices.Sort(r.named)
	r.named = slices.Compact(r.named)
	var batch pgx.Batch
	if r.waits {
		batch.Queue(statement("lockLimitKeys"), r.named)
	} else {
		batch.Queue(statement("lockFreeLimitKeys"), r.named)
	}
	batch.Queue(statement("countFreeSlots"), r.named)
	results := conn.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }()
	locked, err := scanBatchRows(results, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	counted, err := readBatchRows[countedKey](results)
	if err != nil {
		return err
	}
	r.named = locked
	for _, k := range counted {
		if slices.Contains(locked, k.LimitKeyID) {
			r.keys[k.LimitKeyID] = k.toSlots()
		}
	}
	return classifyError(results.Close())
}

var admittedColumns = columns[*candidate]{
	newColumn("task_uuid uuid", func(c **candidate) tasker.ID { return (*c).TaskUUID }),
	newColumn("step_uuid uuid", func(c **candidate) tasker.ID { return (*c).StepUUID }),
	newColumn("namespace text", func(c **candidate) string { return (*c).Namespace }),
	newColumn("handler text", func(c **candidate) string { return (*c).Handler }),
	newColumn("priority int", func(c **candidate) int { return (*c).Priority }),
	newColumn("state_since timestamptz", func(c **candidate) time.Time { return (*c).StateSince }),
	newColumn("parked bool", func(c **candidate) bool { return (*c).Parked != 0 }),
	newColumn("bytes int", func(c **candidate) int { return (*c).Bytes }),
}

// lease leases the admitted steps, parks steps that block others and commits.
func (r *limitedRound) lease(ctx context.Context, conn *pooledConn) error {
	var batch pgx.Batch
	admitted := r.verdict.admitted
	if len(admitted) > 0 {
		batch.Queue(statement("deleteEndedSlots"), nonNil(r.named))
		batch.Queue(statement("leaseLimitedSteps"), r.leaseArgs()...)
	}
	parks := r.queueParking(&batch)
	batch.Queue(statement("commitReport"))
	results := conn.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }()
	if len(admitted) > 0 {
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("delete slots: %w", classifyError(err))
		}
		leased, err := readClaim(results)
		if err != nil {
			return err
		}
		r.result.Steps, r.result.bytes = leased.Steps, leased.bytes
	}
	for range parks {
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("park steps: %w", classifyError(err))
		}
	}
	return classifyError(results.Close())
}

// leaseArgs returns the arguments of the statement that leases the admitted steps.
func (r *limitedRound) leaseArgs() []any {
	var steps []tasker.ID
	var keys []int64
	var weights []int
	a := r.newAdmission(r.keys)
	for _, c := range r.verdict.admitted {
		for _, n := range c.Needs {
			steps, keys, weights = append(steps, c.StepUUID), append(keys, n.key), append(weights, a.weight(n))
		}
	}
	args := append([]any{r.WorkerUUID, r.Lease}, admittedColumns.toArrays(r.verdict.admitted)...)
	return append(args, nonNil(steps), nonNil(keys), nonNil(weights), nonNil(r.mode.gates))
}

// retryAfter returns the time until another claim may find more steps, or 0 if no step waits for a
// limit.
func (r *limitedRound) retryAfter() time.Duration {
	if !r.verdict.unlocked && len(r.verdict.refused) == 0 && len(r.parkedIn) == 0 && r.cursor == 0 {
		return 0
	}
	delay := limitDelay
	for _, slots := range r.keys {
		if slots.retry > 0 && slots.free < r.size.limit {
			delay = min(delay, slots.retry)
		}
	}
	return delay
}
