-- item_counts counts the items of a map step by their states; those that have failed are
-- told apart by whether they are retried.
CREATE OR REPLACE FUNCTION tasker.item_counts(p_task uuid, p_map_step uuid) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'total', count(*),
        'pending', count(*) FILTER (WHERE i.state = 'pending'),
        'enqueued', count(*) FILTER (WHERE i.state = 'enqueued'),
        'in_progress', count(*) FILTER (WHERE i.state IN ('in_progress', 'enqueued_for_orchestration')),
        'completed', count(*) FILTER (WHERE i.state IN ('complete', 'resolved_manually')),
        'retrying', count(*) FILTER (WHERE i.state = 'error' AND i.next_retry_at IS NOT NULL),
        'failed', count(*) FILTER (WHERE i.state = 'error' AND i.next_retry_at IS NULL),
        'cancelled', count(*) FILTER (WHERE i.state = 'cancelled'),
        'skipped', count(*) FILTER (WHERE i.state = 'skipped'))
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = p_task AND i.map_step_uuid = p_map_step
$$;
COMMENT ON FUNCTION tasker.item_counts(uuid, uuid) IS 'The items of a map step, counted by their states.';
