-- step_inputs returns what a worker gets with a step: data of its task, the results of its parents
-- and its checkpoint. An item of a map step gets the context and the results without the list (see
-- map_inputs).
--
-- Results are inline up to 4 MiB for a step, in the order of its parents; the others are references.
-- If all are inline, dependency_results has them. Otherwise dependencies has results and refs.
CREATE OR REPLACE FUNCTION tasker.step_inputs(
    p_task uuid, p_step uuid, p_parents uuid[], p_map_step uuid, p_bytes bigint, p_checkpointed boolean
) RETURNS TABLE (
    task_name text, task_version text, template_uuid uuid, correlation_id text, context jsonb,
    context_omitted text[], dependency_results jsonb, dependencies jsonb, checkpoint jsonb
)
LANGUAGE sql STABLE
AS $$
    SELECT h.task_name, h.task_version, h.template_uuid, h.correlation_id, h.context, h.omitted, h.results,
        CASE WHEN h.results IS NULL AND p_parents <> '{}' THEN (
            SELECT jsonb_build_object(
                'results', jsonb_object_agg(i.name, i.results -> 'result') FILTER (WHERE i.inline OR i.results IS NULL),
                'refs', jsonb_object_agg(i.name, jsonb_build_object('step_uuid', i.step_uuid, 'bytes', i.bytes))
                    FILTER (WHERE NOT i.inline AND i.results IS NOT NULL))
            FROM (
                SELECT p.name, p.step_uuid, p.results, b.bytes,
                    NOT b.apart AND sum(b.bytes) FILTER (WHERE NOT b.apart) OVER (ORDER BY u.place) <= 4194304 /* MaxInlineInputBytes */ AS inline
                FROM unnest(p_parents) WITH ORDINALITY AS u (step_uuid, place)
                CROSS JOIN LATERAL (
                    SELECT q.name, q.step_uuid, q.results, q.results_bytes
                    FROM tasker.workflow_steps q
                    WHERE q.task_uuid = p_task AND q.step_uuid = u.step_uuid
                    LIMIT 1 -- one lookup by key per parent
                ) p
                CROSS JOIN LATERAL (
                    SELECT coalesce(p.results_bytes, octet_length((p.results -> 'result')::text), 0) AS bytes,
                        coalesce(p.step_uuid = ANY (h.by_reference), false) AS apart
                ) b
            ) i
        ) END,
        CASE WHEN p_checkpointed THEN (
            SELECT k.value FROM tasker.step_checkpoints k WHERE k.task_uuid = p_task AND k.step_uuid = p_step
        ) END
    FROM (
        SELECT t.name AS task_name, t.version AS task_version, t.template_uuid, t.correlation_id,
            coalesce(g.context, t.context) AS context, g.omitted, g.by_reference,
            CASE WHEN p_parents = '{}' OR p_bytes > 4194304 /* MaxInlineInputBytes */ OR g.by_reference IS NOT NULL THEN NULL
            WHEN cardinality(p_parents) = 1 THEN (
                SELECT CASE WHEN p.results IS NULL OR p.results_bytes IS NOT NULL THEN jsonb_build_object(p.name, p.results -> 'result') END
                FROM tasker.workflow_steps p
                WHERE p.task_uuid = p_task AND p.step_uuid = p_parents[1]
            )
            ELSE (
                SELECT CASE WHEN count(*) FILTER (WHERE p.results IS NOT NULL AND p.results_bytes IS NULL) = 0
                    THEN jsonb_object_agg(p.name, p.results -> 'result') FILTER (WHERE p.results IS NULL OR p.results_bytes IS NOT NULL) END
                FROM unnest(p_parents) AS u (step_uuid)
                CROSS JOIN LATERAL (
                    SELECT q.name, q.results, q.results_bytes
                    FROM tasker.workflow_steps q
                    WHERE q.task_uuid = p_task AND q.step_uuid = u.step_uuid
                    LIMIT 1 -- one lookup by key per parent
                ) p
            ) END AS results
        FROM tasker.tasks t
        LEFT JOIN LATERAL (
            SELECT m.context, m.omitted, m.by_reference FROM tasker.map_inputs m WHERE m.task_uuid = p_task AND m.step_uuid = p_map_step LIMIT 1
        ) g ON p_map_step IS NOT NULL
        WHERE t.task_uuid = p_task
        OFFSET 0 -- evaluates the results once
    ) h
$$;
COMMENT ON FUNCTION tasker.step_inputs(uuid, uuid, uuid[], uuid, bigint, boolean) IS 'What a worker gets with a step: data of its task, the results of its parents and its checkpoint.';
