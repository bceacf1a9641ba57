package workertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
	"tasker.example/tasker/workertest"
)

type order struct {
	Cents int `json:"amount_cents"`
}

var errDown = errors.New("gateway timeout")

func charging() *worker.Worker {
	w := worker.New(nil, worker.Options{})
	worker.Handle(w, "charge_card", func(ctx context.Context, s *worker.Step[order]) (map[string]any, error) {
		var valid struct{ OK bool }
		var settings struct{ Currency string }
		if err := errors.Join(s.Dependency("validate_order", &valid), s.Init(&settings)); err != nil {
			return nil, err
		}
		switch {
		case !valid.OK:
			return nil, worker.Permanent(&worker.Error{Type: "card_declined", Err: errDown})
		case s.Input.Cents == 0:
			<-ctx.Done()
			return nil, ctx.Err()
		case s.Attempt == 1:
			return nil, errDown
		case s.Attempt == 2:
			return nil, worker.RetryAfter(time.Minute, errDown)
		}
		return map[string]any{"charged": s.Input.Cents, "currency": settings.Currency, "of": s.MaxAttempts, "step": s.Name}, nil
	})
	return w
}

func TestRun(t *testing.T) {
	w := charging()
	valid := map[string]any{"validate_order": map[string]bool{"ok": true}}
	in := order{Cents: 1200}
	t.Run("a success", func(t *testing.T) {
		got := workertest.Result[map[string]any](t, w, "charge_card", workertest.Step{
			Context: `{"amount_cents": 1200}`, DependencyResults: valid, Initialization: []byte(`{"currency": "EUR"}`), Attempt: 3,
		})
		if want := "map[charged:1200 currency:EUR of:3 step:charge_card]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	})
	t.Run("a retryable failure", func(t *testing.T) {
		_, err := workertest.Run(t, w, "charge_card", workertest.Step{Context: in, DependencyResults: valid})
		workertest.Retryable(t, err)
		if !errors.Is(err, errDown) {
			t.Errorf("the handler's error is hidden: %v", err)
		}
	})
	t.Run("a failure that wants a rest", func(t *testing.T) {
		_, err := workertest.Run(t, w, "charge_card", workertest.Step{Context: in, DependencyResults: valid, Attempt: 2})
		workertest.RetryAfter(t, err, time.Minute)
	})
	t.Run("a permanent failure", func(t *testing.T) {
		_, err := workertest.Run(t, w, "charge_card", workertest.Step{
			Context: in, DependencyResults: map[string]any{"validate_order": json.RawMessage(`{"ok": false}`)},
		})
		workertest.Permanent(t, err)
		workertest.Type(t, err, "card_declined")
	})
	t.Run("no result to depend on", func(t *testing.T) {
		_, err := workertest.Run(t, w, "charge_card", workertest.Step{DependencyResults: map[string]any{"validate_order": nil}})
		workertest.Permanent(t, err)
		if !errors.Is(err, worker.ErrNoResult) {
			t.Errorf("got %v, want ErrNoResult", err)
		}
	})
	t.Run("a timeout", func(t *testing.T) {
		_, err := workertest.Run(t, w, "charge_card", workertest.Step{DependencyResults: valid, Timeout: time.Millisecond})
		workertest.Type(t, err, "step_timeout")
	})
	t.Run("an input that does not fit", func(t *testing.T) {
		_, err := workertest.Run(t, w, "charge_card", workertest.Step{Context: `{"amount_cents": "much"}`})
		workertest.Permanent(t, err)
		workertest.Type(t, err, worker.InvalidInput)
	})
	t.Run("no such handler", func(t *testing.T) {
		_, err := workertest.Run(t, w, "nobody", workertest.Step{})
		workertest.Type(t, err, worker.UnknownHandler)
	})
}

// A handler is given an element of a list and what an attempt before saved, and what it saves is told.
func TestItemsAndCheckpoints(t *testing.T) {
	w := worker.New(nil, worker.Options{})
	worker.Handle(w, "import", func(ctx context.Context, s *worker.Step[any]) (string, error) {
		var file string
		var row int
		found, err := s.LastCheckpoint(&row)
		if err = errors.Join(err, s.Element(&file)); err != nil {
			return "", err
		}
		began := fmt.Sprintf("%s %d %d %v", file, *s.Index, row, found)
		for range 2 {
			row += 10
			if err := s.SaveCheckpoint(ctx, row); err != nil {
				return began, err
			}
		}
		if found, err := s.LastCheckpoint(&row); !found || err != nil {
			return began, fmt.Errorf("found %v: %w", found, err)
		}
		return began, s.SaveCheckpoint(ctx, row)
	})
	var saved []string
	note := func(value json.RawMessage) { saved = append(saved, string(value)) }
	step := workertest.Step{Item: `"b.csv"`, Index: 1, Checkpoint: 20, OnCheckpoint: note}
	if got := workertest.Result[string](t, w, "import", step); got != "b.csv 1 20 true" || strings.Join(saved, " ") != "30 40 40" {
		t.Errorf("got %q, saved %v", got, saved)
	}
	step = workertest.Step{Item: `"a.csv"`}
	if got := workertest.Result[string](t, w, "import", step); got != "a.csv 0 0 false" {
		t.Errorf("got %q", got)
	}
	_, err := workertest.Run(t, w, "import", workertest.Step{Item: `"a.csv"`, Checkpoint: `"row"`})
	workertest.Permanent(t, err)
	workertest.Type(t, err, worker.InvalidInput)
	worker.Handle(w, "large", func(ctx context.Context, s *worker.Step[any]) (any, error) {
		return nil, s.SaveCheckpoint(ctx, strings.Repeat("x", tasker.MaxCheckpointBytes))
	})
	_, err = workertest.Run(t, w, "large", workertest.Step{OnCheckpoint: note})
	workertest.Permanent(t, err)
	workertest.Type(t, err, worker.InvalidCheckpoint)
}

// spy is a test that notes its complaints instead of failing.
type spy struct {
	testing.TB
	complaints []string
}

func (s *spy) Helper() {}
func (s *spy) Errorf(format string, args ...any) {
	s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
}
func (s *spy) Fatal(args ...any)                 { s.Errorf("%s", fmt.Sprint(args...)); panic(s) }
func (s *spy) Fatalf(format string, args ...any) { s.Errorf(format, args...); panic(s) }

func TestExpectationsComplain(t *testing.T) {
	w := charging()
	step := workertest.Step{Context: order{Cents: 1}, DependencyResults: map[string]any{"validate_order": `{"ok": true}`}}
	_, plain := workertest.Run(t, w, "charge_card", step)
	for _, tt := range []struct {
		name   string
		expect func(testing.TB)
		want   string
	}{
		{"permanent", func(t testing.TB) { workertest.Permanent(t, plain) }, "got a retryable failure"},
		{"retry after", func(t testing.TB) { workertest.RetryAfter(t, plain, time.Second) }, "want a retry after 1s"},
		{"type", func(t testing.TB) { workertest.Type(t, plain, "card_declined") }, `got type "error"`},
		{"success", func(t testing.TB) { workertest.Retryable(t, nil) }, "want a handler failure"},
		{"result", func(t testing.TB) { workertest.Result[int](t, w, "charge_card", step) }, "handler charge_card failed: gateway timeout"},
		{"shape", func(t testing.TB) {
			s := step
			s.Attempt = 3
			workertest.Result[int](t, w, "charge_card", s)
		}, "cannot unmarshal object"},
		{"no JSON", func(t testing.TB) { _, _ = workertest.Run(t, w, "charge_card", workertest.Step{Context: "{"}) }, "Context is not JSON"},
		{"not encodable", func(t testing.TB) {
			_, _ = workertest.Run(t, w, "charge_card", workertest.Step{Initialization: make(chan int)})
		}, "Initialization cannot be encoded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &spy{TB: t}
			func() {
				defer func() { _ = recover() }()
				tt.expect(s)
			}()
			if len(s.complaints) != 1 || !strings.Contains(s.complaints[0], tt.want) {
				t.Errorf("complaints %q, want %q", s.complaints, tt.want)
			}
		})
	}
}
