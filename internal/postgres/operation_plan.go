package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// selectEntries returns the investigations that an operation on failed or awaited steps selects, most
// urgent first. Conditions are added in Go, see buildQueueQuery.
func selectEntries(ctx context.Context, q querier, s tasker.OperationSelection, awaited bool, limit int) ([]tasker.ID, error) {
	attributes, err := buildComparisons(ctx, q, s.Filter.Namespace, s.Filter.Attributes)
	if err != nil {
		return nil, err
	}
	sql, args := statement("selectedEntries"), []any{limit, awaited, s.WorkerVersion, s.FailedSince}
	if s.IDs != nil {
		sql, args = statement("selectedEntriesOf"), append(args, s.IDs)
	}
	conditions, args := buildInvestigationConditions(ctx, s.Filter, attributes, args)
	list, err := collectColumn[tasker.ID](ctx, q, addConditions(sql, "conditions", conditions), args...)
	return list, wrapError(err, "select investigations")
}

// Frozen summarizes the items that were created for a plan.
type Frozen struct {
	Selected    int // at most the limit plus one
	WithoutStep int
	Items       int
	More        bool // some items were excluded because of the limit
	Namespaces  []string
	Digest      string // hash of the items
	Operations  []tasker.ID
	Held        []int64 // number of selected steps in each of Operations
}

// LockPlans makes concurrent plans wait for each other, so that each sees the items of earlier
// ones.
func (tx *Tx) LockPlans(ctx context.Context) error {
	return exec(ctx, tx, "lock plans", statement("lockPlans"))
}

// Freeze creates up to limit items: tasks, failed steps or steps that wait for an answer. LockPlans
// must have been called before.
func (tx *Tx) Freeze(ctx context.Context, operation tasker.ID, act tasker.Act, s tasker.OperationSelection, limit int) (Frozen, error) {
	awaited := act == tasker.ActAnswer
	entries, err := selectEntries(ctx, tx, s, awaited, limit+1)
	if err != nil {
		return Frozen{}, err
	}
	_, onSteps := act.StepAction()
	return queryRequired[Frozen](ctx, tx, nil, "freeze the selection of an operation", statement("freeze"),
		operation, !onSteps, limit, entries, awaited, s.WorkerVersion, s.FailedSince)
}

// SelectedGroup is a group of selected investigations to which the same acts apply.
type SelectedGroup struct {
	State             tasker.TaskState
	Recovered, ByHand bool
	Failed, Awaited   bool // a step has failed; a step waits for an answer
	N                 int
}

// CountSelected counts selected investigations by group. It counts at most limit.
func (db *DB) CountSelected(ctx context.Context, s tasker.OperationSelection, limit int) ([]SelectedGroup, error) {
	entries, err := selectEntries(ctx, db.pool, s, false, limit)
	if err != nil {
		return nil, err
	}
	list, err := collect[SelectedGroup](ctx, db.pool, statement("countSelected"), entries, s.WorkerVersion, s.FailedSince)
	return list, wrapError(err, "count a selection")
}

// CountArrivals counts selected investigations that were opened after a time. It counts at most
// limit.
func (db *DB) CountArrivals(ctx context.Context, s tasker.OperationSelection, after time.Time, limit int) (int, error) {
	attributes, err := buildComparisons(ctx, db.pool, s.Filter.Namespace, s.Filter.Attributes)
	if err != nil {
		return 0, err
	}
	conditions, args := buildInvestigationConditions(ctx, s.Filter, attributes, []any{after, limit})
	n, err := queryValue[int](ctx, db.pool, addConditions(statement("countArrivals"), "conditions", conditions), args...)
	return n, wrapError(err, "count investigations since the plan")
}

// NewOperation is a planned operation to store.
type NewOperation struct {
	tasker.OperationPlan
	UUID      tasker.ID
	Key       string // key of the request
	Digest    []byte // hash of the request
	Arguments json.RawMessage
	Expires   time.Duration
}

// InsertOperation stores a planned operation without its items.
func (tx *Tx) InsertOperation(ctx context.Context, o NewOperation) error {
	stored := storedSelection{OperationSelection: o.Selection, IDCount: len(o.Selection.IDs)}
	stored.IDs = nil
	selection, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("store an operation: %w", err)
	}
	if len(o.Arguments) == 0 {
		o.Arguments = json.RawMessage("{}")
	}
	_, err = tx.Exec(ctx, statement("insertOperation"), o.UUID, o.Key, o.Digest, string(o.Act), o.Arguments, selection, o.Actor, o.Reason, o.Waves,
		o.RatePerMinute, o.Guards.Tolerate.String(), !o.Guards.IgnoreNewCause, o.Guards.WaveTimeout, o.Expires, o.Guards.WorkerAtLeast)
	return wrapError(err, "store an operation")
}

// storedSelection contains the number of ids instead of the ids of a selection. The items contain
// the ids.
type storedSelection struct {
	tasker.OperationSelection
	IDCount int
}

// PlannedItems summarizes the stored items of an operation.
type PlannedItems struct {
	Frozen
	Capped      bool
	Overlapping []tasker.OperationOverlap
	Causes      []string // nil if there are too many
	PlanDigest  string
}

// SetItems stores the summary of a new operation's items.
func (tx *Tx) SetItems(ctx context.Context, operation tasker.ID, p PlannedItems) error {
	overlapping, err := json.Marshal(append([]tasker.OperationOverlap{}, p.Overlapping...))
	if err != nil {
		return fmt.Errorf("summarize the items of an operation: %w", err)
	}
	return exec(ctx, tx, "summarize the items of an operation", statement("setItems"),
		operation, p.Namespaces, p.Items, p.Capped, p.WithoutStep, overlapping, p.Causes, p.PlanDigest)

}

// Planners returns who planned the operations, by operation.
func (tx *Tx) Planners(ctx context.Context, operations []tasker.ID) (map[tasker.ID]string, error) {
	return selectMap[tasker.ID, string](ctx, tx, "read the planners of operations",
		statement("planners"), operations)
}

// CountOpenOperations counts open operations by namespace, at most limit. Operations with several
// namespaces are counted under "".
func (tx *Tx) CountOpenOperations(ctx context.Context, limit int) (map[string]int, error) {
	return selectMap[string, int](ctx, tx, "count open operations", statement("countOpenOperations"), limit)
}

// OperationByKey returns the operation with a request key and the digest of its request. The id is
// nil if there is none.
func (tx *Tx) OperationByKey(ctx context.Context, key string) (id *tasker.ID, digest []byte, err error) {
	type row struct {
		OperationUUID tasker.ID
		Digest        []byte
	}
	found, err := queryOne[row](ctx, tx, statement("operationByKey"), key)
	if err != nil || found == nil {
		return nil, nil, wrapError(err, "find the key of a request")
	}
	return &found.OperationUUID, found.Digest, nil
}
