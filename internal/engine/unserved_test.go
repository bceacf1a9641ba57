package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// waited makes it so that all enqueued steps have waited for a while.
func (h *harness) waited(d time.Duration) {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET state_since = clock_timestamp() - $1::interval, expires_at = clock_timestamp() - $1::interval + interval '5 minutes' WHERE state = 'enqueued'`, d)
}

// leaveLongAgo has the worker leave, as of an hour ago.
func (h *harness) leaveLongAgo() {
	h.Helper()
	h.leave()
	h.Exec(`UPDATE tasker.workers SET left_at = now() - interval '1 hour'`)
}

// unserved creates a task whose only step has waited for a time in which no worker was alive.
func (h *harness) unserved(waited time.Duration) tasker.ID {
	h.Helper()
	h.Template("only", enginetest.Step("only"))
	h.leaveLongAgo()
	task := h.Create("only")
	h.waited(waited)
	return task
}

func (h *harness) expireUnserved() int {
	h.Helper()
	n, err := h.Engine.ExpireUnserved(h.Context())
	h.Must(err)
	return n
}

func TestStepWithoutLiveWorkerFailsAfterAMinute(t *testing.T) {
	h := newHarness(t)
	task := h.unserved(40 * time.Second)
	if n := h.expireUnserved(); n != 0 {
		t.Fatalf("%d steps failed within the minute", n)
	}
	h.waited(61 * time.Second)
	if n := h.expireUnserved(); n != 1 {
		t.Fatalf("%d steps failed, want 1", n)
	}
	h.WantState(task, tasker.TaskError)
	h.WantStep(task, "only", tasker.StepError, 0)
	var failure tasker.StepFailure
	h.Must(json.Unmarshal(h.Step(task, "only").Error, &failure))
	if want := "no worker is alive: for 60 s there was none for handler run of namespace shop"; failure.Type != tasker.QueueExpiry || failure.Message != want {
		t.Errorf("the step says %+v", failure)
	}
	e := h.Entry(task)
	if e.Reason != tasker.WorkerUnavailable || e.DetailCode != tasker.NoWorkers || e.DetectedBy != tasker.DetectedSweep ||
		e.StepUUID == nil || *e.StepUUID != h.Step(task, "only").UUID {
		t.Errorf("the investigation is %+v", e)
	}
	var evidence struct {
		Dispatch struct {
			LiveWorkers *int      `json:"live_workers"`
			NoWorkerFor int       `json:"no_live_worker_for_ms"`
			TTL         int       `json:"worker_queue_ttl_ms"`
			ExpiresAt   time.Time `json:"expires_at"`
			Returns     bool      `json:"returns_when_a_worker_lives"`
		}
	}
	h.Must(json.Unmarshal(e.Metadata, &evidence))
	if d := evidence.Dispatch; d.LiveWorkers == nil || *d.LiveWorkers != 0 || d.NoWorkerFor != 60_000 || d.TTL != 300_000 || !d.ExpiresAt.After(e.At) || !d.Returns {
		t.Errorf("evidence %s", e.Metadata)
	}
	h.comeBack()
	h.WantStep(task, "only", tasker.StepEnqueued, 1)
	if e := h.Entry(task); e.RecoveredAt == nil {
		t.Error("the investigation is not recovered")
	}
	h.Complete("only")
	h.WantState(task, tasker.TaskComplete)
}

func TestWorkersMayRestartWithinAMinute(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	for name, tt := range map[string]struct {
		workers string // what has become of the only worker
		want    int
	}{
		"alive":                     {`SET last_heartbeat_at = now()`, 0},
		"left 40 s ago":             {`SET left_at = now() - interval '40 seconds'`, 0},
		"left 61 s ago":             {`SET left_at = now() - interval '61 seconds'`, 1},
		"drained 40 s ago":          {`SET draining_since = now() - interval '40 seconds'`, 0},
		"drained 61 s ago":          {`SET draining_since = now() - interval '61 seconds'`, 1},
		"drained, then left":        {`SET draining_since = now() - interval '61 seconds', left_at = now() - interval '30 seconds'`, 1},
		"silent for 40 s":           {`SET heartbeat_interval = interval '10 seconds', last_heartbeat_at = now() - interval '70 seconds'`, 0},
		"silent for 61 s":           {`SET heartbeat_interval = interval '10 seconds', last_heartbeat_at = now() - interval '91 seconds'`, 1},
		"of another handler":        {`SET handlers = '{other}'`, 1},
		"of another namespace":      {`SET namespaces = '{other}'`, 1},
		"gone for hours, forgotten": {`SET left_at = now(), last_heartbeat_at = now() - interval '3 hours', heartbeat_interval = interval '10 seconds'`, 1},
	} {
		h.each(name, func(h *harness) {
			h.Exec(`DELETE FROM tasker.workers`)
			h.Worker = h.RegisterWorker("run")
			task := h.Create("only")
			h.waited(4 * time.Minute)
			h.Exec(`UPDATE tasker.workers ` + tt.workers)
			equal(h, "steps failed", h.expireUnserved(), tt.want)
			want := map[int]tasker.StepState{0: tasker.StepEnqueued, 1: tasker.StepError}[tt.want]
			equal(h, "the step is", h.Step(task, "only").State, want)
			h.Cancel(task)
		})
	}
}

func TestWorkerThatRegistersInTimePreventsExpiry(t *testing.T) {
	h := newHarness(t)
	task := h.unserved(2 * time.Minute)
	after := time.Minute
	found, err := h.DB.UnservedSteps(t.Context(), after, 10)
	h.Must(err)
	require(t, len(found) == 1, "found %v", found)
	h.Worker = h.RegisterWorker("run")
	h.Must(h.DB.InTx(t.Context(), func(tx *postgres.Tx) error {
		expired, err := tx.ExpireSteps(t.Context(), found, 3, &after)
		check(t, len(expired) == 0, "expired %+v", expired)
		return err
	}))
	h.WantStep(task, "only", tasker.StepEnqueued, 1)
}

func TestUnservedStepsOfAllQueuesAreFound(t *testing.T) {
	h := newHarness(t)
	h.leaveLongAgo()
	h.Worker = h.RegisterWorker("served")
	for _, handler := range []string{"a", "b", "served"} {
		s := enginetest.Step("only")
		s.Handler.Callable = handler
		h.Template(handler, s)
		for priority := range 3 {
			h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: handler, Priority: priority - 1})
		}
	}
	h.Exec(`UPDATE tasker.workflow_steps SET state_since = clock_timestamp() - interval '2 minutes' + make_interval(secs => priority)`)
	h.Exec(`UPDATE tasker.workflow_steps SET state_since = clock_timestamp() WHERE handler = 'b' AND priority = 0`)
	found, err := h.DB.UnservedSteps(t.Context(), time.Minute, 100)
	h.Must(err)
	var got []string
	for _, f := range found {
		var s string
		h.Must(h.DB.Pool().QueryRow(t.Context(), `SELECT handler || priority FROM tasker.workflow_steps WHERE step_uuid = $1`, f.StepUUID).Scan(&s))
		got = append(got, s)
	}
	slices.Sort(got[:2])
	want := "[a-1 b-1 a0"
	check(t, len(got) == 5 && fmt.Sprint(got)[:len(want)] == want, "found %v", got)
	if first, err := h.DB.UnservedSteps(t.Context(), time.Minute, 2); err != nil || len(first) != 2 {
		t.Errorf("the first two: %v, %v", first, err)
	}
	equal(t, "failed steps", h.expireUnserved(), 5)
}

func TestNoStepExpiresRightAfterAStartOrAnOutage(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(h *harness){
		"queue limits": expireQueued,
		"queues without workers": func(h *harness) {
			h.Exec(`UPDATE tasker.workers SET left_at = now() - interval '1 hour'`)
			h.waited(4 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSingle(t)
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			e := newEngine(h.DB, engine.Options{Now: func() time.Time { return now }})
			expires := loopOf(t, e.Loops(), name)
			for _, outage := range []time.Duration{0, 2 * engine.DefaultLease} {
				task := h.Create("single")
				late(h)
				now = now.Add(outage)
				for _, wait := range []time.Duration{0, engine.DefaultLease - time.Second, time.Second} {
					now = now.Add(wait)
					h.Must(errOf(expires.Pass(t.Context())))
					if got := h.Step(task, "one").State; (got == tasker.StepError) != (wait == time.Second) {
						t.Errorf("after %s more the step is %s", wait, got)
					}
				}
			}
		})
	}
}

func TestUnservedScanCanBeDisabled(t *testing.T) {
	h := newHarness(t)
	h.Template("waits", enginetest.Step("waits"))
	h.Create("waits")
	for after, want := range map[time.Duration]time.Duration{-1: 0, 0: 5 * time.Second, 3 * time.Second: 500 * time.Millisecond, time.Second: 250 * time.Millisecond} {
		e := newEngine(h.DB, engine.Options{Queues: engine.QueueOptions{UnservedTimeout: after}, Leases: engine.LeaseOptions{ReconnectGrace: -1}})
		loops := e.Loops()
		every := time.Duration(0)
		for _, name := range []string{"due work", "queues without workers"} {
			if i := slices.IndexFunc(loops, func(l *loop.Loop) bool { return l.Name == name }); i >= 0 {
				next, err := loops[i].Pass(t.Context())
				h.Must(err)
				if name != "due work" {
					every = next
				}
			}
		}
		check(t, every == want, "for %s: every %s while a step waits, want %s", after, every, want)
	}
	h.unserved(4 * time.Minute)
	if n, err := newEngine(h.DB, engine.Options{Queues: engine.QueueOptions{UnservedTimeout: -1}}).ExpireUnserved(t.Context()); n != 0 || err != nil {
		t.Errorf("%d failed, %v", n, err)
	}
}

func TestDeferredStepsWaitForTheGrace(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{postgres.ExpireStep, postgres.ExpireUnserved} {
		t.Run(kind, func(t *testing.T) {
			h := newHarness(t)
			task := h.unserved(6 * time.Minute) // its limit is over as well
			h.Exec(`INSERT INTO tasker.deferred_work (kind, task_uuid, step_uuid, failures, first_failed_at, retry_at, last_error)
				SELECT $1, task_uuid, step_uuid, 1, now(), now(), 'broken' FROM tasker.workflow_steps`, kind)
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			h.Engine = newEngine(h.DB, engine.Options{Now: func() time.Time { return now }})
			h.Must(errOf(loopOf(t, h.Engine.Loops(), "queue limits").Pass(t.Context()))) // the server has just started
			h.retryDeferred()
			h.WantStep(task, "only", tasker.StepEnqueued, 1)
			now = now.Add(engine.DefaultLease)
			h.retryDeferred()
			h.WantStep(task, "only", tasker.StepError, 0)
		})
	}
}
