package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
)

// The recorded step is read by key. The other steps of its open task are read only if it has not
// failed.
const selectFailedSteps = `
SELECT u.place, f.step_uuid AS uuid, f.name, f.state_since AS since
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

// failedSteps returns the failed step of each task, nil without one. It prefers the given step and
// otherwise returns the step that failed last.
func failedSteps(ctx context.Context, q querier, tasks []tasker.ID, steps []*tasker.ID) ([]*tasker.FailedStep, error) {
	out := make([]*tasker.FailedStep, len(tasks))
	if len(tasks) == 0 {
		return out, nil
	}
	type row struct {
		Place int
		tasker.FailedStep
	}
	rows, err := collect[row](ctx, q, selectFailedSteps, tasks, steps)
	if err != nil {
		return nil, fmt.Errorf("read the failed steps: %w", err)
	}
	for _, r := range rows {
		out[r.Place-1] = &r.FailedStep
	}
	return out, nil
}

// addFailedSteps sets the failed step of each open investigation in list.
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
