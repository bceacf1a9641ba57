package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

func (h *harness) taskOf(id tasker.ID) tasker.Task {
	h.Helper()
	t, err := h.DB.Task(h.Context(), id)
	h.Must(err)
	return t
}

// register registers version 1.0.0 of a template.
func (h *harness) register(t tasker.Template) {
	h.Helper()
	t.Namespace, t.Version = h.Space, "1.0.0"
	_, _, err := h.Engine.RegisterTemplate(h.Context(), t, "")
	h.Must(err)
}

// overdueNow has all instants by which tasks are to be begun be over, and what follows from it done.
func (h *harness) overdueNow() {
	h.Helper()
	h.Exec(`UPDATE tasker.task_starts SET start_by = now() - interval '1 second'`)
	h.tick()
}

func TestATaskThatNobodyBeginsInTimeExpires(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	told := map[tasker.ID]string{}
	h.Engine = engine.New(h.DB, engine.Options{TasksExpired: func(list []tasker.Task) {
		for _, t := range list {
			told[t.UUID] = t.Namespace
		}
	}})
	h.Template("two", enginetest.Step("a"), enginetest.Step("b", "a"))
	h.Template("asks", external("answer"), enginetest.Step("c", "answer"))
	h.register(tasker.Template{Name: "brief", Start: tasker.StartRules{WithinSeconds: 3600}, Steps: []tasker.StepTemplate{enginetest.Step("a")}})
	create := func(name string, r tasker.NewTask) tasker.ID {
		r.Namespace, r.Name = h.Space, name
		return h.CreateWith(r)
	}
	begun := create("two", tasker.NewTask{StartWithin: time.Hour})
	first := h.claim()[0]
	untouched := create("two", tasker.NewTask{StartWithin: time.Hour})
	later := create("two", tasker.NewTask{StartAfter: time.Hour, StartWithin: time.Hour})
	asked := create("asks", tasker.NewTask{StartBy: time.Now().Add(time.Hour)})
	free := create("two", tasker.NewTask{})
	brief := create("brief", tasker.NewTask{})
	for task, from := range map[tasker.ID]time.Duration{untouched: time.Hour, later: 2 * time.Hour, asked: time.Hour, brief: time.Hour} {
		got := h.taskOf(task)
		if got.Options == nil || got.Options.StartBy == nil || time.Until(*got.Options.StartBy).Round(time.Minute) != from {
			t.Errorf("%s is to be begun by %+v", got.Name, got.Options)
		}
	}
	if got := h.taskOf(later); got.State != tasker.TaskPending || got.StartAt == nil || !got.StartAt.Equal(got.CreatedAt.Add(time.Hour)) {
		t.Errorf("it is %s and starts at %v", got.State, got.StartAt)
	}
	h.tick()
	if n := h.Count(`SELECT count(*) FROM tasker.task_starts`); n != 5 {
		t.Fatalf("%d tasks are to be begun before their time is over", n)
	}
	h.overdueNow()
	for _, task := range []tasker.ID{untouched, later, asked, brief} {
		h.wantState(task, tasker.TaskCancelled)
		if got := h.history(task); !strings.HasSuffix(got, " cancelled") {
			t.Errorf("its history is %s", got)
		}
		if told[task] != h.Space {
			t.Errorf("nobody is told of %s: %v", task, told)
		}
		n := h.Count(`SELECT count(*) FROM tasker.messages WHERE topic = $1 AND subject_id = $2`, tasker.TaskExpiredTopic, task)
		if reason := h.Count(`SELECT count(*) FROM tasker.task_history WHERE task_uuid = $1 AND event = 'expire' AND reason = 'expired' AND actor = 'tasker'`, task); n != 1 || reason != 1 {
			t.Errorf("%d messages and %d moves say that it is expired", n, reason)
		}
	}
	h.wantState(begun, tasker.TaskStepsInProcess)
	h.wantState(free, tasker.TaskStepsInProcess)
	if n := h.Count(`SELECT count(*) FROM tasker.task_starts`); n != 0 || len(told) != 4 {
		t.Errorf("%d tasks are still to be begun; told of %v", n, told)
	}
	h.accepted(success(first, `1`))
	h.wantStep(begun, "b", tasker.StepEnqueued, 1)
}

// A task that has ended is bound by nothing, whoever ended it.
func TestTheTimeToBeginGoesWithTheTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	done := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", StartWithin: time.Hour})
	h.accepted(success(h.claimOne("a"), `1`))
	h.wantState(done, tasker.TaskComplete)
	stopped := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", StartWithin: time.Hour})
	h.Must(h.Engine.CancelTask(h.Context(), stopped, "me", "no"))
	if n := h.Count(`SELECT count(*) FROM tasker.task_starts`); n != 0 {
		t.Errorf("%d tasks that have ended are to be begun", n)
	}
	h.overdueNow()
	h.wantState(done, tasker.TaskComplete)
}

// Claims and the end of the time race: either the step is handed out and the task goes on, or it
// has ended and nothing of it is.
func TestAClaimAndTheExpiryOfATaskRace(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	for range 20 {
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", StartBy: time.Now().Add(-time.Second)})
		claimed := make(chan []tasker.Assignment)
		go func() {
			list, err := h.Engine.Claim(context.WithoutCancel(h.Context()), h.worker, 1, 0)
			if err != nil {
				t.Error(err)
			}
			claimed <- list
		}()
		h.tick()
		list := <-claimed
		h.tick()
		want := tasker.TaskCancelled
		if len(list) > 0 {
			want = tasker.TaskComplete
			h.accepted(success(list[0], `1`))
		}
		h.wantState(task, want)
	}
}

func TestAStartThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	soon := time.Now().Add(time.Hour)
	for want, r := range map[string]tasker.NewTask{
		"start_after_seconds: must be from 0 to 31622400":    {StartAfter: -time.Second},
		"start_within_seconds: must be from 0":               {StartWithin: tasker.MaxStartDelay + time.Second},
		"start_after_seconds: a task has either this":        {StartAfter: time.Second, StartAt: soon},
		"start_within_seconds: a task has either this":       {StartWithin: time.Second, StartBy: soon},
		"start_by: must be after start_at":                   {StartAt: soon, StartBy: soon},
		"start_by: must lie between the years 2000 and 2200": {StartBy: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		r.Namespace, r.Name = h.Space, "one"
		_, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{r})
		h.WantCode(err, tasker.Invalid, want)
	}
}

// The waits of steps begin with a task that starts after a while.
func TestWaitsBeginWithATaskThatStartsAfterAWhile(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("asks", timed("", external("answer")), enginetest.Step("c", "answer"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "asks", StartAfter: 24 * time.Hour})
	s := h.step(task, "answer")
	if s.WaitUntil == nil || time.Until(*s.WaitUntil).Round(time.Hour) != 8*24*time.Hour {
		t.Errorf("it waits until %v", s.WaitUntil)
	}
}
