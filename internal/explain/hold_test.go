package explain_test

import (
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/postgres"
)

// A step that waits for a limit says for which, and who has its place.
func TestLimitedSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	_, err := h.Engine.SetLimit(t.Context(), tasker.LimitRef{Kind: tasker.NamespaceLimit, Namespace: h.Space}, tasker.LimitValue{MaxInProgress: 1}, engine.LimitChange{Actor: "bo"})
	h.Must(err)
	first, second := h.Create("chain"), h.Create("chain")
	claimed := h.claim(5)
	if len(claimed) != 1 || claimed[0].TaskUUID != first {
		t.Fatalf("claimed %v", claimed)
	}
	e := h.explain(h.step(second, "charge").UUID)
	h.is(e, want{tasker.ConditionLimit, tasker.NextWorker, []string{"Step charge waits for limit namespace/" + h.Space + " (1 of 1 in progress); step charge of task " + first.String() + " has a place since "}, "the limit is raised", "", ""})
	if e.Since == nil || factNamed(e, "limit") != "namespace/"+h.Space+", 1 of 1 in progress" || factNamed(e, "expires") != "" {
		t.Errorf("%+v", e)
	}
	queues, err := h.DB.Queues(t.Context(), h.Space, 10)
	h.Must(err)
	if len(queues) != 1 || queues[0].Limited != 1 || queues[0].Held != 0 || queues[0].Queued != 0 {
		t.Errorf("queues: %+v", queues)
	}
	queue := func(w want) {
		t.Helper()
		e, err := h.service.ExplainQueue(t.Context(), h.Space, "run")
		h.Must(err)
		h.is(e, w)
		if factNamed(e, "wait for limits") != "1 step" || e.Since == nil {
			t.Errorf("%+v", e)
		}
	}
	queue(want{tasker.ConditionLimit, tasker.NextWorker, []string{"1 step waits for limits, the first of those counted for namespace/" + h.Space + " since 20", "; 1 worker is alive."}, "A step that has a place ends", "", ""})

	h.Exec(`UPDATE tasker.limits SET max_in_progress = NULL, per_second = 1, burst = 1`)
	queue(want{tasker.ConditionLimit, tasker.NextTimer, nil, "as the rate of the limit allows", "", ""})

	// When the place is free a worker takes it, unless a rate keeps it back.
	h.Exec(`UPDATE tasker.limits SET max_in_progress = 1, per_second = NULL, burst = NULL`)
	h.report(claimed[0], nil)
	h.is(h.explain(h.step(second, "charge").UUID), want{tasker.ConditionLimit, tasker.NextWorker, []string{"(0 of 1 in progress)"}, "A worker with a free place takes it.", "", ""})
	h.Exec(`UPDATE tasker.limits SET per_second = 1, burst = 1`)
	h.is(h.explain(h.step(second, "charge").UUID), want{tasker.ConditionLimit, tasker.NextTimer, nil, "as the rate of the limit allows", "", ""})
	if e, err := h.service.ExplainQueue(t.Context(), h.Space, "run"); err != nil || e.Reason != tasker.ConditionQueue || factNamed(e, "wait for limits") != "1 step" {
		t.Errorf("%+v, %v", e, err)
	}
}

// A held step says who holds it, until when and why, from the moment on at which the hold
// began, whether or not it was put aside; then how far its release is.
func TestHeldSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	holds := hold.New(h.DB, h.Engine, hold.Options{})
	judge := func() {
		t.Helper()
		_, err := holds.ParkSteps(t.Context())
		h.Must(err)
		_, err = holds.AdvanceHolds(t.Context())
		h.Must(err)
	}
	task, other := h.Create("chain"), h.Create("chain")
	held, err := holds.Begin(t.Context(), tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: h.Space, TaskName: "chain", StepName: "charge"}, For: 4 * time.Hour, Owner: "bo", Reason: "PSP outage",
	})
	h.Must(err)
	began, ends := held.BeganAt.UTC().Format("2006-01-02 15:04:05 UTC"), held.EndsAt.UTC().Format("2006-01-02 15:04:05 UTC")
	line := []string{"Step charge is held by bo since " + began + " until " + ends + " (PSP outage)"}
	operator := want{tasker.ConditionHeld, tasker.NextOperator, line, "bo releases it: tasker-ctl hold release " + held.UUID.String(), "", ""}
	h.is(h.explain(task), operator)
	e := h.explain(h.step(task, "charge").UUID)
	h.is(e, operator)
	if e.Since == nil || !e.Since.Equal(held.BeganAt) || factNamed(e, "hold") != held.UUID.String()+" of bo, active" || factNamed(e, "expires") != "" {
		t.Errorf("%+v", e)
	}
	judge()
	operator.sentence = []string{line[0], "; 1 other step is held with it."}
	h.is(h.explain(task), operator)
	h.is(h.explain(h.step(task, "notify").UUID), want{tasker.ConditionParents, tasker.NextOperator, []string{"Step notify waits for charge, which is held by bo"}, "hold release", "", ""})
	if factNamed(h.explain(task), "expires") != "" {
		t.Error("it says when a step expires whose time stands still")
	}
	e = h.explain(held.UUID)
	h.is(e, want{tasker.ConditionHeld, tasker.NextOperator, []string{"2 steps are held by bo since", "(PSP outage)."}, "hold release", "", ""})
	if e.Kind != tasker.ExplainedHold || e.Name != h.Space+": step chain > charge" || factNamed(e, "held") != "2 steps" || e.ID.ID != held.UUID {
		t.Errorf("%+v", e)
	}
	// A probe is on its way: that one waits as others do.
	_, err = holds.Probe(t.Context(), held.UUID, hold.Change{Actor: "bo"})
	h.Must(err)
	judge()
	if first, second := h.explain(task).Reason, h.explain(other).Reason; first != tasker.ConditionQueue || second != tasker.ConditionHeld {
		t.Errorf("the probe is %s, the other %s", first, second)
	}
	h.succeed(1)
	h.succeed(2) // ship and notify of the probe
	judge()
	_, err = holds.Release(t.Context(), held.UUID, nil, hold.Change{Actor: "bo", Reason: "r"})
	h.Must(err)
	h.is(h.explain(other), want{tasker.ConditionHeld, tasker.NextServer, []string{"is held by bo since", ", and being released: wave 0 of 4 (PSP outage)."}, "released as soon as", "", ""})
	h.Exec(`INSERT INTO tasker.deferred_work (kind, task_uuid, last_error, retry_at) VALUES ($1, $2, 'broken', now() + interval '1 minute')`, postgres.ReleaseHeld, other)
	h.is(h.explain(other), want{tasker.ConditionHeld, tasker.NextServer, []string{"(PSP outage); to let it go failed once and is tried again at 20"}, "released as soon as", "", ""})
	h.Exec(`DELETE FROM tasker.deferred_work`)
	for range 5 {
		judge()
	}
	if f := h.explain(other).Reason; f != tasker.ConditionQueue {
		t.Errorf("after its release it is %s", f)
	}
	h.Must(h.Engine.CancelTask(t.Context(), other, "bo", "r"))
	for range 5 {
		judge()
	}
	h.is(h.explain(held.UUID), want{tasker.ConditionEnded, tasker.NextNone, []string{"The hold ended at 20", "; it let 2 steps go."}, "", "", ""})
	if h.unknown != 0 {
		t.Errorf("%d times no fact explains: %s", h.unknown, h.log.String())
	}
}

// A step that only newer workers may take waits for one of them, whoever else is alive.
func TestStepsForNewerWorkers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	h.Exec(`UPDATE tasker.workers SET version = '1.7.0'`)
	ops := operation.New(h.DB, h.Engine, h.DLQ, operation.Options{})
	task := h.Create("chain")
	h.fail(1, "no", false)
	o, _, err := ops.Plan(t.Context(), tasker.OperationPlan{
		Act: tasker.ActReset, Actor: "ann", Reason: "r", Waves: []int{1}, Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Namespace: h.Space}},
		Guards: tasker.Guards{WorkerAtLeast: "1.6.0"},
	})
	h.Must(err)
	_, err = ops.Start(t.Context(), o.UUID, o.PlanDigest, "ann")
	h.Must(err)
	for range 3 {
		_, err = ops.Release(t.Context())
		h.Must(err)
	}
	if f := h.explain(task).Reason; f != tasker.ConditionQueue {
		t.Errorf("with a newer worker it is %s", f)
	}
	h.Exec(`UPDATE tasker.workers SET version = '1.5.9'`)
	h.is(h.explain(task), want{
		tasker.ConditionGate, tasker.NextOperator, []string{"Step charge waits for a worker of version 1.6.0 or newer, as operation " + o.UUID.String() + " asks; none is alive."},
		"Start a worker of version 1.6.0 or newer with handler run for namespace " + h.Space, "", "charge",
	})
}

// The hold of a breaker says when it probes; what attempts failed with is for those who may read
// payloads.
func TestBreakersThatHold(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	task := h.Create("chain")
	held, err := h.DB.BeginHold(t.Context(), postgres.InsertedHold{
		NewHold: tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: h.Space, Handler: "run"}, For: tasker.MaxHoldTime, Owner: tasker.SystemActor, Actor: tasker.SystemActor, Reason: "10 of 10 failed with: secret"},
		UUID:    tasker.NewID(), Kind: tasker.BreakerHold, Cause: "secret", CauseKey: "key", NextProbe: time.Minute,
	})
	h.Must(err)
	words := []string{"is held by a breaker since", "until a probe succeeds (10 of 10 failed with: secret)", "; the next probe is at "}
	h.is(h.explain(task), want{tasker.ConditionHeld, tasker.NextTimer, words, "A probe succeeds; or an operator", "", ""})
	viewer := access.WithPermissionScope(t.Context(), access.NewIdentity("key:x", []access.Grant{{Role: access.Viewer, Namespace: h.Space}}), access.ReadTasks)
	for _, id := range []tasker.ID{task, held.UUID} {
		e, err := h.service.Explain(viewer, id)
		h.Must(err)
		h.is(e, want{tasker.ConditionHeld, tasker.NextTimer, []string{"held by a breaker"}, "", "", ""})
		if ordered(e.Message, []string{"secret"}) {
			t.Errorf("it tells a payload: %s", e.Message)
		}
	}
	h.Exec(`UPDATE tasker.holds SET kind = 'manual', ends_at = now() - interval '1 minute'`)
	h.is(h.explain(task), want{tasker.ConditionHeld, tasker.NextServer, nil, "tasker-ctl health shows", "", ""})
	_, err = h.service.Explain(access.WithPermissionScope(t.Context(), access.NewIdentity("key:y", []access.Grant{{Role: access.Admin, Namespace: "attic"}}), access.ReadTasks), held.UUID)
	h.WantCode(err, tasker.NotFound, "or hold "+held.UUID.String())
}

// A queue says that it is held: as a whole from the moment on at which the hold began, and
// else when all that is in it was put aside.
func TestHeldQueues(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	holds := hold.New(h.DB, h.Engine, hold.Options{})
	queue := func(w want) tasker.Explanation {
		t.Helper()
		e, err := h.service.ExplainQueue(t.Context(), h.Space, "run")
		h.Must(err)
		h.is(e, w)
		return e
	}
	begin := func(s tasker.HoldScope) tasker.Hold {
		t.Helper()
		s.Namespace = h.Space
		held, err := holds.Begin(t.Context(), tasker.NewHold{HoldScope: s, For: time.Hour, Owner: "bo", Reason: "PSP outage"})
		h.Must(err)
		return held
	}
	aside := func() {
		t.Helper()
		_, err := holds.ParkSteps(t.Context())
		h.Must(err)
	}
	whole := begin(tasker.HoldScope{Handler: "run"})
	queue(want{tasker.ConditionEmpty, tasker.NextNone, []string{"Nothing waits"}, "", "", ""})
	h.Create("chain")
	h.Create("chain")
	is := want{tasker.ConditionHeld, tasker.NextOperator, []string{"2 steps are held by bo since", "(PSP outage)."}, "hold release " + whole.UUID.String(), "", ""}
	queue(is)
	aside()
	if e := queue(is); factNamed(e, "held") != "2 steps" || factNamed(e, "waiting") != "0 steps" {
		t.Errorf("%+v", e.Facts)
	}
	_, err := holds.Release(t.Context(), whole.UUID, []int{}, hold.Change{Actor: "bo", Reason: "r"})
	h.Must(err)
	for range 3 {
		_, err = holds.AdvanceHolds(t.Context())
		h.Must(err)
	}
	queue(want{tasker.ConditionQueue, tasker.NextWorker, []string{"2 steps wait"}, "", "", ""})
	part := begin(tasker.HoldScope{TaskName: "chain"})
	aside()
	is.unblocks = part.UUID.String()
	queue(is)
	h.Create("twice")
	if e := queue(want{tasker.ConditionQueue, tasker.NextWorker, []string{"1 step waits"}, "", "", ""}); factNamed(e, "held") != "2 steps" {
		t.Errorf("%+v", e.Facts)
	}
}
