package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// A gated writer writes when the test lets it.
type gated struct {
	Writer[int]
	open    chan error // the result of the next write
	written [][]int
}

func newGated() *gated {
	g := &gated{open: make(chan error)}
	g.MaxItems, g.MaxSize = 100, 1000
	var mu sync.Mutex
	g.Write = func(_ context.Context, items []int) error {
		mu.Lock()
		g.written = append(g.written, slices.Clone(items))
		mu.Unlock()
		return <-g.open
	}
	return g
}

// call writes an item in the background.
func (g *gated) call(ctx context.Context, item int) (written *bool, err *error) {
	written, err = new(bool), new(error)
	go func() { *written, *err = g.Do(ctx, item) }()
	synctest.Wait()
	return written, err
}

func TestACallWaitsOnlyWhileAllWritersAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		g.Writers = 2
		for item := range 6 {
			g.call(t.Context(), item)
		}
		if want := [][]int{{0}, {1}}; !slices.EqualFunc(g.written, want, slices.Equal) {
			t.Fatalf("written %v, want %v", g.written, want)
		}
		if n := g.Waiting(); n != 4 {
			t.Errorf("%d calls wait, want 4", n)
		}
		g.open <- nil
		synctest.Wait()
		if want := [][]int{{0}, {1}, {2, 3, 4, 5}}; !slices.EqualFunc(g.written, want, slices.Equal) {
			t.Errorf("written %v, want %v", g.written, want)
		}
		g.open <- nil
		g.open <- nil
		synctest.Wait()
		g.call(t.Context(), 6)
		if got := g.written[len(g.written)-1]; !slices.Equal(got, []int{6}) {
			t.Errorf("written %v at last, want a call by itself", got)
		}
		g.open <- nil
	})
}

func TestAllCallersOfABatchGetItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, broken := newGated(), errors.New("broken")
		_, first := g.call(t.Context(), 0)
		_, second := g.call(t.Context(), 1)
		written, third := g.call(t.Context(), 2)
		g.open <- nil
		g.open <- broken
		synctest.Wait()
		if *first != nil || !errors.Is(*second, broken) || !errors.Is(*third, broken) || !*written {
			t.Errorf("got %v, %v, %v", *first, *second, *third)
		}
	})
}

func TestABatchIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		items, size int
		want        [][]int
	}{
		"by its items":                     {2, 1000, [][]int{{1}, {30, 40}, {50, 10}, {20}}},
		"by its size":                      {100, 70, [][]int{{1}, {30, 40}, {50, 10}, {20}}},
		"but takes one that is larger too": {100, 30, [][]int{{1}, {30}, {40}, {50}, {10, 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated()
				g.MaxItems, g.MaxSize, g.Size = tt.items, tt.size, func(item int) int { return item }
				for _, item := range []int{1, 30, 40, 50, 10, 20} {
					g.call(t.Context(), item)
				}
				for range tt.want {
					g.open <- nil
					synctest.Wait()
				}
				if !slices.EqualFunc(g.written, tt.want, slices.Equal) {
					t.Errorf("written %v, want %v", g.written, tt.want)
				}
			})
		})
	}
}

func TestACallerThatLeavesIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		g.call(t.Context(), 0)
		ctx, leave := context.WithCancel(t.Context())
		written, err := g.call(ctx, 1)
		_, other := g.call(t.Context(), 2)
		leave()
		synctest.Wait()
		if *written || !errors.Is(*err, context.Canceled) {
			t.Errorf("written %v, %v; want that it left", *written, *err)
		}
		g.open <- nil
		g.open <- nil
		synctest.Wait()
		if written, err := g.call(ctx, 3); *written || !errors.Is(*err, context.Canceled) {
			t.Errorf("written %v, %v; want that it never came", *written, *err)
		}
		if want := [][]int{{0}, {2}}; !slices.EqualFunc(g.written, want, slices.Equal) || *other != nil {
			t.Errorf("written %v with %v, want %v", g.written, *other, want)
		}
	})
}

// The others' items are written although the caller that writes them leaves, and each
// caller whose item is being written learns the result.
func TestAWriteDoesNotEndWithACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		write := g.Write
		g.Write = func(ctx context.Context, items []int) error { return errors.Join(write(ctx, items), ctx.Err()) }
		ctx, leave := context.WithCancel(t.Context())
		g.call(t.Context(), 0)
		written, writes := g.call(ctx, 1)
		alsoWritten, waits := g.call(ctx, 2)
		_, stays := g.call(t.Context(), 3)
		g.open <- nil
		synctest.Wait()
		leave()
		synctest.Wait()
		g.open <- nil
		synctest.Wait()
		if !*written || !*alsoWritten || *writes != nil || *waits != nil || *stays != nil {
			t.Errorf("got %v, %v and %v, want that all are written", *writes, *waits, *stays)
		}
	})
}

func TestAPanicReachesOneCallerAndIsAnErrorForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		write := g.Write
		g.Write = func(ctx context.Context, items []int) error {
			if err := write(ctx, items); err != nil {
				panic(err)
			}
			return nil
		}
		g.call(t.Context(), 0)
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			_, _ = g.Do(t.Context(), 1)
		}()
		synctest.Wait()
		_, other := g.call(t.Context(), 2)
		g.open <- nil
		g.open <- errors.New("boom")
		if p := <-panicked; p == nil {
			t.Error("the panic was swallowed")
		}
		synctest.Wait()
		if !errors.Is(*other, ErrPanicked) {
			t.Errorf("the other caller got %v", *other)
		}
		_, next := g.call(t.Context(), 3)
		g.open <- nil
		synctest.Wait()
		if *next != nil || len(g.written) != 3 {
			t.Errorf("the next call got %v after %d writes", *next, len(g.written))
		}
	})
}
