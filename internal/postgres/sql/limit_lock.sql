-- name: lockOnlyQueueKeys
-- lockQueueKeys for a claim of steps that have only shared limits.
SELECT set_config('tasker.limit_keys', coalesce(string_agg(k.limit_key_id::text, ','), ''), true)
FROM (
    SELECT k.limit_key_id
    FROM (
        SELECT DISTINCT q.limit_id
        FROM tasker.limit_queues q
        WHERE q.namespace = ANY (array_append($1::text[], '')) AND q.handler || '' = ANY (array_append($2::text[], ''))
        ORDER BY q.limit_id
    ) l
    CROSS JOIN LATERAL (
        SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_id = l.limit_id AND k.key = '' FOR NO KEY UPDATE
    ) k
) k;

-- name: dropSlots
-- Deletes the outdated slots of locked keys.
DELETE FROM tasker.limit_slots h
WHERE h.limit_key_id = ANY (string_to_array(nullif(current_setting('tasker.limit_keys', true), ''), ',')::bigint[]) AND NOT EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    );
