// Package taskertest runs workflows in ordinary Go tests, with the real engine on a real
// PostgreSQL and a clock that the test controls.
//
//	func TestMain(m *testing.M) { taskertest.Main(m) }
//
//	func TestAnOrderIsRefused(t *testing.T) {
//		wf := taskertest.New(t, taskertest.Options{Templates: []string{"order.yaml"}, Worker: newWorker()})
//		wf.Script("charge_card", taskertest.Fail("gateway down"), taskertest.Succeed(`{"charge": "ch_1"}`))
//		task := wf.Start(`{"order_id": 7}`)
//		wf.RunUntilIdle()           // the first attempt fails, and its retry waits for the clock
//		wf.Advance(time.Minute)     // the retry succeeds, and an approval starts to wait
//		wf.Advance(72 * time.Hour)  // the approval times out
//		task.AssertComplete()
//		task.Step("ship").AssertState(tasker.StepSkipped)
//	}
//
// Steps execute one at a time: by a script of the test, or else by the worker. A step with
// neither fails the test. Nothing runs between method calls, and a [Workflow] is not safe for
// concurrent use.
//
// The first test of a package starts a private PostgreSQL, as `tasker dev` does. Each test has
// its own database, whose invariants are checked at its end. Tests may be parallel.
// TASKER_TEST_DATABASE_URL selects another server for the databases.
package taskertest

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginehook"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
	"tasker.example/tasker/worker"
)

// Main runs the tests of a package, stops PostgreSQL and exits. Call it in TestMain.
func Main(m *testing.M) { pgtest.Main(m) }

// Options configures a [Workflow]. At least one template is required.
type Options struct {
	Templates []string       // files; [Workflow.Start] uses the first
	Documents []string       // YAML or JSON templates, registered after the files
	Worker    *worker.Worker // executes steps without a script
	// NewWorker returns the worker of a program that uses the engine and tables of its own in the
	// database of the test. It replaces Worker.
	NewWorker   func(*embedded.Engine, *pgxpool.Pool) *worker.Worker
	Environment string    // selects the overrides of templates
	Begin       time.Time // initial time of the clock; default: now
}

// Workflow is an engine with its own database and a clock that the test moves.
type Workflow struct {
	t       testing.TB
	clock   *pgtest.Clock
	db      *postgres.DB
	engine  *engine.Engine
	dlq     *dlq.Service
	holds   *hold.Service
	explain *explain.Service
	program *embedded.Engine
	pool    *pgxpool.Pool  // of the program
	run     *worker.Worker // nil if all steps have scripts

	templates []tasker.Template
	scripts   map[string]*script   // by name of step or handler
	answers   map[string][]Outcome // to human steps, by name
	worker    tasker.ID            // zero if there is no handler
	held      []tasker.Lease       // of hanging attempts
	commits   atomic.Int64
}

// New returns a workflow engine with registered templates. It stops when the test ends.
func New(t testing.TB, o Options) *Workflow {
	t.Helper()
	if !pgtest.HasMain() {
		t.Fatal("PostgreSQL would not be stopped: add to this package: func TestMain(m *testing.M) { " +
			"taskertest.Main(m) }")
	}
	if len(o.Templates)+len(o.Documents) == 0 {
		t.Fatal("Options requires a template: set Templates to file names or Documents to YAML")
	}
	if o.Begin.IsZero() {
		o.Begin = time.Now()
	}
	d := pgtest.New(t)
	w := &Workflow{t: t, clock: d.NewClock(t, o.Begin), run: o.Worker, scripts: map[string]*script{}, answers: map[string][]Outcome{}}
	d.CheckAtEnd(t)
	w.open(d, o.Environment)
	if o.NewWorker != nil {
		w.run = o.NewWorker(w.program, w.pool)
	}
	for _, name := range o.Templates {
		doc, err := os.ReadFile(name)
		w.must(err)
		w.register(name, doc)
	}
	for _, doc := range o.Documents {
		w.register("the document", []byte(doc))
	}
	w.registerWorker()
	return w
}

// open opens the engine on a database.
func (w *Workflow) open(d *pgtest.DB, environment string) {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	w.db, err = postgres.Open(w.t.Context(), d.URL, postgres.Options{ClockSchema: pgtest.ClockSchema, MaxConns: 4})
	w.must(err)
	w.t.Cleanup(w.db.Close)
	w.pool, err = pgxpool.New(w.t.Context(), d.AdminURL)
	w.must(err)
	w.t.Cleanup(w.pool.Close)
	w.db.OnCommit(func() { w.commits.Add(1) })
	w.engine = engine.New(w.db, engine.Options{Environment: environment, Log: log})
	w.dlq = dlq.New(w.db, dlq.Options{Undo: w.engine.CompensateTaskTx, Log: log})
	w.holds = hold.New(w.db, w.engine, hold.Options{Log: log})
	w.explain = explain.New(w.db, explain.Options{Log: log})
	w.program = enginehook.NewEmbedded(enginehook.Services{
		DB: w.db, Engine: w.engine, DLQ: w.dlq, Holds: w.holds, Explain: w.explain,
		Cases: cases.New(w.db, cases.Options{Log: log}), Log: log,
	}).(*embedded.Engine)
}

func (w *Workflow) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *Workflow) register(name string, doc []byte) {
	w.t.Helper()
	t, warnings, err := templatefile.Parse(doc)
	if err == nil {
		_, _, err = w.engine.RegisterTemplate(w.t.Context(), t, string(doc))
	}
	if err != nil {
		w.t.Fatalf("register %s: %v", name, err)
	}
	for _, x := range warnings {
		w.t.Logf("%s: %s", name, x)
	}
	w.templates = append(w.templates, t)
}

// Now returns the time of the clock.
func (w *Workflow) Now() time.Time {
	w.t.Helper()
	at, err := w.clock.Now(w.t.Context())
	w.must(err)
	return at
}

// Start creates a task of the first template. Its context is JSON text, or any value to encode.
// The task does not run before [Workflow.RunUntilIdle] or [Workflow.Advance].
func (w *Workflow) Start(context any) *Task {
	w.t.Helper()
	first := w.templates[0]
	return w.StartTask(tasker.NewTask{Namespace: first.Namespace, Name: first.Name, Context: w.encodeDocument("the context", context)})
}

// StartTask creates a task of any registered template.
func (w *Workflow) StartTask(n tasker.NewTask) *Task {
	w.t.Helper()
	created, err := w.engine.CreateTasks(w.t.Context(), []tasker.NewTask{n})
	if err != nil {
		w.t.Fatalf("start a task of %s/%s: %v", n.Namespace, n.Name, err)
	}
	return &Task{UUID: created[0].TaskUUID, w: w}
}

func (w *Workflow) encodeDocument(what string, v any) json.RawMessage {
	w.t.Helper()
	doc, err := encode(v)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	return doc
}

// registerWorker registers a worker for all handlers of the templates.
func (w *Workflow) registerWorker() {
	w.t.Helper()
	spec := tasker.WorkerSpec{Name: "taskertest", MaxConcurrency: 1}
	for _, t := range w.templates {
		spec.Namespaces = append(spec.Namespaces, t.Namespace)
		for _, s := range t.Steps {
			if s.HasHandler() {
				spec.Handlers = append(spec.Handlers, s.Handler.Callable)
			}
			if undo, ok := s.Undo(); ok {
				spec.Handlers = append(spec.Handlers, undo.Handler.Callable)
			}
		}
	}
	slices.Sort(spec.Namespaces)
	slices.Sort(spec.Handlers)
	spec.Namespaces, spec.Handlers = slices.Compact(spec.Namespaces), slices.Compact(spec.Handlers)
	if len(spec.Handlers) == 0 {
		return // only wait and external steps
	}
	r, err := w.engine.RegisterWorker(w.t.Context(), spec)
	w.must(err)
	w.worker = r.WorkerUUID
}
