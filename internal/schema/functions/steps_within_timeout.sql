-- steps_within_timeout returns the running steps of a task that keep it from standing
-- still: those within their own timeout, which ends them. It does not matter whether
-- the lease has run out: that is for the loop that takes steps back, and after an
-- outage it waits until workers could be heard of. A step that this loop could not take
-- back does not count; the minute after a timeout is for the loop that ends it. A limit
-- that the template itself sets holds whatever runs. A held step keeps it from that too:
-- the time of the task does not run until the hold lets the step go. A step that a limit
-- kept from claims is handed out without moving the time of its task, so a running step of
-- a queue with limits has the threshold of the task from its claim on. Not STRICT and without SET, so
-- that it becomes part of the statement that asks.
CREATE OR REPLACE FUNCTION tasker.steps_within_timeout(p_task uuid, p_template uuid, p_now timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE
AS $$
    SELECT w.step_uuid
    FROM tasker.workflow_steps w
    WHERE w.task_uuid = p_task AND w.state = 'in_progress' AND w.timeout_at > p_now - interval '1 minute'
      AND (SELECT tt.max_steps_in_process_minutes IS NULL FROM tasker.task_templates tt WHERE tt.template_uuid = p_template)
      AND NOT EXISTS (
          SELECT FROM tasker.deferred_work f WHERE f.kind = 'reclaim' AND f.task_uuid = w.task_uuid AND f.step_uuid = w.step_uuid
      )
    UNION ALL
    SELECT q.step_uuid FROM tasker.held_steps q WHERE q.task_uuid = p_task
    UNION ALL
    SELECT w.step_uuid
    FROM tasker.tasks t
    JOIN tasker.workflow_steps w ON w.task_uuid = t.task_uuid
    WHERE EXISTS (SELECT FROM tasker.limit_queues) -- asked once, and no steps are read where there are no limits
      AND t.task_uuid = p_task AND w.state = 'in_progress' AND coalesce(w.last_attempted_at, w.state_since) > p_now - (t.stale_at - t.state_since)
      AND EXISTS (SELECT FROM tasker.limit_queues l WHERE l.namespace IN (w.namespace, '') AND l.handler IN (w.handler, ''))
$$;
COMMENT ON FUNCTION tasker.steps_within_timeout(uuid, uuid, timestamptz) IS 'Running steps of a task that are within their own timeout, held ones, and those of limits that were claimed within the threshold: the task is not stale.';
