package hold_test

import (
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
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
	for name, end := range map[string]func(h *harness, id tasker.ID){
		"a probe": func(h *harness, id tasker.ID) { h.release(id) },
		"by a server of the previous version": func(h *harness, id tasker.ID) {
			h.release(id)
			h.judge(4)
			h.Exec(`UPDATE tasker.hold_releases SET outcome = NULL, judged_at = NULL`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.Template("single", enginetest.Once(enginetest.Step("charge")))
			h.tasks("single", 1)
			held := h.hold(tasker.HoldScope{Handler: "run"})
			h.aside()
			list := h.probe(held.UUID)
			end(h, held.UUID)
			h.judge(4)
			h.want(held.UUID, tasker.HoldEnded, 0)
			h.report(list, fails)
			if n := h.Count(`SELECT attempts FROM tasker.workflow_steps`); n != 1 {
				t.Errorf("the step has used %d attempts, want 1", n)
			}
			if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq`); n != 1 {
				t.Errorf("%d investigations, want 1", n)
			}
			if name != "a probe" {
				_, err := h.holds.Tidy(h.Context())
				h.Must(err)
			}
			if d := h.now(held.UUID); d.InFlight != 0 || d.Releases[0].Outcome != tasker.ReleaseGone || d.Releases[0].JudgedAt == nil {
				t.Errorf("%d are in flight after its end: %+v", d.InFlight, d.Releases)
			}
		})
	}
}
