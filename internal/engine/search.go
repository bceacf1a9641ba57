package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/postgres"
)

// kinds maps attribute types to expression kinds.
var kinds = map[tasker.AttributeType]expression.Kind{
	tasker.AttributeText: expression.Text, tasker.AttributeNumber: expression.Number, tasker.AttributeTime: expression.Timestamp, tasker.AttributeBool: expression.Bool,
}

// search contains the compiled search attributes of a template, ordered by name.
type search struct {
	names    []string
	types    []tasker.AttributeType
	programs []*expression.Program
	steps    map[string]bool // steps whose results are used
	warned   atomic.Bool     // a skipped attribute has been logged
}

// findChunk limits the number of tasks whose attributes are evaluated in one transaction.
const findChunk = 20

func newSearch(t tasker.Template, scope expression.Scope) (*search, error) {
	s := &search{steps: map[string]bool{}}
	names := mapSlice(t.Steps, func(s tasker.StepTemplate) string { return s.Name })
	scope.Ancestors, scope.Steps, scope.Search = names, names, true
	for _, name := range slices.Sorted(maps.Keys(t.Search)) {
		a := t.Search[name]
		p, err := expression.Compile(a.From, scope, kinds[a.Type])
		if err != nil {
			return nil, wrapPath("search."+name+".from", err)
		}
		s.names, s.types, s.programs = append(s.names, name), append(s.types, a.Type), append(s.programs, p)
		for _, step := range p.Results() {
			s.steps[step] = true
		}
	}
	return s, nil
}

// selectPrograms returns the subset of attributes whose expressions satisfy can.
func (s *search) selectPrograms(can func(*expression.Program) bool) *search {
	part := &search{}
	for i, p := range s.programs {
		if can(p) {
			part.names, part.types, part.programs = append(part.names, s.names[i]), append(part.types, s.types[i]), append(part.programs, p)
		}
	}
	return part
}

// evaluateAttributes evaluates the search attributes of a new task and returns the cost. If an
// attribute cannot be evaluated, the task gets a warning; it is created nevertheless. It returns an
// error only if ctx ends.
func (e *Engine) evaluateAttributes(ctx context.Context, g *graph, t *postgres.CreatedTask) (cost int, err error) {
	if len(g.search.programs) == 0 {
		return 0, nil
	}
	now := g.search.selectPrograms(func(p *expression.Program) bool { return len(p.Results()) == 0 })
	found, failed, cost := now.evaluate(ctx, expression.Values{
		Context: t.Request.Context,
		Task:    expression.TaskValues{ID: t.UUID, Priority: t.Request.Priority, Namespace: g.stored.Namespace, CorrelationID: t.Correlation},
	})
	if err := ctx.Err(); err != nil { // proves nothing about the attributes
		return cost, err
	}
	e.skipAttributes(ctx, g, t.UUID, failed)
	t.Attributes, t.Warnings = found, failed
	return cost, nil
}

func newAttributeFault(attribute string, err error) tasker.Fault {
	return tasker.Fault{Path: "search." + attribute, Message: err.Error()}
}

// evaluate returns the attributes that have values and the faults of those that failed.
func (s *search) evaluate(ctx context.Context, v expression.Values) (found []postgres.Attribute, failed []tasker.Fault, cost int) {
	list, cost := expression.EvaluateAll(ctx, s.programs, v)
	for i, o := range list {
		a, err := newAttribute(s.names[i], s.types[i], o.Value)
		if err = cmp.Or(o.Err, err); err != nil {
			failed = append(failed, newAttributeFault(s.names[i], err))
		} else if o.Value != nil {
			found = append(found, a)
		}
	}
	return found, failed, cost
}

// findAttributes evaluates search attributes again after a step that they use has ended or the
// template version has changed. It uses its own transactions. Locked tasks are left to a later
// pass.
func (e *Engine) findAttributes(ctx context.Context, rows []tasker.StepRef) error {
	known := evaluations{expensive: &e.timers.expensive, separate: true}
	_, err := known.runBetween(ctx, rows, func(rows []tasker.StepRef) ([]tasker.StepRef, error) {
		return e.findAttributesOnce(ctx, rows, &known)
	})
	return err
}

// findAttributesOnce stores the attributes of tasks in one transaction. It returns the rows whose
// expressions must be evaluated first.
func (e *Engine) findAttributesOnce(ctx context.Context, rows []tasker.StepRef, known *evaluations) (notEvaluated []tasker.StepRef, err error) {
	type taskFaults struct {
		of     *graph
		task   tasker.ID
		failed []tasker.Fault
	}
	var skipped []taskFaults
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		skipped, notEvaluated = nil, nil
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		tasks, err := tx.TasksToFind(ctx, free)
		if err != nil {
			return err
		}
		var found postgres.TaskAttributeSet
		for _, t := range tasks {
			g, err := e.loadGraphByID(ctx, tx, t.TemplateUUID)
			if err != nil {
				return err
			}
			list, failed, err := g.search.evaluateNow(ctx, tx, t, known)
			if errors.Is(err, errNotEvaluated) {
				notEvaluated = append(notEvaluated, selectSteps([]tasker.ID{t.TaskUUID}, rows)...)
				free = slices.DeleteFunc(free, func(id tasker.ID) bool { return id == t.TaskUUID }) // remains due
				continue
			}
			if err != nil {
				return err
			}
			found.Add(t.TaskUUID, t.Namespace, list)
			skipped = append(skipped, taskFaults{g, t.TaskUUID, failed})
			for _, name := range slices.Sorted(maps.Keys(g.search.steps)) {
				found.Names = append(found.Names, postgres.TemplateStep{TemplateUUID: t.TemplateUUID, Name: name})
			}
		}
		return tx.ReplaceAttributes(ctx, selectSteps(free, rows), found)
	})
	if err != nil {
		return nil, err
	}
	for _, s := range skipped {
		e.skipAttributes(ctx, s.of, s.task, s.failed)
	}
	return notEvaluated, nil
}

// evaluateNow evaluates the attributes of a task, except those that use steps that have not ended.
func (s *search) evaluateNow(ctx context.Context, tx *postgres.Tx, t postgres.TaskAttributes, known *evaluations) (found []postgres.Attribute, failed []tasker.Fault, err error) {
	read, err := tx.ConditionValues(ctx, t.TaskUUID, slices.Sorted(maps.Keys(s.steps)), conditionBytes)
	if err != nil {
		return nil, nil, err
	}
	v := expression.Values{
		Context: read.Context, Results: map[string]json.RawMessage{},
		Task: expression.TaskValues{ID: t.TaskUUID, Priority: t.Priority, Namespace: t.Namespace, CorrelationID: t.CorrelationID},
	}
	for name, step := range read.Steps {
		if step.HasResult && step.State.Done() {
			v.Results[name] = step.Result
		}
	}
	tooLarge := read.ResultBytes > conditionBytes
	can := s.selectPrograms(func(p *expression.Program) bool {
		return !slices.ContainsFunc(p.Results(), func(name string) bool { return tooLarge || !read.Steps[name].State.Done() })
	})
	type outcome struct {
		found  []postgres.Attribute
		failed []tasker.Fault
	}
	key := evaluationKey{row: t.TaskUUID, field: "search of " + t.TemplateUUID.String(), expression: strings.Join(can.names, " ")}
	o, err := evaluateOnce(known, key, v, func(ctx context.Context) (o outcome, err error) {
		o.found, o.failed, _ = can.evaluate(ctx, v)
		return o, ctx.Err()
	})
	if tooLarge {
		o.failed = append(o.failed, newAttributeFault("results", fmt.Errorf("the results used by the attributes have %d "+
			"bytes in total: the limit is %d", read.ResultBytes, conditionBytes)))
	}
	return o.found, o.failed, err
}

// skipAttributes counts attributes that could not be evaluated and logs the first one of each
// template version.
func (e *Engine) skipAttributes(ctx context.Context, g *graph, task tasker.ID, list []tasker.Fault) {
	for _, a := range list {
		e.opts.Hooks.AttributeSkipped(ctx)
		if !g.search.warned.Swap(true) {
			e.log.WarnContext(ctx,
				"skipped an attribute of a task; further skips for this template version are only counted",
				"namespace", g.stored.Namespace, "template", g.stored.Name, "version", g.stored.Version, "task_uuid", task, "attribute", a.Path, "err", a.Message)
		}
	}
}

// newAttribute converts a value for storage. If the value is nil, the task does not have the
// attribute.
func newAttribute(name string, is tasker.AttributeType, value any) (a postgres.Attribute, err error) {
	a.Name = name
	switch v := value.(type) {
	case nil:
		return a, nil
	case bool:
		a.Text = new(strconv.FormatBool(v))
	case json.Number:
		a.Number = new(v.String())
	case time.Time:
		a.Time = &v
	case string:
		a.Text = &v
		if len(v) > tasker.MaxAttributeBytes {
			return a, fmt.Errorf("the string has %d bytes: the limit is %d", len(v), tasker.MaxAttributeBytes)
		}
		if checkText(v, len(v), false) != "" {
			return a, errors.New("the string contains NUL or is not valid UTF-8")
		}
	}
	fits := map[tasker.AttributeType]bool{
		tasker.AttributeText: hasType[string](value), tasker.AttributeBool: hasType[bool](value),
		tasker.AttributeNumber: a.Number != nil, tasker.AttributeTime: a.Time != nil,
	}
	if !fits[is] {
		return a, fmt.Errorf("the value is not of type %s", is)
	}
	return a, nil
}

func hasType[T any](value any) bool {
	_, is := value.(T)
	return is
}
