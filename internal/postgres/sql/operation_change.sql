-- name: startOperation
UPDATE tasker.operations
SET state = 'running', started_at = clock_timestamp(), started_by = $2, next_release_at = clock_timestamp(), wave_since = clock_timestamp(), round = 1
WHERE operation_uuid = $1 AND state = 'planned';

-- name: pauseOperation
UPDATE tasker.operations
SET state = 'paused', paused_for = $2, paused_by = $3, paused_details = $4, paused_at = clock_timestamp()
WHERE operation_uuid = $1 AND state = 'running';

-- name: resumeOperation
UPDATE tasker.operations
SET state = 'running', paused_for = NULL, paused_by = NULL, paused_details = NULL, paused_at = NULL, round = round + 1,
    wave_since = clock_timestamp(), next_release_at = greatest(next_release_at, clock_timestamp()), tolerate = $2, tolerated_causes = $3
WHERE operation_uuid = $1 AND state = 'paused';

-- name: abortItems
UPDATE tasker.operation_items SET state = 'aborted', outcome = $2, ended_at = clock_timestamp()
WHERE operation_uuid = $1 AND state = 'planned';

-- name: abortOperation
UPDATE tasker.operations
SET state = 'aborted', ended_at = clock_timestamp(), paused_for = NULL, paused_by = NULL, paused_details = NULL, paused_at = NULL,
    settled_at = CASE WHEN NOT EXISTS (
        SELECT FROM tasker.operation_items i WHERE i.operation_uuid = $1 AND i.state IN ('released', 'running')
    ) THEN clock_timestamp() END
WHERE operation_uuid = $1 AND state IN ('planned', 'running', 'paused');
