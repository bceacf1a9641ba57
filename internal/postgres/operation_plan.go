package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// selectable selects open investigations, in no particular order. It has the columns
// of the queue view.
const selectable = `
    SELECT d.dlq_entry_uuid, d.task_uuid, d.step_uuid, d.dlq_reason, d.dlq_timestamp, d.namespace AS namespace_name, d.task_name, t.state AS current_state,
        d.recovered_at, d.step_name, d.error_pattern, d.case_key, d.metadata ->> 'assignee' AS assignee, d.priority_at,
        m.error_message
    FROM tasker.tasks_dlq d
    JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
    LEFT JOIN tasker.case_members m ON m.dlq_entry_uuid = d.dlq_entry_uuid
    WHERE d.resolution_status = 'pending'`

// ofIDs selects open investigations by their ids or the ids of their tasks.
const ofIDs = `
    SELECT d.dlq_entry_uuid
    FROM unnest($%[1]d::uuid[]) AS u (id)
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = u.id AND d.resolution_status = 'pending'
    UNION
    SELECT d.dlq_entry_uuid
    FROM unnest($%[1]d::uuid[]) AS u (id)
    JOIN tasker.tasks_dlq d ON d.task_uuid = u.id AND d.resolution_status = 'pending'`

// Conditions on the step s of an item: it has failed, or it is external and waits for an answer.
const (
	failedStep  = `s.state = 'error' AND s.next_retry_at IS NULL`
	awaitedStep = `s.state = 'pending' AND s.step_type = 'external' AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END`
)

// selection contains a query that selects investigations, and a condition that selects a step s of
// each.
type selection struct {
	entries, step string
	args          []any
}

func newSelectedEntries(ctx context.Context, s tasker.OperationSelection, step string, attributes []comparison, args ...any) selection {
	from := "(" + selectable + ") q"
	if s.IDs != nil {
		args = append(args, s.IDs)
		from = "(" + fmt.Sprintf(ofIDs, len(args)) + ") c (id) CROSS JOIN LATERAL (" + selectable + " AND d.dlq_entry_uuid = c.id) q"
	}
	where, args := buildInvestigationConditions(ctx, s.Filter, attributes, args)
	if s.WorkerVersion != "" {
		args = append(args, s.WorkerVersion)
		step += fmt.Sprintf(" AND EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = s.worker_uuid AND w.version = $%d)", len(args))
	}
	if s.FailedSince != nil {
		args = append(args, s.FailedSince)
		step += fmt.Sprintf(" AND s.last_failure_at >= $%d", len(args))
	}
	if s.WorkerVersion != "" || s.FailedSince != nil {
		where += " AND EXISTS (SELECT FROM tasker.workflow_steps s WHERE s.task_uuid = q.task_uuid AND " + step + ")"
	}
	return selection{step: step, args: args, entries: fmt.Sprintf(`
    SELECT q.dlq_entry_uuid, q.task_uuid, q.step_uuid, q.namespace_name, q.current_state, q.recovered_at, q.dlq_reason
    FROM %s
    WHERE %s`, from, where)}
}

// freeze creates the items of a plan. An item is the failed step to which an investigation refers
// or, if it refers to none, the step that failed last. It is followed by other failed items of the
// same map step. Steps that belong to another open operation are counted but excluded. The
// statement reads at most twice the maximum number of items.
//
// $1 operation, $2 whether it acts on whole tasks, $3 maximum number of items; then the arguments
// of newSelectedEntries.
const freeze = `
WITH entry AS MATERIALIZED (%[1]s
    ORDER BY (q.recovered_at IS NOT NULL), q.priority_at, q.dlq_entry_uuid
    LIMIT $3::bigint + 1
),
item AS MATERIALIZED (
    SELECT e.dlq_entry_uuid, e.task_uuid, e.namespace_name, CASE WHEN $2 THEN '00000000-0000-0000-0000-000000000000' ELSE g.step_uuid END AS step_uuid,
        CASE WHEN $2 THEN e.current_state ELSE g.state END AS state, CASE WHEN $2 THEN 0 ELSE g.fence END AS fence, o.operation_uuid AS held_by
    FROM entry e
    LEFT JOIN LATERAL (
        SELECT s.step_uuid, s.state, s.fence, s.map_step_uuid
        FROM tasker.workflow_steps s
        WHERE s.task_uuid = e.task_uuid AND %[2]s AND NOT $2
        ORDER BY s.step_uuid = e.step_uuid DESC NULLS LAST, s.state_since DESC, s.step_uuid
        LIMIT 1
    ) f ON true
    LEFT JOIN LATERAL (
        SELECT f.step_uuid, f.state, f.fence
        UNION ALL (
            SELECT s.step_uuid, s.state, s.fence
            FROM tasker.workflow_steps s
            WHERE s.task_uuid = e.task_uuid AND s.map_step_uuid = f.map_step_uuid AND s.step_uuid <> f.step_uuid AND %[2]s
            ORDER BY s.task_uuid, s.map_step_uuid, s.item_ordinal
            LIMIT $3
        )
    ) g ON true
    LEFT JOIN LATERAL (
        SELECT i.operation_uuid
        FROM tasker.operation_items i
        WHERE i.task_uuid = e.task_uuid AND i.state IN ('planned', 'released', 'running')
          AND ($2 OR i.step_uuid = g.step_uuid OR i.step_uuid = '00000000-0000-0000-0000-000000000000')
        ORDER BY i.step_uuid
        LIMIT 1
    ) o ON true
    LIMIT 2 * $3::bigint + (SELECT count(*) FROM entry)
),
added AS (
    INSERT INTO tasker.operation_items (operation_uuid, ordinal, task_uuid, step_uuid, entry_uuid, namespace, expected_state, expected_fence)
    SELECT $1, row_number() OVER (ORDER BY c.task_uuid, c.step_uuid), c.task_uuid, c.step_uuid, c.dlq_entry_uuid, c.namespace_name, c.state, c.fence
    FROM (SELECT * FROM item WHERE step_uuid IS NOT NULL AND held_by IS NULL LIMIT $3) c
    ORDER BY c.task_uuid, c.step_uuid
    RETURNING ordinal, namespace, task_uuid, step_uuid, expected_fence
)
SELECT (SELECT count(*) FROM entry) AS selected,
    (SELECT count(*) FROM item WHERE step_uuid IS NULL) AS without_step,
    (SELECT count(*) FROM added) AS items,
    (SELECT count(*) FROM item WHERE step_uuid IS NOT NULL AND held_by IS NULL) > (SELECT count(*) FROM added) AS more,
    coalesce((SELECT array_agg(DISTINCT namespace ORDER BY namespace) FROM added), '{}') AS namespaces,
    (SELECT encode(sha256(convert_to(coalesce(string_agg(concat_ws(' ', task_uuid, step_uuid, expected_fence), ',' ORDER BY ordinal), ''), 'UTF8')), 'hex') FROM added) AS digest,
    coalesce((SELECT array_agg(held_by ORDER BY held_by) FROM (SELECT held_by FROM item WHERE held_by IS NOT NULL GROUP BY held_by) h), '{}') AS operations,
    coalesce((SELECT array_agg(held ORDER BY held_by) FROM (SELECT held_by, count(*) AS held FROM item WHERE held_by IS NOT NULL GROUP BY held_by) h), '{}') AS held`

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
	attributes, err := buildComparisons(ctx, tx, s.Filter.Namespace, s.Filter.Attributes)
	if err != nil {
		return Frozen{}, err
	}
	step := failedStep
	if act == tasker.ActAnswer {
		step = awaitedStep
	}
	_, onSteps := act.StepAction()
	chosen := newSelectedEntries(ctx, s, step, attributes, operation, !onSteps, limit)
	return queryRequired[Frozen](ctx, tx, nil, "freeze the selection of an operation", fmt.Sprintf(freeze, chosen.entries, chosen.step), chosen.args...)
}

// countSelected groups investigations by the properties that determine which acts apply. $1 is the
// maximum number of investigations. The arguments of newSelectedEntries follow.
const countSelected = `
WITH entry AS MATERIALIZED (%[1]s
    LIMIT $1
)
SELECT e.current_state AS state, e.recovered_at IS NOT NULL AS recovered, e.dlq_reason = 'manual_dlq' AS by_hand,
    f.failed, f.awaited, count(*) AS n
FROM entry e
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(%[2]s), false) AS failed, coalesce(bool_or(%[3]s), false) AS awaited
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = e.task_uuid AND s.state IN ('error', 'pending')
) f
GROUP BY 1, 2, 3, 4, 5`

// SelectedGroup is a group of selected investigations to which the same acts apply.
type SelectedGroup struct {
	State             tasker.TaskState
	Recovered, ByHand bool
	Failed, Awaited   bool // a step has failed; a step waits for an answer
	N                 int
}

// CountSelected counts selected investigations by group. It counts at most limit.
func (db *DB) CountSelected(ctx context.Context, s tasker.OperationSelection, limit int) ([]SelectedGroup, error) {
	attributes, err := buildComparisons(ctx, db.pool, s.Filter.Namespace, s.Filter.Attributes)
	if err != nil {
		return nil, err
	}
	chosen := newSelectedEntries(ctx, s, failedStep, attributes, limit)
	list, err := collect[SelectedGroup](ctx, db.pool, fmt.Sprintf(countSelected, chosen.entries, chosen.step, awaitedStep), chosen.args...)
	return list, wrapError(err, "count a selection")
}

// CountArrivals counts selected investigations that were opened after a time. It counts at most
// limit.
func (db *DB) CountArrivals(ctx context.Context, s tasker.OperationSelection, after time.Time, limit int) (int, error) {
	attributes, err := buildComparisons(ctx, db.pool, s.Filter.Namespace, s.Filter.Attributes)
	if err != nil {
		return 0, err
	}
	where, args := buildInvestigationConditions(ctx, s.Filter, attributes, []any{after, limit})
	n, err := queryValue[int](ctx, db.pool, `
		SELECT count(*) FROM (SELECT FROM (`+selectable+`) q WHERE q.dlq_timestamp > $1 AND `+where+` LIMIT $2) x`, args...)
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
