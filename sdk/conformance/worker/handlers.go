package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"tasker.example/tasker/worker"
)

// input is the context of a task of the suite, with all keys that handlers use.
type input struct {
	MS      int    `json:"ms"`
	Message string `json:"message"`
	Type    string `json:"type"`
	Bytes   int    `json:"bytes"`
	Of      string `json:"of"`
	Text    string `json:"text"`
}

// object is a JSON object.
type object = map[string]any

// register registers all handlers of the suite.
func register(w *worker.Worker) {
	w.HandleRaw("echo", echo)
	worker.Handle(w, "item", func(_ context.Context, s *worker.Step[object]) (object, error) {
		return object{"item": s.Item, "index": s.Index}, nil
	})
	handle(w, "sleep", sleep)
	handle(w, "block", func(_ context.Context, _ *worker.Call, in input) (any, error) {
		time.Sleep(time.Duration(in.MS) * time.Millisecond) //nolint:forbidigo // the handler must not react to its context
		return object{"blocked_ms": in.MS}, nil
	})
	handle(w, "fail", func(_ context.Context, _ *worker.Call, in input) (any, error) {
		return nil, failure(in)
	})
	handle(w, "fail_permanent", func(_ context.Context, _ *worker.Call, in input) (any, error) {
		return nil, worker.Permanent(failure(in))
	})
	handle(w, "retry_after", func(_ context.Context, _ *worker.Call, in input) (any, error) {
		return nil, worker.RetryAfter(time.Duration(in.MS)*time.Millisecond, failure(in))
	})
	handle(w, "panic", func(_ context.Context, c *worker.Call, _ input) (any, error) {
		return c.Metadata["nothing"].(string), nil // panics
	})
	handle(w, "bad_result", func(context.Context, *worker.Call, input) (any, error) {
		return object{"items": []any{object{"when": "now"}, object{"when": func() {}}}}, nil
	})
	handle(w, "nan_result", func(context.Context, *worker.Call, input) (any, error) {
		return object{"value": math.NaN()}, nil
	})
	worker.Handle(w, "typed", func(_ context.Context, s *worker.Step[payment]) (object, error) {
		return object{"amount": s.Input.Amount}, nil
	})
	handle(w, "big", func(_ context.Context, _ *worker.Call, in input) (any, error) {
		return object{"data": strings.Repeat("x", in.Bytes)}, nil
	})
	handle(w, "checkpoint", checkpoint)
	handle(w, "result_of", func(_ context.Context, c *worker.Call, in input) (any, error) {
		var value json.RawMessage
		err := c.Dependency(in.Of, &value)
		return object{"value": value}, err
	})
	handle(w, "unicode", func(_ context.Context, _ *worker.Call, in input) (any, error) {
		return object{"text": in.Text, "length": utf8.RuneCountInString(in.Text)}, nil
	})
	handle(w, "context_of", func(_ context.Context, c *worker.Call, _ input) (any, error) {
		var whole object
		err := c.TaskContext(&whole)
		return object{"keys": slices.Sorted(maps.Keys(whole))}, err
	})
}

type payment struct {
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
}

// handle registers a handler. The initialization of the step overrides keys of the context.
func handle(w *worker.Worker, name string, f func(ctx context.Context, c *worker.Call, in input) (any, error)) {
	worker.Handle(w, name, func(ctx context.Context, s *worker.Step[input]) (any, error) {
		if err := s.Init(&s.Input); err != nil {
			return nil, err
		}
		return f(ctx, s.Call, s.Input)
	})
}

func failure(in input) error {
	return &worker.Error{Type: cmp.Or(in.Type, "Boom"), Err: errors.New(in.Message)}
}

func echo(_ context.Context, c *worker.Call) (json.RawMessage, error) {
	results := map[string]json.RawMessage{}
	for _, d := range c.Dependencies() {
		var value json.RawMessage
		if err := c.Dependency(d.Name, &value); err != nil && !errors.Is(err, worker.ErrNoResult) {
			return nil, err
		}
		results[d.Name] = value
	}
	return json.Marshal(object{
		"context": c.Context, "initialization": c.Initialization, "results": results, "attempt": c.Attempt,
		"task_uuid": c.TaskUUID, "step_uuid": c.StepUUID,
	})
}

func sleep(ctx context.Context, _ *worker.Call, in input) (any, error) {
	select {
	case <-time.After(time.Duration(in.MS) * time.Millisecond):
		return object{"slept_ms": in.MS}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// checkpoint advances by one row with each attempt, until row 3.
func checkpoint(ctx context.Context, c *worker.Call, _ input) (any, error) {
	var last struct {
		Row int `json:"row"`
	}
	if _, err := c.LastCheckpoint(&last); err != nil {
		return nil, err
	}
	last.Row++
	if err := c.SaveCheckpoint(ctx, last); err != nil {
		return nil, err
	}
	if last.Row < 3 {
		return nil, fmt.Errorf("at row %d", last.Row)
	}
	return last, nil
}
