package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// ParkQueue parks up to limit enqueued steps that a hold on a handler or namespace covers. It
// returns how many it parked.
func (db *DB) ParkQueue(ctx context.Context, h tasker.Hold, limit int) (n int, err error) {
	if h.Handler == "" {
		err = db.pool.QueryRow(ctx, statement("holdNamespace"), h.UUID, h.Namespace, limit).Scan(&n)
	} else {
		err = db.pool.QueryRow(ctx, statement("holdHandler"), h.UUID, h.Namespace, limit, h.Handler).Scan(&n)
	}
	return n, wrapError(err, "park held steps")
}

// ParkPages parks held steps in the pages [from, to) of ready_steps. It returns the number of pages
// of the table.
func (db *DB) ParkPages(ctx context.Context, from, to int64) (pages int64, err error) {
	if _, err := db.pool.Exec(ctx, statement("holdPages"), from, to); err != nil {
		return 0, fmt.Errorf("park held steps: %w", err)
	}
	err = db.pool.QueryRow(ctx, statement("readyStepsPages")).Scan(&pages)
	return pages, wrapError(err, "read the size of the queue")
}

const handOverLimit = 1000

// A ReleaseBatch describes which steps of a hold to release.
type ReleaseBatch struct {
	Hold  tasker.ID
	Limit int
	Wave  *int       // wave for which releases and their outcomes are recorded; 0 is a probe, nil records none
	Fresh bool       // only steps that the hold has not released before
	Only  *tasker.ID // only steps of this task
}

// Released is the result of a [ReleaseBatch].
type Released struct {
	Scanned    int // number of held steps that were read, including outdated ones
	Released   int
	Tasks      []tasker.ID
	HandedOver int `db:"-"` // number of steps handed over to other holds
}

func findHeldTasks(ctx context.Context, q querier, l ReleaseBatch) ([]tasker.ID, error) {
	tasks, err := collectColumn[tasker.ID](ctx, q, statement("heldTasks"), l.Hold, l.Limit, l.Fresh, l.Wave != nil)
	return tasks, wrapError(err, "find held steps")
}

// HeldTasks returns the tasks of the steps that ReleaseHeldSteps would release next.
func (db *DB) HeldTasks(ctx context.Context, l ReleaseBatch) ([]tasker.ID, error) {
	return findHeldTasks(ctx, db.pool, l)
}

// ReleaseHeldSteps releases held steps of unlocked tasks, most urgent first. For a probe or a wave,
// it first hands over the steps that another hold covers to that hold. The caller must have locked
// the hold.
func (tx *Tx) ReleaseHeldSteps(ctx context.Context, l ReleaseBatch) (r Released, err error) {
	if l.Wave != nil {
		if r.HandedOver, err = queryValue[int](ctx, tx, statement("handOver"), l.Hold, handOverLimit); err != nil {
			return r, fmt.Errorf("move held steps to other holds: %w", err)
		}
	}
	tasks, err := findHeldTasks(ctx, tx, l)
	if err != nil || len(tasks) == 0 {
		return r, err
	}
	if l.Only != nil {
		tasks = []tasker.ID{*l.Only}
	}
	free, err := tx.LockFreeTasks(ctx, tasks)
	if err != nil || len(free) == 0 {
		return r, err
	}
	released, err := queryOne[Released](ctx, tx, statement("releaseHeldSteps"), l.Hold, free, l.Limit, l.Wave, tx.queue.ttlMS, tx.queue.announce, l.Fresh)
	if err != nil {
		return r, fmt.Errorf("release held steps: %w", err)
	}
	released.HandedOver = r.HandedOver
	if len(released.Tasks) > 0 {
		_, err = tx.SettleTasks(ctx, released.Tasks, Operator{})
	}
	return *released, err
}

// FindOrphanedHold returns the id of an ended or deleted hold that still has parked steps, or nil
// if there is none. It scans all parked steps, so call it rarely.
func (db *DB) FindOrphanedHold(ctx context.Context) (*tasker.ID, error) {
	v, err := queryValue[*tasker.ID](ctx, db.pool, statement("orphanedHold"))
	return v, wrapError(err, "find held steps whose hold has ended")
}

// deleteHeldSteps deletes the parked rows of steps that are about to change state. The caller must
// hold the task locks.
func (tx *Tx) deleteHeldSteps(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := toRefArrays(steps)
	_, err := tx.Exec(ctx, statement("dropHeld"), tasks, ids)
	return wrapError(err, "delete held steps")
}

// PruneReleaseFailures deletes up to limit records of failed releases whose tasks are no longer
// held.
func (db *DB) PruneReleaseFailures(ctx context.Context, limit int) error {
	_, err := db.pool.Exec(ctx, statement("pruneReleaseFailures"), limit)
	return wrapError(err, "prune failed releases of held steps")
}

// A ReleasedStep is a step that a hold has released, with its current state.
type ReleasedStep struct {
	tasker.HoldRelease
	Step          string
	StepFence     int64
	ReportedFence *int64
	LastFailureAt *time.Time
	Elsewhere     bool          // parked for another hold by now
	Leased        bool          // in progress, and the lease has not expired
	Waits         bool          // unclaimed: workers are busy with other steps, or a limit is full
	Age           time.Duration // time since the release
	ItemFailure
	Shown string // the error message, redacted
}

// ReleasedSteps returns the released steps of a hold that have no outcome yet. A worker that
// claimed a step within the duration recent counts as busy.
func (tx *Tx) ReleasedSteps(ctx context.Context, hold tasker.ID, recent time.Duration) ([]ReleasedStep, error) {
	list, err := collect[ReleasedStep](ctx, tx, statement("releasedSteps"), hold, recent)
	return list, wrapError(err, "read the released steps of hold %s", hold)
}

// RecordReleaseOutcomes stores the outcomes of released steps. A step without an answer is held
// again unless a worker has claimed it.
func (tx *Tx) RecordReleaseOutcomes(ctx context.Context, hold tasker.ID, list []tasker.HoldRelease) error {
	var tasks, steps, lostTasks, lostSteps []tasker.ID
	var outcomes []string
	var failures []*string
	for _, r := range list {
		tasks, steps = append(tasks, r.TaskUUID), append(steps, r.StepUUID)
		outcomes, failures = append(outcomes, string(r.Outcome)), append(failures, r.Failure)
		if r.Outcome == tasker.ReleaseNoAnswer {
			lostTasks, lostSteps = append(lostTasks, r.TaskUUID), append(lostSteps, r.StepUUID)
		}
	}
	if _, err := tx.Exec(ctx, statement("judgeReleases"), hold, tasks, steps, outcomes, failures); err != nil {
		return fmt.Errorf("record the outcomes of released steps: %w", err)
	}
	if len(lostSteps) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, statement("reparkSteps"), lostTasks, lostSteps)
	return wrapError(err, "park steps again")
}

// WaveOutcomes counts the steps of a wave by outcome.
func (tx *Tx) WaveOutcomes(ctx context.Context, hold tasker.ID, wave int, since time.Time) (map[tasker.ReleaseOutcome]int, error) {
	type row struct {
		Outcome tasker.ReleaseOutcome
		Steps   int
	}
	rows, err := collect[row](ctx, tx, statement("waveOutcomes"), hold, wave, since)
	if err != nil {
		return nil, fmt.Errorf("count the outcomes of a wave: %w", err)
	}
	out := map[tasker.ReleaseOutcome]int{}
	for _, r := range rows {
		out[r.Outcome] = r.Steps
	}
	return out, nil
}

// ParkHeldSteps parks those of the steps that are enqueued and covered by a hold, and returns them.
func (db *DB) ParkHeldSteps(ctx context.Context, steps []tasker.StepRef) ([]tasker.StepRef, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	tasks, ids := toRefArrays(steps)
	held, err := collect[tasker.StepRef](ctx, db.pool, statement("parkHeldSteps"), tasks, ids)
	return held, wrapError(err, "park held steps")
}

// IsProbing reports whether the hold has a probe without an outcome.
func (tx *Tx) IsProbing(ctx context.Context, hold tasker.ID) (bool, error) {
	v, err := queryValue[bool](ctx, tx, statement("probing"), hold)
	return v, wrapError(err, "find a probe of hold %s", hold)
}
