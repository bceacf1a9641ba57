-- Limits of steps in progress and of rates.

CREATE TABLE tasker.limits (
    limit_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind            text NOT NULL,
    namespace       text NOT NULL,
    name            text NOT NULL,
    max_in_progress integer,
    per_second      float8,
    burst           integer,
    by_template     boolean NOT NULL,
    changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by      text NOT NULL,
    CONSTRAINT limit_is_whole CHECK (
        kind IN ('server', 'namespace', 'handler', 'name')
        AND (namespace = '') = (kind = 'server')
        AND (name = '') = (kind IN ('server', 'namespace'))
        AND max_in_progress >= 1
        AND per_second > 0
        AND burst >= 1
        AND num_nonnulls(max_in_progress, per_second) > 0
        AND (per_second IS NULL) = (burst IS NULL)
    )
);
COMMENT ON TABLE tasker.limits IS 'How many steps may be in progress at a time, or begin in a second.';
COMMENT ON COLUMN tasker.limits.kind IS 'What is limited: the server, a namespace, a handler of a namespace, or what templates give a name.';
COMMENT ON COLUMN tasker.limits.name IS 'The handler, or the name; empty for the others.';
COMMENT ON COLUMN tasker.limits.burst IS 'How many steps may begin at once after a rest.';
COMMENT ON COLUMN tasker.limits.by_template IS 'The values are those of the newest template with the name; nobody has set others.';
CREATE UNIQUE INDEX limits_by_name ON tasker.limits (namespace, kind, name);

CREATE TABLE tasker.limit_keys (
    limit_key_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    limit_id     bigint NOT NULL,
    key          text NOT NULL,
    full_at      timestamptz NOT NULL DEFAULT '-infinity',
    used_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT limit_keys_limit_id_fkey FOREIGN KEY (limit_id) REFERENCES tasker.limits (limit_id) ON DELETE CASCADE
);
COMMENT ON TABLE tasker.limit_keys IS 'The keys of limits for which a claim has looked; a claim locks those of the steps that it takes.';
COMMENT ON COLUMN tasker.limit_keys.full_at IS 'When as many steps can begin at once again as the burst allows.';
COMMENT ON COLUMN tasker.limit_keys.used_at IS 'When a claim looked last, by some minutes.';
CREATE UNIQUE INDEX limit_keys_by_key ON tasker.limit_keys (limit_id, key);

CREATE TABLE tasker.limit_queues (
    namespace text NOT NULL,
    handler   text NOT NULL,
    limit_id  bigint NOT NULL,
    PRIMARY KEY (namespace, handler, limit_id),
    CONSTRAINT limit_queues_limit_id_fkey FOREIGN KEY (limit_id) REFERENCES tasker.limits (limit_id) ON DELETE CASCADE
);
COMMENT ON TABLE tasker.limit_queues IS 'Queues in which steps may have a limit. Claims of other queues ask for no limit. An empty handler or namespace means every one.';
CREATE INDEX limit_queues_by_limit ON tasker.limit_queues (limit_id);

CREATE TABLE tasker.limit_slots (
    limit_key_id bigint NOT NULL,
    task_uuid    uuid NOT NULL,
    step_uuid    uuid NOT NULL,
    fence        bigint NOT NULL,
    weight       integer NOT NULL DEFAULT 1,
    PRIMARY KEY (limit_key_id, task_uuid, step_uuid)
) WITH (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
COMMENT ON TABLE tasker.limit_slots IS 'The steps that were claimed under a key of a limit. A row counts while its step is in progress under its fence.';
COMMENT ON COLUMN tasker.limit_slots.weight IS 'How many places the step has taken.';

CREATE TABLE tasker.task_limits (
    task_uuid uuid NOT NULL,
    step_uuid uuid,
    limit_id  bigint NOT NULL,
    key       text NOT NULL,
    weight    integer NOT NULL DEFAULT 1
);
COMMENT ON TABLE tasker.task_limits IS 'The limits that the template of a task gives to it, with their keys.';
COMMENT ON COLUMN tasker.task_limits.step_uuid IS 'The step that is limited. Null: every step of the task.';
COMMENT ON COLUMN tasker.task_limits.weight IS 'How many places the step takes.';
CREATE INDEX task_limits_by_task ON tasker.task_limits (task_uuid);
CREATE INDEX task_limits_with_weight ON tasker.task_limits (task_uuid) WHERE weight > 1;
