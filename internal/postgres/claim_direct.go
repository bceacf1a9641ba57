package postgres

import (
	"time"
)

// A worker that reports can directly claim a step that its report makes ready, if it wants more work
// and its queues contain nothing more urgent. This takes one update instead of two and no row in
// ready_steps.
//
// Otherwise the step is enqueued. This is also the case if steps are held or may have limits,
// namespaces alternate, the claim is by age, or more steps are ready than the worker wants.

// Settings by which a report passes the steps that the worker claims directly to the next statement.
const (
	directTasks = "tasker.direct_tasks"
	directSteps = "tasker.direct_steps"
)

// queueFront describes what the queues of a worker contain.
type queueFront struct {
	Claims bool // the worker may claim steps directly: none is held or may have a limit
	Urgent *int // highest priority of a waiting step
}

// findQueueFront reads the ranges of the queues of worker $1 (see queue_heads.go): $2 namespaces,
// $3 handlers, $4 lowest and $5 highest priorities, $6 times.
var findQueueFront = `
SELECT NOT EXISTS (SELECT FROM tasker.claim_conditions) AND NOT ` + mayHaveLimitsSQL("$2", "$3") + `
    AND EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = $1 AND w.left_at IS NULL AND w.draining_since IS NULL) AS claims, (
        SELECT max(e.priority)
        FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS l (namespace, handler, low, high, since)
        CROSS JOIN LATERAL (
            (
                SELECT s.priority
                FROM tasker.ready_steps s
                WHERE l.low = l.high AND s.namespace = l.namespace AND s.handler = l.handler AND s.priority = l.low AND s.state_since >= l.since
                ORDER BY s.state_since
                LIMIT 1
            )
            UNION ALL
            (
                SELECT s.priority
                FROM tasker.ready_steps s
                WHERE l.low < l.high AND s.namespace = l.namespace AND s.handler = l.handler AND s.priority > l.low AND s.priority < l.high
                  AND s.state_since >= l.since
                ORDER BY s.priority DESC, s.state_since
                LIMIT 1
            )
        ) e
    ) AS urgent`

// claimedBefore is true for a claim that follows concludeAndClaim in the same transaction.
type claimedBefore bool

// withSQL returns the common table expression "direct", which selects the steps that
// concludeAndClaim claimed.
func (b claimedBefore) withSQL() string {
	if !b {
		return ""
	}
	return `
direct AS MATERIALIZED (
    SELECT ` + claimedColumns + `, least(s.inputs_bytes, ` + maxStepBytes + `)::int AS bytes
    FROM unnest(` + settingIDsSQL(directTasks) + `, ` + settingIDsSQL(directSteps) + `) AS d (task_uuid, step_uuid)
    CROSS JOIN LATERAL (
        SELECT * FROM tasker.workflow_steps x WHERE x.task_uuid = d.task_uuid AND x.step_uuid = d.step_uuid LIMIT 1
    ) s
),`
}

// stepsSQL returns what remains of a limit on the number of steps.
func (b claimedBefore) stepsSQL(limit string) string {
	if !b {
		return limit
	}
	return "(" + limit + "::int - (SELECT count(*)::int FROM direct))"
}

// bytesSQL returns what remains of a limit on the size of the inputs.
func (b claimedBefore) bytesSQL(limit string) string {
	if !b {
		return limit
	}
	return "(" + limit + " - (SELECT coalesce(sum(bytes), 0) FROM direct))"
}

// allSQL returns a common table expression with the steps of both claims, and its name.
func (b claimedBefore) allSQL() (with, name string) {
	if !b {
		return "", "claimed"
	}
	return `
granted AS MATERIALIZED (
    SELECT * FROM claimed
    UNION ALL
    SELECT * FROM direct
),`, "granted"
}

// claimReady selects the steps that concludeAndClaim claimed, with their inputs.
var claimReady = "WITH" + claimedBefore(true).withSQL() + watchedSQL("direct", true) + leasedStepsSQL("direct")

// mayClaimSQL reports whether urgency alone determines the steps of a claim.
func (db *DB) canClaim(next *NextClaim, l claimMode) bool {
	return l.turn == nil && !l.asks && len(next.Namespaces)*len(next.Handlers) <= manyQueues && !db.limits.mayHaveLimits(next.Claimant)
}

// headRanges returns the ranges of the queues that a report must read.
func (c *NextClaim) headRanges(l claimMode) *headRanges {
	if l.heads != nil {
		return l.heads
	}
	r := &headRanges{}
	for _, n := range c.Namespaces {
		for _, handler := range c.Handlers {
			r.add(QueueName{n, handler}, nil, time.Time{})
		}
	}
	return r
}
