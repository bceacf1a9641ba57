// Package workertest calls worker handlers without a server, with the same decoding, encoding and
// checks as in production.
//
//	result, err := workertest.Run(t, w, "charge_card", workertest.Step{
//		Context:           `{"amount_cents": 1200}`,
//		DependencyResults: map[string]any{"validate_order": Validated{Total: 1200}},
//	})
package workertest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// A Step is what a handler is called with. Its JSON may be given as text
// (string, []byte, [json.RawMessage]) or as any value to encode.
type Step struct {
	Context           any
	DependencyResults map[string]any // by name of the step; nil for a step without a result
	Initialization    any
	Attempt           int           // the first by default
	MaxAttempts       int           // 3 by default
	Timeout           time.Duration // none by default
	Name              string        // of the step; the handler's by default
	Item              any           // the element that an item of a map step is for; nil: it is no item
	Index             int           // its place in the list

	Checkpoint   any                         // what an attempt before saved last; nil: nothing
	OnCheckpoint func(value json.RawMessage) // is told what the handler saves
}

// context returns the context of the handler.
func (s Step) context(ctx context.Context) context.Context {
	if s.OnCheckpoint == nil {
		return ctx
	}
	return worker.WithCheckpoints(ctx, func(value json.RawMessage) error {
		s.OnCheckpoint(value)
		return nil
	})
}

// Run calls the handler of that name and returns the result as later steps would
// receive it, or the handler's error. What the engine would make of the error,
// [FailureOf] tells.
func Run(t testing.TB, w *worker.Worker, handler string, s Step) (json.RawMessage, error) {
	t.Helper()
	ctx := t.Context()
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	return execute(s.context(ctx), w, s.assignment(t, handler))
}

func execute(ctx context.Context, w *worker.Worker, a tasker.Assignment) (json.RawMessage, error) {
	o, err := w.Execute(ctx, a)
	if err != nil {
		return nil, &failed{failure: *o.Failure, err: err}
	}
	return o.Result, nil
}

// Result calls [Run], expects a success and decodes its result.
func Result[Out any](t testing.TB, w *worker.Worker, handler string, s Step) Out {
	t.Helper()
	var out Out
	doc, err := Run(t, w, handler, s)
	if err != nil {
		t.Fatalf("handler %s failed: %v", handler, err)
	}
	if err := json.Unmarshal(doc, &out); err != nil {
		t.Fatalf("result of handler %s: %v: %s", handler, err, doc)
	}
	return out
}

func (s Step) assignment(t testing.TB, handler string) tasker.Assignment {
	t.Helper()
	a := tasker.Assignment{
		StepUUID: tasker.NewID(), TaskUUID: tasker.NewID(), Namespace: "test", TaskName: "test", TaskVersion: "1.0.0",
		Name: s.Name, Handler: handler, Attempt: max(s.Attempt, 1), MaxAttempts: s.MaxAttempts, Fence: 1,
		CorrelationID: "test", Context: document(t, "Context", s.Context),
		Initialization:    document(t, "Initialization", s.Initialization),
		DependencyResults: make(map[string]json.RawMessage, len(s.DependencyResults)),
	}
	if a.Checkpoint = document(t, "Checkpoint", s.Checkpoint); s.Item != nil {
		a.Item, a.Index = document(t, "Item", s.Item), &s.Index
	}
	if a.Name == "" {
		a.Name = handler
	}
	if a.MaxAttempts == 0 {
		a.MaxAttempts = max(a.Attempt, 3)
	}
	for name, result := range s.DependencyResults {
		a.DependencyResults[name] = document(t, "DependencyResults["+name+"]", result)
	}
	return a
}

// document takes JSON as it is and encodes everything else. The test fails on
// what is neither.
func document(t testing.TB, field string, v any) json.RawMessage {
	t.Helper()
	var doc []byte
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		doc = []byte(v)
	case []byte:
		doc = v
	case json.RawMessage:
		doc = v
	default:
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%s cannot be encoded: %v", field, err)
		}
		return encoded
	}
	if !json.Valid(doc) {
		t.Fatalf("%s is not JSON: %s", field, doc)
	}
	return doc
}
