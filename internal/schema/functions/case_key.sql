-- case_key tells which investigations are of the same failure.
CREATE OR REPLACE FUNCTION tasker.case_key(
    p_namespace     text,
    p_task_name     text,
    p_reason        tasker.dlq_reason,
    p_detail_code   text,
    p_step_name     text,
    p_error_pattern text
) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT md5(concat_ws(E'\x1f', p_namespace, p_task_name, p_reason, p_detail_code, coalesce(p_step_name, ''), coalesce(p_error_pattern, '')))::uuid
$$;
COMMENT ON FUNCTION tasker.case_key(text, text, tasker.dlq_reason, text, text, text) IS 'What investigations of the same failure have in common, as a key.';
