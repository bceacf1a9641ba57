package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tasker.example/tasker"
)

// Limits of assignments, as SQL.
var (
	maxInputBytes  = strconv.Itoa(tasker.MaxInputBytes)
	maxInlineBytes = strconv.Itoa(tasker.MaxInlineInputBytes)
	maxStepBytes   = strconv.Itoa(maxStepSize)
)

// maxStepSize is the maximum size of an assignment in bytes: context, item and inline results.
const maxStepSize = 2*tasker.MaxDocumentBytes + tasker.MaxInlineInputBytes

// leaseStepsSQL leases the most urgent locked steps to worker $4 for the duration $5. Their inputs
// have at most $7 bytes, but the first step always fits. A lease never lasts longer than the
// timeout of the attempt.
//
// The results of parents are inline up to [tasker.MaxInlineInputBytes] per step, in template order;
// the others are references. An item of a map step gets the context and results without the list
// (see map_inputs).
//
// Outdated rows of ready_steps are deleted. Picked rows are passed through arrays, because the
// planner then estimates that there are few. The argument more adds parts to the statement.
func leaseStepsSQL(more string, _ bool) string {
	return `
picked AS (
    SELECT l.*
    FROM (
        SELECT ready_row, state_since, task_uuid, step_uuid, b.bytes, sum(b.bytes) OVER (ORDER BY priority DESC, state_since, step_uuid ROWS UNBOUNDED PRECEDING) AS upto
        FROM locked
        CROSS JOIN LATERAL (SELECT least(inputs_bytes, ` + maxStepBytes + `)::int AS bytes) b
        WHERE inputs_bytes <= ` + maxInputBytes + `
    ) l
    WHERE l.upto <= $7::bigint
),
taken AS (
    DELETE FROM tasker.ready_steps r
    USING picked p
    WHERE r.ctid = p.ready_row
),
claimed AS (
    UPDATE tasker.workflow_steps s
    SET state = 'in_progress', state_since = c.at, updated_at = c.at, last_attempted_at = c.at,
        fence = s.fence + 1, worker_uuid = $4, expires_at = NULL, queue_expiries = 0,
        unwritten = CASE WHEN s.unwritten = 1 THEN 3 ELSE 2 END,
        moves_id = CASE WHEN s.unwritten = 1 THEN s.moves_id ELSE ` + nextMoves + ` END,
        enqueued_at = CASE WHEN s.unwritten = 1 THEN s.state_since END,
        timeout_at = c.at + interval '1 millisecond' * s.timeout_ms,
        lease_expires_at = least(c.at + $5::interval, c.at + interval '1 millisecond' * s.timeout_ms)
    FROM (SELECT array_agg(task_uuid) AS tasks, array_agg(step_uuid) AS steps, array_agg(state_since) AS since, array_agg(bytes) AS sizes FROM picked) a
    CROSS JOIN LATERAL unnest(a.tasks, a.steps, a.since, a.sizes) AS p (task_uuid, step_uuid, state_since, bytes)
    CROSS JOIN clock c
    WHERE s.task_uuid = p.task_uuid AND s.step_uuid = p.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = p.state_since
    RETURNING ` + claimedColumns + `, p.bytes
),` + watchedSQL + more + leasedStepsSQL("claimed") + busySQL("(SELECT count(*) FROM picked) > (SELECT count(*) FROM claimed)")
}

// claimedColumns lists the columns of a claimed step s.
const claimedColumns = `s.step_uuid, s.task_uuid, s.namespace, s.name, s.handler, s.priority, s.attempts, s.max_attempts, s.fence,
        s.lease_expires_at, s.timeout_at, s.parent_uuids, s.worker_uuid, s.state_since, s.inputs_bytes, s.map_step_uuid, s.item, s.item_ordinal, s.checkpointed`

// watchedSQL records when the leases of a claim expire.
const watchedSQL = `
watched AS (
    INSERT INTO tasker.claims (look_at, claimed_at, tasks, steps)
    SELECT least(min(lease_expires_at), min(state_since) + interval '5 seconds'), min(state_since), array_agg(task_uuid), array_agg(step_uuid)
    FROM claimed
    HAVING count(*) > 0
)`

// leasedStepsSQL selects the leased steps with their inputs.
func leasedStepsSQL(claimed string) string {
	return `
SELECT
    'step' AS kind, h.bytes, h.priority, h.step_uuid, h.task_uuid, h.namespace, h.task_name, h.task_version, h.template_uuid, h.name, h.handler,
    h.attempts AS attempt, h.max_attempts, h.fence, h.lease_expires_at, h.timeout_at AS deadline, h.correlation_id, h.context, h.dependency_results, h.item, h.item_ordinal AS index, h.omitted AS context_omitted,
    CASE WHEN h.dependency_results IS NULL AND h.parent_uuids <> '{}' THEN (
        SELECT jsonb_build_object(
            'results', jsonb_object_agg(i.name, i.results -> 'result') FILTER (WHERE i.inline OR i.results IS NULL),
            'refs', jsonb_object_agg(i.name, jsonb_build_object('step_uuid', i.step_uuid, 'bytes', i.bytes))
                FILTER (WHERE NOT i.inline AND i.results IS NOT NULL))
        FROM (
            SELECT p.name, p.step_uuid, p.results, b.bytes, NOT b.apart AND sum(b.bytes) FILTER (WHERE NOT b.apart)
                OVER (ORDER BY u.place) <= ` + maxInlineBytes + ` AS inline
            FROM ` + parentsSQL("h", "name, step_uuid, results, results_bytes") + `
            CROSS JOIN LATERAL (
                SELECT coalesce(p.results_bytes, octet_length((p.results -> 'result')::text), 0) AS bytes, coalesce(p.step_uuid = ANY (h.by_reference), false) AS apart
            ) b
        ) i
    ) END AS dependencies,
    CASE WHEN h.checkpointed THEN (SELECT k.value FROM tasker.step_checkpoints k WHERE k.task_uuid = h.task_uuid AND k.step_uuid = h.step_uuid) END AS checkpoint
FROM (
    SELECT s.*, t.name AS task_name, t.version AS task_version, t.template_uuid, t.correlation_id, coalesce(g.context, t.context) AS context, g.omitted, g.by_reference,
        CASE WHEN s.parent_uuids = '{}' OR s.inputs_bytes > ` + maxInlineBytes + ` OR g.by_reference IS NOT NULL THEN NULL
        WHEN cardinality(s.parent_uuids) = 1 THEN (
            SELECT CASE WHEN p.results IS NULL OR p.results_bytes IS NOT NULL THEN jsonb_build_object(p.name, p.results -> 'result') END
            FROM tasker.workflow_steps p
            WHERE p.task_uuid = s.task_uuid AND p.step_uuid = s.parent_uuids[1]
        )
        ELSE (
            SELECT CASE WHEN count(*) FILTER (WHERE p.results IS NOT NULL AND p.results_bytes IS NULL) = 0
                THEN jsonb_object_agg(p.name, p.results -> 'result') FILTER (WHERE p.results IS NULL OR p.results_bytes IS NOT NULL) END
            FROM ` + parentsSQL("s", "name, results, results_bytes") + `
        ) END AS dependency_results
    FROM ` + claimed + ` s
    JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
    LEFT JOIN LATERAL (
        SELECT m.context, m.omitted, m.by_reference FROM tasker.map_inputs m WHERE m.task_uuid = s.task_uuid AND m.step_uuid = s.map_step_uuid LIMIT 1
    ) g ON s.map_step_uuid IS NOT NULL
    ORDER BY s.priority DESC, s.step_uuid
    OFFSET 0
) h`
}

// parentsSQL returns a FROM item with the parents p of a step and their ordinals u. Each parent is
// read by key.
func parentsSQL(row, columns string) string {
	return `unnest(` + row + `.parent_uuids) WITH ORDINALITY AS u (step_uuid, place)
            CROSS JOIN LATERAL (
                SELECT ` + columns + ` FROM tasker.workflow_steps q WHERE q.task_uuid = ` + row + `.task_uuid AND q.step_uuid = u.step_uuid LIMIT 1
            ) p`
}

// busySQL adds a row if more steps can be claimed, or if holds or limits prevented the claim.
func busySQL(condition string) string {
	return noteSQL(`CASE WHEN held THEN 'held' WHEN limited THEN 'limited' ELSE 'busy' END`, `held OR limited OR `+condition)
}

// noteSQL adds a row of the given kind if a condition is true.
func noteSQL(kind, condition string) string { return noteWithNumberSQL(kind, "0", condition) }

// noteWithNumberSQL adds a row of the given kind that contains a number if a condition is true.
func noteWithNumberSQL(kind, number, condition string) string {
	return `
UNION ALL
SELECT ` + kind + `, ` + number + `, 0, $4, $4, '', '', '', $4, '', '', 0, 0, 0, at, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM clock
WHERE ` + condition
}

// blockedStepsSQL adds the steps whose inputs are not measured or are too large.
func blockedStepsSQL(of string) string {
	return `
UNION ALL
SELECT CASE WHEN c.inputs_bytes IS NULL THEN 'unmeasured' ELSE 'too_large' END,
    0, 0, c.step_uuid, c.task_uuid, '', '', '', c.task_uuid, '', '', 0, 0, 0, at, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM ` + of + ` c
CROSS JOIN clock
WHERE c.inputs_bytes IS NULL OR c.inputs_bytes > ` + maxInputBytes
}

type claimRow struct {
	Kind  string
	Bytes int64
	Claimed
	Dependencies *dependencies // replaces DependencyResults
}

// dependencies contains the results of parents, some of them as references.
type dependencies struct {
	Results map[string]json.RawMessage  `json:"results"`
	Refs    map[string]tasker.ResultRef `json:"refs"`
}

// Claimed is an assignment without the settings that come from the template.
type Claimed struct {
	tasker.Assignment
	TemplateUUID tasker.ID
	Priority     int
}

// ClaimResult is the result of a claim.
type ClaimResult struct {
	Steps      []Claimed
	Unmeasured []tasker.StepRef // inputs must be measured before these steps can be claimed
	TooLarge   []tasker.StepRef // steps that can never be claimed

	bytes int  // total size of the inputs
	old   bool // old steps preceded more urgent ones
	busy  bool // other claims had locked or moved some of the wanted steps
	held  bool // steps are held, so each must be checked

	limited bool          // steps may have limits, so each must be checked
	again   time.Duration // time until a step that waits for a limit can be claimed; 0 if none waits

	further, unlocked bool // with limits: more steps are to be read; some keys were not locked
	blocked           bool // nothing was found in queues with free slots

	reshaped bool         // the steps have different limits than expected
	shape    limitProfile // actual limits; if there are more than expected, the claim found nothing

	more   bool  // further keys may have parked steps
	lookAt int64 // last key that was read
}

// IsBlocked reports whether some steps must be measured or can never be claimed.
func (h ClaimResult) IsBlocked() bool { return len(h.Unmeasured)+len(h.TooLarge) > 0 }

// add adds the result of a repeated claim.
func (h *ClaimResult) add(next ClaimResult) {
	h.Steps = append(h.Steps, next.Steps...)
	h.Unmeasured, h.TooLarge = next.Unmeasured, next.TooLarge // the repeated claim read more steps
	h.bytes += next.bytes
	h.old, h.busy, h.limited = next.old, next.busy, next.limited
	if h.again == 0 || next.again > 0 && next.again < h.again {
		h.again = next.again
	}
}

// RetryAfter returns the time until a step that waits for a limit can be claimed, or 0.
func (h ClaimResult) RetryAfter() time.Duration { return h.again }

func (db *DB) runClaim(ctx context.Context, sql string, args []any) (ClaimResult, error) {
	var rows []claimRow
	err := retry(ctx, func() (err error) {
		rows, err = collect[claimRow](ctx, db.pool, sql, args...)
		return err
	})
	if err != nil {
		return ClaimResult{}, fmt.Errorf("claim steps: %w", err)
	}
	return newClaimResult(rows), nil
}

func newClaimResult(list []claimRow) ClaimResult {
	h := ClaimResult{Steps: make([]Claimed, 0, len(list))}
	for _, r := range list {
		ref := tasker.StepRef{TaskUUID: r.TaskUUID, StepUUID: r.StepUUID}
		switch r.Kind {
		case "step":
			h.Steps = append(h.Steps, r.toClaimed())
			h.bytes += int(r.Bytes)
		case "unmeasured":
			h.Unmeasured = append(h.Unmeasured, ref)
		case "too_large":
			h.TooLarge = append(h.TooLarge, ref)
		case "held":
			h.held = true
		case "old":
			h.old = true
		case "limited":
			h.limited = true
		case "busy":
			h.busy = true
		case "waits":
			h.again = time.Duration(r.Bytes) * time.Millisecond
		case "further":
			h.further = true
		case "unlocked":
			h.unlocked = true
		case "blocked":
			h.blocked = true
		case "shape":
			h.reshaped, h.shape = true, limitProfile(r.Bytes)
		case "looked":
			h.more, h.lookAt = true, r.Bytes
		}
	}
	slices.SortFunc(h.Steps, func(a, b Claimed) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), bytes.Compare(a.StepUUID[:], b.StepUUID[:]))
	})
	return h
}

func (r claimRow) toClaimed() Claimed {
	if d := r.Dependencies; d != nil {
		r.DependencyResults, r.DependencyRefs = d.Results, d.Refs
	}
	return r.Claimed
}
