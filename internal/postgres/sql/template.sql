-- name: dropUnusedTemplate
-- A version is replaced only if it is not used. The foreign key of a concurrent new task also
-- prevents
-- this.
DELETE FROM tasker.task_templates t
WHERE t.namespace = $1 AND t.name = $2 AND t.version = $3 AND t.checksum <> $4
  AND NOT EXISTS (SELECT FROM tasker.tasks WHERE template_uuid = t.template_uuid);

-- name: insertTemplate
INSERT INTO tasker.task_templates (
    namespace, name, version, description, configuration, source, checksum,
    max_waiting_for_dependencies_minutes, max_waiting_for_retry_minutes, max_steps_in_process_minutes, max_duration_minutes, attributes
)
VALUES ($1, $2, $3, $4, $5, $6, $7, nullif($8, 0), nullif($9, 0), nullif($10, 0), nullif($11, 0), nullif($12::text[], '{}'))
ON CONFLICT (namespace, name, version) DO NOTHING
RETURNING template_uuid;

-- name: template
SELECT template_uuid, configuration, source, checksum, created_at, retired_at, coalesce(retired_by, '') AS retired_by, coalesce(retired_reason, '') AS retired_reason FROM tasker.task_templates
WHERE namespace = $1 AND name = $2 AND ($3 = '' OR version = $3)
ORDER BY retired_at IS NOT NULL, created_at DESC, template_uuid DESC LIMIT 1;

-- name: templateByID
SELECT template_uuid, configuration, source, checksum, created_at, retired_at, coalesce(retired_by, '') AS retired_by, coalesce(retired_reason, '') AS retired_reason FROM tasker.task_templates WHERE template_uuid = $1;

-- name: templates
SELECT template_uuid, configuration, source, checksum, created_at, retired_at, coalesce(retired_by, '') AS retired_by, coalesce(retired_reason, '') AS retired_reason FROM tasker.task_templates
WHERE ($1 = '' OR namespace = $1) AND ($4::text[] IS NULL OR namespace = ANY ($4))
ORDER BY namespace, name, created_at DESC, template_uuid DESC LIMIT $2 OFFSET $3;

-- name: templateVersions
SELECT template_uuid, configuration, source, checksum, created_at, retired_at, coalesce(retired_by, '') AS retired_by, coalesce(retired_reason, '') AS retired_reason FROM tasker.task_templates
WHERE namespace = $1 AND name = $2 ORDER BY created_at DESC, template_uuid DESC LIMIT $3;

-- name: otherVersions
SELECT version FROM tasker.task_templates
WHERE namespace = $1 AND name = $2 AND version <> $3 AND retired_at IS NULL
ORDER BY created_at DESC, template_uuid DESC LIMIT 20;

-- name: selectTemplateNames
SELECT DISTINCT namespace, name FROM tasker.task_templates
WHERE $2::text[] IS NULL OR namespace = ANY ($2)
ORDER BY namespace, name LIMIT $1;
