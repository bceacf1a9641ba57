package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
)

// InFlightItem is an item in flight and the state from which its outcome is derived.
type InFlightItem struct {
	Ordinal       int
	TaskUUID      tasker.ID
	StepUUID      tasker.ID
	EntryUUID     tasker.ID
	State         tasker.ItemState
	ReleasedFence int64
	ReleasedAt    time.Time
	FailedAt      *time.Time // time of the last failure that was recorded

	// Current state of the task and the step.
	TaskOutcome   tasker.TaskOutcome
	Task          tasker.TaskState // empty if the task does not exist
	Step          tasker.StepState // empty if the act is on whole tasks or the step does not exist
	StepName      string
	OfMap         bool // it is a map item and may share its investigation with other items
	External      bool
	Fence         int64
	ReportedFence *int64
	Attempts      int
	LastFailureAt *time.Time
	WillRetry     bool // the step will be retried automatically
	AwaitsWorker  bool // the step expired in its queue and continues when a worker is online
	WrittenOff    bool // the task was marked as permanently failed after the release
	ItemFailure
	ErrorShown    string // error message, redacted
	CompletedAt   *time.Time
	WorkerUUID    *tasker.ID
	WorkerName    string
	WorkerVersion string
	EntryStatus   string

	Made     bool       // the item waits for Task, its replacement or its own task that is being compensated
	StuckFor string     // reason of the open investigation of Task, or empty if there is none
	StuckAt  *time.Time // when that investigation was opened
}

// ItemsToVerify returns items in flight that may have changed. It also returns the ordinal after
// which the next call continues, or 0 at the end.
func (db *DB) ItemsToVerify(ctx context.Context, operation tasker.ID, state tasker.ItemState, after, limit int) (list []InFlightItem, last int, err error) {
	if list, err = collect[InFlightItem](ctx, db.pool, statement("itemsToVerify"), operation, string(state), after, limit); err != nil {
		return nil, 0, fmt.Errorf("read the items of an operation: %w", err)
	}
	end, err := queryFirst[int](ctx, db.pool, statement("lastVerifiedItem"), operation, string(state), after, limit)
	if end != nil {
		last = *end
	}
	return list, last, wrapError(err, "read the items of an operation")
}

// LockItems locks items in flight and the tasks for which they wait. It skips locked rows and
// returns those items whose tasks it has locked.
func (tx *Tx) LockItems(ctx context.Context, operation tasker.ID, ordinals []int) ([]InFlightItem, error) {
	type row struct {
		Ordinal  int
		TaskUUID tasker.ID
	}
	items, err := collect[row](ctx, tx, statement("lockItems"), operation, ordinals)
	if err != nil {
		return nil, fmt.Errorf("lock the items of an operation: %w", err)
	}
	tasks, err := tx.LockFreeTasks(ctx, mapSlice(items, func(r row) tasker.ID { return r.TaskUUID }))
	if err != nil {
		return nil, err
	}
	locked := make(map[tasker.ID]bool, len(tasks))
	for _, id := range tasks {
		locked[id] = true
	}
	items = slices.DeleteFunc(items, func(r row) bool { return !locked[r.TaskUUID] })
	list, err := collect[InFlightItem](ctx, tx, statement("lockedItemsToVerify"), operation, mapSlice(items, func(r row) int { return r.Ordinal }))
	return list, wrapError(err, "read the items of an operation")
}

// OperationsInFlight returns operations that were started and are not settled, oldest first.
func (db *DB) OperationsInFlight(ctx context.Context, limit int) ([]RunningOperation, error) {
	rows, err := collect[runningRow](ctx, db.pool, statement("operationsInFlight"), limit)
	return mapSlice(rows, runningRow.toRunningOperation), wrapError(err, "find operations")
}

// failureBatch limits how many failures are kept in memory, since their messages may be long.
const failureBatch = 1000

// ItemFailure describes the last failure of a step.
type ItemFailure struct {
	ErrorType        string
	ErrorMessage     string
	ErrorFingerprint string // supplied by the handler; may be empty
}

// FailuresOfItems calls each for every failure of the items of an operation.
func (tx *Tx) FailuresOfItems(ctx context.Context, operation tasker.ID, items int, each func(ItemFailure)) error {
	for after := 0; after < items; after += failureBatch {
		rows, err := collect[ItemFailure](ctx, tx, statement("failuresOfItems"), operation, after, after+failureBatch)
		if err != nil {
			return fmt.Errorf("read the failures of the items: %w", err)
		}
		for _, r := range rows {
			each(r)
		}
	}
	return nil
}

// LiveVersions returns the versions of live workers in the namespaces.
func (tx *Tx) LiveVersions(ctx context.Context, namespaces []string) ([]string, error) {
	list, err := collectColumn[string](ctx, tx, statement("liveVersions"), namespaces)
	return list, wrapError(err, "read the versions of live workers")
}

// FindUnverified returns those of the investigations that have unverified items. The caller must
// hold the task locks.
func (tx *Tx) FindUnverified(ctx context.Context, operation tasker.ID, entries []tasker.ID) ([]tasker.ID, error) {
	list, err := collectColumn[tasker.ID](ctx, tx, statement("unverified"), operation, entries)
	return list, wrapError(err, "read unverified items")
}

// TemplateStep identifies a step of a template.
type TemplateStep struct {
	TemplateUUID tasker.ID
	Name         string
}

// TemplateSteps returns the template steps to which the items of an operation belong, at most
// limit.
func (tx *Tx) TemplateSteps(ctx context.Context, operation tasker.ID, limit int) ([]TemplateStep, error) {
	list, err := collect[TemplateStep](ctx, tx, statement("templateSteps"), operation, limit)
	return list, wrapError(err, "read the template steps of an operation")
}
