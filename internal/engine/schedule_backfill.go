package engine

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

// Backfill is a request to create the tasks of past firing times.
type Backfill struct {
	From, To time.Time // inclusive
	DryRun   bool
}

// BackfillSchedule creates the missing tasks of past firing times. If it returns an error, it has
// created none. A dry run only returns what it would do.
func (e *Engine) BackfillSchedule(ctx context.Context, id tasker.ID, b Backfill, by ScheduleChange) (list []tasker.BackfillInstant, err error) {
	if err := by.check(); err != nil {
		return nil, err
	}
	if b.To.Before(b.From) {
		return nil, tasker.Errorf(tasker.Invalid, "invalid to: must not be before from")
	}
	var a firingPass
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		s, err := tx.LockSchedule(ctx, id)
		if err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		a = e.newFiringPass(tx, now)
		if list, err = a.fireBackfill(ctx, s, b, by); err != nil || b.DryRun || len(a.made) == 0 {
			return err
		}
		if err := a.store(ctx); err != nil {
			return err
		}
		return tx.RecordSchedule(ctx, id, postgres.ScheduleLine{
			Event: "backfilled", Actor: by.Actor, Reason: by.Reason, Data: map[string]any{"from": b.From.UTC(), "to": b.To.UTC(), "tasks": len(a.made)},
		})
	})
	if err != nil {
		return nil, err
	}
	if !b.DryRun {
		a.finish(ctx)
	}
	return list, nil
}

// fireBackfill plans the tasks and returns the outcome of each firing time.
func (a *firingPass) fireBackfill(ctx context.Context, s tasker.Schedule, b Backfill, by ScheduleChange) ([]tasker.BackfillInstant, error) {
	rule, err := compileRule(s)
	if err != nil {
		return nil, err
	}
	if rule.FollowsTasks() {
		return nil, tasker.Errorf(tasker.Invalid,
			"schedule %s fires after its tasks end: it has no past firing times", s.UUID)
	}
	instants, more := rule.Between(b.From, b.To, tasker.MaxBackfill)
	if more {
		return nil, tasker.Errorf(tasker.Invalid, "more than %d firing times between %s and %s: use a "+
			"shorter range", tasker.MaxBackfill, b.From.UTC().Format(time.RFC3339), b.To.UTC().Format(time.RFC3339))
	}
	fired, err := a.tx.FiredBetween(ctx, s.UUID, b.From, b.To)
	if err != nil {
		return nil, err
	}
	has := map[int64]postgres.FiredInstant{}
	for _, f := range fired {
		has[f.NominalAt.Unix()] = f
	}
	list, checks, steps := make([]tasker.BackfillInstant, len(instants)), templatefile.NewBudget(), 0
	for i, at := range instants {
		x := tasker.BackfillInstant{NominalAt: at}
		f, there := has[at.Unix()]
		switch except := rule.ExceptionAt(at); {
		case there && f.Outcome == tasker.FiringQueued:
			x.Reason = "waiting for the previous task"
		case there:
			x.TaskUUID, x.Reason = f.TaskUUID, "already has a task"
		case except != "":
			x.Reason = "except " + except
		case at.After(a.now) || firesItself(s, at):
			x.Reason = "will be fired by the schedule"
		default:
			t, err := a.newScheduledTask(ctx, s, at, checks)
			if err != nil {
				return nil, wrapPath(at.UTC().Format(time.RFC3339), err)
			}
			if steps += len(t.Steps); steps > MaxBulkSteps {
				return nil, tasker.Errorf(tasker.TooLarge, "the tasks up to %s have more than %d steps in total: "+
					"use a shorter range", at.UTC().Format(time.RFC3339), MaxBulkSteps)
			}
			x.Starts = true
			if !b.DryRun {
				x.TaskUUID = &t.UUID
			}
			a.made = append(a.made, t)
			a.firings = append(a.firings, tasker.Firing{
				ScheduleUUID: s.UUID, Kind: tasker.BackfillFiring, NominalAt: at, NominalUntil: at, Instants: 1, Outcome: tasker.FiringStarted,
				Reason: by.Reason, TaskUUID: &t.UUID, Actor: by.Actor,
			})
		}
		list[i] = x
	}
	return list, nil
}

// firesItself reports whether a schedule will fire at a time on its own: the time has not passed
// for the schedule and is not within a pause. The pause may be over without having been processed.
func firesItself(s tasker.Schedule, at time.Time) bool {
	if s.NextAt == nil || at.Before(*s.NextAt) {
		return false
	}
	return s.PausedAt == nil || s.PausedUntil != nil && !at.Before(*s.PausedUntil)
}
