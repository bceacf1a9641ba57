package engine_test

import (
	"encoding/json"
	"sync"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func TestRepeatedActionIsAppliedOnce(t *testing.T) {
	h := newSingle(t)
	task := h.Create("single")
	h.ClaimOne("one")
	step := h.Step(task, "one").UUID
	reset := tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "stuck", Interrupt: true, RequestKey: "key-1"}
	h.Must(errOf(h.Engine.OperateStep(t.Context(), task, step, reset)))
	held := h.ClaimOne("one")
	again, err := h.Engine.OperateStep(t.Context(), task, step, reset)
	h.Must(err)
	check(t, again.State == tasker.StepInProgress && again.Attempts == 1,
		"answered with a step that is %s in attempt %d", again.State, again.Attempts)
	other := reset
	other.Reason = "something else"
	_, err = h.Engine.OperateStep(t.Context(), task, step, other)
	h.WantCode(err, tasker.Conflict, "was used for a different request")
	h.Accepted(success(held, `1`))

	// Without a key, each request is a new one; a refused one leaves its key free.
	reset.RequestKey = "key-2"
	_, err = h.Engine.OperateStep(t.Context(), task, step, reset)
	h.WantCode(err, tasker.Conflict, "its steps can no longer be changed")
	next := h.Create("single")
	reset.RequestKey = "key-2"
	h.ClaimOne("one")
	h.Operate(next, "one", reset)
	h.Drain()
}

func TestConcurrentEqualActionsApplyOnce(t *testing.T) {
	h := newSingle(t)
	task := h.Create("single")
	h.ClaimOne("one")
	step := h.Step(task, "one").UUID
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
	equal(t, "resets", resets, 1)
	h.Drain()
}

func TestActionsAreRecorded(t *testing.T) {
	h := newHarness(t)
	h.Template("single", attempts(2, enginetest.Step("one")))
	task := h.Create("single")
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.pass()
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.WantState(task, tasker.TaskError)
	step := h.Step(task, "one").UUID
	operate := func(op tasker.ActionRequest) {
		t.Helper()
		op.Actor = "ann"
		h.Must(errOf(h.Engine.OperateStep(t.Context(), task, step, op)))
	}
	operate(tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "the bank is back"})
	h.ClaimOne("one")
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
	require(t, len(got) == len(want), "history %+v, want %+v", got, want)
	for i := range want {
		equal(t, "history", got[i], want[i])
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
	check(t, len(ended) == 2 && ended[0] == 2 && ended[1] == 1, "the resets ended attempts %v, want [2 1]", ended)
}
