package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// SchedulesToFire returns the schedules that have been due for longest.
func (db *DB) SchedulesToFire(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.findDueTasks(ctx, statement("schedulesToFire"), limit)
}

// LockDueSchedules locks those of the schedules that are due and returns them with the time of the
// database. It skips locked ones.
func (tx *Tx) LockDueSchedules(ctx context.Context, ids []tasker.ID) (list []tasker.Schedule, now time.Time, err error) {
	if list, err = collect[tasker.Schedule](ctx, tx, statement("lockDueSchedules"), ids); err != nil {
		return nil, now, fmt.Errorf("lock schedules: %w", err)
	}
	now, err = tx.Now(ctx)
	return list, now, err
}

// ScheduleProgress is the state from which the next firings of a schedule are determined.
type ScheduleProgress struct {
	ScheduleUUID tasker.ID
	Queued       bool       // a firing is queued until open tasks end
	LastAt       *time.Time // time of the last firing by the clock
	LastUntil    *time.Time
	LastOutcome  tasker.FiringOutcome
	LastReason   string
	Open         *tasker.ID // oldest open task of the schedule, or nil
}

// NotBefore returns at, or the time of the last firing by the clock if that is later. This matters
// if the clock was set back.
func (s ScheduleProgress) NotBefore(at time.Time) time.Time {
	if s.LastUntil != nil && s.LastUntil.After(at) {
		return *s.LastUntil
	}
	return at
}

// ScheduleProgress returns the progress of locked schedules, by id.
func (tx *Tx) ScheduleProgress(ctx context.Context, ids []tasker.ID) (map[tasker.ID]ScheduleProgress, error) {
	list, err := collect[ScheduleProgress](ctx, tx, statement("scheduleProgress"), ids)
	return groupByKey(list, func(p ScheduleProgress) tasker.ID { return p.ScheduleUUID }), wrapError(err, "read the progress of schedules")
}

// ScheduledToCancel returns the open tasks of a schedule that are not being compensated, oldest
// first.
func (tx *Tx) ScheduledToCancel(ctx context.Context, schedule tasker.ID, limit int) ([]tasker.ID, error) {
	list, err := collectColumn[tasker.ID](ctx, tx, statement("scheduledToCancel"), schedule, limit)
	return list, wrapError(err, "find the tasks of schedule %s", schedule)
}

var firingFields = columns[tasker.Firing]{
	newColumn("schedule_uuid uuid", func(f *tasker.Firing) tasker.ID { return f.ScheduleUUID }),
	newColumn("kind text", func(f *tasker.Firing) string { return string(f.Kind) }),
	newColumn("nominal_at timestamptz", func(f *tasker.Firing) time.Time { return f.NominalAt }),
	newColumn("nominal_until timestamptz", func(f *tasker.Firing) time.Time { return f.NominalUntil }),
	newColumn("instants bigint", func(f *tasker.Firing) int64 { return f.Instants }),
	newColumn("outcome text", func(f *tasker.Firing) string { return string(f.Outcome) }),
	newColumn("reason text", func(f *tasker.Firing) string { return f.Reason }),
	newColumn("task_uuid uuid", func(f *tasker.Firing) *tasker.ID { return f.TaskUUID }),
	newColumn("actor text", func(f *tasker.Firing) string { return f.Actor }),
	newColumn("late_ms bigint", func(f *tasker.Firing) int64 { return f.LateMS }),
}

// InsertFirings stores firings. The lock on the schedule ensures that each firing time is stored
// once.
func (tx *Tx) InsertFirings(ctx context.Context, list []tasker.Firing) error {
	if len(list) == 0 {
		return nil
	}
	return exec(ctx, tx, "store firings", statement("insertFirings"), firingFields.toArrays(list)...)
}

var extendedFields = firingFields.pick("schedule_uuid", "nominal_at", "nominal_until", "instants", "late_ms")

// ExtendFirings adds later firing times to firings by the clock. NominalAt identifies the firing.
func (tx *Tx) ExtendFirings(ctx context.Context, list []tasker.Firing) error {
	if len(list) == 0 {
		return nil
	}
	tag, err := tx.Exec(ctx, statement("extendFirings"), extendedFields.toArrays(list)...)
	if err != nil {
		return fmt.Errorf("extend firings: %w", err)
	}
	if n := tag.RowsAffected(); n != int64(len(list)) {
		return fmt.Errorf("extended %d of %d firings of locked schedules", n, len(list))
	}
	return nil
}

// QueuedFiring returns the nominal time of a schedule's queued firing, or nil if there is none.
func (tx *Tx) QueuedFiring(ctx context.Context, schedule tasker.ID) (*time.Time, error) {
	return queryFirst[time.Time](ctx, tx, statement("queuedFiring"), schedule)
}

// EndQueued stores the outcome of a schedule's queued firing. The schedule must be locked.
func (tx *Tx) EndQueued(ctx context.Context, f tasker.Firing) error {
	tag, err := tx.Exec(ctx, statement("endQueued"), f.ScheduleUUID, f.Outcome, f.Reason, toNullableUUID(f.TaskUUID),
		f.LateMS)
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
	newColumn("schedule_uuid uuid", func(m *ScheduleMove) tasker.ID { return m.ScheduleUUID }),
	newColumn("next_at timestamptz", func(m *ScheduleMove) *time.Time { return m.NextAt }),
	newColumn("fire_at timestamptz", func(m *ScheduleMove) *time.Time { return m.FireAt }),
	newColumn("awaits_task uuid", func(m *ScheduleMove) *tasker.ID { return m.AwaitsTask }),
	newColumn("unpause bool", func(m *ScheduleMove) bool { return m.Unpause }),
}

// MoveSchedules updates locked schedules.
func (tx *Tx) MoveSchedules(ctx context.Context, list []ScheduleMove) error {
	if len(list) == 0 {
		return nil
	}
	return exec(ctx, tx, "move schedules", statement("moveSchedules"), moveFields.toArrays(list)...)
}

// ScheduledTasksEnded returns the ended tasks of schedules that must be processed. Each step id is
// that of the schedule.
func (db *DB) ScheduledTasksEnded(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("scheduledTasksEnded"), limit)
}

// EndedScheduled is an ended task of a schedule.
type EndedScheduled struct {
	ScheduleUUID tasker.ID
	TaskUUID     tasker.ID
	EndedAt      time.Time
}

// TakeEndedScheduled locks the schedules of ended tasks and records that the tasks have ended. It
// returns the schedules and the tasks. It skips locked schedules.
func (tx *Tx) TakeEndedScheduled(ctx context.Context, tasks, schedules []tasker.ID) (held []tasker.Schedule, ended []EndedScheduled, err error) {
	if held, err = collect[tasker.Schedule](ctx, tx, statement("lockSchedulesOf"), schedules); err != nil {
		return nil, nil, fmt.Errorf("lock schedules: %w", err)
	}
	ids := mapSlice(held, func(s tasker.Schedule) tasker.ID { return s.UUID })
	if ended, err = collect[EndedScheduled](ctx, tx, statement("takeEndedScheduled"), tasks, ids); err != nil {
		return nil, nil, fmt.Errorf("record ended tasks of schedules: %w", err)
	}
	return held, ended, nil
}

// FiredInstant is a firing time for which a task was created or is queued.
type FiredInstant struct {
	NominalAt time.Time
	Outcome   tasker.FiringOutcome
	TaskUUID  *tasker.ID
}

// FiredBetween returns the firing times in a range for which a task was created or is queued.
func (tx *Tx) FiredBetween(ctx context.Context, schedule tasker.ID, from, to time.Time) ([]FiredInstant, error) {
	list, err := collect[FiredInstant](ctx, tx, statement("firingsBetween"), schedule, from, to)
	return list, wrapError(err, "read firings")
}
