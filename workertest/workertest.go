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

// Step contains the inputs of a handler. JSON is text (string, []byte, [json.RawMessage]) or any
// value to encode.
type Step struct {
	Context           any
	DependencyResults map[string]any // by step name; nil for a step without a result
	Initialization    any
	Attempt           int           // default 1
	MaxAttempts       int           // default 3
	Timeout           time.Duration // default none
	Name              string        // default: the name of the handler
	Item              any           // element of an item of a map step; nil for other steps
	Index             int           // of the item

	Checkpoint   any                         // latest checkpoint of an earlier attempt, or nil
	OnCheckpoint func(value json.RawMessage) // called with each saved checkpoint
}

func (s Step) context(ctx context.Context) context.Context {
	if s.OnCheckpoint == nil {
		return ctx
	}
	return worker.WithCheckpoints(ctx, func(value json.RawMessage) error {
		s.OnCheckpoint(value)
		return nil
	})
}

// Run calls a handler and returns its result as dependents receive it, or its error. [FailureOf]
// returns the failure that would be reported.
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
		return nil, &handlerError{failure: *o.Failure, err: err}
	}
	return o.Result, nil
}

// Result calls [Run] and decodes the result. The test fails if the handler returns an error.
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
		CorrelationID: "test", Context: encodeDocument(t, "Context", s.Context),
		Initialization:    encodeDocument(t, "Initialization", s.Initialization),
		DependencyResults: make(map[string]json.RawMessage, len(s.DependencyResults)),
	}
	if a.Checkpoint = encodeDocument(t, "Checkpoint", s.Checkpoint); s.Item != nil {
		a.Item, a.Index = encodeDocument(t, "Item", s.Item), &s.Index
	}
	if a.Name == "" {
		a.Name = handler
	}
	if a.MaxAttempts == 0 {
		a.MaxAttempts = max(a.Attempt, 3)
	}
	for name, result := range s.DependencyResults {
		a.DependencyResults[name] = encodeDocument(t, "DependencyResults["+name+"]", result)
	}
	return a
}

// encodeDocument returns JSON text unchanged and encodes any other value.
func encodeDocument(t testing.TB, field string, v any) json.RawMessage {
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
