package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
	"tasker.example/tasker/internal/postgres"
)

// CancelTask ends a task and the steps that have not ended; leases on them are
// lost. Cancelling again changes nothing; a complete task is a Conflict.
func (e *Engine) CancelTask(ctx context.Context, task tasker.ID, actor, reason string) error {
	return e.db.CancelTask(ctx, task, postgres.Operator{Actor: actor, Reason: reason})
}

// OperateStep does what an operator decided about a step, and lets the task go on
// in the same transaction. It returns the step as the
// action left it; a step that was reset is enqueued right after. The error is a
// Conflict when the state of the step or of the task does not allow it.
func (e *Engine) OperateStep(ctx context.Context, task, step tasker.ID, op tasker.Operation) (tasker.Step, error) {
	if err := checkOperation(op); err != nil {
		return tasker.Step{}, err
	}
	v := verdict{Conclusion: postgres.Conclusion{
		TaskUUID: task, StepUUID: step, Actor: op.Actor, Reason: op.Reason, RaiseFence: true,
	}}
	v.Event, _ = lifecycle.ActionEvent(op.Action)
	if op.Action == tasker.CompleteManually {
		var err error
		if v.Body, v.ResultSize, err = resultBody(op.Result, op.Metadata); err != nil {
			return tasker.Step{}, err
		}
	}
	by := postgres.Operator{Actor: op.Actor, Reason: op.Reason}
	var left tasker.Step
	var namespaces []string
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		repeated, err := tx.Once(ctx, postgres.OperatorRequest{Key: op.RequestKey, Action: "step." + string(op.Action), Said: []any{task, step, op}})
		if err != nil {
			return err
		}
		if repeated { // it is answered with the step as it is now
			left, err = tx.Step(ctx, task, step)
			return err
		}
		if err := mayOperate(ctx, tx, &v, op); err != nil {
			return err
		}
		concluded, err := tx.ConcludeSteps(ctx, []postgres.Conclusion{v.Conclusion})
		if err != nil {
			return err
		}
		if left, err = tx.Step(ctx, task, step); err != nil {
			return err
		}
		if err := tx.RecordRepair(ctx, repairOf(v, left.Name, op)); err != nil {
			return err
		}
		ready, err := tx.EnqueueReady(ctx, []tasker.ID{task})
		if err != nil {
			return err
		}
		namespaces = slices.Concat(concluded.Namespaces, ready)
		_, err = tx.SettleTasks(ctx, []tasker.ID{task}, by)
		return err
	})
	if err != nil {
		return tasker.Step{}, err
	}
	e.notify(namespaces)
	return left, nil
}

// repairEvents are the actions in the history of an investigation.
var repairEvents = map[tasker.StepAction]string{
	tasker.ResetForRetry: "step_reset", tasker.ResolveManually: "step_resolved", tasker.CompleteManually: "step_completed",
}

// repairOf is the record of an action on a step.
func repairOf(v verdict, name string, op tasker.Operation) postgres.Repair {
	event := repairEvents[op.Action]
	return postgres.Repair{
		TaskUUID: v.TaskUUID, Event: event, Action: strings.Replace(event, "_", ".", 1), Subject: v.StepUUID, Actor: op.Actor,
		Notes: "step " + name + ": " + op.Reason,
		Data: map[string]any{
			"task_uuid": v.TaskUUID, "step_uuid": v.StepUUID, "step_name": name, "action_type": op.Action, "reason": op.Reason,
			"from_state": v.From, "interrupt": op.Interrupt,
		},
	}
}

func checkOperation(op tasker.Operation) error {
	var faults []tasker.Fault
	if _, ok := lifecycle.ActionEvent(op.Action); !ok {
		faults = append(faults, tasker.Fault{Path: "action_type", Message: "must be reset_for_retry, resolve_manually or complete_manually"})
	}
	if wrong := textFault(op.Reason, 20_000, true); wrong != "" {
		faults = append(faults, tasker.Fault{Path: "reason", Message: wrong})
	}
	if wrong := textFault(op.Actor, 255, true); wrong != "" {
		faults = append(faults, tasker.Fault{Path: "actor", Message: wrong})
	}
	if wrong := textFault(op.RequestKey, postgres.MaxRequestKey, false); wrong != "" {
		faults = append(faults, tasker.Fault{Path: "Idempotency-Key", Message: wrong})
	}
	if op.Action == tasker.CompleteManually && len(op.Result) == 0 {
		faults = append(faults, tasker.Fault{Path: "completion_data.result", Message: "is missing"})
	}
	if len(faults) > 0 {
		return tasker.Errorf(tasker.Invalid, "the action cannot be done: %s", faults[0]).WithDetails(faults)
	}
	return nil
}

// mayOperate locks the task and the step and fills in the state and the fence of
// the step, or returns why the action is not allowed.
func mayOperate(ctx context.Context, tx *postgres.Tx, v *verdict, op tasker.Operation) error {
	target, fence, err := lockStep(ctx, tx, v.TaskUUID, v.StepUUID)
	if err != nil {
		return err
	}
	v.From, v.Fence = target.Step, fence
	v.To, err = target.Next(op.Action, op.Interrupt)
	return err
}

// lockStep locks a task and one of its steps and returns what decides about
// actions on it, and its fence.
func lockStep(ctx context.Context, tx *postgres.Tx, task, step tasker.ID) (lifecycle.Target, int64, error) {
	t := lifecycle.Target{TaskUUID: task, StepUUID: step}
	var err error
	if t.Task, err = tx.TaskState(ctx, task); err != nil {
		return t, 0, err
	}
	mark, err := tx.Mark(ctx, task, step)
	if err != nil {
		return t, 0, err
	}
	t.Step = tasker.StepState(mark.State)
	t.WrittenOff, err = tx.WrittenOff(ctx, task)
	return t, mark.Fence, err
}

// CompleteExternal ends an external step with an outcome from outside, and lets
// the task go on. The same outcome again changes nothing; another is a Conflict.
func (e *Engine) CompleteExternal(ctx context.Context, task, step tasker.ID, o tasker.Outcome, source string) (tasker.Step, error) {
	if wrong := textFault(source, 255, false); wrong != "" {
		return tasker.Step{}, tasker.Errorf(tasker.Invalid, "source: %s", wrong)
	}
	if o.Failure != nil {
		f := *o.Failure
		f.Retryable = false // nothing here can try it again
		o.Failure = &f
	}
	o.Lease = tasker.Lease{TaskUUID: task, StepUUID: step}
	v, err := judge(tasker.ID{}, o)
	if err != nil {
		return tasker.Step{}, err
	}
	v.Event, v.Actor, v.Worker = lifecycle.CompleteExternal, source, nil
	if !o.Success {
		v.Event, v.Detail = lifecycle.FailExternal, tasker.ExternalFailure
		if v.Body, err = failureBody(*o.Failure, ""); err != nil {
			return tasker.Step{}, err
		}
	}
	sum := sha256.Sum256(append([]byte(v.Event), v.Body...))
	v.Digest = sum[:]
	var left tasker.Step
	var concluded postgres.Concluded
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		concluded = postgres.Concluded{}
		done, err := e.mayComplete(ctx, tx, &v)
		if err == nil && !done {
			concluded, err = e.concludeIn(ctx, tx, []verdict{v}, postgres.Operator{})
		}
		if err != nil {
			return err
		}
		left, err = tx.Step(ctx, task, step)
		return err
	})
	if err != nil {
		return tasker.Step{}, err
	}
	e.notify(concluded.Namespaces)
	return left, nil
}

// mayComplete locks the task and the external step, or says why it cannot be
// completed now. It reports true when the same outcome has completed it before.
func (e *Engine) mayComplete(ctx context.Context, tx *postgres.Tx, v *verdict) (bool, error) {
	if _, err := tx.TaskState(ctx, v.TaskUUID); err != nil {
		return false, err
	}
	before, err := tx.Mark(ctx, v.TaskUUID, v.StepUUID)
	if err != nil {
		return false, err
	}
	// A step that waits again after a reset takes the same outcome anew.
	if before.State != string(tasker.StepPending) && bytes.Equal(before.ReportDigest, v.Digest) {
		return true, nil
	}
	target, fence, err := lockStep(ctx, tx, v.TaskUUID, v.StepUUID)
	if err != nil {
		return false, err
	}
	if err := target.TaskRefusal(); err != nil {
		return false, err
	}
	s, err := tx.Step(ctx, v.TaskUUID, v.StepUUID)
	if err != nil {
		return false, err
	}
	v.From, v.Fence = s.State, fence
	switch next, err := lifecycle.Step.Next(s.State, v.Event); {
	case s.Type != tasker.ExternalStep:
		return false, target.Refusal("step %s is not external: a worker executes it; an operator can complete it with complete_manually", s.Name)
	case err != nil:
		return false, target.Refusal("external step %s is %s already", s.Name, s.State)
	case !s.DependenciesSatisfied:
		return false, target.Refusal("external step %s still waits for %d of its %d dependencies",
			s.Name, s.TotalParents-s.CompletedParents, s.TotalParents)
	default:
		v.To = next
		return false, nil
	}
}
