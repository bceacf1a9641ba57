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
	s := h.step(task, name)
	if s.ChildTaskUUID == nil {
		h.Fatalf("step %s is %s and has no child task: %s", name, s.State, s.Error)
	}
	return *s.ChildTaskUUID
}

// started creates an order and brings it to where its child is started.
func (h *harness) started() (task, kid tasker.ID) {
	h.Helper()
	task = h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Context: json.RawMessage(`{"customer": 9007199254740991}`), Priority: 7, CorrelationID: "c-1"})
	h.accepted(success(h.claimOne("charge"), `{"by": "charge"}`))
	h.tick()
	return task, h.childOf(task, "archive")
}

func (h *harness) act(task tasker.ID, step string, action tasker.StepAction, result string) {
	h.Helper()
	_, err := h.Engine.OperateStep(h.Context(), task, h.step(task, step).UUID, tasker.ActionRequest{Action: action, Reason: "it must go on", Actor: "ann", Result: json.RawMessage(result)})
	h.Must(err)
}

// giveUp ends the investigation of a task as permanently failed.
func (h *harness) giveUp(task tasker.ID) {
	h.Helper()
	status, notes, by := tasker.EntryPermanentlyFailed, "no way", "ann"
	_, _, err := h.DLQ.Update(h.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by})
	h.Must(err)
}

// A step starts a task of another template with what its input says, and is complete with its results.
func TestAChildTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.family()
	task, kid := h.started()
	h.wantState(task, tasker.TaskWaitingForDependencies)
	h.wantStep(task, "archive", tasker.StepPending, 0)
	d := h.taskOf(kid)
	if d.Name != "archive" || d.Priority != 7 || d.CorrelationID != "c-1" || d.ParentTaskUUID == nil || *d.ParentTaskUUID != task || *d.ParentStepUUID != h.step(task, "archive").UUID ||
		strings.ReplaceAll(string(d.Context), " ", "") != `{"of":9007199254740991,"paid":"charge"}` {
		t.Errorf("the child is %+v with %s", d, d.Context)
	}
	if h.step(task, "archive").WaitUntil != nil {
		t.Error("the step says that it waits for an instant")
	}
	h.accepted(success(h.claimOne("pack"), `1`))
	for _, a := range h.claim() {
		h.accepted(success(a, fmt.Sprintf(`{"by": %q}`, a.Name)))
	}
	h.wantState(kid, tasker.TaskComplete)
	h.wantStep(task, "archive", tasker.StepPending, 0)
	h.tick()
	h.wantStep(task, "archive", tasker.StepComplete, 0)
	end := h.claimOne("end")
	if got := strings.ReplaceAll(string(end.DependencyResults["archive"]), " ", ""); got != `{"tell":{"by":"tell"},"store":{"by":"store"}}` {
		t.Errorf("the next step is given %s", got)
	}
	h.accepted(success(end, `1`))
	h.wantState(task, tasker.TaskComplete)
	list, _, err := h.DB.StepTransitions(t.Context(), task, h.step(task, "archive").UUID, 10, 0)
	h.Must(err)
	if len(list) != 1 || list[0].Event != "complete_child" || !strings.Contains(list[0].Reason, kid.String()) {
		t.Errorf("the history is %+v", list)
	}
	of, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Parent: task, Limit: 10})
	h.Must(err)
	if len(of) != 1 || of[0].UUID != kid {
		t.Errorf("the children are %+v", of)
	}
}

// Without an input the child has the context of its parent, every digit of it.
func TestAChildHasTheContextOfItsParent(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("archive", enginetest.Step("pack"))
	h.Template("order", child("archive", "archive"))
	task := h.create("order", `{"n": 12345678901234567890}`)
	h.tick()
	d := h.taskOf(h.childOf(task, "archive"))
	if string(d.Context) != `{"n": 12345678901234567890}` {
		t.Errorf("the context is %s", d.Context)
	}
}

// Whoever cancels a task cancels the tasks that its steps started, and theirs.
func TestACancelledParentCancelsItsChildren(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("inner", enginetest.Step("work"))
	h.Template("middle", child("inner", "inner"))
	h.Template("outer", child("middle", "one"), child("middle", "two"))
	task := h.Create("outer")
	for range 2 {
		h.tick()
	}
	one, two := h.childOf(task, "one"), h.childOf(task, "two")
	inner := h.childOf(one, "inner")
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	if n := h.Count(`SELECT count(*) FROM tasker.child_signals WHERE kind = 'cancel'`); n != 2 {
		t.Fatalf("%d children are to be cancelled, want 2", n)
	}
	for range 2 {
		h.tick()
	}
	for _, id := range []tasker.ID{one, two, inner} {
		h.wantState(id, tasker.TaskCancelled)
	}
	list, _, err := h.DB.TaskTransitions(t.Context(), inner, 10, 0)
	h.Must(err)
	if last := list[len(list)-1]; last.Actor != tasker.SystemActor || !strings.Contains(last.Reason, one.String()) {
		t.Errorf("the history says %+v", last)
	}
	h.tick()
	if n := h.Count(`SELECT count(*) FROM tasker.child_signals`); n != 0 {
		t.Errorf("%d signals are left", n)
	}
}

// An operator who ends the step ends its child.
func TestAStepThatIsEndedByHandLeavesItsChild(t *testing.T) {
	t.Parallel()
	for action, result := range map[tasker.StepAction]string{tasker.ResolveManually: "", tasker.CompleteManually: `{"store": 1}`} {
		h := newHarness(t)
		h.family()
		task, kid := h.started()
		_, err := h.Engine.CompleteExternal(t.Context(), task, h.step(task, "archive").UUID, tasker.Outcome{Success: true}, "desk")
		h.WantCode(err, tasker.Conflict, "it waits for its child task")
		h.wantState(kid, tasker.TaskStepsInProcess)
		h.act(task, "archive", action, result)
		h.tick()
		h.wantState(kid, tasker.TaskCancelled)
		h.accepted(success(h.claimOne("end"), `1`))
		h.tick()
		h.wantState(task, tasker.TaskComplete)
	}
}

// What a child that does not complete means to its step.
func TestWhatAChildThatFailsMeans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
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
		h := newHarness(t)
		h.Template("archive", enginetest.Once(enginetest.Step("pack")))
		s := child("archive", "archive")
		s.OnChild, s.ChildResult = c.on, json.RawMessage(`{"kept": false}`)
		h.Template("order", s, joined(tasker.JoinNoneFailed, enginetest.Step("end", "archive")))
		task := h.Create("order")
		h.tick()
		kid := h.childOf(task, "archive")
		if c.giveUp {
			h.accepted(failure(h.claimOne("pack"), true))
			h.tick()
			h.wantStep(task, "archive", tasker.StepPending, 0)
			h.giveUp(kid)
		} else {
			h.Must(h.Engine.CancelTask(t.Context(), kid, "ann", "not wanted"))
		}
		h.tick()
		got := h.step(task, "archive")
		if got.State != c.want || !strings.Contains(string(got.Error)+got.SkipReason+string(got.Results), c.says) {
			t.Errorf("on_child %+v: the step is %s: %s%s%s", c.on, got.State, got.Error, got.SkipReason, got.Results)
		}
		if c.want != tasker.StepError {
			h.tick()
			h.accepted(success(h.claimOne("end"), `1`))
			h.wantState(task, tasker.TaskComplete)
			continue
		}
		if e := h.Entry(task); e.DetailCode != tasker.ChildFailed || !strings.Contains(string(got.Error), kid.String()) {
			t.Errorf("the investigation is %s, the error %s", e.DetailCode, got.Error)
		}
		h.act(task, "archive", tasker.ResetForRetry, "")
		h.tick()
		if again := h.childOf(task, "archive"); again == kid {
			t.Error("the reset has the step wait for the same child")
		}
		h.drain()
		h.tick()
		h.tick()
		h.drain()
		h.wantState(task, tasker.TaskComplete)
	}
}

// The repair of a child has its parent go on.
func TestARepairedChild(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("archive", enginetest.Once(enginetest.Step("pack")))
	h.Template("order", child("archive", "archive"), enginetest.Step("end", "archive"))
	task := h.Create("order")
	h.tick()
	kid := h.childOf(task, "archive")
	h.accepted(failure(h.claimOne("pack"), true))
	h.tick()
	h.wantState(kid, tasker.TaskError)
	h.wantState(task, tasker.TaskWaitingForDependencies)
	var stale bool
	h.Must(h.pool.QueryRow(t.Context(), `SELECT stale_at < now() + interval '1 year' FROM tasker.tasks WHERE task_uuid = $1`, task).Scan(&stale))
	if stale {
		t.Error("the parent is stale before its child is")
	}
	other := newEngine(h.DB, engine.Options{}) // everything has been restarted
	_, err := other.OperateStep(t.Context(), kid, h.step(kid, "pack").UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "repaired", Actor: "ann"})
	h.Must(err)
	h.accepted(success(h.claimOne("pack"), `1`))
	for range 3 {
		_, err := other.Tick(t.Context())
		h.Must(err)
	}
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A child that cannot be started is an investigation of its parent; once that is repaired, a reset starts it.
func TestAChildThatIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", child("archive", "archive"), enginetest.Step("end", "archive"))
	task := h.create("order", `{"n": "x"}`)
	refused := func(words string) {
		t.Helper()
		h.tick()
		s := h.step(task, "archive")
		if s.State != tasker.StepError || !strings.Contains(string(s.Error), words) {
			t.Fatalf("the step is %s: %s; want it to say %q", s.State, s.Error, words)
		}
		if e := h.Entry(task); e.DetailCode != tasker.ChildRefused {
			t.Errorf("the investigation is %s", e.DetailCode)
		}
		if n := h.Count(`SELECT count(*) FROM tasker.tasks`); n != 1 {
			t.Errorf("there are %d tasks", n)
		}
		h.act(task, "archive", tasker.ResetForRetry, "")
	}
	refused("template shop/archive not found")
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: h.Space, Name: "archive", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("pack")},
		InputSchema: json.RawMessage(`{"properties": {"n": {"type": "number"}}}`)}, "")
	h.Must(err)
	refused("must be of type number, not string")
	h.Exec(`DELETE FROM tasker.task_templates WHERE name = 'archive'`)
	h.Template("archive", enginetest.Step("a", "b"), enginetest.Step("b", "a"))
	refused("in a cycle")
	h.Exec(`DELETE FROM tasker.task_templates WHERE name = 'archive'`)
	h.Template("archive", enginetest.Step("pack"))
	h.tick()
	h.drain()
	h.tick()
	h.drain()
	h.wantState(task, tasker.TaskComplete)
}

// An input that cannot be evaluated is an investigation like that of a condition.
func TestAnInputThatFails(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("archive", enginetest.Step("pack"))
	for input, words := range map[string]string{
		"context.of": "must be an object, not a string", `{"a": context.no}`: `input: column 14: missing key \"no\"`, `{"a": 1.0 / 0.0}`: "contains a number, which JSON cannot represent",
	} {
		h.Template("order"+fmt.Sprint(len(input)), given(input, child("archive", "archive")))
		task := h.create("order"+fmt.Sprint(len(input)), `{"of": "x"}`)
		h.tick()
		if s := h.step(task, "archive"); s.State != tasker.StepError || !strings.Contains(string(s.Error), words) {
			t.Errorf("the step is %s: %s", s.State, s.Error)
		}
		if e := h.Entry(task); e.DetailCode != tasker.ExpressionFailed {
			t.Errorf("the investigation is %s", e.DetailCode)
		}
	}
}

// Templates do not start each other in a cycle, and no task has more than ten above it.
func TestCyclesAndDepth(t *testing.T) {
	t.Parallel()
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
		h.tick()
	}
	at := task
	for range tasker.MaxChildDepth {
		at = h.childOf(at, "next")
	}
	if s := h.step(at, "next"); s.State != tasker.StepError || !strings.Contains(string(s.Error), "the task already has 10 ancestors") {
		t.Errorf("the step is %s: %s", s.State, s.Error)
	}
}

// Several servers start each child once and tell its parent once; a parent that cannot be told delays no other.
func TestAChildStartsAndEndsOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("archive", enginetest.Step("pack"))
	h.Template("order", child("archive", "archive"), enginetest.Step("end", "archive"))
	const tasks = 40
	var all []tasker.ID
	for range tasks {
		all = append(all, h.Create("order"))
	}
	h.poison("UPDATE ON tasker.workflow_steps", fmt.Sprintf("OLD.task_uuid = '%s' AND NEW.state = 'complete' AND OLD.step_type = 'child'", all[7]))
	h.servers("all others end, and that one is set aside", func() bool {
		h.drain()
		return h.Count(`SELECT count(*) FROM tasker.tasks WHERE name = 'order' AND state = 'complete'`) == tasks-1 &&
			h.Count(`SELECT count(*) FROM tasker.deferred_work`) == 1
	})
	h.wantStep(all[7], "archive", tasker.StepPending, 0)
	h.heal()
	h.wantRetried(all[7], "archive")
	if n := h.Count(`SELECT count(*) FROM tasker.tasks WHERE name = 'archive'`); n != tasks {
		t.Errorf("%d children were started, want %d", n, tasks)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_step_transitions WHERE event = 'complete_child'`); n != tasks {
		t.Errorf("%d steps were told, want %d", n, tasks)
	}
}

// A child that ends while its parent is being cancelled changes nothing any more.
func TestAChildEndsWhileItsParentIsCancelled(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.family()
	task, kid := h.started()
	h.drain()
	h.wantState(kid, tasker.TaskComplete)
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	h.tick()
	h.wantState(kid, tasker.TaskComplete)
	h.wantStep(task, "archive", tasker.StepCancelled, 0)
	if n := h.Count(`SELECT count(*) FROM tasker.child_signals`); n != 0 {
		t.Errorf("%d signals are left", n)
	}
}

// Results that do not fit together are read where they are.
func TestTheResultsOfAChildAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("archive", enginetest.Step("small"), enginetest.Step("large"), enginetest.Step("larger"))
	h.Template("order", child("archive", "archive"), enginetest.Step("end", "archive"))
	task := h.Create("order")
	h.tick()
	kid := h.childOf(task, "archive")
	sizes := map[string]int{"small": 1, "large": 600 << 10, "larger": 700 << 10}
	for _, a := range h.claim() {
		text := strings.Repeat("x", 100<<10)
		doc, err := json.Marshal(append(make([]string, 0), strings.Split(strings.Repeat(text+"\n", max(1, sizes[a.Name]/(100<<10))), "\n")...))
		h.Must(err)
		h.accepted(success(a, string(doc)))
	}
	h.tick()
	h.wantStep(task, "archive", tasker.StepComplete, 0)
	var got struct {
		Result   map[string]json.RawMessage `json:"result"`
		Metadata map[string]string          `json:"metadata"`
	}
	h.Must(json.Unmarshal(h.step(task, "archive").Results, &got))
	var left struct {
		Omitted  bool   `json:"omitted"`
		TaskUUID string `json:"task_uuid"`
		ReadAt   string `json:"read_at"`
		Bytes    int    `json:"bytes"`
	}
	h.Must(json.Unmarshal(got.Result["larger"], &left))
	if !left.Omitted || left.TaskUUID != kid.String() || left.Bytes < 700<<10 || left.ReadAt != "/v1/tasks/"+kid.String()+"/results/"+h.step(kid, "larger").UUID.String() {
		t.Errorf("the larger result is %s", got.Result["larger"])
	}
	if len(got.Result["large"]) < 600<<10 || len(got.Result["small"]) < 100<<10 || got.Metadata["child_task_uuid"] != kid.String() {
		t.Errorf("the others have %d and %d bytes, and it says %v", len(got.Result["large"]), len(got.Result["small"]), got.Metadata)
	}
}

// A compensation cancels the child that is open, and undoes the step of one that is complete.
func TestAChildIsCompensated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("archive", enginetest.Step("pack"))
	first := child("archive", "first")
	first.OnFailure = &tasker.OnFailure{Compensate: "run", Retry: tasker.DefaultUndoRetry()}
	h.Template("order", first, child("archive", "second", "first"))
	task := h.Create("order")
	h.tick()
	done := h.childOf(task, "first")
	h.accepted(success(h.claimOne("pack"), `{"shelf": 3}`))
	for range 2 {
		h.tick()
	}
	open := h.childOf(task, "second")
	h.compensate(task)
	h.tick()
	h.wantState(open, tasker.TaskCancelled)
	h.wantState(done, tasker.TaskComplete)
	undo := h.claimOne("undo:first")
	if got := strings.ReplaceAll(string(undo.DependencyResults["first"]), " ", ""); got != `{"pack":{"shelf":3}}` {
		t.Errorf("it is given %s", got)
	}
	h.accepted(success(undo, `1`))
	h.wantState(task, tasker.TaskCancelled)
	h.tick()

	// The child is complete, and its step has not been told of it.
	task = h.Create("order")
	h.tick()
	h.accepted(success(h.claimOne("pack"), `{"shelf": 4}`))
	h.wantStep(task, "first", tasker.StepPending, 0)
	h.compensate(task)
	h.wantStep(task, "first", tasker.StepComplete, 0)
	h.wantStep(task, "second", tasker.StepCancelled, 0)
	undo = h.claimOne("undo:first")
	if got := strings.ReplaceAll(string(undo.DependencyResults["first"]), " ", ""); got != `{"pack":{"shelf":4}}` {
		t.Errorf("it is given %s", got)
	}
	h.accepted(success(undo, `1`))
	h.wantUndone(task, "", tasker.Compensated)
	h.tick()
	if n := h.Count(`SELECT count(*) FROM tasker.child_signals`); n != 0 {
		t.Errorf("%d signals are left", n)
	}
}

// A child that is open when its parent is undone is undone as well, and so are its own children; one
// that is being undone already goes on with that, whatever becomes of its parent.
func TestAnOpenChildIsUndoneWithItsParent(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("inner", undoable(enginetest.Step("work")), enginetest.Step("rest", "work"))
	h.Template("middle", undoable(enginetest.Step("first")), child("inner", "inner", "first"))
	h.Template("outer", child("middle", "middle"))
	started := func() (outer, middle, inner tasker.ID) {
		outer = h.Create("outer")
		h.tick()
		middle = h.childOf(outer, "middle")
		h.accepted(success(h.claimOne("first"), `1`))
		h.tick()
		inner = h.childOf(middle, "inner")
		h.accepted(success(h.claimOne("work"), `1`))
		h.claimOne("rest")
		return outer, middle, inner
	}
	outer, middle, inner := started()
	h.compensate(outer)
	h.wantUndone(outer, "", tasker.NothingToCompensate)
	h.wantUndone(middle, "", "")
	h.tick()
	h.wantUndone(middle, tasker.Compensating, "")
	h.tick()
	h.wantUndone(inner, tasker.Compensating, "")
	for range 2 {
		for _, a := range h.claim() {
			h.accepted(success(a, `1`))
		}
	}
	h.wantUndone(middle, "", tasker.Compensated)
	h.wantUndone(inner, "", tasker.Compensated)
	list, _, err := h.DB.TaskTransitions(t.Context(), inner, 20, 0)
	h.Must(err)
	if !slices.ContainsFunc(list, func(m tasker.Transition) bool {
		return m.Event == "compensate" && m.Actor == tasker.SystemActor && strings.Contains(m.Reason, middle.String())
	}) {
		t.Errorf("the history says %+v", list)
	}
	h.tick()

	// Its parent is cancelled without compensation while it is being undone.
	outer, middle, inner = started()
	h.compensate(inner)
	h.Must(h.Engine.CancelTask(t.Context(), outer, "ann", "not wanted"))
	h.tick()
	h.tick()
	h.wantState(middle, tasker.TaskCancelled)
	h.wantUndone(middle, "", "")
	h.wantUndone(inner, tasker.Compensating, "")
	h.accepted(success(h.claimOne("undo:work"), `1`))
	h.wantUndone(inner, "", tasker.Compensated)
	h.tick()
	if n := h.Count(`SELECT count(*) FROM tasker.child_signals`); n != 0 {
		t.Errorf("%d signals are left", n)
	}
}

// A tree has the tasks above a task and those below it, and says where it leaves some out.
func TestATreeOfTasks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("inner", enginetest.Once(enginetest.Step("work")))
	h.Template("middle", child("inner", "inner"))
	h.Template("outer", child("middle", "one"), child("middle", "two"))
	task := h.Create("outer")
	for range 2 {
		h.tick()
	}
	one, two := h.childOf(task, "one"), h.childOf(task, "two")
	h.wantTree(task, "0 outer  | 1 middle two waited_for | 2 inner inner waited_for | 1 middle one waited_for | 2 inner inner waited_for")
	h.wantTree(one, "0 outer  | 1 middle one waited_for | 2 inner inner waited_for")
	h.wantTree(h.childOf(two, "inner"), "0 outer  | 1 middle two waited_for | 2 inner inner waited_for")

	// A child that a step had before is there, but not the one that counts.
	h.Must(h.Engine.CancelTask(t.Context(), one, "ann", "not wanted"))
	h.tick()
	h.act(task, "one", tasker.ResetForRetry, "")
	h.tick()
	h.tick()
	h.wantTree(task, "0 outer  | 1 middle one waited_for | 2 inner inner waited_for | 1 middle two waited_for | 2 inner inner waited_for | 1 middle one  | 2 inner inner current")

	// The rest of the children of one, and of what is below, is left out.
	h.Template("many", many(tasker.MaxTreeChildren+5, "middle")...)
	wide := h.Create("many")
	h.tick()
	h.tick()
	tree, err := h.DB.TaskTree(t.Context(), wide)
	h.Must(err)
	if n := len(tree.Tasks); n != 1+2*tasker.MaxTreeChildren || !tree.Tasks[0].MoreChildren || tree.Tasks[1].MoreChildren {
		t.Errorf("the tree has %d tasks: %+v", n, tree.Tasks[:2])
	}
	h.Template("few", many(tasker.MaxTreeChildren+5, "inner")...)
	h.Template("huge", many(tasker.MaxTreeChildren, "few")...)
	huge := h.Create("huge")
	for range 5 {
		h.tick()
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
	_, err = h.DB.TaskTree(t.Context(), tasker.NewID())
	h.WantCode(err, tasker.NotFound, "not found")
	_, err = h.DB.TaskTree(access.WithScope(t.Context(), access.Namespaces("other")), task)
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

// A reset may ask for another child: in place of one that is waited for, which is cancelled, and
// of one that has ended.
func TestANewChildOnRequest(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("archive", enginetest.Once(enginetest.Step("pack")))
	s := child("archive", "archive", "score")
	s.When = "results.score.ok"
	h.Template("order", enginetest.Step("score"), s, enginetest.Step("end", "archive"))
	task := h.Create("order")
	h.accepted(success(h.claimOne("score"), `{"ok": true}`))
	step := h.step(task, "archive").UUID
	reset := tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "its template is repaired", Actor: "ann", NewChild: true}
	refused := func(of tasker.ID, op tasker.ActionRequest, code tasker.Code, says string) {
		t.Helper()
		_, err := h.Engine.OperateStep(t.Context(), task, of, op)
		h.WantCode(err, code, says)
	}
	refused(step, reset, tasker.Conflict, "pending and waits for its dependencies") // it has not been decided
	h.tick()
	one := h.childOf(task, "archive")

	// Of a child that goes on it has to be taken.
	refused(step, reset, tasker.Conflict, "waits for task "+one.String()+", which is steps_in_process")
	refused(h.step(task, "end").UUID, reset, tasker.Conflict, "is not a child step")
	wrong := reset
	wrong.Action = tasker.ResolveManually
	refused(step, wrong, tasker.Invalid, "only allowed with reset_for_retry")
	plain := reset
	plain.NewChild, plain.Interrupt = false, true
	refused(step, plain, tasker.Conflict, "pending")
	reset.Interrupt = true
	left, err := h.Engine.OperateStep(t.Context(), task, step, reset)
	h.Must(err)
	if left.State != tasker.StepPending || left.ChildTaskUUID != nil {
		t.Errorf("the reset left the step %s with the child %v", left.State, left.ChildTaskUUID)
	}
	h.tick()
	h.tick()
	two := h.childOf(task, "archive")
	h.wantState(one, tasker.TaskCancelled)
	h.wantState(two, tasker.TaskStepsInProcess)
	if one == two {
		t.Fatal("the step waits for the same child")
	}

	// A child that was cancelled, and one that is complete but of which the step has not heard.
	h.Must(h.Engine.CancelTask(t.Context(), two, "ann", "not wanted"))
	h.tick()
	h.wantStep(task, "archive", tasker.StepError, 0)
	reset.Interrupt = false
	left, err = h.Engine.OperateStep(t.Context(), task, step, reset)
	h.Must(err)
	if left.State != tasker.StepPending || left.ChildTaskUUID != nil {
		t.Errorf("the reset left the step %s with the child %v", left.State, left.ChildTaskUUID)
	}
	h.tick()
	three := h.childOf(task, "archive")
	h.accepted(success(h.claimOne("pack"), `1`))
	h.wantState(three, tasker.TaskComplete)
	_, err = h.Engine.OperateStep(t.Context(), task, step, reset)
	h.Must(err)
	h.tick()
	four := h.childOf(task, "archive")
	h.accepted(success(h.claimOne("pack"), `4`))
	h.tick()
	h.wantStep(task, "archive", tasker.StepComplete, 0)
	if got := string(h.step(task, "archive").Results); !strings.Contains(got, four.String()) {
		t.Errorf("the result is not that of the last child: %s", got)
	}
	h.tick() // decides whether the end runs
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
	refused(step, reset, tasker.Conflict, "is complete: its steps can no longer be changed")
	if n := h.Count(`SELECT count(*) FROM tasker.tasks WHERE parent_task_uuid IS NOT NULL`); n != 4 {
		t.Errorf("%d children were started, want 4", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.child_signals`); n != 0 {
		t.Errorf("%d signals are left", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'step.reset' AND data ->> 'left_child_task_uuid' IS NOT NULL`); n != 2 {
		t.Errorf("the audit log has %d resets that left a child, want 2", n)
	}
}
