package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// CreatedTask is a task to store, with its settled state and its steps.
type CreatedTask struct {
	UUID         tasker.ID
	Template     tasker.StoredTemplate
	State        tasker.TaskState
	Request      tasker.NewTask
	Digest       []byte // digest of the request, which detects different requests with the same idempotency key
	ContextSize  int    // size as it is read back
	Steps        []CreatedStep
	Correlation  string
	Attributes   []Attribute    // attributes that the template declares
	Warnings     []tasker.Fault // declared attributes without a value
	Limits       []TaskLimit    // limits that the template defines
	Remembered   bool           // the template comes from a cache and must not have been retired since
	Newest       bool           // the cached template must still be the newest version
	Rejected     bool           // the graph has a cycle, so the task moves to error
	RejectReason string
	Parent       *ParentStep // the step that starts the task, or nil
	Schedule     *tasker.ID  // the schedule that creates the task, or nil
	Options      *NewOptions // may be nil

	// Set when the task is stored.
	MergedInto    tasker.ID // waiting task into which the request was merged, in which case this one is not stored
	CreatedAt     time.Time
	StoredContext json.RawMessage // set only if Insertion.Contexts is set
}

// HasDecisions reports whether a step of the task must be decided when the task starts.
func (t *CreatedTask) HasDecisions() bool {
	return slices.ContainsFunc(t.Steps, CreatedStep.isDeciding)
}

// CreatedStep is a step to store.
type CreatedStep struct {
	tasker.StepTemplate
	UUID     tasker.ID
	State    tasker.StepState // pending or enqueued
	Parents  []tasker.ID
	Children []tasker.ID
	JoinRule tasker.Join // set if the step must be decided; if empty, it is enqueued when its parents are done
	Finds    bool        // search attributes use its result

	ParentsDone int // of a step that is added to an existing task
	InputSize   int // size of the result of the step that a compensation step undoes
}

func (s CreatedStep) openParents() int { return len(s.Parents) - s.ParentsDone }

// shortestWait returns the shortest timeout in seconds of the steps that begin to wait when the
// task starts, or 0 if there is none.
func (t *CreatedTask) shortestWait() (shortest int32) {
	for _, s := range t.Steps {
		if !s.HasHandler() && len(s.Parents) == 0 && s.JoinRule == "" && s.LimitSeconds() > 0 && (shortest == 0 || int32(s.LimitSeconds()) < shortest) {
			shortest = int32(s.LimitSeconds())
		}
	}
	return shortest
}

// firstReminder returns the delay before the first reminder in seconds, or 0 if there is none.
func (s CreatedStep) firstReminder() int {
	if len(s.RemindAfterSeconds) == 0 {
		return 0
	}
	return s.RemindAfterSeconds[0]
}

// isDeciding reports whether the step must be decided when it is stored.
func (s CreatedStep) isDeciding() bool {
	return core.IsDue(s.JoinRule, len(s.Parents), s.openParents())
}

// Insertion configures how tasks are stored.
type Insertion struct {
	LockTimeout time.Duration // maximum time to wait for a lock; default 5 s
	Contexts    bool          // return the stored contexts
	Repeat      bool          // retry after a serialization failure

	keys bool // create limit keys, for which other transactions wait; not set in transactions that may stay open
}

// StoreTasks is [Tx.InsertTasks] in a single round trip. After an error, none of the tasks is
// stored, unless unknown is true: then all may be stored.
func (db *DB) StoreTasks(ctx context.Context, tasks []*CreatedTask, how Insertion) (unknown bool, err error) {
	if !how.Repeat {
		return db.storeTasks(ctx, tasks, how)
	}
	err = retry(ctx, func() (err error) {
		unknown, err = db.storeTasks(ctx, tasks, how)
		return err
	})
	return unknown, err
}

func (db *DB) storeTasks(ctx context.Context, tasks []*CreatedTask, how Insertion) (unknown bool, err error) {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return false, classifyError(err)
	}
	defer conn.Release()
	how.keys = true
	err = readInsertion(conn.SendBatch(ctx, newInsertionBatch(tasks, how, db.queue)), tasks)
	if unknown = IsOutcomeUnknown(err) && !pgconn.SafeToRetry(err); err == nil || unknown {
		db.runCommitHooks()
	}
	return unknown, classifyInsertionError(err)
}

// InsertTasks stores tasks with their steps and sets their creation times. It returns [ErrKeyTaken]
// if an idempotency key is in use, [ErrTemplateGone] if a template was replaced or retired, and
// [ErrTaskStored] if a task already exists. After an error, the caller must roll back.
func (tx *Tx) InsertTasks(ctx context.Context, tasks []*CreatedTask, how Insertion) error {
	return classifyInsertionError(readInsertion(tx.SendBatch(ctx, newInsertionBatch(tasks, how, tx.queue)), tasks))
}

// newInsertionBatch returns a batch of short statements. For few tasks, this is faster than a single
// statement. All of them see the same now().
func newInsertionBatch(tasks []*CreatedTask, how Insertion, q queue) *pgx.Batch {
	var batch pgx.Batch
	var steps, enqueued []taskStep
	var moves []taskMove
	var found []taskAttribute
	for _, t := range tasks {
		found = append(found, collectAttributes(t)...)
		for n := range t.Steps {
			s := taskStep{t, &t.Steps[n]}
			steps = append(steps, s)
			if s.State == tasker.StepEnqueued {
				enqueued = append(enqueued, s)
			}
		}
		moves = append(moves, collectMoves(t)...)
	}
	wait := fmt.Sprint(cmp.Or(how.LockTimeout, lockTimeout).Milliseconds())
	batch.Queue(statement("insertTasks"), append([]any{wait, how.Contexts}, newTaskColumns.toArrays(tasks)...)...)
	batch.Queue(statement("insertSteps"), append([]any{q.ttlMS}, newStepColumns.toArrays(steps)...)...)
	if limits := collectTaskLimits(tasks); len(limits) > 0 {
		batch.Queue(statement("insertTaskLimits"), taskLimitColumns.toArrays(limits)...)
		if how.keys {
			batch.Queue(statement("makeTaskKeys"), newLimitKeyArgs(limits)...)
		}
	}
	if len(found) > 0 {
		batch.Queue(statement("insertAttributes"), attributeColumns.toArrays(found)...)
	}
	if len(moves) > 0 {
		batch.Queue(statement("insertTaskMoves"), taskMoveColumns.toArrays(moves)...)
	}
	queueBindTasks(&batch, tasks)
	queueReady(&batch, enqueued, q)
	return &batch
}

// queueReady adds the statements that make newly enqueued steps available to workers.
func queueReady(batch *pgx.Batch, enqueued []taskStep, q queue) {
	if len(enqueued) == 0 {
		return
	}
	batch.Queue(statement("insertReadySteps"), append([]any{q.ttlMS}, readyStepColumns.toArrays(enqueued)...)...)
	if q.announce {
		batch.Queue(statement("announceNew"), enqueuedColumns.toArrays(enqueued)...)
	}
}

type insertedRow struct {
	TaskUUID  tasker.ID
	CreatedAt time.Time
	Context   json.RawMessage
}

// readInsertion reads the results of an insertion. This also ends its implicit transaction, if any.
func readInsertion(results pgx.BatchResults, tasks []*CreatedTask) error {
	stored, err := readBatchRows[insertedRow](results)
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	rows := make(map[tasker.ID]insertedRow, len(stored))
	for _, r := range stored {
		rows[r.TaskUUID] = r
	}
	for _, t := range tasks {
		t.CreatedAt, t.StoredContext = rows[t.UUID].CreatedAt, rows[t.UUID].Context
	}
	return nil
}

// classifyInsertionError converts a constraint violation to an error that callers can handle.
func classifyInsertionError(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &pg):
	case pg.ConstraintName == "tasks_pkey":
		return ErrTaskStored
	case pg.ConstraintName == "task_idempotency_key_is_unique":
		return ErrKeyTaken
	case pg.ConstraintName == "unique_task_has_its_key":
		return ErrUniqueKeyTaken
	case pg.ConstraintName == "tasks_template_uuid_fkey", pg.Code == notNull && pg.ColumnName == "template_uuid":
		return ErrTemplateGone
	}
	err = classifyDeadlineError(err)
	return fmt.Errorf("insert tasks: %w", classifyError(err))
}

// notNull is the SQLSTATE of a not-null violation.
const notNull = "23502"

var (
	// ErrTaskStored indicates that a task with the same id is already stored.
	ErrTaskStored = errors.New("task is already stored")
	// ErrKeyTaken indicates that a task with the same idempotency key exists.
	ErrKeyTaken = errors.New("idempotency key is taken")
	// ErrTemplateGone indicates that the template was replaced or retired.
	ErrTemplateGone = errors.New("template was replaced")
)

// requiredFlags returns what the database requires of the template: 0 nothing, 1 that it is not
// retired, 2 that it is also the newest version.
func (t *CreatedTask) requiredFlags() int32 {
	switch {
	case t.Newest:
		return 2
	case t.Remembered:
		return 1
	default:
		return 0
	}
}

var newTaskColumns = columns[*CreatedTask]{
	newColumn("task_uuid uuid", func(t **CreatedTask) tasker.ID { return (*t).UUID }),
	newColumn("template_uuid uuid", func(t **CreatedTask) tasker.ID { return (*t).Template.UUID }),
	newColumn("must int", func(t **CreatedTask) int32 { return (*t).requiredFlags() }),
	newColumn("state text", func(t **CreatedTask) string { return string((*t).State) }),
	newColumn("priority int", func(t **CreatedTask) int32 { return int32((*t).Request.Priority) }),
	newColumn("context text", func(t **CreatedTask) string { return string((*t).Request.Context) }),
	newColumn("initiator text", func(t **CreatedTask) string { return (*t).Request.Initiator }),
	newColumn("source_system text", func(t **CreatedTask) string { return (*t).Request.SourceSystem }),
	newColumn("reason text", func(t **CreatedTask) string { return (*t).Request.Reason }),
	newColumn("tags text", func(t **CreatedTask) string { return formatTextArray((*t).Request.Tags) }),
	newColumn("correlation_id text", func(t **CreatedTask) string { return (*t).Correlation }),
	newColumn("parent_correlation_id text", func(t **CreatedTask) string { return (*t).Request.ParentCorrelationID }),
	newColumn("idempotency_key text", func(t **CreatedTask) string { return (*t).Request.IdempotencyKey }),
	newColumn("request_digest bytea", func(t **CreatedTask) []byte { return (*t).Digest }),
	newColumn("recreated_from uuid", func(t **CreatedTask) pgtype.UUID { return toNullUUID((*t).Request.RecreatedFrom) }),
	newColumn("start_at timestamptz", func(t **CreatedTask) *time.Time { return nilIfZeroTime((*t).Request.StartAt) }),
	newColumn("context_bytes int", func(t **CreatedTask) int32 { return int32((*t).ContextSize) }),
	newColumn("wait_s int", func(t **CreatedTask) int32 { return (*t).shortestWait() }),
	newColumn("parent_task_uuid uuid", func(t **CreatedTask) pgtype.UUID { return toNullableUUID((*t).parent().task) }),
	newColumn("parent_step_uuid uuid", func(t **CreatedTask) pgtype.UUID { return toNullableUUID((*t).parent().step) }),
	newColumn("depth smallint", func(t **CreatedTask) *int16 { return (*t).parent().depth }),
	newColumn("schedule_uuid uuid", func(t **CreatedTask) pgtype.UUID { return toNullableUUID((*t).Schedule) }),
}

// parentColumns contains the columns of a task that refer to its parent step; nil if it has none.
type parentColumns struct {
	task, step *tasker.ID
	depth      *int16
}

func (t *CreatedTask) parent() parentColumns {
	if t.Parent == nil {
		return parentColumns{}
	}
	depth := int16(t.Parent.Depth)
	return parentColumns{&t.Parent.TaskUUID, &t.Parent.StepUUID, &depth}
}

type taskStep struct {
	task *CreatedTask
	*CreatedStep
}

var newStepColumns = columns[taskStep]{
	newColumn("task_uuid uuid", func(s *taskStep) tasker.ID { return s.task.UUID }),
	newColumn("step_uuid uuid", func(s *taskStep) tasker.ID { return s.UUID }),
	newColumn("name text", func(s *taskStep) string { return s.Name }),
	newColumn("step_type text", func(s *taskStep) string { return string(s.Type) }),
	newColumn("namespace text", func(s *taskStep) string { return s.task.Template.Namespace }),
	newColumn("handler text", func(s *taskStep) string { return s.Handler.Callable }),
	newColumn("priority int", func(s *taskStep) int32 { return int32(s.task.Request.Priority) }),
	newColumn("state text", func(s *taskStep) string { return string(s.State) }),
	newColumn("parents text", func(s *taskStep) string { return formatIDArray(s.Parents) }),
	newColumn("children text", func(s *taskStep) string { return formatIDArray(s.Children) }),
	newColumn("parents_open int", func(s *taskStep) int32 { return int32(s.openParents()) }),
	newColumn("max_attempts int", func(s *taskStep) int32 { return int32(s.Retry.MaxAttempts) }),
	newColumn("retryable bool", func(s *taskStep) bool { return s.Retry.Retryable }),
	newColumn("backoff text", func(s *taskStep) string { return string(s.Retry.Backoff) }),
	newColumn("base_ms int", func(s *taskStep) int32 { return int32(s.Retry.BaseMS) }),
	newColumn("cap_ms int", func(s *taskStep) int32 { return int32(s.Retry.MaxBackoffMS) }),
	newColumn("jitter bool", func(s *taskStep) bool { return s.Retry.Jitter }),
	newColumn("timeout_s int", func(s *taskStep) int32 { return int32(s.LimitSeconds()) }),
	newColumn("remind_s int", func(s *taskStep) int32 { return int32(s.firstReminder()) }),
	newColumn("join_rule text", func(s *taskStep) string { return string(s.JoinRule) }),
	newColumn("finds bool", func(s *taskStep) bool { return s.Finds }),
	newColumn("ttl_ms bigint", func(s *taskStep) int64 {
		return cmp.Or(s.WorkerQueueTTLMS, s.task.Template.Lifecycle.WorkerQueueTTLMS)
	}),
	newColumn("context_bytes int", func(s *taskStep) int32 { return int32(s.task.ContextSize + s.InputSize) }),
	newColumn("start_at timestamptz", func(s *taskStep) *time.Time { return nilIfZeroTime(s.task.Request.StartAt) }),
	newColumn("due bool", func(s *taskStep) bool { return s.isDeciding() }),
	newColumn("waits bool", func(s *taskStep) bool { return core.IsWaiting(s.StepTemplate, s.JoinRule, s.openParents()) }),
}

var (
	enqueuedColumns  = newStepColumns.pick("task_uuid", "step_uuid", "namespace")
	readyStepColumns = newStepColumns.pick("task_uuid", "step_uuid", "namespace", "handler", "priority", "ttl_ms", "context_bytes")
)

// taskMove is a row in the history of a new task. If it has no event, it covers a whole path.
type taskMove struct {
	task     *CreatedTask
	from, to tasker.TaskState
	event    core.TaskEvent
}

var taskMoveColumns = columns[taskMove]{
	newColumn("task_uuid uuid", func(m *taskMove) tasker.ID { return m.task.UUID }),
	newColumn("from_state text", func(m *taskMove) string { return string(m.from) }),
	newColumn("to_state text", func(m *taskMove) string { return string(m.to) }),
	newColumn("event text", func(m *taskMove) string { return string(m.event) }),
	newColumn("reason text", func(m *taskMove) *string { return nilIfEmpty(m.task.RejectReason) }),
}

// collectMoves returns the history of a new task up to the state in which it is stored.
func collectMoves(t *CreatedTask) []taskMove {
	switch {
	case t.Rejected:
		return []taskMove{
			{task: t, from: tasker.TaskPending, to: tasker.TaskInitializing, event: core.Initialize},
			{task: t, from: tasker.TaskInitializing, to: tasker.TaskError, event: core.Reject},
		}
	case t.State == tasker.TaskPending:
		return nil
	default:
		return []taskMove{{task: t, from: tasker.TaskPending, to: t.State}}
	}
}

// formatIDArray returns an array literal. A parameter cannot contain arrays of different lengths.
func formatIDArray(ids []tasker.ID) string {
	return "{" + strings.Join(collectValues(ids, func(id *tasker.ID) string { return id.String() }), ",") + "}"
}

func formatTextArray(words []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	return "{" + strings.Join(collectValues(words, func(w *string) string { return `"` + escape.Replace(*w) + `"` }),
		",") + "}"
}

// toNullUUID converts an id to a parameter. The zero id becomes NULL.
func toNullUUID(id tasker.ID) pgtype.UUID {
	return pgtype.UUID{Bytes: id, Valid: id != tasker.ID{}}
}

func nilIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func nilIfZeroTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
