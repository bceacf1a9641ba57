package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// VersionedTask is a task with the state that determines whether its version can be changed.
type VersionedTask struct {
	TaskUUID     tasker.ID
	TemplateUUID tasker.ID
	State        tasker.TaskState
	Phase        tasker.TaskPhase
	Priority     int
	StartAt      *time.Time
	Context      json.RawMessage
	ContextBytes int
	WrittenOff   bool // the task was marked as permanently failed
}

// VersionedStep is a step of a [VersionedTask]. Map items are not included.
type VersionedStep struct {
	StepUUID    tasker.ID
	Name        string
	Type        tasker.StepType
	State       tasker.StepState
	Parents     []tasker.ID
	ParentsOpen int
	Decides     bool // the step has a join rule
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

// VersionedTask returns a task and its steps, or NotFound. If lock is set, it locks them.
func (tx *Tx) VersionedTask(ctx context.Context, task tasker.ID, lock bool) (VersionedTask, []VersionedStep, error) {
	stepsSQL := versionedSteps
	if lock {
		stepsSQL += ` FOR NO KEY UPDATE`
		// Lock before reading: the previous holder of the lock may have changed the task.
		if err := tx.LockTasks(ctx, []tasker.ID{task}); err != nil {
			return VersionedTask{}, nil, err
		}
	}
	t, err := queryRequired[VersionedTask](ctx, tx, newTaskNotFoundError(task), "read a task", statement("versionedTask"),
		task)
	if err == nil && lock {
		err = tx.lockEnqueuedOf(ctx, []tasker.ID{task})
	}
	if err != nil {
		return t, nil, err
	}
	steps, err := collect[VersionedStep](ctx, tx, stepsSQL, task)
	return t, steps, wrapError(err, "read steps")
}

// NewVersion describes how a locked task is moved to another template version.
type NewVersion struct {
	Task     VersionedTask
	Template tasker.StoredTemplate
	Added    []CreatedStep // new steps, which are pending
	Removed  []tasker.ID
	Steps    []RewrittenStep // all steps of the new version
	Detail   json.RawMessage
	Finds    bool // search attributes must be evaluated again
}

// RewrittenStep is a step as the new version defines it.
type RewrittenStep struct {
	CreatedStep
	Rewrite Rewrite
}

// Rewrite determines which columns of a step are changed by a new version.
type Rewrite int32

// All values include the edges.
const (
	RewriteEdges  Rewrite = iota // only the edges
	RewriteAtRest                // also the handler and its settings; for an enqueued or failed step
	RewriteAll                   // all columns; for a step that has not started
)

// ChangeVersion moves a locked task to another version and returns the namespaces of the enqueued
// steps. The caller must settle the task unless it is pending. It returns a Conflict if the version
// is retired or was replaced.
func (tx *Tx) ChangeVersion(ctx context.Context, v NewVersion, by Operator) ([]string, error) {
	task, id := &CreatedTask{UUID: v.Task.TaskUUID, Template: v.Template, ContextSize: v.Task.ContextBytes, Request: tasker.NewTask{Priority: v.Task.Priority}}, v.Task.TaskUUID
	if v.Task.State == tasker.TaskPending && v.Task.StartAt != nil {
		task.Request.StartAt = *v.Task.StartAt
	}
	tag, err := tx.Exec(ctx, statement("changeVersion"), id, v.Task.TemplateUUID, string(v.Task.State), v.Template.UUID, string(core.ChangeVersion), by.Actor, by.Reason, string(v.Detail))
	switch {
	case err != nil:
		return nil, fmt.Errorf("change the version of a task: %w", err)
	case tag.RowsAffected() == 0:
		return nil, tasker.Errorf(tasker.Conflict, "template %s/%s %s does not accept tasks: it was retired or "+
			"replaced; check its versions", v.Template.Namespace, v.Template.Name, v.Template.Version)
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
	namespaces, err := collectColumn[string](ctx, tx, statement("requeueSteps"), id, atRest, tx.queue.announce)
	if err != nil {
		return nil, fmt.Errorf("enqueue redefined steps: %w", err)
	}
	freed, err := tx.EnqueueReady(ctx, []tasker.ID{id})
	return append(namespaces, freed...), err
}

// rewriteSteps removes, adds and rewrites steps. It removes changed steps from the queue.
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
	if err := tx.deleteHeldSteps(ctx, toStepRefs(task.UUID, atRest)); err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue(statement("removeSteps"), task.UUID, v.Removed)
	batch.Queue(statement("forgetDeferred"), task.UUID)
	batch.Queue(statement("unqueueSteps"), task.UUID, atRest)
	if len(added) > 0 {
		batch.Queue(statement("insertSteps"), append([]any{tx.queue.ttlMS}, newStepColumns.toArrays(added)...)...)
	}
	batch.Queue(statement("rewriteSteps"), append([]any{task.UUID, tx.queue.ttlMS},
		rewrittenColumns.toArrays(rewritten)...)...)
	batch.Queue(statement("rewriteItems"), task.UUID)
	if v.Finds {
		batch.Queue(statement("scheduleAttributeRefresh"), task.UUID)
	}
	return wrapError(tx.SendBatch(ctx, &batch).Close(), "rewrite the steps of a task")
}

func toStepRefs(task tasker.ID, steps []tasker.ID) []tasker.StepRef {
	return mapSlice(steps, func(step tasker.ID) tasker.StepRef { return tasker.StepRef{TaskUUID: task, StepUUID: step} })
}

type rewrittenStep struct {
	taskStep
	step *RewrittenStep
}

var rewrittenColumns = append(convertColumns(newStepColumns.pick(
	"step_uuid", "step_type", "handler", "parents", "children", "parents_open", "max_attempts", "retryable", "backoff", "base_ms", "cap_ms", "jitter", "timeout_s", "ttl_ms", "remind_s", "join_rule", "start_at", "finds", "due", "waits",
), func(s rewrittenStep) taskStep { return s.taskStep }),
	newColumn("rewrite int", func(s *rewrittenStep) int32 { return int32(s.step.Rewrite) }),
)

// convertColumns adapts the columns of T to rows of type U, from which of returns the T.
func convertColumns[T, U any](list columns[T], of func(U) T) columns[U] {
	out := make(columns[U], len(list))
	for i, c := range list {
		out[i] = columnDef[U]{name: c.name, kind: c.kind, array: func(rows []U) any {
			return c.array(mapSlice(rows, of))
		}}
	}
	return out
}

// versionBatch limits how many tasks of a version OpenTasksOf reads.
const versionBatch = 5000

// VersionPart is a part of the tasks that have a template version.
type VersionPart struct {
	Looked int        // number of tasks that were read
	Open   []OpenTask // newest first
	Next   tasker.ID  // the next part contains the tasks before this one; zero at the end
}

// OpenTask is an open task that has a template version.
type OpenTask struct {
	UUID   tasker.ID
	Looked int // number of tasks that were read, up to and including this one
}

// OpenTasksOf returns up to limit open tasks of a template version that precede the given task.
func (db *DB) OpenTasksOf(ctx context.Context, template, before tasker.ID, limit int) (p VersionPart, err error) {
	type row struct {
		TaskUUID tasker.ID
		Open     bool
	}
	list, err := collect[row](ctx, db.pool, statement("openTasksOf"), template, toNullUUID(before), versionBatch)
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
