package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/postgres"
)

// resultComputer evaluates a result expression for each step that an action completes. It caches
// compiled programs.
type resultComputer struct {
	engine   *Engine
	text     string
	programs map[postgres.TemplateStep]compiledProgram
}

type compiledProgram struct {
	program *expression.Program
	err     error
}

// CheckResult returns Invalid if an expression cannot compute the result of the given template
// step.
func (e *Engine) CheckResult(ctx context.Context, tx *postgres.Tx, text string, of postgres.TemplateStep) error {
	c := resultComputer{engine: e, text: text}
	_, err := c.compile(ctx, tx, of)
	return err
}

// compile compiles the expression for a step. The expression can refer to preceding steps and, for
// a compensation step, to the step that it undoes.
func (c *resultComputer) compile(ctx context.Context, tx *postgres.Tx, of postgres.TemplateStep) (*expression.Program, error) {
	of.Name = tasker.TemplateName(of.Name)
	name := of.Name
	if known, ok := c.programs[of]; ok {
		return known.program, known.err
	}
	g, err := c.engine.loadGraphByID(ctx, tx, of.TemplateUUID)
	if err != nil {
		return nil, err
	}
	s, _, ok := g.findStep(name)
	if !ok {
		return nil, fmt.Errorf("template %s has no step %q", of.TemplateUUID, name)
	}
	undone, isUndo := strings.CutPrefix(name, tasker.UndoPrefix)
	scope := expression.Scope{Input: g.stored.InputSchema, Ancestors: g.stored.Ancestors(undone), Failed: true, Item: s.Type == tasker.MapStep}
	if isUndo {
		scope.Ancestors = append(scope.Ancestors, undone)
	}
	for _, s := range g.stored.Steps {
		scope.Steps = append(scope.Steps, s.Name)
	}
	var made compiledProgram
	if made.program, made.err = expression.Compile(c.text, scope, expression.Any); made.err != nil {
		made.err = tasker.Errorf(tasker.CodeOf(made.err), "step %s of template %s/%s %s: %w", name, g.stored.Namespace, g.stored.Name, g.stored.Version, made.err)
	}
	if c.programs == nil {
		c.programs = map[postgres.TemplateStep]compiledProgram{}
	}
	c.programs[of] = made
	return made.program, made.err
}

// computeResult evaluates the expression for a step. If there is no result, the refusal explains
// why; it wraps the [expression.Failure], if any.
func (c *resultComputer) computeResult(ctx context.Context, tx *postgres.Tx, t postgres.Target, s postgres.RepairedStep) (doc json.RawMessage, refusal, err error) {
	p, err := c.compile(ctx, tx, postgres.TemplateStep{TemplateUUID: s.TemplateUUID, Name: t.Name})
	if code := tasker.CodeOf(err); code == tasker.Invalid {
		return nil, toCoreTarget(t).Refusal("cannot compute the result of step %s: %w", t.Name, err), nil
	}
	if err != nil {
		return nil, nil, err
	}
	v, err := loadValues(ctx, tx, t.TaskUUID, p)
	if err == nil {
		v.Error, v.Item = s.Error, s.Item
		v.Task = expression.TaskValues{ID: t.TaskUUID, CreatedAt: s.CreatedAt, Priority: s.Priority, Namespace: t.Namespace, CorrelationID: s.CorrelationID}
		doc, err = p.JSON(ctx, v, tasker.MaxDocumentBytes)
	}
	if failure, ok := errors.AsType[*expression.Failure](err); ok {
		return nil, toCoreTarget(t).Refusal("cannot compute the result of step %s: %w", t.Name, failure), nil
	}
	return doc, nil, err
}

// resolveForStep returns the action for one step, including the step's computed result.
func (a Action) resolveForStep(ctx context.Context, tx *postgres.Tx, t postgres.Target, s postgres.RepairedStep) (of Action, refusal, err error) {
	doc, refusal, err := a.computes.computeResult(ctx, tx, t, s)
	if refusal != nil || err != nil {
		return a, refusal, err
	}
	of = a
	of.op.Result = doc
	if of.body, of.size, err = encodeResult(doc, a.op.Metadata); err != nil {
		return a, toCoreTarget(t).Refusal("cannot store the result of step %s: %w", t.Name, err), nil
	}
	return of, nil, nil
}

// loadFailedSteps reads the values that the expression can use, by step. It returns nil if the
// action has no expression.
func (a Action) loadFailedSteps(ctx context.Context, tx *postgres.Tx, targets []postgres.Target) (map[tasker.ID]postgres.RepairedStep, error) {
	if a.computes == nil || len(targets) == 0 {
		return nil, nil // documented
	}
	refs := make([]tasker.StepRef, len(targets))
	for i, t := range targets {
		refs[i] = t.StepRef
	}
	return tx.RepairedSteps(ctx, refs)
}

// loadValues reads the context of a task and the states and results of the steps that an expression
// refers to. It returns an [expression.Failure] if they are too large.
func loadValues(ctx context.Context, tx *postgres.Tx, task tasker.ID, p *expression.Program) (expression.Values,
	error) {
	names := append(slices.Clone(p.Results()), p.States()...)
	read, err := tx.ConditionValues(ctx, task, names, conditionBytes)
	if err != nil {
		return expression.Values{}, err
	}
	if read.ResultBytes > conditionBytes {
		return expression.Values{}, &expression.Failure{Text: p.Text(), Reason: fmt.Sprintf(
			"the results it uses have %d bytes in total: the limit is %d", read.ResultBytes, conditionBytes)}
	}
	v := expression.Values{Context: read.Context, Results: map[string]json.RawMessage{}, States: map[string]tasker.StepState{}}
	for name, step := range read.Steps {
		v.States[name] = step.State
		if step.HasResult && step.State.Done() {
			v.Results[name] = step.Result
		}
	}
	return v, nil
}
