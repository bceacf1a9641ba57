package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// EnqueueReady enqueues the steps whose dependencies are done and the items that have a free slot.
// It returns their namespaces. The caller must settle the tasks.
func (tx *Tx) EnqueueReady(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	stored, err := tx.changeWhole(ctx, tasks, func(c *core.Change) { c.Resume() })
	return stored.Namespaces, wrapError(err, "enqueue steps")
}

// ContinueSteps enqueues those of the steps that an operator has reset, or items in their place if a
// limit applies. It returns the namespaces. The caller must settle the tasks.
func (tx *Tx) ContinueSteps(ctx context.Context, steps []tasker.StepRef) ([]string, error) {
	stored, err := tx.changeSteps(ctx, steps, func(c *core.Change) { c.Continue(steps) })
	return stored.Namespaces, wrapError(err, "enqueue steps")
}

// StartTasks enqueues the first steps of tasks that are due. It returns the tasks that have
// started, now or earlier, and the namespaces of the enqueued steps. Call it before settling a due
// task, because [DB.TasksToStart] does not find settled tasks.
func (tx *Tx) StartTasks(ctx context.Context, tasks []tasker.ID) (started []tasker.ID, namespaces []string, err error) {
	type row struct {
		TaskUUID tasker.ID
		Starts   bool
	}
	rows, err := collect[row](ctx, tx, statement("startedTasks"), tasks)
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

// RetryDue enqueues steps whose retry is due and returns their namespaces. It ignores tasks in
// error.
func (tx *Tx) RetryDue(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	due, err := collect[tasker.StepRef](ctx, tx, statement("stepsWithDueRetry"), tasks)
	if err != nil {
		return nil, fmt.Errorf("find due retries: %w", err)
	}
	stored, err := tx.changeSteps(ctx, due, func(c *core.Change) { c.Retry() })
	return stored.Namespaces, wrapError(err, "enqueue steps")
}

// RetryMark records how far [DB.TasksWithDueRetries] has read. The zero value is the beginning.
type RetryMark struct {
	Recent             bool // all older retries were read, so only recent ones are
	nextRetryAt        *time.Time
	taskUUID, stepUUID tasker.ID
}

// HasBegun reports whether some of the older retries were read, but not all.
func (m RetryMark) HasBegun() bool { return m.nextRetryAt != nil }

// TasksWithDueRetries returns tasks with due retries: up to limit recent ones, and those of the
// next limit older steps after the mark. It returns the new mark.
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
	r, err := queryRequired[row](ctx, db.pool, nil, "find due retries",
		statement("tasksWithDueRetries"), limit, from.nextRetryAt, from.taskUUID, from.stepUUID, tasker.ID{}, late)
	if err != nil {
		return nil, from, err
	}
	return r.Tasks, RetryMark{nextRetryAt: r.NextRetryAt, taskUUID: r.TaskUUID, stepUUID: r.StepUUID}, nil
}

// TasksToStart returns tasks whose start is due.
func (db *DB) TasksToStart(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.findDueTasks(ctx, statement("tasksToStart"), limit)
}

// findDueTasks executes a query for due tasks.
func (db *DB) findDueTasks(ctx context.Context, sql string, args ...any) ([]tasker.ID, error) {
	list, err := collectColumn[tasker.ID](ctx, db.pool, sql, args...)
	return list, wrapError(err, "find due tasks")
}

// Overdue returns how many seconds work of each kind is overdue.
func (db *DB) Overdue(ctx context.Context) (map[string]float64, error) {
	return selectMap[string, float64](ctx, db.pool, "find overdue work", statement("overdue"))
}

// DueKind describes when work of one kind is due.
type DueKind struct {
	Kind string
	Due  bool           // work is due now
	Next *time.Duration // time until the next work is due; nil if none is within the period
}

// DueWork is the result of [DB.DueWork].
type DueWork struct {
	ReadOnly  bool  // the database rejects writes
	LastEvent int64 // highest position in the outbox, or 0
	ManyDead  bool  // many claimed rows have not been vacuumed; see RefreshQueueHeads
	Kinds     []DueKind
}

// DueWork returns, for each kind of work, whether it is due and when the next work becomes due. It
// considers only work within the given period. A pending report is due after reportAge.
func (db *DB) DueWork(ctx context.Context, reportAge, within time.Duration) (DueWork, error) {
	type row struct {
		ReadOnly  bool
		LastEvent int64
		ManyDead  bool
		Kind      string
		Due       bool
		Wait      float64
	}
	rows, err := collect[row](ctx, db.pool, statement("findDueWork"), reportAge, within, db.heads.isExpiryScanDue())
	if err != nil {
		return DueWork{}, fmt.Errorf("find due work: %w", err)
	}
	var work DueWork
	for _, r := range rows {
		k := DueKind{Kind: r.Kind, Due: r.Due}
		if r.Wait < within.Seconds() {
			wait := secondsToDuration(r.Wait)
			k.Next = &wait
		}
		work.ReadOnly, work.LastEvent, work.ManyDead = r.ReadOnly, r.LastEvent, r.ManyDead
		work.Kinds = append(work.Kinds, k)
	}
	db.heads.enable(work.ManyDead)
	return work, nil
}

// ExpiredLease is an attempt whose lease has expired or that has exceeded its timeout.
type ExpiredLease struct {
	TaskUUID   tasker.ID
	StepUUID   tasker.ID
	Fence      int64
	Attempts   int
	WorkerUUID tasker.ID
	TimedOut   bool
	TimeoutMS  int64
}

// maxClaimBatches limits how many batches of claims StepsWithExpiredLease reads.
const maxClaimBatches = 50

// StepsWithExpiredLease returns steps with an expired lease. It reads up to limit claims, and more
// if none of these has such a step. Concurrent callers read different claims.
func (db *DB) StepsWithExpiredLease(ctx context.Context, limit int) (list []tasker.StepRef, err error) {
	type row struct {
		Claims       int
		Tasks, Steps []tasker.ID
	}
	for range maxClaimBatches {
		r, err := queryRequired[row](ctx, db.pool, nil, "find expired leases", statement("stepsWithExpiredLease"), limit)
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

// ExpiredLeases returns the attempts of those steps whose lease has expired.
func (db *DB) ExpiredLeases(ctx context.Context, steps []tasker.StepRef) ([]ExpiredLease, error) {
	tasks, ids := toRefArrays(steps)
	rows, err := collect[ExpiredLease](ctx, db.pool, statement("expiredLeases"), tasks, ids)
	return rows, wrapError(err, "find expired leases")
}

// StepsWithPendingReport returns steps whose report has been pending for at least age, oldest
// first.
func (db *DB) StepsWithPendingReport(ctx context.Context, age time.Duration, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("stepsWithPendingReport"), limit, age)
}

// findDueSteps executes a query for due steps.
func (db *DB) findDueSteps(ctx context.Context, sql string, args ...any) ([]tasker.StepRef, error) {
	rows, err := collect[tasker.StepRef](ctx, db.pool, sql, args...)
	return rows, wrapError(err, "find due steps")
}

// CheckWritable returns an error if the database does not accept writes, for example because it is
// a standby.
func (db *DB) CheckWritable(ctx context.Context) error {
	return exec(ctx, db.pool, "check that the database is writable", statement("canWrite"))
}
