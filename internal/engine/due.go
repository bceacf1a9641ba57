package engine

import (
	"context"
	"slices"
	"time"

	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// timerRest is how long a timer rests that nothing wakes.
const timerRest = time.Second

// A dueWatch asks for all timers at once whether anything is due, and wakes those for
// which it is. Most of the time nothing is, and one small query in place of one for
// each timer is what a server at rest costs. Timers look by themselves as well, less
// often, so that none depends on it.
type dueWatch struct {
	db     *postgres.DB
	timers []watched
}

// A watched is the loop of a timer, with the kind of its work and what wakes it.
type watched struct {
	*loop.Loop
	kind string
	wake chan struct{}
}

// timer returns the loop of a timer that the watch wakes.
func (d *dueWatch) timer(l *loop.Loop, kind string) *loop.Loop {
	wake := make(chan struct{}, 1)
	l.Wake = wake
	d.timers = append(d.timers, watched{l, kind, wake})
	return l
}

// pass wakes the timers for which something is due. One that fails rests as long as
// its failures ask for.
func (d *dueWatch) pass(ctx context.Context) (time.Duration, error) {
	due, err := d.db.DueKinds(ctx, keptRest)
	for _, t := range d.timers {
		if t.Failures() > 0 || !slices.Contains(due, t.kind) {
			continue
		}
		select {
		case t.wake <- struct{}{}:
		default: // it is awake
		}
	}
	return 0, err
}
