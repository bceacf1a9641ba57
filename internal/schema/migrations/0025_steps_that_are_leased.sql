-- tasker:no-transaction
INSERT INTO tasker.claims (look_at, claimed_at, tasks, steps)
SELECT s.lease_expires_at, coalesce(s.last_attempted_at, s.state_since), ARRAY[s.task_uuid], ARRAY[s.step_uuid]
FROM tasker.workflow_steps s
WHERE s.lease_expires_at IS NOT NULL;
