package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
)

// Claims of queues in which steps may have limits are made in three statements of a transaction: one
// locks the keys of the limits, the next counts who has a place of them, and then so many steps
// are handed out as there are places. That the count is a statement of its own is what makes it
// exact: it sees what whoever had the lock before has committed.
//
// A place is not given back. It is a row that says which step was claimed under which fence, and it
// counts while the step is in progress under it: whoever ends, cancels or takes back the lease
// has freed the place. Rows that do not count any more are removed by whoever counts.
//
// A step that cannot be handed out is put aside under the key that has no place, so that the next
// claim does not look at it again before there is one.

// hasLimits is true where a step of the queues of the namespaces $1 and handlers $2 may have a limit.
const hasLimits = `EXISTS (SELECT FROM tasker.limit_queues) AND EXISTS (
        SELECT FROM tasker.limit_queues l
        WHERE l.namespace = ANY (array_append($1::text[], '')) AND l.handler || '' = ANY (array_append($2::text[], ''))
    )`

// limitedQueues remembers which claimants met limits, and the keys for which their last claim
// looked. Both are hints.
type limitedQueues struct {
	mu   sync.Mutex
	sets map[string]*limitedSet
}

type limitedSet struct {
	until  time.Time
	keys   []limitPlace
	cursor int64 // of the keys for which steps were put aside
}

// maxLimitedSets bounds what is remembered; all is forgotten beyond it.
const maxLimitedSets = 1000

func (c Claimant) queues() string {
	return strings.Join(c.Namespaces, "\x00") + "\x01" + strings.Join(c.Handlers, "\x00")
}

// mayHave reports whether the claimant met limits a moment ago.
func (q *limitedQueues) mayHave(c Claimant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.sets) == 0 {
		return false
	}
	s := q.sets[c.queues()]
	return s != nil && time.Now().Before(s.until)
}

// seen notes that the claimant met limits.
func (q *limitedQueues) seen(c Claimant) { q.change(c, func(*limitedSet) {}) }

func (q *limitedQueues) change(c Claimant, f func(*limitedSet)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := c.queues()
	s := q.sets[key]
	if s == nil {
		if q.sets == nil || len(q.sets) >= maxLimitedSets {
			q.sets = map[string]*limitedSet{}
		}
		s = &limitedSet{}
		q.sets[key] = s
	}
	if s.until.Before(time.Now()) {
		s.until = time.Now().Add(askFor)
	}
	f(s)
}

func (q *limitedQueues) hint(c Claimant) (keys []limitPlace, cursor int64) {
	q.change(c, func(s *limitedSet) { keys, cursor = s.keys, s.cursor })
	return keys, cursor
}

// A limitPlace is a key of a limit.
type limitPlace struct {
	LimitID int64
	Key     string
}

func comparePlaces(a, b limitPlace) int {
	if a.LimitID != b.LimitID {
		return int(min(max(a.LimitID-b.LimitID, -1), 1))
	}
	return strings.Compare(a.Key, b.Key)
}

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
SELECT k.limit_key_id, k.limit_id, k.key, l.max_in_progress, l.per_second, l.burst, c.at,
    greatest(extract(epoch FROM nullif(k.full_at, '-infinity') - c.at), 0)::float8 AS debt,
    (SELECT count(*) FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id)
        - (SELECT count(*) FROM dead d WHERE d.limit_key_id = k.limit_key_id) AS held
FROM unnest($1::bigint[]) AS u (limit_key_id)
CROSS JOIN clock c
JOIN tasker.limit_keys k ON k.limit_key_id = u.limit_key_id
JOIN tasker.limits l ON l.limit_id = k.limit_id`

// A limitCount is how a key of a limit stands.
type limitCount struct {
	LimitKeyID    int64
	LimitID       int64
	Key           string
	MaxInProgress *int64
	PerSecond     *float64
	Burst         *int
	At            time.Time
	Debt          *float64 // seconds until as many can begin at once as the burst allows
	Held          int64

	taken int64
}

// room is how many more steps may be handed out.
func (k *limitCount) room() int64 {
	n := int64(math.MaxInt32)
	if k.MaxInProgress != nil {
		n = *k.MaxInProgress - k.Held - k.taken
	}
	if k.PerSecond != nil {
		n = min(n, int64(math.Floor(float64(*k.Burst)-k.debt()**k.PerSecond+1e-9))-k.taken)
	}
	return max(n, 0)
}

func (k *limitCount) debt() float64 {
	if k.Debt == nil {
		return 0
	}
	return *k.Debt
}

// again is after how long a step may be handed out that waits for the key.
func (k *limitCount) again() time.Duration {
	if k.PerSecond == nil || k.MaxInProgress != nil && *k.MaxInProgress-k.Held-k.taken <= 0 {
		return limitRest // whoever ends a lease wakes those who wait in the same process
	}
	missing := float64(k.taken+1) - (float64(*k.Burst) - k.debt()**k.PerSecond)
	return min(max(time.Duration(missing / *k.PerSecond * float64(time.Second)), time.Millisecond), limitRest)
}

// limitRest is how long a claim rests at most while steps wait for a limit.
const limitRest = 250 * time.Millisecond

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
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes
        FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.step_uuid <> ALL ($6::uuid[])` + notHeld("s", "$5") + `
        ORDER BY s.priority DESC, s.state_since
        LIMIT $3::int
    ) e
    WHERE ` + getsWork + `
    ORDER BY e.priority DESC, e.state_since
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
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes
        FROM (SELECT a.*, NULL::uuid AS released_by FROM tasker.held_steps a) s
        WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_key_id = k.limit_key_id AND s.step_uuid <> ALL ($6::uuid[])` + notHeld("s", "$5") + `
        ORDER BY s.priority DESC, s.state_since
        LIMIT greatest(r.places, 0)
    ) e
    WHERE r.places > 0 AND ` + getsWork + `
    ORDER BY e.priority DESC, e.state_since
    LIMIT $3::int
)
SELECT c.task_uuid, c.step_uuid, c.namespace, c.handler, c.priority, c.state_since, c.inputs_bytes, c.aside,
    coalesce(l.ids, '{}') AS limit_ids, coalesce(l.keys, '{}') AS keys
FROM (SELECT r.*, NULL::bigint AS aside FROM ready r UNION ALL SELECT * FROM aside) c
CROSS JOIN LATERAL (
    SELECT array_agg(x.limit_id ORDER BY x.limit_id, x.key) AS ids, array_agg(x.key ORDER BY x.limit_id, x.key) AS keys
    FROM (` + limitsOf("c") + `) x
) l
ORDER BY c.priority DESC, c.state_since, c.step_uuid`
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

// A limitedStep is a step that may be handed out if its limits have places.
type limitedStep struct {
	TaskUUID    tasker.ID
	StepUUID    tasker.ID
	Namespace   string
	Handler     string
	Priority    int
	StateSince  time.Time
	InputsBytes *int64
	Aside       *int64 // the key under which it is put aside; nil: it is in the queue
	LimitIDs    []int64
	Keys        []string
}

func (s limitedStep) places() []limitPlace {
	list := make([]limitPlace, len(s.Keys))
	for i := range s.Keys {
		list[i] = limitPlace{s.LimitIDs[i], s.Keys[i]}
	}
	return list
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

// How far one claim goes: so many transactions, of which each puts at most so many steps aside.
const (
	limitRounds = 8
	maxAside    = 1000
)

// claimLimited hands out steps that may have limits.
func (db *DB) claimLimited(ctx context.Context, c Claimant, size claimSize, l look) (ClaimResult, error) {
	keys, cursor := db.limits.hint(c)
	depth := max(size.limit, 16)
	var all ClaimResult
	for round := 0; ; round++ {
		a := admission{claimant: c, size: claimSize{size.limit - len(all.Steps), size.budget - all.bytes, depth}, gates: noNil(l.gates), keys: keys, cursor: cursor}
		next, err := db.claimRound(ctx, &a)
		if err != nil && len(all.Steps) > 0 {
			return all, nil // what is handed out is committed
		}
		if err != nil {
			return ClaimResult{}, fmt.Errorf("claim steps with limits: %w", err)
		}
		all.add(next)
		keys, cursor = a.wanted, a.cursor
		db.limits.change(c, func(s *limitedSet) { s.keys, s.cursor = fewKeys(keys), cursor })
		if !a.goOn || round == limitRounds || len(all.Steps) >= size.limit || all.bytes >= size.budget || all.InTheWay() {
			break
		}
		if len(next.Steps) == 0 && len(a.unlocked) == 0 {
			depth = min(depth*lookFurther, maxAside)
		}
	}
	if len(all.Steps) == 0 && all.again == 0 {
		waits, err := db.waitsForLimit(ctx, c)
		if err != nil {
			return ClaimResult{}, err
		}
		if waits {
			all.again = limitRest
		}
	}
	return all, nil
}

// takeLimited hands out those of the steps that are enqueued and whose limits have places.
func (db *DB) takeLimited(ctx context.Context, c Claimant, steps []tasker.StepRef, l look) (ClaimResult, error) {
	var all ClaimResult
	var keys []limitPlace
	for round := 0; ; round++ {
		a := admission{
			claimant: c, size: claimSize{len(steps), tasker.MaxClaimBytes - all.bytes, len(steps) + 1}, gates: noNil(l.gates), named: steps, keys: keys,
		}
		next, err := db.claimRound(ctx, &a)
		if err != nil && len(all.Steps) > 0 {
			return all, nil // what is handed out is committed
		}
		if err != nil {
			return ClaimResult{}, fmt.Errorf("take steps with limits: %w", err)
		}
		all.add(next)
		if keys = a.wanted; len(a.unlocked) == 0 || round == limitRounds {
			return all, nil
		}
	}
}

// fewKeys returns the keys, or none if they are so many that the next steps will have others.
func fewKeys(keys []limitPlace) []limitPlace {
	if len(keys) > 16 {
		return nil
	}
	return keys
}

// An admission is one transaction of a claim with limits.
type admission struct {
	claimant Claimant
	size     claimSize
	gates    []tasker.ID
	named    []tasker.StepRef // only these; nil: what is most urgent
	keys     []limitPlace     // that are locked, in their order
	cursor   int64

	counts   map[limitPlace]*limitCount
	taken    []limitedStep
	refused  []limitedStep // by the key in blockedBy
	blocked  []int64
	wanted   []limitPlace // the keys of what was looked at
	unlocked []limitPlace // those of them that were not locked
	again    time.Duration
	goOn     bool // there may be more to hand out
}

func (db *DB) claimRound(ctx context.Context, a *admission) (result ClaimResult, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		*a = admission{claimant: a.claimant, size: a.size, gates: a.gates, named: a.named, keys: a.keys, cursor: a.cursor}
		if err := a.lock(ctx, tx); err != nil {
			return err
		}
		list, err := a.candidates(ctx, tx)
		if err != nil {
			return err
		}
		a.admit(list)
		if err := a.putAside(ctx, tx); err != nil {
			return err
		}
		result, err = a.lease(ctx, tx)
		return err
	})
	if err != nil {
		return ClaimResult{}, err
	}
	result.again = a.again
	return result, nil
}

// lock locks the keys, makes those that are not there, and counts their places.
func (a *admission) lock(ctx context.Context, tx *Tx) error {
	a.counts = make(map[limitPlace]*limitCount, len(a.keys))
	if len(a.keys) == 0 {
		return nil
	}
	type locked struct {
		LimitKeyID int64
		limitPlace
	}
	ids, texts := make([]int64, len(a.keys)), make([]string, len(a.keys))
	for i, k := range a.keys {
		ids[i], texts[i] = k.LimitID, k.Key
	}
	list, err := collect[locked](ctx, tx, lockLimitKeys, ids, texts)
	if err != nil {
		return err
	}
	if len(list) < len(a.keys) {
		if _, err := tx.Exec(ctx, makeLimitKeys, ids, texts); err != nil {
			return err
		}
		if list, err = collect[locked](ctx, tx, lockLimitKeys, ids, texts); err != nil {
			return err
		}
	}
	keys := make([]int64, len(list))
	for i, k := range list {
		keys[i] = k.LimitKeyID
	}
	counts, err := collect[limitCount](ctx, tx, countLimitKeys, keys)
	if err != nil {
		return err
	}
	for i := range counts {
		a.counts[limitPlace{counts[i].LimitID, counts[i].Key}] = &counts[i]
	}
	return nil
}

func (a *admission) candidates(ctx context.Context, tx *Tx) ([]limitedStep, error) {
	c := a.claimant
	if a.named != nil {
		tasks, steps := refArrays(a.named)
		return collect[limitedStep](ctx, tx, limitedNamed, c.Namespaces, c.Handlers, tasks, c.WorkerUUID, a.gates, noNil(c.Without), steps)
	}
	args := []any{c.Namespaces, c.Handlers, a.size.depth, c.WorkerUUID, a.gates, noNil(c.Without), a.cursor}
	if len(c.Namespaces)*len(c.Handlers) > manyQueues {
		return collect[limitedStep](ctx, tx, limitedCandidatesMany, args...)
	}
	return collect[limitedStep](ctx, tx, limitedCandidates, args...)
}

// admit chooses, in the order of urgency, the steps whose limits have places.
func (a *admission) admit(list []limitedStep) {
	seen := map[limitPlace]bool{}
	a.goOn = len(list) >= a.size.depth
	last := int64(0)
	for _, s := range list {
		if s.Aside != nil {
			last = max(last, *s.Aside)
		}
		full, known := a.blocker(s, seen)
		switch {
		case !known:
			a.goOn = true
		case full != nil:
			a.refused, a.blocked = append(a.refused, s), append(a.blocked, full.LimitKeyID)
			if wait := full.again(); a.again == 0 || wait < a.again {
				a.again = wait
			}
		case len(a.taken) < a.size.limit:
			a.taken = append(a.taken, s)
			for _, p := range s.places() {
				a.counts[p].taken++
			}
		default:
			a.goOn = true
		}
	}
	a.cursor = last
	for p := range seen {
		a.wanted = append(a.wanted, p)
		if a.counts[p] == nil {
			a.unlocked = append(a.unlocked, p)
		}
	}
	slices.SortFunc(a.wanted, comparePlaces)
}

// blocker returns the first key of a step that has no place; known is false when one is not locked.
func (a *admission) blocker(s limitedStep, seen map[limitPlace]bool) (full *limitCount, known bool) {
	known = true
	for _, p := range s.places() {
		seen[p] = true
		k := a.counts[p]
		if k == nil {
			known = false
		} else if full == nil && k.room() == 0 {
			full = k
		}
	}
	return full, known || full != nil
}

// putAside puts what has no place aside, so that it is not looked at again before there is one.
func (a *admission) putAside(ctx context.Context, tx *Tx) error {
	type list struct {
		tasks, steps []tasker.ID
		keys         []int64
	}
	var queued, other list
	for i, s := range a.refused {
		to := &queued
		if s.Aside != nil {
			if *s.Aside == a.blocked[i] {
				continue
			}
			to = &other
		}
		to.tasks, to.steps, to.keys = append(to.tasks, s.TaskUUID), append(to.steps, s.StepUUID), append(to.keys, a.blocked[i])
	}
	if len(queued.tasks) > 0 {
		if _, err := tx.Exec(ctx, setAsideLimited, queued.tasks, queued.steps, queued.keys); err != nil {
			return err
		}
	}
	if len(other.tasks) > 0 {
		if _, err := tx.Exec(ctx, changeKey, other.tasks, other.steps, other.keys); err != nil {
			return err
		}
	}
	return nil
}

// lease hands out what was admitted, with its places, and has the rates count it.
func (a *admission) lease(ctx context.Context, tx *Tx) (ClaimResult, error) {
	if len(a.taken) == 0 {
		return ClaimResult{Steps: []Claimed{}}, nil
	}
	c := a.claimant
	var tasks, steps, placed []tasker.ID
	var aside []bool
	var keys []int64
	byStep := make(map[tasker.ID][]limitPlace, len(a.taken))
	for _, s := range a.taken {
		tasks, steps, aside = append(tasks, s.TaskUUID), append(steps, s.StepUUID), append(aside, s.Aside != nil)
		byStep[s.StepUUID] = s.places()
		for _, p := range byStep[s.StepUUID] {
			placed, keys = append(placed, s.StepUUID), append(keys, a.counts[p].LimitKeyID)
		}
	}
	rows, err := collect[claimRow](ctx, tx, leaseLimited, c.Namespaces, c.Handlers, tasks, c.WorkerUUID, c.Lease, noNil(c.Without), a.size.budget,
		steps, aside, noNil(placed), noNil(keys))
	if err != nil {
		return ClaimResult{}, err
	}
	result := claimResult(rows)
	charged := map[int64]float64{}
	for _, s := range result.Steps {
		for _, p := range byStep[s.StepUUID] {
			if k := a.counts[p]; k.PerSecond != nil {
				charged[k.LimitKeyID]++
			}
		}
	}
	return result, a.charge(ctx, tx, charged)
}

func (a *admission) charge(ctx context.Context, tx *Tx, steps map[int64]float64) error {
	if len(steps) == 0 {
		return nil
	}
	var keys []int64
	var counts []float64
	for k, n := range steps {
		keys, counts = append(keys, k), append(counts, n)
	}
	_, err := tx.Exec(ctx, chargeKeys, keys, counts)
	return err
}
