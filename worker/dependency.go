package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"tasker.example/tasker"
)

// ErrNoResult is why [Call.Dependency] has nothing to decode: the step left no
// result, because an operator resolved it without one or because its handler
// returned none.
var ErrNoResult = errors.New("the step has no result")

// A Dependency is a step that this one depends on.
type Dependency struct {
	Name   string
	Bytes  int64 // of its result
	Inline bool  // the result came with the step; otherwise it is fetched when it is asked for
}

// Dependencies lists the steps that this one depends on, by name.
func (c *Call) Dependencies() []Dependency {
	list := make([]Dependency, 0, len(c.DependencyResults)+len(c.DependencyRefs))
	for _, name := range c.dependencyNames() {
		d := Dependency{Name: name, Inline: true, Bytes: int64(len(c.DependencyResults[name]))}
		if ref, ok := c.DependencyRefs[name]; ok {
			d.Inline, d.Bytes = false, ref.Bytes
		}
		list = append(list, d)
	}
	return list
}

func (c *Call) dependencyNames() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(c.DependencyResults)), maps.Keys(c.DependencyRefs))
	slices.Sort(names)
	return slices.Compact(names)
}

// Dependency decodes the result of a step that this one depends on, by that step's
// name. A result that did not come with the step, because there are too many bytes of
// them, is fetched. A handler may return its errors as they are: they are permanent,
// unless the backend could not be reached. To go on without a result, look for
// [ErrNoResult].
func (c *Call) Dependency(name string, into any) error {
	doc, err := c.DependencyRaw(c.ctx, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(doc, into); err != nil {
		return invalidInput("result of step %s: %w", name, err)
	}
	return nil
}

// DependencyRaw is [Call.Dependency] without any decoding, for as long as ctx lasts.
func (c *Call) DependencyRaw(ctx context.Context, name string) (json.RawMessage, error) {
	doc, ok := c.DependencyResults[name]
	if ref, referenced := c.DependencyRefs[name]; referenced && !ok {
		var err error
		if doc, err = c.fetch(ctx, name, ref); err != nil {
			return nil, err
		}
	} else if !ok {
		known := "it depends on nothing"
		if names := c.dependencyNames(); len(names) > 0 {
			known = "it depends on " + strings.Join(names, ", ")
		}
		return nil, invalidInput("step %s does not depend on %q: %s", c.Name, name, known)
	}
	if len(doc) == 0 || string(doc) == "null" {
		return nil, invalidInput("result of step %s: %w", name, ErrNoResult)
	}
	return doc, nil
}

// An itemReader is a [Backend] that has the results of items of map steps.
type itemReader interface {
	ItemResults(ctx context.Context, task tasker.ID, step string, from int) (tasker.ItemResults, error)
}

// ItemResults gives the results of the items of a step of type map that this one depends on, by that
// step's name, in the order of its list: null of an item that has none. Results that have too many
// bytes to be the result of their step are fetched, page by page. The errors are those of
// [Call.Dependency]; the first one is the last that is given.
func (c *Call) ItemResults(name string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		var of struct {
			Results   []json.RawMessage `json:"results"`
			Truncated bool              `json:"results_truncated"`
		}
		err := c.Dependency(name, &of)
		page := tasker.ItemResults{Results: of.Results}
		if err == nil && of.Truncated {
			page, err = c.itemResults(name, 0)
		}
		for {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, doc := range page.Results {
				if !yield(doc, nil) {
					return
				}
			}
			if page.Next == 0 {
				return
			}
			page, err = c.itemResults(name, page.Next)
		}
	}
}

// itemResults fetches a page of results of items. The error is as that of fetch.
func (c *Call) itemResults(name string, from int) (page tasker.ItemResults, err error) {
	backend, ok := c.documents().(itemReader)
	if !ok {
		return page, invalidInput("the results of the items of step %s are a reference, and this worker has no backend to read them from", name)
	}
	err = c.try(c.ctx, fmt.Sprintf("results of the items of step %s from %d", name, from), func(ctx context.Context) error {
		page, err = backend.ItemResults(ctx, c.TaskUUID, name, from)
		return err
	})
	return page, err
}

// Documents has what an assignment names and does not carry, beside results.
type Documents interface {
	itemReader
	contextReader
}

type documentsKey struct{}

// WithDocuments has [Worker.Execute] of a worker without a backend read from there what an assignment
// does not carry, for tests of workflows; see package taskertest.
func WithDocuments(ctx context.Context, from Documents) context.Context {
	return context.WithValue(ctx, documentsKey{}, from)
}

// documents is where the documents of [Documents] are read from.
func (c *Call) documents() any {
	if c.backend != nil {
		return c.backend
	}
	return c.ctx.Value(documentsKey{})
}

// A contextReader is a [Backend] that has the contexts of tasks.
type contextReader interface {
	TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error)
}

// TaskContext decodes the whole context of the task. That of an item of a step of type map comes without
// the list that the items are made of, as ContextOmitted says, and is fetched here. The errors are
// those of [Call.Dependency].
func (c *Call) TaskContext(into any) error {
	doc := c.Context
	if len(c.ContextOmitted) > 0 {
		backend, ok := c.documents().(contextReader)
		if !ok {
			return invalidInput("the context of the task comes without %s, and this worker has no backend to read it from", strings.Join(c.ContextOmitted, ", "))
		}
		err := c.try(c.ctx, "context of the task", func(ctx context.Context) (err error) {
			doc, err = backend.TaskContext(ctx, c.TaskUUID)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := decode(doc, into); err != nil {
		return invalidInput("context of the task: %w", err)
	}
	return nil
}

// fetched are results that were fetched. Those that exceed what a claim may carry are
// fetched again when they are asked for again: a handler that goes through a thousand
// of them does not hold them all.
type fetched struct {
	mu    sync.Mutex
	docs  map[string]json.RawMessage
	bytes int
}

func (f *fetched) get(name string) (json.RawMessage, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	doc, ok := f.docs[name]
	return doc, ok
}

func (f *fetched) put(name string, doc json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.docs[name]; ok || f.bytes+len(doc) > tasker.MaxClaimBytes {
		return
	}
	if f.docs == nil {
		f.docs = map[string]json.RawMessage{}
	}
	f.docs[name] = doc
	f.bytes += len(doc)
}

// fetchTries is how often a result is asked for while the backend cannot be reached.
const fetchTries = 5

// fetch reads a result from the backend. The error is permanent when the backend says
// that there is none, or that it is too large; else the attempt may be tried again.
func (c *Call) fetch(ctx context.Context, name string, ref tasker.ResultRef) (json.RawMessage, error) {
	if doc, ok := c.fetched.get(name); ok {
		return doc, nil
	}
	if c.backend == nil {
		return nil, invalidInput("result of step %s is a reference, and this worker has no backend to read it from", name)
	}
	var doc json.RawMessage
	err := c.try(ctx, fmt.Sprintf("result of step %s (%d bytes)", name, ref.Bytes), func(ctx context.Context) (err error) {
		doc, err = c.backend.StepResult(ctx, c.TaskUUID, ref.StepUUID)
		return err
	})
	if err == nil {
		c.fetched.put(name, doc)
	}
	return doc, err
}

// try fetches what a handler asks for, again while the backend cannot be reached. The error is that
// of fetch.
func (c *Call) try(ctx context.Context, what string, fetch func(context.Context) error) error {
	var b backoff
	for try := 1; ; try++ {
		err := fetch(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("fetch the %s: %w", what, context.Cause(ctx))
		case refused(err) || isUnknownWorker(err, c.TaskUUID):
			return invalidInput("%s cannot be fetched: %w", what, err)
		case try == fetchTries || !b.rest(ctx, err):
			return &Error{Type: InputUnavailable, Err: fmt.Errorf("%s cannot be fetched: %w", what, err)}
		}
		c.Log.WarnContext(ctx, "cannot fetch what a step depends on, trying again", "of", what, "err", err)
	}
}
