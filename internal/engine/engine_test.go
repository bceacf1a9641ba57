package engine_test

import (
	"context"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A harness is an engine on its own database, with a worker. Tests change the database to let time
// pass.
type harness struct{ *enginetest.Harness }

// Functions of the kit that most tests use.
var (
	external, attempts      = enginetest.External, enginetest.Attempts
	names, success, failure = enginetest.Names, enginetest.Success, enginetest.Failure
	operation               = enginetest.Operation
)

// newHarness returns a harness for a test that runs in parallel with others.
func newHarness(t *testing.T) *harness {
	t.Helper()
	t.Parallel()
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
	t.Parallel()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	c := pgtest.NewCutter(t, d.URL)
	return withWorker(enginetest.At(t, c.URL, postgres.Options{})), c
}

// newEngine returns an engine with enough time for its work on a busy machine. Tests of work that is
// deferred because it is slow or fails call engine.New.
func newEngine(db *postgres.DB, o engine.Options) *engine.Engine {
	e := engine.New(db, o)
	e.GiveTime()
	return e
}

func withWorker(e *enginetest.Harness) *harness {
	e.Helper()
	e.Engine.GiveTime()
	e.Worker = e.RegisterWorker("run")
	return &harness{e}
}

// acceptedInTime reports outcomes that must all be accepted, as a worker does: what is
// unavailable is sent again. What was kept because the follow-up took too long is done.
func (h *harness) acceptedInTime(outcomes ...tasker.Outcome) {
	h.Helper()
	r := h.Report(outcomes...)
	for range 20 {
		if len(r.Rejected) == 0 || r.Rejected[0].Code != tasker.Unavailable {
			break
		}
		r = h.Report(outcomes...)
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
		h.Tick()
	}
}

// pass makes retries due, expires leases and does what is due.
func (h *harness) pass() {
	h.Helper()
	fixture.RetriesDue(h, h.Admin())
	fixture.LeasesExpired(h, h.Admin())
	h.Tick()
}

// wrapPath returns a context that bounds a test that would otherwise hang.
func wrapPath(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// errOf returns the error of a call that also returns a value.
func errOf[T any](_ T, err error) error { return err }

// wantRows compares the number of rows of a table.
func (h *harness) wantRows(want int, table string) {
	h.Helper()
	h.WantCount(want, `SELECT count(*) FROM tasker.`+table)
}

// each runs a subtest with the harness.
func (h *harness) each(name string, test func(h *harness)) {
	h.Run(name, func(t *testing.T) { test(&harness{h.Copy(t)}) })
}

// equal compares two values.
func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// check marks the test as failed unless the condition holds.
func check(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// require ends the test unless the condition holds.
func require(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}
