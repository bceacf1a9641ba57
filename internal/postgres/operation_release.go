package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
)

// RunningOperation is an operation and the state of its current wave.
type RunningOperation struct {
	tasker.Operation
	RunState
}

// RunState is the state of an operation's current wave. A round is one execution of a wave.
type RunState struct {
	Round     int
	WaveSince *time.Time
	Causes    []string   // nil if there are too many
	Due       bool       // the rate allows releasing items now
	Next      *time.Time // when the rate allows the next release
	Now       time.Time
}

type runningRow struct {
	operationRow
	RunState
}

func (r runningRow) toRunningOperation() RunningOperation {
	return RunningOperation{r.toOperation(), r.RunState}
}

// LockDueOperation locks a running operation that may release items now. It skips locked ones and
// returns nil if there is none.
func (tx *Tx) LockDueOperation(ctx context.Context) (*RunningOperation, error) {
	return tx.lockOperation(ctx, statement("lockDueOperation"))
}

// LockOperation locks an operation and returns it, or NotFound.
func (tx *Tx) LockOperation(ctx context.Context, id tasker.ID) (*RunningOperation, error) {
	o, err := tx.lockOperation(ctx, statement("lockOperation"), id)
	if err == nil && o == nil {
		return nil, newOperationNotFoundError(id)
	}
	return o, err
}

func (tx *Tx) lockOperation(ctx context.Context, sql string, args ...any) (*RunningOperation, error) {
	found, err := queryOne[runningRow](ctx, tx, sql, args...)
	if err != nil || found == nil {
		return nil, wrapError(err, "lock an operation")
	}
	o := found.toRunningOperation()
	return &o, nil
}

// NextRelease returns the time until the next release, and whether any operation is open. The time
// is nil if no operation is running.
func (db *DB) NextRelease(ctx context.Context) (wait *time.Duration, open bool, err error) {
	type row struct {
		Wait *float64
		Open bool
	}
	found, err := queryRequired[row](ctx, db.pool, nil, "find operations", statement("nextRelease"))
	if found.Wait != nil {
		d := max(0, secondsToDuration(*found.Wait))
		wait = &d
	}
	return wait, found.Open, err
}

// Progress describes the progress of an operation.
type Progress struct {
	Planned  bool  // there are items to release
	InFlight int64 // released items that have not ended, counted up to [tasker.MaxOperationInFlight]
	Round    map[tasker.ItemState]int64
}

// Progress returns the progress of a locked operation. If counted is set, it includes the number of
// items in the round by state.
func (tx *Tx) Progress(ctx context.Context, operation tasker.ID, round int, counted bool) (Progress, error) {
	type row struct {
		Planned  bool
		InFlight int64
		States   []string
		Counts   []int64
	}
	found, err := queryRequired[row](ctx, tx, nil, "count the items of an operation", statement("progress"), operation, round, tasker.MaxOperationInFlight, counted)
	p := Progress{Planned: found.Planned, InFlight: found.InFlight, Round: map[tasker.ItemState]int64{}}
	for i, s := range found.States {
		p.Round[tasker.ItemState(s)] = found.Counts[i]
	}
	return p, err
}

// RoundFailures summarizes the failures in a round. If there are none, all fields are zero.
type RoundFailures struct {
	Causes   []FailureCount // most frequent first
	Released int            // number of items in the round that were not skipped
	Planned  int            // number of items to release, counted up to the size of the wave
}

// FailureCount contains the number of items in a round that have failed with one cause and not
// succeeded since.
type FailureCount struct {
	Cause       string
	Items       int
	FailedAgain int    // number of items that have failed permanently
	Text        string // error of one of the items
	TaskUUID    tasker.ID
}

// CountFailures counts the failures in the current round by cause.
func (tx *Tx) CountFailures(ctx context.Context, o *RunningOperation) (f RoundFailures, err error) {
	type row struct {
		FailureCount
		Released, Planned int
	}
	size := 1
	if o.Wave < len(o.Waves) {
		size = o.Waves[o.Wave]
	}
	rows, err := collect[row](ctx, tx, statement("countFailures"), o.UUID, o.Round, tasker.MaxOperationCauses, size)
	if err != nil {
		return f, fmt.Errorf("count the failures of an operation: %w", err)
	}
	for _, r := range rows {
		f.Causes, f.Released, f.Planned = append(f.Causes, r.FailureCount), r.Released, r.Planned
	}
	return f, nil
}

// PlannedItem is an item to release.
type PlannedItem struct {
	Ordinal int
	tasker.StepRef
	EntryUUID     tasker.ID
	ExpectedState string
	ExpectedFence int64
	Tries         int
}

// PlannedItems returns up to limit items that are to be released, in order, after an ordinal.
func (tx *Tx) PlannedItems(ctx context.Context, operation tasker.ID, after, limit int) ([]PlannedItem, error) {
	list, err := collect[PlannedItem](ctx, tx, statement("plannedItems"), operation, after, limit)
	return list, wrapError(err, "read the items of an operation")
}

// MovedItem describes a change to an item.
type MovedItem struct {
	Ordinal  int
	State    tasker.ItemState
	Outcome  string
	Fence    int64      // fence of the step when the item was released
	Failed   *time.Time // time of the failure, or nil
	Cause    string     // cause of the failure
	Text     string     // text of the failure
	Made     tasker.ID  // task that was created for the item, or zero
	Released bool       // the change releases the item
}

var movedColumns = columns[MovedItem]{
	newColumn("ordinal int", func(m *MovedItem) int32 { return int32(m.Ordinal) }),
	newColumn("state text", func(m *MovedItem) string { return string(m.State) }),
	newColumn("outcome text", func(m *MovedItem) string { return m.Outcome }),
	newColumn("fence bigint", func(m *MovedItem) int64 { return m.Fence }),
	newColumn("failed timestamptz", func(m *MovedItem) *time.Time { return m.Failed }),
	newColumn("cause text", func(m *MovedItem) string { return m.Cause }),
	newColumn("text text", func(m *MovedItem) string { return m.Text }),
	newColumn("made uuid", func(m *MovedItem) pgtype.UUID { return toNullUUID(m.Made) }),
	newColumn("released bool", func(m *MovedItem) bool { return m.Released }),
}

// MoveItems applies changes to locked items. It applies all of them or returns an error.
func (tx *Tx) MoveItems(ctx context.Context, o *RunningOperation, list []MovedItem) error {
	if len(list) == 0 {
		return nil
	}
	tag, err := tx.Exec(ctx, statement("moveItems"),
		append([]any{o.UUID, o.Wave, o.Round}, movedColumns.toArrays(list)...)...)
	if err != nil {
		return fmt.Errorf("move the items of an operation: %w", err)
	}
	if n := int(tag.RowsAffected()); n != len(list) {
		return fmt.Errorf("moved %d of %d locked items of operation %s", n, len(list), o.UUID)
	}
	return nil
}

// SetNextRelease sets the time from which further items may be released.
func (tx *Tx) SetNextRelease(ctx context.Context, operation tasker.ID, at time.Time) error {
	return exec(ctx, tx, "set the next release of an operation",
		statement("setNextRelease"), operation, at)
}

// StartWave starts a round of a wave.
func (tx *Tx) StartWave(ctx context.Context, operation tasker.ID, wave int) error {
	return exec(ctx, tx, "start a wave of an operation",
		statement("startWave"), operation, wave)
}

// ExpiredPlans returns operations whose plans expired before they were started.
func (db *DB) ExpiredPlans(ctx context.Context, limit int) ([]tasker.ID, error) {
	list, err := collectColumn[tasker.ID](ctx, db.pool, statement("expiredPlans"), limit)
	return list, wrapError(err, "find expired plans")
}

// FinishOperations ends operations all of whose items have ended, and returns them.
func (db *DB) FinishOperations(ctx context.Context) (list []tasker.ID, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		if list, err = collectColumn[tasker.ID](ctx, tx, statement("finishOperations")); err != nil {
			return err
		}
		for _, id := range list {
			if err := tx.notifyOperation(ctx, id, tasker.OperationDoneTopic, "tasker"); err != nil {
				return err
			}
		}
		return nil
	})
	return list, wrapError(err, "end operations")
}

// PruneOperations removes up to limit operations that ended longer than age ago. It returns the
// number of removed ones.
func (db *DB) PruneOperations(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		tag, err := tx.Exec(ctx, statement("pruneOperations"), age, limit)
		n = int(tag.RowsAffected())
		return err
	})
	return n, wrapError(err, "remove old operations")
}

// SetLockTimeout limits how long the transaction waits for a lock to two seconds.
func (tx *Tx) SetLockTimeout(ctx context.Context) error {
	return exec(ctx, tx, "set the lock timeout", `SET LOCAL lock_timeout = '2s'`)
}

// EnqueuedSteps counts the steps of tasks that this transaction has enqueued, by template step.
func (tx *Tx) EnqueuedSteps(ctx context.Context, tasks []tasker.ID) (map[string]int, error) {
	return selectMap[string, int](ctx, tx, "count enqueued steps", statement("stepsEnqueuedByTx"), tasks)
}
