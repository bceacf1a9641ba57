package hold_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
)

// A hold that began more than a day ago and was extended holds again when a wave fails, at least
// until the end that it has, and for a day from when it was extended.
func TestAnExtendedHoldHoldsAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 20)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.Exec(`UPDATE tasker.holds SET began_at = began_at - interval '25 hours'`)
	extended, err := h.holds.Extend(h.Context(), held.UUID, tasker.HoldExtension{For: 10 * time.Hour}, by)
	h.Must(err)
	h.release(held.UUID, 1)
	h.judge(2)
	h.work(5, fails)
	h.judge(4)
	d := h.want(held.UUID, tasker.HoldActive, 19)
	if !d.Blocks || d.EndsAt.Before(extended.EndsAt) {
		t.Errorf("it blocks: %v, until %s, which was %s before", d.Blocks, d.EndsAt, extended.EndsAt)
	}
	if n := len(h.claim(100)); n != 0 {
		t.Errorf("%d steps are handed out", n)
	}
	// Its end may have passed by then.
	h.Exec(`UPDATE tasker.holds SET ends_at = now() - interval '1 second'`)
	h.judge(2)
	h.work(1, fails)
	h.judge(2)
	if d := h.now(held.UUID); d.State != tasker.HoldActive || d.EndsAt.Sub(extended.UpdatedAt) > tasker.MaxHoldTime || time.Until(d.EndsAt) < time.Minute {
		t.Errorf("after its end it is %s until %s", d.State, d.EndsAt)
	}
}

// A hold that nobody has extended for a day does not hold again, and people are told so.
func TestAHoldThatIsTooOldToHoldAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 20)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.Exec(`UPDATE tasker.holds SET began_at = began_at - interval '25 hours', ends_at = now() - interval '1 hour'`)
	h.judge(2)
	h.work(5, fails)
	h.judge(4)
	h.want(held.UUID, tasker.HoldEnded, 0)
	var said string
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT string_agg(data ->> 'summary', ';') FROM tasker.messages WHERE topic = 'hold.failed'`).Scan(&said))
	if !strings.Contains(said, "too old to hold again") {
		t.Errorf("people are told %q", said)
	}
}

// A breaker whose time is over, and of which a wave fails, rests between its attempts as before.
func TestABreakerPastItsEndKeepsItsRest(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 30)
	b := h.breaker()
	h.aside()
	h.Exec(`UPDATE tasker.holds SET began_at = began_at - interval '25 hours', ends_at = now() - interval '1 hour', next_probe_at = now() + interval '1 minute',
		failed_probes = 4`) // the rest that follows is the longest
	attempts := 0
	for range 5 {
		h.judge(2)
		attempts += h.work(100, fails)
		h.judge(1)
	}
	d := h.now(b.UUID)
	if attempts != 1 || d.State != tasker.HoldActive || d.NextProbeAt == nil || time.Until(d.EndsAt) < time.Hour {
		t.Errorf("%d attempts, want 1; it is %s until %s, with a probe at %v", attempts, d.State, d.EndsAt, d.NextProbeAt)
	}
}

// While the rest of a hold is let go its scope may be held again, also by a breaker.
func TestAScopeIsHeldAgainWhileTheRestIsLetGo(t *testing.T) {
	t.Parallel()
	h, _ := withBreaker(t)
	h.tasks("refund", 30)
	first := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.release(first.UUID)
	second := h.hold(tasker.HoldScope{Handler: "run"})
	h.judge(2)
	if n := len(h.claim(100)); n != 0 {
		t.Errorf("%d steps are handed out", n)
	}
	h.aside()
	h.want(first.UUID, tasker.HoldEnded, 0)
	h.want(second.UUID, tasker.HoldActive, 30)
	h.release(second.UUID)
	h.judge(2)

	h.work(10, fails)
	breaker := h.breaks()
	if breaker == nil {
		t.Fatal("no breaker")
	}
	h.aside()
	h.release(breaker.UUID)
	h.judge(1)
	h.work(10, fails)
	h.Exec(`CREATE UNIQUE INDEX one_open_breaker_of_a_handler ON tasker.holds (namespace, handler) WHERE kind = 'breaker' AND ended_at IS NULL`)
	if open := h.breaks(); open == nil || open.UUID != breaker.UUID {
		t.Fatalf("a breaker begins before an upgrade is finished: %+v", open)
	}
	h.Exec(`DROP INDEX tasker.one_open_breaker_of_a_handler`)
	again := h.breaks()
	if again == nil || again.UUID == breaker.UUID {
		t.Fatalf("what fails while the rest of a breaker is let go opens no other: %+v", again)
	}
	if d := h.now(breaker.UUID); d.State != tasker.HoldReleasing {
		t.Errorf("the first one is %s", d.State)
	}
	h.judge(2)
	h.want(breaker.UUID, tasker.HoldEnded, 0)
}

// Steps that a hold has left behind are let go, and when others hold their tasks it is tried
// again after a rest.
func TestStepsOfAnEndedHoldAreReleased(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.tasks("refund", 1)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.Exec(`UPDATE tasker.holds SET state = 'ended', blocks = false, ended_at = now()`)
	tx, err := h.Admin().Begin(h.Context())
	h.Must(err)
	_, err = tx.Exec(h.Context(), `SELECT FROM tasker.tasks WHERE task_uuid = $1 FOR UPDATE`, tasks[0])
	h.Must(err)
	rest, err := h.holds.Prune(h.Context())
	h.Must(err)
	if rest == loop.AtOnce {
		t.Error("it is tried again at once while others hold the task")
	}
	h.Must(tx.Rollback(h.Context()))
	rest, err = h.holds.Prune(h.Context())
	h.Must(err)
	if rest != loop.AtOnce {
		t.Errorf("after steps were let go it rests for %s", rest)
	}
	h.want(held.UUID, tasker.HoldEnded, 0)
	if n := h.work(10, succeeds); n != 1 {
		t.Errorf("%d steps are handed out, want 1", n)
	}
}

// Steps that wait for a limit are of no hold, lost or not.
func TestStepsThatWaitForALimitAreOfNoHold(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 3)
	setLimit(h)
	h.claim(3)
	if n := h.Count(`SELECT count(*) FROM tasker.held_steps WHERE hold_uuid IS NULL`); n == 0 {
		t.Fatal("no step was put aside for the limit")
	}
	if lost, err := h.DB.FindOrphanedHold(t.Context()); err != nil || lost != nil {
		t.Errorf("the lost hold is %v, %v", lost, err)
	}
}

// A hold that takes long delays the others by its turn, in the same pass; and where the time of a
// pass is over by then, the next one begins behind it.
func TestSlowHoldDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 9)
	slow := h.hold(tasker.HoldScope{TaskName: "refund"})
	h.tasks("order", 3)
	sound := h.hold(tasker.HoldScope{TaskName: "order"})
	h.aside()
	h.Exec(`CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(20); RETURN NEW; END $$`)
	h.Exec(`CREATE TRIGGER slow BEFORE UPDATE ON tasker.holds FOR EACH ROW WHEN (NEW.hold_uuid = '` + slow.UUID.String() + `' AND NEW.state = OLD.state) EXECUTE FUNCTION public.slow()`)
	h.release(slow.UUID)
	h.holds.SetTurn(500 * time.Millisecond)
	begun := time.Now()
	h.judge(1)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("a pass takes %v", took)
	}
	h.want(slow.UUID, tasker.HoldReleasing, 9)

	h.release(sound.UUID)
	for range 20 {
		if h.now(sound.UUID).State == tasker.HoldEnded {
			break
		}
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		_, _ = h.holds.AdvanceHolds(ctx) // that its time is over is an error
		cancel()
	}
	h.want(sound.UUID, tasker.HoldEnded, 0)
}
