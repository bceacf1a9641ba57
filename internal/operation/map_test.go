package operation_test

import (
	"encoding/json"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// failedItems makes a task with a map step of which three of five items have failed.
func (h *harness) failedItems() tasker.ID {
	h.Helper()
	each := enginetest.Once(enginetest.Step("each"))
	each.Type, each.Over = tasker.MapStep, "context.list"
	h.Template("list", each)
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "list", Context: json.RawMessage(`{"list": [0, 1, 2, 3, 4]}`)})
	_, err := h.Engine.Tick(h.Context())
	h.Must(err)
	h.work(5, func(a tasker.Assignment) tasker.Outcome {
		if *a.Index%2 == 0 {
			return fails("no")(a)
		}
		return succeeds(a)
	})
	return task
}

// open returns how many open investigations a task has.
func (h *harness) open(task tasker.ID) int {
	h.Helper()
	return h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE task_uuid = $1 AND resolution_status = 'pending'`, task)
}

// An operation takes all items of a map step that have failed, and the investigation ends with the
// last of them.
func TestAllFailedItemsOfAMapAreRepaired(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.failedItems()
	o := h.started(plan())
	if o.Items != 3 || o.Capped {
		t.Fatalf("planned %+v", o)
	}
	h.release()
	h.work(2, succeeds)
	h.look()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemVerified: 2, tasker.ItemReleased: 1})
	if n := h.open(task); n != 1 {
		t.Errorf("%d investigations are open before the last item is repaired", n)
	}
	h.work(1, succeeds)
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 3})
	if n := h.open(task); n != 0 {
		t.Errorf("%d investigations are open", n)
	}
	_, err := h.Engine.Tick(t.Context())
	h.Must(err)
	if s := h.State(task); s != tasker.TaskComplete {
		t.Errorf("the task is %s", s)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE task_uuid = $1`, task); n != 1 {
		t.Errorf("the task has had %d investigations", n)
	}
}

// While an item has failed again the investigation stays open, and the next operation takes that
// item only.
func TestAnItemOfAMapFailsAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.failedItems()
	o := h.started(plan())
	h.release()
	h.work(3, func(a tasker.Assignment) tasker.Outcome {
		if *a.Index == 2 {
			return fails("no")(a)
		}
		return succeeds(a)
	})
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 2, tasker.ItemFailedAgain: 1})
	if n := h.open(task); n != 1 {
		t.Errorf("%d investigations are open", n)
	}
	if o = h.started(plan()); o.Items != 1 {
		t.Fatalf("planned %+v", o)
	}
	h.release()
	h.work(1, succeeds)
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 1})
	if n := h.open(task); n != 0 {
		t.Errorf("%d investigations are open", n)
	}
}

// A limit is one of items, also of those of one map step, and what it leaves out is said.
func TestALimitOfItemsOfAMap(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.failedItems()
	p := plan()
	p.Limit = 2
	if o := h.planned(p); o.Items != 2 || !o.Capped {
		t.Errorf("planned %+v", o)
	}
	p.Limit, p.SkipOverlap = 3, true
	o := h.planned(p)
	if o.Items != 1 || o.Capped || len(o.Overlapping) != 1 || o.Overlapping[0].Items != 2 {
		t.Errorf("planned %+v beside it", o)
	}
}
