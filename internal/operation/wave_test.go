package operation_test

import (
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// turn lets time pass: what may be released is, workers do all of it, and servers look.
func (h *harness) turn(result func(tasker.Assignment) tasker.Outcome) {
	h.Helper()
	h.releaseDue()
	h.work(1000, result)
	h.look()
}

// touched counts the items that were ever released.
func (h *harness) touched(o tasker.Operation) int {
	h.Helper()
	return h.Count(`SELECT count(*) FROM tasker.operation_items WHERE operation_uuid = $1 AND released_at IS NOT NULL`, o.UUID)
}

func inWaves(waves ...int) tasker.OperationPlan {
	p := plan()
	p.Waves = waves
	return p
}

// A wave begins when all steps of the one before have succeeded, and not before.
func TestWaves(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(130)
	o := h.started(inWaves(1, 10, 100))
	for wave, released := range []int{1, 11, 111, 130} {
		for range 3 { // however often servers look
			h.releaseDue()
			h.look()
		}
		if n := h.touched(o); n != released {
			t.Fatalf("in wave %d %d items are released, want %d", wave+1, n, released)
		}
		if now := h.now(o); now.Wave != wave {
			t.Errorf("wave %d is under way, want %d", now.Wave, wave)
		}
		for h.work(1000, succeeds) > 0 { // also what became ready behind
			h.look()
		}
		h.look()
		if wave < 3 {
			h.releaseDue()
		}
	}
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 130})
	if n := h.Count(`SELECT count(DISTINCT wave) FROM tasker.operation_items`); n != 4 {
		t.Errorf("the items have %d waves", n)
	}
}

// A repair that does not help is stopped by the first wave; one that helps the first step
// only reaches eleven of them.
func TestABadRepairIsStopped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		good    int // so many attempts succeed
		touched int
		why     tasker.PauseReason
	}{
		"at once":        {0, 1, tasker.PausedWaveFailed},
		"in the second":  {1, 11, tasker.PausedSameCause},
		"one in the ten": {10, 11, tasker.PausedWaveFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.stuck(60)
			o := h.started(inWaves(1, 10, 100))
			good := tt.good
			for range 8 {
				h.turn(func(a tasker.Assignment) tasker.Outcome {
					if a.Name == "ship" {
						return succeeds(a)
					}
					if good--; good >= 0 {
						return succeeds(a)
					}
					return fails("no")(a)
				})
			}
			now := h.now(o)
			if now.State != tasker.OperationPaused || now.Pause.For != tt.why || h.touched(o) != tt.touched {
				t.Fatalf("it is %s (%+v), and has touched %d", now.State, now.Pause, h.touched(o))
			}
			if now.Pause.Failures < 1 || tt.why == tasker.PausedSameCause && (now.Pause.FailureText != "no" || now.Pause.TaskUUID == nil) {
				t.Errorf("the pause says %+v", now.Pause)
			}
			if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'operation.paused' AND actor = 'tasker' AND data ->> 'paused_for' = $1`, string(tt.why)); n != 1 {
				t.Errorf("%d lines in the audit log", n)
			}
			// The next repair helps: the wave is made again, and then all the rest.
			h.resume(o)
			before := h.touched(o)
			h.releaseDue()
			if n := h.touched(o) - before; n != min(now.Waves[now.Wave], 60-before) {
				t.Errorf("after the resume %d were released in wave %d", n, now.Wave+1)
			}
			for range 8 {
				h.turn(succeeds)
			}
			if now = h.now(o); now.State != tasker.OperationDone || now.Counts[tasker.ItemVerified]+now.Counts[tasker.ItemFailedAgain] != 60 {
				t.Errorf("in the end it is %s: %v", now.State, now.Counts)
			}
		})
	}
}

// The guards count failed attempts also where the step is tried again.
func TestGuardsCountAttempts(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("again", enginetest.Step("charge"))
	for range 30 {
		h.Create("again")
	}
	h.Exec(`UPDATE tasker.workflow_steps SET backoff_base_ms = 60000`)
	h.work(30, fails("no")) // for good
	p := inWaves(1, 10)
	p.Selection.Filter.Name = "again"
	o := h.started(p)
	h.turn(succeeds)
	retryable := func(a tasker.Assignment) tasker.Outcome {
		f := fails("no")(a)
		f.Failure.Retryable = true
		return f
	}
	h.releaseDue()
	h.work(1, retryable)
	h.look()
	h.wantRunning(o)
	h.work(1, retryable)
	h.look()
	h.wantPaused(o, tasker.PausedSameCause, 2)
	now := h.now(o)
	if n := now.Counts[tasker.ItemFailedAgain]; n != 0 {
		t.Errorf("%d are said to have failed again although they are tried again", n)
	}
}

func TestANewCausePauses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		message string
		ignore  bool
		paused  bool
	}{
		"another": {"HTTP 404 for order 1", false, true}, "the same": {"HTTP 503 for order 77001", false, false}, "another, ignored": {"HTTP 404 for order 1", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			for range 8 {
				h.Create("order")
			}
			h.work(8, fails("HTTP 503 for order 4711"))
			p := inWaves(4)
			p.Guards.IgnoreNewCause = tt.ignore
			o := h.started(p)
			h.release()
			h.work(1, fails(tt.message))
			h.look()
			now := h.now(o)
			if paused := now.Pause != nil && now.Pause.For == tasker.PausedNewCause; paused != tt.paused {
				t.Errorf("it is %s, %+v", now.State, now.Pause)
			}
		})
	}
}

// Steps of an operation with a version are taken by workers of that version or a newer one
// only, also when they are tried again; all other steps by every worker.
func TestOnlyNewerWorkersTakeTheSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(12)
	h.Template("again", enginetest.Step("charge"))
	for range 3 {
		h.Create("again")
	}
	h.work(3, fails("no"))
	p := plan()
	p.Guards.WorkerAtLeast = "1.6.0"
	o := h.started(p)
	h.release()
	if now := h.now(o); now.State != tasker.OperationPaused || now.Pause.For != tasker.PausedNoWorker {
		t.Fatalf("without a worker of the version it is %s, %+v", now.State, now.Pause)
	}
	old := h.worker
	h.worker = h.RegisterWorker("run")
	h.Exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour', version = '1.10.2' WHERE worker_uuid = $1`, h.worker)
	newer := h.worker
	h.resume(o)
	h.releaseDue()
	if n := h.touched(o); n != 15 {
		t.Fatalf("%d items are released", n)
	}
	h.Create("order")
	h.Engine = engine.New(h.DB, engine.Options{}) // which knows the versions
	h.worker = old
	if n := h.work(100, succeeds); n != 2 {
		t.Errorf("the older worker takes %d steps, want the two of a task that is none of the operation", n)
	}
	h.worker = newer
	failed := false
	n := h.work(100, func(a tasker.Assignment) tasker.Outcome {
		if a.TaskName == "again" && !failed {
			failed = true
			f := fails("no")(a)
			f.Failure.Retryable = true
			return f
		}
		return succeeds(a)
	})
	h.look()
	if n < 15 || !failed {
		t.Fatalf("the newer worker takes %d steps", n)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() - interval '1 second' WHERE next_retry_at IS NOT NULL`)
	h.Must(h.DB.InTx(h.Context(), func(tx *postgres.Tx) error {
		tasks, _, err := h.DB.TasksWithDueRetries(h.Context(), postgres.RetryMark{}, 10)
		if err == nil {
			_, err = tx.RetryDue(h.Context(), tasks)
		}
		if err == nil {
			_, err = tx.SettleTasks(h.Context(), tasks, postgres.Operator{})
		}
		return err
	}))
	h.worker = old
	if n := h.work(100, succeeds); n != 0 {
		t.Errorf("the older worker takes %d steps that are tried again", n)
	}
	h.worker = newer
	if n := h.work(100, succeeds); n != 1 {
		t.Errorf("the newer worker takes %d steps that are tried again", n)
	}
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 15})
	if n := h.Count(`SELECT count(*) FROM tasker.operation_items i JOIN tasker.workflow_steps s USING (task_uuid, step_uuid) WHERE s.worker_uuid = $1`, old); n != 0 {
		t.Errorf("%d items were executed by the older worker", n)
	}
}

// A handler that names the cause is believed by the guards, as by cases, whatever the messages say.
func TestTheHandlersOwnFingerprintIsTheCause(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for range 8 {
		h.Create("order")
	}
	named := func(message, fingerprint string) func(tasker.Assignment) tasker.Outcome {
		return func(a tasker.Assignment) tasker.Outcome {
			o := fails(message)(a)
			o.Failure.Fingerprint = fingerprint
			return o
		}
	}
	h.work(8, named("HTTP 503 for order 4711", "outage of the gateway"))
	p := inWaves(8)
	p.Guards = tasker.Guards{Tolerate: &tasker.FailureTolerance{Items: 2}}
	o := h.started(p)
	h.release()
	h.work(1, named("connection refused", "outage of the gateway"))
	h.work(1, named("no route to host", "outage of the gateway"))
	h.look()
	h.wantRunning(o)
	h.work(1, named("i/o timeout", "outage of the gateway"))
	h.look()
	h.wantPaused(o, tasker.PausedSameCause, 3)
}

// In the rest single failures are tolerated, and five of one cause are not.
func TestLastWaveToleratesSingleFailures(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(40)
	o := h.started(inWaves(1))
	h.turn(succeeds)
	h.releaseDue()
	h.work(4, fails("no"))
	h.look()
	h.work(10, succeeds)
	h.look()
	if now := h.now(o); now.State != tasker.OperationRunning || now.Wave != 1 {
		t.Fatalf("it is %s in wave %d", now.State, now.Wave+1)
	}
	h.work(1, func(a tasker.Assignment) tasker.Outcome { return fails("no")(a) })
	h.look()
	h.wantPaused(o, tasker.PausedSameCause, 5)
}

func TestWaveTimeoutPauses(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(5)
	o := h.started(inWaves(2))
	h.release()
	h.releaseDue()
	h.wantRunning(o)
	h.Exec(`UPDATE tasker.operations SET wave_since = wave_since - interval '16 minutes'`)
	h.releaseDue()
	h.wantPaused(o, tasker.PausedWaveTimeout, 2)
}

// What no worker takes pauses the operation; it comes back by itself when one lives.
func TestMissingWorkerPauses(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(3)
	o := h.started(inWaves(2))
	h.release()
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - interval '1 hour'`)
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = now() - interval '1 second' WHERE state = 'enqueued'`)
	h.Exec(`UPDATE tasker.ready_steps SET expires_at = now() - interval '1 second'`)
	_, err := h.Engine.ExpireSteps(t.Context())
	h.Must(err)
	h.look()
	now := h.wantCounts(o, tasker.OperationPaused, counts{tasker.ItemPlanned: 1, tasker.ItemReleased: 2})
	if now.Pause.For != tasker.PausedNoWorker {
		t.Errorf("it is paused for %+v", now.Pause)
	}
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now()`)
	_, err = h.Engine.Redispatch(t.Context())
	h.Must(err)
	h.resume(o)
	for range 4 {
		h.turn(succeeds)
	}
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 3})
}

// What somebody else has acted on is left alone, and proves nothing.
func TestItemsChangedByOthersAreSkipped(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(6)
	o := h.planned(inWaves(4))
	act := func(task tasker.ID, r tasker.ActionRequest) {
		t.Helper()
		r.Actor, r.Reason = "bob", "by hand"
		_, err := h.Engine.OperateStep(t.Context(), task, *h.Entry(task).StepUUID, r)
		h.Must(err)
	}
	complete := tasker.ActionRequest{Action: tasker.CompleteManually, Result: []byte(`{}`), Interrupt: true}
	act(tasks[0], tasker.ActionRequest{Action: tasker.ResolveManually}) // planned
	act(tasks[1], tasker.ActionRequest{Action: tasker.ResetForRetry})
	h.start(o)
	h.release()
	h.releaseDue() // others in the place of those that are skipped
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemSkipped: 2, tasker.ItemReleased: 4})
	act(tasks[2], complete) // released
	act(tasks[3], tasker.ActionRequest{Action: tasker.ResolveManually, Interrupt: true})
	h.Must(h.Engine.CancelTask(t.Context(), tasks[4], "bob", "gone"))
	h.look()
	h.work(100, succeeds)
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemSkipped: 5, tasker.ItemVerified: 1})
	got := map[string]int{}
	for _, state := range tasker.ItemStates() {
		items, _, err := h.DB.OperationItems(t.Context(), o.UUID, tasker.OperationItemFilter{State: state, Limit: 10})
		h.Must(err)
		for _, i := range items {
			got[i.Outcome]++
		}
	}
	if got["changed"] != 2 || got["taken_over"] != 2 || got["cancelled"] != 1 || got["completed"] != 1 {
		t.Errorf("outcomes %v", got)
	}
	for _, task := range tasks[:5] {
		if e := h.Entry(task); e.ResolutionStatus != tasker.EntryPending {
			t.Errorf("the investigation of what proves nothing is %s", e.ResolutionStatus)
		}
	}
}

// A step that waits when its task is written off is left to whoever has done that: the operation
// does not wait for it for ever.
func TestATaskIsWrittenOffWhileAStepWaits(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("answered", tasker.StepTemplate{Name: "answer", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry()}, enginetest.Once(enginetest.Step("charge")))
	task := h.Create("answered")
	answer, err := h.DB.StepNamed(t.Context(), task, "answer")
	h.Must(err)
	_, err = h.Engine.CompleteExternal(t.Context(), task, answer, tasker.Outcome{Failure: &tasker.Failure{Message: "no"}}, "desk")
	h.Must(err)
	p := plan()
	p.Selection.Filter.Name = "answered"
	o := h.started(p)
	h.release()
	h.work(1, fails("no"))
	h.look()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 1}) // it may be answered
	_, _, err = h.DLQ.Update(t.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: new(tasker.EntryPermanentlyFailed), Notes: new("no use"), Actor: "bob"})
	h.Must(err)
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemSkipped: 1})
	items, _, err := h.DB.OperationItems(t.Context(), o.UUID, tasker.OperationItemFilter{State: tasker.ItemSkipped, Limit: 10})
	h.Must(err)
	if len(items) != 1 || items[0].Outcome != "taken_over" {
		t.Errorf("the items are %+v", items)
	}
}

// A step whose other branch fails while it is verified leaves an investigation of that.
func TestOtherFailureOpensAnInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("fork", enginetest.Once(enginetest.Step("one")), enginetest.Once(enginetest.Step("two")))
	task := h.Create("fork")
	h.work(1, fails("no"))
	p := plan()
	p.Selection.Filter.Name = "fork"
	o := h.started(p)
	h.release()
	first := h.Entry(task)
	for range 2 {
		h.work(1, func(a tasker.Assignment) tasker.Outcome {
			if a.StepUUID == *first.StepUUID {
				return succeeds(a)
			}
			return fails("another")(a)
		})
	}
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 1})
	next := h.Entry(task)
	if next.UUID == first.UUID || next.ResolutionStatus != tasker.EntryPending || next.PredecessorUUID == nil || *next.PredecessorUUID != first.UUID {
		t.Errorf("the investigation is %+v", next.UUID)
	}
}

func TestResolveAndComplete(t *testing.T) {
	t.Parallel()
	for act, want := range map[tasker.Act]string{tasker.ActResolve: "null", tasker.ActComplete: `{"payment": 1}`} {
		t.Run(string(act), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.stuck(5)
			p := inWaves(2)
			if p.Act = act; act == tasker.ActComplete {
				p.Result = []byte(`{"payment": 1}`)
			}
			o := h.started(p)
			for range 4 {
				h.releaseDue()
				h.look()
			}
			h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 5})
			received := 0
			h.work(10, func(a tasker.Assignment) tasker.Outcome {
				if string(a.DependencyResults["charge"]) == want {
					received++
				}
				return succeeds(a)
			})
			if received != 5 {
				t.Errorf("%d steps received %s", received, want)
			}
		})
	}
}

// A rate is kept, neither more nor less, and what servers were late with is made up for, but
// not more than a second of it.
func TestTheRate(t *testing.T) {
	t.Parallel()
	const each, quarter, rate = 50, 250, 1200 // milliseconds, an item and those that are released at once; a minute
	h := newHarness(t)
	h.stuck(120)
	p := plan()
	p.RatePerMinute = rate
	o := h.started(p)
	milliseconds := func(of string) int {
		return h.Count(`SELECT round(extract(epoch FROM `+of+` - started_at) * 1000) FROM tasker.operations WHERE operation_uuid = $1`, o.UUID)
	}
	passed := 0 // without the clock
	for range 6 {
		_, err := h.ops.Release(t.Context()) // once: a slow machine always has more that is due
		h.Must(err)
		n, next := h.touched(o), milliseconds("next_release_at")
		if n == 0 || next < n*each-passed || next > milliseconds("clock_timestamp()")+quarter {
			t.Fatalf("after %d items and %d ms the next are released after %d ms", n, milliseconds("clock_timestamp()")+passed, next)
		}
		h.Exec(`UPDATE tasker.operations SET next_release_at = next_release_at - $2 * interval '1 millisecond' WHERE operation_uuid = $1`, o.UUID, quarter)
		passed += quarter
	}
	before, since := h.touched(o), milliseconds("clock_timestamp()")
	h.Exec(`UPDATE tasker.operations SET next_release_at = clock_timestamp() - interval '10 s' WHERE operation_uuid = $1`, o.UUID)
	h.release()
	n, took := h.touched(o)-before, milliseconds("clock_timestamp()")-since
	if least, most := 1000/each, (1000+took+quarter)/each; n < least || n > most {
		t.Errorf("after ten seconds without a server %d items are released within %d ms, want %d to %d", n, took, least, most)
	}
}

// An operation applies the actions of steps.
func TestTheActsAreStepActions(t *testing.T) {
	t.Parallel()
	for _, a := range core.StepActions() {
		if got, ok := tasker.Act(a).StepAction(); !ok || got != a {
			t.Errorf("%s is no act", a)
		}
	}
}

// Tasks are cancelled, and investigations that are over are ended, together.
func TestActsOnTasks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(6)
	steps := plan()
	steps.Selection = tasker.OperationSelection{IDs: tasks[:1]}
	held := h.planned(steps)
	p := plan()
	p.Act = tasker.ActCancel
	_, _, err := h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.Conflict, "includes 1 of the selected steps") // a step of a task keeps its task
	_, err = h.ops.Abort(t.Context(), held.UUID, "ann")
	h.Must(err)
	o := h.planned(p)
	_, _, err = h.ops.Plan(t.Context(), steps)
	h.WantCode(err, tasker.Conflict) // and the other way round
	h.act(tasks[5], tasker.ResetForRetry)
	before := h.Contents()
	r := h.dryRun(o, 100)
	if r.WouldRelease != 5 || len(r.Refused) != 1 || r.Refused[0].Outcome != "changed" {
		t.Errorf("the dry run tells %+v", r)
	}
	if h.Contents() != before {
		t.Error("the dry run has changed the database")
	}
	h.start(o)
	h.release()
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 5, tasker.ItemSkipped: 1})
	for _, task := range tasks[:5] {
		if e := h.Entry(task); h.State(task) != tasker.TaskCancelled || e.ResolutionStatus != tasker.EntryManuallyResolved {
			t.Errorf("task is %s, its investigation %s", h.State(task), e.ResolutionStatus)
		}
	}
	if n := h.Count(`SELECT count(*) FROM tasker.step_history WHERE operation_uuid = $1 AND event = 'cancel'`, o.UUID); n != 10 {
		t.Errorf("%d moves to cancelled", n)
	}
	// Of two investigations one is over.
	h.work(100, succeeds)
	more := h.stuck(2)
	h.act(more[0], tasker.ResolveManually)
	h.work(100, succeeds)
	p.Act, p.Selection = tasker.ActEnd, tasker.OperationSelection{IDs: more}
	o = h.started(p)
	h.release()
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 1, tasker.ItemSkipped: 1})
	if a, b := h.Entry(more[0]), h.Entry(more[1]); a.ResolutionStatus != tasker.EntryManuallyResolved || *a.ResolvedBy != "ann" || b.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigations are %s and %s", a.ResolutionStatus, b.ResolutionStatus)
	}
}

// A step that is reset, and of which its template then decides that it does not run, has come
// to its end: the operation is over, and the investigation ends with that.
func TestSkippedStepCompletesItsItem(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("approval", tasker.StepTemplate{
		Name: "answer", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), TimeoutSeconds: 3600, OnTimeout: tasker.TimeoutSkips,
	})
	task := h.Create("approval")
	answer, err := h.DB.StepNamed(t.Context(), task, "answer")
	h.Must(err)
	_, err = h.Engine.CompleteExternal(t.Context(), task, answer, tasker.Outcome{Failure: &tasker.Failure{Message: "the desk is closed"}}, "desk")
	h.Must(err)
	o := h.started(plan())
	h.release()
	h.look()
	h.wantCounts(o, tasker.OperationRunning, map[tasker.ItemState]int64{tasker.ItemReleased: 1})
	h.Exec(`UPDATE tasker.workflow_steps SET wait_until = now() WHERE wait_until IS NOT NULL`)
	_, err = h.Engine.Tick(t.Context())
	h.Must(err)
	h.look()
	h.wantCounts(o, tasker.OperationDone, map[tasker.ItemState]int64{tasker.ItemVerified: 1})
	if e := h.Entry(task); e.ResolutionStatus != tasker.EntryManuallyResolved || !strings.Contains(*e.ResolutionNotes, "was skipped after its release") {
		t.Errorf("the investigation is %s: %v", e.ResolutionStatus, e.ResolutionNotes)
	}
}

// A cause that an operator tolerates on resume does not pause the operation again, and another one does.
func TestAnOperatorToleratesACause(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(60)
	o := h.started(inWaves(1, 10))
	fail := map[int]string{2: "no", 3: "no", 4: "no", 14: "no", 16: "HTTP 404", 17: "HTTP 404"}
	attempt := 0
	result := func(a tasker.Assignment) tasker.Outcome {
		if a.Name == "ship" {
			return succeeds(a)
		}
		if attempt++; fail[attempt] != "" {
			return fails(fail[attempt])(a)
		}
		return succeeds(a)
	}
	paused := func(why tasker.PauseReason, failures int) {
		t.Helper()
		for range 4 {
			h.turn(result)
		}
		now := h.now(o)
		if now.State != tasker.OperationPaused || now.Pause.For != why || now.Pause.Failures != failures || len(now.Pause.Causes) != 1 {
			t.Fatalf("the operation is %s, %+v", now.State, now.Pause)
		}
	}
	paused(tasker.PausedSameCause, 3)
	five := &tasker.FailureTolerance{Percent: 5}
	resumed, err := h.ops.Resume(t.Context(), o.UUID, "ann", tasker.ResumeOptions{Tolerate: five, TolerateCause: true})
	h.Must(err)
	if len(resumed.Tolerated) != 1 || *resumed.Guards.Tolerate != *five {
		t.Errorf("resumed with %v and %v", resumed.Guards.Tolerate, resumed.Tolerated)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'operation.resumed' AND actor = 'ann' AND data ->> 'tolerate' = '5%' AND data -> 'tolerated_causes' = to_jsonb($1::text[])`, resumed.Tolerated); n != 1 {
		t.Errorf("%d audit events", n)
	}
	again, err := h.ops.Resume(t.Context(), o.UUID, "ann", tasker.ResumeOptions{Tolerate: five, TolerateCause: true})
	h.Must(err)
	if again.State != tasker.OperationRunning {
		t.Errorf("the operation is %s", again.State)
	}
	_, err = h.ops.Resume(t.Context(), o.UUID, "ann", tasker.ResumeOptions{Tolerate: &tasker.FailureTolerance{Items: 7}})
	h.WantCode(err, tasker.Conflict, "is running: pause it")
	paused(tasker.PausedSameCause, 2)
	h.resume(o)
	for range 8 {
		h.turn(result)
	}
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 54, tasker.ItemFailedAgain: 6})

	o = h.started(inWaves(1))
	_, err = h.ops.Pause(t.Context(), o.UUID, "ann")
	h.Must(err)
	_, err = h.ops.Resume(t.Context(), o.UUID, "ann", tasker.ResumeOptions{TolerateCause: true})
	h.WantCode(err, tasker.Conflict, "no failure cause to tolerate")
	_, err = h.ops.Resume(t.Context(), o.UUID, "ann", tasker.ResumeOptions{Tolerate: &tasker.FailureTolerance{Percent: 101}})
	h.WantCode(err, tasker.Invalid, "from 0% to 100%, not 101%")
}
