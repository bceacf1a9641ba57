package overload_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/overload"
)

func gate(l overload.Limit) *overload.Gate {
	return overload.New(overload.Options{Limits: map[overload.Class]overload.Limit{overload.Creates: l}})
}

// An arrival is a request that may have to wait.
type arrival struct {
	mu    sync.Mutex
	leave func()
	err   error
}

func (a *arrival) served() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leave != nil
}

func (a *arrival) refused() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// arrive sends a request to be served in the background.
func arrive(ctx context.Context, g *overload.Gate, caller string) *arrival {
	a := &arrival{}
	go func() {
		leave, err := g.Acquire(ctx, overload.Creates, caller)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.leave, a.err = leave, err
	}()
	synctest.Wait()
	return a
}

func wantRefusal(t *testing.T, err error, tooFast bool) {
	t.Helper()
	var r overload.Refusal
	var known *tasker.Error
	if !errors.As(err, &r) || r.TooFast != tooFast || !errors.As(err, &known) || known.Code != tasker.Unavailable || known.RetryAfter <= 0 {
		t.Errorf("got %#v, want a refusal with a rest, too fast: %v", err, tooFast)
	}
}

func TestAClassServesSoManyAndTheOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(overload.Limit{Running: 2, Waiting: 1, Wait: time.Second})
		first, second := arrive(t.Context(), g, ""), arrive(t.Context(), g, "")
		third, fourth := arrive(t.Context(), g, ""), arrive(t.Context(), g, "")
		if !first.served() || !second.served() || third.served() || third.refused() != nil {
			t.Fatal("want two that are served and one that waits")
		}
		wantRefusal(t, fourth.refused(), false)
		first.leave()
		first.leave() // counts once
		synctest.Wait()
		if !third.served() {
			t.Error("the one that waited is not served when another has left")
		}
		fifth := arrive(t.Context(), g, "")
		if fifth.served() {
			t.Error("three are served: a request left twice")
		}
		elapse(time.Second)
		synctest.Wait()
		wantRefusal(t, fifth.refused(), false)
		ctx, cancel := context.WithCancel(t.Context())
		gone := arrive(ctx, g, "")
		cancel()
		synctest.Wait()
		if !errors.Is(gone.refused(), context.Canceled) {
			t.Errorf("whoever gives up gets %v", gone.refused())
		}
		want := overload.Count{Class: overload.Creates, Running: 2, Admitted: 3, RejectedFull: 1, TimedOut: 1}
		counts := g.Counts()
		if got := counts[slices.IndexFunc(counts, func(c overload.Count) bool { return c.Class == overload.Creates })]; got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
		second.leave()
		third.leave()
	})
}

func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(overload.Limit{Running: 2, Waiting: 10, Wait: time.Hour})
		var flood []*arrival
		for range 6 {
			flood = append(flood, arrive(t.Context(), g, "loud"))
		}
		if !flood[0].served() || flood[1].served() {
			t.Fatal("one caller has more than half of what is served, or nothing")
		}
		wantNone := flood[5]
		if wantNone.refused() != nil {
			t.Fatalf("the fifth that waits is refused: %v", wantNone.refused())
		}
		over := arrive(t.Context(), g, "loud")
		wantRefusal(t, over.refused(), false)
		quiet := arrive(t.Context(), g, "quiet")
		if !quiet.served() {
			t.Fatal("a caller waits although half of what is served is nobody's")
		}
		next := arrive(t.Context(), g, "other")
		flood[0].leave()
		synctest.Wait()
		if !flood[1].served() || next.served() {
			t.Error("the first in line is not the next")
		}
		quiet.leave()
		synctest.Wait()
		if !next.served() || flood[2].served() {
			t.Error("the caller with many requests has two turns, and another waits")
		}
		flood[1].leave()
		next.leave()
		for n := range 4 {
			synctest.Wait()
			if !flood[n+2].served() {
				t.Fatalf("request %d never has its turn", n+2)
			}
			flood[n+2].leave()
		}
		for _, c := range g.Counts() {
			if c.Running != 0 || c.Waiting != 0 {
				t.Errorf("all have left, and %+v is counted", c)
			}
		}
	})
}

// Where nobody else could wait, the caller with most requests makes room for others.
func TestWhoWaitsWithManyMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(overload.Limit{Running: 2, Waiting: 6, Wait: time.Hour})
		var all []*arrival
		for _, caller := range []string{"a", "b", "a", "a", "a", "b", "b", "b"} { // two are served
			all = append(all, arrive(t.Context(), g, caller))
		}
		c := []*arrival{arrive(t.Context(), g, "c"), arrive(t.Context(), g, "c")}
		wantRefusal(t, all[4].refused(), false) // the last of one
		wantRefusal(t, all[7].refused(), false) // and of the other
		third := arrive(t.Context(), g, "c")
		wantRefusal(t, third.refused(), false) // all have two now
		served := 2
		for n := 0; served > 0 && n < 100; n++ {
			served = 0
			for _, a := range append(all, c...) {
				if a.served() {
					a.leave()
					served++
				}
				synctest.Wait()
			}
			if n > 20 {
				break
			}
		}
		for n, a := range c {
			if !a.served() {
				t.Errorf("request %d of the caller with few is not served: %v", n, a.refused())
			}
		}
		for _, count := range g.Counts() {
			if count.Running != 0 || count.Waiting != 0 {
				t.Errorf("all have left, and %+v is counted", count)
			}
		}
	})
}

// Whoever has had a turn is behind those who wait for their first.
func TestAfterATurnACallerIsBehindTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(overload.Limit{Running: 4, Waiting: 10, Wait: time.Hour})
		running := map[string][]*arrival{}
		for _, caller := range []string{"a", "a", "b", "b", "c", "c", "d", "d"} {
			running[caller] = append(running[caller], arrive(t.Context(), g, caller))
		}
		running["a"][0].leave()
		synctest.Wait()
		running["b"][0].leave()
		synctest.Wait()
		for caller, list := range running {
			if got := []bool{list[0].served(), list[1].served()}; (caller == "c" || caller == "d") && !slices.Equal(got, []bool{true, false}) {
				t.Errorf("of the two requests of %s are served %v, want the first", caller, got)
			}
		}
		running["a"][1].leave()
		running["b"][1].leave()
		synctest.Wait()
		for _, caller := range []string{"c", "d"} {
			for _, a := range running[caller] {
				if !a.served() {
					t.Fatalf("a request of %s never has its turn", caller)
				}
				a.leave()
			}
		}
	})
}

// Without room to wait, a caller who has half of a class is told so, and others are served.
func TestHalfOfWhatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(overload.Limit{Running: 4})
		var all []*arrival
		for range 2 {
			all = append(all, arrive(t.Context(), g, "fleet"))
		}
		wantRefusal(t, arrive(t.Context(), g, "fleet").refused(), false)
		for range 2 {
			all = append(all, arrive(t.Context(), g, "other"))
		}
		for n, a := range all {
			if !a.served() {
				t.Errorf("request %d is not served: %v", n, a.refused())
			}
		}
		wantRefusal(t, arrive(t.Context(), g, "third").refused(), false)
	})
}

func TestManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	const running = 3
	g := gate(overload.Limit{Running: running, Waiting: 1000, Wait: time.Minute})
	var now, most, served int
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			for range 25 {
				leave, err := g.Acquire(t.Context(), overload.Creates, fmt.Sprint("caller ", n%5))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				now, served = now+1, served+1
				most = max(most, now)
				mu.Unlock()
				mu.Lock()
				now--
				mu.Unlock()
				leave()
			}
		})
	}
	all.Wait()
	if served != 1000 || most > running {
		t.Errorf("served %d, want 1000; %d at the same time, want %d at most", served, most, running)
	}
}

func TestTheRateOfACaller(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	g := overload.New(overload.Options{Rate: 10, Now: func() time.Time { return now }})
	send := func(class overload.Class, caller string) error {
		leave, err := g.Acquire(t.Context(), class, caller)
		if err == nil {
			leave()
		}
		return err
	}
	for n := range 20 {
		if err := send(overload.Reads, "a"); err != nil {
			t.Fatalf("request %d of 20 at once: %v", n, err)
		}
	}
	err := send(overload.Creates, "a")
	wantRefusal(t, err, true)
	if known, ok := errors.AsType[*tasker.Error](err); !ok || known.RetryAfter != 100*time.Millisecond {
		t.Errorf("the rest is not the tenth of a second that it takes: %v", err)
	}
	for _, class := range []overload.Class{overload.Reports, overload.Claims, overload.Exempt} {
		if err := send(class, "a"); err != nil {
			t.Errorf("%s counts for the rate: %v", class, err)
		}
	}
	if err := send(overload.Reads, "b"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	for range 100 {
		if err := send(overload.Reads, ""); err != nil {
			t.Fatalf("where nobody is asked who they are: %v", err)
		}
	}
	now = now.Add(100 * time.Millisecond)
	if err := send(overload.Reads, "a"); err != nil {
		t.Errorf("after the rest: %v", err)
	}
	wantRefusal(t, send(overload.Reads, "a"), true)
}

func TestTheRateOfAnAddress(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	r := overload.NewRate(1, func() time.Time { return now })
	address := netip.MustParseAddr
	for range 2 {
		if err := errors.Join(r.CheckAddress(address("2001:db8::1")), r.TakeAddress(address("2001:db8::1"))); err != nil {
			t.Fatal(err)
		}
	}
	wantRefusal(t, r.TakeAddress(address("2001:db8::ffff:2")), true) // of the same site
	wantRefusal(t, r.CheckAddress(address("2001:db8::3")), true)
	for _, other := range []string{"2001:db8:1::1", "192.0.2.1", "192.0.2.2"} {
		if err := r.TakeAddress(address(other)); err != nil {
			t.Errorf("%s: %v", other, err)
		}
	}
	now = now.Add(time.Second)
	if err := r.TakeAddress(address("2001:db8::1")); err != nil {
		t.Errorf("a second later: %v", err)
	}
	if none := overload.NewRate(0, nil); none.TakeAddress(address("192.0.2.1")) != nil || none.CheckAddress(address("192.0.2.1")) != nil {
		t.Error("without a rate somebody is refused")
	}
}

// However many addresses there are, they are remembered in bounded memory, and one that
// calls all the time is not forgotten.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	r := overload.NewRate(1, func() time.Time { return now })
	loud := netip.MustParseAddr("192.0.2.1")
	refused := 0
	for n := range 50_000 {
		_ = r.TakeAddress(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))
		if n%1000 == 0 && r.TakeAddress(loud) != nil {
			refused++
		}
	}
	if refused != 48 {
		t.Errorf("an address that calls all the time is refused %d times, want 48 of 50", refused)
	}
	if n := overload.Remembered(r); n > 20_000 {
		t.Errorf("%d addresses are remembered, want 20000 at most", n)
	}
}

func TestANilGateTakesAll(t *testing.T) {
	t.Parallel()
	var g *overload.Gate
	leave, err := g.Acquire(t.Context(), overload.Creates, "a")
	if err != nil || g.Counts() != nil {
		t.Fatal(err)
	}
	leave()
}
