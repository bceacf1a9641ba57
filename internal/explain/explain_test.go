package explain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A harness is an engine whose tasks are explained.
type harness struct {
	*enginetest.Harness
	service *explain.Service
	worker  tasker.ID
	log     bytes.Buffer
	unknown int
}

// newHarness returns a harness without workers. There are templates with two steps in a row,
// of one attempt (chain) and of two (twice), with an external one (asks), and with two
// steps that a third waits for (fork).
func newHarness(t *testing.T) *harness {
	t.Helper()
	return with(enginetest.New(t))
}

func with(e *enginetest.Harness) *harness {
	e.Helper()
	h := &harness{Harness: e}
	h.service = explain.New(e.DB, explain.Options{Log: slog.New(slog.NewTextHandler(&h.log, nil)), Unknown: func(context.Context) { h.unknown++ }})
	once, step := enginetest.Once, enginetest.Step
	h.Template("chain", once(step("charge")), once(step("ship", "charge")), once(step("notify", "ship")))
	twice := step("charge")
	twice.Retry = tasker.Retry{Retryable: true, MaxAttempts: 2, Backoff: tasker.ConstantBackoff, BaseMS: 600_000, MaxBackoffMS: 600_000}
	h.Template("twice", twice, once(step("ship", "charge")))
	outside := tasker.StepTemplate{Name: "approve", Type: tasker.ExternalStep, Dependencies: []string{"charge"}, Retry: tasker.DefaultRetry()}
	h.Template("asks", once(step("charge")), outside, once(step("ship", "approve")))
	h.Template("fork", once(step("a")), once(step("b")), once(step("c", "a", "b")), once(step("d", "c")))
	return h
}

// each creates a task with one step for each item of a list, and has its items made. At most
// parallel are in progress at once; 0: all.
func (h *harness) each(items string, parallel int) tasker.ID {
	h.Helper()
	s := enginetest.Step("each")
	s.Type, s.Over, s.MaxParallel = tasker.MapStep, items, parallel
	h.Template("each", s)
	id := h.Create("each")
	_, err := h.Engine.Tick(h.Context())
	h.Must(err)
	return id
}

// employ registers the worker, which is alive for an hour.
func (h *harness) employ() {
	h.Helper()
	h.worker = h.RegisterWorker("run")
	h.Exec(`UPDATE tasker.workers SET name = 'payments-7', version = '1.5.0', heartbeat_interval = interval '10 minutes', lease = interval '1 hour' WHERE worker_uuid = $1`, h.worker)
}

func (h *harness) claim(n int) []tasker.Assignment {
	h.Helper()
	list, err := h.Engine.Claim(h.Context(), h.worker, n, 0)
	h.Must(err)
	return list
}

func (h *harness) report(a tasker.Assignment, failure *tasker.Failure) {
	h.Helper()
	o := tasker.Outcome{Lease: a.Lease(), Failure: failure}
	if failure == nil {
		o.Success, o.Result = true, json.RawMessage(`{}`)
	}
	r, err := h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{o}, 0)
	h.Must(err)
	if len(r.Accepted) != 1 {
		h.Fatalf("receipt %+v", r)
	}
}

// fail has the next steps fail.
func (h *harness) fail(n int, message string, retryable bool) {
	h.Helper()
	for _, a := range h.claim(n) {
		h.report(a, &tasker.Failure{Type: "GatewayError", Message: message, Retryable: retryable})
	}
}

func (h *harness) succeed(n int) {
	h.Helper()
	for _, a := range h.claim(n) {
		h.report(a, nil)
	}
}

func (h *harness) step(task tasker.ID, name string) tasker.Step {
	h.Helper()
	list, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	h.Fatalf("no step %s", name)
	return tasker.Step{}
}

func (h *harness) operate(task tasker.ID, name string, action tasker.StepAction) {
	h.Helper()
	_, err := h.Engine.OperateStep(h.Context(), task, h.step(task, name).UUID, tasker.ActionRequest{Action: action, Actor: "ann", Reason: "r", Interrupt: true})
	h.Must(err)
}

func (h *harness) end(task tasker.ID, status tasker.ResolutionStatus) {
	h.Helper()
	_, _, err := h.DLQ.Update(h.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: new("n"), ResolvedBy: new("ann")})
	h.Must(err)
}

func (h *harness) explain(id tasker.ID) tasker.Explanation {
	h.Helper()
	e, err := h.service.Explain(h.Context(), id)
	h.Must(err)
	return e
}

// A want is an explanation in short: since when is an instant of the database, that of a query.
type want struct {
	fact     tasker.ConditionReason
	turn     tasker.NextActor
	sentence []string // words of it, in their order
	unblocks string   // words of it
	since    string   // an expression of one task (t) and its step (s)
	step     string   // the name of s
}

func (h *harness) is(e tasker.Explanation, w want) {
	h.Helper()
	if e.Reason != w.fact || e.NextActor != w.turn || !strings.Contains(e.Remedy, w.unblocks) {
		h.Errorf("fact %s, turn %s, unblocks %q; want %s, %s, %q; %s", e.Reason, e.NextActor, e.Remedy, w.fact, w.turn, w.unblocks, e.Message)
	}
	if of := explain.TurnsOf(e.Reason); e.Reason != tasker.ConditionEmpty && e.Kind != tasker.ExplainedOperation && !slices.Contains(of, e.NextActor) {
		h.Errorf("fact %s has the turn %s, and the documents say %v", e.Reason, e.NextActor, of)
	}
	if !ordered(e.Message, w.sentence) || !strings.HasSuffix(e.Message, ".") {
		h.Errorf("sentence %q, want %q in it", e.Message, w.sentence)
	}
	if age := time.Since(e.AsOf); age < -time.Minute || age > time.Minute {
		h.Errorf("as of %s", e.AsOf)
	}
	if w.since == "" {
		return
	}
	var since time.Time
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT `+w.since+` FROM tasker.tasks t JOIN tasker.workflow_steps s USING (task_uuid) WHERE t.task_uuid = $1 AND (s.name = $2 OR $2 = '') LIMIT 1`, e.TaskUUID, w.step).Scan(&since))
	if e.Since == nil || !e.Since.Equal(since) {
		h.Errorf("since %v, want %s (%s): %s", e.Since, since, w.since, e.Message)
	}
}

// ordered reports whether words are in a text, one behind the other.
func ordered(text string, words []string) bool {
	for _, w := range words {
		_, after, found := strings.Cut(text, w)
		if !found {
			return false
		}
		text = after
	}
	return true
}

// Each fact of tasks and steps is driven for real. The story returns the task.
func TestEachFact(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		story  func(h *harness) tasker.ID
		want   want
		ofStep string // explain this step instead of the task
	}{
		"complete": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			for range 3 {
				h.succeed(1)
			}
			return id
		}, want{tasker.ConditionEnded, tasker.NextNone, []string{"The task is complete since 20"}, "", "t.state_since", ""}, ""},
		"cancelled": {func(h *harness) tasker.ID {
			id := h.Create("chain")
			h.Must(h.Engine.CancelTask(h.Context(), id, "anna", "not needed"))
			return id
		}, want{tasker.ConditionEnded, tasker.NextNone, []string{"The task was cancelled at 20", " by anna."}, "", "t.state_since", ""}, ""},
		"a step of a live task is complete": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.succeed(1)
			return id
		}, want{tasker.ConditionEnded, tasker.NextNone, []string{"Step charge is complete since"}, "", "s.state_since", "charge"}, "charge"},
		"a step was resolved": {func(h *harness) tasker.ID {
			id := h.Create("chain")
			h.operate(id, "charge", tasker.ResolveManually)
			return id
		}, want{tasker.ConditionEnded, tasker.NextNone, []string{"Step charge was resolved by hand at"}, "", "s.state_since", "charge"}, "charge"},
		"a step is about to be decided": {func(h *harness) tasker.ID {
			h.conditions()
			return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "conditions", Context: json.RawMessage(`{"go": false}`)})
		}, want{tasker.ConditionDecision, tasker.NextServer, []string{"Step first is about to be decided since 20"}, "within a second", "s.decide_at", "first"}, ""},
		"a decision fails": {func(h *harness) tasker.ID {
			h.conditions()
			id := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "conditions", Context: json.RawMessage(`{"go": true}`)})
			h.Exec(`CREATE FUNCTION tasker.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
			h.Exec(`CREATE TRIGGER broken BEFORE UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.state = 'enqueued') EXECUTE FUNCTION tasker.broken()`)
			_, _ = h.Engine.Tick(h.Context())
			return id
		}, want{tasker.ConditionDecision, tasker.NextServer, []string{"is about to be decided", "failed once and is tried again at 20"}, "within a second", "s.decide_at", "first"}, ""},
		"nobody has answered yet": {func(h *harness) tasker.ID {
			h.Template("asked", tasker.StepTemplate{Name: "answer", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), TimeoutSeconds: 7200})
			return h.Create("asked")
		}, want{tasker.ConditionExternal, tasker.NextExternal, []string{"Step answer waits for an outcome from outside since 20", ", until its timeout at 20"}, "completes it by hand", "s.state_since", "answer"}, ""},
		"nobody has answered in time": {func(h *harness) tasker.ID {
			h.Template("asked", tasker.StepTemplate{Name: "answer", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), TimeoutSeconds: 7200})
			id := h.Create("asked")
			h.Exec(`UPDATE tasker.workflow_steps SET wait_until = now() - interval '1 minute' WHERE wait_until IS NOT NULL`)
			return id
		}, want{tasker.ConditionExternal, tasker.NextServer, []string{"waits for an outcome from outside since 20", ", and its timeout was at 20"}, "must end the wait", "s.wait_until", "answer"}, ""},
		"a step waits for an instant": {func(h *harness) tasker.ID {
			h.Template("cools", tasker.StepTemplate{Name: "cool", Type: tasker.WaitStep, Retry: tasker.DefaultRetry(), WaitSeconds: 7200})
			return h.Create("cools")
		}, want{tasker.ConditionWait, tasker.NextTimer, []string{"Step cool waits until 20"}, "complete or resolve it", "s.state_since", "cool"}, ""},
		"a step waits for its items": {func(h *harness) tasker.ID {
			h.employ()
			id := h.each("[1, 2, 3]", 0)
			h.fail(1, "no", false)
			return id
		}, want{tasker.ConditionItems, tasker.NextWorker, []string{"Step each waits for 3 of its 3 items; 2 are enqueued; 1 have failed for good."}, "Workers report", "s.state_since", "each"}, "each"},
		"the items of a step are tried again": {func(h *harness) tasker.ID {
			h.employ()
			id := h.each("[1]", 0)
			h.fail(1, "no", true)
			return id
		}, want{tasker.ConditionItems, tasker.NextTimer, []string{"Step each waits for 1 of its 1 item; 1 are tried again."}, "by themselves", "s.state_since", "each"}, "each"},
		"an item waits for a place": {func(h *harness) tasker.ID {
			return h.each("[1, 2]", 1)
		}, want{tasker.ConditionItems, tasker.NextWorker, []string{"Step each[1] waits for a place"}, "another item of its step has ended", "s.state_since", "each[1]"}, "each[1]"},
		"the wait of a step is not ended": {func(h *harness) tasker.ID {
			h.Template("cools", tasker.StepTemplate{Name: "cool", Type: tasker.WaitStep, Retry: tasker.DefaultRetry(), WaitSeconds: 7200})
			id := h.Create("cools")
			h.Exec(`UPDATE tasker.workflow_steps SET wait_until = now() - interval '2 minutes' WHERE wait_until IS NOT NULL`)
			return id
		}, want{tasker.ConditionWait, tasker.NextServer, []string{"waited until 20", "ago"}, "tasker-ctl health", "s.wait_until", "cool"}, ""},
		"a step is skipped": {func(h *harness) tasker.ID {
			h.conditions()
			id := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "conditions", Context: json.RawMessage(`{"go": false}`)})
			_, _ = h.Engine.Tick(h.Context())
			return id
		}, want{tasker.ConditionEnded, tasker.NextNone, []string{"Step first was skipped at 20", ": condition is false: context.go."}, "", "s.state_since", "first"}, "first"},
		"written off": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.fail(1, "no", false)
			h.end(id, tasker.EntryPermanentlyFailed)
			return id
		}, want{tasker.ConditionEnded, tasker.NextNone, []string{"The task was written off at 20", " by ann: no repair is possible."}, "", "", ""}, ""},
		"not started": {func(h *harness) tasker.ID {
			return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "chain", StartAt: time.Now().Add(time.Hour)})
		}, want{tasker.ConditionNotStarted, tasker.NextTimer, []string{"The task starts at 20"}, "by itself", "t.created_at", ""}, ""},
		"a step of a task that is not started": {func(h *harness) tasker.ID {
			return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "chain", StartAt: time.Now().Add(time.Hour)})
		}, want{tasker.ConditionNotStarted, tasker.NextTimer, []string{"The task starts at 20"}, "by itself", "t.created_at", ""}, "ship"},
		"requests are merged into it": {func(h *harness) tasker.ID {
			return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "chain", Debounce: tasker.Debounce{Key: "k", Wait: time.Hour}, StartWithin: time.Hour})
		}, want{tasker.ConditionNotStarted, tasker.NextTimer, []string{"The task waits for more requests to merge and starts at 20", "0 requests merged so far"}, "debounce key", "t.created_at", ""}, ""},
		"nobody began it": {func(h *harness) tasker.ID {
			id := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "chain", StartBy: time.Now().Add(-time.Second)})
			_, _ = h.Engine.Tick(h.Context())
			return id
		}, want{tasker.ConditionEnded, tasker.NextNone, []string{"The task ended as expired at 20", "no step of it was claimed in time"}, "", "t.state_since", ""}, ""},
		"the start is late": {func(h *harness) tasker.ID {
			id := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "chain", StartAt: time.Now().Add(time.Hour)})
			h.Exec(`UPDATE tasker.tasks SET start_at = now() - interval '40 seconds'`)
			return id
		}, want{tasker.ConditionNotStarted, tasker.NextServer, []string{"The task was to start at", " ago, and no server has started it"}, "tasker-ctl health", "t.start_at", ""}, ""},
		"cycle": {func(h *harness) tasker.ID {
			h.Template("loop", enginetest.Step("a", "c"), enginetest.Step("b", "a"), enginetest.Step("c", "b"), enginetest.Step("d"))
			return h.Create("loop")
		}, want{tasker.ConditionCycle, tasker.NextOperator, []string{"The task can never run: steps form a dependency cycle: ", " -> "}, "Register a version without the cycle", "t.state_since", ""}, ""},
		"a step in a cycle": {func(h *harness) tasker.ID {
			h.Template("loop", enginetest.Step("a", "c"), enginetest.Step("b", "a"), enginetest.Step("c", "b"), enginetest.Step("d"))
			return h.Create("loop")
		}, want{tasker.ConditionCycle, tasker.NextOperator, []string{"The task can never run"}, "", "t.state_since", ""}, "b"},
		"a result is kept": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			list := h.claim(1)
			h.Exec(`CREATE FUNCTION tasker.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
			h.Exec(`CREATE TRIGGER broken BEFORE UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.state = 'complete') EXECUTE FUNCTION tasker.broken()`)
			h.report(list[0], nil)
			h.Exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '1 minute' WHERE state = 'enqueued_for_orchestration'`)
			_, _ = h.Engine.Tick(h.Context())
			return id
		}, want{tasker.ConditionResultPending, tasker.NextServer, []string{"Step charge has delivered its result", "failed once and is tried again at 20"}, "automatically", "s.state_since", "charge"}, ""},
		"failed": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.fail(1, "status 503 of order 17", false)
			return id
		}, want{tasker.ConditionFailed, tasker.NextOperator, []string{"Step charge failed for good at 20", "after 1 of 1 attempt, on payments-7 (1.5.0): GatewayError: status 503 of order 17."}, "reset the step", "s.state_since", "charge"}, ""},
		"failed, and the sweep will find it": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.fail(1, "no", false)
			h.end(id, tasker.EntryManuallyResolved)
			return id
		}, want{tasker.ConditionNotInvestigated, tasker.NextTimer, []string{"Step charge failed for good", "the sweep opens an investigation at 20"}, "The sweep", "s.state_since", "charge"}, ""},
		"failed, and the sweep is late": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.fail(1, "no", false)
			h.end(id, tasker.EntryManuallyResolved)
			h.Exec(`UPDATE tasker.tasks SET attend_by = now() - interval '1 minute'`)
			return id
		}, want{tasker.ConditionNotInvestigated, tasker.NextServer, []string{"the sweep was to open an investigation at 20"}, "tasker-ctl health", "s.state_since", "charge"}, ""},
		"failed beside a step that goes on, and its investigation ended": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("fork")
			h.fail(1, "no", false)
			h.end(id, tasker.EntryManuallyResolved)
			return id
		}, want{tasker.ConditionNotInvestigated, tasker.NextOperator, []string{"Step a failed for good", "ended as manually_resolved by ann, and no other is open."}, "open an investigation", "s.state_since", "a"}, ""},
		"no worker": {
			func(h *harness) tasker.ID { return h.Create("chain") },
			want{tasker.ConditionNoWorker, tasker.NextOperator, []string{"Step charge waits for a worker since", "none with handler run of namespace shop is alive."}, "Start a worker with handler run for namespace shop", "s.state_since", "charge"}, "",
		},
		"no worker, one is draining": {func(h *harness) tasker.ID {
			h.employ()
			h.Must(h.Engine.DrainWorker(h.Context(), h.worker))
			return h.Create("chain")
		}, want{tasker.ConditionNoWorker, tasker.NextOperator, []string{"none with handler run", "1 worker is draining."}, "", "s.state_since", "charge"}, ""},
		"no worker, some elsewhere and one that left": {func(h *harness) tasker.ID {
			h.employ()
			h.Must(h.DB.RemoveWorker(h.Context(), h.worker))
			h.Space = "attic"
			h.employ()
			h.Space = enginetest.Namespace
			return h.Create("chain")
		}, want{tasker.ConditionNoWorker, tasker.NextOperator, []string{"the last heartbeat of payments-7 was at 20", "1 worker is registered for other namespaces."}, "", "s.state_since", "charge"}, ""},
		"no worker took it in time": {func(h *harness) tasker.ID {
			id := h.Create("chain")
			h.expire()
			return id
		}, want{tasker.ConditionNoWorker, tasker.NextOperator, []string{"Step charge was taken by no worker in time at 20", "none with handler run"}, "goes back into the queue by itself then", "s.awaits_worker_since", "charge"}, ""},
		"no worker took it in time, and one lives": {func(h *harness) tasker.ID {
			id := h.Create("chain")
			h.expire()
			h.employ()
			return id
		}, want{tasker.ConditionNoWorker, tasker.NextServer, []string{"was taken by no worker in time", "1 worker is alive now."}, "puts it back into the queue", "s.awaits_worker_since", "charge"}, ""},
		"queue": {func(h *harness) tasker.ID {
			h.employ()
			h.Create("chain")
			h.claim(1)
			for range 3 {
				h.Create("chain")
			}
			urgent := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "chain", Priority: 9})
			id := h.Create("chain")
			h.Must(h.Engine.CancelTask(h.Context(), urgent, "ann", "r"))
			h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "chain", Priority: 9})
			h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "chain", Priority: -9})
			return id
		}, want{tasker.ConditionQueue, tasker.NextWorker, []string{"Step charge is enqueued for", "behind 4 others; 1 worker is alive, 99 of 100 places free."}, "free place", "s.state_since", "charge"}, ""},
		"running": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.claim(1)
			return id
		}, want{tasker.ConditionRunning, tasker.NextWorker, []string{"Step charge runs on payments-7 (1.5.0) for", "attempt 1 of 1."}, "reports a result", "coalesce(s.last_attempted_at, s.state_since)", "charge"}, ""},
		"running, nothing is heard": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.claim(1)
			h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - interval '40 minutes'`)
			return id
		}, want{tasker.ConditionRunning, tasker.NextWorker, []string{"the worker has been silent for 40m", "and the attempt is lost at 20"}, "", "", ""}, ""},
		"running, and the lease is over": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.claim(1)
			h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() - interval '1 minute' WHERE state = 'in_progress'`)
			return id
		}, want{tasker.ConditionRunning, tasker.NextServer, []string{"its lease ended at 20", "no server has taken it back"}, "tasker-ctl health", "", ""}, ""},
		"retry": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("twice")
			h.fail(1, "busy", true)
			return id
		}, want{tasker.ConditionRetry, tasker.NextTimer, []string{"Step charge failed at 20", "in 1 of 2 attempts: GatewayError: busy; it is tried again at 20"}, "by itself", "s.state_since", "charge"}, ""},
		"the retry is late": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("twice")
			h.fail(1, "busy", true)
			h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() - interval '30 seconds' WHERE next_retry_at IS NOT NULL`)
			return id
		}, want{tasker.ConditionRetry, tasker.NextServer, []string{"it is due since 20", " ago"}, "tasker-ctl health", "s.next_retry_at", "charge"}, ""},
		"the retry is left alone": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("twice")
			h.fail(1, "busy", true)
			h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 days', warn_at = warn_at - interval '2 days', stale_at = stale_at - interval '2 days'`)
			if _, err := h.DLQ.Sweep(h.Context()); err != nil {
				h.Fatal(err)
			}
			return id
		}, want{tasker.ConditionRetry, tasker.NextOperator, []string{"it is left alone, because the task is in error since 20"}, "Reset the step", "t.state_since", ""}, ""},
		"outside": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("asks")
			h.Exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '1 hour' WHERE name = 'approve'`)
			h.succeed(1)
			return id
		}, want{
			tasker.ConditionExternal, tasker.NextExternal, []string{"Step approve waits for an outcome from outside since 20"}, "/completion",
			"(SELECT p.completed_at FROM tasker.workflow_steps p WHERE p.task_uuid = t.task_uuid AND p.name = 'charge')", "approve",
		}, ""},
		"parents": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("chain")
			h.fail(1, "no", false)
			return id
		}, want{tasker.ConditionParents, tasker.NextOperator, []string{"Step notify waits for charge, which failed for good at 20", ": GatewayError: no."}, "reset the step", "s.state_since", "charge"}, "notify"},
		"several parents": {func(h *harness) tasker.ID {
			h.employ()
			id := h.Create("fork")
			h.claim(1)
			return id
		}, want{tasker.ConditionParents, tasker.NextWorker, []string{"Step d waits for b, which is enqueued for", "; and for 1 other step."}, "", "s.state_since", "b"}, "d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			id := tt.story(h)
			if tt.ofStep != "" {
				step, err := h.DB.StepNamed(h.Context(), id, tt.ofStep)
				h.Must(err)
				id = step
			}
			e := h.explain(id)
			t.Logf("%s\n  unblocks: %s\n  turn: %s; %+v", e.Message, e.Remedy, e.NextActor, e.Facts)
			h.is(e, tt.want)
			kind := tasker.ExplainedTask
			if tt.ofStep != "" {
				kind = tasker.ExplainedStepOfTask
			}
			if e.Kind != kind || e.ID.ID != id || h.unknown != 0 || h.log.Len() > 0 {
				t.Errorf("kind %s of %s, %d unknown, log %s", e.Kind, e.ID, h.unknown, &h.log)
			}
			h.Exec(`DROP TRIGGER IF EXISTS broken ON tasker.workflow_steps`)
		})
	}
}

// expire has what is enqueued fail for want of a worker.
func (h *harness) expire() {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = now() - interval '1 hour' WHERE state = 'enqueued'`)
	h.Exec(`UPDATE tasker.ready_steps SET expires_at = now() - interval '1 hour'`)
	h.Eventually("the step has expired", func() bool {
		_, err := h.Engine.ExpireSteps(h.Context())
		h.Must(err)
		return h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE awaits_worker_since IS NOT NULL`) > 0
	})
}

// The operation that holds a failed step is why it stands still, in each state of the operation.
func TestOperations(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	ops := operation.New(h.DB, h.Engine, h.DLQ, operation.Options{})
	first, second := h.Create("chain"), h.Create("chain")
	h.fail(2, "no", false)
	o, _, err := ops.Plan(t.Context(), tasker.OperationPlan{
		Act: tasker.ActReset, Actor: "ann", Reason: "r", Waves: []int{1}, Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Namespace: h.Space}},
	})
	h.Must(err)
	h.is(h.explain(first), want{tasker.ConditionOperation, tasker.NextOperator, []string{"Step charge is planned in operation " + o.UUID.String() + " by ann, which is not started."}, "expires at 20", "", ""})
	h.is(h.explain(o.UUID), want{tasker.ConditionOperation, tasker.NextOperator, []string{"The operation is planned and not started."}, "Start it", "", ""})

	_, err = ops.Start(t.Context(), o.UUID, o.PlanDigest, "ann")
	h.Must(err)
	for range 3 {
		_, err = ops.Release(t.Context())
		h.Must(err)
	}
	released, waiting := first, second
	if h.Count(`SELECT count(*) FROM tasker.operation_items WHERE task_uuid = $1 AND state = 'released'`, first) == 0 {
		released, waiting = second, first
	}
	h.is(h.explain(waiting), want{tasker.ConditionOperation, tasker.NextServer, []string{"whose wave 1 is under way."}, "in its wave", "", ""})
	e := h.explain(released)
	h.is(e, want{tasker.ConditionQueue, tasker.NextWorker, nil, "", "", ""})
	if !strings.Contains(factNamed(e, "operation"), o.UUID.String()+": running, the step is released") {
		t.Errorf("facts %+v", e.Facts)
	}
	e = h.explain(o.UUID)
	h.is(e, want{tasker.ConditionOperation, tasker.NextWorker, []string{"Wave 1 of 2 is under way: 0 of 2 items are verified."}, "A worker with a free place", "", ""})
	if e.Looked != 1 || len(e.Counts) != 1 || e.Counts[0] != (tasker.ReasonCount{Reason: tasker.ConditionQueue, Count: 1, Task: released}) || factNamed(e, "on their way") != "1 queue" {
		t.Errorf("%+v", e)
	}
	_, err = ops.Pause(t.Context(), o.UUID, "bob")
	h.Must(err)
	h.is(h.explain(waiting), want{tasker.ConditionOperation, tasker.NextOperator, []string{"which is paused since 20", ": operator."}, "Resume", "", ""})
	h.is(h.explain(o.UUID), want{tasker.ConditionOperation, tasker.NextOperator, []string{"The operation is paused since 20", " by bob: operator."}, "Resume", "", ""})
	_, err = ops.Abort(t.Context(), o.UUID, "bob")
	h.Must(err)
	h.is(h.explain(o.UUID), want{tasker.ConditionEnded, tasker.NextNone, []string{"The operation is aborted since 20"}, "", "", ""})
	h.is(h.explain(waiting), want{tasker.ConditionFailed, tasker.NextOperator, nil, "", "", ""})
}

func factNamed(e tasker.Explanation, name string) string {
	for _, f := range e.Facts {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// An investigation is explained by its task, and says when it has ended or should.
func TestInvestigations(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	task := h.Create("chain")
	h.fail(1, "no", false)
	h.FindCases()
	first := h.Entry(task).UUID
	e := h.explain(first)
	h.is(e, want{tasker.ConditionFailed, tasker.NextOperator, []string{"Step charge failed for good"}, "", "s.state_since", "charge"})
	if e.Kind != tasker.ExplainedInvestigation || e.TaskUUID.ID != task || !strings.Contains(factNamed(e, "case"), ": 1 open investigation, no owner") ||
		!strings.Contains(factNamed(e, "investigation"), first.String()+": max_retries_exceeded, permanent_failure") {
		t.Errorf("%+v", e)
	}
	h.end(task, tasker.EntryManuallyResolved)
	e = h.explain(first)
	h.is(e, want{tasker.ConditionEnded, tasker.NextNone, []string{"The investigation ended as manually_resolved at 20", " by ann."}, "", "", ""})
	if !strings.Contains(factNamed(e, "task"), "error since") {
		t.Errorf("facts %+v", e.Facts)
	}
	_, err := h.DLQ.Open(t.Context(), task, tasker.NewEntry{Actor: "ann", Reason: "again"})
	h.Must(err)
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "r"))
	h.is(h.explain(h.Entry(task).UUID), want{tasker.ConditionEnded, tasker.NextOperator, []string{"The task was cancelled at", ", and the investigation is still open."}, "End the investigation", "", ""})
	h.is(h.explain(first), want{tasker.ConditionEnded, tasker.NextNone, []string{"The investigation ended as manually_resolved"}, "", "", ""})
}

// A case is explained by its newest members, counted by fact.
func TestCases(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	tasks := make([]tasker.ID, tasker.MaxExplainedTasks+5)
	for i := range tasks {
		tasks[i] = h.Create("chain")
	}
	h.fail(len(tasks), "gateway is down", false)
	h.FindCases()
	var id tasker.ID
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT case_id FROM tasker.cases`).Scan(&id))
	h.operate(tasks[len(tasks)-1], "charge", tasker.ResetForRetry)
	h.Exec(`UPDATE tasker.case_members m SET opened_at = now() FROM tasker.tasks_dlq d WHERE d.dlq_entry_uuid = m.dlq_entry_uuid AND d.task_uuid = $1`, tasks[len(tasks)-1])
	e := h.explain(id)
	h.is(e, want{tasker.ConditionFailed, tasker.NextOperator, []string{"105 investigations are open, of which the newest 100 were looked at: 99 failed, 1 queue."}, "reset the step", "", ""})
	if e.Looked != 100 || !e.More || len(e.Counts) != 2 || e.Name != "shop/chain > charge" || e.Since == nil || factNamed(e, "owner") != "no owner" {
		t.Errorf("%+v", e)
	}
	for _, task := range tasks {
		h.end(task, tasker.EntryManuallyResolved)
	}
	h.FindCases()
	h.is(h.explain(id), want{tasker.ConditionEnded, tasker.NextNone, []string{"None of its investigations is open."}, "", "", ""})
	h.Exec(`UPDATE tasker.cases SET merged_into = case_id`)
	h.is(h.explain(id), want{tasker.ConditionEnded, tasker.NextNone, []string{"The case was merged into case " + id.String()}, "", "", ""})
}

// What a worker has saved is a fact of its step while that is open.
func TestACheckpointIsAFact(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	task := h.Create("twice")
	a := h.claim(1)[0]
	h.Must(h.Engine.SaveCheckpoint(t.Context(), h.worker, a.Lease(), json.RawMessage(`{"row": 10}`)))
	if fact := factNamed(h.explain(task), "checkpoint"); !strings.HasPrefix(fact, "saved at 20") || !strings.HasSuffix(fact, "by attempt 1, 11 bytes") {
		t.Errorf("the fact is %q", fact)
	}
	h.report(a, nil)
	if fact := factNamed(h.explain(a.StepUUID), "checkpoint"); fact != "" {
		t.Errorf("of a complete step it is %q", fact)
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	queue := func(w want) tasker.Explanation {
		t.Helper()
		e, err := h.service.ExplainQueue(t.Context(), h.Space, "run")
		h.Must(err)
		h.is(e, w)
		if e.Kind != tasker.ExplainedQueue || e.Name != "run" || !e.ID.IsZero() {
			t.Errorf("%+v", e)
		}
		return e
	}
	queue(want{tasker.ConditionEmpty, tasker.NextNone, []string{"Nothing waits; 0 workers are alive."}, "", "", ""})
	h.Create("chain")
	queue(want{tasker.ConditionNoWorker, tasker.NextOperator, []string{"1 step waits: none with handler run of namespace shop is alive."}, "Start a worker", "", ""})
	h.expire()
	e := queue(want{tasker.ConditionNoWorker, tasker.NextOperator, []string{"1 step waits"}, "", "", ""})
	if factNamed(e, "waited too long") != "1 step" || e.Since == nil {
		t.Errorf("%+v", e)
	}
	h.employ()
	h.Create("chain")
	e = queue(want{tasker.ConditionQueue, tasker.NextWorker, []string{"2 steps wait, the oldest", "1 worker is alive, 100 of 100 places free."}, "more workers", "", ""})
	if factNamed(e, "first expires") == "" || factNamed(e, "workers") != "1 alive, 0 draining, 0 for other namespaces" {
		t.Errorf("facts %+v", e.Facts)
	}
}

// A step that waits past its limit says that its workers are busy, and so does its queue.
func TestASaturatedQueueIsExplained(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	task := h.Create("chain")
	h.Exec(`INSERT INTO tasker.queues (namespace, handler, busy_at, saturated_since) VALUES ($1, 'run', clock_timestamp(), clock_timestamp())`, h.Space)
	if f := h.explain(task).Reason; f != tasker.ConditionQueue {
		t.Errorf("within its limit the fact is %s", f)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() WHERE state = 'enqueued'`)
	h.is(h.explain(task), want{tasker.ConditionSaturated, tasker.NextWorker, []string{"Step charge is enqueued for", "100 of 100 places free", "its limit was over at 20", "busy since 20", "last seen so at 20"}, "more workers", "", ""})
	e, err := h.service.ExplainQueue(t.Context(), h.Space, "run")
	h.Must(err)
	h.is(e, want{tasker.ConditionSaturated, tasker.NextWorker, []string{"1 step waits", "steps wait past their limit since 20", "1 worker is alive and busy"}, "more workers", "", ""})
	h.Exec(`UPDATE tasker.workers SET draining_since = now()`)
	if f := h.explain(task).Reason; f != tasker.ConditionNoWorker {
		t.Errorf("with nobody alive the fact is %s", f)
	}
}

// What no rule knows is a defect: it is said, logged and counted.
func TestUnknownConditionIsReported(t *testing.T) {
	t.Parallel()
	h := with(enginetest.At(t, pgtest.New(t).URL, postgres.Options{})) // the invariants are broken
	task := h.Create("chain")
	h.Exec(`DELETE FROM tasker.ready_steps`)
	h.Exec(`UPDATE tasker.workflow_steps SET state = 'pending', expires_at = NULL WHERE name = 'charge'`)
	e := h.explain(task)
	h.is(e, want{tasker.ConditionUnknown, tasker.NextOperator, []string{"Step charge stands in state pending for no reason that is known."}, "defect", "s.state_since", "charge"})
	if h.unknown != 1 || !strings.Contains(h.log.String(), task.String()) {
		t.Errorf("%d unknown, log %s", h.unknown, &h.log)
	}
	h.is(h.explain(h.step(task, "notify").UUID), want{tasker.ConditionParents, tasker.NextOperator, []string{"waits for charge, which stands in state pending"}, "", "", ""})
	h.Exec(`UPDATE tasker.workflow_steps SET state = 'complete'`)
	h.is(h.explain(task), want{tasker.ConditionUnknown, tasker.NextOperator, []string{"The task stands in state steps_in_process"}, "", "", ""})
}

// A caller without payloads gets no message, without investigations no case, and of another
// namespace nothing.
func TestWhatCallersSee(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	task := h.Create("chain")
	h.fail(1, "secret of order 17", false)
	h.FindCases()
	entry := h.Entry(task).UUID
	as := func(grants ...access.Grant) context.Context {
		return access.WithPermissionScope(t.Context(), access.NewIdentity("key:x", grants), access.ReadTasks)
	}
	for name, tt := range map[string]struct {
		ctx     context.Context
		message bool
	}{
		"operator": {as(access.Grant{Role: access.Operator, Namespace: h.Space}), true},
		"viewer":   {as(access.Grant{Role: access.Viewer, Namespace: h.Space}), false},
	} {
		e, err := h.service.Explain(tt.ctx, task)
		h.Must(err)
		if got := strings.Contains(e.Message, "secret of order 17"); got != tt.message || !strings.Contains(e.Message, "GatewayError") {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	for _, id := range []tasker.ID{task, entry, h.step(task, "ship").UUID} {
		_, err := h.service.Explain(as(access.Grant{Role: access.Admin, Namespace: "attic"}), id)
		h.WantCode(err, tasker.NotFound, "operation or hold "+id.String()+" not found")
	}
	worker := access.NewIdentity("key:w", []access.Grant{{Role: access.Worker, Namespace: h.Space}})
	ctx := access.WithPayloadScope(access.WithIdentity(t.Context(), worker), access.Scope{})
	_, err := h.service.Explain(ctx, entry)
	h.WantCode(err, tasker.Forbidden, "investigations:read in namespace shop")
	e, err := h.service.Explain(ctx, task)
	h.Must(err)
	if factNamed(e, "case") != "" || factNamed(e, "investigation") != "" {
		t.Errorf("facts %+v", e.Facts)
	}
	_, err = h.service.Explain(t.Context(), tasker.NewID())
	h.WantCode(err, tasker.NotFound, "task, step, investigation, case, operation or hold")
}

// conditions registers a template of which one step has a condition.
func (h *harness) conditions() {
	h.Helper()
	first := enginetest.Step("first")
	first.When = "context.go"
	h.Template("conditions", first, enginetest.Step("second", "first"), tasker.StepTemplate{Name: "outside", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry()})
}

// A task that is being undone says so, and how far it is.
func TestCompensatingTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	undoable := func(s tasker.StepTemplate) tasker.StepTemplate {
		s.OnFailure = &tasker.OnFailure{Compensate: "run", Retry: tasker.DefaultUndoRetry()}
		return s
	}
	h.Template("undo", undoable(enginetest.Step("charge")), undoable(enginetest.Step("ship", "charge")), enginetest.Step("tell", "ship"))
	h.employ()
	task := h.Create("undo")
	h.succeed(1)
	h.succeed(1)
	h.Must(h.Engine.CompensateTask(t.Context(), task, "ann", "r"))
	h.succeed(1)
	e := h.explain(task)
	if !strings.HasPrefix(e.Message, "The task, which is being undone (1 of 2 steps so far), ") && !strings.HasPrefix(e.Message, "Step undo:charge ") {
		t.Errorf("it says %s", e.Message)
	}
	if got := factNamed(e, "phase"); got != "compensating: 1 of 2 steps undone" {
		t.Errorf("the phase is %q", got)
	}
	if len(e.Steps) != 1 || e.Steps[0].Name != "undo:charge" {
		t.Errorf("its steps are %+v", e.Steps)
	}
	h.succeed(1)
	if got := factNamed(h.explain(task), "outcome"); got != "compensated: 2 of 2 steps undone" {
		t.Errorf("the outcome is %q", got)
	}
}
