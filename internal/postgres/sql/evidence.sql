-- name: selectFailedInput
-- Selects the same results as a claim. Attempts are found by task, as in the history.
WITH steps AS MATERIALIZED (
    SELECT s.step_uuid, row_number() OVER (ORDER BY s.step_uuid) - 1 AS place
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1
)
SELECT s.step_uuid, s.name, s.step_type AS type, s.handler, s.state, s.attempts, s.max_attempts, s.retryable, coalesce(s.timeout_ms, 0) AS timeout_ms, n.place,
    tasker.redact_error(s.error) AS error, s.item, s.item_ordinal AS index, g.context,
    (
        SELECT json_agg(json_build_object('step_uuid', i.step_uuid, 'name', i.name, 'place', i.place, 'bytes', i.bytes,
            'large', NOT i.inline AND i.results IS NOT NULL,
            'result', CASE WHEN i.inline THEN i.results -> 'result' END) ORDER BY i.ordinal)
        FROM (
            SELECT p.step_uuid, p.name, m.place, p.results, b.bytes, o.ordinal,
                NOT b.apart AND sum(b.bytes) FILTER (WHERE NOT b.apart) OVER (ORDER BY o.ordinal) <= 4194304 /* MaxInlineInputBytes */ AS inline
            FROM (
                SELECT q.*, array_position(s.parent_uuids, q.step_uuid) AS ordinal FROM tasker.workflow_steps q WHERE q.task_uuid = s.task_uuid AND q.step_uuid = ANY (s.parent_uuids)
            ) p
            JOIN steps m ON m.step_uuid = p.step_uuid
            CROSS JOIN LATERAL (SELECT p.ordinal) o
            CROSS JOIN LATERAL (
                SELECT coalesce(p.results_bytes, octet_length((p.results -> 'result')::text), 0) AS bytes, coalesce(p.step_uuid = ANY (g.by_reference), false) AS apart
            ) b
        ) i
    ) AS parents,
    (
        SELECT json_agg(json_build_object('attempt', a.attempt, 'began_at', a.claimed_at, 'failed_at', a.created_at, 'worker_uuid', a.worker_uuid,
            'worker_name', coalesce(w.name, l.worker_name, ''), 'worker_version', coalesce(w.version, l.worker_version, ''), 'error', tasker.redact_error(a.detail))
            ORDER BY a.transition_id DESC)
        FROM (
            SELECT h.*
            FROM tasker.step_history h
            WHERE h.task_uuid = $1 AND h.step_uuid = $2 AND h.to_state = 'error'
            ORDER BY h.transition_id DESC
            LIMIT 20 /* MaxEvidenceAttempts */
        ) a
        LEFT JOIN tasker.workers w ON w.worker_uuid = a.worker_uuid
        LEFT JOIN tasker.case_members l ON l.dlq_entry_uuid = $3 AND l.worker_uuid = a.worker_uuid::text
    ) AS tries
FROM tasker.workflow_steps s
JOIN steps n ON n.step_uuid = s.step_uuid
LEFT JOIN tasker.map_inputs g ON g.task_uuid = s.task_uuid AND g.step_uuid = s.map_step_uuid
WHERE s.task_uuid = $1 AND s.step_uuid = $2;

-- name: redactSnapshots
SELECT tasker.redact_snapshot(d.doc::jsonb)
FROM unnest($1::text[]) WITH ORDINALITY AS d (doc, place)
ORDER BY d.place;
