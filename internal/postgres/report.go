package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
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
// does so in one transaction and one round trip. All outcomes must be successes, since a permanent
// failure opens an investigation. Claims lock steps last and skip locked steps, so they cannot
// deadlock.
func (db *DB) Report(ctx context.Context, list []Conclusion, next *NextClaim) (Concluded, ClaimResult, error) {
	concluded, claimed, err := db.report(ctx, list, next)
	if err != nil || next == nil {
		return concluded, claimed, err
	}
	switch {
	case claimed.limited:
		db.limits.recordSeen(next.Claimant)
	case len(claimed.Steps) > 0 && db.limits.mayHaveLimits(next.Claimant):
		db.limits.recordReport(next.Claimant)
	}
	if claimed.more {
		db.limits.setCursor(next.Claimant, claimed.lookAt)
	}
	if claimed.reshaped {
		db.limits.setProfile(next.Claimant, claimed.shape)
	}
	if len(claimed.Steps) == 0 && (claimed.limited || claimed.further || claimed.unlocked || claimed.reshaped) {
		claimed = db.claimAfter(ctx, next, ClaimResult{})
	}
	return concluded, claimed, nil
}

// minClaimTime is the minimum time before the deadline that allows another claim. Steps that are
// claimed for a caller that has disconnected wait until their leases expire.
const minClaimTime = 3 * time.Second

// claimAfter claims more steps in another transaction after a report was committed.
func (db *DB) claimAfter(ctx context.Context, next *NextClaim, had ClaimResult) ClaimResult {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < minClaimTime || had.bytes >= tasker.MaxClaimBytes {
		return had
	}
	if more, err := db.claimSteps(ctx, next.Claimant, next.Limit-len(had.Steps), tasker.MaxClaimBytes-had.bytes); err == nil {
		had.add(more)
	}
	return had
}

// queueClaim adds the statements of a claim to a batch. It returns how many of them precede the one
// that returns steps.
func (db *DB) queueClaim(b *pgx.Batch, list []Conclusion, next *NextClaim, l claimMode) (before int) {
	if next.OnlyReady {
		b.Queue(claimReady)
		return 0
	}
	if !l.direct && db.limits.mayHaveLimits(next.Claimant) {
		c := db.limits.newClaim(next.Claimant, l)
		c.size = claimSize{limit: next.Limit, budget: tasker.MaxClaimBytes}
		c.freed = mapSlice(list, func(x Conclusion) tasker.StepRef { return tasker.StepRef{TaskUUID: x.TaskUUID, StepUUID: x.StepUUID} })
		return c.enqueue(b)
	}
	sql, args := next.claimStatement(next.Limit, tasker.MaxClaimBytes, next.Limit, l)
	b.Queue(sql, args...)
	return 0
}

func (db *DB) report(ctx context.Context, list []Conclusion, next *NextClaim) (concluded Concluded, claimed ClaimResult, err error) {
	var l claimMode
	if next != nil {
		if l, err = db.nextClaimMode(ctx, next); err != nil {
			next = nil // the worker polls again
		}
	}
	succeeded := areReportedSuccesses(list)
	if succeeded && db.canConcludeSingle(list, next, l) {
		concluded, claimed, done, err := db.reportSingle(ctx, &list[0], next, l)
		if err != nil || done {
			return concluded, claimed, err
		}
	}
	tasks := TaskIDs(list)
	l.direct = succeeded && db.canClaimDirectly(len(list), next, l)
	claims := next != nil && (l.direct || !next.OnlyReady)
	err = retry(ctx, func() error {
		var batch pgx.Batch
		batch.Queue(statement("lockTasks"), tasks)
		switch {
		case l.direct:
			batch.Queue(concludeAndClaim, append(newSuccessArgs(list, db.queue), next.directArgs(l)...)...)
		case succeeded:
			batch.Queue(concludeSucceeded, newSuccessArgs(list, db.queue)...)
		default:
			batch.Queue(concludeSteps, newConclusionArgs(list, db.queue)...)
		}
		batch.Queue(settleReported, tasks, false, "", "")
		before := 0
		if claims {
			before = db.queueClaim(&batch, list, next, l)
		}
		results := db.pool.SendBatch(ctx, &batch)
		defer func() { _ = results.Close() }()
		if concluded, err = readConcluded(results); err != nil {
			return err
		}
		if claims {
			if claimed, err = readClaim(results, before); err != nil {
				return err
			}
			if claimed.held {
				db.recordHold() // the worker polls again
			}
		}
		return results.Close() // this commits the transaction
	})
	if err != nil {
		return Concluded{}, ClaimResult{}, err
	}
	if claimed.held || claimed.limited {
		db.turns.repeatByAge(l.turn)
	} else {
		db.recordClaim(l.turn, claimed)
	}
	return concluded, claimed, nil
}

// nextClaimMode returns the mode for a claim that follows a report. A fair order is needed only
// if it claims waiting steps.
func (db *DB) nextClaimMode(ctx context.Context, next *NextClaim) (l claimMode, err error) {
	if l, err = db.claimModeFor(ctx, next.Version); err != nil {
		return l, err
	}
	l.heads = db.heads.rangesFor(next.Claimant)
	if !next.OnlyReady {
		l.turn, err = db.fairOrderFor(ctx, next.Claimant)
	}
	return l, err
}

// readConcluded reads the results of the statements of a report.
func readConcluded(results pgx.BatchResults) (Concluded, error) {
	if _, err := results.Exec(); err != nil {
		return Concluded{}, fmt.Errorf("lock tasks: %w", err)
	}
	c, err := readBatchRows[Concluded](results)
	if err != nil {
		return Concluded{}, fmt.Errorf("conclude steps: %w", err)
	}
	if _, err = results.Exec(); err != nil {
		return Concluded{}, fmt.Errorf("settle tasks: %w", err)
	}
	return c[0], nil
}
