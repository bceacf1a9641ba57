package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// VersionedTask is a task with the state that determines whether its version can change.
type VersionedTask struct {
	TaskUUID     tasker.ID
	TemplateUUID tasker.ID
	State        tasker.TaskState
	Phase        tasker.TaskPhase
	Priority     int
	StartAt      *time.Time
	Context      json.RawMessage
	ContextBytes int
	WrittenOff   bool // it was marked as permanently failed
}

const versionedTask = `
SELECT t.task_uuid, t.template_uuid, t.state, coalesce(t.phase, '') AS phase, t.priority, t.start_at, t.context,
    coalesce(t.context_bytes, octet_length(t.context::text)) AS context_bytes,
    t.phase IS NULL AND EXISTS (
        SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'permanently_failed'
    ) AS written_off
FROM tasker.tasks t
WHERE t.task_uuid = $1`

// VersionedStep is a step of a [VersionedTask], except map items.
type VersionedStep struct {
	StepUUID    tasker.ID
	Name        string
	Type        tasker.StepType
	State       tasker.StepState
	Parents     []tasker.ID
	ParentsOpen int
	Decides     bool // it has a join rule
	Decided     bool
	HasItems    bool
	HasChild    bool
}

const versionedSteps = `
SELECT s.step_uuid, s.name, ` + stepType + ` AS type, s.state, s.parent_uuids AS parents, s.parents_open,
    s.join_rule IS NOT NULL AS decides, s.decided_at IS NOT NULL AS decided, s.items_total IS NOT NULL AS has_items, s.child_task_uuid IS NOT NULL AS has_child
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.map_step_uuid IS NULL
ORDER BY s.step_uuid`

// VersionedTask returns a task with its steps, or NotFound. It locks both if lock is true.
func (tx *Tx) VersionedTask(ctx context.Context, task tasker.ID, lock bool) (VersionedTask, []VersionedStep, error) {
	stepsSQL := versionedSteps
	if lock {
		stepsSQL += ` FOR NO KEY UPDATE`
		// The lock precedes the read: its previous holder may have changed the task.
		if err := tx.LockTasks(ctx, []tasker.ID{task}); err != nil {
			return VersionedTask{}, nil, err
		}
	}
	t, err := required[VersionedTask](ctx, tx, noTask(task), "read a task", versionedTask, task)
	if err == nil && lock {
		err = tx.lockEnqueuedOf(ctx, []tasker.ID{task})
	}
	if err != nil {
		return t, nil, err
	}
	steps, err := collect[VersionedStep](ctx, tx, stepsSQL, task)
	return t, steps, wrap(err, "read steps")
}

// NewVersion describes the change of a locked task to another template version.
type NewVersion struct {
	Task     VersionedTask
	Template tasker.StoredTemplate
	Added    []CreatedStep // pending steps
	Removed  []tasker.ID
	Steps    []RewrittenStep // all steps of the new version
	Detail   json.RawMessage
	Finds    bool // search attributes are evaluated again
}

// RewrittenStep is a step in the new version of a task.
type RewrittenStep struct {
	CreatedStep
	ParentsOpen int
	Rewrite     Rewrite
	Due         bool // it is decided now
	Waits       bool // its wait starts now
}

// Rewrite selects the columns of a step that a new version changes.
type Rewrite int32

// All values rewrite the edges.
const (
	RewriteEdges  Rewrite = iota // only the edges
	RewriteAtRest                // also the handler and its settings, of an enqueued or failed step
	RewriteAll                   // all columns, of a step that has not started
)

// removeSteps also removes the due times of steps, from which investigations may follow.
const removeSteps = `
WITH due AS (
    DELETE FROM tasker.deadlines d WHERE d.task_uuid = $1 AND d.step_uuid = ANY ($2)
)
DELETE FROM tasker.workflow_steps s WHERE s.task_uuid = $1 AND s.step_uuid = ANY ($2) AND s.state = 'pending'`

const forgetDeferred = `
DELETE FROM tasker.deferred_work w WHERE w.task_uuid = $1`

// rewriteSteps treats steps that have not started as new. A failed step keeps at least one attempt
// for a pending retry. A decided step remains decided unless the decision failed.
//
// $1 task, $2 queue timeout, then the steps.
var rewriteSteps = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at)
UPDATE tasker.workflow_steps s
SET parent_uuids = u.parents::uuid[], child_uuids = u.children::uuid[], updated_at = c.at,
    parents_open = CASE WHEN s.items_total IS NULL THEN u.open_now ELSE s.parents_open END,
    inputs_bytes = CASE WHEN s.parent_uuids = u.parents::uuid[] AND u.rewrite < 2 THEN s.inputs_bytes END,
    step_type = CASE WHEN u.rewrite < 2 THEN s.step_type WHEN u.step_type = 'decision' THEN 'standard' ELSE u.step_type END,
    is_decision = CASE WHEN u.rewrite < 2 THEN s.is_decision WHEN u.step_type = 'decision' THEN true END,
    handler = CASE WHEN u.rewrite < 1 THEN s.handler ELSE u.handler END,
    max_attempts = CASE WHEN u.rewrite < 1 THEN s.max_attempts
        ELSE greatest(u.max_attempts, s.attempts + CASE WHEN num_nonnulls(s.next_retry_at, s.awaits_worker_since) > 0 THEN 1 ELSE 0 END) END,
    retryable = CASE WHEN u.rewrite < 1 THEN s.retryable ELSE u.retryable END,
    backoff = CASE WHEN u.rewrite < 1 THEN s.backoff ELSE u.backoff END,
    backoff_base_ms = CASE WHEN u.rewrite < 1 THEN s.backoff_base_ms ELSE u.base_ms END,
    max_backoff_ms = CASE WHEN u.rewrite < 1 THEN s.max_backoff_ms ELSE u.cap_ms END,
    backoff_jitter = CASE WHEN u.rewrite < 1 THEN s.backoff_jitter ELSE u.jitter END,
    timeout_ms = CASE WHEN u.rewrite < 1 THEN s.timeout_ms ELSE nullif(u.timeout_s, 0)::bigint * 1000 END,
    queue_ttl_ms = CASE WHEN u.rewrite < 1 THEN s.queue_ttl_ms ELSE nullif(u.ttl_ms, 0) END,
    remind_first_s = CASE WHEN u.rewrite < 1 THEN s.remind_first_s ELSE nullif(u.remind_s, 0) END,
    join_rule = CASE WHEN u.rewrite = 2 OR u.rewrite = 1 AND s.state = 'error' AND s.join_rule IS NOT NULL AND s.decided_at IS NULL THEN nullif(u.join_rule, '') ELSE s.join_rule END,
    decide_at = CASE WHEN u.rewrite < 2 THEN s.decide_at WHEN u.due THEN coalesce(u.start_at, c.at) END,
    wait_until = CASE WHEN u.rewrite < 2 THEN s.wait_until WHEN u.waits AND u.timeout_s > 0 THEN coalesce(u.start_at, c.at) + interval '1 second' * u.timeout_s END,
    remind_at = CASE WHEN u.rewrite < 2 THEN s.remind_at WHEN u.waits AND u.remind_s > 0 THEN coalesce(u.start_at, c.at) + interval '1 second' * u.remind_s END,
    attributes_at = CASE WHEN u.finds THEN timestamptz 'infinity' END,
    expires_at = CASE WHEN u.rewrite = 1 AND s.state = 'enqueued' THEN c.at + interval '1 millisecond' * coalesce(nullif(u.ttl_ms, 0), $2) ELSE s.expires_at END
FROM ` + rewrittenColumns.unnest("u", 3) + `
CROSS JOIN clock c
WHERE s.task_uuid = $1 AND s.step_uuid = u.step_uuid`

// rewriteItems gives map items the parents of their map step. Without the materialized part, the
// planner might compare all steps of the task with each map step.
const rewriteItems = `
WITH maps AS MATERIALIZED (
    SELECT m.step_uuid, m.parent_uuids FROM tasker.workflow_steps m WHERE m.task_uuid = $1 AND m.items_total IS NOT NULL
)
UPDATE tasker.workflow_steps i
SET parent_uuids = m.parent_uuids, inputs_bytes = NULL
FROM maps m
WHERE i.task_uuid = $1 AND i.map_step_uuid = m.step_uuid AND i.parent_uuids <> m.parent_uuids`

// requeueSteps moves enqueued steps to the queue of their new handler, including held steps. The next
// claim holds them again if necessary.
var requeueSteps = `
WITH step AS MATERIALIZED (
    SELECT ` + returnReady + `
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1 AND s.step_uuid = ANY ($2) AND s.state = 'enqueued'
),
` + readyByDue("step") + `,
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM step WHERE $3 ORDER BY step_uuid
)
SELECT DISTINCT namespace FROM step`

var unqueueSteps = `
DELETE FROM tasker.ready_steps r
USING tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.step_uuid = ANY ($2) AND s.state = 'enqueued' AND ` + readyKey

// changeVersion requires that the task has not moved and that the new version is active. The maximum
// duration of the new version counts from the creation or start of the task.
const changeVersion = `
WITH moved AS (
    UPDATE tasker.tasks t
    SET template_uuid = tt.template_uuid, version = tt.version, updated_at = clock_timestamp(),
        ends_at = coalesce(t.start_at, t.created_at) + make_interval(mins => tt.max_duration_minutes)
    FROM tasker.task_templates tt
    WHERE t.task_uuid = $1 AND t.template_uuid = $2 AND t.state = $3 AND tt.template_uuid = $4 AND tt.retired_at IS NULL
    RETURNING t.task_uuid, t.state
)
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, detail, created_at)
SELECT m.task_uuid, m.state, m.state, $5, nullif($6, ''), nullif($7, ''), $8::text::jsonb, clock_timestamp()
FROM moved m`

// ChangeVersion moves a locked task to another version and returns the namespaces of the enqueued
// steps. The caller settles the task unless it is pending. It returns a Conflict if the version is
// retired.
func (tx *Tx) ChangeVersion(ctx context.Context, v NewVersion, by Operator) ([]string, error) {
	task, id := &CreatedTask{UUID: v.Task.TaskUUID, Template: v.Template, ContextSize: v.Task.ContextBytes, Request: tasker.NewTask{Priority: v.Task.Priority}}, v.Task.TaskUUID
	if v.Task.State == tasker.TaskPending && v.Task.StartAt != nil {
		task.Request.StartAt = *v.Task.StartAt
	}
	tag, err := tx.Exec(ctx, changeVersion, id, v.Task.TemplateUUID, string(v.Task.State), v.Template.UUID, string(lifecycle.ChangeVersion), by.Actor, by.Reason, string(v.Detail))
	switch {
	case err != nil:
		return nil, fmt.Errorf("change the version of a task: %w", err)
	case tag.RowsAffected() == 0:
		return nil, tasker.Errorf(tasker.Conflict, "template %s/%s %s takes no tasks: it was retired, or replaced; look at its versions again", v.Template.Namespace, v.Template.Name, v.Template.Version)
	}
	atRest := []tasker.ID{}
	for _, s := range v.Steps {
		if s.Rewrite == RewriteAtRest {
			atRest = append(atRest, s.UUID)
		}
	}
	if err := tx.rewriteSteps(ctx, task, v, atRest); err != nil {
		return nil, err
	}
	if v.Task.State == tasker.TaskPending {
		return nil, nil
	}
	namespaces, err := column[string](ctx, tx, requeueSteps, id, atRest, tx.queue.announce)
	if err != nil {
		return nil, fmt.Errorf("enqueue redefined steps: %w", err)
	}
	freed, err := tx.EnqueueReady(ctx, []tasker.ID{id})
	return append(namespaces, freed...), err
}

// rewriteSteps removes, adds and rewrites steps, and dequeues the changed steps at rest.
func (tx *Tx) rewriteSteps(ctx context.Context, task *CreatedTask, v NewVersion, atRest []tasker.ID) error {
	added := make([]taskStep, len(v.Added))
	for i := range v.Added {
		added[i] = taskStep{task, &v.Added[i]}
	}
	rewritten := make([]rewrittenStep, len(v.Steps))
	for i := range v.Steps {
		s := &v.Steps[i]
		rewritten[i] = rewrittenStep{taskStep{task, &s.CreatedStep}, s}
	}
	if err := tx.deleteHeldSteps(ctx, refsOf(task.UUID, atRest)); err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue(removeSteps, task.UUID, v.Removed)
	batch.Queue(forgetDeferred, task.UUID)
	batch.Queue(unqueueSteps, task.UUID, atRest)
	if len(added) > 0 {
		batch.Queue(insertSteps, append([]any{tx.queue.ttlMS}, newStepColumns.arrays(added)...)...)
	}
	batch.Queue(rewriteSteps, append([]any{task.UUID, tx.queue.ttlMS}, rewrittenColumns.arrays(rewritten)...)...)
	batch.Queue(rewriteItems, task.UUID)
	if v.Finds {
		batch.Queue(scheduleAttributeRefresh, task.UUID)
	}
	return wrap(tx.SendBatch(ctx, &batch).Close(), "rewrite the steps of a task")
}

func refsOf(task tasker.ID, steps []tasker.ID) []tasker.StepRef {
	return mapped(steps, func(step tasker.ID) tasker.StepRef { return tasker.StepRef{TaskUUID: task, StepUUID: step} })
}

type rewrittenStep struct {
	taskStep
	step *RewrittenStep
}

var rewrittenColumns = append(columnsOf(newStepColumns.only(
	"step_uuid", "step_type", "handler", "parents", "children", "max_attempts", "retryable", "backoff", "base_ms", "cap_ms", "jitter", "timeout_s", "ttl_ms", "remind_s", "join_rule", "start_at", "finds",
), func(s rewrittenStep) taskStep { return s.taskStep }),
	col("open_now int", func(s *rewrittenStep) int32 { return int32(s.step.ParentsOpen) }),
	col("rewrite int", func(s *rewrittenStep) int32 { return int32(s.step.Rewrite) }),
	col("due bool", func(s *rewrittenStep) bool { return s.step.Due }),
	col("waits bool", func(s *rewrittenStep) bool { return s.step.Waits }),
)

// columnsOf adapts columns of T to rows from which of returns a T.
func columnsOf[T, U any](list columns[T], of func(U) T) columns[U] {
	out := make(columns[U], len(list))
	for i, c := range list {
		out[i] = columnOf[U]{name: c.name, kind: c.kind, array: func(rows []U) any {
			return c.array(mapped(rows, of))
		}}
	}
	return out
}

// scheduleAttributeRefresh marks one step of the task, which represents it.
const scheduleAttributeRefresh = `
UPDATE tasker.workflow_steps s
SET attributes_at = clock_timestamp()
WHERE s.task_uuid = $1 AND s.step_uuid = (
    SELECT x.step_uuid FROM tasker.workflow_steps x WHERE x.task_uuid = $1 AND x.map_step_uuid IS NULL ORDER BY x.step_uuid LIMIT 1
)`

// openTasksOf reads at most $3 tasks of a version, newest first, because most of them may have ended.
const openTasksOf = `
SELECT x.task_uuid, x.state NOT IN ('complete', 'cancelled') AS open
FROM (
    SELECT t.task_uuid, t.state
    FROM tasker.tasks t
    WHERE t.template_uuid BETWEEN $1 AND $1 AND t.task_uuid < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
    ORDER BY t.template_uuid, t.task_uuid DESC
    LIMIT $3::bigint
) x
ORDER BY x.task_uuid DESC`

// versionBatch bounds the tasks of a version that OpenTasksOf reads.
const versionBatch = 5000

// VersionPart is a part of the tasks of a version.
type VersionPart struct {
	Looked int        // number of tasks read
	Open   []OpenTask // newest first
	Next   tasker.ID  // the next part precedes this task; zero at the end
}

// OpenTask is an open task of a version.
type OpenTask struct {
	UUID   tasker.ID
	Looked int // number of tasks read up to and including this one
}

// OpenTasksOf returns up to limit open tasks of a template version that precede a task.
func (db *DB) OpenTasksOf(ctx context.Context, template, before tasker.ID, limit int) (p VersionPart, err error) {
	type row struct {
		TaskUUID tasker.ID
		Open     bool
	}
	list, err := collect[row](ctx, db.pool, openTasksOf, template, idOrNull(before), versionBatch)
	if err != nil {
		return p, fmt.Errorf("list the open tasks of a version: %w", err)
	}
	for _, r := range list {
		if p.Looked++; r.Open {
			p.Open = append(p.Open, OpenTask{r.TaskUUID, p.Looked})
		}
		if len(p.Open) == limit {
			break
		}
	}
	if p.Looked > 0 && (p.Looked < len(list) || len(list) == versionBatch) {
		p.Next = list[p.Looked-1].TaskUUID
	}
	return p, nil
}
