package engine_test

import (
	"encoding/json"
	"sync"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// The same reset, sent again, takes nothing away from the attempt that it led to.
func TestARepeatedRequestOfAnOperatorIsAppliedOnce(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	h.claimOne("one")
	step := h.step(task, "one").UUID
	reset := tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "stuck", Interrupt: true, RequestKey: "key-1"}
	_, err := h.Engine.OperateStep(t.Context(), task, step, reset)
	h.Must(err)
	held := h.claimOne("one")
	again, err := h.Engine.OperateStep(t.Context(), task, step, reset)
	h.Must(err)
	if again.State != tasker.StepInProgress || again.Attempts != 1 {
		t.Errorf("answered with a step that is %s in attempt %d", again.State, again.Attempts)
	}
	other := reset
	other.Reason = "something else"
	_, err = h.Engine.OperateStep(t.Context(), task, step, other)
	h.WantCode(err, tasker.Conflict, `"key-1" was used for a different request`)
	h.accepted(success(held, `1`))

	// Without a key, each request is a new one; a refused one leaves its key free.
	reset.RequestKey = "key-2"
	_, err = h.Engine.OperateStep(t.Context(), task, step, reset)
	h.WantCode(err, tasker.Conflict, "its steps can no longer be changed")
	next := h.Create("single")
	reset.RequestKey = "key-2"
	h.claimOne("one")
	_, err = h.Engine.OperateStep(t.Context(), next, h.step(next, "one").UUID, reset)
	h.Must(err)
	h.drain()
}

func TestOfTwoEqualRequestsAtOnceOneIsApplied(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	h.claimOne("one")
	step := h.step(task, "one").UUID
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := h.Engine.OperateStep(t.Context(), task, step,
				tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "stuck", Interrupt: true, RequestKey: "k"})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, _, err := h.DB.StepTransitions(t.Context(), task, step, 100, 0)
	h.Must(err)
	resets := 0
	for _, x := range list {
		if x.Event == "reset_for_retry" {
			resets++
		}
	}
	if resets != 1 {
		t.Errorf("%d resets, want 1", resets)
	}
	h.drain()
}

// What a person does to a task is in the history of its open investigation and in
// the audit log; the history of the step says which attempt a reset ended.
func TestRepairsAreOnRecord(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(2, enginetest.Step("one")))
	task := h.Create("single")
	h.accepted(failure(h.claimOne("one"), true))
	h.pass()
	h.accepted(failure(h.claimOne("one"), true))
	h.wantState(task, tasker.TaskError)
	step := h.step(task, "one").UUID
	operate := func(op tasker.ActionRequest) {
		t.Helper()
		op.Actor = "ann"
		_, err := h.Engine.OperateStep(t.Context(), task, step, op)
		h.Must(err)
	}
	operate(tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "the bank is back"})
	h.claimOne("one")
	operate(tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "it hangs", Interrupt: true})
	h.Must(h.Engine.CancelTask(t.Context(), task, "bob", "no use"))
	h.Must(h.Engine.CancelTask(t.Context(), task, "bob", "no use")) // again, it is nothing new

	e, err := h.DB.Entry(t.Context(), h.Entry(task).UUID)
	h.Must(err)
	type row struct{ Event, Actor, Notes string }
	var got []row
	for _, c := range e.History[1:] {
		got = append(got, row{c.Event, c.Actor, *c.Notes})
	}
	want := []row{
		{"step_reset", "ann", "step one: the bank is back"}, {"step_reset", "ann", "step one: it hangs"},
		{"task_cancelled", "bob", "the task was cancelled: no use"},
	}
	if len(got) != len(want) {
		t.Fatalf("history %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("history %+v, want %+v", got[i], want[i])
		}
	}
	audit, _, err := h.DB.AuditEvents(t.Context(), "", 0, 10)
	h.Must(err)
	if len(audit) != 3 || audit[0].Action != "task.cancelled" || audit[1].Action != "step.reset" || audit[1].Actor != "ann" || audit[1].Subject != step.String() {
		t.Fatalf("audit log %+v", audit)
	}
	var said struct {
		Reason    string `json:"reason"`
		Interrupt bool   `json:"interrupt"`
		TaskUUID  string `json:"task_uuid"`
	}
	h.Must(json.Unmarshal(audit[1].Data, &said))
	if said.Reason != "it hangs" || !said.Interrupt || said.TaskUUID != task.String() {
		t.Errorf("audit log says %s", audit[1].Data)
	}
	list, _, err := h.DB.StepTransitions(t.Context(), task, step, 100, 0)
	h.Must(err)
	var ended []int
	for _, x := range list {
		if x.Event == "reset_for_retry" {
			ended = append(ended, *x.Attempt)
		}
	}
	if len(ended) != 2 || ended[0] != 2 || ended[1] != 1 {
		t.Errorf("the resets ended attempts %v, want [2 1]", ended)
	}
}
