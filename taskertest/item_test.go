package taskertest_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func files(t testing.TB, w *worker.Worker) *taskertest.Workflow {
	t.Helper()
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"testdata/import.yaml"}, Worker: w})
	wf.Always("list", taskertest.Succeed(`["a", "b", "c"]`))
	wf.Always("report", taskertest.Succeed(nil))
	return wf
}

// One item has a script of its own; the others have that of their step.
func TestItemsAreScripted(t *testing.T) {
	t.Parallel()
	wf := files(t, nil)
	wf.Script("read[1]", taskertest.Fail("the disk is busy"), taskertest.FailPermanently("b is broken"))
	wf.Always("read", taskertest.Call(func(c *worker.Call) (any, error) {
		var file string
		err := c.Element(&file)
		return strconv.Quote(file + strconv.Itoa(*c.Index)), err
	}))
	task := wf.Start(nil)
	wf.Advance(time.Minute)
	task.AssertState(tasker.TaskError)
	task.Step("read[0]").AssertResult(`"a0"`)
	if f := task.Step("read[1]").Failure(); f.Message != "b is broken" {
		t.Errorf("the failure is %+v", f)
	}
	if e := task.Investigation(); e.StepUUID == nil || *e.StepUUID != task.Step("read[1]").UUID {
		t.Errorf("the investigation is about %v", e.StepUUID)
	}
	task.Reset("read[1]")
	wf.RunUntilIdle()
	task.AssertComplete()
	task.Step("read").AssertResult(`{"items": 3, "results": ["a0", "b1", "c2"]}`)
}

// What an attempt saves is given to the next one, when it fails and when its worker falls silent,
// until a reset removes it.
func TestCheckpointsAreKept(t *testing.T) {
	t.Parallel()
	var began []int
	w := worker.New(nil, worker.Options{})
	worker.Handle(w, "read_file", func(ctx context.Context, s *worker.Step[any]) (int, error) {
		row := 0
		if _, err := s.LastCheckpoint(&row); err != nil {
			return 0, err
		}
		if *s.Index == 1 {
			began = append(began, row)
		}
		return row + 1, s.SaveCheckpoint(ctx, row+1)
	})
	wf := files(t, w)
	wf.Script("read[1]", taskertest.Crash().Saving(10, `20`), taskertest.Fail("the disk is busy"), taskertest.FailPermanently("b is broken").Saving(30))
	task := wf.Start(nil)
	wf.Advance(time.Hour)
	task.AssertState(tasker.TaskError)
	task.Step("read[1]").AssertCheckpoint(`30`)
	task.Step("read[0]").AssertCheckpoint(``) // it is done
	task.Reset("read[1]")
	wf.Script("read[1]", taskertest.FailPermanently("again"))
	wf.RunUntilIdle()
	task.ResetWithoutCheckpoint("read[1]")
	task.Step("read[1]").AssertCheckpoint(``)
	wf.RunUntilIdle()
	task.AssertComplete()
	if !slices.Equal(began, []int{0}) {
		t.Errorf("the handler began at %v", began)
	}
	task.Step("read").AssertResult(`{"items": 3, "results": [1, 1, 1]}`)
}

const human = `
namespace_name: shop
name: refund
version: 1.0.0
steps:
  - {name: approve, type: external, assignee: ann, form: {type: object, required: [ok]}}
  - {name: ask, type: external, dependencies: [approve]}
`

// Answers to steps that wait for people are scripted, and come from whoever is to answer.
func TestAnswersAreScripted(t *testing.T) {
	t.Parallel()
	wf := taskertest.New(t, taskertest.Options{Documents: []string{human}})
	wf.ScriptAnswers("approve", taskertest.Succeed(`{"ok": 1}`))
	first, second := wf.Start(nil), wf.Start(nil)
	wf.RunUntilIdle()
	second.Assign("approve", "group:finance")
	first.Step("approve").AssertResult(`{"ok": 1}`)
	first.Step("approve").AssertAssignee("ann")
	second.Step("approve").AssertState(tasker.StepPending)
	second.Step("approve").AssertAssignee("group:finance")
	wf.ScriptAnswers("approve", taskertest.FailPermanently("not today"))
	wf.RunUntilIdle()
	second.Step("approve").AssertState(tasker.StepError)
	if got := second.Step("approve").Failure().Message; got != "not today" {
		t.Errorf("it failed with %q", got)
	}
	fails(t, func(tb testing.TB) { workflowOf(tb).ScriptAnswers("ask", taskertest.Succeed(nil)) }, "that a person answers")
	fails(t, func(tb testing.TB) { workflowOf(tb).ScriptAnswers("approve", taskertest.Hang()) }, "must be Succeed or FailPermanently")
	fails(t, func(tb testing.TB) {
		w := workflowOf(tb)
		w.ScriptAnswers("approve", taskertest.Succeed(`{}`))
		w.Start(nil)
		w.RunUntilIdle()
	}, "does not match the form of the step")
	fails(t, func(tb testing.TB) {
		w := workflowOf(tb)
		task := w.Start(nil)
		w.RunUntilIdle()
		task.Step("approve").AssertAssignee("bob")
	}, `assigned to "ann", want "bob"`)
	fails(t, func(tb testing.TB) { workflowOf(tb).Start(nil).Assign("ask", "bob") }, "assign step ask")
}

func workflowOf(tb testing.TB) *taskertest.Workflow {
	return taskertest.New(tb, taskertest.Options{Documents: []string{human}})
}
