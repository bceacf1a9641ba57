package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// EnqueueReady enqueues the steps of tasks without open dependencies and the items with a free slot,
// and returns their namespaces. The caller settles the tasks.
func (tx *Tx) EnqueueReady(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	list, err := tx.enqueue(ctx, stmt("enqueueReady"), tasks)
	if err != nil {
		return nil, err
	}
	items, err := tx.PromoteItems(ctx, tasks)
	return append(list, items...), err
}

// StartTasks enqueues the initial steps of due tasks. It returns the tasks that have started, now or
// before, and the namespaces of the enqueued steps. Call it before settling a due task, because
// [DB.TasksToStart] does not find settled tasks.
func (tx *Tx) StartTasks(ctx context.Context, tasks []tasker.ID) (started []tasker.ID, namespaces []string, err error) {
	type row struct {
		TaskUUID tasker.ID
		Starts   bool
	}
	rows, err := collect[row](ctx, tx, stmt("startedTasks"), tasks)
	if err != nil {
		return nil, nil, fmt.Errorf("find tasks to start: %w", err)
	}
	var due []tasker.ID
	for _, r := range rows {
		started = append(started, r.TaskUUID)
		if r.Starts {
			due = append(due, r.TaskUUID)
		}
	}
	if len(due) > 0 {
		namespaces, err = tx.EnqueueReady(ctx, due)
	}
	return started, namespaces, err
}

// PromoteItems enqueues map items with a free slot and returns their namespaces. The caller settles
// the tasks.
func (tx *Tx) PromoteItems(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	return tx.enqueue(ctx, stmt("promoteItems"), tasks)
}

// RetryDue enqueues the steps whose retry is due, except of tasks in error, and returns their
// namespaces.
func (tx *Tx) RetryDue(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	return tx.enqueue(ctx, stmt("retryDue"), tasks)
}

func (tx *Tx) enqueue(ctx context.Context, sql string, tasks []tasker.ID) ([]string, error) {
	list, err := column[string](ctx, tx, sql, tasks, tx.queue.ttlMS, tx.queue.announce)
	return list, wrap(err, "enqueue steps")
}

// RetryMark is the position of [DB.TasksWithDueRetries]. The zero value is the start.
type RetryMark struct {
	Recent             bool // read only recent retries, because all older ones were read
	nextRetryAt        *time.Time
	taskUUID, stepUUID tasker.ID
}

// Begun reports whether some, but not all, older retries were read.
func (m RetryMark) Begun() bool { return m.nextRetryAt != nil }

// TasksWithDueRetries returns tasks with due retries: up to limit recent ones, and those of the next
// limit older steps after the mark.
func (db *DB) TasksWithDueRetries(ctx context.Context, from RetryMark, limit int) ([]tasker.ID, RetryMark, error) {
	type row struct {
		Tasks              []tasker.ID
		NextRetryAt        *time.Time
		TaskUUID, StepUUID tasker.ID
	}
	late := limit
	if from.Recent {
		late = 0
	}
	r, err := required[row](ctx, db.pool, nil, "find due retries",
		stmt("tasksWithDueRetries"), limit, from.nextRetryAt, from.taskUUID, from.stepUUID, tasker.ID{}, late)
	if err != nil {
		return nil, from, err
	}
	return r.Tasks, RetryMark{nextRetryAt: r.NextRetryAt, taskUUID: r.TaskUUID, stepUUID: r.StepUUID}, nil
}

// TasksToStart returns tasks whose start is due.
func (db *DB) TasksToStart(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.dueTasks(ctx, stmt("tasksToStart"), limit)
}

// dueTasks runs a query for due tasks.
func (db *DB) dueTasks(ctx context.Context, sql string, args ...any) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, sql, args...)
	return list, wrap(err, "find due tasks")
}

// Overdue returns for how many seconds work of each kind is overdue.
func (db *DB) Overdue(ctx context.Context) (map[string]float64, error) {
	return selectMap[string, float64](ctx, db.pool, "find overdue work", stmt("overdue"))
}

// DueKind describes when work of a kind is due.
type DueKind struct {
	Kind string
	Due  bool           // whether it is due now
	Next *time.Duration // until the next work; nil if there is none in the period
}

// DueWork is the result of [DB.DueWork].
type DueWork struct {
	ReadOnly  bool  // whether the database rejects writes
	LastEvent int64 // highest position in the outbox, or 0
	ManyDead  bool  // whether many claimed rows are not vacuumed: see RefreshQueueHeads
	Kinds     []DueKind
}

// DueWork returns for each kind of work whether it is due, and when the next work within a period is
// due. Pending reports are due after reportAge.
func (db *DB) DueWork(ctx context.Context, reportAge, within time.Duration) (DueWork, error) {
	type row struct {
		ReadOnly  bool
		LastEvent int64
		ManyDead  bool
		Kind      string
		Due       bool
		Wait      float64
	}
	rows, err := collect[row](ctx, db.pool, stmt("findDueWork"), reportAge, within, db.heads.expiryScanDue())
	if err != nil {
		return DueWork{}, fmt.Errorf("find due work: %w", err)
	}
	var work DueWork
	for _, r := range rows {
		k := DueKind{Kind: r.Kind, Due: r.Due}
		if r.Wait < within.Seconds() {
			wait := seconds(r.Wait)
			k.Next = &wait
		}
		work.ReadOnly, work.LastEvent, work.ManyDead = r.ReadOnly, r.LastEvent, r.ManyDead
		work.Kinds = append(work.Kinds, k)
	}
	db.heads.enable(work.ManyDead)
	return work, nil
}

// ExpiredLease is an attempt whose worker is unresponsive or that has exceeded its timeout.
type ExpiredLease struct {
	TaskUUID   tasker.ID
	StepUUID   tasker.ID
	Fence      int64
	Attempts   int
	WorkerUUID tasker.ID
	TimedOut   bool
	TimeoutMS  int64
}

// maxClaimBatches bounds the batches of claims that StepsWithExpiredLease reads.
const maxClaimBatches = 50

// StepsWithExpiredLease returns the steps with an expired lease of up to limit claims, or of further
// claims if these have none. Concurrent callers read different claims.
func (db *DB) StepsWithExpiredLease(ctx context.Context, limit int) (list []tasker.StepRef, err error) {
	type row struct {
		Claims       int
		Tasks, Steps []tasker.ID
	}
	for range maxClaimBatches {
		r, err := required[row](ctx, db.pool, nil, "find expired leases", stmt("stepsWithExpiredLease"), limit)
		if err != nil {
			return nil, err
		}
		for i := range r.Steps {
			list = append(list, tasker.StepRef{TaskUUID: r.Tasks[i], StepUUID: r.Steps[i]})
		}
		if len(list) > 0 || r.Claims < limit {
			break
		}
	}
	return list, nil
}

// ExpiredLeases returns the attempts of steps whose lease has expired.
func (db *DB) ExpiredLeases(ctx context.Context, steps []tasker.StepRef) ([]ExpiredLease, error) {
	tasks, ids := refArrays(steps)
	rows, err := collect[ExpiredLease](ctx, db.pool, stmt("expiredLeases"), tasks, ids)
	return rows, wrap(err, "find expired leases")
}

// StepsWithPendingReport returns steps whose report has been pending for age, oldest first.
func (db *DB) StepsWithPendingReport(ctx context.Context, age time.Duration, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stmt("stepsWithPendingReport"), limit, age)
}

// dueSteps runs a query for due steps.
func (db *DB) dueSteps(ctx context.Context, sql string, args ...any) ([]tasker.StepRef, error) {
	rows, err := collect[tasker.StepRef](ctx, db.pool, sql, args...)
	return rows, wrap(err, "find due steps")
}

// Writable returns an error if the database rejects writes, as a standby does.
func (db *DB) Writable(ctx context.Context) error {
	return exec(ctx, db.pool, "check that the database is writable", stmt("canWrite"))
}
