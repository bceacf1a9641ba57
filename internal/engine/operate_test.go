package engine_test

import (
	"encoding/json"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// broken returns a task of three steps whose second has failed for good.
func (h *harness) broken() tasker.ID {
	h.Helper()
	h.Template("chain", enginetest.Step("one"), attempts(2, enginetest.Step("two", "one")), enginetest.Step("three", "two"))
	task := h.Create("chain")
	h.Complete("one")
	h.Accepted(failure(h.ClaimOne("two"), true))
	h.pass()
	h.Accepted(failure(h.ClaimOne("two"), true))
	h.WantState(task, tasker.TaskError)
	return task
}

func TestOperatorRepairsAStep(t *testing.T) {
	h := newHarness(t)
	for _, tt := range []struct {
		action   tasker.StepAction
		state    tasker.StepState // of the step as the action leaves it
		runs     bool             // the step runs once more
		receives string           // what the third step receives of it
	}{
		{tasker.ResetForRetry, tasker.StepPending, true, `{"second": true}`},
		{tasker.ResolveManually, tasker.StepResolvedManually, false, `null`},
		{tasker.CompleteManually, tasker.StepComplete, false, `{"payment": 42}`},
	} {
		h.each(string(tt.action), func(h *harness) {
			task := h.broken()
			before := h.History(task)
			left := h.Operate(task, "two", operation(tt.action))
			check(h, left.State == tt.state && (!tt.runs || left.Attempts == 0),
				"the action left the step %s after %d attempts", left.State, left.Attempts)
			h.WantState(task, tasker.TaskStepsInProcess)
			if tt.runs {
				h.WantStep(task, "two", tasker.StepEnqueued, 1)
				h.Accepted(success(h.ClaimOne("two"), `{"second": true}`))
			}
			three := h.ClaimOne("three")
			equal(h, "result for step three", string(three.DependencyResults["two"]), tt.receives)
			h.Accepted(success(three, `3`))
			h.WantState(task, tasker.TaskComplete)
			h.WantHistory(task, before+" enqueuing_steps steps_in_process evaluating_results complete")
			list, _, err := h.DB.StepTransitions(h.Context(), task, left.UUID, 100, 0)
			h.Must(err)
			x := list[len(list)-1]
			if tt.runs {
				x = list[len(list)-4] // before enqueued, claimed, done
			}
			check(h, x.Event == string(tt.action) && x.Actor == "ann@example.org" && x.Reason == "gateway is back",
				"history of the step has %+v", x)
			if e := h.Entry(task); e.ResolutionStatus != tasker.EntryPending || e.CurrentTaskState != tasker.TaskComplete {
				h.Errorf("entry is %s, task %s", e.ResolutionStatus, e.CurrentTaskState)
			}
		})
	}
}

func TestInvalidActionsAreRejected(t *testing.T) {
	h := newHarness(t)
	task := h.broken()
	two := h.Step(task, "two").UUID
	for _, tt := range []struct {
		name string
		step tasker.ID
		op   tasker.ActionRequest
		code tasker.Code
		says string
	}{
		{"a complete step", h.Step(task, "one").UUID, operation(tasker.ResetForRetry), tasker.Conflict, "is complete: no action is allowed"},
		{"a reset of a pending step", h.Step(task, "three").UUID, operation(tasker.ResetForRetry), tasker.Conflict, "is pending and waits for its dependencies or for an external answer: allowed actions are resolve_manually, complete_manually"},
		{"a step of nobody", tasker.NewID(), operation(tasker.ResetForRetry), tasker.NotFound, "has no step"},
		{"an action that there is not", two, tasker.ActionRequest{Action: "retry", Actor: "a", Reason: "r"}, tasker.Invalid, "action_type: must be"},
		{"nobody", two, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "r"}, tasker.Invalid, "actor: is missing"},
		{"no reason", two, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "a", Reason: "  "}, tasker.Invalid, "reason: is missing"},
		{"no result", two, tasker.ActionRequest{Action: tasker.CompleteManually, Actor: "a", Reason: "r"}, tasker.Invalid, "completion_data.result: is missing"},
		{"a broken result", two, tasker.ActionRequest{Action: tasker.CompleteManually, Actor: "a", Reason: "r", Result: json.RawMessage(`{`)}, tasker.Invalid, "result: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.WantCode(errOf(h.Engine.OperateStep(t.Context(), task, tt.step, tt.op)), tt.code, tt.says)
		})
	}
	_, err := h.Engine.OperateStep(t.Context(), tasker.NewID(), two, operation(tasker.ResetForRetry))
	h.WantCode(err, tasker.NotFound, "not found")
	h.WantState(task, tasker.TaskError)
}

func TestStepInProgressMustBeInterrupted(t *testing.T) {
	h := newSingle(t)
	task := h.Create("single")
	a := h.ClaimOne("one")
	op := operation(tasker.ResetForRetry)
	_, err := h.Engine.OperateStep(t.Context(), task, a.StepUUID, op)
	h.WantCode(err, tasker.Conflict, "is in_progress", "set interrupt")
	op.Interrupt = true
	h.Must(errOf(h.Engine.OperateStep(t.Context(), task, a.StepUUID, op)))
	beat, err := h.Engine.Heartbeat(t.Context(), h.Worker, []tasker.Lease{a.Lease()})
	h.Must(err)
	check(t, len(beat.Lost) == 1, "beat %+v", beat)
	h.Rejected(success(a, `1`))
	h.Drain()
	h.WantState(task, tasker.TaskComplete)
}

func TestOpenTaskCanBeCancelledInEveryState(t *testing.T) {
	h := newHarness(t)
	failed := h.broken()
	h.Template("outside", external("wait"))
	outside := h.Create("outside")
	h.Template("single", enginetest.Step("one"))
	retrying := h.Create("single")
	h.Accepted(failure(h.ClaimOne("one"), true))
	for _, task := range []tasker.ID{failed, outside, retrying} {
		h.Cancel(task)
		h.WantState(task, tasker.TaskCancelled)
	}
	_, err := h.Engine.OperateStep(t.Context(), retrying, h.Step(retrying, "one").UUID, operation(tasker.ResetForRetry))
	h.WantCode(err, tasker.Conflict, "is cancelled")
	h.pass()
	h.ClaimNone()
	done := h.Create("single")
	h.Drain()
	h.WantCode(h.Engine.CancelTask(t.Context(), done, "", ""), tasker.Conflict, "complete and cannot be cancelled")
	h.WantCode(h.Engine.CancelTask(t.Context(), tasker.NewID(), "", ""), tasker.NotFound)
}
