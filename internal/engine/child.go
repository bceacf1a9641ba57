package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

const (
	childChunk = 10   // maximum number of child tasks that end or are cancelled in one transaction
	maxStarted = 1000 // maximum number of templates that the cycle check reads
)

// childTasks collects the child tasks that the steps of one round start.
type childTasks struct {
	made     []*postgres.CreatedTask
	steps    []tasker.StepRef
	children []tasker.ID // one per step
}

func (s *childTasks) add(step tasker.StepRef, j stepDecision) {
	switch {
	case j.child != nil:
		s.made, s.steps, s.children = append(s.made, j.child), append(s.steps, step), append(s.children, j.child.UUID)
	case j.waits != nil:
		s.steps, s.children = append(s.steps, step), append(s.children, *j.waits)
	}
}

// startChildren stores the child tasks in the transaction in which their steps are decided.
func (d *decision) startChildren(ctx context.Context, s childTasks) error {
	if len(s.made) > 0 {
		if err := d.tx.InsertTasks(ctx, s.made, postgres.Insertion{}); err != nil {
			return err
		}
	}
	for _, t := range s.made {
		d.decides = d.decides || t.HasDecisions()
		d.namespaces = append(d.namespaces, t.Template.Namespace)
	}
	if len(s.steps) == 0 {
		return nil
	}
	return d.tx.SetChildren(ctx, s.steps, s.children)
}

// startChild returns the child task that a step waits for. It reuses the task that the step has
// already started, unless that one was cancelled or marked as permanently failed. The error may be
// an [expression.Failure].
func (d *decision) startChild(ctx context.Context, s postgres.UndecidedStep, g *graph, i int) (stepDecision, error) {
	until := s.AsOf.Add(tasker.MaxWait)
	if s.Child != nil {
		state, givenUp, err := d.tx.ChildState(ctx, *s.Child)
		if err != nil || state == tasker.TaskComplete || canComplete(state, givenUp) {
			return stepDecision{becomes: core.VerdictRun, until: &until, waits: s.Child}, err
		}
	}
	if s.Depth >= tasker.MaxChildDepth {
		return failChild(s, fmt.Sprintf("the task already has %d ancestors, which is the limit", s.Depth))
	}
	r, err := d.childRequest(ctx, s, g, i)
	if err != nil {
		return stepDecision{}, err
	}
	made, err := d.newChildTask(ctx, r)
	switch tasker.CodeOf(err) {
	case "":
	case tasker.NotFound, tasker.Invalid, tasker.TooLarge, tasker.Conflict:
		return failChild(s, err.Error())
	default:
		return stepDecision{}, err
	}
	made.Parent = &postgres.ParentStep{StepRef: tasker.StepRef{TaskUUID: s.TaskUUID, StepUUID: s.StepUUID}, Depth: s.Depth + 1}
	return stepDecision{becomes: core.VerdictRun, until: &until, child: made}, nil
}

// canComplete reports whether a child task in the given state can still complete.
func canComplete(state tasker.TaskState, givenUp bool) bool {
	return state != "" && state != tasker.TaskComplete && state != tasker.TaskCancelled && !givenUp
}

// childRequest returns the request for a child task. The context of the child task is the step's
// input, which defaults to the context of the parent task.
func (d *decision) childRequest(ctx context.Context, s postgres.UndecidedStep, g *graph, i int) (tasker.NewTask,
	error) {
	step := g.stored.Steps[i]
	r := tasker.NewTask{
		Namespace: s.Namespace, Name: step.Child.Name, Version: step.Child.Version, Priority: s.Priority, CorrelationID: s.CorrelationID,
		Initiator: "task:" + s.TaskUUID.String(), Reason: "step " + step.Name + " of task " + s.TaskUUID.String(),
	}
	input := g.exprs[i][expression.Input]
	if input == nil {
		values, err := d.tx.ConditionValues(ctx, s.TaskUUID, nil, 0)
		r.Context = values.Context
		return r, err
	}
	values, err := d.loadValues(ctx, s, input)
	if err != nil {
		return r, err
	}
	r.Context, err = evaluateOnce(d.known, newEvaluationKey(s, expression.Input, input), values, func(ctx context.Context) (json.RawMessage, error) {
		return input.Object(ctx, values)
	})
	return r, err
}

func failChild(s postgres.UndecidedStep, why string) (stepDecision, error) {
	move, err := newFailedDecision(s, tasker.ChildRefused, "the child task cannot be started: "+why)
	return stepDecision{move: move}, err
}

// newChildTask plans a child task. It treats the unique keys of tasks planned in this round as
// taken.
func (d *decision) newChildTask(ctx context.Context, r tasker.NewTask) (*postgres.CreatedTask, error) {
	c := d.engine.newCreation(d.tx, templatefile.NewTimerBudget())
	c.tasks = slices.Clip(d.children)
	return c.addUnrequested(ctx, r)
}

// resetWithNewChild resets a child step so that it starts another child task. The step must have
// failed or be waiting for its current one.
func (a Action) resetWithNewChild(ctx context.Context, tx *postgres.Tx, target postgres.Target) (acted ActionResult, err error) {
	t := toCoreTarget(target)
	if err := t.CheckTask(); err != nil {
		return ActionResult{}, err
	}
	if !target.IsChild {
		return ActionResult{}, t.Refusal("step %s is not a child step: only the reset of a child step can start a "+
			"new task", target.StepUUID)
	}
	if target.Step != tasker.StepPending || target.Child == nil {
		if acted, err = a.do(ctx, tx, []postgres.Target{target}, target.StepRef); err == nil {
			err = acted.Steps[0].Refusal
		}
		if err != nil || target.Child == nil {
			return acted, err
		}
		acted.after.ChildTaskUUID = nil
		return acted, tx.DetachChild(ctx, target.StepRef, *target.Child)
	}
	state, givenUp, err := tx.ChildState(ctx, *target.Child)
	if err != nil {
		return ActionResult{}, err
	}
	if canComplete(state, givenUp) && !a.op.Interrupt {
		return ActionResult{}, tasker.Errorf(tasker.Conflict,
			"step %s waits for task %s, which is %s: to cancel that task and start a new one, set interrupt",
			target.StepUUID, *target.Child, state).WithDetails(tasker.StepRefusal{
			TaskState: t.Task, StepState: t.Step, AllowedActions: append(t.Allowed(), tasker.ResetForRetry), NeedsInterrupt: true,
		})
	}
	if err := tx.DetachChild(ctx, target.StepRef, *target.Child); err != nil {
		return ActionResult{}, err
	}
	acted.Steps = []StepActionResult{{Target: target, Fence: target.Fence}}
	r := a.newRepair(target)
	r.Data["left_child_task_uuid"] = target.Child
	return a.applyFollowUp(ctx, tx, acted, followUp{postgres.Concluded{}, []tasker.StepRef{target.StepRef}, []postgres.Repair{r}, target.StepRef})
}

// completeParents concludes the steps whose child tasks have ended. It does not lock child tasks.
func (e *Engine) completeParents(ctx context.Context, rows []tasker.StepRef) error {
	return e.concludeFree(ctx, rows, func(tx *postgres.Tx, free []tasker.ID) ([]outcome, error) {
		return e.collectChildEnds(ctx, tx, free, rows)
	})
}

// collectChildEnds returns outcomes for the steps whose tasks are locked and whose child tasks have
// ended.
func (e *Engine) collectChildEnds(ctx context.Context, tx *postgres.Tx, locked []tasker.ID, steps []tasker.StepRef) ([]outcome, error) {
	ended, err := tx.TakeEndedChildren(ctx, locked, steps)
	if err != nil {
		return nil, err
	}
	list := make([]outcome, len(ended))
	for i, s := range ended {
		if list[i], err = e.evaluateChildEnd(ctx, tx, s); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (e *Engine) evaluateChildEnd(ctx context.Context, tx *postgres.Tx, s postgres.StepOfChild) (v outcome, err error) {
	step, _, err := e.findStepTemplate(ctx, tx, s.TemplateUUID, s.Name)
	if err != nil {
		return outcome{}, err
	}
	sum := sha256.Sum256(s.ChildUUID[:])
	v.Outcome = core.Outcome{
		TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepPending, Fence: s.Fence, Digest: sum[:],
		Event: core.CompleteChild, Reason: "child task " + s.ChildUUID.String() + " is complete",
	}
	metadata := json.RawMessage(fmt.Sprintf(`{"child_task_uuid": %q}`, s.ChildUUID))
	outcome := step.OnChild.PermanentlyFailed
	switch {
	case s.ChildState == tasker.TaskComplete:
		v.Body, v.ResultSize, err = e.readChildResult(ctx, tx, s.ChildUUID, metadata)
		return v, err
	case !s.GivenUp:
		v.Reason, outcome = "child task "+s.ChildUUID.String()+" was cancelled", step.OnChild.Cancelled
	default:
		v.Reason = "child task " + s.ChildUUID.String() + " was given up: its investigation ended as permanently_failed"
	}
	switch outcome {
	case tasker.ChildSkips:
		v.Event = core.Skip
	case tasker.ChildCompletes:
		v.Body, v.ResultSize, err = encodeResult(step.ChildResult, metadata)
	default:
		v.Event, v.Detail = core.FailChild, tasker.ChildFailed
		v.Body, err = encodeFailure(tasker.Failure{Type: tasker.ChildFailed, Message: v.Reason}, "")
	}
	return v, err
}

// omittedResult replaces a result that is too large to be included in the result of a child step.
type omittedResult struct {
	Omitted  bool      `json:"omitted"` // always true
	TaskUUID tasker.ID `json:"task_uuid"`
	StepUUID tasker.ID `json:"step_uuid"`
	Bytes    int64     `json:"bytes"`
	ReadAt   string    `json:"read_at"` // API path of the complete result
}

// readChildResult returns the result of a step whose child task is complete. It is an object that
// maps the names of the child's last steps to their results. Results that are too large are
// omitted. If the object still cannot be stored, all results are omitted.
func (e *Engine) readChildResult(ctx context.Context, tx *postgres.Tx, child tasker.ID, metadata json.RawMessage) (body json.RawMessage, size int, err error) {
	list, err := tx.LastResults(ctx, child, tasker.MaxDocumentBytes)
	if err != nil {
		return nil, 0, err
	}
	for _, whole := range []bool{true, false} {
		var doc json.RawMessage
		if doc, err = encodeResultsByName(child, list, whole); err != nil {
			return nil, 0, err
		}
		if body, size, err = encodeResult(doc, metadata); err == nil {
			return body, size, nil
		}
	}
	return nil, 0, err
}

func encodeResultsByName(child tasker.ID, list []postgres.LastResult, whole bool) (json.RawMessage, error) {
	var doc bytes.Buffer
	doc.WriteByte('{')
	for i, r := range list {
		if i > 0 {
			doc.WriteByte(',')
		}
		name, err := json.Marshal(r.Name)
		result := []byte(r.Result)
		if err == nil && (!whole || result == nil) {
			result, err = json.Marshal(omittedResult{
				Omitted: true, TaskUUID: child, StepUUID: r.StepUUID, Bytes: r.Bytes,
				ReadAt: tasker.ResultPath(child, r.StepUUID.String()),
			})
		}
		if err != nil {
			return nil, fmt.Errorf("encode the result of a child task: %w", err)
		}
		doc.Write(name)
		doc.WriteByte(':')
		doc.Write(result)
	}
	doc.WriteByte('}')
	return doc.Bytes(), nil
}

// cancelChildren cancels child tasks that their parents no longer wait for. If the parent is being
// compensated, the child task is compensated, too. Locked child tasks are left to a later pass. It
// does not lock parents.
func (e *Engine) cancelChildren(ctx context.Context, rows []tasker.StepRef) error {
	var namespaces []string
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		namespaces = nil
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(rows))
		if err != nil {
			return err
		}
		unneeded, err := tx.TakeChildrenToCancel(ctx, free, uniqueTasks(rows))
		if err != nil {
			return err
		}
		for _, c := range unneeded { // few rows, each with its own reason
			by := postgres.Cancellation{Operator: postgres.Operator{Actor: tasker.SystemActor, Reason: "its parent task " + c.ParentTaskUUID.String() + " no longer waits for it"}}
			if c.Undo {
				began, err := e.Compensate(ctx, tx, c.TaskUUID, by)
				if err != nil {
					return err
				}
				namespaces = append(namespaces, began.Namespaces...)
				continue
			}
			if err := tx.CancelTasks(ctx, []postgres.TaskTarget{{TaskUUID: c.TaskUUID, State: c.State}}, by); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		e.notify(namespaces)
	}
	return err
}

// checkCycle rejects a template whose child steps start it again, directly or through templates
// that are already registered.
func (e *Engine) checkCycle(ctx context.Context, t tasker.Template) error {
	w := cycleSearch{engine: e, root: t, seen: map[tasker.ChildTemplate]bool{}}
	path, err := w.visit(ctx, t, []string{t.Namespace + "/" + t.Name})
	if err != nil || path == nil {
		return err
	}
	return tasker.Errorf(tasker.Invalid, "templates start each other in a cycle: %s", strings.Join(path, " -> "))
}

// cycleSearch follows child steps to the templates that they start.
type cycleSearch struct {
	engine *Engine
	root   tasker.Template
	seen   map[tasker.ChildTemplate]bool
}

// visit returns the path of templates that leads back to the root, or nil.
func (w *cycleSearch) visit(ctx context.Context, t tasker.Template, path []string) ([]string, error) {
	for _, s := range t.Steps {
		if s.Type != tasker.ChildStep || w.seen[s.Child] || len(w.seen) >= maxStarted {
			continue
		}
		w.seen[s.Child] = true
		next := append(slices.Clone(path), w.root.Namespace+"/"+s.Child.Name)
		if s.Child.Name == w.root.Name && (s.Child.Version == "" || s.Child.Version == w.root.Version) {
			return next, nil
		}
		child, err := w.engine.db.Template(ctx, w.root.Namespace, s.Child.Name, s.Child.Version)
		if tasker.CodeOf(err) == tasker.NotFound {
			continue // checked when that template is registered
		}
		if err != nil {
			return nil, err
		}
		if found, err := w.visit(ctx, child.Template, next); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}
