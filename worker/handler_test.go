package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"

	"github.com/google/go-cmp/cmp"
)

type order struct {
	Number int `json:"number"`
}

type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic("boom") }

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

type brokenError struct{ cause *error }

func (*brokenError) Error() string { return "broken" }

func (e *brokenError) Unwrap() error { return *e.cause }

// TestOutcomes has a row for each way in which a handler can end.
func TestOutcomes(t *testing.T) {
	cause := errors.New("gateway timeout")
	for _, tt := range []struct {
		name    string
		context string
		f       func(ctx context.Context, s *worker.Step[order]) (any, error)
		want    tasker.Failure // without its context
		result  string         // of a success
	}{
		{name: "a result", context: `{"number": 7}`, result: `{"is":7}`,
			f: func(_ context.Context, s *worker.Step[order]) (any, error) {
				return map[string]int{"is": s.Input.Number}, nil
			}},
		{name: "no result", result: `null`,
			f: func(context.Context, *worker.Step[order]) (any, error) { return nil, nil }},
		{name: "a plain error", want: tasker.Failure{Message: "gateway timeout", Type: "error", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) { return nil, cause }},
		{name: "an error with what the database cannot keep", want: tasker.Failure{Message: "a\nb", Type: "error", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) { return nil, errors.New("a\x00\n\x1bb") }},
		{name: "a permanent error", want: tasker.Failure{Message: "gateway timeout", Type: "error"},
			f: func(context.Context, *worker.Step[order]) (any, error) { return nil, worker.Permanent(cause) }},
		{name: "a permanent error, wrapped", want: tasker.Failure{Message: "charge: gateway timeout", Type: "error"},
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return nil, fmt.Errorf("charge: %w", worker.Permanent(cause))
			}},
		{name: "retry after", want: tasker.Failure{Message: "gateway timeout", Type: "error", Retryable: true, RetryAfter: time.Minute},
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return nil, worker.RetryAfter(time.Minute, cause)
			}},
		{name: "retry after a negative time", want: tasker.Failure{Message: "gateway timeout", Type: "error", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) { return nil, worker.RetryAfter(-1, cause) }},
		{name: "a typed error", want: tasker.Failure{Message: "gateway timeout", Type: "card_declined"},
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return nil, worker.Permanent(&worker.Error{Type: "card_declined", Err: cause})
			}},
		{name: "a typed error without a cause", want: tasker.Failure{Message: "card_declined", Type: "card_declined", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return nil, &worker.Error{Type: "card_declined"}
			}},
		{name: "a fingerprint", want: tasker.Failure{Message: "gateway timeout", Type: "error", Fingerprint: "outage"},
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return nil, worker.Permanent(worker.WithFingerprint("outage", cause))
			}},
		{name: "marks on no error", result: `1`,
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return 1, errors.Join(worker.Permanent(nil), worker.RetryAfter(1, nil), worker.WithFingerprint("x", nil))
			}},
		{name: "an error that panics", want: tasker.Failure{
			Message: "an error of type *worker_test.nilError whose Error method panicked", Type: "error", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) { return nil, (*nilError)(nil) }},
		{name: "a nil pointer of type Error", want: tasker.Failure{
			Message: "an error of type *worker.Error whose Error method panicked", Type: "error", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) { return nil, (*worker.Error)(nil) }},
		{name: "a permanent error around a nil pointer of type Error", want: tasker.Failure{
			Message: "an error of type *worker.Error whose Error method panicked", Type: "error"},
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return nil, worker.Permanent((*worker.Error)(nil))
			}},
		{name: "an error whose cause panics", want: tasker.Failure{Message: "broken", Type: "error", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) { return nil, &brokenError{} }},
		{name: "a permanent error whose cause panics", want: tasker.Failure{Message: "broken", Type: "error"},
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return nil, worker.Permanent(&brokenError{})
			}},
		{name: "a panic", want: tasker.Failure{Message: "the handler panicked: out of paper", Type: "panic", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) { panic("out of paper") }},
		{name: "context that does not fit", context: `{"number": "seven"}`, want: tasker.Failure{
			Message: "context of the task: json: cannot unmarshal string into Go struct field order.number of type int",
			Type:    "invalid_input"},
			f: func(context.Context, *worker.Step[order]) (any, error) { panic("not reached") }},
		{name: "a result that is not JSON", want: tasker.Failure{
			Message: "result of handler h: result: json: unsupported value: +Inf", Type: "invalid_result"},
			f: func(context.Context, *worker.Step[order]) (any, error) { return math.Inf(1), nil }},
		{name: "a result that panics", want: tasker.Failure{Message: "the handler panicked: boom", Type: "panic", Retryable: true},
			f: func(context.Context, *worker.Step[order]) (any, error) { return explosive{}, nil }},
		{name: "a result that cannot be stored", want: tasker.Failure{
			Message: `the result cannot be stored: text: the string has a NUL (\u0000), which cannot be stored (line 1, column 10)`,
			Type:    "invalid_result"},
			f: func(context.Context, *worker.Step[order]) (any, error) {
				return map[string]string{"text": "\x00"}, nil
			}},
		{name: "a result that is too large", want: tasker.Failure{
			Message: "the result cannot be stored: the document has 1048579 bytes in the database's encoding; the limit is 1048576", Type: "invalid_result"},
			f: func(context.Context, *worker.Step[order]) (any, error) { return strings.Repeat("x", 1<<20+1), nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := worker.New(nil, worker.Options{})
			worker.Handle(w, "h", tt.f)
			a := step("h")
			a.Context = json.RawMessage(tt.context)
			o, err := w.Execute(t.Context(), a)
			if o.Lease != a.Lease() || o.Success != (err == nil) || o.Success != (tt.result != "") {
				t.Fatalf("outcome %+v, error %v", o, err)
			}
			if o.Success {
				if string(o.Result) != tt.result || o.Failure != nil {
					t.Errorf("result %s, failure %v; want %s", o.Result, o.Failure, tt.result)
				}
				return
			}
			got := *o.Failure
			got.Context = nil
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPanicKeepsItsStack(t *testing.T) {
	w := worker.New(nil, worker.Options{})
	w.HandleRaw("h", func(context.Context, *worker.Call) (json.RawMessage, error) { return panicsDeepDown(2000) })
	o, _ := w.Execute(t.Context(), step("h"))
	var evidence struct{ Stack string }
	if err := json.Unmarshal(o.Failure.Context, &evidence); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(evidence.Stack, "panicsDeepDown") || len(evidence.Stack) > 16<<10 {
		t.Errorf("stack of %d bytes:\n%.2000s", len(evidence.Stack), evidence.Stack)
	}
}

func panicsDeepDown(n int) (json.RawMessage, error) {
	if n == 0 {
		panic("here")
	}
	return panicsDeepDown(n - 1)
}

func TestEvidence(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value any
		want  string
	}{
		{"an object", map[string]int{"status": 503}, `{"status":503}`},
		{"a value that is not JSON", make(chan int), `{"dropped":"the evidence cannot be encoded: json: unsupported type: chan int"}`},
		{"what panics", explosive{}, `{"dropped":"the evidence cannot be encoded: encoding worker_test.explosive panicked: boom"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := worker.New(nil, worker.Options{})
			w.HandleRaw("h", func(context.Context, *worker.Call) (json.RawMessage, error) {
				return nil, &worker.Error{Type: "x", Context: tt.value, Err: errors.New("x")}
			})
			if o, _ := w.Execute(t.Context(), step("h")); string(o.Failure.Context) != tt.want {
				t.Errorf("context %s, want %s", o.Failure.Context, tt.want)
			}
		})
	}
}

func TestMetadataNeverCostsAResult(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value any
		want  string
	}{
		{"kept", 1, `{"took":1}`},
		{"not JSON", make(chan int), ``},
		{"cannot be stored", "\x00", `{"dropped":"took: the string has a NUL (\\u0000), which cannot be stored (line 1, column 10)",` +
			`"original_bytes":17,"text":"{\"took\":\"\\u0000\"}"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := worker.New(nil, worker.Options{})
			worker.Handle(w, "h", func(_ context.Context, s *worker.Step[order]) (int, error) {
				s.Metadata = map[string]any{"took": tt.value}
				return 1, nil
			})
			if o, err := w.Execute(t.Context(), step("h")); err != nil || string(o.Metadata) != tt.want {
				t.Errorf("metadata %s, error %v; want %s", o.Metadata, err, tt.want)
			}
		})
	}
}

func TestStepFields(t *testing.T) {
	a := step("ship")
	a.Attempt, a.CorrelationID = 2, "order-7"
	a.DependencyResults = map[string]json.RawMessage{
		"charge": json.RawMessage(`{"number": 12}`), "bypassed": json.RawMessage("null"), "absent": nil,
	}
	a.Initialization = json.RawMessage(`{"number": 3}`)
	for _, tt := range []struct {
		name string
		read func(*worker.Call, *order) error
		want int
		err  string
		is   error
	}{
		{"a result", func(c *worker.Call, o *order) error { return c.Dependency("charge", o) }, 12, "", nil},
		{"initialization", func(c *worker.Call, o *order) error { return c.Init(o) }, 3, "", nil},
		{"a null result", func(c *worker.Call, o *order) error { return c.Dependency("bypassed", o) }, 0,
			"result of step bypassed: the step has no result", worker.ErrNoResult},
		{"an absent result", func(c *worker.Call, o *order) error { return c.Dependency("absent", o) }, 0,
			"result of step absent: the step has no result", worker.ErrNoResult},
		{"not a dependency", func(c *worker.Call, o *order) error { return c.Dependency("pack", o) }, 0,
			`step ship does not depend on "pack": it depends on absent, bypassed, charge`, nil},
		{"another shape", func(c *worker.Call, _ *order) error { return c.Dependency("charge", new(int)) }, 0,
			"result of step charge: json: cannot unmarshal object into Go value of type int", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := worker.New(nil, worker.Options{})
			var got order
			w.HandleRaw("ship", func(_ context.Context, c *worker.Call) (json.RawMessage, error) {
				if c.Attempt != 2 || c.CorrelationID != "order-7" {
					t.Errorf("attempt %d, correlation id %q", c.Attempt, c.CorrelationID)
				}
				return nil, tt.read(c, &got)
			})
			o, err := w.Execute(t.Context(), a)
			if got.Number != tt.want {
				t.Errorf("read %d, want %d", got.Number, tt.want)
			}
			if tt.err == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || err.Error() != tt.err || tt.is != nil && !errors.Is(err, tt.is) {
				t.Fatalf("error %v, want %s", err, tt.err)
			}
			if o.Failure.Retryable || o.Failure.Type != worker.InvalidInput {
				t.Errorf("failure %+v, want a permanent one of type invalid_input", o.Failure)
			}
		})
	}
}

func TestUnknownHandlerIsAFailureThatAnotherWorkerMayMend(t *testing.T) {
	o, err := worker.New(nil, worker.Options{}).Execute(t.Context(), step("nobody"))
	if err == nil || o.Failure.Type != worker.UnknownHandler || !o.Failure.Retryable {
		t.Errorf("outcome %+v, error %v", o.Failure, err)
	}
}

func TestRegistrationRefuses(t *testing.T) {
	nothing := func(context.Context, *worker.Call) (json.RawMessage, error) { return nil, nil }
	for _, tt := range []struct {
		name string
		act  func(*worker.Worker)
		want string
	}{
		{"a name twice", func(w *worker.Worker) { w.HandleRaw("h", nothing); w.HandleRaw("h", nothing) }, "registered twice"},
		{"no name", func(w *worker.Worker) { w.HandleRaw("", nothing) }, "requires a name"},
		{"no function", func(w *worker.Worker) { w.HandleRaw("h", nil) }, "requires a name and a function"},
		{"no typed function", func(w *worker.Worker) { worker.Handle[int, int](w, "h", nil) }, `handler "h" is nil`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), tt.want) {
					t.Errorf("panicked with %v, want %q", r, tt.want)
				}
			}()
			tt.act(worker.New(nil, worker.Options{}))
		})
	}
}

func goexit(context.Context, *worker.Call) (json.RawMessage, error) {
	runtime.Goexit()
	return nil, nil
}
