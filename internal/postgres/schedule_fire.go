package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
)

// scheduledColumns are a task that a schedule makes, as insertScheduled takes it.
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

// LockDueSchedules locks free due schedules and returns them with the database time.
func (tx *Tx) LockDueSchedules(ctx context.Context, ids []tasker.ID) (list []tasker.Schedule, now time.Time, err error) {
	if list, err = collect[tasker.Schedule](ctx, tx, lockDueSchedules, ids); err != nil {
		return nil, now, fmt.Errorf("lock schedules: %w", err)
	}
	now, err = tx.Now(ctx)
	return list, now, err
}

const scheduleStandings = `
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

// openScheduled is the condition that a firing g has a task c that has not ended.
const openScheduled = `g.task_open AND c.state NOT IN ('complete', 'cancelled') AND NOT ` + isPermanentlyFailed

// A ScheduleProgress is what decides about the next instants of a schedule.
type ScheduleProgress struct {
	ScheduleUUID tasker.ID
	Queued       bool       // an instant waits for tasks to end
	LastAt       *time.Time // of the newest firing of the clock
	LastUntil    *time.Time
	LastOutcome  tasker.FiringOutcome
	LastReason   string
	Open         *tasker.ID // the oldest task that has not ended
}

// NotBefore returns at, or the newest firing of the clock if later: the clock was set back.
func (s ScheduleProgress) NotBefore(at time.Time) time.Time {
	if s.LastUntil != nil && s.LastUntil.After(at) {
		return *s.LastUntil
	}
	return at
}

// ScheduleStandings returns what decides about schedules that the caller has locked.
func (tx *Tx) ScheduleStandings(ctx context.Context, ids []tasker.ID) (map[tasker.ID]ScheduleProgress, error) {
	list, err := collect[ScheduleProgress](ctx, tx, scheduleStandings, ids)
	if err != nil {
		return nil, fmt.Errorf("read where schedules stand: %w", err)
	}
	m := make(map[tasker.ID]ScheduleProgress, len(list))
	for _, s := range list {
		m[s.ScheduleUUID] = s
	}
	return m, nil
}

const scheduledToCancel = `
SELECT c.task_uuid
FROM tasker.schedule_firings g
JOIN tasker.tasks c ON c.task_uuid = g.task_uuid
WHERE g.schedule_uuid = $1 AND c.phase IS NULL AND ` + openScheduled + `
ORDER BY g.nominal_at
LIMIT $2`

// ScheduledToCancel returns open tasks of a schedule that do not compensate, oldest first.
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

// InsertFirings stores firings. An instant must have none yet; the schedule lock ensures that.
func (tx *Tx) InsertFirings(ctx context.Context, list []tasker.Firing) error {
	if len(list) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, insertFirings, firingFields.arrays(list)...)
	return wrap(err, "store firings")
}

var extendFirings = `
UPDATE tasker.schedule_firings g
SET nominal_until = u.nominal_until, instants = g.instants + u.instants, decided_at = clock_timestamp(), late_ms = u.late_ms
FROM ` + firingFields.only("schedule_uuid", "nominal_at", "nominal_until", "instants", "late_ms").unnest("u", 1) + `
WHERE g.schedule_uuid = u.schedule_uuid AND g.nominal_at = u.nominal_at AND g.kind = 'clock' AND g.task_uuid IS NULL AND g.nominal_until < u.nominal_until`

// ExtendFirings adds instants to firings of the clock that end before them: the instants are
// those of list, and NominalAt is that of the firing.
func (tx *Tx) ExtendFirings(ctx context.Context, list []tasker.Firing) error {
	if len(list) == 0 {
		return nil
	}
	tag, err := tx.Exec(ctx, extendFirings, firingFields.only("schedule_uuid", "nominal_at", "nominal_until", "instants", "late_ms").arrays(list)...)
	if err != nil {
		return fmt.Errorf("extend firings: %w", err)
	}
	if n := tag.RowsAffected(); n != int64(len(list)) {
		return fmt.Errorf("%d of %d firings were extended, although their schedules are locked", n, len(list))
	}
	return nil
}

// QueuedFiring returns the instant of a schedule that waits; nil when none does.
func (tx *Tx) QueuedFiring(ctx context.Context, schedule tasker.ID) (*time.Time, error) {
	list, err := column[time.Time](ctx, tx, `SELECT nominal_at FROM tasker.schedule_firings WHERE schedule_uuid = $1 AND outcome = 'queued'`, schedule)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

const endQueued = `
UPDATE tasker.schedule_firings
SET outcome = $2, reason = $3, task_uuid = $4, task_open = $4::uuid IS NOT NULL, decided_at = clock_timestamp(), late_ms = $5
WHERE schedule_uuid = $1 AND outcome = 'queued'`

// EndQueued says what became of the instant of a schedule that waited.
func (tx *Tx) EndQueued(ctx context.Context, f tasker.Firing) error {
	tag, err := tx.Exec(ctx, endQueued, f.ScheduleUUID, f.Outcome, f.Reason, nullable(f.TaskUUID), f.LateMS)
	if err != nil {
		return fmt.Errorf("end the wait of an instant: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("no instant of schedule %s waits, although it is locked", f.ScheduleUUID)
	}
	return nil
}

// A ScheduleMove is how a schedule goes on.
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

// MoveSchedules has schedules go on that the caller has locked.
func (tx *Tx) MoveSchedules(ctx context.Context, list []ScheduleMove) error {
	if len(list) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, moveSchedules, moveFields.arrays(list)...)
	return wrap(err, "move schedules")
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

// ScheduledTasksEnded returns ended tasks, with schedules in place of steps, to process.
func (db *DB) ScheduledTasksEnded(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, scheduledTasksEnded, limit)
}

const lockSchedulesOf = `
SELECT ` + scheduleColumns + `
FROM tasker.schedules h
WHERE h.schedule_uuid = ANY ($1)
ORDER BY h.schedule_uuid
FOR NO KEY UPDATE SKIP LOCKED`

// A task is in one firing. Found by its schedule, all of this one whose tasks are open would be read for each.
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

// An EndedScheduled is a task of a schedule that has ended.
type EndedScheduled struct {
	ScheduleUUID tasker.ID
	TaskUUID     tasker.ID
	EndedAt      time.Time
}

// TakeEndedScheduled locks free schedules of ended tasks, records the ends and returns both.
func (tx *Tx) TakeEndedScheduled(ctx context.Context, tasks, schedules []tasker.ID) (held []tasker.Schedule, ended []EndedScheduled, err error) {
	if held, err = collect[tasker.Schedule](ctx, tx, lockSchedulesOf, schedules); err != nil {
		return nil, nil, fmt.Errorf("lock schedules: %w", err)
	}
	ids := make([]tasker.ID, len(held))
	for i, s := range held {
		ids[i] = s.UUID
	}
	if ended, err = collect[EndedScheduled](ctx, tx, takeEndedScheduled, tasks, ids); err != nil {
		return nil, nil, fmt.Errorf("note tasks of schedules that have ended: %w", err)
	}
	return held, ended, nil
}

const firingsBetween = `
SELECT g.nominal_at, g.outcome, g.task_uuid
FROM tasker.schedule_firings g
WHERE g.schedule_uuid = $1 AND g.nominal_at BETWEEN $2 AND $3 AND g.kind <> 'manual' AND (g.task_uuid IS NOT NULL OR g.outcome = 'queued')`

// A FiredInstant is an instant that has its task, or waits for it.
type FiredInstant struct {
	NominalAt time.Time
	Outcome   tasker.FiringOutcome
	TaskUUID  *tasker.ID
}

// FiredBetween returns the instants of a schedule that have their tasks, and the one that waits.
func (tx *Tx) FiredBetween(ctx context.Context, schedule tasker.ID, from, to time.Time) ([]FiredInstant, error) {
	list, err := collect[FiredInstant](ctx, tx, firingsBetween, schedule, from, to)
	return list, wrap(err, "read the tasks of instants")
}
