package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/overload"
)

const (
	awaitEvery   = time.Second            // interval of the shared query for awaited tasks
	awaitRest    = 100 * time.Millisecond // minimum between two queries, if this process commits changes
	awaitTimeout = 5 * time.Second        // of one query
)

// awaitedTasks contains the tasks that callers of [Engine.AwaitTask] wait for. One query finds the
// settled ones for all callers. It runs only while there are callers.
type awaitedTasks struct {
	engine *Engine
	wake   chan struct{} // this process has committed a change, or somebody began to wait

	mu      sync.Mutex
	waiting map[tasker.ID]map[chan struct{}]struct{} // closed when the task is settled
	total   int
	of      map[string]int // by caller; none without authentication
	running bool
}

func newAwaitedTasks(e *Engine) *awaitedTasks {
	return &awaitedTasks{
		engine: e, wake: make(chan struct{}, 1), waiting: map[tasker.ID]map[chan struct{}]struct{}{}, of: map[string]int{},
	}
}

// AwaitTask returns when a task is settled or deleted, see [tasker.Task.Settled], or when ctx ends.
// It uses no connection of its own. It returns Unavailable if too many callers wait. The caller in
// ctx may use half of the places.
func (e *Engine) AwaitTask(ctx context.Context, task tasker.ID) error {
	caller := access.IdentityFromContext(ctx).Subject
	settled, err := e.waiters.awaited.enter(task, caller)
	if err != nil {
		return err
	}
	defer e.waiters.awaited.leave(task, caller, settled)
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *awaitedTasks) enter(task tasker.ID, caller string) (chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total >= tasker.MaxTaskWaits {
		return nil, tasker.Errorf(tasker.Unavailable, "the limit of %d requests that wait for tasks is reached: try again later", tasker.MaxTaskWaits)
	}
	if share := overload.Share(tasker.MaxTaskWaits); caller != "" && a.of[caller] >= share {
		return nil, tasker.Errorf(tasker.Unavailable, "%d requests of %s already wait for tasks, which is the limit for one caller: try again later", share, caller)
	}
	settled := make(chan struct{})
	if a.waiting[task] == nil {
		a.waiting[task] = map[chan struct{}]struct{}{}
	}
	a.waiting[task][settled] = struct{}{}
	a.total++
	a.of[caller]++
	if !a.running {
		a.running = true
		go a.run()
	}
	loop.Wake(a.wake)
	return settled, nil
}

func (a *awaitedTasks) leave(task tasker.ID, caller string, settled chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting[task], settled)
	if len(a.waiting[task]) == 0 {
		delete(a.waiting, task)
	}
	a.total--
	if a.of[caller]--; a.of[caller] == 0 {
		delete(a.of, caller)
	}
	if a.total == 0 {
		loop.Wake(a.wake) // ends run
	}
}

// run queries the awaited tasks while there are callers. A commit of this process makes it query
// earlier. After a failed query it continues, so an outage delays callers but does not end them.
func (a *awaitedTasks) run() {
	failing := false
	for tasks := a.tasks(); tasks != nil; tasks = a.tasks() {
		ctx, cancel := context.WithTimeout(context.Background(), awaitTimeout)
		settled, err := a.engine.db.SettledTasks(ctx, tasks)
		cancel()
		if err != nil && !failing {
			a.engine.log.Warn("cannot query awaited tasks; retrying", "err", err)
		}
		failing = err != nil
		a.announce(settled)
		<-time.After(awaitRest)
		select {
		case <-a.wake:
		case <-time.After(awaitEvery - awaitRest):
		}
	}
}

// tasks returns the awaited tasks. It returns nil if there are none; the caller then ends.
func (a *awaitedTasks) tasks() []tasker.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = len(a.waiting) > 0
	return slices.Collect(maps.Keys(a.waiting))
}

// announce ends the waits for tasks.
func (a *awaitedTasks) announce(settled []tasker.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, task := range settled {
		for c := range a.waiting[task] {
			close(c)
		}
		delete(a.waiting, task)
	}
}
