package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

// child is a step that starts a task of a template.
func child(template, name string, dependencies ...string) tasker.StepTemplate {
	return tasker.StepTemplate{Name: name, Type: tasker.ChildStep, Dependencies: dependencies, Retry: tasker.DefaultRetry(), Child: tasker.ChildTemplate{Name: template}}
}

// given gives a child step an input.
func given(input string, s tasker.StepTemplate) tasker.StepTemplate {
	s.Input = input
	return s
}

// family registers an order whose archive is a task of its own.
func (h *harness) family() {
	h.Helper()
	h.Template("archive", enginetest.Step("pack"), enginetest.Step("store", "pack"), enginetest.Step("tell", "pack"))
	h.Template("order", enginetest.Step("charge"), given(`{"of": context.customer, "paid": results.charge.by}`, child("archive", "archive", "charge")), enginetest.Step("end", "archive"))
}

// childOf returns the task that a step started last.
func (h *harness) childOf(task tasker.ID, name string) tasker.ID {
	h.Helper()
	s := h.Step(task, name)
	require(h, s.ChildTaskUUID != nil, "step %s is %s and has no child task: %s", name, s.State, s.Error)
	return *s.ChildTaskUUID
}

// started creates an order and brings it to where its child is started.
func (h *harness) started() (task, kid tasker.ID) {
	h.Helper()
	task = h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Context: json.RawMessage(`{"customer": 9007199254740991}`), Priority: 7, CorrelationID: "c-1"})
	h.Accepted(success(h.ClaimOne("charge"), `{"by": "charge"}`))
	h.Tick()
	return task, h.childOf(task, "archive")
}

func (h *harness) act(task tasker.ID, step string, action tasker.StepAction, result string) {
	h.Helper()
	h.Operate(task, step, tasker.ActionRequest{Action: action, Reason: "it must go on", Actor: "ann", Result: json.RawMessage(result)})
}

func TestChildStepCompletesWithTheResultsOfItsTask(t *testing.T) {
	h := newHarness(t)
	h.family()
	task, kid := h.started()
	h.WantState(task, tasker.TaskWaitingForDependencies)
	h.WantStep(task, "archive", tasker.StepPending, 0)
	d := h.Task(kid)
	if d.Name != "archive" || d.Priority != 7 || d.CorrelationID != "c-1" || d.ParentTaskUUID == nil || *d.ParentTaskUUID != task || *d.ParentStepUUID != h.Step(task, "archive").UUID ||
		strings.ReplaceAll(string(d.Context), " ", "") != `{"of":9007199254740991,"paid":"charge"}` {
		t.Errorf("the child is %+v with %s", d, d.Context)
	}
	check(t, h.Step(task, "archive").WaitUntil == nil, "the step says that it waits for an instant")
	h.Complete("pack")
	for _, a := range h.Claim() {
		h.Accepted(success(a, fmt.Sprintf(`{"by": %q}`, a.Name)))
	}
	h.WantState(kid, tasker.TaskComplete)
	h.WantStep(task, "archive", tasker.StepPending, 0)
	h.Tick()
	h.WantStep(task, "archive", tasker.StepComplete, 0)
	end := h.ClaimOne("end")
	got := strings.ReplaceAll(string(end.DependencyResults["archive"]), " ", "")
	check(t, got == `{"tell":{"by":"tell"},"store":{"by":"store"}}`, "the next step is given %s", got)
	h.Accepted(success(end, `1`))
	h.WantState(task, tasker.TaskComplete)
	list := h.StepMoves(task, "archive")
	check(t, len(list) == 1 && list[0].Event == "complete_child" && strings.Contains(list[0].Reason, kid.String()),
		"the history is %+v", list)
	of, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Parent: task, Limit: 10})
	h.Must(err)
	check(t, len(of) == 1 && of[0].UUID == kid, "the children are %+v", of)
}

func TestChildWithoutInputReceivesTheContextOfItsParent(t *testing.T) {
	h := newHarness(t)
	h.Template("archive", enginetest.Step("pack"))
	h.Template("order", child("archive", "archive"))
	task := h.create("order", `{"n": 12345678901234567890}`)
	h.Tick()
	d := h.Task(h.childOf(task, "archive"))
	check(t, string(d.Context) == `{"n": 12345678901234567890}`, "the context is %s", d.Context)
}

func TestCancellingATaskCancelsItsDescendants(t *testing.T) {
	h := newHarness(t)
	h.Template("inner", enginetest.Step("work"))
	h.Template("middle", child("inner", "inner"))
	h.Template("outer", child("middle", "one"), child("middle", "two"))
	task := h.Create("outer")
	for range 2 {
		h.Tick()
	}
	one, two := h.childOf(task, "one"), h.childOf(task, "two")
	inner := h.childOf(one, "inner")
	h.Cancel(task)
	n := h.Count(`SELECT count(*) FROM tasker.child_signals WHERE kind = 'cancel'`)
	require(t, n == 2, "%d children are to be cancelled, want 2", n)
	for range 2 {
		h.Tick()
	}
	for _, id := range []tasker.ID{one, two, inner} {
		h.WantState(id, tasker.TaskCancelled)
	}
	list := h.Moves(inner)
	if last := list[len(list)-1]; last.Actor != tasker.SystemActor || !strings.Contains(last.Reason, one.String()) {
		t.Errorf("the history says %+v", last)
	}
	h.Tick()
	h.WantCount(0, `SELECT count(*) FROM tasker.child_signals`)
}

func TestManuallyEndedChildStepCancelsItsTask(t *testing.T) {
	h := newHarness(t)
	h.family()
	for action, result := range map[tasker.StepAction]string{tasker.ResolveManually: "", tasker.CompleteManually: `{"store": 1}`} {
		task, kid := h.started()
		_, err := h.Engine.CompleteExternal(t.Context(), task, h.Step(task, "archive").UUID, tasker.Outcome{Success: true}, "desk")
		h.WantCode(err, tasker.Conflict, "it waits for its child task")
		h.WantState(kid, tasker.TaskStepsInProcess)
		h.act(task, "archive", action, result)
		h.Tick()
		h.WantState(kid, tasker.TaskCancelled)
		h.Complete("end")
		h.Tick()
		h.WantState(task, tasker.TaskComplete)
	}
}

func TestOnChildDecidesWhatAFailedChildMeans(t *testing.T) {
	h := newHarness(t)
	h.Template("archive", enginetest.Once(enginetest.Step("pack")))
	for i, c := range []struct {
		on     tasker.OnChild
		giveUp bool
		want   tasker.StepState
		says   string
	}{
		{tasker.OnChild{}, false, tasker.StepError, "was cancelled"},
		{tasker.OnChild{}, true, tasker.StepError, "was given up"},
		{tasker.OnChild{Cancelled: tasker.ChildSkips}, false, tasker.StepSkipped, "was cancelled"},
		{tasker.OnChild{Cancelled: tasker.ChildSkips}, true, tasker.StepError, "was given up"},
		{tasker.OnChild{PermanentlyFailed: tasker.ChildSkips}, true, tasker.StepSkipped, "was given up"},
		{tasker.OnChild{PermanentlyFailed: tasker.ChildCompletes}, true, tasker.StepComplete, `{"kept": false}`},
		{tasker.OnChild{Cancelled: tasker.ChildCompletes}, false, tasker.StepComplete, `{"kept": false}`},
	} {
		s := child("archive", "archive")
		s.OnChild, s.ChildResult = c.on, json.RawMessage(`{"kept": false}`)
		name := fmt.Sprint("order", i)
		h.Template(name, s, joined(tasker.JoinNoneFailed, enginetest.Step("end", "archive")))
		task := h.Create(name)
		h.Tick()
		kid := h.childOf(task, "archive")
		if c.giveUp {
			h.Accepted(failure(h.ClaimOne("pack"), true))
			h.Tick()
			h.WantStep(task, "archive", tasker.StepPending, 0)
			h.Abandon(kid)
		} else {
			h.Cancel(kid)
		}
		h.Tick()
		got := h.Step(task, "archive")
		if got.State != c.want || !strings.Contains(string(got.Error)+string(got.SkipReason)+string(got.Results), c.says) {
			t.Errorf("on_child %+v: the step is %s: %s%s%s", c.on, got.State, got.Error, got.SkipReason, got.Results)
		}
		if c.want != tasker.StepError {
			h.Tick()
			h.Complete("end")
			h.WantState(task, tasker.TaskComplete)
			continue
		}
		if e := h.Entry(task); e.DetailCode != tasker.ChildFailed || !strings.Contains(string(got.Error), kid.String()) {
			t.Errorf("the investigation is %s, the error %s", e.DetailCode, got.Error)
		}
		h.act(task, "archive", tasker.ResetForRetry, "")
		h.Tick()
		again := h.childOf(task, "archive")
		check(t, again != kid, "the reset has the step wait for the same child")
		h.Drain()
		h.Tick()
		h.Tick()
		h.Drain()
		h.WantState(task, tasker.TaskComplete)
	}
}

func TestParentContinuesAfterItsChildIsRepaired(t *testing.T) {
	h := newHarness(t)
	h.Template("archive", enginetest.Once(enginetest.Step("pack")))
	h.Template("order", child("archive", "archive"), enginetest.Step("end", "archive"))
	task := h.Create("order")
	h.Tick()
	kid := h.childOf(task, "archive")
	h.Accepted(failure(h.ClaimOne("pack"), true))
	h.Tick()
	h.WantState(kid, tasker.TaskError)
	h.WantState(task, tasker.TaskWaitingForDependencies)
	var stale bool
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT stale_at < now() + interval '1 year' FROM tasker.tasks WHERE task_uuid = $1`, task).Scan(&stale))
	check(t, !stale, "the parent is stale before its child is")
	other := newEngine(h.DB, engine.Options{}) // everything has been restarted
	_, err := other.OperateStep(t.Context(), kid, h.Step(kid, "pack").UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "repaired", Actor: "ann"})
	h.Must(err)
	h.Complete("pack")
	for range 3 {
		h.Must(errOf(other.Tick(t.Context())))
	}
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)
}

func TestChildThatCannotBeCreatedOpensAnInvestigation(t *testing.T) {
	h := newHarness(t)
	h.Template("order", child("archive", "archive"), enginetest.Step("end", "archive"))
	task := h.create("order", `{"n": "x"}`)
	refused := func(words string) {
		t.Helper()
		h.Tick()
		s := h.Step(task, "archive")
		require(t, s.State == tasker.StepError && strings.Contains(string(s.Error), words),
			"the step is %s: %s; want it to say %q", s.State, s.Error, words)
		h.WantDetail(task, tasker.ChildRefused)
		h.WantCount(1, `SELECT count(*) FROM tasker.tasks`)
		h.act(task, "archive", tasker.ResetForRetry, "")
	}
	refused("template shop/archive not found")
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: h.Space, Name: "archive", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("pack")},
		InputSchema: json.RawMessage(`{"properties": {"n": {"type": "number"}}}`)}, "")
	h.Must(err)
	refused("must be of type number, not string")
	h.Exec(`DELETE FROM tasker.task_templates WHERE name = 'archive'`)
	h.Template("archive", enginetest.Step("a", "b"), enginetest.Step("b", "a"))
	refused("dependency cycle")
	h.Exec(`DELETE FROM tasker.task_templates WHERE name = 'archive'`)
	h.Template("archive", enginetest.Step("pack"))
	h.Tick()
	h.Drain()
	h.Tick()
	h.Drain()
	h.WantState(task, tasker.TaskComplete)
}

func TestFailedChildInputOpensAnInvestigation(t *testing.T) {
	h := newHarness(t)
	h.Template("archive", enginetest.Step("pack"))
	for input, words := range map[string]string{
		"context.of": "must be an object, not a string", `{"a": context.no}`: `input: column 14: missing key \"no\"`, `{"a": 1.0 / 0.0}`: "contains a number, which JSON cannot represent",
	} {
		h.Template("order"+fmt.Sprint(len(input)), given(input, child("archive", "archive")))
		task := h.create("order"+fmt.Sprint(len(input)), `{"of": "x"}`)
		h.Tick()
		h.WantFailed(task, "archive", words)
		h.WantDetail(task, tasker.ExpressionFailed)
	}
}

func TestChildTasksHaveNoCyclesAndABoundedDepth(t *testing.T) {
	h := newHarness(t)
	register := func(name, version string, steps ...tasker.StepTemplate) error {
		_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: h.Space, Name: name, Version: version, Steps: steps}, "")
		return err
	}
	h.Must(register("a", "1.0.0", child("b", "b")))
	h.Must(register("b", "1.0.0", child("c", "c")))
	h.WantCode(register("c", "1.0.0", enginetest.Step("x"), child("a", "a")), tasker.Invalid, "cycle: shop/c -> shop/a -> shop/b -> shop/c")
	h.WantCode(register("d", "1.0.0", child("d", "d")), tasker.Invalid, "cycle: shop/d -> shop/d")
	h.Must(register("e", "1.0.0", enginetest.Step("x")))
	pinned := child("e", "e")
	pinned.Child.Version = "1.0.0"
	h.Must(register("e", "2.0.0", pinned)) // another version is another template
	for i := range tasker.MaxChildDepth + 2 {
		if i == 0 {
			h.Must(register("n0", "1.0.0", enginetest.Step("x")))
			continue
		}
		h.Must(register(fmt.Sprint("n", i), "1.0.0", child(fmt.Sprint("n", i-1), "next")))
	}
	task := h.Create(fmt.Sprint("n", tasker.MaxChildDepth+1))
	for range tasker.MaxChildDepth + 1 {
		h.Tick()
	}
	at := task
	for range tasker.MaxChildDepth {
		at = h.childOf(at, "next")
	}
	h.WantFailed(at, "next", "the task already has 10 ancestors")
}

func TestLargeResultsOfAChildAreReferences(t *testing.T) {
	h := newHarness(t)
	h.Template("archive", enginetest.Step("small"), enginetest.Step("large"), enginetest.Step("larger"))
	h.Template("order", child("archive", "archive"), enginetest.Step("end", "archive"))
	task := h.Create("order")
	h.Tick()
	kid := h.childOf(task, "archive")
	sizes := map[string]int{"small": 1, "large": 600 << 10, "larger": 700 << 10}
	for _, a := range h.Claim() {
		text := strings.Repeat("x", 100<<10)
		doc, err := json.Marshal(append(make([]string, 0), strings.Split(strings.Repeat(text+"\n", max(1, sizes[a.Name]/(100<<10))), "\n")...))
		h.Must(err)
		h.Accepted(success(a, string(doc)))
	}
	h.Tick()
	h.WantStep(task, "archive", tasker.StepComplete, 0)
	var got struct {
		Result   map[string]json.RawMessage `json:"result"`
		Metadata map[string]string          `json:"metadata"`
	}
	h.Must(json.Unmarshal(h.Step(task, "archive").Results, &got))
	var left struct {
		Omitted  bool   `json:"omitted"`
		TaskUUID string `json:"task_uuid"`
		ReadAt   string `json:"read_at"`
		Bytes    int    `json:"bytes"`
	}
	h.Must(json.Unmarshal(got.Result["larger"], &left))
	if !left.Omitted || left.TaskUUID != kid.String() || left.Bytes < 700<<10 || left.ReadAt != "/v1/tasks/"+kid.String()+"/results/"+h.Step(kid, "larger").UUID.String() {
		t.Errorf("the larger result is %s", got.Result["larger"])
	}
	if len(got.Result["large"]) < 600<<10 || len(got.Result["small"]) < 100<<10 || got.Metadata["child_task_uuid"] != kid.String() {
		t.Errorf("the others have %d and %d bytes, and it says %v", len(got.Result["large"]), len(got.Result["small"]), got.Metadata)
	}
}

func TestCompensationHandlesOpenAndCompleteChildren(t *testing.T) {
	h := newHarness(t)
	h.Template("archive", enginetest.Step("pack"))
	first := child("archive", "first")
	first.OnFailure = &tasker.OnFailure{Compensate: "run", Retry: tasker.DefaultUndoRetry()}
	h.Template("order", first, child("archive", "second", "first"))
	task := h.Create("order")
	h.Tick()
	done := h.childOf(task, "first")
	h.Accepted(success(h.ClaimOne("pack"), `{"shelf": 3}`))
	for range 2 {
		h.Tick()
	}
	open := h.childOf(task, "second")
	h.compensate(task)
	h.Tick()
	h.WantState(open, tasker.TaskCancelled)
	h.WantState(done, tasker.TaskComplete)
	undo := h.ClaimOne("undo:first")
	if got := strings.ReplaceAll(string(undo.DependencyResults["first"]), " ", ""); got != `{"pack":{"shelf":3}}` {
		t.Errorf("it is given %s", got)
	}
	h.Accepted(success(undo, `1`))
	h.WantState(task, tasker.TaskCancelled)
	h.Tick()

	// The child is complete, and its step has not been told of it.
	task = h.Create("order")
	h.Tick()
	h.Accepted(success(h.ClaimOne("pack"), `{"shelf": 4}`))
	h.WantStep(task, "first", tasker.StepPending, 0)
	h.compensate(task)
	h.WantStep(task, "first", tasker.StepComplete, 0)
	h.WantStep(task, "second", tasker.StepCancelled, 0)
	undo = h.ClaimOne("undo:first")
	if got := strings.ReplaceAll(string(undo.DependencyResults["first"]), " ", ""); got != `{"pack":{"shelf":4}}` {
		t.Errorf("it is given %s", got)
	}
	h.Accepted(success(undo, `1`))
	h.wantUndone(task, "", tasker.Compensated)
	h.Tick()
	h.WantCount(0, `SELECT count(*) FROM tasker.child_signals`)
}

func TestOpenChildIsCompensatedWithItsParent(t *testing.T) {
	h := newHarness(t)
	h.Template("inner", undoable(enginetest.Step("work")), enginetest.Step("rest", "work"))
	h.Template("middle", undoable(enginetest.Step("first")), child("inner", "inner", "first"))
	h.Template("outer", child("middle", "middle"))
	started := func() (outer, middle, inner tasker.ID) {
		outer = h.Create("outer")
		h.Tick()
		middle = h.childOf(outer, "middle")
		h.Complete("first")
		h.Tick()
		inner = h.childOf(middle, "inner")
		h.Complete("work")
		h.ClaimOne("rest")
		return outer, middle, inner
	}
	outer, middle, inner := started()
	h.compensate(outer)
	h.wantUndone(outer, "", tasker.NothingToCompensate)
	h.wantUndone(middle, "", "")
	h.Tick()
	h.wantUndone(middle, tasker.Compensating, "")
	h.Tick()
	h.wantUndone(inner, tasker.Compensating, "")
	for range 2 {
		h.Succeed(h.Claim()...)
	}
	h.wantUndone(middle, "", tasker.Compensated)
	h.wantUndone(inner, "", tasker.Compensated)
	list := h.Moves(inner)
	if !slices.ContainsFunc(list, func(m tasker.Transition) bool {
		return m.Event == "compensate" && m.Actor == tasker.SystemActor && strings.Contains(m.Reason, middle.String())
	}) {
		t.Errorf("the history says %+v", list)
	}
	h.Tick()

	// Its parent is cancelled without compensation while it is being undone.
	outer, middle, inner = started()
	h.compensate(inner)
	h.Cancel(outer)
	h.Tick()
	h.Tick()
	h.WantState(middle, tasker.TaskCancelled)
	h.wantUndone(middle, "", "")
	h.wantUndone(inner, tasker.Compensating, "")
	h.Complete("undo:work")
	h.wantUndone(inner, "", tasker.Compensated)
	h.Tick()
	h.WantCount(0, `SELECT count(*) FROM tasker.child_signals`)
}

func TestTaskTreeIsBounded(t *testing.T) {
	h := newHarness(t)
	h.Template("inner", enginetest.Once(enginetest.Step("work")))
	h.Template("middle", child("inner", "inner"))
	h.Template("outer", child("middle", "one"), child("middle", "two"))
	task := h.Create("outer")
	for range 2 {
		h.Tick()
	}
	one, two := h.childOf(task, "one"), h.childOf(task, "two")
	h.wantTree(task, "0 outer  | 1 middle two waited_for | 2 inner inner waited_for | 1 middle one waited_for | 2 inner inner waited_for")
	h.wantTree(one, "0 outer  | 1 middle one waited_for | 2 inner inner waited_for")
	h.wantTree(h.childOf(two, "inner"), "0 outer  | 1 middle two waited_for | 2 inner inner waited_for")

	// A child that a step had before is there, but not the one that counts.
	h.Cancel(one)
	h.Tick()
	h.act(task, "one", tasker.ResetForRetry, "")
	h.Tick()
	h.Tick()
	h.wantTree(task, "0 outer  | 1 middle one waited_for | 2 inner inner waited_for | 1 middle two waited_for | 2 inner inner waited_for | 1 middle one  | 2 inner inner current")

	// The rest of the children of one, and of what is below, is left out.
	h.Template("many", many(tasker.MaxTreeChildren+5, "middle")...)
	wide := h.Create("many")
	h.Tick()
	h.Tick()
	tree, err := h.DB.TaskTree(t.Context(), wide)
	h.Must(err)
	if n := len(tree.Tasks); n != 1+2*tasker.MaxTreeChildren || !tree.Tasks[0].MoreChildren || tree.Tasks[1].MoreChildren {
		t.Errorf("the tree has %d tasks: %+v", n, tree.Tasks[:2])
	}
	h.Template("few", many(tasker.MaxTreeChildren+5, "inner")...)
	h.Template("huge", many(tasker.MaxTreeChildren, "few")...)
	huge := h.Create("huge")
	for range 5 {
		h.Tick()
	}
	tree, err = h.DB.TaskTree(t.Context(), huge)
	h.Must(err)
	left := 0
	for _, n := range tree.Tasks {
		if n.Task.Name == "few" && n.MoreChildren {
			left++
		}
	}
	if n := len(tree.Tasks); n != 1+tasker.MaxTreeTasks || left != tasker.MaxTreeChildren {
		t.Errorf("the tree has %d tasks, and %d of which children are left out", n, left)
	}
	h.WantCode(errOf(h.DB.TaskTree(t.Context(), tasker.NewID())), tasker.NotFound, "not found")
	_, err = h.DB.TaskTree(access.WithScope(t.Context(), access.NamespaceScope("other")), task)
	h.WantCode(err, tasker.NotFound, "not found")
}

// many are steps that start tasks of one template.
func many(n int, template string) []tasker.StepTemplate {
	list := make([]tasker.StepTemplate, n)
	for i := range list {
		list[i] = child(template, fmt.Sprint("s", i))
	}
	return list
}

func (h *harness) wantTree(of tasker.ID, want string) {
	h.Helper()
	tree, err := h.DB.TaskTree(h.Context(), of)
	h.Must(err)
	list := make([]string, len(tree.Tasks))
	for i, n := range tree.Tasks {
		how := ""
		if n.Current {
			how = "current"
		}
		if n.WaitedFor {
			how = "waited_for"
		}
		list[i] = fmt.Sprintf("%d %s %s %s", n.Depth, n.Task.Name, n.StepName, how)
	}
	if got := strings.TrimSpace(strings.Join(list, "| ")); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		h.Errorf("the tree of %s is\n%s, want\n%s", of, got, want)
	}
}

func TestResetCanStartANewChild(t *testing.T) {
	h := newHarness(t)
	h.Template("archive", enginetest.Once(enginetest.Step("pack")))
	s := child("archive", "archive", "score")
	s.When = "results.score.ok"
	h.Template("order", enginetest.Step("score"), s, enginetest.Step("end", "archive"))
	task := h.Create("order")
	h.Accepted(success(h.ClaimOne("score"), `{"ok": true}`))
	step := h.Step(task, "archive").UUID
	reset := tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "its template is repaired", Actor: "ann", NewChild: true}
	refused := func(of tasker.ID, op tasker.ActionRequest, code tasker.Code, says string) {
		t.Helper()
		h.WantCode(errOf(h.Engine.OperateStep(t.Context(), task, of, op)), code, says)
	}
	refused(step, reset, tasker.Conflict, "pending and waits for its dependencies") // it has not been decided
	h.Tick()
	one := h.childOf(task, "archive")

	// Of a child that goes on it has to be taken.
	refused(step, reset, tasker.Conflict, "waits for task "+one.String()+", which is steps_in_process")
	refused(h.Step(task, "end").UUID, reset, tasker.Conflict, "is not a child step")
	wrong := reset
	wrong.Action = tasker.ResolveManually
	refused(step, wrong, tasker.Invalid, "only allowed with reset_for_retry")
	plain := reset
	plain.NewChild, plain.Interrupt = false, true
	refused(step, plain, tasker.Conflict, "pending")
	reset.Interrupt = true
	left, err := h.Engine.OperateStep(t.Context(), task, step, reset)
	h.Must(err)
	check(t, left.State == tasker.StepPending && left.ChildTaskUUID == nil,
		"the reset left the step %s with the child %v", left.State, left.ChildTaskUUID)
	h.Tick()
	h.Tick()
	two := h.childOf(task, "archive")
	h.WantState(one, tasker.TaskCancelled)
	h.WantState(two, tasker.TaskStepsInProcess)
	require(t, one != two, "the step waits for the same child")

	// A child that was cancelled, and one that is complete but of which the step has not heard.
	h.Cancel(two)
	h.Tick()
	h.WantStep(task, "archive", tasker.StepError, 0)
	reset.Interrupt = false
	left, err = h.Engine.OperateStep(t.Context(), task, step, reset)
	h.Must(err)
	check(t, left.State == tasker.StepPending && left.ChildTaskUUID == nil,
		"the reset left the step %s with the child %v", left.State, left.ChildTaskUUID)
	h.Tick()
	three := h.childOf(task, "archive")
	h.Complete("pack")
	h.WantState(three, tasker.TaskComplete)
	h.Must(errOf(h.Engine.OperateStep(t.Context(), task, step, reset)))
	h.Tick()
	four := h.childOf(task, "archive")
	h.Accepted(success(h.ClaimOne("pack"), `4`))
	h.Tick()
	h.WantStep(task, "archive", tasker.StepComplete, 0)
	got := string(h.Step(task, "archive").Results)
	check(t, strings.Contains(got, four.String()), "the result is not that of the last child: %s", got)
	h.Tick() // decides whether the end runs
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)
	refused(step, reset, tasker.Conflict, "is complete: its steps can no longer be changed")
	h.WantCount(4, `SELECT count(*) FROM tasker.tasks WHERE parent_task_uuid IS NOT NULL`)
	h.WantCount(0, `SELECT count(*) FROM tasker.child_signals`)
	h.WantCount(2, `SELECT count(*) FROM tasker.audit_events WHERE action = 'step.reset' AND data ->> 'left_child_task_uuid' IS NOT NULL`)
}
