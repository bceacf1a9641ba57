package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	timerBatch            = 500
	timerDeadline         = 30 * time.Second
	pendingReportInterval = 2 * time.Second // minimum between two attempts to apply a pending report
	forgetAfter           = 24 * time.Hour  // retention of offline workers
)

// Maximum number of rows in one transaction. It is small if each row may open an investigation.
const (
	moveChunk    = 100
	reclaimChunk = 20
	pendingChunk = 10
)

// Loops returns the background loops of an engine: timers, retries, schedules, lease and queue
// expiry, pending reports, and the removal of old data. Any number of processes can run each loop.
// A slow or failing loop does not delay the others.
func (e *Engine) Loops() []*loop.Loop {
	scheduler := &timerScheduler{engine: e, wake: make(chan struct{}, 1), manyDead: make(chan struct{}, 1)}
	loops := append(e.newPruners(), e.queueLoops(scheduler)...)
	for _, t := range e.newTimers() {
		switch t.kind {
		case postgres.RejectInputs: // woken only by claims in this process
			l := e.newLoop(t.name, timerInterval, t.pass)
			l.Wake = e.skipped.wake
			loops = append(loops, l)
			continue
		case postgres.ReclaimLease:
			t.pass = e.reclaimPass(t.pass)
		}
		loops = append(loops, scheduler.newTimer(e.newLoop(t.name, timerInterval, t.pass), t.kind))
	}
	polls := e.newLoop("due work", scheduler.maxInterval(), scheduler.pass)
	polls.Wake, polls.Backoff = scheduler.wake, minPollInterval
	e.timers.due.Store(scheduler)
	heartbeats := e.newLoop("worker signs of life", timerInterval, e.flushHeartbeats)
	heartbeats.Wake, heartbeats.Backoff = e.alive.wake, timerRetry
	claims := e.newLoop("queues of claims", timerInterval, e.flushClaimActivity)
	claims.Wake, claims.Backoff = e.busy.wake, timerRetry
	heads := lowerPriority(e.newLoop("heads of queues", timerInterval, func(ctx context.Context) (time.Duration, error) { return 0, e.db.RefreshQueueHeads(ctx) }))
	heads.Wake = scheduler.manyDead
	deferred := e.newLoop("deferred work", timerInterval, e.RetryDeferred)
	deferred.Timeout = deferralTime
	return append(loops,
		polls, heartbeats, claims, heads,
		lowerPriority(e.newLoop("saturated queues", relieveEvery, e.relieveQueues)),
		scheduler.newTimer(deferred, postgres.RetryDeferred),
		lowerPriority(e.newLoop("workers", 10*time.Minute, e.forgetWorkers)),
		lowerPriority(e.newLoop("old firings", 10*time.Minute, e.pruneFirings)),
		&loop.Loop{Name: "steps that wait for limits", Interval: backRest, Timeout: timerDeadline, Wake: e.waiters.limited.back, Pass: e.unparkLimitedSteps, Log: e.log},
		lowerPriority(e.newLoop("old keys of limits", 10*time.Minute, e.pruneLimitKeys)),
		lowerPriority(e.newLoop("queues ordered by due times", 10*time.Minute,
			func(ctx context.Context) (time.Duration, error) {
				return 0, e.db.ForgetDueQueues(ctx) // templates are retired and without open tasks
			})),
	)
}

func (e *Engine) newLoop(name string, every time.Duration,
	pass func(context.Context) (time.Duration, error)) *loop.Loop {
	return &loop.Loop{Name: name, Interval: every, Timeout: timerDeadline, Pass: pass, Log: e.log}
}

// lowerPriority marks a loop as optional, since no task waits for it.
func lowerPriority(l *loop.Loop) *loop.Loop {
	l.Optional = true
	return l
}

// timer is a loop that performs timed work of one kind.
type timer struct {
	name string
	kind string
	pass func(context.Context) (next time.Duration, err error)
}

// newTimers returns all timers except those that expire queued steps.
func (e *Engine) newTimers() []timer {
	var list []timer
	for _, w := range e.timers.works {
		if w.name != "" {
			list = append(list, timer{name: w.name, kind: w.kind, pass: e.newTimedPass(w)})
		}
	}
	return append(list, timer{name: "decide steps with expensive expressions", kind: postgres.DecideSteps, pass: e.decideExpensive()})
}

func (e *Engine) findToDecide(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return e.db.StepsToDecide(ctx, e.timers.expensive.list(), limit)
}

// newTimedPass returns a pass for one kind of work. The pass runs again at once if work may be
// left.
func (e *Engine) newTimedPass(w work) func(context.Context) (time.Duration, error) {
	var head lockedHeadTracker
	if w.more == nil {
		w.find = head.watchFinder(w.find)
	}
	return func(ctx context.Context) (time.Duration, error) {
		limit := e.timers.batch << head.wider
		n, err := e.runPass(ctx, w, limit)
		if n >= limit && head.wider < widest || w.more != nil && w.more() {
			return loop.AtOnce, err
		}
		return 0, err
	}
}

func (e *Engine) workOfKind(kind string) work {
	i := slices.IndexFunc(e.timers.works, func(w work) bool { return w.kind == kind })
	return e.timers.works[i]
}

func (e *Engine) newWorks() []work {
	return []work{
		{
			name: "start tasks", kind: postgres.StartTask, chunk: moveChunk,
			find: taskFinder(e.db.TasksToStart), do: e.newEnqueuer((*postgres.Tx).StartTasks),
		},
		{name: "expire tasks", kind: postgres.ExpireTask, chunk: moveChunk, find: taskFinder(e.db.TasksToExpire), do: e.expireTasks},
		{name: "watch due times", kind: postgres.WatchDeadlines, chunk: deadlineChunk, find: e.db.DeadlinesToNotify, do: e.watchDeadlines},
		{
			name: "retry steps", kind: postgres.RetrySteps, chunk: moveChunk,
			find: taskFinder(e.findRetries), more: e.timers.retries.hasMore, do: e.newEnqueuer(enqueueAll((*postgres.Tx).RetryDue)),
		},
		{name: "decide steps", kind: postgres.DecideSteps, chunk: decideChunk, find: e.findToDecide, do: e.decide},
		{name: "end waits", kind: postgres.EndWait, chunk: waitChunk, find: e.db.StepsWithWaitOver, do: e.endWaits},
		{name: "remind people", kind: postgres.Remind, chunk: waitChunk, find: e.db.StepsToRemind, do: e.sendReminders},
		{name: "find tasks", kind: postgres.FindTasks, chunk: findChunk, find: e.db.StepsMissingAttributes,
			do: e.findAttributes},
		{name: "ended children", kind: postgres.ChildEnded, chunk: childChunk, find: e.db.StepsWithEndedChild, do: e.completeParents},
		{name: "cancel children", kind: postgres.CancelChild, chunk: childChunk, find: taskFinder(e.db.ChildrenToCancel), do: e.cancelChildren},
		{name: "create requested tasks", kind: postgres.CreateRequested, chunk: requestChunk, find: taskFinder(e.db.RequestsToCreate),
			do: e.createRequested},
		{name: "fire schedules", kind: postgres.FireSchedules, chunk: scheduleChunk, find: taskFinder(e.db.SchedulesToFire), do: e.fireSchedules},
		{name: "ended tasks of schedules", kind: postgres.ScheduledEnded, chunk: scheduleChunk, find: e.db.ScheduledTasksEnded, do: e.notifySchedules},
		{name: "reclaim leases", kind: postgres.ReclaimLease, chunk: reclaimChunk, find: e.db.StepsWithExpiredLease, do: e.reclaim},
		{
			name: "kept reports", kind: postgres.FollowUpReport, chunk: pendingChunk, do: e.completePendingReports,
			find: func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
				return e.db.StepsWithPendingReport(ctx, pendingReportInterval, limit)
			},
		},
		{name: "reject inputs", kind: postgres.RejectInputs, chunk: rejectChunk, find: e.skipped.takeFailed, do: e.rejectInputs},
		{
			kind: postgres.ExpireStep, chunk: expiryChunk, graced: true,
			find: e.findExpired, more: e.timers.expiryExtended.Load,
			do: func(ctx context.Context, rows []tasker.StepRef) error {
				_, err := e.expire(ctx, rows, expiryMode{})
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
				_, err := e.expire(ctx, rows, expiryMode{unserved: e.noWorker})
				return err
			},
		},
		{
			kind: postgres.RedispatchTask, chunk: moveChunk,
			find: taskFinder(e.db.TasksWithServedSteps), do: e.newEnqueuer(enqueueAll((*postgres.Tx).Redispatch)),
		},
	}
}

// taskFinder converts a query for tasks to a query for rows.
func taskFinder(find func(context.Context, int) ([]tasker.ID, error)) func(context.Context, int) ([]tasker.StepRef, error) {
	return func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
		tasks, err := find(ctx, limit)
		return mapSlice(tasks, func(id tasker.ID) tasker.StepRef { return tasker.StepRef{TaskUUID: id} }), err
	}
}

// newEnqueuer returns a function that enqueues steps of tasks and settles the tasks. It skips
// locked tasks.
func (e *Engine) newEnqueuer(enqueue enqueueFunc) func(context.Context, []tasker.StepRef) error {
	return func(ctx context.Context, rows []tasker.StepRef) error {
		var namespaces []string
		err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
			free, err := tx.LockFreeTasks(ctx, uniqueTasks(rows))
			if err != nil || len(free) == 0 {
				return err
			}
			var moved []tasker.ID
			if moved, namespaces, err = enqueue(tx, ctx, free); err != nil || len(moved) == 0 {
				return err
			}
			_, err = tx.SettleTasks(ctx, moved, postgres.Operator{})
			return err
		})
		if err == nil {
			e.notify(namespaces)
		}
		return err
	}
}

// Tick performs all timed work once. It returns the delay after which it must run again, or 0.
func (e *Engine) Tick(ctx context.Context) (next time.Duration, err error) {
	var failed []error
	for _, t := range e.newTimers() {
		again, err := t.pass(ctx)
		failed = append(failed, err)
		next = max(next, again)
	}
	_, err = e.unparkLimitedSteps(ctx)
	return next, errors.Join(append(failed, err)...)
}

// enqueueFunc enqueues steps of tasks. It returns the tasks to settle and the namespaces of the
// steps.
type enqueueFunc func(*postgres.Tx, context.Context, []tasker.ID) (moved []tasker.ID, namespaces []string, err error)

// enqueueAll converts a statement that enqueues steps to an enqueuing that settles all tasks.
func enqueueAll(enqueue func(*postgres.Tx, context.Context, []tasker.ID) ([]string, error)) enqueueFunc {
	return func(tx *postgres.Tx, ctx context.Context, tasks []tasker.ID) ([]tasker.ID, []string, error) {
		namespaces, err := enqueue(tx, ctx, tasks)
		return tasks, namespaces, err
	}
}

// reclaim fails attempts whose leases have expired. It skips locked tasks.
func (e *Engine) reclaim(ctx context.Context, rows []tasker.StepRef) error {
	expired, err := e.db.ExpiredLeases(ctx, rows)
	if err != nil || len(expired) == 0 {
		return err
	}
	list := make([]outcome, len(expired))
	for i, x := range expired {
		if list[i], err = newExpiryOutcome(x); err != nil {
			return err
		}
	}
	var mine []outcome
	var concluded postgres.Concluded
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		free, err := tx.LockFreeTasks(ctx, taskIDs(list))
		if err != nil {
			return err
		}
		mine = slices.DeleteFunc(slices.Clone(list), func(v outcome) bool { return !slices.Contains(free, v.TaskUUID) })
		concluded, err = e.concludeIn(ctx, tx, mine, postgres.Operator{})
		return err
	})
	if err != nil {
		return err
	}
	e.notifyAttemptsEnded(mine, concluded)
	e.notify(concluded.Namespaces)
	if n := len(concluded.Moved); n > 0 {
		e.log.WarnContext(ctx, "failed attempts with expired leases", "steps", n)
	}
	return nil
}

// newExpiryOutcome returns the outcome of an attempt whose lease has expired or that has exceeded
// its timeout.
func newExpiryOutcome(x postgres.ExpiredLease) (outcome, error) {
	f := tasker.Failure{
		Type: tasker.WorkerLost, Retryable: true,
		Message: "the worker stopped responding: its lease expired before it reported",
	}
	event := core.Lose
	if x.TimedOut {
		f.Type, event = tasker.StepTimeout, core.TimeOut
		f.Message = fmt.Sprintf("the attempt ran longer than timeout_seconds (%g s)", float64(x.TimeoutMS)/1000)
	}
	body, err := encodeFailure(f, x.WorkerUUID.String())
	return outcome{Detail: f.Type, failure: &f, Outcome: core.Outcome{
		TaskUUID: x.TaskUUID, StepUUID: x.StepUUID, From: tasker.StepInProgress, Fence: x.Fence, Event: event,
		Body: body, Retryable: true, Expired: true, RaiseFence: true,
	}}, err
}

func (e *Engine) forgetWorkers(ctx context.Context) (time.Duration, error) {
	n, err := e.db.PruneWorkers(ctx, forgetAfter)
	if n > 0 {
		e.log.InfoContext(ctx, "removed offline workers", "workers", n)
	}
	return 0, err
}

const (
	pruneEvery = 10 * time.Minute
	pruneTasks = 500
	pruneSteps = 2000             // each step also has some history rows
	pruneTime  = 10 * time.Second // timeout of one batch
	pruneFor   = 10 * time.Second // a pass begins no further batches after this time
)

// pruner removes old finished tasks in batches. Several processes may prune concurrently.
type pruner struct {
	*Engine
	state tasker.TaskState
	after tasker.ID            // end of the last batch
	most  postgres.PruneBounds // limits of the next batch
}

// newPruners returns the retention loops, or nil if the retention is unlimited.
func (e *Engine) newPruners() []*loop.Loop {
	if e.opts.Retention <= 0 {
		return nil
	}
	var loops []*loop.Loop
	for _, s := range []tasker.TaskState{tasker.TaskComplete, tasker.TaskCancelled} {
		p := &pruner{Engine: e, state: s, most: usualPrune}
		loops = append(loops, lowerPriority(e.newLoop("retention of "+string(s)+" tasks", pruneEvery, p.pass)))
	}
	return loops
}

// usualPrune limits a batch as long as none has failed.
var usualPrune = postgres.PruneBounds{Tasks: pruneTasks, Steps: pruneSteps}

// pass removes a batch. If a batch fails, it is halved, down to a single task, which is then
// skipped.
func (p *pruner) pass(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	for {
		limited, cancel := context.WithTimeout(ctx, pruneTime)
		done, err := p.db.PruneTasks(limited, p.state, p.after, p.opts.Retention, p.most)
		cancel()
		switch {
		case err != nil && (ctx.Err() != nil || postgres.IsUnavailable(err)):
			return 0, err
		case err != nil && p.most.Tasks > 1:
			p.most = postgres.PruneBounds{Tasks: (p.most.Tasks + 1) / 2, Steps: p.most.Steps/2 + 1}
		case err != nil:
			last, skipErr := p.db.NextToPrune(ctx, p.state, p.after)
			if skipErr != nil || last == nil {
				return 0, errors.Join(err, skipErr)
			}
			p.log.ErrorContext(ctx, "could not remove a finished task; skipped", "task_uuid", *last, "err", err)
			p.after = *last
		default:
			return p.recordPruned(ctx, done), nil
		}
		if time.Since(begun) > pruneFor {
			return 0, nil // the next pass continues with the smaller batch
		}
	}
}

// recordPruned records the result of a batch and returns the delay until the next one.
func (p *pruner) recordPruned(ctx context.Context, done postgres.Pruned) time.Duration {
	p.most = postgres.PruneBounds{Tasks: min(2*p.most.Tasks, pruneTasks), Steps: min(2*p.most.Steps, pruneSteps)}
	if done.Removed > 0 {
		p.log.InfoContext(ctx, "removed finished tasks", "state", p.state, "tasks", done.Removed)
	}
	if !done.More {
		p.after = tasker.ID{} // start again from the beginning
		return 0
	}
	p.after = *done.Last
	return loop.AtOnce
}
