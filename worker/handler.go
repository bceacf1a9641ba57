package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// RawHandler executes a step without decoding: the input is [tasker.Assignment.Context], and it
// returns the result of the step as JSON.
type RawHandler func(ctx context.Context, c *Call) (json.RawMessage, error)

// Handle registers f as the handler called name in templates. It decodes the context of the task
// into In and encodes the value returned by f as the result of the step. If the context cannot be
// decoded, the step fails permanently with type [InvalidInput] and f is not called. If the value
// cannot be encoded, it fails permanently with type [InvalidResult] and the path of the cause.
//
// The context of f ends at the timeout of the step, when its lease is lost, and when a draining
// worker stops waiting; [context.Cause] returns which. A panic is a retryable failure.
//
// Handlers must be registered before Run. Handle panics if the name is empty or already registered.
func Handle[In, Out any](w *Worker, name string, f func(ctx context.Context, s *Step[In]) (Out, error)) {
	if f == nil {
		panic(fmt.Sprintf("worker: handler %q is nil", name))
	}
	w.HandleRaw(name, func(ctx context.Context, c *Call) (json.RawMessage, error) {
		s := &Step[In]{Call: c}
		if err := decode(c.Context, &s.Input); err != nil {
			return nil, &Error{Type: InvalidInput, Permanent: true, Err: fmt.Errorf("context of the task: %w", err)}
		}
		out, err := f(ctx, s)
		if err != nil {
			return nil, err
		}
		result, err := json.Marshal(out)
		if err != nil {
			err = locateUnencodable(out, "result", err)
			return nil, &Error{Type: InvalidResult, Permanent: true, Err: fmt.Errorf("result of handler %s: %w", name, err)}
		}
		return result, nil
	})
}

// HandleRaw registers a handler that decodes and encodes JSON itself.
func (w *Worker) HandleRaw(name string, h RawHandler) {
	switch {
	case name == "" || h == nil:
		panic(fmt.Sprintf("worker: a handler requires a name and a function, got %q", name))
	case w.handlers[name] != nil:
		panic(fmt.Sprintf("worker: handler %q is registered twice", name))
	}
	w.handlers[name] = h
}

// Execute runs the handler of one assignment like [Worker.Run] and returns the outcome to report.
// The error is that of the handler. It is meant for package workertest.
func (w *Worker) Execute(ctx context.Context, a tasker.Assignment) (tasker.Outcome, error) {
	return w.execute(ctx, newCall(ctx, w, a))
}

func (w *Worker) execute(ctx context.Context, c *Call) (tasker.Outcome, error) {
	result, err := w.callHandler(ctx, c)
	o := tasker.Outcome{Lease: c.Lease(), Metadata: c.attemptMetadata()}
	if err != nil {
		o.Failure = toFailure(ctx, err)
		return o, err
	}
	o.Success, o.Result = true, result
	return o, nil
}

// callHandler runs a handler and converts panics and invalid results to errors.
func (w *Worker) callHandler(ctx context.Context, c *Call) (result json.RawMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			result, err = nil, newPanicError(r)
		}
	}()
	h := w.handlers[c.Handler]
	if h == nil {
		return nil, &Error{Type: UnknownHandler, Err: fmt.Errorf("this worker has no handler %q", c.Handler)}
	}
	if result, err = h(ctx, c); err != nil {
		return nil, err
	}
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	if err := payload.Check(result, payload.Limits{}); err != nil {
		return nil, &Error{Type: InvalidResult, Permanent: true, Err: fmt.Errorf("the result cannot be stored: %w", err)}
	}
	return result, nil
}

// decode decodes a document that may be empty.
func decode(doc json.RawMessage, into any) error {
	if len(doc) == 0 {
		doc = json.RawMessage("{}")
	}
	return json.Unmarshal(doc, into)
}
