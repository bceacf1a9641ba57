package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tasker"
	"tasker/internal/lifecycle"
	"tasker/internal/loop"
	"tasker/internal/postgres"
)

const (
	timerEvery    = 250 * time.Millisecond
	timerBatch    = 500
	timerDeadline = 30 * time.Second
	keptRest      = 2 * time.Second // between two tries of a kept report
	forgetAfter   = 24 * time.Hour  // a worker that has fallen silent
)

// Loops returns what an engine does by itself: start tasks whose time has come,
// retry failed steps, take steps from workers that fell silent, fail steps that no
// worker took in time and put them back when one is there, try kept reports again, forget workers, remove what is kept no longer. Each is safe to run in any
// number of processes.
func (e *Engine) Loops() []*loop.Loop {
	return append(append(e.pruners(), e.queueLoops()...),
		&loop.Loop{Name: "timers", Every: timerEvery, Timeout: timerDeadline, Pass: e.Tick, Log: e.log},
		&loop.Loop{Name: "workers", Every: 10 * time.Minute, Timeout: timerDeadline, Pass: e.forgetWorkers, Log: e.log},
	)
}

// Tick does all that is due by the clock. It asks to run again at once when it
// left something undone.
func (e *Engine) Tick(ctx context.Context) (next time.Duration, err error) {
	full := false
	var failed []error
	for _, pass := range []func(context.Context) (int, error){e.startDue, e.retryDue, e.reclaim, e.followUps} {
		n, err := pass(ctx)
		failed = append(failed, err)
		full = full || n >= timerBatch
	}
	if full {
		next = loop.AtOnce
	}
	return next, errors.Join(failed...)
}

// startDue starts tasks whose start time has come.
func (e *Engine) startDue(ctx context.Context) (int, error) {
	tasks, err := e.db.TasksToStart(ctx, timerBatch)
	if err != nil || len(tasks) == 0 {
		return 0, err
	}
	return len(tasks), together(ctx, tasks, func(some []tasker.ID) error { return e.move(ctx, some, (*postgres.Tx).EnqueueReady) })
}

// retryDue enqueues failed steps whose rest is over.
func (e *Engine) retryDue(ctx context.Context) (int, error) {
	e.retrying.Lock()
	tasks, mark, err := e.db.TasksWithDueRetries(ctx, e.retried, timerBatch)
	e.retried = mark
	e.retrying.Unlock()
	if err != nil || len(tasks) == 0 {
		return 0, err
	}
	return len(tasks), together(ctx, tasks, func(some []tasker.ID) error { return e.move(ctx, some, (*postgres.Tx).RetryDue) })
}

// enqueuing is a way to enqueue steps of tasks; it returns their namespaces.
type enqueuing func(*postgres.Tx, context.Context, []tasker.ID) ([]string, error)

// together does something to all of a list, and if that fails to each on its own,
// so that one does not keep the others.
func together[T any](ctx context.Context, list []T, do func([]T) error) error {
	err := do(list)
	if err == nil || len(list) == 1 || ctx.Err() != nil {
		return err
	}
	var failed []error
	for i := range list {
		failed = append(failed, do(list[i:i+1]))
	}
	return errors.Join(failed...)
}

// move enqueues steps of those of the tasks that nobody else works on, and
// settles them.
func (e *Engine) move(ctx context.Context, tasks []tasker.ID, enqueue enqueuing) error {
	var namespaces []string
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		free, err := tx.LockFreeTasks(ctx, tasks)
		if err != nil || len(free) == 0 {
			return err
		}
		if namespaces, err = enqueue(tx, ctx, free); err != nil {
			return err
		}
		_, err = tx.SettleTasks(ctx, free, postgres.Operator{})
		return err
	})
	if err == nil {
		e.ring(namespaces)
	}
	return err
}

// reclaim fails the attempts whose lease has run out.
func (e *Engine) reclaim(ctx context.Context) (int, error) {
	expired, err := e.db.ExpiredLeases(ctx, timerBatch)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	list := make([]verdict, len(expired))
	for i, x := range expired {
		if list[i], err = expiry(x); err != nil {
			return 0, err
		}
	}
	reclaimed := 0
	err = together(ctx, list, func(some []verdict) error {
		n, err := e.reclaimThese(ctx, some)
		reclaimed += n
		return err
	})
	if reclaimed > 0 {
		e.log.WarnContext(ctx, "attempts whose lease ran out were failed", "steps", reclaimed)
	}
	return len(expired), err
}

func (e *Engine) reclaimThese(ctx context.Context, list []verdict) (int, error) {
	var concluded postgres.Concluded
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		free, err := tx.LockFreeTasks(ctx, tasksOf(list))
		if err != nil {
			return err
		}
		mine := slices.DeleteFunc(slices.Clone(list), func(v verdict) bool { return !slices.Contains(free, v.TaskUUID) })
		concluded, err = e.concludeIn(ctx, tx, mine, postgres.Operator{})
		return err
	})
	if err != nil {
		return 0, err
	}
	e.ring(concluded.Namespaces)
	return len(concluded.Moved), nil
}

// expiry is the verdict on an attempt whose lease has run out.
func expiry(x postgres.ExpiredLease) (verdict, error) {
	f := tasker.Failure{
		Type: tasker.WorkerLost, Retryable: true,
		Message: "the worker fell silent: its lease ran out before it reported",
	}
	event := lifecycle.Lose
	if x.TimedOut {
		f.Type, event = tasker.StepTimeout, lifecycle.TimeOut
		f.Message = fmt.Sprintf("the attempt ran longer than timeout_seconds (%g s)", float64(x.TimeoutMS)/1000)
	}
	body, err := failureBody(f, x.WorkerUUID.String())
	return verdict{Detail: f.Type, Conclusion: postgres.Conclusion{
		TaskUUID: x.TaskUUID, StepUUID: x.StepUUID, From: tasker.StepInProgress, Fence: x.Fence, Event: event, To: tasker.StepError,
		Body: body, Retryable: true, Expired: true, RaiseFence: true,
	}}, err
}

// followUps tries kept reports again, each on its own.
func (e *Engine) followUps(ctx context.Context) (int, error) {
	kept, err := e.db.KeptReports(ctx, keptRest, timerBatch)
	var failed []error
	for _, k := range kept {
		failed = append(failed, e.followUp(ctx, k))
	}
	return len(kept), errors.Join(append(failed, err)...)
}

func (e *Engine) forgetWorkers(ctx context.Context) (time.Duration, error) {
	n, err := e.db.ForgetWorkers(ctx, forgetAfter)
	if n > 0 {
		e.log.InfoContext(ctx, "forgot workers that are gone", "workers", n)
	}
	return 0, err
}
