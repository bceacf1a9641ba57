package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// manyQueues is the maximum number of queues that a claim reads without checking first which of them
// are empty.
const manyQueues = 200

// claimSteps returns the statement that claims steps within the ranges of the mode, and its
// arguments.
func (c Claimant) claimSteps(size claimSize, l claimMode) (sql string, args []any) {
	turns, shares := l.turn.ofRanges(l.ranges)
	r := l.ranges
	return statement("claimSteps"), []any{
		c.WorkerUUID, c.Lease, size.limit, size.budget, nonNil(c.Without), size.depth, nonNil(l.gates), l.turn.minAge(),
		nonNil(r.namespaces), nonNil(r.handlers), nonNil(r.low), nonNil(r.high), nonNil(r.since), turns, shares,
		c.Namespaces, c.Handlers,
	}
}

// rangesFor returns the ranges of queues that a claim reads. If the claim is by age or from many
// queues, it finds the nonempty queues and their priorities first.
func (db *DB) rangesFor(ctx context.Context, c Claimant, t *fairOrder) (*queueRanges, error) {
	if r := db.heads.rangesFor(c); r != nil {
		return r, nil
	}
	if len(c.Namespaces)*len(c.Handlers) <= manyQueues && !t.ordersByAge() {
		return wholeQueues(c), nil
	}
	type level struct {
		QueueName
		Priority int64
	}
	levels, err := collect[level](ctx, db.pool, statement("selectLevels"), c.Namespaces, c.Handlers, maxHeads)
	if err != nil {
		return nil, fmt.Errorf("find waiting queues: %w", err)
	}
	r := &queueRanges{}
	for _, l := range levels {
		r.addRange(l.QueueName, l.Priority, l.Priority, time.Time{})
	}
	return r, nil
}

// wholeQueues returns a range for each queue of a claimant.
func wholeQueues(c Claimant) *queueRanges {
	r := &queueRanges{}
	for _, namespace := range c.Namespaces {
		for _, handler := range c.Handlers {
			r.addRange(QueueName{namespace, handler}, lowest, highest, time.Time{})
		}
	}
	return r
}

// nonNil replaces nil with an empty slice, since pgx sends nil as NULL.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Claimant describes a worker that claims steps.
type Claimant struct {
	WorkerUUID tasker.ID
	Namespaces []string
	Handlers   []string
	Lease      time.Duration
	Without    []tasker.ID // steps to exclude
	Version    string      // version of the worker

	freed []tasker.StepRef // steps whose report has just freed slots
}

// If other claims hold too many locks, a claim is repeated up to claimRetries times. Each time it
// reads depthFactor times as many steps.
const (
	depthFactor  = 4
	claimRetries = 3
)

// ClaimSteps leases up to limit enqueued steps, most urgent first. The total size of their inputs
// is at most [tasker.MaxClaimBytes], but a single step always fits.
func (db *DB) ClaimSteps(ctx context.Context, c Claimant, limit int) (ClaimResult, error) {
	return db.claimSteps(ctx, c, limit, tasker.MaxClaimBytes)
}

func (db *DB) claimSteps(ctx context.Context, c Claimant, limit, budget int) (ClaimResult, error) {
	var all ClaimResult
	depth := limit
	for retries := 0; ; retries++ {
		next, err := db.claimOnce(ctx, c, claimSize{limit - len(all.Steps), budget - all.bytes, depth})
		if err != nil && len(all.Steps) > 0 {
			return all, nil // these steps are already leased; the next claim will return the error
		}
		if err != nil {
			return ClaimResult{}, err
		}
		all.add(next)
		if !next.busy || retries == claimRetries || len(all.Steps) >= limit || all.bytes >= budget {
			return all, nil
		}
		depth *= depthFactor
	}
}

// claimSize contains the limits of a claim: steps, bytes of inputs, and steps to read per queue.
type claimSize struct{ limit, budget, depth int }

func (db *DB) claimOnce(ctx context.Context, c Claimant, size claimSize) (ClaimResult, error) {
	turn, err := db.fairOrderFor(ctx, c)
	if err != nil {
		return ClaimResult{}, err
	}
	result, err := db.claimCheckingHolds(ctx, c.Version, func(l claimMode) (ClaimResult, error) {
		l.turn = turn
		if !db.limits.mayHaveLimits(c) {
			if l.ranges, err = db.rangesFor(ctx, c, turn); err != nil {
				return ClaimResult{}, err
			}
			sql, args := c.claimSteps(size, l)
			if result, err := db.runClaim(ctx, sql, args); err != nil || !result.limited {
				return result, err
			}
			db.limits.recordSeen(c)
		}
		return db.claimLimited(ctx, c, size, l)
	})
	if err == nil {
		db.recordClaim(turn, result)
	}
	return result, err
}

// ExtendLeases extends the leases that a worker still holds, records its heartbeat and reports
// whether it is draining. A lease lasts at least as long as the registration of the worker
// promised. The result omits lost leases. It returns NotFound if the worker is unknown.
func (db *DB) ExtendLeases(
	ctx context.Context, worker tasker.ID, lease time.Duration, leases []tasker.Lease,
) (extended []tasker.LeaseExtension, drains bool, err error) {
	err = retry(ctx, func() error {
		var promised time.Duration
		err := db.pool.QueryRow(ctx, statement("recordHeartbeat"), worker).Scan(&drains, &promised)
		if errors.Is(err, pgx.ErrNoRows) {
			return newUnknownWorkerError(worker)
		}
		if err != nil {
			return err
		}
		if len(leases) == 0 {
			extended = nil
			return nil
		}
		tasks, steps, fences := toLeaseArrays(leases)
		extended, err = collect[tasker.LeaseExtension](ctx, db.pool, statement("extendLeases"), tasks, steps, fences, worker, max(lease, promised))
		return err
	})
	return extended, drains, wrapError(err, "extend leases")
}

// ReleaseSteps releases leases of a worker. It returns the steps whose leases it still held.
func (db *DB) ReleaseSteps(ctx context.Context, worker tasker.ID, leases []tasker.Lease) ([]tasker.ID, error) {
	tasks, steps, fences := toLeaseArrays(leases)
	var released []tasker.ID
	err := retry(ctx, func() (err error) {
		released, err = collectColumn[tasker.ID](ctx, db.pool, statement("releaseSteps"), tasks, steps, fences, worker, db.queue.ttlMS, db.queue.announce)
		return err
	})
	return released, wrapError(err, "release steps")
}

func toLeaseArrays(leases []tasker.Lease) (tasks, steps []tasker.ID, fences []int64) {
	for _, l := range leases {
		tasks = append(tasks, l.TaskUUID)
		steps = append(steps, l.StepUUID)
		fences = append(fences, l.Fence)
	}
	return tasks, steps, fences
}

func newUnknownWorkerError(id tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "worker %s is not registered: register again", id)
}
