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

func TestRetentionRemovesOldEndedTasks(t *testing.T) {
	h := newHarness(t)
	h.Template("single", attempts(1, enginetest.Step("one")))
	create := func() tasker.ID {
		return h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Tags: []string{"a", "b"}, CorrelationID: "c"})
	}
	finish := func() tasker.ID {
		task := create()
		a := h.ClaimOne("one")
		h.Must(h.save(a, `{"row": 1}`))
		h.Accepted(success(a, `1`))
		return task
	}
	old, young := finish(), finish()
	cancelled := create()
	h.Cancel(cancelled)
	failed := create()
	h.Accepted(failure(h.ClaimOne("one"), false))
	running := create()
	a := h.ClaimOne("one")
	h.Must(h.save(a, `{"row": 2}`))
	fixed := create()
	h.Accepted(failure(h.ClaimOne("one"), false))
	h.Operate(fixed, "one", tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "r"})
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
	equal(t, "tasks left", h.count("tasks"), 6)
	h.prune(time.Millisecond)
	for id, stays := range map[tasker.ID]bool{old: false, young: false, cancelled: false, failed: true, running: true, fixed: true} {
		_, err := h.DB.Task(t.Context(), id)
		gone := tasker.CodeOf(err) == tasker.NotFound
		check(t, gone != stays, "task %s: %v, should stay: %v", id, err, stays)
	}
	for _, table := range []string{"workflow_steps", "task_attributes", "task_transitions", "workflow_step_transitions"} {
		var left int
		h.Must(h.Admin().QueryRow(t.Context(), `SELECT count(DISTINCT task_uuid) FROM tasker.`+table).Scan(&left))
		check(t, left == 3, "%s is about %d tasks, want 3", table, left)
	}
	if left := h.count("step_checkpoints"); left != 1 { // of the task that runs
		t.Errorf("%d checkpoints are left, want 1", left)
	}
	h.Accepted(success(a, `1`))
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
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT count(*) FROM tasker.`+table).Scan(&n))
	return n
}

func TestRetentionContinuesBehindKeptTasks(t *testing.T) {
	h := newHarness(t)
	h.Template("single", attempts(1, enginetest.Step("one")))
	var kept, gone int
	for i := range 6 {
		task := h.Create("single")
		h.Cancel(task)
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
	check(t, gone == 2 && kept == 4, "%d removed and %d kept, want 2 and 4", gone, kept)
	h.WantCount(0, `SELECT count(*) FROM tasker.tasks t JOIN public.lockers l USING (task_uuid) WHERE t.xmax::text <> l.locker`)
}

func TestRetentionIsDisabledByDefault(t *testing.T) {
	h := newHarness(t)
	if slices.ContainsFunc(h.Engine.Loops(), func(l *loop.Loop) bool { return strings.HasPrefix(l.Name, "retention") }) {
		t.Error("an engine without a retention has loops for it")
	}
}

func TestRetentionContinuesAfterAFailure(t *testing.T) {
	h := newHarness(t)
	h.Template("pair", enginetest.Step("one"), enginetest.Step("two"))
	var tasks []tasker.ID
	for range 8 {
		task := h.Create("pair")
		h.Cancel(task)
		tasks = append(tasks, task)
	}
	p, err := h.DB.PruneTasks(t.Context(), tasker.TaskCancelled, tasker.ID{}, -time.Minute, postgres.PruneBounds{Tasks: 100, Steps: 3})
	h.Must(err)
	check(t, p.Removed == 2 && p.More && *p.Last == tasks[1],
		"a batch of 3 steps removed %d tasks up to %v, more: %v", p.Removed, p.Last, p.More)
	h.poison("DELETE ON tasker.tasks", fmt.Sprintf("OLD.task_uuid = '%s'", tasks[4]))
	h.Exec(`UPDATE tasker.tasks SET updated_at = updated_at - interval '1 hour', task_uuid = task_uuid`)
	h.prune(time.Nanosecond)
	h.wantRows(1, "tasks")
	h.heal()
	h.prune(time.Nanosecond)
	h.wantRows(0, "tasks")
}
