-- task_event_payload is the context of a task and the results of its last steps, by their
-- names, as an event includes them. Each part has at most p_bytes bytes: small results come
-- first, and what does not fit is replaced by the path of the API that returns it.
CREATE OR REPLACE FUNCTION tasker.task_event_payload(
    p_task    uuid,
    p_context boolean,
    p_results boolean,
    p_bytes   integer
) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    _doc   jsonb;
    _path  jsonb;
    _shown jsonb := '{}';
BEGIN
    -- In the form of a snapshot, because the rules of redaction name places in one.
    SELECT jsonb_build_object('task_uuid', p_task, 'task', jsonb_build_object('context', CASE
        WHEN coalesce(t.context_bytes, octet_length(t.context::text)) <= p_bytes THEN t.context
        ELSE tasker.omission(t.context, format('/v1/tasks/%s/context', p_task))
    END))
    INTO _doc
    FROM tasker.tasks t
    WHERE t.task_uuid = p_task AND p_context;
    _doc := coalesce(_doc, jsonb_build_object('task_uuid', p_task));
    IF p_results THEN
        _doc := _doc || (
            SELECT jsonb_build_object('steps', coalesce(jsonb_agg(jsonb_build_object('name', r.name, 'results', jsonb_build_object('result', CASE
                WHEN r.total <= p_bytes THEN r.results -> 'result'
                ELSE jsonb_build_object('omitted', true, 'stored_bytes', r.bytes, 'read_at', format('/v1/tasks/%s/results/%s', p_task, r.name))
            END)) ORDER BY r.name), '[]'))
            FROM (
                SELECT l.*, sum(l.bytes) OVER (ORDER BY l.bytes, l.step_uuid) AS total, row_number() OVER (ORDER BY l.bytes, l.step_uuid) AS place
                FROM (
                    SELECT s.name, s.step_uuid, s.results, coalesce(s.results_bytes, octet_length(s.results::text)) AS bytes
                    FROM tasker.workflow_steps s
                    WHERE s.task_uuid = p_task AND s.child_uuids = '{}' AND s.state = 'complete' AND s.results ? 'result'
                ) l
            ) r
            WHERE r.place <= 100
        );
    END IF;
    _doc := tasker.redact_snapshot(_doc);
    FOR _path IN SELECT p.value FROM tasker.redaction r CROSS JOIN jsonb_array_elements(r.paths) p WHERE r.only_row AND p.value ->> 1 ~ '^[0-9]+$' LOOP
        _doc := tasker.redact_path(_doc, jsonb_set(_path, '{1}', '"*"')); -- the number that a step has in a snapshot is not known here
    END LOOP;
    IF p_context THEN
        _shown := jsonb_build_object('context', coalesce(_doc #> '{task,context}', '"[redacted]"'));
    END IF;
    IF p_results THEN
        _shown := _shown || jsonb_build_object('results', CASE WHEN jsonb_typeof(_doc -> 'steps') = 'array' THEN (
            SELECT coalesce(jsonb_object_agg(coalesce(e.value ->> 'name', '[redacted]'), e.value #> '{results,result}'), '{}')
            FROM jsonb_array_elements(_doc -> 'steps') e
            WHERE jsonb_typeof(e.value) = 'object'
        ) ELSE '"[redacted]"' END);
    END IF;
    RETURN _shown;
END
$$;
COMMENT ON FUNCTION tasker.task_event_payload(uuid, boolean, boolean, integer) IS 'The context of a task and the results of its last steps, as an event includes them.';
