package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Kinds of timed work on schedules.
const (
	FireSchedules  = "schedule"       // fires a schedule, stored as the task of the work
	ScheduledEnded = "schedule_ended" // processes an ended task of a schedule, stored as its step
)

const scheduleColumns = `
    h.schedule_uuid AS uuid, h.namespace, h.name, h.template_name AS template, h.template_version AS version, h.context, h.nominal_key, h.priority, h.tags,
    h.cron, h.day_match, h.zone, make_interval(secs => h.every_s) AS "every", make_interval(secs => h.after_end_s) AS after_end, h.except_days AS "except",
    make_interval(secs => h.jitter_s) AS jitter, h.start_at, h.end_at, h.overlap, h.catch_up, h.catch_up_max,
    make_interval(secs => h.start_within_s) AS start_within, h.anchor, h.next_at, h.fire_at, h.awaits_task, h.paused_at, h.paused_until, h.paused_by,
    h.paused_reason, h.created_at, h.created_by, h.updated_at, h.revision, h.deleted_at`

const insertSchedule = `
INSERT INTO tasker.schedules (
    schedule_uuid, namespace, name, template_name, template_version, context, nominal_key, priority, tags, cron, day_match, zone, every_s, after_end_s,
    except_days, jitter_s, start_at, end_at, overlap, catch_up, catch_up_max, start_within_s, anchor, next_at, fire_at, created_by, created_at, updated_at
)
VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $27)`

// InsertSchedule stores a schedule. It returns a Conflict if the name is in use or a quota is reached.
func (tx *Tx) InsertSchedule(ctx context.Context, s tasker.Schedule) error {
	count, err := column[int](ctx, tx, `SELECT count(*) FROM (SELECT FROM tasker.schedules WHERE deleted_at IS NULL LIMIT $1) n`, tasker.MaxSchedules)
	if err != nil {
		return fmt.Errorf("count the schedules: %w", err)
	}
	if count[0] >= tasker.MaxSchedules {
		return tasker.Errorf(tasker.Conflict, "there are %d schedules, which is the limit; delete those that are not needed", count[0])
	}
	count, err = column[int](ctx, tx, `SELECT count(*) FROM (SELECT FROM tasker.schedules WHERE deleted_at IS NULL AND namespace = $2 LIMIT $1) n`, tasker.MaxSchedulesOfNamespace, s.Namespace)
	if err != nil {
		return fmt.Errorf("count the schedules of namespace %s: %w", s.Namespace, err)
	}
	if count[0] >= tasker.MaxSchedulesOfNamespace {
		return tasker.Errorf(tasker.Conflict, "namespace %s has %d schedules, which is the limit; delete those that are not needed", s.Namespace, count[0])
	}
	_, err = tx.Exec(ctx, insertSchedule, append(scheduleArguments(s), s.Anchor, s.NextAt, s.FireAt, s.CreatedBy, s.CreatedAt)...)
	return scheduleError(err, s)
}

// scheduleArguments returns the user-defined fields of a schedule as statement arguments.
func scheduleArguments(s tasker.Schedule) []any {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return []any{
		s.UUID, s.Namespace, s.Name, s.Template, s.Version, string(s.Context), s.NominalKey, s.Priority, noNil(s.Tags), s.Cron, s.DayMatch, s.Zone,
		seconds(s.Every), seconds(s.AfterEnd), noNil(s.Except), seconds(s.Jitter), s.StartAt, s.EndAt, s.Overlap, s.CatchUp, s.CatchUpMax, seconds(s.StartWithin),
	}
}

func scheduleError(err error, s tasker.Schedule) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.ConstraintName == "schedule_name_is_unique" {
		return tasker.Errorf(tasker.Conflict, "namespace %s has a schedule %s already", s.Namespace, s.Name)
	}
	return wrap(err, "store schedule %s/%s", s.Namespace, s.Name)
}

const updateSchedule = `
UPDATE tasker.schedules
SET namespace = $2, name = $3, template_name = $4, template_version = $5, context = $6::text::jsonb, nominal_key = $7, priority = $8, tags = $9, cron = $10,
    day_match = $11, zone = $12, every_s = $13, after_end_s = $14, except_days = $15, jitter_s = $16, start_at = $17, end_at = $18, overlap = $19,
    catch_up = $20, catch_up_max = $21, start_within_s = $22, anchor = $23, next_at = $24, fire_at = $25, awaits_task = $26, paused_at = $27,
    paused_until = $28, paused_by = $29, paused_reason = $30, deleted_at = $31, revision = $32, updated_at = clock_timestamp()
WHERE schedule_uuid = $1`

// UpdateSchedule stores a locked schedule.
func (tx *Tx) UpdateSchedule(ctx context.Context, s tasker.Schedule) error {
	_, err := tx.Exec(ctx, updateSchedule, append(scheduleArguments(s), s.Anchor, s.NextAt, s.FireAt, nullable(s.AwaitsTask), s.PausedAt, s.PausedUntil,
		s.PausedBy, s.PausedReason, s.DeletedAt, s.Revision)...)
	return scheduleError(err, s)
}

// ScheduleLine is an entry in the history of a schedule.
type ScheduleLine struct {
	Event  string
	Actor  string
	Reason string
	Data   map[string]any
}

// RecordSchedule adds an entry to the history of a schedule, and audits the actions of operators.
func (tx *Tx) RecordSchedule(ctx context.Context, id tasker.ID, l ScheduleLine) error {
	if l.Data == nil {
		l.Data = map[string]any{}
	}
	doc, err := json.Marshal(l.Data)
	if err != nil {
		return fmt.Errorf("record a change of a schedule: %w", err)
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO tasker.schedule_history (schedule_uuid, event, actor, reason, metadata) VALUES ($1, $2, $3, $4, $5::text::jsonb)`,
		id, l.Event, l.Actor, l.Reason, string(doc)); err != nil {
		return fmt.Errorf("record a change of a schedule: %w", err)
	}
	if l.Actor == tasker.SystemActor {
		return nil
	}
	return tx.auditData(ctx, l.Actor, "schedule."+l.Event, id, doc)
}

const oneSchedule = `
SELECT ` + scheduleColumns + `
FROM tasker.schedules h
WHERE h.schedule_uuid = $1 AND ($2::text[] IS NULL OR h.namespace = ANY ($2))`

func scheduleOf(ctx context.Context, q querier, id tasker.ID) (tasker.Schedule, error) {
	return required[tasker.Schedule](ctx, q, tasker.Errorf(tasker.NotFound, "no schedule %s", id), fmt.Sprintf("read schedule %s", id),
		oneSchedule, id, access.ScopeOf(ctx).List())
}

// LockSchedule locks a visible schedule, or returns NotFound.
func (tx *Tx) LockSchedule(ctx context.Context, id tasker.ID) (tasker.Schedule, error) {
	if err := exec(ctx, tx, "lock schedule", `SELECT FROM tasker.schedules WHERE schedule_uuid = $1 FOR NO KEY UPDATE`, id); err != nil {
		return tasker.Schedule{}, err
	}
	s, err := scheduleOf(ctx, tx, id)
	if err == nil && s.DeletedAt != nil {
		err = tasker.Errorf(tasker.NotFound, "schedule %s was deleted", id)
	}
	return s, err
}

// Schedule returns a visible schedule, or NotFound.
func (db *DB) Schedule(ctx context.Context, id tasker.ID) (tasker.Schedule, error) {
	s, err := scheduleOf(ctx, db.pool, id)
	access.HideSchedule(ctx, &s)
	return s, err
}

// ScheduleHistory returns the newest entries of the history of a schedule.
func (db *DB) ScheduleHistory(ctx context.Context, id tasker.ID, limit int) ([]tasker.ScheduleChange, error) {
	list, err := collect[tasker.ScheduleChange](ctx, db.pool, `
		SELECT changed_at AS at, event, actor, reason, metadata
		FROM tasker.schedule_history WHERE schedule_uuid = $1 ORDER BY change_id DESC LIMIT $2`, id, limit)
	return list, wrap(err, "read the history of schedule %s", id)
}

// scheduleHealth counts the failed and refused tasks of schedule h since its last success, among the
// last five firings. It ignores tasks in progress.
const scheduleHealth = `
CROSS JOIN LATERAL (
    SELECT coalesce(min(n.place) FILTER (WHERE NOT n.bad) - 1, count(*))::int AS failing, coalesce(bool_or(n.refused) FILTER (WHERE n.place = 1), false) AS refused
    FROM (
        SELECT row_number() OVER (ORDER BY x.nominal_at DESC) AS place, x.outcome = 'refused' AS refused,
            x.outcome = 'refused' OR coalesce(t.state IN ('error', 'cancelled'), false) AS bad
        FROM (
            SELECT g.nominal_at, g.outcome, g.task_uuid
            FROM tasker.schedule_firings g
            WHERE g.schedule_uuid = h.schedule_uuid AND g.outcome IN ('started', 'refused')
            ORDER BY g.nominal_at DESC
            LIMIT 5
        ) x
        LEFT JOIN tasker.tasks t ON t.task_uuid = x.task_uuid
        WHERE t.state IS NULL OR t.state IN ('complete', 'error', 'cancelled')
    ) n
) f`

const selectSchedules = `
SELECT ` + scheduleColumns + `, f.failing, f.refused
FROM tasker.schedules h` + scheduleHealth + `
WHERE h.deleted_at IS NULL AND ($1 = '' OR h.namespace = $1) AND ($2 = '' OR h.name = $2) AND ($3::text[] IS NULL OR h.namespace = ANY ($3))
  AND ($4::uuid IS NULL OR (h.namespace, h.name) > (SELECT b.namespace, b.name FROM tasker.schedules b WHERE b.schedule_uuid = $4))
  AND (NOT $6 OR h.paused_at IS NOT NULL)
ORDER BY h.namespace, h.name
LIMIT $5`

// Schedules lists visible schedules by namespace and name and reports whether there are more.
func (db *DB) Schedules(ctx context.Context, f tasker.ScheduleFilter) (list []tasker.ScheduleHealth, more bool, err error) {
	list, more, err = pageOf[tasker.ScheduleHealth](ctx, db.pool, f.Limit, "list schedules",
		selectSchedules, f.Namespace, f.Name, access.ScopeOf(ctx).List(), f.After, f.Limit+1, f.Paused)
	for i := range list {
		access.HideSchedule(ctx, &list[i].Schedule)
	}
	return list, more, err
}

const countFailing = `
SELECT count(*)
FROM tasker.schedules h` + scheduleHealth + `
WHERE h.deleted_at IS NULL AND (f.refused OR f.failing >= $1)`

// FailingSchedules counts the schedules whose last tasks failed or were refused.
func (db *DB) FailingSchedules(ctx context.Context) (int64, error) {
	v, err := value[int64](ctx, db.pool, countFailing, tasker.ScheduleFailingFrom)
	return v, wrap(err, "count failing schedules")
}

const firingColumns = `
    g.schedule_uuid, g.kind, g.nominal_at, g.nominal_until, g.instants, g.outcome, g.reason, g.task_uuid, g.actor, g.decided_at, g.late_ms, g.ended_at,
    coalesce(t.state, '') AS task_state`

// The schedule is a range and the first sort key, as in the index. Otherwise the planner might sort
// all firings of the schedule.
const selectFirings = `
SELECT ` + firingColumns + `
FROM tasker.schedule_firings g
LEFT JOIN tasker.tasks t ON t.task_uuid = g.task_uuid
WHERE g.schedule_uuid BETWEEN $1 AND $1 AND ($2 = '' OR g.outcome = $2) AND ($3::timestamptz IS NULL OR (g.nominal_at, g.kind) < ($3, $4))
ORDER BY g.schedule_uuid DESC, g.nominal_at DESC, g.kind DESC
LIMIT $5`

// Firings lists the firings of a schedule, newest first, and reports whether there are more. The
// caller has checked access to the schedule.
func (db *DB) Firings(ctx context.Context, f tasker.FiringFilter) (list []tasker.Firing, more bool, err error) {
	return pageOf[tasker.Firing](ctx, db.pool, f.Limit, "list firings", selectFirings, f.Schedule, f.Outcome, f.Before, f.Kind, f.Limit+1)
}

// FiringOfTask returns the firing that created a task, or nil if there is none.
func (db *DB) FiringOfTask(ctx context.Context, task tasker.ID) (*tasker.Firing, error) {
	f, err := one[tasker.Firing](ctx, db.pool, `
		SELECT `+firingColumns+`
		FROM tasker.schedule_firings g
		LEFT JOIN tasker.tasks t ON t.task_uuid = g.task_uuid
		WHERE g.task_uuid = $1`, task)
	return f, wrap(err, "read the firing of task %s", task)
}

// The schedule is locked between the insert of the request and its firing. Therefore the first firing
// after the insert belongs to the request.
const triggeredBy = `
SELECT ` + firingColumns + `
FROM tasker.schedule_firings g
LEFT JOIN tasker.tasks t ON t.task_uuid = g.task_uuid
WHERE g.schedule_uuid = $1 AND g.kind = 'manual' AND g.nominal_at >= (SELECT r.created_at FROM tasker.operator_requests r WHERE r.request_key = $2)
ORDER BY g.nominal_at
LIMIT 1`

// TriggeredBy returns the firing of a repeated request. The caller holds the lock of the schedule.
func (tx *Tx) TriggeredBy(ctx context.Context, schedule tasker.ID, key string) (tasker.Firing, error) {
	removed := tasker.Errorf(tasker.Conflict, "this request has triggered the schedule, and the firing was removed since")
	return required[tasker.Firing](ctx, tx, removed, "read the firing of a request", triggeredBy, schedule, scopedKey(ctx, key))
}

// now() can bound an index range, clock_timestamp() cannot.
const pruneFirings = `
DELETE FROM tasker.schedule_firings WHERE (schedule_uuid, nominal_at, kind) IN (
    SELECT g.schedule_uuid, g.nominal_at, g.kind
    FROM tasker.schedule_firings g
    WHERE g.decided_at < now() - $1::interval AND NOT g.task_open AND g.outcome <> 'queued'
    ORDER BY g.decided_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)`

const pruneSchedules = `
DELETE FROM tasker.schedules WHERE schedule_uuid IN (
    SELECT h.schedule_uuid
    FROM tasker.schedules h
    WHERE h.deleted_at < now() - $1::interval
      AND NOT EXISTS (SELECT FROM tasker.schedule_firings g WHERE g.schedule_uuid = h.schedule_uuid)
    ORDER BY h.deleted_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)`

// PruneFirings removes up to limit firings that were decided before age, and deleted schedules
// without firings. It reports whether there may be more firings.
func (db *DB) PruneFirings(ctx context.Context, age time.Duration, limit int) (more bool, err error) {
	tag, err := db.pool.Exec(ctx, pruneFirings, age, limit)
	if err != nil {
		return false, fmt.Errorf("remove old firings: %w", err)
	}
	_, err = db.pool.Exec(ctx, pruneSchedules, age, limit)
	return tag.RowsAffected() == int64(limit), wrap(err, "remove old schedules")
}
