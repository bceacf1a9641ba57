package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
)

// heldColumns are the columns of ready_steps that a parked step keeps. Its expiry restarts on
// release.
const heldColumns = `namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes`

// parkSteps contains the CTEs that move the rows of CTE due from ready_steps to held_steps. An
// outdated row is only deleted: it must not replace the row of a parked step.
var parkSteps = `
gone AS (
    DELETE FROM tasker.ready_steps r USING due d WHERE r.ctid = d.ready_row
    RETURNING d.hold_uuid, r.` + strings.ReplaceAll(heldColumns, ", ", ", r.") + `
),
parked AS (
    INSERT INTO tasker.held_steps (hold_uuid, ` + heldColumns + `)
    SELECT DISTINCT ON (task_uuid, step_uuid) hold_uuid, ` + heldColumns + ` FROM gone WHERE NOT ` + isOutdated("gone") + ` ORDER BY task_uuid, step_uuid
    ON CONFLICT (task_uuid, step_uuid) DO UPDATE
    SET hold_uuid = excluded.hold_uuid, limit_key_id = NULL, released_by = NULL, state_since = excluded.state_since, priority = excluded.priority,
        queue_ttl_ms = excluded.queue_ttl_ms, inputs_bytes = excluded.inputs_bytes, held_at = clock_timestamp(), counted_until = NULL
)
`

const countParked = `SELECT count(*) FROM gone`

// These lock hold $1, so that it cannot end before the parked steps can be released. $2 is its
// namespace, $3 the limit, $4 the handler.
var (
	holdNamespace = holdQueue("")
	holdHandler   = holdQueue(" AND s.handler = $4")
)

func holdQueue(condition string) string {
	return `
WITH hold AS MATERIALIZED (
    SELECT h.hold_uuid FROM tasker.holds h WHERE h.hold_uuid = $1 AND h.blocks FOR SHARE
),
due AS MATERIALIZED (
    SELECT s.ctid AS ready_row, $1::uuid AS hold_uuid
    FROM tasker.ready_steps s
    WHERE s.namespace = $2` + condition + ` AND s.released_by IS DISTINCT FROM $1
      AND (SELECT count(*) FROM hold) = 1
    LIMIT $3
    FOR UPDATE SKIP LOCKED
),` + parkSteps + countParked
}

// ParkQueue parks up to limit enqueued steps of a hold of whole queues, and returns their number.
func (db *DB) ParkQueue(ctx context.Context, h tasker.Hold, limit int) (n int, err error) {
	if h.Handler == "" {
		err = db.pool.QueryRow(ctx, holdNamespace, h.UUID, h.Namespace, limit).Scan(&n)
	} else {
		err = db.pool.QueryRow(ctx, holdHandler, h.UUID, h.Namespace, limit, h.Handler).Scan(&n)
	}
	return n, wrap(err, "park held steps")
}

// holdPages parks steps of holds that name a template or step, which ready_steps does not store. It
// checks every row of the table pages [$1, $2).
var holdPages = `
WITH hold AS MATERIALIZED (
    SELECT * FROM tasker.holds h WHERE h.blocks AND num_nonnulls(h.task_name, h.step_name) > 0 ORDER BY h.hold_uuid FOR SHARE
),
due AS MATERIALIZED (
    SELECT s.ctid AS ready_row, (
        SELECT h.hold_uuid FROM hold h
        WHERE h.hold_uuid IS DISTINCT FROM s.released_by AND ` + inScope("s") + `
        ORDER BY h.hold_uuid LIMIT 1
    ) AS hold_uuid
    FROM tasker.ready_steps s
    WHERE s.ctid >= format('(%s,0)', $1::bigint)::tid AND s.ctid < format('(%s,0)', $2::bigint)::tid
      AND EXISTS (SELECT FROM hold h WHERE h.hold_uuid IS DISTINCT FROM s.released_by AND ` + inScope("s") + `)
    FOR UPDATE SKIP LOCKED
),` + parkSteps + countParked

// ParkPages parks held steps in the pages [from, to) of ready_steps, and returns the number of
// pages.
func (db *DB) ParkPages(ctx context.Context, from, to int64) (pages int64, err error) {
	if _, err := db.pool.Exec(ctx, holdPages, from, to); err != nil {
		return 0, fmt.Errorf("park held steps: %w", err)
	}
	err = db.pool.QueryRow(ctx, `SELECT pg_relation_size('tasker.ready_steps') / current_setting('block_size')::int`).Scan(&pages)
	return pages, wrap(err, "read the size of the queue")
}

// coveredByOtherHold is true if a hold other than $1 also covers held step q.
var coveredByOtherHold = `EXISTS (SELECT FROM tasker.holds h WHERE h.blocks AND h.hold_uuid <> $1 AND ` + inScope("q") + `)`

// handOver moves up to $2 steps of hold $1 to another hold that covers them. It prefers active
// holds to releasing ones, then younger holds. A locked hold gets them later.
var handOver = `
WITH others AS MATERIALIZED (
    SELECT h.*
    FROM tasker.holds h
    JOIN tasker.holds m ON m.hold_uuid = $1 AND m.namespace = h.namespace
    WHERE h.blocks AND (h.state = 'active', h.hold_uuid) > (m.state = 'active', m.hold_uuid)
    ORDER BY h.hold_uuid
    FOR SHARE OF h SKIP LOCKED
),
due AS MATERIALIZED (
    SELECT q.task_uuid, q.step_uuid, (
        SELECT h.hold_uuid FROM others h WHERE ` + inScope("q") + ` ORDER BY h.state = 'active' DESC, h.hold_uuid DESC LIMIT 1
    ) AS hold_uuid
    FROM tasker.held_steps q
    WHERE q.hold_uuid = $1 AND EXISTS (SELECT FROM others h WHERE ` + inScope("q") + `)
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
moved AS (
    UPDATE tasker.held_steps q SET hold_uuid = d.hold_uuid
    FROM due d
    WHERE q.task_uuid = d.task_uuid AND q.step_uuid = d.step_uuid
    RETURNING 1
)
SELECT count(*) FROM moved`

const handOverLimit = 1000

// heldTasks selects the tasks of the next held steps by urgency, except deferred ones.
var heldTasks = `
SELECT q.task_uuid
FROM tasker.held_steps q
WHERE q.hold_uuid = $1
  AND NOT ($3 AND EXISTS (SELECT FROM tasker.hold_releases r WHERE r.hold_uuid = $1 AND r.task_uuid = q.task_uuid AND r.step_uuid = q.step_uuid))
  AND NOT ($4 AND ` + coveredByOtherHold + `)
  AND NOT EXISTS (SELECT FROM tasker.deferred_work f WHERE f.kind = '` + ReleaseHeld + `' AND f.task_uuid = q.task_uuid AND f.retry_at > now())
ORDER BY q.priority DESC, q.state_since, q.step_uuid
LIMIT $2`

// extendHeldTasks returns the CTEs that extend the total time of tasks by the time held.
// Overlapping holds of a task count once.
func extendHeldTasks(part string) string {
	return `
spent AS (
    SELECT t.task_uuid, min(coalesce(q.counted_until, q.held_at)) AS since
    FROM tasker.tasks t
    JOIN tasker.held_steps q ON q.task_uuid = t.task_uuid AND q.hold_uuid IS NOT NULL
    JOIN tasker.workflow_steps s ON s.task_uuid = q.task_uuid AND s.step_uuid = q.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = q.state_since
    WHERE t.task_uuid IN (SELECT task_uuid FROM ` + part + `) AND t.ends_at IS NOT NULL
    GROUP BY t.task_uuid
),
counted AS (
    UPDATE tasker.held_steps q SET counted_until = c.at
    FROM spent x
    CROSS JOIN clock c
    WHERE q.task_uuid = x.task_uuid AND NOT EXISTS (SELECT FROM ` + part + ` p WHERE p.task_uuid = q.task_uuid AND p.step_uuid = q.step_uuid)
),
longer AS (
    UPDATE tasker.tasks t SET ends_at = t.ends_at + (c.at - x.since)
    FROM spent x
    CROSS JOIN clock c
    WHERE t.task_uuid = x.task_uuid
)`
}

// forgetFailures returns the CTE that deletes the failed releases of tasks that are no longer held.
func forgetFailures(part string) string {
	return `forgotten AS (
    DELETE FROM tasker.deferred_work f USING ` + part + ` p WHERE f.kind = '` + ReleaseHeld + `' AND f.task_uuid = p.task_uuid
)`
}

// releaseHeldSteps returns held steps of locked tasks to the queue with their full queue time, and
// extends the total time of the tasks by the time held. An outdated row is only removed.
//
// $1 hold, $2 tasks, $3 limit, $4 wave or null, $5 worker queue TTL in ms, $6 whether to announce
// steps, $7 whether to select only steps that the hold never released.
var releaseHeldSteps = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
next AS MATERIALIZED (
    SELECT q.*
    FROM tasker.held_steps q
    WHERE q.hold_uuid = $1 AND q.task_uuid = ANY ($2)
      AND NOT ($7 AND EXISTS (SELECT FROM tasker.hold_releases r WHERE r.hold_uuid = $1 AND r.task_uuid = q.task_uuid AND r.step_uuid = q.step_uuid))
      AND NOT ($4::int IS NOT NULL AND ` + coveredByOtherHold + `)
    ORDER BY q.priority DESC, q.state_since, q.step_uuid
    LIMIT $3
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM tasker.held_steps q USING next n WHERE q.task_uuid = n.task_uuid AND q.step_uuid = n.step_uuid
),
back AS (
    UPDATE tasker.workflow_steps s
    SET expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $5), updated_at = c.at
    FROM next n
    CROSS JOIN clock c
    WHERE s.task_uuid = n.task_uuid AND s.step_uuid = n.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = n.state_since
    RETURNING ` + returnReady + `, s.fence
),
ready AS (
    INSERT INTO tasker.ready_steps (` + readyColumns + `, released_by, due_at)
    SELECT ` + readyColumns + `, $1, ` + orderOf("back") + ` FROM back
    ON CONFLICT (namespace, handler, priority, state_since, step_uuid) DO UPDATE -- the step was written manually
    SET released_by = excluded.released_by, expires_at = excluded.expires_at, limit_passed_at = NULL
),
` + extendHeldTasks("back") + `,
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM back WHERE $6 ORDER BY task_uuid, step_uuid
),
` + forgetFailures("next") + `,
noted AS (
    INSERT INTO tasker.hold_releases (hold_uuid, task_uuid, step_uuid, wave, fence, released_at)
    SELECT $1, b.task_uuid, b.step_uuid, $4::int, b.fence, c.at
    FROM back b
    CROSS JOIN clock c
    WHERE $4::int IS NOT NULL
)
SELECT (SELECT count(*) FROM next) AS scanned, (SELECT count(*) FROM back) AS released,
    coalesce((SELECT array_agg(DISTINCT task_uuid) FROM back), '{}') AS tasks`

// A ReleaseBatch selects steps of a hold to release.
type ReleaseBatch struct {
	Hold  tasker.ID
	Limit int
	Wave  *int       // records the releases and their outcomes; 0 is a probe, nil records no releases
	Fresh bool       // only steps that the hold has not released before
	Only  *tasker.ID // only steps of this task
}

// Released is the result of a [ReleaseBatch].
type Released struct {
	Scanned    int // held steps, including outdated ones
	Released   int
	Tasks      []tasker.ID
	HandedOver int `db:"-"` // to other holds
}

func heldTasksOf(ctx context.Context, q querier, l ReleaseBatch) ([]tasker.ID, error) {
	tasks, err := column[tasker.ID](ctx, q, heldTasks, l.Hold, l.Limit, l.Fresh, l.Wave != nil)
	return tasks, wrap(err, "find held steps")
}

// HeldTasks returns the tasks of the next steps that ReleaseHeldSteps would release.
func (db *DB) HeldTasks(ctx context.Context, l ReleaseBatch) ([]tasker.ID, error) {
	return heldTasksOf(ctx, db.pool, l)
}

// ReleaseHeldSteps releases held steps of unlocked tasks, most urgent first. Probes and waves first
// hand over the steps that another hold covers. The caller has locked the hold.
func (tx *Tx) ReleaseHeldSteps(ctx context.Context, l ReleaseBatch) (r Released, err error) {
	if l.Wave != nil {
		if r.HandedOver, err = value[int](ctx, tx, handOver, l.Hold, handOverLimit); err != nil {
			return r, fmt.Errorf("hand over held steps: %w", err)
		}
	}
	tasks, err := heldTasksOf(ctx, tx, l)
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
	released, err := one[Released](ctx, tx, releaseHeldSteps, l.Hold, free, l.Limit, l.Wave, tx.queue.ttlMS, tx.queue.announce, l.Fresh)
	if err != nil {
		return r, fmt.Errorf("release held steps: %w", err)
	}
	released.HandedOver = r.HandedOver
	if len(released.Tasks) > 0 {
		_, err = tx.SettleTasks(ctx, released.Tasks, Operator{})
	}
	return *released, err
}

// OrphanedHold returns an ended or missing hold that still has parked steps; nil without one. It
// scans all parked steps, so it is only for rare checks.
func (db *DB) OrphanedHold(ctx context.Context) (*tasker.ID, error) {
	v, err := value[*tasker.ID](ctx, db.pool, `
		SELECT (
			SELECT q.hold_uuid FROM tasker.held_steps q
			WHERE q.hold_uuid IS NOT NULL AND NOT EXISTS (SELECT FROM tasker.holds h WHERE h.hold_uuid = q.hold_uuid AND h.ended_at IS NULL)
			LIMIT 1
		)`)
	return v, wrap(err, "find held steps whose hold has ended")
}

var dropHeld = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
gone AS (
    DELETE FROM tasker.held_steps q
    USING unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    WHERE q.task_uuid = d.task_uuid AND q.step_uuid = d.step_uuid
    RETURNING q.task_uuid, q.step_uuid
),` + extendHeldTasks("gone") + `,
` + forgetFailures("gone") + `
SELECT count(*) FROM gone`

// deleteHeldSteps removes the parked rows of steps before a transition. The caller has locked the
// tasks.
func (tx *Tx) deleteHeldSteps(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := refArrays(steps)
	_, err := tx.Exec(ctx, dropHeld, tasks, ids)
	return wrap(err, "delete held steps")
}

const pruneReleaseFailures = `
DELETE FROM tasker.deferred_work f
USING (
    SELECT d.task_uuid, d.step_uuid FROM tasker.deferred_work d
    WHERE d.kind = '` + ReleaseHeld + `' AND NOT EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = d.task_uuid AND q.hold_uuid IS NOT NULL OFFSET 0)
    LIMIT $1
) o
WHERE f.kind = '` + ReleaseHeld + `' AND f.task_uuid = o.task_uuid AND f.step_uuid = o.step_uuid`

// PruneReleaseFailures deletes up to limit failed releases of tasks that are no longer held.
func (db *DB) PruneReleaseFailures(ctx context.Context, limit int) error {
	_, err := db.pool.Exec(ctx, pruneReleaseFailures, limit)
	return wrap(err, "prune failed releases of held steps")
}

// A ReleasedStep is a step that a hold released, with its current state.
type ReleasedStep struct {
	tasker.HoldRelease
	Step          string
	StepFence     int64
	ReportedFence *int64
	LastFailureAt *time.Time
	Elsewhere     bool          // now parked for another hold
	Leased        bool          // in progress with an unexpired lease
	Waits         bool          // unclaimed because workers claim other steps of its queue or wave, or a limit is full
	Age           time.Duration // since its release
	ItemFailure
	Shown string // the redacted message
}

// $2 is how long a claim counts as a sign that workers claim steps.
const releasedSteps = `
WITH working AS MATERIALIZED ( -- waves of which workers claim steps, read once and not for each step
    SELECT DISTINCT o.wave, o.released_at
    FROM tasker.hold_releases o
    JOIN tasker.workflow_steps w ON w.task_uuid = o.task_uuid AND w.step_uuid = o.step_uuid
    WHERE o.hold_uuid = $1
      AND o.released_at >= (SELECT min(n.released_at) - interval '1 minute' FROM tasker.hold_releases n WHERE n.hold_uuid = $1 AND n.outcome IS NULL)
      AND (o.judged_at > clock_timestamp() - $2::interval OR o.outcome IS NULL AND w.state || '' = 'in_progress' AND w.lease_expires_at > clock_timestamp())
)
SELECT r.task_uuid, r.step_uuid, r.wave, r.fence, r.released_at, '' AS outcome, NULL::text AS failure, NULL::timestamptz AS judged_at,
    coalesce(s.state, '') AS step, coalesce(s.fence, 0) AS step_fence, s.reported_fence, s.last_failure_at,
    coalesce(s.state || '' = 'in_progress' AND s.lease_expires_at > clock_timestamp(), false) AS leased,
    EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = r.task_uuid AND q.step_uuid = r.step_uuid AND q.hold_uuid <> r.hold_uuid) AS elsewhere, clock_timestamp() - r.released_at AS age,
    coalesce(s.state || '' = 'enqueued' AND s.fence = r.fence AND (
        EXISTS (SELECT FROM tasker.held_steps q WHERE q.task_uuid = r.task_uuid AND q.step_uuid = r.step_uuid AND q.limit_key_id IS NOT NULL)
        OR EXISTS (SELECT FROM tasker.queues q WHERE q.namespace = s.namespace AND q.handler = s.handler AND q.busy_at > clock_timestamp() - $2::interval)
        OR EXISTS (
            SELECT FROM working o
            WHERE o.wave = r.wave AND o.released_at BETWEEN r.released_at - interval '1 minute' AND r.released_at + interval '1 minute'
        )
    ), false) AS waits,
    ` + itemFailure + `,
    CASE WHEN s.last_failure_at > r.released_at THEN coalesce(tasker.redact_error(s.error) ->> 'message', '') ELSE '' END AS shown
FROM tasker.hold_releases r
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = r.task_uuid AND s.step_uuid = r.step_uuid
WHERE r.hold_uuid = $1 AND r.outcome IS NULL`

// ReleasedSteps returns the released steps of a hold without an outcome. Workers count as claiming
// steps for recent after a claim.
func (tx *Tx) ReleasedSteps(ctx context.Context, hold tasker.ID, recent time.Duration) ([]ReleasedStep, error) {
	list, err := collect[ReleasedStep](ctx, tx, releasedSteps, hold, recent)
	return list, wrap(err, "read the released steps of hold %s", hold)
}

const judgeReleases = `
UPDATE tasker.hold_releases r
SET outcome = u.outcome, failure = nullif(u.failure, ''), judged_at = clock_timestamp()
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[]) AS u (task_uuid, step_uuid, outcome, failure)
WHERE r.hold_uuid = $1 AND r.task_uuid = u.task_uuid AND r.step_uuid = u.step_uuid AND r.outcome IS NULL`

// reparkSteps makes holds cover released steps again that no worker has claimed.
const reparkSteps = `
WITH limited AS (
    UPDATE tasker.held_steps q SET released_by = NULL
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    WHERE q.task_uuid = d.task_uuid AND q.step_uuid = d.step_uuid AND q.limit_key_id IS NOT NULL
)
UPDATE tasker.ready_steps r SET released_by = NULL
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
WHERE ` + readyKey

// RecordReleaseOutcomes stores the outcomes of released steps. Steps without an answer are held
// again unless a worker has claimed them.
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
	if _, err := tx.Exec(ctx, judgeReleases, hold, tasks, steps, outcomes, failures); err != nil {
		return fmt.Errorf("record the outcomes of released steps: %w", err)
	}
	if len(lostSteps) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, reparkSteps, lostTasks, lostSteps)
	return wrap(err, "hold steps again")
}

// WaveOutcomes counts the steps of a wave by outcome.
func (tx *Tx) WaveOutcomes(ctx context.Context, hold tasker.ID, wave int, since time.Time) (map[tasker.ReleaseOutcome]int, error) {
	type row struct {
		Outcome tasker.ReleaseOutcome
		Steps   int
	}
	rows, err := collect[row](ctx, tx, `
		SELECT coalesce(outcome, '') AS outcome, count(*) AS steps
		FROM tasker.hold_releases WHERE hold_uuid = $1 AND wave = $2 AND released_at >= $3 GROUP BY outcome`, hold, wave, since)
	if err != nil {
		return nil, fmt.Errorf("count a wave: %w", err)
	}
	out := map[tasker.ReleaseOutcome]int{}
	for _, r := range rows {
		out[r.Outcome] = r.Steps
	}
	return out, nil
}

// parkHeldSteps parks the steps $1, $2 that a hold covers. It locks the holds, so that they cannot
// end before the parked steps can be released.
var parkHeldSteps = `
WITH hold AS MATERIALIZED (
    SELECT * FROM tasker.holds h
    WHERE h.blocks AND h.namespace IN (
        SELECT s.namespace FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
        JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    )
    ORDER BY h.hold_uuid FOR SHARE
),
due AS MATERIALIZED (
    SELECT q.ready_row, (
        SELECT h.hold_uuid FROM hold h WHERE h.hold_uuid IS DISTINCT FROM q.released_by AND ` + inScope("q") + ` ORDER BY h.hold_uuid LIMIT 1
    ) AS hold_uuid
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.namespace, r.handler, r.task_uuid, r.step_uuid, r.released_by FROM tasker.ready_steps r
        WHERE ` + readyKey + ` AND r.task_uuid = s.task_uuid
        FOR UPDATE SKIP LOCKED
    ) q
    WHERE (SELECT count(*) FROM hold) > 0 AND EXISTS (SELECT FROM hold h WHERE h.hold_uuid IS DISTINCT FROM q.released_by AND ` + inScope("q") + `)
),` + parkSteps + `SELECT task_uuid, step_uuid FROM gone`

// ParkHeldSteps parks the enqueued steps that a hold covers, and returns them.
func (db *DB) ParkHeldSteps(ctx context.Context, steps []tasker.StepRef) ([]tasker.StepRef, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	tasks, ids := refArrays(steps)
	held, err := collect[tasker.StepRef](ctx, db.pool, parkHeldSteps, tasks, ids)
	return held, wrap(err, "park held steps")
}

// Probing reports whether a probe of the hold has no outcome yet.
func (tx *Tx) Probing(ctx context.Context, hold tasker.ID) (bool, error) {
	v, err := value[bool](ctx, tx, `
		SELECT EXISTS (SELECT FROM tasker.hold_releases r WHERE r.hold_uuid = $1 AND r.outcome IS NULL AND r.wave = 0)`, hold)
	return v, wrap(err, "find a probe of hold %s", hold)
}
