package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// ExpiredSteps returns enqueued steps past their queue timeout, oldest first. Within the grace, the
// broker expires them unless their own timeout is shorter. Steps that await a limit do not expire.
func (db *DB) ExpiredSteps(ctx context.Context, grace time.Duration, limit int) ([]tasker.StepRef, error) {
	for range maxExpiredScans {
		due, err := db.dueSteps(ctx, stmt("expiredSteps"), limit, grace, db.queue.ttlMS)
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

// maxExpiredScans bounds the repetition of a scan that finds only steps that wait for limits.
const maxExpiredScans = 20

// UnservedSteps returns steps that are enqueued without a live worker for a time, oldest first.
func (db *DB) UnservedSteps(ctx context.Context, after time.Duration, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stmt("unservedSteps"), limit, after)
}

// ExpiredStep is a step that failed because no worker claimed it in time.
type ExpiredStep struct {
	tasker.StepRef
	Namespace     string
	Handler       string
	QueuedAt      time.Time
	ExpiresAt     time.Time
	Kept          bool       // the timeout passed while the queue was saturated
	Unserved      bool       // expired before the timeout, because no worker was live
	Workers       int64      // live workers that could have claimed it
	BusyAt        *time.Time // last known claim from its queue
	QueueExpiries int        // in a row, with a live worker
	Returns       bool       // enqueued automatically when a worker is live
}

// ExpireSteps fails those of the steps that are still enqueued past their timeout, or without a
// live worker for the time unserved, and returns them. After most expiries in a row with a live
// worker a step does not retry. The caller holds the task locks and settles the tasks.
func (tx *Tx) ExpireSteps(ctx context.Context, steps []tasker.StepRef, most int, unserved *time.Duration) ([]ExpiredStep, error) {
	tasks, ids := refArrays(steps)
	if err := tx.LockEnqueued(ctx, steps); err != nil {
		return nil, err
	}
	rows, err := collect[ExpiredStep](ctx, tx, stmt("expireSteps"), tasks, ids, most, unserved)
	return rows, wrap(err, "expire steps")
}

func refArrays(steps []tasker.StepRef) (tasks, ids []tasker.ID) {
	for _, s := range steps {
		tasks = append(tasks, s.TaskUUID)
		ids = append(ids, s.StepUUID)
	}
	return tasks, ids
}

// TasksWithServedSteps returns tasks with an expired step for which a worker is live again.
func (db *DB) TasksWithServedSteps(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.dueTasks(ctx, stmt("tasksWithServedSteps"), limit)
}

// Redispatch enqueues expired steps for which a worker is live and returns their namespaces. The
// caller holds the task locks and settles the tasks afterwards.
func (tx *Tx) Redispatch(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	return tx.enqueue(ctx, stmt("redispatch"), tasks)
}

// StopAutoRecovery stops the automatic retry of expired steps of tasks.
func (tx *Tx) StopAutoRecovery(ctx context.Context, tasks []tasker.ID) error {
	_, err := tx.Exec(ctx, stmt("stopAutoRecovery"), tasks)
	return wrap(err, "stop the automatic retry of steps")
}

// WriteOff stops automatic retries, human steps and reminders of permanently failed tasks.
func (tx *Tx) WriteOff(ctx context.Context, tasks []tasker.ID) error {
	if err := tx.StopAutoRecovery(ctx, tasks); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, stmt("stopReminders"), tasks); err != nil {
		return fmt.Errorf("stop task reminders: %w", err)
	}
	return tx.endHumanSteps(ctx, tasks)
}
