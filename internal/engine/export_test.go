package engine

import (
	"context"
	"slices"
	"time"

	"tasker.example/tasker"
)

// GateCreations has one write of small creations at a time, and calls gate before each.
func (e *Engine) GateCreations(gate func(tasks []tasker.NewTask)) {
	write := e.creator.creations.Write
	e.creator.creations.Writers = 1
	e.creator.creations.Write = func(ctx context.Context, list []*creation) error {
		var tasks []tasker.NewTask
		for _, c := range list {
			for _, t := range c.tasks {
				tasks = append(tasks, t.Request)
			}
		}
		gate(tasks)
		return write(ctx, list)
	}
}

// WaitingCreations returns how many creations wait for others to be written.
func (e *Engine) WaitingCreations() int { return e.creator.creations.Waiting() }

// GiveTime has a chunk of work take as long as it needs on a machine that does much else: what is
// due is done by one Tick, and not set aside.
func (e *Engine) GiveTime() { e.timers.chunkTime = time.Minute }

// PanicOn has work of a kind panic that is done on steps of a task.
func (e *Engine) PanicOn(kind string, task tasker.ID) {
	for i, w := range e.timers.works {
		if w.kind != kind {
			continue
		}
		e.timers.works[i].do = func(ctx context.Context, rows []tasker.StepRef) error {
			if slices.ContainsFunc(rows, func(r tasker.StepRef) bool { return r.TaskUUID == task }) {
				panic("no such row")
			}
			return w.do(ctx, rows)
		}
	}
}

// What the times of a pass over what was set aside are compared with.
const (
	LongestDeferral = passTime + mostRowTime
	DeferredHold    = deferredHold
)

// NeedsTime has work of a kind on a row fail that has less time than it needs.
func (e *Engine) NeedsTime(kind string, needs time.Duration) {
	for i, w := range e.timers.works {
		if w.kind != kind {
			continue
		}
		e.timers.works[i].do = func(ctx context.Context, rows []tasker.StepRef) error {
			if at, ok := ctx.Deadline(); ok && time.Until(at) < needs {
				return context.DeadlineExceeded
			}
			return w.do(ctx, rows)
		}
	}
}

// Pass does once what is due of a kind, as its loop does. It reports false for a kind that
// concerns the queue.
func (e *Engine) Pass(ctx context.Context, kind string) (bool, error) {
	for _, t := range e.newTimers() {
		if t.kind == kind {
			_, err := t.pass(ctx)
			return true, err
		}
	}
	return false, nil
}

// Passes does what is due of a kind so often, as one loop does.
func (e *Engine) Passes(ctx context.Context, kind string, times int) error {
	pass := e.newTimedPass(e.workOfKind(kind))
	for range times {
		if _, err := pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kinds lists the kinds of work that is due by the clock.
func (e *Engine) Kinds() (list []string) {
	for _, w := range e.timers.works {
		list = append(list, w.kind)
	}
	return list
}

// StoreBusy does once what its loop does, and so does RelieveQueues.
func (e *Engine) StoreBusy(ctx context.Context) error {
	_, err := e.flushClaimActivity(ctx)
	return err
}

func (e *Engine) RelieveQueues(ctx context.Context) error {
	_, err := e.relieveQueues(ctx)
	return err
}

// SetBatch sets how many rows a pass of a timer looks for at once.
func (e *Engine) SetBatch(n int) { e.timers.batch = n }

// TaskWaits returns how many callers of AwaitTask wait.
func (e *Engine) TaskWaits() int {
	e.waiters.awaited.mu.Lock()
	defer e.waiters.awaited.mu.Unlock()
	return e.waiters.awaited.total
}
