package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
const insertTasks = `
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
    FROM unnest(
        $1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::text[], $13::bytea[], $14::uuid[], $15::timestamptz[], $37::int[]
    ) AS u (
        task_uuid, template_uuid, state, priority, context, initiator, source_system, reason, tags,
        correlation_id, parent_correlation_id, idempotency_key, request_digest, recreated_from, start_at, context_bytes
    )
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
        CASE WHEN u.state = 'enqueued' THEN c.at + interval '1 millisecond' * coalesce(nullif(u.ttl_ms, 0), $35) END, c.at, c.at, u.context_bytes
    FROM unnest(
        $16::uuid[], $17::uuid[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[],
        $24::int[], $25::bool[], $26::text[], $27::int[], $28::int[], $29::bool[], $30::int[], $31::text[], $32::int[], $34::bigint[], $38::int[]
    ) AS u (
        task_uuid, step_uuid, name, step_type, handler, state, parents, children,
        max_attempts, retryable, backoff, base_ms, cap_ms, jitter, timeout_s, namespace, priority, ttl_ms, context_bytes
    )
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
    SELECT t.task_uuid, p.from_state, p.to_state, p.event, $33, c.at
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
    SELECT s.task_uuid, s.step_uuid, s.namespace FROM step s WHERE $36 AND s.state = 'enqueued' ORDER BY s.task_uuid, s.step_uuid
)
SELECT (SELECT count(*) FROM task) AS stored, c.at FROM clock c`

// InsertTasks stores tasks with their steps and returns the time that they bear;
// after an error the caller rolls back. An idempotency key that another task holds
// already is [ErrKeyTaken]; a template that was replaced in between is
// [ErrTemplateGone]; a task that is there already is [ErrTaskStored].
func (tx *Tx) InsertTasks(ctx context.Context, tasks []CreatedTask) (at time.Time, err error) {
	var a taskArrays
	for _, t := range tasks {
		a.add(t)
	}
	var stored int
	err = tx.QueryRow(ctx, insertTasks, a.args(tx.queue)...).Scan(&stored, &at)
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

// taskArrays is tasks and steps column by column, as unnest wants them.
type taskArrays struct {
	id, template                                                  []tasker.ID
	state, context, initiator, source, reason, tags, corr, parent []string
	key                                                           []string
	priority                                                      []int32
	digest                                                        [][]byte
	recreated                                                     []*tasker.ID
	start                                                         []*time.Time
	stepTask, step                                                []tasker.ID
	name, kind, handler, stepState, parents, children, backoff    []string
	maxAttempts, base, limit, timeout                             []int32
	retryable, jitter                                             []bool
	namespace                                                     []string
	stepPriority                                                  []int32
	ttl                                                           []int64
	rejectReason                                                  string
	contextSize, stepContextSize                                  []int32
}

func (a *taskArrays) add(t CreatedTask) {
	r := t.Request
	a.id = append(a.id, t.UUID)
	a.template = append(a.template, t.Template.UUID)
	a.state = append(a.state, string(t.State))
	a.context = append(a.context, string(r.Context))
	a.initiator = append(a.initiator, r.Initiator)
	a.source = append(a.source, r.SourceSystem)
	a.reason = append(a.reason, r.Reason)
	a.tags = append(a.tags, textArray(r.Tags))
	a.corr = append(a.corr, t.Correlation)
	a.parent = append(a.parent, r.ParentCorrelationID)
	a.key = append(a.key, r.IdempotencyKey)
	a.priority = append(a.priority, int32(r.Priority))
	a.contextSize = append(a.contextSize, int32(t.ContextSize))
	a.digest = append(a.digest, t.Digest)
	a.recreated = append(a.recreated, idOrNil(r.RecreatedFrom))
	a.start = append(a.start, timeOrNil(r.StartAt))
	if t.Rejected {
		a.rejectReason = t.RejectReason
	}
	for _, s := range t.Steps {
		a.addStep(t, s)
	}
}

func (a *taskArrays) addStep(t CreatedTask, s CreatedStep) {
	a.stepTask = append(a.stepTask, t.UUID)
	a.namespace = append(a.namespace, t.Template.Namespace)
	a.stepPriority = append(a.stepPriority, int32(t.Request.Priority))
	a.stepContextSize = append(a.stepContextSize, int32(t.ContextSize))
	a.step = append(a.step, s.UUID)
	a.name = append(a.name, s.Name)
	a.kind = append(a.kind, string(s.Type))
	a.handler = append(a.handler, s.Handler.Callable)
	a.stepState = append(a.stepState, string(s.State))
	a.parents = append(a.parents, idArray(s.Parents))
	a.children = append(a.children, idArray(s.Children))
	a.maxAttempts = append(a.maxAttempts, int32(s.Retry.MaxAttempts))
	a.retryable = append(a.retryable, s.Retry.Retryable)
	a.backoff = append(a.backoff, string(s.Retry.Backoff))
	a.base = append(a.base, int32(s.Retry.BaseMS))
	a.limit = append(a.limit, int32(s.Retry.MaxBackoffMS))
	a.jitter = append(a.jitter, s.Retry.Jitter)
	a.timeout = append(a.timeout, int32(s.TimeoutSeconds))
	a.ttl = append(a.ttl, cmp.Or(s.WorkerQueueTTLMS, t.Template.Lifecycle.WorkerQueueTTLMS))
}

func (a *taskArrays) args(q queue) []any {
	return []any{
		a.id, a.template, a.state, a.priority, a.context, a.initiator, a.source, a.reason, a.tags,
		a.corr, a.parent, a.key, a.digest, a.recreated, a.start,
		a.stepTask, a.step, a.name, a.kind, a.handler, a.stepState, a.parents, a.children,
		a.maxAttempts, a.retryable, a.backoff, a.base, a.limit, a.jitter, a.timeout,
		a.namespace, a.stepPriority, a.rejectReason, a.ttl, q.ttlMS, q.announce,
		a.contextSize, a.stepContextSize,
	}
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
