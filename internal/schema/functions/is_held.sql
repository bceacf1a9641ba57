-- is_held reports whether a hold covers an enqueued step, or an operation keeps it for workers of
-- another version. A step is not held by the hold that released it, nor by the given operations.
CREATE OR REPLACE FUNCTION tasker.is_held(
    p_task uuid, p_step uuid, p_namespace text, p_handler text, p_released_by uuid, p_operations uuid[]
) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM tasker.holds h
        WHERE h.blocks AND h.hold_uuid IS DISTINCT FROM p_released_by
          AND h.namespace = p_namespace AND (h.handler IS NULL OR h.handler = p_handler)
          AND (h.task_name IS NULL AND h.step_name IS NULL OR EXISTS (
              SELECT FROM tasker.workflow_steps x
              JOIN tasker.tasks k ON k.task_uuid = x.task_uuid
              WHERE x.task_uuid = p_task AND x.step_uuid = p_step AND (h.task_name IS NULL OR k.name = h.task_name)
                AND (h.step_name IS NULL OR h.step_name IN (x.name, split_part(x.name, '[', 1)))
          ))
    ) OR EXISTS (
        SELECT FROM tasker.operation_items i
        JOIN tasker.operations o ON o.operation_uuid = i.operation_uuid
        WHERE i.task_uuid = p_task AND i.step_uuid = p_step AND i.state IN ('planned', 'released', 'running')
          AND o.worker_at_least IS NOT NULL AND o.operation_uuid <> ALL (p_operations)
    )
$$;
COMMENT ON FUNCTION tasker.is_held(uuid, uuid, text, text, uuid, uuid[]) IS 'Whether a hold covers an enqueued step, or an operation keeps it for workers of another version.';
