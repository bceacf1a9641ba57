package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
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
	if s := h.step(task, name); s.State != tasker.StepSkipped || !strings.Contains(s.SkipReason, words) || s.CompletedAt == nil {
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

func TestABranchIsTaken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.approval()
	task := h.create("order", `{"amount": 150}`)
	h.accepted(success(h.claimOne("score"), `{"value": 0.2}`))
	if s := h.step(task, "charge"); !s.DecisionDue || s.ReadyForExecution || s.State != tasker.StepPending {
		t.Errorf("before it is decided: %+v", s)
	}
	h.wantState(task, tasker.TaskStepsInProcess)
	h.tick()
	h.wantSkipped(task, "reject", "condition is false: !(results.score.value < 0.5)")
	if s := h.step(task, "charge"); s.DecidedAt == nil || s.DecisionDue || !s.DependenciesSatisfied {
		t.Errorf("after it is decided: %+v", s)
	}
	h.accepted(success(h.claimOne("charge"), `{}`))
	h.tick()
	h.accepted(success(h.claimOne("ship"), `{}`))
	h.tick()
	a := h.claimOne("tell")
	h.accepted(success(a, `{}`))
	h.wantState(task, tasker.TaskComplete)
	d := h.taskOf(task)
	if d.Counts.Skipped != 1 || d.Counts.Completed != 4 {
		t.Errorf("counted %+v", d.Counts)
	}
}

func TestTheOtherBranchIsTaken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.approval()
	task := h.create("order", `{"amount": 150}`)
	h.accepted(success(h.claimOne("score"), `{"value": 0.9}`))
	h.tick()
	h.wantSkipped(task, "charge", "condition is false")
	h.wantSkipped(task, "ship", "charge was skipped")
	h.accepted(success(h.claimOne("reject"), `{}`))
	h.tick()
	h.accepted(success(h.claimOne("tell"), `{}`))
	h.wantState(task, tasker.TaskComplete)
	list, _, err := h.DB.StepTransitions(t.Context(), task, h.step(task, "charge").UUID, 1000, 0)
	h.Must(err)
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
		if h.tick(); h.State(task) == tasker.TaskComplete {
			return
		}
	}
	h.Fatalf("the task is %s after 100 passes", h.State(task))
}

// What nothing is left of ends at once, however long the chain is.
func TestATaskOfWhichAllIsSkippedIsComplete(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.skippedChain(120)
	h.wantState(task, tasker.TaskStepsInProcess)
	h.decideAll(task) // in three transactions on a machine that is not busy
	h.wantSkipped(task, "s120", "s119 was skipped")
	h.wantState(task, tasker.TaskComplete)
}

// On a slow database a long chain is decided a part at a time, and is not begun anew each time.
func TestALongChainIsDecidedInParts(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.skippedChain(60)
	h.Exec(`CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$`)
	h.Exec(`CREATE TRIGGER dawdle BEFORE UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.state = 'skipped') EXECUTE FUNCTION public.dawdle()`)
	h.tick()
	h.Exec(`DROP TRIGGER dawdle ON tasker.workflow_steps`)
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'skipped'`); n == 0 || n > 30 {
		t.Errorf("%d steps are skipped in a pass", n)
	}
	if d := h.deferred(task); d != "" {
		t.Errorf("set aside is %q", d)
	}
	h.decideAll(task)
}

func TestAnyDoesNotWait(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("race", enginetest.Once(enginetest.Step("a")), enginetest.Step("b"), joined(tasker.JoinAny, enginetest.Step("c", "a", "b")), enginetest.Step("d", "c"))
	task := h.Create("race")
	list := h.claim()
	of := func(name string) tasker.Assignment {
		return list[slices.IndexFunc(list, func(a tasker.Assignment) bool { return a.Name == name })]
	}
	h.accepted(success(of("b"), `"b"`))
	h.tick()
	c := h.claimOne("c")
	h.accepted(failure(of("a"), false))
	h.accepted(success(c, `"c"`))
	h.accepted(success(h.claimOne("d"), `"d"`))
	h.wantState(task, tasker.TaskError)
	h.act(task, "a", tasker.ResolveManually, "")
	h.tick()
	h.wantState(task, tasker.TaskComplete)
	h.wantStep(task, "c", tasker.StepComplete, 1)
}

// A step that ran although a dependency is open runs again when it is reset.
func TestAStepThatIsDecidedStaysSo(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("race", enginetest.Step("a"), enginetest.Step("b"), enginetest.Once(joined(tasker.JoinAny, enginetest.Step("c", "a", "b"))))
	task := h.Create("race")
	list := h.claim()
	h.accepted(success(list[0], `1`))
	h.tick()
	h.accepted(failure(h.claimOne("c"), false))
	h.act(task, "c", tasker.ResetForRetry, "")
	h.accepted(success(h.claimOne("c"), `2`))
	h.accepted(success(list[1], `1`))
	h.wantState(task, tasker.TaskComplete)
}

// Nothing is skipped as long as a repair could still change that.
func TestAFailedDependencyBlocksUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("blocked", when("false", enginetest.Step("no")), enginetest.Once(enginetest.Step("bad")),
		enginetest.Step("both", "no", "bad"), joined(tasker.JoinNoneFailed, enginetest.Step("end", "no", "bad")))
	task := h.Create("blocked")
	h.tick()
	h.accepted(failure(h.claimOne("bad"), false))
	h.tick()
	h.wantState(task, tasker.TaskError)
	h.wantStep(task, "both", tasker.StepPending, 0)
	h.wantStep(task, "end", tasker.StepPending, 0)
	h.act(task, "bad", tasker.ResolveManually, "")
	h.tick()
	h.wantSkipped(task, "both", "no was skipped")
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A condition that cannot be evaluated is a failure of its step, with an investigation, and
// fails nobody's result. A reset evaluates it again.
func TestAConditionThatFails(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("typo", enginetest.Step("score"), when("results.score.value < 0.5", enginetest.Step("charge", "score")), enginetest.Step("end", "charge"))
	task := h.Create("typo")
	h.accepted(success(h.claimOne("score"), `{"valeu": 0.2}`))
	h.tick()
	h.wantState(task, tasker.TaskError)
	s := h.step(task, "charge")
	if s.State != tasker.StepError || s.NextRetryAt != nil || !strings.Contains(string(s.Error), "results.score.value < 0.5") {
		t.Errorf("the step is %s: %s", s.State, s.Error)
	}
	if e := h.Entry(task); e.DetailCode != tasker.ExpressionFailed || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %s, %s", e.DetailCode, e.ResolutionStatus)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET results = jsonb_set(results, '{result}', '{"value": 0.2}') WHERE name = 'score'`)
	_, err := h.Engine.OperateStep(t.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "the result is repaired", Actor: "ann"})
	h.Must(err)
	h.wantState(task, tasker.TaskStepsInProcess)
	h.tick()
	h.accepted(success(h.claimOne("charge"), `1`))
	h.tick()
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// What a condition names is bounded before it is read.
func TestAConditionOnResultsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("big", enginetest.Step("score"), when("results.score.value < 0.5", enginetest.Step("charge", "score")))
	task := h.Create("big")
	h.accepted(success(h.claimOne("score"), `{"value": 0.2}`))
	h.Exec(`UPDATE tasker.workflow_steps SET results_bytes = $1 WHERE name = 'score'`, tasker.MaxAnswerBytes+1)
	h.tick()
	if s := h.step(task, "charge"); s.State != tasker.StepError || !strings.Contains(string(s.Error), "the limit is") {
		t.Errorf("the step is %s: %s", s.State, s.Error)
	}
}

// An external step with a condition takes an answer only once it is decided that it waits for one.
func TestAnExternalStepIsDecided(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approve", enginetest.Step("score"), when("results.score > 5", external("yes", "score")), when("results.score < 5", external("no", "score")))
	task := h.Create("approve")
	h.accepted(success(h.claimOne("score"), `7`))
	yes, no := h.step(task, "yes").UUID, h.step(task, "no").UUID
	answer := tasker.Outcome{Success: true, Result: json.RawMessage(`"fine"`)}
	_, err := h.Engine.CompleteExternal(t.Context(), task, yes, answer, "desk")
	h.WantCode(err, tasker.Conflict, "has not been evaluated yet")
	h.tick()
	_, err = h.Engine.CompleteExternal(t.Context(), task, no, answer, "desk")
	h.WantCode(err, tasker.Conflict, "is skipped")
	h.wantState(task, tasker.TaskWaitingForDependencies)
	_, err = h.Engine.CompleteExternal(t.Context(), task, yes, answer, "desk")
	h.Must(err)
	h.wantState(task, tasker.TaskComplete)
}

func TestATaskThatStartsLaterDecidesThen(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("later", when("context.go", enginetest.Step("a")), when("!context.go", enginetest.Step("b")))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "later", Context: json.RawMessage(`{"go": true}`), StartAt: time.Now().Add(time.Hour)})
	h.tick()
	h.wantState(task, tasker.TaskPending)
	h.wantStep(task, "a", tasker.StepPending, 0)
	h.Exec(`UPDATE tasker.tasks SET start_at = clock_timestamp()`)
	h.Exec(`UPDATE tasker.workflow_steps SET decide_at = clock_timestamp()`)
	h.tick()
	h.tick()
	h.accepted(success(h.claimOne("a"), `1`))
	h.wantSkipped(task, "b", "condition")
	h.wantState(task, tasker.TaskComplete)
}

// Whether the loop that starts tasks or the one that decides comes first, the first steps of a task begin.
func TestATaskThatStartsLaterIsDecidedBeforeItIsStarted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("later", enginetest.Step("plain"), when("context.go", enginetest.Step("a")))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "later", Context: json.RawMessage(`{"go": true}`), StartAt: time.Now().Add(time.Hour)})
	h.Exec(`UPDATE tasker.tasks SET start_at = clock_timestamp()`)
	h.Exec(`UPDATE tasker.workflow_steps SET decide_at = clock_timestamp() WHERE name = 'a'`)
	_, err := h.Engine.Pass(h.Context(), postgres.DecideSteps)
	h.Must(err)
	h.wantStep(task, "a", tasker.StepEnqueued, 1)
	h.tick()
	h.wantStep(task, "plain", tasker.StepEnqueued, 1)
	h.wantState(task, tasker.TaskStepsInProcess)
}

// A step that cannot be decided for a while delays no other, and is decided later.
func TestADecisionThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", when("true", enginetest.Step("a")))
	tasks := []tasker.ID{h.Create("one"), h.Create("one"), h.Create("one")}
	h.poison("UPDATE ON tasker.workflow_steps", fmt.Sprintf("OLD.task_uuid = '%s' AND NEW.state = 'enqueued'", tasks[1]))
	h.tick()
	h.wantStep(tasks[0], "a", tasker.StepEnqueued, 1)
	h.wantStep(tasks[2], "a", tasker.StepEnqueued, 1)
	h.wantStep(tasks[1], "a", tasker.StepPending, 0)
	h.wantState(tasks[1], tasker.TaskStepsInProcess)
	h.heal()
	h.retryDeferred()
	h.wantStep(tasks[1], "a", tasker.StepEnqueued, 1)
}

// Several servers decide each step once, whatever workers report meanwhile.
func TestAStepIsDecidedOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.approval()
	const tasks = 30
	for range tasks {
		h.create("order", `{"amount": 150}`)
	}
	h.servers("all tasks end", func() bool {
		for i, a := range h.claim() {
			h.accepted(success(a, fmt.Sprintf(`{"value": 0.%d}`, 2+i%2*5)))
		}
		return h.Count(`SELECT count(*) FROM tasker.tasks WHERE state = 'complete'`) == tasks
	})
	if n := h.Count(`SELECT count(*) FROM (SELECT FROM tasker.workflow_step_transitions WHERE event IN ('enqueue', 'skip') GROUP BY step_uuid HAVING count(*) > 1) x`); n > 0 {
		t.Errorf("%d steps were decided more than once", n)
	}
}

// Whoever cancels a task ends what is to be decided in it.
func TestACancelledTaskDecidesNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", when("true", enginetest.Step("a")), when("false", enginetest.Step("b")), enginetest.Step("c"))
	task := h.Create("one")
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	h.tick()
	h.wantStep(task, "a", tasker.StepCancelled, 0)
	h.wantStep(task, "b", tasker.StepCancelled, 0)
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE decide_at IS NOT NULL`); n != 0 {
		t.Errorf("%d steps are due to be decided", n)
	}
}

// randomBranches gives some steps of a graph a condition on the context, and some a join.
func randomBranches(r *rand.Rand) []tasker.StepTemplate {
	list := randomSteps(r)
	for i := range list {
		if r.IntN(3) == 0 {
			list[i].When = fmt.Sprintf("context.n %s %d", []string{"<", ">", "!="}[r.IntN(3)], r.IntN(4))
		}
		if n := len(list[i].Dependencies); n > 0 && r.IntN(2) == 0 {
			list[i].Join = []tasker.Join{tasker.JoinNoneFailed, tasker.JoinAny}[r.IntN(2)]
			if n == 1 {
				list[i].Join = tasker.JoinNoneFailed
			}
		}
	}
	return list
}

// holds is what the condition of a random step is about a number, without any CEL.
func holds(condition string, n int) bool {
	var sign string
	var than int
	if _, err := fmt.Sscanf(condition, "context.n %s %d", &sign, &than); err != nil {
		return true // there is none
	}
	return sign == "<" && n < than || sign == ">" && n > than || sign == "!=" && n != than
}

// modelled returns what must become of each step of a task in which all that can go on does,
// where the steps that failed for good are known: by plain recursion over the graph.
func modelled(steps []tasker.StepTemplate, n int, failed map[string]bool) map[string]string {
	of := map[string]string{}
	for _, s := range steps { // each comes after those that it depends on
		count := map[string]int{}
		for _, d := range s.Dependencies {
			count[of[d]]++
		}
		none := len(s.Dependencies) == 0
		run, skip := false, false
		switch s.Join {
		case tasker.JoinAny:
			run = none || count["ran"] > 0
			skip = !run && count["skipped"] == len(s.Dependencies)
		case tasker.JoinNoneFailed:
			run = count["ran"]+count["skipped"] == len(s.Dependencies)
		default:
			run = count["ran"] == len(s.Dependencies)
			skip = !run && count["ran"]+count["skipped"] == len(s.Dependencies)
		}
		switch {
		case run && !holds(s.When, n), skip:
			of[s.Name] = "skipped"
		case run && failed[s.Name]:
			of[s.Name] = "failed"
		case run:
			of[s.Name] = "ran"
		default:
			of[s.Name] = "blocked"
		}
	}
	return of
}

// Whatever workers do, each task takes the branches that a model of its graph takes.
func TestWhateverWorkersDoTheRightBranchesAreTaken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	seed := uint64(rand.Int64())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := &chaos{
		harness: h, seed: seed, atOnce: 10, result: func(*rand.Rand) json.RawMessage { return json.RawMessage(`"done"`) },
		engines: []*engine.Engine{h.Engine, newEngine(h.DB, engine.Options{})},
	}
	const templates, tasks = 25, 150
	graphs := make([][]tasker.StepTemplate, templates)
	for i := range templates {
		graphs[i] = randomBranches(r)
		h.Template(fmt.Sprint("branches", i), graphs[i]...)
	}
	type made struct{ graph, n int }
	all := map[tasker.ID]made{}
	for i := range tasks {
		m := made{i % templates, r.IntN(4)}
		all[h.create(fmt.Sprint("branches", m.graph), fmt.Sprintf(`{"n": %d}`, m.n))] = m
	}
	c.run()
	seen := map[string]int{}
	for task, m := range all {
		list, err := h.DB.Steps(t.Context(), task)
		h.Must(err)
		failed := map[string]bool{}
		for _, s := range list {
			failed[s.Name] = s.State == tasker.StepError
		}
		want := modelled(graphs[m.graph], m.n, failed)
		for _, s := range list {
			got := map[tasker.StepState]string{
				tasker.StepComplete: "ran", tasker.StepSkipped: "skipped", tasker.StepError: "failed", tasker.StepPending: "blocked",
			}[s.State]
			seen[got]++
			if got != want[s.Name] {
				t.Errorf("task %s of branches%d with n = %d: step %s is %s, the model says %s", task, m.graph, m.n, s.Name, s.State, want[s.Name])
			}
		}
	}
	t.Logf("steps: %v", seen)
	if seen["ran"] == 0 || seen["skipped"] == 0 {
		t.Error("these graphs show nothing")
	}
}
