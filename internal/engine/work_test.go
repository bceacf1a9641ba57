package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

// poison makes every change fail that the condition on NEW describes.
func (h *harness) poison(change, condition string) {
	h.Helper()
	fixture.Fail(h, h.Admin(), change, condition)
}

func (h *harness) heal() {
	h.Helper()
	fixture.Heal(h, h.Admin())
}

// deferred returns the kinds of what is set aside of a task, with the failures.
func (h *harness) deferred(task tasker.ID) string {
	h.Helper()
	var list string
	h.Must(h.Admin().QueryRow(h.Context(), `
		SELECT coalesce(string_agg(kind || ' ' || failures, ', '), '') FROM tasker.deferred_work WHERE task_uuid = $1`, task).Scan(&list))
	return list
}

// retryDeferred has the delay pass of what is set aside, and tries it again.
func (h *harness) retryDeferred() {
	h.Helper()
	fixture.DeferredWorkDue(h, h.Admin())
	h.Must(errOf(h.Engine.RetryDeferred(h.Context())))
}

// A dueWork is a kind of work, how it becomes due and how one row of it is made to fail.
type dueWork struct {
	kind     string
	template tasker.StepTemplate                     // of the only step, "one"; zero: two attempts of "run"
	later    bool                                    // the task starts in an hour
	change   string                                  // that fails; empty: an update of a step
	of       string                                  // the task of the changed row; empty: NEW.task_uuid
	due      func(h *harness)                        // makes the work due
	pass     func(h *harness) error                  // nil: Tick
	want     string                                  // after the work is done
	state    func(h *harness, task tasker.ID) string // nil: the state of the step
}

func expireQueued(h *harness) {
	fixture.QueueTTLsExpired(h, h.Admin())
}

func dueWorks() []dueWork {
	step := enginetest.Step("one")
	return []dueWork{
		{kind: postgres.StartTask, later: true, want: "enqueued", due: func(h *harness) { fixture.StartsDue(h, h.Admin()) }},
		{kind: postgres.RetrySteps, want: "enqueued", due: func(h *harness) {
			for _, a := range h.Claim() {
				h.Accepted(failure(a, true))
			}
			h.due()
		}},
		{kind: postgres.ReclaimLease, want: "error", due: func(h *harness) {
			h.Claim()
			fixture.LeasesExpired(h, h.Admin())
		}},
		{kind: postgres.FollowUpReport, want: "complete", due: func(h *harness) {
			list := h.Claim()
			h.poison("UPDATE ON tasker.workflow_steps", "NEW.state = 'complete'")
			h.Succeed(list...)
			h.heal()
			h.Exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '1 minute'`)
		}},
		{kind: postgres.ExpireStep, change: "INSERT ON tasker.tasks_dlq", want: "error", due: expireQueued, pass: func(h *harness) error { return errOf(h.Engine.ExpireSteps(h.Context())) }},
		{kind: postgres.ExpireUnserved, change: "INSERT ON tasker.tasks_dlq", want: "error", pass: func(h *harness) error { return errOf(h.Engine.ExpireUnserved(h.Context())) }, due: func(h *harness) {
			h.Exec(`UPDATE tasker.workers SET left_at = now() - interval '1 hour'`)
			h.waited(2 * time.Minute)
		}},
		{kind: postgres.RedispatchTask, want: "enqueued", pass: func(h *harness) error { return errOf(h.Engine.Redispatch(h.Context())) }, due: func(h *harness) {
			expireQueued(h)
			h.Must(errOf(h.Engine.ExpireSteps(h.Context())))
		}},
		{kind: postgres.DecideSteps, template: when("true", step), want: "enqueued", due: func(*harness) {}},
		{kind: postgres.EndWait, template: waits("one"), want: "complete", due: func(h *harness) {
			h.Exec(`UPDATE tasker.workflow_steps SET wait_until = now()`)
		}},
		{
			kind: postgres.Remind, template: remindedStep(external("one")), want: "1 reminders",
			due: func(h *harness) { h.Exec(`UPDATE tasker.workflow_steps SET remind_at = remind_at - interval '1 hour'`) },
			state: func(h *harness, task tasker.ID) string {
				return fmt.Sprint(len(h.reminders(h.Step(task, "one").UUID)), " reminders")
			},
		},
		{kind: postgres.ChildEnded, template: child("kid", "one"), want: "complete", due: func(h *harness) {
			h.Tick()
			h.Drain()
		}},
		{
			kind: postgres.FindTasks, template: step, change: "INSERT ON tasker.task_attributes", want: "1 attributes",
			due: func(h *harness) { h.Drain() },
			state: func(h *harness, task tasker.ID) string {
				return fmt.Sprint(h.Count(`SELECT count(*) FROM tasker.task_attributes WHERE task_uuid = $1 AND name = 'by'`, task), " attributes")
			},
		},
		{
			kind: postgres.WatchDeadlines, change: "INSERT ON tasker.messages", of: "NEW.subject_id", want: "1 messages",
			due: func(h *harness) {
				h.Exec(`UPDATE tasker.deadlines SET due_at = due_at - interval '2 hours', warn_at = warn_at - interval '2 hours',
					look_at = look_at - interval '2 hours', set_at = set_at - interval '2 hours'`)
			},
			state: func(h *harness, task tasker.ID) string {
				return fmt.Sprint(h.Count(`SELECT count(*) FROM tasker.messages WHERE subject_id = $1`, task), " messages")
			},
		},
	}
}

func TestFailedRowDelaysNoOther(t *testing.T) {
	t.Parallel()
	for _, tt := range dueWorks() {
		t.Run(tt.kind, func(t *testing.T) {
			h := newHarness(t)
			h.Engine = engine.New(h.DB, engine.Options{Leases: engine.LeaseOptions{ReconnectGrace: -1}})
			tt.run(h)
		})
	}
}

func (tt dueWork) run(h *harness) {
	h.Helper()
	if tt.template.Name == "" {
		tt.template = attempts(2, enginetest.Step("one"))
	}
	h.Template("kid", enginetest.Step("work"))
	h.Register(tasker.Template{
		Name: "one", Steps: []tasker.StepTemplate{tt.template}, Search: map[string]tasker.SearchAttribute{"by": {Type: tasker.AttributeText, From: "results.one.by"}},
	})
	request := tasker.NewTask{Namespace: h.Space, Name: "one", DueAfter: time.Hour}
	if tt.later {
		request.StartAt, request.DueAfter = time.Now().Add(30*time.Minute), 0
	}
	if tt.kind != postgres.WatchDeadlines {
		request.DueAfter = 0
	}
	poisoned, sound := h.CreateWith(request), []tasker.ID{h.CreateWith(request), h.CreateWith(request)}
	tt.due(h)
	h.poison(cmp.Or(tt.change, "UPDATE ON tasker.workflow_steps"), fmt.Sprintf("%s = '%s'", cmp.Or(tt.of, "NEW.task_uuid"), poisoned))
	if tt.pass == nil {
		tt.pass = func(h *harness) error { return errOf(h.Engine.Tick(h.Context())) }
	}
	if tt.state == nil {
		tt.state = func(h *harness, task tasker.ID) string { return string(h.Step(task, "one").State) }
	}
	before := tt.state(h, poisoned)
	want := func(failures int) {
		h.Helper()
		equal(h, "the row that fails went from to", tt.state(h, poisoned), before)
		if got := h.deferred(poisoned); got != fmt.Sprint(tt.kind, " ", failures) {
			h.Errorf("set aside is %q, want %d failures", got, failures)
		}
	}
	for range 2 { // the second pass does not retry it
		h.Must(tt.pass(h))
		want(1)
	}
	for _, task := range sound {
		equal(h, "of another task there is", tt.state(h, task), tt.want)
	}
	h.retryDeferred()
	want(2)
	h.heal()
	h.retryDeferred()
	if got := tt.state(h, poisoned); got != tt.want || h.deferred(poisoned) != "" {
		h.Errorf("in the end there is %s, want %s; set aside is %q", got, tt.want, h.deferred(poisoned))
	}
}

func TestPanicDelaysNoOther(t *testing.T) {
	h := newHarness(t)
	h.Engine = engine.New(h.DB, engine.Options{Leases: engine.LeaseOptions{ReconnectGrace: -1}})
	h.Template("one", enginetest.Step("one"))
	at := tasker.NewTask{Namespace: enginetest.Namespace, Name: "one", StartAt: time.Now().Add(time.Hour)}
	first, second := h.CreateWith(at), h.CreateWith(at)
	fixture.StartsDue(h, h.Admin())
	h.Engine.PanicOn(postgres.StartTask, first)
	h.Tick()
	s := h.Step(second, "one")
	check(t, s.State == tasker.StepEnqueued, "the step behind it is %s", s.State)
	h.retryDeferred()
	got := h.deferred(first)
	check(t, got == postgres.StartTask+" 2", "set aside is %q", got)
}

func TestRetriedRowGetsMoreTime(t *testing.T) {
	h := newHarness(t)
	h.Engine = engine.New(h.DB, engine.Options{Leases: engine.LeaseOptions{ReconnectGrace: -1}})
	h.Template("one", enginetest.Step("one"))
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "one", StartAt: time.Now().Add(time.Hour)})
	fixture.StartsDue(h, h.Admin())
	h.Engine.NeedsTime(postgres.StartTask, 13*time.Second)
	h.Tick()
	for _, failures := range []string{"1", "2", "3"} { // of 5, 6 and 12 seconds
		got := h.deferred(task)
		check(t, got == postgres.StartTask+" "+failures, "set aside is %q, want %s failures", got, failures)
		h.retryDeferred()
	}
	if s := h.Step(task, "one"); s.State != tasker.StepEnqueued {
		t.Errorf("with 24 seconds the step is %s; set aside is %q", s.State, h.deferred(task))
	}
}

func TestDeferredPassOutlastsItsLongestRow(t *testing.T) {
	h := newHarness(t)
	loops := h.Engine.Loops()
	i := slices.IndexFunc(loops, func(l *loop.Loop) bool { return l.Name == "deferred work" })
	if most := loops[i].Timeout; most <= engine.LongestDeferral || most >= engine.DeferredHold {
		t.Errorf("a pass has %s; its last row may need %s, and other servers wait %s", most, engine.LongestDeferral, engine.DeferredHold)
	}
}

func TestFailedBatchHidesNoOther(t *testing.T) {
	h := newHarness(t)
	h.Engine.SetBatch(20)
	h.Template("one", attempts(2, enginetest.Step("one")))
	soon := make([]tasker.NewTask, 21)
	for i := range soon {
		soon[i] = tasker.NewTask{Namespace: enginetest.Namespace, Name: "one", StartAt: time.Now().Add(time.Hour)}
	}
	created, err := h.Engine.CreateTasks(t.Context(), soon)
	h.Must(err)
	last := created[20].TaskUUID
	h.Exec(`UPDATE tasker.tasks SET start_at = now() - CASE WHEN task_uuid = $1 THEN interval '1 second' ELSE interval '1 hour' END`, last)
	h.poison("UPDATE ON tasker.workflow_steps", fmt.Sprintf("NEW.task_uuid <> '%s'", last))
	deadline := time.Now().Add(time.Minute)
	for h.State(last) == tasker.TaskPending {
		require(t, !time.Now().After(deadline), "the task behind 20 that cannot be started is not started")
		h.Tick()
	}
}

func TestSlowRowDelaysNoOther(t *testing.T) {
	h := newHarness(t)
	impatient, err := postgres.Open(t.Context(), h.Admin().Config().ConnString(), postgres.Options{StatementTimeout: time.Second})
	h.Must(err)
	t.Cleanup(impatient.Close)
	h.Engine = newEngine(impatient, engine.Options{})
	h.Template("one", attempts(2, enginetest.Step("one")))
	slow, sound := h.Create("one"), h.Create("one")
	h.Claim()
	fixture.LeasesExpired(h, h.Admin())
	fixture.Slow(h, h.Admin(), time.Minute, "UPDATE ON tasker.workflow_steps", fmt.Sprintf("NEW.task_uuid = '%s'", slow))
	h.Tick()
	h.WantStep(sound, "one", tasker.StepError, 1)
	got := h.deferred(slow)
	check(t, got == postgres.ReclaimLease+" 1", "set aside is %q", got)
	h.heal()
	h.retryDeferred()
	h.WantStep(slow, "one", tasker.StepError, 1)
}

func TestDeferredRowIsLoggedOnce(t *testing.T) {
	h := newHarness(t)
	var log strings.Builder
	h.Engine = engine.New(h.DB, engine.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	h.Template("one", attempts(2, enginetest.Step("one")))
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "one", StartAt: time.Now().Add(time.Hour)})
	fixture.StartsDue(h, h.Admin())
	h.poison("UPDATE ON tasker.workflow_steps", "true")
	for range 5 {
		h.Tick()
	}
	if said := log.String(); strings.Count(said, "broken") != 1 || !strings.Contains(said, task.String()) {
		t.Errorf("five passes said:\n%s", said)
	}
}

func TestLockedTaskHidesNoOther(t *testing.T) {
	h := newHarness(t)
	h.Template("rest", waits("a"), waits("b"), waits("c"))
	held, other := h.Create("rest"), h.Create("rest")
	h.Exec(`UPDATE tasker.workflow_steps SET wait_until = now() - CASE WHEN task_uuid = $1 THEN interval '2 hours' ELSE interval '1 hour' END`, held)
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	h.Must(errOf(tx.Exec(t.Context(), `SELECT FROM tasker.tasks WHERE task_uuid = $1 FOR NO KEY UPDATE`, held)))
	h.Engine.SetBatch(2)
	h.Must(h.Engine.Passes(t.Context(), postgres.EndWait, 5))
	h.WantState(other, tasker.TaskComplete)
	h.WantState(held, tasker.TaskWaitingForDependencies)
	h.Must(tx.Rollback(t.Context()))
	h.Must(h.Engine.Passes(t.Context(), postgres.EndWait, 2))
	h.WantState(held, tasker.TaskComplete)
}

// Loops that each wait for a second connection would wait for each other.
func TestDueWorkNeedsOneConnection(t *testing.T) {
	h := newHarness(t)
	h.family()
	task, kid := h.started()
	h.Cancel(kid)
	h.Template("rest", waits("wait"))
	h.Template("approve", remindedStep(external("answer")))
	rest, approve := h.Create("rest"), h.Create("approve")
	h.Exec(`UPDATE tasker.workflow_steps SET remind_at = remind_at - interval '1 hour', wait_until = wait_until - interval '7 days' WHERE step_type IN ('wait', 'external')`)
	db := enginetest.Open(t, h.URL, postgres.Options{MaxConns: 1})
	ctx := wrapPath(t, time.Minute)
	for _, kind := range []string{postgres.EndWait, postgres.Remind, postgres.ChildEnded} {
		e := newEngine(db, engine.Options{})
		h.Must(errOf(e.Pass(ctx, kind)))
	}
	h.WantState(rest, tasker.TaskComplete)
	h.wantReminders(approve, "answer", 1, time.Hour)
	h.WantStep(task, "archive", tasker.StepError, 0)
}

func TestSeveralServersDoDueWorkOnce(t *testing.T) {
	h := newHarness(t)
	h.Template("kid", enginetest.Step("work"))
	h.Register(tasker.Template{Name: "all", Steps: []tasker.StepTemplate{
		when("true", enginetest.Step("decided")), waits("waits"), remindedStep(external("reminded")), child("kid", "child"), enginetest.Step("end", "child", "decided"),
	}})
	const tasks = 20
	for range tasks {
		h.Create("all")
	}
	h.Exec(`UPDATE tasker.workflow_steps SET wait_until = now() WHERE name = 'waits'`)
	h.Exec(`UPDATE tasker.workflow_steps SET remind_at = remind_at - interval '1 hour' WHERE remind_at IS NOT NULL`)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, e := range []*engine.Engine{h.Engine, newEngine(h.DB, engine.Options{}), newEngine(h.DB, engine.Options{})} {
		running.Go(func() {
			for ctx.Err() == nil {
				if _, err := e.Tick(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	h.Eventually("all is done", func() bool {
		h.Drain()
		return h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE name IN ('end', 'waits') AND state = 'complete'`) == 2*tasks &&
			h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE reminders > 0`) == tasks
	})
	stop()
	running.Wait()
	h.WantCount(2*tasks, `SELECT count(*) FROM tasker.tasks`)
	h.WantCount(tasks, `SELECT count(*) FROM tasker.messages WHERE topic = 'step.reminder'`)
	h.WantCount(5*tasks, `SELECT count(*) FROM tasker.workflow_step_transitions WHERE event IN ('enqueue', 'elapse', 'complete_child')`)
	h.wantRows(0, "deferred_work")
}
