package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// busyFor is the minimum time for which a queue is busy after a claim. Claims are recorded only every
// few seconds.
const busyFor = 30 * time.Second

// extendQueueDeadlines extends the queue timeout of expired steps in busy queues. A queue is busy if
// one of its steps was claimed within the queue timeout, or if one of its live workers has no free
// slot, which is checked at most once per timeout. A queue without live workers is not busy. The new
// deadline is stored only in ready_steps.
//
// $1 and $2 steps, $3 default queue timeout in milliseconds, $4 busyFor, $5 default expiry rule.
var extendQueueDeadlines = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at, 'enqueued' AS enqueued),
named AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, t.template_uuid
    FROM clock c
    CROSS JOIN unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = c.enqueued
    JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
),
rules AS MATERIALIZED (
    SELECT p.template_uuid
    FROM (SELECT DISTINCT template_uuid FROM named) n
    JOIN tasker.task_templates p ON p.template_uuid = n.template_uuid
    WHERE coalesce(p.configuration #>> '{lifecycle,queue_ttl}', $5) <> 'always'
),
late AS MATERIALIZED (
    SELECT e.*
    FROM named s
    JOIN rules u ON u.template_uuid = s.template_uuid
    CROSS JOIN clock c
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.namespace, r.handler, greatest(interval '1 millisecond' * coalesce(r.queue_ttl_ms, $3), $4::interval) AS patience
        FROM tasker.ready_steps r
        WHERE ` + readyKey + ` AND r.task_uuid = s.task_uuid AND coalesce(r.expires_at <= c.at, false)
        FOR NO KEY UPDATE SKIP LOCKED
    ) e
),
taken AS MATERIALIZED (` + stepsOfWorkers + `),
busy AS MATERIALIZED (
    SELECT l.namespace, l.handler, CASE
        WHEN q.busy_at + l.patience > c.at THEN q.busy_at
        WHEN EXISTS (
            SELECT FROM tasker.workers w
            JOIN taken n ON n.worker_uuid = w.worker_uuid
            WHERE l.namespace = ANY (w.namespaces) AND l.handler = ANY (w.handlers) AND ` + liveWorker + ` AND n.held >= w.max_concurrency
        ) THEN c.at END AS busy_at
    FROM (SELECT namespace, handler, min(patience) AS patience FROM late GROUP BY namespace, handler) l
    CROSS JOIN clock c
    LEFT JOIN tasker.queues q ON q.namespace = l.namespace AND q.handler = l.handler
    WHERE EXISTS (
        SELECT FROM tasker.workers w WHERE l.namespace = ANY (w.namespaces) AND l.handler = ANY (w.handlers) AND ` + liveWorker + `
    )
),
extended AS (
    UPDATE tasker.ready_steps r
    SET expires_at = b.busy_at + l.patience, limit_passed_at = coalesce(r.limit_passed_at, r.expires_at)
    FROM late l
    JOIN busy b ON b.namespace = l.namespace AND b.handler = l.handler
    CROSS JOIN clock c
    WHERE r.ctid = l.ready_row AND b.busy_at + l.patience > c.at
    RETURNING r.task_uuid, r.step_uuid, r.namespace, r.handler, b.busy_at
),
noted AS (
    INSERT INTO tasker.queues AS q (namespace, handler, busy_at, saturated_since, kept_at)
    SELECT k.namespace, k.handler, max(k.busy_at), c.at, c.at
    FROM extended k
    CROSS JOIN clock c
    GROUP BY k.namespace, k.handler, c.at
    ORDER BY k.namespace, k.handler
    ON CONFLICT (namespace, handler) DO UPDATE
    SET busy_at = greatest(q.busy_at, excluded.busy_at), saturated_since = coalesce(q.saturated_since, excluded.saturated_since), kept_at = excluded.kept_at
    RETURNING q.namespace, q.handler, q.queue_uuid, q.saturated_since
)
SELECT k.task_uuid, k.step_uuid, n.namespace, n.handler, n.queue_uuid, n.saturated_since, n.saturated_since = c.at AS began
FROM extended k
JOIN noted n ON n.namespace = k.namespace AND n.handler = k.handler
CROSS JOIN clock c`

// ExtendQueueDeadline extends the queue timeout of the steps in saturated queues and returns these
// steps.
func (db *DB) ExtendQueueDeadline(ctx context.Context, steps []tasker.StepRef) (extended []tasker.StepRef, err error) {
	type row struct {
		tasker.StepRef
		changedQueue
		Began bool
	}
	tasks, ids := refArrays(steps)
	err = db.InTx(ctx, func(tx *Tx) error {
		rows, err := collect[row](ctx, tx, extendQueueDeadlines, tasks, ids, tx.queue.ttlMS, busyFor, tx.queue.expiry)
		extended = mapped(rows, func(r row) tasker.StepRef { return r.StepRef })
		notified := map[tasker.ID]bool{}
		for _, r := range rows {
			if r.Began && !notified[r.QueueUUID] {
				notified[r.QueueUUID] = true
				if err := tx.notifyQueue(ctx, tasker.QueueSaturatedTopic, r.changedQueue); err != nil {
					return err
				}
			}
		}
		return err
	})
	return extended, wrap(err, "extend queue deadlines")
}

// changedQueue is a queue that has become saturated or is no longer saturated.
type changedQueue struct {
	QueueUUID          tasker.ID
	Namespace, Handler string
	SaturatedSince     time.Time
}

// notifyQueue enqueues a message about a locked queue.
func (tx *Tx) notifyQueue(ctx context.Context, topic string, q changedQueue) error {
	_, err := tx.CreateNotification(ctx, NewMessage{
		Topic: topic, SubjectKind: tasker.QueueSubject, SubjectID: q.QueueUUID, Namespaces: []string{q.Namespace},
		Data: notice.Saturation(topic, q.Namespace, q.Handler, q.SaturatedSince),
	})
	return err
}

// noteBusy locks the queues in one order.
const noteBusy = `
INSERT INTO tasker.queues AS q (namespace, handler, busy_at)
SELECT n.namespace, n.handler, clock_timestamp()
FROM unnest($1::text[], $2::text[]) AS n (namespace, handler)
ORDER BY n.namespace, n.handler
ON CONFLICT (namespace, handler) DO UPDATE SET busy_at = greatest(q.busy_at, excluded.busy_at)`

// QueueName identifies a queue.
type QueueName struct{ Namespace, Handler string }

// RecordClaims records that steps of queues were claimed now.
func (db *DB) RecordClaims(ctx context.Context, queues []QueueName) error {
	namespaces, handlers := make([]string, len(queues)), make([]string, len(queues))
	for i, q := range queues {
		namespaces[i], handlers[i] = q.Namespace, q.Handler
	}
	return retry(ctx, func() error { return exec(ctx, db.pool, "record claims", noteBusy, namespaces, handlers) })
}

const relieveQueues = `
WITH relieved AS MATERIALIZED (
    SELECT q.namespace, q.handler, q.saturated_since
    FROM tasker.queues q
    WHERE q.saturated_since IS NOT NULL AND q.kept_at <= clock_timestamp() - $1::interval
      AND NOT EXISTS (SELECT FROM tasker.ready_steps s WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_passed_at IS NOT NULL)
    ORDER BY q.namespace, q.handler
    LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasker.queues q
SET saturated_since = NULL, kept_at = NULL
FROM relieved r
WHERE q.namespace = r.namespace AND q.handler = r.handler
RETURNING q.queue_uuid, q.namespace, q.handler, r.saturated_since`

// ClearSaturation clears the saturation of up to limit queues in which no step has exceeded its
// queue timeout for a duration, and returns their number.
func (db *DB) ClearSaturation(ctx context.Context, after time.Duration, limit int) (n int, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		list, err := collect[changedQueue](ctx, tx, relieveQueues, after, limit)
		n = len(list)
		for _, q := range list {
			if err := tx.notifyQueue(ctx, tasker.QueueRelievedTopic, q); err != nil {
				return err
			}
		}
		return err
	})
	return n, wrap(err, "clear saturated queues")
}

const pruneQueues = `
DELETE FROM tasker.queues q
WHERE (q.namespace, q.handler) IN (
    SELECT o.namespace, o.handler FROM tasker.queues o
    WHERE o.saturated_since IS NULL AND o.busy_at < clock_timestamp() - $1::interval
    ORDER BY o.namespace, o.handler
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)`

// PruneQueues removes up to limit queues from which no step was claimed for age.
func (db *DB) PruneQueues(ctx context.Context, age time.Duration, limit int) error {
	return exec(ctx, db.pool, "remove unused queues", pruneQueues, age, limit)
}
