package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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
	h.accepted(success(h.claimOne("check"), `1`))
	return task
}

// claimAll claims and expects just the steps of these names.
func (h *harness) claimAll(want ...string) []tasker.Assignment {
	h.Helper()
	list := h.claim()
	if got := names(list); !slices.Equal(got, want) {
		h.Fatalf("claimed %v, want %v", got, want)
	}
	return list
}

func (h *harness) succeedAll(list []tasker.Assignment) {
	h.Helper()
	for _, a := range list {
		h.accepted(success(a, `{}`))
		h.tick()
	}
}

// A decision names the steps that go on; the others are skipped, and what is behind them.
func TestADecisionNamesTheStepsThatGoOn(t *testing.T) {
	t.Parallel()
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			task := h.routing()
			if s := h.step(task, "route"); s.Type != tasker.DecisionStep {
				t.Errorf("route is of type %s", s.Type)
			}
			a := h.claimOne("route")
			h.accepted(success(a, c.result))
			h.accepted(success(a, c.result)) // sent again
			h.tick()
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
			h.wantState(task, tasker.TaskComplete)
			list, _, err := h.DB.StepTransitions(t.Context(), task, h.step(task, "route").UUID, 1000, 0)
			h.Must(err)
			want := "selected no steps"
			if c.runs != nil {
				want = "it names "
			}
			if last := list[len(list)-1]; last.To != "complete" || !strings.HasPrefix(last.Reason, want) {
				t.Errorf("the history of the decision ends with %+v", last)
			}
		})
	}
}

// What does not say which steps go on is a failure of the attempt that no retry repairs, and
// the worker is told; reset, the handler decides again.
func TestADecisionThatNamesNoneOfItsDependents(t *testing.T) {
	t.Parallel()
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			task := h.routing()
			a := h.claimOne("route")
			first := h.report(success(a, c.result))
			h.onlyRejected(first, tasker.Invalid, c.words)
			h.onlyRejected(first, tasker.Invalid, "the attempt was failed with this reason")
			if again := h.report(success(a, c.result)); len(again.Rejected) != 1 || again.Rejected[0] != first.Rejected[0] {
				t.Errorf("sent again: %+v, want %+v", again, first)
			}
			h.tick()
			h.wantStep(task, "route", tasker.StepError, 1)
			h.wantStep(task, "ship", tasker.StepPending, 0)
			h.wantState(task, tasker.TaskError)
			var f tasker.StepFailure
			h.Must(json.Unmarshal(h.step(task, "route").Error, &f))
			if f.Type != tasker.InvalidDecision || !strings.Contains(f.Message, c.words) || f.Retryable || f.WorkerUUID == "" {
				t.Errorf("the failure is %+v", f)
			}
			if e := h.Entry(task); e.DetailCode != tasker.PermanentFailure || e.ResolutionStatus != tasker.EntryPending {
				t.Errorf("the investigation is %s, %s", e.DetailCode, e.ResolutionStatus)
			}
			h.act(task, "route", tasker.ResetForRetry, "")
			h.accepted(success(h.claimOne("route"), `{"steps": ["reject"]}`))
			h.tick()
			h.succeedAll(h.claimAll("reject"))
			h.succeedAll(h.claimAll("end"))
			h.wantState(task, tasker.TaskComplete)
		})
	}
}

// A decision in a report with other outcomes keeps none of them up, and the next steps of the
// worker come with the answer.
func TestADecisionAmongOtherOutcomes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("routing", decision("route"), enginetest.Step("other"), enginetest.Step("a", "route"), enginetest.Step("b", "route"), enginetest.Step("c", "other"))
	task := h.Create("routing")
	list := h.claimAll("other", "route")
	of := func(name string) tasker.Assignment {
		return list[slices.IndexFunc(list, func(a tasker.Assignment) bool { return a.Name == name })]
	}
	r, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{success(of("route"), `{"steps": ["b"]}`), success(of("other"), `1`)}, 10)
	h.Must(err)
	if len(r.Accepted) != 2 || len(r.Rejected) != 0 || !slices.Equal(names(r.Next), []string{"c"}) {
		t.Fatalf("the answer is %+v", r)
	}
	h.tick()
	h.succeedAll(append(h.claimAll("b"), r.Next...))
	h.wantSkipped(task, "a", "decision of route")
	h.wantState(task, tasker.TaskComplete)
}

// An operator who completes a decision says which steps go on, as its handler would.
func TestADecisionByHand(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.routing()
	h.accepted(failure(h.claimOne("route"), false))
	id := h.step(task, "route").UUID
	_, err := h.Engine.OperateStep(t.Context(), task, id, tasker.ActionRequest{Action: tasker.ResolveManually, Reason: "done", Actor: "ann"})
	h.WantCode(err, tasker.Conflict, "requires a result that selects the next steps", "complete_manually")
	_, err = h.Engine.OperateStep(t.Context(), task, id, tasker.ActionRequest{Action: tasker.CompleteManually, Reason: "done", Actor: "ann", Result: json.RawMessage(`{"steps": ["x"]}`)})
	h.WantCode(err, tasker.Conflict, `"x" does not depend directly on the decision; direct dependents: ship, invoice, reject`)
	h.wantStep(task, "route", tasker.StepError, 1)
	_, err = h.Engine.OperateStep(t.Context(), task, id, tasker.ActionRequest{Action: tasker.CompleteManually, Reason: "done", Actor: "ann", Result: json.RawMessage(`{"steps": ["invoice"]}`)})
	h.Must(err)
	h.tick()
	h.wantSkipped(task, "ship", "decision of route")
	h.succeedAll(h.claimAll("invoice"))
	h.succeedAll(h.claimAll("end"))
	h.wantState(task, tasker.TaskComplete)
}

// A report of a decision that is kept is read when it is followed up.
func TestADecisionThatIsKept(t *testing.T) {
	t.Parallel()
	for result, state := range map[string]tasker.StepState{`{"steps": ["ship"]}`: tasker.StepComplete, `{"steps": ["x"]}`: tasker.StepError} {
		h := newHarness(t)
		task := h.routing()
		a := h.claimOne("route")
		h.fails(`UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.state IN ('complete', 'error'))`)
		h.report(success(a, result))
		h.wantStep(task, "route", tasker.StepEnqueuedForOrchestration, 1)
		h.Exec(`DROP TRIGGER broken ON tasker.workflow_steps`)
		h.finishKept()
		h.tick()
		h.wantStep(task, "route", state, 1)
		if state == tasker.StepComplete {
			h.claimAll("ship")
		}
		h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "seen"))
	}
}

// A stored decision that names no steps fails every step that depends on it, and runs none.
func TestADecisionWithoutSelectedSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.routing()
	h.accepted(success(h.claimOne("route"), `{"steps": ["ship"]}`))
	h.Exec(`UPDATE tasker.workflow_steps SET results = results - 'goes_on' WHERE name = 'route'`)
	h.tick()
	if s := h.step(task, "ship"); s.State != tasker.StepError || !strings.Contains(string(s.Error), "decision route has no result that selects the next steps") {
		t.Errorf("ship is %s: %s", s.State, s.Error)
	}
	if e := h.Entry(task); e.DetailCode != tasker.PermanentFailure {
		t.Errorf("the investigation is about %s", e.DetailCode)
	}
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "seen"))
}

// A decision that is itself skipped decides nothing: its dependents are skipped by their joins.
func TestADecisionThatIsSkipped(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("routing", when("false", decision("route")), enginetest.Step("a", "route"), joined(tasker.JoinNoneFailed, enginetest.Step("b", "route")))
	task := h.Create("routing")
	h.tick()
	h.wantSkipped(task, "a", "route was skipped")
	h.succeedAll(h.claimAll("b"))
	h.wantState(task, tasker.TaskComplete)
}

// Whatever workers do, exactly the steps run that every decision before them names.
func TestWhateverIsDecidedTheNamedStepsRun(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const layers, width = 4, 4
	var steps []tasker.StepTemplate
	after := map[string][]string{}
	for l := range layers {
		for w := range width {
			s := decision(fmt.Sprintf("s%d%d", l, w))
			if l == layers-1 {
				s.Type = tasker.StandardStep
			}
			for p := range width {
				if parent := fmt.Sprintf("s%d%d", l-1, p); l > 0 && (p == w || rand.IntN(3) == 0) {
					s.Dependencies = append(s.Dependencies, parent)
					after[parent] = append(after[parent], s.Name)
				}
			}
			if len(s.Dependencies) > 0 && rand.IntN(2) == 0 {
				s.Join = tasker.JoinNoneFailed
			}
			steps = append(steps, s)
		}
	}
	h.Template("random", steps...)
	for range 20 {
		task := h.Create("random")
		chosen, ran := map[string][]string{}, map[string]bool{}
		for list := h.claim(); len(list) > 0; list = h.claim() {
			for _, a := range list {
				ran[a.Name] = true
				named := []string{}
				for _, name := range after[a.Name] {
					if rand.IntN(3) > 0 {
						named = append(named, name)
					}
				}
				chosen[a.Name] = named
				doc, err := json.Marshal(map[string]any{"steps": named})
				h.Must(err)
				h.accepted(success(a, string(doc)))
			}
			h.tick()
		}
		h.wantState(task, tasker.TaskComplete)
		for _, s := range steps {
			want := true
			for _, p := range s.Dependencies {
				declined := ran[p] && !slices.Contains(chosen[p], s.Name)
				if declined || !ran[p] && s.Join != tasker.JoinNoneFailed {
					want = false
				}
			}
			if ran[s.Name] != want {
				t.Fatalf("%s ran: %t, want %t; it depends on %v (%s), which ran %v and named %v", s.Name, ran[s.Name], want, s.Dependencies, s.Join, ran, chosen)
			}
		}
	}
}
