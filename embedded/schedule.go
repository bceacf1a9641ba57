package embedded

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
)

// CreateSchedule stores a schedule. It makes tasks while Run runs somewhere. The error is Invalid,
// also when no task could be made of its template and context now, or a Conflict when the
// namespace has a schedule of this name.
func (e *Engine) CreateSchedule(ctx context.Context, s tasker.ScheduleSpec, actor, reason string) (tasker.Schedule, error) {
	return e.engine.CreateSchedule(ctx, s, engine.ScheduleChange{Actor: actor, Reason: reason})
}

// Schedules returns the schedules of a filter, by namespace and name, and reports whether there
// are more. Limits are those of InvestigationQueue.
func (e *Engine) Schedules(ctx context.Context, f tasker.ScheduleFilter) (list []tasker.ScheduleHealth, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.engine.Schedules(ctx, f)
}

// Schedule returns a schedule with so many of its next instants, its last firings and its
// history. The error is NotFound when there is none.
func (e *Engine) Schedule(ctx context.Context, id tasker.ID, next int) (tasker.ScheduleDetail, error) {
	return e.engine.Schedule(ctx, id, next)
}

// Firings returns what became of the instants of a schedule, newest first, and reports whether
// there are more. Limits are those of InvestigationQueue.
func (e *Engine) Firings(ctx context.Context, f tasker.FiringFilter) (list []tasker.Firing, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.engine.Firings(ctx, f)
}

// A ScheduleUpdate gives a schedule another spec.
type ScheduleUpdate struct {
	Spec     tasker.ScheduleSpec
	Revision int // of the schedule as it was read; 0: any
	Actor    string
	Reason   string
}

// UpdateSchedule changes a schedule. The error is a Conflict when it has another revision.
func (e *Engine) UpdateSchedule(ctx context.Context, id tasker.ID, u ScheduleUpdate) (tasker.Schedule, error) {
	return e.engine.UpdateSchedule(ctx, id, u.Spec, u.Revision, engine.ScheduleChange{Actor: u.Actor, Reason: u.Reason})
}

// PauseSchedule has a schedule make no tasks by itself, until an instant, or until it is resumed
// if that is nil.
func (e *Engine) PauseSchedule(ctx context.Context, id tasker.ID, until *time.Time, actor, reason string) (tasker.Schedule, error) {
	return e.engine.PauseSchedule(ctx, id, until, engine.ScheduleChange{Actor: actor, Reason: reason})
}

// ResumeSchedule ends the pause of a schedule.
func (e *Engine) ResumeSchedule(ctx context.Context, id tasker.ID, actor, reason string) (tasker.Schedule, error) {
	return e.engine.ResumeSchedule(ctx, id, engine.ScheduleChange{Actor: actor, Reason: reason})
}

// A ScheduleTrigger asks for a task of a schedule at once.
type ScheduleTrigger struct {
	RequestKey string // the same request again makes no other task; empty: it is not recognised
	Actor      string
	Reason     string
}

// TriggerSchedule makes a task of a schedule at once, beside those of its instants. The same request
// again, under its key, is answered with the firing that it made; the error is a Conflict when another
// request had the key.
func (e *Engine) TriggerSchedule(ctx context.Context, id tasker.ID, t ScheduleTrigger) (tasker.Firing, error) {
	return e.engine.TriggerSchedule(ctx, id, engine.ScheduleChange{Actor: t.Actor, Reason: t.Reason, RequestKey: t.RequestKey})
}

// A Backfill asks for the tasks of instants in the past.
type Backfill struct {
	From, To time.Time // both included
	DryRun   bool      // only say what would be done
	Actor    string
	Reason   string
}

// BackfillSchedule makes the tasks of instants in the past that have none, and returns what it
// does for each instant.
func (e *Engine) BackfillSchedule(ctx context.Context, id tasker.ID, b Backfill) ([]tasker.BackfillInstant, error) {
	return e.engine.BackfillSchedule(ctx, id, engine.Backfill{From: b.From, To: b.To, DryRun: b.DryRun}, engine.ScheduleChange{Actor: b.Actor, Reason: b.Reason})
}

// DeleteSchedule removes a schedule. Its tasks go on.
func (e *Engine) DeleteSchedule(ctx context.Context, id tasker.ID, actor, reason string) error {
	return e.engine.DeleteSchedule(ctx, id, engine.ScheduleChange{Actor: actor, Reason: reason})
}
