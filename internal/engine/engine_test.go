package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A house is an engine on a database of its own, with a worker that a test moves
// by hand. Time that must pass is made to have passed, in the database.
type house struct {
	*testing.T
	db     *postgres.DB
	engine *engine.Engine
	pool   *pgxpool.Pool
	worker tasker.ID
}

const space = "shop"

func newHouse(t *testing.T) *house {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	return houseAt(t, d.URL)
}

// newCutHouse is newHouse with a database whose connections a test can break.
func newCutHouse(t *testing.T) (*house, *pgtest.Cutter) {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	c := pgtest.NewCutter(t, d.URL)
	return houseAt(t, c.URL), c
}

func houseAt(t *testing.T, databaseURL string) *house {
	t.Helper()
	db, err := postgres.Open(t.Context(), databaseURL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	h := &house{T: t, db: db, engine: engine.New(db, engine.Options{}), pool: pgtest.Admin(t, databaseURL)}
	h.worker = h.register("run")
	return h
}

func (h *house) register(handlers ...string) tasker.ID {
	h.Helper()
	r, err := h.engine.RegisterWorker(h.Context(), tasker.WorkerSpec{
		Name: "test", Namespaces: []string{space}, Handlers: handlers, MaxConcurrency: 100,
	})
	h.must(err)
	return r.WorkerUUID
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// wantCode fails the test unless err has the code and says all of the words.
func (h *house) wantCode(err error, code tasker.Code, words ...string) {
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

func (h *house) exec(sql string, args ...any) {
	h.Helper()
	_, err := h.pool.Exec(h.Context(), sql, args...)
	h.must(err)
}

// fails makes what is described fail.
func (h *house) fails(when string) {
	h.Helper()
	h.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.exec(`CREATE TRIGGER broken BEFORE ` + when + ` EXECUTE FUNCTION public.refuse()`)
}

// step returns a step template; its name may be followed by its dependencies.
func step(name string, dependencies ...string) tasker.StepTemplate {
	r := tasker.DefaultRetry()
	return tasker.StepTemplate{
		Name: name, Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Dependencies: dependencies, Retry: r,
	}
}

func external(name string, dependencies ...string) tasker.StepTemplate {
	s := step(name, dependencies...)
	s.Type, s.Handler = tasker.ExternalStep, tasker.Handler{}
	return s
}

func attempts(n int, s tasker.StepTemplate) tasker.StepTemplate {
	s.Retry.MaxAttempts = n
	return s
}

func (h *house) template(name string, steps ...tasker.StepTemplate) {
	h.Helper()
	_, _, err := h.engine.RegisterTemplate(h.Context(), tasker.Template{Namespace: space, Name: name, Version: "1.0.0", Steps: steps}, "")
	h.must(err)
}

func (h *house) create(name string) tasker.ID {
	h.Helper()
	return h.createWith(tasker.NewTask{Namespace: space, Name: name})
}

func (h *house) createWith(r tasker.NewTask) tasker.ID {
	h.Helper()
	created, err := h.engine.CreateTasks(h.Context(), []tasker.NewTask{r})
	h.must(err)
	return created[0].TaskUUID
}

func (h *house) claim() []tasker.Assignment {
	h.Helper()
	list, err := h.engine.Claim(h.Context(), h.worker, 100, 0)
	h.must(err)
	return list
}

// claimOne claims and expects just the step of that name.
func (h *house) claimOne(name string) tasker.Assignment {
	h.Helper()
	list := h.claim()
	if len(list) != 1 || list[0].Name != name {
		h.Fatalf("claimed %v, want only %s", names(list), name)
	}
	return list[0]
}

func names(list []tasker.Assignment) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.Name)
	}
	slices.Sort(out)
	return out
}

func success(a tasker.Assignment, result string) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(result)}
}

func failure(a tasker.Assignment, retryable bool) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "no luck", Type: "luck", Retryable: retryable}}
}

func (h *house) report(outcomes ...tasker.Outcome) tasker.Receipt {
	h.Helper()
	r, err := h.engine.Report(h.Context(), h.worker, outcomes, 0)
	h.must(err)
	return r
}

// accepted reports outcomes that must all be accepted.
func (h *house) accepted(outcomes ...tasker.Outcome) {
	h.Helper()
	r := h.report(outcomes...)
	if len(r.Accepted) != len(outcomes) || len(r.Rejected) != 0 {
		h.Fatalf("accepted %v, rejected %v", r.Accepted, r.Rejected)
	}
}

// pass lets all rests and leases run out, then does what is due.
func (h *house) pass() {
	h.Helper()
	h.exec(`UPDATE tasker.workflow_steps SET next_retry_at = clock_timestamp() WHERE next_retry_at IS NOT NULL`)
	h.exec(`UPDATE tasker.workflow_steps SET lease_expires_at = clock_timestamp() WHERE lease_expires_at IS NOT NULL`)
	h.tick()
}

func (h *house) tick() {
	h.Helper()
	_, err := h.engine.Tick(h.Context())
	h.must(err)
}

func (h *house) state(task tasker.ID) tasker.TaskState {
	h.Helper()
	t, err := h.db.Task(h.Context(), task)
	h.must(err)
	return t.State
}

func (h *house) wantState(task tasker.ID, want tasker.TaskState) {
	h.Helper()
	if got := h.state(task); got != want {
		h.Fatalf("task is %s, want %s", got, want)
	}
}

func (h *house) step(task tasker.ID, name string) tasker.Step {
	h.Helper()
	list, err := h.db.Steps(h.Context(), task)
	h.must(err)
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	h.Fatalf("task has no step %s", name)
	return tasker.Step{}
}

func (h *house) wantStep(task tasker.ID, name string, want tasker.StepState, attempts int) {
	h.Helper()
	if s := h.step(task, name); s.State != want || s.Attempts != attempts {
		h.Fatalf("step %s is %s after %d attempts, want %s after %d", name, s.State, s.Attempts, want, attempts)
	}
}

// history returns the states that a task has passed through.
func (h *house) history(task tasker.ID) string {
	h.Helper()
	list, _, err := h.db.TaskTransitions(h.Context(), task, 1000, 0)
	h.must(err)
	states := []string{"pending"}
	for _, x := range list {
		states = append(states, x.To)
	}
	return strings.Join(states, " ")
}

func (h *house) entry(task tasker.ID) tasker.Entry {
	h.Helper()
	e, err := h.db.EntryOfTask(h.Context(), task)
	h.must(err)
	return e
}

// drain claims and reports successes until nothing is left to claim.
func (h *house) drain() int {
	h.Helper()
	n := 0
	for list := h.claim(); len(list) > 0; list = h.claim() {
		for _, a := range list {
			h.accepted(success(a, fmt.Sprintf(`{"by": %q}`, a.Name)))
			n++
		}
	}
	return n
}

// within returns a context that bounds a test that would otherwise hang.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
