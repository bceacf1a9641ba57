package postgres

// A claim with limits executes four statements in one transaction, which can be that of a report.
// They lock the keys that whole queues share, lock free keys of individual steps, delete outdated
// rows of limit_slots, and claim steps by counting the remaining rows. Each statement sees
// everything that was committed before it started, so the counts are exact.
//
// Deadlocks cannot occur: claims lock the keys of queues first. They wait for keys of steps only in
// one order and outside reports, and skip locked steps. A setting of the transaction contains the
// locked keys.
const (
	lockedKeys     = `string_to_array(nullif(current_setting('tasker.limit_keys', true), ''), ',')::bigint[]`
	saveLockedKeys = `set_config('tasker.limit_keys', concat_ws(',', nullif(current_setting('tasker.limit_keys', true), ''), string_agg(DISTINCT k.limit_key_id::text, ',')), true)`
)

// freedKeys contains the keys with parked steps whose slots were freed by the report in this
// transaction.
const freedKeys = `coalesce(string_to_array(nullif(current_setting('tasker.limit_freed', true), ''), ',')::bigint[], '{}')`

// lockQueueKeys locks the keys that the queues with namespaces $1 and handlers $2 share, in order.
// It also records the keys from templates whose slots the reported steps $3, $4 have freed.
var lockQueueKeys = `
SELECT ` + saveQueueKeys + `, set_config('tasker.limit_freed', coalesce((
    SELECT string_agg(DISTINCT k.limit_key_id::text, ',')
    FROM unnest($3::uuid[], $4::uuid[]) AS d (task_uuid, step_uuid)
    CROSS JOIN LATERAL (` + namesSQL("d") + `) x
    JOIN tasker.limit_keys k ON k.limit_id = x.limit_id AND k.key = x.key
    WHERE ` + hasNames + ` AND EXISTS (SELECT FROM tasker.held_steps h WHERE h.limit_key_id = k.limit_key_id)
), ''), true)
` + fromQueueKeys

const saveQueueKeys = `set_config('tasker.limit_keys', coalesce(string_agg(k.limit_key_id::text, ','), ''), true)`

const fromQueueKeys = `
FROM (
    SELECT k.limit_key_id
    FROM (
        SELECT DISTINCT q.limit_id
        FROM tasker.limit_queues q
        WHERE q.namespace = ANY (array_append($1::text[], '')) AND q.handler || '' = ANY (array_append($2::text[], ''))
        ORDER BY q.limit_id
    ) l
    CROSS JOIN LATERAL (
        SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_id = l.limit_id AND k.key = '' FOR NO KEY UPDATE
    ) k
) k`

// hasNames is true if templates assign limits to steps in the queues.
const hasNames = `EXISTS (
        SELECT FROM tasker.limit_queues x
        JOIN tasker.limits l ON l.limit_id = x.limit_id AND l.kind = 'name'
        WHERE x.namespace = ANY ($1::text[]) AND x.handler || '' = ANY ($2::text[])
    )`

// hasWeights is true if some step takes several slots of a limit.
const hasWeights = `EXISTS (SELECT FROM tasker.task_limits t WHERE t.weight > 1)`

// mayHaveSlots is true if key k may have free slots. It reads only a few of the key's rows.
const mayHaveSlots = `coalesce((SELECT l.max_in_progress FROM tasker.limits l WHERE l.limit_id = k.limit_id) > (
                SELECT coalesce(sum(n.weight), 0) FROM (SELECT h.weight FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id AND ` + holdsSlot + ` LIMIT 20) n
            ), true)`

// lockFreeKeysSQL locks the keys of the most urgent steps. It skips keys that another transaction
// has locked.
//
// $1 namespaces, $2 handlers, $3 limit, $4 steps to exclude, $5 the key after which the scan of
// parked steps begins, $6 minimum age for a claim by age.
func lockFreeKeysSQL(s limitSource, aged bool) string {
	if aged {
		s.age = "$6"
	}
	lock := func(row string) string {
		return `(
        SELECT array_agg(k.limit_key_id) AS ids, count(*) - count(k.limit_key_id) AS others
        FROM (` + namesSQL(row) + ` AND t.key <> '') t
        LEFT JOIN LATERAL (
            SELECT k.limit_key_id
            FROM tasker.limit_keys k
            WHERE k.limit_id = t.limit_id AND k.key = t.key AND ` + mayHaveSlots + `
            FOR NO KEY UPDATE SKIP LOCKED
        ) k ON true
    )`
	}
	const ready, without = "tasker.ready_steps s", " AND s.step_uuid <> ALL ($4::uuid[])"
	free := func(steps string) string {
		return `(
            SELECT n.ids
            FROM (` + steps + `) s
            CROSS JOIN LATERAL ` + lock("s") + ` n
            WHERE n.others = 0
            LIMIT $3::int
        )`
	}
	first := func(order, which string) string {
		return free(firstStepsSQL("s.task_uuid, s.step_uuid", ready, order, without+which+" AND (SELECT names FROM named)", limitDepth))
	}
	return `
WITH RECURSIVE clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
named AS MATERIALIZED (SELECT ` + hasNames + ` AS names),
` + s.queues + `
ready AS (
    SELECT e.ids
    FROM queues q
    CROSS JOIN LATERAL (
        ` + first("s.state_since", "") + `
        UNION ALL
        ` + first("s.due_at", " AND s.due_at IS NOT NULL") + s.orOldSQL(free(s.oldestSQL(ready, without, ""))) + `
    ) e
),
parked AS (
    SELECT n.ids
    FROM clock c
    CROSS JOIN queues q` + joinParkedStepsSQL("s.task_uuid, s.step_uuid", "$5::bigint", "$3::int", "r.places") + `
    CROSS JOIN LATERAL ` + lock("e") + ` n
    WHERE r.places > 0 AND (SELECT names FROM named)
)
SELECT ` + saveLockedKeys + `
FROM (SELECT unnest(ids) AS limit_key_id FROM (SELECT ids FROM ready UNION ALL SELECT ids FROM parked) x) k`
}

// scannedKeysSQL returns common table expressions with the keys of the first steps, for a claim
// that waits for all of these keys. $3 is the limit and $4 the key after which the scan of parked
// steps begins. For named steps, $3 and $4 contain the ids.
func scannedKeysSQL(s limitSource) string {
	const columns = "s.task_uuid, s.step_uuid, s.namespace, s.handler"
	steps := `
    SELECT ` + columns + `
    FROM unnest($3::uuid[], $4::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    WHERE s.namespace = ANY ($1::text[]) AND s.handler = ANY ($2::text[])`
	if !s.isNamed() {
		steps = `
    SELECT e.*
    FROM queues q
    CROSS JOIN LATERAL (
        ` + firstReadySQL(columns, "", limitDepth) + `
    ) e
    UNION ALL
    SELECT e.*
    FROM clock c
    CROSS JOIN queues q` + joinParkedStepsSQL(columns, "$4::bigint", "$3::int", "r.places") + `
    WHERE r.places > 0`
	}
	return s.partsSQL("$3", "$4") + `
scanned AS MATERIALIZED (` + steps + `
),
keys AS MATERIALIZED (
    SELECT DISTINCT x.limit_id, x.key FROM scanned s CROSS JOIN LATERAL (` + limitsSQL("s") + `) x
)`
}

// makeKeysSQL creates those of the scanned keys that do not exist yet.
func makeKeysSQL(s limitSource) string {
	return `
WITH RECURSIVE clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
` + scannedKeysSQL(s) + `
INSERT INTO tasker.limit_keys (limit_id, key)
SELECT u.limit_id, u.key
FROM keys u
WHERE (SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_id = u.limit_id AND k.key = u.key) IS NULL
ORDER BY u.limit_id, u.key
ON CONFLICT (limit_id, key) DO NOTHING`
}

// lockKeysSQL locks the scanned keys in order. The keys of the queues must already be locked.
func lockKeysSQL(s limitSource) string {
	return `
WITH RECURSIVE clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
` + scannedKeysSQL(s) + `
SELECT ` + saveLockedKeys + `
FROM (
    SELECT k.limit_key_id
    FROM (SELECT * FROM keys WHERE key <> '' ORDER BY limit_id, key) u
    CROSS JOIN LATERAL (
        SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_id = u.limit_id AND k.key = u.key FOR NO KEY UPDATE
    ) k
) k`
}

// holdsSlot is true if row h of limit_slots counts. A join would mislead the planner.
const holdsSlot = `EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    )`
