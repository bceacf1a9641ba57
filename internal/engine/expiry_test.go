package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

// expire lets the limits of all that is enqueued pass, and does what is due.
func (h *harness) expire() int {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '5 minutes', expires_at = clock_timestamp() WHERE expires_at IS NOT NULL`)
	n, err := h.Engine.ExpireSteps(h.Context())
	h.Must(err)
	return n
}

func (h *harness) redispatch() {
	h.Helper()
	h.Must(errOf(h.Engine.Redispatch(h.Context())))
}

func (h *harness) leave() {
	h.Helper()
	h.Must(h.Engine.LeaveWorker(h.Context(), h.Worker))
}

// comeBack registers the worker again and returns after what waited for it is in the queue.
func (h *harness) comeBack() {
	h.Helper()
	h.Worker = h.RegisterWorker("run")
	h.redispatch()
}

type dispatchEvidence struct {
	Dispatch struct {
		Transport   string    `json:"transport"`
		Namespace   string    `json:"namespace"`
		Handler     string    `json:"handler"`
		QueuedAt    time.Time `json:"queued_at"`
		ExpiresAt   time.Time `json:"expires_at"`
		TTL         int64     `json:"worker_queue_ttl_ms"`
		LiveWorkers int       `json:"live_workers"`
		Expiries    int       `json:"expiries_with_live_workers"`
		Returns     bool      `json:"returns_when_a_worker_lives"`
	} `json:"dispatch"`
}

func evidenceOf(t *testing.T, e tasker.Entry) dispatchEvidence {
	t.Helper()
	var d dispatchEvidence
	if err := json.Unmarshal(e.Metadata, &d); err != nil {
		t.Fatalf("metadata %s: %v", e.Metadata, err)
	}
	return d
}

func TestExpiredStepReturnsWhenAWorkerIsLive(t *testing.T) {
	h := newHarness(t)
	h.Template("pair", enginetest.Step("first"), enginetest.Step("second", "first"))
	h.leave()
	task := h.Create("pair")
	if n, err := h.Engine.ExpireSteps(t.Context()); n != 0 || err != nil {
		t.Fatalf("%d steps expired before their time, %v", n, err)
	}
	if n := h.expire(); n != 1 {
		t.Fatalf("%d steps expired, want 1", n)
	}
	h.WantState(task, tasker.TaskError)
	h.WantStep(task, "first", tasker.StepError, 0)
	var failure tasker.StepFailure
	if err := json.Unmarshal(h.Step(task, "first").Error, &failure); err != nil {
		t.Fatal(err)
	}
	if failure.Type != tasker.QueueExpiry || !strings.HasPrefix(failure.Message, "worker queue TTL expired: no worker took the step within 300") ||
		!strings.HasSuffix(failure.Message, " s; none for handler run of namespace shop is alive") {
		t.Errorf("the step says %+v", failure)
	}
	e := h.Entry(task)
	d := evidenceOf(t, e).Dispatch
	if e.Reason != tasker.WorkerUnavailable || e.DetailCode != tasker.NoWorkers || e.DetectedBy != tasker.DetectedSweep ||
		e.OriginalState != tasker.TaskStepsInProcess || e.StepUUID == nil || *e.StepUUID != h.Step(task, "first").UUID {
		t.Errorf("the investigation is %+v", e)
	}
	if d.Transport != "postgres" || d.Namespace != enginetest.Namespace || d.Handler != "run" || d.LiveWorkers != 0 || d.Expiries != 0 || !d.Returns ||
		d.TTL != d.ExpiresAt.Sub(d.QueuedAt).Milliseconds() || d.TTL < 300_000 {
		t.Errorf("the evidence is %+v", d)
	}
	h.redispatch() // nobody is there
	h.WantStep(task, "first", tasker.StepError, 0)

	h.comeBack()
	h.WantState(task, tasker.TaskStepsInProcess)
	h.WantStep(task, "first", tasker.StepEnqueued, 1)
	if e := h.Entry(task); e.RecoveredAt == nil || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %+v", e)
	}
	h.Complete("first")
	h.Accepted(success(h.ClaimOne("second"), `2`))
	h.WantState(task, tasker.TaskComplete)
	list := h.StepMoves(task, "first")
	var events []string
	for _, x := range list {
		events = append(events, fmt.Sprint(x.Event, *x.Attempt))
	}
	if got, want := strings.Join(events, " "), "enqueue1 expire1 redispatch1 claim1 succeed1"; got != want {
		t.Errorf("the step went by %s, want %s", got, want)
	}
}

func TestExpiryUsesNoAttempt(t *testing.T) {
	h := newHarness(t)
	h.Template("once", attempts(1, enginetest.Step("only")))
	task := h.Create("once")
	h.leave()
	for range 2 * engine.DefaultMaxQueueExpiries { // nobody is there: that is not the step's fault, however often
		h.expire()
		h.comeBack()
		h.leave()
	}
	h.WantStep(task, "only", tasker.StepEnqueued, 1)
	h.Worker = h.RegisterWorker("run")
	h.Complete("only")
	h.WantState(task, tasker.TaskComplete)
}

func TestExpiriesWithLiveWorkersAreBounded(t *testing.T) {
	h := newHarness(t)
	h.Template("slow", enginetest.Step("only"))
	task := h.Create("slow")
	for n := 1; n <= engine.DefaultMaxQueueExpiries; n++ {
		h.expire()
		h.WantState(task, tasker.TaskError)
		e := h.Entry(task)
		require(t, e.DetailCode == tasker.DispatchExpired && e.RecoveredAt == nil,
			"after %d expiries the investigation is %+v", n, e)
		h.redispatch()
	}
	h.WantState(task, tasker.TaskError) // the last time it stayed
	if e := h.Entry(task); evidenceOf(t, e).Dispatch.LiveWorkers != 1 {
		t.Errorf("evidence is %s", e.Metadata)
	}
	h.Operate(task, "only", tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "op", Reason: "more workers"})
	h.WantStep(task, "only", tasker.StepEnqueued, 1)
	h.expire()
	h.redispatch()
	h.WantStep(task, "only", tasker.StepEnqueued, 1) // and counts anew
	h.ClaimOne("only")
	h.pass() // the lease is lost; the retry is due
	h.pass()
	h.expire()
	h.redispatch()
	h.WantStep(task, "only", tasker.StepEnqueued, 2)
}

func TestOnlyStepsOfLiveWorkersReturn(t *testing.T) {
	h := newHarness(t)
	other := enginetest.Step("other")
	other.Handler.Callable = "other"
	h.Template("both", enginetest.Step("mine"), other)
	h.leave()
	task := h.Create("both")
	h.expire()
	h.comeBack()
	h.WantStep(task, "mine", tasker.StepEnqueued, 1)
	h.WantStep(task, "other", tasker.StepError, 0)
	if e := h.Entry(task); e.RecoveredAt != nil {
		t.Error("the investigation is recovered although a step of it is not")
	}
	h.Complete("mine")
	h.WantState(task, tasker.TaskError)
	h.Must(h.Engine.LeaveWorker(t.Context(), h.Worker))
	h.Worker = h.RegisterWorker("other")
	h.redispatch()
	h.Complete("other")
	h.WantState(task, tasker.TaskComplete)
	if e := h.Entry(task); e.RecoveredAt == nil {
		t.Error("the investigation is not recovered")
	}
}

func TestEndedStepsDoNotReturn(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	h.leave()
	cancelled, resolved, completed := h.Create("only"), h.Create("only"), h.Create("only")
	queued := h.Create("only")
	h.Must(h.Engine.CancelTask(t.Context(), queued, "op", "not needed"))
	h.expire()
	h.Must(h.Engine.CancelTask(t.Context(), cancelled, "op", "not needed"))
	operate := func(task tasker.ID, op tasker.ActionRequest) {
		t.Helper()
		op.Actor, op.Reason = "op", "because"
		h.Operate(task, "only", op)
	}
	operate(resolved, tasker.ActionRequest{Action: tasker.ResolveManually})
	operate(completed, tasker.ActionRequest{Action: tasker.CompleteManually, Result: json.RawMessage(`1`)})
	h.comeBack()
	h.ClaimNone()
	h.WantState(cancelled, tasker.TaskCancelled)
	h.WantState(queued, tasker.TaskCancelled)
	h.WantState(resolved, tasker.TaskComplete)
	h.WantState(completed, tasker.TaskComplete)
}

func TestQueueTTLOfStepOverridesTemplateAndServer(t *testing.T) {
	h := newHarness(t)
	own := enginetest.Step("own")
	own.WorkerQueueTTLMS = 7000
	after := enginetest.Step("after", "own")
	after.WorkerQueueTTLMS = 8000
	h.RegisterTemplate(tasker.Template{
		Namespace: enginetest.Namespace, Name: "limits", Version: "1.0.0", Steps: []tasker.StepTemplate{own, enginetest.Step("plain"), after},
		Lifecycle: tasker.Lifecycle{WorkerQueueTTLMS: 60_000},
	})
	h.Template("default", enginetest.Step("only"))
	limit := func(task tasker.ID, name string, want time.Duration) {
		t.Helper()
		var got time.Duration
		h.Must(h.Admin().QueryRow(t.Context(), `SELECT expires_at - state_since FROM tasker.workflow_steps WHERE task_uuid = $1 AND name = $2`, task, name).Scan(&got))
		check(t, got == want, "step %s may wait for %s, want %s", name, got, want)
	}
	task := h.Create("limits")
	limit(task, "own", 7*time.Second)
	limit(task, "plain", time.Minute)
	limit(h.Create("default"), "only", postgres.DefaultQueueTTL)
	for _, a := range h.Claim() {
		if a.Name == "own" {
			h.Accepted(success(a, `1`))
			limit(task, "after", 8*time.Second)
			continue
		}
		if a.TaskUUID == task { // given back, it has the whole time again
			h.Release(a)
			limit(task, "plain", time.Minute)
		}
	}
}

func TestSweepGraceAppliesOnlyToTTLsOfTheBroker(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	h.Create("only")
	fixture.QueueTTLsExpired(h, h.Admin())
	due := func(grace time.Duration) int {
		list, err := h.DB.ExpiredSteps(t.Context(), grace, 10)
		h.Must(err)
		return len(list)
	}
	if now, later := due(0), due(time.Minute); now != 1 || later != 0 {
		t.Errorf("%d at once and %d after a minute's grace, want 1 and 0", now, later)
	}
	// The broker does not know a shorter limit of the step, so nobody waits for it.
	for limit, want := range map[time.Duration]int{postgres.DefaultQueueTTL + time.Second: 0, postgres.DefaultQueueTTL: 0, postgres.DefaultQueueTTL - time.Millisecond: 1} {
		h.Exec(`UPDATE tasker.workflow_steps SET queue_ttl_ms = $1`, limit.Milliseconds())
		n := due(time.Minute)
		check(t, n == want, "with a limit of %s of its own %d are due within the grace, want %d", limit, n, want)
	}
}

func TestAutoRecoveryCanBeDisabled(t *testing.T) {
	h := newHarness(t)
	for off, want := range map[bool]int{false: 1, true: 0} {
		n := 0
		for _, l := range newEngine(h.DB, engine.Options{Queues: engine.QueueOptions{DisableAutoRecovery: off}}).Loops() {
			if l.Name == "redispatch" {
				n++
			}
		}
		check(t, n == want, "switched off %t: %d loops put steps back, want %d", off, n, want)
	}
}

func TestDrainingAndGoneWorkersAreNotLive(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	task := h.Create("only")
	h.Exec(`UPDATE tasker.workers SET draining_since = now()`)
	h.ClaimNone()
	h.expire()
	h.WantDetail(task, tasker.NoWorkers)
	h.redispatch()
	h.WantStep(task, "only", tasker.StepError, 0)
	h.Exec(`UPDATE tasker.workers SET draining_since = NULL, last_heartbeat_at = now() - 4 * heartbeat_interval`)
	h.redispatch()
	h.WantStep(task, "only", tasker.StepError, 0)
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now()`)
	h.redispatch()
	h.WantStep(task, "only", tasker.StepEnqueued, 1)
}

func TestExpiryAndClaimNeverBothWin(t *testing.T) {
	t.Parallel()
	h := withWorker(enginetest.NewWith(t, postgres.Options{ExpiryRule: tasker.ExpireAlways}))
	h.Template("only", enginetest.Step("only"))
	const races = 500
	claimed := 0
	for round := range races / 100 {
		requests := make([]tasker.NewTask, 100)
		for i := range requests {
			requests[i] = tasker.NewTask{Namespace: enginetest.Namespace, Name: "only"}
		}
		h.Must(errOf(h.Engine.CreateTasks(t.Context(), requests)))
		fixture.QueueTTLsExpired(h, h.Admin())
		claimed += h.race(1 + round%7)
	}
	var expired, histories int
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE state = 'error') FROM tasker.workflow_steps`).Scan(&expired))
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT count(*) FROM tasker.workflow_step_transitions WHERE event IN ('claim', 'expire')`).Scan(&histories))
	check(t, claimed+expired == races && histories == races,
		"%d claimed and %d expired of %d, with %d rows of history", claimed, expired, races, histories)
	check(t, claimed != 0 && expired != 0, "%d claimed and %d expired: there was no race", claimed, expired)
	h.wantRows(0, "deferred_work")
	t.Logf("%d races: the claim won %d, the expiry %d", races, claimed, expired)
}

// race claims, some at a time, and expires all that is enqueued, both at once, and counts the
// claims. The expiry takes all in one transaction after several statements: it wins the
// more the fewer are claimed at a time.
func (h *harness) race(some int) (claimed int) {
	var both sync.WaitGroup
	both.Go(func() {
		for {
			list, err := h.Engine.Claim(context.WithoutCancel(h.Context()), h.Worker, some, 0)
			if err != nil {
				h.Error(err)
			}
			if len(list) == 0 {
				return
			}
			claimed += len(list)
		}
	})
	both.Go(func() {
		for {
			n, err := h.Engine.ExpireSteps(context.WithoutCancel(h.Context()))
			if err != nil {
				h.Error(err)
			}
			if err != nil || n == 0 {
				return
			}
		}
	})
	both.Wait()
	return claimed
}

func TestExpiriesAreReportedOnce(t *testing.T) {
	h := newHarness(t)
	var mu sync.Mutex
	told := map[string]int{}
	h.Engine = newEngine(h.DB, engine.Options{Hooks: enginetest.Hooks{Step: func(_ context.Context, namespace, detectedBy, detailCode string) {
		mu.Lock()
		defer mu.Unlock()
		told[strings.Join([]string{namespace, detectedBy, detailCode}, " ")]++
	}}})
	h.Template("one", enginetest.Step("first"))
	h.Create("one")
	h.expire()
	h.leave()
	h.Create("one")
	h.expire()
	letter := h.Create("one")
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() WHERE task_uuid = $1`, letter)
	found := engine.DeadLetter{StepRef: tasker.StepRef{TaskUUID: letter, StepUUID: h.Step(letter, "first").UUID}, Evidence: json.RawMessage(`{}`)}
	for range 2 {
		h.Must(errOf(h.Engine.DeadLetters(t.Context(), []engine.DeadLetter{found})))
	}
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{
		enginetest.Namespace + " sweep " + tasker.DispatchExpired: 1,
		enginetest.Namespace + " sweep " + tasker.NoWorkers:       1,
		enginetest.Namespace + " broker " + tasker.NoWorkers:      1,
	}
	check(t, maps.Equal(told, want), "told %v, want %v", told, want)
}

func TestEndingAnInvestigationDoesNotChangeItsStep(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	h.leave()
	resolved, cancelled := h.Create("only"), h.Create("only")
	h.expire()
	service := dlq.New(h.DB, dlq.Options{})
	end := func(task tasker.ID, status tasker.ResolutionStatus) {
		t.Helper()
		notes, who := "known", "op"
		_, _, err := service.Update(t.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &who})
		h.Must(err)
	}
	end(resolved, tasker.EntryManuallyResolved)
	end(cancelled, tasker.EntryCancelled)
	h.Exec(`UPDATE tasker.tasks SET attend_by = now() WHERE attend_by IS NOT NULL`)
	h.Must(errOf(service.Sweep(t.Context())))
	if e := h.Entry(resolved); e.Reason != tasker.WorkerUnavailable || e.DetailCode != tasker.NoWorkers || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("found again as %s %s, %s", e.Reason, e.DetailCode, e.ResolutionStatus)
	}
	h.comeBack()
	h.Complete("only")
	h.WantState(resolved, tasker.TaskComplete)
	if e := h.Entry(resolved); e.RecoveredAt == nil {
		t.Error("the investigation is not recovered")
	}
	h.WantState(cancelled, tasker.TaskError) // left as it was
}
