package evidencefile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/evidencefile"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/redact"
	"tasker.example/tasker/worker"
	"tasker.example/tasker/workertest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type harness struct {
	*enginetest.Harness
	files  *evidencefile.Service
	worker tasker.ID
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Harness: enginetest.New(t)}
	h.files = evidencefile.New(h.DB, h.Engine)
	registered, err := h.Engine.RegisterWorker(t.Context(), tasker.WorkerSpec{
		Name: "payments-7", Version: "1.5.0", Namespaces: []string{h.Space}, Handlers: []string{"run", "charge"}, MaxConcurrency: 100,
	})
	h.Must(err)
	h.worker = registered.WorkerUUID
	return h
}

// redacts stores the default rules with some paths, as a server does when it starts.
func (h *harness) redacts(paths string) {
	h.Helper()
	r, err := redact.New(redact.DefaultKeys, paths)
	h.Must(err)
	h.Must(h.DB.SetRedaction(h.Context(), postgres.Redaction{KeyPattern: r.Pattern(), Document: r.Document(), TextPatterns: r.Texts(), Paths: r.Paths()}))
}

// charge registers a template whose last step depends on the others.
func (h *harness) charge(initialization string, parents ...string) {
	h.Helper()
	steps := make([]tasker.StepTemplate, 0, len(parents)+1)
	for _, p := range parents {
		steps = append(steps, enginetest.Step(p))
	}
	charge := enginetest.Step("charge", parents...)
	charge.Handler = tasker.Handler{Callable: "charge", Initialization: json.RawMessage(initialization)}
	charge.TimeoutSeconds, charge.Retry.MaxAttempts, charge.Retry.BaseMS = 30, 2, 1
	h.Template("order", append(steps, charge)...)
}

// run has a worker take n steps and report what each comes to.
func (h *harness) run(n int, outcome func(tasker.Assignment) tasker.Outcome) []tasker.Assignment {
	h.Helper()
	var list []tasker.Assignment
	h.Eventually("the steps are taken", func() bool {
		_, err := h.Engine.Tick(h.Context())
		h.Must(err)
		more, err := h.Engine.Claim(h.Context(), h.worker, n-len(list), 0)
		h.Must(err)
		list = append(list, more...)
		return len(list) == n
	})
	for _, a := range list {
		o := outcome(a)
		o.Lease = a.Lease()
		_, err := h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{o}, 0)
		h.Must(err)
	}
	return list
}

func result(doc string) func(tasker.Assignment) tasker.Outcome {
	return func(tasker.Assignment) tasker.Outcome {
		return tasker.Outcome{Success: true, Result: json.RawMessage(doc)}
	}
}

func failure(message string) func(tasker.Assignment) tasker.Outcome {
	return func(tasker.Assignment) tasker.Outcome {
		return tasker.Outcome{Failure: &tasker.Failure{Message: message, Type: "GatewayError", Retryable: true}}
	}
}

// export returns the file of the investigation of a task. It must be as the schema says.
func (h *harness) export(task tasker.ID) tasker.EvidenceFile {
	h.Helper()
	f, err := h.files.Export(h.Context(), h.Entry(task).UUID)
	h.Must(err)
	doc, err := json.Marshal(f)
	h.Must(err)
	h.valid(doc)
	return f
}

// valid checks a file against the schema.
func (h *harness) valid(doc []byte) {
	h.Helper()
	if len(doc) > tasker.MaxAnswerBytes {
		h.Errorf("the file has %d bytes", len(doc))
	}
	schema, err := os.ReadFile("../../docs/reference/evidence-file.schema.json")
	h.Must(err)
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	h.Must(err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	h.Must(c.AddResource("evidence-file.json", parsed))
	compiled, err := c.Compile("evidence-file.json")
	h.Must(err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	h.Must(err)
	h.Must(compiled.Validate(value))
}

// A handler that is run on the file gets what the worker got, and fails as it did.
func TestAHandlerIsRunOnAFile(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.redacts("")
	h.charge(`{"currency": "EUR"}`, "validate")
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Context: json.RawMessage(`{"order": 9007199254740993, "a<b": "&\u2028", "secret": {"k": 1}}`)})
	h.run(1, result(`{"total": 12.30}`))
	given := h.run(1, failure("HTTP 503"))
	given = append(given, h.run(1, failure("HTTP 503"))...)
	doc, err := json.MarshalIndent(h.export(task), "", "  ")
	h.Must(err)
	name := filepath.Join(t.TempDir(), "evidence.json")
	h.Must(os.WriteFile(name, doc, 0o600))
	var got tasker.Assignment
	w := worker.New(nil, worker.Options{})
	worker.Handle(w, "charge", func(_ context.Context, s *worker.Step[json.RawMessage]) (any, error) {
		got = s.Assignment
		return nil, errors.New("HTTP 503")
	})
	e := workertest.Load(t, name)
	e.Set(t, "/context/secret", `{"k":1}`)
	_, err = e.Run(t, w)
	workertest.Retryable(t, err)
	want := given[1]
	for _, a := range []*tasker.Assignment{&want, &got} {
		a.Fence, a.LeaseToken, a.LeaseExpiresAt, a.Deadline = 0, "", time.Time{}, nil
	}
	same := cmp.Transformer("JSON", func(doc json.RawMessage) (v any) {
		if len(doc) == 0 {
			return "nothing"
		}
		d := json.NewDecoder(bytes.NewReader(doc))
		d.UseNumber()
		h.Must(d.Decode(&v))
		return v
	})
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Error(diff)
	}
	example, err := os.ReadFile("../../workertest/testdata/evidence.json")
	h.Must(err)
	h.valid(example)
}

// The file of an item of a map step has its element, without what must not be shown, and a handler
// is run on it.
func TestAFileOfAnItem(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.redacts("")
	pay := enginetest.Once(enginetest.Step("pay"))
	pay.Type, pay.Over, pay.Handler = tasker.MapStep, "context.lines", tasker.Handler{Callable: "charge"}
	h.Template("order", pay)
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Context: json.RawMessage(`{"lines": [{"n": 1}, {"n": 9007199254740993, "password": "p"}]}`)})
	h.run(2, func(a tasker.Assignment) tasker.Outcome {
		if *a.Index == 0 {
			return result(`{}`)(a)
		}
		return failure("HTTP 404")(a)
	})
	f := h.export(task)
	if f.Step.Name != "pay[1]" || f.Input.Index == nil || *f.Input.Index != 1 || !strings.Contains(string(f.Input.Item), "9007199254740993") || strings.Contains(string(f.Input.Item), `"p"`) || string(f.Input.Context) != "{}" {
		t.Fatalf("the file is of %s, with the item %s and the context %s", f.Step.Name, f.Input.Item, f.Input.Context)
	}
	doc, err := json.Marshal(f)
	h.Must(err)
	name := filepath.Join(t.TempDir(), "evidence.json")
	h.Must(os.WriteFile(name, doc, 0o600))
	var got tasker.Assignment
	w := worker.New(nil, worker.Options{})
	worker.Handle(w, "charge", func(_ context.Context, s *worker.Step[json.RawMessage]) (any, error) {
		got = s.Assignment
		return map[string]any{}, nil
	})
	e := workertest.Load(t, name)
	for _, place := range f.Redacted {
		e.Set(t, place, `"p"`)
	}
	_, err = e.Run(t, w)
	h.Must(err)
	if got.Index == nil || *got.Index != 1 || string(got.Item) != `{"n":9007199254740993,"password":"p"}` {
		t.Errorf("the handler got the item %s", got.Item)
	}
}

func TestAFileHasExactlyWhatTheHandlerGot(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.redacts("")
	h.charge(`{"currency": "EUR", "limits": [1, 2.50]}`, "validate", "reserve", "notify")
	task := h.CreateWith(tasker.NewTask{
		Namespace: h.Space, Name: "order", Context: json.RawMessage(`{"order": 9007199254740993, "note": "<b>&\u00e9", "rate": 1e-7, "empty": {}, "said": "[redacted]"}`),
	})
	h.run(3, func(a tasker.Assignment) tasker.Outcome {
		if a.Name == "notify" {
			return result(`null`)(a)
		}
		return result(`{"by": "` + a.Name + `", "total": 12.30}`)(a)
	})
	got := h.run(1, failure("HTTP 503"))
	got = append(got, h.run(1, failure("HTTP 404 for token=abc123"))...)
	f := h.export(task)
	last := got[1]
	if !bytes.Equal(f.Input.Context, last.Context) || !bytes.Equal(f.Input.Initialization, last.Initialization) || f.Input.Attempt != 2 || last.Attempt != 2 {
		t.Errorf("input %s %s of attempt %d, the handler got %s %s of attempt %d",
			f.Input.Context, f.Input.Initialization, f.Input.Attempt, last.Context, last.Initialization, last.Attempt)
	}
	if diff := cmp.Diff(last.DependencyResults, f.Input.DependencyResults); diff != "" {
		t.Error("dependency results:", diff)
	}
	if len(f.Redacted) != 0 || len(f.Omitted) != 0 {
		t.Errorf("redacted %v, omitted %v: nothing was", f.Redacted, f.Omitted)
	}
	if f.Step.Handler != "charge" || f.Step.MaxAttempts != 2 || f.Step.TimeoutMS != 30_000 || f.Task.Version != "1.0.0" || f.Task.CorrelationID != last.CorrelationID {
		t.Errorf("step %+v of task %+v", f.Step, f.Task)
	}
	if len(f.Attempts) != 2 || f.Attempts[0].Attempt != 2 || f.Attempts[1].Attempt != 1 || f.Attempts[0].WorkerName != "payments-7" || f.Attempts[0].WorkerVersion != "1.5.0" ||
		!strings.Contains(string(f.Attempts[1].Error), "HTTP 503") || f.Attempts[0].BeganAt.After(f.Attempts[0].FailedAt) {
		t.Errorf("attempts %+v", f.Attempts)
	}
	if !strings.Contains(string(f.Error), "HTTP 404 for token=[redacted]") {
		t.Errorf("error %s", f.Error)
	}
	if len(f.History) != 1 || f.History[0].Event != "created" {
		t.Errorf("history %+v", f.History)
	}
}

// What is hidden is marked, by key, by a pattern in a text and by a path that has the number
// of a step, and nothing else is.
func TestWhatIsHiddenIsMarked(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.charge(`{"api_key": "k", "currency": "EUR"}`, "validate", "reserve")
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Context: json.RawMessage(
		`{"customer": {"mail": "a@example.com", "name": "A"}, "a/b~c": {"password": "p"}, "url": "postgres://u:p@db", "said": "[redacted]", "lines": [{"pin": 1}, {"n": 2}]}`)})
	steps, err := h.DB.Steps(t.Context(), task)
	h.Must(err)
	place := slices.IndexFunc(steps, func(s tasker.Step) bool { return s.Name == "reserve" })
	ids := make([]string, len(steps))
	for i, s := range steps {
		ids[i] = s.UUID.String()
	}
	slices.Sort(ids)
	place = slices.Index(ids, steps[place].UUID.String())
	h.redacts("$.task.context.customer.mail, $.steps[" + strconv.Itoa(place) + "].results.result.total")
	h.run(2, result(`{"total": 7, "n": 1}`))
	h.run(1, failure("1"))
	h.run(1, failure("2"))
	f := h.export(task)
	want := []string{
		"/context/a~1b~0c/password", "/context/customer/mail", "/context/lines/0/pin", "/context/url", "/dependency_results/reserve/total", "/initialization/api_key",
	}
	if got := slices.Sorted(slices.Values(f.Redacted)); !slices.Equal(got, want) {
		t.Errorf("redacted %q, want %q", got, want)
	}
	doc, err := json.Marshal(f)
	h.Must(err)
	for _, secret := range []string{"a@example.com", `"p"`, "u:p@", `"pin":1`, `"k"`} {
		if bytes.Contains(doc, []byte(secret)) {
			t.Errorf("the file has %q", secret)
		}
	}
	if !strings.Contains(string(f.Input.DependencyResults["validate"]), `"total": 7`) {
		t.Errorf("a path that is about another step hides %s", f.Input.DependencyResults["validate"])
	}
}

func TestResultsThatAreTooLargeAreNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	parents := []string{"a", "b", "c", "d", "e"}
	h.charge("", parents...)
	task := h.Create("order")
	h.run(len(parents), result(`"`+strings.Repeat("x", 200<<10)+`"`))
	h.Exec(`UPDATE tasker.workflow_steps SET results_bytes = $2, results = jsonb_set(results, '{result}', to_jsonb(repeat('x', $2 - 2)))
		WHERE task_uuid = $1 AND name <> 'charge'`, task, 1<<20)
	h.Exec(`UPDATE tasker.workflow_steps SET inputs_bytes = $2 WHERE task_uuid = $1 AND name = 'charge'`, task, 5<<20)
	h.Exec(`UPDATE tasker.ready_steps SET inputs_bytes = $2 WHERE task_uuid = $1`, task, 5<<20)
	h.run(1, failure("1"))
	got := h.run(1, failure("2"))
	f := h.export(task)
	if len(got[0].DependencyRefs) != 1 || len(f.Omitted) != 1 {
		t.Fatalf("the handler got references %v, the file omits %v", got[0].DependencyRefs, f.Omitted)
	}
	for name, ref := range got[0].DependencyRefs {
		want := tasker.EvidenceOmission{Place: "/dependency_results/" + name, Bytes: ref.Bytes, ReadAt: "/v1/tasks/" + task.String() + "/results/" + ref.StepUUID.String()}
		if f.Omitted[0] != want || string(f.Input.DependencyResults[name]) != "null" || len(f.Input.DependencyResults) != len(parents) {
			t.Errorf("omitted %+v, want %+v", f.Omitted, want)
		}
	}
}

func TestAFileOfATaskWithoutAFailure(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.charge("")
	task := h.Create("order")
	_, err := h.DLQ.Open(t.Context(), task, tasker.NewEntry{Actor: "ann", Reason: "the customer asks"})
	h.Must(err)
	if f := h.export(task); f.Step != nil || f.Input != nil || f.Investigation.Reason != tasker.ManualDLQ || len(f.History) != 1 {
		t.Errorf("file %+v", f)
	}
	_, err = h.files.Export(t.Context(), tasker.NewID())
	h.WantCode(err, tasker.NotFound, "not found")
}
