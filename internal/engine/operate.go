package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/postgres"
)

// CancelTask cancels a task and its open steps, which lose their leases. Repeating it has no
// effect. It returns a Conflict if the task is complete.
func (e *Engine) CancelTask(ctx context.Context, task tasker.ID, actor, reason string) error {
	return e.db.CancelTask(ctx, task, postgres.Operator{Actor: actor, Reason: reason})
}

// OperateStep performs an operator action on a step and continues the task in the same transaction.
// It returns the step as the action left it. It returns a Conflict if the state of the step or its
// task does not allow the action.
func (e *Engine) OperateStep(ctx context.Context, task, step tasker.ID, op tasker.ActionRequest) (tasker.Step, error) {
	action, err := e.NewAction(op)
	if err != nil {
		return tasker.Step{}, err
	}
	var after tasker.Step
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
				acted.after.Checkpoint = nil
				if err := tx.DiscardCheckpoints(ctx, ref); err != nil {
					return err
				}
			}
			after = acted.after
			return nil
		}
		after, err = tx.Step(ctx, task, step) // after a repeated request, this is the current step
		return err
	})
	if err != nil {
		return tasker.Step{}, err
	}
	e.Enqueued(acted.Namespaces)
	return after, nil
}

// Action is an operator action that can be applied to any number of steps, such as those of an
// operation.
type Action struct {
	op    tasker.ActionRequest
	event core.StepEvent
	body  json.RawMessage
	size  int // size of the result in body

	computes *resultComputer // nil if all steps get the same result
	engine   *Engine
}

// NewAction validates an action and prepares it. It returns Invalid if the request is not valid.
func (e *Engine) NewAction(op tasker.ActionRequest) (Action, error) {
	if err := checkAction(op); err != nil {
		return Action{}, err
	}
	a := Action{op: op, engine: e}
	a.event, _ = core.ActionEvent(op.Action)
	var err error
	switch {
	case op.ResultExpression != "":
		a.computes = &resultComputer{engine: e, text: op.ResultExpression}
	case op.Action == tasker.CompleteManually:
		a.body, a.size, err = encodeResult(op.Result, op.Metadata)
	}
	return a, err
}

// StepActionResult describes the effect of an action on one step.
type StepActionResult struct {
	postgres.Target       // state before the action
	Refusal         error // if set, a Conflict: the action is not allowed and nothing was done
	Fence           int64 // fence after the action

	Result json.RawMessage // computed result of the step, if any
}

// ActionResult describes the effects of an [Action].
type ActionResult struct {
	Steps      []StepActionResult // ordered by task and step
	Namespaces []string           // namespaces with enqueued steps, for [Engine.Enqueued]

	after tasker.Step // the step after the action, if it was applied to a single step
}

// Enqueued notifies workers of steps that the caller enqueued in a committed transaction.
func (e *Engine) Enqueued(namespaces []string) { e.notify(namespaces) }

// applyOne applies the action to one step. It returns an error if the step does not exist or does
// not allow the action.
func (a Action) applyOne(ctx context.Context, tx *postgres.Tx, step tasker.StepRef) (ActionResult, error) {
	target, err := lockStep(ctx, tx, step)
	if err != nil {
		return ActionResult{}, err
	}
	switch {
	case a.op.NewChild: // checked first, since it also refuses steps without a child task
		return a.resetWithNewChild(ctx, tx, target)
	case target.OpenItems > 0:
		return a.applyToItems(ctx, tx, target)
	}
	acted, err := a.do(ctx, tx, []postgres.Target{target}, step)
	if err == nil {
		err = acted.Steps[0].Refusal
	}
	return acted, err
}

// Do applies the action to those steps whose states allow it and continues their tasks. The targets
// must come from [postgres.Tx.LockTargets], which locks their tasks.
func (a Action) Do(ctx context.Context, tx *postgres.Tx, targets []postgres.Target) (ActionResult, error) {
	return a.do(ctx, tx, targets, tasker.StepRef{})
}

// do is Do. If single is set, the result also contains this step as the action left it, before its
// task continued.
func (a Action) do(ctx context.Context, tx *postgres.Tx, targets []postgres.Target, single tasker.StepRef) (acted ActionResult, err error) {
	var list []core.Outcome
	var repairs []postgres.Repair
	decisions, err := a.readDecisions(ctx, tx, targets)
	if err != nil {
		return acted, err
	}
	failed, err := a.loadFailedSteps(ctx, tx, targets)
	if err != nil {
		return acted, err
	}
	for _, t := range targets {
		step := StepActionResult{Target: t, Fence: t.Fence + 1}
		_, refusal := toCoreTarget(t).Next(a.op.Action, a.op.Interrupt)
		if t.OpenItems > 0 && refusal == nil { // an action on many steps applies only to failed steps
			refusal = toCoreTarget(t).Refusal("step %s is waiting for its items", t.StepUUID)
		}
		of := a
		if refusal == nil && a.computes != nil {
			if of, refusal, err = a.resolveForStep(ctx, tx, t, failed[t.StepUUID]); err != nil {
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
			list = append(list, of.newOutcome(t, body))
			repairs = append(repairs, a.newRepair(t))
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
		return acted, fmt.Errorf("only %d of %d locked steps moved", len(concluded.Moved), len(list))
	}
	return a.applyFollowUp(ctx, tx, acted, followUp{concluded, outcomeRefs(list), repairs, single})
}

// followUp describes what remains to be done after an action has moved steps.
type followUp struct {
	concluded postgres.Concluded
	steps     []tasker.StepRef // that the action has moved
	repairs   []postgres.Repair
	single    tasker.StepRef // if set, the step to read before the tasks continue
}

func outcomeRefs(list []core.Outcome) []tasker.StepRef {
	return mapSlice(list, func(o core.Outcome) tasker.StepRef { return o.Ref() })
}

// applyFollowUp records an action and continues the tasks.
func (a Action) applyFollowUp(ctx context.Context, tx *postgres.Tx, acted ActionResult, f followUp) (ActionResult,
	error) {
	var err error
	if f.single != (tasker.StepRef{}) {
		if acted.after, err = tx.Step(ctx, f.single.TaskUUID, f.single.StepUUID); err != nil {
			return acted, err
		}
	}
	if err := tx.RecordRepairs(ctx, f.repairs); err != nil {
		return acted, err
	}
	ready, err := tx.ContinueSteps(ctx, f.steps)
	if err != nil {
		return acted, err
	}
	acted.Namespaces = slices.Concat(f.concluded.Namespaces, ready)
	_, err = tx.SettleTasks(ctx, uniqueTasks(f.steps), postgres.Operator{Actor: a.op.Actor, Reason: a.op.Reason})
	return acted, err
}

func toCoreTarget(t postgres.Target) core.Target {
	return core.Target{TaskUUID: t.TaskUUID, StepUUID: t.StepUUID, Task: t.Task, Step: t.Step, WrittenOff: t.WrittenOff, OpenItems: t.OpenItems}
}

func (a Action) newOutcome(t postgres.Target, body json.RawMessage) core.Outcome {
	return core.Outcome{
		TaskUUID: t.TaskUUID, StepUUID: t.StepUUID, From: t.Step, Fence: t.Fence, Event: a.event, Body: body, ResultSize: a.size,
		Actor: a.op.Actor, Reason: a.op.Reason, RaiseFence: true, Operation: a.op.Operation,
	}
}

// repairEvents maps actions to events in the history of an investigation.
var repairEvents = map[tasker.StepAction]string{
	tasker.ResetForRetry: "step_reset", tasker.ResolveManually: "step_resolved", tasker.CompleteManually: "step_completed",
}

func (a Action) newRepair(t postgres.Target) postgres.Repair {
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
	var wrong faults
	if _, ok := core.ActionEvent(op.Action); !ok {
		wrong.add("action_type", "must be reset_for_retry, resolve_manually or complete_manually")
	}
	wrong.checkText("reason", op.Reason, 20_000, true)
	wrong.checkText("actor", op.Actor, 255, true)
	wrong.checkText("Idempotency-Key", op.RequestKey, postgres.MaxRequestKey, false)
	if op.NewChild && op.Action != tasker.ResetForRetry {
		wrong.add("child", "is only allowed with reset_for_retry")
	}
	if op.DiscardCheckpoint && op.Action != tasker.ResetForRetry {
		wrong.add("discard_checkpoint", "is only allowed with reset_for_retry")
	}
	switch completes := op.Action == tasker.CompleteManually; {
	case completes && len(op.Result) == 0 && op.ResultExpression == "":
		wrong.add("completion_data.result", "is missing")
	case completes && len(op.Result) > 0 && op.ResultExpression != "":
		wrong.add("completion_data.result_expression", "conflicts with result: set only one of them")
	case !completes && op.ResultExpression != "":
		wrong.add("completion_data.result_expression", "is only allowed with complete_manually")
	}
	return wrong.toError("invalid action")
}

// lockStep locks a task and one of its steps. It returns the states of both, or NotFound.
func lockStep(ctx context.Context, tx *postgres.Tx, step tasker.StepRef) (postgres.Target, error) {
	if _, err := tx.TaskState(ctx, step.TaskUUID); err != nil {
		return postgres.Target{}, err
	}
	targets, err := tx.LockTargets(ctx, []tasker.StepRef{step})
	if err == nil && len(targets) == 0 {
		err = postgres.NewStepNotFoundError(step.TaskUUID, step.StepUUID)
	}
	if err != nil {
		return postgres.Target{}, err
	}
	return targets[0], nil
}

// CompleteExternal ends an external step with an outcome and continues its task. Repeating the same
// outcome has no effect. If the step has already ended with another outcome, it returns a Conflict.
func (e *Engine) CompleteExternal(ctx context.Context, task, step tasker.ID, o tasker.Outcome, source string) (tasker.Step, error) {
	v, err := evaluateExternalOutcome(tasker.StepRef{TaskUUID: task, StepUUID: step}, o, source)
	if err != nil {
		return tasker.Step{}, err
	}
	var after tasker.Step
	var concluded postgres.Concluded
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		if concluded, err = e.completeExternalIn(ctx, tx, v); err != nil {
			return err
		}
		after, err = tx.Step(ctx, task, step)
		return err
	})
	if err != nil {
		return tasker.Step{}, err
	}
	e.notify(concluded.Namespaces)
	e.scheduleDecision(concluded)
	return after, nil
}

// checkCompletion locks a task and its external step. It returns an error if the step cannot be
// completed now, and true if the same outcome has already completed it.
func (e *Engine) checkCompletion(ctx context.Context, tx *postgres.Tx, v *outcome) (bool, error) {
	if _, err := tx.TaskState(ctx, v.TaskUUID); err != nil {
		return false, err
	}
	before, err := tx.LockStepLease(ctx, v.TaskUUID, v.StepUUID)
	if err != nil {
		return false, err
	}
	// A step that waits again after a reset also accepts the same outcome again.
	if before.State != string(tasker.StepPending) && bytes.Equal(before.ReportDigest, v.Digest) {
		return true, nil
	}
	locked, err := lockStep(ctx, tx, tasker.StepRef{TaskUUID: v.TaskUUID, StepUUID: v.StepUUID})
	if err != nil {
		return false, err
	}
	target := toCoreTarget(locked)
	if err := target.CheckTask(); err != nil {
		return false, err
	}
	s, err := tx.Step(ctx, v.TaskUUID, v.StepUUID)
	if err != nil {
		return false, err
	}
	v.From, v.Fence = s.State, locked.Fence
	switch {
	case s.Type == tasker.WaitStep:
		return false, target.Refusal("step %s is not external: it is a wait step; an operator can complete it "+
			"with complete_manually", s.Name)
	case s.Type == tasker.ChildStep:
		return false, target.Refusal("step %s is not external: it waits for its child task; an operator can complete it with complete_manually", s.Name)
	case s.Type != tasker.ExternalStep:
		return false, target.Refusal("step %s is not external: a worker executes it; an operator can complete it with complete_manually", s.Name)
	case v.To() == "":
		return false, target.Refusal("external step %s is already %s", s.Name, s.State)
	case s.DecisionDue:
		return false, target.Refusal("the condition of external step %s has not been evaluated yet: try again in "+
			"a moment", s.Name)
	case !s.DependenciesSatisfied:
		return false, target.Refusal("external step %s still waits for %d of its %d dependencies",
			s.Name, s.TotalParents-s.CompletedParents, s.TotalParents)
	}
	if v.Event != core.CompleteExternal {
		return false, nil
	}
	return false, e.checkForm(ctx, tx, locked, v.given)
}
