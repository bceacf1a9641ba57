package postgres

import (
	"context"
	"encoding/json"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// ScopedRequestKey returns the stored form of an idempotency key of the caller.
func ScopedRequestKey(ctx context.Context, key string) string { return scopedKey(ctx, key) }

type operationRow struct {
	UUID            tasker.ID
	Act             string
	Arguments       json.RawMessage
	Selection       storedSelection
	PlannedBy       string
	Reason          string
	Namespaces      []string
	State           string
	Items           int
	Capped          bool
	WithoutStep     int
	Overlapping     []tasker.OperationOverlap
	PlanDigest      string
	Waves           []int
	Wave            int
	RatePerMinute   int
	Tolerate        string
	ToleratedCauses []string
	StopOnNewCause  bool
	WaveTimeout     float64 // seconds
	WorkerAtLeast   string
	PausedFor       string
	PausedBy        string
	PausedAt        *time.Time
	PausedDetails   *pauseDetails
	CreatedAt       time.Time
	ExpiresAt       time.Time
	StartedBy       string
	StartedAt       *time.Time
	EndedAt         *time.Time
	SettledAt       *time.Time
	ItemStates      []string
	ItemCounts      []int64
}

// pauseDetails describes why a guard paused an operation.
type pauseDetails struct {
	Failures int        `json:"failures,omitempty"`
	Text     string     `json:"text,omitempty"`
	TaskUUID *tasker.ID `json:"task_uuid,omitempty"`
	Causes   []string   `json:"causes,omitempty"`
}

func (r operationRow) toOperation() tasker.Operation {
	tolerate, _ := tasker.ParseTolerance(r.Tolerate) // valid when it was stored; the zero value tolerates nothing
	o := tasker.Operation{
		UUID: r.UUID, Act: tasker.Act(r.Act), Arguments: r.Arguments, Selection: r.Selection.OperationSelection, Selected: r.Selection.IDCount, PlannedBy: r.PlannedBy,
		Reason: r.Reason, Namespaces: r.Namespaces, State: tasker.OperationState(r.State), Items: r.Items, Capped: r.Capped, WithoutStep: r.WithoutStep,
		Overlapping: r.Overlapping, PlanDigest: r.PlanDigest, Waves: r.Waves, Wave: r.Wave, RatePerMinute: r.RatePerMinute,
		Guards: tasker.Guards{
			Tolerate: &tolerate, IgnoreNewCause: !r.StopOnNewCause, WaveTimeout: time.Duration(r.WaveTimeout * float64(time.Second)), WorkerAtLeast: r.WorkerAtLeast,
		},
		Tolerated: r.ToleratedCauses, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, StartedBy: r.StartedBy, StartedAt: r.StartedAt, EndedAt: r.EndedAt, SettledAt: r.SettledAt,
		Counts: make(map[tasker.ItemState]int64, len(tasker.ItemStates())),
	}
	for _, s := range tasker.ItemStates() {
		o.Counts[s] = 0
	}
	for i, s := range r.ItemStates {
		o.Counts[tasker.ItemState(s)] = r.ItemCounts[i]
	}
	if r.PausedFor != "" && r.PausedAt != nil {
		o.Pause = &tasker.OperationPause{For: tasker.PauseReason(r.PausedFor), By: r.PausedBy, At: *r.PausedAt}
		if d := r.PausedDetails; d != nil {
			o.Pause.Failures, o.Pause.FailureText, o.Pause.TaskUUID, o.Pause.Causes = d.Failures, d.Text, d.TaskUUID, d.Causes
		}
	}
	return o
}

// Operation returns an operation with the number of items per state. It returns NotFound unless the
// caller may see all namespaces of the operation.
func (db *DB) Operation(ctx context.Context, id tasker.ID) (tasker.Operation, error) {
	return findOperation(ctx, db.pool, id)
}

// Operation is [DB.Operation] within the transaction.
func (tx *Tx) Operation(ctx context.Context, id tasker.ID) (tasker.Operation, error) {
	return findOperation(ctx, tx, id)
}

func findOperation(ctx context.Context, q querier, id tasker.ID) (tasker.Operation, error) {
	row, err := queryRequired[operationRow](ctx, q, newOperationNotFoundError(id), "read an operation", statement("selectOperation"), id, access.ScopeFromContext(ctx).List())
	if err != nil {
		return tasker.Operation{}, err
	}
	return row.toRedactedOperation(ctx), nil
}

func (r operationRow) toRedactedOperation(ctx context.Context) tasker.Operation {
	o := r.toOperation()
	redactOperation(ctx, &o)
	return o
}

func newOperationNotFoundError(id tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "operation %s not found", id)
}

// Operations lists the operations that the caller may see, newest first, and reports whether there
// are more.
func (db *DB) Operations(ctx context.Context, f tasker.OperationFilter) (list []tasker.Operation, more bool, err error) {
	rows, more, err := queryPage[operationRow](ctx, db.pool, f.Limit, "list operations",
		statement("selectOperations"), f.Limit+1, f.Offset, string(f.State), access.ScopeFromContext(ctx).List(), f.Namespace)
	return mapSlice(rows, func(r operationRow) tasker.Operation { return r.toRedactedOperation(ctx) }), more, err
}

// OperationItems lists the items of an operation and reports whether there are more.
func (db *DB) OperationItems(ctx context.Context, operation tasker.ID, f tasker.OperationItemFilter) (list []tasker.OperationItem, more bool, err error) {
	const action = "list the items of an operation"
	if f.State == "" {
		list, more, err = queryPage[tasker.OperationItem](ctx, db.pool, f.Limit, action, statement("selectItems"), operation, f.After, f.Limit+1)
	} else {
		list, more, err = queryPage[tasker.OperationItem](ctx, db.pool, f.Limit, action, statement("selectItemsInState"), operation, f.After, f.Limit+1, string(f.State))
	}
	for i := range list {
		access.RedactPattern(ctx, list[i].Namespace, &list[i].FailureText)
	}
	return list, more, err
}

// OpenItems counts the items of operations that are not settled, by state.
func (db *DB) OpenItems(ctx context.Context) (map[tasker.ItemState]int64, error) {
	return selectMap[tasker.ItemState, int64](ctx, db.pool, "count the items of operations",
		statement("countItemsByState"))
}
