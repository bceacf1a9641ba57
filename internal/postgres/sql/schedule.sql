-- name: countSchedules
SELECT count(*) FROM (SELECT FROM tasker.schedules WHERE deleted_at IS NULL LIMIT $1) n;

-- name: countSchedulesOfNamespace
SELECT count(*) FROM (SELECT FROM tasker.schedules WHERE deleted_at IS NULL AND namespace = $2 LIMIT $1) n;

-- name: insertSchedule
INSERT INTO tasker.schedules (
    schedule_uuid, namespace, name, template_name, template_version, context, nominal_key, priority, tags, cron, day_match, zone, every_s, after_end_s,
    except_days, jitter_s, start_at, end_at, overlap, catch_up, catch_up_max, start_within_s, anchor, next_at, fire_at, created_by, created_at, updated_at
)
VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $27);

-- name: updateSchedule
UPDATE tasker.schedules
SET namespace = $2, name = $3, template_name = $4, template_version = $5, context = $6::text::jsonb, nominal_key = $7, priority = $8, tags = $9, cron = $10,
    day_match = $11, zone = $12, every_s = $13, after_end_s = $14, except_days = $15, jitter_s = $16, start_at = $17, end_at = $18, overlap = $19,
    catch_up = $20, catch_up_max = $21, start_within_s = $22, anchor = $23, next_at = $24, fire_at = $25, awaits_task = $26, paused_at = $27,
    paused_until = $28, paused_by = $29, paused_reason = $30, deleted_at = $31, revision = $32, updated_at = clock_timestamp()
WHERE schedule_uuid = $1;

-- name: recordSchedule
INSERT INTO tasker.schedule_history (schedule_uuid, event, actor, reason, metadata) VALUES ($1, $2, $3, $4, $5::text::jsonb);

-- name: oneSchedule
SELECT
    h.schedule_uuid AS uuid, h.namespace, h.name, h.template_name AS template, h.template_version AS version, h.context, h.nominal_key, h.priority, h.tags,
    h.cron, h.day_match, h.zone, make_interval(secs => h.every_s) AS "every", make_interval(secs => h.after_end_s) AS after_end, h.except_days AS "except",
    make_interval(secs => h.jitter_s) AS jitter, h.start_at, h.end_at, h.overlap, h.catch_up, h.catch_up_max,
    make_interval(secs => h.start_within_s) AS start_within, h.anchor, h.next_at, h.fire_at, h.awaits_task, h.paused_at, h.paused_until, h.paused_by,
    h.paused_reason, h.created_at, h.created_by, h.updated_at, h.revision, h.deleted_at
FROM tasker.schedules h
WHERE h.schedule_uuid = $1 AND ($2::text[] IS NULL OR h.namespace = ANY ($2));

-- name: lockSchedule
SELECT FROM tasker.schedules WHERE schedule_uuid = $1 FOR NO KEY UPDATE;

-- name: scheduleHistory
SELECT changed_at AS at, event, actor, reason, metadata
FROM tasker.schedule_history WHERE schedule_uuid = $1 ORDER BY change_id DESC LIMIT $2;

-- name: selectSchedules
SELECT
    h.schedule_uuid AS uuid, h.namespace, h.name, h.template_name AS template, h.template_version AS version, h.context, h.nominal_key, h.priority, h.tags,
    h.cron, h.day_match, h.zone, make_interval(secs => h.every_s) AS "every", make_interval(secs => h.after_end_s) AS after_end, h.except_days AS "except",
    make_interval(secs => h.jitter_s) AS jitter, h.start_at, h.end_at, h.overlap, h.catch_up, h.catch_up_max,
    make_interval(secs => h.start_within_s) AS start_within, h.anchor, h.next_at, h.fire_at, h.awaits_task, h.paused_at, h.paused_until, h.paused_by,
    h.paused_reason, h.created_at, h.created_by, h.updated_at, h.revision, h.deleted_at, f.failing, f.refused
FROM tasker.schedules h
CROSS JOIN LATERAL (
    SELECT coalesce(min(n.place) FILTER (WHERE NOT n.bad) - 1, count(*))::int AS failing, coalesce(bool_or(n.refused) FILTER (WHERE n.place = 1), false) AS refused
    FROM (
        SELECT row_number() OVER (ORDER BY x.nominal_at DESC) AS place, x.outcome = 'refused' AS refused,
            x.outcome = 'refused' OR coalesce(t.state IN ('error', 'cancelled'), false) AS bad
        FROM (
            SELECT g.nominal_at, g.outcome, g.task_uuid
            FROM tasker.schedule_firings g
            WHERE g.schedule_uuid = h.schedule_uuid AND g.outcome IN ('started', 'refused')
            ORDER BY g.nominal_at DESC
            LIMIT 5
        ) x
        LEFT JOIN tasker.tasks t ON t.task_uuid = x.task_uuid
        WHERE t.state IS NULL OR t.state IN ('complete', 'error', 'cancelled')
    ) n
) f
WHERE h.deleted_at IS NULL AND ($1 = '' OR h.namespace = $1) AND ($2 = '' OR h.name = $2) AND ($3::text[] IS NULL OR h.namespace = ANY ($3))
  AND ($4::uuid IS NULL OR (h.namespace, h.name) > (SELECT b.namespace, b.name FROM tasker.schedules b WHERE b.schedule_uuid = $4))
  AND (NOT $6 OR h.paused_at IS NOT NULL)
ORDER BY h.namespace, h.name
LIMIT $5;

-- name: countFailing
SELECT count(*)
FROM tasker.schedules h
CROSS JOIN LATERAL (
    SELECT coalesce(min(n.place) FILTER (WHERE NOT n.bad) - 1, count(*))::int AS failing, coalesce(bool_or(n.refused) FILTER (WHERE n.place = 1), false) AS refused
    FROM (
        SELECT row_number() OVER (ORDER BY x.nominal_at DESC) AS place, x.outcome = 'refused' AS refused,
            x.outcome = 'refused' OR coalesce(t.state IN ('error', 'cancelled'), false) AS bad
        FROM (
            SELECT g.nominal_at, g.outcome, g.task_uuid
            FROM tasker.schedule_firings g
            WHERE g.schedule_uuid = h.schedule_uuid AND g.outcome IN ('started', 'refused')
            ORDER BY g.nominal_at DESC
            LIMIT 5
        ) x
        LEFT JOIN tasker.tasks t ON t.task_uuid = x.task_uuid
        WHERE t.state IS NULL OR t.state IN ('complete', 'error', 'cancelled')
    ) n
) f
WHERE h.deleted_at IS NULL AND (f.refused OR f.failing >= $1);

-- name: selectFirings
-- The schedule is a range and the first sort key, as in the index. Otherwise the planner might sort
-- all
-- firings of the schedule.
SELECT
    g.schedule_uuid, g.kind, g.nominal_at, g.nominal_until, g.instants, g.outcome, g.reason, g.task_uuid, g.actor, g.decided_at, g.late_ms, g.ended_at,
    coalesce(t.state, '') AS task_state
FROM tasker.schedule_firings g
LEFT JOIN tasker.tasks t ON t.task_uuid = g.task_uuid
WHERE g.schedule_uuid BETWEEN $1 AND $1 AND ($2 = '' OR g.outcome = $2) AND ($3::timestamptz IS NULL OR (g.nominal_at, g.kind) < ($3, $4))
ORDER BY g.schedule_uuid DESC, g.nominal_at DESC, g.kind DESC
LIMIT $5;

-- name: firingOfTask
SELECT
g.schedule_uuid, g.kind, g.nominal_at, g.nominal_until, g.instants, g.outcome, g.reason, g.task_uuid, g.actor, g.decided_at, g.late_ms, g.ended_at,
coalesce(t.state, '') AS task_state
    FROM tasker.schedule_firings g
    LEFT JOIN tasker.tasks t ON t.task_uuid = g.task_uuid
    WHERE g.task_uuid = $1;

-- name: triggeredBy
-- The schedule is locked from the insertion of the request until its firing. Therefore the first
-- firing
-- after the insertion belongs to the request.
SELECT
    g.schedule_uuid, g.kind, g.nominal_at, g.nominal_until, g.instants, g.outcome, g.reason, g.task_uuid, g.actor, g.decided_at, g.late_ms, g.ended_at,
    coalesce(t.state, '') AS task_state
FROM tasker.schedule_firings g
LEFT JOIN tasker.tasks t ON t.task_uuid = g.task_uuid
WHERE g.schedule_uuid = $1 AND g.kind = 'manual' AND g.nominal_at >= (SELECT r.created_at FROM tasker.operator_requests r WHERE r.request_key = $2)
ORDER BY g.nominal_at
LIMIT 1;

-- name: pruneFirings
-- An index range can be bounded by now(), but not by clock_timestamp().
DELETE FROM tasker.schedule_firings WHERE (schedule_uuid, nominal_at, kind) IN (
    SELECT g.schedule_uuid, g.nominal_at, g.kind
    FROM tasker.schedule_firings g
    WHERE g.decided_at < now() - $1::interval AND NOT g.task_open AND g.outcome <> 'queued'
    ORDER BY g.decided_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
);

-- name: pruneSchedules
DELETE FROM tasker.schedules WHERE schedule_uuid IN (
    SELECT h.schedule_uuid
    FROM tasker.schedules h
    WHERE h.deleted_at < now() - $1::interval
      AND NOT EXISTS (SELECT FROM tasker.schedule_firings g WHERE g.schedule_uuid = h.schedule_uuid)
    ORDER BY h.deleted_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
);
