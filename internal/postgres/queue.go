package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker"
)

// The pairs of namespace and handler are found by jumping from one to the next in
// the index, so that what this costs grows with them and not with the steps. Within
// a pair the oldest step is found by jumping from priority to priority. Only pairs
// that are shown are counted, up to a limit.
//
// Text is never below the empty one, which so begins a namespace, or everything.
const selectQueues = `
WITH RECURSIVE enqueued AS (
    (
        SELECT s.namespace, s.handler
        FROM tasker.workflow_steps s
        WHERE s.state = 'enqueued' AND (s.namespace, s.handler) >= ($1::text, '')
        ORDER BY s.namespace, s.handler
        LIMIT 1
    )
    UNION ALL
    SELECT n.namespace, n.handler
    FROM enqueued q
    CROSS JOIN LATERAL (
        SELECT s.namespace, s.handler
        FROM tasker.workflow_steps s
        WHERE s.state = 'enqueued' AND (s.namespace, s.handler) > (q.namespace, q.handler)
        ORDER BY s.namespace, s.handler
        LIMIT 1
    ) n
    WHERE $1::text IN ('', q.namespace)
),
awaiting AS (
    (
        SELECT s.namespace, s.handler
        FROM tasker.workflow_steps s
        WHERE s.awaits_worker_since IS NOT NULL AND (s.namespace, s.handler) >= ($1::text, '')
        ORDER BY s.namespace, s.handler
        LIMIT 1
    )
    UNION ALL
    SELECT n.namespace, n.handler
    FROM awaiting q
    CROSS JOIN LATERAL (
        SELECT s.namespace, s.handler
        FROM tasker.workflow_steps s
        WHERE s.awaits_worker_since IS NOT NULL AND (s.namespace, s.handler) > (q.namespace, q.handler)
        ORDER BY s.namespace, s.handler
        LIMIT 1
    ) n
    WHERE $1::text IN ('', q.namespace)
),
crews AS MATERIALIZED (
    SELECT w.namespaces, w.handlers, count(*) AS workers
    FROM tasker.workers w
    WHERE ` + liveWorker + `
    GROUP BY w.namespaces, w.handlers
),
shown AS MATERIALIZED (
    SELECT p.namespace, p.handler, coalesce(live.workers, 0) AS live_workers, oldest.queued_at, oldest.expires_at,
        least(oldest.queued_at, late.since) AS waits_since
    FROM (SELECT namespace, handler FROM enqueued UNION SELECT namespace, handler FROM awaiting) p
    CROSS JOIN LATERAL (
        SELECT sum(c.workers)::bigint AS workers
        FROM crews c
        WHERE p.namespace = ANY (c.namespaces) AND p.handler = ANY (c.handlers)
    ) live
    CROSS JOIN LATERAL (
        WITH RECURSIVE heads AS (
            (
                SELECT s.priority, s.state_since, s.expires_at
                FROM tasker.workflow_steps s
                WHERE s.state = 'enqueued' AND s.namespace = p.namespace AND s.handler = p.handler
                ORDER BY s.priority DESC, s.state_since
                LIMIT 1
            )
            UNION ALL
            SELECT n.priority, n.state_since, n.expires_at
            FROM heads q
            CROSS JOIN LATERAL (
                SELECT s.priority, s.state_since, s.expires_at
                FROM tasker.workflow_steps s
                WHERE s.state = 'enqueued' AND s.namespace = p.namespace AND s.handler = p.handler AND s.priority < q.priority
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
    WHERE $1::text IN ('', p.namespace)
    ORDER BY coalesce(live.workers, 0) > 0, waits_since, p.namespace, p.handler
    LIMIT $2
)
SELECT q.namespace, q.handler, least(waiting.steps, $3) AS queued, waiting.steps > $3 AS queued_is_at_least,
    q.queued_at AS oldest_queued_at, least(q.expires_at, waiting.expires_at) AS next_expires_at,
    late.steps AS awaiting_worker, q.live_workers
FROM shown q
CROSS JOIN LATERAL (
    SELECT count(*) AS steps, min(x.expires_at) AS expires_at
    FROM (
        SELECT s.expires_at
        FROM tasker.workflow_steps s
        WHERE s.state = 'enqueued' AND s.namespace = q.namespace AND s.handler = q.handler
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
ORDER BY q.live_workers > 0, q.waits_since, q.namespace, q.handler`

type queueLine struct {
	Namespace       string
	Handler         string
	Queued          int
	QueuedIsAtLeast bool
	OldestQueuedAt  *time.Time
	NextExpiresAt   *time.Time
	AwaitingWorker  int
	LiveWorkers     int
}

// Queues returns up to limit queues in which anything waits, of one namespace or,
// where that is empty, of all: first those that no live worker serves, then those
// that have waited longest. Of a queue that is not counted to its end, NextExpiresAt
// is that of the most urgent steps and of the oldest of each priority.
func (db *DB) Queues(ctx context.Context, namespace string, limit int) ([]tasker.Queue, error) {
	rows, err := collect[queueLine](ctx, db.pool, selectQueues, namespace, limit, tasker.MaxQueueCount)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", known(err))
	}
	out := make([]tasker.Queue, len(rows))
	for i, r := range rows {
		out[i] = tasker.Queue{
			Namespace: r.Namespace, Handler: r.Handler, Queued: r.Queued, QueuedIsAtLeast: r.QueuedIsAtLeast,
			OldestQueuedAt: r.OldestQueuedAt, NextExpiresAt: r.NextExpiresAt, AwaitingWorker: r.AwaitingWorker,
			LiveWorkers: r.LiveWorkers, Unserved: r.LiveWorkers == 0,
		}
	}
	return out, nil
}
