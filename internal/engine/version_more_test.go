package engine_test

import (
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hold"
)

// A step that a hold keeps from claims goes on when it gets another handler, which nothing holds.
func TestAHeldStepGetsAnotherHandler(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	holds := hold.New(h.DB, h.Engine, hold.Options{})
	h.version("1.0.0", enginetest.Step("charge"))
	task := h.Create("order")
	other := h.RegisterWorker("other")
	_, err := holds.Begin(t.Context(), tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: h.Space, Handler: "run"}, For: time.Hour, Owner: "ann", Reason: "gateway is down"})
	h.Must(err)
	if list := h.claim(); len(list) > 0 {
		t.Fatalf("claimed %+v", list)
	}
	h.version("1.1.0", handledBy("other", enginetest.Step("charge")))
	h.change(task, "1.1.0")
	list, err := h.Engine.Claim(t.Context(), other, 10, 0)
	h.Must(err)
	if len(list) != 1 || list[0].Name != "charge" {
		t.Fatalf("claimed %+v", list)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.held_steps`); n != 0 {
		t.Errorf("%d steps are held still", n)
	}
}

// A task that has not started begins by the other version, when it would have begun.
func TestATaskThatHasNotStartedGetsAnotherVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"))
	start := time.Now().Add(time.Hour)
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", StartAt: start})
	h.version("1.1.0", when("true", enginetest.Step("charge")), waits("rest"), enginetest.Step("ship", "charge", "rest"))
	h.change(task, "1.1.0")
	h.wantState(task, tasker.TaskPending)
	h.tick()
	h.wantStep(task, "charge", tasker.StepPending, 0)
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps s JOIN tasker.tasks t USING (task_uuid) WHERE s.decide_at = t.start_at AND s.name = 'charge' OR s.wait_until = t.start_at + interval '7 days' AND s.name = 'rest'`); n != 2 {
		t.Errorf("%d steps are due when the task says", n)
	}
	h.Exec(`UPDATE tasker.tasks SET start_at = now()`)
	h.Exec(`UPDATE tasker.workflow_steps SET decide_at = CASE WHEN decide_at IS NOT NULL THEN now() END, wait_until = wait_until - interval '1 hour'`)
	h.tick()
	h.tick()
	h.accepted(success(h.claimOne("charge"), `1`))
	h.aWeekLater()
	h.accepted(success(h.claimOne("ship"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A task whose start is due, and that has not been started yet, is started in the other version.
func TestATaskThatIsAboutToStartGetsAnotherVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"), waits("rest"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", StartAt: time.Now().Add(time.Hour)})
	h.Exec(`UPDATE tasker.tasks SET start_at = now()`)
	h.version("1.1.0", enginetest.Step("check"), enginetest.Step("charge"), waits("rest"))
	h.change(task, "1.1.0")
	h.wantState(task, tasker.TaskPending)
	h.tick()
	if got := names(h.claim()); !slices.Equal(got, []string{"charge", "check"}) {
		t.Errorf("claimed %v", got)
	}
	h.wantState(task, tasker.TaskStepsInProcess)
}

// A step that waits, a map step with its items and a complete decision stay as they are when
// the version leaves them alone, and what is behind them follows the new one.
func TestWhatWaitsGoesOnInAnotherVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	list := enginetest.Step("list")
	list.Type, list.Over = tasker.MapStep, "[1, 2]"
	h.version("1.0.0", waits("rest"), list, enginetest.Step("end", "rest", "list"))
	task := h.Create("order")
	h.tick()
	h.wantWait(task, "rest")
	items := h.claim()
	if len(items) != 2 {
		t.Fatalf("claimed %+v", items)
	}
	h.accepted(success(items[0], `1`))
	h.version("1.1.0", waits("rest"), list, attempts(9, enginetest.Step("end", "rest", "list")), enginetest.Step("more", "list"))
	h.change(task, "1.1.0")
	h.accepted(success(items[1], `1`))
	h.tick()
	h.accepted(success(h.claimOne("more"), `1`))
	h.aWeekLater()
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)

	longer := waits("rest")
	longer.WaitSeconds++
	wider := list
	wider.Over = "[1, 2, 3]"
	h.version("1.2.0", longer, wider, enginetest.Step("end", "rest", "list"))
	task = h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0"})
	h.tick()
	plan := h.plan(task, "1.2.0")
	if len(plan.Refusals) != 2 || plan.Refusals[0].Code != tasker.RefusedWaiting || plan.Refusals[1].Code != tasker.RefusedItems {
		t.Errorf("the plan is %+v", plan)
	}
}

// The due time of a step goes with the step.
func TestTheDueTimeOfARemovedStepIsForgotten(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	late := enginetest.Step("late", "charge")
	late.Due = tasker.DuePolicy{AfterSeconds: 60, Overdue: tasker.OverdueInvestigate}
	h.version("1.0.0", enginetest.Step("charge"), late)
	task := h.Create("order")
	_, err := h.Engine.ChangeDue(t.Context(), task, tasker.DueUpdate{StepUUID: h.step(task, "late").UUID, DueAt: new(time.Now().Add(time.Hour)), Actor: "ann"})
	h.Must(err)
	h.version("1.1.0", enginetest.Step("charge"))
	h.change(task, "1.1.0")
	h.dueLater(2 * time.Hour)
	n, err := dlq.New(h.DB, dlq.Options{}).Sweep(t.Context())
	h.Must(err)
	if left := h.Count(`SELECT count(*) FROM tasker.deadlines`); n != 0 || left != 0 {
		t.Errorf("the sweep moved %d tasks, and %d due times are left", n, left)
	}
	h.accepted(success(h.claimOne("charge"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A task that is being undone, and one of steps that depend on each other in a cycle, stay as
// they are.
func TestTasksThatKeepTheirVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, _ := h.charged()
	h.version("1.1.0", enginetest.Step("reserve"))
	h.compensate(task)
	if plan := h.plan(task, "1.1.0"); len(plan.Refusals) == 0 || plan.Refusals[len(plan.Refusals)-1].Code != tasker.RefusedCompensating {
		t.Errorf("the plan is %+v", plan)
	}
	for name, want := range map[string][2]string{"from": {"1.0.0", string(tasker.RefusedTaskCycle)}, "to": {"1.1.0", string(tasker.RefusedVersionCycle)}} {
		for _, v := range []string{"1.0.0", "1.1.0"} {
			steps := []tasker.StepTemplate{enginetest.Step("a"), enginetest.Step("b", "a")}
			if v == want[0] {
				steps[0].Dependencies = []string{"b"}
			}
			_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: h.Space, Name: name, Version: v, Steps: steps}, "")
			h.Must(err)
		}
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: name, Version: "1.0.0"})
		if plan := h.plan(task, "1.1.0"); len(plan.Refusals) == 0 || string(plan.Refusals[len(plan.Refusals)-1].Code) != want[1] {
			t.Errorf("%s: the plan is %+v", name, plan)
		}
	}
}
