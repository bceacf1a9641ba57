package hold_test

import (
	"testing"

	"tasker.example/tasker"
)

// A hold is released in waves although another one covers some of its steps: those are handed
// over, and the waves are of the others.
func TestAWaveOfStepsThatOthersHoldAsWell(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		other   tasker.HoldScope
		orders  int
		waves   []int
		covered int64
	}{
		"some": {tasker.HoldScope{TaskName: "refund"}, 4, []int{1, 4}, 5},
		"all":  {tasker.HoldScope{}, 0, nil, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.tasks("refund", 5)
			h.tasks("order", tt.orders)
			a := h.hold(tasker.HoldScope{Handler: "run"})
			h.aside()
			b := h.hold(tt.other)
			h.release(a.UUID, 1, 10)
			for _, wave := range tt.waves {
				h.judge(2)
				if n := h.work(100, succeeds); n != wave {
					t.Fatalf("%d steps are handed out, want a wave of %d", n, wave)
				}
				h.aside()
			}
			h.judge(6)
			if d := h.now(a.UUID); d.State == tasker.HoldActive || d.Blocks && tt.orders == 0 {
				t.Errorf("the hold that is released is %s: %+v", d.State, d.History)
			}
			h.want(b.UUID, tasker.HoldActive, tt.covered)
			if tt.orders > 0 {
				return
			}
			h.want(a.UUID, tasker.HoldEnded, 0)
			h.release(b.UUID, 5)
			h.judge(2)
			if n := h.work(100, succeeds); n != 5 {
				t.Errorf("%d steps of the other hold are handed out, want 5", n)
			}
		})
	}
}

// Two holds of the same steps that are released at once both come to their end.
func TestTwoHoldsAreReleasedAtOnce(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"the older put them aside": 0, "the younger put them aside": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.tasks("refund", 20)
			holds := []tasker.Hold{h.hold(tasker.HoldScope{Handler: "run"}), h.hold(tasker.HoldScope{})}
			h.aside()
			h.Exec(`UPDATE tasker.held_steps SET hold_uuid = $1`, holds[first].UUID)
			for _, x := range holds {
				h.release(x.UUID, 1, 10)
			}
			did := 0
			for range 8 {
				h.judge(2)
				did += h.work(100, succeeds)
				h.aside()
			}
			for _, x := range holds {
				h.want(x.UUID, tasker.HoldEnded, 0)
			}
			if did != 20 {
				t.Errorf("%d steps are handed out, want 20", did)
			}
		})
	}
}

// A step of a wave that a hold which begins meanwhile keeps from claims is no failure.
func TestAHoldThatBeginsDuringAWave(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 5)
	a := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.release(a.UUID, 2, 2)
	h.judge(1)
	h.hold(tasker.HoldScope{})
	h.aside()
	h.waited("2 minutes")
	h.judge(6)
	if d := h.now(a.UUID); d.State != tasker.HoldEnded {
		t.Errorf("it is %s: %+v", d.State, d.History)
	}
}
