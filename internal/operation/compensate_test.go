package operation_test

import (
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// halfDone makes tasks whose first step is complete and can be undone, and whose second has failed
// for good.
func (h *harness) halfDone(n int) []tasker.ID {
	h.Helper()
	reserve := enginetest.Step("reserve")
	reserve.OnFailure = &tasker.OnFailure{Compensate: "run", Retry: tasker.DefaultUndoRetry()}
	h.Template("trip", reserve, enginetest.Once(enginetest.Step("charge", "reserve")))
	tasks := make([]tasker.ID, n)
	for i := range tasks {
		tasks[i] = h.Create("trip")
	}
	h.work(n, succeeds)
	h.work(n, fails("no"))
	return tasks
}

// Tasks are cancelled and undone together: an item is verified when all that can be undone is, and
// has failed when a step that undoes has, which has an investigation of its own.
func TestTasksAreUndoneTogether(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.halfDone(5)
	nothing := h.stuck(1)[0]
	p := plan()
	p.Act, p.Waves = tasker.ActCompensate, []int{}
	p.Selection = tasker.OperationSelection{IDs: append(tasks, nothing)}
	o := h.planned(p)
	first := map[tasker.ID]tasker.ID{}
	for _, task := range p.Selection.IDs {
		first[task] = h.Entry(task).UUID
	}
	before := h.Contents()
	r := h.dryRun(o, 100)
	if r.WouldRelease != 6 || len(r.Refused) != 0 || r.Enqueues["undo:reserve"] != 5 {
		t.Errorf("the dry run tells %+v", r)
	}
	if h.Contents() != before {
		t.Error("the dry run has changed the database")
	}
	// Meanwhile one is repaired, and one is undone by hand, of which the undo fails.
	h.act(tasks[3], tasker.ResetForRetry)
	h.work(1, succeeds)
	h.Must(h.Engine.CompensateTask(t.Context(), tasks[4], "bob", "r"))
	h.work(1, func(a tasker.Assignment) tasker.Outcome {
		return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "no", Type: "Declined"}}
	})
	if h.State(tasks[4]) != tasker.TaskError {
		t.Fatalf("the task is %s", h.State(tasks[4]))
	}

	h.start(o)
	h.release()
	h.look()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 3, tasker.ItemVerified: 1, tasker.ItemSkipped: 2})
	for _, task := range tasks[:3] {
		d, err := h.DB.Task(t.Context(), task)
		h.Must(err)
		if e := h.Entry(task); d.Phase != tasker.Compensating || e.ResolutionStatus != tasker.EntryManuallyResolved || *e.ResolvedBy != "ann" {
			t.Errorf("the task is in phase %q, its investigation %s", d.Phase, e.ResolutionStatus)
		}
	}
	if e := h.Entry(tasks[4]); e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation of an undo that was begun before is %s", e.ResolutionStatus)
	}
	failed := 0
	h.work(3, func(a tasker.Assignment) tasker.Outcome {
		if failed++; failed == 1 {
			return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "no", Type: "Declined"}}
		}
		return succeeds(a)
	})
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 3, tasker.ItemFailedAgain: 1, tasker.ItemSkipped: 2})
	if n := h.Count(`SELECT count(*) FROM tasker.operation_items i JOIN tasker.tasks t USING (task_uuid)
		WHERE i.operation_uuid = $1 AND i.outcome = CASE t.outcome WHEN 'compensated' THEN 'undone' WHEN 'nothing_to_compensate' THEN 'undone' ELSE 'failed' END
			AND (t.outcome IS NOT NULL OR i.failure_text = 'no') AND i.state <> 'skipped'`, o.UUID); n != 4 {
		t.Errorf("%d items say what became of their tasks", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending' AND task_uuid = ANY ($1) AND dlq_entry_uuid <> ALL ($2)`,
		tasks[:3], []tasker.ID{first[tasks[0]], first[tasks[1]], first[tasks[2]]}); n != 1 {
		t.Errorf("%d undo steps have an investigation of their own", n)
	}
	items, _, err := h.DB.OperationItems(t.Context(), o.UUID, tasker.OperationItemFilter{Limit: 100})
	h.Must(err)
	for _, i := range items {
		if i.MadeTask != nil {
			t.Errorf("item %d says that it has a new task", i.Ordinal)
		}
	}
}

// An undo that is stopped by a person is no success of the operation.
func TestAnUndoThatIsStopped(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.halfDone(1)
	p := plan()
	p.Act, p.Selection = tasker.ActCompensate, tasker.OperationSelection{IDs: tasks}
	o := h.started(p)
	h.release()
	h.Must(h.Engine.CancelTask(t.Context(), tasks[0], "bob", "leave it"))
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemSkipped: 1})
	if n := h.Count(`SELECT count(*) FROM tasker.operation_items WHERE operation_uuid = $1 AND outcome = 'cancelled'`, o.UUID); n != 1 {
		t.Errorf("%d items were cancelled", n)
	}
}
