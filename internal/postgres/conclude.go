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

// A Conclusion moves a step to a new state. It applies only in state From under Fence, and for a
// report only if Worker holds the step.
type Conclusion struct {
	TaskUUID   tasker.ID
	StepUUID   tasker.ID
	From       tasker.StepState
	Fence      int64
	Event      lifecycle.StepEvent
	To         tasker.StepState
	Body       json.RawMessage // a StepResult or a StepFailure; nil leaves what is there
	ResultSize int             // of the result in Body, as it is read back; 0 when it is not known
	Retryable  bool            // of a failure: the step's own policy may still say no
	RetryAfter int64           // of a failure, in ms: the least rest
	Worker     *tasker.ID      // who must hold the step; nil means that it does not matter
	Digest     []byte          // of a report, to know it again
	Expired    bool            // only if its lease has run out
	RaiseFence bool            // whoever held the step holds it no more
	Actor      string
	Reason     string
	KeepReport json.RawMessage // of the event keep
	Operation  *tasker.ID      // that the action of an operator is an item of
}

// attemptNotCounted is true of a failed attempt that does not count: of a probe of an open hold, or in
// progress when a breaker opened.
const attemptNotCounted = `(EXISTS (
        SELECT FROM tasker.hold_releases r
        JOIN tasker.holds h ON h.hold_uuid = r.hold_uuid AND h.ended_at IS NULL
        WHERE r.task_uuid = u.task_uuid AND r.step_uuid = u.step_uuid AND r.outcome IS NULL
    ) OR (SELECT EXISTS (SELECT FROM tasker.holds b WHERE b.blocks)) AND EXISTS (
        SELECT FROM tasker.holds b
        JOIN tasker.workflow_steps x ON x.task_uuid = u.task_uuid AND x.step_uuid = u.step_uuid
        WHERE b.blocks AND b.kind = 'breaker' AND b.namespace = x.namespace AND b.handler = x.handler AND x.last_attempted_at < b.began_at
    ))`

// becomesReady is true of a child s that waits for nothing after k.done parents are done.
const becomesReady = `s.state = 'pending' AND s.step_type = 'standard' AND s.parents_open = k.done AND s.join_rule IS NULL`

// beginsToWait is true of such a child if it waits for an answer or an instant from now on.
const beginsToWait = `s.state = 'pending' AND s.step_type <> 'standard' AND s.parents_open = k.done AND s.join_rule IS NULL`

// becomesDue is true of such a child if it must be decided now: with its last parent, or with each
// parent where one is enough. A map step with items is due with the last of k.items; k may also
// only report freed places.
const becomesDue = `s.join_rule IS NOT NULL AND s.state = 'pending' AND CASE WHEN s.items_total IS NOT NULL THEN s.parents_open = k.items
    ELSE s.decided_at IS NULL AND (s.parents_open = k.done OR s.join_rule = 'any') END`

// underWay is the ordinal of an unfinished item of map step s. It searches 100 items downwards
// from the previous one; the next report continues from there, so each ended item is passed once.
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

// A reset step restarts its attempts. A failed step waits until step_retry_at or the delay of its
// handler, whichever is later. A step whose last dependency is settled is enqueued at once, which
// uses an attempt. A decision completes only if its conclusion names the chosen steps as reason.
// Steps are locked in key order, like heartbeats do. The history records pending moves of the
// attempt together with its end.
//
// $1 the worker queue TTL, $2 whether steps are announced, $3 whether the queues are reported;
// then the conclusions.
var (
	concludeSteps     = conclude(movedSteps+unqueued, toQueue)
	concludeSucceeded = conclude(succeededSteps, toQueue)  // of reported successes only: see succeededColumns
	concludeAndClaim  = conclude(succeededSteps, toWorker) // the same, of a worker that wants more
)

// stood is what a conclusion needs to know of its step u as it stood before.
const stood = `CASE WHEN u.to_state = 'pending' THEN (
        SELECT s.attempts FROM tasker.workflow_steps s WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    ) END AS ended_attempt, CASE WHEN u.from_state = 'enqueued' THEN (
        SELECT s.state_since FROM tasker.workflow_steps s WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    ) END AS queued_since, CASE WHEN u.from_state = 'error' THEN (
        SELECT ` + holdsPlace + ` FROM tasker.workflow_steps s WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    ) ELSE u.from_state <> 'pending' END AS had_place,
    CASE WHEN u.to_state = 'error' AND u.retryable AND (u.worker_uuid IS NOT NULL OR u.expired) THEN ` + attemptNotCounted + ` ELSE false END AS given_back`

// unqueued deletes the rows of those that were enqueued.
const unqueued = `unqueued AS (
    DELETE FROM tasker.ready_steps r
    USING (SELECT m.namespace, m.handler, m.priority, m.queued_since AS state_since, m.step_uuid FROM moved m WHERE m.queued_since IS NOT NULL) s
    WHERE ` + readyKey + `
),
`

// conclude returns the statement that moves steps in one way, with where those go that become ready.
func conclude(moved string, to claimTarget) string {
	return `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
` + moved + concludeFollows(to)
}

// movedSteps moves steps in any way.
var movedSteps = `conclusion AS MATERIALIZED (
    SELECT u.*, ` + stood + `
    FROM ` + conclusionColumns.unnest("u", 4) + `
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
        wait_until = CASE WHEN u.to_state = 'pending' AND (s.join_rule IS NULL OR s.decided_at IS NOT NULL) THEN ` + waitOf("c.at") + ` END,
        remind_at = CASE WHEN u.to_state = 'pending' AND (s.join_rule IS NULL OR s.decided_at IS NOT NULL) THEN ` + remindOf("c.at") + ` END,
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

// succeededSteps is movedSteps for reported successes, which are most conclusions: it is faster.
var succeededSteps = `conclusion AS MATERIALIZED (
    SELECT u.*
    FROM ` + succeededColumns.unnest("u", 4) + `
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

// concludeFollows writes the history and moves dependent steps. PromoteItems follows it.
func concludeFollows(to claimTarget) string {
	return concludedLog + to.parts + promotedItems + unblockDependents(to) + concludedAnswer(to)
}

// movesBefore are the pending history moves of the attempt of a moved step m: moves_id, enqueued_at
// and claimed_at.
const movesBefore = `CASE WHEN m.unwritten < 0 THEN m.moves_id END,
        CASE WHEN m.unwritten IN (-1, -3) THEN coalesce(m.queued_since, m.enqueued_at) END,
        CASE WHEN m.unwritten IN (-2, -3) THEN m.last_attempted_at END`

// concludedLog writes the history, and finds the children.
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

// promotedItems gives the places of items to those that wait for one.
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

// unblockDependents moves the children.
func unblockDependents(to claimTarget) string {
	return `freed AS (
    UPDATE tasker.workflow_steps s
    SET parents_open = s.parents_open - CASE WHEN s.items_total IS NULL THEN k.done ELSE k.items END, inputs_bytes = s.inputs_bytes + k.bytes,
        state = CASE ` + to.worker("'in_progress'") + `WHEN ` + becomesReady + ` THEN 'enqueued' ELSE s.state END,
        state_since = CASE WHEN ` + becomesReady + ` THEN c.at ELSE s.state_since END,
        attempts = s.attempts + CASE WHEN ` + becomesReady + ` THEN 1 ELSE 0 END,
        expires_at = CASE
            ` + to.worker("NULL") + `WHEN ` + becomesReady + `
            THEN c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $1)
            ELSE s.expires_at
        END,
        unwritten = CASE ` + to.worker("3") + `WHEN ` + becomesReady + ` THEN 1 ELSE s.unwritten END,
        moves_id = CASE WHEN ` + becomesReady + ` THEN ` + nextMoves + ` ELSE s.moves_id END,
        wait_until = CASE WHEN ` + beginsToWait + ` THEN ` + waitOf("c.at") + ` ELSE s.wait_until END,
        remind_at = CASE WHEN ` + beginsToWait + ` THEN ` + remindOf("c.at") + ` ELSE s.remind_at END,
        decide_at = CASE WHEN ` + becomesDue + ` THEN c.at ELSE s.decide_at END,
        item_under_way = CASE WHEN s.items_total IS NOT NULL THEN coalesce((SELECT max(p.item_ordinal) FROM picked p WHERE p.map_uuid = s.step_uuid), ` + underWay + `) END,
        items_free = CASE WHEN s.items_limit IS NOT NULL AND k.places > 0
            THEN s.items_free + k.places - (SELECT count(*) FROM picked p WHERE p.map_uuid = s.step_uuid) ELSE s.items_free END,
        item_next = CASE WHEN s.items_limit IS NOT NULL AND k.places > 0
            THEN coalesce((SELECT max(p.item_ordinal) + 1 FROM picked p WHERE p.map_uuid = s.step_uuid), s.items_total) ELSE s.item_next END,
        ` + to.sets() + `updated_at = c.at
    FROM ` + to.children + ` k
    CROSS JOIN clock c
    WHERE s.task_uuid = k.task_uuid AND s.step_uuid = k.step_uuid
      AND (SELECT count(*) FROM log) > 0 -- first: the history has what freed a step before its enqueue
    RETURNING ` + returnReady + `,
        s.attempts, s.state = 'enqueued' AND s.state_since = c.at AS enqueued, s.decide_at IS NOT NULL AS due, s.state = 'in_progress' AND s.state_since = c.at AS direct
),
`
}

// concludedAnswer has what became ready enqueued, and says what was moved.
func concludedAnswer(to claimTarget) string {
	return `begins AS (
    SELECT ` + readyColumns + ` FROM freed WHERE enqueued
    UNION ALL
    SELECT ` + readyColumns + ` FROM promoted
),
` + ready("begins") + `,
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT f.task_uuid, f.step_uuid, f.namespace FROM begins f WHERE $2 ORDER BY f.task_uuid, f.step_uuid
)
SELECT
    coalesce((SELECT array_agg(place ORDER BY place) FROM moved), '{}') AS moved,
    coalesce((SELECT array_agg(place ORDER BY place) FROM moved WHERE state = 'error' AND next_retry_at IS NULL), '{}') AS failed_for_good,
    coalesce((SELECT array_agg(step_uuid) FROM begins), '{}') AS enqueued,
    coalesce((SELECT array_agg(DISTINCT namespace) FROM begins), '{}') AS namespaces,
    (SELECT json_agg(json_build_object('TaskUUID', task_uuid, 'StepUUID', step_uuid)) FROM freed WHERE due) AS to_decide,
    CASE WHEN $3 THEN (SELECT json_agg(json_build_object('n', namespace, 'h', handler) ORDER BY place) FROM moved) END AS queues
FROM set_config('` + freedTasks + `', (SELECT string_agg(DISTINCT task_uuid::text, ',') FROM ` + to.freed + `), true) AS freed_tasks,
    set_config('` + endedItemsOf + `', (SELECT string_agg(DISTINCT map_step_uuid::text, ',') FROM moved WHERE map_step_uuid IS NOT NULL), true) AS ended_items_of` + to.settings
}

// A Queue is where a step waited for a worker.
type Queue struct {
	Namespace string `json:"n"`
	Handler   string `json:"h"`
}

// Concluded says what became of the conclusions, by their index.
type Concluded struct {
	Moved         []int
	FailedForGood []int            // of those moved: failed, and no attempt is left
	Enqueued      []tasker.ID      // steps that became ready by it
	Namespaces    []string         // of those
	ToDecide      []tasker.StepRef // steps that are due to be decided by it
	Queues        []Queue          // of those moved, in their order; nil unless Options.ReportQueues is set
}

// ConcludeSteps applies the conclusions that still match, and enqueues what becomes ready. The
// caller holds the task locks and settles the tasks afterwards.
func (tx *Tx) ConcludeSteps(ctx context.Context, list []Conclusion) (Concluded, error) {
	var queued, asked []tasker.StepRef
	for _, c := range list {
		if c.From == tasker.StepPending || c.To == tasker.StepPending { // no worker reports those
			asked = append(asked, tasker.StepRef{TaskUUID: c.TaskUUID, StepUUID: c.StepUUID})
		}
		if c.From == tasker.StepEnqueued {
			queued = append(queued, tasker.StepRef{TaskUUID: c.TaskUUID, StepUUID: c.StepUUID})
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
	rows, err := collect[Concluded](ctx, tx, concludeSteps, conclusionArgs(list, tx.queue)...)
	if err != nil {
		return Concluded{}, fmt.Errorf("conclude steps: %w", err)
	}
	if len(asked) > 0 {
		if err := tx.followHumanSteps(ctx, asked); err != nil {
			return Concluded{}, err
		}
	}
	return rows[0], nil
}

// A PendingReport is a report that was accepted and whose follow-up failed.
type PendingReport struct {
	TaskUUID tasker.ID
	StepUUID tasker.ID
	Fence    int64
	Report   []byte
}

// The state comparison keeps the planner from reading all kept reports.
const keptReports = `
SELECT s.task_uuid, s.step_uuid, s.fence, s.kept_report AS report
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
WHERE s.state || '' = 'enqueued_for_orchestration'`

// KeptReports returns the kept reports of those of the steps that have one.
func (db *DB) KeptReports(ctx context.Context, of []tasker.StepRef) ([]PendingReport, error) {
	return readKept(ctx, db.pool, of)
}

// KeptReports is [DB.KeptReports] in a transaction.
func (tx *Tx) KeptReports(ctx context.Context, of []tasker.StepRef) ([]PendingReport, error) {
	return readKept(ctx, tx, of)
}

func readKept(ctx context.Context, q querier, of []tasker.StepRef) ([]PendingReport, error) {
	tasks, steps := refArrays(of)
	rows, err := collect[PendingReport](ctx, q, keptReports, tasks, steps)
	return rows, wrap(err, "find kept reports")
}

// A placedConclusion is a conclusion with its place in the list.
type placedConclusion struct {
	place int
	*Conclusion
}

// conclusionColumns are a conclusion as concludeSteps takes it.
var conclusionColumns = columns[placedConclusion]{
	col("place int", func(c *placedConclusion) int32 { return int32(c.place) }),
	col("task_uuid uuid", func(c *placedConclusion) tasker.ID { return c.TaskUUID }),
	col("step_uuid uuid", func(c *placedConclusion) tasker.ID { return c.StepUUID }),
	col("from_state text", func(c *placedConclusion) string { return string(c.From) }),
	col("fence bigint", func(c *placedConclusion) int64 { return c.Fence }),
	col("event text", func(c *placedConclusion) string { return string(c.Event) }),
	col("to_state text", func(c *placedConclusion) string { return string(c.To) }),
	col("body text", func(c *placedConclusion) *string { return docOrNil(c.Body) }),
	col("result_size int", func(c *placedConclusion) int32 { return int32(c.ResultSize) }),
	col("retryable bool", func(c *placedConclusion) bool { return c.Retryable }),
	col("retry_after_ms bigint", func(c *placedConclusion) int64 { return c.RetryAfter }),
	col("worker_uuid uuid", func(c *placedConclusion) pgtype.UUID { return nullable(c.Worker) }),
	col("digest bytea", func(c *placedConclusion) []byte { return c.Digest }),
	col("expired bool", func(c *placedConclusion) bool { return c.Expired }),
	col("raise_fence bool", func(c *placedConclusion) bool { return c.RaiseFence }),
	col("actor text", func(c *placedConclusion) string { return c.Actor }),
	col("reason text", func(c *placedConclusion) string { return c.Reason }),
	col("keep_report text", func(c *placedConclusion) *string { return docOrNil(c.KeepReport) }),
	col("operation_uuid uuid", func(c *placedConclusion) pgtype.UUID { return nullable(c.Operation) }),
}

// areReportedSuccesses is true of what succeededSteps concludes.
func areReportedSuccesses(list []Conclusion) bool {
	return !slices.ContainsFunc(list, func(c Conclusion) bool { return !c.isReportedSuccess() })
}

func (c *Conclusion) isReportedSuccess() bool {
	return c.From == tasker.StepInProgress && c.Event == lifecycle.Succeed && c.To == tasker.StepComplete && c.Worker != nil && c.Digest != nil &&
		c.Actor == "" && c.Operation == nil && c.KeepReport == nil && !c.Expired && !c.RaiseFence
}

// succeededColumns are a reported success as succeededSteps takes it.
var succeededColumns = conclusionColumns.only("place", "task_uuid", "step_uuid", "fence", "body", "result_size", "worker_uuid", "digest", "reason")

// nullable returns an optional id as a parameter; a pointer would be sent as text.
func nullable(id *tasker.ID) pgtype.UUID {
	if id == nil {
		return pgtype.UUID{}
	}
	return pgtype.UUID{Bytes: *id, Valid: true}
}

func conclusionArgs(list []Conclusion, q queue) []any { return q.conclude(conclusionColumns, list) }

func succeededArgs(list []Conclusion, q queue) []any { return q.conclude(succeededColumns, list) }

func (q queue) conclude(c columns[placedConclusion], list []Conclusion) []any {
	placed := make([]placedConclusion, len(list))
	for i := range list {
		placed[i] = placedConclusion{i, &list[i]}
	}
	return append([]any{q.ttlMS, q.announce, q.report}, c.arrays(placed)...)
}

// TasksOf returns the tasks that conclusions are about, each once.
func TasksOf(list []Conclusion) []tasker.ID {
	tasks := make([]tasker.ID, len(list))
	for i, c := range list {
		tasks[i] = c.TaskUUID
	}
	return tasksOnce(tasks)
}

func docOrNil(doc json.RawMessage) *string {
	if len(doc) == 0 {
		return nil
	}
	s := string(doc)
	return &s
}
