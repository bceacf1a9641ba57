package postgres

import (
	"strconv"
	"strings"
)

// lockLimitKeys locks the keys of limits in their order. It waits for other claims that have them.
const lockLimitKeys = `
SELECT k.limit_key_id, k.limit_id, k.key
FROM unnest($1::bigint[], $2::text[]) AS u (limit_id, key)
JOIN tasker.limit_keys k ON k.limit_id = u.limit_id AND k.key = u.key
ORDER BY k.limit_id, k.key
FOR NO KEY UPDATE OF k`

const makeLimitKeys = `
INSERT INTO tasker.limit_keys (limit_id, key)
SELECT u.limit_id, u.key
FROM unnest($1::bigint[], $2::text[]) AS u (limit_id, key)
JOIN tasker.limits l ON l.limit_id = u.limit_id
ORDER BY u.limit_id, u.key
ON CONFLICT (limit_id, key) DO NOTHING`

// holdsSlot is true of a row h of limit_slots that counts.
const holdsSlot = `EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
    )`

// countLimitKeys counts the places that are taken of locked keys $1, and removes the rows that do
// not count any more.
const countLimitKeys = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
dead AS MATERIALIZED (
    DELETE FROM tasker.limit_slots h
    WHERE h.limit_key_id = ANY ($1::bigint[]) AND NOT ` + holdsSlot + `
    RETURNING h.limit_key_id
)
SELECT k.limit_key_id, k.limit_id, k.key, l.max_in_progress, l.per_second, l.burst,
    greatest(extract(epoch FROM nullif(k.full_at, '-infinity') - c.at), 0)::float8 AS debt,
    (SELECT count(*) FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id)
        - (SELECT count(*) FROM dead d WHERE d.limit_key_id = k.limit_key_id) AS held
FROM unnest($1::bigint[]) AS u (limit_key_id)
CROSS JOIN clock c
JOIN tasker.limit_keys k ON k.limit_key_id = u.limit_key_id
JOIN tasker.limits l ON l.limit_id = k.limit_id`

// moreKeys is how many keys a claim looks at for which steps are put aside, in each queue.
const moreKeys = 64

// queuesWithAside are the queues of a claimant with many in which something waits or is put aside.
var queuesWithAside = strings.Replace(waitingQueues(byUrgency), "queues AS (", "queued AS (", 1) + `
aside_in AS (
    SELECT n.namespace, (
        SELECT s.handler FROM tasker.held_steps s WHERE s.namespace = n.namespace ORDER BY s.handler LIMIT 1
    ) AS handler
    FROM unnest($1::text[]) AS n (namespace)
    UNION ALL
    SELECT w.namespace, (
        SELECT s.handler FROM tasker.held_steps s WHERE s.namespace = w.namespace AND s.handler > w.handler ORDER BY s.handler LIMIT 1
    )
    FROM aside_in w
    WHERE w.handler IS NOT NULL
),
queues AS (SELECT namespace, handler FROM queued UNION SELECT w.namespace, w.handler FROM aside_in w WHERE w.handler = ANY ($2::text[])),
`

// Candidates are the most urgent steps of the queues, and of those that are put aside the most
// urgent of each key that has places. Each comes with the keys of its limits. An item of a map
// step has the limits of that step.
//
// Where steps are ordered by when they are due, the most urgent are among those that are first in the order of
// waiting and those that are first in the order of due times: whatever comes before a step without a due time also
// waits for longer, or has a higher priority, or is among the latter.
//
// $1 namespaces, $2 handlers, $3 how many, $4 worker, $5 operations whose steps it may take, $6 steps to
// leave alone, $7 the key after which the look at what is put aside begins.
var (
	limitedCandidates     = candidatesOf(everyQueue(byUrgency))
	limitedCandidatesMany = candidatesOf(queuesWithAside)
)

func candidatesOf(queues string) string {
	return `
WITH RECURSIVE clock AS MATERIALIZED (SELECT clock_timestamp() AS at, false AS held),
` + queues + `
ready AS MATERIALIZED (
    SELECT e.*
    FROM queues q
    CROSS JOIN LATERAL (
        ` + readyIn("state_since", "") + `
        UNION
        ` + readyIn("due_at", " AND s.due_at IS NOT NULL") + `
    ) e
    WHERE ` + getsWork + `
    ORDER BY ` + urgencyByDue("e") + `
    LIMIT $3::int
),
aside AS MATERIALIZED (
    SELECT e.*, k.limit_key_id
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT x.limit_key_id FROM (` + asideKeys("$7::bigint", "9223372036854775807") + ` UNION ALL ` + asideKeys("0", "$7::bigint") + `) x LIMIT ` + strconv.Itoa(moreKeys) + `
    ) k
    CROSS JOIN LATERAL (
        SELECT ` + placesOf("k.limit_key_id", "$3::int") + ` AS places
        FROM clock c
        LEFT JOIN tasker.limit_keys p ON p.limit_key_id = k.limit_key_id
        LEFT JOIN tasker.limits l ON l.limit_id = p.limit_id
    ) r
    CROSS JOIN LATERAL (
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, ` + orderOf("s") + ` AS due_at
        FROM (SELECT a.*, NULL::uuid AS released_by FROM tasker.held_steps a) s
        WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_key_id = k.limit_key_id AND s.step_uuid <> ALL ($6::uuid[])` + notHeld("s", "$5") + `
        ORDER BY s.priority DESC, s.state_since
        LIMIT greatest(r.places, 0)
    ) e
    WHERE r.places > 0 AND ` + getsWork + `
    ORDER BY ` + urgencyByDue("e") + `
    LIMIT $3::int
)
SELECT c.task_uuid, c.step_uuid, c.namespace, c.handler, c.priority, c.state_since, c.inputs_bytes, c.aside,
    coalesce(l.ids, '{}') AS limit_ids, coalesce(l.keys, '{}') AS keys
FROM (SELECT r.*, NULL::bigint AS aside FROM ready r UNION ALL SELECT * FROM aside) c
CROSS JOIN LATERAL (
    SELECT array_agg(x.limit_id ORDER BY x.limit_id, x.key) AS ids, array_agg(x.key ORDER BY x.limit_id, x.key) AS keys
    FROM (` + limitsOf("c") + `) x
) l
ORDER BY ` + urgencyByDue("c") + `, c.step_uuid`
}

// readyIn selects the steps of a queue q that are first in an order within their priorities.
func readyIn(order, which string) string {
	return `(
            SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.due_at
            FROM tasker.ready_steps s
            WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.step_uuid <> ALL ($6::uuid[])` + which + notHeld("s", "$5") + `
            ORDER BY s.priority DESC, s.` + order + `
            LIMIT $3::int
        )`
}

// urgencyByDue is the order of urgency of a row where steps may be ordered by when they are due: of one
// priority those that are come first.
func urgencyByDue(row string) string {
	return row + `.priority DESC, ` + row + `.due_at, ` + row + `.state_since`
}

// limitedNamed are the candidates among steps that are named: $3 and $7 are their ids.
var limitedNamed = `
WITH clock AS MATERIALIZED (SELECT 'enqueued' AS enqueued, false AS held)
SELECT c.task_uuid, c.step_uuid, c.namespace, c.handler, c.priority, c.state_since, c.inputs_bytes, NULL::bigint AS aside,
    coalesce(l.ids, '{}') AS limit_ids, coalesce(l.keys, '{}') AS keys
FROM (
    SELECT r.*
    FROM clock k
    CROSS JOIN unnest($3::uuid[], $7::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = k.enqueued
        AND s.step_uuid <> ALL ($6::uuid[]) AND s.namespace = ANY ($1::text[]) AND s.handler = ANY ($2::text[])
    JOIN tasker.ready_steps r ON ` + readyKey + ` AND r.task_uuid = s.task_uuid
    WHERE ` + getsWork + notHeld("r", "$5") + `
) c
CROSS JOIN LATERAL (
    SELECT array_agg(x.limit_id ORDER BY x.limit_id, x.key) AS ids, array_agg(x.key ORDER BY x.limit_id, x.key) AS keys
    FROM (` + limitsOf("c") + `) x
) l
ORDER BY c.priority DESC, c.state_since, c.step_uuid`

// placesOf is how many places of a key are free, most at most: as many if its limit l is gone. It is
// counted without a lock, and so a hint. p is the row of the key.
func placesOf(key, most string) string {
	return `CASE WHEN l.limit_id IS NULL THEN ` + most + ` ELSE least(` + most + `,
            CASE WHEN l.max_in_progress IS NOT NULL THEN l.max_in_progress - (
                SELECT count(*) FROM (SELECT FROM tasker.limit_slots h WHERE h.limit_key_id = ` + key + ` AND ` + holdsSlot + ` LIMIT l.max_in_progress) n
            ) END,
            CASE WHEN l.per_second IS NOT NULL
                THEN floor(l.burst - greatest(extract(epoch FROM nullif(p.full_at, '-infinity') - c.at), 0) * l.per_second + 1e-9) END
        )::bigint END`
}

// asideKeys are the keys after one, up to another, for which steps of a queue q are put aside, each once.
func asideKeys(after, upto string) string {
	return `(
            WITH RECURSIVE n AS (
                (
                    SELECT s.limit_key_id FROM tasker.held_steps s
                    WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_key_id > ` + after + ` AND s.limit_key_id <= ` + upto + `
                    ORDER BY s.namespace, s.handler, s.limit_key_id LIMIT 1
                )
                UNION ALL
                SELECT (
                    SELECT s.limit_key_id FROM tasker.held_steps s
                    WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_key_id > n.limit_key_id AND s.limit_key_id <= ` + upto + `
                    ORDER BY s.namespace, s.handler, s.limit_key_id LIMIT 1
                )
                FROM n
                WHERE n.limit_key_id IS NOT NULL
            )
            SELECT n.limit_key_id FROM n WHERE n.limit_key_id IS NOT NULL LIMIT ` + strconv.Itoa(moreKeys) + `
        )`
}

// limitsOf selects the keys of the limits of a step that a row names with its namespace and handler.
func limitsOf(row string) string {
	return `
        SELECT l.limit_id, '' AS key FROM tasker.limits l WHERE l.namespace = '' AND l.kind = 'server' AND l.name = ''
        UNION ALL
        SELECT l.limit_id, '' FROM tasker.limits l WHERE l.namespace = ` + row + `.namespace AND l.kind = 'namespace' AND l.name = ''
        UNION ALL
        SELECT l.limit_id, '' FROM tasker.limits l WHERE l.namespace = ` + row + `.namespace AND l.kind = 'handler' AND l.name = ` + row + `.handler
        UNION ALL
        SELECT l.limit_id, t.key
        FROM tasker.task_limits t
        JOIN tasker.limits l ON l.limit_id = t.limit_id
        WHERE t.task_uuid = ` + row + `.task_uuid AND (t.step_uuid IS NULL OR t.step_uuid = ` + row + `.step_uuid OR t.step_uuid = (
            SELECT i.map_step_uuid FROM tasker.workflow_steps i WHERE i.task_uuid = ` + row + `.task_uuid AND i.step_uuid = ` + row + `.step_uuid
        ))`
}

// leaseLimited hands out the steps $3, $8 of tasks and queues, of which those with true in $9 were put
// aside, and gives them places: those of steps $10 of the keys $11.
var leaseLimited = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at, 'enqueued' AS enqueued, false AS held, false AS limited),
queued AS MATERIALIZED (
    SELECT q.*
    FROM clock c
    CROSS JOIN unnest($3::uuid[], $8::uuid[], $9::bool[]) AS d (task_uuid, step_uuid, aside)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = c.enqueued
        AND s.step_uuid <> ALL ($6::uuid[]) AND s.namespace = ANY ($1::text[]) AND s.handler = ANY ($2::text[])
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.task_uuid, r.step_uuid, r.priority, r.state_since, r.inputs_bytes
        FROM tasker.ready_steps r
        WHERE ` + readyKey + ` AND r.task_uuid = s.task_uuid
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE NOT d.aside AND ` + getsWork + `
),
waiting AS MATERIALIZED (
    SELECT q.*
    FROM unnest($3::uuid[], $8::uuid[], $9::bool[]) AS d (task_uuid, step_uuid, aside)
    CROSS JOIN LATERAL (
        SELECT NULL::tid AS ready_row, a.task_uuid, a.step_uuid, a.priority, a.state_since, a.inputs_bytes
        FROM tasker.held_steps a
        WHERE a.task_uuid = d.task_uuid AND a.step_uuid = d.step_uuid AND a.limit_key_id IS NOT NULL
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE d.aside AND ` + getsWork + `
),
locked AS MATERIALIZED (SELECT * FROM queued UNION ALL SELECT * FROM waiting),
` + leaseSteps(`,
back AS (
    DELETE FROM tasker.held_steps a
    USING picked p
    WHERE p.ready_row IS NULL AND a.task_uuid = p.task_uuid AND a.step_uuid = p.step_uuid
),
placed AS (
    INSERT INTO tasker.limit_slots (limit_key_id, task_uuid, step_uuid, fence)
    SELECT u.limit_key_id, s.task_uuid, s.step_uuid, s.fence
    FROM unnest($10::uuid[], $11::bigint[]) AS u (step_uuid, limit_key_id)
    JOIN claimed s ON s.step_uuid = u.step_uuid
    ON CONFLICT (limit_key_id, task_uuid, step_uuid) DO UPDATE SET fence = excluded.fence
)`) + inTheWay("locked")

// setAsideLimited puts steps $1, $2 that are in the queue aside under the keys $3.
var setAsideLimited = `
WITH due AS MATERIALIZED (
    SELECT q.ready_row, d.limit_key_id
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS d (task_uuid, step_uuid, limit_key_id)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state || '' = 'enqueued'
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row FROM tasker.ready_steps r
        WHERE ` + readyKey + ` AND r.task_uuid = s.task_uuid
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
),
gone AS (
    DELETE FROM tasker.ready_steps r USING due d WHERE r.ctid = d.ready_row
    RETURNING d.limit_key_id, r.` + strings.ReplaceAll(heldColumns, ", ", ", r.") + `
)
INSERT INTO tasker.held_steps (limit_key_id, ` + heldColumns + `)
SELECT limit_key_id, ` + heldColumns + ` FROM gone ORDER BY task_uuid, step_uuid
ON CONFLICT (task_uuid, step_uuid) DO UPDATE
SET hold_uuid = NULL, limit_key_id = excluded.limit_key_id, state_since = excluded.state_since, priority = excluded.priority,
    queue_ttl_ms = excluded.queue_ttl_ms, inputs_bytes = excluded.inputs_bytes, held_at = clock_timestamp(), counted_until = NULL`

// changeKey says which key keeps steps that are put aside.
const changeKey = `
UPDATE tasker.held_steps a SET limit_key_id = d.limit_key_id
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS d (task_uuid, step_uuid, limit_key_id)
WHERE a.task_uuid = d.task_uuid AND a.step_uuid = d.step_uuid AND a.limit_key_id IS NOT NULL`

// chargeKeys has the rates of keys $1 count $2 steps that begin.
const chargeKeys = `
UPDATE tasker.limit_keys k
SET full_at = greatest(k.full_at, c.at) + interval '1 second' * (u.steps / l.per_second),
    used_at = CASE WHEN k.used_at < c.at - interval '5 minutes' THEN c.at ELSE k.used_at END
FROM (SELECT clock_timestamp() AS at OFFSET 0) c
CROSS JOIN unnest($1::bigint[], $2::float8[]) AS u (limit_key_id, steps)
CROSS JOIN tasker.limits l
WHERE k.limit_key_id = u.limit_key_id AND l.limit_id = k.limit_id AND l.per_second IS NOT NULL`
