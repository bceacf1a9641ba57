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

// RunState is the state of the current wave of an operation. A round is one run of a wave.
type RunState struct {
	Round     int
	WaveSince *time.Time
	Causes    []string   // nil if there are too many
	Due       bool       // whether the rate allows releasing items now
	Next      *time.Time // when the rate allows the next release
	Now       time.Time
}

const runningColumns = `, '{}'::text[] AS item_states, '{}'::bigint[] AS item_counts, o.round, o.wave_since, o.causes,
    coalesce(o.next_release_at <= clock_timestamp(), true) AS due, o.next_release_at AS next, clock_timestamp() AS now`

type runningRow struct {
	operationRow
	RunState
}

func (r runningRow) running() RunningOperation { return RunningOperation{r.operation(), r.RunState} }

const lockDueOperation = `
SELECT ` + operationColumns + runningColumns + `
FROM tasker.operations o
WHERE o.settled_at IS NULL AND o.state = 'running' AND coalesce(o.next_release_at <= clock_timestamp(), true)
ORDER BY o.next_release_at, o.operation_uuid -- round robin
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED`

// LockDueOperation locks a running operation that may release items now. It returns nil if there is
// no unlocked one.
func (tx *Tx) LockDueOperation(ctx context.Context) (*RunningOperation, error) {
	return tx.lockOperation(ctx, lockDueOperation)
}

const lockOperation = `
SELECT ` + operationColumns + runningColumns + `
FROM tasker.operations o
WHERE o.operation_uuid = $1
FOR NO KEY UPDATE`

// LockOperation locks an operation, or returns NotFound.
func (tx *Tx) LockOperation(ctx context.Context, id tasker.ID) (*RunningOperation, error) {
	o, err := tx.lockOperation(ctx, lockOperation, id)
	if err == nil && o == nil {
		return nil, noOperation(id)
	}
	return o, err
}

func (tx *Tx) lockOperation(ctx context.Context, sql string, args ...any) (*RunningOperation, error) {
	found, err := one[runningRow](ctx, tx, sql, args...)
	if err != nil || found == nil {
		return nil, wrap(err, "lock an operation")
	}
	o := found.running()
	return &o, nil
}

// NextRelease returns the time until the next release and whether any operation is open. The time is
// nil if no operation is running.
func (db *DB) NextRelease(ctx context.Context) (wait *time.Duration, open bool, err error) {
	type row struct {
		Wait *float64
		Open bool
	}
	found, err := required[row](ctx, db.pool, nil, "find operations", `
		SELECT extract(epoch FROM min(o.next_release_at) FILTER (WHERE o.state = 'running') - clock_timestamp())::float8 AS wait, count(*) > 0 AS open
		FROM tasker.operations o
		WHERE o.settled_at IS NULL`)
	if found.Wait != nil {
		d := max(0, seconds(*found.Wait))
		wait = &d
	}
	return wait, found.Open, err
}

// Progress describes the progress of an operation.
type Progress struct {
	Planned  bool  // whether there are items to release
	InFlight int64 // released items that have not ended, counted up to a limit
	Round    map[tasker.ItemState]int64
}

// States are compared as index ranges. Otherwise the planner would scan all items.
const operationProgress = `
SELECT (
        SELECT i.ordinal FROM tasker.operation_items i
        WHERE i.operation_uuid = $1 AND i.state BETWEEN 'planned' AND 'planned' ORDER BY i.state, i.ordinal LIMIT 1
    ) IS NOT NULL AS planned,
    (SELECT count(*) FROM (
        SELECT FROM tasker.operation_items i
        WHERE i.operation_uuid = $1 AND i.state BETWEEN 'released' AND 'released' ORDER BY i.state, i.ordinal LIMIT $3
    ) r) + (SELECT count(*) FROM (
        SELECT FROM tasker.operation_items i
        WHERE i.operation_uuid = $1 AND i.state BETWEEN 'running' AND 'running' ORDER BY i.state, i.ordinal LIMIT $3
    ) r) AS in_flight,
    coalesce((SELECT array_agg(n.state) FROM c n), '{}') AS states, coalesce((SELECT array_agg(n.items) FROM c n), '{}') AS counts`

// Progress returns the progress of a locked operation. It counts the items of the round if counted
// is true.
func (tx *Tx) Progress(ctx context.Context, operation tasker.ID, round int, counted bool) (Progress, error) {
	type row struct {
		Planned  bool
		InFlight int64
		States   []string
		Counts   []int64
	}
	found, err := required[row](ctx, tx, nil, "count the items of an operation", `
		WITH c AS MATERIALIZED (
			SELECT i.state, count(*) AS items FROM tasker.operation_items i
			WHERE i.operation_uuid = $1 AND i.round = $2 AND $4 GROUP BY i.state
		)`+operationProgress, operation, round, tasker.MaxOperationInFlight, counted)
	p := Progress{Planned: found.Planned, InFlight: found.InFlight, Round: map[tasker.ItemState]int64{}}
	for i, s := range found.States {
		p.Round[tasker.ItemState(s)] = found.Counts[i]
	}
	return p, err
}

// RoundFailures summarizes the failures of a round. Without failures, all fields are zero.
type RoundFailures struct {
	Causes   []FailureCount // most frequent first
	Released int            // items of the round that were not skipped
	Planned  int            // items to release, counted up to the size of the wave
}

// FailureCount counts the items of a round that failed with one cause and have not succeeded since.
type FailureCount struct {
	Cause       string
	Items       int
	FailedAgain int    // items that have failed permanently
	Text        string // error of one item
	TaskUUID    tasker.ID
}

// The subqueries run only for rows, that is if an item has failed.
const countFailures = `
SELECT f.*, (SELECT count(*) FROM tasker.operation_items i WHERE i.operation_uuid = $1 AND i.round = $2 AND i.state <> 'skipped') AS released,
    (SELECT count(*) FROM (
        SELECT FROM tasker.operation_items i WHERE i.operation_uuid = $1 AND i.state BETWEEN 'planned' AND 'planned' ORDER BY i.state, i.ordinal LIMIT $4
    ) p) AS planned
FROM (
    SELECT i.failure_cause AS cause, count(*) AS items, count(*) FILTER (WHERE i.state = 'failed_again') AS failed_again,
        (array_agg(coalesce(i.failure_text, '') ORDER BY i.ordinal))[1] AS text, (array_agg(i.task_uuid ORDER BY i.ordinal))[1] AS task_uuid
    FROM tasker.operation_items i
    WHERE i.operation_uuid = $1 AND i.round = $2 AND i.failure_cause IS NOT NULL AND i.state <> 'verified'
    GROUP BY i.failure_cause
    ORDER BY count(*) DESC, i.failure_cause
    LIMIT $3
) f
ORDER BY f.items DESC, f.cause`

// CountFailures counts the failures of the current round by cause.
func (tx *Tx) CountFailures(ctx context.Context, o *RunningOperation) (f RoundFailures, err error) {
	type row struct {
		FailureCount
		Released, Planned int
	}
	size := 1
	if o.Wave < len(o.Waves) {
		size = o.Waves[o.Wave]
	}
	rows, err := collect[row](ctx, tx, countFailures, o.UUID, o.Round, tasker.MaxOperationCauses, size)
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

const plannedItems = `
SELECT i.ordinal, i.task_uuid, i.step_uuid, i.entry_uuid, i.expected_state, i.expected_fence, i.tries
FROM tasker.operation_items i
WHERE i.operation_uuid = $1 AND i.state BETWEEN 'planned' AND 'planned' AND i.ordinal > $2
ORDER BY i.state, i.ordinal
LIMIT $3`

// PlannedItems returns the next items to release.
func (tx *Tx) PlannedItems(ctx context.Context, operation tasker.ID, after, limit int) ([]PlannedItem, error) {
	list, err := collect[PlannedItem](ctx, tx, plannedItems, operation, after, limit)
	return list, wrap(err, "read the items of an operation")
}

// MovedItem describes a transition of an item.
type MovedItem struct {
	Ordinal  int
	State    tasker.ItemState
	Outcome  string
	Fence    int64      // fence of the step at its release
	Failed   *time.Time // time of the failure, if any
	Cause    string     // cause of the failure
	Text     string     // text of the failure
	Made     tasker.ID  // task created for the item; zero means none
	Released bool       // whether this transition releases the item
}

var movedColumns = columns[MovedItem]{
	col("ordinal int", func(m *MovedItem) int32 { return int32(m.Ordinal) }),
	col("state text", func(m *MovedItem) string { return string(m.State) }),
	col("outcome text", func(m *MovedItem) string { return m.Outcome }),
	col("fence bigint", func(m *MovedItem) int64 { return m.Fence }),
	col("failed timestamptz", func(m *MovedItem) *time.Time { return m.Failed }),
	col("cause text", func(m *MovedItem) string { return m.Cause }),
	col("text text", func(m *MovedItem) string { return m.Text }),
	col("made uuid", func(m *MovedItem) pgtype.UUID { return idOrNull(m.Made) }),
	col("released bool", func(m *MovedItem) bool { return m.Released }),
}

// Only open items move, and an item is released once. $1 operation, $2 wave, $3 round, then the
// transitions.
var moveItems = `
UPDATE tasker.operation_items i
SET state = m.state, outcome = nullif(m.outcome, ''),
    tries = i.tries + CASE WHEN m.state = 'planned' THEN 1 ELSE 0 END,
    wave = CASE WHEN m.released THEN $2 ELSE i.wave END, round = CASE WHEN m.released THEN $3 ELSE i.round END,
    released_fence = CASE WHEN m.released THEN m.fence ELSE i.released_fence END,
    released_at = CASE WHEN m.released THEN clock_timestamp() ELSE i.released_at END,
    failed_at = coalesce(m.failed, i.failed_at), failure_cause = coalesce(nullif(m.cause, ''), i.failure_cause), failure_text = coalesce(nullif(m.text, ''), i.failure_text),
    made_task = coalesce(m.made, i.made_task),
    ended_at = CASE WHEN m.state IN ('verified', 'failed_again', 'skipped', 'aborted') THEN clock_timestamp() END
FROM (
    SELECT m.*, k.row
    FROM ` + movedColumns.unnest("m", 4) + `
    CROSS JOIN LATERAL (
        SELECT x.ctid AS row FROM tasker.operation_items x WHERE x.operation_uuid = $1 AND x.ordinal = m.ordinal OFFSET 0
    ) k
) m
WHERE i.ctid = m.row AND CASE WHEN m.released OR m.state = 'planned' THEN i.state = 'planned' ELSE i.` + openItem + ` END`

// MoveItems applies transitions to locked items, all or none.
func (tx *Tx) MoveItems(ctx context.Context, o *RunningOperation, list []MovedItem) error {
	if len(list) == 0 {
		return nil
	}
	tag, err := tx.Exec(ctx, moveItems, append([]any{o.UUID, o.Wave, o.Round}, movedColumns.arrays(list)...)...)
	if err != nil {
		return fmt.Errorf("move the items of an operation: %w", err)
	}
	if n := int(tag.RowsAffected()); n != len(list) {
		return fmt.Errorf("moved %d of %d locked items of operation %s", n, len(list), o.UUID)
	}
	return nil
}

// SetNextRelease sets the time from which the next items may be released.
func (tx *Tx) SetNextRelease(ctx context.Context, operation tasker.ID, at time.Time) error {
	return exec(ctx, tx, "set the next release of an operation",
		`UPDATE tasker.operations SET next_release_at = $2 WHERE operation_uuid = $1`, operation, at)
}

// StartWave starts a round of a wave.
func (tx *Tx) StartWave(ctx context.Context, operation tasker.ID, wave int) error {
	return exec(ctx, tx, "start a wave of an operation",
		`UPDATE tasker.operations SET wave = $2, round = round + 1, wave_since = clock_timestamp() WHERE operation_uuid = $1`, operation, wave)
}

// ExpiredPlans returns operations that were not started before they expired.
func (db *DB) ExpiredPlans(ctx context.Context, limit int) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, `
		SELECT operation_uuid FROM tasker.operations WHERE settled_at IS NULL AND state = 'planned' AND expires_at <= clock_timestamp()
		ORDER BY created_at LIMIT $1`, limit)
	return list, wrap(err, "find expired plans")
}

const finishOperations = `
WITH finished AS MATERIALIZED (
    SELECT o.operation_uuid, o.state
    FROM tasker.operations o
    WHERE o.settled_at IS NULL AND o.state IN ('running', 'paused', 'aborted')
      AND (SELECT i.ordinal FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND i.state BETWEEN 'planned' AND 'planned' ORDER BY i.state, i.ordinal LIMIT 1) IS NULL
      AND (SELECT i.ordinal FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND i.state BETWEEN 'released' AND 'released' ORDER BY i.state, i.ordinal LIMIT 1) IS NULL
      AND (SELECT i.ordinal FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND i.state BETWEEN 'running' AND 'running' ORDER BY i.state, i.ordinal LIMIT 1) IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
),
ended AS (
    UPDATE tasker.operations o
    SET state = CASE WHEN f.state = 'aborted' THEN o.state ELSE 'done' END, ended_at = coalesce(o.ended_at, clock_timestamp()), settled_at = clock_timestamp(),
        paused_for = NULL, paused_by = NULL, paused_details = NULL, paused_at = NULL
    FROM finished f
    WHERE o.operation_uuid = f.operation_uuid
    RETURNING o.operation_uuid, f.state
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT 'tasker', 'operation.done', e.operation_uuid::text, '{}' FROM ended e WHERE e.state <> 'aborted'
)
SELECT e.operation_uuid FROM ended e`

// FinishOperations ends operations whose items have all ended, and returns them.
func (db *DB) FinishOperations(ctx context.Context) (list []tasker.ID, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		if list, err = column[tasker.ID](ctx, tx, finishOperations); err != nil {
			return err
		}
		for _, id := range list {
			if err := tx.notifyOperation(ctx, id, tasker.OperationDoneTopic, "tasker"); err != nil {
				return err
			}
		}
		return nil
	})
	return list, wrap(err, "end operations")
}

// PruneOperations removes up to limit operations that ended before age, and returns their number.
func (db *DB) PruneOperations(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		tag, err := tx.Exec(ctx, `
			WITH old AS MATERIALIZED (
				SELECT operation_uuid FROM tasker.operations WHERE created_at < clock_timestamp() - $1::interval AND settled_at < clock_timestamp() - $1::interval
				ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
			),
			items AS (DELETE FROM tasker.operation_items i USING old WHERE i.operation_uuid = old.operation_uuid)
			DELETE FROM tasker.operations o USING old WHERE o.operation_uuid = old.operation_uuid`, age, limit)
		n = int(tag.RowsAffected())
		return err
	})
	return n, wrap(err, "remove old operations")
}

// SetLockTimeout limits lock waits in the transaction to two seconds.
func (tx *Tx) SetLockTimeout(ctx context.Context) error {
	return exec(ctx, tx, "set the lock timeout", `SET LOCAL lock_timeout = '2s'`)
}

const stepsEnqueuedByTx = `
SELECT split_part(s.name, '[', 1) AS name, count(*) AS steps
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid
WHERE s.state = 'enqueued' AND s.xmin = pg_current_xact_id()::xid
GROUP BY 1`

// EnqueuedSteps counts the steps of tasks that this transaction has enqueued, by template step.
func (tx *Tx) EnqueuedSteps(ctx context.Context, tasks []tasker.ID) (map[string]int, error) {
	return selectMap[string, int](ctx, tx, "count enqueued steps", stepsEnqueuedByTx, tasks)
}
