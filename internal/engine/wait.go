package engine

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/postgres"
)

// waitChunk limits the waits that end in one transaction, since each may open an investigation.
const waitChunk = 20

// endWaits ends waits whose time is over. A wait step is completed. An external step that was not
// answered fails, is completed with a default result or is skipped, as its template defines.
func (e *Engine) endWaits(ctx context.Context, rows []tasker.StepRef) error {
	return e.concludeFree(ctx, rows, func(tx *postgres.Tx, free []tasker.ID) ([]outcome, error) {
		over, err := tx.WaitsOver(ctx, selectSteps(free, rows))
		if err != nil {
			return nil, err
		}
		list := make([]outcome, len(over))
		for i, s := range over {
			if list[i], err = e.evaluateWaitEnd(ctx, tx, s); err != nil {
				return nil, err
			}
		}
		return list, nil
	})
}

// concludeFree concludes steps of unlocked tasks in one transaction with the outcomes that evaluate
// returns. Locked tasks are left to a later pass.
func (e *Engine) concludeFree(ctx context.Context, rows []tasker.StepRef, evaluate func(tx *postgres.Tx, free []tasker.ID) ([]outcome, error)) error {
	var concluded postgres.Concluded
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		concluded = postgres.Concluded{}
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(rows))
		if err != nil {
			return err
		}
		list, err := evaluate(tx, free)
		if err != nil || len(list) == 0 {
			return err
		}
		concluded, err = e.concludeIn(ctx, tx, list, postgres.Operator{})
		return err
	})
	if err == nil {
		e.notify(concluded.Namespaces)
		e.scheduleDecision(concluded)
	}
	return err
}

func (e *Engine) evaluateWaitEnd(ctx context.Context, tx *postgres.Tx, s postgres.WaitingStep) (v outcome, err error) {
	step, _, err := e.findStepTemplate(ctx, tx, s.TemplateUUID, s.Name)
	if err != nil {
		return outcome{}, err
	}
	v.Outcome = core.Outcome{
		TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepPending, Fence: s.Fence,
	}
	if step.Type == tasker.WaitStep {
		v.Event, v.Reason = core.Elapse, "the wait ended"
		v.Body, v.ResultSize, err = encodeResult(nil, nil)
		return v, err
	}
	if step.Type == tasker.ChildStep {
		v.Event, v.Detail, v.Reason = core.TimeOut, tasker.ChildFailed, "the child task did not end within 5 years"
		v.Body, err = encodeFailure(tasker.Failure{Type: tasker.ChildFailed, Message: v.Reason}, "")
		return v, err
	}
	v.Reason = fmt.Sprintf("no answer within %s (timeout_seconds)", time.Duration(s.TimeoutMS)*time.Millisecond)
	switch step.OnTimeout {
	case tasker.TimeoutSkips:
		v.Event = core.Skip
	case tasker.TimeoutCompletes:
		v.Event = core.Elapse
		v.Body, v.ResultSize, err = encodeResult(step.TimeoutResult, nil)
	default:
		v.Event, v.Detail = core.TimeOut, tasker.ExternalTimeout
		v.Body, err = encodeFailure(tasker.Failure{Type: tasker.ExternalTimeout, Message: v.Reason}, "")
	}
	return v, err
}

// sendReminders sends the reminders that templates define for unanswered external steps. If several
// became due while no server was running, it sends only one.
func (e *Engine) sendReminders(ctx context.Context, rows []tasker.StepRef) error {
	return e.db.InTx(ctx, func(tx *postgres.Tx) error {
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		due, err := tx.RemindedSteps(ctx, selectSteps(free, rows))
		if err != nil || len(due) == 0 {
			return err
		}
		list := make([]postgres.Reminder, len(due))
		for i, s := range due {
			step, _, err := e.findStepTemplate(ctx, tx, s.TemplateUUID, s.Name)
			if err != nil {
				return err
			}
			list[i] = newReminder(s, step.RemindAfterSeconds)
			if n := step.EscalatesAt(); n > 0 && s.Reminders < n && list[i].Sent >= n {
				if err := escalate(ctx, tx, &list[i], step.EscalateTo); err != nil {
					return err
				}
			}
		}
		return tx.SendReminders(ctx, list)
	})
}

// newReminder returns the due reminder of a step, including the time of the next one. The argument
// after contains the delays between reminders in seconds.
func newReminder(s postgres.RemindedStep, after []int) postgres.Reminder {
	r := postgres.Reminder{RemindedStep: s, Sent: s.Reminders + 1}
	place := min(s.Reminders, len(after)-1) // an environment override may define fewer now
	since := s.RemindAt
	if place >= 0 {
		since = s.RemindAt.Add(-time.Duration(after[place]) * time.Second)
		for _, seconds := range after[place+1:] {
			if at := since.Add(time.Duration(seconds) * time.Second); at.After(s.AsOf) {
				r.Next = &at
				break
			}
			r.Sent++
		}
	}
	r.Data = notice.NewReminderData(notice.Waiting{
		TaskUUID: s.TaskUUID, Namespace: s.Namespace, Template: s.TaskName, Step: s.Name, StepUUID: s.StepUUID, Since: since, Until: s.WaitUntil, Number: r.Sent, Now: s.AsOf, Assignee: s.Assignee,
	})
	return r
}

// escalate assigns a step to another person or group after unanswered reminders. The reminder
// itself notifies the new assignee.
func escalate(ctx context.Context, tx *postgres.Tx, r *postgres.Reminder, to string) error {
	step := tasker.StepRef{TaskUUID: r.TaskUUID, StepUUID: r.StepUUID}
	_, err := tx.Assign(ctx, postgres.Reassignment{StepRef: step, Event: "escalated", AssignRequest: tasker.AssignRequest{
		Assignee: to, Actor: tasker.SystemActor, Reason: fmt.Sprintf("no answer after %d reminders", r.Sent),
	}})
	if err != nil {
		return err
	}
	r.Data.Assignee = to
	r.Data.Summary += "; it is now assigned to " + to
	return nil
}
