package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const limitColumns = `
    l.kind, l.namespace, l.name, coalesce(l.max_in_progress, 0) AS max_in_progress, coalesce(l.per_second, 0) AS per_second, coalesce(l.burst, 0) AS burst,
    l.by_template, l.changed_at, l.changed_by`

var countLimit = `,
    (SELECT coalesce(sum(n.weight), 0) FROM (
        SELECT h.weight FROM tasker.limit_keys k
        JOIN tasker.limit_slots h ON h.limit_key_id = k.limit_key_id
        WHERE k.limit_id = l.limit_id AND ` + holdsSlot + `
        LIMIT ` + maxLimitCount + `
    ) n) AS in_progress,
    (SELECT count(*) FROM (
        SELECT FROM tasker.limit_keys k
        JOIN tasker.held_steps q ON q.limit_key_id = k.limit_key_id
        WHERE k.limit_id = l.limit_id
        LIMIT ` + maxLimitCount + `
    ) n) AS waiting`

var maxLimitCount = strconv.Itoa(tasker.MaxLimitCount)

// Callers restricted to some namespaces do not see the server limit, which counts the steps of all.
var selectLimits = `
SELECT ` + limitColumns + countLimit + `
FROM tasker.limits l
WHERE ($1 = '' OR l.namespace = $1) AND ($2::text[] IS NULL OR l.namespace = ANY ($2))
  AND (l.namespace, l.kind, l.name) > ($3::text, $4::text, $5::text) AND ($7 = '' OR l.kind = $7) AND ($8 = '' OR l.name = $8)
ORDER BY l.namespace, l.kind, l.name
LIMIT $6`

// Limits returns a page of visible limits, and whether more exist.
func (db *DB) Limits(ctx context.Context, f tasker.LimitFilter, after tasker.LimitRef) (list []tasker.Limit, more bool, err error) {
	list, err = collect[tasker.Limit](ctx, db.pool, selectLimits, f.Namespace, access.ScopeOf(ctx).List(), after.Namespace, string(after.Kind), after.Name, f.Limit+1,
		string(f.Kind), f.Name)
	if err != nil {
		return nil, false, fmt.Errorf("list limits: %w", err)
	}
	list, more = page(list, f.Limit)
	return list, more, nil
}

var oneLimit = `
SELECT ` + limitColumns + countLimit + `
FROM tasker.limits l
WHERE (l.namespace, l.kind, l.name) = ($1, $2, $3) AND ($4::text[] IS NULL OR l.namespace = ANY ($4))`

func limitOf(ctx context.Context, q querier, ref tasker.LimitRef) (tasker.Limit, error) {
	l, err := one[tasker.Limit](ctx, q, oneLimit, ref.Namespace, string(ref.Kind), ref.Name, access.ScopeOf(ctx).List())
	if err != nil {
		return tasker.Limit{}, fmt.Errorf("read limit %s: %w", ref, err)
	}
	if l == nil {
		return tasker.Limit{}, tasker.Errorf(tasker.NotFound, "no limit %s", ref)
	}
	return *l, nil
}

// maxLimitKeysRead is the number of keys among which those with the most waiting steps are
// selected.
const maxLimitKeysRead = 10_000

var selectLimitKeys = `
SELECT k.limit_key_id, k.key, w.in_progress, w.waiting,
    CASE WHEN l.per_second IS NOT NULL AND l.burst - extract(epoch FROM nullif(k.full_at, '-infinity') - clock_timestamp()) * l.per_second < 1
        THEN k.full_at - interval '1 second' * ((l.burst - 1) / l.per_second) END AS free_at
FROM tasker.limits l
CROSS JOIN LATERAL (SELECT * FROM tasker.limit_keys k WHERE k.limit_id = l.limit_id ORDER BY k.limit_id, k.key LIMIT ` + strconv.Itoa(maxLimitKeysRead) + `) k
CROSS JOIN LATERAL (
    SELECT (SELECT coalesce(sum(n.weight), 0) FROM (SELECT h.weight FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id AND ` + holdsSlot + ` LIMIT ` + maxLimitCount + `) n) AS in_progress,
        (SELECT count(*) FROM (SELECT FROM tasker.held_steps q WHERE q.limit_key_id = k.limit_key_id LIMIT ` + maxLimitCount + `) n) AS waiting
) w
WHERE (l.namespace, l.kind, l.name) = ($1, $2, $3)
ORDER BY w.waiting DESC, w.in_progress DESC, k.key
LIMIT $4`

var selectLimitHolders = `
SELECT k.limit_key_id, x.task_uuid, x.step_uuid, x.step, x.claimed_at, x.weight
FROM unnest($1::bigint[]) AS k (limit_key_id)
CROSS JOIN LATERAL (
    SELECT s.task_uuid, s.step_uuid, s.name AS step, s.last_attempted_at AS claimed_at, h.weight
    FROM tasker.limit_slots h
    JOIN tasker.workflow_steps s ON s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
    WHERE h.limit_key_id = k.limit_key_id AND ($2::text[] IS NULL OR s.namespace = ANY ($2))
    ORDER BY s.last_attempted_at, s.step_uuid
    LIMIT ` + strconv.Itoa(tasker.MaxLimitHolders) + `
) x`

// Limit returns a limit with its keys and the steps that hold their slots.
func (db *DB) Limit(ctx context.Context, ref tasker.LimitRef) (tasker.LimitDetail, error) {
	l, err := limitOf(ctx, db.pool, ref)
	if err != nil {
		return tasker.LimitDetail{}, err
	}
	type keyRow struct {
		LimitKeyID int64
		tasker.LimitKey
	}
	type holder struct {
		LimitKeyID int64
		tasker.LimitStep
	}
	d := tasker.LimitDetail{Limit: l, Keys: []tasker.LimitKey{}}
	rows, err := collect[keyRow](ctx, db.pool, selectLimitKeys, ref.Namespace, string(ref.Kind), ref.Name, tasker.MaxLimitKeys)
	if err != nil {
		return d, fmt.Errorf("read the keys of limit %s: %w", ref, err)
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.LimitKeyID
	}
	holders, err := collect[holder](ctx, db.pool, selectLimitHolders, ids, access.ScopeOf(ctx).List())
	if err != nil {
		return d, fmt.Errorf("read the slots of limit %s: %w", ref, err)
	}
	of := map[int64][]tasker.LimitStep{}
	for _, h := range holders {
		of[h.LimitKeyID] = append(of[h.LimitKeyID], h.LimitStep)
	}
	for _, r := range rows {
		r.Holders = of[r.LimitKeyID]
		d.Keys = append(d.Keys, r.LimitKey)
	}
	access.HideLimitKeys(ctx, &d)
	return d, nil
}

const putLimit = `
INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, per_second, burst, by_template, changed_by)
VALUES ($1, $2, $3, nullif($4::int, 0), nullif($5::float8, 0), nullif($6::int, 0), false, $7)
ON CONFLICT (namespace, kind, name) DO UPDATE
SET max_in_progress = excluded.max_in_progress, per_second = excluded.per_second, burst = excluded.burst, by_template = false,
    changed_by = excluded.changed_by, changed_at = clock_timestamp()
RETURNING limit_id`

// PutLimit creates or changes a limit, which applies to claims after the commit.
func (db *DB) PutLimit(ctx context.Context, ref tasker.LimitRef, v tasker.LimitValue, by Operator) (limit tasker.Limit, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		count, err := value[int](ctx, tx, `SELECT count(*) FROM tasker.limits WHERE namespace = $1 AND (kind, name) <> ($2, $3)`, ref.Namespace, string(ref.Kind), ref.Name)
		if err != nil {
			return fmt.Errorf("count limits: %w", err)
		}
		if count >= tasker.MaxLimits {
			return tasker.Errorf(tasker.Conflict, "namespace %s has %d limits, which is as many as it may have", ref.Namespace, count)
		}
		id, err := value[int64](ctx, tx, putLimit, string(ref.Kind), ref.Namespace, ref.Name, v.MaxInProgress, v.PerSecond, v.Burst, by.Actor)
		if err != nil {
			return fmt.Errorf("set limit %s: %w", ref, err)
		}
		// The queues of a named limit are those of the templates that assign it.
		if _, err := tx.Exec(ctx, `
			INSERT INTO tasker.limit_queues (namespace, handler, limit_id)
			SELECT $2, CASE WHEN $3 = 'handler' THEN $4 ELSE '' END, $1
			WHERE $3 <> 'name'
			ON CONFLICT DO NOTHING`, id, ref.Namespace, string(ref.Kind), ref.Name); err != nil {
			return fmt.Errorf("set limit %s: %w", ref, err)
		}
		if err := tx.auditLimit(ctx, "limit.set", ref, &v, by); err != nil {
			return err
		}
		limit, err = limitOf(ctx, tx, ref)
		return err
	})
	return limit, err
}

// DeleteLimit deletes a limit. The steps that wait for it return to the queue later.
func (db *DB) DeleteLimit(ctx context.Context, ref tasker.LimitRef, by Operator) error {
	return db.InTx(ctx, func(tx *Tx) error {
		if _, err := limitOf(ctx, tx, ref); err != nil {
			return err
		}
		assigned, err := value[bool](ctx, tx, `
			SELECT EXISTS (SELECT FROM tasker.limits l JOIN tasker.limit_queues q USING (limit_id) WHERE (l.namespace, l.kind, l.name) = ($1, 'name', $2))`, ref.Namespace, ref.Name)
		if err != nil {
			return fmt.Errorf("delete limit %s: %w", ref, err)
		}
		if ref.Kind == tasker.NamedLimit && assigned {
			return tasker.Errorf(tasker.Conflict, "templates give limit %s to their steps: set another value", ref)
		}
		if err := tx.deleteLimit(ctx, ref); err != nil {
			return fmt.Errorf("delete limit %s: %w", ref, err)
		}
		return tx.auditLimit(ctx, "limit.deleted", ref, nil, by)
	})
}

// deleteLimit deletes a limit with its keys. It deletes their slots once no claim locks the keys.
func (tx *Tx) deleteLimit(ctx context.Context, ref tasker.LimitRef) error {
	keys, err := column[int64](ctx, tx, `
		DELETE FROM tasker.limit_keys k USING tasker.limits l
		WHERE l.limit_id = k.limit_id AND (l.namespace, l.kind, l.name) = ($1, $2, $3)
		RETURNING k.limit_key_id`, ref.Namespace, string(ref.Kind), ref.Name)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM tasker.limit_slots WHERE limit_key_id = ANY ($1)`, keys); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM tasker.limits WHERE (namespace, kind, name) = ($1, $2, $3)`, ref.Namespace, string(ref.Kind), ref.Name)
	return err
}

// limitedSteps selects up to $1 parked steps that return to the queue. Either their limit was
// deleted, or their keys have free slots. In the latter case the server must have a broker ($2), or
// the step has been parked for the worker queue TTL ($4, in ms), or its queue has no live worker.
// The scan starts after key $3 and checks only the most urgent steps of each key and queue.
var limitedSteps = `
WITH RECURSIVE clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
parked AS (
    (SELECT s.limit_key_id FROM tasker.held_steps s WHERE s.limit_key_id > $3 ORDER BY s.limit_key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT s.limit_key_id FROM tasker.held_steps s WHERE s.limit_key_id > a.limit_key_id ORDER BY s.limit_key_id LIMIT 1)
    FROM parked a
    WHERE a.limit_key_id IS NOT NULL
),
keys AS MATERIALIZED (
    SELECT a.limit_key_id, l.limit_id, ` + freeSlots("a.limit_key_id", "$1::int") + ` AS places
    FROM (SELECT * FROM parked WHERE limit_key_id IS NOT NULL LIMIT ` + strconv.Itoa(maxUnparkKeys) + `) a
    CROSS JOIN clock c
    LEFT JOIN tasker.limit_keys p ON p.limit_key_id = a.limit_key_id
    LEFT JOIN tasker.limits l ON l.limit_id = p.limit_id
),
queues AS (
    (SELECT s.namespace, s.handler FROM tasker.held_steps s WHERE s.namespace >= '' ORDER BY s.namespace, s.handler LIMIT 1)
    UNION ALL
    SELECT n.*
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT s.namespace, s.handler FROM tasker.held_steps s
        WHERE (s.namespace, s.handler) > (q.namespace, q.handler)
        ORDER BY s.namespace, s.handler LIMIT 1
    ) n
),
unserved AS MATERIALIZED (
    SELECT q.namespace, q.handler
    FROM queues q
    WHERE NOT EXISTS (
        SELECT FROM tasker.workers w WHERE ` + liveWorker + ` AND q.namespace = ANY (w.namespaces) AND q.handler = ANY (w.handlers)
    )
)
SELECT coalesce((SELECT max(limit_key_id) FROM keys), 0) AS last, (SELECT count(*) FROM keys) AS keys,
    coalesce(array_agg(x.task_uuid), '{}') AS tasks, coalesce(array_agg(x.step_uuid), '{}') AS steps
FROM (
    SELECT e.task_uuid, e.step_uuid
    FROM keys k
    CROSS JOIN clock c
    CROSS JOIN LATERAL (
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.held_at, s.queue_ttl_ms
        FROM tasker.held_steps s
        WHERE s.limit_key_id = k.limit_key_id
        ORDER BY s.limit_key_id, s.priority DESC, s.state_since
        LIMIT greatest(k.places, 0)
    ) e
    WHERE k.limit_id IS NULL
       OR ($2 OR e.held_at <= c.at - interval '1 millisecond' * coalesce(e.queue_ttl_ms, $4)) AND NOT EXISTS (` + fullKeyOf("e") + `)
    UNION
    SELECT e.task_uuid, e.step_uuid
    FROM keys k
    CROSS JOIN unserved u
    CROSS JOIN LATERAL (
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler
        FROM tasker.held_steps s
        WHERE s.namespace = u.namespace AND s.handler = u.handler AND s.limit_key_id = k.limit_key_id
        ORDER BY s.namespace, s.handler, s.limit_key_id, s.priority DESC, s.state_since
        LIMIT greatest(k.places, 0)
    ) e
    WHERE NOT EXISTS (` + fullKeyOf("e") + `)
    LIMIT $1::int
) x`

// maxUnparkKeys is the maximum number of keys with parked steps in one pass.
const maxUnparkKeys = 200

// unparkSteps returns the steps $1, $2 of locked tasks to the queue with their full queue time. An
// outdated row is only removed. $3 is the worker queue TTL in ms, $4 whether to announce steps.
var unparkSteps = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
next AS MATERIALIZED (
    SELECT q.*
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    CROSS JOIN LATERAL (
        SELECT * FROM tasker.held_steps a
        WHERE a.task_uuid = d.task_uuid AND a.step_uuid = d.step_uuid AND a.limit_key_id IS NOT NULL
        FOR UPDATE SKIP LOCKED
    ) q
),
gone AS (
    DELETE FROM tasker.held_steps q USING next n WHERE q.task_uuid = n.task_uuid AND q.step_uuid = n.step_uuid
),
back AS (
    UPDATE tasker.workflow_steps s
    SET expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $3), updated_at = c.at
    FROM next n
    CROSS JOIN clock c
    WHERE s.task_uuid = n.task_uuid AND s.step_uuid = n.step_uuid AND s.state || '' = 'enqueued' AND s.state_since = n.state_since
    RETURNING ` + returnReady + `, n.released_by
),
ready AS (
    INSERT INTO tasker.ready_steps (` + readyColumns + `, released_by, due_at)
    SELECT ` + readyColumns + `, released_by, ` + orderOf("back") + ` FROM back
    ON CONFLICT (namespace, handler, priority, state_since, step_uuid) DO UPDATE -- the step was written manually
    SET released_by = excluded.released_by, expires_at = excluded.expires_at, limit_passed_at = NULL
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM back WHERE $4 ORDER BY task_uuid, step_uuid
)
SELECT DISTINCT namespace FROM back`

// pruneLimitKeys deletes keys without slots and waiting steps that no claim has used for $1. It
// checks $3 keys after $2, which bounds its cost, and returns the last; 0 at the end.
const pruneLimitKeys = `
WITH seen AS MATERIALIZED (
    SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_key_id > $2 ORDER BY k.limit_key_id LIMIT $3::int
),
old AS MATERIALIZED (
    SELECT k.limit_key_id
    FROM seen s
    CROSS JOIN LATERAL (
        SELECT k.limit_key_id FROM tasker.limit_keys k
        WHERE k.limit_key_id = s.limit_key_id AND k.used_at < clock_timestamp() - $1::interval AND k.full_at < clock_timestamp()
          AND NOT EXISTS (SELECT FROM tasker.held_steps q WHERE q.limit_key_id = k.limit_key_id)
          AND NOT EXISTS (SELECT FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id AND ` + holdsSlot + `)
        FOR UPDATE SKIP LOCKED
    ) k
),
slots AS (DELETE FROM tasker.limit_slots h USING old WHERE h.limit_key_id = old.limit_key_id),
keys AS (DELETE FROM tasker.limit_keys k USING old WHERE k.limit_key_id = old.limit_key_id)
SELECT CASE WHEN count(*) = $3::int THEN max(limit_key_id) ELSE 0 END FROM seen`

// PruneLimitKeys deletes the keys among the limit keys after the given one that were unused for
// age. It returns the last key checked; 0 at the end.
func (db *DB) PruneLimitKeys(ctx context.Context, age time.Duration, after int64, limit int) (int64, error) {
	last, err := value[int64](ctx, db.pool, pruneLimitKeys, age, after, limit)
	return last, wrap(err, "prune the keys of limits")
}

// An index skip scan finds the handlers with parked steps, up to the first requested one.
const waitsForLimit = `
WITH RECURSIVE parked AS (
    SELECT n.namespace, (
        SELECT s.handler FROM tasker.held_steps s WHERE s.namespace = n.namespace AND s.limit_key_id IS NOT NULL
        ORDER BY s.namespace, s.handler, s.limit_key_id LIMIT 1
    ) AS handler
    FROM unnest($1::text[]) AS n (namespace)
    UNION ALL
    SELECT a.namespace, (
        SELECT s.handler FROM tasker.held_steps s WHERE s.namespace = a.namespace AND s.handler > a.handler AND s.limit_key_id IS NOT NULL
        ORDER BY s.namespace, s.handler, s.limit_key_id LIMIT 1
    )
    FROM parked a
    WHERE a.handler <> ALL ($2::text[])
)
SELECT EXISTS (SELECT FROM parked a WHERE a.handler = ANY ($2::text[]))`

func (db *DB) waitsForLimit(ctx context.Context, c Claimant) (bool, error) {
	v, err := value[bool](ctx, db.pool, waitsForLimit, c.Namespaces, c.Handlers)
	return v, wrap(err, "find steps that wait for a limit")
}

func (tx *Tx) auditLimit(ctx context.Context, action string, ref tasker.LimitRef, v *tasker.LimitValue, by Operator) error {
	doc, err := json.Marshal(struct {
		Reason string             `json:"reason,omitempty"`
		Value  *tasker.LimitValue `json:"value,omitempty"`
	}{by.Reason, v})
	if err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	return tx.auditText(ctx, by.Actor, action, ref.String(), doc)
}
