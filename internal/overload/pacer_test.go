package overload_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker/internal/overload"
)

// A scene is work that makes something else slow: so much slower as it takes of a second.
type scene struct {
	*overload.Pacer
	needed  atomic.Bool // somebody needs what is probed
	fixed   atomic.Int64
	mu      sync.Mutex
	pieces  []time.Time // when each piece was done
	waiting int
}

// elapse lets time pass in the bubble of a test.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // it is a bubble

const piece = 10 * time.Millisecond

func newScene() *scene {
	s := &scene{waiting: 100}
	s.needed.Store(true)
	s.Pacer = overload.NewPacer(overload.PacerOptions{
		Width: 2, Matters: s.needed.Load,
		Probe: func(context.Context) error {
			elapse(2*time.Millisecond + time.Duration(s.fixed.Load()) + time.Duration(10*s.lately()*float64(time.Millisecond)))
			return nil
		},
	})
	return s
}

// lately returns the part of the last half second that the work took.
func (s *scene) lately() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for i := len(s.pieces) - 1; i >= 0 && time.Since(s.pieces[i]) < time.Second/2; i-- {
		n++
	}
	return float64(n) * piece.Seconds() * 2
}

// flood has two do the work all the time, for a while.
func (s *scene) flood(t *testing.T, d time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(d)
	for range 2 {
		all.Go(func() {
			for time.Now().Before(end) {
				s.one(t)
			}
		})
	}
	all.Wait()
}

// one does a piece of the work.
func (s *scene) one(t *testing.T) {
	err := s.Do(t.Context(), func() int { return s.waiting }, func() error {
		elapse(piece)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pieces = append(s.pieces, time.Now())
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// calm does the work now and then: nothing waits.
func (s *scene) calm(t *testing.T, d time.Duration) {
	before := s.waiting
	s.waiting = 0
	for end := time.Now().Add(d); time.Now().Before(end); elapse(time.Second) {
		s.one(t)
	}
	s.waiting = before
}

func TestWorkThatSlowsWhatMattersRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.calm(t, 20*time.Second)
		if s.Share() != 1 {
			t.Fatalf("work of which nothing waits takes %.2f of its time", s.Share())
		}
		s.flood(t, 30*time.Second)
		// Half as much again as the 2 ms is what a tenth of a second takes, and a share of 0.1.
		if got := s.lately(); got < 0.02 || got > 0.25 {
			t.Errorf("the work takes %.2f of the time, want about 0.1", got)
		}
		s.calm(t, time.Minute)
		if s.Share() != 1 {
			t.Errorf("a minute after the flood the work takes %.2f of its time", s.Share())
		}
	})
}

func TestWorkThatNobodySuffersFromTakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.needed.Store(false)
		s.calm(t, 20*time.Second)
		s.flood(t, 10*time.Second)
		if got := s.lately(); got < 1.8 || s.Share() != 1 {
			t.Errorf("the work takes %.2f of the time of two, and a share of %.2f", got, s.Share())
		}
		synctest.Wait()
	})
}

// What is slow for another reason does not become quick by resting.
func TestWorkThatIsNotTheReasonGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.calm(t, 20*time.Second)
		s.fixed.Store(int64(40 * time.Millisecond))
		s.flood(t, 2*time.Minute)
		if s.Share() < 0.5 {
			t.Errorf("the work takes %.2f of its time for ever, and it makes nothing slow", s.Share())
		}
		elapse(time.Second) // of the last probe
	})
}

func TestWorkThatRestsCanBeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.calm(t, 20*time.Second)
		s.flood(t, 30*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var given error
		for range 10 { // one of them rests
			if given = s.Do(ctx, func() int { return 100 }, func() error { elapse(10 * piece); return nil }); given != nil {
				break
			}
		}
		if !errors.Is(given, context.DeadlineExceeded) {
			t.Errorf("work whose caller is gone says %v", given)
		}
		elapse(time.Minute)
	})
}

// A probe that fails says nothing, and that is said once.
func TestAProbeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p := overload.NewPacer(overload.PacerOptions{
			Width: 2, Matters: func() bool { return true }, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Probe: func(context.Context) error { return errors.New("no permission") },
		})
		for range 20 {
			if err := p.Do(t.Context(), func() int { return 0 }, func() error { elapse(time.Second); return nil }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := strings.Count(log.String(), "no permission"); n != 1 || p.Share() != 1 {
			t.Errorf("the log has it %d times, and the share is %.2f: %s", n, p.Share(), log.String())
		}
	})
}

func TestANilPacerDoesAll(t *testing.T) {
	t.Parallel()
	var p *overload.Pacer
	failed := errors.New("failed")
	if err := p.Do(t.Context(), nil, func() error { return failed }); !errors.Is(err, failed) || p.Share() != 1 {
		t.Errorf("got %v", err)
	}
}
