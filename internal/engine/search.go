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

// kinds are what the expressions of search attributes come to.
var kinds = map[tasker.AttributeType]expression.Kind{
	tasker.AttributeText: expression.Text, tasker.AttributeNumber: expression.Number, tasker.AttributeTime: expression.Timestamp, tasker.AttributeBool: expression.Bool,
}

// A search is what the tasks of a template are found by, in the order of the names.
type search struct {
	names    []string
	types    []tasker.AttributeType
	programs []*expression.Program
	steps    map[string]bool // whose results are named
	warned   atomic.Bool     // that one was left out
}

// findChunk bounds the steps in one transaction whose results are part of attributes.
const findChunk = 20

func newSearch(t tasker.Template, scope expression.Scope) (*search, error) {
	s := &search{steps: map[string]bool{}}
	names := make([]string, len(t.Steps))
	for i, step := range t.Steps {
		names[i] = step.Name
	}
	scope.Ancestors, scope.Steps, scope.Search = names, names, true
	for _, name := range slices.Sorted(maps.Keys(t.Search)) {
		a := t.Search[name]
		p, err := expression.Compile(a.From, scope, kinds[a.Type])
		if err != nil {
			return nil, within("search."+name+".from", err)
		}
		s.names, s.types, s.programs = append(s.names, name), append(s.types, a.Type), append(s.programs, p)
		for _, step := range p.Results() {
			s.steps[step] = true
		}
	}
	return s, nil
}

// of returns the part of a search whose attributes can be evaluated.
func (s *search) of(can func(*expression.Program) bool) *search {
	part := &search{}
	for i, p := range s.programs {
		if can(p) {
			part.names, part.types, part.programs = append(part.names, s.names[i]), append(part.types, s.types[i]), append(part.programs, p)
		}
	}
	return part
}

// attributes evaluates the search attributes of a new task, and returns the cost. One that has no value gives a
// warning: it never keeps a task from being created. The error is that of the context.
func (e *Engine) attributes(ctx context.Context, g *graph, t *postgres.CreatedTask) (cost int, err error) {
	if len(g.search.programs) == 0 {
		return 0, nil
	}
	now := g.search.of(func(p *expression.Program) bool { return len(p.Results()) == 0 })
	found, failed, cost := now.evaluate(ctx, expression.Values{
		Context: t.Request.Context,
		Task:    expression.TaskValues{ID: t.UUID, Priority: t.Request.Priority, Namespace: g.stored.Namespace, CorrelationID: t.Correlation},
	})
	if err := ctx.Err(); err != nil { // which says nothing about the attributes
		return cost, err
	}
	e.leaveOut(ctx, g, t.UUID, failed)
	t.Attributes, t.Warnings = found, failed
	return cost, nil
}

func faultOf(attribute string, err error) tasker.Fault {
	return tasker.Fault{Path: "search." + attribute, Message: err.Error()}
}

// evaluate returns the attributes that have a value, and why others have none.
func (s *search) evaluate(ctx context.Context, v expression.Values) (found []postgres.Attribute, failed []tasker.Fault, cost int) {
	list, cost := expression.All(ctx, s.programs, v)
	for i, o := range list {
		a, err := attribute(s.names[i], s.types[i], o.Value)
		if err = cmp.Or(o.Err, err); err != nil {
			failed = append(failed, faultOf(s.names[i], err))
		} else if o.Value != nil {
			found = append(found, a)
		}
	}
	return found, failed, cost
}

// find evaluates the search attributes of tasks again after a step that they name ended, or after a change of
// version. It takes transactions of its own, and leaves locked tasks to a later pass.
func (e *Engine) find(ctx context.Context, rows []tasker.StepRef) error {
	known := evaluations{expensive: &e.expensive, separate: true}
	_, err := known.between(ctx, rows, func(rows []tasker.StepRef) ([]tasker.StepRef, error) {
		return e.findOnce(ctx, rows, &known)
	})
	return err
}

// findOnce stores the attributes of tasks in one transaction, and returns the rows of those that must be evaluated first.
func (e *Engine) findOnce(ctx context.Context, rows []tasker.StepRef, known *evaluations) (notEvaluated []tasker.StepRef, err error) {
	type leftOut struct {
		of     *graph
		task   tasker.ID
		failed []tasker.Fault
	}
	var left []leftOut
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		left, notEvaluated = nil, nil
		free, err := tx.LockFreeTasks(ctx, tasksOfSteps(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		tasks, err := tx.TasksToFind(ctx, free)
		if err != nil {
			return err
		}
		var found postgres.TaskAttributeSet
		for _, t := range tasks {
			g, err := e.graphIn(ctx, tx, t.TemplateUUID)
			if err != nil {
				return err
			}
			list, failed, err := g.search.now(ctx, tx, t, known)
			if errors.Is(err, errNotEvaluated) {
				notEvaluated = append(notEvaluated, stepsOf([]tasker.ID{t.TaskUUID}, rows)...)
				free = slices.DeleteFunc(free, func(id tasker.ID) bool { return id == t.TaskUUID }) // it remains due
				continue
			}
			if err != nil {
				return err
			}
			found.Add(t.TaskUUID, t.Namespace, list)
			left = append(left, leftOut{g, t.TaskUUID, failed})
			for _, name := range slices.Sorted(maps.Keys(g.search.steps)) {
				found.Names = append(found.Names, postgres.TemplateStep{TemplateUUID: t.TemplateUUID, Name: name})
			}
		}
		return tx.ReplaceAttributes(ctx, stepsOf(free, rows), found)
	})
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		e.leaveOut(ctx, l.of, l.task, l.failed)
	}
	return notEvaluated, nil
}

// now evaluates the attributes of a task as it stands, without those that name a step which has not ended.
func (s *search) now(ctx context.Context, tx *postgres.Tx, t postgres.TaskAttributes, known *evaluations) (found []postgres.Attribute, failed []tasker.Fault, err error) {
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
	can := s.of(func(p *expression.Program) bool {
		return !slices.ContainsFunc(p.Results(), func(name string) bool { return tooLarge || !read.Steps[name].State.Done() })
	})
	type outcome struct {
		found  []postgres.Attribute
		failed []tasker.Fault
	}
	key := evaluationKey{row: t.TaskUUID, field: "search of " + t.TemplateUUID.String(), expression: strings.Join(can.names, " ")}
	o, err := outcomeOf(known, key, v, func(ctx context.Context) (o outcome, err error) {
		o.found, o.failed, _ = can.evaluate(ctx, v)
		return o, ctx.Err()
	})
	if tooLarge {
		o.failed = append(o.failed, faultOf("results", fmt.Errorf("the results that the attributes name have %d bytes together; %d is the limit", read.ResultBytes, conditionBytes)))
	}
	return o.found, o.failed, err
}

// leaveOut counts attributes that a task does not get, and logs the first of each version of a template.
func (e *Engine) leaveOut(ctx context.Context, g *graph, task tasker.ID, list []tasker.Fault) {
	for _, a := range list {
		e.leftOut(ctx)
		if !g.search.warned.Swap(true) {
			e.log.WarnContext(ctx, "an attribute of a task is left out; later ones of this version of the template are counted only",
				"namespace", g.stored.Namespace, "template", g.stored.Name, "version", g.stored.Version, "task_uuid", task, "attribute", a.Path, "err", a.Message)
		}
	}
}

// attribute is a value as it is stored. Null is none.
func attribute(name string, is tasker.AttributeType, value any) (a postgres.Attribute, err error) {
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
			return a, fmt.Errorf("the text has %d bytes; %d is the limit", len(v), tasker.MaxAttributeBytes)
		}
		if textFault(v, len(v), false) != "" {
			return a, errors.New("the text cannot be stored")
		}
	}
	fits := map[tasker.AttributeType]bool{
		tasker.AttributeText: isA[string](value), tasker.AttributeBool: isA[bool](value),
		tasker.AttributeNumber: a.Number != nil, tasker.AttributeTime: a.Time != nil,
	}
	if !fits[is] {
		return a, fmt.Errorf("the value is not of the type %s", is)
	}
	return a, nil
}

func isA[T any](value any) bool {
	_, is := value.(T)
	return is
}
