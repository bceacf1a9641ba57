package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
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
	warned   atomic.Bool // that one was left out
}

func newSearch(t tasker.Template) (*search, error) {
	s := &search{}
	for _, name := range slices.Sorted(maps.Keys(t.Search)) {
		a := t.Search[name]
		p, err := expression.Compile(a.From, expression.Scope{Input: t.InputSchema, OnlyContext: true}, kinds[a.Type])
		if err != nil {
			return nil, within("search."+name+".from", err)
		}
		s.names, s.types, s.programs = append(s.names, name), append(s.types, a.Type), append(s.programs, p)
	}
	return s, nil
}

// attributes returns what a new task is found by as its template says, and what it cost to
// evaluate that. What cannot be evaluated is left out: it never keeps a task from being created.
// The error is that of the context.
func (e *Engine) attributes(ctx context.Context, g *graph, t *postgres.CreatedTask) (list []postgres.Attribute, cost int, err error) {
	if len(g.search.programs) == 0 {
		return nil, 0, nil
	}
	found, cost := expression.All(ctx, g.search.programs, expression.Values{
		Context: t.Request.Context,
		Task:    expression.TaskValues{ID: t.UUID, Priority: t.Request.Priority, Namespace: g.stored.Namespace, CorrelationID: t.Correlation},
	})
	if err := ctx.Err(); err != nil { // which says nothing about the attributes
		return nil, cost, err
	}
	for i, o := range found {
		a, err := attribute(g.search.names[i], g.search.types[i], o.Value)
		if err = cmp.Or(o.Err, err); err != nil {
			e.leaveOut(ctx, g, g.search.names[i], err)
		} else if o.Value != nil {
			list = append(list, a)
		}
	}
	return list, cost, nil
}

// leaveOut counts an attribute that a task does not get, and says once for each version of a
// template why.
func (e *Engine) leaveOut(ctx context.Context, g *graph, name string, err error) {
	e.leftOut(ctx)
	if !g.search.warned.Swap(true) {
		e.log.WarnContext(ctx, "an attribute of a task is left out; later ones of this version of the template are counted only",
			"namespace", g.stored.Namespace, "template", g.stored.Name, "version", g.stored.Version, "attribute", name, "err", err)
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
	case float64:
		a.Number = new(strconv.FormatFloat(v, 'g', -1, 64))
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return a, errors.New("the number is not finite")
		}
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
