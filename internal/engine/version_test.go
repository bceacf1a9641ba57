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
	require(h, c.Changed, "the task is as it was: %+v", c)
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

func TestVersionChangeRedefinesStepsThatHaveNotBegun(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("reserve"), enginetest.Step("charge", "reserve"), enginetest.Step("tell", "charge"), enginetest.Step("old", "charge"))
	task := h.Create("order")
	h.Accepted(success(h.ClaimOne("reserve"), `{"seat": 12}`))
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
		for _, a := range h.Claim() {
			h.Accepted(success(a, `"`+a.Name+`"`))
		}
	}
	tell := h.Step(task, "tell")
	check(t, tell.MaxAttempts == 7 && tell.State == tasker.StepComplete,
		"the step that was defined anew is %s with %d attempts", tell.State, tell.MaxAttempts)
	ship := h.ClaimOne("ship")
	equal(t, "input of the new step", string(ship.DependencyResults["tell"]), `"tell"`)
	h.Accepted(success(ship, `1`))
	h.WantState(task, tasker.TaskComplete)
	got := h.Task(task)
	equal(t, "the task is of version", got.Version, "1.1.0")
	list := h.Moves(task)
	i := slices.IndexFunc(list, func(m tasker.Transition) bool { return m.Event == "change_version" })
	if i < 0 || list[i].Actor != "ann" || list[i].Reason != "the handler is repaired" || !strings.Contains(string(list[i].Detail), `"from_version": "1.0.0"`) {
		t.Errorf("the history is %+v", list)
	}
	h.WantCount(1, `SELECT count(*) FROM tasker.audit_events WHERE action = 'task.version_changed' AND actor = 'ann' AND data ->> 'to_version' = '1.1.0'`)
}

func (h *harness) wantSteps(task tasker.ID, want string) {
	h.Helper()
	steps, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name
	}
	got := strings.Join(names, " ")
	require(h, got == want, "the steps are %s, want %s", got, want)
}

func TestVersionChangeMovesAnEnqueuedStep(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", handledBy("gone", enginetest.Step("charge")), enginetest.Step("ship", "charge"))
	task := h.Create("order")
	h.ClaimNone()
	h.version("1.1.0", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	h.change(task, "1.1.0")
	h.Complete("charge", "ship")
	h.WantState(task, tasker.TaskComplete)
}

func TestFailedStepIsResetInTheNewVersion(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", attempts(1, enginetest.Step("charge")), enginetest.Step("ship", "charge"))
	task := h.Create("order")
	h.Accepted(failure(h.ClaimOne("charge"), true))
	h.WantState(task, tasker.TaskError)
	before := h.Entry(task)
	initialized := attempts(3, enginetest.Step("charge"))
	initialized.Handler.Initialization = json.RawMessage(`{"gateway": "new"}`)
	h.version("1.1.0", initialized, enginetest.Step("ship", "charge"))
	h.change(task, "1.1.0")
	h.WantState(task, tasker.TaskError)
	after := h.Entry(task)
	check(t, after.ResolutionStatus == before.ResolutionStatus && after.UUID == before.UUID,
		"the investigation is %+v", after)
	h.act(task, "charge", tasker.ResetForRetry, "")
	a := h.ClaimOne("charge")
	check(t, string(a.Initialization) == `{"gateway": "new"}` && a.MaxAttempts == 3,
		"it is given %s, %d attempts", a.Initialization, a.MaxAttempts)
	h.Accepted(success(a, `1`))
	h.Complete("ship")
	h.WantState(task, tasker.TaskComplete)
}

func TestInvalidVersionChangesAreRejected(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	task := h.Create("order")
	held := h.ClaimOne("charge")
	h.version("1.1.0", attempts(9, enginetest.Step("charge")), enginetest.Step("ship", "charge"))
	plan := h.plan(task, "1.1.0")
	if len(plan.Refusals) != 1 || plan.Refusals[0].Code != tasker.RefusedHeldByWorker || plan.Refusals[0].Step != "charge" {
		t.Errorf("the plan is %+v", plan)
	}
	ask := tasker.VersionRequest{To: "1.1.0", Actor: "ann", Reason: "x"}
	h.WantCode(errOf(h.Engine.ChangeVersion(t.Context(), task, ask)), tasker.Conflict, "step charge is claimed by a worker")
	h.Accepted(success(held, `1`))
	ask.From = "1.0.1"
	h.WantCode(errOf(h.Engine.ChangeVersion(t.Context(), task, ask)), tasker.Conflict, "has version 1.0.0, not 1.0.1")
	ask.From, ask.To = "1.0.0", "2.0.0"
	h.WantCode(errOf(h.Engine.ChangeVersion(t.Context(), task, ask)), tasker.NotFound, "not found")
	h.WantCode(errOf(h.Engine.ChangeVersion(t.Context(), tasker.NewID(), ask)), tasker.NotFound, "not found")
	for _, bad := range []tasker.VersionRequest{{}, {To: "1.1.0", Actor: "ann"}, {To: "1.1.0", Reason: "x"}} {
		h.WantCode(errOf(h.Engine.ChangeVersion(t.Context(), task, bad)), tasker.Invalid)
	}
	newest := h.version("1.2.0", enginetest.Step("charge"))
	h.retire(newest, true)
	_, err := h.Engine.ChangeVersion(t.Context(), task, tasker.VersionRequest{To: "1.2.0", Actor: "ann", Reason: "x"})
	h.WantCode(err, tasker.Conflict, "does not accept new tasks")
	h.change(task, "1.1.0")
	if c, err := h.Engine.ChangeVersion(t.Context(), task, tasker.VersionRequest{To: "1.1.0", Actor: "ann", Reason: "again"}); err != nil || c.Changed {
		t.Errorf("again: %+v, %v", c, err)
	}
	h.Complete("ship")
	if plan := h.plan(task, "1.0.0"); len(plan.Refusals) != 1 || plan.Refusals[0].Code != tasker.RefusedTaskEnded {
		t.Errorf("the plan of a task that has ended: %+v", plan)
	}
}

func TestWrittenOffTaskKeepsItsVersion(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", attempts(1, enginetest.Step("charge")))
	task := h.Create("order")
	h.Accepted(failure(h.ClaimOne("charge"), true))
	h.Abandon(task)
	h.version("1.1.0", attempts(1, enginetest.Step("charge")), enginetest.Step("check"))
	plan := h.plan(task, "1.1.0")
	check(t, len(plan.Refusals) == 1 && plan.Refusals[0].Code == tasker.RefusedWrittenOff, "the plan is %+v", plan)
	batch, err := h.Engine.ChangeVersions(t.Context(), tasker.VersionBatchRequest{
		Template: tasker.TemplateVersion{Namespace: h.Space, Name: "order", Version: "1.0.0"}, To: "1.1.0", Actor: "ann", Reason: "x",
	})
	h.Must(err)
	check(t, batch.Changed == 0 && batch.Reasons[tasker.RefusedWrittenOff] == 1, "the batch is %+v", batch)
	_, err = h.Engine.ChangeVersion(t.Context(), task, tasker.VersionRequest{To: "1.1.0", Actor: "ann", Reason: "x"})
	h.WantCode(err, tasker.Conflict, "was written off")
	h.ClaimNone()
	h.WantState(task, tasker.TaskError)
}

func TestSlowVersionBatchesEndEarly(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	list := []tasker.ID{h.Create("order")}
	h.Accepted(success(h.ClaimOne("charge"), `1`)) // then step ship begins, which the new version lacks
	for range 3 {
		list = append(list, h.Create("order"))
	}
	h.Cancel(list[1])
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
			check(t, reflect.DeepEqual(batch, want),
				"part %d with %s for each task is %+v, want %+v", i, of.each, batch, want)
		}
	}
}

func TestVersionChangeChecksTheContext(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"))
	h.RegisterTemplate(tasker.Template{
		Namespace: h.Space, Name: "order", Version: "1.1.0", Steps: []tasker.StepTemplate{enginetest.Step("charge")},
		InputSchema: json.RawMessage(`{"type": "object", "required": ["amount"]}`),
	})
	bare := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0"})
	full := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0", Context: json.RawMessage(`{"amount": 3}`)})
	plan := h.plan(bare, "1.1.0")
	if len(plan.Refusals) != 1 || plan.Refusals[0].Code != tasker.RefusedContext || !strings.Contains(plan.Refusals[0].Message, "amount") {
		t.Errorf("the plan is %+v", plan)
	}
	h.change(full, "1.1.0")
}

func TestConcurrentVersionChangesApplyOnce(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	h.version("1.1.0", enginetest.Step("charge"), attempts(5, enginetest.Step("ship", "charge")), enginetest.Step("tell", "charge"))
	for range 4 {
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0"})
		held := h.ClaimOne("charge")
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
		wg.Go(func() { h.Accepted(success(held, `1`)) })
		wg.Wait()
		n := len(slices.DeleteFunc(changed, func(c bool) bool { return !c }))
		require(t, n == 1, "%d changed the version of the task, want 1", n)
		h.Succeed(h.Claim()...)
		h.WantState(task, tasker.TaskComplete)
		h.WantStep(task, "tell", tasker.StepComplete, 1)
	}
}
