package engine

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
	"tasker.example/tasker/internal/postgres"
)

// waitChunk is how many waits end in one transaction; each may open an investigation.
const waitChunk = 20

// endWaits ends waits that are over. A step of type wait is complete; an external step that
// nobody answered in time fails, is complete with a result of its template, or is skipped,
// as the template says. A task that somebody works on is left to a later pass.
func (e *Engine) endWaits(ctx context.Context, rows []tasker.StepRef) error {
	var concluded postgres.Concluded
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		concluded = postgres.Concluded{}
		free, err := tx.LockFreeTasks(ctx, tasksOfSteps(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		over, err := tx.WaitsOver(ctx, stepsOf(free, rows))
		if err != nil || len(over) == 0 {
			return err
		}
		list := make([]verdict, len(over))
		for i, s := range over {
			if list[i], err = e.endOfWait(ctx, s); err != nil {
				return err
			}
		}
		concluded, err = e.concludeIn(ctx, tx, list, postgres.Operator{})
		return err
	})
	if err == nil {
		e.notify(concluded.Namespaces)
		e.decideSoon(concluded)
	}
	return err
}

// endOfWait is what becomes of a step whose wait is over.
func (e *Engine) endOfWait(ctx context.Context, s postgres.WaitingStep) (v verdict, err error) {
	step, _, err := e.StepTemplate(ctx, s.TemplateUUID, s.Name)
	if err != nil {
		return verdict{}, err
	}
	v.Conclusion = postgres.Conclusion{
		TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepPending, Fence: s.Fence,
	}
	if step.Type == tasker.WaitStep {
		v.Event, v.To, v.Reason = lifecycle.Elapse, tasker.StepComplete, "its wait is over"
		v.Body, v.ResultSize, err = resultBody(nil, nil)
		return v, err
	}
	v.Reason = fmt.Sprintf("nobody answered within %s (timeout_seconds)", time.Duration(s.TimeoutMS)*time.Millisecond)
	switch step.OnTimeout {
	case tasker.TimeoutSkips:
		v.Event, v.To = lifecycle.Skip, tasker.StepSkipped
	case tasker.TimeoutCompletes:
		v.Event, v.To = lifecycle.Elapse, tasker.StepComplete
		v.Body, v.ResultSize, err = resultBody(step.TimeoutResult, nil)
	default:
		v.Event, v.To, v.Detail = lifecycle.TimeOut, tasker.StepError, tasker.ExternalTimeout
		v.Body, err = failureBody(tasker.Failure{Type: tasker.ExternalTimeout, Message: v.Reason}, "")
	}
	return v, err
}
