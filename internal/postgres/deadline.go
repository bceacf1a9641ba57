package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/lifecycle"
)

// WatchDeadlines is the kind of work of due times of which people are to be told.
const WatchDeadlines = "deadline"

// wholeTask is the step of the due time of a task.
const wholeTask = `'00000000-0000-0000-0000-000000000000'`

// A NewDeadline is by when a task or a step is due.
type NewDeadline struct {
	tasker.StepRef               // the step is zero: the task
	At             time.Time     // zero: after a while
	After          time.Duration // after the start of the task, or from now on for a step
	Warn           *int          // seconds before; nil: when four fifths of the time are over
	Investigate    bool
	Orders         bool // the steps are handed out in the order of when they are due
	Source         tasker.DeadlineSource
}

var deadlineColumns = columns[NewDeadline]{
	col("task_uuid uuid", func(d *NewDeadline) tasker.ID { return d.TaskUUID }),
	col("step_uuid uuid", func(d *NewDeadline) tasker.ID { return d.StepUUID }),
	col("due_at timestamptz", func(d *NewDeadline) *time.Time { return timeOrNil(d.At) }),
	col("after_ms bigint", func(d *NewDeadline) int64 { return d.After.Milliseconds() }),
	col("warn_s int", func(d *NewDeadline) pgtype.Int4 {
		if d.Warn == nil {
			return pgtype.Int4{}
		}
		return pgtype.Int4{Int32: int32(*d.Warn), Valid: true}
	}),
	col("investigate bool", func(d *NewDeadline) bool { return d.Investigate }),
	col("orders bool", func(d *NewDeadline) bool { return d.Orders }),
	col("source text", func(d *NewDeadline) string { return string(d.Source) }),
}

// warnAt is when people are told that something is due soon.
func warnAt(due, warn, from string) string {
	return due + ` - coalesce(interval '1 second' * ` + warn + `, greatest(` + due + ` - ` + from + `, interval '0') / 5)`
}

// A task that has a due time has options, by which the end of the task ends its due times.
var (
	insertDeadlines  = putDeadlines(`NOTHING`)
	replaceDeadlines = putDeadlines(`UPDATE
    SET due_at = excluded.due_at, warn_at = excluded.warn_at, look_at = excluded.look_at, warn_s = excluded.warn_s, investigate = excluded.investigate,
        source = excluded.source, set_at = excluded.set_at, warned_at = NULL, announced_at = NULL
    WHERE d.source <> 'operator'`)
)

func putDeadlines(again string) string {
	return `
WITH put AS (
    INSERT INTO tasker.deadlines AS d (task_uuid, step_uuid, namespace, due_at, warn_at, look_at, warn_s, investigate, orders, source, set_at)
    SELECT t.task_uuid, u.step_uuid, t.namespace, b.due_at, w.warn_at, w.warn_at, u.warn_s, u.investigate, u.orders, u.source, clock_timestamp()
    FROM ` + deadlineColumns.unnest("u", 1) + `
    JOIN tasker.tasks t ON t.task_uuid = u.task_uuid AND t.state NOT IN ('complete', 'cancelled')
    CROSS JOIN LATERAL (
        SELECT coalesce(u.due_at, CASE WHEN u.step_uuid = ` + wholeTask + ` THEN coalesce(t.start_at, now()) ELSE clock_timestamp() END + interval '1 millisecond' * u.after_ms) AS due_at
    ) b
    CROSS JOIN LATERAL (SELECT ` + warnAt("b.due_at", "u.warn_s", "clock_timestamp()") + ` AS warn_at) w
    ORDER BY t.task_uuid, u.step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO ` + again + `
)
UPDATE tasker.tasks t SET options = '{}' WHERE t.task_uuid = ANY ($1::uuid[]) AND t.options IS NULL`
}

// dueTimes adds the statement that stores by when new tasks are due.
func dueTimes(batch *pgx.Batch, tasks []*CreatedTask) {
	var list []NewDeadline
	for _, t := range tasks {
		if t.Options != nil && t.Options.Due != nil {
			d := *t.Options.Due
			d.TaskUUID = t.UUID
			list = append(list, d)
		}
	}
	if len(list) > 0 {
		batch.Queue(insertDeadlines, deadlineColumns.arrays(list)...)
	}
}

// SetDeadlines stores deadlines of steps without one, under the task locks.
func (tx *Tx) SetDeadlines(ctx context.Context, list []NewDeadline) error {
	if len(list) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, insertDeadlines, deadlineColumns.arrays(list)...); err != nil {
		return fmt.Errorf("store by when steps are due: %w", deadlineError(err))
	}
	return nil
}

// replaceDeadline replaces the deadline of a waiting task, unless an operator set it.
func (tx *Tx) replaceDeadline(ctx context.Context, task tasker.ID, o *NewOptions) error {
	if o.Due == nil {
		return nil
	}
	d := *o.Due
	d.TaskUUID = task
	if _, err := tx.Exec(ctx, replaceDeadlines, deadlineColumns.arrays([]NewDeadline{d})...); err != nil {
		return fmt.Errorf("change by when a task is due: %w", deadlineError(err))
	}
	return nil
}

// openDeadline is true of the due time d of a task that has not ended.
const openDeadline = `d.ended_at IS NULL AND d.step_uuid = ` + wholeTask

// before is the instant before which the tasks of a filter are due.
func (p *parameters) before(f tasker.TaskFilter) string {
	switch {
	case f.DueBefore.IsZero():
		return "now()"
	case f.Overdue:
		return "least(now(), " + p.add(f.DueBefore) + "::timestamptz)"
	default:
		return p.add(f.DueBefore) + "::timestamptz"
	}
}

// dueBefore is true of a task, t, that has not ended and is due before the instant of a filter.
func (p *parameters) dueBefore(f tasker.TaskFilter) string {
	return "EXISTS (SELECT FROM tasker.deadlines d WHERE d.task_uuid = t.task_uuid AND " + openDeadline + " AND d.due_at < " + p.before(f) + ")"
}

// duePage selects a page of open tasks due before an instant, earliest first, by index range.
func duePage(f tasker.TaskFilter, scope access.Scope, attributes []comparison) (sql string, args []any) {
	p := &parameters{}
	limit, offset := p.add(f.Limit+1), p.add(f.Offset)
	where := append(p.conditions(f, nil), p.compared(attributes)...)
	if f.State != "" {
		where = append(where, "t.state = "+p.add(string(f.State)))
	}
	if f.Name != "" {
		where = append(where, "t.name = "+p.add(f.Name))
	}
	where = append(where, "true")
	return fmt.Sprintf(`
		SELECT t.*, c.due_at
		FROM (
			SELECT l.task_uuid, l.due_at
			FROM %[1]s m
			CROSS JOIN LATERAL (
				SELECT d.task_uuid, d.due_at
				FROM tasker.deadlines d
				CROSS JOIN LATERAL (SELECT FROM tasker.tasks t WHERE t.task_uuid = d.task_uuid AND %[2]s OFFSET 0) t
				WHERE d.namespace = m.namespace AND `+openDeadline+` AND d.due_at < %[3]s
				ORDER BY d.due_at, d.task_uuid
				LIMIT %[4]s::bigint + %[5]s::bigint
			) l
			ORDER BY l.due_at, l.task_uuid LIMIT %[4]s OFFSET %[5]s
		) c
		JOIN tasker.tasks t ON t.task_uuid = c.task_uuid`, p.namespaces(f, scope), strings.Join(where, " AND "), p.before(f), limit, offset), *p
}

// dueOf selects a [tasker.Deadline]: ended is the completion time, over is true of another end.
func dueOf(task, step, ended, over string) string {
	return `(
        SELECT jsonb_build_object('due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END, 'source', q.source,
            'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at, 'state', CASE
                WHEN ` + ended + ` <= q.due_at THEN 'met'
                WHEN ` + ended + ` > q.due_at THEN 'missed'
                WHEN ` + over + ` THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead' END)
        FROM tasker.deadlines q
        WHERE q.task_uuid = ` + task + ` AND q.step_uuid = ` + step + `
    )`
}

var (
	dueOfTask = dueOf("t.task_uuid", wholeTask, "CASE WHEN t.state = 'complete' THEN t.completed_at END", "q.ended_at IS NOT NULL")
	dueOfStep = dueOf("s.task_uuid", "s.step_uuid", "CASE WHEN s.state IN ('complete', 'resolved_manually', 'skipped') THEN s.state_since END", "(s.state = 'cancelled' OR q.ended_at IS NOT NULL)")
)

var selectDues = `
SELECT t.task_uuid, ` + dueOfTask + ` AS due
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
WHERE t.options IS NOT NULL`

// duesOf returns by when tasks are due; those without a due time are left out.
func duesOf(ctx context.Context, q querier, tasks []tasker.ID) (map[tasker.ID]*tasker.Deadline, error) {
	type row struct {
		TaskUUID tasker.ID
		Due      *tasker.Deadline
	}
	rows, err := collect[row](ctx, q, selectDues, tasks)
	if err != nil {
		return nil, fmt.Errorf("read by when tasks are due: %w", err)
	}
	dues := make(map[tasker.ID]*tasker.Deadline, len(rows))
	for _, r := range rows {
		dues[r.TaskUUID] = r.Due
	}
	return dues, nil
}

const deadlinesToLookAt = `
SELECT d.task_uuid, d.step_uuid
FROM tasker.deadlines d
WHERE d.look_at < 'infinity' AND d.look_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + WatchDeadlines + `' AND w.task_uuid = d.task_uuid AND w.step_uuid = d.step_uuid)
ORDER BY d.look_at, d.task_uuid, d.step_uuid
LIMIT $1`

// DeadlinesToLookAt returns tasks (with a zero step) and steps with deadline messages due.
func (db *DB) DeadlinesToLookAt(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, deadlinesToLookAt, limit)
}

// A WatchedDeadline is a due time of which people are to be told.
type WatchedDeadline struct {
	tasker.StepRef
	Namespace string
	TaskName  string
	StepName  string // empty: it is of the task
	State     string // of the task or the step
	DueAt     time.Time
	CreatedAt time.Time // when the task was created
	Ended     bool      // the step has ended, and nobody need be told
	AsOf      time.Time // when it was read, by the database's clock
}

// Overdue reports whether the due time is over.
func (d WatchedDeadline) Overdue() bool { return !d.DueAt.After(d.AsOf) }

const watchedDeadlines = `
SELECT d.task_uuid, d.step_uuid, d.namespace, t.name AS task_name, coalesce(s.name, '') AS step_name, coalesce(s.state, t.state) AS state, d.due_at, t.created_at,
    d.ended_at IS NOT NULL OR coalesce(s.state IN ('complete', 'resolved_manually', 'skipped', 'cancelled'), d.step_uuid <> ` + wholeTask + `) AS ended, now() AS as_of
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.deadlines d ON d.task_uuid = u.task_uuid AND d.step_uuid = u.step_uuid
JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
WHERE d.look_at <= now()
ORDER BY d.task_uuid, d.step_uuid
FOR NO KEY UPDATE OF d`

// WatchedDeadlines locks and returns deadlines with messages due, under the task locks.
func (tx *Tx) WatchedDeadlines(ctx context.Context, rows []tasker.StepRef) ([]WatchedDeadline, error) {
	tasks, steps := refArrays(rows)
	list, err := collect[WatchedDeadline](ctx, tx, watchedDeadlines, tasks, steps)
	return list, wrap(err, "read due times")
}

const toldOfDeadlines = `
UPDATE tasker.deadlines d
SET look_at = CASE WHEN u.ended OR u.overdue THEN 'infinity' ELSE d.due_at END,
    warned_at = CASE WHEN u.ended OR u.overdue THEN d.warned_at ELSE clock_timestamp() END,
    announced_at = CASE WHEN u.overdue AND NOT u.ended THEN clock_timestamp() END
FROM unnest($1::uuid[], $2::uuid[], $3::bool[], $4::bool[]) AS u (task_uuid, step_uuid, ended, overdue)
WHERE d.task_uuid = u.task_uuid AND d.step_uuid = u.step_uuid`

// NotifyDeadlines enqueues deadline messages and marks them as sent in one transaction.
func (tx *Tx) NotifyDeadlines(ctx context.Context, list []WatchedDeadline, say func(WatchedDeadline) tasker.NotificationData) error {
	refs, ended, overdue := make([]tasker.StepRef, len(list)), make([]bool, len(list)), make([]bool, len(list))
	for i, d := range list {
		refs[i], ended[i], overdue[i] = d.StepRef, d.Ended, d.Overdue()
		if d.Ended {
			continue
		}
		m := NewMessage{SubjectKind: tasker.TaskSubject, SubjectID: d.TaskUUID, Namespaces: []string{d.Namespace}, Data: say(d)}
		if d.StepName != "" {
			m.SubjectKind, m.SubjectID = tasker.StepSubject, d.StepUUID
		}
		m.Topic = dueTopic(d)
		if _, err := tx.CreateNotification(ctx, m); err != nil {
			return err
		}
	}
	tasks, steps := refArrays(refs)
	_, err := tx.Exec(ctx, toldOfDeadlines, tasks, steps, ended, overdue)
	return wrap(err, "note that people were told of due times")
}

func dueTopic(d WatchedDeadline) string {
	switch {
	case d.StepName == "" && d.Overdue():
		return tasker.TaskOverdueTopic
	case d.StepName == "":
		return tasker.TaskDueSoonTopic
	case d.Overdue():
		return tasker.StepOverdueTopic
	default:
		return tasker.StepDueSoonTopic
	}
}

// A DueTask is what decides whether the due time of a task may be changed.
type DueTask struct {
	State        tasker.TaskState
	TemplateUUID tasker.ID
	WrittenOff   bool // an investigation ended as permanently_failed
	Due          *tasker.Deadline
}

var dueTask = `
SELECT t.state, t.template_uuid, ` + dueOfTask + ` AS due, t.phase IS NULL AND EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'permanently_failed'
) AS written_off
FROM tasker.tasks t WHERE t.task_uuid = $1`

// DueTask reads a task that the caller has locked. The error is NotFound when there is none.
func (tx *Tx) DueTask(ctx context.Context, task tasker.ID) (DueTask, error) {
	t, err := one[DueTask](ctx, tx, dueTask, task)
	switch {
	case err != nil:
		return DueTask{}, fmt.Errorf("read by when a task is due: %w", err)
	case t == nil:
		return DueTask{}, noTask(task)
	}
	return *t, nil
}

// A ChangedDeadline is what a task or a step of it, which the caller has locked, is given.
type ChangedDeadline struct {
	tasker.StepRef
	Task        tasker.TaskState
	DueAt       *time.Time // nil: none any more
	Warn        *int
	Investigate bool // unless it has a due time, which says so
	Orders      bool
	Operator
	Audit  string         // the action
	Detail map[string]any // for the history and the audit log
}

var changeDeadline = `
WITH changed AS (
    INSERT INTO tasker.deadlines AS d (task_uuid, step_uuid, namespace, due_at, warn_at, look_at, warn_s, investigate, orders, source, set_by, set_at)
    SELECT t.task_uuid, $2, t.namespace, $3, w.warn_at, w.warn_at, $4::int, $5, $6, 'operator', $7, clock_timestamp()
    FROM tasker.tasks t
    CROSS JOIN LATERAL (SELECT ` + warnAt("$3::timestamptz", "$4::int", "clock_timestamp()") + ` AS warn_at) w
    WHERE t.task_uuid = $1
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET due_at = excluded.due_at, warn_at = excluded.due_at - coalesce(interval '1 second' * d.warn_s, excluded.due_at - excluded.warn_at),
        look_at = excluded.due_at - coalesce(interval '1 second' * d.warn_s, excluded.due_at - excluded.warn_at),
        source = 'operator', set_by = excluded.set_by, set_at = clock_timestamp(), warned_at = NULL, announced_at = NULL,
        ended_at = NULL -- it had ended where the task was written off, and is being undone now
)
UPDATE tasker.tasks t SET options = '{}' WHERE t.task_uuid = $1 AND t.options IS NULL`

const removeDeadline = `DELETE FROM tasker.deadlines d WHERE d.task_uuid = $1 AND d.step_uuid = $2`

const noteDueChange = `
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, detail, created_at)
VALUES ($1, $2, $2, $3, nullif($4, ''), nullif($5, ''), $6::text::jsonb, clock_timestamp())`

// What waits in the queue is handed out by the new due time from now on.
var reorderReady = `
UPDATE tasker.ready_steps r
SET due_at = ` + orderOf("s") + `
FROM tasker.workflow_steps s
WHERE s.task_uuid = $1 AND s.state || '' = 'enqueued' AND ` + readyKey + ` AND r.task_uuid = s.task_uuid`

// ChangeDeadline gives a task or a step another due time, with rows of the history and the audit log. The
// error is Invalid when that is not ahead, or too far.
func (tx *Tx) ChangeDeadline(ctx context.Context, c ChangedDeadline) error {
	doc, err := json.Marshal(c.Detail)
	if err != nil {
		return fmt.Errorf("change a due time: %w", err)
	}
	if c.DueAt == nil {
		_, err = tx.Exec(ctx, removeDeadline, c.TaskUUID, c.StepUUID)
	} else {
		_, err = tx.Exec(ctx, changeDeadline, c.TaskUUID, c.StepUUID, *c.DueAt, c.Warn, c.Investigate, c.Orders, c.Actor)
	}
	if err != nil {
		return fmt.Errorf("change a due time: %w", deadlineError(err))
	}
	if c.Orders {
		if _, err := tx.Exec(ctx, reorderReady, c.TaskUUID); err != nil {
			return fmt.Errorf("order what is enqueued: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, noteDueChange, c.TaskUUID, string(c.Task), string(lifecycle.ChangeDue), c.Actor, c.Reason, string(doc)); err != nil {
		return fmt.Errorf("note that a due time was changed: %w", err)
	}
	subject := c.TaskUUID
	if c.StepUUID != (tasker.ID{}) {
		subject = c.StepUUID
	}
	return tx.auditData(ctx, c.Actor, c.Audit, subject, doc)
}

// Of each namespace one range of an index is read, as far as the limit.
const countOverdue = `
SELECT coalesce(sum(x.tasks), 0)::bigint
FROM (SELECT DISTINCT m.namespace FROM tasker.task_templates m) n
CROSS JOIN LATERAL (
    SELECT count(*) AS tasks FROM (
        SELECT FROM tasker.deadlines d
        WHERE d.namespace = n.namespace AND d.due_at <= now() AND ` + openDeadline + `
        LIMIT $1
    ) l
) x`

// CountOverdue counts the open tasks that are overdue, in each namespace up to a limit.
func (db *DB) CountOverdue(ctx context.Context, limit int) (n int64, err error) {
	v, err := value[int64](ctx, db.pool, countOverdue, limit)
	return v, wrap(err, "count tasks that are overdue")
}

// deadlineError says what the database refuses of a due time, by its clock.
func deadlineError(err error) error {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
	case pg.ConstraintName == "deadline_that_is_asked_for_is_ahead":
		return tasker.Errorf(tasker.Invalid, "due_at: is not ahead of now, by the clock of the database")
	case pg.ConstraintName == "deadline_is_in_bounds":
		return tasker.Errorf(tasker.Invalid, "due_at: is more than 5 years ahead")
	}
	return err
}
