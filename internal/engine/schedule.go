package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schedule"
	"tasker.example/tasker/internal/templatefile"
)

// ScheduleChange describes who changes a schedule, and why.
type ScheduleChange struct {
	Actor      string
	Reason     string
	RequestKey string // optional idempotency key of a trigger
}

func (c ScheduleChange) check() error {
	return cmp.Or(checkTextError("by", c.Actor, 255, true), checkTextError("reason", c.Reason, 2000, false))
}

// checkTextError validates a short string. It returns Invalid, or nil if the string is valid.
func checkTextError(path, text string, most int, needed bool) error {
	if wrong := checkText(text, most, needed); wrong != "" {
		return tasker.Errorf(tasker.Invalid, "invalid %s: %s", path, wrong).WithDetails([]tasker.Fault{{Path: path, Message: wrong}})
	}
	return nil
}

// CreateSchedule stores a schedule. It returns Invalid if the schedule could not create a task now,
// or a Conflict if its name is in use.
func (e *Engine) CreateSchedule(ctx context.Context, spec tasker.ScheduleSpec, by ScheduleChange) (s tasker.Schedule, err error) {
	if err := by.check(); err != nil {
		return s, err
	}
	if err := completeSchedule(&spec); err != nil {
		return s, err
	}
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		s = tasker.Schedule{UUID: tasker.NewID(), ScheduleSpec: spec, CreatedAt: now, UpdatedAt: now, CreatedBy: by.Actor, Revision: 1}
		if err := e.beginSchedule(ctx, tx, &s, now, now); err != nil {
			return err
		}
		if err := tx.InsertSchedule(ctx, s); err != nil {
			return err
		}
		return tx.RecordSchedule(ctx, s.UUID, postgres.ScheduleLine{Event: "created", Actor: by.Actor, Reason: by.Reason, Data: collectRuleFacts(s)})
	})
	return s, err
}

// beginSchedule compiles the rule of a schedule and sets its first firing time after the given
// time. It also plans a task, in order to validate the template and the context.
func (e *Engine) beginSchedule(ctx context.Context, tx *postgres.Tx, s *tasker.Schedule, now, after time.Time) error {
	s.Anchor = now
	if s.StartAt != nil {
		s.Anchor = *s.StartAt
	}
	rule, faults := schedule.Compile(s.ScheduleRule, s.Anchor)
	if len(faults) > 0 {
		return newInvalidScheduleError(faults)
	}
	s.NextAt, s.FireAt = nil, nil
	if s.AwaitsTask == nil {
		if next, ok := rule.First(after); ok {
			fire := rule.FireAt(s.UUID, next)
			s.NextAt, s.FireAt = &next, &fire
		}
		if s.NextAt == nil {
			return newInvalidScheduleError([]tasker.Fault{{Path: "end_at", Message: "the schedule has no future firing times"}})
		}
	}
	if s.PausedAt != nil {
		s.FireAt = s.PausedUntil
	}
	a := e.newFiringPass(tx, now)
	nominal := now
	if s.NextAt != nil {
		nominal = *s.NextAt
	}
	if _, err := a.newScheduledTask(ctx, *s, nominal, templatefile.NewBudget()); err != nil {
		if _, held := errors.AsType[*keyConflict](err); held { // says nothing about the schedule
			return nil
		}
		code := tasker.CodeOf(err)
		if code == tasker.NotFound || code == tasker.Conflict {
			return tasker.Errorf(tasker.Invalid, "template: %s", err)
		}
		return err
	}
	return nil
}

func newInvalidScheduleError(faults []tasker.Fault) error {
	return tasker.Errorf(tasker.Invalid, "invalid schedule: %s", faults[0]).WithDetails(faults)
}

// completeSchedule validates a spec except for its rule and sets defaults.
func completeSchedule(s *tasker.ScheduleSpec) error {
	if len(s.Context) == 0 {
		s.Context = json.RawMessage("{}")
	}
	var wrong faults
	for path, text := range map[string]string{"namespace": s.Namespace, "name": s.Name, "template": s.Template} {
		wrong.checkText(path, text, 128, true)
	}
	wrong.checkText("nominal_key", s.NominalKey, 128, false)
	if s.AfterEnd != 0 && (s.Overlap != "" || s.CatchUp != "") {
		wrong.add("overlap", "overlap and catch_up cannot be used with after_end_seconds")
	}
	s.Overlap, s.CatchUp = cmp.Or(s.Overlap, tasker.OverlapSkip), cmp.Or(s.CatchUp, tasker.CatchUpLast)
	if !slices.Contains(tasker.Overlaps(), s.Overlap) {
		wrong.add("overlap", "must be skip, queue, cancel or allow, not %q", s.Overlap)
	}
	if !slices.Contains(tasker.CatchUps(), s.CatchUp) {
		wrong.add("catch_up", "must be none, last or all, not %q", s.CatchUp)
	}
	if s.CatchUp == tasker.CatchUpAll && (s.CatchUpMax < 1 || s.CatchUpMax > tasker.MaxCatchUp) {
		wrong.add("catch_up_max", "must be from 1 to %d if catch_up is all", tasker.MaxCatchUp)
	}
	if s.CatchUp != tasker.CatchUpAll && s.CatchUpMax != 0 {
		wrong.add("catch_up_max", "is only allowed with catch_up: all")
	}
	s.StartWithin = cmp.Or(s.StartWithin, tasker.DefaultStartWithin)
	if s.StartWithin < time.Second || s.StartWithin > tasker.MaxStartWithin || s.StartWithin%time.Second != 0 {
		wrong.add("start_within_seconds", "must be from 1 to %d", int64(tasker.MaxStartWithin/time.Second))
	}
	return wrong.toError("invalid schedule")
}

// collectRuleFacts returns the facts that the history of a schedule records about its rule.
func collectRuleFacts(s tasker.Schedule) map[string]any {
	facts := map[string]any{"template": s.Template, "revision": s.Revision, "overlap": s.Overlap, "catch_up": s.CatchUp}
	for name, text := range map[string]string{"cron": s.Cron, "zone": s.Zone, "version": s.Version, "except": strings.Join(s.Except, ", ")} {
		if text != "" {
			facts[name] = text
		}
	}
	for name, d := range map[string]time.Duration{"every_seconds": s.Every, "after_end_seconds": s.AfterEnd, "jitter_seconds": s.Jitter} {
		if d != 0 {
			facts[name] = int64(d / time.Second)
		}
	}
	return facts
}

// changeRounds limits the number of transactions that fire what is due before a change.
const changeRounds = 5

// changeSchedule fires what is due by the old rule and then applies f. It returns a Conflict if too
// much is due.
func (e *Engine) changeSchedule(ctx context.Context, id tasker.ID, by ScheduleChange, replaces bool, f func(tx *postgres.Tx, s *tasker.Schedule, now time.Time) (postgres.ScheduleLine, error)) (s tasker.Schedule, err error) {
	if err := by.check(); err != nil {
		return s, err
	}
	more := true
	for range changeRounds {
		var a firingPass
		err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
			s, a, more, err = e.lockFired(ctx, tx, id, replaces)
			if err != nil || more {
				return err // commit what has been fired
			}
			line, err := f(tx, &s, a.now)
			if err != nil {
				return err
			}
			if err := tx.UpdateSchedule(ctx, s); err != nil {
				return err
			}
			line.Actor, line.Reason = by.Actor, by.Reason
			return tx.RecordSchedule(ctx, id, line)
		})
		if err == nil {
			a.finish(ctx)
		}
		if err != nil || !more {
			break
		}
	}
	if err == nil && more {
		err = tasker.Errorf(tasker.Conflict, "schedule %s is still firing many due instants: try again in a moment", id)
	}
	access.RedactSchedule(ctx, &s)
	return s, err
}

// lockFired locks a schedule and fires what is due. The result more means that another transaction
// is required.
func (e *Engine) lockFired(ctx context.Context, tx *postgres.Tx, id tasker.ID, replaces bool) (s tasker.Schedule, a firingPass, more bool, err error) {
	if s, err = tx.LockSchedule(ctx, id); err != nil {
		return s, a, false, err
	}
	now, err := tx.Now(ctx)
	if a = e.newFiringPass(tx, now); err != nil || !isDue(s, now, replaces) {
		return s, a, false, err
	}
	a.replaces = replaces
	if err = a.fire(ctx, []tasker.Schedule{s}); err != nil {
		return s, a, false, err
	}
	s, err = tx.LockSchedule(ctx, id)
	return s, a, isDue(s, now, replaces), err
}

// isDue reports whether a schedule must fire before it is changed. If its rule is replaced, all
// firing times up to now must fire. A fixed delay that is paused fires only when the pause ends.
func isDue(s tasker.Schedule, now time.Time, replaces bool) bool {
	if s.FireAt != nil && !s.FireAt.After(now) {
		return true
	}
	return replaces && s.NextAt != nil && !s.NextAt.After(now) && (s.PausedAt == nil || s.AfterEnd == 0)
}

// UpdateSchedule replaces a spec, but keeps its namespace. If revision is not 0, it returns a
// Conflict unless the schedule has this revision.
func (e *Engine) UpdateSchedule(ctx context.Context, id tasker.ID, spec tasker.ScheduleSpec, revision int, by ScheduleChange) (tasker.Schedule, error) {
	return e.changeSchedule(ctx, id, by, true, func(tx *postgres.Tx, s *tasker.Schedule, now time.Time) (line postgres.ScheduleLine, err error) {
		if revision != 0 && revision != s.Revision {
			return line, tasker.Errorf(tasker.Conflict,
				"schedule %s has revision %d, not %d: it was changed since you read it", id, s.Revision, revision)
		}
		spec := spec // f may be called again and then needs the original spec
		spec.Namespace = s.Namespace
		if err := completeSchedule(&spec); err != nil {
			return line, err
		}
		if spec.AfterEnd == 0 {
			s.AwaitsTask = nil
		}
		s.ScheduleSpec = spec
		s.Revision++
		standings, err := tx.ScheduleProgress(ctx, []tasker.ID{id})
		if err != nil {
			return line, err
		}
		line = postgres.ScheduleLine{Event: "updated", Data: collectRuleFacts(*s)}
		return line, e.beginSchedule(ctx, tx, s, now, standings[id].NotBefore(now))
	})
}

// PauseSchedule stops a schedule from creating tasks automatically until the given time, or until
// it is resumed. If the schedule is already paused, only the end of the pause changes.
func (e *Engine) PauseSchedule(ctx context.Context, id tasker.ID, until *time.Time, by ScheduleChange) (tasker.Schedule, error) {
	return e.changeSchedule(ctx, id, by, false, func(_ *postgres.Tx, s *tasker.Schedule, now time.Time) (line postgres.ScheduleLine, err error) {
		if until != nil && !until.After(now) {
			return line, tasker.Errorf(tasker.Invalid, "invalid until %s: must be in the future", until.UTC().Format(time.RFC3339))
		}
		if s.PausedAt == nil {
			s.PausedAt = &now
		}
		s.PausedUntil, s.FireAt, s.PausedBy, s.PausedReason = until, until, by.Actor, by.Reason
		line = postgres.ScheduleLine{Event: "paused", Data: map[string]any{}}
		if until != nil {
			line.Data["until"] = until.UTC()
		}
		return line, nil
	})
}

// ResumeSchedule ends the pause of a schedule. Firing times within the pause create no tasks.
func (e *Engine) ResumeSchedule(ctx context.Context, id tasker.ID, by ScheduleChange) (tasker.Schedule, error) {
	s, err := e.changeSchedule(ctx, id, by, false, func(_ *postgres.Tx, s *tasker.Schedule, now time.Time) (line postgres.ScheduleLine, err error) {
		if s.PausedAt == nil {
			return line, tasker.Errorf(tasker.Conflict, "schedule %s is not paused", id)
		}
		s.PausedUntil, s.FireAt = &now, &now // the next firing ends the pause
		return postgres.ScheduleLine{Event: "resumed"}, nil
	})
	if err != nil {
		return s, err
	}
	if err := e.fireSchedules(ctx, []tasker.StepRef{{TaskUUID: id}}); err != nil {
		return s, err
	}
	return e.db.Schedule(ctx, id)
}

// DeleteSchedule removes a schedule. Its tasks continue, and its firings can still be read for a
// while.
func (e *Engine) DeleteSchedule(ctx context.Context, id tasker.ID, by ScheduleChange) error {
	if err := by.check(); err != nil {
		return err
	}
	return e.db.InTx(ctx, func(tx *postgres.Tx) error {
		s, err := tx.LockSchedule(ctx, id)
		if err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		waiting, err := tx.QueuedFiring(ctx, id)
		if err != nil {
			return err
		}
		if waiting != nil {
			f := tasker.Firing{ScheduleUUID: id, Outcome: tasker.FiringSkipped, Reason: "the schedule was deleted"}
			if err := tx.EndQueued(ctx, f); err != nil {
				return err
			}
		}
		s.DeletedAt, s.FireAt, s.AwaitsTask = &now, nil, nil
		if err := tx.UpdateSchedule(ctx, s); err != nil {
			return err
		}
		return tx.RecordSchedule(ctx, id, postgres.ScheduleLine{Event: "deleted", Actor: by.Actor, Reason: by.Reason})
	})
}

// TriggerSchedule creates a task of a schedule now, even if the schedule is paused. A repeated
// request returns the firing that the first one created.
func (e *Engine) TriggerSchedule(ctx context.Context, id tasker.ID, by ScheduleChange) (f tasker.Firing, err error) {
	if err := by.check(); err != nil {
		return f, err
	}
	var a firingPass
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		s, err := tx.LockSchedule(ctx, id)
		if err != nil {
			return err
		}
		request := postgres.OperatorRequest{Key: by.RequestKey, Action: "schedule.trigger", Payload: []any{id, by.Actor, by.Reason}}
		repeated, err := tx.CheckIdempotency(ctx, request)
		if err != nil || repeated {
			if repeated {
				a = firingPass{}
				f, err = tx.FindTriggered(ctx, id, request.Key)
			}
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		a = e.newFiringPass(tx, now)
		t, err := a.newScheduledTask(ctx, s, now, templatefile.NewBudget())
		if err != nil {
			return err
		}
		f = tasker.Firing{
			ScheduleUUID: id, Kind: tasker.ManualFiring, NominalAt: now, NominalUntil: now, Instants: 1, Outcome: tasker.FiringStarted, Reason: by.Reason,
			TaskUUID: &t.UUID, Actor: by.Actor, DecidedAt: now, TaskState: t.State,
		}
		a.made, a.firings = append(a.made, t), append(a.firings, f)
		if err := a.store(ctx); err != nil {
			return err
		}
		return tx.RecordSchedule(ctx, id, postgres.ScheduleLine{
			Event: "triggered", Actor: by.Actor, Reason: by.Reason, Data: map[string]any{"task_uuid": t.UUID},
		})
	})
	if err == nil {
		a.finish(ctx)
	}
	return f, err
}

// Schedules returns a page of schedules, ordered by name, and reports whether there are more.
func (e *Engine) Schedules(ctx context.Context, f tasker.ScheduleFilter) ([]tasker.ScheduleHealth, bool, error) {
	return e.db.Schedules(ctx, f)
}

// Schedule returns a schedule with its next firing times, latest firings and history, or NotFound.
func (e *Engine) Schedule(ctx context.Context, id tasker.ID, next int) (d tasker.ScheduleDetail, err error) {
	if d.Schedule, err = e.db.Schedule(ctx, id); err != nil {
		return d, err
	}
	d.Next = []time.Time{}
	if at := d.NextAt; at != nil && d.DeletedAt == nil {
		rule, err := compileRule(d.Schedule)
		if err != nil {
			return d, err
		}
		d.Next = listUpcoming(rule, d.Schedule, *at, min(next, tasker.MaxScheduleNext))
	}
	if d.Firings, _, err = e.Firings(ctx, tasker.FiringFilter{Schedule: id, Limit: tasker.MaxScheduleFirings}); err != nil {
		return d, err
	}
	d.History, err = e.db.ScheduleHistory(ctx, id, tasker.MaxScheduleHistory)
	return d, err
}

// listUpcoming lists the firing times of a schedule from the given time, except those within a
// pause.
func listUpcoming(rule *schedule.Rule, s tasker.Schedule, from time.Time, most int) []time.Time {
	ok := s.PausedAt == nil || s.PausedUntil != nil
	if until := s.PausedUntil; until != nil && until.After(from) && !rule.FollowsTasks() {
		from, ok = rule.Next(until.Add(-time.Nanosecond))
	}
	if !ok {
		return []time.Time{}
	}
	return rule.Upcoming(from, most)
}

// Firings returns a page of firings, newest first, or NotFound.
func (e *Engine) Firings(ctx context.Context, f tasker.FiringFilter) ([]tasker.Firing, bool, error) {
	s, err := e.db.Schedule(ctx, f.Schedule)
	if err != nil {
		return nil, false, err
	}
	list, more, err := e.db.Firings(ctx, f)
	access.RedactFirings(ctx, s.Namespace, list)
	return list, more, err
}
