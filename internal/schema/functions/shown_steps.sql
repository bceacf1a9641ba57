-- shown_steps says which steps the snapshots of tasks with items show one by one: those that
-- are no items, and of the items the first 100 that have failed. All others are only
-- counted. The result has a member for each of the tasks that has items ("steps TASK"), and
-- is null when none has: of all other tasks each step is shown.
CREATE OR REPLACE FUNCTION tasker.shown_steps(p_tasks uuid[]) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT jsonb_object_agg('steps ' || c.task_uuid, w.steps)
        FROM unnest(p_tasks) AS c (task_uuid)
        CROSS JOIN LATERAL (
            SELECT jsonb_agg(s.step_uuid) FILTER (WHERE s.map_step_uuid IS NULL OR s.turn <= 100) AS steps
            FROM (
                SELECT o.step_uuid, o.map_step_uuid,
                    row_number() OVER (PARTITION BY o.map_step_uuid IS NULL ORDER BY o.next_retry_at IS NOT NULL, o.map_step_uuid, o.item_ordinal) AS turn
                FROM tasker.workflow_steps o
                WHERE o.task_uuid = c.task_uuid AND (o.map_step_uuid IS NULL OR o.state = 'error')
            ) s
        ) w
        -- EXISTS could become a join with all items that there are.
        WHERE (SELECT true FROM tasker.workflow_steps i WHERE i.task_uuid = c.task_uuid AND i.map_step_uuid IS NOT NULL LIMIT 1)
    );
END
$$;
COMMENT ON FUNCTION tasker.shown_steps(uuid[]) IS 'The steps that the snapshots of tasks with items show one by one: those that are no items, and the first 100 items that have failed. Null when none has items.';
