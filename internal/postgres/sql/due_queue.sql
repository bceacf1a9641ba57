-- name: orderQueues
INSERT INTO tasker.due_queues (namespace, handler) SELECT $1, h.name FROM unnest($2::text[]) AS h (name) ORDER BY h.name ON CONFLICT DO NOTHING;

-- name: anyUnorderedQueue
SELECT EXISTS (SELECT FROM tasker.due_queues q WHERE NOT EXISTS (
    SELECT FROM tasker.task_templates m
    CROSS JOIN LATERAL jsonb_array_elements(m.configuration -> 'steps') s
    WHERE m.namespace = q.namespace AND m.configuration ->> 'order' = 'due' AND s -> 'handler' ->> 'callable' = q.handler AND (
        m.retired_at IS NULL OR EXISTS (
            SELECT FROM unnest($1::text[]) AS u (state)
            CROSS JOIN LATERAL (
                SELECT count(*) AS seen, coalesce(bool_or(t.template_uuid = m.template_uuid), false) AS found
                FROM (SELECT t.template_uuid FROM tasker.tasks t WHERE t.state BETWEEN u.state AND u.state ORDER BY t.state, t.task_uuid DESC LIMIT $2) t
            ) o
            WHERE o.found OR o.seen = $2
        )
    )
));

-- name: lockDueQueues
LOCK TABLE tasker.due_queues IN SHARE ROW EXCLUSIVE MODE;

-- name: pruneDueQueues
DELETE FROM tasker.due_queues q WHERE NOT EXISTS (
    SELECT FROM tasker.task_templates m
    CROSS JOIN LATERAL jsonb_array_elements(m.configuration -> 'steps') s
    WHERE m.namespace = q.namespace AND m.configuration ->> 'order' = 'due' AND s -> 'handler' ->> 'callable' = q.handler AND (
        m.retired_at IS NULL OR EXISTS (
            SELECT FROM unnest($1::text[]) AS u (state)
            CROSS JOIN LATERAL (
                SELECT count(*) AS seen, coalesce(bool_or(t.template_uuid = m.template_uuid), false) AS found
                FROM (SELECT t.template_uuid FROM tasker.tasks t WHERE t.state BETWEEN u.state AND u.state ORDER BY t.state, t.task_uuid DESC LIMIT $2) t
            ) o
            WHERE o.found OR o.seen = $2
        )
    )
);
