package embedded

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
)

// CreateSchedule creates a schedule, whose tasks are created while some process executes Run. It
// returns Invalid if the spec is invalid or its template and context cannot create a task now. It
// returns a Conflict if the namespace has a schedule of this name.
func (e *Engine) CreateSchedule(ctx context.Context, s tasker.ScheduleSpec, actor, reason string) (tasker.Schedule, error) {
	return e.engine.CreateSchedule(ctx, s, engine.ScheduleChange{Actor: actor, Reason: reason})
}

// Schedules returns schedules that match a filter, ordered by namespace and name, and reports
// whether more follow. Limit has the same default and maximum as in InvestigationQueue.
func (e *Engine) Schedules(ctx context.Context, f tasker.ScheduleFilter) (list []tasker.ScheduleHealth, more bool, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.engine.Schedules(ctx, f)
}

// Schedule returns a schedule with up to next upcoming firing times, its last firings and its
// history. It returns NotFound if the schedule does not exist.
func (e *Engine) Schedule(ctx context.Context, id tasker.ID, next int) (tasker.ScheduleDetail, error) {
	return e.engine.Schedule(ctx, id, next)
}

// Firings returns the firings of a schedule, newest first, and reports whether more follow.
// Limit has the same default and maximum as in InvestigationQueue.
func (e *Engine) Firings(ctx context.Context, f tasker.FiringFilter) (list []tasker.Firing, more bool, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.engine.Firings(ctx, f)
}

// ScheduleUpdate replaces the spec of a schedule.
type ScheduleUpdate struct {
	Spec     tasker.ScheduleSpec
	Revision int // expected revision; 0 disables the check
	Actor    string
	Reason   string
}

// UpdateSchedule changes a schedule. It returns a Conflict if the revision differs.
func (e *Engine) UpdateSchedule(ctx context.Context, id tasker.ID, u ScheduleUpdate) (tasker.Schedule, error) {
	return e.engine.UpdateSchedule(ctx, id, u.Spec, u.Revision, engine.ScheduleChange{Actor: u.Actor, Reason: u.Reason})
}

// PauseSchedule pauses a schedule until a time, or until it is resumed if until is nil.
func (e *Engine) PauseSchedule(ctx context.Context, id tasker.ID, until *time.Time, actor, reason string) (tasker.Schedule, error) {
	return e.engine.PauseSchedule(ctx, id, until, engine.ScheduleChange{Actor: actor, Reason: reason})
}

// ResumeSchedule resumes a paused schedule.
func (e *Engine) ResumeSchedule(ctx context.Context, id tasker.ID, actor, reason string) (tasker.Schedule, error) {
	return e.engine.ResumeSchedule(ctx, id, engine.ScheduleChange{Actor: actor, Reason: reason})
}

// ScheduleTrigger describes a request to create a task of a schedule immediately.
type ScheduleTrigger struct {
	RequestKey string // repeated requests with the same key create one task; empty disables the check
	Actor      string
	Reason     string
}

// TriggerSchedule creates a task of a schedule immediately, in addition to its firing times.
// Repeating a request with its key returns the same firing; a different request with that key is
// a Conflict.
func (e *Engine) TriggerSchedule(ctx context.Context, id tasker.ID, t ScheduleTrigger) (tasker.Firing, error) {
	return e.engine.TriggerSchedule(ctx, id, engine.ScheduleChange{Actor: t.Actor, Reason: t.Reason, RequestKey: t.RequestKey})
}

// Backfill describes a request to create the tasks of past firing times.
type Backfill struct {
	From, To time.Time // inclusive
	DryRun   bool      // only report the effect
	Actor    string
	Reason   string
}

// BackfillSchedule creates the missing tasks of past firing times and returns the effect on each
// firing time.
func (e *Engine) BackfillSchedule(ctx context.Context, id tasker.ID, b Backfill) ([]tasker.BackfillInstant, error) {
	return e.engine.BackfillSchedule(ctx, id, engine.Backfill{From: b.From, To: b.To, DryRun: b.DryRun}, engine.ScheduleChange{Actor: b.Actor, Reason: b.Reason})
}

// DeleteSchedule deletes a schedule. Its tasks continue.
func (e *Engine) DeleteSchedule(ctx context.Context, id tasker.ID, actor, reason string) error {
	return e.engine.DeleteSchedule(ctx, id, engine.ScheduleChange{Actor: actor, Reason: reason})
}
