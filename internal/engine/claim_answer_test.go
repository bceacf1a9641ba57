package engine_test

import (
	"context"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

// The answer to a report carries the step that it made ready, and both were
// written in one transaction: one commit a step, not two.
func TestAReportHandsOutWhatItMadeReady(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	task := h.Create("chain")
	r, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{success(h.claimOne("one"), `1`)}, 5)
	h.Must(err)
	if len(r.Accepted) != 1 || len(r.Next) != 1 || r.Next[0].Name != "two" || string(r.Next[0].DependencyResults["one"]) != "1" {
		t.Fatalf("receipt %+v", r)
	}
	var transactions, moves int
	h.Must(h.pool.QueryRow(t.Context(), `
		SELECT (SELECT count(DISTINCT s.xmin::text) FROM tasker.workflow_steps s WHERE s.task_uuid = $1), count(*)
		FROM tasker.workflow_step_transitions
		WHERE task_uuid = $1 AND (event = 'succeed' OR transition_id > (
			SELECT transition_id FROM tasker.workflow_step_transitions WHERE task_uuid = $1 AND event = 'succeed'))`, task).Scan(&transactions, &moves))
	if transactions != 1 || moves != 3 { // succeed, enqueue, claim
		t.Errorf("%d moves in %d transactions", moves, transactions)
	}
	h.accepted(success(r.Next[0], `2`))
	h.wantState(task, tasker.TaskComplete)
}

// heldAndQueued makes a task whose only step and attempt is held, and another one
// whose step is enqueued.
func (h *harness) heldAndQueued() (task tasker.ID, held tasker.Assignment, queued tasker.ID) {
	h.Helper()
	h.Template("single", attempts(1, enginetest.Step("one")))
	task = h.Create("single")
	held = h.claimOne("one")
	return task, held, h.Create("single")
}

// What failed does not keep the worker from its next work.
func TestAReportOfAFailureHandsOutWork(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, a, other := h.heldAndQueued()
	r, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{failure(a, false)}, 1)
	h.Must(err)
	if len(r.Accepted) != 1 || len(r.Next) != 1 || r.Next[0].TaskUUID != other {
		t.Errorf("receipt %+v", r)
	}
	// Nor does a report that is refused.
	h.Create("single")
	r, err = h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{success(a, `1`)}, 1)
	h.Must(err)
	if len(r.Rejected) != 1 || len(r.Next) != 1 {
		t.Errorf("receipt %+v", r)
	}
}

// What was handed out is told, even when nobody can say what became of a part of
// the report: a step that no worker knows of would cost an attempt.
func TestAHandOutIsToldEvenIfTheReportCannotBeExplained(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(1, enginetest.Step("one")))
	h.Create("single")
	stale := h.claimOne("one")
	_, _, err := h.Engine.Release(t.Context(), h.worker, []tasker.Lease{stale.Lease()})
	h.Must(err)
	good := h.claimOne("one")
	next := h.Create("single")
	h.fails("INSERT ON tasker.rejected_reports FOR EACH ROW")
	h.Create("single")
	r, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{success(stale, `1`)}, 1)
	h.Must(err)
	if len(r.Next) != 1 || r.Next[0].TaskUUID != next {
		t.Errorf("receipt %+v", r)
	}
	h.accepted(success(good, `1`))
}

// A claim that fails does not keep a report from being taken.
func TestAFailingClaimDoesNotKeepTheReport(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, a, other := h.heldAndQueued()
	h.fails("UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.state = 'in_progress')")
	r, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{success(a, `1`)}, 1)
	h.Must(err)
	if len(r.Accepted) != 1 || len(r.Next) != 0 {
		t.Errorf("receipt %+v", r)
	}
	h.wantState(task, tasker.TaskComplete)
	h.wantStep(other, "one", tasker.StepEnqueued, 1)
}

// Who is gone gets no work.
func TestACancelledReportTakesNoWork(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, a, other := h.heldAndQueued()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Engine.Report(gone, h.worker, []tasker.Outcome{success(a, `1`)}, 1); err == nil {
		t.Error("a report of somebody who is gone was taken")
	}
	h.wantStep(other, "one", tasker.StepEnqueued, 1)
	h.accepted(success(a, `1`))
	h.wantState(task, tasker.TaskComplete)
}

// Steps whose template cannot be read go back into the queue, and use no attempt.
func TestStepsThatCannotBeHandedOutGoBack(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", enginetest.Step("one"))
	task := h.Create("one")
	h.Engine = newEngine(h.DB, engine.Options{}) // that has read no template
	h.Exec(`ALTER TABLE tasker.task_templates RENAME COLUMN source TO gone`)
	if list, err := h.Engine.Claim(t.Context(), h.worker, 10, 0); err == nil {
		t.Errorf("claimed %v", names(list))
	}
	h.wantStep(task, "one", tasker.StepEnqueued, 1)
	h.Exec(`ALTER TABLE tasker.task_templates RENAME COLUMN gone TO source`)
	if a := h.claimOne("one"); a.Attempt != 1 {
		t.Errorf("it is handed out as attempt %d", a.Attempt)
	}
}
