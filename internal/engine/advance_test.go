package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func TestAChainRunsToItsEnd(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"), enginetest.Step("three", "two"))
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "chain", Context: json.RawMessage(`{"order": 7}`), CorrelationID: "c-1"})
	h.wantState(task, tasker.TaskStepsInProcess)

	a := h.claimOne("one")
	if string(a.Context) != `{"order": 7}` || a.CorrelationID != "c-1" || a.Attempt != 1 || a.MaxAttempts != 3 || a.TaskName != "chain" {
		t.Errorf("assignment %+v", a)
	}
	h.wantStep(task, "one", tasker.StepInProgress, 1)
	h.accepted(success(a, `{"n": 1}`))
	h.wantStep(task, "one", tasker.StepComplete, 1)

	a = h.claimOne("two")
	if got := string(a.DependencyResults["one"]); got != `{"n": 1}` {
		t.Errorf("two receives %s from one", got)
	}
	h.accepted(success(a, `[2]`))
	h.accepted(success(h.claimOne("three"), `"3"`))
	h.wantState(task, tasker.TaskComplete)
	want := "pending initializing enqueuing_steps steps_in_process evaluating_results complete"
	if got := h.history(task); got != want {
		t.Errorf("history %s\nwant    %s", got, want)
	}
	done := h.taskOf(task)
	if done.CompletedAt == nil || done.Counts.Completed != 3 || done.DeadLetter.DeadLettered {
		t.Errorf("task %+v", done)
	}
}

func TestADiamondFansOutAndIn(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("diamond", enginetest.Step("a"), enginetest.Step("b", "a"), enginetest.Step("c", "a"), enginetest.Step("d", "b", "c"))
	task := h.Create("diamond")
	h.accepted(success(h.claimOne("a"), `1`))
	both := h.claim()
	if got := names(both); len(got) != 2 || got[0] != "b" || got[1] != "c" {
		t.Fatalf("claimed %v", got)
	}
	h.accepted(success(both[0], `2`))
	if more := h.claim(); len(more) != 0 {
		t.Fatalf("d is there before both of its parents: %v", names(more))
	}
	h.accepted(success(both[1], `3`))
	d := h.claimOne("d")
	if len(d.DependencyResults) != 2 {
		t.Errorf("d receives %v", d.DependencyResults)
	}
	h.accepted(success(d, `4`))
	h.wantState(task, tasker.TaskComplete)
}

func TestBothParentsInOneReport(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("join", enginetest.Step("b"), enginetest.Step("c"), enginetest.Step("d", "b", "c"), enginetest.Step("e", "b", "c"))
	task := h.Create("join")
	both := h.claim()
	h.accepted(success(both[0], `2`), success(both[1], `3`))
	if got := names(h.claim()); len(got) != 2 {
		t.Fatalf("claimed %v, want d and e", got)
	}
	h.wantStep(task, "d", tasker.StepInProgress, 1)
}

func TestReportHandsOutTheNextWork(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	h.Create("chain")
	r, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{success(h.claimOne("one"), `1`)}, 5)
	h.Must(err)
	if len(r.Next) != 1 || r.Next[0].Name != "two" {
		t.Fatalf("next %v", names(r.Next))
	}
}

func TestClaimWaitsForWork(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	ctx := within(t, time.Minute)
	got := make(chan []tasker.Assignment)
	go func() {
		list, err := h.Engine.Claim(ctx, h.worker, 1, time.Minute)
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

func TestUrgentWorkComesFirst(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Create("single")
	urgent := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Priority: 5})
	h.Create("single")
	list, err := h.Engine.Claim(t.Context(), h.worker, 1, 0)
	h.Must(err)
	if list[0].TaskUUID != urgent {
		t.Error("the task of higher priority was not first")
	}
}

func TestAClaimIsOnlyForItsHandlersAndNamespaces(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Create("single")
	for _, w := range []tasker.WorkerSpec{
		{Name: "w", Namespaces: []string{enginetest.Namespace}, Handlers: []string{"other"}},
		{Name: "w", Namespaces: []string{"elsewhere"}, Handlers: []string{"run"}},
	} {
		r, err := h.Engine.RegisterWorker(t.Context(), w)
		h.Must(err)
		list, err := h.Engine.Claim(t.Context(), r.WorkerUUID, 10, 0)
		h.Must(err)
		if len(list) != 0 {
			t.Errorf("%+v was handed %v", w, names(list))
		}
	}
	h.drain()
}

func TestStartTime(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", StartAt: time.Now().Add(time.Hour)})
	h.tick()
	h.wantState(task, tasker.TaskPending)
	if list := h.claim(); len(list) != 0 {
		t.Fatal("a step ran before the start time")
	}
	h.Exec(`UPDATE tasker.tasks SET start_at = clock_timestamp()`)
	h.tick()
	h.wantState(task, tasker.TaskStepsInProcess)
	h.drain()
	want := "pending initializing enqueuing_steps steps_in_process evaluating_results complete"
	if got := h.history(task); got != want {
		t.Errorf("history %s\nwant    %s", got, want)
	}
}

func TestExternalStepWaitsForItsCompletion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approval", enginetest.Step("ask"), external("approve", "ask"), enginetest.Step("act", "approve"))
	task := h.Create("approval")
	approve := h.step(task, "approve").UUID
	ok := tasker.Outcome{Success: true, Result: json.RawMessage(`{"approved": true}`)}
	_, err := h.Engine.CompleteExternal(t.Context(), task, approve, ok, "portal")
	h.WantCode(err, tasker.Conflict, "still waits for 1 of its 1 dependencies")

	h.accepted(success(h.claimOne("ask"), `1`))
	h.wantState(task, tasker.TaskWaitingForDependencies)
	for range 2 { // the second time changes nothing
		s, err := h.Engine.CompleteExternal(t.Context(), task, approve, ok, "portal")
		h.Must(err)
		if s.State != tasker.StepComplete {
			t.Fatalf("step is %s", s.State)
		}
	}
	_, err = h.Engine.CompleteExternal(t.Context(), task, approve, tasker.Outcome{Success: true, Result: json.RawMessage(`2`)}, "portal")
	h.WantCode(err, tasker.Conflict, "is complete already")
	a := h.claimOne("act")
	if got := string(a.DependencyResults["approve"]); got != `{"approved": true}` {
		t.Errorf("act receives %s", got)
	}
	_, err = h.Engine.CompleteExternal(t.Context(), task, a.StepUUID, ok, "portal")
	h.WantCode(err, tasker.Conflict, "is not external")
	h.accepted(success(a, `1`))
	h.wantState(task, tasker.TaskComplete)
}

func TestAnExternalStepThatWasResetTakesTheSameOutcomeAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approval", external("approve"), enginetest.Step("act", "approve"))
	task := h.Create("approval")
	id := h.step(task, "approve").UUID
	no := tasker.Outcome{Failure: &tasker.Failure{Message: "declined"}}
	for range 2 {
		s, err := h.Engine.CompleteExternal(t.Context(), task, id, no, "portal")
		h.Must(err)
		if s.State != tasker.StepError {
			t.Fatalf("step is %s", s.State)
		}
		h.wantState(task, tasker.TaskError)
		_, err = h.Engine.OperateStep(t.Context(), task, id, operation(tasker.ResetForRetry))
		h.Must(err)
		h.wantState(task, tasker.TaskWaitingForDependencies)
	}
	_, err := h.Engine.CompleteExternal(t.Context(), task, id, tasker.Outcome{Success: true, Result: json.RawMessage(`1`)}, "portal")
	h.Must(err)
	h.drain()
	h.wantState(task, tasker.TaskComplete)
}

func TestExternalFailureOpensAnInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approval", external("approve"))
	task := h.Create("approval")
	h.wantState(task, tasker.TaskWaitingForDependencies)
	no := tasker.Outcome{Failure: &tasker.Failure{Message: "declined", Retryable: true}}
	_, err := h.Engine.CompleteExternal(t.Context(), task, h.step(task, "approve").UUID, no, "portal")
	h.Must(err)
	h.wantState(task, tasker.TaskError)
	if e := h.Entry(task); e.DetailCode != "external_failure" || e.OriginalState != tasker.TaskWaitingForDependencies {
		t.Errorf("entry %s from %s", e.DetailCode, e.OriginalState)
	}
}
