-- name: taskTransitions
SELECT transition_id AS id, task_uuid, step_uuid, from_state AS "from", to_state AS "to", event, attempt, worker_uuid, coalesce(actor, '') AS actor,
    coalesce(CASE WHEN fits OR length(reason) <= 500 THEN reason ELSE left(reason, 500) || '…' END, '') AS reason,
    CASE WHEN fits THEN detail ELSE tasker.omission(detail, format('/v1/tasks/%s/transitions', task_uuid) || format('?limit=1&offset=%s', $3 + place - 1)) END AS detail, created_at, operation_uuid
FROM (
    SELECT h.*, sum(coalesce(octet_length(reason), 0) + coalesce(least(
        pg_column_size(detail)::bigint * CASE WHEN pg_column_compression(detail) IS NULL THEN 32 ELSE 98304 END, 98304), 0)) OVER (ORDER BY place) <= 8388608 AS fits
    FROM (SELECT p.*, row_number() OVER () AS place FROM (
SELECT transition_id, task_uuid, NULL::uuid AS step_uuid, from_state, to_state, event, NULL::int AS attempt,
    NULL::uuid AS worker_uuid, actor, reason, detail, created_at, NULL::uuid AS operation_uuid
FROM tasker.task_transitions
WHERE task_uuid = $1
ORDER BY transition_id LIMIT $2 OFFSET $3) p) h
) m
ORDER BY place;

-- name: stepTransitions
SELECT transition_id AS id, task_uuid, step_uuid, from_state AS "from", to_state AS "to", event, attempt, worker_uuid, coalesce(actor, '') AS actor,
    coalesce(CASE WHEN fits OR length(reason) <= 500 THEN reason ELSE left(reason, 500) || '…' END, '') AS reason,
    CASE WHEN fits THEN detail ELSE tasker.omission(detail, format('/v1/tasks/%s/workflow_steps/%s/transitions', task_uuid, step_uuid) || format('?limit=1&offset=%s', $3 + place - 1)) END AS detail, created_at, operation_uuid
FROM (
    SELECT h.*, sum(coalesce(octet_length(reason), 0) + coalesce(least(
        pg_column_size(detail)::bigint * CASE WHEN pg_column_compression(detail) IS NULL THEN 32 ELSE 98304 END, 98304), 0)) OVER (ORDER BY place) <= 8388608 AS fits
    FROM (SELECT p.*, row_number() OVER () AS place FROM (
SELECT transition_id, task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, created_at, operation_uuid
FROM tasker.workflow_step_transitions
WHERE task_uuid = $1 AND step_uuid = $4 ORDER BY transition_id LIMIT $2 OFFSET $3) p) h
) m
ORDER BY place;

-- name: newestTaskTransitions
SELECT transition_id AS id, task_uuid, step_uuid, from_state AS "from", to_state AS "to", event, attempt, worker_uuid, coalesce(actor, '') AS actor,
    coalesce(CASE WHEN fits OR length(reason) <= 500 THEN tasker.redact_note(reason) ELSE left(tasker.redact_note(reason), 500) || '…' END, '') AS reason,
    CASE WHEN fits THEN tasker.redact_document(detail) ELSE tasker.omission(detail, format('/v1/tasks/%s/transitions', task_uuid)) END AS detail, created_at, operation_uuid
FROM (
    SELECT h.*, sum(coalesce(octet_length(reason), 0) + coalesce(least(
        pg_column_size(detail)::bigint * CASE WHEN pg_column_compression(detail) IS NULL THEN 32 ELSE 98304 END, 98304), 0)) OVER (ORDER BY place) <= 8388608 AS fits
    FROM (SELECT p.*, row_number() OVER () AS place FROM (
SELECT transition_id, task_uuid, NULL::uuid AS step_uuid, from_state, to_state, event, NULL::int AS attempt,
    NULL::uuid AS worker_uuid, actor, reason, detail, created_at, NULL::uuid AS operation_uuid
FROM tasker.task_transitions
WHERE task_uuid = $1
ORDER BY transition_id DESC LIMIT $2) p) h
) m
ORDER BY place;

-- name: newestStepTransitions
SELECT transition_id AS id, task_uuid, step_uuid, from_state AS "from", to_state AS "to", event, attempt, worker_uuid, coalesce(actor, '') AS actor,
    coalesce(CASE WHEN fits OR length(reason) <= 500 THEN tasker.redact_note(reason) ELSE left(tasker.redact_note(reason), 500) || '…' END, '') AS reason,
    CASE WHEN fits THEN CASE WHEN to_state = 'error' THEN tasker.redact_error(detail) ELSE tasker.redact_document(detail) END ELSE tasker.omission(detail, format('/v1/tasks/%s/workflow_steps/%s/transitions', task_uuid, step_uuid)) END AS detail, created_at, operation_uuid
FROM (
    SELECT h.*, sum(coalesce(octet_length(reason), 0) + coalesce(least(
        pg_column_size(detail)::bigint * CASE WHEN pg_column_compression(detail) IS NULL THEN 32 ELSE 98304 END, 98304), 0)) OVER (ORDER BY place) <= 8388608 AS fits
    FROM (SELECT p.*, row_number() OVER () AS place FROM (
SELECT transition_id, task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, created_at, operation_uuid
FROM tasker.workflow_step_transitions
WHERE task_uuid = $1 AND step_uuid = $3 ORDER BY transition_id DESC LIMIT $2) p) h
) m
ORDER BY place;

-- name: taskHistory
-- The newest rows of each history are read by key and then merged.
SELECT transition_id AS id, task_uuid, step_uuid, from_state AS "from", to_state AS "to", event, attempt, worker_uuid, coalesce(actor, '') AS actor,
    coalesce(CASE WHEN fits OR length(reason) <= 500 THEN reason ELSE left(reason, 500) || '…' END, '') AS reason,
    CASE WHEN fits THEN detail ELSE tasker.omission(detail, CASE WHEN step_uuid IS NULL THEN format('/v1/tasks/%s/transitions', task_uuid) ELSE format('/v1/tasks/%s/workflow_steps/%s/transitions', task_uuid, step_uuid) END) END AS detail, created_at, operation_uuid
FROM (
    SELECT h.*, sum(coalesce(octet_length(reason), 0) + coalesce(least(
        pg_column_size(detail)::bigint * CASE WHEN pg_column_compression(detail) IS NULL THEN 32 ELSE 98304 END, 98304), 0)) OVER (ORDER BY place) <= 8388608 AS fits
    FROM (SELECT p.*, row_number() OVER () AS place FROM (
SELECT * FROM (
    (
SELECT transition_id, task_uuid, NULL::uuid AS step_uuid, from_state, to_state, event, NULL::int AS attempt,
    NULL::uuid AS worker_uuid, actor, reason, detail, created_at, NULL::uuid AS operation_uuid
FROM tasker.task_transitions
WHERE task_uuid = $1
ORDER BY transition_id DESC LIMIT $2) UNION ALL (
SELECT transition_id, task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, actor, reason, detail, created_at, operation_uuid
FROM tasker.workflow_step_transitions
WHERE task_uuid = $1 ORDER BY transition_id DESC LIMIT $2)
) b
ORDER BY created_at DESC, step_uuid IS NULL DESC, transition_id DESC LIMIT $2) p) h
) m
ORDER BY place;
