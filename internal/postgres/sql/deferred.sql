-- name: deferWork
INSERT INTO tasker.deferred_work AS d (kind, task_uuid, step_uuid, failures, last_error, retry_at)
SELECT $1, u.task_uuid, u.step_uuid, 1, u.error, clock_timestamp() + $5::interval
FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (task_uuid, step_uuid, error)
ORDER BY u.task_uuid, u.step_uuid
ON CONFLICT (kind, task_uuid, step_uuid) DO UPDATE
SET failures = d.failures + 1, last_error = excluded.last_error, last_failed_at = clock_timestamp(),
    retry_at = clock_timestamp() + least($6::interval, $5::interval * 2 ^ least(d.failures, 20))
RETURNING kind, task_uuid, step_uuid, failures, first_failed_at AS since, retry_at;

-- name: takeDeferredWork
-- Reserves the rows for one server, fewest failures first.
UPDATE tasker.deferred_work d
SET retry_at = now() + $3::interval
FROM (
    SELECT f.kind, f.task_uuid, f.step_uuid
    FROM tasker.deferred_work f
    WHERE f.retry_at <= now() AND f.kind = ANY ($1)
    ORDER BY f.failures, f.retry_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
) due
WHERE d.kind = due.kind AND d.task_uuid = due.task_uuid AND d.step_uuid = due.step_uuid
RETURNING d.kind, d.task_uuid, d.step_uuid, d.failures, d.first_failed_at AS since, d.retry_at;

-- name: stateWithoutEntry
-- Selects the state of task $1 unless an investigation with code $2 was opened since $3.
SELECT t.state FROM tasker.tasks t
WHERE t.task_uuid = $1 AND NOT EXISTS (
    SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = $1 AND $2 IN (d.detail_code, d.original_detail_code) AND d.dlq_timestamp >= $3
);

-- name: endDeferral
-- Also marks the investigation of the work as recovered. Its task must be locked.
WITH ended AS (
    DELETE FROM tasker.deferred_work WHERE kind = $1 AND task_uuid = $2 AND step_uuid = $3
),
recovered AS (
    UPDATE tasker.tasks_dlq d
    SET recovered_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE d.task_uuid = $2 AND d.resolution_status = 'pending' AND d.recovered_at IS NULL AND d.detail_code = $4 AND d.metadata #>> ARRAY[$4, 'kind'] = $1
    RETURNING d.dlq_entry_uuid, d.updated_at
)
INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, changed_at)
SELECT dlq_entry_uuid, 'recovered', $5, 'pending', 'pending', updated_at FROM recovered;

-- name: deferredCounts
SELECT d.kind, count(*) AS rows, min(d.first_failed_at) AS oldest, tasker.redact_note(min(d.error)) AS error
FROM (SELECT kind, first_failed_at, left(last_error, 300) AS error FROM tasker.deferred_work ORDER BY kind LIMIT $1) d
GROUP BY d.kind
ORDER BY d.kind;
