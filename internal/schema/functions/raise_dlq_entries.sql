-- raise_dlq_entries gives open investigations the reason of what has happened to their
-- tasks meanwhile, where that is weightier than what they have: the reason, detail
-- code, step and case become those of the weightiest, and the priority rises; age
-- counts from the opening as before. A lighter reason, or one of the same weight,
-- changes nothing. The history keeps both causes. p_opened are the places in the
-- arrays that have opened an investigation. The caller holds the locks of the tasks.
CREATE OR REPLACE FUNCTION tasker.raise_dlq_entries(
    p_tasks   uuid[],
    p_reasons tasker.dlq_reason[],
    p_details text[],
    p_steps   uuid[],
    p_opened  bigint[],
    p_actor   text,
    p_at      timestamptz
) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    WITH weightiest AS MATERIALIZED (
        SELECT DISTINCT ON (d.dlq_entry_uuid) d.dlq_entry_uuid, c.task_uuid, c.reason, c.detail_code, c.step_uuid, b.minutes,
            jsonb_build_object('dlq_reason', d.dlq_reason, 'detail_code', d.detail_code, 'step_uuid', d.step_uuid, 'step_name', d.step_name,
                'case_key', d.case_key, 'base_priority', round(extract(epoch FROM d.dlq_timestamp - d.priority_at) / 60)) AS was
        FROM unnest(p_tasks, p_reasons, p_details, p_steps) WITH ORDINALITY AS c (task_uuid, reason, detail_code, step_uuid, place)
        JOIN tasker.tasks_dlq d ON d.task_uuid = c.task_uuid AND d.resolution_status = 'pending'
        JOIN tasker.dlq_base_priorities b ON b.dlq_reason = c.reason
        WHERE c.place <> ALL (p_opened) AND c.reason <> d.dlq_reason
          AND d.dlq_timestamp - make_interval(mins => b.minutes) < d.priority_at
        ORDER BY d.dlq_entry_uuid, b.minutes DESC, c.place
    ),
    raised AS (
        UPDATE tasker.tasks_dlq d
        SET dlq_reason = w.reason, detail_code = w.detail_code, step_uuid = w.step_uuid,
            priority_at = d.dlq_timestamp - make_interval(mins => w.minutes),
            step_name = f.step_name, error_pattern = f.error_pattern,
            case_key = tasker.case_key(d.namespace, d.task_name, w.reason, w.detail_code, f.step_name, f.error_pattern),
            original_reason = coalesce(d.original_reason, d.dlq_reason),
            original_detail_code = coalesce(d.original_detail_code, d.detail_code),
            updated_at = p_at
        FROM weightiest w
        LEFT JOIN LATERAL tasker.dlq_failed_step(w.task_uuid, w.step_uuid) f ON true
        WHERE d.dlq_entry_uuid = w.dlq_entry_uuid AND d.resolution_status = 'pending'
        RETURNING d.dlq_entry_uuid, w.was, w.minutes, d.dlq_reason, d.detail_code, d.step_uuid, d.step_name, d.case_key
    )
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
    SELECT r.dlq_entry_uuid, 'raised', p_actor, 'pending', 'pending', format('raised from %s to %s', r.was ->> 'dlq_reason', r.dlq_reason),
        jsonb_build_object('from', r.was, 'to', jsonb_build_object('dlq_reason', r.dlq_reason, 'detail_code', r.detail_code, 'step_uuid', r.step_uuid,
            'step_name', r.step_name, 'case_key', r.case_key, 'base_priority', r.minutes)), p_at
    FROM raised r
    ORDER BY r.dlq_entry_uuid;
END
$$;
COMMENT ON FUNCTION tasker.raise_dlq_entries(uuid[], tasker.dlq_reason[], text[], uuid[], bigint[], text, timestamptz) IS 'Gives open investigations a weightier reason that came to their tasks.';
