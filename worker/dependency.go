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

// ErrNoResult is returned by [Call.Dependency] for a step without a result: an operator resolved
// it without one, or its handler returned none.
var ErrNoResult = errors.New("the step has no result")

// Dependency describes a dependency of the step.
type Dependency struct {
	Name   string
	Bytes  int64 // size of the result
	Inline bool  // false if the result is fetched on demand
}

// Dependencies lists the dependencies of the step by name.
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

// Dependency decodes the result of a dependency. It fetches a result that the assignment does not
// carry inline. Handlers may return its errors directly: they are permanent, unless the backend
// is unreachable. Check for [ErrNoResult] to continue without a result.
func (c *Call) Dependency(name string, into any) error {
	doc, err := c.DependencyRaw(c.ctx, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(doc, into); err != nil {
		return newInvalidInputError("result of step %s: %w", name, err)
	}
	return nil
}

// DependencyRaw is like [Call.Dependency] without decoding.
func (c *Call) DependencyRaw(ctx context.Context, name string) (json.RawMessage, error) {
	doc, ok := c.DependencyResults[name]
	if ref, referenced := c.DependencyRefs[name]; referenced && !ok {
		var err error
		if doc, err = c.fetch(ctx, name, ref); err != nil {
			return nil, err
		}
	} else if !ok {
		known := "it has no dependencies"
		if names := c.dependencyNames(); len(names) > 0 {
			known = "it depends on " + strings.Join(names, ", ")
		}
		return nil, newInvalidInputError("step %s does not depend on %q: %s", c.Name, name, known)
	}
	if len(doc) == 0 || string(doc) == "null" {
		return nil, newInvalidInputError("result of step %s: %w", name, ErrNoResult)
	}
	return doc, nil
}

// itemReader is implemented by a [Backend] that can return the item results of a map step.
type itemReader interface {
	ItemResults(ctx context.Context, task tasker.ID, step string, from int) (tasker.ItemResults, error)
}

// ItemResults yields the item results of a map step that is a dependency, in the order of its list,
// with null for an item without a result. If they are too large to be part of the step's result, it
// fetches them page by page. It ends after the first error; it returns the errors of [Call.Dependency].
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

// itemResults fetches a page of item results. It returns the errors of fetch.
func (c *Call) itemResults(name string, from int) (page tasker.ItemResults, err error) {
	backend, ok := c.documentSource().(itemReader)
	if !ok {
		return page, newInvalidInputError("the item results of step %s are a reference, but this worker has no backend to "+
			"read them from", name)
	}
	err = c.fetchWithRetry(c.ctx, fmt.Sprintf("results of the items of step %s from %d", name, from), func(ctx context.Context) error {
		page, err = backend.ItemResults(ctx, c.TaskUUID, name, from)
		return err
	})
	return page, err
}

// Documents provides documents that an assignment references but does not contain: the item
// results of a map step and the whole context of a task.
type Documents interface {
	itemReader
	contextReader
}

type documentsKey struct{}

// WithDocuments sets the source of referenced documents for [Worker.Execute] of a worker without
// a backend. It is meant for package taskertest.
func WithDocuments(ctx context.Context, from Documents) context.Context {
	return context.WithValue(ctx, documentsKey{}, from)
}

// documentSource returns the source of [Documents].
func (c *Call) documentSource() any {
	if c.backend != nil {
		return c.backend
	}
	return c.ctx.Value(documentsKey{})
}

// contextReader is implemented by a [Backend] that can return the whole context of a task.
type contextReader interface {
	TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error)
}

// TaskContext decodes the whole context of the task. If the assignment omits parts of it, as
// listed in ContextOmitted, it fetches the context. It returns the errors of [Call.Dependency].
func (c *Call) TaskContext(into any) error {
	doc := c.Context
	if len(c.ContextOmitted) > 0 {
		backend, ok := c.documentSource().(contextReader)
		if !ok {
			return newInvalidInputError("the task context lacks %s, and this worker has no backend to read "+
				"it from", strings.Join(c.ContextOmitted, ", "))
		}
		err := c.fetchWithRetry(c.ctx, "context of the task", func(ctx context.Context) (err error) {
			doc, err = backend.TaskContext(ctx, c.TaskUUID)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := decode(doc, into); err != nil {
		return newInvalidInputError("context of the task: %w", err)
	}
	return nil
}

// documentCache caches fetched results up to the maximum size of a claim. Further results are fetched
// again on each access, so that a handler with a thousand of them does not hold them all in memory.
type documentCache struct {
	mu    sync.Mutex
	docs  map[string]json.RawMessage
	bytes int
}

func (f *documentCache) get(name string) (json.RawMessage, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	doc, ok := f.docs[name]
	return doc, ok
}

func (f *documentCache) put(name string, doc json.RawMessage) {
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

// maxFetchAttempts limits the attempts to fetch a document.
const maxFetchAttempts = 5

// fetch reads a result from the backend. The error is permanent if the result does not exist or
// is too large.
func (c *Call) fetch(ctx context.Context, name string, ref tasker.ResultRef) (json.RawMessage, error) {
	if doc, ok := c.fetched.get(name); ok {
		return doc, nil
	}
	if c.backend == nil {
		return nil, newInvalidInputError("the result of step %s is a reference, but this worker has no backend to read "+
			"it from", name)
	}
	var doc json.RawMessage
	err := c.fetchWithRetry(ctx, fmt.Sprintf("result of step %s (%d bytes)", name, ref.Bytes),
		func(ctx context.Context) (err error) {
			doc, err = c.backend.StepResult(ctx, c.TaskUUID, ref.StepUUID)
			return err
		})
	if err == nil {
		c.fetched.put(name, doc)
	}
	return doc, err
}

// fetchWithRetry calls fetch and retries while the backend is unreachable. It returns the errors of fetch.
func (c *Call) fetchWithRetry(ctx context.Context, what string, fetch func(context.Context) error) error {
	var b backoff
	for try := 1; ; try++ {
		err := fetch(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("fetch the %s: %w", what, context.Cause(ctx))
		case isRejected(err) || isUnknownWorker(err, c.TaskUUID):
			return newInvalidInputError("cannot fetch %s: %w", what, err)
		case try == maxFetchAttempts || !b.sleep(ctx, err):
			return &Error{Type: InputUnavailable, Err: fmt.Errorf("cannot fetch %s: %w", what, err)}
		}
		c.Log.WarnContext(ctx, "cannot fetch the inputs of a step, retrying", "of", what, "err", err)
	}
}
