package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// NewOptions contains the start options of a new task. All fields are optional.
type NewOptions struct {
	StartAfter  time.Duration // delay after creation
	StartBy     time.Time     // the task expires unless one of its steps is claimed by this time
	StartWithin time.Duration // like StartBy, relative to the start
	Unique      tasker.Unique
	Debounce    tasker.Debounce
	Due         *NewDeadline
}

var optionColumns = columns[*CreatedTask]{
	newColumn("task_uuid uuid", func(t **CreatedTask) tasker.ID { return (*t).UUID }),
	newColumn("after_ms bigint", func(t **CreatedTask) int64 { return (*t).Options.StartAfter.Milliseconds() }),
	newColumn("start_by timestamptz", func(t **CreatedTask) *time.Time { return nilIfZeroTime((*t).Options.StartBy) }),
	newColumn("unique_key text", func(t **CreatedTask) string { return (*t).Options.Unique.Key }),
	newColumn("debounce_key text", func(t **CreatedTask) string { return (*t).Options.Debounce.Key }),
	newColumn("max_wait_ms bigint", func(t **CreatedTask) int64 { return (*t).Options.Debounce.MaxWait.Milliseconds() }),
	newColumn("within_ms bigint", func(t **CreatedTask) int64 { return (*t).Options.StartWithin.Milliseconds() }),
}

// queueBindTasks adds the statements that store the options of new tasks to a batch.
func queueBindTasks(batch *pgx.Batch, tasks []*CreatedTask) {
	var bound []*CreatedTask
	var delayed []tasker.ID
	var by []time.Duration
	for _, t := range tasks {
		if t.Options == nil {
			continue
		}
		bound = append(bound, t)
		if t.Options.StartAfter > 0 {
			delayed, by = append(delayed, t.UUID), append(by, t.Options.StartAfter)
		}
	}
	if len(bound) > 0 {
		batch.Queue(statement("bindTask"), optionColumns.toArrays(bound)...)
	}
	if len(delayed) > 0 {
		batch.Queue(statement("delaySteps"), delayed, by)
	}
	queueDeadlines(batch, bound)
}

// TasksToExpire returns tasks whose start deadline has passed, longest overdue first.
func (db *DB) TasksToExpire(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.findDueTasks(ctx, statement("tasksToExpire"), limit)
}

// ExpireTasks cancels tasks that have not started by their deadline, with the reason "expired", and
// returns them. It removes the deadlines of the other tasks. The tasks must be locked.
func (tx *Tx) ExpireTasks(ctx context.Context, tasks []tasker.ID) ([]tasker.Task, error) {
	type row struct {
		UUID            tasker.ID
		Namespace, Name string
		State           tasker.TaskState
		StartBy         time.Time
	}
	if err := tx.lockEnqueuedOf(ctx, tasks); err != nil {
		return nil, err
	}
	rows, err := collect[row](ctx, tx, statement("lockUnstarted"), tasks)
	if err != nil {
		return nil, fmt.Errorf("find tasks that have not started: %w", err)
	}
	var targets []TaskTarget
	var ended []tasker.Task
	for _, r := range rows {
		if _, err := core.TaskMoves.Next(r.State, core.ExpireTask); err != nil {
			return nil, err
		}
		targets = append(targets, TaskTarget{TaskUUID: r.UUID, State: r.State})
		ended = append(ended, tasker.Task{UUID: r.UUID, Namespace: r.Namespace, Name: r.Name, TaskOptions: tasker.TaskOptions{StartBy: &r.StartBy}})
	}
	if len(targets) > 0 {
		by := Cancellation{Operator: Operator{Actor: tasker.SystemActor, Reason: "expired"}, Event: core.ExpireTask}
		if err := tx.CancelTasks(ctx, targets, by); err != nil {
			return nil, err
		}
		if err := tx.notifyTasks(ctx, tasker.TaskExpiredTopic, "low", "ended as expired: no step of it was claimed in time", mapSlice(ended, func(t tasker.Task) tasker.ID { return t.UUID })); err != nil {
			return nil, err
		}
	}
	_, err = tx.Exec(ctx, statement("deleteExpiredStarts"), tasks)
	return ended, wrapError(err, "remove start deadlines")
}

// notifyTasks stores messages about locked tasks.
func (tx *Tx) notifyTasks(ctx context.Context, topic, severity, what string, tasks []tasker.ID) error {
	return exec(ctx, tx, "notify of tasks", statement("notifyTasks"), topic, severity, what, tasks)
}
