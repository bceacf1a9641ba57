package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Parts of a recursive WITH that select the queues with waiting, unserved and parked steps.
var (
	enqueuedPairs = pairs("enqueued", "tasker.ready_steps s WHERE true")
	awaitingPairs = pairs("awaiting", "tasker.workflow_steps s WHERE s.awaits_worker_since IS NOT NULL")
	heldPairs     = pairs("parked", "tasker.held_steps s WHERE true")
)

// pairs returns a part of a recursive WITH that selects the namespaces and handlers of steps, in one
// namespace or in all if it is empty. It skips through an index, so its cost depends on the number
// of pairs, not of steps.
func pairs(name, steps string) string {
	return name + ` AS (
    (
        SELECT s.namespace, s.handler
        FROM ` + steps + ` AND (s.namespace, s.handler) >= ((SELECT a.namespace FROM asked a), '')
        ORDER BY s.namespace, s.handler
        LIMIT 1
    )
    UNION ALL
    SELECT n.namespace, n.handler
    FROM ` + name + ` q
    CROSS JOIN LATERAL (
        SELECT s.namespace, s.handler
        FROM ` + steps + ` AND (s.namespace, s.handler) > (q.namespace, q.handler)
        ORDER BY s.namespace, s.handler
        LIMIT 1
    ) n
    WHERE (SELECT a.namespace FROM asked a) IN ('', q.namespace)
)`
}

// selectQueues finds the oldest step of a queue by skipping from priority to priority. It counts
// only the steps of returned queues, up to $3. It checks only the first rows for outdated ones:
// checking 10,000 rows would read 30,000 pages instead of 300.
var selectQueues = `
WITH RECURSIVE asked AS (SELECT $1::text AS namespace),
` + enqueuedPairs + `,
` + awaitingPairs + `,
` + heldPairs + `,
groups AS MATERIALIZED (
    SELECT w.namespaces, w.handlers, count(*) AS workers
    FROM tasker.workers w
    WHERE ` + liveWorker + `
    GROUP BY w.namespaces, w.handlers
),
shown AS MATERIALIZED (
    SELECT p.namespace, p.handler, coalesce(live.workers, 0) AS live_workers, oldest.queued_at, oldest.expires_at,
        least(oldest.queued_at, late.since) AS waits_since
    FROM (SELECT namespace, handler FROM enqueued UNION SELECT namespace, handler FROM awaiting UNION SELECT namespace, handler FROM parked) p
    CROSS JOIN LATERAL (
        SELECT sum(c.workers)::bigint AS workers
        FROM groups c
        WHERE p.namespace = ANY (c.namespaces) AND p.handler = ANY (c.handlers)
    ) live
    CROSS JOIN LATERAL (
        WITH RECURSIVE heads AS (
            (
                SELECT s.priority, s.state_since, s.expires_at
                FROM tasker.ready_steps s
                WHERE s.namespace = p.namespace AND s.handler = p.handler AND NOT ` + isOutdated("s") + `
                ORDER BY s.priority DESC, s.state_since
                LIMIT 1
            )
            UNION ALL
            SELECT n.priority, n.state_since, n.expires_at
            FROM heads q
            CROSS JOIN LATERAL (
                SELECT s.priority, s.state_since, s.expires_at
                FROM tasker.ready_steps s
                WHERE s.namespace = p.namespace AND s.handler = p.handler AND s.priority < q.priority AND NOT ` + isOutdated("s") + `
                ORDER BY s.priority DESC, s.state_since
                LIMIT 1
            ) n
        )
        SELECT min(state_since) AS queued_at, min(expires_at) AS expires_at FROM heads
    ) oldest
    CROSS JOIN LATERAL (
        SELECT min(s.awaits_worker_since) AS since
        FROM tasker.workflow_steps s
        WHERE s.awaits_worker_since IS NOT NULL AND s.namespace = p.namespace AND s.handler = p.handler
    ) late
    WHERE $1::text IN ('', p.namespace) AND ($4::text[] IS NULL OR p.namespace = ANY ($4))
    ORDER BY coalesce(live.workers, 0) > 0 OR oldest.queued_at IS NULL AND late.since IS NULL, waits_since, p.namespace, p.handler
    LIMIT $2
)
SELECT q.namespace, q.handler, least(waiting.steps, $3) AS queued, waiting.steps > $3 AS queued_is_at_least,
    q.queued_at AS oldest_queued_at, least(q.expires_at, waiting.expires_at) AS next_expires_at,
    late.steps AS awaiting_worker, held.steps AS held, limited.steps AS limited, past.steps AS saturated,
    CASE WHEN past.steps > 0 THEN (SELECT x.saturated_since FROM tasker.queues x WHERE x.namespace = q.namespace AND x.handler = q.handler) END AS saturated_since,
    q.live_workers, q.live_workers = 0 AND q.waits_since IS NOT NULL AS unserved
FROM shown q
CROSS JOIN LATERAL (
    SELECT count(*) AS steps, min(x.expires_at) AS expires_at
    FROM (
        SELECT s.expires_at
        FROM tasker.ready_steps s
        WHERE q.queued_at IS NOT NULL AND s.namespace = q.namespace AND s.handler = q.handler
        ORDER BY s.priority DESC, s.state_since
        LIMIT $3::bigint + 1
    ) x
) waiting
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM (
        SELECT FROM tasker.workflow_steps s
        WHERE s.awaits_worker_since IS NOT NULL AND s.namespace = q.namespace AND s.handler = q.handler
        LIMIT $3::bigint
    ) x
) late
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM (SELECT FROM tasker.held_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.hold_uuid IS NOT NULL LIMIT $3::bigint) x
) held
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM (SELECT FROM tasker.held_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_key_id IS NOT NULL LIMIT $3::bigint) x
) limited
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM (SELECT FROM tasker.ready_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_passed_at IS NOT NULL LIMIT $3::bigint) x
) past
WHERE waiting.steps + late.steps + held.steps + limited.steps > 0
ORDER BY q.live_workers > 0 OR q.waits_since IS NULL, q.waits_since, q.namespace, q.handler`

// Queues returns up to limit queues with waiting or parked steps of one namespace, or of all if it
// is empty. Queues without live workers come first, then the longest wait, then queues with only
// parked steps. If not all steps of a queue were counted, NextExpiresAt covers the most urgent and
// the oldest steps. Outdated rows count until they are removed.
func (db *DB) Queues(ctx context.Context, namespace string, limit int) ([]tasker.Queue, error) {
	return db.queues(ctx, namespace, limit, tasker.MaxQueueCount)
}

func (db *DB) queues(ctx context.Context, namespace string, limit, maxSteps int) ([]tasker.Queue, error) {
	list, err := collect[tasker.Queue](ctx, db.pool, selectQueues, namespace, limit, maxSteps, access.ScopeOf(ctx).List())
	return list, wrap(err, "list queues")
}

// Bounds of Backlogs, which runs every few seconds.
const (
	backlogQueues = 1000
	backlogSteps  = 1000 // per queue
)

const liveWorkers = `
SELECT n.namespace, count(*) AS workers
FROM tasker.workers w
CROSS JOIN unnest(w.namespaces) AS n (namespace)
WHERE ` + liveWorker + `
GROUP BY n.namespace`

const selectNow = `SELECT clock_timestamp()`

// Backlogs returns the namespaces with waiting steps or live workers, most unserved steps first. It
// counts at most 1000 queues and 1000 steps of each.
func (db *DB) Backlogs(ctx context.Context) ([]tasker.Backlog, error) {
	queues, err := db.queues(ctx, "", backlogQueues, backlogSteps)
	if err != nil {
		return nil, err
	}
	workers, err := selectMap[string, int64](ctx, db.pool, "count live workers", liveWorkers)
	if err != nil {
		return nil, err
	}
	now, err := value[time.Time](ctx, db.pool, selectNow)
	if err != nil {
		return nil, fmt.Errorf("read the clock of the database: %w", err)
	}
	all := map[string]*tasker.Backlog{}
	of := func(namespace string) *tasker.Backlog {
		if all[namespace] == nil {
			all[namespace] = &tasker.Backlog{Namespace: namespace}
		}
		return all[namespace]
	}
	for _, q := range queues {
		b := of(q.Namespace)
		b.Steps += int64(q.Queued)
		b.Held += int64(q.Held)
		b.Limited += int64(q.Limited)
		b.Saturated += int64(q.Saturated)
		if q.OldestQueuedAt != nil {
			b.Oldest = max(b.Oldest, now.Sub(*q.OldestQueuedAt))
		}
		if q.Unserved {
			b.Unserved += int64(q.Queued + q.AwaitingWorker)
		}
	}
	for namespace, n := range workers {
		of(namespace).Workers = n
	}
	list := slices.SortedFunc(maps.Values(all), func(a, b *tasker.Backlog) int {
		return cmp.Or(cmp.Compare(b.Unserved, a.Unserved), cmp.Compare(b.Steps, a.Steps), cmp.Compare(a.Namespace, b.Namespace))
	})
	return mapped(list, func(b *tasker.Backlog) tasker.Backlog { return *b }), nil
}
