package operation_test

import (
	"encoding/json"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// approvals makes tasks that wait for an answer of an external step, each with an investigation that a person opened.
func (h *harness) approvals(n int, form string) {
	h.Helper()
	approve := tasker.StepTemplate{Name: "approve", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), Form: json.RawMessage(form)}
	h.Template("approval", approve, enginetest.Once(enginetest.Step("ship", "approve")))
	for range n {
		_, err := h.DLQ.Open(h.Context(), h.Create("approval"), tasker.NewEntry{Actor: "ann", Reason: "nobody answers"})
		h.Must(err)
	}
	_, err := h.Engine.Tick(h.Context()) // decides that the steps wait
	h.Must(err)
}

func TestExternalStepsAreAnsweredTogether(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.approvals(3, `{"type": "object", "required": ["approved"], "properties": {"approved": {"type": "boolean"}}}`)
	p := plan()
	_, _, err := h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.NotFound, "none of these 3 investigations has a failed step", "--answer", "--end")
	p.Act, p.Result = tasker.ActAnswer, json.RawMessage(`{"approved": "yes"}`)
	refused := h.started(p)
	h.release()
	h.look()
	h.wantCounts(refused, tasker.OperationDone, counts{tasker.ItemSkipped: 3})
	if n := h.Count(`SELECT count(*) FROM tasker.operation_items WHERE outcome = 'refused' AND failure_text LIKE '%approved%'`); n != 3 {
		t.Errorf("%d items have the fault of the form", n)
	}
	p.Result = json.RawMessage(`{"approved": true}`)
	o := h.started(p)
	h.release()
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 3})
	if n := h.work(10, succeeds); n != 3 {
		t.Errorf("%d steps behind the answers ran, want 3", n)
	}
	h.stuck(1)
	p.Selection.Filter.Name = "order"
	_, _, err = h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.NotFound, "this investigation does not have an external step that waits")
}

func TestInvestigationsThatAPersonOpenedEndTogether(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.approvals(4, `{"type": "object"}`)
	p := plan()
	p.Act = tasker.ActEnd
	o := h.started(p)
	h.release()
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 4})
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`); n != 0 {
		t.Errorf("%d investigations are open", n)
	}
}
