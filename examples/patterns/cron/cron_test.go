package cron_test

import (
	"context"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/cron"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

// Each day has one report, also when a worker crashes, and when a report fails.
func TestEachDayHasItsReport(t *testing.T) {
	t.Parallel()
	first := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	days := map[tasker.ID]*taskertest.Task{}
	var wf *taskertest.Workflow
	w := worker.New(nil, worker.Options{})
	cron.Register(w, func(_ context.Context, n tasker.NewTask) (tasker.ID, error) {
		task := wf.StartTask(n)
		days[task.UUID] = task
		return task.UUID, nil
	})
	wf = taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w, Begin: first})
	wf.Script("report", taskertest.Succeed(`"one"`), taskertest.FailPermanently("no data"))
	wf.Script("next", taskertest.Call(func(c *worker.Call) (any, error) {
		wf.StartTask(cron.Task(first.AddDate(0, 0, 1))) // it is made, and the worker does not get to say so
		return nil, context.Canceled
	}))
	task := wf.StartTask(cron.Task(first))
	days[task.UUID] = task
	wf.Advance(7*24*time.Hour + time.Hour)
	if len(days) != 8 {
		t.Errorf("%d tasks, want those of seven days, and that of the eighth, which waits", len(days))
	}
	states := map[tasker.TaskState]int{}
	for _, d := range days {
		states[d.Get().State]++
	}
	if states[tasker.TaskComplete] != 6 || states[tasker.TaskError] != 1 || states[tasker.TaskPending] != 1 {
		t.Errorf("the tasks are %v", states)
	}
}
