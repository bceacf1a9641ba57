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
	h.Accepted(success(h.ClaimOne("split"), lines(n)))
	h.Tick()
	return task, h.claimItems()
}

func TestToleratedItemsAreSkipped(t *testing.T) {
	t.Parallel()
	for _, tt := range []tasker.FailureTolerance{{Items: 2}, {Percent: 40}, {Percent: 59}} { // 2 of 5
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			h := newHarness(t)
			task, items := h.tolerating(5, tt)
			again := failure(items[3], false)
			h.Accepted(success(items[0], `"r0"`), again, success(items[4], `"r4"`))
			h.Accepted(again) // the same report again is taken
			h.wantItems(task, "refund", tasker.ItemCounts{Total: 5, InProgress: 2, Completed: 2, Skipped: 1})
			h.Accepted(failure(items[1], true)) // it has no other attempt
			h.WantState(task, tasker.TaskStepsInProcess)
			h.Accepted(success(items[2], `"r2"`))
			h.Tick()
			h.WantStep(task, "refund", tasker.StepComplete, 0)
			h.WantResult(task, "refund", `{"items": 5, "results": ["r0", null, "r2", null, "r4"], "tolerated": [1, 3]}`)
			id, err := h.DB.StepNamed(t.Context(), task, "refund[3]")
			h.Must(err)
			item, err := h.DB.Step(t.Context(), task, id)
			h.Must(err)
			if item.State != tasker.StepSkipped || !strings.Contains(string(item.Error), "no luck") || !strings.Contains(string(item.SkipReason), "refund tolerates") {
				t.Errorf("the item is %s, with the error %s and the reason %q", item.State, item.Error, item.SkipReason)
			}
			h.Complete("tell")
			h.WantState(task, tasker.TaskComplete)
			h.WantCount(0, `SELECT count(*) FROM tasker.tasks_dlq WHERE task_uuid = $1`, task)
		})
	}
}

func TestOneFailureTooManyOpensAnInvestigation(t *testing.T) {
	h := newHarness(t)
	task, items := h.tolerating(4, tasker.FailureTolerance{Items: 1})
	h.Accepted(failure(items[2], false), failure(items[1], false), success(items[0], `0`)) // together: the first of the list is tolerated
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 4, InProgress: 1, Completed: 1, Skipped: 1, Failed: 1})
	h.Accepted(failure(items[3], false))
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 4, Completed: 1, Skipped: 1, Failed: 2})
	h.WantState(task, tasker.TaskError)
	h.WantCount(1, `SELECT count(*) FROM tasker.tasks_dlq WHERE task_uuid = $1`, task)
	h.act(task, "refund", tasker.ResetForRetry, "")
	again := h.claimItems()
	require(t, len(again) == 2, "claimed %v", names(again))
	h.Accepted(success(again[0], `2`), success(again[1], `3`))
	h.Tick()
	h.WantResult(task, "refund", `{"items": 4, "results": [0, null, 2, 3], "tolerated": [1]}`)
}

func TestExpiredItemsAreNotTolerated(t *testing.T) {
	h := newHarness(t)
	task, items := h.tolerating(2, tasker.FailureTolerance{Percent: 100})
	h.Release(items[0])
	h.leave()
	h.Exec(`UPDATE tasker.ready_steps SET expires_at = now() - interval '1 hour' WHERE task_uuid = $1`, task)
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = now() - interval '1 hour' WHERE task_uuid = $1 AND state = 'enqueued'`, task)
	h.expire()
	c := h.Step(task, "refund").Items
	check(t, c.Skipped == 0, "the items are %+v", c)
}
