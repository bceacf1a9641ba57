-- tell_of_investigation writes the events of an investigation, and keeps its row in
-- case_members up to date.
CREATE OR REPLACE FUNCTION tasker.tell_of_investigation() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    _changes bigint[] := (SELECT array_agg(a.history_id) FROM added a);
BEGIN
    WITH told AS MATERIALIZED (
        SELECT e.* FROM tasker.dlq_events(_changes) e
    ),
    events AS (
        INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data, created_at)
        SELECT
            'dlq.entry.' || CASE WHEN e.event IN ('created', 'recovered', 'resolved') THEN e.event ELSE 'updated' END,
            e.task_uuid, e.dlq_entry_uuid, e.data, e.changed_at
        FROM told e
        ORDER BY e.history_id
    )
    INSERT INTO tasker.case_members (
        dlq_entry_uuid, namespace, opened_at, task_name, task_version, step_name, dlq_reason, detail_code,
        error_type, error_message, error_fingerprint, worker_uuid, attempted_at, recovered_at, ended_at
    )
    SELECT
        e.dlq_entry_uuid, e.data ->> 'namespace', (e.data ->> 'dlq_timestamp')::timestamptz, e.data ->> 'task_name', e.data ->> 'task_version',
        coalesce(e.data #>> '{step,name}', ''), (e.data ->> 'dlq_reason')::tasker.dlq_reason, e.data ->> 'detail_code',
        left(e.data #>> '{step,error_type}', 200), e.data #>> '{step,error_message}',
        left(e.data #>> '{step,error_fingerprint}', 200), left(e.data #>> '{step,worker_uuid}', 100), (e.data #>> '{step,last_attempted_at}')::timestamptz,
        (e.data ->> 'recovered_at')::timestamptz, (e.data ->> 'resolved_at')::timestamptz
    FROM told e
    WHERE e.event = 'created'
    ON CONFLICT DO NOTHING;

    IF NOT EXISTS (SELECT FROM added a WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled', 'step_failed', 'raised')) THEN
        RETURN NULL;
    END IF;
    UPDATE tasker.case_members m
    SET acted_at = greatest(m.acted_at, c.acted_at),
        failed_again_at = CASE WHEN greatest(m.acted_at, c.acted_at) < c.failed_at THEN c.failed_at ELSE m.failed_again_at END,
        revision = m.revision + CASE WHEN c.cause THEN 1 ELSE 0 END,
        fingerprint_version = CASE WHEN c.cause THEN 0 ELSE m.fingerprint_version END,
        dlq_reason = coalesce(f.dlq_reason, c.dlq_reason, m.dlq_reason), detail_code = coalesce(f.detail_code, c.detail_code, m.detail_code),
        step_name = coalesce(f.step_name, m.step_name),
        error_type = CASE WHEN f.step_name IS NULL THEN m.error_type ELSE left(f.error ->> 'type', 200) END,
        error_message = CASE WHEN f.step_name IS NULL THEN m.error_message ELSE f.error ->> 'message' END,
        error_fingerprint = CASE WHEN f.step_name IS NULL THEN m.error_fingerprint ELSE left(f.error ->> 'fingerprint', 200) END,
        worker_uuid = CASE WHEN f.step_name IS NULL THEN m.worker_uuid ELSE left(f.error ->> 'worker_uuid', 100) END,
        worker_name = CASE WHEN f.step_name IS NULL THEN m.worker_name END,
        worker_version = CASE WHEN f.step_name IS NULL THEN m.worker_version END,
        attempted_at = CASE WHEN f.step_name IS NULL THEN m.attempted_at ELSE f.last_attempted_at END
    FROM (
        SELECT
            a.dlq_entry_uuid,
            max(a.changed_at) FILTER (WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled')) AS acted_at,
            max(a.changed_at) FILTER (WHERE a.event = 'step_failed') AS failed_at,
            bool_or(a.event IN ('step_failed', 'raised')) AS cause,
            max(a.history_id) FILTER (WHERE a.event = 'step_failed') AS failure,
            (max((a.metadata #>> '{to,dlq_reason}')) FILTER (WHERE a.event = 'raised'))::tasker.dlq_reason AS dlq_reason,
            max(a.metadata #>> '{to,detail_code}') FILTER (WHERE a.event = 'raised') AS detail_code
        FROM added a
        WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled', 'step_failed', 'raised')
        GROUP BY a.dlq_entry_uuid
    ) c
    LEFT JOIN LATERAL (
        SELECT (a.metadata ->> 'dlq_reason')::tasker.dlq_reason AS dlq_reason, a.metadata ->> 'detail_code' AS detail_code, s.name AS step_name,
            CASE WHEN jsonb_typeof(a.metadata -> 'error') = 'object' THEN a.metadata -> 'error' ELSE '{}' END AS error, s.last_attempted_at
        FROM added a
        JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = a.dlq_entry_uuid
        JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = (a.metadata ->> 'step_uuid')::uuid
        WHERE a.history_id = c.failure
    ) f ON true
    WHERE m.dlq_entry_uuid = c.dlq_entry_uuid;
    RETURN NULL;
END
$$;
