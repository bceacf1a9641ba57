// Package enginetest provides tests with an engine on a private database.
package enginetest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// Namespace is the default value of [Harness.Space].
const Namespace = "shop"

// patience is the maximum wait on a busy machine.
const patience = 2 * time.Minute

// Lease is the lease duration of workers in tests. It exceeds the duration of any test; a test that
// needs an expired lease expires it explicitly.
const Lease = 10 * time.Minute

// Harness is an engine with its services on one database.
type Harness struct {
	*testing.T
	URL    string // of the database
	Space  string // namespace of registered templates and created tasks
	DB     *postgres.DB
	Engine *engine.Engine
	DLQ    *dlq.Service
	Cases  *cases.Service
	Worker tasker.ID // claims and reports steps; see [Harness.Claim]
}

// New returns a harness on a new database. Its invariants are checked at the end of the test.
func New(t *testing.T) *Harness {
	t.Helper()
	return NewWith(t, postgres.Options{})
}

// NewWith is like [New] with options for the database.
func NewWith(t *testing.T, o postgres.Options) *Harness {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	return At(t, d.URL, o)
}

// At returns a harness on an existing database.
func At(t *testing.T, databaseURL string, o postgres.Options) *Harness {
	t.Helper()
	db := Open(t, databaseURL, o)
	e := engine.New(db, engine.Options{Leases: engine.LeaseOptions{Duration: Lease, ReconnectGrace: engine.DefaultLease}})
	return &Harness{
		T: t, URL: databaseURL, Space: Namespace, DB: db,
		Engine: e, DLQ: dlq.New(db, dlq.Options{Undo: e.CompensateTaskTx}), Cases: cases.New(db, cases.Options{}),
	}
}

// Open opens a database and closes it when the test has ended.
func Open(t testing.TB, databaseURL string, o postgres.Options) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), databaseURL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// Copy returns a harness on the same database and engine for a subtest.
func (h *Harness) Copy(t *testing.T) *Harness {
	other := *h
	other.T = t
	return &other
}

// FindCases assigns open investigations to cases and updates the states of the cases, as a loop of
// the server does.
func (h *Harness) FindCases() {
	h.Helper()
	_, err := h.Cases.Classify(h.Context())
	h.Must(err)
	h.Must(h.Cases.UpdateStates(h.Context()))
}

// WithCases returns a handler that first assigns all investigations to cases and updates the
// states, through connections of its own, as if another server had done it. Requests for tasks,
// templates and workers do not read cases.
func (h *Harness) WithCases(next http.Handler) http.Handler {
	other := cases.New(Open(h.T, h.URL, postgres.Options{}), cases.Options{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, unrelated := range []string{"/v1/workers", "/v1/tasks", "/v1/templates", "/health"} {
			if strings.HasPrefix(r.URL.Path, unrelated) {
				next.ServeHTTP(w, r)
				return
			}
		}
		_, err := other.Classify(r.Context())
		if err == nil {
			err = other.UpdateStates(r.Context())
		}
		if err != nil {
			h.Logf("cases: %v", err) // the test may have stopped the database
		}
		next.ServeHTTP(w, r)
	})
}

// Must fails the test if there is an error.
func (h *Harness) Must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// WantCode fails the test unless err has the code and contains all words.
func (h *Harness) WantCode(err error, code tasker.Code, words ...string) {
	h.Helper()
	if tasker.CodeOf(err) != code {
		h.Fatalf("got %v (%s), want code %s", err, tasker.CodeOf(err), code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			h.Errorf("error %q does not say %q", err, w)
		}
	}
}

// Admin returns a superuser pool for preparing and examining data. The engine uses the role of a
// server.
func (h *Harness) Admin() *pgxpool.Pool {
	h.Helper()
	return pgtest.Admin(h, h.URL)
}

// Exec runs a statement as superuser.
func (h *Harness) Exec(sql string, args ...any) {
	h.Helper()
	_, err := h.Admin().Exec(h.Context(), sql, args...)
	h.Must(err)
}

// Count returns the number that a query returns.
func (h *Harness) Count(sql string, args ...any) (n int) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), sql, args...).Scan(&n))
	return n
}

// Eventually polls until the condition is true.
func (h *Harness) Eventually(what string, is func() bool) {
	h.Helper()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-deadline:
			h.Fatalf("waited in vain until %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// RegisterWorker registers a worker of the namespace for the handlers.
func (h *Harness) RegisterWorker(handlers ...string) tasker.ID {
	h.Helper()
	r, err := h.Engine.RegisterWorker(h.Context(), tasker.WorkerSpec{
		Name: "test", Namespaces: []string{h.Space}, Handlers: handlers, MaxConcurrency: 100,
	})
	h.Must(err)
	return r.WorkerUUID
}

// Step returns a standard step with the handler "run" and the default retry policy. The name may be
// followed by dependencies.
func Step(name string, dependencies ...string) tasker.StepTemplate {
	return tasker.StepTemplate{
		Name: name, Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Dependencies: dependencies, Retry: tasker.DefaultRetry(),
	}
}

// Once returns the step with a single attempt.
func Once(s tasker.StepTemplate) tasker.StepTemplate {
	s.Retry.MaxAttempts = 1
	return s
}

// Template registers version 1.0.0 of a template.
func (h *Harness) Template(name string, steps ...tasker.StepTemplate) {
	h.Helper()
	_, _, err := h.Engine.RegisterTemplate(h.Context(), tasker.Template{Namespace: h.Space, Name: name, Version: "1.0.0", Steps: steps}, "")
	h.Must(err)
}

// Create creates a task of a template.
func (h *Harness) Create(name string) tasker.ID {
	h.Helper()
	return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: name})
}

// CreateWith creates a task.
func (h *Harness) CreateWith(r tasker.NewTask) tasker.ID {
	h.Helper()
	created, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{r})
	h.Must(err)
	return created[0].TaskUUID
}

// State returns the state of a task.
func (h *Harness) State(task tasker.ID) tasker.TaskState {
	h.Helper()
	t, err := h.DB.Task(h.Context(), task)
	h.Must(err)
	return t.State
}

// Entry returns the open investigation of a task, or else its newest one.
func (h *Harness) Entry(task tasker.ID) tasker.Entry {
	h.Helper()
	e, err := h.DB.EntryOfTask(h.Context(), task)
	h.Must(err)
	return e
}

// RunLoops runs the loops of the engine until the test has ended.
func (h *Harness) RunLoops() {
	h.Helper()
	ctx, stop := context.WithCancel(h.Context())
	g := loop.NewGroup(ctx)
	for _, l := range h.Engine.Loops() {
		g.Go(l.Name, l.Run)
	}
	h.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			h.Error(err)
		}
	})
}

// Contents returns a digest of each table except those named, for tests that check that nothing
// changed.
func (h *Harness) Contents(except ...string) string {
	h.Helper()
	rows, err := h.Admin().Query(h.Context(), `
		SELECT format('SELECT %L, coalesce(md5(string_agg(r::text, ''|'' ORDER BY r::text)), '''') FROM tasker.%I r', relname, relname)
		FROM pg_class
		WHERE relnamespace = 'tasker'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND NOT coalesce(relname = ANY ($1), false)
		ORDER BY relname`, except)
	h.Must(err)
	queries, err := pgx.CollectRows(rows, pgx.RowTo[string])
	h.Must(err)
	if len(queries) < 10 {
		h.Fatalf("found %d tables", len(queries))
	}
	var all strings.Builder
	for _, q := range queries {
		var table, digest string
		h.Must(h.Admin().QueryRow(h.Context(), q).Scan(&table, &digest))
		all.WriteString(table + " " + digest + "\n")
	}
	return all.String()
}

// Hooks calls functions, which may be nil, for what an engine reports.
type Hooks struct {
	engine.NoHooks

	Enqueued  func()
	Events    func()
	Ended     func([]engine.Attempt)
	Fired     func([]tasker.Firing)
	Expired   func([]tasker.Task)
	Step      func(ctx context.Context, namespace, detectedBy, detailCode string)
	Attribute func(context.Context)
}

// StepsEnqueued calls h.Enqueued.
func (h Hooks) StepsEnqueued() {
	if h.Enqueued != nil {
		h.Enqueued()
	}
}

// EventsWritten calls h.Events.
func (h Hooks) EventsWritten() {
	if h.Events != nil {
		h.Events()
	}
}

// AttemptsEnded calls h.Ended.
func (h Hooks) AttemptsEnded(list []engine.Attempt) {
	if h.Ended != nil {
		h.Ended(list)
	}
}

// ScheduleFired calls h.Fired.
func (h Hooks) ScheduleFired(list []tasker.Firing) {
	if h.Fired != nil {
		h.Fired(list)
	}
}

// TasksExpired calls h.Expired.
func (h Hooks) TasksExpired(list []tasker.Task) {
	if h.Expired != nil {
		h.Expired(list)
	}
}

// AttributeSkipped calls h.Attribute.
func (h Hooks) AttributeSkipped(ctx context.Context) {
	if h.Attribute != nil {
		h.Attribute(ctx)
	}
}

// StepExpired calls h.Step.
func (h Hooks) StepExpired(ctx context.Context, namespace, detectedBy, detailCode string) {
	if h.Step != nil {
		h.Step(ctx, namespace, detectedBy, detailCode)
	}
}
