package operation_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/postgres"
)

// recreating returns a request to recreate all that is stuck.
func recreating() tasker.OperationPlan {
	p := plan()
	p.Act = tasker.ActRecreate
	return p
}

// second registers version 2.0.0 of a template.
func (h *harness) second(t tasker.Template) {
	h.Helper()
	t.Namespace, t.Version = enginetest.Namespace, "2.0.0"
	_, _, err := h.Engine.RegisterTemplate(h.Context(), t, "")
	h.Must(err)
}

// unserved has what is enqueued wait for a worker to live.
func (h *harness) unserved() {
	h.Helper()
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - interval '1 hour'`)
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = now() - interval '1 second' WHERE state = 'enqueued'`)
	h.Exec(`UPDATE tasker.ready_steps SET expires_at = now() - interval '1 second'`)
	_, err := h.Engine.ExpireSteps(h.Context())
	h.Must(err)
}

// madeOf returns the tasks that took the place of a task.
func (h *harness) madeOf(task tasker.ID) []tasker.ID {
	h.Helper()
	rows, err := h.Admin().Query(h.Context(), `SELECT task_uuid FROM tasker.tasks WHERE recreated_from = $1`, task)
	h.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[tasker.ID])
	h.Must(err)
	return list
}

// wantReplaced checks that each task is written off and has one successor, which its
// investigation, the item and the audit log name.
func (h *harness) wantReplaced(o tasker.Operation, tasks ...tasker.ID) {
	h.Helper()
	for _, task := range tasks {
		made := h.madeOf(task)
		if len(made) != 1 {
			h.Fatalf("%d tasks took the place of %s", len(made), task)
		}
		e := h.Entry(task)
		if e.ResolutionStatus != tasker.EntryPermanentlyFailed || *e.ResolvedBy != "ann" ||
			*e.ResolutionNotes != "recreated as "+made[0].String()+", in operation "+o.UUID.String()+": gateway is back" {
			h.Errorf("the investigation of %s is %s: %q", task, e.ResolutionStatus, *e.ResolutionNotes)
		}
		for what, args := range map[string][]any{
			`SELECT count(*) FROM tasker.operation_items WHERE operation_uuid = $1 AND task_uuid = $2 AND made_task = $3`:                                                                           {o.UUID, task, made[0]},
			`SELECT count(*) FROM tasker.audit_events WHERE action = 'task.recreated' AND subject = $1 AND actor = 'ann' AND data ->> 'made_task_uuid' = $2`:                                        {task.String(), made[0].String()},
			`SELECT count(*) FROM tasker.tasks_dlq_history h JOIN tasker.tasks_dlq d USING (dlq_entry_uuid) WHERE d.task_uuid = $1 AND h.event = 'resolved' AND h.to_status = 'permanently_failed'`: {task},
		} {
			if n := h.Count(what, args...); n != 1 {
				h.Errorf("%d rows: %s", n, what)
			}
		}
	}
}

// A task is written off, a new one of the newest version of its template takes its place with all
// that the old one was asked for, and the item is verified when that one is complete.
func TestRecreateRepairsAndProves(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	old, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{
		Namespace: enginetest.Namespace, Name: "order", Context: []byte(`{"n": 12345678901234567890.5}`), Initiator: "shop", SourceSystem: "web", Reason: "an order",
		Priority: 7, Tags: []string{"a", "b,c"}, CorrelationID: "c-1", ParentCorrelationID: "p-1", IdempotencyKey: "key-1",
	}})
	h.Must(err)
	h.work(1, fails("no"))
	tasks := append(h.stuck(2), old[0].TaskUUID)
	h.second(tasker.Template{Name: "order", Steps: []tasker.StepTemplate{enginetest.Once(enginetest.Step("charge"))}})
	o := h.planned(recreating())
	before := h.Contents()
	r := h.dryRun(o, 100)
	if r.WouldRelease != 3 || len(r.Refused) != 0 || r.Enqueues["charge"] != 3 {
		t.Errorf("the dry run tells %+v", r)
	}
	if h.Contents() != before {
		t.Error("the dry run has changed the database")
	}
	h.start(o)
	h.release()
	h.look()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 3})
	h.wantReplaced(o, tasks...)
	made, err := h.DB.Task(t.Context(), h.madeOf(old[0].TaskUUID)[0])
	h.Must(err)
	was, err := h.DB.Task(t.Context(), old[0].TaskUUID)
	h.Must(err)
	if made.Version != "2.0.0" || string(made.Context) != string(was.Context) || made.Priority != 7 || made.Initiator != "shop" || made.SourceSystem != "web" ||
		made.Reason != "an order" || len(made.Tags) != 2 || made.CorrelationID != "c-1" || made.ParentCorrelationID != "p-1" || made.IdempotencyKey != o.UUID.String()+":"+h.ordinal(o, was.UUID) {
		t.Errorf("made %+v", made)
	}
	_, err = h.Engine.OperateStep(t.Context(), tasks[0], *h.Entry(tasks[0]).StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "bob", Reason: "r"})
	h.WantCode(err, tasker.Conflict, "was written off")
	failed := 0
	h.work(3, func(a tasker.Assignment) tasker.Outcome {
		if failed++; failed == 1 {
			return fails("no")(a)
		}
		return succeeds(a)
	})
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 2, tasker.ItemFailedAgain: 1})
	if n := h.Count(`SELECT count(*) FROM tasker.operation_items i JOIN tasker.tasks t ON t.task_uuid = i.made_task
		WHERE i.operation_uuid = $1 AND i.state = CASE t.state WHEN 'complete' THEN 'verified' ELSE 'failed_again' END AND (t.state = 'complete' OR i.failure_text = 'no')`, o.UUID); n != 3 {
		t.Errorf("%d items say what became of the new task", n)
	}
	h.wantReplaced(o, tasks...)
	// A second run is about the new task that has failed, and of no old one.
	p := recreating()
	p.Selection = tasker.OperationSelection{IDs: append(tasks, h.madeOf(tasks[0])...)}
	p.Selection.IDs = append(p.Selection.IDs, h.madeOf(tasks[1])...)
	p.Selection.IDs = append(p.Selection.IDs, h.madeOf(tasks[2])...)
	again := h.started(p)
	if again.Items != 1 {
		t.Fatalf("%d items are planned again", again.Items)
	}
	h.release()
	h.work(10, succeeds)
	h.look()
	h.wantCounts(again, tasker.OperationDone, counts{tasker.ItemVerified: 1})
	h.wantReplaced(o, tasks...)
}

// ordinal returns the ordinal of the item of a task.
func (h *harness) ordinal(o tasker.Operation, task tasker.ID) string {
	h.Helper()
	var n string
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT ordinal::text FROM tasker.operation_items WHERE operation_uuid = $1 AND task_uuid = $2`, o.UUID, task).Scan(&n))
	return n
}

// What cannot be recreated is left as it is, with its investigation.
func TestWhatIsNotRecreated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	stuck := func(name string) tasker.ID {
		t.Helper()
		h.Template(name, enginetest.Once(enginetest.Step("charge")))
		task := h.Create(name)
		h.work(1, fails("no"))
		return task
	}
	tasks := map[string]tasker.ID{
		"": stuck("plain"), "template_gone": stuck("gone"), "template_cycle": stuck("cycle"), "context_invalid": stuck("context"),
		"changed": stuck("repaired"), "refused": stuck("running"),
	}
	ended := stuck("ended")
	h.Template("rests", enginetest.Once(enginetest.Step("charge")), tasker.StepTemplate{Name: "rest", Type: tasker.WaitStep, Retry: tasker.DefaultRetry(), WaitSeconds: 3600})
	rests := h.Create("rests") // and goes on in an hour
	h.work(1, fails("no"))
	h.act(tasks["refused"], tasker.ResetForRetry)
	o := h.planned(recreating())
	h.act(tasks["changed"], tasker.ResetForRetry)
	status, notes := tasker.EntryManuallyResolved, "seen"
	_, _, err := h.DLQ.Update(t.Context(), h.Entry(ended).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, Actor: "bob"})
	h.Must(err)
	h.Exec(`UPDATE tasker.tasks SET name = 'nothing' WHERE task_uuid = $1`, tasks["template_gone"])
	h.second(tasker.Template{Name: "cycle", Steps: []tasker.StepTemplate{enginetest.Step("charge", "ship"), enginetest.Step("ship", "charge")}})
	h.second(tasker.Template{
		Name: "context", Steps: []tasker.StepTemplate{enginetest.Step("charge")}, InputSchema: []byte(`{"type": "object", "required": ["amount"]}`),
	})
	h.start(o)
	h.release()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 1, tasker.ItemSkipped: 7})
	for outcome, task := range tasks {
		if n := h.Count(`SELECT count(*) FROM tasker.operation_items WHERE operation_uuid = $1 AND task_uuid = $2 AND coalesce(outcome, '') = $3`, o.UUID, task, outcome); n != 1 {
			t.Errorf("the outcome is not %q", outcome)
		}
		if made := len(h.madeOf(task)); outcome != "" && (made != 0 || h.Entry(task).ResolutionStatus != tasker.EntryPending) {
			t.Errorf("%s: %d tasks were made, and the investigation is %s", outcome, made, h.Entry(task).ResolutionStatus)
		}
	}
	if n := h.Count(`SELECT count(*) FROM tasker.operation_items WHERE operation_uuid = $1 AND task_uuid = $2 AND outcome = 'refused'`, o.UUID, rests); n != 1 || len(h.madeOf(rests)) != 0 {
		t.Error("a task was made in the place of one that may go on")
	}
	if len(h.madeOf(ended)) != 0 {
		t.Error("a task was made whose investigation somebody has ended")
	}
	h.wantReplaced(o, tasks[""])
	h.work(10, succeeds)
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 1, tasker.ItemSkipped: 7})
}

// A task that waits for a worker to live goes on no more once another one has its place. An item
// whose new task waits for a worker pauses the operation, and one that was cancelled is skipped.
func TestRecreatedTasksWaitForWorkers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.Create("order")
	h.unserved()
	o := h.started(recreating())
	h.release()
	h.wantReplaced(o, task)
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE task_uuid = $1 AND awaits_worker_since IS NOT NULL`, task); n != 0 {
		t.Error("the old task goes on when a worker lives")
	}
	made := h.madeOf(task)[0]
	h.unserved()
	h.look()
	if now := h.wantCounts(o, tasker.OperationPaused, counts{tasker.ItemReleased: 1}); now.Pause.For != tasker.PausedNoWorker {
		t.Errorf("paused for %s", now.Pause.For)
	}
	h.Must(h.Engine.CancelTask(t.Context(), made, "bob", "r"))
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemSkipped: 1})
}

// An item whose new task is written off while it waits for a worker is skipped: nothing becomes of it
// any more.
func TestARecreatedTaskIsWrittenOff(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.Create("order")
	h.unserved()
	o := h.started(recreating())
	h.release()
	h.wantReplaced(o, task)
	made := h.madeOf(task)[0]
	h.unserved()
	h.look()
	h.wantCounts(o, tasker.OperationPaused, counts{tasker.ItemReleased: 1})
	_, _, err := h.DLQ.Update(t.Context(), h.Entry(made).UUID, tasker.EntryUpdate{Status: new(tasker.EntryPermanentlyFailed), Notes: new("no use"), Actor: "bob"})
	h.Must(err)
	h.look()
	items, _, err := h.DB.OperationItems(t.Context(), o.UUID, tasker.OperationItemFilter{State: tasker.ItemSkipped, Limit: 10})
	h.Must(err)
	if len(items) != 1 || items[0].Outcome != "taken_over" {
		t.Errorf("the items are %+v", items)
	}
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemSkipped: 1})
}

// A new task that fails for another reason than the old one stops the operation, and with it the
// tasks that are not recreated stay as they are.
func TestABadRecreationIsStopped(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(30)
	p := recreating()
	p.Waves = []int{1}
	o := h.started(p)
	h.release()
	h.work(1, fails("another"))
	h.look()
	h.release()
	if now := h.wantCounts(o, tasker.OperationPaused, counts{tasker.ItemFailedAgain: 1, tasker.ItemPlanned: 29}); now.Pause.For != tasker.PausedNewCause {
		t.Errorf("paused for %s", now.Pause.For)
	}
	n := 0
	for _, task := range tasks {
		n += len(h.madeOf(task))
	}
	if n != 1 {
		t.Errorf("%d tasks were made", n)
	}
	h.resume(o)
	for range 6 { // a wave of one, then the rest
		h.releaseDue()
		h.work(100, succeeds)
		h.look()
	}
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemFailedAgain: 1, tasker.ItemVerified: 29})
	h.wantReplaced(o, tasks...)
}

// Whatever statement a server dies at, each task has one successor in the end.
func TestAServerMayDieWhileItRecreates(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	c := &crash{}
	db := enginetest.Open(t, h.URL, postgres.Options{Tracer: c, MaxConns: 2})
	dying := operation.New(db, engine.New(db, engine.Options{}), h.DLQ, operation.Options{})
	hits := 0
	for _, after := range []bool{false, true} {
		for n := firstCrash(after); ; n += crashStep() {
			tasks := h.stuck(3)
			o := h.started(recreating())
			c.arm(n, after)
			_, _ = dying.Release(t.Context())
			died := c.hit.Load()
			c.arm(0, false)
			h.Eventually("another server has gone on", func() bool {
				h.releaseDue()
				h.work(20, succeeds)
				h.look()
				return h.now(o).State == tasker.OperationDone
			})
			h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 3})
			h.wantReplaced(o, tasks...)
			if !died {
				break
			}
			hits++
			if n > 100 {
				t.Fatal("there is no end of statements")
			}
		}
	}
	if hits < 10 {
		t.Errorf("a server died at %d statements only", hits)
	}
}

// Who recreates tasks may create them and end investigations, in every namespace of the plan.
func TestWhoMayRecreate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		grants []access.Grant
		needs  string // that is missing
	}{
		{[]access.Grant{{Role: access.Operator, Namespace: "shop"}, {Role: access.Developer, Namespace: "shop"}}, ""},
		{[]access.Grant{{Role: access.Operator, Namespace: "shop"}}, "tasks:create"},
		{[]access.Grant{{Role: access.Operator, Namespace: "shop"}, {Role: access.Developer, Namespace: "bank"}}, "tasks:create"},
	} {
		caller := access.NewIdentity("ann", tt.grants)
		err := operation.CheckPlanPermission(access.WithPermissionScope(t.Context(), caller, access.OperateSteps), caller,
			tasker.ActRecreate)
		if tt.needs == "" && err != nil || tt.needs != "" && (err == nil || !strings.Contains(err.Error(), tt.needs)) {
			t.Errorf("%v: %v, want %q", tt.grants, err, tt.needs)
		}
	}
}
