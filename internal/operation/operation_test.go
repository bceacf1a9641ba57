package operation_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A harness is an engine with operations, and one worker.
type harness struct {
	*enginetest.Harness
	ops    *operation.Service
	worker tasker.ID
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	return with(enginetest.New(t))
}

func with(e *enginetest.Harness) *harness {
	e.Helper()
	h := &harness{Harness: e, ops: operation.New(e.DB, e.Engine, e.DLQ, operation.Options{})}
	h.Template("order", enginetest.Once(enginetest.Step("charge")), enginetest.Once(enginetest.Step("ship", "charge")))
	h.worker = h.RegisterWorker("run")
	h.Exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour', version = '1.5.0'`)
	return h
}

// stuck makes tasks whose first step has failed for good, each with an investigation.
func (h *harness) stuck(n int) []tasker.ID {
	h.Helper()
	tasks := make([]tasker.ID, n)
	for i := range tasks {
		tasks[i] = h.Create("order")
	}
	h.work(n, fails("no"))
	return tasks
}

// fails is the result of attempts that fail.
func fails(message string) func(tasker.Assignment) tasker.Outcome {
	return func(a tasker.Assignment) tasker.Outcome {
		return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: message, Type: "Declined"}}
	}
}

func succeeds(a tasker.Assignment) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`{}`)}
}

// work claims up to n steps, reports what becomes of them, and returns how many they were.
func (h *harness) work(n int, result func(tasker.Assignment) tasker.Outcome) int {
	h.Helper()
	did := 0
	for did < n {
		list, err := h.Engine.Claim(h.Context(), h.worker, min(n-did, 100), 0)
		h.Must(err)
		if len(list) == 0 {
			break
		}
		outcomes := make([]tasker.Outcome, len(list))
		for i, a := range list {
			outcomes[i] = result(a)
		}
		_, err = h.Engine.Report(h.Context(), h.worker, outcomes, 0)
		h.Must(err)
		did += len(list)
	}
	return did
}

// plan returns a request to reset all that has failed.
func plan() tasker.OperationPlan {
	return tasker.OperationPlan{
		Act: tasker.ActReset, Actor: "ann", Reason: "gateway is back", Waves: []int{},
		Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Namespace: enginetest.Namespace}},
	}
}

func (h *harness) planned(p tasker.OperationPlan) tasker.Operation {
	h.Helper()
	o, _, err := h.ops.Plan(h.Context(), p)
	h.Must(err)
	return o
}

func (h *harness) started(p tasker.OperationPlan) tasker.Operation {
	h.Helper()
	o := h.planned(p)
	o, err := h.ops.Start(h.Context(), o.UUID, o.PlanDigest, "ann")
	h.Must(err)
	return o
}

// release makes passes until there is nothing to release now.
func (h *harness) release() {
	h.Helper()
	for {
		next, err := h.ops.Release(h.Context())
		h.Must(err)
		if next != loop.AtOnce {
			return
		}
	}
}

// releaseAll releases all items of operations. An item whose task somebody holds, and an operation about
// which nothing could be decided, are left to a later pass.
func (h *harness) releaseAll(list ...tasker.Operation) {
	h.Helper()
	for range 20 {
		h.release()
		if !slices.ContainsFunc(list, func(o tasker.Operation) bool { return h.now(o).Counts[tasker.ItemPlanned] > 0 }) {
			return
		}
		h.due()
	}
}

func (h *harness) look() {
	h.Helper()
	for {
		next, err := h.ops.VerifyItems(h.Context())
		h.Must(err)
		if next != loop.AtOnce {
			return
		}
	}
}

// due lets running operations release items now, as if time had passed.
func (h *harness) due() {
	h.Helper()
	h.Exec(`UPDATE tasker.operations SET next_release_at = now() - interval '1 millisecond' WHERE state = 'running'`)
}

func (h *harness) now(o tasker.Operation) tasker.Operation {
	h.Helper()
	o, err := h.DB.Operation(h.Context(), o.UUID)
	h.Must(err)
	return o
}

// act performs an operator's action on the failed step of a task.
func (h *harness) act(task tasker.ID, action tasker.StepAction) {
	h.Helper()
	_, err := h.Engine.OperateStep(h.Context(), task, *h.Entry(task).StepUUID, tasker.ActionRequest{Action: action, Actor: "bob", Reason: "r"})
	h.Must(err)
}

func (h *harness) start(o tasker.Operation) {
	h.Helper()
	_, err := h.ops.Start(h.Context(), o.UUID, o.PlanDigest, "ann")
	h.Must(err)
}

func (h *harness) resume(o tasker.Operation) {
	h.Helper()
	_, err := h.ops.Resume(h.Context(), o.UUID, "ann", tasker.ResumeOptions{})
	h.Must(err)
}

func (h *harness) dryRun(o tasker.Operation, limit int) tasker.DryRun {
	h.Helper()
	r, err := h.ops.DryRun(h.Context(), o.UUID, 0, limit)
	h.Must(err)
	return r
}

// releaseDue lets time pass and releases.
func (h *harness) releaseDue() {
	h.Helper()
	h.due()
	h.release()
}

// wantRunning fails the test unless the operation is running.
func (h *harness) wantRunning(o tasker.Operation) {
	h.Helper()
	if now := h.now(o); now.State != tasker.OperationRunning {
		h.Fatalf("operation is %s, %+v; want running", now.State, now.Pause)
	}
}

// wantPaused fails the test unless the operation is paused for the reason after that many failures.
func (h *harness) wantPaused(o tasker.Operation, why tasker.PauseReason, failures int) {
	h.Helper()
	if now := h.now(o); now.State != tasker.OperationPaused || now.Pause.For != why || now.Pause.Failures != failures {
		h.Fatalf("operation is %s, %+v; want paused for %s after %d failures", now.State, now.Pause, why, failures)
	}
}

// wantCounts compares the numbers of items in states, those that are not 0.
func (h *harness) wantCounts(o tasker.Operation, state tasker.OperationState, want map[tasker.ItemState]int64) tasker.Operation {
	h.Helper()
	o = h.now(o)
	got := map[tasker.ItemState]int64{}
	var sum int64
	for s, n := range o.Counts {
		if sum += n; n > 0 {
			got[s] = n
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || o.State != state || sum != int64(o.Items) {
		h.Fatalf("operation is %s, want %s; %d items are frozen, %d counted (-want +got):\n%s", o.State, state, o.Items, sum, diff)
	}
	return o
}

type counts = map[tasker.ItemState]int64

// The steps of an operation run again, and what has succeeded is verified: its
// investigation ends with the proof, and each act is on record as one by hand is.
func TestAnOperationRepairsAndProves(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(7)
	o := h.planned(plan())
	if o.State != tasker.OperationPlanned || o.Items != 7 || o.Capped || !slices.Equal(o.Namespaces, []string{"shop"}) {
		t.Fatalf("planned %+v", o)
	}
	h.release() // which does nothing
	h.wantCounts(o, tasker.OperationPlanned, counts{tasker.ItemPlanned: 7})
	o, err := h.ops.Start(t.Context(), o.UUID, o.PlanDigest, "ann")
	h.Must(err)
	h.release()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 7})
	h.look()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 7})
	list, err := h.Engine.Claim(t.Context(), h.worker, 2, 0)
	h.Must(err)
	h.look()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 5, tasker.ItemRunning: 2})
	_, err = h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{succeeds(list[0]), fails("no")(list[1])}, 0)
	h.Must(err)
	h.look()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 5, tasker.ItemVerified: 1, tasker.ItemFailedAgain: 1})
	h.work(100, succeeds)
	h.look()
	o = h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 6, tasker.ItemFailedAgain: 1})
	if o.EndedAt == nil || o.SettledAt == nil {
		t.Errorf("done, and ended at %v, settled at %v", o.EndedAt, o.SettledAt)
	}
	for _, task := range tasks {
		e, err := h.DB.Entry(t.Context(), h.Entry(task).UUID)
		h.Must(err)
		var events []string
		for _, x := range e.History {
			events = append(events, x.Event)
		}
		if task == list[1].TaskUUID {
			if e.ResolutionStatus != tasker.EntryPending || !slices.Equal(events, []string{"created", "step_reset", "step_failed"}) {
				t.Errorf("of what failed again: %s, %q", e.ResolutionStatus, events)
			}
			continue
		}
		var metadata struct{ Proof map[string]any }
		h.Must(json.Unmarshal(e.Metadata, &metadata))
		if e.ResolutionStatus != tasker.EntryManuallyResolved || *e.ResolvedBy != "ann" || !slices.Equal(events, []string{"created", "step_reset", "resolved"}) {
			t.Errorf("of what is verified: %s, %q", e.ResolutionStatus, events)
		}
		if p := metadata.Proof; p["operation_uuid"] != o.UUID.String() || p["step_name"] != "charge" || p["worker_version"] != "1.5.0" || p["attempt"] != 1.0 {
			t.Errorf("the proof is %s", e.Metadata)
		}
	}
	for what, want := range map[string]int{
		`SELECT count(*) FROM tasker.workflow_step_transitions WHERE operation_uuid = $1 AND event = 'reset_for_retry' AND actor = 'ann' AND reason = 'gateway is back'`:   7,
		`SELECT count(*) FROM tasker.audit_events WHERE action = 'step.reset' AND data ->> 'operation_uuid' = $1::uuid::text AND actor = 'ann'`:                            7,
		`SELECT count(*) FROM tasker.tasks_dlq_history WHERE event = 'step_reset' AND metadata ->> 'operation_uuid' = $1::uuid::text AND actor = 'ann'`:                    7,
		`SELECT count(DISTINCT action) FROM tasker.audit_events WHERE subject = $1::uuid::text AND action IN ('operation.planned', 'operation.started', 'operation.done')`: 3,
	} {
		if n := h.Count(what, o.UUID); n != want {
			t.Errorf("%d rows, want %d: %s", n, want, what)
		}
	}
}
