package workertest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
	"tasker.example/tasker/workertest"
)

const exported = "testdata/evidence.json"

// cards is a worker with the handler of the evidence file.
func cards(got *tasker.Assignment) *worker.Worker {
	type order struct {
		Cents int `json:"amount_cents"`
		Card  struct{ Number, CVV string }
	}
	w := worker.New(nil, worker.Options{})
	worker.Handle(w, "charge_card", func(_ context.Context, s *worker.Step[order]) (string, error) {
		*got = s.Assignment
		if s.Input.Cents <= 0 {
			return "", worker.Permanent(&worker.Error{Type: "invalid_amount", Err: fmt.Errorf("amount %d is not positive", s.Input.Cents)})
		}
		return s.Input.Card.Number, nil
	})
	return w
}

// ExampleLoad runs a handler on what it was given when it failed. In a test, t is that of the test.
func ExampleLoad() {
	t := exampleT{}
	w := cards(&tasker.Assignment{})

	e := workertest.Load(t, "testdata/evidence.json")                       // tasker-ctl dlq export ENTRY > testdata/evidence.json
	e.Set(t, "/context/card/number", `"4242 4242 4242 4242"`)               // it was redacted, and the handler needs it
	e.AcceptRedacted(t, "/context/card/cvv", "/dependency_results/history") // the handler does not need these
	_, err := e.Run(t, w)
	fmt.Println(err)
	// Output: amount -1200 is not positive
}

// exampleT stands for the *testing.T of a test.
type exampleT struct{ testing.TB }

func (exampleT) Helper()                           {}
func (exampleT) Context() context.Context          { return context.Background() }
func (exampleT) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func TestAHandlerRunsOnTheEvidence(t *testing.T) {
	var got tasker.Assignment
	w := cards(&got)
	e := workertest.Load(t, exported)
	e.Set(t, "/context/card/number", `"42 & 43"`)
	e.Set(t, "/context/card/cvv", `"007"`)
	e.Set(t, "/dependency_results/history", []int{1, 2})
	_, err := e.Run(t, w)
	workertest.Permanent(t, err)
	workertest.Type(t, err, "invalid_amount")
	if want := `{"amount_cents":-1200,"card":{"cvv":"007","number":"42 & 43"}}`; string(got.Context) != want {
		t.Errorf("context %s, want %s", got.Context, want)
	}
	if string(got.DependencyResults["history"]) != "[1,2]" || string(got.DependencyResults["validate_order"]) != `{"ok":true}` || string(got.Initialization) != `{"currency":"EUR"}` {
		t.Errorf("results %s, initialization %s", got.DependencyResults, got.Initialization)
	}
	if got.Attempt != 2 || got.MaxAttempts != 3 || got.TaskVersion != "1.4.0" || got.Name != "charge" || got.CorrelationID != "ORDER-399736" ||
		got.StepUUID != e.Step.StepUUID || got.TaskUUID != e.Task.TaskUUID || got.Namespace != "orders" || got.TaskName != "fulfil" || got.Deadline == nil {
		t.Errorf("the handler got %+v", got)
	}
}

// What the file does not have is asked for before the handler is called.
func TestEvidenceThatWasRedactedIsAskedFor(t *testing.T) {
	file := func(t testing.TB, change ...string) string {
		doc, err := os.ReadFile(exported)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "evidence.json")
		if err := os.WriteFile(name, []byte(strings.NewReplacer(change...).Replace(string(doc))), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, tt := range []struct {
		name string
		do   func(t testing.TB, w *worker.Worker)
		want string
	}{
		{"all is missing", func(t testing.TB, w *worker.Worker) { _, _ = workertest.Load(t, exported).Run(t, w) }, "/context/card/cvv, /context/card/number, /dependency_results/history"},
		{"some are missing", func(t testing.TB, w *worker.Worker) {
			e := workertest.Load(t, exported)
			e.AcceptRedacted(t, "/context/card/cvv")
			e.Set(t, "/context/card/number", `"1"`)
			_, _ = e.Run(t, w)
		}, "/dependency_results/history: set"},
		{"a place that is known", func(t testing.TB, _ *worker.Worker) { workertest.Load(t, exported).Set(t, "/context/amount_cents", 1) }, `has the value at "/context/amount_cents"`},
		{"a place twice", func(t testing.TB, _ *worker.Worker) {
			e := workertest.Load(t, exported)
			e.AcceptRedacted(t, "/context/card/cvv", "/context/card/cvv")
		}, `has the value at "/context/card/cvv"`},
		{"a place that is not there", func(t testing.TB, _ *worker.Worker) {
			workertest.Load(t, file(t, `"/context/card/cvv"`, `"/context/amount_cents/x"`)).Set(t, "/context/amount_cents/x", 1)
		}, `no member "x"`},
		{"an element that is not there", func(t testing.TB, _ *worker.Worker) {
			workertest.Load(t, file(t, `"/context/card/cvv"`, `"/initialization/3"`, `{"currency": "EUR"}`, `[1]`)).Set(t, "/initialization/3", 1)
		}, `no element "3" in a list of 1`},
		{"a place nowhere", func(t testing.TB, _ *worker.Worker) {
			workertest.Load(t, file(t, `"/context/card/cvv"`, `"/elsewhere"`)).Set(t, "/elsewhere", 1)
		}, "has no /elsewhere"},
		{"a value that cannot be read", func(t testing.TB, _ *worker.Worker) { workertest.Load(t, exported).Set(t, "/context/card/cvv", "{") }, "is not JSON"},
		{"no file", func(t testing.TB, _ *worker.Worker) { workertest.Load(t, "testdata/none.json") }, "no such file"},
		{"another file", func(t testing.TB, _ *worker.Worker) { workertest.Load(t, "evidence.go") }, "not an evidence file: create one with tasker-ctl dlq export"},
		{"a later version", func(t testing.TB, _ *worker.Worker) { workertest.Load(t, file(t, `"version": 1,`, `"version": 2,`)) }, "unsupported version 2, want 1"},
		{"a member of another type", func(t testing.TB, _ *worker.Worker) { workertest.Load(t, file(t, `"attempt": 2`, `"attempt": "2"`)) }, "cannot decode the file"},
		{"no step", func(t testing.TB, _ *worker.Worker) {
			workertest.Load(t, file(t, `"step": {`, `"step": null, "was": {`))
		}, "has no step"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &spy{TB: t}
			var got tasker.Assignment
			func() {
				defer func() {
					if p := recover(); p != nil && p != any(s) {
						panic(p)
					}
				}()
				tt.do(s, cards(&got))
			}()
			if len(s.complaints) != 1 || !strings.Contains(s.complaints[0], tt.want) {
				t.Errorf("complaints %q, want %q", s.complaints, tt.want)
			}
			if got.Handler != "" {
				t.Error("the handler was called all the same")
			}
		})
	}
}

func TestEvidenceIsKeptAsItStands(t *testing.T) {
	var got tasker.Assignment
	w := cards(&got)
	e := workertest.Load(t, exported)
	e.AcceptRedacted(t)
	e.Input.Context = []byte(`{"amount_cents":1,"card":{"number":"[redacted]"}}`)
	e.Step.TimeoutMS = 0
	doc, err := e.Run(t, w)
	if err != nil || string(doc) != `"[redacted]"` || got.Deadline != nil {
		t.Errorf("got %s, %v, deadline %v", doc, err, got.Deadline)
	}
}
