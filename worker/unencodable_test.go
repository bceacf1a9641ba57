package worker_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/worker"
)

// brokenJSON cannot be encoded, by its own method.
type brokenJSON struct{}

func (brokenJSON) MarshalJSON() ([]byte, error) { return []byte("{"), nil }

func TestResultsThatCannotBeEncodedNameTheValue(t *testing.T) {
	type line struct {
		When   any `json:"when,omitempty"`
		Amount float64
		hidden func()
	}
	cycle := map[string]any{}
	cycle["self"] = cycle
	for name, tt := range map[string]struct {
		result any
		want   string
	}{
		"a function in a list":  {map[string]any{"items": []any{1, map[string]any{"when": func() {}}}}, "result.items[1].when: json: unsupported type: func()"},
		"a field with a tag":    {[]line{{When: time.Now()}, {When: make(chan int)}}, "result[1].when: json: unsupported type: chan int"},
		"a field without a tag": {&line{Amount: math.NaN(), hidden: func() {}}, "result.Amount: json: unsupported value: NaN"},
		"the result itself":     {math.Inf(1), "result: json: unsupported value: +Inf"},
		"its own encoding":      {map[string]any{"a": 1, "b": brokenJSON{}}, "result.b: json: error calling MarshalJSON"},
		"a cycle":               {cycle, "result.self.self"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worker.New(nil, worker.Options{})
			worker.Handle(w, "run", func(context.Context, *worker.Step[any]) (any, error) { return tt.result, nil })
			o, _ := w.Execute(t.Context(), step("run"))
			if o.Success || o.Failure.Retryable || o.Failure.Type != worker.InvalidResult || !strings.Contains(o.Failure.Message, tt.want) {
				t.Errorf("outcome %v, failure %+v, want a permanent one with %q", o.Success, o.Failure, tt.want)
			}
		})
	}
}
