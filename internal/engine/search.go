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

// find evaluates anew what tasks are found by, of which a step has come to a result that is part
// of it, or whose version was changed. It takes a transaction of its own, after that of the
// report. A task that somebody works on is left to a later pass.
func (e *Engine) find(ctx context.Context, rows []tasker.StepRef) error {
	type leftOut struct {
		of     *graph
		task   tasker.ID
		failed []tasker.Fault
	}
	var left []leftOut
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		left = nil
		free, err := tx.LockFreeTasks(ctx, tasksOfSteps(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		tasks, err := tx.TasksToFind(ctx, free)
		if err != nil {
			return err
		}
		var found postgres.FoundTasks
		begun := time.Now()
		for i, t := range tasks {
			g, err := e.graphIn(ctx, tx, t.TemplateUUID)
			if err != nil {
				return err
			}
			if i > 0 && time.Since(begun) > decideTime { // the rest remains due
				free = slices.DeleteFunc(free, func(id tasker.ID) bool {
					return slices.ContainsFunc(tasks[i:], func(t postgres.TaskToFind) bool { return t.TaskUUID == id })
				})
				break
			}
			list, failed, err := g.search.now(ctx, tx, t)
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
		return err
	}
	for _, l := range left {
		e.leaveOut(ctx, l.of, l.task, l.failed)
	}
	return nil
}

// now evaluates the attributes of a task as it stands. One that names a step which has not come
// to its end is none yet.
func (s *search) now(ctx context.Context, tx *postgres.Tx, t postgres.TaskToFind) (found []postgres.Attribute, failed []tasker.Fault, err error) {
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
	found, failed, _ = can.evaluate(ctx, v)
	if tooLarge {
		failed = append(failed, faultOf("results", fmt.Errorf("the results that the attributes name have %d bytes together; %d is the limit", read.ResultBytes, conditionBytes)))
	}
	return found, failed, ctx.Err()
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
