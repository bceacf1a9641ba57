package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
)

func TestChainOfStepsCompletes(t *testing.T) {
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"), enginetest.Step("three", "two"))
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "chain", Context: json.RawMessage(`{"order": 7}`), CorrelationID: "c-1"})
	h.WantState(task, tasker.TaskStepsInProcess)

	a := h.ClaimOne("one")
	if string(a.Context) != `{"order": 7}` || a.CorrelationID != "c-1" || a.Attempt != 1 || a.MaxAttempts != 3 || a.TaskName != "chain" {
		t.Errorf("assignment %+v", a)
	}
	h.WantStep(task, "one", tasker.StepInProgress, 1)
	h.Accepted(success(a, `{"n": 1}`))
	h.WantStep(task, "one", tasker.StepComplete, 1)

	a = h.ClaimOne("two")
	equal(t, "result for step two", string(a.DependencyResults["one"]), `{"n": 1}`)
	h.Accepted(success(a, `[2]`))
	h.Accepted(success(h.ClaimOne("three"), `"3"`))
	h.WantState(task, tasker.TaskComplete)
	h.WantHistory(task, "pending initializing enqueuing_steps steps_in_process evaluating_results complete")
	done := h.Task(task)
	check(t, done.CompletedAt != nil && done.Completed == 3 && !done.DeadLettered, "task %+v", done)
}

func TestClaimWaitsForWork(t *testing.T) {
	h := newSingle(t)
	ctx := wrapPath(t, time.Minute)
	got := make(chan []tasker.Assignment)
	go func() {
		list, err := h.Engine.Claim(ctx, h.Worker, 1, time.Minute)
		if err != nil {
			t.Error(err)
		}
		got <- list
	}()
	h.Create("single")
	if list := <-got; len(list) != 1 {
		t.Fatalf("claimed %v", names(list))
	}
}

func TestClaimReturnsOnlyStepsOfTheWorker(t *testing.T) {
	h := newSingle(t)
	h.Create("single")
	for _, w := range []tasker.WorkerSpec{
		{Name: "w", Namespaces: []string{enginetest.Namespace}, Handlers: []string{"other"}},
		{Name: "w", Namespaces: []string{"elsewhere"}, Handlers: []string{"run"}},
	} {
		r, err := h.Engine.RegisterWorker(t.Context(), w)
		h.Must(err)
		list := h.ClaimAs(r.WorkerUUID, 10)
		check(t, len(list) == 0, "%+v was handed %v", w, names(list))
	}
	h.Drain()
}

func TestTaskStartsAtItsStartTime(t *testing.T) {
	h := newSingle(t)
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", StartAt: time.Now().Add(time.Hour)})
	h.Tick()
	h.WantState(task, tasker.TaskPending)
	h.ClaimNone()
	fixture.StartsDue(h, h.Admin())
	h.Tick()
	h.WantState(task, tasker.TaskStepsInProcess)
	h.Drain()
	h.WantHistory(task, "pending initializing enqueuing_steps steps_in_process evaluating_results complete")
}

func TestExternalStepWaitsForItsAnswer(t *testing.T) {
	h := newHarness(t)
	h.Template("approval", enginetest.Step("ask"), external("approve", "ask"), enginetest.Step("act", "approve"))
	task := h.Create("approval")
	approve := h.Step(task, "approve").UUID
	ok := tasker.Outcome{Success: true, Result: json.RawMessage(`{"approved": true}`)}
	_, err := h.Engine.CompleteExternal(t.Context(), task, approve, ok, "portal")
	h.WantCode(err, tasker.Conflict, "still waits for 1 of its 1 dependencies")

	h.Complete("ask")
	h.WantState(task, tasker.TaskWaitingForDependencies)
	for range 2 { // the second time changes nothing
		s, err := h.Engine.CompleteExternal(t.Context(), task, approve, ok, "portal")
		h.Must(err)
		require(t, s.State == tasker.StepComplete, "step is %s", s.State)
	}
	_, err = h.Engine.CompleteExternal(t.Context(), task, approve, tasker.Outcome{Success: true, Result: json.RawMessage(`2`)}, "portal")
	h.WantCode(err, tasker.Conflict, "is already complete")
	a := h.ClaimOne("act")
	equal(t, "result for step act", string(a.DependencyResults["approve"]), `{"approved": true}`)
	_, err = h.Engine.CompleteExternal(t.Context(), task, a.StepUUID, ok, "portal")
	h.WantCode(err, tasker.Conflict, "is not external")
	h.Accepted(success(a, `1`))
	h.WantState(task, tasker.TaskComplete)
}

func TestResetExternalStepAcceptsTheSameOutcomeAgain(t *testing.T) {
	h := newHarness(t)
	h.Template("approval", external("approve"), enginetest.Step("act", "approve"))
	task := h.Create("approval")
	id := h.Step(task, "approve").UUID
	no := tasker.Outcome{Failure: &tasker.Failure{Message: "declined"}}
	for range 2 {
		s, err := h.Engine.CompleteExternal(t.Context(), task, id, no, "portal")
		h.Must(err)
		require(t, s.State == tasker.StepError, "step is %s", s.State)
		h.WantState(task, tasker.TaskError)
		h.Must(errOf(h.Engine.OperateStep(t.Context(), task, id, operation(tasker.ResetForRetry))))
		h.WantState(task, tasker.TaskWaitingForDependencies)
	}
	_, err := h.Engine.CompleteExternal(t.Context(), task, id, tasker.Outcome{Success: true, Result: json.RawMessage(`1`)}, "portal")
	h.Must(err)
	h.Drain()
	h.WantState(task, tasker.TaskComplete)
}
