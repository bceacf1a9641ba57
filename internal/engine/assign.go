package engine

import (
	"context"
	"encoding/json"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/lifecycle"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

// assignee returns who is to answer a step; empty: nobody in particular. The error may be an
// [expression.Failure].
func (d *decision) assignee(ctx context.Context, s postgres.UndecidedStep, p *expression.Program) (string, error) {
	values, err := d.values(ctx, s, p)
	if err != nil {
		return "", err
	}
	value, err := outcomeOf(d.known, evaluationOf(s, expression.AssigneeFrom, p), values, func(ctx context.Context) (any, error) {
		list, _ := expression.All(ctx, []*expression.Program{p}, values)
		return list[0].Value, list[0].Err
	})
	if err != nil {
		return "", err
	}
	name, is := value.(string)
	if !is {
		return "", &expression.Failure{Text: p.Text(), Reason: "must be a text that names a person or a group"}
	}
	if name == "" {
		return "", nil
	}
	if wrong := tasker.AssigneeFault(name); wrong != "" {
		return "", &expression.Failure{Text: p.Text(), Reason: "the name of the assignee " + wrong}
	}
	return name, nil
}

// running are steps that are decided to run, and those of them that wait for people.
type running struct {
	steps []postgres.DecidedStep
	asked []postgres.NewHumanStep
}

func (r *running) add(step tasker.StepRef, j stepDecision) {
	r.steps = append(r.steps, postgres.DecidedStep{StepRef: step, WaitUntil: j.until})
	if j.asks {
		r.asked = append(r.asked, postgres.NewHumanStep{StepRef: step, Assignee: j.assignee})
	}
}

// run has steps run, or wait.
func (d *decision) run(ctx context.Context, r running) error {
	namespaces, err := d.tx.RunDecided(ctx, r.steps)
	if err != nil {
		return err
	}
	d.namespaces = append(d.namespaces, namespaces...)
	return d.tx.BeginHumanSteps(ctx, r.asked, notice.AnswerRequested)
}

// Assign gives an external step that waits another assignee, and returns who is to answer it then.
// The same assignee again changes nothing. The error is a Conflict when the step does not wait
// for an answer.
func (e *Engine) Assign(ctx context.Context, step tasker.StepRef, r tasker.AssignRequest) (tasker.HumanStep, error) {
	if err := checkAssign(r); err != nil {
		return tasker.HumanStep{}, err
	}
	var now *tasker.HumanStep
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := waitsForAnswer(ctx, tx, step); err != nil {
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
		return tx.NotifyAssigned(ctx, *now, notice.Assigned(*now, r.Actor))
	})
	if err != nil || now == nil {
		return tasker.HumanStep{StepRef: step}, err
	}
	return *now, nil
}

// waitsForAnswer locks a task, and returns a Conflict when the step of it does not wait for an answer.
func waitsForAnswer(ctx context.Context, tx *postgres.Tx, step tasker.StepRef) error {
	locked, err := lockStep(ctx, tx, step)
	if err != nil {
		return err
	}
	target := targetOf(locked)
	if err := target.TaskRefusal(); err != nil {
		return err
	}
	s, err := tx.Step(ctx, step.TaskUUID, step.StepUUID)
	switch {
	case err != nil:
		return err
	case s.Type != tasker.ExternalStep:
		return target.Refusal("step %s is not external: nobody answers it", s.Name)
	case s.State != tasker.StepPending:
		return target.Refusal("external step %s is %s: it waits for nobody", s.Name, s.State)
	case s.DecisionDue, !s.DependenciesSatisfied:
		return target.Refusal("external step %s does not wait for an answer yet", s.Name)
	default:
		return nil
	}
}

func checkAssign(r tasker.AssignRequest) error {
	var faults []tasker.Fault
	if r.Assignee != "" {
		if wrong := tasker.AssigneeFault(r.Assignee); wrong != "" {
			faults = append(faults, tasker.Fault{Path: "assignee", Message: wrong})
		}
	}
	if wrong := textFault(r.Actor, 255, true); wrong != "" {
		faults = append(faults, tasker.Fault{Path: "by", Message: wrong})
	}
	if wrong := textFault(r.Reason, 2000, false); wrong != "" {
		faults = append(faults, tasker.Fault{Path: "reason", Message: wrong})
	}
	if len(faults) > 0 {
		return tasker.Errorf(tasker.Invalid, "the step cannot be assigned: %s", faults[0]).WithDetails(faults)
	}
	return nil
}

// Inbox returns a page of what waits for people, what is due first before the rest, and reports
// whether there is more.
func (e *Engine) Inbox(ctx context.Context, f tasker.InboxFilter) (list []tasker.HumanStep, more bool, err error) {
	if len(f.Assignees) > tasker.MaxInboxAssignees {
		return nil, false, tasker.Errorf(tasker.Invalid, "%d assignees; %d is the limit", len(f.Assignees), tasker.MaxInboxAssignees)
	}
	return e.db.Inbox(ctx, f)
}

// HumanStep returns who is to answer an external step, with what an answer looks like and what
// was changed. The error is NotFound when the step is not external.
func (e *Engine) HumanStep(ctx context.Context, step tasker.StepRef) (d tasker.HumanStepDetail, err error) {
	s, err := e.db.Step(ctx, step.TaskUUID, step.StepUUID)
	if err != nil {
		return d, err
	}
	if s.Type != tasker.ExternalStep {
		return d, tasker.Errorf(tasker.NotFound, "step %s of task %s is not external: nobody answers it", s.Name, step.TaskUUID)
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
	if d.Form, err = e.formOf(ctx, task.TemplateUUID, s.Name); err != nil {
		return d, err
	}
	d.History, err = e.db.HumanStepHistory(ctx, step)
	return d, err
}

// checkAnswer returns an Invalid for a result that the form of the step refuses.
func (e *Engine) checkAnswer(ctx context.Context, tx *postgres.Tx, t postgres.Target, v outcome) error {
	if v.Event != lifecycle.CompleteExternal {
		return nil
	}
	return e.checkForm(ctx, tx, t, v.given)
}

// checkForm returns an Invalid for an answer that the form of the step refuses.
func (e *Engine) checkForm(ctx context.Context, tx *postgres.Tx, t postgres.Target, answer json.RawMessage) error {
	g, err := e.graphIn(ctx, tx, t.TemplateUUID)
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

// formOf returns the schema of the answer to a step; nil: any result is one.
func (e *Engine) formOf(ctx context.Context, template tasker.ID, step string) (json.RawMessage, error) {
	g, err := e.graphByID(ctx, template)
	if err != nil {
		return nil, err
	}
	if i, ok := g.byName[step]; ok {
		return g.stored.Steps[i].Form, nil
	}
	return nil, nil
}
