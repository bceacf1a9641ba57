package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schedule"
	"tasker.example/tasker/internal/templatefile"
)

const (
	scheduleChunk = 25          // number of schedules fired in one transaction
	cancelFor     = time.Second // how long one pass cancels tasks of schedules
	firingReason  = 1000
	firingsFor    = 30 * 24 * time.Hour // retention of firings
	firingsPruned = 2000                // number of rows removed by one statement
)

// fireSchedules fires due schedules. It stores the outcomes and the new tasks in one transaction.
// Locked schedules are left to a later pass. A schedule with too many tasks to cancel remains due
// and fires again.
func (e *Engine) fireSchedules(ctx context.Context, rows []tasker.StepRef) error {
	begun := time.Now()
	for ids := uniqueTasks(rows); len(ids) > 0 && time.Since(begun) < cancelFor; {
		var a firingPass
		err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
			list, now, err := tx.LockDueSchedules(ctx, ids)
			a = e.newFiringPass(tx, now)
			if err != nil || len(list) == 0 {
				return err
			}
			return a.fire(ctx, list)
		})
		if err != nil {
			return err
		}
		a.finish(ctx)
		ids = a.cancelling
	}
	return nil
}

// newFiringPass collects what a transaction fires for locked schedules.
type firingPass struct {
	engine    *Engine
	tx        *postgres.Tx
	now       time.Time
	templates map[[3]string]*graph
	replaces  bool // the rules are about to be replaced

	made    []*postgres.CreatedTask
	firings []tasker.Firing
	extends []tasker.Firing
	moves   []postgres.ScheduleMove
	news    []tasker.Firing // started and refused firings, for Hooks.ScheduleFired

	cancelling []tasker.ID // schedules with further tasks to cancel
}

func (e *Engine) newFiringPass(tx *postgres.Tx, now time.Time) firingPass {
	return firingPass{engine: e, tx: tx, now: now, templates: map[[3]string]*graph{}}
}

// fire fires all due times of the schedules and stores the result.
func (a *firingPass) fire(ctx context.Context, list []tasker.Schedule) error {
	standings, err := a.tx.ScheduleProgress(ctx, mapSlice(list, func(s tasker.Schedule) tasker.ID { return s.UUID }))
	if err != nil {
		return err
	}
	for _, s := range list {
		if err := a.fireOne(ctx, s, standings[s.UUID]); err != nil {
			return err
		}
	}
	return a.store(ctx)
}

func (a *firingPass) fireOne(ctx context.Context, s tasker.Schedule, at postgres.ScheduleProgress) error {
	rule, err := compileRule(s)
	if err != nil {
		return err
	}
	p := schedule.Decide(rule, schedule.Situation{Schedule: s, Now: a.now, Open: at.Open, Queued: at.Queued, Replaced: a.replaces})
	if p.CancelOpen {
		all, err := a.cancel(ctx, s)
		if err != nil || !all {
			return err // the schedule remains due
		}
	}
	if p.StartQueued {
		if err := a.startQueued(ctx, s); err != nil {
			return err
		}
	}
	m := postgres.ScheduleMove{ScheduleUUID: s.UUID, NextAt: p.NextAt, FireAt: p.FireAt, AwaitsTask: s.AwaitsTask, Unpause: p.Unpause}
	for i, row := range p.Rows {
		f := tasker.Firing{
			ScheduleUUID: s.UUID, Kind: tasker.ClockFiring, NominalAt: row.From, NominalUntil: row.Until, Instants: row.Instants,
			Outcome: row.Outcome, Reason: row.Reason, Actor: tasker.SystemActor, LateMS: row.Late.Milliseconds(),
		}
		if i == 0 && at.LastAt != nil && schedule.Joins(f.Outcome) && at.LastOutcome == f.Outcome && at.LastReason == f.Reason {
			f.NominalAt = *at.LastAt
			a.extends = append(a.extends, f)
			continue
		}
		if f.Outcome == tasker.FiringStarted {
			if err := a.start(ctx, s, &f); err != nil {
				return err
			}
			a.planNextAfterStart(rule, f, &m)
		}
		a.firings = append(a.firings, f)
	}
	a.moves = append(a.moves, m)
	return nil
}

// planNextAfterStart lets a fixed delay wait for the new task or, if there is none, schedules its
// next firing.
func (a *firingPass) planNextAfterStart(rule *schedule.Rule, f tasker.Firing, m *postgres.ScheduleMove) {
	switch {
	case !rule.FollowsTasks():
	case f.TaskUUID != nil:
		m.AwaitsTask = f.TaskUUID
	default:
		m.NextAt, m.FireAt = nextAfterEnd(rule, f.ScheduleUUID, a.now)
	}
}

// nextAfterEnd returns the firing time of a fixed delay after a task has ended, without and with
// jitter, or nil for both.
func nextAfterEnd(rule *schedule.Rule, id tasker.ID, ended time.Time) (next, fire *time.Time) {
	at, ok := rule.AfterEnd(ended)
	if !ok {
		return nil, nil
	}
	first := rule.FireAt(id, at)
	return &at, &first
}

// start plans the task of a firing. If the task cannot be created, it records the reason.
func (a *firingPass) start(ctx context.Context, s tasker.Schedule, f *tasker.Firing) error {
	t, err := a.newScheduledTask(ctx, s, f.NominalAt, templatefile.NewTimerBudget())
	switch tasker.CodeOf(err) {
	case "":
		a.made = append(a.made, t)
		f.TaskUUID = &t.UUID
	case tasker.NotFound, tasker.Invalid, tasker.TooLarge, tasker.Conflict:
		f.Outcome, f.Reason = tasker.FiringRefused, payload.CleanText(err.Error(), firingReason)
	default:
		return err
	}
	a.news = append(a.news, *f)
	return nil
}

// newScheduledTask plans the task for a firing time.
func (a *firingPass) newScheduledTask(ctx context.Context, s tasker.Schedule, nominal time.Time, checks *templatefile.Budget) (*postgres.CreatedTask, error) {
	r := tasker.NewTask{
		Namespace: s.Namespace, Name: s.Template, Version: s.Version, Context: s.Context, Priority: s.Priority, Tags: s.Tags,
		Initiator: "schedule:" + s.Name, Reason: "schedule " + s.Name + " at " + nominal.UTC().Format(time.RFC3339),
	}
	if s.NominalKey != "" {
		var doc map[string]json.RawMessage
		if err := json.Unmarshal(s.Context, &doc); err != nil {
			return nil, tasker.Errorf(tasker.Invalid, "context: must be a JSON object")
		}
		doc[s.NominalKey] = json.RawMessage(`"` + nominal.UTC().Format(time.RFC3339) + `"`)
		whole, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("encode the context: %w", err)
		}
		r.Context = whole
	}
	c := a.engine.newCreation(a.tx, checks)
	c.templates, c.tasks = a.templates, slices.Clip(a.made)
	t, err := c.addUnrequested(ctx, r)
	if err == nil {
		t.Schedule = &s.UUID
	}
	return t, err
}

// startQueued creates the task of a queued firing.
func (a *firingPass) startQueued(ctx context.Context, s tasker.Schedule) error {
	at, err := a.tx.QueuedFiring(ctx, s.UUID)
	if err != nil || at == nil {
		return err
	}
	f := tasker.Firing{
		ScheduleUUID: s.UUID, Kind: tasker.ClockFiring, NominalAt: *at, NominalUntil: *at, Instants: 1, Outcome: tasker.FiringStarted, Actor: tasker.SystemActor,
		Reason: "waited for the previous task", LateMS: max(0, a.now.Sub(at.Add(schedule.Jitter(s.UUID, *at, s.Jitter))).Milliseconds()),
	}
	if err := a.start(ctx, s, &f); err != nil {
		return err
	}
	a.news = a.news[:len(a.news)-1] // late only because it was queued
	return a.tx.EndQueued(ctx, f)
}

// cancel cancels open tasks of a schedule, at most [tasker.MaxCancelBatch]. It returns false if
// some remain.
func (a *firingPass) cancel(ctx context.Context, s tasker.Schedule) (all bool, err error) {
	ids, err := a.tx.ScheduledToCancel(ctx, s.UUID, tasker.MaxCancelBatch+1)
	if err != nil {
		return false, err
	}
	more := len(ids) > tasker.MaxCancelBatch
	ids = ids[:min(len(ids), tasker.MaxCancelBatch)]
	locked, err := a.tx.LockFreeTasks(ctx, ids)
	if err != nil {
		return false, err
	}
	if more && len(locked) > 0 {
		a.cancelling = append(a.cancelling, s.UUID)
	}
	all = !more && len(locked) == len(ids)
	targets, err := a.tx.TaskTargets(ctx, locked)
	if err != nil {
		return false, err
	}
	open := targets[:0]
	for _, t := range targets {
		if t.State != tasker.TaskComplete && t.State != tasker.TaskCancelled {
			open = append(open, t)
		}
	}
	if len(open) == 0 {
		return all, nil
	}
	by := postgres.Operator{Actor: tasker.SystemActor, Reason: "the next firing of schedule " + s.Name + " is due, and its overlap policy is cancel"}
	return all, a.tx.CancelTasks(ctx, open, postgres.Cancellation{Operator: by})
}

func (a *firingPass) store(ctx context.Context) error {
	if len(a.made) > 0 {
		if err := a.tx.InsertTasks(ctx, a.made, postgres.Insertion{}); err != nil {
			return err
		}
	}
	if err := a.tx.InsertFirings(ctx, a.firings); err != nil {
		return err
	}
	if err := a.tx.ExtendFirings(ctx, a.extends); err != nil {
		return err
	}
	return a.tx.MoveSchedules(ctx, a.moves)
}

// finish announces the stored firings. Call it after the commit.
func (a *firingPass) finish(ctx context.Context) {
	if a.engine == nil {
		return
	}
	c := creation{tasks: a.made}
	a.engine.notify(c.listNamespaces())
	if slices.ContainsFunc(a.made, (*postgres.CreatedTask).HasDecisions) {
		a.engine.decideNow()
	}
	for _, f := range a.news {
		if f.Outcome == tasker.FiringRefused {
			a.engine.log.WarnContext(ctx, "could not create the task of a "+
				"schedule", "schedule", f.ScheduleUUID, "instant", f.NominalAt.UTC(), "why", f.Reason)
		}
	}
	if len(a.news) > 0 {
		a.engine.opts.Hooks.ScheduleFired(a.news)
	}
}

// notifySchedules processes the ends of tasks that schedules created: it continues fixed delays and
// starts queued firings.
func (e *Engine) notifySchedules(ctx context.Context, rows []tasker.StepRef) error {
	tasks, schedules := uniqueTasks(rows), mapSlice(rows, func(r tasker.StepRef) tasker.ID { return r.StepUUID })
	return e.db.InTx(ctx, func(tx *postgres.Tx) error {
		held, ended, err := tx.TakeEndedScheduled(ctx, tasks, schedules)
		if err != nil || len(held) == 0 {
			return err
		}
		standings, err := tx.ScheduleProgress(ctx, mapSlice(held, func(s tasker.Schedule) tasker.ID { return s.UUID }))
		if err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		var moves []postgres.ScheduleMove
		for _, s := range held {
			m, moved, err := applyEnds(s, ended, standings[s.UUID], now)
			if err != nil {
				return err
			}
			if moved {
				moves = append(moves, m)
			}
		}
		return tx.MoveSchedules(ctx, moves)
	})
}

// applyEnds returns the next firing times of a schedule after some of its tasks have ended. The
// result moved is false if nothing changes.
func applyEnds(s tasker.Schedule, ended []postgres.EndedScheduled, at postgres.ScheduleProgress, now time.Time) (m postgres.ScheduleMove, moved bool, err error) {
	m = postgres.ScheduleMove{ScheduleUUID: s.UUID, NextAt: s.NextAt, FireAt: s.FireAt, AwaitsTask: s.AwaitsTask}
	if s.DeletedAt != nil {
		return m, false, nil
	}
	for _, x := range ended {
		if x.ScheduleUUID != s.UUID || s.AwaitsTask == nil || x.TaskUUID != *s.AwaitsTask {
			continue
		}
		rule, err := compileRule(s)
		if err != nil {
			return m, false, err
		}
		m.AwaitsTask, moved = nil, true
		m.NextAt, m.FireAt = nextAfterEnd(rule, s.UUID, at.NotBefore(x.EndedAt))
	}
	if at.Queued {
		m.FireAt, moved = &now, true
	}
	if s.PausedAt != nil {
		m.FireAt = s.PausedUntil
	}
	return m, moved, nil
}

// compileRule compiles the rule of a stored schedule.
func compileRule(s tasker.Schedule) (*schedule.Rule, error) {
	rule, faults := schedule.Compile(s.ScheduleRule, s.Anchor)
	if len(faults) > 0 { // for example, only other servers know the zone
		return nil, fmt.Errorf("cannot parse the rule of schedule %s/%s: %s", s.Namespace, s.Name, faults[0])
	}
	return rule, nil
}

func (e *Engine) pruneFirings(ctx context.Context) (time.Duration, error) {
	more, err := e.db.PruneFirings(ctx, firingsFor, firingsPruned)
	if more && err == nil {
		return loop.AtOnce, nil
	}
	return 0, err
}
