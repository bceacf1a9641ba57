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

// A Group starts functions and waits for the end of all of them.
type Group struct {
	// The context is kept here, against custom, because it is the group's
	// subject: what all its functions get, and what the first failure ends.
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	err     error          // the first failure
	running map[string]int // how many functions of a name have not returned
}

// NewGroup returns a group whose functions are told to stop when ctx ends.
func NewGroup(ctx context.Context) *Group {
	ctx, stop := context.WithCancel(ctx)
	return &Group{ctx: ctx, stop: stop, running: map[string]int{}}
}

// Go starts f, which returns soon after its context ends. If it returns an
// error, the others are told to stop; if it returns nil, they go on.
func (g *Group) Go(name string, f func(ctx context.Context) error) {
	g.count(name, 1)
	g.wg.Go(func() {
		defer g.count(name, -1)
		err := f(g.ctx)
		if err == nil || g.ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return // done, or stopped as it was told
		}
		g.fail(fmt.Errorf("%s: %w", name, err))
	})
}

// Wait returns when every function has returned, with the first error. It may
// be called once, after the last Go.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// WaitUntil is Wait, but gives up when limit ends: the error then names the functions
// that have not returned.
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
	left := slices.Sorted(maps.Keys(g.running))
	return errors.Join(g.err, fmt.Errorf("did not end in time: %s", strings.Join(left, ", ")))
}

func (g *Group) count(name string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[name] += by; g.running[name] == 0 {
		delete(g.running, name)
	}
}

// fail keeps the first error and tells all functions to stop.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	g.stop()
}
