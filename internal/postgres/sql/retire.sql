-- name: retireTemplate
-- Retiring a version again has no effect, so the first reason is kept.
UPDATE tasker.task_templates
SET retired_at = clock_timestamp(), retired_by = $4, retired_reason = $5
WHERE namespace = $1 AND name = $2 AND version = $3 AND retired_at IS NULL;

-- name: unretireTemplate
UPDATE tasker.task_templates
SET retired_at = NULL, retired_by = NULL, retired_reason = NULL
WHERE namespace = $1 AND name = $2 AND version = $3 AND retired_at IS NOT NULL;
