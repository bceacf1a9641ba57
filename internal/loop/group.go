package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A Group starts functions and waits for the end of all of them.
type Group struct {
	// The context is kept here, against custom, because it is the group's
	// subject: what all its functions get, and what the first failure ends.
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu  sync.Mutex
	err error // the first failure
}

// NewGroup returns a group whose functions are told to stop when ctx ends.
func NewGroup(ctx context.Context) *Group {
	ctx, stop := context.WithCancel(ctx)
	return &Group{ctx: ctx, stop: stop}
}

// Go starts f, which returns soon after its context ends. If it returns an
// error, the others are told to stop; if it returns nil, they go on.
func (g *Group) Go(name string, f func(ctx context.Context) error) {
	g.wg.Go(func() {
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

// fail keeps the first error and tells all functions to stop.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	g.stop()
}
