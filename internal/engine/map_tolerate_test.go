package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// tolerating returns a task whose map step has so many items and tolerates that some fail, with
// what was claimed of them.
func (h *harness) tolerating(n int, t tasker.FailureTolerance) (tasker.ID, []tasker.Assignment) {
	h.Helper()
	refund := enginetest.Once(mapOver("results.split.lines", enginetest.Step("refund", "split")))
	refund.Tolerate = t
	h.Template("tolerating", enginetest.Step("split"), refund, enginetest.Step("tell", "refund"))
	task := h.Create("tolerating")
	h.accepted(success(h.claimOne("split"), lines(n)))
	h.tick()
	return task, h.claimItems()
}

// As many items as the step tolerates are skipped when they fail, and nobody is told of them.
func TestItemsThatAreToleratedAreSkipped(t *testing.T) {
	t.Parallel()
	for _, tt := range []tasker.FailureTolerance{{Items: 2}, {Percent: 40}, {Percent: 59}} { // 2 of 5
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			task, items := h.tolerating(5, tt)
			again := failure(items[3], false)
			h.accepted(success(items[0], `"r0"`), again, success(items[4], `"r4"`))
			h.accepted(again) // the same report again is taken
			h.wantItems(task, "refund", tasker.ItemCounts{Total: 5, InProgress: 2, Completed: 2, Skipped: 1})
			h.accepted(failure(items[1], true)) // it has no other attempt
			h.wantState(task, tasker.TaskStepsInProcess)
			h.accepted(success(items[2], `"r2"`))
			h.tick()
			h.wantStep(task, "refund", tasker.StepComplete, 0)
			if got := h.resultOf(task, "refund"); got != `{"items": 5, "results": ["r0", null, "r2", null, "r4"], "tolerated": [1, 3]}` {
				t.Errorf("the result is %s", got)
			}
			id, err := h.DB.StepNamed(t.Context(), task, "refund[3]")
			h.Must(err)
			item, err := h.DB.Step(t.Context(), task, id)
			h.Must(err)
			if item.State != tasker.StepSkipped || !strings.Contains(string(item.Error), "no luck") || !strings.Contains(item.SkipReason, "refund tolerates") {
				t.Errorf("the item is %s, with the error %s and the reason %q", item.State, item.Error, item.SkipReason)
			}
			h.accepted(success(h.claimOne("tell"), `1`))
			h.wantState(task, tasker.TaskComplete)
			if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE task_uuid = $1`, task); n != 0 {
				t.Errorf("%d investigations", n)
			}
		})
	}
}

// One item more than is tolerated is an investigation; repaired, the step is complete with the
// rest.
func TestMoreItemsFailThanAreTolerated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.tolerating(4, tasker.FailureTolerance{Items: 1})
	h.accepted(failure(items[2], false), failure(items[1], false), success(items[0], `0`)) // together: the first of the list is tolerated
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 4, InProgress: 1, Completed: 1, Skipped: 1, Failed: 1})
	h.accepted(failure(items[3], false))
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 4, Completed: 1, Skipped: 1, Failed: 2})
	h.wantState(task, tasker.TaskError)
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE task_uuid = $1`, task); n != 1 {
		t.Errorf("%d investigations", n)
	}
	h.act(task, "refund", tasker.ResetForRetry, "")
	again := h.claimItems()
	if len(again) != 2 {
		t.Fatalf("claimed %v", names(again))
	}
	h.accepted(success(again[0], `2`), success(again[1], `3`))
	h.tick()
	if got := h.resultOf(task, "refund"); got != `{"items": 4, "results": [0, null, 2, 3], "tolerated": [1]}` {
		t.Errorf("the result is %s", got)
	}
}

// Where all but one may fail, any item that succeeds is enough, and when none does the last failure is
// an investigation.
func TestAnyItemIsEnough(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.tolerating(3, tasker.FailureTolerance{AllButOne: true})
	h.accepted(failure(items[0], false), success(items[1], `"one"`), failure(items[2], false))
	h.tick()
	if got := h.resultOf(task, "refund"); got != `{"items": 3, "results": [null, "one", null], "tolerated": [0, 2]}` {
		t.Errorf("the result is %s", got)
	}
	h.accepted(success(h.claimOne("tell"), `1`))
	other := h.Create("tolerating")
	h.accepted(success(h.claimOne("split"), lines(3)))
	h.tick()
	for _, a := range h.claimItems() {
		h.accepted(failure(a, false))
	}
	h.wantItems(other, "refund", tasker.ItemCounts{Total: 3, Skipped: 2, Failed: 1})
	h.wantState(other, tasker.TaskError)
}

// What no worker took is not the failure of an item: all would be skipped while no worker lives.
func TestItemsThatNoWorkerTookAreNotTolerated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.tolerating(2, tasker.FailureTolerance{Percent: 100})
	_, _, err := h.Engine.Release(h.Context(), h.worker, []tasker.Lease{items[0].Lease()})
	h.Must(err)
	h.leave()
	h.Exec(`UPDATE tasker.ready_steps SET expires_at = now() - interval '1 hour' WHERE task_uuid = $1`, task)
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = now() - interval '1 hour' WHERE task_uuid = $1 AND state = 'enqueued'`, task)
	h.expire()
	if c := h.step(task, "refund").Items; c.Skipped != 0 {
		t.Errorf("the items are %+v", c)
	}
}
