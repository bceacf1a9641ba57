-- name: setBasePriorities
UPDATE tasker.dlq_base_priorities b
SET minutes = n.minutes, updated_at = clock_timestamp()
FROM (
    SELECT p.dlq_reason, c.minutes
    FROM unnest($1::text[], $2::integer[]) AS c (reason, minutes)
    JOIN tasker.dlq_base_priorities p ON p.dlq_reason::text = c.reason
    WHERE p.minutes <> c.minutes
    ORDER BY p.dlq_reason
    FOR NO KEY UPDATE OF p
) n
WHERE b.dlq_reason = n.dlq_reason;
