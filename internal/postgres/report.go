package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"tasker.example/tasker"
)

// A Mark is where a step stands, as far as a report must know to be judged.
type Mark struct {
	TaskUUID      tasker.ID
	StepUUID      tasker.ID
	State         string
	Fence         int64
	WorkerUUID    *tasker.ID
	ReportedFence *int64
	ReportDigest  []byte
}

const marks = `
SELECT s.task_uuid, s.step_uuid, s.state, s.fence, s.worker_uuid, s.reported_fence, s.report_digest
FROM tasker.workflow_steps s
JOIN unnest($1::uuid[], $2::uuid[]) AS l (task_uuid, step_uuid) USING (task_uuid, step_uuid)`

// Marks returns where the steps of leases stand; those that do not exist are not
// among the result.
func (db *DB) Marks(ctx context.Context, leases []tasker.Lease) (map[tasker.ID]Mark, error) {
	tasks, steps, _ := leaseArrays(leases)
	rows, err := collect[Mark](ctx, db.pool, marks, tasks, steps)
	if err != nil {
		return nil, fmt.Errorf("read where steps stand: %w", err)
	}
	out := make(map[tasker.ID]Mark, len(rows))
	for _, m := range rows {
		out[m.StepUUID] = m
	}
	return out, nil
}

const reportedBody = `
SELECT coalesce(s.kept_report -> 'Body', CASE WHEN $4 THEN s.results ELSE s.error END) AS body
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.step_uuid = $2 AND s.reported_fence = $3`

// ReportedBody returns the body of the report that an attempt was concluded with:
// a StepResult if the step went to complete, else a StepFailure; nil when another
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

// Mark locks a step of a task that the caller has locked, and returns where it
// stands. The error is NotFound when the task has no such step.
func (tx *Tx) Mark(ctx context.Context, task, step tasker.ID) (Mark, error) {
	if err := tx.LockEnqueued(ctx, []tasker.StepRef{{TaskUUID: task, StepUUID: step}}); err != nil {
		return Mark{}, err
	}
	m, err := one[Mark](ctx, tx, `
		SELECT task_uuid, step_uuid, state, fence, worker_uuid, reported_fence, report_digest
		FROM tasker.workflow_steps
		WHERE task_uuid = $1 AND step_uuid = $2
		FOR NO KEY UPDATE`, task, step)
	if err != nil {
		return Mark{}, fmt.Errorf("lock step: %w", err)
	}
	if m == nil {
		return Mark{}, NoStep(task, step)
	}
	return *m, nil
}

// A RejectedReport is a report that came from an attempt which no longer held the
// lease.
type RejectedReport struct {
	tasker.Lease
	WorkerUUID tasker.ID
	Success    bool
	Mark       Mark
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

// RecordRejected keeps rejected reports for the audit: the first of each step, because a
// worker may send the same one again and again.
func (db *DB) RecordRejected(ctx context.Context, list []RejectedReport) error {
	if _, err := db.pool.Exec(ctx, recordRejected, rejectedColumns.arrays(list)...); err != nil {
		return fmt.Errorf("record rejected reports: %w", err)
	}
	return nil
}
