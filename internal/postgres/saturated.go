package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// busyFor is for how long a queue counts as busy at least after a step of it was claimed: that is
// stored every few seconds only.
const busyFor = 30 * time.Second

// A queue is busy if one of its steps was claimed within the limit of a waiting step, or if a live
// worker of it has no free slot; this is checked at most once per limit. Without a live worker it
// never is. A step of a busy queue waits for as long as the queue counts as busy; that is recorded
// only in ready_steps.
//
// $1 and $2 the steps, $3 the limit of the server in milliseconds, $4 busyFor, $5 whether steps of
// busy queues fail where their template does not say.
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
kept AS (
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
    FROM kept k
    CROSS JOIN clock c
    GROUP BY k.namespace, k.handler, c.at
    ORDER BY k.namespace, k.handler
    ON CONFLICT (namespace, handler) DO UPDATE
    SET busy_at = greatest(q.busy_at, excluded.busy_at), saturated_since = coalesce(q.saturated_since, excluded.saturated_since), kept_at = excluded.kept_at
    RETURNING q.namespace, q.handler, q.queue_uuid, q.saturated_since
)
SELECT k.task_uuid, k.step_uuid, n.namespace, n.handler, n.queue_uuid, n.saturated_since, n.saturated_since = c.at AS began
FROM kept k
JOIN noted n ON n.namespace = k.namespace AND n.handler = k.handler
CROSS JOIN clock c`

// ExtendQueueDeadline extends the limits of those of the steps whose queue is saturated, and returns them.
func (db *DB) ExtendQueueDeadline(ctx context.Context, steps []tasker.StepRef) (kept []tasker.StepRef, err error) {
	type row struct {
		tasker.StepRef
		changedQueue
		Began bool
	}
	tasks, ids := refArrays(steps)
	err = db.InTx(ctx, func(tx *Tx) error {
		kept = nil
		rows, err := collect[row](ctx, tx, extendQueueDeadlines, tasks, ids, tx.queue.ttlMS, busyFor, tx.queue.expiry)
		if err != nil {
			return err
		}
		told := map[tasker.ID]bool{}
		for _, r := range rows {
			kept = append(kept, r.StepRef)
			if r.Began && !told[r.QueueUUID] {
				told[r.QueueUUID] = true
				if err := tx.tellOfQueue(ctx, tasker.QueueSaturatedTopic, r.changedQueue); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return kept, wrap(err, "keep steps of busy workers waiting")
}

// A changedQueue is a queue that has become saturated, or is it no more.
type changedQueue struct {
	QueueUUID          tasker.ID
	Namespace, Handler string
	SaturatedSince     time.Time
}

// tellOfQueue tells people of a queue, which the caller has locked.
func (tx *Tx) tellOfQueue(ctx context.Context, topic string, q changedQueue) error {
	_, err := tx.CreateNotification(ctx, NewMessage{
		Topic: topic, SubjectKind: tasker.QueueSubject, SubjectID: q.QueueUUID, Namespaces: []string{q.Namespace},
		Data: notice.Saturation(topic, q.Namespace, q.Handler, q.SaturatedSince),
	})
	return err
}

// Servers lock the queues in one order.
const noteBusy = `
INSERT INTO tasker.queues AS q (namespace, handler, busy_at)
SELECT n.namespace, n.handler, clock_timestamp()
FROM unnest($1::text[], $2::text[]) AS n (namespace, handler)
ORDER BY n.namespace, n.handler
ON CONFLICT (namespace, handler) DO UPDATE SET busy_at = greatest(q.busy_at, excluded.busy_at)`

// A QueueName is a namespace and a handler.
type QueueName struct{ Namespace, Handler string }

// RecordClaims notes that steps of queues were claimed.
func (db *DB) RecordClaims(ctx context.Context, queues []QueueName) error {
	namespaces, handlers := make([]string, len(queues)), make([]string, len(queues))
	for i, q := range queues {
		namespaces[i], handlers[i] = q.Namespace, q.Handler
	}
	err := retry(ctx, func() error {
		_, err := db.pool.Exec(ctx, noteBusy, namespaces, handlers)
		return err
	})
	return wrap(err, "note which queues steps were claimed of")
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

// ClearSaturation notes of up to limit queues that they are saturated no more: nothing has waited in
// them past its limit for a while. It returns how many.
func (db *DB) ClearSaturation(ctx context.Context, after time.Duration, limit int) (n int, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		list, err := collect[changedQueue](ctx, tx, relieveQueues, after, limit)
		n = len(list)
		if err != nil {
			return err
		}
		for _, q := range list {
			if err := tx.tellOfQueue(ctx, tasker.QueueRelievedTopic, q); err != nil {
				return err
			}
		}
		return nil
	})
	return n, wrap(err, "find queues that are saturated no more")
}

const forgetQueues = `
DELETE FROM tasker.queues q
WHERE (q.namespace, q.handler) IN (
    SELECT o.namespace, o.handler FROM tasker.queues o
    WHERE o.saturated_since IS NULL AND o.busy_at < clock_timestamp() - $1::interval
    ORDER BY o.namespace, o.handler
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)`

// ForgetQueues removes up to limit queues of which no step was claimed for as long as age.
func (db *DB) ForgetQueues(ctx context.Context, age time.Duration, limit int) error {
	_, err := db.pool.Exec(ctx, forgetQueues, age, limit)
	return wrap(err, "forget queues")
}
