package engine

import (
	"context"
	"encoding/json"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

// evaluateAssignee evaluates the assignee of a step, which may be empty. The error may be an
// [expression.Failure].
func (d *decision) evaluateAssignee(ctx context.Context, s postgres.UndecidedStep, p *expression.Program) (string,
	error) {
	values, err := d.loadValues(ctx, s, p)
	if err != nil {
		return "", err
	}
	value, err := evaluateOnce(d.known, newEvaluationKey(s, expression.AssigneeFrom, p), values, func(ctx context.Context) (any, error) {
		list, _ := expression.EvaluateAll(ctx, []*expression.Program{p}, values)
		return list[0].Value, list[0].Err
	})
	if err != nil {
		return "", err
	}
	name, is := value.(string)
	if !is {
		return "", &expression.Failure{Text: p.Text(), Reason: "must be a string that names a person or a group"}
	}
	if name == "" {
		return "", nil
	}
	if wrong := tasker.AssigneeFault(name); wrong != "" {
		return "", &expression.Failure{Text: p.Text(), Reason: "the assignee " + wrong}
	}
	return name, nil
}

// beginningSteps collects the steps that run in a round and the human steps among them.
type beginningSteps struct {
	steps []postgres.DecidedStep
	asked []postgres.NewHumanStep
}

func (r *beginningSteps) addStep(step tasker.StepRef, j stepDecision) {
	r.steps = append(r.steps, postgres.DecidedStep{StepRef: step, WaitUntil: j.until})
	if j.asks {
		r.asked = append(r.asked, postgres.NewHumanStep{StepRef: step, Assignee: j.assignee})
	}
}

func (d *decision) beginSteps(ctx context.Context, r beginningSteps) error {
	namespaces, err := d.tx.RunDecided(ctx, r.steps)
	if err != nil {
		return err
	}
	d.namespaces = append(d.namespaces, namespaces...)
	return d.tx.BeginHumanSteps(ctx, r.asked, notice.NewAnswerRequestData)
}

// Assign changes the assignee of a waiting external step and returns the new assignment. Repeating
// the assignment has no effect. It returns a Conflict if the step is not waiting for an answer.
func (e *Engine) Assign(ctx context.Context, step tasker.StepRef, r tasker.AssignRequest) (tasker.HumanStep, error) {
	if err := checkAssign(r); err != nil {
		return tasker.HumanStep{}, err
	}
	var now *tasker.HumanStep
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := checkWaitsForAnswer(ctx, tx, step); err != nil {
			return err
		}
		change := postgres.Reassignment{StepRef: step, AssignRequest: r, Event: "assigned", Audit: true}
		if r.Assignee == "" {
			change.Event = "unassigned"
		}
		changed, err := tx.Assign(ctx, change)
		if err != nil {
			return err
		}
		if now, err = tx.HumanStep(ctx, step); err != nil || now == nil || !changed {
			return err
		}
		return tx.NotifyAssigned(ctx, *now, notice.NewAssignedData(*now, r.Actor))
	})
	if err != nil || now == nil {
		return tasker.HumanStep{StepRef: step}, err
	}
	return *now, nil
}

// checkWaitsForAnswer locks the task. It returns a Conflict if the step is not waiting for an
// answer.
func checkWaitsForAnswer(ctx context.Context, tx *postgres.Tx, step tasker.StepRef) error {
	locked, err := lockStep(ctx, tx, step)
	if err != nil {
		return err
	}
	target := toCoreTarget(locked)
	if err := target.CheckTask(); err != nil {
		return err
	}
	s, err := tx.Step(ctx, step.TaskUUID, step.StepUUID)
	switch {
	case err != nil:
		return err
	case s.Type != tasker.ExternalStep:
		return target.Refusal("step %s is not external and cannot be answered", s.Name)
	case s.State != tasker.StepPending:
		return target.Refusal("external step %s is %s and cannot be answered", s.Name, s.State)
	case s.DecisionDue, !s.DependenciesSatisfied:
		return target.Refusal("external step %s is not waiting for an answer yet", s.Name)
	default:
		return nil
	}
}

func checkAssign(r tasker.AssignRequest) error {
	var wrong faults
	if r.Assignee != "" {
		if fault := tasker.AssigneeFault(r.Assignee); fault != "" {
			wrong.add("assignee", "%s", fault)
		}
	}
	wrong.checkText("by", r.Actor, 255, true)
	wrong.checkText("reason", r.Reason, 2000, false)
	return wrong.toError("the step cannot be assigned")
}

// Inbox returns a page of the steps that wait for people, earliest due time first. It reports
// whether there are more.
func (e *Engine) Inbox(ctx context.Context, f tasker.InboxFilter) (list []tasker.HumanStep, more bool, err error) {
	if len(f.Assignees) > tasker.MaxInboxAssignees {
		return nil, false, tasker.Errorf(tasker.Invalid,
			"too many assignees: got %d, the limit is %d", len(f.Assignees), tasker.MaxInboxAssignees)
	}
	return e.db.Inbox(ctx, f)
}

// HumanStep returns the assignment, answer form and history of an external step. It returns
// NotFound if the step is not external.
func (e *Engine) HumanStep(ctx context.Context, step tasker.StepRef) (d tasker.HumanStepDetail, err error) {
	s, err := e.db.Step(ctx, step.TaskUUID, step.StepUUID)
	if err != nil {
		return d, err
	}
	if s.Type != tasker.ExternalStep {
		return d, tasker.Errorf(tasker.NotFound,
			"step %s of task %s is not external and cannot be answered", s.Name, step.TaskUUID)
	}
	task, err := e.db.Task(ctx, step.TaskUUID)
	if err != nil {
		return d, err
	}
	d.HumanStep = tasker.HumanStep{StepRef: step, Namespace: task.Namespace, TaskName: task.Name, StepName: s.Name}
	a, err := e.db.HumanStep(ctx, step)
	if err != nil {
		return d, err
	}
	if a != nil {
		d.HumanStep = *a
	}
	if d.Form, err = e.findForm(ctx, task.TemplateUUID, s.Name); err != nil {
		return d, err
	}
	d.History, err = e.db.HumanStepHistory(ctx, step)
	return d, err
}

// checkForm returns Invalid if the form of the step rejects the answer.
func (e *Engine) checkForm(ctx context.Context, tx *postgres.Tx, t postgres.Target, answer json.RawMessage) error {
	g, err := e.loadGraphByID(ctx, tx, t.TemplateUUID)
	if err != nil {
		return err
	}
	i, ok := g.byName[t.Name]
	if !ok || len(g.stored.Steps[i].Form) == 0 {
		return nil
	}
	if len(answer) == 0 {
		answer = json.RawMessage("null")
	}
	return templatefile.CheckForm(ctx, g.stored.Namespace, g.stored.Steps[i].Form, answer)
}

// findForm returns the JSON schema for answers to a step, or nil if any answer is accepted.
func (e *Engine) findForm(ctx context.Context, template tasker.ID, step string) (json.RawMessage, error) {
	g, err := e.loadGraphByID(ctx, e.db, template)
	if err != nil {
		return nil, err
	}
	if i, ok := g.byName[step]; ok {
		return g.stored.Steps[i].Form, nil
	}
	return nil, nil
}
