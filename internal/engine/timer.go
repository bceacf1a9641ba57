package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	timerEvery    = 250 * time.Millisecond // what is due is looked for
	timerBatch    = 500
	timerDeadline = 30 * time.Second
	keptRest      = 2 * time.Second // between two tries of a kept report
	forgetAfter   = 24 * time.Hour  // a worker that has fallen silent
)

// Rows in one transaction: few where each may open an investigation.
const (
	moveChunk    = 100
	reclaimChunk = 20
	keptChunk    = 10
)

// Loops returns what an engine does by itself: start tasks whose time has come,
// retry failed steps, take steps from workers that fell silent, fail steps that no
// worker took in time and put them back when one is there, fail those whose inputs no
// worker can be given, try kept reports again, and what was set aside; forget workers, remove what is kept no longer. Each has its
// own loop, so that one that is slow or fails delays no other, and is safe to run in
// any number of processes.
func (e *Engine) Loops() []*loop.Loop {
	watch := &dueWatch{db: e.db}
	loops := append(e.pruners(), e.queueLoops(watch)...)
	for _, t := range e.timers() {
		switch t.kind {
		case postgres.RejectInputs: // it asks this process only
			loops = append(loops, e.loop(t.name, timerEvery, t.pass))
			continue
		case postgres.ReclaimLease:
			t.pass = e.reclaimPass(t.pass)
		}
		loops = append(loops, watch.timer(e.loop(t.name, timerRest, t.pass), t.kind))
	}
	return append(loops,
		e.loop("due work", timerEvery, watch.pass),
		e.loop("deferred work", deferredEvery, e.RetryDeferred),
		spare(e.loop("workers", 10*time.Minute, e.forgetWorkers)),
	)
}

func (e *Engine) loop(name string, every time.Duration, pass func(context.Context) (time.Duration, error)) *loop.Loop {
	return &loop.Loop{Name: name, Every: every, Timeout: timerDeadline, Pass: pass, Log: e.log}
}

// spare marks a loop that no task waits for.
func spare(l *loop.Loop) *loop.Loop {
	l.Spare = true
	return l
}

// A timer is a loop that does what is due by the clock.
type timer struct {
	name string
	kind string
	pass func(context.Context) (next time.Duration, err error)
}

// timers are those that do not concern the queue.
func (e *Engine) timers() []timer {
	list := []timer{
		{name: "start tasks", kind: postgres.StartTask},
		{name: "retry steps", kind: postgres.RetrySteps},
		{name: "reclaim leases", kind: postgres.ReclaimLease},
		{name: "kept reports", kind: postgres.FollowUpReport},
		{name: "reject inputs", kind: postgres.RejectInputs},
	}
	for i := range list {
		list[i].pass = e.timed(list[i].kind)
	}
	return list
}

// timed is the pass of a kind of work. It asks to run again at once when it left
// something undone.
func (e *Engine) timed(kind string) func(context.Context) (time.Duration, error) {
	w := e.work(kind)
	return func(ctx context.Context) (time.Duration, error) {
		n, err := e.pass(ctx, w, timerBatch)
		if n >= timerBatch {
			return loop.AtOnce, err
		}
		return 0, err
	}
}

func (e *Engine) work(kind string) work {
	i := slices.IndexFunc(e.works, func(w work) bool { return w.kind == kind })
	return e.works[i]
}

// newWorks lists the work on rows that is due by the clock.
func (e *Engine) newWorks() []work {
	return []work{
		{
			kind: postgres.StartTask, chunk: moveChunk,
			find: ofTasks(e.db.TasksToStart), do: e.moving((*postgres.Tx).EnqueueReady),
		},
		{
			kind: postgres.RetrySteps, chunk: moveChunk,
			find: ofTasks(e.findRetries), do: e.moving((*postgres.Tx).RetryDue),
		},
		{kind: postgres.ReclaimLease, chunk: reclaimChunk, find: e.db.StepsWithExpiredLease, do: e.reclaim},
		{
			kind: postgres.FollowUpReport, chunk: keptChunk, do: e.followUp,
			find: func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
				return e.db.StepsWithKeptReport(ctx, keptRest, limit)
			},
		},
		{kind: postgres.RejectInputs, chunk: rejectChunk, find: e.aside.toReject, do: e.rejectInputs},
		{
			kind: postgres.ExpireStep, chunk: expiryChunk, graced: true,
			find: func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
				return e.db.ExpiredSteps(ctx, e.sweepGrace(), limit)
			},
			do: func(ctx context.Context, rows []tasker.StepRef) error {
				_, err := e.expire(ctx, rows, expiring{lock: lockFree})
				return err
			},
		},
		{
			kind: postgres.ExpireUnserved, chunk: expiryChunk, graced: true,
			find: func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
				if e.noWorker == nil {
					return nil, nil
				}
				return e.db.UnservedSteps(ctx, *e.noWorker, limit)
			},
			do: func(ctx context.Context, rows []tasker.StepRef) error {
				_, err := e.expire(ctx, rows, expiring{lock: lockFree, unserved: e.noWorker})
				return err
			},
		},
		{
			kind: postgres.RedispatchTask, chunk: moveChunk,
			find: ofTasks(e.db.TasksWithServedSteps), do: e.moving((*postgres.Tx).Redispatch),
		},
	}
}

// ofTasks makes rows of tasks.
func ofTasks(find func(context.Context, int) ([]tasker.ID, error)) func(context.Context, int) ([]tasker.StepRef, error) {
	return func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
		tasks, err := find(ctx, limit)
		rows := make([]tasker.StepRef, len(tasks))
		for i, id := range tasks {
			rows[i].TaskUUID = id
		}
		return rows, err
	}
}

// moving does the work of enqueueing steps of tasks.
func (e *Engine) moving(enqueue enqueuing) func(context.Context, []tasker.StepRef) error {
	return func(ctx context.Context, rows []tasker.StepRef) error {
		return e.move(ctx, tasksOfSteps(rows), enqueue)
	}
}

// Tick does once all that is due by the clock and does not concern the queue, and
// says whether it left something undone. The loops do the same by themselves.
func (e *Engine) Tick(ctx context.Context) (next time.Duration, err error) {
	var failed []error
	for _, t := range e.timers() {
		again, err := t.pass(ctx)
		failed = append(failed, err)
		next = max(next, again)
	}
	return next, errors.Join(failed...)
}

// findRetries finds tasks with a failed step whose rest is over.
func (e *Engine) findRetries(ctx context.Context, limit int) ([]tasker.ID, error) {
	e.retrying.Lock()
	defer e.retrying.Unlock()
	tasks, mark, err := e.db.TasksWithDueRetries(ctx, e.retried, limit)
	e.retried = mark
	return tasks, err
}

// enqueuing is a way to enqueue steps of tasks; it returns their namespaces.
type enqueuing func(*postgres.Tx, context.Context, []tasker.ID) ([]string, error)

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
		e.notify(namespaces)
	}
	return err
}

// reclaim fails those attempts of the steps whose lease has run out, and that nobody
// else works on.
func (e *Engine) reclaim(ctx context.Context, rows []tasker.StepRef) error {
	expired, err := e.db.ExpiredLeases(ctx, rows)
	if err != nil || len(expired) == 0 {
		return err
	}
	list := make([]verdict, len(expired))
	for i, x := range expired {
		if list[i], err = expiry(x); err != nil {
			return err
		}
	}
	var concluded postgres.Concluded
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		free, err := tx.LockFreeTasks(ctx, tasksOf(list))
		if err != nil {
			return err
		}
		mine := slices.DeleteFunc(slices.Clone(list), func(v verdict) bool { return !slices.Contains(free, v.TaskUUID) })
		concluded, err = e.concludeIn(ctx, tx, mine, postgres.Operator{})
		return err
	})
	if err != nil {
		return err
	}
	e.notify(concluded.Namespaces)
	if n := len(concluded.Moved); n > 0 {
		e.log.WarnContext(ctx, "attempts whose lease ran out were failed", "steps", n)
	}
	return nil
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

func (e *Engine) forgetWorkers(ctx context.Context) (time.Duration, error) {
	n, err := e.db.ForgetWorkers(ctx, forgetAfter)
	if n > 0 {
		e.log.InfoContext(ctx, "forgot workers that are gone", "workers", n)
	}
	return 0, err
}

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
