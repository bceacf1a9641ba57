package worker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
)

// An idle worker lives by its claims, at a backend that counts them as heartbeats: it is
// silent no longer than an interval, and hardly sends any other request.
func TestAnIdleWorkerLivesByItsClaims(t *testing.T) {
	for counts, want := range map[bool]struct{ beats, claims int }{
		true:  {beats: 20, claims: 67},
		false: {beats: 60, claims: 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.counts = counts
			r := start(t, newWorker(f, 3, takes(0)))
			elapse(10*time.Minute + time.Second)
			if b, c := f.count("heartbeat"), f.count("claim"); b > want.beats || b < want.beats-2 || c > want.claims+1 || c < want.claims-1 {
				t.Errorf("counts %t: %d heartbeats and %d claims in ten minutes, want about %+v", counts, b, c, want)
			}
			for i, at := range f.signs[1:] {
				if silent := at.Sub(f.signs[i]); silent > 10*time.Second {
					t.Errorf("counts %t: it was silent for %v", counts, silent)
				}
			}
			r.finish()
		})
	}
}

// A claim keeps no lease: a worker that holds a step sends heartbeats as ever.
func TestClaimsDoNotStandForHeartbeatsOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.counts = true
		r := start(t, newWorker(f, 3, takes(10*time.Minute)))
		elapse(5 * time.Minute)
		a := step("run")
		f.add(a)
		elapse(0)
		var last time.Time
		begun := time.Now()
		for range 600 {
			before := f.count("heartbeat")
			elapse(time.Second)
			if f.count("heartbeat") > before {
				last = time.Now()
			} else if time.Since(begun) > 10*time.Second && time.Since(last) > 10*time.Second {
				t.Fatalf("no heartbeat for %v", time.Since(last))
			}
		}
		elapse(time.Minute)
		if got := f.steps(); len(got) != 1 || got[0] != a.StepUUID {
			t.Errorf("accepted %v", got)
		}
		r.finish()
	})
}

// A worker that waits in a claim is told to drain: the claim is answered, and the heartbeat
// that it sends then says why, whether claims count as heartbeats or not. If the claim waits
// all the same, one of the few heartbeats does.
func TestAWaitingWorkerIsToldToDrain(t *testing.T) {
	for _, tt := range []struct {
		counts, early bool
		within        time.Duration
	}{{true, true, time.Second}, {true, false, 30 * time.Second}, {false, true, time.Second}, {false, false, 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.counts, f.early = tt.counts, tt.early
			r := start(t, newWorker(f, 3, takes(0)))
			elapse(31 * time.Second)
			begun := time.Now()
			f.tellAllToDrain()
			if err := <-r.end; err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took > tt.within {
				t.Errorf("%+v: it drained after %v", tt, took)
			}
			r.stop()
		})
	}
}

// A claim that fails is no heartbeat.
func TestAWorkerWhoseClaimsFailSendsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.counts = true
		f.fail = func(call string) error {
			if call == "claim" {
				return tasker.Errorf(tasker.Unavailable, "%w", errors.New("away"))
			}
			return nil
		}
		r := start(t, newWorker(f, 3, takes(0)))
		elapse(10*time.Minute + time.Second)
		if n := f.count("heartbeat"); n < 59 {
			t.Errorf("%d heartbeats in ten minutes", n)
		}
		r.finish()
	})
}
