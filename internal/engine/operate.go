package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// OperateStep performs an operator action on a step and continues the task in the same
// transaction. It returns the step as the action left it. It returns a Conflict if the state of
// the step or task does not allow the action.
func (e *Engine) OperateStep(ctx context.Context, task, step tasker.ID, op tasker.ActionRequest) (tasker.Step, error) {
	action, err := e.NewAction(op)
	if err != nil {
		return tasker.Step{}, err
	}
	var left tasker.Step
	var acted ActionResult
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		acted = ActionResult{}
		repeated, err := tx.CheckIdempotency(ctx, postgres.OperatorRequest{Key: op.RequestKey, Action: "step." + string(op.Action), Payload: []any{task, step, op}})
		if err != nil {
			return err
		}
		if !repeated {
			ref := tasker.StepRef{TaskUUID: task, StepUUID: step}
			if acted, err = action.applyOne(ctx, tx, ref); err != nil {
				return err
			}
			if op.DiscardCheckpoint {
				acted.left.Checkpoint = nil
				if err := tx.DiscardCheckpoints(ctx, ref); err != nil {
					return err
				}
			}
			left = acted.left
			return nil
		}
		left, err = tx.Step(ctx, task, step) // it is answered with the step as it is now
		return err
	})
	if err != nil {
		return tasker.Step{}, err
	}
	e.Enqueued(acted.Namespaces)
	return left, nil
}

// An Action is what an operator does to steps: to one by hand, or to those of a part of
// an operation. It is made once and may be done to any number of steps.
type Action struct {
	op    tasker.ActionRequest
	event lifecycle.StepEvent
	body  json.RawMessage
	size  int // of the result in body

	computes *computing // nil: the result is one for all
	engine   *Engine
}

// NewAction returns the action that an operator asks for. The error is Invalid.
func (e *Engine) NewAction(op tasker.ActionRequest) (Action, error) {
	if err := checkAction(op); err != nil {
		return Action{}, err
	}
	a := Action{op: op, engine: e}
	a.event, _ = lifecycle.ActionEvent(op.Action)
	var err error
	switch {
	case op.ResultExpression != "":
		a.computes = &computing{engine: e, text: op.ResultExpression}
	case op.Action == tasker.CompleteManually:
		a.body, a.size, err = resultBody(op.Result, op.Metadata)
	}
	return a, err
}

// A StepActionResult is what became of one step.
type StepActionResult struct {
	postgres.Target       // as it stood before
	Refusal         error // a Conflict: the action is not allowed, and nothing was done
	Fence           int64 // of the step as the action left it

	Result json.RawMessage // with which it is complete, if that was computed
}

// ActionResult is what an [Action] did.
type ActionResult struct {
	Steps      []StepActionResult // in the order of task and step
	Namespaces []string           // in which steps became ready; for [Engine.OnEnqueued]

	left tasker.Step // of an action on one step
}

// Enqueued notifies workers of steps enqueued in a committed transaction of the caller.
func (e *Engine) Enqueued(namespaces []string) { e.notify(namespaces) }

// applyOne does the action to one step, which must exist and allow it.
func (a Action) applyOne(ctx context.Context, tx *postgres.Tx, step tasker.StepRef) (ActionResult, error) {
	target, err := lockStep(ctx, tx, step)
	if err != nil {
		return ActionResult{}, err
	}
	switch {
	case a.op.NewChild: // which a step that starts no task refuses
		return a.withNewChild(ctx, tx, target)
	case target.OpenItems > 0:
		return a.onItems(ctx, tx, target)
	}
	acted, err := a.do(ctx, tx, []postgres.Target{target}, step)
	if err == nil {
		err = acted.Steps[0].Refusal
	}
	return acted, err
}

// Do does the action to steps whose tasks the caller has locked, as far as their states
// allow it, and lets the tasks go on. The targets come from [postgres.Tx.LockTargets].
func (a Action) Do(ctx context.Context, tx *postgres.Tx, targets []postgres.Target) (ActionResult, error) {
	return a.do(ctx, tx, targets, tasker.StepRef{})
}

// do is Do; look is the one step that is read as the action leaves it, before what follows.
func (a Action) do(ctx context.Context, tx *postgres.Tx, targets []postgres.Target, look tasker.StepRef) (acted ActionResult, err error) {
	var list []postgres.Conclusion
	var repairs []postgres.Repair
	decisions, err := a.decisions(ctx, tx, targets)
	if err != nil {
		return acted, err
	}
	failed, err := a.failed(ctx, tx, targets)
	if err != nil {
		return acted, err
	}
	for _, t := range targets {
		step := StepActionResult{Target: t, Fence: t.Fence + 1}
		to, refusal := targetOf(t).Next(a.op.Action, a.op.Interrupt)
		if t.OpenItems > 0 && refusal == nil { // many steps at once are those that have failed
			refusal = targetOf(t).Refusal("step %s waits for its items", t.StepUUID)
		}
		of := a
		if refusal == nil && a.computes != nil {
			if of, refusal, err = a.forStep(ctx, tx, t, failed[t.StepUUID]); err != nil {
				return acted, err
			}
			step.Result = of.op.Result
		}
		if refusal == nil && a.op.Answer {
			if refusal = a.engine.checkForm(ctx, tx, t, of.op.Result); refusal != nil && tasker.CodeOf(refusal) != tasker.Invalid {
				return acted, refusal
			}
		}
		body := of.body
		if refusal == nil && t.IsDecision {
			body, refusal = of.decide(t, decisions[t.StepUUID])
		}
		if step.Refusal = refusal; refusal == nil {
			list = append(list, of.conclusion(t, to, body))
			repairs = append(repairs, a.repair(t))
		}
		acted.Steps = append(acted.Steps, step)
	}
	if len(list) == 0 {
		return acted, nil
	}
	concluded, err := tx.ConcludeSteps(ctx, list)
	if err != nil {
		return acted, err
	}
	if len(concluded.Moved) != len(list) {
		return acted, fmt.Errorf("of %d steps that are locked %d moved", len(list), len(concluded.Moved))
	}
	return a.follow(ctx, tx, acted, followUp{concluded, postgres.TasksOf(list), repairs, look})
}

// A followUp is what follows when an action has moved steps.
type followUp struct {
	concluded postgres.Concluded
	tasks     []tasker.ID
	repairs   []postgres.Repair
	look      tasker.StepRef // the step that is read before; zero: none
}

// follow records an action and lets the tasks go on.
func (a Action) follow(ctx context.Context, tx *postgres.Tx, acted ActionResult, f followUp) (ActionResult, error) {
	var err error
	if f.look != (tasker.StepRef{}) {
		if acted.left, err = tx.Step(ctx, f.look.TaskUUID, f.look.StepUUID); err != nil {
			return acted, err
		}
	}
	if err := tx.RecordRepairs(ctx, f.repairs); err != nil {
		return acted, err
	}
	ready, err := tx.EnqueueReady(ctx, f.tasks)
	if err != nil {
		return acted, err
	}
	acted.Namespaces = slices.Concat(f.concluded.Namespaces, ready)
	_, err = tx.SettleTasks(ctx, f.tasks, postgres.Operator{Actor: a.op.Actor, Reason: a.op.Reason})
	return acted, err
}

func targetOf(t postgres.Target) lifecycle.Target {
	return lifecycle.Target{TaskUUID: t.TaskUUID, StepUUID: t.StepUUID, Task: t.Task, Step: t.Step, WrittenOff: t.WrittenOff, OpenItems: t.OpenItems}
}

// conclusion moves a step as the action says.
func (a Action) conclusion(t postgres.Target, to tasker.StepState, body json.RawMessage) postgres.Conclusion {
	return postgres.Conclusion{
		TaskUUID: t.TaskUUID, StepUUID: t.StepUUID, From: t.Step, Fence: t.Fence, Event: a.event, To: to, Body: body, ResultSize: a.size,
		Actor: a.op.Actor, Reason: a.op.Reason, RaiseFence: true, Operation: a.op.Operation,
	}
}

// repairEvents are the actions in the history of an investigation.
var repairEvents = map[tasker.StepAction]string{
	tasker.ResetForRetry: "step_reset", tasker.ResolveManually: "step_resolved", tasker.CompleteManually: "step_completed",
}

// repair is the record of the action on a step.
func (a Action) repair(t postgres.Target) postgres.Repair {
	event := repairEvents[a.op.Action]
	r := postgres.Repair{
		TaskUUID: t.TaskUUID, Event: event, Action: strings.Replace(event, "_", ".", 1), Subject: t.StepUUID, Actor: a.op.Actor,
		Notes: "step " + t.Name + ": " + a.op.Reason,
		Data: map[string]any{
			"task_uuid": t.TaskUUID, "step_uuid": t.StepUUID, "step_name": t.Name, "action_type": a.op.Action, "reason": a.op.Reason,
			"from_state": t.Step, "interrupt": a.op.Interrupt,
		},
	}
	if a.op.Operation != nil {
		r.Data["operation_uuid"] = a.op.Operation
	}
	return r
}

func checkAction(op tasker.ActionRequest) error {
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
	if op.NewChild && op.Action != tasker.ResetForRetry {
		faults = append(faults, tasker.Fault{Path: "child", Message: "is for reset_for_retry only"})
	}
	if op.DiscardCheckpoint && op.Action != tasker.ResetForRetry {
		faults = append(faults, tasker.Fault{Path: "discard_checkpoint", Message: "is for reset_for_retry only"})
	}
	switch completes := op.Action == tasker.CompleteManually; {
	case completes && len(op.Result) == 0 && op.ResultExpression == "":
		faults = append(faults, tasker.Fault{Path: "completion_data.result", Message: "is missing"})
	case completes && len(op.Result) > 0 && op.ResultExpression != "":
		faults = append(faults, tasker.Fault{Path: "completion_data.result_expression", Message: "is given with result: give one of them"})
	case !completes && op.ResultExpression != "":
		faults = append(faults, tasker.Fault{Path: "completion_data.result_expression", Message: "is for complete_manually only"})
	}
	if len(faults) > 0 {
		return tasker.Errorf(tasker.Invalid, "the action cannot be done: %s", faults[0]).WithDetails(faults)
	}
	return nil
}

// lockStep locks a task and one of its steps and returns their states, or NotFound.
func lockStep(ctx context.Context, tx *postgres.Tx, step tasker.StepRef) (postgres.Target, error) {
	if _, err := tx.TaskState(ctx, step.TaskUUID); err != nil {
		return postgres.Target{}, err
	}
	targets, err := tx.LockTargets(ctx, []tasker.StepRef{step})
	switch {
	case err != nil:
		return postgres.Target{}, err
	case len(targets) == 0:
		return postgres.Target{}, postgres.NoStep(step.TaskUUID, step.StepUUID)
	default:
		return targets[0], nil
	}
}

// CompleteExternal ends an external step with an outcome from outside, and lets
// the task go on. The same outcome again changes nothing; another is a Conflict.
func (e *Engine) CompleteExternal(ctx context.Context, task, step tasker.ID, o tasker.Outcome, source string) (tasker.Step, error) {
	v, err := evaluateExternalOutcome(tasker.StepRef{TaskUUID: task, StepUUID: step}, o, source)
	if err != nil {
		return tasker.Step{}, err
	}
	var left tasker.Step
	var concluded postgres.Concluded
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		if concluded, err = e.completeExternalIn(ctx, tx, v); err != nil {
			return err
		}
		left, err = tx.Step(ctx, task, step)
		return err
	})
	if err != nil {
		return tasker.Step{}, err
	}
	e.notify(concluded.Namespaces)
	e.scheduleDecision(concluded)
	return left, nil
}

// mayComplete locks the task and the external step, or says why it cannot be
// completed now. It reports true when the same outcome has completed it before.
func (e *Engine) mayComplete(ctx context.Context, tx *postgres.Tx, v *outcome) (bool, error) {
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
	locked, err := lockStep(ctx, tx, tasker.StepRef{TaskUUID: v.TaskUUID, StepUUID: v.StepUUID})
	if err != nil {
		return false, err
	}
	target := targetOf(locked)
	if err := target.TaskRefusal(); err != nil {
		return false, err
	}
	s, err := tx.Step(ctx, v.TaskUUID, v.StepUUID)
	if err != nil {
		return false, err
	}
	v.From, v.Fence = s.State, locked.Fence
	switch next, err := lifecycle.Step.Next(s.State, v.Event); {
	case s.Type == tasker.WaitStep:
		return false, target.Refusal("step %s is not external: it waits for an instant; an operator can complete it with complete_manually", s.Name)
	case s.Type == tasker.ChildStep:
		return false, target.Refusal("step %s is not external: it waits for its child task; an operator can complete it with complete_manually", s.Name)
	case s.Type != tasker.ExternalStep:
		return false, target.Refusal("step %s is not external: a worker executes it; an operator can complete it with complete_manually", s.Name)
	case err != nil:
		return false, target.Refusal("external step %s is %s already", s.Name, s.State)
	case s.DecisionDue:
		return false, target.Refusal("external step %s is not decided yet: whether it waits for an answer depends on its condition; try again in a moment", s.Name)
	case !s.DependenciesSatisfied:
		return false, target.Refusal("external step %s still waits for %d of its %d dependencies",
			s.Name, s.TotalParents-s.CompletedParents, s.TotalParents)
	default:
		v.To = next
		return false, e.checkAnswer(ctx, tx, locked, *v)
	}
}
