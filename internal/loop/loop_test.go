package loop

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// usual is the rest of the loops under test; a tenth of it is jitter.
const usual = time.Hour

var discard = slog.New(slog.DiscardHandler)

// started is a loop that runs in the bubble of its test, which it ends with.
type started struct {
	*Loop
	passes atomic.Int64
	wake   chan struct{}
	stop   context.CancelFunc
	ended  chan error
}

// start runs a loop that counts its passes and then calls pass, in the bubble
// of the caller, up to the end of its first pass or the place where it waits.
func start(t *testing.T, pass func(ctx context.Context) (time.Duration, error)) *started {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &started{wake: make(chan struct{}, 1), stop: stop, ended: make(chan error, 1)}
	s.Loop = &Loop{
		Name:     "test",
		Interval: usual,
		Wake:     s.wake,
		Log:      discard,
		Pass: func(ctx context.Context) (time.Duration, error) {
			s.passes.Add(1)
			return pass(ctx)
		},
	}
	go func() { s.ended <- s.Run(ctx) }()
	synctest.Wait()
	t.Cleanup(stop)
	return s
}

// elapse lets d pass in the bubble, and waits until all that follows has happened.
func elapse(d time.Duration) {
	work(d)
	synctest.Wait()
}

// work takes d, on the clock of the bubble.
func work(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble, which costs no real time
}

// wantPasses fails the test unless the loop has made n passes.
func (s *started) wantPasses(t *testing.T, n int, when string) {
	t.Helper()
	if got := s.passes.Load(); got != int64(n) {
		t.Errorf("%d passes %s, want %d", got, when, n)
	}
}

func nothing(context.Context) (time.Duration, error) { return 0, nil }

func TestFirstPassComesAtOnceThenOneAfterEachRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, nothing)
		s.wantPasses(t, 1, "at the start")
		elapse(usual * 8 / 10)
		s.wantPasses(t, 1, "within the first rest")
		elapse(usual * 4 / 10)
		s.wantPasses(t, 2, "after one rest and its jitter")
		elapse(100 * usual)
		if n := s.passes.Load(); n < 93 || n > 113 {
			t.Errorf("%d passes in about a hundred rests", n)
		}
	})
}

func TestRestsVaryByATenth(t *testing.T) {
	l := Loop{Interval: usual}
	shortest, longest := usual, usual
	for range 10_000 {
		d := l.delay(0)
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if shortest < usual*90/100 || shortest > usual*91/100 {
		t.Errorf("shortest rest %v, want about nine tenths of %v", shortest, usual)
	}
	if longest > usual*110/100 || longest < usual*109/100 {
		t.Errorf("longest rest %v, want about eleven tenths of %v", longest, usual)
	}
}

func TestPassMayAskForAnEarlierNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := []time.Duration{time.Minute, time.Minute, 1000 * usual, 0}
		s := start(t, func(context.Context) (time.Duration, error) {
			next := asked[0]
			asked = asked[1:]
			return next, nil
		})
		elapse(time.Minute - 1)
		s.wantPasses(t, 1, "before the instant that it asked for")
		elapse(1)
		s.wantPasses(t, 2, "at the instant that it asked for")
		elapse(time.Minute)
		s.wantPasses(t, 3, "at the instant after")
		elapse(usual * 12 / 10)
		s.wantPasses(t, 4, "after the usual rest, although it asked for later")
	})
}

func TestPassThatLeftWorkUndoneDoesNotRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := 5
		s := start(t, func(context.Context) (time.Duration, error) {
			if full--; full > 0 {
				return AtOnce, nil
			}
			return 0, nil
		})
		elapse(time.Millisecond)
		s.wantPasses(t, 5, "for five batches")
	})
}

func TestWakeEndsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, nothing)
		s.wake <- struct{}{}
		synctest.Wait()
		s.wantPasses(t, 2, "after one waking")
	})
}

func TestClosedWakeDoesNotKeepTheLoopAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, nothing)
		close(s.wake)
		elapse(time.Minute)
		s.wantPasses(t, 2, "a minute after the owner of Wake has gone")
	})
}

func TestFailedPassIsCountedAndLogged(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail func() error
		log  string
	}{
		{"by an error", func() error { return errors.New("database is down") }, "database is down"},
		{"by a panic", func() error { panic("index out of range") }, "index out of range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			l := Loop{Name: "sweep", Interval: usual, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Pass: func(context.Context) (time.Duration, error) { return AtOnce, tt.fail() }}
			for n := range 3 {
				if next := l.runPass(t.Context()); next != 0 {
					t.Errorf("a failed pass may ask to run again after %v", next)
				}
				if l.Failures() != n+1 {
					t.Errorf("%d failures after %d failed passes", l.Failures(), n+1)
				}
			}
			line, _, _ := strings.Cut(log.String(), "\n")
			if !strings.Contains(line, tt.log) || !strings.Contains(line, "loop=sweep") {
				t.Errorf("the log does not say which loop failed and why: %s", line)
			}
			l.Pass = nothing
			l.runPass(t.Context())
			if l.Failures() != 0 {
				t.Errorf("%d failures after a good pass", l.Failures())
			}
		})
	}
}

func TestFailedPassIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(context.Context) (time.Duration, error) { panic("one bad row") })
		elapse(usual * 5 / 2)
		s.wantPasses(t, 3, "in two and a half rests")
	})
}

func TestStopWaitsForTheEndOfThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		var interrupted error
		s := start(t, func(ctx context.Context) (time.Duration, error) {
			<-finish
			interrupted = ctx.Err()
			return AtOnce, nil
		})
		s.stop()
		synctest.Wait()
		select {
		case err := <-s.ended:
			t.Fatalf("the loop ended in the middle of its pass, with %v", err)
		default:
		}
		close(finish)
		if err := <-s.ended; err != nil {
			t.Errorf("stopped loop returned %v", err)
		}
		if interrupted != nil {
			t.Errorf("the pass was told to stop: %v", interrupted)
		}
		s.wantPasses(t, 1, "although there was work left: it was told to stop")
	})
}

func TestStopEndsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, nothing)
		begin := time.Now()
		s.stop()
		if err := <-s.ended; err != nil {
			t.Errorf("stopped loop returned %v", err)
		}
		if rested := time.Since(begin); rested != 0 {
			t.Errorf("the loop rested for another %v", rested)
		}
	})
}

func TestPassHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Loop{Name: "test", Interval: usual, Timeout: time.Minute, Log: discard,
			Pass: func(ctx context.Context) (time.Duration, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		begin := time.Now()
		l.runPass(ctx)
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("the pass ended after %v, want its timeout of %v", took, time.Minute)
		}
		if l.Failures() != 1 {
			t.Errorf("%d failures, want the one that ran out of time", l.Failures())
		}
	})
}

func TestIncompleteLoopDoesNotRun(t *testing.T) {
	for name, l := range map[string]*Loop{
		"no Every":       {Pass: nothing, Log: discard},
		"negative Every": {Pass: nothing, Log: discard, Interval: -1},
		"no Pass":        {Log: discard, Interval: usual},
		"no Log":         {Pass: nothing, Interval: usual},
	} {
		t.Run(name, func(t *testing.T) {
			if err := l.Run(t.Context()); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestALoopThatFailsRestsLongerEachTime(t *testing.T) {
	t.Parallel()
	l := Loop{Interval: 250 * time.Millisecond}
	var before time.Duration
	for n := range 12 {
		l.failures.Store(int64(n))
		rest := l.delay(0)
		if rest < before*8/10 || rest > longestRest*11/10 {
			t.Errorf("after %d failures it rests %v, before that %v", n, rest, before)
		}
		before = rest
	}
	if before < longestRest*9/10 {
		t.Errorf("after many failures it rests only %v", before)
	}
	l.failures.Store(0)
	if rest := l.delay(0); rest > 300*time.Millisecond {
		t.Errorf("after a good pass it rests %v", rest)
	}
}

// A loop that rests for long when all is well tries again soon when a pass fails.
func TestALoopWithARetryRestsLessAfterAFailure(t *testing.T) {
	t.Parallel()
	l := Loop{Interval: usual, Backoff: time.Second}
	for n, want := range []time.Duration{usual, time.Second, 2 * time.Second, 4 * time.Second, longestRest, longestRest} {
		l.failures.Store(int64(n))
		if rest := l.delay(0); rest < want*9/10 || rest > want*11/10 {
			t.Errorf("after %d failures it rests %v, want about %v", n, rest, want)
		}
	}
}

// A loop is late when it has made no good pass for three times as long as one may take.
func TestALoopThatMakesNoGoodPassIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var fails atomic.Bool
		l := &Loop{Name: "test", Interval: time.Minute, Timeout: time.Minute, Log: discard,
			Pass: func(context.Context) (time.Duration, error) {
				if fails.Load() {
					return 0, errors.New("down")
				}
				return 0, nil
			}}
		go func() { _ = l.Run(ctx) }()
		elapse(10 * time.Minute)
		if s := l.Status(); s.Late || s.Failures != 0 || s.Passes < 9 || s.LastSuccess.IsZero() {
			t.Errorf("a loop that is well: %+v", s)
		}
		fails.Store(true)
		elapse(4 * time.Minute)
		if s := l.Status(); s.Late || s.Failures == 0 {
			t.Errorf("after 4 minutes: %+v", s)
		}
		elapse(4 * time.Minute)
		if s := l.Status(); !s.Late || s.Failed == 0 {
			t.Errorf("after 8 minutes without a good pass: %+v", s)
		}
		fails.Store(false)
		elapse(2 * time.Minute)
		if s := l.Status(); s.Late || s.Failures != 0 {
			t.Errorf("once it is well again: %+v", s)
		}
	})
}

// A pass that ignores the end of its context makes the loop late while it runs.
func TestALoopIsLateWhileAPassRunsLongerThanItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		end := make(chan struct{})
		l := &Loop{Name: "test", Interval: time.Hour, Timeout: time.Minute, Log: discard, Pass: func(context.Context) (time.Duration, error) {
			<-end
			return 0, nil
		}}
		go func() { _ = l.Run(ctx) }()
		elapse(time.Minute)
		if l.Status().Late {
			t.Error("late while the pass may still run")
		}
		elapse(3 * time.Second)
		if !l.Status().Late {
			t.Error("not late although the pass runs longer than its timeout")
		}
		close(end)
		elapse(time.Second)
		if l.Status().Late {
			t.Error("late after the pass has ended")
		}
	})
}

// Stopping waits for a pass under way, up to the limit.
func TestTheLimitEndsAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, end := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(WithLimit(t.Context(), limit))
		l := &Loop{Name: "test", Interval: usual, Log: discard, Pass: func(ctx context.Context) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		stop()
		elapse(time.Hour)
		select {
		case err := <-ended:
			t.Errorf("the pass was ended before its limit: %v", err)
		default:
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !Sleep(t.Context(), time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("slept %v of a minute", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if Sleep(ctx, time.Minute) || time.Since(begun) != time.Second {
			t.Errorf("slept %v, and the context ended after a second", time.Since(begun))
		}
	})
}
