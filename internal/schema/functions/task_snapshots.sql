-- task_snapshots is the picture of each task that an investigation keeps: all that
-- an investigator needs if the rest is gone. One statement for all of them, because
-- starting one takes longer than what it does for a small task; in plpgsql, because a session plans such a function once, and one in SQL each time.
-- Rows become the text of JSON, which is read once at the end: to build jsonb at each
-- level takes twice as long.
--
-- plain tells that redact_snapshot would find nothing to hide: neither the keys that
-- are ours nor a document of somebody else's holds what it looks for. To search them
-- takes a third of what a search of the whole snapshot does, and a template is
-- searched once.
--
-- A snapshot is bounded (max_snapshot_bytes). What is cut of large tasks is known
-- before anything is put together (snapshot_cuts); where it turns out only afterwards
-- that a snapshot is too large, it is built again with what task_snapshot_cuts leaves
-- of it, which is what p_cuts is for. The cost is linear in the steps and failures of
-- a task: each table is read once.
CREATE OR REPLACE FUNCTION tasker.task_snapshots(
    p_tasks           uuid[],
    p_original_states text[],
    p_since           timestamptz[],
    p_detected_by     text,
    p_at              timestamptz,
    p_cuts            jsonb DEFAULT NULL
) RETURNS TABLE (task_uuid uuid, snapshot jsonb, plain boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off -- compiling takes seconds where a table has no statistics yet
AS $$
#variable_conflict use_column
DECLARE
    _words text;  -- null: look at each
    _cuts  jsonb := coalesce(p_cuts, tasker.snapshot_cuts(p_tasks));
    _shown uuid[] := tasker.all_shown(_cuts);
BEGIN
    SELECT tasker.document_pattern(r.key_words) INTO _words
    FROM tasker.redaction r
    WHERE r.only_row AND r.paths = '[]'
      AND to_jsonb(tasker.snapshot_keys())::text !~ tasker.document_pattern(r.key_words);

    RETURN QUERY
    SELECT t.task_uuid, y.snapshot, y.plain
    FROM unnest(p_tasks, p_original_states, p_since) AS c (task_uuid, original_state, since)
    JOIN tasker.tasks t ON t.task_uuid = c.task_uuid
    JOIN tasker.task_templates tt ON tt.template_uuid = t.template_uuid
    CROSS JOIN tasker.staleness_thresholds st
    CROSS JOIN LATERAL (SELECT translate((_cuts -> ('steps ' || t.task_uuid))::text, '[]"', '{}')::uuid[] AS shown OFFSET 0) z
    CROSS JOIN LATERAL (
        SELECT
            json_agg(x) AS steps,
            string_agg(concat(x.results, x.error, x.failures, x.item), ' ') AS documents,
            min(x.next_retry_at) AS next_retry_at,
            min(x.wait_until) AS wait_until,
            bool_or(x.dependencies <> '{}') AS joined
        FROM (
            SELECT
                s.step_uuid, s.name, CASE WHEN s.is_decision THEN 'decision' ELSE s.step_type END AS type, s.handler, s.state, s.state_since,
                s.parent_uuids AS dependencies, s.parents_open AS dependencies_open,
                s.attempts, s.max_attempts, s.retryable, s.worker_uuid, s.lease_expires_at,
                s.last_attempted_at, s.last_failure_at, s.next_retry_at, s.wait_until, s.skip_reason, s.child_task_uuid, s.completed_at,
                coalesce(_cuts -> ('results ' || s.step_uuid), s.results) AS results,
                coalesce(_cuts -> ('error ' || s.step_uuid), s.error) AS error,
                f.failures, f.failures_omitted,
                CASE WHEN s.items_total IS NOT NULL THEN tasker.item_counts(s.task_uuid, s.step_uuid) END AS items,
                CASE WHEN s.map_step_uuid IS NOT NULL THEN jsonb_build_object('map_step_uuid', s.map_step_uuid, 'ordinal', s.item_ordinal,
                    'value', CASE WHEN octet_length(s.item::text) <= 4096 THEN s.item ELSE jsonb_build_object('omitted', true,
                        'bytes', octet_length(s.item::text), 'read_at', format('/v1/tasks/%s/workflow_steps/%s', s.task_uuid, s.step_uuid)) END
                ) END AS item
            FROM (SELECT * FROM tasker.workflow_steps o WHERE o.task_uuid = t.task_uuid AND (z.shown IS NULL OR o.step_uuid IN (SELECT unnest(_shown)))) s
            -- Every failure has its step. A full join cannot become a nested loop, whose cost grows by the square.
            FULL JOIN (
                SELECT h.step_uuid,
                    json_agg(a ORDER BY h.transition_id) FILTER (WHERE h.newest <= u.most) AS failures,
                    nullif(count(*) FILTER (WHERE h.newest > u.most), 0) AS failures_omitted
                FROM (
                    SELECT o.*, row_number() OVER (PARTITION BY o.step_uuid ORDER BY o.transition_id DESC) AS newest
                    FROM tasker.workflow_step_transitions o
                    WHERE o.task_uuid = t.task_uuid AND o.to_state = 'error' AND (z.shown IS NULL OR o.step_uuid IN (SELECT unnest(_shown)))
                ) h
                CROSS JOIN (SELECT coalesce((_cuts ->> ('failures ' || t.task_uuid))::bigint, 1000000000) AS most) u
                CROSS JOIN LATERAL (
                    SELECT h.attempt, h.created_at AS at, h.event, h.worker_uuid,
                        coalesce(_cuts -> ('failure ' || h.transition_id), h.detail) AS error
                ) a
                GROUP BY h.step_uuid
            ) f ON f.step_uuid = s.step_uuid
            ORDER BY s.step_uuid
        ) x
    ) w
    CROSS JOIN LATERAL (
        SELECT json_agg(x ORDER BY x.transition_id) AS transitions, string_agg(concat_ws(' ', x.reason, x.detail), ' ') AS documents
        FROM (
            SELECT h.transition_id, h.from_state, h.to_state, h.event, h.actor, h.reason,
                coalesce(_cuts -> ('move ' || h.transition_id), h.detail) AS detail, h.created_at
            FROM tasker.task_transitions h
            WHERE h.task_uuid = t.task_uuid
            ORDER BY h.transition_id DESC
            LIMIT 50
        ) x
    ) m
    CROSS JOIN LATERAL (
        SELECT k.configuration::text ~ _words AS found
        FROM tasker.task_templates k
        WHERE k.template_uuid = t.template_uuid
        OFFSET 0 -- keeps it apart, so that it is remembered for each template
    ) q
    CROSS JOIN LATERAL (
        SELECT
            coalesce(_cuts -> ('context ' || t.task_uuid), t.context) AS context, t.initiator, t.source_system, t.reason, t.tags, t.correlation_id, t.parent_correlation_id,
            t.recreated_from, t.parent_task_uuid, t.parent_step_uuid, t.phase, t.created_at, t.start_at, t.ends_at AS max_duration_ends_at
    ) task
    CROSS JOIN LATERAL (
        SELECT
            coalesce(tt.max_waiting_for_dependencies_minutes, st.waiting_for_dependencies_minutes) AS waiting_for_dependencies_minutes,
            coalesce(tt.max_waiting_for_retry_minutes, st.waiting_for_retry_minutes) AS waiting_for_retry_minutes,
            coalesce(tt.max_steps_in_process_minutes, st.steps_in_process_minutes) AS steps_in_process_minutes,
            tt.max_duration_minutes
    ) thresholds
    CROSS JOIN LATERAL (SELECT coalesce(c.since, t.state_since) AS since) u
    CROSS JOIN LATERAL (
        SELECT
            1 AS schema_version, t.task_uuid, t.namespace, t.name AS task_name, t.version AS task_version,
            t.state AS current_state, c.original_state,
            round((extract(epoch FROM p_at - u.since) / 60)::numeric, 3) AS time_in_state_minutes,
            round((extract(epoch FROM tasker.staleness_threshold(c.original_state, tt, st)
                + tasker.retry_rest(c.original_state, tt, CASE c.original_state WHEN 'waiting_for_dependencies' THEN w.wait_until ELSE w.next_retry_at END - u.since)) / 60)::numeric, 3) AS threshold_minutes,
            round((extract(epoch FROM p_at - t.created_at) / 60)::numeric, 3) AS task_age_minutes,
            t.priority, p_at AS detected_at, p_detected_by AS detected_by, task, thresholds, tt.configuration AS template, w.steps,
            (
                SELECT json_agg(e)
                FROM (
                    SELECT p.parent_uuid AS "from", s.step_uuid AS "to"
                    FROM tasker.workflow_steps s
                    CROSS JOIN LATERAL unnest(s.parent_uuids) AS p (parent_uuid)
                    WHERE w.joined AND s.task_uuid = t.task_uuid AND s.map_step_uuid IS NULL
                    ORDER BY p.parent_uuid, s.step_uuid
                ) e
            ) AS edges,
            m.transitions
    ) x
    CROSS JOIN LATERAL (SELECT row_to_json(x)::text AS text OFFSET 0) j -- once
    CROSS JOIN LATERAL (
        SELECT j.text::jsonb AS snapshot,
            coalesce(NOT q.found AND concat(task.context, t.reason, t.tags, t.initiator, t.source_system, w.documents, m.documents) !~ _words, false) AS plain
        WHERE p_cuts IS NOT NULL OR octet_length(j.text) <= tasker.max_snapshot_bytes()
        UNION ALL
        SELECT b.snapshot, b.plain
        FROM tasker.task_snapshots(ARRAY[t.task_uuid], ARRAY[c.original_state], ARRAY[c.since], p_detected_by, p_at,
            tasker.task_snapshot_cuts(t.task_uuid, z.shown)) b
        WHERE p_cuts IS NULL AND octet_length(j.text) > tasker.max_snapshot_bytes()
    ) y;
END
$$;
COMMENT ON FUNCTION tasker.task_snapshots(uuid[], text[], timestamptz[], text, timestamptz, jsonb) IS 'The picture of each task that an investigation keeps: task, template, thresholds, steps with every failure, edges, recent transitions.';
