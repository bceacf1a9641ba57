-- name: lockOldTasks
-- Locks old tasks in a state in the order of their ids, which is that of creation. Tasks with an
-- investigation are kept as evidence and are not locked. Each call continues after the last task of
-- the
-- previous one. Opening an investigation locks the task first.
WITH seen AS MATERIALIZED (
    SELECT t.task_uuid, (SELECT d.dlq_entry_uuid FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid LIMIT 1) IS NOT NULL AS stays
    FROM tasker.tasks t
    WHERE t.state = $1 AND t.task_uuid > $2 AND t.task_uuid < $3
    ORDER BY t.task_uuid
    LIMIT $5
),
sized AS MATERIALIZED (
    SELECT s.task_uuid, s.stays, sum(n.steps) OVER (ORDER BY s.task_uuid) - n.steps AS before
    FROM seen s
    CROSS JOIN LATERAL (SELECT count(*) AS steps FROM tasker.workflow_steps w WHERE w.task_uuid = s.task_uuid AND NOT s.stays) n
),
few AS MATERIALIZED (
    SELECT task_uuid, stays FROM sized WHERE before < $6
),
old AS MATERIALIZED (
    SELECT t.task_uuid
    FROM few
    JOIN tasker.tasks t ON t.task_uuid = few.task_uuid
    WHERE NOT few.stays AND t.state = $1 AND t.updated_at < clock_timestamp() - $4::interval
    ORDER BY t.task_uuid
    FOR UPDATE OF t SKIP LOCKED
)
SELECT
    coalesce((SELECT array_agg(task_uuid) FROM old), '{}') AS old,
    (SELECT count(*) FROM few) AS seen,
    (SELECT count(*) FROM seen) = $5 OR (SELECT count(*) FROM few) < (SELECT count(*) FROM seen) AS more,
    (SELECT task_uuid FROM few ORDER BY task_uuid DESC LIMIT 1) AS last;

-- name: pruneTasks
WITH old AS MATERIALIZED (
    SELECT u.task_uuid
    FROM unnest($1::uuid[]) AS u (task_uuid)
    WHERE NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = u.task_uuid)
      AND NOT EXISTS (SELECT FROM tasker.child_signals g WHERE g.kind = 'ended' AND g.child_uuid = u.task_uuid)
),
steps AS (DELETE FROM tasker.workflow_steps s USING old WHERE s.task_uuid = old.task_uuid),
step_log AS (DELETE FROM tasker.step_history x USING old WHERE x.task_uuid = old.task_uuid),
task_log AS (DELETE FROM tasker.task_history x USING old WHERE x.task_uuid = old.task_uuid),
unique_keys AS (DELETE FROM tasker.unique_tasks x USING old WHERE x.task_uuid = old.task_uuid),
debounced AS (DELETE FROM tasker.debounced_tasks x USING old WHERE x.task_uuid = old.task_uuid),
starts AS (DELETE FROM tasker.task_starts x USING old WHERE x.task_uuid = old.task_uuid),
attributes AS (DELETE FROM tasker.task_attributes a USING old WHERE a.task_uuid = old.task_uuid),
checkpoints AS (DELETE FROM tasker.step_checkpoints c USING old WHERE c.task_uuid = old.task_uuid),
given AS (DELETE FROM tasker.map_inputs m USING old WHERE m.task_uuid = old.task_uuid),
events AS (DELETE FROM tasker.outbox o USING old WHERE o.task_uuid = old.task_uuid AND o.dlq_entry_uuid IS NULL RETURNING o.position),
deliveries AS (DELETE FROM tasker.emissions e USING events v WHERE e.position = v.position),
limits AS (DELETE FROM tasker.task_limits l USING old WHERE l.task_uuid = old.task_uuid),
deadlines AS (DELETE FROM tasker.deadlines d USING old WHERE d.task_uuid = old.task_uuid),
human_steps AS (DELETE FROM tasker.human_steps a USING old WHERE a.task_uuid = old.task_uuid),
answer_links AS (DELETE FROM tasker.answer_links x USING old WHERE x.task_uuid = old.task_uuid),
human_log AS (DELETE FROM tasker.human_step_history x USING old WHERE x.task_uuid = old.task_uuid),
rejected AS (DELETE FROM tasker.rejected_reports r USING old WHERE r.task_uuid = old.task_uuid)
DELETE FROM tasker.tasks t USING old WHERE t.task_uuid = old.task_uuid;

-- name: nextToPrune
SELECT task_uuid FROM tasker.tasks WHERE state = $1 AND task_uuid > $2 ORDER BY task_uuid LIMIT 1;
