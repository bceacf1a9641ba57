-- A task of many steps as the engine would have left it: see BigTask. $1 namespace,
-- $2 handler, $3 steps, $4 of them complete, $5 of them failed for good, $6 failures of
-- each of those, $7 the state of the rest, $8 whether the steps are a chain.
WITH template AS (
    INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum)
    VALUES ($1, 'big ' || tasker.uuid_generate_v7(), '1.0.0', '{"steps": []}', '', '')
    RETURNING template_uuid, name
),
step AS MATERIALIZED (
    SELECT i, tasker.uuid_generate_v7() AS step_uuid,
        CASE WHEN i <= $4::integer THEN 'complete' WHEN i <= $4::integer + $5::integer THEN 'error' ELSE $7::text END AS state,
        clock_timestamp() - interval '2 minutes' AS since
    FROM generate_series(1, $3::integer) AS i
),
rests AS (
    SELECT CASE
        WHEN bool_and(state = 'complete') THEN 'complete'
        WHEN bool_or(state IN ('enqueued', 'in_progress')) THEN 'steps_in_process'
        WHEN bool_or(state = 'error') THEN 'error'
        ELSE 'waiting_for_dependencies' END AS state
    FROM step
),
task AS (
    INSERT INTO tasker.tasks (
        task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id,
        created_at, updated_at, completed_at
    )
    SELECT tasker.uuid_generate_v7(), t.template_uuid, $1, t.name, '1.0.0', r.state, now(),
        CASE WHEN r.state NOT IN ('error', 'complete') THEN now() + interval '24 minutes' END,
        CASE WHEN r.state NOT IN ('error', 'complete') THEN now() + interval '30 minutes' END, 'CONTEXT', '', now(), now(),
        CASE WHEN r.state = 'complete' THEN now() END
    FROM template t
    CROSS JOIN rests r
    RETURNING task_uuid, state
),
worker AS MATERIALIZED (SELECT tasker.uuid_generate_v7() AS worker_uuid),
stored AS (
    INSERT INTO tasker.workflow_steps (
        task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids, parents_open,
        attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, expires_at, lease_expires_at,
        worker_uuid, last_attempted_at, last_failure_at, completed_at, created_at, updated_at, results, error
    )
    SELECT t.task_uuid, s.step_uuid, 'step_' || s.i, 'standard', $1, $2, 0, s.state, s.since,
        CASE WHEN $8 THEN array_remove(ARRAY[s.before], NULL) ELSE '{}' END,
        CASE WHEN $8 THEN array_remove(ARRAY[s.after], NULL) ELSE '{}' END,
        CASE WHEN $8 AND s.before_state <> 'complete' THEN 1 ELSE 0 END,
        CASE s.state WHEN 'pending' THEN 0 WHEN 'error' THEN $6::integer ELSE 1 END, greatest($6::integer, 3), true,
        'exponential', 1000, 60000, true,
        CASE WHEN s.state = 'enqueued' THEN now() + interval '7 days' END,
        CASE WHEN s.state = 'in_progress' THEN now() + interval '7 days' END,
        CASE WHEN s.state NOT IN ('pending', 'enqueued') THEN w.worker_uuid END,
        CASE WHEN s.state NOT IN ('pending', 'enqueued') THEN s.since END,
        CASE WHEN s.state = 'error' THEN s.since END, CASE WHEN s.state = 'complete' THEN s.since END, s.since, s.since,
        CASE WHEN s.state = 'complete' THEN (SELECT jsonb_build_object('success', true, 'result', 'RESULT') FROM (SELECT s.i) x) END,
        CASE WHEN s.state = 'error' THEN (
            SELECT jsonb_build_object('message', format('attempt %s of step %s failed: connection refused', attempt, i), 'type', 'unavailable',
                'retryable', true, 'attempt', attempt, 'context', 'FAILURE')
            FROM (SELECT s.i, $6::integer AS attempt) x
        ) END
    FROM (
        SELECT *, lag(step_uuid) OVER w AS before, lead(step_uuid) OVER w AS after, lag(state) OVER w AS before_state
        FROM step
        WINDOW w AS (ORDER BY i)
    ) s
    CROSS JOIN task t
    CROSS JOIN worker w
    ORDER BY s.i
),
moves AS (
    INSERT INTO tasker.step_history
        (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, detail, created_at)
    SELECT t.task_uuid, m.step_uuid, m.from_state, m.to_state, m.event, m.attempt,
        CASE WHEN m.event <> 'enqueue' THEN w.worker_uuid END,
        CASE WHEN m.to_state = 'error' THEN (
            SELECT jsonb_build_object('message', format('attempt %s of step %s failed: connection refused', attempt, i), 'type', 'unavailable',
                'retryable', true, 'attempt', attempt, 'context', 'FAILURE')
            FROM (SELECT m.i, m.attempt) x
        ) END, now()
    FROM (
        SELECT s.i, s.step_uuid, n AS attempt, x.turn, x.event,
            CASE WHEN x.turn = 1 AND n > 1 THEN 'error' ELSE x.from_state END AS from_state, x.to_state
        FROM step s
        CROSS JOIN LATERAL generate_series(1, CASE s.state WHEN 'error' THEN $6::integer WHEN 'pending' THEN 0 ELSE 1 END) AS n
        CROSS JOIN LATERAL (VALUES
            (1, 'pending', 'enqueued', CASE WHEN n = 1 THEN 'enqueue' ELSE 'retry' END),
            (2, 'enqueued', 'in_progress', 'claim'),
            (3, 'in_progress', CASE WHEN s.state = 'error' THEN 'error' ELSE 'complete' END, CASE WHEN s.state = 'error' THEN 'fail' ELSE 'succeed' END)
        ) AS x (turn, from_state, to_state, event)
        WHERE x.turn <= CASE s.state WHEN 'enqueued' THEN 1 WHEN 'in_progress' THEN 2 ELSE 3 END
    ) m
    CROSS JOIN task t
    CROSS JOIN worker w
    ORDER BY m.attempt, m.turn, m.i
),
rested AS (
    INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at)
    SELECT x.task_uuid, x.from_state, x.to_state, x.event, now()
    FROM (
        SELECT t.task_uuid, p.* , 1 AS part
        FROM task t
        JOIN tasker.task_settle_paths p ON p.rest_from = 'pending' AND p.rest_to = 'steps_in_process'
        UNION ALL
        SELECT t.task_uuid, p.*, 2
        FROM task t
        JOIN tasker.task_settle_paths p ON p.rest_from = 'steps_in_process' AND p.rest_to = t.state
    ) x
    ORDER BY x.part, x.ordinal
)
SELECT task_uuid FROM task
