-- name: schedulesToFire
SELECT h.schedule_uuid
FROM tasker.schedules h
WHERE h.fire_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = 'schedule' AND w.task_uuid = h.schedule_uuid)
ORDER BY h.fire_at
LIMIT $1;

-- name: lockDueSchedules
SELECT
    h.schedule_uuid AS uuid, h.namespace, h.name, h.template_name AS template, h.template_version AS version, h.context, h.nominal_key, h.priority, h.tags,
    h.cron, h.day_match, h.zone, make_interval(secs => h.every_s) AS "every", make_interval(secs => h.after_end_s) AS after_end, h.except_days AS "except",
    make_interval(secs => h.jitter_s) AS jitter, h.start_at, h.end_at, h.overlap, h.catch_up, h.catch_up_max,
    make_interval(secs => h.start_within_s) AS start_within, h.anchor, h.next_at, h.fire_at, h.awaits_task, h.paused_at, h.paused_until, h.paused_by,
    h.paused_reason, h.created_at, h.created_by, h.updated_at, h.revision, h.deleted_at
FROM tasker.schedules h
WHERE h.schedule_uuid = ANY ($1) AND h.fire_at <= clock_timestamp()
ORDER BY h.schedule_uuid
FOR NO KEY UPDATE SKIP LOCKED;

-- name: scheduleProgress
SELECT h.schedule_uuid,
    EXISTS (SELECT FROM tasker.schedule_firings q WHERE q.schedule_uuid = h.schedule_uuid AND q.outcome = 'queued') AS queued,
    l.nominal_at AS last_at, l.nominal_until AS last_until, coalesce(l.outcome, '') AS last_outcome, coalesce(l.reason, '') AS last_reason,
    o.task_uuid AS open
FROM unnest($1::uuid[]) AS h (schedule_uuid)
LEFT JOIN LATERAL (
    SELECT g.nominal_at, g.nominal_until, g.outcome, g.reason
    FROM tasker.schedule_firings g
    WHERE g.schedule_uuid = h.schedule_uuid AND g.kind = 'clock'
    ORDER BY g.nominal_at DESC
    LIMIT 1
) l ON true
LEFT JOIN LATERAL (
    SELECT c.task_uuid
    FROM tasker.schedule_firings g
    JOIN tasker.tasks c ON c.task_uuid = g.task_uuid
    WHERE g.schedule_uuid = h.schedule_uuid AND g.task_open AND c.state NOT IN ('complete', 'cancelled') AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
    ORDER BY g.nominal_at
    LIMIT 1
) o ON true;

-- name: scheduledToCancel
SELECT c.task_uuid
FROM tasker.schedule_firings g
JOIN tasker.tasks c ON c.task_uuid = g.task_uuid
WHERE g.schedule_uuid = $1 AND c.phase IS NULL AND g.task_open AND c.state NOT IN ('complete', 'cancelled') AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
ORDER BY g.nominal_at
LIMIT $2;

-- name: insertFirings
INSERT INTO tasker.schedule_firings (schedule_uuid, kind, nominal_at, nominal_until, instants, outcome, reason, task_uuid, task_open, actor, late_ms)
SELECT u.schedule_uuid, u.kind, u.nominal_at, u.nominal_until, u.instants, u.outcome, u.reason, u.task_uuid, u.task_uuid IS NOT NULL, u.actor, u.late_ms
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::text[], $7::text[], $8::uuid[], $9::text[], $10::bigint[]) AS u (schedule_uuid, kind, nominal_at, nominal_until, instants, outcome, reason, task_uuid, actor, late_ms);

-- name: extendFirings
UPDATE tasker.schedule_firings g
SET nominal_until = u.nominal_until, instants = g.instants + u.instants, decided_at = clock_timestamp(), late_ms = u.late_ms
FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::bigint[], $5::bigint[]) AS u (schedule_uuid, nominal_at, nominal_until, instants, late_ms)
WHERE g.schedule_uuid = u.schedule_uuid AND g.nominal_at = u.nominal_at AND g.kind = 'clock' AND g.task_uuid IS NULL AND g.nominal_until < u.nominal_until;

-- name: queuedFiring
SELECT nominal_at FROM tasker.schedule_firings WHERE schedule_uuid = $1 AND outcome = 'queued';

-- name: endQueued
UPDATE tasker.schedule_firings
SET outcome = $2, reason = $3, task_uuid = $4, task_open = $4::uuid IS NOT NULL, decided_at = clock_timestamp(), late_ms = $5
WHERE schedule_uuid = $1 AND outcome = 'queued';

-- name: moveSchedules
UPDATE tasker.schedules h
SET next_at = u.next_at, fire_at = u.fire_at, awaits_task = u.awaits_task,
    paused_at = CASE WHEN NOT u.unpause THEN h.paused_at END, paused_until = CASE WHEN NOT u.unpause THEN h.paused_until END,
    paused_by = CASE WHEN u.unpause THEN '' ELSE h.paused_by END, paused_reason = CASE WHEN u.unpause THEN '' ELSE h.paused_reason END
FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::uuid[], $5::bool[]) AS u (schedule_uuid, next_at, fire_at, awaits_task, unpause)
WHERE h.schedule_uuid = u.schedule_uuid;

-- name: scheduledTasksEnded
SELECT g.task_uuid, g.schedule_uuid AS step_uuid
FROM tasker.schedule_signals g
WHERE g.created_at <= now()
  AND NOT EXISTS (
      SELECT FROM tasker.deferred_work w WHERE w.kind = 'schedule_ended' AND w.task_uuid = g.task_uuid AND w.step_uuid = g.schedule_uuid
  )
ORDER BY g.created_at
LIMIT $1;

-- name: lockSchedulesOf
SELECT
    h.schedule_uuid AS uuid, h.namespace, h.name, h.template_name AS template, h.template_version AS version, h.context, h.nominal_key, h.priority, h.tags,
    h.cron, h.day_match, h.zone, make_interval(secs => h.every_s) AS "every", make_interval(secs => h.after_end_s) AS after_end, h.except_days AS "except",
    make_interval(secs => h.jitter_s) AS jitter, h.start_at, h.end_at, h.overlap, h.catch_up, h.catch_up_max,
    make_interval(secs => h.start_within_s) AS start_within, h.anchor, h.next_at, h.fire_at, h.awaits_task, h.paused_at, h.paused_until, h.paused_by,
    h.paused_reason, h.created_at, h.created_by, h.updated_at, h.revision, h.deleted_at
FROM tasker.schedules h
WHERE h.schedule_uuid = ANY ($1)
ORDER BY h.schedule_uuid
FOR NO KEY UPDATE SKIP LOCKED;

-- name: takeEndedScheduled
-- A task belongs to one firing. A lookup by schedule would read all firings with open tasks.
WITH taken AS (
    DELETE FROM tasker.schedule_signals g
    WHERE g.task_uuid = ANY ($1)
      AND (g.schedule_uuid = ANY ($2) OR NOT EXISTS (SELECT FROM tasker.schedules h WHERE h.schedule_uuid = g.schedule_uuid))
    RETURNING g.task_uuid, g.schedule_uuid, g.created_at
)
UPDATE tasker.schedule_firings g
SET task_open = false, ended_at = k.created_at
FROM taken k
WHERE g.task_uuid = k.task_uuid AND g.task_open
RETURNING g.schedule_uuid, g.task_uuid, g.ended_at;

-- name: firingsBetween
SELECT g.nominal_at, g.outcome, g.task_uuid
FROM tasker.schedule_firings g
WHERE g.schedule_uuid = $1 AND g.nominal_at BETWEEN $2 AND $3 AND g.kind <> 'manual' AND (g.task_uuid IS NOT NULL OR g.outcome = 'queued');
