package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// Conclusion moves a step to a new state. It applies only if the step is in state From with fence
// Fence and, for a report, if Worker holds the lease.
type Conclusion struct {
	TaskUUID   tasker.ID
	StepUUID   tasker.ID
	From       tasker.StepState
	Fence      int64
	Event      lifecycle.StepEvent
	To         tasker.StepState
	Body       json.RawMessage // StepResult or StepFailure; nil keeps the stored one
	ResultSize int             // size of the result as it is read back; 0 if unknown
	Retryable  bool            // for a failure; the retry policy of the step also applies
	RetryAfter int64           // for a failure: minimum delay in milliseconds
	Worker     *tasker.ID      // worker that must hold the lease; nil skips the check
	Digest     []byte          // identifies a repeated report
	Expired    bool            // apply only if the lease has expired
	RaiseFence bool            // revokes the lease
	Actor      string
	Reason     string
	KeepReport json.RawMessage // report to store for later; used with the event Keep
	Operation  *tasker.ID      // nil unless the step is an item of an operation
}

// attemptNotCounted is true if a failed attempt does not count, because it was a probe of an open
// hold or was in progress when a breaker opened.
const attemptNotCounted = `(EXISTS (
        SELECT FROM tasker.hold_releases r
        JOIN tasker.holds h ON h.hold_uuid = r.hold_uuid AND h.ended_at IS NULL
        WHERE r.task_uuid = u.task_uuid AND r.step_uuid = u.step_uuid AND r.outcome IS NULL
    ) OR (SELECT EXISTS (SELECT FROM tasker.holds b WHERE b.blocks)) AND EXISTS (
        SELECT FROM tasker.holds b
        JOIN tasker.workflow_steps x ON x.task_uuid = u.task_uuid AND x.step_uuid = u.step_uuid
        WHERE b.blocks AND b.kind = 'breaker' AND b.namespace = x.namespace AND b.handler = x.handler AND x.last_attempted_at < b.began_at
    ))`

// becomesReady is true if a child s can run once k.done more of its parents are done.
const becomesReady = `s.state = 'pending' AND s.step_type = 'standard' AND s.parents_open = k.done AND s.join_rule IS NULL`

// beginsToWait is true if such a child starts to wait for an answer or a time instead.
const beginsToWait = `s.state = 'pending' AND s.step_type <> 'standard' AND s.parents_open = k.done AND s.join_rule IS NULL`

// becomesDue is true if such a child must be decided: after its last parent or, if its join rule is
// any, after each one. A map step with items is due after the last of k.items. The row k may also
// report freed slots only.
const becomesDue = `s.join_rule IS NOT NULL AND s.state = 'pending' AND CASE WHEN s.items_total IS NOT NULL THEN s.parents_open = k.items
    ELSE s.decided_at IS NULL AND (s.parents_open = k.done OR s.join_rule = 'any') END`

// underWay selects the ordinal of an unfinished item of map step s. It searches 100 items, downward
// from the previous ordinal. The next report continues where it stopped, so each ended item is read
// once.
const underWay = `coalesce((
            SELECT i.item_ordinal
            FROM (
                SELECT x.item_ordinal, x.state, x.step_uuid
                FROM tasker.workflow_steps x
                WHERE x.task_uuid = s.task_uuid AND x.map_step_uuid = s.step_uuid AND x.item_ordinal <= coalesce(s.item_under_way, s.items_total)
                ORDER BY x.task_uuid, x.map_step_uuid, x.item_ordinal DESC
                LIMIT 100
            ) i
            WHERE i.state IN ('enqueued', 'in_progress') AND i.step_uuid NOT IN (SELECT u.step_uuid FROM conclusion u)
            LIMIT 1
        ), nullif(greatest(coalesce(s.item_under_way, s.items_total) - 100, -1), -1))`

// Resetting a step restarts its attempts. A failed step waits until step_retry_at or for the delay
// that its handler requested, whichever is later. A step whose last dependency is done is enqueued,
// which uses an attempt. A decision completes only if the reason of its conclusion names the chosen
// steps. Steps are locked in key order, as heartbeats do. The history records the pending moves of
// an attempt together with its end.
//
// $1 queue timeout, $2 announce steps, $3 report queues; then the conclusions.
var (
	concludeSteps     = concludeSQL(movedSteps+unqueued, toQueue)
	concludeSucceeded = concludeSQL(succeededSteps, toQueue)  // only reported successes
	concludeAndClaim  = concludeSQL(succeededSteps, toWorker) // for a worker that wants more steps
)

// previousState selects the required columns of the state that step u had before.
const previousState = `CASE WHEN u.to_state = 'pending' THEN (
        SELECT s.attempts FROM tasker.workflow_steps s WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    ) END AS ended_attempt, CASE WHEN u.from_state = 'enqueued' THEN (
        SELECT s.state_since FROM tasker.workflow_steps s WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    ) END AS queued_since, CASE WHEN u.from_state = 'error' THEN (
        SELECT ` + holdsPlace + ` FROM tasker.workflow_steps s WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    ) ELSE u.from_state <> 'pending' END AS had_place,
    CASE WHEN u.to_state = 'error' AND u.retryable AND (u.worker_uuid IS NOT NULL OR u.expired) THEN ` + attemptNotCounted + ` ELSE false END AS given_back`

// unqueued deletes the rows of moved steps from ready_steps.
const unqueued = `unqueued AS (
    DELETE FROM tasker.ready_steps r
    USING (SELECT m.namespace, m.handler, m.priority, m.queued_since AS state_since, m.step_uuid FROM moved m WHERE m.queued_since IS NOT NULL) s
    WHERE ` + readyKey + `
),
`

// concludeSQL returns a statement that moves steps. The target determines what happens to steps
// that become ready.
func concludeSQL(moved string, to claimTarget) string {
	return `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
` + moved + concludeFollowsSQL(to)
}

// movedSteps applies conclusions of all kinds.
var movedSteps = `conclusion AS MATERIALIZED (
    SELECT u.*, ` + previousState + `
    FROM ` + conclusionColumns.unnestSQL("u", 4) + `
    ORDER BY task_uuid, step_uuid
),
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = u.to_state, state_since = c.at, updated_at = c.at,
        fence = s.fence + CASE WHEN u.raise_fence THEN 1 ELSE 0 END,
        results = CASE WHEN u.to_state = 'complete' THEN u.body::jsonb ELSE s.results END,
        results_bytes = CASE WHEN u.to_state = 'complete' THEN nullif(u.result_size, 0) ELSE s.results_bytes END,
        error = CASE WHEN u.to_state = 'error' THEN u.body::jsonb || jsonb_build_object('attempt', s.attempts) ELSE s.error END,
        attempts = CASE WHEN u.to_state = 'pending' THEN 0 WHEN u.given_back AND s.retryable THEN s.attempts - 1 ELSE s.attempts END,
        kept_report = u.keep_report::jsonb,
        last_failure_at = CASE WHEN u.to_state = 'error' THEN c.at ELSE s.last_failure_at END,
        completed_at = CASE WHEN u.to_state IN ('complete', 'resolved_manually', 'skipped') THEN c.at END,
        decide_at = CASE WHEN u.to_state = 'pending' AND s.join_rule IS NOT NULL AND (s.decided_at IS NULL OR s.step_type = 'child') THEN c.at END,
        wait_until = CASE WHEN u.to_state = 'pending' AND (s.join_rule IS NULL OR s.decided_at IS NOT NULL) THEN ` + waitSQL("c.at") + ` END,
        remind_at = CASE WHEN u.to_state = 'pending' AND (s.join_rule IS NULL OR s.decided_at IS NOT NULL) THEN ` + reminderSQL("c.at") + ` END,
        reminders = CASE WHEN u.to_state = 'pending' THEN 0 ELSE s.reminders END,
        inputs_bytes = CASE WHEN s.join_rule = 'any' THEN NULL ELSE s.inputs_bytes END,
        skip_reason = CASE WHEN u.to_state = 'skipped' THEN u.reason END,
        attributes_at = CASE WHEN s.attributes_at IS NOT NULL AND u.to_state IN ('complete', 'resolved_manually', 'skipped') THEN c.at ELSE s.attributes_at END,
        next_retry_at = CASE
            WHEN u.to_state = 'error' AND u.retryable AND s.retryable AND (s.attempts < s.max_attempts OR u.given_back) THEN greatest(
                tasker.step_retry_at(c.at, s.attempts, s.backoff, s.backoff_base_ms, s.max_backoff_ms,
                    CASE WHEN s.backoff_jitter THEN random() ELSE 0 END),
                c.at + interval '1 millisecond' * u.retry_after_ms)
        END,
        lease_expires_at = NULL, timeout_at = NULL, expires_at = NULL, awaits_worker_since = NULL,
        queue_expiries = CASE WHEN u.to_state = 'pending' THEN 0 ELSE s.queue_expiries END,
        reported_fence = CASE WHEN u.digest IS NULL AND u.event NOT IN ('elapse', 'join_items') THEN s.reported_fence ELSE s.fence END,
        report_digest = CASE WHEN u.event = 'elapse' THEN NULL ELSE coalesce(u.digest, s.report_digest) END, unwritten = -greatest(s.unwritten, 0)
    FROM conclusion u
    CROSS JOIN clock c
    WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid AND s.state = u.from_state AND s.fence = u.fence
      AND (u.worker_uuid IS NULL OR s.worker_uuid = u.worker_uuid)
      AND (NOT u.expired OR s.lease_expires_at <= c.at)
      AND (s.is_decision IS NULL OR u.to_state <> 'complete' OR u.reason <> '')
    RETURNING s.task_uuid, s.step_uuid, s.state, s.state_since, s.child_uuids, s.attempts, s.worker_uuid,
        s.next_retry_at, s.error, s.unwritten, s.moves_id, s.enqueued_at, s.last_attempted_at, u.place, u.from_state, u.event, u.actor, u.reason, u.operation_uuid, u.queued_since,
        CASE WHEN u.given_back AND s.retryable THEN s.attempts + 1 ELSE u.ended_attempt END AS ended_attempt,
        s.namespace, s.handler, s.priority, s.map_step_uuid, s.map_step_uuid IS NOT NULL AND u.had_place AND s.state <> 'pending' AND NOT ` + holdsPlace + ` AS gives_place,
        CASE WHEN s.state = 'complete' THEN s.results_bytes ELSE 0 END AS result_size
),
`

// succeededSteps is a faster variant of movedSteps for reported successes, which are most
// conclusions.
var succeededSteps = `conclusion AS MATERIALIZED (
    SELECT u.*
    FROM ` + succeededColumns.unnestSQL("u", 4) + `
    ORDER BY task_uuid, step_uuid
),
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = 'complete', state_since = c.at, updated_at = c.at, completed_at = c.at,
        results = u.body::jsonb, results_bytes = nullif(u.result_size, 0),
        inputs_bytes = CASE WHEN s.join_rule = 'any' THEN NULL ELSE s.inputs_bytes END,
        attributes_at = CASE WHEN s.attributes_at IS NOT NULL THEN c.at END,
        decide_at = NULL, wait_until = NULL, remind_at = NULL, skip_reason = NULL, lease_expires_at = NULL, timeout_at = NULL,
        reported_fence = s.fence, report_digest = u.digest, unwritten = -greatest(s.unwritten, 0)
    FROM conclusion u
    CROSS JOIN clock c
    WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid AND s.state = 'in_progress' AND s.fence = u.fence
      AND s.worker_uuid = u.worker_uuid AND (s.is_decision IS NULL OR u.reason <> '')
    RETURNING s.task_uuid, s.step_uuid, s.state, s.state_since, s.child_uuids, s.attempts, s.worker_uuid,
        NULL::timestamptz AS next_retry_at, NULL::jsonb AS error, s.unwritten, s.moves_id, s.enqueued_at, s.last_attempted_at, u.place,
        'in_progress' AS from_state, 'succeed' AS event, '' AS actor, u.reason, NULL::uuid AS operation_uuid, NULL::int AS ended_attempt, NULL::timestamptz AS queued_since,
        s.namespace, s.handler, s.priority, s.map_step_uuid, s.map_step_uuid IS NOT NULL AS gives_place, s.results_bytes AS result_size
),
`

// concludeFollowsSQL records the history and updates the dependent steps. The statement
// promoteItems does the latter in the same way.
func concludeFollowsSQL(to claimTarget) string {
	return concludedLog + to.parts + promotedItems + unblockDependentsSQL(to) + concludedResultSQL(to)
}

// movesBefore selects moves_id, enqueued_at and claimed_at of the pending moves of step m.
const movesBefore = `CASE WHEN m.unwritten < 0 THEN m.moves_id END,
        CASE WHEN m.unwritten IN (-1, -3) THEN coalesce(m.queued_since, m.enqueued_at) END,
        CASE WHEN m.unwritten IN (-2, -3) THEN m.last_attempted_at END`

// concludedLog records the history and finds the children of the moved steps.
const concludedLog = `log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, created_at,
        moves_id, enqueued_at, claimed_at, operation_uuid)
    SELECT m.task_uuid, m.step_uuid, m.from_state, m.state, m.event, coalesce(m.ended_attempt, m.attempts), m.worker_uuid,
        nullif(m.actor, ''), nullif(m.reason, ''), CASE WHEN m.state = 'error' THEN m.error END, m.state_since,
        ` + movesBefore + `, m.operation_uuid
    FROM moved m
    ORDER BY m.task_uuid, m.step_uuid
    RETURNING step_uuid
),
child AS (
    SELECT m.task_uuid, k.step_uuid, count(*) FILTER (WHERE m.ends) AS done, count(m.map_step_uuid) FILTER (WHERE m.ends) AS items,
        CASE WHEN count(*) = count(m.result_size) THEN sum(m.result_size) END AS bytes, count(*) FILTER (WHERE m.gives_place) AS places
    FROM (SELECT *, state IN ('complete', 'resolved_manually', 'skipped') AS ends FROM moved) m
    CROSS JOIN LATERAL unnest(m.child_uuids) AS k (step_uuid)
    WHERE m.ends OR m.gives_place
    GROUP BY m.task_uuid, k.step_uuid
),
`

// promotedItems assigns freed slots to waiting items of map steps.
var promotedItems = `picked AS MATERIALIZED (
    SELECT m.task_uuid, m.step_uuid AS map_uuid, i.step_uuid, i.item_ordinal
    FROM child k
    JOIN tasker.workflow_steps m ON m.task_uuid = k.task_uuid AND m.step_uuid = k.step_uuid
    CROSS JOIN LATERAL (
        SELECT x.step_uuid, x.item_ordinal
        FROM tasker.workflow_steps x
        WHERE x.task_uuid = m.task_uuid AND x.map_step_uuid = m.step_uuid AND x.item_ordinal >= m.item_next AND x.state = 'pending'
          AND x.step_uuid NOT IN (SELECT u.step_uuid FROM conclusion u)
        ORDER BY x.task_uuid, x.map_step_uuid, x.item_ordinal
        LIMIT greatest(m.items_free + k.places, 0)
    ) i
    WHERE k.places > 0 AND m.items_limit IS NOT NULL AND m.state = 'pending'
),
promoted AS (
    UPDATE tasker.workflow_steps s
    SET state = 'enqueued', state_since = c.at, updated_at = c.at, attempts = s.attempts + 1,
        expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $1::bigint), unwritten = 1, moves_id = ` + nextMoves + `
    FROM picked p
    CROSS JOIN clock c
    WHERE s.task_uuid = p.task_uuid AND s.step_uuid = p.step_uuid
      AND (SELECT count(*) FROM log) > 0
    RETURNING ` + returnReady + `
),
`

// unblockDependentsSQL updates the children of the moved steps.
func unblockDependentsSQL(to claimTarget) string {
	return `freed AS (
    UPDATE tasker.workflow_steps s
    SET parents_open = s.parents_open - CASE WHEN s.items_total IS NULL THEN k.done ELSE k.items END, inputs_bytes = s.inputs_bytes + k.bytes,
        state = CASE ` + to.workerSQL("'in_progress'") + `WHEN ` + becomesReady + ` THEN 'enqueued' ELSE s.state END,
        state_since = CASE WHEN ` + becomesReady + ` THEN c.at ELSE s.state_since END,
        attempts = s.attempts + CASE WHEN ` + becomesReady + ` THEN 1 ELSE 0 END,
        expires_at = CASE
            ` + to.workerSQL("NULL") + `WHEN ` + becomesReady + `
            THEN c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $1)
            ELSE s.expires_at
        END,
        unwritten = CASE ` + to.workerSQL("3") + `WHEN ` + becomesReady + ` THEN 1 ELSE s.unwritten END,
        moves_id = CASE WHEN ` + becomesReady + ` THEN ` + nextMoves + ` ELSE s.moves_id END,
        wait_until = CASE WHEN ` + beginsToWait + ` THEN ` + waitSQL("c.at") + ` ELSE s.wait_until END,
        remind_at = CASE WHEN ` + beginsToWait + ` THEN ` + reminderSQL("c.at") + ` ELSE s.remind_at END,
        decide_at = CASE WHEN ` + becomesDue + ` THEN c.at ELSE s.decide_at END,
        item_under_way = CASE WHEN s.items_total IS NOT NULL THEN coalesce((SELECT max(p.item_ordinal) FROM picked p WHERE p.map_uuid = s.step_uuid), ` + underWay + `) END,
        items_free = CASE WHEN s.items_limit IS NOT NULL AND k.places > 0
            THEN s.items_free + k.places - (SELECT count(*) FROM picked p WHERE p.map_uuid = s.step_uuid) ELSE s.items_free END,
        item_next = CASE WHEN s.items_limit IS NOT NULL AND k.places > 0
            THEN coalesce((SELECT max(p.item_ordinal) + 1 FROM picked p WHERE p.map_uuid = s.step_uuid), s.items_total) ELSE s.item_next END,
        ` + to.setSQL() + `updated_at = c.at
    FROM ` + to.children + ` k
    CROSS JOIN clock c
    WHERE s.task_uuid = k.task_uuid AND s.step_uuid = k.step_uuid
      AND (SELECT count(*) FROM log) > 0 -- runs the log first, so that the history is in order
    RETURNING ` + returnReady + `,
        s.attempts, s.state = 'enqueued' AND s.state_since = c.at AS enqueued, s.decide_at IS NOT NULL AS due, s.state = 'in_progress' AND s.state_since = c.at AS direct
),
`
}

// concludedResultSQL enqueues the steps that became ready and selects the result.
func concludedResultSQL(to claimTarget) string {
	return `begins AS (
    SELECT ` + readyColumns + ` FROM freed WHERE enqueued
    UNION ALL
    SELECT ` + readyColumns + ` FROM promoted
),
` + readySQL("begins") + `,
` + announcedSQL("begins WHERE $2") + `
SELECT
    coalesce((SELECT array_agg(place ORDER BY place) FROM moved), '{}') AS moved,
    coalesce((SELECT array_agg(place ORDER BY place) FROM moved WHERE state = 'error' AND next_retry_at IS NULL), '{}') AS failed_for_good,
    coalesce((SELECT array_agg(step_uuid) FROM begins), '{}') AS enqueued,
    coalesce((SELECT array_agg(DISTINCT namespace) FROM begins), '{}') AS namespaces,
    (SELECT json_agg(json_build_object('task_uuid', task_uuid, 'step_uuid', step_uuid)) FROM freed WHERE due) AS to_decide,
    CASE WHEN $3 THEN (SELECT json_agg(json_build_object('n', namespace, 'h', handler) ORDER BY place) FROM moved) END AS queues
FROM set_config('` + freedTasks + `', (SELECT string_agg(DISTINCT task_uuid::text, ',') FROM ` + to.freed + `), true) AS freed_tasks,
    set_config('` + endedItemsOf + `', (SELECT string_agg(DISTINCT map_step_uuid::text, ',') FROM moved WHERE map_step_uuid IS NOT NULL), true) AS ended_items_of` + to.settings
}

// Queue identifies the queue of a step in JSON.
type Queue struct {
	Namespace string `json:"n"`
	Handler   string `json:"h"`
}

// Concluded is the result of [Tx.ConcludeSteps]. Its integers are indexes of conclusions.
type Concluded struct {
	Moved         []int
	FailedForGood []int            // moved to error and not retried
	Enqueued      []tasker.ID      // steps that became ready and were enqueued
	Namespaces    []string         // namespaces of the enqueued steps
	ToDecide      []tasker.StepRef // steps that must be decided now
	Queues        []Queue          // queues of the moved steps, in order; nil unless Options.ReportQueues is set
}

// ConcludeSteps applies those conclusions that match and enqueues the steps that become ready. The
// caller must hold the task locks and settle the tasks afterwards.
func (tx *Tx) ConcludeSteps(ctx context.Context, list []Conclusion) (Concluded, error) {
	var queued, human []tasker.StepRef
	for _, c := range list {
		ref := tasker.StepRef{TaskUUID: c.TaskUUID, StepUUID: c.StepUUID}
		if c.From == tasker.StepPending || c.To == tasker.StepPending {
			human = append(human, ref)
		}
		if c.From == tasker.StepEnqueued {
			queued = append(queued, ref)
		}
	}
	if len(queued) > 0 {
		if err := tx.LockEnqueued(ctx, queued); err != nil {
			return Concluded{}, err
		}
		if err := tx.deleteHeldSteps(ctx, queued); err != nil {
			return Concluded{}, err
		}
	}
	rows, err := collect[Concluded](ctx, tx, concludeSteps, newConclusionArgs(list, tx.queue)...)
	if err != nil {
		return Concluded{}, fmt.Errorf("conclude steps: %w", err)
	}
	if len(human) > 0 {
		if err := tx.followHumanSteps(ctx, human); err != nil {
			return Concluded{}, err
		}
	}
	return rows[0], nil
}

// PendingReport is an accepted report that could not be applied yet.
type PendingReport struct {
	TaskUUID tasker.ID
	StepUUID tasker.ID
	Fence    int64
	Report   []byte
}

// PendingReports returns the pending reports of the steps.
func (db *DB) PendingReports(ctx context.Context, of []tasker.StepRef) ([]PendingReport, error) {
	return readPendingReports(ctx, db.pool, of)
}

// PendingReports is [DB.PendingReports] within the transaction.
func (tx *Tx) PendingReports(ctx context.Context, of []tasker.StepRef) ([]PendingReport, error) {
	return readPendingReports(ctx, tx, of)
}

func readPendingReports(ctx context.Context, q querier, of []tasker.StepRef) ([]PendingReport, error) {
	tasks, steps := toRefArrays(of)
	rows, err := collect[PendingReport](ctx, q, statement("pendingReports"), tasks, steps)
	return rows, wrapError(err, "read pending reports")
}

// placedConclusion is a conclusion with its index in the list.
type placedConclusion struct {
	place int
	*Conclusion
}

var conclusionColumns = columns[placedConclusion]{
	newColumn("place int", func(c *placedConclusion) int32 { return int32(c.place) }),
	newColumn("task_uuid uuid", func(c *placedConclusion) tasker.ID { return c.TaskUUID }),
	newColumn("step_uuid uuid", func(c *placedConclusion) tasker.ID { return c.StepUUID }),
	newColumn("from_state text", func(c *placedConclusion) string { return string(c.From) }),
	newColumn("fence bigint", func(c *placedConclusion) int64 { return c.Fence }),
	newColumn("event text", func(c *placedConclusion) string { return string(c.Event) }),
	newColumn("to_state text", func(c *placedConclusion) string { return string(c.To) }),
	newColumn("body text", func(c *placedConclusion) *string { return nilIfEmptyDoc(c.Body) }),
	newColumn("result_size int", func(c *placedConclusion) int32 { return int32(c.ResultSize) }),
	newColumn("retryable bool", func(c *placedConclusion) bool { return c.Retryable }),
	newColumn("retry_after_ms bigint", func(c *placedConclusion) int64 { return c.RetryAfter }),
	newColumn("worker_uuid uuid", func(c *placedConclusion) pgtype.UUID { return toNullableUUID(c.Worker) }),
	newColumn("digest bytea", func(c *placedConclusion) []byte { return c.Digest }),
	newColumn("expired bool", func(c *placedConclusion) bool { return c.Expired }),
	newColumn("raise_fence bool", func(c *placedConclusion) bool { return c.RaiseFence }),
	newColumn("actor text", func(c *placedConclusion) string { return c.Actor }),
	newColumn("reason text", func(c *placedConclusion) string { return c.Reason }),
	newColumn("keep_report text", func(c *placedConclusion) *string { return nilIfEmptyDoc(c.KeepReport) }),
	newColumn("operation_uuid uuid", func(c *placedConclusion) pgtype.UUID { return toNullableUUID(c.Operation) }),
}

// areReportedSuccesses reports whether succeededSteps can apply the conclusions.
func areReportedSuccesses(list []Conclusion) bool {
	return !slices.ContainsFunc(list, func(c Conclusion) bool { return !c.isReportedSuccess() })
}

func (c *Conclusion) isReportedSuccess() bool {
	return c.From == tasker.StepInProgress && c.Event == lifecycle.Succeed && c.To == tasker.StepComplete && c.Worker != nil && c.Digest != nil &&
		c.Actor == "" && c.Operation == nil && c.KeepReport == nil && !c.Expired && !c.RaiseFence
}

var succeededColumns = conclusionColumns.pick("place", "task_uuid", "step_uuid", "fence", "body", "result_size", "worker_uuid", "digest", "reason")

// toNullableUUID converts an optional id to a parameter. pgx would send a pointer as text.
func toNullableUUID(id *tasker.ID) pgtype.UUID {
	if id == nil {
		return pgtype.UUID{}
	}
	return pgtype.UUID{Bytes: *id, Valid: true}
}

func newConclusionArgs(list []Conclusion, q queue) []any {
	return q.concludeArgs(conclusionColumns, list)
}

func newSuccessArgs(list []Conclusion, q queue) []any { return q.concludeArgs(succeededColumns, list) }

func (q queue) concludeArgs(c columns[placedConclusion], list []Conclusion) []any {
	placed := make([]placedConclusion, len(list))
	for i := range list {
		placed[i] = placedConclusion{i, &list[i]}
	}
	return append([]any{q.ttlMS, q.announce, q.report}, c.toArrays(placed)...)
}

// TaskIDs returns the distinct tasks of conclusions.
func TaskIDs(list []Conclusion) []tasker.ID {
	return uniqueTasks(collectValues(list, func(c *Conclusion) tasker.ID { return c.TaskUUID }))
}

func nilIfEmptyDoc(doc json.RawMessage) *string { return nilIfEmpty(string(doc)) }
