package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
)

// InFlightItem is an item in flight with the state from which its outcome is determined.
type InFlightItem struct {
	Ordinal       int
	TaskUUID      tasker.ID
	StepUUID      tasker.ID
	EntryUUID     tasker.ID
	State         tasker.ItemState
	ReleasedFence int64
	ReleasedAt    time.Time
	FailedAt      *time.Time // time of the last recorded failure

	// The current state of the task and the step.
	TaskOutcome   tasker.TaskOutcome
	Task          tasker.TaskState // empty if the task does not exist
	Step          tasker.StepState // empty for an action on whole tasks, or if the step does not exist
	StepName      string
	OfMap         bool // it is a map item and may share its investigation with other items
	External      bool
	Fence         int64
	ReportedFence *int64
	Attempts      int
	LastFailureAt *time.Time
	WillRetry     bool // it is retried automatically
	AwaitsWorker  bool // it expired in the queue and continues when a worker is online
	WrittenOff    bool // its task was marked as permanently failed after the release
	ItemFailure
	ErrorShown    string // redacted error message
	CompletedAt   *time.Time
	WorkerUUID    *tasker.ID
	WorkerName    string
	WorkerVersion string
	EntryStatus   string

	Made     bool       // the item waits for Task, which was created for it or is its own in compensation
	StuckFor string     // reason of the open investigation of Task; empty if Task makes progress
	StuckAt  *time.Time // when that investigation was opened
}

// Items that cannot have changed, such as steps that wait for a worker, are excluded.
const inFlightItems = `
SELECT i.ordinal, i.task_uuid, i.step_uuid, i.entry_uuid, i.state, coalesce(i.released_fence, 0) AS released_fence, i.released_at, i.failed_at,
    coalesce(t.state, '') AS task, coalesce(t.outcome, '') AS task_outcome, coalesce(s.state, '') AS step, coalesce(s.name, '') AS step_name, s.map_step_uuid IS NOT NULL AS of_map, coalesce(s.step_type <> 'standard', false) AS external,
    coalesce(s.fence, 0) AS fence, s.reported_fence, coalesce(s.attempts, 0) AS attempts, s.last_failure_at, s.next_retry_at IS NOT NULL AS will_retry,
    s.awaits_worker_since IS NOT NULL AS awaits_worker, coalesce((i.made_task IS NOT NULL OR s.state = 'pending') AND ` + writtenOff + `, false) AS written_off, ` + itemFailure + `,
    CASE WHEN s.last_failure_at > i.released_at THEN coalesce(tasker.redact_error(s.error) ->> 'message', '') ELSE '' END AS error_shown,
    s.completed_at, s.worker_uuid, coalesce(w.name, '') AS worker_name, coalesce(w.version, '') AS worker_version, d.resolution_status::text AS entry_status,
    i.made_task IS NOT NULL AS made, coalesce(n.dlq_reason::text, '') AS stuck_for, n.dlq_timestamp AS stuck_at
FROM (`

// writtenOff reports whether the task of item i, or the task created for it, is stalled and was
// marked as permanently failed after the release. With EXISTS, the planner might read all such
// investigations.
const writtenOff = `t.state = 'error' AND (
    SELECT w.dlq_entry_uuid FROM tasker.tasks_dlq w
    WHERE w.task_uuid = t.task_uuid AND w.resolution_status = 'permanently_failed' AND w.resolved_at >= i.released_at
    LIMIT 1
) IS NOT NULL`

const ofInFlightItems = `) i
LEFT JOIN tasker.tasks t ON t.task_uuid = coalesce(i.made_task, i.task_uuid)
LEFT JOIN tasker.tasks_dlq n ON n.task_uuid = i.made_task AND n.resolution_status = 'pending' AND n.dlq_reason <> 'manual_dlq' AND n.recovered_at IS NULL
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = coalesce(i.made_task, i.task_uuid) AND s.step_uuid = CASE WHEN i.made_task IS NULL THEN i.step_uuid ELSE n.step_uuid END
LEFT JOIN tasker.workers w ON w.worker_uuid = s.worker_uuid AND s.state = 'complete'
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = i.entry_uuid
WHERE CASE
    WHEN i.made_task IS NOT NULL THEN t.state IS NULL OR t.state IN ('complete', 'cancelled') OR n.dlq_entry_uuid IS NOT NULL OR ` + writtenOff + `
    ELSE s.state IS NULL OR s.state NOT IN ('pending', 'enqueued') AND (s.state, i.state) <> ('in_progress', 'running')
       OR s.last_failure_at > coalesce(i.failed_at, i.released_at)
       OR s.state = 'pending' AND ` + writtenOff + `
END
ORDER BY i.ordinal`

const (
	itemsToVerify = inFlightItems + `
    SELECT * FROM tasker.operation_items
    WHERE operation_uuid = $1 AND state BETWEEN $2 AND $2 AND ordinal > $3
    ORDER BY state, ordinal
    LIMIT $4` + ofInFlightItems
	lockedItemsToVerify = inFlightItems + `
    SELECT x.*
    FROM unnest($2::int[]) AS u (ordinal)
    CROSS JOIN LATERAL (SELECT * FROM tasker.operation_items WHERE operation_uuid = $1 AND ordinal = u.ordinal OFFSET 0) x` + ofInFlightItems
)

// ItemsToVerify returns changed items in flight, and the ordinal after which the next call
// continues, or 0 at the end.
func (db *DB) ItemsToVerify(ctx context.Context, operation tasker.ID, state tasker.ItemState, after, limit int) (list []InFlightItem, last int, err error) {
	if list, err = collect[InFlightItem](ctx, db.pool, itemsToVerify, operation, string(state), after, limit); err != nil {
		return nil, 0, fmt.Errorf("read the items of an operation: %w", err)
	}
	end, err := firstOf[int](ctx, db.pool, `
		SELECT max(ordinal) FROM (
			SELECT ordinal FROM tasker.operation_items WHERE operation_uuid = $1 AND state BETWEEN $2 AND $2 AND ordinal > $3 ORDER BY state, ordinal LIMIT $4
		) i HAVING count(*) = $4`, operation, string(state), after, limit)
	if end != nil {
		last = *end
	}
	return list, last, wrap(err, "read the items of an operation")
}

const lockItems = `
SELECT i.ordinal, coalesce(i.made_task, i.task_uuid) AS task_uuid
FROM unnest($2::int[]) AS u (ordinal)
CROSS JOIN LATERAL (
    SELECT x.ordinal, x.task_uuid, x.made_task
    FROM tasker.operation_items x
    WHERE x.operation_uuid = $1 AND x.ordinal = u.ordinal AND x.state IN ('released', 'running')
    FOR NO KEY UPDATE SKIP LOCKED
) i`

// LockItems locks the given items in flight and the tasks that they wait for. It skips rows that
// are locked, and returns the items whose tasks it has locked.
func (tx *Tx) LockItems(ctx context.Context, operation tasker.ID, ordinals []int) ([]InFlightItem, error) {
	type row struct {
		Ordinal  int
		TaskUUID tasker.ID
	}
	items, err := collect[row](ctx, tx, lockItems, operation, ordinals)
	if err != nil {
		return nil, fmt.Errorf("lock the items of an operation: %w", err)
	}
	tasks, err := tx.LockFreeTasks(ctx, mapped(items, func(r row) tasker.ID { return r.TaskUUID }))
	if err != nil {
		return nil, err
	}
	locked := make(map[tasker.ID]bool, len(tasks))
	for _, id := range tasks {
		locked[id] = true
	}
	items = slices.DeleteFunc(items, func(r row) bool { return !locked[r.TaskUUID] })
	list, err := collect[InFlightItem](ctx, tx, lockedItemsToVerify, operation, mapped(items, func(r row) int { return r.Ordinal }))
	return list, wrap(err, "read the items of an operation")
}

// OperationsInFlight returns unsettled operations that were started, oldest first.
func (db *DB) OperationsInFlight(ctx context.Context, limit int) ([]RunningOperation, error) {
	rows, err := collect[runningRow](ctx, db.pool, `
		SELECT `+operationColumns+runningColumns+`
		FROM tasker.operations o
		WHERE o.settled_at IS NULL AND o.state <> 'planned'
		ORDER BY o.created_at LIMIT $1`, limit)
	return mapped(rows, runningRow.running), wrap(err, "find operations")
}

// failureBatch bounds the failures in memory, whose messages may be long.
const failureBatch = 1000

// ItemFailure describes the last failure of a step.
type ItemFailure struct {
	ErrorType        string
	ErrorMessage     string
	ErrorFingerprint string // set by the handler; optional
}

const itemFailure = `coalesce(s.error ->> 'type', '') AS error_type, coalesce(s.error ->> 'message', '') AS error_message,
    coalesce(s.error ->> 'fingerprint', '') AS error_fingerprint`

// For an item that is a whole task, the step is that of the investigation.
const failuresOfItems = `
SELECT ` + itemFailure + `
FROM tasker.operation_items i
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = i.entry_uuid
JOIN tasker.workflow_steps s ON s.task_uuid = i.task_uuid
    AND s.step_uuid = CASE WHEN i.step_uuid = '00000000-0000-0000-0000-000000000000' THEN d.step_uuid ELSE i.step_uuid END
WHERE i.operation_uuid = $1 AND i.ordinal > $2 AND i.ordinal <= $3 AND s.error IS NOT NULL`

// FailuresOfItems calls each with every failure of the items of an operation.
func (tx *Tx) FailuresOfItems(ctx context.Context, operation tasker.ID, items int, each func(ItemFailure)) error {
	for after := 0; after < items; after += failureBatch {
		rows, err := collect[ItemFailure](ctx, tx, failuresOfItems, operation, after, after+failureBatch)
		if err != nil {
			return fmt.Errorf("read the failures of the items: %w", err)
		}
		for _, r := range rows {
			each(r)
		}
	}
	return nil
}

// LiveVersions returns the versions of the live workers of namespaces.
func (tx *Tx) LiveVersions(ctx context.Context, namespaces []string) ([]string, error) {
	list, err := column[string](ctx, tx, `SELECT DISTINCT w.version FROM tasker.workers w WHERE w.namespaces && $1::text[] AND `+liveWorker, namespaces)
	return list, wrap(err, "read the versions of live workers")
}

const unverified = `
SELECT DISTINCT i.entry_uuid FROM tasker.operation_items i WHERE i.operation_uuid = $1 AND i.entry_uuid = ANY ($2) AND i.state <> 'verified'`

// Unverified filters investigations for those with unverified items. The caller holds the task
// locks.
func (tx *Tx) Unverified(ctx context.Context, operation tasker.ID, entries []tasker.ID) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, tx, unverified, operation, entries)
	return list, wrap(err, "read unverified items")
}

// templateSteps maps an item of a map step to the map step.
const templateSteps = `
SELECT DISTINCT t.template_uuid, split_part(s.name, '[', 1) AS name
FROM tasker.operation_items i
JOIN tasker.tasks t ON t.task_uuid = i.task_uuid
JOIN tasker.workflow_steps s ON s.task_uuid = i.task_uuid AND s.step_uuid = i.step_uuid
WHERE i.operation_uuid = $1
ORDER BY 1, 2
LIMIT $2`

// TemplateStep is a step of a template.
type TemplateStep struct {
	TemplateUUID tasker.ID
	Name         string
}

// TemplateSteps returns up to limit template steps of the items of an operation.
func (tx *Tx) TemplateSteps(ctx context.Context, operation tasker.ID, limit int) ([]TemplateStep, error) {
	list, err := collect[TemplateStep](ctx, tx, templateSteps, operation, limit)
	return list, wrap(err, "read the template steps of an operation")
}
