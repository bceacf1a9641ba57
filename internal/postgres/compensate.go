package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// CompensableTask is a locked task that may be compensated.
type CompensableTask struct {
	TaskUUID     tasker.ID
	TemplateUUID tasker.ID
	Namespace    string
	State        tasker.TaskState
	Phase        tasker.TaskPhase
	Outcome      tasker.TaskOutcome
	Priority     int
	ContextBytes int
}

const lockCompensable = `
SELECT t.task_uuid, t.template_uuid, t.namespace, t.state, coalesce(t.phase, '') AS phase, coalesce(t.outcome, '') AS outcome, t.priority,
    coalesce(t.context_bytes, octet_length(t.context::text)) AS context_bytes
FROM tasker.tasks t
WHERE t.task_uuid = $1
FOR NO KEY UPDATE`

// LockCompensable locks and returns a task, or returns NotFound.
func (tx *Tx) LockCompensable(ctx context.Context, task tasker.ID) (CompensableTask, error) {
	return required[CompensableTask](ctx, tx, noTask(task), "lock task", lockCompensable, task)
}

// DoneStep is a complete step.
type DoneStep struct {
	StepUUID    tasker.ID
	Name        string
	CompletedAt time.Time
	ResultBytes int
}

const doneSteps = `
SELECT s.step_uuid, s.name, coalesce(s.completed_at, s.state_since) AS completed_at, coalesce(s.results_bytes, octet_length((s.results -> 'result')::text), 0) AS result_bytes
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.state = 'complete' AND s.name = ANY ($2)`

// DoneSteps returns those of the named steps that are complete, but not skipped or resolved ones.
func (tx *Tx) DoneSteps(ctx context.Context, task tasker.ID, names []string) ([]DoneStep, error) {
	list, err := collect[DoneStep](ctx, tx, doneSteps, task, names)
	return list, wrap(err, "read the steps that are complete")
}

const unconcluded = `
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.name = ANY ($2)
  AND (s.state || '' = 'enqueued_for_orchestration' OR s.child_task_uuid IS NOT NULL AND s.state || '' = 'pending')
ORDER BY s.step_uuid`

// LockUnconcluded returns those of the named steps that may have done their work: they have a
// pending report or a child task. If there are any, it also locks the enqueued steps of the task,
// so that the caller can conclude those steps and cancel the others. It requires the task lock.
func (tx *Tx) LockUnconcluded(ctx context.Context, task tasker.ID, names []string) ([]tasker.StepRef, error) {
	list, err := collect[tasker.StepRef](ctx, tx, unconcluded, task, names)
	if err != nil || len(list) == 0 {
		return nil, wrap(err, "read the steps that are not concluded")
	}
	return list, tx.lockEnqueuedOf(ctx, []tasker.ID{task})
}

const linkUndone = `
UPDATE tasker.workflow_steps s
SET child_uuids = s.child_uuids || u.undo_uuid, updated_at = clock_timestamp()
FROM unnest($2::uuid[], $3::uuid[]) AS u (step_uuid, undo_uuid)
WHERE s.task_uuid = $1 AND s.step_uuid = u.step_uuid`

// Restarts the total time of the task. The first compensation step is enqueued.
const beginCompensation = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.tasks t
    SET state = 'steps_in_process', state_since = c.at, updated_at = c.at, phase = 'compensating',
        warn_at = c.at + 0.8 * h.threshold, stale_at = c.at + h.threshold, ends_at = c.at + make_interval(mins => tt.max_duration_minutes)
    FROM tasker.task_templates tt
    CROSS JOIN clock c
    JOIN tasker.staleness_thresholds st ON st.only_row
    CROSS JOIN LATERAL (SELECT tasker.staleness_threshold('steps_in_process', tt, st) AS threshold) h
    WHERE t.task_uuid = $1 AND t.state = $2 AND tt.template_uuid = t.template_uuid
    RETURNING t.task_uuid, t.state_since
)
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, created_at)
SELECT m.task_uuid, e.from_state, e.to_state, e.event, nullif($3, ''), nullif($4, ''), m.state_since
FROM moved m
CROSS JOIN unnest($5::text[], $6::text[], $7::text[]) WITH ORDINALITY AS e (from_state, to_state, event, place)
ORDER BY e.place`

// Compensation describes how to compensate a locked task.
type Compensation struct {
	Task     CompensableTask
	Template tasker.StoredTemplate
	Undone   []DoneStep
	Steps    []CreatedStep // Steps[i] compensates Undone[i]; the first is enqueued
}

// Compensate cancels the open steps of a task and adds a chain of compensation steps.
func (tx *Tx) Compensate(ctx context.Context, c Compensation, by Cancellation) error {
	t, steps := c.Task, c.Steps
	if err := tx.cancelOpenSteps(ctx, []tasker.ID{t.TaskUUID}, by.Operator, by.Operation); err != nil {
		return err
	}
	var batch pgx.Batch
	task := &CreatedTask{UUID: t.TaskUUID, Template: c.Template, ContextSize: t.ContextBytes, Request: tasker.NewTask{Priority: t.Priority}}
	list := make([]taskStep, len(steps))
	undoneIDs, undoIDs := make([]tasker.ID, len(steps)), make([]tasker.ID, len(steps))
	for i := range steps {
		list[i] = taskStep{task, &steps[i]}
		undoneIDs[i], undoIDs[i] = c.Undone[i].StepUUID, steps[i].UUID
	}
	batch.Queue(insertSteps, append([]any{tx.queue.ttlMS}, newStepColumns.arrays(list)...)...)
	makeReady(&batch, list[:1], tx.queue)
	batch.Queue(linkUndone, t.TaskUUID, undoneIDs, undoIDs)
	path := []tasker.TaskState{t.State, tasker.TaskEnqueuingSteps, tasker.TaskStepsInProcess}
	batch.Queue(beginCompensation, t.TaskUUID, string(t.State), by.Actor, by.Reason,
		path[:2], path[1:], []lifecycle.TaskEvent{lifecycle.Compensate, lifecycle.Start})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("start a compensation: %w", err)
	}
	r := by.repair(TaskTarget{TaskUUID: t.TaskUUID, State: t.State})
	r.Action, r.Notes = "task.compensating", fmt.Sprintf("%s; %d of its steps are being undone", r.Notes, len(steps))
	r.Data["undone_steps"] = len(steps)
	return tx.RecordRepairs(ctx, []Repair{r})
}
