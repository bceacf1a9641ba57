package engine_test

import (
	"context"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func TestReportReturnsTheStepItMadeReady(t *testing.T) {
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	task := h.Create("chain")
	r, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{success(h.ClaimOne("one"), `1`)}, 5)
	h.Must(err)
	if len(r.Accepted) != 1 || len(r.Next) != 1 || r.Next[0].Name != "two" || string(r.Next[0].DependencyResults["one"]) != "1" {
		t.Fatalf("receipt %+v", r)
	}
	var transactions, moves int
	h.Must(h.Admin().QueryRow(t.Context(), `
		SELECT (SELECT count(DISTINCT s.xmin::text) FROM tasker.workflow_steps s WHERE s.task_uuid = $1), count(*)
		FROM tasker.workflow_step_transitions
		WHERE task_uuid = $1 AND (event = 'succeed' OR transition_id > (
			SELECT transition_id FROM tasker.workflow_step_transitions WHERE task_uuid = $1 AND event = 'succeed'))`, task).Scan(&transactions, &moves))
	if transactions != 1 || moves != 3 { // succeed, enqueue, claim
		t.Errorf("%d moves in %d transactions", moves, transactions)
	}
	h.Accepted(success(r.Next[0], `2`))
	h.WantState(task, tasker.TaskComplete)
}

// heldAndQueued makes a task whose only step and attempt is held, and another one
// whose step is enqueued.
func (h *harness) heldAndQueued() (task tasker.ID, held tasker.Assignment, queued tasker.ID) {
	h.Helper()
	h.Template("single", attempts(1, enginetest.Step("one")))
	task = h.Create("single")
	held = h.ClaimOne("one")
	return task, held, h.Create("single")
}

func TestFailedOrRejectedReportReturnsMoreWork(t *testing.T) {
	h := newHarness(t)
	_, a, other := h.heldAndQueued()
	r, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{failure(a, false)}, 1)
	h.Must(err)
	check(t, len(r.Accepted) == 1 && len(r.Next) == 1 && r.Next[0].TaskUUID == other, "receipt %+v", r)
	// Nor does a report that is refused.
	h.Create("single")
	r, err = h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{success(a, `1`)}, 1)
	h.Must(err)
	check(t, len(r.Rejected) == 1 && len(r.Next) == 1, "receipt %+v", r)
}

func TestClaimedStepsAreReturnedIfARejectionCannotBeRecorded(t *testing.T) {
	h := newHarness(t)
	h.Template("single", attempts(1, enginetest.Step("one")))
	h.Create("single")
	stale := h.ClaimOne("one")
	h.Release(stale)
	good := h.ClaimOne("one")
	next := h.Create("single")
	h.poison("INSERT ON tasker.rejected_reports", "true")
	h.Create("single")
	r, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{success(stale, `1`)}, 1)
	h.Must(err)
	check(t, len(r.Next) == 1 && r.Next[0].TaskUUID == next, "receipt %+v", r)
	h.Accepted(success(good, `1`))
}

func TestReportIsAcceptedIfItsClaimFails(t *testing.T) {
	h := newHarness(t)
	task, a, other := h.heldAndQueued()
	h.poison("UPDATE ON tasker.workflow_steps", "NEW.state = 'in_progress'")
	r, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{success(a, `1`)}, 1)
	h.Must(err)
	check(t, len(r.Accepted) == 1 && len(r.Next) == 0, "receipt %+v", r)
	h.WantState(task, tasker.TaskComplete)
	h.WantStep(other, "one", tasker.StepEnqueued, 1)
}

func TestCancelledReportClaimsNothing(t *testing.T) {
	h := newHarness(t)
	task, a, other := h.heldAndQueued()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Engine.Report(gone, h.Worker, []tasker.Outcome{success(a, `1`)}, 1); err == nil {
		t.Error("a report of somebody who is gone was taken")
	}
	h.WantStep(other, "one", tasker.StepEnqueued, 1)
	h.Accepted(success(a, `1`))
	h.WantState(task, tasker.TaskComplete)
}
