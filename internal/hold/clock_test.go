package hold_test

import (
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// The time for which several steps of a task are held at once counts once, and it counts
// whichever way a step leaves the hold.
func TestTheTimeThatATaskIsHeldCountsOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("pair", enginetest.Step("charge"), enginetest.Step("notify"))
	task := h.Create("pair")
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.Exec(`UPDATE tasker.tasks SET ends_at = now() + interval '10 hours'`)
	left := 10 * time.Hour
	pass := func(d time.Duration) {
		t.Helper()
		h.Exec(`UPDATE tasker.held_steps SET held_at = held_at - $1::interval, counted_until = counted_until - $1::interval`, d)
		h.Exec(`UPDATE tasker.tasks SET ends_at = ends_at - $1::interval`, d)
	}
	check := func(when string, want time.Duration) {
		t.Helper()
		var got time.Duration
		h.Must(h.Admin().QueryRow(h.Context(), `SELECT ends_at - now() FROM tasker.tasks`).Scan(&got))
		if diff := (got - want).Abs(); diff > 5*time.Minute {
			t.Errorf("%s %s are left to the task, want %s", when, got, want)
		}
	}

	pass(2 * time.Hour)
	check("while it is held", left-2*time.Hour)
	_, err := h.Engine.OperateStep(h.Context(), task, h.step(task), tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "anna", Reason: "done by hand", Interrupt: true})
	h.Must(err)
	check("after a step was resolved by hand", left)

	pass(time.Hour)
	_, err = h.holds.Release(h.Context(), held.UUID, []int{}, by)
	h.Must(err)
	h.judge(2)
	check("after the release", left)

	if got := h.work(10, succeeds); got != 1 {
		t.Errorf("%d steps are handed out after the release", got)
	}
}
