package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

// when gives a step a condition.
func when(condition string, s tasker.StepTemplate) tasker.StepTemplate {
	s.When = condition
	return s
}

// joined gives a step a join.
func joined(j tasker.Join, s tasker.StepTemplate) tasker.StepTemplate {
	s.Join = j
	return s
}

// wantSkipped expects a step to be skipped, for a reason with these words.
func (h *harness) wantSkipped(task tasker.ID, name, words string) {
	h.Helper()
	if s := h.Step(task, name); s.State != tasker.StepSkipped || !strings.Contains(string(s.SkipReason), words) || s.CompletedAt == nil {
		h.Errorf("%s is %s: %q, ended at %v; want it to be skipped: %q", name, s.State, s.SkipReason, s.CompletedAt, words)
	}
}

// approval is a template with two branches that come together.
func (h *harness) approval() {
	h.Helper()
	h.Template("order",
		enginetest.Step("score"),
		when("results.score.value < 0.5 && context.amount > 100", enginetest.Step("charge", "score")),
		enginetest.Step("ship", "charge"),
		when("!(results.score.value < 0.5)", enginetest.Step("reject", "score")),
		joined(tasker.JoinNoneFailed, enginetest.Step("tell", "ship", "reject")),
	)
}

func (h *harness) create(name, values string) tasker.ID {
	h.Helper()
	return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: name, Context: json.RawMessage(values)})
}

func TestStepRunsIfItsConditionHolds(t *testing.T) {
	h := newHarness(t)
	h.approval()
	task := h.create("order", `{"amount": 150}`)
	h.Accepted(success(h.ClaimOne("score"), `{"value": 0.2}`))
	if s := h.Step(task, "charge"); !s.DecisionDue || s.ReadyForExecution || s.State != tasker.StepPending {
		t.Errorf("before it is decided: %+v", s)
	}
	h.WantState(task, tasker.TaskStepsInProcess)
	h.Tick()
	h.wantSkipped(task, "reject", "condition is false: !(results.score.value < 0.5)")
	if s := h.Step(task, "charge"); s.DecidedAt == nil || s.DecisionDue || !s.DependenciesSatisfied {
		t.Errorf("after it is decided: %+v", s)
	}
	h.Accepted(success(h.ClaimOne("charge"), `{}`))
	h.Tick()
	h.Accepted(success(h.ClaimOne("ship"), `{}`))
	h.Tick()
	a := h.ClaimOne("tell")
	h.Accepted(success(a, `{}`))
	h.WantState(task, tasker.TaskComplete)
	d := h.Task(task)
	check(t, d.Skipped == 1 && d.Completed == 4, "counted %+v", d.StepCounts)
}

func TestStepIsSkippedIfItsConditionIsFalse(t *testing.T) {
	h := newHarness(t)
	h.approval()
	task := h.create("order", `{"amount": 150}`)
	h.Accepted(success(h.ClaimOne("score"), `{"value": 0.9}`))
	h.Tick()
	h.wantSkipped(task, "charge", "condition is false")
	h.wantSkipped(task, "ship", "charge was skipped")
	h.Accepted(success(h.ClaimOne("reject"), `{}`))
	h.Tick()
	h.Accepted(success(h.ClaimOne("tell"), `{}`))
	h.WantState(task, tasker.TaskComplete)
	list := h.StepMoves(task, "charge")
	i := slices.IndexFunc(list, func(x tasker.Transition) bool { return x.Event == "skip" })
	if i < 0 || list[i].From != "pending" || list[i].To != "skipped" || !strings.Contains(list[i].Reason, "condition is false") {
		t.Errorf("the history says %+v", list)
	}
}

// skippedChain returns a task of a step that is skipped and so many others one behind the other.
func (h *harness) skippedChain(n int) tasker.ID {
	h.Helper()
	steps := []tasker.StepTemplate{when("false", enginetest.Step("s0"))}
	for i := range n {
		steps = append(steps, enginetest.Step(fmt.Sprint("s", i+1), fmt.Sprint("s", i)))
	}
	h.Template("chain", steps...)
	return h.Create("chain")
}

// decideAll decides until a task is complete.
func (h *harness) decideAll(task tasker.ID) {
	h.Helper()
	for range 100 {
		if h.Tick(); h.State(task) == tasker.TaskComplete {
			return
		}
	}
	h.Fatalf("the task is %s after 100 passes", h.State(task))
}

func TestTaskWithOnlySkippedStepsCompletes(t *testing.T) {
	h := newHarness(t)
	task := h.skippedChain(120)
	h.WantState(task, tasker.TaskStepsInProcess)
	h.decideAll(task) // in three transactions on a machine that is not busy
	h.wantSkipped(task, "s120", "s119 was skipped")
	h.WantState(task, tasker.TaskComplete)
}

func TestSlowDecisionsAreMadeInParts(t *testing.T) {
	h := newHarness(t)
	task := h.skippedChain(60)
	fixture.Slow(h, h.Admin(), 300*time.Millisecond, "UPDATE ON tasker.workflow_steps", "NEW.state = 'skipped'")
	h.Tick()
	h.heal()
	n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'skipped'`)
	check(t, n != 0 && n <= 30, "%d steps are skipped in a pass", n)
	if d := h.deferred(task); d != "" {
		t.Errorf("set aside is %q", d)
	}
	h.decideAll(task)
}

func TestJoinAnyRunsAfterTheFirstSuccess(t *testing.T) {
	h := newHarness(t)
	h.Template("race", enginetest.Once(enginetest.Step("a")), enginetest.Step("b"), joined(tasker.JoinAny, enginetest.Step("c", "a", "b")), enginetest.Step("d", "c"))
	task := h.Create("race")
	list := h.Claim()
	of := func(name string) tasker.Assignment {
		return list[slices.IndexFunc(list, func(a tasker.Assignment) bool { return a.Name == name })]
	}
	h.Accepted(success(of("b"), `"b"`))
	h.Tick()
	c := h.ClaimOne("c")
	h.Accepted(failure(of("a"), false))
	h.Accepted(success(c, `"c"`))
	h.Accepted(success(h.ClaimOne("d"), `"d"`))
	h.WantState(task, tasker.TaskError)
	h.act(task, "a", tasker.ResolveManually, "")
	h.Tick()
	h.WantState(task, tasker.TaskComplete)
	h.WantStep(task, "c", tasker.StepComplete, 1)
}

func TestResetStepKeepsItsDecision(t *testing.T) {
	h := newHarness(t)
	h.Template("race", enginetest.Step("a"), enginetest.Step("b"), enginetest.Once(joined(tasker.JoinAny, enginetest.Step("c", "a", "b"))))
	task := h.Create("race")
	list := h.Claim()
	h.Accepted(success(list[0], `1`))
	h.Tick()
	h.Accepted(failure(h.ClaimOne("c"), false))
	h.act(task, "c", tasker.ResetForRetry, "")
	h.Accepted(success(h.ClaimOne("c"), `2`))
	h.Accepted(success(list[1], `1`))
	h.WantState(task, tasker.TaskComplete)
}

func TestFailedConditionOpensAnInvestigation(t *testing.T) {
	h := newHarness(t)
	h.Template("typo", enginetest.Step("score"), when("results.score.value < 0.5", enginetest.Step("charge", "score")), enginetest.Step("end", "charge"))
	task := h.Create("typo")
	h.Accepted(success(h.ClaimOne("score"), `{"valeu": 0.2}`))
	h.Tick()
	h.WantState(task, tasker.TaskError)
	s := h.Step(task, "charge")
	if s.State != tasker.StepError || s.NextRetryAt != nil || !strings.Contains(string(s.Error), "results.score.value < 0.5") {
		t.Errorf("the step is %s: %s", s.State, s.Error)
	}
	if e := h.Entry(task); e.DetailCode != tasker.ExpressionFailed || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %s, %s", e.DetailCode, e.ResolutionStatus)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET results = jsonb_set(results, '{result}', '{"value": 0.2}') WHERE name = 'score'`)
	_, err := h.Engine.OperateStep(t.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "the result is repaired", Actor: "ann"})
	h.Must(err)
	h.WantState(task, tasker.TaskStepsInProcess)
	h.Tick()
	h.Complete("charge")
	h.Tick()
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)
}

func TestConditionOnTooLargeResultsFails(t *testing.T) {
	h := newHarness(t)
	h.Template("big", enginetest.Step("score"), when("results.score.value < 0.5", enginetest.Step("charge", "score")))
	task := h.Create("big")
	h.Accepted(success(h.ClaimOne("score"), `{"value": 0.2}`))
	h.Exec(`UPDATE tasker.workflow_steps SET results_bytes = $1 WHERE name = 'score'`, tasker.MaxAnswerBytes+1)
	h.Tick()
	h.WantFailed(task, "charge", "the limit is")
}

func TestUndecidedExternalStepTakesNoAnswer(t *testing.T) {
	h := newHarness(t)
	h.Template("approve", enginetest.Step("score"), when("results.score > 5", external("yes", "score")), when("results.score < 5", external("no", "score")))
	task := h.Create("approve")
	h.Accepted(success(h.ClaimOne("score"), `7`))
	yes, no := h.Step(task, "yes").UUID, h.Step(task, "no").UUID
	answer := tasker.Outcome{Success: true, Result: json.RawMessage(`"fine"`)}
	_, err := h.Engine.CompleteExternal(t.Context(), task, yes, answer, "desk")
	h.WantCode(err, tasker.Conflict, "has not been evaluated yet")
	h.Tick()
	h.WantCode(errOf(h.Engine.CompleteExternal(t.Context(), task, no, answer, "desk")), tasker.Conflict, "already skipped")
	h.WantState(task, tasker.TaskWaitingForDependencies)
	h.Must(errOf(h.Engine.CompleteExternal(t.Context(), task, yes, answer, "desk")))
	h.WantState(task, tasker.TaskComplete)
}

func TestDelayedTaskStartsWhetherStartedOrDecidedFirst(t *testing.T) {
	h := newHarness(t)
	h.Template("later", enginetest.Step("plain"), when("context.go", enginetest.Step("a")))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "later", Context: json.RawMessage(`{"go": true}`), StartAt: time.Now().Add(time.Hour)})
	fixture.StartsDue(h, h.Admin())
	h.Exec(`UPDATE tasker.workflow_steps SET decide_at = clock_timestamp() WHERE name = 'a'`)
	h.Must(errOf(h.Engine.Pass(h.Context(), postgres.DecideSteps)))
	h.WantStep(task, "a", tasker.StepEnqueued, 1)
	h.Tick()
	h.WantStep(task, "plain", tasker.StepEnqueued, 1)
	h.WantState(task, tasker.TaskStepsInProcess)
}
