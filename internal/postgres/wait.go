package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
)

// EndWait is the kind of work of steps whose wait is over.
const EndWait = "wait"

// waitOf is when the wait of a step s ends that begins at an instant: null when it has no
// end, or none that is known yet, and of steps that workers execute.
func waitOf(at string) string {
	return `CASE WHEN s.step_type <> 'standard' THEN ` + at + ` + interval '1 millisecond' * s.timeout_ms END`
}

const stepsWithWaitOver = `
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.wait_until <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + EndWait + `' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
ORDER BY s.wait_until, s.task_uuid, s.step_uuid
LIMIT $1`

// StepsWithWaitOver returns steps whose wait is over, those that are over for
// longest first.
func (db *DB) StepsWithWaitOver(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	list, err := collect[tasker.StepRef](ctx, db.pool, stepsWithWaitOver, limit)
	if err != nil {
		return nil, fmt.Errorf("look for waits that are over: %w", err)
	}
	return list, nil
}

// A WaitingStep is a step whose wait is over.
type WaitingStep struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	TemplateUUID tasker.ID
	Name         string
	Fence        int64
	TimeoutMS    int64
}

const waitsOver = `
SELECT s.task_uuid, s.step_uuid, t.template_uuid, s.name, s.fence, coalesce(s.timeout_ms, 0) AS timeout_ms
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
WHERE s.state = 'pending' AND s.wait_until <= now() AND t.state NOT IN ('pending', 'complete', 'cancelled')
ORDER BY s.task_uuid, s.step_uuid`

// WaitsOver returns those of the steps whose wait is still over. The caller holds the
// locks of the tasks.
func (tx *Tx) WaitsOver(ctx context.Context, steps []tasker.StepRef) ([]WaitingStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[WaitingStep](ctx, tx, waitsOver, tasks, ids)
	if err != nil {
		return nil, fmt.Errorf("read waits that are over: %w", err)
	}
	return list, nil
}
