package hold_test

import (
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// probe lets one step of a hold go, and returns what a worker gets.
func (h *harness) probe(id tasker.ID) []tasker.Assignment {
	h.Helper()
	_, err := h.holds.Probe(h.Context(), id, by)
	h.Must(err)
	h.judge(2)
	list := h.claim(10)
	if len(list) != 1 {
		h.Fatalf("a probe lets %d steps go, want 1", len(list))
	}
	return list
}

func (h *harness) release(id tasker.ID, waves ...int) {
	h.Helper()
	if waves == nil {
		waves = []int{}
	}
	_, err := h.holds.Release(h.Context(), id, waves, by)
	h.Must(err)
}

// waited has time pass since steps were let go.
func (h *harness) waited(d string) {
	h.Helper()
	h.Exec(`UPDATE tasker.hold_releases SET released_at = released_at - $1::interval WHERE outcome IS NULL`, d)
	h.Exec(`UPDATE tasker.holds SET wave_since = wave_since - $1::interval WHERE wave_since IS NOT NULL`, d)
}

// An attempt that is under way when its hold ends counts as any other: it uses an attempt, and
// one that was the last opens an investigation.
func TestAnAttemptInFlightAtTheEndOfItsHoldCounts(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", enginetest.Once(enginetest.Step("charge")))
	h.tasks("single", 1)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	list := h.probe(held.UUID)
	h.release(held.UUID)
	h.judge(4)
	h.want(held.UUID, tasker.HoldEnded, 0)
	h.report(list, fails)
	if n := h.Count(`SELECT attempts FROM tasker.workflow_steps`); n != 1 {
		t.Errorf("the step has used %d attempts, want 1", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq`); n != 1 {
		t.Errorf("%d investigations, want 1", n)
	}
	if d := h.now(held.UUID); d.InFlight != 0 || d.Releases[0].Outcome != tasker.ReleaseGone || d.Releases[0].JudgedAt == nil {
		t.Errorf("%d are in flight after its end: %+v", d.InFlight, d.Releases)
	}
}

// A probe that takes longer than nothing may be heard of a step is awaited while its worker
// sends heartbeats, and closes the breaker when it succeeds.
func TestAProbeThatTakesLong(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 3)
	b := h.breaker()
	h.aside()
	h.Exec(`UPDATE tasker.holds SET next_probe_at = now()`)
	h.judge(2)
	list := h.claim(5)
	h.waited("16 minutes")
	h.judge(2)
	if d := h.now(b.UUID); d.InFlight != 1 || d.FailedProbes != 0 {
		t.Errorf("after 16 minutes %d probes are awaited and %d have failed, want 1 and none: %+v", d.InFlight, d.FailedProbes, d.Releases)
	}
	h.report(list, succeeds)
	h.judge(1)
	d := h.want(b.UUID, tasker.HoldReleasing, 2-1)
	if d.Releases[len(d.Releases)-1].Outcome != tasker.ReleaseSucceeded {
		t.Errorf("the probe came to %+v", d.Releases)
	}
}

// A wave of more steps than the workers can take at once is not a failure: while they take others of it, or of its queue, or a limit has
// no place for more, the rest are awaited.
func TestAWaveThatIsLargerThanItsWorkers(t *testing.T) {
	t.Parallel()
	nothing := func(*harness) {}
	for name, c := range map[string]struct {
		before, meanwhile func(h *harness)
		take              int
		want              tasker.HoldState
	}{
		"a worker has one of it":          {nothing, nothing, 1, tasker.HoldReleasing},
		"a limit has no place for others": {setLimit, expire, 10, tasker.HoldReleasing},
		"its queue is busy": {nothing, func(h *harness) {
			h.Must(h.DB.RecordClaims(h.Context(), []postgres.QueueName{{Namespace: enginetest.Namespace, Handler: "run"}}))
		}, 0, tasker.HoldReleasing},
		"nobody takes any": {nothing, nothing, 0, tasker.HoldActive},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.tasks("refund", 12)
			held := h.hold(tasker.HoldScope{Handler: "run"})
			h.aside()
			c.before(h)
			h.release(held.UUID, 10)
			h.judge(3)
			var list []tasker.Assignment
			if c.take > 0 {
				list = h.claim(c.take)
			}
			c.meanwhile(h)
			h.waited("5 minutes")
			h.judge(2)
			if d := h.now(held.UUID); d.State != c.want {
				t.Fatalf("the hold is %s, want %s: %+v", d.State, c.want, d.Releases)
			}
			if len(list) == 0 {
				return
			}
			h.report(list, succeeds)
			if n := h.work(9, succeeds); n != 9 { // also where a limit had put them aside: the hold has let them go
				t.Errorf("%d of the others are handed out", n)
			}
			h.judge(3)
			h.want(held.UUID, tasker.HoldEnded, 0)
		})
	}
}

// A step that a hold has let go stays free of it while a limit keeps it from claims, also when the limit goes; and as long as it waits
// for the limit it is awaited.
func TestAWaveThatWaitsForALimit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 4)
	setLimit(h)
	other := h.claim(1) // has the place
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.release(held.UUID, 3)
	h.judge(3)
	expire(h)
	h.waited("5 minutes")
	h.judge(2)
	h.want(held.UUID, tasker.HoldReleasing, 0)
	h.Must(h.Engine.DeleteLimit(h.Context(), tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: enginetest.Namespace, Name: "run"}, engine.LimitChange{Actor: "bo", Reason: "a test"}))
	if _, err := h.DB.UnparkLimited(h.Context(), 10, 0); err != nil {
		t.Fatal(err)
	}
	if n := h.work(3, succeeds); n != 3 {
		t.Errorf("%d of 3 steps are handed out", n)
	}
	h.report(other, succeeds)
	h.judge(3)
	h.want(held.UUID, tasker.HoldEnded, 0)
}

// setLimit lets one step of the handler be in progress.
func setLimit(h *harness) {
	h.Helper()
	_, err := h.Engine.SetLimit(h.Context(), tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: enginetest.Namespace, Name: "run"}, tasker.LimitValue{MaxInProgress: 1}, engine.LimitChange{Actor: "bo", Reason: "a test"})
	h.Must(err)
}

// expire has the time be over for which steps may wait for a worker.
func expire(h *harness) {
	h.Helper()
	h.Exec(`UPDATE tasker.ready_steps SET expires_at = clock_timestamp() - interval '1 hour'`)
	_, err := h.Engine.ExpireSteps(h.Context())
	h.Must(err)
}

// Nothing is awaited of a step whose worker fell silent, nor for longer than a hold lasts.
func TestAProbeWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]func(h *harness){
		"its worker is silent": func(h *harness) {
			h.waited("16 minutes")
			h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() - interval '1 second' WHERE state = 'in_progress'`)
		},
		"it takes a day": func(h *harness) { h.waited("24 hours 1 minute") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.tasks("refund", 3)
			held := h.hold(tasker.HoldScope{Handler: "run"})
			h.aside()
			h.probe(held.UUID)
			later(h)
			h.judge(1)
			if d := h.now(held.UUID); d.FailedProbes != 1 || d.Releases[0].Outcome != tasker.ReleaseNoAnswer {
				t.Errorf("%d probes have failed: %+v", d.FailedProbes, d.Releases)
			}
		})
	}
}

// A step that a worker gives back says nothing: another one may be the probe at once, and a wave
// of which all were given back lets as many others go.
func TestReleasedStepIsNotAFailure(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 3)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	back := func(list []tasker.Assignment) {
		t.Helper()
		for _, a := range list {
			_, _, err := h.Engine.Release(h.Context(), h.worker, []tasker.Lease{a.Lease()})
			h.Must(err)
		}
		h.judge(1)
		h.aside()
	}
	back(h.probe(held.UUID))
	if d := h.want(held.UUID, tasker.HoldActive, 3); d.InFlight != 0 || d.FailedProbes != 0 || d.Releases[0].Outcome != tasker.ReleaseGone {
		t.Fatalf("%d are in flight, %d probes have failed: %+v", d.InFlight, d.FailedProbes, d.Releases)
	}
	h.report(h.probe(held.UUID), succeeds)
	h.judge(1)
	h.release(held.UUID, 1, 1)
	h.judge(1)
	back(h.claim(5))
	h.judge(1)
	if d := h.want(held.UUID, tasker.HoldReleasing, 1); d.Wave != 1 {
		t.Errorf("after a wave that was given back it is in wave %d, want 1 again: %+v", d.Wave, d.History)
	}
	if n := h.work(5, succeeds); n != 1 {
		t.Fatalf("%d steps are handed out, want another wave of 1", n)
	}
	h.judge(1)
	if d := h.now(held.UUID); d.Wave != 2 {
		t.Errorf("after a wave that succeeded it is in wave %d, want 2: %+v", d.Wave, d.History)
	}
}

// Of a wave those count of which something is known.
func TestWaveWithMostlyReleasedSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 40)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.release(held.UUID, 30, 1)
	h.judge(1)
	h.work(2, fails)
	for _, a := range h.claim(100) {
		_, _, err := h.Engine.Release(h.Context(), h.worker, []tasker.Lease{a.Lease()})
		h.Must(err)
	}
	h.judge(1)
	if d := h.now(held.UUID); d.State != tasker.HoldActive {
		t.Errorf("two of two have failed, and the hold is %s: %+v", d.State, d.History)
	}
}

// A probe that runs into its timeout, or whose worker falls silent, has failed and uses no attempt.
func TestAProbeThatTimesOutUsesNoAttempt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"timeout":       `UPDATE tasker.workflow_steps SET lease_expires_at = now() - interval '1 second', timeout_at = now() - interval '1 second', timeout_ms = 1000 WHERE state = 'in_progress'`,
		"lease run out": `UPDATE tasker.workflow_steps SET lease_expires_at = now() - interval '1 second' WHERE state = 'in_progress'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.Template("single", enginetest.Once(enginetest.Step("charge")))
			h.tasks("single", 2)
			held := h.hold(tasker.HoldScope{Handler: "run"})
			h.aside()
			h.probe(held.UUID)
			h.Exec(change)
			h.Exec(`UPDATE tasker.claims SET look_at = now()`)
			_, err := h.Engine.Tick(h.Context())
			h.Must(err)
			h.judge(1)
			if d := h.now(held.UUID); d.FailedProbes != 1 || d.Releases[0].Outcome != tasker.ReleaseFailed {
				t.Errorf("%d probes have failed: %+v", d.FailedProbes, d.Releases)
			}
			if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq`) + h.Count(`SELECT attempts FROM tasker.workflow_steps WHERE state = 'error'`); n != 0 {
				t.Error("the attempt counts")
			}
		})
	}
}

// Of a wave that has failed a step may be in progress for hours: meanwhile probes go on.
func TestAFailedWaveKeepsNoProbeBack(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 12)
	b := h.breaker()
	h.aside()
	h.release(b.UUID, 10)
	h.judge(2)
	list := h.claim(10)
	h.report(list[:2], fails)
	h.judge(2)
	if d := h.now(b.UUID); d.State != tasker.HoldActive || d.InFlight != 8 {
		t.Fatalf("after two failures it is %s, and %d are in flight", d.State, d.InFlight)
	}
	list = h.probe(b.UUID)
	_, err := h.holds.Probe(h.Context(), b.UUID, by)
	h.WantCode(err, tasker.Conflict, "a probe of hold")
	h.report(list, succeeds)
	h.judge(1)
	h.want(b.UUID, tasker.HoldReleasing, 0) // the last one is the first wave
}

// A step that is held and not put aside yet does not fail when its time in the queue is over.
func TestAHeldStepDoesNotExpireBeforeItIsPutAside(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 2)
	h.tasks("order", 1)
	late := func() {
		t.Helper()
		h.Exec(`UPDATE tasker.ready_steps SET expires_at = now() - interval '1 hour'`)
		_, err := h.Engine.ExpireSteps(h.Context())
		h.Must(err)
	}
	held := h.hold(tasker.HoldScope{TaskName: "refund"})
	late()
	h.want(held.UUID, tasker.HoldActive, 2)
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'error'`); n != 1 {
		t.Errorf("%d steps have failed, want that of the other template", n)
	}
}

// A hold whose steps cannot be put aside holds up no other.
func TestFailingHoldDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	other := enginetest.Step("notify")
	other.Handler.Callable = "mail"
	h.Template("mail", other)
	h.tasks("refund", 1)
	h.tasks("mail", 1)
	h.hold(tasker.HoldScope{Handler: "run"})
	held := h.hold(tasker.HoldScope{Handler: "mail"})
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER broken BEFORE INSERT ON tasker.held_steps FOR EACH ROW WHEN (NEW.handler = 'run') EXECUTE FUNCTION public.refuse()`)
	if _, err := h.holds.ParkSteps(h.Context()); err == nil {
		t.Error("the pass does not say what failed")
	}
	h.want(held.UUID, tasker.HoldActive, 1)
}

// A hold with which servers cannot go on does not slow down the release of another.
func TestAHoldThatFailsSlowsDownNoRelease(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 1)
	broken, held := h.hold(tasker.HoldScope{Handler: "mail"}), h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.release(held.UUID)
	h.Exec(`UPDATE tasker.holds SET ends_at = now() - interval '1 second', began_at = began_at - interval '1 hour' WHERE hold_uuid = $1`, broken.UUID)
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER broken BEFORE UPDATE ON tasker.holds FOR EACH ROW WHEN (NEW.handler = 'mail') EXECUTE FUNCTION public.refuse()`)
	if next, err := h.holds.AdvanceHolds(h.Context()); next != loop.AtOnce || err != nil {
		t.Errorf("a pass that lets steps go rests %s: %v", next, err)
	}
	if _, err := h.holds.AdvanceHolds(h.Context()); err == nil {
		t.Error("a pass without more to do does not say what failed")
	}
}
