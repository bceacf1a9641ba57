-- name: startedTasks
SELECT t.task_uuid, t.state = 'pending' AS starts
FROM tasker.tasks t
WHERE t.task_uuid = ANY ($1) AND (t.state <> 'pending' OR t.start_at <= clock_timestamp());

-- name: tasksWithDueRetries
-- Retries of tasks in error are not selected but remain due. Therefore recent retries are read each
-- time
-- and older ones a few at a time. Deferred rows do not count toward the limit. An index range can
-- be
-- bounded by now(), but not by clock_timestamp().
WITH late AS MATERIALIZED (
    SELECT s.next_retry_at, s.task_uuid, s.step_uuid
    FROM tasker.workflow_steps s
    WHERE s.next_retry_at <= now() - interval '10 seconds'
      AND (s.next_retry_at, s.task_uuid, s.step_uuid) > (coalesce($2::timestamptz, '-infinity'), $3::uuid, $4::uuid)
    ORDER BY s.next_retry_at, s.task_uuid, s.step_uuid
    LIMIT $6::bigint
),
due AS (
    SELECT l.task_uuid
    FROM late l
    WHERE (SELECT t.state FROM tasker.tasks t WHERE t.task_uuid = l.task_uuid) <> 'error'
      AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'retry' AND w.task_uuid = l.task_uuid)
    UNION
    (
        SELECT s.task_uuid
        FROM tasker.workflow_steps s
        WHERE s.next_retry_at > now() - interval '10 seconds' AND s.next_retry_at <= now()
          AND (SELECT t.state FROM tasker.tasks t WHERE t.task_uuid = s.task_uuid) <> 'error'
          AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'retry' AND w.task_uuid = s.task_uuid)
        ORDER BY s.next_retry_at
        LIMIT $1::bigint
    )
)
SELECT array(SELECT task_uuid FROM due) AS tasks, l.next_retry_at, coalesce(l.task_uuid, $5) AS task_uuid, coalesce(l.step_uuid, $5) AS step_uuid
FROM (SELECT) one
LEFT JOIN LATERAL (
    SELECT l.* FROM late l ORDER BY l.next_retry_at, l.task_uuid, l.step_uuid OFFSET $1::bigint - 1
) l ON true;

-- name: tasksToStart
SELECT t.task_uuid
FROM tasker.tasks t
WHERE t.state = 'pending' AND t.start_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'start' AND w.task_uuid = t.task_uuid)
ORDER BY t.start_at
LIMIT $1;

-- name: overdue
-- Excludes retries, since those of tasks in error remain due.
SELECT k.kind, greatest(coalesce(extract(epoch FROM now() - k.since), 0), 0)::float8 AS seconds
FROM (VALUES
    ('start', (SELECT t.start_at FROM tasker.tasks t WHERE t.state = 'pending' ORDER BY t.start_at LIMIT 1)),
    ('start_by', (SELECT x.start_by FROM tasker.task_starts x WHERE true ORDER BY x.start_by LIMIT 1)),
    ('deadline', (SELECT d.look_at FROM tasker.deadlines d WHERE d.look_at < 'infinity' ORDER BY d.look_at LIMIT 1)),
    ('decide', (SELECT s.decide_at FROM tasker.workflow_steps s WHERE s.decide_at IS NOT NULL ORDER BY s.decide_at LIMIT 1)),
    ('wait', (SELECT s.wait_until FROM tasker.workflow_steps s WHERE s.wait_until IS NOT NULL ORDER BY s.wait_until LIMIT 1)),
    ('remind', (SELECT s.remind_at FROM tasker.workflow_steps s WHERE s.remind_at IS NOT NULL ORDER BY s.remind_at LIMIT 1)),
    ('attributes', (SELECT s.attributes_at FROM tasker.workflow_steps s WHERE s.attributes_at < 'infinity' ORDER BY s.attributes_at LIMIT 1)),
    ('child_ended', (SELECT g.created_at FROM tasker.child_signals g WHERE g.kind = 'ended' ORDER BY g.created_at LIMIT 1)),
    ('cancel_child', (SELECT g.created_at FROM tasker.child_signals g WHERE g.kind = 'cancel' ORDER BY g.created_at LIMIT 1)),
    ('request', (SELECT r.created_at FROM tasker.task_requests r WHERE r.refused_at IS NULL ORDER BY r.created_at LIMIT 1)),
    ('schedule', (SELECT h.fire_at FROM tasker.schedules h WHERE h.fire_at IS NOT NULL ORDER BY h.fire_at LIMIT 1)),
    ('schedule_ended', (SELECT g.created_at FROM tasker.schedule_signals g WHERE true ORDER BY g.created_at LIMIT 1))
) AS k (kind, since);

-- name: findDueWork
-- Returns, for each kind of work, whether it is due and when the next work is due, reading one
-- index row
-- for each. Deferred rows and retries of tasks in error count as due, although the query for their
-- kind
-- excludes them. Enqueued steps and steps that wait for a worker are always due.
SELECT current_setting('transaction_read_only') = 'on' AS read_only,
    coalesce((SELECT o.position FROM tasker.outbox o ORDER BY o.position DESC LIMIT 1), 0) AS last_event, coalesce(pg_stat_get_dead_tuples('tasker.ready_steps'::regclass), 0) > 20000 AS many_dead, k.kind, coalesce(k.due, false) AS due,
    extract(epoch FROM least(k.next, now() + $2::interval) - now())::float8 AS wait
FROM (VALUES
    ('start', (SELECT t.start_at FROM tasker.tasks t WHERE t.state = 'pending' AND t.start_at <= now() ORDER BY t.start_at LIMIT 1) IS NOT NULL, (SELECT t.start_at FROM tasker.tasks t WHERE t.state = 'pending' AND t.start_at > now() AND t.start_at <= now() + $2::interval ORDER BY t.start_at LIMIT 1) + (now() - now())),
    ('start_by', (SELECT x.start_by FROM tasker.task_starts x WHERE true AND x.start_by <= now() ORDER BY x.start_by LIMIT 1) IS NOT NULL, (SELECT x.start_by FROM tasker.task_starts x WHERE true AND x.start_by > now() AND x.start_by <= now() + $2::interval ORDER BY x.start_by LIMIT 1) + (now() - now())),
    ('deadline', (SELECT d.look_at FROM tasker.deadlines d WHERE d.look_at < 'infinity' AND d.look_at <= now() ORDER BY d.look_at LIMIT 1) IS NOT NULL, (SELECT d.look_at FROM tasker.deadlines d WHERE d.look_at < 'infinity' AND d.look_at > now() AND d.look_at <= now() + $2::interval ORDER BY d.look_at LIMIT 1) + (now() - now())),
    ('retry', (SELECT s.next_retry_at FROM tasker.workflow_steps s WHERE s.next_retry_at IS NOT NULL AND s.next_retry_at <= now() ORDER BY s.next_retry_at LIMIT 1) IS NOT NULL, (SELECT s.next_retry_at FROM tasker.workflow_steps s WHERE s.next_retry_at IS NOT NULL AND s.next_retry_at > now() AND s.next_retry_at <= now() + $2::interval ORDER BY s.next_retry_at LIMIT 1) + (now() - now())),
    ('decide', (SELECT s.decide_at FROM tasker.workflow_steps s WHERE s.decide_at IS NOT NULL AND s.decide_at <= now() ORDER BY s.decide_at LIMIT 1) IS NOT NULL, (SELECT s.decide_at FROM tasker.workflow_steps s WHERE s.decide_at IS NOT NULL AND s.decide_at > now() AND s.decide_at <= now() + $2::interval ORDER BY s.decide_at LIMIT 1) + (now() - now())),
    ('wait', (SELECT s.wait_until FROM tasker.workflow_steps s WHERE s.wait_until IS NOT NULL AND s.wait_until <= now() ORDER BY s.wait_until LIMIT 1) IS NOT NULL, (SELECT s.wait_until FROM tasker.workflow_steps s WHERE s.wait_until IS NOT NULL AND s.wait_until > now() AND s.wait_until <= now() + $2::interval ORDER BY s.wait_until LIMIT 1) + (now() - now())),
    ('remind', (SELECT s.remind_at FROM tasker.workflow_steps s WHERE s.remind_at IS NOT NULL AND s.remind_at <= now() ORDER BY s.remind_at LIMIT 1) IS NOT NULL, (SELECT s.remind_at FROM tasker.workflow_steps s WHERE s.remind_at IS NOT NULL AND s.remind_at > now() AND s.remind_at <= now() + $2::interval ORDER BY s.remind_at LIMIT 1) + (now() - now())),
    ('attributes', (SELECT s.attributes_at FROM tasker.workflow_steps s WHERE s.attributes_at < 'infinity' AND s.attributes_at <= now() ORDER BY s.attributes_at LIMIT 1) IS NOT NULL, (SELECT s.attributes_at FROM tasker.workflow_steps s WHERE s.attributes_at < 'infinity' AND s.attributes_at > now() AND s.attributes_at <= now() + $2::interval ORDER BY s.attributes_at LIMIT 1) + (now() - now())),
    ('child_ended', (SELECT g.created_at FROM tasker.child_signals g WHERE g.kind = 'ended' AND g.created_at <= now() ORDER BY g.created_at LIMIT 1) IS NOT NULL, (SELECT g.created_at FROM tasker.child_signals g WHERE g.kind = 'ended' AND g.created_at > now() AND g.created_at <= now() + $2::interval ORDER BY g.created_at LIMIT 1) + (now() - now())),
    ('cancel_child', (SELECT g.created_at FROM tasker.child_signals g WHERE g.kind = 'cancel' AND g.created_at <= now() ORDER BY g.created_at LIMIT 1) IS NOT NULL, (SELECT g.created_at FROM tasker.child_signals g WHERE g.kind = 'cancel' AND g.created_at > now() AND g.created_at <= now() + $2::interval ORDER BY g.created_at LIMIT 1) + (now() - now())),
    ('request', (SELECT r.created_at FROM tasker.task_requests r WHERE r.refused_at IS NULL AND r.created_at <= now() ORDER BY r.created_at LIMIT 1) IS NOT NULL, (SELECT r.created_at FROM tasker.task_requests r WHERE r.refused_at IS NULL AND r.created_at > now() AND r.created_at <= now() + $2::interval ORDER BY r.created_at LIMIT 1) + (now() - now())),
    ('schedule', (SELECT h.fire_at FROM tasker.schedules h WHERE h.fire_at IS NOT NULL AND h.fire_at <= now() ORDER BY h.fire_at LIMIT 1) IS NOT NULL, (SELECT h.fire_at FROM tasker.schedules h WHERE h.fire_at IS NOT NULL AND h.fire_at > now() AND h.fire_at <= now() + $2::interval ORDER BY h.fire_at LIMIT 1) + (now() - now())),
    ('schedule_ended', (SELECT g.created_at FROM tasker.schedule_signals g WHERE true AND g.created_at <= now() ORDER BY g.created_at LIMIT 1) IS NOT NULL, (SELECT g.created_at FROM tasker.schedule_signals g WHERE true AND g.created_at > now() AND g.created_at <= now() + $2::interval ORDER BY g.created_at LIMIT 1) + (now() - now())),
    ('reclaim', (SELECT c.look_at FROM tasker.claims c WHERE true AND c.look_at <= now() ORDER BY c.look_at LIMIT 1) IS NOT NULL, (SELECT c.look_at FROM tasker.claims c WHERE true AND c.look_at > now() AND c.look_at <= now() + $2::interval ORDER BY c.look_at LIMIT 1) + (now() - now())),
    ('report', (SELECT s.state_since FROM (SELECT w.state_since FROM tasker.workflow_steps w WHERE w.kept_report IS NOT NULL ORDER BY w.task_uuid, w.step_uuid LIMIT 1000) s WHERE true AND s.state_since <= (now() - $1::interval) ORDER BY s.state_since LIMIT 1) IS NOT NULL, (SELECT s.state_since FROM (SELECT w.state_since FROM tasker.workflow_steps w WHERE w.kept_report IS NOT NULL ORDER BY w.task_uuid, w.step_uuid LIMIT 1000) s WHERE true AND s.state_since > (now() - $1::interval) AND s.state_since <= (now() - $1::interval) + $2::interval ORDER BY s.state_since LIMIT 1) + (now() - (now() - $1::interval))),
    ('queue_limit', (SELECT s.expires_at FROM tasker.ready_steps s WHERE $3 AND s.expires_at <= now() ORDER BY s.expires_at LIMIT 1) IS NOT NULL, (SELECT s.expires_at FROM tasker.ready_steps s WHERE $3 AND s.expires_at > now() AND s.expires_at <= now() + $2::interval ORDER BY s.expires_at LIMIT 1) + (now() - now())),
    ('deferred', (SELECT d.retry_at FROM tasker.deferred_work d WHERE true AND d.retry_at <= now() ORDER BY d.retry_at LIMIT 1) IS NOT NULL, (SELECT d.retry_at FROM tasker.deferred_work d WHERE true AND d.retry_at > now() AND d.retry_at <= now() + $2::interval ORDER BY d.retry_at LIMIT 1) + (now() - now())),
    ('no_worker', coalesce(pg_stat_get_dead_tuples('tasker.ready_steps'::regclass), 0) > 20000 OR (SELECT s.expires_at FROM tasker.ready_steps s ORDER BY s.expires_at LIMIT 1) IS NOT NULL, NULL),
    ('redispatch', (
        SELECT s.awaits_worker_since FROM tasker.workflow_steps s WHERE s.awaits_worker_since IS NOT NULL ORDER BY s.namespace, s.handler, s.awaits_worker_since LIMIT 1
    ) IS NOT NULL, NULL)
) AS k (kind, due, next);

-- name: stepsWithExpiredLease
-- Reads due rows of claims and their leased steps. Deletes rows that have no leases and reschedules
-- the
-- others to the end of the next lease: after a second if a lease has expired, after 30 seconds if
-- it was
-- deferred.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
due AS MATERIALIZED (
    SELECT x.ctid AS row, x.tasks, x.steps, x.claimed_at
    FROM tasker.claims x
    WHERE x.look_at <= now()
    ORDER BY x.look_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
held AS MATERIALIZED (
    SELECT d.row, d.claimed_at, s.task_uuid, s.step_uuid, s.lease_expires_at, s.lease_expires_at <= c.at AS expired, EXISTS (
        SELECT FROM tasker.deferred_work w WHERE w.kind = 'reclaim' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid
    ) AS deferred
    FROM due d
    CROSS JOIN clock c
    CROSS JOIN LATERAL unnest(d.tasks, d.steps) AS u (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    WHERE s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = d.claimed_at
),
ended AS (
    DELETE FROM tasker.claims x USING due d WHERE x.ctid = d.row
),
again AS (
    INSERT INTO tasker.claims (look_at, claimed_at, tasks, steps)
    SELECT min(CASE WHEN NOT h.expired THEN h.lease_expires_at ELSE c.at + CASE WHEN h.deferred THEN interval '30 seconds' ELSE interval '1 second' END END),
        h.claimed_at, array_agg(h.task_uuid), array_agg(h.step_uuid)
    FROM held h
    CROSS JOIN clock c
    GROUP BY h.row, h.claimed_at
),
found AS (SELECT h.task_uuid, h.step_uuid FROM held h WHERE h.expired AND NOT h.deferred ORDER BY h.lease_expires_at)
SELECT (SELECT count(*) FROM due) AS claims,
    coalesce((SELECT array_agg(task_uuid) FROM found), '{}') AS tasks, coalesce((SELECT array_agg(step_uuid) FROM found), '{}') AS steps;

-- name: expiredLeases
SELECT s.task_uuid, s.step_uuid, s.fence, s.attempts, s.worker_uuid,
    s.timeout_at IS NOT NULL AND s.timeout_at <= clock_timestamp() AS timed_out, coalesce(s.timeout_ms, 0) AS timeout_ms
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
WHERE s.lease_expires_at <= clock_timestamp();

-- name: stepsWithPendingReport
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.kept_report IS NOT NULL AND s.state_since <= now() - $2::interval
  AND NOT EXISTS (
      SELECT FROM tasker.deferred_work w WHERE w.kind = 'report' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid
  )
ORDER BY s.state_since
LIMIT $1;

-- name: canWrite
-- Locks no row, but fails unless the database accepts writes.
SELECT FROM tasker.workers WHERE false FOR UPDATE;

-- name: stepsWithDueRetry
-- Excludes tasks in error, which retry nothing automatically.
SELECT s.task_uuid, s.step_uuid
FROM tasker.tasks t
JOIN tasker.workflow_steps s ON s.task_uuid = t.task_uuid
WHERE t.task_uuid = ANY ($1) AND t.state <> 'error' AND s.state = 'error' AND s.next_retry_at <= clock_timestamp();
