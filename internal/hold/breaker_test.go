package hold_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/postgres"
)

// withBreaker is a harness whose server has a breaker and a clock of its own.
func withBreaker(t *testing.T) (h *harness, now *time.Time) {
	t.Helper()
	h = newHarness(t)
	now = new(time.Time)
	*now = time.Now()
	h.server(now)
	return h, now
}

// server has the harness go on as another server on its database.
func (h *harness) server(now *time.Time) {
	h.Helper()
	h.DB = enginetest.Open(h, h.URL, postgres.Options{ReportQueues: true})
	h.Engine = engine.New(h.DB, engine.Options{Hooks: enginetest.Hooks{Ended: func(list []engine.Attempt) { h.holds.Concluded(list) }}})
	h.holds = hold.New(h.DB, h.Engine, hold.Options{Breaker: hold.DefaultBreaker(), Now: func() time.Time { return *now }})
	h.holds.SetTurn(time.Minute) // however slow the machine is
}

// keepCounts has what servers have counted, which holds for five seconds, hold for the test.
func (h *harness) keepCounts() {
	h.Helper()
	h.Exec(`UPDATE tasker.breaker_counts SET counted_at = clock_timestamp() + interval '1 hour'`)
}

// breaks lets servers decide on breakers, and returns the open one if there is one.
func (h *harness) breaks() *tasker.Hold {
	h.Helper()
	for range 3 { // others get two of them for an answer
		_, err := h.holds.OpenBreakers(h.Context())
		h.Must(err)
	}
	open, _, err := h.holds.List(h.Context(), tasker.HoldFilter{Open: true, Limit: 10})
	h.Must(err)
	if len(open) == 0 {
		return nil
	}
	return &open[0]
}

func failsWith(message string) func(tasker.Assignment) tasker.Outcome {
	return func(a tasker.Assignment) tasker.Outcome {
		o := fails(a)
		o.Failure = &tasker.Failure{Message: message, Type: "Gateway", Retryable: true}
		return o
	}
}

func TestWhenABreakerOpens(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(h *harness, now *time.Time)
		open bool
	}{
		"ten failures of ten tasks": {func(h *harness, _ *time.Time) { h.work(10, fails) }, true},
		"nine":                      {func(h *harness, _ *time.Time) { h.work(9, fails) }, false},
		"ten, and two successes":    {func(h *harness, _ *time.Time) { h.work(1, fails); h.work(2, succeeds); h.work(9, fails) }, true},
		"ten, and three successes":  {func(h *harness, _ *time.Time) { h.work(1, fails); h.work(3, succeeds); h.work(9, fails) }, false},
		"two causes of five each": {func(h *harness, _ *time.Time) {
			h.work(5, fails)
			h.work(5, failsWith("SQLSTATE 23505"))
		}, false},
		"one cause, many messages": {func(h *harness, _ *time.Time) {
			for i := range 10 {
				h.work(1, failsWith(fmt.Sprintf("timeout after %d ms for order %d", 1000+i, 90000+i)))
			}
		}, true},
		"too slowly": {func(h *harness, now *time.Time) {
			h.work(5, fails)
			*now = now.Add(31 * time.Second)
			h.work(5, fails)
		}, false},
		"slowly enough": {func(h *harness, now *time.Time) {
			h.work(5, fails)
			*now = now.Add(29 * time.Second)
			h.work(5, fails)
		}, true},
		"of four tasks only": {func(h *harness, _ *time.Time) {
			h.Exec(`UPDATE tasker.tasks SET priority = 0`)
			for range 3 {
				h.work(4, fails)
				h.retry()
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, now := withBreaker(t)
			n := 15
			if name == "of four tasks only" {
				n = 4
			}
			h.tasks("refund", n)
			tt.do(h, now)
			open := h.breaks()
			if (open != nil) != tt.open {
				t.Fatalf("the breaker is open: %v, want %v", open != nil, tt.open)
			}
			if open != nil && (open.Kind != tasker.BreakerHold || open.Handler != "run" || open.Namespace != enginetest.Namespace || open.NextProbeAt == nil || open.Cause == "") {
				t.Errorf("it is %+v", open)
			}
		})
	}
}

// retry enqueues again what has failed and may be tried again.
func (h *harness) retry() {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() - interval '1 second' WHERE next_retry_at IS NOT NULL`)
	h.Must(h.DB.InTx(h.Context(), func(tx *postgres.Tx) error {
		tasks, _, err := h.DB.TasksWithDueRetries(h.Context(), postgres.RetryMark{}, 1000)
		if err != nil {
			return err
		}
		if err := tx.LockTasks(h.Context(), tasks); err != nil {
			return err
		}
		if _, err = tx.RetryDue(h.Context(), tasks); err != nil {
			return err
		}
		_, err = tx.SettleTasks(h.Context(), tasks, postgres.Operator{})
		return err
	}))
}

// Of what several servers see a breaker opens as of what one sees.
func TestServersCountTogether(t *testing.T) {
	t.Parallel()
	h, now := withBreaker(t)
	h.tasks("refund", 12)
	h.work(5, fails)
	if h.breaks() != nil {
		t.Fatal("five failures open a breaker")
	}
	h.keepCounts()
	h.server(now)
	h.work(5, fails)
	if h.breaks() == nil {
		t.Fatal("five failures on each of two servers open no breaker")
	}
	h.server(now) // a third that had counted, too
	var list []engine.Attempt
	for range 10 {
		list = append(list, engine.Attempt{Namespace: enginetest.Namespace, Handler: "run", TaskUUID: tasker.NewID(), Failure: fails(tasker.Assignment{}).Failure})
	}
	h.holds.Concluded(list)
	h.breaks()
	if n := h.Count(`SELECT count(*) FROM tasker.holds`); n != 1 {
		t.Errorf("%d breakers", n)
	}
}

// A gateway that is away for an hour costs a few probes and no attempt, also of steps that have
// one only and were in progress when the breaker opened. Only what failed before is
// investigated, and when the gateway is back all others go on by themselves.
func TestAnOutageOfAnHour(t *testing.T) {
	t.Parallel()
	h, now := withBreaker(t)
	h.Template("single", enginetest.Once(enginetest.Step("charge")))
	h.tasks("single", 200)
	held := h.claim(30) // in flight when it breaks
	h.report(held[:10], fails)
	open := h.breaks()
	if open == nil {
		t.Fatal("no breaker")
	}
	h.report(held[10:], fails)
	h.Exec(`UPDATE tasker.holds SET began_at = now() - interval '1 second', next_probe_at = now() + interval '1 minute'`)
	probes := 0
	for outage := time.Duration(0); outage < time.Hour; {
		h.aside()
		h.judge(1)
		d := h.now(open.UUID)
		if d.NextProbeAt == nil {
			t.Fatalf("after %s no probe is to come: %+v", outage, d.Hold)
		}
		rest := time.Until(*d.NextProbeAt)
		outage += rest
		h.Exec(`UPDATE tasker.holds SET next_probe_at = now()`)
		h.judge(1)
		probe := h.claim(100)
		if len(probe) != 1 {
			t.Fatalf("after %s %d steps are handed out as a probe", outage, len(probe))
		}
		probes++
		h.report(probe, fails)
		h.retry()
	}
	if probes > 60 {
		t.Errorf("%d probes in an hour", probes)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq`); n != 10 {
		t.Errorf("%d investigations, want the 10 that opened the breaker", n)
	}
	*now = now.Add(time.Hour)
	h.aside()
	h.judge(1)
	h.Exec(`UPDATE tasker.holds SET next_probe_at = now()`)
	for range 12 {
		h.judge(2)
		h.work(1000, succeeds)
	}
	h.want(open.UUID, tasker.HoldEnded, 0)
	if n := h.Count(`SELECT count(*) FROM tasker.tasks WHERE state = 'complete'`); n != 190 {
		t.Errorf("%d of 190 tasks are complete", n)
	}
	if h.breaks() != nil {
		t.Error("it is open again")
	}
}

// breaker is a hold as a breaker begins it.
func (h *harness) breaker() tasker.Hold {
	h.Helper()
	b, err := h.DB.BeginHold(h.Context(), postgres.InsertedHold{
		NewHold: tasker.NewHold{
			HoldScope: tasker.HoldScope{Namespace: enginetest.Namespace, Handler: "run"}, For: tasker.MaxHoldTime,
			Owner: tasker.SystemActor, Actor: tasker.SystemActor, Reason: "HTTP 503",
		},
		UUID: tasker.NewID(), Kind: tasker.BreakerHold, Cause: "HTTP 503", CauseKey: "k", NextProbe: 5 * time.Second,
	})
	h.Must(err)
	return b
}

// Attempts that run into their timeout open a breaker; those that workers lose do not.
func TestTimeoutsOpenABreaker(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]bool{"timeouts": true, "leases": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := withBreaker(t)
			h.tasks("refund", 12)
			h.claim(12)
			h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() - interval '1 second' WHERE state = 'in_progress'`)
			if open {
				h.Exec(`UPDATE tasker.workflow_steps SET timeout_at = now() - interval '1 second', timeout_ms = 1000 WHERE state = 'in_progress'`)
			}
			h.Exec(`UPDATE tasker.claims SET look_at = now()`)
			_, err := h.Engine.Tick(h.Context())
			h.Must(err)
			if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'error'`); n != 12 {
				t.Fatalf("%d attempts have ended, want 12", n)
			}
			if got := h.breaks() != nil; got != open {
				t.Errorf("a breaker is open: %v, want %v", got, open)
			}
		})
	}
}

// A process of which all attempts fail opens no breaker while most attempts succeed elsewhere.
func TestOneBadProcessOpensNoBreaker(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]int{"most succeed elsewhere": 60, "few succeed elsewhere": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, now := withBreaker(t)
			h.tasks("refund", 75)
			h.work(good, succeeds)
			first := h.holds
			h.server(now)
			h.work(10, fails)
			for range 4 {
				for _, s := range []*hold.Service{h.holds, first} {
					_, err := s.OpenBreakers(h.Context())
					h.Must(err)
					h.keepCounts()
				}
			}
			want := 0
			if good < 10 {
				want = 1
			}
			if n := h.Count(`SELECT count(*) FROM tasker.holds`); n != want {
				t.Errorf("%d breakers are open after 10 failures on one server and %d successes on another, want %d", n, good, want)
			}
		})
	}
}

// failing has ten attempts of ten tasks fail on this server, for each of some handlers.
func (h *harness) failing(handlers ...string) {
	h.Helper()
	var list []engine.Attempt
	for _, handler := range handlers {
		for range 10 {
			list = append(list, engine.Attempt{Namespace: enginetest.Namespace, Handler: handler, TaskUUID: tasker.NewID(), Failure: &tasker.Failure{Message: "HTTP 503", Type: "Gateway"}})
		}
	}
	h.holds.Concluded(list)
}

// A breaker for which too many holds are open is in the log and counted, and opens when there is room.
func TestBreakerBeyondTheHoldLimit(t *testing.T) {
	t.Parallel()
	h, now := withBreaker(t)
	var log bytes.Buffer
	h.holds = hold.New(h.DB, h.Engine, hold.Options{Breaker: hold.DefaultBreaker(), Now: func() time.Time { return *now }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	h.Exec(`INSERT INTO tasker.holds (hold_uuid, kind, namespace, handler, reason, owner, ends_at)
		SELECT gen_random_uuid(), 'manual', $1, n::text, 'r', 'bo', now() + interval '1 hour' FROM generate_series(1, $2::int) n`, enginetest.Namespace, tasker.MaxOpenHoldsPerNamespace)
	is := func(when string, unopened int64, told, open int) {
		t.Helper()
		h.breaks()
		breakers := h.Count(`SELECT count(*) FROM tasker.holds WHERE kind = 'breaker'`)
		if n := strings.Count(log.String(), "cannot open a circuit breaker"); h.holds.CountUnopened() != unopened || n != told || breakers != open {
			t.Errorf("%s %d breakers are unopened, the log says so %d times, and %d are open; want %d, %d and %d", when, h.holds.CountUnopened(), n, breakers, unopened, told, open)
		}
	}
	h.failing("run")
	is("with 50 holds", 1, 1, 0)
	is("a moment later", 1, 1, 0)
	if !strings.Contains(log.String(), "handler=run") || !strings.Contains(log.String(), "50 holds of namespace") {
		t.Errorf("the log says %s", log.String())
	}
	*now = now.Add(31 * time.Second)
	is("when nothing fails any more", 0, 1, 0)
	h.failing("run")
	is("when it fails again", 1, 2, 0)
	h.Exec(`UPDATE tasker.holds SET state = 'ended', blocks = false, ended_at = now() WHERE handler = '1'`)
	is("with room", 0, 2, 1)
}

// A breaker that cannot be opened holds up no other.
func TestFailingBreakerDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	h, _ := withBreaker(t)
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER broken BEFORE INSERT ON tasker.holds FOR EACH ROW WHEN (NEW.handler <> 'good') EXECUTE FUNCTION public.refuse()`)
	h.failing("bad1", "bad2", "bad3", "bad4", "good")
	var err error
	for range 3 {
		_, err = h.holds.OpenBreakers(h.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "handler bad3") {
		t.Errorf("the pass says %v", err)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.holds WHERE handler = 'good'`); n != 1 {
		t.Errorf("%d breakers are open, want 1", n)
	}
}
