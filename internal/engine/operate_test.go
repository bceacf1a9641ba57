package engine_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// broken returns a task of three steps whose second has failed for good.
func (h *harness) broken() tasker.ID {
	h.Helper()
	h.Template("chain", enginetest.Step("one"), attempts(2, enginetest.Step("two", "one")), enginetest.Step("three", "two"))
	task := h.Create("chain")
	h.accepted(success(h.claimOne("one"), `1`))
	h.accepted(failure(h.claimOne("two"), true))
	h.pass()
	h.accepted(failure(h.claimOne("two"), true))
	h.wantState(task, tasker.TaskError)
	return task
}

func operation(a tasker.StepAction) tasker.ActionRequest {
	op := tasker.ActionRequest{Action: a, Actor: "ann@example.org", Reason: "gateway is back"}
	if a == tasker.CompleteManually {
		op.Result = json.RawMessage(`{"payment": 42}`)
		op.Metadata = json.RawMessage(`{"ticket": "OPS-1"}`)
	}
	return op
}

func TestRepairs(t *testing.T) {
	t.Parallel()
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
		t.Run(string(tt.action), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			task := h.broken()
			before := h.history(task)
			left, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "two").UUID, operation(tt.action))
			h.Must(err)
			if left.State != tt.state || (tt.runs && left.Attempts != 0) {
				t.Errorf("the action left the step %s after %d attempts", left.State, left.Attempts)
			}
			h.wantState(task, tasker.TaskStepsInProcess)
			if tt.runs {
				h.wantStep(task, "two", tasker.StepEnqueued, 1)
				h.accepted(success(h.claimOne("two"), `{"second": true}`))
			}
			three := h.claimOne("three")
			if got := string(three.DependencyResults["two"]); got != tt.receives {
				t.Errorf("three receives %s, want %s", got, tt.receives)
			}
			h.accepted(success(three, `3`))
			h.wantState(task, tasker.TaskComplete)
			want := before + " enqueuing_steps steps_in_process evaluating_results complete"
			if got := h.history(task); got != want {
				t.Errorf("history %s\nwant    %s", got, want)
			}
			list, _, err := h.DB.StepTransitions(t.Context(), task, left.UUID, 100, 0)
			h.Must(err)
			x := list[len(list)-1]
			if tt.runs {
				x = list[len(list)-4] // before enqueued, claimed, done
			}
			if x.Event != string(tt.action) || x.Actor != "ann@example.org" || x.Reason != "gateway is back" {
				t.Errorf("history of the step has %+v", x)
			}
			if e := h.Entry(task); e.ResolutionStatus != tasker.EntryPending || e.CurrentTaskState != tasker.TaskComplete {
				t.Errorf("entry is %s, task %s", e.ResolutionStatus, e.CurrentTaskState)
			}
		})
	}
}

func TestActionsThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.broken()
	two := h.step(task, "two").UUID
	for _, tt := range []struct {
		name string
		step tasker.ID
		op   tasker.ActionRequest
		code tasker.Code
		says string
	}{
		{"a complete step", h.step(task, "one").UUID, operation(tasker.ResetForRetry), tasker.Conflict, "is complete: no action is allowed"},
		{"a reset of a pending step", h.step(task, "three").UUID, operation(tasker.ResetForRetry), tasker.Conflict, "is pending and waits for its dependencies or for an external answer: allowed actions are resolve_manually, complete_manually"},
		{"a step of nobody", tasker.NewID(), operation(tasker.ResetForRetry), tasker.NotFound, "has no step"},
		{"an action that there is not", two, tasker.ActionRequest{Action: "retry", Actor: "a", Reason: "r"}, tasker.Invalid, "action_type: must be"},
		{"nobody", two, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "r"}, tasker.Invalid, "actor: is missing"},
		{"no reason", two, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "a", Reason: "  "}, tasker.Invalid, "reason: is missing"},
		{"no result", two, tasker.ActionRequest{Action: tasker.CompleteManually, Actor: "a", Reason: "r"}, tasker.Invalid, "completion_data.result: is missing"},
		{"a broken result", two, tasker.ActionRequest{Action: tasker.CompleteManually, Actor: "a", Reason: "r", Result: json.RawMessage(`{`)}, tasker.Invalid, "result: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := h.Engine.OperateStep(t.Context(), task, tt.step, tt.op)
			h.WantCode(err, tt.code, tt.says)
		})
	}
	_, err := h.Engine.OperateStep(t.Context(), tasker.NewID(), two, operation(tasker.ResetForRetry))
	h.WantCode(err, tasker.NotFound, "not found")
	h.wantState(task, tasker.TaskError)
}

func TestAStepInProgressMustBeInterrupted(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	a := h.claimOne("one")
	op := operation(tasker.ResetForRetry)
	_, err := h.Engine.OperateStep(t.Context(), task, a.StepUUID, op)
	h.WantCode(err, tasker.Conflict, "is in_progress", "set interrupt")
	op.Interrupt = true
	_, err = h.Engine.OperateStep(t.Context(), task, a.StepUUID, op)
	h.Must(err)
	beat, err := h.Engine.Heartbeat(t.Context(), h.worker, []tasker.Lease{a.Lease()})
	h.Must(err)
	if len(beat.Lost) != 1 {
		t.Errorf("beat %+v", beat)
	}
	if r := h.report(success(a, `1`)); len(r.Rejected) != 1 {
		t.Errorf("receipt %+v", r)
	}
	h.drain()
	h.wantState(task, tasker.TaskComplete)
}

// The second operator learns of the first even when they want something else.
func TestAStepThatWasResetMustBeInterrupted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.broken()
	two := h.step(task, "two").UUID
	_, err := h.Engine.OperateStep(t.Context(), task, two, operation(tasker.ResetForRetry))
	h.Must(err)
	op := operation(tasker.CompleteManually)
	_, err = h.Engine.OperateStep(t.Context(), task, two, op)
	h.WantCode(err, tasker.Conflict, "is enqueued and continues automatically", "set interrupt")
	op.Interrupt = true
	_, err = h.Engine.OperateStep(t.Context(), task, two, op)
	h.Must(err)
	h.drain()
	h.wantState(task, tasker.TaskComplete)
}

func TestOfTwoOperatorsOneWins(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.broken()
	two := h.step(task, "two").UUID
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = h.Engine.OperateStep(t.Context(), task, two, operation(tasker.CompleteManually)) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if tasker.CodeOf(err) != tasker.Conflict {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d operators won", won)
	}
}

func TestAPendingStepSettledAheadIsNotRun(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"), enginetest.Step("three", "two"))
	task := h.Create("chain")
	_, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "two").UUID, operation(tasker.ResolveManually))
	h.Must(err)
	h.wantState(task, tasker.TaskStepsInProcess)
	list := h.claim()
	if got := strings.Join(names(list), " "); got != "one three" {
		t.Fatalf("claimed %s, want one and three", got)
	}
	h.accepted(success(list[0], `1`), success(list[1], `1`))
	h.wantState(task, tasker.TaskComplete)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("fork", enginetest.Step("a"), enginetest.Step("b"), enginetest.Step("c", "a", "b"))
	task := h.Create("fork")
	list := h.claim()
	h.accepted(success(list[0], `1`))
	for range 2 { // the second time changes nothing
		h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not needed"))
	}
	h.wantState(task, tasker.TaskCancelled)
	h.wantStep(task, list[0].Name, tasker.StepComplete, 1)
	h.wantStep(task, list[1].Name, tasker.StepCancelled, 1)
	h.wantStep(task, "c", tasker.StepCancelled, 0)
	if r := h.report(success(list[1], `1`)); len(r.Rejected) != 1 {
		t.Errorf("receipt %+v", r)
	}
	_, err := h.Engine.OperateStep(t.Context(), task, list[1].StepUUID, operation(tasker.ResetForRetry))
	h.WantCode(err, tasker.Conflict, "is cancelled")
	done := h.Create("fork")
	h.drain()
	h.WantCode(h.Engine.CancelTask(t.Context(), done, "", ""), tasker.Conflict, "complete and cannot be cancelled")
	h.WantCode(h.Engine.CancelTask(t.Context(), tasker.NewID(), "", ""), tasker.NotFound)
}

func TestCancelInEveryState(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	failed := h.broken()
	h.Template("outside", external("wait"))
	outside := h.Create("outside")
	h.Template("single", enginetest.Step("one"))
	retrying := h.Create("single")
	h.accepted(failure(h.claimOne("one"), true))
	for _, task := range []tasker.ID{failed, outside, retrying} {
		h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "enough"))
		h.wantState(task, tasker.TaskCancelled)
	}
	h.pass()
	if list := h.claim(); len(list) != 0 {
		t.Errorf("steps of cancelled tasks can be claimed: %v", names(list))
	}
}
