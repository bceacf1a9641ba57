package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
)

// A RunningOperation is a locked operation with what decides its next move.
type RunningOperation struct {
	tasker.Operation
	Round     int
	WaveSince *time.Time
	Causes    []string   // nil: there are too many
	Due       bool       // its rate lets items be released now
	Next      *time.Time // when the rate lets the next be released
	Now       time.Time
}

const runningColumns = `, '{}'::text[] AS item_states, '{}'::bigint[] AS item_counts, o.round, o.wave_since, o.causes,
    coalesce(o.next_release_at <= clock_timestamp(), true) AS due, o.next_release_at AS next, clock_timestamp() AS now`

type runningRow struct {
	operationRow
	Round     int
	WaveSince *time.Time
	Causes    []string
	Due       bool
	Next      *time.Time
	Now       time.Time
}

func (r runningRow) running() *RunningOperation {
	return &RunningOperation{
		Operation: r.operation(), Round: r.Round, WaveSince: r.WaveSince, Causes: r.Causes, Due: r.Due, Next: r.Next, Now: r.Now,
	}
}

const takeOperation = `
SELECT ` + operationColumns + runningColumns + `
FROM tasker.operations o
WHERE o.settled_at IS NULL AND o.state = 'running' AND coalesce(o.next_release_at <= clock_timestamp(), true)
ORDER BY o.next_release_at, o.operation_uuid -- in turns
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED`

// TakeOperation locks a running operation with items to release; nil without a free one.
func (tx *Tx) TakeOperation(ctx context.Context) (*RunningOperation, error) {
	return tx.lockOperation(ctx, takeOperation)
}

const lockOperation = `
SELECT ` + operationColumns + runningColumns + `
FROM tasker.operations o
WHERE o.operation_uuid = $1
FOR NO KEY UPDATE`

// LockOperation locks an operation. The error is NotFound when there is none.
func (tx *Tx) LockOperation(ctx context.Context, id tasker.ID) (*RunningOperation, error) {
	o, err := tx.lockOperation(ctx, lockOperation, id)
	if err == nil && o == nil {
		return nil, noOperation(id)
	}
	return o, err
}

func (tx *Tx) lockOperation(ctx context.Context, sql string, args ...any) (*RunningOperation, error) {
	found, err := one[runningRow](ctx, tx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("lock an operation: %w", err)
	}
	if found == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	return found.running(), nil
}

// NextRelease returns the time until the next release, and whether any operation is open.
func (db *DB) NextRelease(ctx context.Context) (wait *time.Duration, open bool, err error) {
	type row struct {
		Wait *float64
		Open bool
	}
	found, err := one[row](ctx, db.pool, `
		SELECT extract(epoch FROM min(o.next_release_at) FILTER (WHERE o.state = 'running') - clock_timestamp())::float8 AS wait, count(*) > 0 AS open
		FROM tasker.operations o
		WHERE o.settled_at IS NULL`)
	if err != nil {
		return nil, false, fmt.Errorf("find operations: %w", err)
	}
	if found.Wait != nil {
		d := max(0, time.Duration(*found.Wait*float64(time.Second)))
		wait = &d
	}
	return wait, found.Open, nil
}

// A Progress is how far an operation has come.
type Progress struct {
	Planned  bool  // there are items to release
	InFlight int64 // released, and neither verified nor ended; counted up to a limit
	Round    map[tasker.ItemState]int64
}

// States are filtered as index ranges, or the planner would scan all items.
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

// Progress returns the progress of a locked operation, with items of the round if waves end.
func (tx *Tx) Progress(ctx context.Context, operation tasker.ID, round int, counted bool) (Progress, error) {
	type row struct {
		Planned  bool
		InFlight int64
		States   []string
		Counts   []int64
	}
	found, err := one[row](ctx, tx, `
		WITH c AS MATERIALIZED (
			SELECT i.state, count(*) AS items FROM tasker.operation_items i
			WHERE i.operation_uuid = $1 AND i.round = $2 AND $4 GROUP BY i.state
		)`+operationProgress, operation, round, tasker.MaxOperationInFlight, counted)
	if err != nil {
		return Progress{}, fmt.Errorf("count the items of an operation: %w", err)
	}
	p := Progress{Planned: found.Planned, InFlight: found.InFlight, Round: map[tasker.ItemState]int64{}}
	for i, s := range found.States {
		p.Round[tasker.ItemState(s)] = found.Counts[i]
	}
	return p, nil
}

// RoundFailures are the failures of the items that were released together.
type RoundFailures struct {
	Causes   []FailureCount // the most frequent first
	Released int            // items of the round, unless they were skipped; 0 without failures
	Planned  int            // items to release, counted up to the size of the wave; 0 without failures
}

// A FailureCount counts items of a round with one cause of failure and no success since.
type FailureCount struct {
	Cause       string
	Items       int
	FailedAgain int    // of these, those that have failed for good
	Text        string // of one of them
	TaskUUID    tasker.ID
}

// The items are counted only if one has failed: a subquery without a failure is not run.
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

// CountFailures counts the failures of the current round by their causes.
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

// A PlannedItem is an item that is to be released.
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

// PlannedItems returns the next items of an operation that are to be released.
func (tx *Tx) PlannedItems(ctx context.Context, operation tasker.ID, after, limit int) ([]PlannedItem, error) {
	list, err := collect[PlannedItem](ctx, tx, plannedItems, operation, after, limit)
	return list, wrap(err, "read the items of an operation")
}

// A MovedItem is where an item comes to.
type MovedItem struct {
	Ordinal  int
	State    tasker.ItemState
	Outcome  string
	Fence    int64      // of a release
	Failed   *time.Time // when the step failed, if it did
	Cause    string     // of that failure
	Text     string
	Made     tasker.ID // the task that was made for the item; zero: none
	Released bool      // it is released by this move
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

// Items move while open and are released once; locked ones stay planned. $1 operation, $2 wave, $3
// round; then the moves.
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

// MoveItems moves locked items of an operation: all or none.
func (tx *Tx) MoveItems(ctx context.Context, o *RunningOperation, list []MovedItem) error {
	if len(list) == 0 {
		return nil
	}
	tag, err := tx.Exec(ctx, moveItems, append([]any{o.UUID, o.Wave, o.Round}, movedColumns.arrays(list)...)...)
	if err != nil {
		return fmt.Errorf("move the items of an operation: %w", err)
	}
	if n := int(tag.RowsAffected()); n != len(list) {
		return fmt.Errorf("of %d items of operation %s that are locked %d moved", len(list), o.UUID, n)
	}
	return nil
}

// ReleaseLater says in how long the next items may be released.
func (tx *Tx) ReleaseLater(ctx context.Context, operation tasker.ID, at time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE tasker.operations SET next_release_at = $2 WHERE operation_uuid = $1`, operation, at)
	return wrap(err, "set the next release of an operation")
}

// BeginWave begins a wave of an operation, or the same once more.
func (tx *Tx) BeginWave(ctx context.Context, operation tasker.ID, wave int) error {
	if _, err := tx.Exec(ctx, `
		UPDATE tasker.operations SET wave = $2, round = round + 1, wave_since = clock_timestamp() WHERE operation_uuid = $1`, operation, wave); err != nil {
		return fmt.Errorf("begin a wave of an operation: %w", err)
	}
	return nil
}

// ExpiredPlans returns operations that were planned and not started in time.
func (db *DB) ExpiredPlans(ctx context.Context, limit int) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, `
		SELECT operation_uuid FROM tasker.operations WHERE settled_at IS NULL AND state = 'planned' AND expires_at <= clock_timestamp()
		ORDER BY created_at LIMIT $1`, limit)
	return list, wrap(err, "find plans that have expired")
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
told AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT 'tasker', 'operation.done', e.operation_uuid::text, '{}' FROM ended e WHERE e.state <> 'aborted'
)
SELECT e.operation_uuid FROM ended e`

// FinishOperations ends operations whose items have all ended and returns them.
func (db *DB) FinishOperations(ctx context.Context) (list []tasker.ID, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		if list, err = column[tasker.ID](ctx, tx, finishOperations); err != nil {
			return err
		}
		for _, id := range list {
			if err := tx.tellOfOperation(ctx, id, tasker.OperationDoneTopic, "tasker"); err != nil {
				return err
			}
		}
		return nil
	})
	return list, wrap(err, "end operations")
}

// PruneOperations removes a few operations that ended long ago and returns how many.
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

// SetLockTimeout has the statements of the transaction wait for rows for two seconds at most.
func (tx *Tx) SetLockTimeout(ctx context.Context) error {
	_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2s'`)
	return wrap(err, "bound the wait for rows")
}

const enqueuedHere = `
SELECT split_part(s.name, '[', 1) AS name, count(*) AS steps
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid
WHERE s.state = 'enqueued' AND s.xmin = pg_current_xact_id()::xid
GROUP BY 1`

// EnqueuedHere counts the steps of tasks that this transaction has enqueued, by their names in the template.
func (tx *Tx) EnqueuedHere(ctx context.Context, tasks []tasker.ID) (map[string]int, error) {
	type row struct {
		Name  string
		Steps int
	}
	rows, err := collect[row](ctx, tx, enqueuedHere, tasks)
	if err != nil {
		return nil, fmt.Errorf("count the steps that became ready: %w", err)
	}
	out := make(map[string]int, len(rows))
	for _, r := range rows {
		out[r.Name] = r.Steps
	}
	return out, nil
}
