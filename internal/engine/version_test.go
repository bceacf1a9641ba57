package engine_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

// change brings a task to a version.
func (h *harness) change(task tasker.ID, to string) tasker.VersionChange {
	h.Helper()
	c, err := h.Engine.ChangeVersion(h.Context(), task, tasker.VersionRequest{To: to, Actor: "ann", Reason: "the handler is repaired"})
	h.Must(err)
	if !c.Changed {
		h.Fatalf("the task is as it was: %+v", c)
	}
	return c
}

// plan says what would become of it.
func (h *harness) plan(task tasker.ID, to string) tasker.VersionChange {
	h.Helper()
	c, err := h.Engine.ChangeVersion(h.Context(), task, tasker.VersionRequest{To: to, DryRun: true})
	h.Must(err)
	return c
}

func handledBy(handler string, s tasker.StepTemplate) tasker.StepTemplate {
	s.Handler.Callable = handler
	return s
}

// A task goes on by the new version: what has ended stays, what has not begun is defined anew,
// steps come and go, and the history says so.
func TestATaskIsBroughtToAnotherVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("reserve"), enginetest.Step("charge", "reserve"), enginetest.Step("tell", "charge"), enginetest.Step("old", "charge"))
	task := h.Create("order")
	h.accepted(success(h.claimOne("reserve"), `{"seat": 12}`))
	h.version("1.1.0", enginetest.Step("reserve"), enginetest.Step("check"), enginetest.Step("charge", "reserve"),
		attempts(7, enginetest.Step("tell", "charge", "check")), enginetest.Step("ship", "tell"))
	plan := h.plan(task, "1.1.0")
	if plan.Changed || len(plan.Refusals) > 0 || !slices.Equal(plan.Kept, []string{"reserve", "charge"}) || !slices.Equal(plan.Redefined, []string{"tell"}) ||
		!slices.Equal(plan.Added, []string{"check", "ship"}) || !slices.Equal(plan.Removed, []string{"old"}) {
		t.Fatalf("the plan is %+v", plan)
	}
	h.wantSteps(task, "reserve charge tell old")
	h.change(task, "1.1.0")
	h.wantSteps(task, "reserve charge tell check ship")
	for range 2 {
		for _, a := range h.claim() {
			h.accepted(success(a, `"`+a.Name+`"`))
		}
	}
	tell := h.step(task, "tell")
	if tell.MaxAttempts != 7 || tell.State != tasker.StepComplete {
		t.Errorf("the step that was defined anew is %s with %d attempts", tell.State, tell.MaxAttempts)
	}
	ship := h.claimOne("ship")
	if got := string(ship.DependencyResults["tell"]); got != `"tell"` {
		t.Errorf("the new step is given %s", got)
	}
	h.accepted(success(ship, `1`))
	h.wantState(task, tasker.TaskComplete)
	got := h.taskOf(task)
	if got.Version != "1.1.0" {
		t.Errorf("the task is of version %s", got.Version)
	}
	list, _, err := h.DB.TaskTransitions(t.Context(), task, 100, 0)
	h.Must(err)
	i := slices.IndexFunc(list, func(m tasker.Transition) bool { return m.Event == "change_version" })
	if i < 0 || list[i].Actor != "ann" || list[i].Reason != "the handler is repaired" || !strings.Contains(string(list[i].Detail), `"from_version": "1.0.0"`) {
		t.Errorf("the history is %+v", list)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'task.version_changed' AND actor = 'ann' AND data ->> 'to_version' = '1.1.0'`); n != 1 {
		t.Errorf("%d rows of the audit log", n)
	}
}

func (h *harness) wantSteps(task tasker.ID, want string) {
	h.Helper()
	steps, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name
	}
	if got := strings.Join(names, " "); got != want {
		h.Fatalf("the steps are %s, want %s", got, want)
	}
}

// An enqueued step goes to the queue of its new handler, also from under a hold.
func TestAnEnqueuedStepGetsAnotherHandler(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", handledBy("gone", enginetest.Step("charge")), enginetest.Step("ship", "charge"))
	task := h.Create("order")
	if list := h.claim(); len(list) > 0 {
		t.Fatalf("claimed %+v", list)
	}
	h.version("1.1.0", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	h.change(task, "1.1.0")
	h.accepted(success(h.claimOne("charge"), `1`))
	h.accepted(success(h.claimOne("ship"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A step that has failed for good keeps its investigation; reset, it runs by its new definition.
func TestAFailedStepIsResetInAnotherVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", attempts(1, enginetest.Step("charge")), enginetest.Step("ship", "charge"))
	task := h.Create("order")
	h.accepted(failure(h.claimOne("charge"), true))
	h.wantState(task, tasker.TaskError)
	before := h.Entry(task)
	initialized := attempts(3, enginetest.Step("charge"))
	initialized.Handler.Initialization = json.RawMessage(`{"gateway": "new"}`)
	h.version("1.1.0", initialized, enginetest.Step("ship", "charge"))
	h.change(task, "1.1.0")
	h.wantState(task, tasker.TaskError)
	after := h.Entry(task)
	if after.ResolutionStatus != before.ResolutionStatus || after.UUID != before.UUID {
		t.Errorf("the investigation is %+v", after)
	}
	h.act(task, "charge", tasker.ResetForRetry, "")
	a := h.claimOne("charge")
	if string(a.Initialization) != `{"gateway": "new"}` || a.MaxAttempts != 3 {
		t.Errorf("it is given %s, %d attempts", a.Initialization, a.MaxAttempts)
	}
	h.accepted(success(a, `1`))
	h.accepted(success(h.claimOne("ship"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// What cannot be changed is refused with the step and the reason, and nothing changes.
func TestAVersionIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	task := h.Create("order")
	held := h.claimOne("charge")
	h.version("1.1.0", attempts(9, enginetest.Step("charge")), enginetest.Step("ship", "charge"))
	plan := h.plan(task, "1.1.0")
	if len(plan.Refusals) != 1 || plan.Refusals[0].Code != tasker.RefusedHeldByWorker || plan.Refusals[0].Step != "charge" {
		t.Errorf("the plan is %+v", plan)
	}
	ask := tasker.VersionRequest{To: "1.1.0", Actor: "ann", Reason: "x"}
	_, err := h.Engine.ChangeVersion(t.Context(), task, ask)
	h.WantCode(err, tasker.Conflict, "step charge is with a worker")
	h.accepted(success(held, `1`))
	ask.From = "1.0.1"
	_, err = h.Engine.ChangeVersion(t.Context(), task, ask)
	h.WantCode(err, tasker.Conflict, "is of version 1.0.0, not 1.0.1")
	ask.From, ask.To = "1.0.0", "2.0.0"
	_, err = h.Engine.ChangeVersion(t.Context(), task, ask)
	h.WantCode(err, tasker.NotFound, "not found")
	_, err = h.Engine.ChangeVersion(t.Context(), tasker.NewID(), ask)
	h.WantCode(err, tasker.NotFound, "not found")
	for _, bad := range []tasker.VersionRequest{{}, {To: "1.1.0", Actor: "ann"}, {To: "1.1.0", Reason: "x"}} {
		_, err = h.Engine.ChangeVersion(t.Context(), task, bad)
		h.WantCode(err, tasker.Invalid)
	}
	newest := h.version("1.2.0", enginetest.Step("charge"))
	h.retire(newest, true)
	_, err = h.Engine.ChangeVersion(t.Context(), task, tasker.VersionRequest{To: "1.2.0", Actor: "ann", Reason: "x"})
	h.WantCode(err, tasker.Conflict, "does not accept new tasks")
	h.change(task, "1.1.0")
	if c, err := h.Engine.ChangeVersion(t.Context(), task, tasker.VersionRequest{To: "1.1.0", Actor: "ann", Reason: "again"}); err != nil || c.Changed {
		t.Errorf("again: %+v, %v", c, err)
	}
	h.accepted(success(h.claimOne("ship"), `1`))
	if plan := h.plan(task, "1.0.0"); len(plan.Refusals) != 1 || plan.Refusals[0].Code != tasker.RefusedTaskEnded {
		t.Errorf("the plan of a task that has ended: %+v", plan)
	}
}

// A task that was written off is not brought to another version: its new steps would run beside those of the task
// that was created in its place.
func TestATaskThatWasWrittenOffKeepsItsVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", attempts(1, enginetest.Step("charge")))
	task := h.Create("order")
	h.accepted(failure(h.claimOne("charge"), true))
	h.giveUp(task)
	h.version("1.1.0", attempts(1, enginetest.Step("charge")), enginetest.Step("check"))
	if plan := h.plan(task, "1.1.0"); len(plan.Refusals) != 1 || plan.Refusals[0].Code != tasker.RefusedWrittenOff {
		t.Errorf("the plan is %+v", plan)
	}
	batch, err := h.Engine.ChangeVersions(t.Context(), tasker.VersionBatchRequest{
		Template: tasker.TemplateVersion{Namespace: h.Space, Name: "order", Version: "1.0.0"}, To: "1.1.0", Actor: "ann", Reason: "x",
	})
	h.Must(err)
	if batch.Changed != 0 || batch.Reasons[tasker.RefusedWrittenOff] != 1 {
		t.Errorf("the batch is %+v", batch)
	}
	_, err = h.Engine.ChangeVersion(t.Context(), task, tasker.VersionRequest{To: "1.1.0", Actor: "ann", Reason: "x"})
	h.WantCode(err, tasker.Conflict, "was written off")
	if list := h.claim(); len(list) > 0 {
		t.Errorf("claimed %v", names(list))
	}
	h.wantState(task, tasker.TaskError)
}

// A part that takes long ends early, and says where the next one begins.
func TestThePartsOfASlowChangeAreSmall(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	list := []tasker.ID{h.Create("order")}
	h.accepted(success(h.claimOne("charge"), `1`)) // then step ship begins, which the new version lacks
	for range 3 {
		list = append(list, h.Create("order"))
	}
	h.Must(h.Engine.CancelTask(t.Context(), list[1], "ann", "x"))
	h.version("1.1.0", enginetest.Step("charge"))
	for _, of := range []struct {
		each   time.Duration
		dryRun bool
		want   []tasker.VersionBatch
	}{
		{11 * time.Second, true, []tasker.VersionBatch{{Looked: 1, Changed: 1, Next: list[3]}, {Looked: 1, Changed: 1, Next: list[2]}, {Looked: 2, Refused: 1}}},
		{6 * time.Second, false, []tasker.VersionBatch{{Looked: 2, Changed: 2, Next: list[2]}, {Looked: 2, Refused: 1}}},
	} {
		var passed time.Duration
		e := newEngine(h.DB, engine.Options{Now: func() time.Time {
			passed += of.each
			return time.Unix(0, 0).Add(passed)
		}})
		r := tasker.VersionBatchRequest{Template: tasker.TemplateVersion{Namespace: h.Space, Name: "order", Version: "1.0.0"}, To: "1.1.0", DryRun: of.dryRun, Actor: "ann", Reason: "x"}
		for i, want := range of.want {
			batch, err := e.ChangeVersions(t.Context(), r)
			h.Must(err)
			r.Before, batch.Reasons, batch.Sample = batch.Next, nil, nil
			if !reflect.DeepEqual(batch, want) {
				t.Errorf("part %d with %s for each task is %+v, want %+v", i, of.each, batch, want)
			}
		}
	}
}

// The input schema of the new version must take the context.
func TestAVersionRefusesAContext(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"))
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: h.Space, Name: "order", Version: "1.1.0", Steps: []tasker.StepTemplate{enginetest.Step("charge")},
		InputSchema: json.RawMessage(`{"type": "object", "required": ["amount"]}`),
	}, "")
	h.Must(err)
	bare := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0"})
	full := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0", Context: json.RawMessage(`{"amount": 3}`)})
	plan := h.plan(bare, "1.1.0")
	if len(plan.Refusals) != 1 || plan.Refusals[0].Code != tasker.RefusedContext || !strings.Contains(plan.Refusals[0].Message, "amount") {
		t.Errorf("the plan is %+v", plan)
	}
	h.change(full, "1.1.0")
}

// Of two who bring a task to another version at once one does, and a report of its step beside
// them counts once.
func TestTwoBringATaskToAnotherVersionAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	h.version("1.1.0", enginetest.Step("charge"), attempts(5, enginetest.Step("ship", "charge")), enginetest.Step("tell", "charge"))
	for range 10 {
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0"})
		held := h.claimOne("charge")
		changed := make([]bool, 4)
		var wg sync.WaitGroup
		for i := range changed {
			wg.Go(func() {
				c, err := h.Engine.ChangeVersion(t.Context(), task, tasker.VersionRequest{To: "1.1.0", Actor: "ann", Reason: "x"})
				if err != nil {
					t.Error(err)
				}
				changed[i] = c.Changed
			})
		}
		wg.Go(func() { h.accepted(success(held, `1`)) })
		wg.Wait()
		if n := len(slices.DeleteFunc(changed, func(c bool) bool { return !c })); n != 1 {
			t.Fatalf("%d changed the version of the task, want 1", n)
		}
		for _, a := range h.claim() {
			h.accepted(success(a, `1`))
		}
		h.wantState(task, tasker.TaskComplete)
		h.wantStep(task, "tell", tasker.StepComplete, 1)
	}
}
