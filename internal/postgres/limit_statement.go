package postgres

import (
	"strconv"
	"strings"
)

// limitDepth is the number of steps that a claim of $3 steps scans per queue.
const limitDepth = `greatest($3::int * 4, ` + leastDepth + `)`

// A limitSource determines which steps a claim with limits scans.
type limitSource struct {
	queues string // common table expression with the queues; empty for a claim of named steps
	shape  limitProfile
	age    string // parameter with the minimum age for a claim by age; empty for a claim by urgency
}

// isNamed reports whether the claim is for specific steps and not for the most urgent ones.
func (s limitSource) isNamed() bool { return s.queues == "" }

// partsSQL returns the common table expression with the queues. For named steps, the queues come
// from two parameters.
func (s limitSource) partsSQL(tasks, steps string) string {
	if !s.isNamed() {
		return s.queues
	}
	return `
queues AS MATERIALIZED (
    SELECT DISTINCT s.namespace, s.handler
    FROM unnest(` + tasks + `::uuid[], ` + steps + `::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    WHERE s.namespace = ANY ($1::text[]) AND s.handler = ANY ($2::text[])
),
`
}

// withoutSQL returns conditions on row s that exclude certain steps and held ones.
func (s limitSource) withoutSQL(param, gates string, h holdMode) string {
	return ` AND s.step_uuid <> ALL (` + param + `::uuid[])` + h.free("s", gates)
}

// joinParkedStepsSQL joins queue q with its most urgent parked steps e: up to limit of them for
// each key k that has free slots. The row r contains the number of free slots, counted without a
// lock and at most most. The row c is the clock.
func joinParkedStepsSQL(columns, after, most, limit string) string {
	return `
    CROSS JOIN LATERAL (` + parkedKeysSQL(after) + `) k
    CROSS JOIN LATERAL (
        SELECT ` + freeSlotsSQL("k.limit_key_id", most) + ` AS places
        FROM (SELECT) one
        LEFT JOIN tasker.limit_keys p ON p.limit_key_id = k.limit_key_id
        LEFT JOIN tasker.limits l ON l.limit_id = p.limit_id
    ) r
    CROSS JOIN LATERAL (` +
		firstStepsSQL(columns, "tasker.held_steps s", "s.state_since", " AND s.limit_key_id = k.limit_key_id", "CASE WHEN r.places > 0 THEN "+limit+" ELSE 0 END") + `
    ) e`
}

// parkedKeysSQL selects the keys that have parked steps in queue q: first the freed ones, then
// those after the given key, then the others.
func parkedKeysSQL(after string) string {
	return `
        SELECT x.limit_key_id
        FROM (
            SELECT f.limit_key_id FROM unnest(` + freedKeys + `) AS f (limit_key_id)
            UNION ALL
            SELECT n.limit_key_id
            FROM (` + nextParkedKeysSQL(after, "9223372036854775807") + ` UNION ALL ` + nextParkedKeysSQL("0", after) + `) n
            WHERE n.limit_key_id <> ALL (` + freedKeys + `)
        ) x
        LIMIT ` + strconv.Itoa(maxParkedKeys) + `
    `
}

// maxParkedKeys is the maximum number of keys with parked steps that a claim scans per queue.
const maxParkedKeys = 64

// queuesWithParked selects the queues that have ready or parked steps. It is for a claimant with
// many queues.
var queuesWithParked = strings.Replace(waitingQueuesSQL(byUrgency), "queues AS (", "queued AS (", 1) + `
parked_in AS (
    SELECT n.namespace, (
        SELECT s.handler FROM tasker.held_steps s WHERE s.namespace = n.namespace ORDER BY s.handler LIMIT 1
    ) AS handler
    FROM unnest($1::text[]) AS n (namespace)
    UNION ALL
    SELECT w.namespace, (
        SELECT s.handler FROM tasker.held_steps s WHERE s.namespace = w.namespace AND s.handler > w.handler ORDER BY s.handler LIMIT 1
    )
    FROM parked_in w
    WHERE w.handler IS NOT NULL
),
queues AS (SELECT namespace, handler FROM queued UNION SELECT w.namespace, w.handler FROM parked_in w WHERE w.handler = ANY ($2::text[])),
`

// lockedSlots contains common table expressions with the free slots of locked keys, also as a
// document by key id.
const lockedSlots = `
mine AS MATERIALIZED (
    SELECT k.limit_key_id, l.per_second, r.places, r.again, ` + mostOf + ` AS most
    FROM unnest(` + lockedKeys + `) AS u (limit_key_id)
    CROSS JOIN clock c
    JOIN tasker.limit_keys k ON k.limit_key_id = u.limit_key_id
    JOIN tasker.limits l ON l.limit_id = k.limit_id
    CROSS JOIN LATERAL (
        SELECT l.max_in_progress - (SELECT coalesce(sum(h.weight), 0) FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id) AS free,
            l.burst - greatest(extract(epoch FROM nullif(k.full_at, '-infinity') - c.at), 0) * l.per_second + 1e-9 AS due
        OFFSET 0 -- evaluated once
    ) n
    CROSS JOIN LATERAL (
        SELECT greatest(least(n.free, floor(n.due), 1000000000), 0)::int AS places,
            CASE WHEN n.free <= 0 OR n.due IS NULL THEN ` + limitDelayMS + ` ELSE least(greatest((floor(n.due) + 1 - n.due) / l.per_second * 1000, 1), ` + limitDelayMS + `) END::int AS again
    ) r
),
places AS MATERIALIZED (
    SELECT coalesce(jsonb_object_agg(limit_key_id, places), '{}') AS of, coalesce(jsonb_object_agg(limit_key_id, most), '{}') AS most FROM mine
),
`

// slotsRemainingSQL is the number of free slots of a key, or 0 if the key is not locked.
func slotsRemainingSQL(key string) string {
	return `coalesce(((SELECT of FROM places) ->> ` + key + `::text)::int, 0)`
}

// stepKeysSQL selects the keys that a template assigns to a step and their weights. It also selects
// whether all keys have enough free slots, and the keys that have some but too few.
func (s limitSource) stepKeysSQL(row string) string {
	if s.shape == oneEach {
		return `(
            SELECT coalesce(array_agg(k.limit_key_id), '{}') AS ids, array_fill(1, ARRAY[count(*)::int]) AS weights,
                coalesce(bool_and(` + slotsRemainingSQL("k.limit_key_id") + ` > 0), true) AS open
            FROM (` + namesSQL(row) + `) t
            LEFT JOIN tasker.limit_keys k ON k.limit_id = t.limit_id AND k.key = t.key
        )`
	}
	return `(
            SELECT coalesce(array_agg(k.limit_key_id), '{}') AS ids, coalesce(array_agg(w.weight), '{}') AS weights,
                coalesce(bool_and(coalesce(w.places, 0) >= w.weight), true) AS open, CASE WHEN min(w.places) > 0 THEN array_agg(k.limit_key_id) FILTER (WHERE w.places < w.weight) END AS wants
            FROM (` + namesSQL(row) + ` AND (SELECT names FROM named)) t
            LEFT JOIN tasker.limit_keys k ON k.limit_id = t.limit_id AND k.key = t.key
            CROSS JOIN LATERAL (
                SELECT ((SELECT of FROM places) ->> k.limit_key_id::text)::int AS places,
                    CASE WHEN t.weight = 1 THEN 1 ELSE least(t.weight, ((SELECT most FROM places) ->> k.limit_key_id::text)::int) END AS weight
                OFFSET 0 -- evaluated once
            ) w
        )`
}

// candidateSQL returns the columns of a candidate step from a row.
func candidateSQL(row string) string {
	return strings.ReplaceAll(`s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes, s.due_at`, "s.", row+".")
}

// claimLimitedStepsSQL claims the most urgent steps, ready or parked, whose limits have free slots.
// An item has the limits of its map step. If there are due times, the most urgent steps are among
// the first ones by age and the first ones by due time.
//
// $1 namespaces, $2 handlers, $3 limit, $4 worker, $5 lease, $6 steps to exclude, $7 remaining
// bytes. For named steps, their ids follow. For others, these follow: the key after which the scan
// of parked steps begins (unless all limits are shared), the turns and shares of the namespaces,
// and the minimum age.
func claimLimitedStepsSQL(s limitSource, h holdMode, aged bool) string {
	last, candidates := 10, queueCandidatesSQL
	if s.isNamed() {
		last, candidates = 9, namedCandidatesSQL
	} else if s.shape == sharedOnly {
		last, candidates = 9, sharedCandidatesSQL
	}
	if aged {
		last++
		s.age = "$" + strconv.Itoa(last)
	}
	gates := "$" + strconv.Itoa(last+1)
	return `
WITH RECURSIVE ` + h.clockSQL("false") + `,
` + named + s.partsSQL("$8", "$9") + lockedSlots + `
open AS MATERIALIZED (
    SELECT q.namespace, q.handler, w.ids, w.places, w.unlocked
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(k.limit_key_id), '{}') AS ids, coalesce(min(` + slotsRemainingSQL("k.limit_key_id") + `), 1000000000) AS places,
            count(*) > count((SELECT of FROM places) ->> k.limit_key_id::text) AS unlocked
        FROM (` + sharedLimitsSQL("q") + `) l
        LEFT JOIN tasker.limit_keys k ON k.limit_id = l.limit_id AND k.key = ''
    ) w
),
` + s.matchesProfileSQL() + candidates(s, gates, h) + `
` + s.admissionSQL() + `from_queue AS MATERIALIZED (
    SELECT q.*
    FROM admitted a
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.task_uuid, r.step_uuid, r.priority, r.state_since, r.inputs_bytes
        FROM tasker.ready_steps r
        WHERE ` + strings.ReplaceAll(readyKey, "s.", "a.") + ` AND r.task_uuid = a.task_uuid
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE a.parked IS NULL
),
from_parked AS MATERIALIZED (
    SELECT q.*
    FROM admitted a
    CROSS JOIN LATERAL (
        SELECT NULL::tid AS ready_row, h.task_uuid, h.step_uuid, h.priority, h.state_since, h.inputs_bytes
        FROM tasker.held_steps h
        WHERE h.task_uuid = a.task_uuid AND h.step_uuid = a.step_uuid AND h.limit_key_id IS NOT NULL
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE a.parked IS NOT NULL
),
locked AS MATERIALIZED (SELECT * FROM from_queue UNION ALL SELECT * FROM from_parked),
` + leaseStepsSQL(placeSteps, false) + blockedStepsSQL("locked") + busySQL("(SELECT count(*) FROM admitted) > (SELECT count(*) FROM locked)") +
		noteWithNumberSQL("'waits'", "(SELECT coalesce(min(again), "+limitDelayMS+") FROM mine WHERE places < $3::int)",
			"(SELECT count(*) FROM admitted) < $3::int AND EXISTS (SELECT FROM mine WHERE places < $3::int)") + s.otherProfileSQL() + s.oldSQL() + looksSQL(s)
}

// fairOrderSQL returns a FROM item with the turn and share of each namespace. A claim of specific
// steps uses zeros, which leaves only the order by urgency.
func (s limitSource) fairOrderSQL() string {
	switch {
	case s.isNamed():
		return `unnest($1::text[], array_fill(0::float8, ARRAY[cardinality($1::text[])]), array_fill(0::float8, ARRAY[cardinality($1::text[])]))`
	case s.shape == sharedOnly:
		return `unnest($1::text[], $8::float8[], $9::float8[])`
	default:
		return `unnest($1::text[], $9::float8[], $10::float8[])`
	}
}

// queryFirst selects the first $3 rows e of each namespace.
func (s limitSource) firstSQL(columns, from string) string {
	return `SELECT e.*
    FROM (
        SELECT ` + columns + `, row_number() OVER (PARTITION BY e.namespace ORDER BY ` + s.orderSQL("e") + `, e.step_uuid) AS nth
        FROM ` + from + `
    ) e
    WHERE e.nth <= $3::int`
}

// admissionSQL returns common table expressions with the candidates whose keys all have free slots,
// in the order of turns and urgency, and with their keys by step id. If a scan reached its limit,
// all steps less urgent than its last row are excluded. A refused step still counts for its other
// keys, so that no later step gets those slots.
func (s limitSource) admissionSQL() string {
	return `candidate AS MATERIALIZED (
    SELECT c.*, row_number() OVER (ORDER BY t.turn + t.share * (c.place - 1), ` + s.orderSQL("c") + `, c.step_uuid) AS n
    FROM (
        SELECT c.*, row_number() OVER (PARTITION BY c.namespace ORDER BY ` + s.orderSQL("c") + `, c.step_uuid) AS place
        FROM (SELECT * FROM ready UNION ALL SELECT * FROM parked) c
    ) c
    JOIN ` + s.fairOrderSQL() + ` AS t (namespace, turn, share) ON t.namespace = c.namespace
),
refused AS MATERIALIZED (
    SELECT coalesce(array_agg(DISTINCT x.n), '{}') AS list
    FROM (
        SELECT c.n, k.id, sum(k.weight) OVER (PARTITION BY k.id ORDER BY c.n) AS upto FROM candidate c CROSS JOIN LATERAL unnest(c.keys, c.weights) AS k (id, weight)
    ) x
    WHERE x.upto > ` + slotsRemainingSQL("x.id") + `
),
known AS MATERIALIZED (SELECT namespace, min(place) AS upto FROM candidate WHERE nth = $3::int GROUP BY namespace),
admitted AS MATERIALIZED (
    SELECT c.* FROM candidate c LEFT JOIN known k ON k.namespace = c.namespace
    WHERE c.n <> ALL ((SELECT list FROM refused)::bigint[]) AND (k.upto IS NULL OR c.place <= k.upto)
    ORDER BY c.n
    LIMIT $3::int
),
keys_of AS MATERIALIZED (
    SELECT coalesce(jsonb_object_agg(a.step_uuid, (SELECT coalesce(jsonb_object_agg(k.id, k.weight), '{}') FROM unnest(a.keys, a.weights) AS k (id, weight))), '{}') AS list FROM admitted a
),
`
}

// placeSteps contains the common table expressions of a lease that unpark steps, insert their slots
// and charge their rates.
const placeSteps = `,
back AS (
    DELETE FROM tasker.held_steps a
    USING picked p
    WHERE p.ready_row IS NULL AND a.task_uuid = p.task_uuid AND a.step_uuid = p.step_uuid
),
placed AS (
    INSERT INTO tasker.limit_slots (limit_key_id, task_uuid, step_uuid, fence, weight)
    SELECT k.id::bigint, s.task_uuid, s.step_uuid, s.fence, k.weight::int
    FROM claimed s
    CROSS JOIN LATERAL jsonb_each_text((SELECT list FROM keys_of) -> s.step_uuid::text) AS k (id, weight)
    ON CONFLICT (limit_key_id, task_uuid, step_uuid) DO UPDATE SET fence = excluded.fence, weight = excluded.weight
    RETURNING limit_key_id, weight
),
charged AS (
    UPDATE tasker.limit_keys k
    SET full_at = CASE WHEN m.per_second IS NULL THEN k.full_at ELSE greatest(k.full_at, c.at) + interval '1 second' * (u.places / m.per_second) END,
        used_at = CASE WHEN k.used_at < c.at - interval '5 minutes' THEN c.at ELSE k.used_at END
    FROM (SELECT limit_key_id, sum(weight) AS places FROM placed GROUP BY limit_key_id) u
    CROSS JOIN clock c
    CROSS JOIN LATERAL (SELECT m.per_second FROM mine m WHERE m.limit_key_id = u.limit_key_id LIMIT 1) m
    WHERE k.limit_key_id = u.limit_key_id AND (m.per_second IS NOT NULL OR k.used_at < c.at - interval '5 minutes')
)`

// looksSQL adds rows that explain why a claim found too few steps: its scan ended early, keys were
// not locked, or keys with free slots did not have enough steps. It also adds where the scan of
// parked steps ended.
func looksSQL(s limitSource) string {
	if s.isNamed() || s.shape == sharedOnly {
		return noteSQL("'unlocked'", `EXISTS (SELECT FROM open q WHERE q.unlocked)`)
	}
	const more = "1 OFFSET " + limitDepth
	return noteSQL("'further'", `CASE WHEN (SELECT count(*) FROM admitted) < $3::int THEN EXISTS (
    SELECT FROM open q
    WHERE (SELECT count(*) FROM ready r WHERE r.namespace = q.namespace AND r.handler = q.handler) < least($3::int, q.places) AND EXISTS (`+firstStepsSQL("", "tasker.ready_steps s", "s.state_since", "", more)+`)
) OR EXISTS (
    SELECT FROM open q
    CROSS JOIN mine k
    WHERE q.places > 0 AND k.places > (SELECT count(*) FROM admitted a WHERE k.limit_key_id = ANY (a.keys))
      AND EXISTS (`+firstStepsSQL("", "tasker.held_steps s", "s.state_since", " AND s.limit_key_id = k.limit_key_id", more)+`)
) END`) + noteSQL("'unlocked'", `CASE WHEN (SELECT count(*) FROM admitted) < $3::int THEN EXISTS (
    SELECT FROM open q
    WHERE q.unlocked OR q.places > 0 AND EXISTS (
        SELECT FROM (`+firstStepsSQL("s.task_uuid, s.step_uuid", "tasker.ready_steps s", "s.state_since", "", "CASE WHEN EXISTS (SELECT FROM admitted) THEN $3::int ELSE "+limitDepth+" END")+`) s
        CROSS JOIN LATERAL (
            SELECT bool_or(u.places IS NULL) AS unlocked, coalesce(bool_or(u.places = 0), false) AS full
            FROM (`+namesSQL("s")+` AND (SELECT names FROM named)) t
            LEFT JOIN tasker.limit_keys k ON k.limit_id = t.limit_id AND k.key = t.key
            CROSS JOIN LATERAL (SELECT ((SELECT of FROM places) ->> k.limit_key_id::text)::int AS places) u
        ) n
        WHERE n.unlocked AND NOT n.full
    )
) OR EXISTS (SELECT FROM clock c CROSS JOIN queues q`+joinParkedStepsSQL("s.step_uuid", "$8::bigint", "1", "1")+`) END`) +
		noteSQL("'blocked'", `NOT EXISTS (SELECT FROM admitted) AND EXISTS (
    SELECT FROM open q
    WHERE q.places > 0 AND (EXISTS (
        SELECT FROM tasker.ready_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler
    ) OR EXISTS (
        SELECT FROM parked_keys k JOIN mine m ON m.limit_key_id = k.limit_key_id AND m.places > 0 WHERE k.namespace = q.namespace AND k.handler = q.handler
    ))
)`) +
		noteWithNumberSQL("'looked'", "(SELECT coalesce(min(x.last), 0) FROM (SELECT max(k.limit_key_id) AS last FROM parked_keys k WHERE k.limit_key_id > $8::bigint AND k.limit_key_id <> ALL ("+freedKeys+") GROUP BY k.namespace, k.handler HAVING count(*) >= "+strconv.Itoa(maxParkedKeys)+" - cardinality("+freedKeys+")) x)",
			"EXISTS (SELECT FROM parked_keys GROUP BY namespace, handler HAVING count(*) = "+strconv.Itoa(maxParkedKeys)+")")
}

// sharedLimitsSQL selects the limits that all steps in the queue of a row share.
func sharedLimitsSQL(row string) string {
	return `
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = '' AND l.kind = 'server' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = ` + row + `.namespace AND l.kind = 'namespace' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = ` + row + `.namespace AND l.kind = 'handler' AND l.name = ` + row + `.handler`
}

// namesSQL selects the limits that a template assigns to a step, with their keys.
func namesSQL(row string) string {
	return `
        SELECT t.limit_id, t.key, t.weight
        FROM tasker.task_limits t
        JOIN tasker.limits l ON l.limit_id = t.limit_id
        WHERE t.task_uuid = ` + row + `.task_uuid AND (t.step_uuid IS NULL OR t.step_uuid = ` + row + `.step_uuid OR t.step_uuid = (
            SELECT i.map_step_uuid FROM tasker.workflow_steps i WHERE i.task_uuid = ` + row + `.task_uuid AND i.step_uuid = ` + row + `.step_uuid
        ))`
}

// limitsSQL selects all limits of a step, with their keys.
func limitsSQL(row string) string {
	return `SELECT x.limit_id, '' AS key, 1 AS weight FROM (` + sharedLimitsSQL(row) + `) x
        UNION ALL ` + namesSQL(row)
}

// freeSlotsSQL counts the free slots of key row p, at most most. Because the row is not locked, the
// count is only a hint.
func freeSlotsSQL(key, most string) string {
	return `CASE WHEN l.limit_id IS NULL THEN ` + most + ` ELSE least(` + most + `,
            CASE WHEN l.max_in_progress IS NOT NULL THEN l.max_in_progress - (
                SELECT coalesce(sum(n.weight), 0) FROM (SELECT h.weight FROM tasker.limit_slots h WHERE h.limit_key_id = ` + key + ` AND ` + holdsSlot + ` LIMIT l.max_in_progress) n
            ) END,
            CASE WHEN l.per_second IS NOT NULL
                THEN floor(l.burst - greatest(extract(epoch FROM nullif(p.full_at, '-infinity') - c.at), 0) * l.per_second + 1e-9) END
        )::bigint END`
}

// nextParkedKeysSQL selects the distinct keys in (after, upto] that have parked steps in queue q.
func nextParkedKeysSQL(after, upto string) string {
	next := func(after string) string {
		return `
                    SELECT s.limit_key_id FROM tasker.held_steps s
                    WHERE (s.namespace, s.handler, s.limit_key_id) > (q.namespace, q.handler, ` + after + `)
                      AND (s.namespace, s.handler, s.limit_key_id) <= (q.namespace, q.handler, ` + upto + `) AND s.limit_key_id IS NOT NULL
                    ORDER BY s.namespace, s.handler, s.limit_key_id LIMIT 1
                `
	}
	return `(
            WITH RECURSIVE n AS (
                (` + next(after) + `)
                UNION ALL
                SELECT (` + next("n.limit_key_id") + `)
                FROM n
                WHERE n.limit_key_id IS NOT NULL
            )
            SELECT n.limit_key_id FROM n WHERE n.limit_key_id IS NOT NULL LIMIT ` + strconv.Itoa(maxParkedKeys) + `
        )`
}
