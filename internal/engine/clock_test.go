package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
)

// waits is a step that waits for a week.
func waits(name string, dependencies ...string) tasker.StepTemplate {
	return tasker.StepTemplate{Name: name, Type: tasker.WaitStep, Dependencies: dependencies, Retry: tasker.DefaultRetry(), WaitSeconds: week}
}

// waitsUntil is one that waits until an expression says.
func waitsUntil(instant, name string, dependencies ...string) tasker.StepTemplate {
	s := waits(name, dependencies...)
	s.WaitSeconds, s.WaitUntil = 0, instant
	return s
}

func TestWaitStepCompletesWhenItsTimeIsOver(t *testing.T) {
	h := newHarness(t)
	h.Template("cool_off", waits("first"), enginetest.Step("charge", "first"), waits("second", "charge"), enginetest.Step("end", "second"))
	task := h.Create("cool_off")
	h.wantWait(task, "first")
	h.WantState(task, tasker.TaskWaitingForDependencies)
	h.Tick()
	h.WantStep(task, "first", tasker.StepPending, 0)
	h.aWeekLater()
	h.WantStep(task, "first", tasker.StepComplete, 0)
	h.Complete("charge")
	h.wantWait(task, "second")
	_, err := h.Engine.CompleteExternal(t.Context(), task, h.Step(task, "second").UUID, tasker.Outcome{Success: true}, "desk")
	h.WantCode(err, tasker.Conflict, "it is a wait step")
	h.aWeekLater()
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)
	list := h.StepMoves(task, "second")
	check(t, len(list) == 1 && list[0].Event == "elapse" && list[0].Reason == "the wait ended",
		"the history is %+v", list)
}

func TestSecondWaitHasItsOwnStalenessLimit(t *testing.T) {
	h := newHarness(t)
	longer := waits("second", "first")
	longer.WaitSeconds += 3600
	h.Template("cool_off", waits("first"), longer)
	task := h.Create("cool_off")
	fixture.StaleTasks(h, h.Admin(), 7*24*time.Hour)
	fixture.WaitsOver(h, h.Admin(), 7*24*time.Hour)
	h.Tick()
	h.WantStep(task, "first", tasker.StepComplete, 0)
	h.WantCount(0, `SELECT count(*) FROM tasker.tasks t JOIN tasker.workflow_steps s USING (task_uuid) WHERE t.stale_at < s.wait_until`)
}

func TestWaitStepEndsAtItsInstant(t *testing.T) {
	h := newHarness(t)
	h.Template("remind", enginetest.Step("score"), waitsUntil(`timestamp(results.score) + duration("24h")`, "wait", "score"), enginetest.Step("end", "wait"),
		when("context.again", waitsUntil("task.created_at", "past", "score")))
	task := h.create("remind", `{"again": true}`)
	due := time.Now().Add(90 * time.Hour).UTC().Truncate(time.Second)
	h.Accepted(success(h.ClaimOne("score"), `"`+due.Format(time.RFC3339)+`"`))
	h.Tick()
	if s := h.Step(task, "wait"); s.State != tasker.StepPending || s.WaitUntil == nil || !s.WaitUntil.Equal(due.Add(24*time.Hour)) {
		t.Errorf("it is %s and waits until %v", s.State, s.WaitUntil)
	}
	h.Tick()
	h.WantStep(task, "past", tasker.StepComplete, 0) // an instant that is over is no wait
	var stale time.Duration
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT stale_at - now() FROM tasker.tasks WHERE task_uuid = $1`, task).Scan(&stale))
	check(t, stale >= 114*time.Hour, "the task is stale in %s, before the wait ended", stale)
	h.aWeekLater()
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)
}

func TestInvalidWaitInstantOpensAnInvestigation(t *testing.T) {
	h := newHarness(t)
	h.Template("remind", enginetest.Step("score"), waitsUntil(`timestamp(results.score)`, "wait", "score"))
	for result, want := range map[string]string{
		`"soon"`:                 "wait_until: column 10: evaluation failed, in: timestamp(results.score)",
		`"3000-01-01T00:00:00Z"`: "wait_until: the time must be at most 5 years ahead",
	} {
		task := h.Create("remind")
		h.Accepted(success(h.ClaimOne("score"), result))
		h.Tick()
		s := h.Step(task, "wait")
		check(t, s.State == tasker.StepError && strings.Contains(string(s.Error), want),
			"for %s the step is %s: %s", result, s.State, s.Error)
		h.WantDetail(task, tasker.ExpressionFailed)
		h.Exec(`UPDATE tasker.workflow_steps SET results = jsonb_set(results, '{result}', to_jsonb(now() - interval '1 day')) WHERE task_uuid = $1 AND name = 'score'`, task)
		_, err := h.Engine.OperateStep(t.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "repaired", Actor: "ann"})
		h.Must(err)
		h.Tick()
		h.Tick()
		h.WantState(task, tasker.TaskComplete)
	}
}

func TestEnvironmentOverridesDoNotChangeWaits(t *testing.T) {
	t.Parallel()
	ten := 10
	tpl := tasker.Template{Steps: []tasker.StepTemplate{waits("wait"), enginetest.Step("work")}, Environments: map[string]tasker.Override{"test": {Steps: []tasker.StepOverride{
		{Name: tasker.AllSteps, TimeoutSeconds: &ten, Initialization: json.RawMessage(`{"a": 1}`), Retry: &tasker.RetryOverride{MaxAttempts: &ten}},
	}}}}
	got := tpl.ForEnvironment("test").Steps
	if got[0].LimitSeconds() != week || len(got[0].Handler.Initialization) > 0 || got[0].Retry != tasker.DefaultRetry() || got[1].LimitSeconds() != 10 {
		t.Errorf("the steps are %+v", got)
	}
}
