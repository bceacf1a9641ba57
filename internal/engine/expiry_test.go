package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
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
	_, err := h.Engine.Redispatch(h.Context())
	h.Must(err)
}

func (h *harness) leave() {
	h.Helper()
	h.Must(h.Engine.LeaveWorker(h.Context(), h.worker))
}

// comeBack registers the worker again and returns after what waited for it is in the queue.
func (h *harness) comeBack() {
	h.Helper()
	h.worker = h.RegisterWorker("run")
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

func TestAStepThatNoWorkerTakesFailsAndGoesOnWhenOneIsThere(t *testing.T) {
	t.Parallel()
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
	h.wantState(task, tasker.TaskError)
	h.wantStep(task, "first", tasker.StepError, 0)
	var failure tasker.StepFailure
	if err := json.Unmarshal(h.step(task, "first").Error, &failure); err != nil {
		t.Fatal(err)
	}
	if failure.Type != tasker.QueueExpiry || !strings.HasPrefix(failure.Message, "worker queue TTL expired: no worker took the step within 300") ||
		!strings.HasSuffix(failure.Message, " s; none for handler run of namespace shop is alive") {
		t.Errorf("the step says %+v", failure)
	}
	e := h.Entry(task)
	d := evidenceOf(t, e).Dispatch
	if e.Reason != tasker.WorkerUnavailable || e.DetailCode != tasker.NoWorkers || e.DetectedBy != tasker.DetectedSweep ||
		e.OriginalState != tasker.TaskStepsInProcess || e.StepUUID == nil || *e.StepUUID != h.step(task, "first").UUID {
		t.Errorf("the investigation is %+v", e)
	}
	if d.Transport != "postgres" || d.Namespace != enginetest.Namespace || d.Handler != "run" || d.LiveWorkers != 0 || d.Expiries != 0 || !d.Returns ||
		d.TTL != d.ExpiresAt.Sub(d.QueuedAt).Milliseconds() || d.TTL < 300_000 {
		t.Errorf("the evidence is %+v", d)
	}
	h.redispatch() // nobody is there
	h.wantStep(task, "first", tasker.StepError, 0)

	h.comeBack()
	h.wantState(task, tasker.TaskStepsInProcess)
	h.wantStep(task, "first", tasker.StepEnqueued, 1)
	if e := h.Entry(task); e.RecoveredAt == nil || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %+v", e)
	}
	h.accepted(success(h.claimOne("first"), `1`))
	h.accepted(success(h.claimOne("second"), `2`))
	h.wantState(task, tasker.TaskComplete)
	list, _, err := h.DB.StepTransitions(t.Context(), task, h.step(task, "first").UUID, 100, 0)
	h.Must(err)
	var events []string
	for _, x := range list {
		events = append(events, fmt.Sprint(x.Event, *x.Attempt))
	}
	if got, want := strings.Join(events, " "), "enqueue1 expire1 redispatch1 claim1 succeed1"; got != want {
		t.Errorf("the step went by %s, want %s", got, want)
	}
}

func TestAnExpiryUsesNoAttempt(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("once", attempts(1, enginetest.Step("only")))
	task := h.Create("once")
	h.leave()
	for range 2 * engine.DefaultMaxQueueExpiries { // nobody is there: that is not the step's fault, however often
		h.expire()
		h.comeBack()
		h.leave()
	}
	h.wantStep(task, "only", tasker.StepEnqueued, 1)
	h.worker = h.RegisterWorker("run")
	h.accepted(success(h.claimOne("only"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

func TestAStepThatLiveWorkersDoNotTakeComesBackOnlySoOften(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("slow", enginetest.Step("only"))
	task := h.Create("slow")
	for n := 1; n <= engine.DefaultMaxQueueExpiries; n++ {
		h.expire()
		h.wantState(task, tasker.TaskError)
		e := h.Entry(task)
		if e.DetailCode != tasker.DispatchExpired || e.RecoveredAt != nil {
			t.Fatalf("after %d expiries the investigation is %+v", n, e)
		}
		h.redispatch()
	}
	h.wantState(task, tasker.TaskError) // the last time it stayed
	if e := h.Entry(task); evidenceOf(t, e).Dispatch.LiveWorkers != 1 {
		t.Errorf("evidence is %s", e.Metadata)
	}
	_, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "only").UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "op", Reason: "more workers"})
	h.Must(err)
	h.wantStep(task, "only", tasker.StepEnqueued, 1)
	h.expire()
	h.redispatch()
	h.wantStep(task, "only", tasker.StepEnqueued, 1) // and counts anew
	h.claimOne("only")
	h.pass() // the lease is lost; the retry is due
	h.pass()
	h.expire()
	h.redispatch()
	h.wantStep(task, "only", tasker.StepEnqueued, 2)
}

func TestOnlyWhatALiveWorkerCanDoComesBack(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	other := enginetest.Step("other")
	other.Handler.Callable = "other"
	h.Template("both", enginetest.Step("mine"), other)
	h.leave()
	task := h.Create("both")
	h.expire()
	h.comeBack()
	h.wantStep(task, "mine", tasker.StepEnqueued, 1)
	h.wantStep(task, "other", tasker.StepError, 0)
	if e := h.Entry(task); e.RecoveredAt != nil {
		t.Error("the investigation is recovered although a step of it is not")
	}
	h.accepted(success(h.claimOne("mine"), `1`))
	h.wantState(task, tasker.TaskError)
	h.Must(h.Engine.LeaveWorker(t.Context(), h.worker))
	h.worker = h.RegisterWorker("other")
	h.redispatch()
	h.accepted(success(h.claimOne("other"), `1`))
	h.wantState(task, tasker.TaskComplete)
	if e := h.Entry(task); e.RecoveredAt == nil {
		t.Error("the investigation is not recovered")
	}
}

func TestAnExpiryWhileTheTaskGoesOnIsRecoveredToo(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	other := enginetest.Step("other")
	other.Handler.Callable = "other"
	h.Template("both", enginetest.Step("mine"), other)
	task := h.Create("both")
	held := h.claimOne("mine")
	h.expire()
	h.wantState(task, tasker.TaskStepsInProcess)
	if e := h.Entry(task); e.DetailCode != tasker.NoWorkers || e.OriginalState != tasker.TaskStepsInProcess {
		t.Errorf("the investigation is %+v", e)
	}
	b := h.RegisterWorker("other")
	h.redispatch()
	if e := h.Entry(task); e.RecoveredAt == nil {
		t.Error("the investigation is not recovered")
	}
	list, err := h.Engine.Claim(t.Context(), b, 1, 0)
	h.Must(err)
	_, err = h.Engine.Report(t.Context(), b, []tasker.Outcome{success(list[0], `1`)}, 0)
	h.Must(err)
	h.accepted(success(held, `1`))
	h.wantState(task, tasker.TaskComplete)
}

func TestOtherFailuresDoNotComeBackWithAWorker(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("fails", attempts(1, enginetest.Step("only")))
	task := h.Create("fails")
	h.accepted(failure(h.claimOne("only"), true))
	h.wantState(task, tasker.TaskError)
	h.leave()
	h.comeBack()
	h.wantStep(task, "only", tasker.StepError, 1)
}

func TestWhatEndedOrWasTakenAwayDoesNotComeBack(t *testing.T) {
	t.Parallel()
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
		_, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "only").UUID, op)
		h.Must(err)
	}
	operate(resolved, tasker.ActionRequest{Action: tasker.ResolveManually})
	operate(completed, tasker.ActionRequest{Action: tasker.CompleteManually, Result: json.RawMessage(`1`)})
	h.comeBack()
	if list := h.claim(); len(list) != 0 {
		t.Errorf("claimed %v", names(list))
	}
	h.wantState(cancelled, tasker.TaskCancelled)
	h.wantState(queued, tasker.TaskCancelled)
	h.wantState(resolved, tasker.TaskComplete)
	h.wantState(completed, tasker.TaskComplete)
}

func TestLimitsOfStepAndTemplateComeBeforeTheServers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	own := enginetest.Step("own")
	own.WorkerQueueTTLMS = 7000
	after := enginetest.Step("after", "own")
	after.WorkerQueueTTLMS = 8000
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: enginetest.Namespace, Name: "limits", Version: "1.0.0", Steps: []tasker.StepTemplate{own, enginetest.Step("plain"), after},
		Lifecycle: tasker.Lifecycle{WorkerQueueTTLMS: 60_000},
	}, "")
	h.Must(err)
	h.Template("default", enginetest.Step("only"))
	limit := func(task tasker.ID, name string, want time.Duration) {
		t.Helper()
		var got time.Duration
		h.Must(h.pool.QueryRow(t.Context(), `SELECT expires_at - state_since FROM tasker.workflow_steps WHERE task_uuid = $1 AND name = $2`, task, name).Scan(&got))
		if got != want {
			t.Errorf("step %s may wait for %s, want %s", name, got, want)
		}
	}
	task := h.Create("limits")
	limit(task, "own", 7*time.Second)
	limit(task, "plain", time.Minute)
	limit(h.Create("default"), "only", postgres.DefaultQueueTTL)
	for _, a := range h.claim() {
		if a.Name == "own" {
			h.accepted(success(a, `1`))
			limit(task, "after", 8*time.Second)
			continue
		}
		if a.TaskUUID == task { // given back, it has the whole time again
			_, _, err := h.Engine.Release(t.Context(), h.worker, []tasker.Lease{a.Lease()})
			h.Must(err)
			limit(task, "plain", time.Minute)
		}
	}
}

func TestTheGraceOfTheSweepIsForTheBroker(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	h.Create("only")
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp()`)
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
		if n := due(time.Minute); n != want {
			t.Errorf("with a limit of %s of its own %d are due within the grace, want %d", limit, n, want)
		}
	}
}

func TestWorkersGetAMomentWhenNobodyCouldTakeWork(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	task := h.Create("only")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := newEngine(h.DB, engine.Options{Now: func() time.Time { return now }})
	i := slices.IndexFunc(e.Loops(), func(l *loop.Loop) bool { return l.Name == "queue limits" })
	limits := e.Loops()[i]
	pass := func() {
		t.Helper()
		_, err := limits.Pass(t.Context())
		h.Must(err)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp()`)
	pass() // the server has just started
	now = now.Add(engine.DefaultLease - time.Second)
	pass()
	h.wantStep(task, "only", tasker.StepEnqueued, 1)
	now = now.Add(time.Second)
	pass()
	h.wantStep(task, "only", tasker.StepError, 0)

	second := h.Create("only")
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() WHERE state = 'enqueued'`)
	now = now.Add(2 * engine.DefaultLease) // it could not look for a while
	pass()
	h.wantStep(second, "only", tasker.StepEnqueued, 1)
	now = now.Add(engine.DefaultLease)
	pass()
	h.wantStep(second, "only", tasker.StepError, 0)
}

func TestAutoRecoverCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for off, want := range map[bool]int{false: 1, true: 0} {
		n := 0
		for _, l := range newEngine(h.DB, engine.Options{DisableAutoRecovery: off}).Loops() {
			if l.Name == "redispatch" {
				n++
			}
		}
		if n != want {
			t.Errorf("switched off %t: %d loops put steps back, want %d", off, n, want)
		}
	}
}

func TestADrainingOrGoneWorkerIsNoneThatLives(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	task := h.Create("only")
	h.Exec(`UPDATE tasker.workers SET draining_since = now()`)
	if list := h.claim(); len(list) != 0 {
		t.Errorf("a draining worker got %v", names(list))
	}
	h.expire()
	if e := h.Entry(task); e.DetailCode != tasker.NoWorkers {
		t.Errorf("found as %s", e.DetailCode)
	}
	h.redispatch()
	h.wantStep(task, "only", tasker.StepError, 0)
	h.Exec(`UPDATE tasker.workers SET draining_since = NULL, last_heartbeat_at = now() - 4 * heartbeat_interval`)
	h.redispatch()
	h.wantStep(task, "only", tasker.StepError, 0)
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now()`)
	h.redispatch()
	h.wantStep(task, "only", tasker.StepEnqueued, 1)
}

// Expiry races a claim for the same steps: one side wins each of them.
func TestExpiryRacesAClaim(t *testing.T) {
	t.Parallel()
	h := withWorker(enginetest.NewWith(t, postgres.Options{ExpiryRule: tasker.ExpireAlways}))
	h.Template("only", enginetest.Step("only"))
	races := 2000
	if testing.Short() {
		races = 200
	}
	claimed := 0
	for round := range races / 100 {
		requests := make([]tasker.NewTask, 100)
		for i := range requests {
			requests[i] = tasker.NewTask{Namespace: enginetest.Namespace, Name: "only"}
		}
		_, err := h.Engine.CreateTasks(t.Context(), requests)
		h.Must(err)
		h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() WHERE expires_at IS NOT NULL`)
		claimed += h.race(1 + round%7)
	}
	var expired, histories int
	h.Must(h.pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE state = 'error') FROM tasker.workflow_steps`).Scan(&expired))
	h.Must(h.pool.QueryRow(t.Context(), `SELECT count(*) FROM tasker.workflow_step_transitions WHERE event IN ('claim', 'expire')`).Scan(&histories))
	if claimed+expired != races || histories != races {
		t.Errorf("%d claimed and %d expired of %d, with %d rows of history", claimed, expired, races, histories)
	}
	if claimed == 0 || expired == 0 {
		t.Errorf("%d claimed and %d expired: there was no race", claimed, expired)
	}
	if n := h.count("deferred_work"); n != 0 {
		t.Errorf("%d steps are set aside: the side that lost did not pass them over", n)
	}
	t.Logf("%d races: the claim won %d, the expiry %d", races, claimed, expired)
}

// race claims, some at a time, and expires all that is enqueued, both at once, and counts the
// claims. The expiry takes all in one transaction after several statements: it wins the
// more the fewer are claimed at a time.
func (h *harness) race(some int) (claimed int) {
	var both sync.WaitGroup
	both.Go(func() {
		for {
			list, err := h.Engine.Claim(context.WithoutCancel(h.Context()), h.worker, some, 0)
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

// Steps that no worker took are told of once each, with who found them and why.
func TestWhoCountsExpiriesIsTold(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var mu sync.Mutex
	told := map[string]int{}
	h.Engine = newEngine(h.DB, engine.Options{OnStepExpired: func(_ context.Context, namespace, detectedBy, detailCode string) {
		mu.Lock()
		defer mu.Unlock()
		told[strings.Join([]string{namespace, detectedBy, detailCode}, " ")]++
	}})
	h.Template("one", enginetest.Step("first"))
	h.Create("one")
	h.expire()
	h.leave()
	h.Create("one")
	h.expire()
	letter := h.Create("one")
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() WHERE task_uuid = $1`, letter)
	found := engine.DeadLetter{StepRef: tasker.StepRef{TaskUUID: letter, StepUUID: h.step(letter, "first").UUID}, Evidence: json.RawMessage(`{}`)}
	for range 2 {
		_, err := h.Engine.DeadLetters(t.Context(), []engine.DeadLetter{found})
		h.Must(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{
		enginetest.Namespace + " sweep " + tasker.DispatchExpired: 1,
		enginetest.Namespace + " sweep " + tasker.NoWorkers:       1,
		enginetest.Namespace + " broker " + tasker.NoWorkers:      1,
	}
	if !maps.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

func TestAnInvestigationThatEndsDoesNotChangeWhatItWasAbout(t *testing.T) {
	t.Parallel()
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
	_, err := service.Sweep(t.Context())
	h.Must(err)
	if e := h.Entry(resolved); e.Reason != tasker.WorkerUnavailable || e.DetailCode != tasker.NoWorkers || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("found again as %s %s, %s", e.Reason, e.DetailCode, e.ResolutionStatus)
	}
	h.comeBack()
	h.accepted(success(h.claimOne("only"), `1`))
	h.wantState(resolved, tasker.TaskComplete)
	if e := h.Entry(resolved); e.RecoveredAt == nil {
		t.Error("the investigation is not recovered")
	}
	h.wantState(cancelled, tasker.TaskError) // left as it was
}
