package engine_test

import (
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/pgtest/fixture"
)

func TestVersionChangeMovesAHeldStep(t *testing.T) {
	h := newHarness(t)
	holds := hold.New(h.DB, h.Engine, hold.Options{})
	h.version("1.0.0", enginetest.Step("charge"))
	task := h.Create("order")
	other := h.RegisterWorker("other")
	_, err := holds.Begin(t.Context(), tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: h.Space, Handler: "run"}, For: time.Hour, Owner: "ann", Reason: "gateway is down"})
	h.Must(err)
	h.ClaimNone()
	h.version("1.1.0", handledBy("other", enginetest.Step("charge")))
	h.change(task, "1.1.0")
	list := h.ClaimAs(other, 10)
	require(t, len(list) == 1 && list[0].Name == "charge", "claimed %+v", list)
	h.WantCount(0, `SELECT count(*) FROM tasker.held_steps`)
}

func TestPendingTaskChangesItsVersion(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"))
	start := time.Now().Add(time.Hour)
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", StartAt: start})
	h.version("1.1.0", when("true", enginetest.Step("charge")), waits("rest"), enginetest.Step("ship", "charge", "rest"))
	h.change(task, "1.1.0")
	h.WantState(task, tasker.TaskPending)
	h.Tick()
	h.WantStep(task, "charge", tasker.StepPending, 0)
	h.WantCount(2, `SELECT count(*) FROM tasker.workflow_steps s JOIN tasker.tasks t USING (task_uuid) WHERE s.decide_at = t.start_at AND s.name = 'charge' OR s.wait_until = t.start_at + interval '7 days' AND s.name = 'rest'`)
	fixture.StartsDue(h, h.Admin())
	h.Exec(`UPDATE tasker.workflow_steps SET decide_at = CASE WHEN decide_at IS NOT NULL THEN now() END, wait_until = wait_until - interval '1 hour'`)
	h.Tick()
	h.Tick()
	h.Complete("charge")
	h.aWeekLater()
	h.Complete("ship")
	h.WantState(task, tasker.TaskComplete)
}

func TestTaskAboutToStartChangesItsVersion(t *testing.T) {
	h := newHarness(t)
	h.version("1.0.0", enginetest.Step("charge"), waits("rest"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", StartAt: time.Now().Add(time.Hour)})
	fixture.StartsDue(h, h.Admin())
	h.version("1.1.0", enginetest.Step("check"), enginetest.Step("charge"), waits("rest"))
	h.change(task, "1.1.0")
	h.WantState(task, tasker.TaskPending)
	h.Tick()
	got := names(h.Claim())
	check(t, slices.Equal(got, []string{"charge", "check"}), "claimed %v", got)
	h.WantState(task, tasker.TaskStepsInProcess)
}

func TestUnchangedWaitsSurviveAVersionChange(t *testing.T) {
	h := newHarness(t)
	list := enginetest.Step("list")
	list.Type, list.Over = tasker.MapStep, "[1, 2]"
	h.version("1.0.0", waits("rest"), list, enginetest.Step("end", "rest", "list"))
	task := h.Create("order")
	h.Tick()
	h.wantWait(task, "rest")
	items := h.Claim()
	require(t, len(items) == 2, "claimed %+v", items)
	h.Accepted(success(items[0], `1`))
	h.version("1.1.0", waits("rest"), list, attempts(9, enginetest.Step("end", "rest", "list")), enginetest.Step("more", "list"))
	h.change(task, "1.1.0")
	h.Accepted(success(items[1], `1`))
	h.Tick()
	h.Complete("more")
	h.aWeekLater()
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)

	longer := waits("rest")
	longer.WaitSeconds++
	wider := list
	wider.Over = "[1, 2, 3]"
	h.version("1.2.0", longer, wider, enginetest.Step("end", "rest", "list"))
	task = h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: "1.0.0"})
	h.Tick()
	plan := h.plan(task, "1.2.0")
	if len(plan.Refusals) != 2 || plan.Refusals[0].Code != tasker.RefusedWaiting || plan.Refusals[1].Code != tasker.RefusedItems {
		t.Errorf("the plan is %+v", plan)
	}
}

func TestVersionChangeRemovesDueTimesOfRemovedSteps(t *testing.T) {
	h := newHarness(t)
	late := enginetest.Step("late", "charge")
	late.Due = tasker.DuePolicy{AfterSeconds: 60, Overdue: tasker.OverdueInvestigate}
	h.version("1.0.0", enginetest.Step("charge"), late)
	task := h.Create("order")
	_, err := h.Engine.ChangeDue(t.Context(), task, tasker.DueUpdate{StepUUID: h.Step(task, "late").UUID, DueAt: new(time.Now().Add(time.Hour)), Actor: "ann"})
	h.Must(err)
	h.version("1.1.0", enginetest.Step("charge"))
	h.change(task, "1.1.0")
	h.dueLater(2 * time.Hour)
	n, err := dlq.New(h.DB, dlq.Options{}).Sweep(t.Context())
	h.Must(err)
	left := h.Count(`SELECT count(*) FROM tasker.deadlines`)
	check(t, n == 0 && left == 0, "the sweep moved %d tasks, and %d due times are left", n, left)
	h.Complete("charge")
	h.WantState(task, tasker.TaskComplete)
}

func TestCompensatingAndCyclicTasksKeepTheirVersion(t *testing.T) {
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
			h.RegisterTemplate(tasker.Template{Namespace: h.Space, Name: name, Version: v, Steps: steps})
		}
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: name, Version: "1.0.0"})
		if plan := h.plan(task, "1.1.0"); len(plan.Refusals) == 0 || string(plan.Refusals[len(plan.Refusals)-1].Code) != want[1] {
			t.Errorf("%s: the plan is %+v", name, plan)
		}
	}
}
