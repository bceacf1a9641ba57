package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// ExpiredSteps returns enqueued steps whose queue timeout has passed, oldest first. During the
// grace period, a step is left to the broker unless it has a shorter timeout of its own. Steps that
// wait for a limit do not expire.
func (db *DB) ExpiredSteps(ctx context.Context, grace time.Duration, limit int) ([]tasker.StepRef, error) {
	for range maxExpiredScans {
		due, err := db.findDueSteps(ctx, statement("expiredSteps"), limit, grace, db.queue.ttlMS)
		if err != nil {
			return nil, err
		}
		list, err := db.ParkLimited(ctx, due)
		if err != nil || len(list) > 0 || len(due) < limit {
			return list, err
		}
	}
	return nil, nil
}

// maxExpiredScans limits how often a scan is repeated that finds only steps that wait for limits.
const maxExpiredScans = 20

// UnservedSteps returns enqueued steps for which no worker has been live for the given time, oldest
// first.
func (db *DB) UnservedSteps(ctx context.Context, after time.Duration, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("unservedSteps"), limit, after)
}

// ExpiredStep is a step that failed because no worker claimed it in time.
type ExpiredStep struct {
	core.Queued
	Unserved      bool // expired before the timeout because no worker was live
	QueueExpiries int  // consecutive expiries while a worker was live
	Returns       bool // it will be enqueued automatically when a worker is live
}

// ExpireSteps fails those of the steps that are still enqueued and whose timeout has passed, or for
// which no worker has been live for the duration unserved. It returns them. After most consecutive
// expiries with a live worker, a step is not retried. The caller must hold the task locks and
// settle the tasks afterwards.
func (tx *Tx) ExpireSteps(ctx context.Context, steps []tasker.StepRef, most int, unserved *time.Duration) ([]ExpiredStep, error) {
	tasks, ids := toRefArrays(steps)
	if err := tx.LockEnqueued(ctx, steps); err != nil {
		return nil, err
	}
	queued, err := collect[core.Queued](ctx, tx, statement("queuedSteps"), tasks, ids, unserved)
	if err != nil {
		return nil, fmt.Errorf("read enqueued steps: %w", err)
	}
	var wait time.Duration
	if unserved != nil {
		wait = *unserved
	}
	var expired []ExpiredStep
	refs := mapSlice(queued, func(q core.Queued) tasker.StepRef { return q.StepRef })
	_, err = tx.changeSteps(ctx, refs, func(c *core.Change) {
		for _, q := range queued {
			if q.TaskUUID == c.Task.ID && c.Expire(q, most, wait) {
				s := c.Task.Find(q.StepUUID)
				expired = append(expired, ExpiredStep{q, q.InTime(c.Now), s.QueueExpiries, s.AwaitsWorker != nil})
			}
		}
	})
	return expired, wrapError(err, "expire steps")
}

func toRefArrays(steps []tasker.StepRef) (tasks, ids []tasker.ID) {
	for _, s := range steps {
		tasks = append(tasks, s.TaskUUID)
		ids = append(ids, s.StepUUID)
	}
	return tasks, ids
}

// TasksWithServedSteps returns tasks that have an expired step for which a worker is live again.
func (db *DB) TasksWithServedSteps(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.findDueTasks(ctx, statement("tasksWithServedSteps"), limit)
}

// Redispatch enqueues expired steps for which a worker is live and returns their namespaces. The
// caller must hold the task locks and settle the tasks afterwards. An investigation recovers if no
// other step of its task has failed.
func (tx *Tx) Redispatch(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	served, err := collect[tasker.StepRef](ctx, tx, statement("servedSteps"), tasks)
	if err != nil || len(served) == 0 {
		return nil, wrapError(err, "find steps that are served again")
	}
	stored, err := tx.changeSteps(ctx, served, func(c *core.Change) { c.Redispatch(served) })
	if err != nil {
		return nil, fmt.Errorf("enqueue steps: %w", err)
	}
	_, err = tx.Exec(ctx, statement("recoverServed"), uniqueTasks(mapSlice(served, func(s tasker.StepRef) tasker.ID { return s.TaskUUID })), stored.now)
	return stored.Namespaces, wrapError(err, "mark investigations as recovered")
}

// StopAutoRecovery disables the automatic retry of the tasks' expired steps.
func (tx *Tx) StopAutoRecovery(ctx context.Context, tasks []tasker.ID) error {
	_, err := tx.Exec(ctx, statement("stopAutoRecovery"), tasks)
	return wrapError(err, "stop the automatic retry of steps")
}

// WriteOff ends automatic retries, human steps and reminders of tasks that were marked as
// permanently failed.
func (tx *Tx) WriteOff(ctx context.Context, tasks []tasker.ID) error {
	if err := tx.StopAutoRecovery(ctx, tasks); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, statement("stopReminders"), tasks); err != nil {
		return fmt.Errorf("stop task reminders: %w", err)
	}
	return tx.endHumanSteps(ctx, tasks)
}
