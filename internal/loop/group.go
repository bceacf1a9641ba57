package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Group runs functions and waits until all have returned.
type Group struct {
	// The group stores the context, because it is the context of all its functions.
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	err     error          // the first failure
	running map[string]int // functions that have not returned, by name
}

// NewGroup returns a group whose functions stop when ctx ends.
func NewGroup(ctx context.Context) *Group {
	ctx, stop := context.WithCancel(ctx)
	return &Group{ctx: ctx, stop: stop, running: map[string]int{}}
}

// Go starts f, which must return soon after its context ends. If f returns an error, the other
// functions are stopped.
func (g *Group) Go(name string, f func(ctx context.Context) error) {
	g.adjustCount(name, 1)
	g.wg.Go(func() {
		defer g.adjustCount(name, -1)
		err := f(g.ctx)
		if err == nil || g.ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return // done or stopped
		}
		g.setError(fmt.Errorf("%s: %w", name, err))
	})
}

// Wait waits until all functions have returned, and returns the first error. Call it once, after
// the last Go.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// WaitUntil is like Wait but also returns when limit ends. The error then names the functions that
// have not returned.
func (g *Group) WaitUntil(limit context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-limit.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	running := slices.Sorted(maps.Keys(g.running))
	return errors.Join(g.err, fmt.Errorf("did not end in time: %s", strings.Join(running, ", ")))
}

func (g *Group) adjustCount(name string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[name] += by; g.running[name] == 0 {
		delete(g.running, name)
	}
}

func (g *Group) setError(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	g.stop()
}
