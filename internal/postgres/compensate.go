package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// CompensableTask is a locked task whose compensation is requested.
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

// LockCompensable locks a task and returns it, or NotFound.
func (tx *Tx) LockCompensable(ctx context.Context, task tasker.ID) (CompensableTask, error) {
	return queryRequired[CompensableTask](ctx, tx, newTaskNotFoundError(task), "lock task", statement("lockCompensable"),
		task)
}

// DoneStep is a complete step.
type DoneStep struct {
	StepUUID    tasker.ID
	Name        string
	CompletedAt time.Time
	ResultBytes int
}

// DoneSteps returns those of the named steps that are complete. Skipped and manually resolved steps
// are not included.
func (tx *Tx) DoneSteps(ctx context.Context, task tasker.ID, names []string) ([]DoneStep, error) {
	list, err := collect[DoneStep](ctx, tx, statement("doneSteps"), task, names)
	return list, wrapError(err, "read the steps that are complete")
}

// LockUnconcluded returns those of the named steps whose work may be done: they have a pending
// report or a child task. If there are any, it also locks the enqueued steps of the task, so that
// the caller can conclude the returned steps and cancel the others. The caller must hold the task
// lock.
func (tx *Tx) LockUnconcluded(ctx context.Context, task tasker.ID, names []string) ([]tasker.StepRef, error) {
	list, err := collect[tasker.StepRef](ctx, tx, statement("unconcluded"), task, names)
	if err != nil || len(list) == 0 {
		return nil, wrapError(err, "read the steps that are not concluded")
	}
	return list, tx.lockEnqueuedOf(ctx, []tasker.ID{task})
}

// Compensation describes the compensation of a locked task.
type Compensation struct {
	Task     CompensableTask
	Template tasker.StoredTemplate
	Undone   []DoneStep
	Steps    []CreatedStep // Steps[i] compensates Undone[i]; the first one is enqueued
}

// Compensate cancels the open steps of a task and adds a chain of compensation steps. It returns the
// namespaces of the enqueued ones.
func (tx *Tx) Compensate(ctx context.Context, c Compensation, by Cancellation) ([]string, error) {
	t, steps, tasks := c.Task, c.Steps, []tasker.ID{c.Task.TaskUUID}
	if err := tx.lockEnqueuedOf(ctx, tasks); err != nil {
		return nil, err
	}
	states, err := loadTasks(ctx, tx, loadRequest{tasks: tasks, whole: true})
	if err != nil {
		return nil, err
	}
	task := &CreatedTask{UUID: t.TaskUUID, Template: c.Template, ContextSize: t.ContextBytes, Request: tasker.NewTask{Priority: t.Priority}}
	list := make([]taskStep, len(steps))
	undoneIDs, undoIDs := make([]tasker.ID, len(steps)), make([]tasker.ID, len(steps))
	for i := range steps {
		list[i] = taskStep{task, &steps[i]}
		undoneIDs[i], undoIDs[i] = c.Undone[i].StepUUID, steps[i].UUID
	}
	state := states.tasks[t.TaskUUID]
	change := core.Begin(&state.Task, states.now)
	change.Compensate(state.addSteps(list), by.Actor, by.Reason, by.Operation)
	var batch pgx.Batch
	batch.Queue(statement("insertSteps"), append([]any{tx.queue.ttlMS}, newStepColumns.toArrays(list)...)...)
	batch.Queue(statement("linkUndone"), t.TaskUUID, undoneIDs, undoIDs)
	batch.Queue(statement("forgetReleases"), tasks)
	path := []tasker.TaskState{t.State, tasker.TaskEnqueuingSteps, tasker.TaskStepsInProcess}
	batch.Queue(statement("beginCompensation"), t.TaskUUID, string(t.State), by.Actor, by.Reason,
		path[:2], path[1:], []core.TaskEvent{core.Compensate, core.Start})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("start a compensation: %w", err)
	}
	stored, err := tx.store(ctx, states, []*core.Change{change})
	if err != nil {
		return nil, err
	}
	if err := tx.endHumanSteps(ctx, tasks); err != nil {
		return nil, err
	}
	r := by.toRepair(TaskTarget{TaskUUID: t.TaskUUID, State: t.State})
	r.Action, r.Notes = "task.compensating", fmt.Sprintf("%s; %d of its steps are being undone", r.Notes, len(steps))
	r.Data["undone_steps"] = len(steps)
	return stored.Namespaces, tx.RecordRepairs(ctx, []Repair{r})
}

// addSteps adds new steps to the rows of the task.
func (t *taskState) addSteps(list []taskStep) []*core.Step {
	steps := make([]*core.Step, len(list))
	for i, n := range list {
		bytes := int64(n.task.ContextSize + n.InputSize)
		s := &stepState{
			Step:     core.Step{ID: n.UUID, Type: n.Type, Children: n.Children, Retry: n.Retry, InputBytes: &bytes},
			taskUUID: t.ID, namespace: n.task.Template.Namespace, handler: n.Handler.Callable, priority: n.task.Request.Priority,
		}
		t.rows[s.ID], steps[i] = s, &s.Step
	}
	return steps
}
