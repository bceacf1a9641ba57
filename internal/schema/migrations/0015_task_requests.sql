-- Tasks that programs request in their own transactions with tasker.create_task.

CREATE TABLE tasker.task_requests (
    task_uuid       uuid PRIMARY KEY,
    namespace       text NOT NULL,
    name            text NOT NULL,
    version         text NOT NULL DEFAULT '',
    context         jsonb NOT NULL DEFAULT '{}',
    priority        integer NOT NULL DEFAULT 0,
    tags            text[] NOT NULL DEFAULT '{}',
    idempotency_key text,
    correlation_id  text NOT NULL DEFAULT '',
    reason          text NOT NULL DEFAULT '',
    source_system   text NOT NULL DEFAULT '',
    initiator       text NOT NULL DEFAULT '',
    start_at        timestamptz,
    due_at          timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    refused_at      timestamptz,
    error_code      text NOT NULL DEFAULT '',
    error_message   text NOT NULL DEFAULT '',
    CONSTRAINT task_request_that_is_refused_has_an_error CHECK ((refused_at IS NULL) = (error_code = ''))
);
COMMENT ON TABLE tasker.task_requests IS 'Tasks that tasker.create_task requested and no server has created yet, and those that servers refused to create. Creating the task deletes the row.';
COMMENT ON COLUMN tasker.task_requests.task_uuid IS 'The UUID of the task, once it is created.';
COMMENT ON COLUMN tasker.task_requests.refused_at IS 'When a server refused to create the task. Null: it is to be created.';
COMMENT ON COLUMN tasker.task_requests.error_code IS 'Why, as a code of the API.';
CREATE INDEX task_requests_refused ON tasker.task_requests (refused_at) WHERE refused_at IS NOT NULL;
CREATE INDEX task_requests_to_create ON tasker.task_requests (created_at) WHERE refused_at IS NULL;
CREATE UNIQUE INDEX task_request_key_is_unique ON tasker.task_requests (namespace, idempotency_key) WHERE idempotency_key IS NOT NULL AND refused_at IS NULL;
