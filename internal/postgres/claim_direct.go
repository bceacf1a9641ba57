package postgres

import (
	"strconv"
	"time"

	"tasker.example/tasker"
)

// A worker that reports can directly claim a step that its report made ready, if it wants more work
// and its queues contain nothing more urgent. This takes one update instead of two and no row in
// ready_steps.
//
// Otherwise the step is enqueued. This is also the case if the report has few outcomes, steps are
// held or may have limits, namespaces alternate, the claim is by age, or more steps are ready than
// the worker wants.

// claimTarget contains fragments of SQL that determine what a conclusion does with steps that
// become ready.
type claimTarget struct {
	parts    string // common table expressions before the children are updated
	children string // common table expression that contains the children
	direct   bool
	freed    string // FROM item with the tasks of steps that became ready
	settings string
}

var (
	toQueue  = claimTarget{children: "child", freed: "begins"}
	toWorker = claimTarget{
		parts: claimsDirectly, children: "reached", direct: true,
		freed: "(SELECT task_uuid FROM begins UNION ALL SELECT task_uuid FROM freed WHERE direct) f",
		settings: `,
    set_config('` + directTasks + `', (SELECT string_agg(task_uuid::text, ',' ORDER BY step_uuid) FROM freed WHERE direct), true) AS direct_tasks,
    set_config('` + directSteps + `', (SELECT string_agg(step_uuid::text, ',' ORDER BY step_uuid) FROM freed WHERE direct), true) AS direct_steps`,
	}
)

// Settings by which concludeAndClaim passes the claimed steps to the next statement.
const (
	directTasks = "tasker.direct_tasks"
	directSteps = "tasker.direct_steps"
)

// Parameters of concludeAndClaim that follow the conclusions: the ranges of the queues to read (see
// queue_heads.go), the worker, the lease, the limits of steps and bytes, and the steps to exclude.
var (
	directArg = func(n int) string { return "$" + strconv.Itoa(3+len(succeededColumns)+n) }

	directNamespaces, directHandlers = directArg(1), directArg(2)
	directLow, directHigh            = directArg(3), directArg(4)
	directSince                      = directArg(5)
	directWorker, directLease        = directArg(6), directArg(7)
	directLimit, directBytes         = directArg(8), directArg(9)
	directWithout                    = directArg(10)
)

// isDirect is true if the worker claims child s directly.
const isDirect = `k.direct AND ` + becomesReady

// claimsDirectly determines for each child whether the worker may claim it directly.
var claimsDirectly = `asked AS MATERIALIZED (
    SELECT count(*) AS children, NOT EXISTS (SELECT FROM tasker.claim_conditions) AND NOT ` + mayHaveLimitsSQL(directNamespaces, directHandlers) + `
        AND EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = ` + directWorker + `::uuid AND w.left_at IS NULL AND w.draining_since IS NULL) AS claims, (
            SELECT max(e.priority)
            FROM unnest(` + directNamespaces + `::text[], ` + directHandlers + `::text[], ` + directLow + `::bigint[], ` + directHigh + `::bigint[], ` + directSince + `::timestamptz[])
                AS l (namespace, handler, low, high, since)
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
        ) AS urgent
    FROM child
    HAVING count(*) BETWEEN 1 AND ` + directLimit + `::int
),
reached AS MATERIALIZED (
    SELECT k.*, coalesce(a.claims, false) AND ` + becomesReady + ` AND s.namespace = ANY (` + directNamespaces + `::text[]) AND s.handler = ANY (` + directHandlers + `::text[]) AND s.step_uuid <> ALL (` + directWithout + `::uuid[])
        AND (a.urgent IS NULL OR s.priority >= a.urgent)
        AND coalesce(s.inputs_bytes + k.bytes <= ` + maxInputBytes + ` AND least(s.inputs_bytes + k.bytes, ` + maxStepBytes + `) <= ` + directBytes + `::bigint / a.children, false) AS direct
    FROM child k
    LEFT JOIN asked a ON true
    CROSS JOIN LATERAL (
        SELECT x.step_uuid, x.state, x.step_type, x.parents_open, x.join_rule, x.namespace, x.handler, x.priority, x.inputs_bytes
        FROM tasker.workflow_steps x
        WHERE x.task_uuid = k.task_uuid AND x.step_uuid = k.step_uuid
        LIMIT 1
    ) s
),
`

// workerSQL returns a CASE branch with a value for steps that the worker claims directly.
func (to claimTarget) workerSQL(value string) string {
	if !to.direct {
		return ""
	}
	return "WHEN " + isDirect + " THEN " + value + " "
}

// setSQL returns additional assignments for steps that the worker claims directly.
func (to claimTarget) setSQL() string {
	if !to.direct {
		return ""
	}
	set := func(column, value string) string {
		return column + " = CASE " + to.workerSQL(value) + "ELSE s." + column + " END, "
	}
	return set("fence", "s.fence + 1") + set("worker_uuid", directWorker+"::uuid") + set("last_attempted_at", "c.at") + set("enqueued_at", "c.at") +
		set("queue_expiries", "0") + set("timeout_at", "c.at + interval '1 millisecond' * s.timeout_ms") +
		set("lease_expires_at", "least(c.at + "+directLease+"::interval, c.at + interval '1 millisecond' * s.timeout_ms)") + `
        `
}

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

// canClaimDirectly reports whether a report of successes may directly claim the steps that it makes
// ready.
func (db *DB) canClaimDirectly(outcomes int, next *NextClaim, l claimMode) bool {
	if next == nil || outcomes < db.directFrom && !next.OnlyReady { // a broker message would take longer
		return false
	}
	return next.Limit > 0 && db.canClaim(next, l)
}

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

// directArgs returns the arguments that concludeAndClaim has in addition to those of
// concludeSucceeded.
func (c *NextClaim) directArgs(l claimMode) []any {
	r := c.headRanges(l)
	return []any{r.namespaces, r.handlers, r.low, r.high, r.since, c.WorkerUUID, c.Lease, c.Limit, tasker.MaxClaimBytes, nonNil(c.Without)}
}
