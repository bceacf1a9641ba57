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

// Kinds of timed work concerning schedules.
const (
	FireSchedules  = "schedule"       // fire a schedule; its id is stored as that of a task
	ScheduledEnded = "schedule_ended" // process the end of a schedule's task; the schedule's id is stored as a step's
)

// InsertSchedule stores a schedule. It returns a Conflict if the name is in use or a quota is
// exhausted.
func (tx *Tx) InsertSchedule(ctx context.Context, s tasker.Schedule) error {
	count, err := collectColumn[int](ctx, tx, statement("countSchedules"), tasker.MaxSchedules)
	if err != nil {
		return fmt.Errorf("count the schedules: %w", err)
	}
	if count[0] >= tasker.MaxSchedules {
		return tasker.Errorf(tasker.Conflict,
			"the limit of %d schedules is reached: delete those you do not need", count[0])
	}
	count, err = collectColumn[int](ctx, tx, statement("countSchedulesOfNamespace"), tasker.MaxSchedulesOfNamespace,
		s.Namespace)
	if err != nil {
		return fmt.Errorf("count the schedules of namespace %s: %w", s.Namespace, err)
	}
	if count[0] >= tasker.MaxSchedulesOfNamespace {
		return tasker.Errorf(tasker.Conflict, "namespace %s already has %d schedules, which is the limit: delete "+
			"those you do not need", s.Namespace, count[0])
	}
	_, err = tx.Exec(ctx, statement("insertSchedule"), append(newScheduleArgs(s), s.Anchor, s.NextAt, s.FireAt, s.CreatedBy, s.CreatedAt)...)
	return classifyScheduleError(err, s)
}

// newScheduleArgs returns the fields of a schedule that users define, as arguments of a
// statement.
func newScheduleArgs(s tasker.Schedule) []any {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return []any{
		s.UUID, s.Namespace, s.Name, s.Template, s.Version, string(s.Context), s.NominalKey, s.Priority, nonNil(s.Tags), s.Cron, s.DayMatch, s.Zone,
		seconds(s.Every), seconds(s.AfterEnd), nonNil(s.Except), seconds(s.Jitter), s.StartAt, s.EndAt, s.Overlap, s.CatchUp, s.CatchUpMax, seconds(s.StartWithin),
	}
}

func classifyScheduleError(err error, s tasker.Schedule) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.ConstraintName == "schedule_name_is_unique" {
		return tasker.Errorf(tasker.Conflict, "namespace %s already has a schedule %s", s.Namespace, s.Name)
	}
	return wrapError(err, "store schedule %s/%s", s.Namespace, s.Name)
}

// UpdateSchedule stores a changed schedule, which must be locked.
func (tx *Tx) UpdateSchedule(ctx context.Context, s tasker.Schedule) error {
	_, err := tx.Exec(ctx, statement("updateSchedule"), append(newScheduleArgs(s), s.Anchor, s.NextAt, s.FireAt, toNullableUUID(s.AwaitsTask), s.PausedAt, s.PausedUntil,
		s.PausedBy, s.PausedReason, s.DeletedAt, s.Revision)...)
	return classifyScheduleError(err, s)
}

// ScheduleLine is an entry in the history of a schedule.
type ScheduleLine struct {
	Event  string
	Actor  string
	Reason string
	Data   map[string]any
}

// RecordSchedule adds an entry to the history of a schedule. It also records operators' actions in
// the audit log.
func (tx *Tx) RecordSchedule(ctx context.Context, id tasker.ID, l ScheduleLine) error {
	if l.Data == nil {
		l.Data = map[string]any{}
	}
	doc, err := json.Marshal(l.Data)
	if err != nil {
		return fmt.Errorf("record a change of a schedule: %w", err)
	}
	if _, err := tx.Exec(ctx, statement("recordSchedule"),
		id, l.Event, l.Actor, l.Reason, string(doc)); err != nil {
		return fmt.Errorf("record a change of a schedule: %w", err)
	}
	if l.Actor == tasker.SystemActor {
		return nil
	}
	return tx.auditData(ctx, l.Actor, "schedule."+l.Event, id, doc)
}

func findSchedule(ctx context.Context, q querier, id tasker.ID) (tasker.Schedule, error) {
	return queryRequired[tasker.Schedule](ctx, q, tasker.Errorf(tasker.NotFound, "schedule %s not found", id), fmt.Sprintf("read schedule %s", id),
		statement("oneSchedule"), id, access.ScopeFromContext(ctx).List())
}

// LockSchedule locks a schedule and returns it. It returns NotFound if the schedule does not exist,
// was deleted or is not visible to the caller.
func (tx *Tx) LockSchedule(ctx context.Context, id tasker.ID) (tasker.Schedule, error) {
	if err := exec(ctx, tx, "lock schedule", statement("lockSchedule"), id); err != nil {
		return tasker.Schedule{}, err
	}
	s, err := findSchedule(ctx, tx, id)
	if err == nil && s.DeletedAt != nil {
		err = tasker.Errorf(tasker.NotFound, "schedule %s was deleted", id)
	}
	return s, err
}

// Schedule returns a schedule. It returns NotFound if the schedule does not exist or is not visible
// to the caller.
func (db *DB) Schedule(ctx context.Context, id tasker.ID) (tasker.Schedule, error) {
	s, err := findSchedule(ctx, db.pool, id)
	access.RedactSchedule(ctx, &s)
	return s, err
}

// ScheduleHistory returns the newest entries of the history of a schedule.
func (db *DB) ScheduleHistory(ctx context.Context, id tasker.ID, limit int) ([]tasker.ScheduleChange, error) {
	list, err := collect[tasker.ScheduleChange](ctx, db.pool, statement("scheduleHistory"), id, limit)
	return list, wrapError(err, "read the history of schedule %s", id)
}

// Schedules lists the schedules that the caller may see, by namespace and name, and reports whether
// there are more.
func (db *DB) Schedules(ctx context.Context, f tasker.ScheduleFilter) (list []tasker.ScheduleHealth, more bool, err error) {
	list, more, err = queryPage[tasker.ScheduleHealth](ctx, db.pool, f.Limit, "list schedules",
		statement("selectSchedules"), f.Namespace, f.Name, access.ScopeFromContext(ctx).List(), f.After, f.Limit+1, f.Paused)
	for i := range list {
		access.RedactSchedule(ctx, &list[i].Schedule)
	}
	return list, more, err
}

// FailingSchedules counts the schedules whose latest tasks have failed or were refused.
func (db *DB) FailingSchedules(ctx context.Context) (int64, error) {
	v, err := queryValue[int64](ctx, db.pool, statement("countFailing"), tasker.ScheduleFailingFrom)
	return v, wrapError(err, "count failing schedules")
}

// Firings lists the firings of a schedule, newest first, and reports whether there are more. The
// caller must have checked that access to the schedule is allowed.
func (db *DB) Firings(ctx context.Context, f tasker.FiringFilter) (list []tasker.Firing, more bool, err error) {
	return queryPage[tasker.Firing](ctx, db.pool, f.Limit, "list firings", statement("selectFirings"), f.Schedule, f.Outcome, f.Before, f.Kind, f.Limit+1)
}

// FiringOfTask returns the firing that created a task, or nil if there is none.
func (db *DB) FiringOfTask(ctx context.Context, task tasker.ID) (*tasker.Firing, error) {
	f, err := queryOne[tasker.Firing](ctx, db.pool, statement("firingOfTask"), task)
	return f, wrapError(err, "read the firing of task %s", task)
}

// FindTriggered returns the firing that an earlier request with the same key created. The caller
// must hold the lock on the schedule.
func (tx *Tx) FindTriggered(ctx context.Context, schedule tasker.ID, key string) (tasker.Firing, error) {
	removed := tasker.Errorf(tasker.Conflict,
		"this request already triggered the schedule, and its firing has since been removed")
	return queryRequired[tasker.Firing](ctx, tx, removed, "read the firing of a request", statement("triggeredBy"), schedule, scopedKey(ctx, key))
}

// PruneFirings removes up to limit firings that were decided longer than age ago. It also removes
// deleted schedules that have no firings. It reports whether there may be more firings.
func (db *DB) PruneFirings(ctx context.Context, age time.Duration, limit int) (more bool, err error) {
	tag, err := db.pool.Exec(ctx, statement("pruneFirings"), age, limit)
	if err != nil {
		return false, fmt.Errorf("remove old firings: %w", err)
	}
	_, err = db.pool.Exec(ctx, statement("pruneSchedules"), age, limit)
	return tag.RowsAffected() == int64(limit), wrapError(err, "remove old schedules")
}
