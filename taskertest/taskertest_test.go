package taskertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

func shop(t testing.TB) *taskertest.Workflow {
	t.Helper()
	return taskertest.New(t, taskertest.Options{Templates: []string{"testdata/shop.yaml"}})
}

// A week of a retry, a wait that nobody answers and a pause takes a moment.
func TestAWeekPasses(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"testdata/order.yaml"}, Begin: begin})
	wf.Script("charge_card", taskertest.Fail("card declined"), taskertest.Succeed(`{"charge": "ch_1"}`))
	task := wf.Start(`{"order_id": 7}`)
	began := time.Now()
	wf.RunUntilIdle()
	task.AssertState(tasker.TaskWaitingForRetry)
	task.Step("charge_card").AssertState(tasker.StepError)
	wf.Advance(7*24*time.Hour + time.Hour)
	t.Logf("a week took %s", time.Since(began))
	task.AssertComplete()
	task.AssertNoInvestigation()
	task.Step("charge_card").AssertResult(`{"charge": "ch_1"}`)
	task.Step("approve").AssertResult(`{"approved": false}`)
	task.Step("thank").AssertState(tasker.StepSkipped)
	var moves []string
	last := time.Time{}
	for _, x := range task.History() {
		if x.CreatedAt.Before(last) {
			t.Errorf("%s comes after what happened later", x.Event)
		}
		if last = x.CreatedAt; x.StepUUID != nil {
			moves = append(moves, fmt.Sprintf("%s %s", x.CreatedAt.Sub(begin).Truncate(time.Second), x.Event))
		}
	}
	want := []string{"0s enqueue", "0s claim", "0s fail", "1m0s retry", "1m0s claim", "1m0s succeed", "72h1m0s elapse", "168h1m0s elapse", "168h1m0s skip", "168h1m0s skip"}
	if !slices.Equal(moves, want) {
		t.Errorf("the steps moved\n%q, want\n%q", moves, want)
	}
	if passed := wf.Now().Sub(begin); passed < 169*time.Hour || passed > 169*time.Hour+10*time.Second {
		t.Errorf("%s have passed", passed)
	}
}

// What time does not bring comes without any: attempts, and steps behind them.
func TestIdleMeansThatOnlyTimeHelps(t *testing.T) {
	t.Parallel()
	w := worker.New(nil, worker.Options{})
	worker.Handle(w, "ship", func(ctx context.Context, s *worker.Step[struct{ Order int }]) (map[string]any, error) {
		var reserved string
		err := s.Dependency("confirm", &reserved)
		_, bounded := ctx.Deadline()
		return map[string]any{"order": s.Input.Order, "confirm": reserved, "bounded": bounded}, err
	})
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"testdata/shop.yaml"}, Worker: w})
	wf.Script("reserve", taskertest.Call(func(c *worker.Call) (any, error) { return c.Attempt, nil }))
	task := wf.Start(map[string]int{"order": 7})
	task.Step("reserve").AssertState(tasker.StepEnqueued)
	wf.RunUntilIdle()
	task.Step("reserve").AssertResult(`1`)
	task.AssertState(tasker.TaskWaitingForDependencies)
	if e := task.Explain(); e.Reason != tasker.ConditionExternal {
		t.Errorf("the task is where it is because of %s", e.Reason)
	}
	task.Answer("confirm", `"yes"`)
	wf.RunUntilIdle()
	task.AssertComplete()
	task.Step("ship").AssertResult(`{"order": 7, "confirm": "yes", "bounded": false}`)
}

// The context of a handler ends as long after its beginning as the template says, wherever the clock is.
func TestAHandlerHasItsTime(t *testing.T) {
	t.Parallel()
	w := worker.New(nil, worker.Options{})
	var left time.Duration
	worker.Handle(w, "reserve", func(ctx context.Context, _ *worker.Step[struct{}]) (int, error) {
		end, _ := ctx.Deadline()
		left = time.Until(end)
		return 1, nil
	})
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"testdata/shop.yaml"}, Worker: w, Begin: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
	wf.Start(`{}`)
	wf.RunUntilIdle()
	if left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("the handler has %s, want ten minutes", left)
	}
}

func TestAnAttemptThatHangsTimesOut(t *testing.T) {
	t.Parallel()
	wf := shop(t)
	wf.Script("reserve", taskertest.Hang(), taskertest.Succeed(`1`))
	task := wf.Start(`{}`)
	wf.Advance(599 * time.Second)
	task.Step("reserve").AssertState(tasker.StepInProgress)
	wf.Advance(2 * time.Second)
	task.Step("reserve").AssertState(tasker.StepError)
	if f := task.Step("reserve").Failure(); f.Type != tasker.StepTimeout {
		t.Errorf("the attempt failed with %s", f.Type)
	}
	wf.Advance(10 * time.Second)
	task.Step("reserve").AssertState(tasker.StepComplete)
}

func TestAWorkerThatCrashesLosesItsLease(t *testing.T) {
	t.Parallel()
	wf := shop(t)
	wf.Script("reserve", taskertest.Crash(), taskertest.Succeed(`1`))
	task := wf.Start(`{}`)
	wf.Advance(29 * time.Second)
	task.Step("reserve").AssertState(tasker.StepInProgress)
	wf.Advance(2 * time.Second)
	if f := task.Step("reserve").Failure(); f.Type != tasker.WorkerLost {
		t.Errorf("the attempt failed with %s", f.Type)
	}
	wf.Advance(10 * time.Second)
	task.Step("reserve").AssertState(tasker.StepComplete)
}

// A failure opens an investigation, and its repair lets the task go on.
func TestAFailureIsRepaired(t *testing.T) {
	t.Parallel()
	wf := shop(t)
	wf.Script("reserve", taskertest.FailAfter(time.Hour, "closed"), taskertest.FailPermanently("sold out"))
	wf.Always("reserve", taskertest.Succeed(`{}`))
	wf.Always("ship", taskertest.Succeed(nil))
	task := wf.Start(`{}`)
	wf.Advance(59 * time.Minute)
	task.AssertNoInvestigation()
	wf.Advance(2 * time.Minute)
	task.AssertState(tasker.TaskError)
	if e := task.Investigation(); e.ResolutionStatus != tasker.EntryPending || e.OriginalState == "" {
		t.Errorf("the investigation is %+v", e)
	}
	task.Reset("reserve")
	wf.RunUntilIdle()
	task.AnswerFailure("confirm", "they say no")
	wf.RunUntilIdle()
	if f := task.Step("confirm").Failure(); f.Message != "they say no" {
		t.Errorf("the failure is %+v", f)
	}
	task.CompleteStep("confirm", `"by hand"`)
	wf.RunUntilIdle()
	task.AssertComplete()
	if len(task.Steps()) != 3 {
		t.Error("a step is missing")
	}
}

func TestAStepIsResolvedAndATaskCancelled(t *testing.T) {
	t.Parallel()
	wf := shop(t)
	wf.Always("reserve", taskertest.FailPermanently("sold out"))
	wf.Always("ship", taskertest.Succeed(nil))
	one, two := wf.Start(`{}`), wf.StartTask(tasker.NewTask{Namespace: "shop", Name: "shop"})
	wf.RunUntilIdle()
	one.Resolve("reserve")
	two.Cancel()
	wf.RunUntilIdle()
	one.Step("reserve").AssertState(tasker.StepResolvedManually)
	two.AssertState(tasker.TaskCancelled)
}

// A task that stands still is found when its time is over, not before.
func TestStalenessComesWithTheClock(t *testing.T) {
	t.Parallel()
	wf := shop(t)
	wf.Always("reserve", taskertest.Succeed(nil))
	task := wf.Start(`{}`)
	wf.Advance(59 * time.Minute)
	task.AssertNoInvestigation()
	wf.Advance(2 * time.Minute)
	if e := task.Investigation(); e.Reason != tasker.StalenessTimeout {
		t.Errorf("the reason is %s", e.Reason)
	}
}

// A start time comes with the clock, and so does the time of a task of another template.
func TestATaskStartsLater(t *testing.T) {
	t.Parallel()
	wf := taskertest.New(t, taskertest.Options{
		Templates: []string{"testdata/shop.yaml"},
		Documents: []string{"{namespace: other, name: pause, version: 1.0.0, steps: [{name: rest, type: wait, wait_seconds: 60}]}"},
	})
	task := wf.StartTask(tasker.NewTask{Namespace: "other", Name: "pause", StartAt: wf.Now().Add(48 * time.Hour)})
	wf.Advance(48 * time.Hour)
	task.Step("rest").AssertState(tasker.StepPending)
	wf.Advance(2 * time.Minute)
	task.AssertComplete()
	if took := task.Get().CompletedAt.Sub(task.Get().CreatedAt); took < 48*time.Hour+time.Minute || took > 48*time.Hour+time.Minute+time.Second {
		t.Errorf("it was complete after %s", took)
	}
}

// Due times come with the clock: the warning, what is overdue and its investigation; an operator changes one.
func TestDueTimesComeWithTheClock(t *testing.T) {
	t.Parallel()
	wf := taskertest.New(t, taskertest.Options{
		Documents: []string{`{namespace: n, name: parcel, version: 1.0.0, due: {after_seconds: 86400, overdue: investigate}, lifecycle: {max_waiting_for_dependencies_minutes: 10080},
			steps: [{name: sent, type: external, due: {at: 'timestamp(context.by)'}}]}`},
		Begin: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
	})
	task := wf.Start(map[string]any{"by": "2020-01-02T12:00:00Z"})
	wf.RunUntilIdle()
	want := func(state, step tasker.DeadlineState) {
		t.Helper()
		if due, of := task.Get().Due, task.Step("sent").Due; due == nil || of == nil || due.State != state || of.State != step {
			t.Errorf("at %s the task is %+v and the step %+v, want %s and %s", wf.Now(), due, of, state, step)
		}
	}
	want(tasker.DeadlineAhead, tasker.DeadlineAhead)
	wf.Advance(20 * time.Hour)
	want(tasker.DeadlineSoon, tasker.DeadlineAhead)
	task.ChangeDue(time.Date(2020, 1, 3, 0, 0, 0, 0, time.UTC))
	want(tasker.DeadlineAhead, tasker.DeadlineAhead)
	wf.Advance(23 * time.Hour)
	want(tasker.DeadlineSoon, tasker.DeadlineOverdue)
	task.AssertState(tasker.TaskWaitingForDependencies)
	wf.Advance(10 * time.Hour)
	want(tasker.DeadlineOverdue, tasker.DeadlineOverdue)
	task.AssertState(tasker.TaskError)
	task.Answer("sent", 1)
	task.AssertComplete()
	want(tasker.DeadlineMissed, tasker.DeadlineMissed)
}

// A template of which nothing needs a worker has none.
func TestOnlyTheClockWorks(t *testing.T) {
	t.Parallel()
	wf := taskertest.New(t, taskertest.Options{Documents: []string{"{namespace: other, name: pause, version: 1.0.0, steps: [{name: rest, type: wait, wait_seconds: 60}]}"}})
	task := wf.Start(nil)
	wf.Advance(time.Hour)
	task.AssertComplete()
}

// An environment changes the template, as it does in a server.
func TestAnEnvironmentHolds(t *testing.T) {
	t.Parallel()
	doc := `{namespace: n, name: t, version: 1.0.0, steps: [{name: s, handler: {callable: h}}],
		environments: {test: {steps: [{name: s, retry: {max_attempts: 1}}]}}}`
	wf := taskertest.New(t, taskertest.Options{Documents: []string{doc}, Environment: "test"})
	wf.Always("h", taskertest.Fail("no"))
	task := wf.Start(nil)
	wf.RunUntilIdle()
	task.AssertState(tasker.TaskError)
	if !strings.Contains(task.String(), "attempt 1 of 1") {
		t.Error(task)
	}
}

// Results of which there are too many bytes for an assignment are there when a handler asks for them.
func TestLargeResultsAreThere(t *testing.T) {
	t.Parallel()
	doc := "namespace: n\nname: t\nversion: 1.0.0\nsteps:\n"
	var names []string
	for i := range 6 {
		names = append(names, fmt.Sprintf("s%d", i))
		doc += fmt.Sprintf("  - {name: s%d, handler: {callable: large}}\n", i)
	}
	doc += fmt.Sprintf("  - {name: join, handler: {callable: join}, dependencies: [%s]}\n", strings.Join(names, ", "))
	wf := taskertest.New(t, taskertest.Options{Documents: []string{doc}})
	part := strings.Repeat("x", 200_000)
	wf.Always("large", taskertest.Succeed([]string{part, part, part, part}))
	wf.Script("join", taskertest.Call(func(c *worker.Call) (any, error) {
		total := 0
		for _, name := range names {
			var list []string
			if err := c.Dependency(name, &list); err != nil {
				return nil, err
			}
			total += len(list) * len(list[0])
		}
		return total, nil
	}))
	task := wf.Start(nil)
	wf.RunUntilIdle()
	task.AssertComplete()
	task.Step("join").AssertResult(`4800000`)
}
