package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// StepLease is the state of a step's lease, against which reports are checked.
type StepLease struct {
	TaskUUID      tasker.ID
	StepUUID      tasker.ID
	State         string
	Fence         int64
	WorkerUUID    *tasker.ID
	ReportedFence *int64
	ReportDigest  []byte
}

// StepLeases returns the states of leases, by step. Steps that do not exist are omitted.
func (db *DB) StepLeases(ctx context.Context, leases []tasker.Lease) (map[tasker.ID]StepLease, error) {
	tasks, steps, _ := toLeaseArrays(leases)
	rows, err := collect[StepLease](ctx, db.pool, statement("stepLeases"), tasks, steps)
	return groupByKey(rows, func(l StepLease) tasker.ID { return l.StepUUID }), wrapError(err, "read lease states")
}

// ReportedBody returns the StepResult or StepFailure with which an attempt was concluded. It
// returns nil if a later attempt has been concluded.
func (db *DB) ReportedBody(ctx context.Context, task, step tasker.ID, fence int64, to tasker.StepState) (json.RawMessage, error) {
	body, err := queryFirst[json.RawMessage](ctx, db.pool, statement("reportedBody"), task, step, fence,
		to == tasker.StepComplete)
	if err != nil || body == nil {
		return nil, wrapError(err, "read the report of step %s", step)
	}
	return *body, nil
}

// LockStepLease locks a step and returns the state of its lease, or NotFound. The task must be
// locked.
func (tx *Tx) LockStepLease(ctx context.Context, task, step tasker.ID) (StepLease, error) {
	if err := tx.LockEnqueued(ctx, []tasker.StepRef{{TaskUUID: task, StepUUID: step}}); err != nil {
		return StepLease{}, err
	}
	return queryRequired[StepLease](ctx, tx, NewStepNotFoundError(task, step), "lock step", statement("lockStepLease"),
		task, step)
}

// RejectedReport is a report that was rejected because its lease was lost.
type RejectedReport struct {
	tasker.Lease
	WorkerUUID tasker.ID
	Success    bool
	Step       StepLease
	Message    string
}

var rejectedColumns = columns[RejectedReport]{
	newColumn("task_uuid uuid", func(r *RejectedReport) tasker.ID { return r.TaskUUID }),
	newColumn("step_uuid uuid", func(r *RejectedReport) tasker.ID { return r.StepUUID }),
	newColumn("worker_uuid uuid", func(r *RejectedReport) tasker.ID { return r.WorkerUUID }),
	newColumn("fence bigint", func(r *RejectedReport) int64 { return r.Fence }),
	newColumn("success bool", func(r *RejectedReport) bool { return r.Success }),
	newColumn("step_state text", func(r *RejectedReport) string { return r.Step.State }),
	newColumn("step_fence bigint", func(r *RejectedReport) int64 { return r.Step.Fence }),
	newColumn("message text", func(r *RejectedReport) string { return r.Message }),
}

// RecordRejected records rejected reports for the audit. It keeps at most
// [tasker.MaxRejectedReports] per step.
func (db *DB) RecordRejected(ctx context.Context, list []RejectedReport) error {
	return exec(ctx, db.pool, "record rejected reports", statement("recordRejected"), rejectedColumns.toArrays(list)...)
}

// NextClaim is a claim that follows a report.
type NextClaim struct {
	Claimant
	Limit     int
	OnlyReady bool // claim only steps that the report makes ready
}

// Report concludes steps, settles their tasks and, if next is not nil, claims enqueued steps. It
// does so in one transaction, unless the claimed steps may have limits: their claim follows in its
// own transaction. All outcomes must be successes, since a permanent failure opens an investigation.
// Claims lock steps last and skip locked steps, so they cannot deadlock.
func (db *DB) Report(ctx context.Context, list []core.Outcome, next *NextClaim) (Concluded, ClaimResult, error) {
	within := next
	if next != nil && db.limits.mayHaveLimits(next.Claimant) {
		within = nil
	}
	concluded, claimed, err := db.report(ctx, list, within)
	if err != nil || next == nil {
		return concluded, claimed, err
	}
	if claimed.limited {
		db.limits.recordSeen(next.Claimant)
	}
	if (claimed.limited || within == nil) && len(claimed.Steps) == 0 && !next.OnlyReady {
		c := *next
		c.freed = mapSlice(list, core.Outcome.Ref)
		claimed = db.claimAfter(ctx, &c)
	}
	return concluded, claimed, nil
}

// minClaimTime is the minimum time before the deadline that allows another claim. Steps that are
// claimed for a caller that has disconnected wait until their leases expire.
const minClaimTime = 3 * time.Second

// claimAfter claims steps in another transaction after a report was committed. It claims none if the
// deadline is near, or after an error: the worker polls again.
func (db *DB) claimAfter(ctx context.Context, next *NextClaim) ClaimResult {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < minClaimTime {
		return ClaimResult{}
	}
	claimed, err := db.ClaimSteps(ctx, next.Claimant, next.Limit)
	if err != nil {
		return ClaimResult{}
	}
	return claimed
}

// queueClaim adds the statement of a claim to a batch.
func queueClaim(b *pgx.Batch, next *NextClaim, l claimMode, size claimSize) {
	sql, args := next.claimSteps(size, l)
	b.Queue(sql, args...)
}

func (db *DB) report(ctx context.Context, list []core.Outcome, next *NextClaim) (concluded Concluded, claimed ClaimResult, err error) {
	r := report{db: db, list: list, next: next}
	if next != nil {
		if r.mode, err = db.nextClaimMode(ctx, next); err != nil {
			r.next = nil // the worker polls again
		} else {
			r.mode.direct = next.Limit > 0 && db.canClaimDirectly(next, r.mode)
		}
	}
	if err = db.inBatches(ctx, r.run); err != nil {
		return Concluded{}, ClaimResult{}, err
	}
	if r.claimed.held || r.claimed.limited {
		db.turns.repeatByAge(r.mode.turn)
	} else {
		db.recordClaim(r.mode.turn, r.claimed)
	}
	return r.concluded, r.claimed, nil
}

// report applies reported outcomes in two round trips: the first locks and loads the tasks, the
// second stores what was decided.
type report struct {
	db   *DB
	list []core.Outcome
	next *NextClaim
	mode claimMode

	conn      *pooledConn
	front     queueFront
	handed    []tasker.StepRef // steps that the worker claims directly
	bytes     int              // size of their inputs
	concluded Concluded
	claimed   ClaimResult
}

// run is one attempt in a transaction.
func (r *report) run(ctx context.Context, conn *pooledConn) error {
	r.conn = conn
	r.handed, r.bytes, r.claimed = nil, 0, ClaimResult{}
	states, err := r.load(ctx)
	if err != nil {
		return err
	}
	o := concludeOptions{queues: r.db.queue.report}
	if r.mode.direct && r.front.Claims {
		o.worker, o.takes = r.next.WorkerUUID, r.takes
	}
	decided := conclude(states, r.list, o)
	stored, err := collectChanges(states.now, decided.changes, states)
	if err != nil {
		return err
	}
	if err = r.store(ctx, &stored, states, decided.changes); err != nil {
		return err
	}
	r.concluded = decided.addStored(stored)
	return nil
}

// load locks the tasks and loads them.
func (r *report) load(ctx context.Context) (loadedTasks, error) {
	request := newOutcomeRequest(r.list)
	var batch pgx.Batch
	batch.Queue(statement("begin"))
	batch.Queue(statement("lockTasks"), request.tasks)
	if r.mode.direct {
		q := r.mode.ranges
		batch.Queue(statement("findQueueFront"), r.next.WorkerUUID, q.namespaces, q.handlers, q.low, q.high, q.since)
	}
	request.queue(&batch)
	results := r.conn.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }()
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return loadedTasks{}, fmt.Errorf("lock tasks: %w", classifyError(err))
		}
	}
	if r.mode.direct {
		front, err := readBatchRows[queueFront](results)
		if err != nil {
			return loadedTasks{}, fmt.Errorf("read the front of the queue: %w", err)
		}
		r.front = front[0]
	}
	states, err := request.read(results)
	if err == nil {
		err = classifyError(results.Close())
	}
	if err == nil {
		err = states.complete(ctx, r.conn, request)
	}
	return states, err
}

// takes reports whether the worker claims a step that the report makes ready: it wants more steps,
// nothing in its queues is more urgent, and the inputs are not too large.
func (r *report) takes(s *stepState) bool {
	n := r.next
	switch {
	case len(r.handed) >= n.Limit, !slices.Contains(n.Namespaces, s.namespace), !slices.Contains(n.Handlers, s.handler), slices.Contains(n.Without, s.ID),
		r.front.Urgent != nil && s.priority < *r.front.Urgent, s.InputBytes == nil || *s.InputBytes > tasker.MaxInputBytes:
		return false
	}
	size := min(int(*s.InputBytes), maxStepSize)
	if r.bytes+size > tasker.MaxClaimBytes {
		return false
	}
	r.bytes += size
	r.handed = append(r.handed, tasker.StepRef{TaskUUID: s.taskUUID, StepUUID: s.ID})
	return true
}

// store stores the changes, settles the tasks and claims steps. The states of large tasks may
// require a count of their steps, which takes another round trip.
func (r *report) store(ctx context.Context, stored *storedChange, states loadedTasks, changes []*core.Change) error {
	rests, uncounted := restsOf(states, changes)
	var batch pgx.Batch
	stored.enqueue(&batch, storeOptions{queue: r.db.queue, lease: r.lease()})
	if len(uncounted) > 0 {
		batch.Queue(statement("countSteps"), uncounted)
		results := r.conn.SendBatch(ctx, &batch)
		err := stored.read(results)
		if err == nil {
			var counted []restingTask
			counted, err = scanBatchRows(results, scanCounts)
			rests = append(rests, counted...)
		}
		if closed := results.Close(); err == nil {
			err = classifyError(closed)
		}
		if err != nil {
			return err
		}
		batch = pgx.Batch{}
		return r.finish(ctx, &batch, nil, rests)
	}
	return r.finish(ctx, &batch, stored, rests)
}

func (r *report) lease() time.Duration {
	if r.next == nil {
		return 0
	}
	return r.next.Lease
}

// finish sends the last statements, including those that the batch contains already.
func (r *report) finish(ctx context.Context, batch *pgx.Batch, stored *storedChange, rests []restingTask) error {
	if len(rests) > 0 {
		batch.Queue(statement("settleTasks"), append(restColumns.toArrays(rests), false, "", "")...)
	}
	if len(r.handed) > 0 {
		tasks, steps := toRefArrays(r.handed)
		batch.Queue(statement("readDirectClaims"), tasks, steps)
	}
	claims := r.next != nil && !r.next.OnlyReady && len(r.handed) < r.next.Limit
	if claims {
		limit := r.next.Limit - len(r.handed)
		queueClaim(batch, r.next, r.mode, claimSize{limit, tasker.MaxClaimBytes - r.bytes, limit})
	}
	batch.Queue(statement("commitReport"))
	results := r.conn.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }()
	if stored != nil {
		if err := stored.read(results); err != nil {
			return err
		}
	}
	if len(rests) > 0 {
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("settle tasks: %w", classifyError(err))
		}
	}
	if len(r.handed) > 0 {
		direct, err := readClaim(results)
		if err != nil {
			return err
		}
		r.claimed = direct
	}
	if claims {
		more, err := readClaim(results)
		if err != nil {
			return err
		}
		more.Steps, more.bytes = append(r.claimed.Steps, more.Steps...), more.bytes+r.claimed.bytes
		r.claimed = more
		if r.claimed.held {
			r.db.recordHold() // the worker polls again
		}
	}
	return classifyError(results.Close())
}

// nextClaimMode returns the mode for a claim that follows a report. A fair order is needed only
// if it claims waiting steps.
func (db *DB) nextClaimMode(ctx context.Context, next *NextClaim) (l claimMode, err error) {
	if l, err = db.claimModeFor(ctx, next.Version); err != nil {
		return l, err
	}
	if !next.OnlyReady {
		if l.turn, err = db.fairOrderFor(ctx, next.Claimant); err != nil {
			return l, err
		}
	}
	l.ranges, err = db.rangesFor(ctx, next.Claimant, l.turn)
	return l, err
}
