-- all_shown returns the ids of all steps that p_cuts says are shown (shown_steps). The ids
-- of one set are hashed by a statement, however many rows of history it compares with them.
CREATE OR REPLACE FUNCTION tasker.all_shown(p_cuts jsonb) RETURNS uuid[]
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    RETURN ARRAY(
        SELECT s.step_uuid::uuid
        FROM jsonb_each(p_cuts) AS m (key, value)
        CROSS JOIN LATERAL jsonb_array_elements_text(m.value) AS s (step_uuid)
        WHERE m.key LIKE 'steps %'
    );
END
$$;
COMMENT ON FUNCTION tasker.all_shown(jsonb) IS 'The ids of all steps that the snapshots of tasks with items show one by one.';
