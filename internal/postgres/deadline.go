package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/core"
)

// WatchDeadlines is the kind of work that notifies people of due times.
const WatchDeadlines = "deadline"

// wholeTask is the step_uuid in the row of a task's due time.
const wholeTask = `'00000000-0000-0000-0000-000000000000'`

// NewDeadline describes the due time of a task or a step.
type NewDeadline struct {
	tasker.StepRef               // the step is zero for the due time of a task
	At             time.Time     // if zero, After applies
	After          time.Duration // time from the start of the task, or from now for a step
	Warn           *int          // seconds before the due time; nil warns after four fifths of the time
	Investigate    bool
	Orders         bool // the queue is ordered by due time
	Source         tasker.DeadlineSource
}

var deadlineColumns = columns[NewDeadline]{
	newColumn("task_uuid uuid", func(d *NewDeadline) tasker.ID { return d.TaskUUID }),
	newColumn("step_uuid uuid", func(d *NewDeadline) tasker.ID { return d.StepUUID }),
	newColumn("due_at timestamptz", func(d *NewDeadline) *time.Time { return nilIfZeroTime(d.At) }),
	newColumn("after_ms bigint", func(d *NewDeadline) int64 { return d.After.Milliseconds() }),
	newColumn("warn_s int", func(d *NewDeadline) pgtype.Int4 {
		if d.Warn == nil {
			return pgtype.Int4{}
		}
		return pgtype.Int4{Int32: int32(*d.Warn), Valid: true}
	}),
	newColumn("investigate bool", func(d *NewDeadline) bool { return d.Investigate }),
	newColumn("orders bool", func(d *NewDeadline) bool { return d.Orders }),
	newColumn("source text", func(d *NewDeadline) string { return string(d.Source) }),
}

// queueDeadlines adds a statement that stores the due times of new tasks to a batch.
func queueDeadlines(batch *pgx.Batch, tasks []*CreatedTask) {
	var list []NewDeadline
	for _, t := range tasks {
		if t.Options != nil && t.Options.Due != nil {
			d := *t.Options.Due
			d.TaskUUID = t.UUID
			list = append(list, d)
		}
	}
	if len(list) > 0 {
		batch.Queue(statement("insertDeadlines"), deadlineColumns.toArrays(list)...)
	}
}

// SetDeadlines stores due times of steps that have none yet. The caller must hold the task locks.
func (tx *Tx) SetDeadlines(ctx context.Context, list []NewDeadline) error {
	if len(list) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, statement("insertDeadlines"), deadlineColumns.toArrays(list)...)
	return wrapError(classifyDeadlineError(err), "store the due times of steps")
}

// replaceDeadline replaces the due time of a waiting task, unless an operator has set it.
func (tx *Tx) replaceDeadline(ctx context.Context, task tasker.ID, o *NewOptions) error {
	if o.Due == nil {
		return nil
	}
	d := *o.Due
	d.TaskUUID = task
	_, err := tx.Exec(ctx, statement("replaceDeadlines"), deadlineColumns.toArrays([]NewDeadline{d})...)
	return wrapError(classifyDeadlineError(err), "replace the due time of a task")
}

// buildDuePage selects a page of open tasks that are due before a time, earliest first.
func buildDuePage(f tasker.TaskFilter, scope access.Scope, attributes []comparison) (sql string, args []any) {
	p := parameters{f.Limit + 1, f.Offset, namespacesOf(f, scope), nilIfZeroTime(f.DueBefore), f.Overdue}
	conditions := append(p.buildConditions(f, nil), p.buildComparisons(attributes)...)
	conditions = append(append(conditions, p.is("state", string(f.State))...), p.is("name", f.Name)...)
	return addConditions(statement("dueTasks"), "conditions", onTask("d", conditions)), p
}

// findDeadlines returns the due times of those tasks that have one.
func findDeadlines(ctx context.Context, q querier, tasks []tasker.ID) (map[tasker.ID]*tasker.Deadline, error) {
	type row struct {
		TaskUUID tasker.ID
		Due      *tasker.Deadline
	}
	rows, err := collect[row](ctx, q, statement("selectDues"), tasks)
	if err != nil {
		return nil, fmt.Errorf("read the due times of tasks: %w", err)
	}
	dues := make(map[tasker.ID]*tasker.Deadline, len(rows))
	for _, r := range rows {
		dues[r.TaskUUID] = r.Due
	}
	return dues, nil
}

// DeadlinesToNotify returns the tasks and steps for which a notification is due. For a task, the
// step is zero.
func (db *DB) DeadlinesToNotify(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("deadlinesToNotify"), limit)
}

// WatchedDeadline is a due time for which a notification is due.
type WatchedDeadline struct {
	tasker.StepRef
	Namespace string
	TaskName  string
	StepName  string // empty for the due time of a task
	State     string // state of the task or the step
	DueAt     time.Time
	CreatedAt time.Time // creation time of the task
	Ended     bool      // the task or step has ended, so no notification is sent
	AsOf      time.Time // time of the database when this was read
}

// IsOverdue reports whether the due time has passed.
func (d WatchedDeadline) IsOverdue() bool { return !d.DueAt.After(d.AsOf) }

// WatchedDeadlines locks and returns the due times for which a notification is due. The caller must
// hold the task locks.
func (tx *Tx) WatchedDeadlines(ctx context.Context, rows []tasker.StepRef) ([]WatchedDeadline, error) {
	tasks, steps := toRefArrays(rows)
	list, err := collect[WatchedDeadline](ctx, tx, statement("watchedDeadlines"), tasks, steps)
	return list, wrapError(err, "read due times")
}

// NotifyDeadlines creates notifications for due times whose task or step has not ended. It marks
// all of them as notified.
func (tx *Tx) NotifyDeadlines(ctx context.Context, list []WatchedDeadline, data func(WatchedDeadline) tasker.NotificationData) error {
	refs, ended, overdue := make([]tasker.StepRef, len(list)), make([]bool, len(list)), make([]bool, len(list))
	for i, d := range list {
		refs[i], ended[i], overdue[i] = d.StepRef, d.Ended, d.IsOverdue()
		if d.Ended {
			continue
		}
		m := NewMessage{Topic: dueTopic(d), SubjectKind: tasker.TaskSubject, SubjectID: d.TaskUUID, Namespaces: []string{d.Namespace}, Data: data(d)}
		if d.StepName != "" {
			m.SubjectKind, m.SubjectID = tasker.StepSubject, d.StepUUID
		}
		if _, err := tx.CreateNotification(ctx, m); err != nil {
			return err
		}
	}
	tasks, steps := toRefArrays(refs)
	_, err := tx.Exec(ctx, statement("markDeadlines"), tasks, steps, ended, overdue)
	return wrapError(err, "mark due times as notified")
}

func dueTopic(d WatchedDeadline) string {
	switch {
	case d.StepName == "" && d.IsOverdue():
		return tasker.TaskOverdueTopic
	case d.StepName == "":
		return tasker.TaskDueSoonTopic
	case d.IsOverdue():
		return tasker.StepOverdueTopic
	default:
		return tasker.StepDueSoonTopic
	}
}

// DueTask describes a task whose due time is to be changed.
type DueTask struct {
	State        tasker.TaskState
	TemplateUUID tasker.ID
	WrittenOff   bool // an investigation of the task ended as permanently_failed
	Due          *tasker.Deadline
}

// DueTask returns a task, or NotFound. The caller must hold the task lock.
func (tx *Tx) DueTask(ctx context.Context, task tasker.ID) (DueTask, error) {
	return queryRequired[DueTask](ctx, tx, newTaskNotFoundError(task), "read the due time of a task",
		statement("dueTask"), task)
}

// ChangedDeadline describes a change to the due time of a locked task or one of its steps.
type ChangedDeadline struct {
	tasker.StepRef
	Task        tasker.TaskState
	DueAt       *time.Time // nil removes the due time
	Warn        *int
	Investigate bool // used only if there is no due time yet
	Orders      bool
	Operator
	Audit  string         // action in the audit log
	Detail map[string]any // recorded in the history and the audit log
}

// ChangeDeadline changes or removes the due time of a task or a step and records this. It returns
// Invalid if the time is in the past or more than 5 years ahead.
func (tx *Tx) ChangeDeadline(ctx context.Context, c ChangedDeadline) error {
	doc, err := json.Marshal(c.Detail)
	if err != nil {
		return fmt.Errorf("change a due time: %w", err)
	}
	if c.DueAt == nil {
		_, err = tx.Exec(ctx, statement("removeDeadline"), c.TaskUUID, c.StepUUID)
	} else {
		_, err = tx.Exec(ctx, statement("changeDeadline"), c.TaskUUID, c.StepUUID, *c.DueAt, c.Warn, c.Investigate, c.Orders, c.Actor)
	}
	if err != nil {
		return fmt.Errorf("change a due time: %w", classifyDeadlineError(err))
	}
	if c.Orders {
		if _, err := tx.Exec(ctx, statement("reorderReady"), c.TaskUUID); err != nil {
			return fmt.Errorf("reorder enqueued steps: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, statement("noteDueChange"), c.TaskUUID, string(c.Task), string(core.ChangeDue), c.Actor, c.Reason, string(doc)); err != nil {
		return fmt.Errorf("record the change of a due time: %w", err)
	}
	subject := c.TaskUUID
	if c.StepUUID != (tasker.ID{}) {
		subject = c.StepUUID
	}
	return tx.auditData(ctx, c.Actor, c.Audit, subject, doc)
}

// CountOverdue counts overdue open tasks, at most limit per namespace.
func (db *DB) CountOverdue(ctx context.Context, limit int) (int64, error) {
	n, err := queryValue[int64](ctx, db.pool, statement("countOverdue"), limit)
	return n, wrapError(err, "count overdue tasks")
}

// classifyDeadlineError converts a violation of a constraint on due times to an Invalid.
func classifyDeadlineError(err error) error {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
	case pg.ConstraintName == "deadline_that_is_asked_for_is_ahead":
		return tasker.Errorf(tasker.Invalid, "due_at: must be in the future (by the database clock)")
	case pg.ConstraintName == "deadline_is_in_bounds":
		return tasker.Errorf(tasker.Invalid, "due_at: must be at most 5 years ahead")
	}
	return err
}
