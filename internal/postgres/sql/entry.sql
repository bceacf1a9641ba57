-- name: openEntries
SELECT e.task_uuid, e.dlq_entry_uuid, t.namespace
FROM tasker.create_dlq_entries(
    p_tasks => $1, p_reasons => $2::text[]::tasker.dlq_reason[], p_details => $3, p_detected_by => $4, p_states => $5, p_since => $6,
    p_steps => $7, p_actor => $8, p_notes => nullif($9, ''), p_metadata => $10::text[]::jsonb[]) e
JOIN tasker.tasks t ON t.task_uuid = e.task_uuid;

-- name: selectEntry
SELECT d.dlq_entry_uuid AS uuid, d.task_uuid, d.step_uuid, d.original_state, d.dlq_reason::text AS reason, d.detail_code, d.detected_by,
    coalesce(d.original_reason::text, '') AS original_reason, coalesce(d.original_detail_code, '') AS original_code,
    d.dlq_timestamp AS at, d.resolution_status::text, d.resolved_at, d.resolved_by, d.recovered_at, d.predecessor_uuid,
    d.created_at, d.updated_at, t.state AS current_task_state, t.namespace, d.task_snapshot AS snapshot,
    tasker.redact_document(d.metadata) AS metadata, tasker.redact_note(d.resolution_notes) AS resolution_notes
FROM tasker.tasks_dlq d
JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
WHERE d.dlq_entry_uuid = $1;

-- name: selectEntryOfTask
SELECT d.dlq_entry_uuid AS uuid, d.task_uuid, d.step_uuid, d.original_state, d.dlq_reason::text AS reason, d.detail_code, d.detected_by,
    coalesce(d.original_reason::text, '') AS original_reason, coalesce(d.original_detail_code, '') AS original_code,
    d.dlq_timestamp AS at, d.resolution_status::text, d.resolved_at, d.resolved_by, d.recovered_at, d.predecessor_uuid,
    d.created_at, d.updated_at, t.state AS current_task_state, t.namespace, d.task_snapshot AS snapshot,
    tasker.redact_document(d.metadata) AS metadata, tasker.redact_note(d.resolution_notes) AS resolution_notes
FROM tasker.tasks_dlq d
JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
WHERE d.task_uuid = $1
ORDER BY d.dlq_timestamp DESC, d.dlq_entry_uuid DESC
LIMIT 1;

-- name: selectEntries
-- $1 limit, $2 offset, $3 maximum size of the documents, $4 status or '', $5 reason or '', $6 namespaces
-- or NULL for all. Merges the newest investigations of each status or of each namespace.
WITH page AS MATERIALIZED (
    SELECT x.id, row_number() OVER (ORDER BY x.at DESC, x.id DESC) AS place
    FROM (
        SELECT d.id, d.at
        FROM unnest(enum_range(NULL::tasker.dlq_resolution_status)) AS s (status)
        CROSS JOIN LATERAL (
            SELECT d.dlq_entry_uuid AS id, d.dlq_timestamp AS at
            FROM tasker.tasks_dlq d
            WHERE d.resolution_status = s.status AND ($5 = '' OR d.dlq_reason::text = $5)
            ORDER BY d.dlq_timestamp DESC, d.dlq_entry_uuid DESC
            LIMIT $1::bigint + $2::bigint
        ) d
        WHERE $6::text[] IS NULL AND ($4 = '' OR s.status::text = $4)
        UNION ALL
        SELECT d.id, d.at
        FROM unnest($6::text[]) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT d.dlq_entry_uuid AS id, d.dlq_timestamp AS at
            FROM tasker.tasks_dlq d
            WHERE d.namespace = n.namespace AND ($4 = '' OR d.resolution_status::text = $4)
              AND ($5 = '' OR d.dlq_reason::text = $5)
            ORDER BY d.dlq_timestamp DESC, d.dlq_entry_uuid DESC
            LIMIT $1::bigint + $2::bigint
        ) d
    ) x
    ORDER BY x.at DESC, x.id DESC
    LIMIT $1 OFFSET $2
)
SELECT d.dlq_entry_uuid AS uuid, d.task_uuid, d.step_uuid, d.original_state, d.dlq_reason::text AS reason, d.detail_code, d.detected_by,
    coalesce(d.original_reason::text, '') AS original_reason, coalesce(d.original_detail_code, '') AS original_code,
    d.dlq_timestamp AS at, d.resolution_status::text, d.resolved_at, d.resolved_by, d.recovered_at, d.predecessor_uuid,
    d.created_at, d.updated_at, t.state AS current_task_state, t.namespace, l.task_snapshot AS snapshot,
    tasker.redact_document(l.metadata) AS metadata, tasker.redact_note(l.resolution_notes) AS resolution_notes
FROM page p
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = p.id
JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
JOIN tasker.entry_documents(ARRAY(SELECT id FROM page ORDER BY place), $3) l ON l.dlq_entry_uuid = d.dlq_entry_uuid
ORDER BY p.place;

-- name: written
SELECT count(*), coalesce(sum(coalesce(octet_length(notes), 0) + coalesce(octet_length(metadata::text), 0)), 0)
FROM tasker.tasks_dlq_history
WHERE dlq_entry_uuid = $1 AND event = 'updated';

-- name: openedByHand
SELECT count(*) FROM (SELECT FROM tasker.tasks_dlq WHERE task_uuid = $1 AND detected_by = $2 LIMIT $3) d;

-- name: writtenNotes
SELECT resolution_notes FROM tasker.tasks_dlq WHERE dlq_entry_uuid = $1;

-- name: selectEntryHistory
-- Limits metadata by its stored size, since numbers expand and compressed data has at most 64 KiB.
SELECT changed_at AS at, actor, event, coalesce(from_status::text, '') AS "from", to_status::text AS "to",
    tasker.redact_note(CASE WHEN fits OR length(notes) <= 500 THEN notes ELSE left(notes, 500) || '…' END) AS notes,
    CASE WHEN fits THEN tasker.redact_document(metadata)
        ELSE tasker.omission(metadata, format('/v1/dlq/entry/%s?history_offset=%s', $1::uuid, place - 1)) END AS metadata
FROM (
    SELECT h.*, sum(coalesce(octet_length(notes), 0) + coalesce(least(
        pg_column_size(metadata)::bigint * CASE WHEN pg_column_compression(metadata) IS NULL THEN 32 ELSE 98304 END, 98304), 0)) OVER (ORDER BY place) <= $4 AS fits
    FROM (
        SELECT p.*, row_number() OVER (ORDER BY history_id) AS place
        FROM tasker.tasks_dlq_history p
        WHERE dlq_entry_uuid = $1
        ORDER BY history_id LIMIT $3 OFFSET $2
    ) h
) m
ORDER BY place;

-- name: updateEntry
-- Changes the status only if it is pending, so that one of two concurrent updates finds no row.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.tasks_dlq d
    SET resolution_status = coalesce($2::text::tasker.dlq_resolution_status, d.resolution_status),
        resolution_notes = coalesce($3::text, d.resolution_notes),
        resolved_by = coalesce($4::text, d.resolved_by),
        metadata = CASE WHEN $5::text IS NULL THEN d.metadata ELSE coalesce(d.metadata, '{}') || $5::text::jsonb END,
        resolved_at = CASE WHEN $2::text IS NULL THEN d.resolved_at ELSE c.at END,
        updated_at = c.at
    FROM clock c
    WHERE d.dlq_entry_uuid = $1 AND ($2::text IS NULL OR d.resolution_status = 'pending')
      AND ($7::timestamptz IS NULL OR d.updated_at = $7)
    RETURNING d.dlq_entry_uuid, d.resolution_status, d.updated_at
)
INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
SELECT m.dlq_entry_uuid, CASE WHEN $2::text IS NULL THEN 'updated' ELSE 'resolved' END, $6,
    CASE WHEN $2::text IS NULL THEN m.resolution_status ELSE 'pending' END, m.resolution_status, $3, $5::text::jsonb, m.updated_at
FROM moved m;

-- name: failuresDuring
-- Reads the reasons of failures from the history of the investigation.
SELECT h.dlq_entry_uuid AS entry_uuid, (h.metadata ->> 'step_uuid')::uuid AS step_uuid, h.metadata ->> 'dlq_reason' AS reason, h.metadata ->> 'detail_code' AS detail_code
FROM unnest($1::uuid[]) AS e (dlq_entry_uuid)
JOIN tasker.tasks_dlq_history h ON h.dlq_entry_uuid = e.dlq_entry_uuid
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = h.dlq_entry_uuid
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = (h.metadata ->> 'step_uuid')::uuid
WHERE h.event = 'step_failed' AND s.state = 'error' AND s.next_retry_at IS NULL
ORDER BY h.history_id DESC;

-- name: endEntries
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.tasks_dlq d
    SET resolution_status = u.status::tasker.dlq_resolution_status, resolution_notes = u.notes, resolved_by = $1, resolved_at = c.at, updated_at = c.at,
        metadata = coalesce(d.metadata, '{}') || u.metadata::jsonb
    FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) AS u (dlq_entry_uuid, status, notes, metadata)
    CROSS JOIN clock c
    WHERE d.dlq_entry_uuid = u.dlq_entry_uuid AND d.resolution_status = 'pending'
    RETURNING d.dlq_entry_uuid, d.dlq_reason, d.dlq_timestamp, d.resolution_status, d.resolved_at, u.notes, u.metadata
),
log AS (
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
    SELECT m.dlq_entry_uuid, 'resolved', $1, 'pending', m.resolution_status, m.notes, m.metadata::jsonb, m.resolved_at
    FROM moved m
    ORDER BY m.dlq_entry_uuid
)
SELECT m.dlq_entry_uuid AS entry_uuid, m.dlq_reason::text AS reason, m.resolution_status::text AS status, extract(epoch FROM m.resolved_at - m.dlq_timestamp)::float8 AS seconds FROM moved m;

-- name: countInFlightSteps
SELECT count(*) FROM tasker.workflow_steps s WHERE s.task_uuid = $1 AND (s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration')
OR s.state = 'pending' AND num_nonnulls(s.decide_at, s.wait_until) > 0);

-- name: writtenOff
SELECT EXISTS (
    SELECT FROM tasker.tasks_dlq WHERE task_uuid = $1 AND resolution_status = 'permanently_failed'
);
