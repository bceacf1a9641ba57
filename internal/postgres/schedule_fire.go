package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
)

var scheduledColumns = append(slices.Clip(newTaskColumns),
	col("schedule_uuid uuid", func(t **CreatedTask) tasker.ID { return *(*t).Schedule }),
)

const schedulesToFire = `
SELECT h.schedule_uuid
FROM tasker.schedules h
WHERE h.fire_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + FireSchedules + `' AND w.task_uuid = h.schedule_uuid)
ORDER BY h.fire_at
LIMIT $1`

// SchedulesToFire returns due schedules, oldest first.
func (db *DB) SchedulesToFire(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.dueTasks(ctx, schedulesToFire, limit)
}

const lockDueSchedules = `
SELECT ` + scheduleColumns + `
FROM tasker.schedules h
WHERE h.schedule_uuid = ANY ($1) AND h.fire_at <= clock_timestamp()
ORDER BY h.schedule_uuid
FOR NO KEY UPDATE SKIP LOCKED`

// LockDueSchedules locks the unlocked due schedules and returns them with the database time.
func (tx *Tx) LockDueSchedules(ctx context.Context, ids []tasker.ID) (list []tasker.Schedule, now time.Time, err error) {
	if list, err = collect[tasker.Schedule](ctx, tx, lockDueSchedules, ids); err != nil {
		return nil, now, fmt.Errorf("lock schedules: %w", err)
	}
	now, err = tx.Now(ctx)
	return list, now, err
}

const scheduleProgress = `
SELECT h.schedule_uuid,
    EXISTS (SELECT FROM tasker.schedule_firings q WHERE q.schedule_uuid = h.schedule_uuid AND q.outcome = 'queued') AS queued,
    l.nominal_at AS last_at, l.nominal_until AS last_until, coalesce(l.outcome, '') AS last_outcome, coalesce(l.reason, '') AS last_reason,
    o.task_uuid AS open
FROM unnest($1::uuid[]) AS h (schedule_uuid)
LEFT JOIN LATERAL (
    SELECT g.nominal_at, g.nominal_until, g.outcome, g.reason
    FROM tasker.schedule_firings g
    WHERE g.schedule_uuid = h.schedule_uuid AND g.kind = 'clock'
    ORDER BY g.nominal_at DESC
    LIMIT 1
) l ON true
LEFT JOIN LATERAL (
    SELECT c.task_uuid
    FROM tasker.schedule_firings g
    JOIN tasker.tasks c ON c.task_uuid = g.task_uuid
    WHERE g.schedule_uuid = h.schedule_uuid AND ` + openScheduled + `
    ORDER BY g.nominal_at
    LIMIT 1
) o ON true`

// openScheduled reports whether the task c of a firing g is open.
const openScheduled = `g.task_open AND c.state NOT IN ('complete', 'cancelled') AND NOT ` + isPermanentlyFailed

// ScheduleProgress is the state that determines the next firings of a schedule.
type ScheduleProgress struct {
	ScheduleUUID tasker.ID
	Queued       bool       // a firing waits for tasks to end
	LastAt       *time.Time // the last timed firing
	LastUntil    *time.Time
	LastOutcome  tasker.FiringOutcome
	LastReason   string
	Open         *tasker.ID // the oldest open task
}

// NotBefore returns the later of at and the last timed firing, in case the clock was set back.
func (s ScheduleProgress) NotBefore(at time.Time) time.Time {
	if s.LastUntil != nil && s.LastUntil.After(at) {
		return *s.LastUntil
	}
	return at
}

// ScheduleProgress returns the progress of locked schedules, by id.
func (tx *Tx) ScheduleProgress(ctx context.Context, ids []tasker.ID) (map[tasker.ID]ScheduleProgress, error) {
	list, err := collect[ScheduleProgress](ctx, tx, scheduleProgress, ids)
	return byKey(list, func(p ScheduleProgress) tasker.ID { return p.ScheduleUUID }), wrap(err, "read the progress of schedules")
}

const scheduledToCancel = `
SELECT c.task_uuid
FROM tasker.schedule_firings g
JOIN tasker.tasks c ON c.task_uuid = g.task_uuid
WHERE g.schedule_uuid = $1 AND c.phase IS NULL AND ` + openScheduled + `
ORDER BY g.nominal_at
LIMIT $2`

// ScheduledToCancel returns the open tasks of a schedule that do not compensate, oldest first.
func (tx *Tx) ScheduledToCancel(ctx context.Context, schedule tasker.ID, limit int) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, tx, scheduledToCancel, schedule, limit)
	return list, wrap(err, "find the tasks of schedule %s", schedule)
}

var firingFields = columns[tasker.Firing]{
	col("schedule_uuid uuid", func(f *tasker.Firing) tasker.ID { return f.ScheduleUUID }),
	col("kind text", func(f *tasker.Firing) string { return string(f.Kind) }),
	col("nominal_at timestamptz", func(f *tasker.Firing) time.Time { return f.NominalAt }),
	col("nominal_until timestamptz", func(f *tasker.Firing) time.Time { return f.NominalUntil }),
	col("instants bigint", func(f *tasker.Firing) int64 { return f.Instants }),
	col("outcome text", func(f *tasker.Firing) string { return string(f.Outcome) }),
	col("reason text", func(f *tasker.Firing) string { return f.Reason }),
	col("task_uuid uuid", func(f *tasker.Firing) *tasker.ID { return f.TaskUUID }),
	col("actor text", func(f *tasker.Firing) string { return f.Actor }),
	col("late_ms bigint", func(f *tasker.Firing) int64 { return f.LateMS }),
}

var insertFirings = `
INSERT INTO tasker.schedule_firings (schedule_uuid, kind, nominal_at, nominal_until, instants, outcome, reason, task_uuid, task_open, actor, late_ms)
SELECT u.schedule_uuid, u.kind, u.nominal_at, u.nominal_until, u.instants, u.outcome, u.reason, u.task_uuid, u.task_uuid IS NOT NULL, u.actor, u.late_ms
FROM ` + firingFields.unnest("u", 1)

// InsertFirings stores firings. The schedule lock ensures that a firing time has only one.
func (tx *Tx) InsertFirings(ctx context.Context, list []tasker.Firing) error {
	if len(list) == 0 {
		return nil
	}
	return exec(ctx, tx, "store firings", insertFirings, firingFields.arrays(list)...)
}

var extendedFields = firingFields.only("schedule_uuid", "nominal_at", "nominal_until", "instants", "late_ms")

var extendFirings = `
UPDATE tasker.schedule_firings g
SET nominal_until = u.nominal_until, instants = g.instants + u.instants, decided_at = clock_timestamp(), late_ms = u.late_ms
FROM ` + extendedFields.unnest("u", 1) + `
WHERE g.schedule_uuid = u.schedule_uuid AND g.nominal_at = u.nominal_at AND g.kind = 'clock' AND g.task_uuid IS NULL AND g.nominal_until < u.nominal_until`

// ExtendFirings adds firing times to timed firings that end before them. NominalAt identifies the
// firing.
func (tx *Tx) ExtendFirings(ctx context.Context, list []tasker.Firing) error {
	if len(list) == 0 {
		return nil
	}
	tag, err := tx.Exec(ctx, extendFirings, extendedFields.arrays(list)...)
	if err != nil {
		return fmt.Errorf("extend firings: %w", err)
	}
	if n := tag.RowsAffected(); n != int64(len(list)) {
		return fmt.Errorf("extended %d of %d firings of locked schedules", n, len(list))
	}
	return nil
}

// QueuedFiring returns the time of the queued firing of a schedule, or nil if there is none.
func (tx *Tx) QueuedFiring(ctx context.Context, schedule tasker.ID) (*time.Time, error) {
	return firstOf[time.Time](ctx, tx, `SELECT nominal_at FROM tasker.schedule_firings WHERE schedule_uuid = $1 AND outcome = 'queued'`, schedule)
}

const endQueued = `
UPDATE tasker.schedule_firings
SET outcome = $2, reason = $3, task_uuid = $4, task_open = $4::uuid IS NOT NULL, decided_at = clock_timestamp(), late_ms = $5
WHERE schedule_uuid = $1 AND outcome = 'queued'`

// EndQueued stores the outcome of the queued firing of a locked schedule.
func (tx *Tx) EndQueued(ctx context.Context, f tasker.Firing) error {
	tag, err := tx.Exec(ctx, endQueued, f.ScheduleUUID, f.Outcome, f.Reason, nullable(f.TaskUUID), f.LateMS)
	if err != nil {
		return fmt.Errorf("end a queued firing: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("locked schedule %s has no queued firing", f.ScheduleUUID)
	}
	return nil
}

// ScheduleMove is the next state of a schedule.
type ScheduleMove struct {
	ScheduleUUID tasker.ID
	NextAt       *time.Time
	FireAt       *time.Time
	AwaitsTask   *tasker.ID
	Unpause      bool
}

var moveFields = columns[ScheduleMove]{
	col("schedule_uuid uuid", func(m *ScheduleMove) tasker.ID { return m.ScheduleUUID }),
	col("next_at timestamptz", func(m *ScheduleMove) *time.Time { return m.NextAt }),
	col("fire_at timestamptz", func(m *ScheduleMove) *time.Time { return m.FireAt }),
	col("awaits_task uuid", func(m *ScheduleMove) *tasker.ID { return m.AwaitsTask }),
	col("unpause bool", func(m *ScheduleMove) bool { return m.Unpause }),
}

var moveSchedules = `
UPDATE tasker.schedules h
SET next_at = u.next_at, fire_at = u.fire_at, awaits_task = u.awaits_task,
    paused_at = CASE WHEN NOT u.unpause THEN h.paused_at END, paused_until = CASE WHEN NOT u.unpause THEN h.paused_until END,
    paused_by = CASE WHEN u.unpause THEN '' ELSE h.paused_by END, paused_reason = CASE WHEN u.unpause THEN '' ELSE h.paused_reason END
FROM ` + moveFields.unnest("u", 1) + `
WHERE h.schedule_uuid = u.schedule_uuid`

// MoveSchedules updates locked schedules.
func (tx *Tx) MoveSchedules(ctx context.Context, list []ScheduleMove) error {
	if len(list) == 0 {
		return nil
	}
	return exec(ctx, tx, "move schedules", moveSchedules, moveFields.arrays(list)...)
}

const scheduledTasksEnded = `
SELECT g.task_uuid, g.schedule_uuid AS step_uuid
FROM tasker.schedule_signals g
WHERE g.created_at <= now()
  AND NOT EXISTS (
      SELECT FROM tasker.deferred_work w WHERE w.kind = '` + ScheduledEnded + `' AND w.task_uuid = g.task_uuid AND w.step_uuid = g.schedule_uuid
  )
ORDER BY g.created_at
LIMIT $1`

// ScheduledTasksEnded returns the ended tasks to process, with their schedules as steps.
func (db *DB) ScheduledTasksEnded(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, scheduledTasksEnded, limit)
}

const lockSchedulesOf = `
SELECT ` + scheduleColumns + `
FROM tasker.schedules h
WHERE h.schedule_uuid = ANY ($1)
ORDER BY h.schedule_uuid
FOR NO KEY UPDATE SKIP LOCKED`

// A task belongs to one firing. A lookup by schedule would read all its firings with open tasks.
const takeEndedScheduled = `
WITH taken AS (
    DELETE FROM tasker.schedule_signals g
    WHERE g.task_uuid = ANY ($1)
      AND (g.schedule_uuid = ANY ($2) OR NOT EXISTS (SELECT FROM tasker.schedules h WHERE h.schedule_uuid = g.schedule_uuid))
    RETURNING g.task_uuid, g.schedule_uuid, g.created_at
)
UPDATE tasker.schedule_firings g
SET task_open = false, ended_at = k.created_at
FROM taken k
WHERE g.task_uuid = k.task_uuid AND g.task_open
RETURNING g.schedule_uuid, g.task_uuid, g.ended_at`

// EndedScheduled is an ended task of a schedule.
type EndedScheduled struct {
	ScheduleUUID tasker.ID
	TaskUUID     tasker.ID
	EndedAt      time.Time
}

// TakeEndedScheduled locks the unlocked schedules of ended tasks, records the ends, and returns both.
func (tx *Tx) TakeEndedScheduled(ctx context.Context, tasks, schedules []tasker.ID) (held []tasker.Schedule, ended []EndedScheduled, err error) {
	if held, err = collect[tasker.Schedule](ctx, tx, lockSchedulesOf, schedules); err != nil {
		return nil, nil, fmt.Errorf("lock schedules: %w", err)
	}
	ids := mapped(held, func(s tasker.Schedule) tasker.ID { return s.UUID })
	if ended, err = collect[EndedScheduled](ctx, tx, takeEndedScheduled, tasks, ids); err != nil {
		return nil, nil, fmt.Errorf("record ended tasks of schedules: %w", err)
	}
	return held, ended, nil
}

const firingsBetween = `
SELECT g.nominal_at, g.outcome, g.task_uuid
FROM tasker.schedule_firings g
WHERE g.schedule_uuid = $1 AND g.nominal_at BETWEEN $2 AND $3 AND g.kind <> 'manual' AND (g.task_uuid IS NOT NULL OR g.outcome = 'queued')`

// FiredInstant is a firing time that has a task or is queued.
type FiredInstant struct {
	NominalAt time.Time
	Outcome   tasker.FiringOutcome
	TaskUUID  *tasker.ID
}

// FiredBetween returns the firing times in a range that have a task or are queued.
func (tx *Tx) FiredBetween(ctx context.Context, schedule tasker.ID, from, to time.Time) ([]FiredInstant, error) {
	list, err := collect[FiredInstant](ctx, tx, firingsBetween, schedule, from, to)
	return list, wrap(err, "read firings")
}
