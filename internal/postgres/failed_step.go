package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// The step an entry was opened for comes first, found by its key; only when that has
// not failed any more the steps of the task are looked through. Steps of a task at its
// end stay as they are, and are nobody's concern.
const selectFailedSteps = `
SELECT u.place, f.step_uuid, f.name, f.state_since
FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS u (task_uuid, step_uuid, place)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid AND t.state NOT IN ('complete', 'cancelled')
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid AND s.state = 'error' AND s.next_retry_at IS NULL
    ) AS failed
    OFFSET 0
) own
CROSS JOIN LATERAL (
    SELECT s.step_uuid, s.name, s.state_since
    FROM tasker.workflow_steps s
    WHERE own.failed AND s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    UNION ALL (
        SELECT s.step_uuid, s.name, s.state_since
        FROM tasker.workflow_steps s
        WHERE NOT own.failed AND s.task_uuid = u.task_uuid AND s.state = 'error' AND s.next_retry_at IS NULL
        ORDER BY s.state_since DESC, s.step_uuid
        LIMIT 1
    )
) f`

// failedSteps returns for each task the step that has failed now, in their order; nil
// where none has. Of several it is the one in steps, if that is among them, else the
// one that failed last.
func failedSteps(ctx context.Context, q querier, tasks []tasker.ID, steps []*tasker.ID) ([]*tasker.FailedStep, error) {
	out := make([]*tasker.FailedStep, len(tasks))
	if len(tasks) == 0 {
		return out, nil
	}
	type row struct {
		Place      int
		StepUUID   tasker.ID
		Name       string
		StateSince time.Time
	}
	rows, err := collect[row](ctx, q, selectFailedSteps, tasks, steps)
	if err != nil {
		return nil, fmt.Errorf("read which steps have failed: %w", err)
	}
	for _, r := range rows {
		out[r.Place-1] = &tasker.FailedStep{UUID: r.StepUUID, Name: r.Name, Since: r.StateSince}
	}
	return out, nil
}

// addFailedSteps adds to open investigations which step has failed now.
func addFailedSteps(ctx context.Context, q querier, list []tasker.Entry) error {
	var open []*tasker.Entry
	var tasks []tasker.ID
	var steps []*tasker.ID
	for i := range list {
		if e := &list[i]; e.ResolutionStatus == tasker.EntryPending {
			open, tasks, steps = append(open, e), append(tasks, e.TaskUUID), append(steps, e.StepUUID)
		}
	}
	failed, err := failedSteps(ctx, q, tasks, steps)
	for i, f := range failed {
		open[i].FailedStep = f
	}
	return err
}

// queueEntries returns the rows of the queue, with which step has failed now.
func queueEntries(ctx context.Context, q querier, rows []queueRow) ([]tasker.QueueEntry, error) {
	out := make([]tasker.QueueEntry, len(rows))
	tasks, steps := make([]tasker.ID, len(rows)), make([]*tasker.ID, len(rows))
	for i, r := range rows {
		out[i], tasks[i], steps[i] = r.entry(), r.TaskUUID, r.StepUUID
	}
	failed, err := failedSteps(ctx, q, tasks, steps)
	for i, f := range failed {
		out[i].FailedStep = f
	}
	return out, err
}
