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
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A harness is an engine on a database of its own, with a worker that a test moves
// by hand. Time that must pass is made to have passed, in the database.
type harness struct {
	*enginetest.Harness
	pool   *pgxpool.Pool // of the test itself
	worker tasker.ID
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	return withWorker(enginetest.New(t))
}

// newSingle returns a harness with a template of one step.
func newSingle(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t)
	h.Template("single", enginetest.Step("one"))
	return h
}

// newCutHarness is newHarness with a database whose connections a test can break.
func newCutHarness(t *testing.T) (*harness, *pgtest.Cutter) {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	c := pgtest.NewCutter(t, d.URL)
	return withWorker(enginetest.At(t, c.URL, postgres.Options{})), c
}

// newEngine is engine.New, with the time that a machine which does much else needs. Tests of what
// is set aside because it takes too long or fails call engine.New.
func newEngine(db *postgres.DB, o engine.Options) *engine.Engine {
	e := engine.New(db, o)
	e.GiveTime()
	return e
}

func withWorker(e *enginetest.Harness) *harness {
	e.Helper()
	e.Engine.GiveTime()
	return &harness{Harness: e, pool: e.Admin(), worker: e.RegisterWorker("run")}
}

// fails makes what is described fail.
func (h *harness) fails(when string) {
	h.Helper()
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER broken BEFORE ` + when + ` EXECUTE FUNCTION public.refuse()`)
}

func external(name string, dependencies ...string) tasker.StepTemplate {
	s := enginetest.Step(name, dependencies...)
	s.Type, s.Handler = tasker.ExternalStep, tasker.Handler{}
	return s
}

func attempts(n int, s tasker.StepTemplate) tasker.StepTemplate {
	s.Retry.MaxAttempts = n
	return s
}

func (h *harness) claim() []tasker.Assignment {
	h.Helper()
	list, err := h.Engine.Claim(h.Context(), h.worker, 100, 0)
	h.Must(err)
	return list
}

// claimOne claims and expects just the step of that name.
func (h *harness) claimOne(name string) tasker.Assignment {
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

func (h *harness) report(outcomes ...tasker.Outcome) tasker.Receipt {
	h.Helper()
	r, err := h.Engine.Report(h.Context(), h.worker, outcomes, 0)
	h.Must(err)
	return r
}

// accepted reports outcomes that must all be accepted.
func (h *harness) accepted(outcomes ...tasker.Outcome) {
	h.Helper()
	r := h.report(outcomes...)
	if len(r.Accepted) != len(outcomes) || len(r.Rejected) != 0 {
		h.Fatalf("accepted %v, rejected %v", r.Accepted, r.Rejected)
	}
}

// acceptedInTime reports outcomes that must all be accepted, as a worker does: what is
// unavailable is sent again. What was kept because the follow-up took too long is done.
func (h *harness) acceptedInTime(outcomes ...tasker.Outcome) {
	h.Helper()
	r := h.report(outcomes...)
	for range 20 {
		if len(r.Rejected) == 0 || r.Rejected[0].Code != tasker.Unavailable {
			break
		}
		r = h.report(outcomes...)
	}
	if len(r.Accepted) != len(outcomes) || len(r.Rejected) != 0 {
		h.Fatalf("accepted %v, rejected %v", r.Accepted, r.Rejected)
	}
	h.finishKept()
}

// finishKept lets the loops do what was kept of accepted reports.
func (h *harness) finishKept() {
	h.Helper()
	for deadline := time.Now().Add(2 * time.Minute); h.count("workflow_steps WHERE state = 'enqueued_for_orchestration'") > 0 && time.Now().Before(deadline); {
		h.retryDeferred()
		h.tick()
	}
}

// pass lets all rests and leases run out, then does what is due.
func (h *harness) pass() {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = clock_timestamp() WHERE next_retry_at IS NOT NULL`)
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = clock_timestamp() WHERE lease_expires_at IS NOT NULL`)
	h.tick()
}

func (h *harness) tick() {
	h.Helper()
	_, err := h.Engine.Tick(h.Context())
	h.Must(err)
}

func (h *harness) wantState(task tasker.ID, want tasker.TaskState) {
	h.Helper()
	if got := h.State(task); got != want {
		h.Fatalf("task is %s, want %s", got, want)
	}
}

func (h *harness) step(task tasker.ID, name string) tasker.Step {
	h.Helper()
	list, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	h.Fatalf("task has no step %s", name)
	return tasker.Step{}
}

func (h *harness) wantStep(task tasker.ID, name string, want tasker.StepState, attempts int) {
	h.Helper()
	if s := h.step(task, name); s.State != want || s.Attempts != attempts {
		h.Fatalf("step %s is %s after %d attempts, want %s after %d", name, s.State, s.Attempts, want, attempts)
	}
}

// history returns the states that a task has passed through.
func (h *harness) history(task tasker.ID) string {
	h.Helper()
	list, _, err := h.DB.TaskTransitions(h.Context(), task, 1000, 0)
	h.Must(err)
	states := []string{"pending"}
	for _, x := range list {
		states = append(states, x.To)
	}
	return strings.Join(states, " ")
}

// drain claims and reports successes until nothing is left to claim.
func (h *harness) drain() int {
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
