package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// untilStopped runs until its context ends, then tidies up for a minute.
func untilStopped(result error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		work(time.Minute)
		return result
	}
}

func TestGroupWaitsForAllOfItsFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		g := NewGroup(ctx)
		begin := time.Now()
		g.Go("server", untilStopped(nil))
		g.Go("loop", untilStopped(context.Canceled))
		g.Go("errand", func(context.Context) error { return nil }) // its end is nobody else's
		if err := g.Wait(); err != nil {
			t.Errorf("a group that was stopped returned %v", err)
		}
		if took := time.Since(begin); took < time.Hour+time.Minute {
			t.Errorf("Wait returned after %v, before the functions had ended", took)
		}
	})
}

func TestFirstFailureStopsTheGroupAndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, late := errors.New("connection lost"), errors.New("late")
		g := NewGroup(t.Context())
		g.Go("server", untilStopped(late))
		g.Go("listener", func(context.Context) error { return lost })
		err := g.Wait()
		if !errors.Is(err, lost) || errors.Is(err, late) {
			t.Errorf("got %v, want the first failure, %v", err, lost)
		}
		if want := "listener: connection lost"; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	})
}

func TestCancelledWorkIsAFailureWhenNobodyStoppedTheGroup(t *testing.T) {
	g := NewGroup(t.Context())
	g.Go("query", func(context.Context) error { return context.Canceled })
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it reported", err)
	}
}

func TestGroupStopsItsLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		g := NewGroup(ctx)
		passes := 0
		l := &Loop{Name: "test", Interval: usual, Log: discard, Pass: func(context.Context) (time.Duration, error) {
			passes++
			return 0, nil
		}}
		g.Go(l.Name, l.Run)
		elapse(usual / 2)
		stop()
		if err := g.Wait(); err != nil || passes != 1 {
			t.Errorf("got %v after %d passes, want nil after 1", err, passes)
		}
	})
}

func TestWaitUntilNamesWhatDidNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		release := make(chan struct{})
		g := NewGroup(ctx)
		g.Go("stubborn", func(context.Context) error { <-release; return nil })
		g.Go("obedient", untilStopped(nil))
		stop()
		limit, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := g.WaitUntil(limit); err == nil || err.Error() != "did not end in time: stubborn" {
			t.Errorf("got %v", err)
		}
		close(release)
	})
}
