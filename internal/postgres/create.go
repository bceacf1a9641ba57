package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
)

// A CreatedTask is a task ready to be stored, with the state in which it comes
// to rest and its steps.
type CreatedTask struct {
	UUID         tasker.ID
	Template     tasker.StoredTemplate
	State        tasker.TaskState
	Request      tasker.NewTask
	Digest       []byte // of the request; tells apart two requests under one idempotency key
	ContextSize  int    // as it is read back
	Steps        []CreatedStep
	Correlation  string
	Rejected     bool // its graph has a cycle, so it goes to error at once
	RejectReason string
}

// A CreatedStep is a step ready to be stored.
type CreatedStep struct {
	tasker.StepTemplate
	UUID     tasker.ID
	State    tasker.StepState // pending, or enqueued for what can run at once
	Parents  []tasker.ID
	Children []tasker.ID
}

// One statement stores any number of tasks with their steps and their history,
// by the database's clock. The paths are those of lifecycle.SettlePath.
//
// $1 why a task is rejected, $2 how long a step may wait for a worker, $3 whether steps
// are announced; then the tasks, then the steps.
var insertTasks = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
task AS (
    INSERT INTO tasker.tasks (
        task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, ends_at,
        priority, context, initiator, source_system, reason, tags, correlation_id, parent_correlation_id,
        idempotency_key, request_digest, recreated_from, start_at, created_at, updated_at, context_bytes
    )
    SELECT
        u.task_uuid, u.template_uuid, tt.namespace, tt.name, tt.version, u.state, c.at,
        c.at + 0.8 * tasker.staleness_threshold(u.state, tt, st),
        c.at + tasker.staleness_threshold(u.state, tt, st),
        coalesce(u.start_at, c.at) + make_interval(mins => tt.max_duration_minutes),
        u.priority, u.context::jsonb, u.initiator, u.source_system, u.reason, u.tags::text[], u.correlation_id,
        u.parent_correlation_id, nullif(u.idempotency_key, ''), u.request_digest, u.recreated_from, u.start_at, c.at, c.at, u.context_bytes
    FROM ` + newTaskColumns.unnest("u", 4) + `
    JOIN tasker.task_templates tt ON tt.template_uuid = u.template_uuid
    JOIN tasker.staleness_thresholds st ON st.only_row
    CROSS JOIN clock c
    RETURNING task_uuid, namespace, state, priority
),
step AS (
    INSERT INTO tasker.workflow_steps (
        task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since,
        parent_uuids, child_uuids, parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms,
        max_backoff_ms, backoff_jitter, timeout_ms, queue_ttl_ms, expires_at, created_at, updated_at, inputs_bytes
    )
    SELECT
        u.task_uuid, u.step_uuid, u.name, u.step_type, u.namespace, u.handler, u.priority, u.state, c.at,
        u.parents::uuid[], u.children::uuid[], cardinality(u.parents::uuid[]),
        CASE WHEN u.state = 'enqueued' THEN 1 ELSE 0 END,
        u.max_attempts, u.retryable, u.backoff, u.base_ms, u.cap_ms, u.jitter, nullif(u.timeout_s, 0)::bigint * 1000, nullif(u.ttl_ms, 0),
        CASE WHEN u.state = 'enqueued' THEN c.at + interval '1 millisecond' * coalesce(nullif(u.ttl_ms, 0), $2) END, c.at, c.at, u.context_bytes
    FROM ` + newStepColumns.unnest("u", 4+len(newTaskColumns)) + `
    CROSS JOIN clock c
    RETURNING task_uuid, step_uuid, namespace, state, attempts
),
task_log AS (
    INSERT INTO tasker.task_transitions (task_uuid, from_state, to_state, event, created_at)
    SELECT t.task_uuid, p.from_state, p.to_state, p.event, c.at
    FROM task t
    JOIN tasker.task_settle_paths p ON p.rest_from = 'pending' AND p.rest_to = t.state
    CROSS JOIN clock c
    WHERE t.state <> 'error'
    ORDER BY t.task_uuid, p.ordinal
),
reject_log AS (
    INSERT INTO tasker.task_transitions (task_uuid, from_state, to_state, event, reason, created_at)
    SELECT t.task_uuid, p.from_state, p.to_state, p.event, $1, c.at
    FROM task t
    CROSS JOIN (VALUES (1, 'pending', 'initializing', 'initialize'), (2, 'initializing', 'error', 'reject'))
        AS p (ordinal, from_state, to_state, event)
    CROSS JOIN clock c
    WHERE t.state = 'error'
    ORDER BY t.task_uuid, p.ordinal
),
step_log AS (
    INSERT INTO tasker.workflow_step_transitions (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at)
    SELECT s.task_uuid, s.step_uuid, 'pending', 'enqueued', 'enqueue', s.attempts, c.at
    FROM step s
    CROSS JOIN clock c
    WHERE s.state = 'enqueued'
    ORDER BY s.task_uuid, s.step_uuid
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT s.task_uuid, s.step_uuid, s.namespace FROM step s WHERE $3 AND s.state = 'enqueued' ORDER BY s.task_uuid, s.step_uuid
)
SELECT (SELECT count(*) FROM task) AS stored, c.at FROM clock c`

// InsertTasks stores tasks with their steps and returns the time that they bear;
// after an error the caller rolls back. An idempotency key that another task holds
// already is [ErrKeyTaken]; a template that was replaced in between is
// [ErrTemplateGone]; a task that is there already is [ErrTaskStored].
func (tx *Tx) InsertTasks(ctx context.Context, tasks []CreatedTask) (at time.Time, err error) {
	var stored int
	err = tx.QueryRow(ctx, insertTasks, insertArgs(tasks, tx.queue)...).Scan(&stored, &at)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.ConstraintName == "tasks_pkey":
		return at, ErrTaskStored
	case errors.As(err, &pg) && pg.ConstraintName == "task_idempotency_key_is_unique":
		return at, ErrKeyTaken
	case errors.As(err, &pg) && pg.ConstraintName == "tasks_template_uuid_fkey":
		return at, ErrTemplateGone
	case err != nil:
		return at, fmt.Errorf("insert tasks: %w", err)
	case stored < len(tasks):
		return at, ErrTemplateGone
	}
	return at, nil
}

// ErrTaskStored says that a task of the same id exists: it is the same task.
var ErrTaskStored = errors.New("task is stored already")

// ErrKeyTaken says that a task with the same idempotency key exists.
var ErrKeyTaken = errors.New("idempotency key is taken")

// ErrTemplateGone says that the template was replaced while a task was made from it.
var ErrTemplateGone = errors.New("template was replaced")

// newTaskColumns are a task as insertTasks takes it.
var newTaskColumns = columns[CreatedTask]{
	col("task_uuid uuid", func(t *CreatedTask) tasker.ID { return t.UUID }),
	col("template_uuid uuid", func(t *CreatedTask) tasker.ID { return t.Template.UUID }),
	col("state text", func(t *CreatedTask) string { return string(t.State) }),
	col("priority int", func(t *CreatedTask) int32 { return int32(t.Request.Priority) }),
	col("context text", func(t *CreatedTask) string { return string(t.Request.Context) }),
	col("initiator text", func(t *CreatedTask) string { return t.Request.Initiator }),
	col("source_system text", func(t *CreatedTask) string { return t.Request.SourceSystem }),
	col("reason text", func(t *CreatedTask) string { return t.Request.Reason }),
	col("tags text", func(t *CreatedTask) string { return textArray(t.Request.Tags) }),
	col("correlation_id text", func(t *CreatedTask) string { return t.Correlation }),
	col("parent_correlation_id text", func(t *CreatedTask) string { return t.Request.ParentCorrelationID }),
	col("idempotency_key text", func(t *CreatedTask) string { return t.Request.IdempotencyKey }),
	col("request_digest bytea", func(t *CreatedTask) []byte { return t.Digest }),
	col("recreated_from uuid", func(t *CreatedTask) *tasker.ID { return idOrNil(t.Request.RecreatedFrom) }),
	col("start_at timestamptz", func(t *CreatedTask) *time.Time { return timeOrNil(t.Request.StartAt) }),
	col("context_bytes int", func(t *CreatedTask) int32 { return int32(t.ContextSize) }),
}

// A taskStep is a step beside its task.
type taskStep struct {
	task *CreatedTask
	*CreatedStep
}

// newStepColumns are a step as insertTasks takes it.
var newStepColumns = columns[taskStep]{
	col("task_uuid uuid", func(s *taskStep) tasker.ID { return s.task.UUID }),
	col("step_uuid uuid", func(s *taskStep) tasker.ID { return s.UUID }),
	col("name text", func(s *taskStep) string { return s.Name }),
	col("step_type text", func(s *taskStep) string { return string(s.Type) }),
	col("namespace text", func(s *taskStep) string { return s.task.Template.Namespace }),
	col("handler text", func(s *taskStep) string { return s.Handler.Callable }),
	col("priority int", func(s *taskStep) int32 { return int32(s.task.Request.Priority) }),
	col("state text", func(s *taskStep) string { return string(s.State) }),
	col("parents text", func(s *taskStep) string { return idArray(s.Parents) }),
	col("children text", func(s *taskStep) string { return idArray(s.Children) }),
	col("max_attempts int", func(s *taskStep) int32 { return int32(s.Retry.MaxAttempts) }),
	col("retryable bool", func(s *taskStep) bool { return s.Retry.Retryable }),
	col("backoff text", func(s *taskStep) string { return string(s.Retry.Backoff) }),
	col("base_ms int", func(s *taskStep) int32 { return int32(s.Retry.BaseMS) }),
	col("cap_ms int", func(s *taskStep) int32 { return int32(s.Retry.MaxBackoffMS) }),
	col("jitter bool", func(s *taskStep) bool { return s.Retry.Jitter }),
	col("timeout_s int", func(s *taskStep) int32 { return int32(s.TimeoutSeconds) }),
	col("ttl_ms bigint", func(s *taskStep) int64 {
		return cmp.Or(s.WorkerQueueTTLMS, s.task.Template.Lifecycle.WorkerQueueTTLMS)
	}),
	col("context_bytes int", func(s *taskStep) int32 { return int32(s.task.ContextSize) }),
}

func insertArgs(tasks []CreatedTask, q queue) []any {
	rejected := ""
	steps := make([]taskStep, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.Rejected {
			rejected = t.RejectReason
		}
		for n := range t.Steps {
			steps = append(steps, taskStep{t, &t.Steps[n]})
		}
	}
	return slices.Concat([]any{rejected, q.ttlMS, q.announce}, newTaskColumns.arrays(tasks), newStepColumns.arrays(steps))
}

// idArray spells ids as a PostgreSQL array literal: arrays of differing length
// cannot travel as rows of one two-dimensional array.
func idArray(ids []tasker.ID) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(id.String())
	}
	b.WriteByte('}')
	return b.String()
}

func textArray(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

func idOrNil(id tasker.ID) *tasker.ID {
	if id == (tasker.ID{}) {
		return nil
	}
	return &id
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
