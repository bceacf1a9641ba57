-- step_documents is the results and errors of the steps of a task but for the items of map steps, as far as they fit
-- into a budget of bytes. What does not fit is replaced: results by an omission, of an
-- error its context. A document is spelled only while there is budget left, so a
-- task with a gigabyte of results costs no more than the budget.
CREATE OR REPLACE FUNCTION tasker.step_documents(p_task uuid, p_budget bigint)
RETURNS TABLE (step_uuid uuid, results jsonb, error jsonb)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    _s     record;
    _left  bigint := p_budget; -- for what is shown
    _work  bigint := p_budget; -- for what is measured, shown or not
    _bytes bigint;
    _path  text;
BEGIN
    FOR _s IN
        SELECT s.step_uuid, s.results, s.error FROM tasker.workflow_steps s
        WHERE s.task_uuid = p_task AND s.map_step_uuid IS NULL AND num_nonnulls(s.results, s.error) > 0
        ORDER BY s.step_uuid
    LOOP
        step_uuid := _s.step_uuid;
        results := _s.results;
        error := _s.error;
        _bytes := NULL;
        IF _work > 0 AND coalesce(pg_column_size(results), 0) + coalesce(pg_column_size(error), 0) <= _left THEN
            _bytes := coalesce(octet_length(results::text), 0) + coalesce(octet_length(error::text), 0);
            _work := _work - _bytes;
        END IF;
        IF coalesce(_bytes <= _left, false) THEN
            _left := _left - _bytes;
        ELSE
            _path := format('/v1/tasks/%s/workflow_steps/%s', p_task, step_uuid);
            results := tasker.omission(results, _path);
            error := jsonb_build_object(
                'message', left(error ->> 'message', 500), 'type', left(error ->> 'type', 255), 'retryable', error -> 'retryable')
                || tasker.omission(error, _path);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION tasker.step_documents(uuid, bigint) IS 'Results and errors of the steps of a task, as far as they fit into a budget of bytes.';
