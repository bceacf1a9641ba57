package engine_test

import (
	"testing"

	"tasker"
)

// The answer to a report carries the step that it made ready, and both were
// written in one transaction: one commit a step, not two.
func TestAReportHandsOutWhatItMadeReady(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.template("chain", step("one"), step("two", "one"))
	task := h.create("chain")
	r, err := h.engine.Report(t.Context(), h.worker, []tasker.Outcome{success(h.claimOne("one"), `1`)}, 5)
	h.must(err)
	if len(r.Accepted) != 1 || len(r.Next) != 1 || r.Next[0].Name != "two" || string(r.Next[0].DependencyResults["one"]) != "1" {
		t.Fatalf("receipt %+v", r)
	}
	var transactions, moves int
	h.must(h.pool.QueryRow(t.Context(), `
		SELECT count(DISTINCT xmin::text), count(*)
		FROM tasker.workflow_step_transitions
		WHERE task_uuid = $1 AND (event = 'succeed' OR transition_id > (
			SELECT transition_id FROM tasker.workflow_step_transitions WHERE task_uuid = $1 AND event = 'succeed'))`, task).Scan(&transactions, &moves))
	if transactions != 1 || moves != 3 { // succeed, enqueue, claim
		t.Errorf("%d moves in %d transactions", moves, transactions)
	}
	h.accepted(success(r.Next[0], `2`))
	h.wantState(task, tasker.TaskComplete)
}

// What failed does not keep the worker from its next work.
func TestAReportOfAFailureHandsOutWork(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.template("single", attempts(1, step("one")))
	h.create("single")
	a := h.claimOne("one")
	other := h.create("single")
	r, err := h.engine.Report(t.Context(), h.worker, []tasker.Outcome{failure(a, false)}, 1)
	h.must(err)
	if len(r.Accepted) != 1 || len(r.Next) != 1 || r.Next[0].TaskUUID != other {
		t.Errorf("receipt %+v", r)
	}
	// Nor does a report that is refused.
	h.create("single")
	r, err = h.engine.Report(t.Context(), h.worker, []tasker.Outcome{success(a, `1`)}, 1)
	h.must(err)
	if len(r.Rejected) != 1 || len(r.Next) != 1 {
		t.Errorf("receipt %+v", r)
	}
}
