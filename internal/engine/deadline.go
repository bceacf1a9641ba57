package engine

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/lifecycle"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/postgres"
)

// deadlineChunk is of how many due times people are told in one transaction.
const deadlineChunk = 50

// checkDue refuses what a request says of when its task is due and cannot be meant. Whether it is ahead, the
// database says by its clock.
func checkDue(r tasker.NewTask, fault func(path, format string, args ...any)) {
	if !r.DueAt.IsZero() && (r.DueAt.Year() < 2000 || r.DueAt.Year() > 2200) {
		fault("due_at", "must lie between the years 2000 and 2200")
	}
	if r.DueAfter < 0 || r.DueAfter > tasker.MaxDue {
		fault("due_after_seconds", "must be from 0 to %d", int(tasker.MaxDue.Seconds()))
	}
	if !r.DueAt.IsZero() && r.DueAfter != 0 {
		fault("due_after_seconds", "a task has either this or due_at")
	}
	if !r.DueAt.IsZero() && !r.StartAt.IsZero() && !r.DueAt.After(r.StartAt) {
		fault("due_at", "must be after start_at")
	}
}

// dueOfRequest is by when the task of a request is due, by itself or as its template says; nil when it has no
// due time. The expression of a template is evaluated later.
func dueOfRequest(r tasker.NewTask, t tasker.Template) *postgres.NewDeadline {
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

// dueAt evaluates by when a task is due, as its template says.
func (c *creation) dueAt(ctx context.Context, p *expression.Program, t *postgres.CreatedTask) (time.Time, error) {
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
		wrong = "is not an instant"
	case at.Year() < 2000 || time.Until(at) > tasker.MaxDue:
		wrong = "lies before the year 2000, or more than 5 years ahead"
	}
	if wrong != "" {
		return time.Time{}, tasker.Errorf(tasker.Invalid, "context: due.at of the template: %s", wrong)
	}
	return at, nil
}

// due says by when a step is due that is decided to run; nil when it has no due time. The error may be an
// [expression.Failure].
func (d *decision) due(ctx context.Context, s postgres.UndecidedStep, g *graph, i int) (*postgres.NewDeadline, error) {
	rules := g.stored.Steps[i].Due
	if !rules.HasDueTime() {
		return nil, nil //nolint:nilnil // as said
	}
	due := &postgres.NewDeadline{
		StepRef: tasker.StepRef{TaskUUID: s.TaskUUID, StepUUID: s.StepUUID}, After: time.Duration(rules.AfterSeconds) * time.Second,
		Warn: rules.WarnBeforeSeconds, Investigate: rules.OpensInvestigation(), Orders: g.stored.Order == tasker.OrderDue, Source: tasker.DueByTemplate,
	}
	p := g.exprs[i][expression.DueAt]
	if p == nil {
		return due, nil
	}
	values, err := d.values(ctx, s, p)
	if err != nil {
		return nil, err
	}
	due.At, err = outcomeOf(d.known, evaluationOf(s, expression.DueAt, p), values, func(ctx context.Context) (time.Time, error) { return p.Time(ctx, values) })
	if err == nil && (due.At.Year() < 2000 || due.At.Sub(s.AsOf) > tasker.MaxDue) {
		err = &expression.Failure{Text: p.Text(), Reason: "the instant lies before the year 2000, or more than 5 years ahead"}
	}
	return due, err
}

// watchDeadlines tells people of tasks and steps that are due soon, or overdue, once each. What came due while no
// server ran is told late: of what is overdue by then the warning is left out, and the message says for how long.
func (e *Engine) watchDeadlines(ctx context.Context, rows []tasker.StepRef) error {
	return e.db.InTx(ctx, func(tx *postgres.Tx) error {
		free, err := tx.LockFreeTasks(ctx, tasksOfSteps(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		due, err := tx.WatchedDeadlines(ctx, stepsOf(free, rows))
		if err != nil || len(due) == 0 {
			return err
		}
		return tx.NotifyDeadlines(ctx, due, func(d postgres.WatchedDeadline) tasker.NotificationData {
			return notice.Due(notice.Deadline{
				TaskUUID: d.TaskUUID, Namespace: d.Namespace, Template: d.TaskName, Step: d.StepName, State: d.State, DueAt: d.DueAt, CreatedAt: d.CreatedAt, Now: d.AsOf,
			})
		})
	})
}

// ChangeDue gives an open task, or a step of it that has not ended, another due time or none, and returns it. The
// error is Invalid when that is not ahead, a Conflict when the task or step has ended.
func (e *Engine) ChangeDue(ctx context.Context, task tasker.ID, c tasker.DueUpdate) (due *tasker.Deadline, err error) {
	if err := checkDueChange(c); err != nil {
		return nil, err
	}
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		change, err := e.changedDeadline(ctx, tx, task, c)
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

// changedDeadline locks a task and says what a change comes to.
func (e *Engine) changedDeadline(ctx context.Context, tx *postgres.Tx, task tasker.ID, c tasker.DueUpdate) (change postgres.ChangedDeadline, err error) {
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
	if _, err := lifecycle.Task.Next(t.State, lifecycle.ChangeDue); err != nil {
		return change, tasker.Errorf(tasker.Conflict, "task %s is %s: it is not due any more", task, t.State)
	}
	if t.WrittenOff {
		return change, tasker.Errorf(tasker.Conflict, "task %s was given up by its investigation: it is not due any more", task)
	}
	g, err := e.graphIn(ctx, tx, t.TemplateUUID)
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
			return change, tasker.Errorf(tasker.Conflict, "step %s is %s: it is not due any more", s.Name, s.State)
		}
		if step, _, ok := g.step(s.Name); ok {
			rules = step.Due
		}
		change.Audit, change.Detail["step"], change.Detail["was"] = "step.due_changed", s.Name, s.Due
	}
	change.Warn, change.Investigate = rules.WarnBeforeSeconds, rules.OpensInvestigation()
	return change, nil
}

func checkDueChange(c tasker.DueUpdate) error {
	var faults []tasker.Fault
	fault := func(path, format string, args ...any) {
		faults = append(faults, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if c.DueAt != nil && (c.DueAt.Year() < 2000 || c.DueAt.Year() > 2200) {
		fault("due_at", "must lie between the years 2000 and 2200")
	}
	if wrong := textFault(c.Actor, 255, true); wrong != "" {
		fault("by", "%s", wrong)
	}
	if wrong := textFault(c.Reason, 2000, false); wrong != "" {
		fault("reason", "%s", wrong)
	}
	if len(faults) > 0 {
		return tasker.Errorf(tasker.Invalid, "the due time cannot be changed: %s", faults[0]).WithDetails(faults)
	}
	return nil
}

// forgetDueQueues has claims of queues not look at due times any more once the templates that asked for it are retired and done.
func (e *Engine) forgetDueQueues(ctx context.Context) (time.Duration, error) {
	return 0, e.db.ForgetDueQueues(ctx)
}
