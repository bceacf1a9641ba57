package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func decision(name string, dependencies ...string) tasker.StepTemplate {
	s := enginetest.Step(name, dependencies...)
	s.Type = tasker.DecisionStep
	return s
}

// routing is a template with a decision between three branches that come together.
func (h *harness) routing() tasker.ID {
	h.Helper()
	h.Template("routing", enginetest.Step("check"), decision("route", "check"),
		enginetest.Step("ship", "route"), enginetest.Step("invoice", "route"), enginetest.Step("reject", "route"), enginetest.Step("label", "ship"),
		joined(tasker.JoinNoneFailed, enginetest.Step("end", "label", "invoice", "reject")))
	task := h.Create("routing")
	h.Complete("check")
	return task
}

// claimAll claims and expects just the steps of these names.
func (h *harness) claimAll(want ...string) []tasker.Assignment {
	h.Helper()
	list := h.Claim()
	got := names(list)
	require(h, slices.Equal(got, want), "claimed %v, want %v", got, want)
	return list
}

func (h *harness) succeedAll(list []tasker.Assignment) {
	h.Helper()
	for _, a := range list {
		h.Accepted(success(a, `{}`))
		h.Tick()
	}
}

func TestDecisionRunsOnlyTheNamedSteps(t *testing.T) {
	h := newHarness(t)
	for name, c := range map[string]struct {
		result string
		runs   []string
	}{
		"one":                  {`{"steps": ["invoice"]}`, []string{"invoice"}},
		"two":                  {`{"steps": ["ship", "reject"], "score": 7}`, []string{"reject", "ship"}},
		"one twice":            {`{"steps": ["reject", "reject"]}`, []string{"reject"}},
		"none":                 {`{"steps": []}`, nil},
		"as the ecosystem":     {`{"decision_point_outcome": {"type": "create_steps", "step_names": ["invoice", "ship"]}}`, []string{"invoice", "ship"}},
		"none, as it as well":  {`{"decision_point_outcome": {"type": "no_branches"}}`, nil},
		"all, and other words": {`{"steps": ["ship", "invoice", "reject"], "why": {"steps": ["no"]}}`, []string{"invoice", "reject", "ship"}},
	} {
		h.each(name, func(h *harness) {
			task := h.routing()
			s := h.Step(task, "route")
			check(h, s.Type == tasker.DecisionStep, "route is of type %s", s.Type)
			a := h.ClaimOne("route")
			h.Accepted(success(a, c.result))
			h.Accepted(success(a, c.result)) // sent again
			h.Tick()
			for _, step := range []string{"ship", "invoice", "reject"} {
				if !slices.Contains(c.runs, step) {
					h.wantSkipped(task, step, "decision of route")
				}
			}
			if !slices.Contains(c.runs, "ship") {
				h.wantSkipped(task, "label", "ship was skipped")
			}
			if len(c.runs) > 0 {
				h.succeedAll(h.claimAll(c.runs...))
			}
			if slices.Contains(c.runs, "ship") {
				h.succeedAll(h.claimAll("label"))
			}
			h.succeedAll(h.claimAll("end"))
			h.WantState(task, tasker.TaskComplete)
			list := h.StepMoves(task, "route")
			want := "selected no steps"
			if c.runs != nil {
				want = "selected "
			}
			if last := list[len(list)-1]; last.To != "complete" || !strings.HasPrefix(last.Reason, want) {
				h.Errorf("the history of the decision ends with %+v", last)
			}
		})
	}
}

func TestInvalidDecisionFailsItsAttempt(t *testing.T) {
	h := newHarness(t)
	for name, c := range map[string]struct{ result, words string }{
		"an unknown step":    {`{"steps": ["ship", "shipp"]}`, `"shipp" does not depend directly on the decision; direct dependents: ship, invoice, reject`},
		"one further behind": {`{"steps": ["label"]}`, `"label" does not depend directly on the decision`},
		"one before":         {`{"steps": ["check"]}`, `"check" does not depend`},
		"a text":             {`{"steps": "ship"}`, "steps must be a list of names"},
		"no name":            {`{"steps": [null]}`, "steps must be a list of names"},
		"nothing":            {``, "the result must be an object"},
		"a list":             {`["ship"]`, "the result must be an object"},
		"other keys":         {`{"step": ["ship"]}`, "the result selects no steps"},
		"null":               {`{"steps": null}`, "steps must be a list of names"},
		"both forms":         {`{"steps": ["ship"], "decision_point_outcome": {"type": "no_branches"}}`, "has both"},
		"no type":            {`{"decision_point_outcome": {"step_names": ["ship"]}}`, "missing decision_point_outcome.type"},
		"another type":       {`{"decision_point_outcome": {"type": "some", "step_names": ["ship"]}}`, "must be create_steps or no_branches"},
		"no step_names":      {`{"decision_point_outcome": {"type": "create_steps"}}`, "step_names must be a list of names"},
	} {
		h.each(name, func(h *harness) {
			task := h.routing()
			a := h.ClaimOne("route")
			first := h.Report(success(a, c.result))
			h.onlyRejected(first, tasker.Invalid, c.words)
			h.onlyRejected(first, tasker.Invalid, "the attempt was failed with this reason")
			if again := h.Report(success(a, c.result)); len(again.Rejected) != 1 || again.Rejected[0] != first.Rejected[0] {
				h.Errorf("sent again: %+v, want %+v", again, first)
			}
			h.Tick()
			h.WantStep(task, "route", tasker.StepError, 1)
			h.WantStep(task, "ship", tasker.StepPending, 0)
			h.WantState(task, tasker.TaskError)
			var f tasker.StepFailure
			h.Must(json.Unmarshal(h.Step(task, "route").Error, &f))
			if f.Type != tasker.InvalidDecision || !strings.Contains(f.Message, c.words) || f.Retryable || f.WorkerUUID == "" {
				h.Errorf("the failure is %+v", f)
			}
			if e := h.Entry(task); e.DetailCode != tasker.PermanentFailure || e.ResolutionStatus != tasker.EntryPending {
				h.Errorf("the investigation is %s, %s", e.DetailCode, e.ResolutionStatus)
			}
			h.act(task, "route", tasker.ResetForRetry, "")
			h.Accepted(success(h.ClaimOne("route"), `{"steps": ["reject"]}`))
			h.Tick()
			h.succeedAll(h.claimAll("reject"))
			h.succeedAll(h.claimAll("end"))
			h.WantState(task, tasker.TaskComplete)
		})
	}
}

func TestDecisionDoesNotDelayOtherOutcomesOfItsReport(t *testing.T) {
	h := newHarness(t)
	h.Template("routing", decision("route"), enginetest.Step("other"), enginetest.Step("a", "route"), enginetest.Step("b", "route"), enginetest.Step("c", "other"))
	task := h.Create("routing")
	list := h.claimAll("other", "route")
	of := func(name string) tasker.Assignment {
		return list[slices.IndexFunc(list, func(a tasker.Assignment) bool { return a.Name == name })]
	}
	r, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{success(of("route"), `{"steps": ["b"]}`), success(of("other"), `1`)}, 10)
	h.Must(err)
	require(t, len(r.Accepted) == 2 && len(r.Rejected) == 0 && slices.Equal(names(r.Next), []string{"c"}),
		"the answer is %+v", r)
	h.Tick()
	h.succeedAll(append(h.claimAll("b"), r.Next...))
	h.wantSkipped(task, "a", "decision of route")
	h.WantState(task, tasker.TaskComplete)
}

func TestOperatorCanCompleteADecision(t *testing.T) {
	h := newHarness(t)
	task := h.routing()
	h.Accepted(failure(h.ClaimOne("route"), false))
	id := h.Step(task, "route").UUID
	_, err := h.Engine.OperateStep(t.Context(), task, id, tasker.ActionRequest{Action: tasker.ResolveManually, Reason: "done", Actor: "ann"})
	h.WantCode(err, tasker.Conflict, "requires a result that selects the next steps", "complete_manually")
	_, err = h.Engine.OperateStep(t.Context(), task, id, tasker.ActionRequest{Action: tasker.CompleteManually, Reason: "done", Actor: "ann", Result: json.RawMessage(`{"steps": ["x"]}`)})
	h.WantCode(err, tasker.Conflict, `"x" does not depend directly on the decision; direct dependents: ship, invoice, reject`)
	h.WantStep(task, "route", tasker.StepError, 1)
	_, err = h.Engine.OperateStep(t.Context(), task, id, tasker.ActionRequest{Action: tasker.CompleteManually, Reason: "done", Actor: "ann", Result: json.RawMessage(`{"steps": ["invoice"]}`)})
	h.Must(err)
	h.Tick()
	h.wantSkipped(task, "ship", "decision of route")
	h.succeedAll(h.claimAll("invoice"))
	h.succeedAll(h.claimAll("end"))
	h.WantState(task, tasker.TaskComplete)
}

func TestDeferredReportOfADecisionIsApplied(t *testing.T) {
	h := newHarness(t)
	for result, state := range map[string]tasker.StepState{`{"steps": ["ship"]}`: tasker.StepComplete, `{"steps": ["x"]}`: tasker.StepError} {
		task := h.routing()
		a := h.ClaimOne("route")
		h.poison("UPDATE ON tasker.workflow_steps", `NEW.state IN ('complete', 'error')`)
		h.Report(success(a, result))
		h.WantStep(task, "route", tasker.StepEnqueuedForOrchestration, 1)
		h.heal()
		h.finishKept()
		h.Tick()
		h.WantStep(task, "route", state, 1)
		if state == tasker.StepComplete {
			h.claimAll("ship")
		}
		h.Cancel(task)
	}
}

func TestStoredDecisionWithoutNamesFailsItsDependents(t *testing.T) {
	h := newHarness(t)
	task := h.routing()
	h.Accepted(success(h.ClaimOne("route"), `{"steps": ["ship"]}`))
	h.Exec(`UPDATE tasker.workflow_steps SET results = results - 'goes_on' WHERE name = 'route'`)
	h.Tick()
	h.WantFailed(task, "ship", "decision route has no result that selects the next steps")
	h.WantDetail(task, tasker.PermanentFailure)
	h.Cancel(task)
}
