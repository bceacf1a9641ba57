package engine

import (
	"context"
	"slices"
	"time"

	"tasker/internal/loop"
	"tasker/internal/postgres"
)

// timerRest is how long a timer rests that nothing wakes.
const timerRest = time.Second

// A dueWatch asks for all timers at once whether anything is due, and wakes those for
// which it is. Most of the time nothing is, and one small query in place of one for
// each timer is what a server at rest costs. Timers look by themselves as well, less
// often, so that none depends on it.
type dueWatch struct {
	db   *postgres.DB
	wake map[string]chan struct{} // by kind of work
}

// timer returns the loop of a timer that the watch wakes.
func (d *dueWatch) timer(l *loop.Loop, kind string) *loop.Loop {
	wake := make(chan struct{}, 1)
	d.wake[kind] = wake
	l.Wake = wake
	return l
}

// pass wakes the timers for which something is due.
func (d *dueWatch) pass(ctx context.Context) (time.Duration, error) {
	due, err := d.db.DueKinds(ctx, keptRest)
	for kind, wake := range d.wake {
		if slices.Contains(due, kind) {
			select {
			case wake <- struct{}{}:
			default: // it is awake
			}
		}
	}
	return 0, err
}
