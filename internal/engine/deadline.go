package engine

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/postgres"
)

// deadlineChunk limits the number of due times that one transaction processes.
const deadlineChunk = 50

// checkDue validates the due time of a request. Whether it is in the future is checked later, with
// the clock of the database.
func (f *faults) checkDue(r tasker.NewTask) {
	if !r.DueAt.IsZero() {
		f.checkYear("due_at", r.DueAt)
	}
	f.checkDelay("due_after_seconds", r.DueAfter, tasker.MaxDue)
	if !r.DueAt.IsZero() && r.DueAfter != 0 {
		f.add("due_after_seconds", "conflicts with due_at: set only one of them")
	}
	if !r.DueAt.IsZero() && !r.StartAt.IsZero() && !r.DueAt.After(r.StartAt) {
		f.add("due_at", "must be after start_at")
	}
}

// checkYear rejects times that are obviously mistakes.
func (f *faults) checkYear(path string, at time.Time) {
	if at.Year() < 2000 || at.Year() > 2200 {
		f.add(path, "must be between the years 2000 and 2200")
	}
}

func (f *faults) checkDelay(path string, d, limit time.Duration) {
	if d < 0 || d > limit {
		f.add(path, "must be from 0 to %d", int(limit.Seconds()))
	}
}

// newDeadline returns the due time of a task from its request or else from its template, or nil if
// neither sets one. If the template has an expression, it is evaluated later.
func newDeadline(r tasker.NewTask, t tasker.Template) *postgres.NewDeadline {
	d := &postgres.NewDeadline{
		At: r.DueAt, After: r.DueAfter, Warn: t.Due.WarnBeforeSeconds, Investigate: t.Due.OpensInvestigation(), Orders: t.Order == tasker.OrderDue, Source: tasker.DueByRequest,
	}
	if r.DueAt.IsZero() && r.DueAfter == 0 {
		if !t.Due.HasDueTime() {
			return nil
		}
		d.After, d.Source = time.Duration(t.Due.AfterSeconds)*time.Second, tasker.DueByTemplate
	}
	return d
}

// evaluateDue evaluates the expression of the template for the due time of a task.
func (c *creation) evaluateDue(ctx context.Context, p *expression.Program, t *postgres.CreatedTask) (time.Time, error) {
	out, err := c.evaluate(ctx, p, t)
	if err != nil {
		return time.Time{}, err
	}
	at, is := out.Value.(time.Time)
	wrong := ""
	switch {
	case out.Err != nil:
		wrong = out.Err.Error()
	case !is:
		wrong = "must be a timestamp"
	case at.Year() < 2000 || time.Until(at) > tasker.MaxDue:
		wrong = "must be after the year 2000 and at most 5 years ahead"
	}
	if wrong != "" {
		return time.Time{}, tasker.Errorf(tasker.Invalid, "context: due.at of the template: %s", wrong)
	}
	return at, nil
}

// newStepDeadline returns the due time of a step that is about to run, or nil if it has none. The
// error may be an [expression.Failure].
func (d *decision) newStepDeadline(ctx context.Context, s postgres.UndecidedStep, g *graph,
	i int) (*postgres.NewDeadline, error) {
	rules := g.stored.Steps[i].Due
	if !rules.HasDueTime() {
		return nil, nil // documented
	}
	due := &postgres.NewDeadline{
		StepRef: tasker.StepRef{TaskUUID: s.TaskUUID, StepUUID: s.StepUUID}, After: time.Duration(rules.AfterSeconds) * time.Second,
		Warn: rules.WarnBeforeSeconds, Investigate: rules.OpensInvestigation(), Orders: g.stored.Order == tasker.OrderDue, Source: tasker.DueByTemplate,
	}
	p := g.exprs[i][expression.DueAt]
	if p == nil {
		return due, nil
	}
	values, err := d.loadValues(ctx, s, p)
	if err != nil {
		return nil, err
	}
	due.At, err = evaluateOnce(d.known, newEvaluationKey(s, expression.DueAt, p), values, func(ctx context.Context) (time.Time, error) { return p.Time(ctx, values) })
	if err == nil && (due.At.Year() < 2000 || due.At.Sub(s.AsOf) > tasker.MaxDue) {
		err = &expression.Failure{Text: p.Text(), Reason: "the time must be after the year 2000 and at most 5 " +
			"years ahead"}
	}
	return due, err
}

// watchDeadlines notifies people once when a task or step is due soon and once when it is overdue.
// If no server was running in time, only the second notification is sent, and it contains the
// delay.
func (e *Engine) watchDeadlines(ctx context.Context, rows []tasker.StepRef) error {
	return e.db.InTx(ctx, func(tx *postgres.Tx) error {
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		due, err := tx.WatchedDeadlines(ctx, selectSteps(free, rows))
		if err != nil || len(due) == 0 {
			return err
		}
		return tx.NotifyDeadlines(ctx, due, func(d postgres.WatchedDeadline) tasker.NotificationData {
			return notice.NewDeadlineData(notice.Deadline{
				TaskUUID: d.TaskUUID, Namespace: d.Namespace, Template: d.TaskName, Step: d.StepName, State: d.State, DueAt: d.DueAt, CreatedAt: d.CreatedAt, Now: d.AsOf,
			})
		})
	})
}

// ChangeDue changes or removes the due time of an open task, or of a step that has not ended. It
// returns the new due time. It returns Invalid if the time is in the past, and a Conflict if the
// task or step has ended.
func (e *Engine) ChangeDue(ctx context.Context, task tasker.ID, c tasker.DueUpdate) (due *tasker.Deadline, err error) {
	if err := checkDueChange(c); err != nil {
		return nil, err
	}
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		change, err := e.planDeadlineChange(ctx, tx, task, c)
		if err != nil {
			return err
		}
		return tx.ChangeDeadline(ctx, change)
	})
	if err != nil || c.DueAt == nil {
		return nil, err
	}
	if c.StepUUID != (tasker.ID{}) {
		s, err := e.db.Step(ctx, task, c.StepUUID)
		return s.Due, err
	}
	t, err := e.db.Task(ctx, task)
	return t.Due, err
}

// planDeadlineChange locks a task and validates a change to its due time.
func (e *Engine) planDeadlineChange(ctx context.Context, tx *postgres.Tx, task tasker.ID, c tasker.DueUpdate) (change postgres.ChangedDeadline, err error) {
	if err := tx.LockTasks(ctx, []tasker.ID{task}); err != nil {
		return change, err
	}
	change = postgres.ChangedDeadline{
		StepRef: tasker.StepRef{TaskUUID: task, StepUUID: c.StepUUID}, DueAt: c.DueAt, Operator: postgres.Operator{Actor: c.Actor, Reason: c.Reason},
		Audit: "task.due_changed", Detail: map[string]any{"task_uuid": task, "due_at": c.DueAt, "reason": c.Reason},
	}
	t, err := tx.DueTask(ctx, task)
	if err != nil {
		return change, err
	}
	change.Task = t.State
	if _, err := core.TaskMoves.Next(t.State, core.ChangeDue); err != nil {
		return change, tasker.Errorf(tasker.Conflict, "task %s is %s and no longer has a due time", task, t.State)
	}
	if t.WrittenOff {
		return change, tasker.Errorf(tasker.Conflict,
			"task %s was written off by its investigation and no longer has a due time", task)
	}
	g, err := e.loadGraphByID(ctx, tx, t.TemplateUUID)
	if err != nil {
		return change, err
	}
	rules := g.stored.Due
	change.Orders, change.Detail["was"] = g.stored.Order == tasker.OrderDue, t.Due
	if c.StepUUID != (tasker.ID{}) {
		s, err := tx.Step(ctx, task, c.StepUUID)
		switch {
		case err != nil:
			return change, err
		case s.State.Done() || s.State == tasker.StepCancelled:
			return change, tasker.Errorf(tasker.Conflict, "step %s is %s and no longer has a due time", s.Name, s.State)
		}
		if step, _, ok := g.findStep(s.Name); ok {
			rules = step.Due
		}
		change.Audit, change.Detail["step"], change.Detail["was"] = "step.due_changed", s.Name, s.Due
	}
	change.Warn, change.Investigate = rules.WarnBeforeSeconds, rules.OpensInvestigation()
	return change, nil
}

func checkDueChange(c tasker.DueUpdate) error {
	var wrong faults
	if c.DueAt != nil {
		wrong.checkYear("due_at", *c.DueAt)
	}
	wrong.checkText("by", c.Actor, 255, true)
	wrong.checkText("reason", c.Reason, 2000, false)
	return wrong.toError("the due time cannot be changed")
}
