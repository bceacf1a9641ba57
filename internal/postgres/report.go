package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// A StepLease is where a step stands, as far as a report must know to be judged.
type StepLease struct {
	TaskUUID      tasker.ID
	StepUUID      tasker.ID
	State         string
	Fence         int64
	WorkerUUID    *tasker.ID
	ReportedFence *int64
	ReportDigest  []byte
}

const stepLeases = `
SELECT s.task_uuid, s.step_uuid, s.state, s.fence, s.worker_uuid, s.reported_fence, s.report_digest
FROM tasker.workflow_steps s
JOIN unnest($1::uuid[], $2::uuid[]) AS l (task_uuid, step_uuid) USING (task_uuid, step_uuid)`

// StepLeases returns the states of the existing steps of leases.
func (db *DB) StepLeases(ctx context.Context, leases []tasker.Lease) (map[tasker.ID]StepLease, error) {
	tasks, steps, _ := leaseArrays(leases)
	rows, err := collect[StepLease](ctx, db.pool, stepLeases, tasks, steps)
	if err != nil {
		return nil, fmt.Errorf("read where steps stand: %w", err)
	}
	out := make(map[tasker.ID]StepLease, len(rows))
	for _, m := range rows {
		out[m.StepUUID] = m
	}
	return out, nil
}

const reportedBody = `
SELECT coalesce(s.kept_report -> 'Body', CASE WHEN $4 THEN s.results ELSE s.error END) AS body
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.step_uuid = $2 AND s.reported_fence = $3`

// ReportedBody returns the StepResult or StepFailure that concluded an attempt; nil if another
// attempt has been concluded since.
func (db *DB) ReportedBody(ctx context.Context, task, step tasker.ID, fence int64, to tasker.StepState) (json.RawMessage, error) {
	rows, err := column[json.RawMessage](ctx, db.pool, reportedBody, task, step, fence, to == tasker.StepComplete)
	if err != nil {
		return nil, fmt.Errorf("read what was reported of step %s: %w", step, err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return rows[0], nil
}

// Mark locks a step of a locked task and returns its state, or NotFound.
func (tx *Tx) Mark(ctx context.Context, task, step tasker.ID) (StepLease, error) {
	if err := tx.LockEnqueued(ctx, []tasker.StepRef{{TaskUUID: task, StepUUID: step}}); err != nil {
		return StepLease{}, err
	}
	m, err := one[StepLease](ctx, tx, `
		SELECT task_uuid, step_uuid, state, fence, worker_uuid, reported_fence, report_digest
		FROM tasker.workflow_steps
		WHERE task_uuid = $1 AND step_uuid = $2
		FOR NO KEY UPDATE`, task, step)
	if err != nil {
		return StepLease{}, fmt.Errorf("lock step: %w", err)
	}
	if m == nil {
		return StepLease{}, NoStep(task, step)
	}
	return *m, nil
}

// A RejectedReport is a report of an attempt that had lost its lease.
type RejectedReport struct {
	tasker.Lease
	WorkerUUID tasker.ID
	Success    bool
	Mark       StepLease
	Message    string
}

// rejectedColumns are a [RejectedReport] as recordRejected takes it.
var rejectedColumns = columns[RejectedReport]{
	col("task_uuid uuid", func(r *RejectedReport) tasker.ID { return r.TaskUUID }),
	col("step_uuid uuid", func(r *RejectedReport) tasker.ID { return r.StepUUID }),
	col("worker_uuid uuid", func(r *RejectedReport) tasker.ID { return r.WorkerUUID }),
	col("fence bigint", func(r *RejectedReport) int64 { return r.Fence }),
	col("success bool", func(r *RejectedReport) bool { return r.Success }),
	col("step_state text", func(r *RejectedReport) string { return r.Mark.State }),
	col("step_fence bigint", func(r *RejectedReport) int64 { return r.Mark.Fence }),
	col("message text", func(r *RejectedReport) string { return r.Message }),
}

var recordRejected = `
INSERT INTO tasker.rejected_reports (task_uuid, step_uuid, worker_uuid, fence, success, step_state, step_fence, message)
SELECT r.task_uuid, r.step_uuid, r.worker_uuid, r.fence, r.success, r.step_state, r.step_fence, r.message
FROM ` + rejectedColumns.unnest("r", 1) + `
WHERE (
    SELECT count(*)
    FROM (SELECT FROM tasker.rejected_reports x WHERE x.task_uuid = r.task_uuid AND x.step_uuid = r.step_uuid LIMIT ` + strconv.Itoa(tasker.MaxRejectedReports) + `) x
) < ` + strconv.Itoa(tasker.MaxRejectedReports)

// RecordRejected stores the first rejected report of each step for the audit.
func (db *DB) RecordRejected(ctx context.Context, list []RejectedReport) error {
	_, err := db.pool.Exec(ctx, recordRejected, rejectedColumns.arrays(list)...)
	return wrap(err, "record rejected reports")
}

// A NextClaim is the next work that a worker wants with the answer to its report.
type NextClaim struct {
	Claimant
	Limit     int
	OnlyReady bool // only steps that become ready by the report
}

// Report concludes steps by the reports of their worker, settles the tasks and, if the worker
// wants more, claims enqueued steps, in one transaction and round trip. It accepts successes only:
// a final failure opens an investigation. Claimed steps are locked last and skipped if locked, so
// there is no deadlock.
func (db *DB) Report(ctx context.Context, list []Conclusion, next *NextClaim) (Concluded, ClaimResult, error) {
	concluded, claimed, err := db.report(ctx, list, next)
	if err != nil || next == nil {
		return concluded, claimed, err
	}
	switch {
	case claimed.limited:
		db.limits.seen(next.Claimant)
	case len(claimed.Steps) > 0 && db.limits.mayHave(next.Claimant):
		db.limits.reported(next.Claimant)
	}
	if claimed.more {
		db.limits.setCursor(next.Claimant, claimed.lookAt)
	}
	if claimed.reshaped {
		db.limits.reshape(next.Claimant, claimed.shape)
	}
	if len(claimed.Steps) == 0 && (claimed.limited || claimed.further || claimed.unlocked || claimed.reshaped) {
		claimed = db.claimAfter(ctx, next, ClaimResult{})
	}
	return concluded, claimed, nil
}

// claimAfterAtLeast is how much time has to be left for a claim that follows a report: steps that it hands out when its caller is
// gone wait for the end of their leases.
const claimAfterAtLeast = 3 * time.Second

// claimAfter claims more steps after a committed report, in its own transaction.
func (db *DB) claimAfter(ctx context.Context, next *NextClaim, had ClaimResult) ClaimResult {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < claimAfterAtLeast || had.bytes >= tasker.MaxClaimBytes {
		return had
	}
	if more, err := db.claimSteps(ctx, next.Claimant, next.Limit-len(had.Steps), tasker.MaxClaimBytes-had.bytes); err == nil {
		had.add(more)
	}
	return had
}

// queueClaim adds the statements of a claim to the batch of a report, and returns how many come before
// the one that hands out.
func (db *DB) queueClaim(b *pgx.Batch, list []Conclusion, next *NextClaim, l claimMode) (before int) {
	if next.OnlyReady {
		b.Queue(claimReady)
		return 0
	}
	if !l.direct && db.limits.mayHave(next.Claimant) {
		c := db.limits.claim(next.Claimant, l)
		c.size = claimSize{limit: next.Limit, budget: tasker.MaxClaimBytes}
		for _, x := range list {
			c.freed = append(c.freed, tasker.StepRef{TaskUUID: x.TaskUUID, StepUUID: x.StepUUID})
		}
		return c.queue(b)
	}
	sql, args := next.claim(next.Limit, tasker.MaxClaimBytes, next.Limit, l)
	b.Queue(sql, args...)
	return 0
}

func (db *DB) report(ctx context.Context, list []Conclusion, next *NextClaim) (concluded Concluded, claimed ClaimResult, err error) {
	var l claimMode // a claim that does not ask hands out nothing while anything is held
	if next != nil {
		if l, err = db.lookFor(ctx, next); err != nil {
			next = nil // the worker asks again
		}
	}
	succeeded := areReportedSuccesses(list)
	if succeeded && db.mayConcludeAlone(list, next, l) {
		concluded, claimed, done, err := db.reportSingle(ctx, &list[0], next, l)
		if err != nil || done {
			return concluded, claimed, err
		}
	}
	tasks := TasksOf(list)
	l.direct = succeeded && db.mayClaimDirectly(len(list), next, l)
	claims := next != nil && (l.direct || !next.OnlyReady)
	err = retry(ctx, func() error {
		var batch pgx.Batch
		batch.Queue(lockTasks, tasks)
		switch {
		case l.direct:
			batch.Queue(concludeAndClaim, append(succeededArgs(list, db.queue), next.directArgs(l)...)...)
		case succeeded:
			batch.Queue(concludeSucceeded, succeededArgs(list, db.queue)...)
		default:
			batch.Queue(concludeSteps, conclusionArgs(list, db.queue)...)
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
				db.noteHold() // the worker asks again
			}
		}
		return results.Close() // only now is it committed
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

// lookFor says how the claim of a report is made. Only work that waits takes turns, or has waited for long.
func (db *DB) lookFor(ctx context.Context, next *NextClaim) (l claimMode, err error) {
	if l, err = db.claimModeFor(ctx, next.Version); err != nil {
		return l, err
	}
	l.heads = db.heads.rangesFor(next.Claimant)
	if !next.OnlyReady {
		l.turn, err = db.fairOrderFor(ctx, next.Claimant)
	}
	return l, err
}

// readConcluded reads the answers to the statements of a report.
func readConcluded(results pgx.BatchResults) (Concluded, error) {
	if _, err := results.Exec(); err != nil {
		return Concluded{}, fmt.Errorf("lock tasks: %w", err)
	}
	c, err := answered[Concluded](results)
	if err != nil {
		return Concluded{}, fmt.Errorf("conclude steps: %w", err)
	}
	if _, err = results.Exec(); err != nil {
		return Concluded{}, fmt.Errorf("settle tasks: %w", err)
	}
	return c[0], nil
}
