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

// graphLimit is a limit that a template imposes on its steps.
type graphLimit struct {
	name  string
	key   *expression.Program // nil if all tasks share one key
	steps []string            // names of the limited steps; nil means all

	weights map[string]int // number of slots, for steps that use several
}

func newLimits(t tasker.Template, scope expression.Scope) ([]graphLimit, error) {
	scope.Search = true
	list := make([]graphLimit, len(t.Limits))
	for i, l := range t.Limits {
		list[i] = graphLimit{name: l.Name, steps: l.Steps, weights: l.Weights}
		if l.Steps == nil && len(l.Weights) > 0 {
			list[i].steps = handlerSteps(t.Steps)
		}
		if l.Key == "" {
			continue
		}
		var err error
		if list[i].key, err = expression.Compile(l.Key, scope, expression.Any); err != nil {
			return nil, wrapPath(fmt.Sprintf("limits[%d].key", i), err)
		}
	}
	return list, nil
}

func handlerSteps(steps []tasker.StepTemplate) (names []string) {
	for _, s := range steps {
		if s.HasHandler() {
			names = append(names, s.Name)
		}
	}
	return names
}

// evaluateLimits evaluates the limit keys of a new task. It returns Invalid if a key is missing,
// since the task would then be unlimited or share a limit with unrelated tasks.
func (c *creation) evaluateLimits(ctx context.Context, g *graph, t *postgres.CreatedTask) (list []postgres.TaskLimit, err error) {
	for _, l := range g.limits {
		key := ""
		if l.key != nil {
			if key, err = c.evaluateLimitKey(ctx, l.key, t); err != nil {
				return nil, wrapPath("limits."+l.name+".key", err)
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

// evaluateLimitKey evaluates a limit key and converts it to a string. The key must be a string, a
// number or a bool.
func (c *creation) evaluateLimitKey(ctx context.Context, p *expression.Program, t *postgres.CreatedTask) (string,
	error) {
	out, err := c.evaluate(ctx, p, t)
	if err != nil {
		return "", err
	}
	if out.Err != nil {
		return "", tasker.Errorf(tasker.Invalid, "cannot evaluate the limit key: %w", out.Err)
	}
	switch out.Value.(type) {
	case string, json.Number, bool:
	default:
		return "", tasker.Errorf(tasker.Invalid,
			"invalid limit key: must be a string, a number or a bool, not null or a time")
	}
	key := fmt.Sprint(out.Value)
	if len(key) > tasker.MaxLimitKeyBytes {
		return "", tasker.Errorf(tasker.Invalid,
			"the limit key has %d bytes: the limit is %d", len(key), tasker.MaxLimitKeyBytes)
	}
	return key, nil
}

// Limits returns a page of the limits that the caller may see and reports whether there are more.
func (e *Engine) Limits(ctx context.Context, f tasker.LimitFilter) ([]tasker.Limit, bool, error) {
	after, err := tasker.ParseLimitRef(f.After)
	if err != nil {
		return nil, false, err
	}
	return e.db.Limits(ctx, f, after)
}

// Limit returns a limit with its busiest keys and the steps that occupy its slots, or NotFound.
func (e *Engine) Limit(ctx context.Context, ref tasker.LimitRef) (tasker.LimitDetail, error) {
	if err := ref.Check(); err != nil {
		return tasker.LimitDetail{}, err
	}
	return e.db.Limit(ctx, ref)
}

// LimitChange describes who changes a limit, and why.
type LimitChange struct {
	Actor  string
	Reason string
}

func (c LimitChange) check() error { return ScheduleChange{Actor: c.Actor, Reason: c.Reason}.check() }

// SetLimit creates or changes a limit. All claims after its commit observe it. It returns Invalid,
// or a Conflict if there are too many limits.
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
		e.waiters.limited.wakeWaiters(e)
	}
	return l, err
}

// DeleteLimit removes a limit and returns the steps that wait for it to the queue. It returns
// NotFound, or a Conflict if a template defines the limit.
func (e *Engine) DeleteLimit(ctx context.Context, ref tasker.LimitRef, by LimitChange) error {
	if err := by.check(); err != nil {
		return err
	}
	if err := ref.Check(); err != nil {
		return err
	}
	err := e.db.DeleteLimit(ctx, ref, postgres.Operator{Actor: by.Actor, Reason: by.Reason})
	if err == nil {
		e.waiters.limited.wakeWaiters(e)
	}
	return err
}

// limitWaiters contains namespaces in which steps wait for limits. It is only a hint about which
// claims to wake.
type limitWaiters struct {
	mu         sync.Mutex
	namespaces map[string]time.Time
	woken      time.Time     // when waiting claims were last woken
	back       chan struct{} // wakes the loop that unparks steps
}

// seenFor is the time after which a namespace is forgotten.
const seenFor = 10 * time.Second

func (l *limitWaiters) addWaiters(now time.Time, namespaces []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range namespaces {
		l.namespaces[n] = now
	}
}

// listWaiting returns the namespaces with waiting steps, but nil if the last call was less than
// interval ago.
func (l *limitWaiters) listWaiting(now time.Time, interval time.Duration) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.woken) < interval {
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

// wakeWaiters makes changed limits take effect at once: it unparks steps and wakes all waiting
// claims.
func (l *limitWaiters) wakeWaiters(e *Engine) {
	loop.Wake(l.back)
	e.waiters.notifier.wakeAll()
}

// limitWakeInterval is the minimum interval between wake-ups of claims that wait for slots if the
// reporting worker claimed as many steps as it completed. It has then usually reused the slots.
const limitWakeInterval = 20 * time.Millisecond

// wakeLimitWaiters wakes claims that wait for slots after steps have ended. It does so less often
// if the reporting worker took as many steps itself.
func (e *Engine) wakeLimitWaiters(ended, taken int) {
	interval := time.Duration(0)
	if taken >= ended {
		interval = limitWakeInterval
	}
	if list := e.waiters.limited.listWaiting(e.now(), interval); len(list) > 0 {
		e.waiters.notifier.wake(list)
		e.waiters.notifier.notifyOthers(list)
		loop.Wake(e.waiters.limited.back)
	}
}

const (
	unparkInterval = time.Second     // while steps wait
	backRest       = 5 * time.Second // otherwise
	backBatch      = 500
	keyAge         = time.Hour // age at which an unused key is removed
	keyBatch       = 500
)

// unparkLimitedSteps returns parked steps to the queue if their limit was removed or has a free
// slot.
func (e *Engine) unparkLimitedSteps(ctx context.Context) (time.Duration, error) {
	waiting, more := false, false
	var failed error
	for after := int64(0); ; {
		b, err := e.db.UnparkLimited(ctx, backBatch, after)
		failed = errors.Join(failed, err) // a failure must not delay other batches
		if len(b.Namespaces) > 0 {
			e.notify(b.Namespaces)
		}
		waiting, more = waiting || b.Waiting, more || b.More
		switch after = b.Last; {
		case after > 0:
		case failed != nil:
			return 0, failed
		case more: // for example after a limit was deleted
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
