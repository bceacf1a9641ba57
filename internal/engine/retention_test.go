package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// What has ended long ago goes, with all that belongs to it; what runs, what
// ended just now, and what was ever investigated stays.
func TestRetention(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(1, enginetest.Step("one")))
	create := func() tasker.ID {
		return h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Tags: []string{"a", "b"}, CorrelationID: "c"})
	}
	finish := func() tasker.ID {
		task := create()
		a := h.claimOne("one")
		h.Must(h.save(a, `{"row": 1}`))
		h.accepted(success(a, `1`))
		return task
	}
	old, young := finish(), finish()
	cancelled := create()
	h.Must(h.Engine.CancelTask(t.Context(), cancelled, "ann", "r"))
	failed := create()
	h.accepted(failure(h.claimOne("one"), false))
	running := create()
	a := h.claimOne("one")
	h.Must(h.save(a, `{"row": 2}`))
	fixed := create()
	h.accepted(failure(h.claimOne("one"), false))
	_, err := h.Engine.OperateStep(t.Context(), fixed, h.step(fixed, "one").UUID, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "r"})
	h.Must(err)
	const day = 24 * time.Hour
	h.Exec(`UPDATE tasker.tasks SET updated_at = updated_at - interval '25 hours' WHERE task_uuid <> $1`, young)

	// A task's age is told by its id as well, which cannot be changed: the id of
	// today is old enough when an hour is.
	for range 2 {
		for _, state := range []tasker.TaskState{tasker.TaskComplete, tasker.TaskCancelled} {
			if _, err := h.DB.PruneTasks(t.Context(), state, tasker.ID{}, day, postgres.PruneBounds{Tasks: 100, Steps: 1000}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := h.count("tasks"); got != 6 {
		t.Errorf("%d tasks are left of six that were made today", got)
	}
	h.prune(time.Millisecond)
	for id, stays := range map[tasker.ID]bool{old: false, young: false, cancelled: false, failed: true, running: true, fixed: true} {
		_, err := h.DB.Task(t.Context(), id)
		if gone := tasker.CodeOf(err) == tasker.NotFound; gone == stays {
			t.Errorf("task %s: %v, should stay: %v", id, err, stays)
		}
	}
	for _, table := range []string{"workflow_steps", "task_attributes", "task_transitions", "workflow_step_transitions"} {
		var left int
		h.Must(h.pool.QueryRow(t.Context(), `SELECT count(DISTINCT task_uuid) FROM tasker.`+table).Scan(&left))
		if left != 3 {
			t.Errorf("%s is about %d tasks, want 3", table, left)
		}
	}
	if left := h.count("step_checkpoints"); left != 1 { // of the task that runs
		t.Errorf("%d checkpoints are left, want 1", left)
	}
	h.accepted(success(a, `1`))
}

// prune runs the loops of an engine that keeps finished tasks for so long, until
// nothing is left to do.
func (h *harness) prune(keep time.Duration) {
	h.Helper()
	for _, l := range newEngine(h.DB, engine.Options{Retention: keep}).Loops() {
		if !strings.HasPrefix(l.Name, "retention") {
			continue
		}
		for next := loop.AtOnce; next == loop.AtOnce; {
			var err error
			next, err = l.Pass(h.Context())
			h.Must(err)
		}
	}
}

func (h *harness) count(table string) (n int) {
	h.Helper()
	h.Must(h.pool.QueryRow(h.Context(), `SELECT count(*) FROM tasker.`+table).Scan(&n))
	return n
}

// A batch full of tasks that stay does not hide those after them, and writes none of them.
func TestRetentionGoesOnAfterWhatStays(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(1, enginetest.Step("one")))
	var kept, gone int
	for i := range 6 {
		task := h.Create("single")
		h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "r"))
		if i < 4 {
			h.Exec(`SELECT tasker.create_dlq_entry($1, 'manual_dlq', 'operator_request', 'operator', 'cancelled')`, task)
		}
	}
	h.Exec(`CREATE TABLE public.lockers AS SELECT task_uuid, xmax::text AS locker FROM tasker.tasks`)
	after := tasker.ID{}
	for {
		p, err := h.DB.PruneTasks(t.Context(), tasker.TaskCancelled, after, -time.Minute, postgres.PruneBounds{Tasks: 2, Steps: 1000}) // what was made just now counts
		h.Must(err)
		gone += p.Removed
		kept += p.Seen - p.Removed
		if !p.More {
			break
		}
		after = *p.Last
	}
	if gone != 2 || kept != 4 {
		t.Errorf("%d removed and %d kept, want 2 and 4", gone, kept)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks t JOIN public.lockers l USING (task_uuid) WHERE t.xmax::text <> l.locker`); n != 0 {
		t.Errorf("%d tasks that stay were locked, which writes them", n)
	}
}

func TestNothingIsRemovedUnlessAskedFor(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if slices.ContainsFunc(h.Engine.Loops(), func(l *loop.Loop) bool { return strings.HasPrefix(l.Name, "retention") }) {
		t.Error("an engine without a retention has loops for it")
	}
}

// A batch is bounded by steps, so that one of big tasks takes no longer; a task that
// cannot be removed keeps none behind it.
func TestATaskThatCannotBeRemovedKeepsNoOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("pair", enginetest.Step("one"), enginetest.Step("two"))
	var tasks []tasker.ID
	for range 8 {
		task := h.Create("pair")
		h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "r"))
		tasks = append(tasks, task)
	}
	p, err := h.DB.PruneTasks(t.Context(), tasker.TaskCancelled, tasker.ID{}, -time.Minute, postgres.PruneBounds{Tasks: 100, Steps: 3})
	h.Must(err)
	if p.Removed != 2 || !p.More || *p.Last != tasks[1] {
		t.Errorf("a batch of 3 steps removed %d tasks up to %v, more: %v", p.Removed, p.Last, p.More)
	}
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(fmt.Sprintf(`CREATE TRIGGER broken BEFORE DELETE ON tasker.tasks FOR EACH ROW WHEN (OLD.task_uuid = '%s') EXECUTE FUNCTION public.refuse()`, tasks[4]))
	h.Exec(`UPDATE tasker.tasks SET updated_at = updated_at - interval '1 hour', task_uuid = task_uuid`)
	h.prune(time.Nanosecond)
	if n := h.count("tasks"); n != 1 {
		t.Errorf("%d tasks are left, want the one that cannot be removed", n)
	}
	h.Exec(`DROP TRIGGER broken ON tasker.tasks`)
	h.prune(time.Nanosecond)
	if n := h.count("tasks"); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}
