package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// NewOptions contains the start options of a new task. All fields are optional.
type NewOptions struct {
	StartAfter  time.Duration // delay after creation
	StartBy     time.Time     // the task expires unless a step is claimed by then
	StartWithin time.Duration // like StartBy, relative to the start
	Unique      tasker.Unique
	Debounce    tasker.Debounce
	Due         *NewDeadline
}

var optionColumns = columns[*CreatedTask]{
	col("task_uuid uuid", func(t **CreatedTask) tasker.ID { return (*t).UUID }),
	col("after_ms bigint", func(t **CreatedTask) int64 { return (*t).Options.StartAfter.Milliseconds() }),
	col("start_by timestamptz", func(t **CreatedTask) *time.Time { return timeOrNil((*t).Options.StartBy) }),
	col("unique_key text", func(t **CreatedTask) string { return (*t).Options.Unique.Key }),
	col("debounce_key text", func(t **CreatedTask) string { return (*t).Options.Debounce.Key }),
	col("max_wait_ms bigint", func(t **CreatedTask) int64 { return (*t).Options.Debounce.MaxWait.Milliseconds() }),
	col("within_ms bigint", func(t **CreatedTask) int64 { return (*t).Options.StartWithin.Milliseconds() }),
}

// bindTask stores options after the insert, so tasks without options do not pay for them.
var bindTask = `
WITH bound AS (
    UPDATE tasker.tasks t
    SET start_at = b.start_at, ends_at = t.ends_at + b.after, options = jsonb_strip_nulls(jsonb_build_object('start_by', b.start_by, 'unique_key', nullif(u.unique_key, ''), 'debounce_key', nullif(u.debounce_key, '')))
    FROM ` + optionColumns.unnest("u", 1) + `
    CROSS JOIN LATERAL (SELECT interval '1 millisecond' * u.after_ms AS after) a
    JOIN tasker.tasks n ON n.task_uuid = u.task_uuid
    CROSS JOIN LATERAL (SELECT coalesce(n.start_at, CASE WHEN u.after_ms > 0 THEN now() + a.after END) AS start_at) s
    CROSS JOIN LATERAL (
        SELECT s.start_at, a.after, coalesce(u.start_by, CASE WHEN u.within_ms > 0 THEN coalesce(s.start_at, now()) + interval '1 millisecond' * u.within_ms END) AS start_by
    ) b
    WHERE t.task_uuid = u.task_uuid AND t.state NOT IN ('complete', 'cancelled')
    RETURNING t.task_uuid, t.namespace, t.name, t.state, u.unique_key, b.start_by, u.debounce_key, u.max_wait_ms
),
debounced AS (
    INSERT INTO tasker.debounced_tasks (namespace, name, debounce_key, task_uuid, latest_start)
    SELECT namespace, name, debounce_key, task_uuid, now() + interval '1 millisecond' * max_wait_ms
    FROM bound WHERE debounce_key <> '' AND state = 'pending' ORDER BY namespace, name, debounce_key
),
unique_keys AS (
    INSERT INTO tasker.unique_tasks (namespace, name, unique_key, task_uuid)
    SELECT namespace, name, unique_key, task_uuid FROM bound WHERE unique_key <> '' ORDER BY namespace, name, unique_key
)
INSERT INTO tasker.task_starts (task_uuid, start_by)
SELECT task_uuid, start_by FROM bound WHERE start_by IS NOT NULL`

// delaySteps moves the waits of steps to the start of their tasks.
const delaySteps = `
UPDATE tasker.workflow_steps s
SET decide_at = s.decide_at + u.after, wait_until = s.wait_until + u.after, remind_at = s.remind_at + u.after
FROM unnest($1::uuid[], $2::interval[]) AS u (task_uuid, after)
WHERE s.task_uuid = u.task_uuid AND num_nonnulls(s.decide_at, s.wait_until, s.remind_at) > 0`

// bindTasks queues the statements that store the options of new tasks.
func bindTasks(batch *pgx.Batch, tasks []*CreatedTask) {
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
		batch.Queue(bindTask, optionColumns.arrays(bound)...)
	}
	if len(delayed) > 0 {
		batch.Queue(delaySteps, delayed, by)
	}
	dueTimes(batch, bound)
}

const tasksToExpire = `
SELECT x.task_uuid
FROM tasker.task_starts x
WHERE x.start_by <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + ExpireTask + `' AND w.task_uuid = x.task_uuid)
ORDER BY x.start_by
LIMIT $1`

// TasksToExpire returns tasks past their start deadline, longest overdue first.
func (db *DB) TasksToExpire(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.dueTasks(ctx, tasksToExpire, limit)
}

// lockUnstarted locks enqueued steps against claims. A step has started if a claim has raised its
// fence, if it has ended or if it has a child task.
const lockUnstarted = `
WITH steps AS MATERIALIZED (
    SELECT s.task_uuid, s.fence > 0 OR s.child_task_uuid IS NOT NULL OR s.state IN ('complete', 'resolved_manually', 'in_progress') AS started
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = ANY ($1)
    ORDER BY s.task_uuid, s.step_uuid
    FOR NO KEY UPDATE
)
SELECT t.task_uuid AS uuid, t.namespace, t.name, t.state, x.start_by
FROM tasker.task_starts x
JOIN tasker.tasks t ON t.task_uuid = x.task_uuid
WHERE x.task_uuid = ANY ($1) AND x.start_by <= clock_timestamp() AND t.phase IS NULL AND t.state NOT IN ('complete', 'cancelled')
  AND NOT EXISTS (SELECT FROM steps s WHERE s.task_uuid = x.task_uuid AND s.started)`

// ExpireTasks cancels locked tasks that have not started by their deadline, with reason "expired",
// and returns them. It removes the deadline of the other tasks.
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
	rows, err := collect[row](ctx, tx, lockUnstarted, tasks)
	if err != nil {
		return nil, fmt.Errorf("find tasks that have not started: %w", err)
	}
	var targets []TaskTarget
	var ended []tasker.Task
	for _, r := range rows {
		if _, err := lifecycle.Task.Next(r.State, lifecycle.ExpireTask); err != nil {
			return nil, err
		}
		targets = append(targets, TaskTarget{TaskUUID: r.UUID, State: r.State})
		ended = append(ended, tasker.Task{UUID: r.UUID, Namespace: r.Namespace, Name: r.Name, Options: &tasker.TaskOptions{StartBy: &r.StartBy}})
	}
	if len(targets) > 0 {
		by := Cancellation{Operator: Operator{Actor: tasker.SystemActor, Reason: "expired"}, Event: lifecycle.ExpireTask}
		if err := tx.CancelTasks(ctx, targets, by); err != nil {
			return nil, err
		}
		if err := tx.notifyTasks(ctx, tasker.TaskExpiredTopic, "low", "ended as expired: no step of it was claimed in time", mapped(ended, func(t tasker.Task) tasker.ID { return t.UUID })); err != nil {
			return nil, err
		}
	}
	_, err = tx.Exec(ctx, `DELETE FROM tasker.task_starts WHERE task_uuid = ANY ($1) AND start_by <= clock_timestamp()`, tasks)
	return ended, wrap(err, "remove start deadlines")
}

const notifyTasks = `
INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data)
SELECT $1, 'task', t.task_uuid, ARRAY[t.namespace], jsonb_build_object(
    'summary', format('%s: a task of %s %s', t.namespace, t.name, $3::text), 'severity', $2::text,
    'namespace', t.namespace, 'template', t.name, 'task', t.task_uuid, 'state', t.state, 'began_at', t.created_at, 'path', '/ui/tasks/' || t.task_uuid,
    'entries', 0, 'waiting', 0, 'proving', 0, 'failed_again', 0, 'recovered', 0, 'cases', 0, 'cases_open', 0)
FROM tasker.tasks t
WHERE t.task_uuid = ANY ($4)
ORDER BY t.task_uuid`

// notifyTasks enqueues messages about locked tasks.
func (tx *Tx) notifyTasks(ctx context.Context, topic, severity, what string, tasks []tasker.ID) error {
	return exec(ctx, tx, "notify of tasks", notifyTasks, topic, severity, what, tasks)
}
