package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
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

func TestAStepWaits(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("cool_off", waits("first"), enginetest.Step("charge", "first"), waits("second", "charge"), enginetest.Step("end", "second"))
	task := h.Create("cool_off")
	h.wantWait(task, "first")
	h.wantState(task, tasker.TaskWaitingForDependencies)
	h.tick()
	h.wantStep(task, "first", tasker.StepPending, 0)
	h.aWeekLater()
	h.wantStep(task, "first", tasker.StepComplete, 0)
	h.accepted(success(h.claimOne("charge"), `1`))
	h.wantWait(task, "second")
	_, err := h.Engine.CompleteExternal(t.Context(), task, h.step(task, "second").UUID, tasker.Outcome{Success: true}, "desk")
	h.WantCode(err, tasker.Conflict, "it is a wait step")
	h.aWeekLater()
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
	list, _, err := h.DB.StepTransitions(t.Context(), task, h.step(task, "second").UUID, 10, 0)
	h.Must(err)
	if len(list) != 1 || list[0].Event != "elapse" || list[0].Reason != "the wait ended" {
		t.Errorf("the history is %+v", list)
	}
}

// A wait behind another of a similar length has its own time, although both allow for as much.
func TestAWaitBehindAWaitIsNotStale(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	longer := waits("second", "first")
	longer.WaitSeconds += 3600
	h.Template("cool_off", waits("first"), longer)
	task := h.Create("cool_off")
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '7 days', warn_at = warn_at - interval '7 days', stale_at = stale_at - interval '7 days'`)
	h.Exec(`UPDATE tasker.workflow_steps SET wait_until = wait_until - interval '7 days' WHERE wait_until IS NOT NULL`)
	h.tick()
	h.wantStep(task, "first", tasker.StepComplete, 0)
	if n := h.Count(`SELECT count(*) FROM tasker.tasks t JOIN tasker.workflow_steps s USING (task_uuid) WHERE t.stale_at < s.wait_until`); n != 0 {
		t.Error("the task is stale before its second wait is over")
	}
}

// An operator ends a wait before its time; the clock does not end it again.
func TestAnOperatorEndsAWait(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("cool_off", waits("wait"), enginetest.Step("end", "wait"))
	task := h.Create("cool_off")
	h.act(task, "wait", tasker.ResolveManually, "")
	h.aWeekLater()
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

func TestAStepWaitsUntil(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("remind", enginetest.Step("score"), waitsUntil(`timestamp(results.score) + duration("24h")`, "wait", "score"), enginetest.Step("end", "wait"),
		when("context.again", waitsUntil("task.created_at", "past", "score")))
	task := h.create("remind", `{"again": true}`)
	due := time.Now().Add(90 * time.Hour).UTC().Truncate(time.Second)
	h.accepted(success(h.claimOne("score"), `"`+due.Format(time.RFC3339)+`"`))
	h.tick()
	if s := h.step(task, "wait"); s.State != tasker.StepPending || s.WaitUntil == nil || !s.WaitUntil.Equal(due.Add(24*time.Hour)) {
		t.Errorf("it is %s and waits until %v", s.State, s.WaitUntil)
	}
	h.tick()
	h.wantStep(task, "past", tasker.StepComplete, 0) // an instant that is over is no wait
	var stale time.Duration
	h.Must(h.pool.QueryRow(t.Context(), `SELECT stale_at - now() FROM tasker.tasks WHERE task_uuid = $1`, task).Scan(&stale))
	if stale < 114*time.Hour {
		t.Errorf("the task is stale in %s, before the wait ended", stale)
	}
	h.aWeekLater()
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// What gives no instant is an investigation, and the step waits once it is repaired.
func TestAnInstantThatIsNone(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`"soon"`:                 "wait_until: column 10: evaluation failed, in: timestamp(results.score)",
		`"3000-01-01T00:00:00Z"`: "wait_until: the time must be at most 5 years ahead",
	} {
		h := newHarness(t)
		h.Template("remind", enginetest.Step("score"), waitsUntil(`timestamp(results.score)`, "wait", "score"))
		task := h.Create("remind")
		h.accepted(success(h.claimOne("score"), result))
		h.tick()
		s := h.step(task, "wait")
		if s.State != tasker.StepError || !strings.Contains(string(s.Error), want) {
			t.Errorf("for %s the step is %s: %s", result, s.State, s.Error)
		}
		if e := h.Entry(task); e.DetailCode != tasker.ExpressionFailed {
			t.Errorf("the investigation is %s", e.DetailCode)
		}
		h.Exec(`UPDATE tasker.workflow_steps SET results = jsonb_set(results, '{result}', to_jsonb(now() - interval '1 day')) WHERE task_uuid = $1 AND name = 'score'`, task)
		_, err := h.Engine.OperateStep(t.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "repaired", Actor: "ann"})
		h.Must(err)
		h.tick()
		h.tick()
		h.wantState(task, tasker.TaskComplete)
	}
}

// An environment changes attempts, not waits.
func TestAnEnvironmentLeavesWaits(t *testing.T) {
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
