package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	var b backoff
	for try := 1; ; try++ {
		doc, err := c.backend.StepResult(ctx, c.TaskUUID, ref.StepUUID)
		switch {
		case err == nil:
			c.fetched.put(name, doc)
			return doc, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("fetch the result of step %s: %w", name, context.Cause(ctx))
		case refused(err) || forgotten(err, c.TaskUUID):
			return nil, invalidInput("result of step %s (%d bytes) cannot be fetched: %w", name, ref.Bytes, err)
		case try == fetchTries || !b.rest(ctx, err):
			return nil, &Error{Type: InputUnavailable, Err: fmt.Errorf("result of step %s (%d bytes) cannot be fetched: %w", name, ref.Bytes, err)}
		}
		c.Log.WarnContext(ctx, "cannot fetch a result, trying again", "of", name, "err", err)
	}
}
