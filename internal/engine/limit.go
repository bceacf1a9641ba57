package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// A limitOfGraph is a limit that a template gives to its steps.
type limitOfGraph struct {
	name  string
	key   *expression.Program // nil: one key for all tasks
	steps []string            // nil: all

	weights map[string]int // of steps that take more than one place
}

func newLimits(t tasker.Template, scope expression.Scope) ([]limitOfGraph, error) {
	scope.Search = true
	list := make([]limitOfGraph, len(t.Limits))
	for i, l := range t.Limits {
		list[i] = limitOfGraph{name: l.Name, steps: l.Steps, weights: l.Weights}
		if l.Steps == nil && len(l.Weights) > 0 {
			list[i].steps = withHandlers(t.Steps)
		}
		if l.Key == "" {
			continue
		}
		var err error
		if list[i].key, err = expression.Compile(l.Key, scope, expression.Any); err != nil {
			return nil, within(fmt.Sprintf("limits[%d].key", i), err)
		}
	}
	return list, nil
}

// withHandlers returns the names of the steps that workers execute.
func withHandlers(steps []tasker.StepTemplate) (names []string) {
	for i := range steps {
		if steps[i].HasHandler() {
			names = append(names, steps[i].Name)
		}
	}
	return names
}

// limitsOf evaluates the keys of the limits of a new task. The error is Invalid when one has no key:
// the task would have no limit, or share it with strangers.
func (c *creation) limitsOf(ctx context.Context, g *graph, t *postgres.CreatedTask) (list []postgres.TaskLimit, err error) {
	for _, l := range g.limits {
		key := ""
		if l.key != nil {
			if key, err = c.limitKey(ctx, l.key, t); err != nil {
				return nil, within("limits."+l.name+".key", err)
			}
		}
		if l.steps == nil {
			list = append(list, postgres.TaskLimit{Name: l.name, Key: key, Weight: 1})
			continue
		}
		for i := range t.Steps {
			if name := t.Steps[i].Name; slices.Contains(l.steps, name) {
				list = append(list, postgres.TaskLimit{Name: l.name, Key: key, Step: &t.Steps[i].UUID, Weight: max(l.weights[name], 1)})
			}
		}
	}
	return list, nil
}

// limitKey evaluates a key: a text, the digits of a number, true or false.
func (c *creation) limitKey(ctx context.Context, p *expression.Program, t *postgres.CreatedTask) (string, error) {
	out, err := c.evaluate(ctx, p, t)
	if err != nil {
		return "", err
	}
	if out.Err != nil {
		return "", tasker.Errorf(tasker.Invalid, "the key of the limit cannot be evaluated: %w", out.Err)
	}
	switch out.Value.(type) {
	case string, json.Number, bool:
	default:
		return "", tasker.Errorf(tasker.Invalid, "the key of the limit must be a text, a number or a bool, and is null or a time")
	}
	key := fmt.Sprint(out.Value)
	if len(key) > tasker.MaxLimitKeyBytes {
		return "", tasker.Errorf(tasker.Invalid, "the key of the limit has %d bytes; %d is the most", len(key), tasker.MaxLimitKeyBytes)
	}
	return key, nil
}

// Limits returns a page of the limits that the caller may see, and reports whether there are more.
func (e *Engine) Limits(ctx context.Context, f tasker.LimitFilter) ([]tasker.Limit, bool, error) {
	after, err := tasker.ParseLimitRef(f.After)
	if err != nil {
		return nil, false, err
	}
	return e.db.Limits(ctx, f, after)
}

// Limit returns a limit with the keys for which most steps wait, and who has their places. The error is NotFound when there is none.
func (e *Engine) Limit(ctx context.Context, ref tasker.LimitRef) (tasker.LimitDetail, error) {
	if err := ref.Check(); err != nil {
		return tasker.LimitDetail{}, err
	}
	return e.db.Limit(ctx, ref)
}

// A LimitChange says who changes a limit, and why.
type LimitChange struct {
	Actor  string
	Reason string
}

func (c LimitChange) check() error { return ScheduleChange{Actor: c.Actor, Reason: c.Reason}.check() }

// SetLimit sets a limit for all claims after its commit. It returns Invalid, or a Conflict for too
// many limits.
func (e *Engine) SetLimit(ctx context.Context, ref tasker.LimitRef, v tasker.LimitValue, by LimitChange) (tasker.Limit, error) {
	if err := by.check(); err != nil {
		return tasker.Limit{}, err
	}
	if err := ref.Check(); err != nil {
		return tasker.Limit{}, err
	}
	if err := v.Check(); err != nil {
		return tasker.Limit{}, err
	}
	l, err := e.db.PutLimit(ctx, ref, v, postgres.Operator{Actor: by.Actor, Reason: by.Reason})
	if err == nil {
		e.limited.changed(e)
	}
	return l, err
}

// DeleteLimit removes a limit; what waits for it goes back into the queue. The error is NotFound, or a
// Conflict when templates give the limit.
func (e *Engine) DeleteLimit(ctx context.Context, ref tasker.LimitRef, by LimitChange) error {
	if err := by.check(); err != nil {
		return err
	}
	if err := ref.Check(); err != nil {
		return err
	}
	err := e.db.DeleteLimit(ctx, ref, postgres.Operator{Actor: by.Actor, Reason: by.Reason})
	if err == nil {
		e.limited.changed(e)
	}
	return err
}

// limitWaiters remembers namespaces with steps waiting for limits, as a hint whom to wake.
type limitWaiters struct {
	mu         sync.Mutex
	namespaces map[string]time.Time
	woken      time.Time     // when those who wait were last woken
	back       chan struct{} // wakes the loop that puts steps back into the queue
}

// seenFor is for how long a namespace is remembered.
const seenFor = 10 * time.Second

func newLimitsSeen() *limitWaiters {
	return &limitWaiters{namespaces: map[string]time.Time{}, back: make(chan struct{}, 1)}
}

// wait notes that steps of the namespaces wait.
func (l *limitWaiters) wait(now time.Time, namespaces []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range namespaces {
		l.namespaces[n] = now
	}
}

// waiting returns the namespaces in which steps wait; none where they were asked for less than a rest ago.
func (l *limitWaiters) waiting(now time.Time, rest time.Duration) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.woken) < rest {
		return nil
	}
	l.woken = now
	for n, at := range l.namespaces {
		if now.Sub(at) > seenFor {
			delete(l.namespaces, n)
		} else {
			list = append(list, n)
		}
	}
	return list
}

// changed has limits looked at anew.
func (l *limitWaiters) changed(e *Engine) {
	loop.Wake(l.back)
	e.notifier.wakeAll()
}

// limitWakeInterval is between two times that those are woken who wait for places, while whoever reports takes as
// many steps as it has ended: most often there is no place left for others.
const limitWakeInterval = 20 * time.Millisecond

// wakeLimitWaiters wakes claims that wait for places, except those the reporter has taken.
func (e *Engine) wakeLimitWaiters(ended, taken int) {
	rest := time.Duration(0)
	if taken >= ended {
		rest = limitWakeInterval
	}
	if list := e.limited.waiting(e.now(), rest); len(list) > 0 {
		e.notifier.wake(list)
		e.notifier.notifyOthers(list)
		loop.Wake(e.limited.back)
	}
}

// How steps go back into the queue that need not wait for their limit any more.
const (
	unparkInterval = time.Second     // while steps wait
	backRest       = 5 * time.Second // else
	backBatch      = 500
	keyAge         = time.Hour // after which a key that nothing uses is removed
	keyBatch       = 500
)

// unparkLimitedSteps returns parked steps to the queue: without a limit, or with free places.
func (e *Engine) unparkLimitedSteps(ctx context.Context) (time.Duration, error) {
	waiting, more := false, false
	var failed error
	for after := int64(0); ; {
		b, err := e.db.UnparkLimited(ctx, backBatch, after)
		failed = errors.Join(failed, err) // what cannot be put back holds up nothing else
		if len(b.Namespaces) > 0 {
			e.notify(b.Namespaces)
		}
		waiting, more = waiting || b.Waiting, more || b.More
		switch after = b.Last; {
		case after > 0:
		case failed != nil:
			return 0, failed
		case more: // such as those of a limit that was deleted
			return loop.AtOnce, nil
		case waiting:
			return unparkInterval, nil
		default:
			return 0, nil
		}
	}
}

func (e *Engine) pruneLimitKeys(ctx context.Context) (time.Duration, error) {
	after := int64(0)
	for {
		last, err := e.db.PruneLimitKeys(ctx, keyAge, after, keyBatch)
		if after = last; err != nil || last == 0 {
			return 0, err
		}
	}
}
