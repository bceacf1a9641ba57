-- The tables of the engine. States live on the row and change only by
-- compare-and-set; the transition tables are append-only history, written in the
-- statement that makes the change.

CREATE TYPE tasker.dlq_reason AS ENUM (
    'staleness_timeout',
    'max_retries_exceeded',
    'dependency_cycle_detected',
    'worker_unavailable',
    'manual_dlq'
);

CREATE TYPE tasker.dlq_resolution_status AS ENUM (
    'pending',
    'manually_resolved',
    'permanently_failed',
    'cancelled'
);

-- uuid_generate_v7 is here and not among the functions because table defaults
-- need it; PostgreSQL before 18 has none of its own.
CREATE FUNCTION tasker.uuid_generate_v7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(
        set_bit(
            set_bit(
                overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
                52, 1),
            53, 1),
        'hex')::uuid
$$;
COMMENT ON FUNCTION tasker.uuid_generate_v7() IS 'A UUID of version 7: the first 48 bits are the time in milliseconds, so ids sort by when they were made.';

CREATE TABLE tasker.staleness_thresholds (
    only_row                         boolean PRIMARY KEY DEFAULT true,
    waiting_for_dependencies_minutes integer NOT NULL DEFAULT 60,
    waiting_for_retry_minutes        integer NOT NULL DEFAULT 30,
    steps_in_process_minutes         integer NOT NULL DEFAULT 30,
    updated_at                       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT staleness_thresholds_is_one_row CHECK (only_row),
    CONSTRAINT staleness_thresholds_are_positive CHECK (
        waiting_for_dependencies_minutes > 0
        AND waiting_for_retry_minutes > 0
        AND steps_in_process_minutes > 0
    )
);
COMMENT ON TABLE tasker.staleness_thresholds IS 'The server''s staleness thresholds, from its configuration. A template''s own thresholds win.';
INSERT INTO tasker.staleness_thresholds DEFAULT VALUES;

CREATE TABLE tasker.task_templates (
    template_uuid                        uuid PRIMARY KEY DEFAULT tasker.uuid_generate_v7(),
    namespace                            text NOT NULL,
    name                                 text NOT NULL,
    version                              text NOT NULL,
    description                          text NOT NULL DEFAULT '',
    configuration                        jsonb NOT NULL,
    source                               text NOT NULL,
    checksum                             text NOT NULL,
    max_waiting_for_dependencies_minutes integer,
    max_waiting_for_retry_minutes        integer,
    max_steps_in_process_minutes         integer,
    max_duration_minutes                 integer,
    created_at                           timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT task_template_version_is_unique UNIQUE (namespace, name, version)
);
COMMENT ON TABLE tasker.task_templates IS 'Templates, one row a version. A version that a task uses never changes.';
COMMENT ON COLUMN tasker.task_templates.configuration IS 'The template as it is understood.';
COMMENT ON COLUMN tasker.task_templates.source IS 'The document as it was registered.';

CREATE TABLE tasker.tasks (
    task_uuid             uuid PRIMARY KEY,
    template_uuid         uuid NOT NULL REFERENCES tasker.task_templates,
    namespace             text NOT NULL,
    name                  text NOT NULL,
    version               text NOT NULL,
    state                 text NOT NULL,
    state_since           timestamptz NOT NULL,
    warn_at               timestamptz,
    stale_at              timestamptz,
    ends_at               timestamptz,
    priority              integer NOT NULL DEFAULT 0,
    context               jsonb NOT NULL,
    initiator             text NOT NULL DEFAULT '',
    source_system         text NOT NULL DEFAULT '',
    reason                text NOT NULL DEFAULT '',
    tags                  text[] NOT NULL DEFAULT '{}',
    correlation_id        text NOT NULL,
    parent_correlation_id text NOT NULL DEFAULT '',
    idempotency_key       text,
    request_digest        bytea,
    recreated_from        uuid,
    start_at              timestamptz,
    created_at            timestamptz NOT NULL,
    updated_at            timestamptz NOT NULL,
    completed_at          timestamptz,
    CONSTRAINT task_state_is_known CHECK (state IN (
        'pending', 'initializing', 'enqueuing_steps', 'steps_in_process', 'evaluating_results',
        'waiting_for_dependencies', 'waiting_for_retry', 'blocked_by_failures',
        'complete', 'error', 'cancelled', 'resolved_manually'
    )),
    CONSTRAINT task_rests_only_where_it_may CHECK (state IN (
        'pending', 'steps_in_process', 'waiting_for_dependencies', 'waiting_for_retry',
        'complete', 'error', 'cancelled'
    )),
    CONSTRAINT task_watched_has_deadlines CHECK (
        (state IN ('steps_in_process', 'waiting_for_dependencies', 'waiting_for_retry'))
        = (stale_at IS NOT NULL AND warn_at IS NOT NULL)
    ),
    CONSTRAINT task_context_is_an_object CHECK (jsonb_typeof(context) = 'object')
) WITH (fillfactor = 85);
COMMENT ON TABLE tasker.tasks IS 'One row a task: a run of a template.';
COMMENT ON COLUMN tasker.tasks.state_since IS 'When the task entered its state, or last made progress in it (to about a second).';
COMMENT ON COLUMN tasker.tasks.stale_at IS 'Instant from which the task counts as stale: state_since and the threshold of its state. Null in states that nobody watches.';
COMMENT ON COLUMN tasker.tasks.warn_at IS 'Instant from which the staleness monitor warns: 80 % of the threshold.';
COMMENT ON COLUMN tasker.tasks.ends_at IS 'Instant at which max_duration_minutes of the template is over. Null when it has none.';

-- One key, one task, within a namespace.
CREATE UNIQUE INDEX task_idempotency_key_is_unique ON tasker.tasks (namespace, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- Lists by state, newest first; and what is not finished.
CREATE INDEX tasks_by_state ON tasker.tasks (state, task_uuid DESC);
CREATE INDEX tasks_by_name ON tasker.tasks (namespace, name, task_uuid DESC);
-- The timers: start times, staleness, whole duration.
CREATE INDEX tasks_to_start ON tasker.tasks (start_at) WHERE state = 'pending';
CREATE INDEX tasks_by_staleness ON tasker.tasks (stale_at) WHERE stale_at IS NOT NULL;
CREATE INDEX tasks_by_duration ON tasker.tasks (ends_at) WHERE ends_at IS NOT NULL AND stale_at IS NOT NULL;
-- Whether a template is used.
CREATE INDEX tasks_by_template ON tasker.tasks (template_uuid);

CREATE TABLE tasker.workflow_steps (
    task_uuid         uuid NOT NULL,
    step_uuid         uuid NOT NULL,
    name              text NOT NULL,
    step_type         text NOT NULL,
    namespace         text NOT NULL,
    handler           text NOT NULL,
    priority          integer NOT NULL,
    state             text NOT NULL,
    state_since       timestamptz NOT NULL,
    parent_uuids      uuid[] NOT NULL,
    child_uuids       uuid[] NOT NULL,
    parents_open      integer NOT NULL,
    attempts          integer NOT NULL DEFAULT 0,
    max_attempts      integer NOT NULL,
    retryable         boolean NOT NULL,
    backoff           text NOT NULL,
    backoff_base_ms   integer NOT NULL,
    max_backoff_ms    integer NOT NULL,
    backoff_jitter    boolean NOT NULL,
    timeout_ms        bigint,
    fence             bigint NOT NULL DEFAULT 0,
    reported_fence    bigint,
    report_digest     bytea,
    kept_report       jsonb,
    worker_uuid       uuid,
    lease_expires_at  timestamptz,
    timeout_at        timestamptz,
    next_retry_at     timestamptz,
    last_attempted_at timestamptz,
    last_failure_at   timestamptz,
    completed_at      timestamptz,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    results           jsonb,
    error             jsonb,
    PRIMARY KEY (task_uuid, step_uuid),
    CONSTRAINT step_state_is_known CHECK (state IN (
        'pending', 'enqueued', 'in_progress', 'enqueued_for_orchestration',
        'complete', 'error', 'cancelled', 'resolved_manually'
    )),
    CONSTRAINT step_type_is_known CHECK (step_type IN ('standard', 'external')),
    CONSTRAINT step_backoff_is_known CHECK (backoff IN ('exponential', 'linear', 'constant')),
    CONSTRAINT step_in_progress_has_lease CHECK (
        (state = 'in_progress') = (lease_expires_at IS NOT NULL)
    ),
    CONSTRAINT step_kept_has_its_report CHECK (
        (state = 'enqueued_for_orchestration') = (kept_report IS NOT NULL)
    ),
    CONSTRAINT step_waits_for_retry_only_in_error CHECK (next_retry_at IS NULL OR state = 'error'),
    CONSTRAINT step_parents_open_is_a_count CHECK (parents_open BETWEEN 0 AND cardinality(parent_uuids))
) WITH (fillfactor = 85);
COMMENT ON TABLE tasker.workflow_steps IS 'One row a step of a task. The edges of the graph are the arrays of parents and children.';
-- No foreign key to tasks: a step is inserted by the statement that inserts its
-- task and never without it, and the check would cost a locked read a step.
COMMENT ON COLUMN tasker.workflow_steps.kept_report IS 'A report that was accepted but whose follow-up failed; it is tried again.';
COMMENT ON COLUMN tasker.workflow_steps.parents_open IS 'Parents that are not yet complete or resolved by hand.';
COMMENT ON COLUMN tasker.workflow_steps.fence IS 'Goes up with every claim and whenever a lease is taken away; a report must name the current one.';
COMMENT ON COLUMN tasker.workflow_steps.reported_fence IS 'The fence of the last report that counted, so that the same report sent again is recognised.';
COMMENT ON COLUMN tasker.workflow_steps.next_retry_at IS 'Instant from which a failed step may be enqueued again. Null in state error means: failed for good.';

-- The queue: what a worker may claim, most urgent first.
CREATE INDEX steps_to_claim ON tasker.workflow_steps (namespace, handler, priority DESC, state_since)
    WHERE state = 'enqueued';
-- The timers: backoff, leases, kept results.
CREATE INDEX steps_to_retry ON tasker.workflow_steps (next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX steps_by_lease ON tasker.workflow_steps (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX steps_kept ON tasker.workflow_steps (state_since) WHERE state = 'enqueued_for_orchestration';

CREATE TABLE tasker.task_settle_paths (
    rest_from  text NOT NULL,
    rest_to    text NOT NULL,
    ordinal    integer NOT NULL,
    event      text NOT NULL,
    from_state text NOT NULL,
    to_state   text NOT NULL,
    PRIMARY KEY (rest_from, rest_to, ordinal)
);
COMMENT ON TABLE tasker.task_settle_paths IS 'The history rows that lead from one resting state of a task to another: a copy of the lifecycle table, kept equal by a test.';
INSERT INTO tasker.task_settle_paths (rest_from, rest_to, ordinal, event, from_state, to_state) VALUES
    ('pending', 'steps_in_process', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'steps_in_process', 2, 'enqueue_steps', 'initializing', 'enqueuing_steps'),
    ('pending', 'steps_in_process', 3, 'start', 'enqueuing_steps', 'steps_in_process'),
    ('pending', 'waiting_for_retry', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'waiting_for_retry', 2, 'evaluate', 'initializing', 'evaluating_results'),
    ('pending', 'waiting_for_retry', 3, 'await_retry', 'evaluating_results', 'waiting_for_retry'),
    ('pending', 'waiting_for_dependencies', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'waiting_for_dependencies', 2, 'await', 'initializing', 'waiting_for_dependencies'),
    ('pending', 'error', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'error', 2, 'evaluate', 'initializing', 'evaluating_results'),
    ('pending', 'error', 3, 'block', 'evaluating_results', 'blocked_by_failures'),
    ('pending', 'error', 4, 'give_up', 'blocked_by_failures', 'error'),
    ('pending', 'complete', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'complete', 2, 'evaluate', 'initializing', 'evaluating_results'),
    ('pending', 'complete', 3, 'finish', 'evaluating_results', 'complete'),
    ('steps_in_process', 'waiting_for_retry', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'waiting_for_retry', 2, 'await_retry', 'evaluating_results', 'waiting_for_retry'),
    ('steps_in_process', 'waiting_for_dependencies', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'waiting_for_dependencies', 2, 'await', 'evaluating_results', 'waiting_for_dependencies'),
    ('steps_in_process', 'error', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'error', 2, 'block', 'evaluating_results', 'blocked_by_failures'),
    ('steps_in_process', 'error', 3, 'give_up', 'blocked_by_failures', 'error'),
    ('steps_in_process', 'complete', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'complete', 2, 'finish', 'evaluating_results', 'complete'),
    ('waiting_for_retry', 'steps_in_process', 1, 'enqueue_steps', 'waiting_for_retry', 'enqueuing_steps'),
    ('waiting_for_retry', 'steps_in_process', 2, 'start', 'enqueuing_steps', 'steps_in_process'),
    ('waiting_for_retry', 'waiting_for_dependencies', 1, 'evaluate', 'waiting_for_retry', 'evaluating_results'),
    ('waiting_for_retry', 'waiting_for_dependencies', 2, 'await', 'evaluating_results', 'waiting_for_dependencies'),
    ('waiting_for_retry', 'error', 1, 'evaluate', 'waiting_for_retry', 'evaluating_results'),
    ('waiting_for_retry', 'error', 2, 'block', 'evaluating_results', 'blocked_by_failures'),
    ('waiting_for_retry', 'error', 3, 'give_up', 'blocked_by_failures', 'error'),
    ('waiting_for_retry', 'complete', 1, 'evaluate', 'waiting_for_retry', 'evaluating_results'),
    ('waiting_for_retry', 'complete', 2, 'finish', 'evaluating_results', 'complete'),
    ('waiting_for_dependencies', 'steps_in_process', 1, 'enqueue_steps', 'waiting_for_dependencies', 'enqueuing_steps'),
    ('waiting_for_dependencies', 'steps_in_process', 2, 'start', 'enqueuing_steps', 'steps_in_process'),
    ('waiting_for_dependencies', 'waiting_for_retry', 1, 'evaluate', 'waiting_for_dependencies', 'evaluating_results'),
    ('waiting_for_dependencies', 'waiting_for_retry', 2, 'await_retry', 'evaluating_results', 'waiting_for_retry'),
    ('waiting_for_dependencies', 'error', 1, 'evaluate', 'waiting_for_dependencies', 'evaluating_results'),
    ('waiting_for_dependencies', 'error', 2, 'block', 'evaluating_results', 'blocked_by_failures'),
    ('waiting_for_dependencies', 'error', 3, 'give_up', 'blocked_by_failures', 'error'),
    ('waiting_for_dependencies', 'complete', 1, 'evaluate', 'waiting_for_dependencies', 'evaluating_results'),
    ('waiting_for_dependencies', 'complete', 2, 'finish', 'evaluating_results', 'complete'),
    ('error', 'steps_in_process', 1, 'enqueue_steps', 'error', 'enqueuing_steps'),
    ('error', 'steps_in_process', 2, 'start', 'enqueuing_steps', 'steps_in_process'),
    ('error', 'waiting_for_retry', 1, 'evaluate', 'error', 'evaluating_results'),
    ('error', 'waiting_for_retry', 2, 'await_retry', 'evaluating_results', 'waiting_for_retry'),
    ('error', 'waiting_for_dependencies', 1, 'evaluate', 'error', 'evaluating_results'),
    ('error', 'waiting_for_dependencies', 2, 'await', 'evaluating_results', 'waiting_for_dependencies'),
    ('error', 'complete', 1, 'evaluate', 'error', 'evaluating_results'),
    ('error', 'complete', 2, 'finish', 'evaluating_results', 'complete');

CREATE TABLE tasker.task_transitions (
    task_uuid     uuid NOT NULL,
    transition_id bigint GENERATED ALWAYS AS IDENTITY,
    from_state    text NOT NULL,
    to_state      text NOT NULL,
    event         text NOT NULL,
    actor         text,
    reason        text,
    detail        jsonb,
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (task_uuid, transition_id)
);
COMMENT ON TABLE tasker.task_transitions IS 'History of the tasks: append-only, contiguous and legal for each task, starting from pending.';

CREATE TABLE tasker.workflow_step_transitions (
    task_uuid     uuid NOT NULL,
    transition_id bigint GENERATED ALWAYS AS IDENTITY,
    step_uuid     uuid NOT NULL,
    from_state    text NOT NULL,
    to_state      text NOT NULL,
    event         text NOT NULL,
    attempt       integer NOT NULL,
    worker_uuid   uuid,
    actor         text,
    reason        text,
    detail        jsonb,
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (task_uuid, transition_id)
);
COMMENT ON TABLE tasker.workflow_step_transitions IS 'History of the steps: append-only, contiguous and legal for each step, starting from pending. A failure''s error is in detail.';

CREATE TABLE tasker.rejected_reports (
    rejected_report_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_uuid          uuid NOT NULL,
    step_uuid          uuid NOT NULL,
    worker_uuid        uuid NOT NULL,
    fence              bigint NOT NULL,
    success            boolean NOT NULL,
    step_state         text,
    step_fence         bigint,
    message            text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE tasker.rejected_reports IS 'Reports that came from an attempt which no longer held the lease. They changed nothing.';
CREATE INDEX rejected_reports_by_step ON tasker.rejected_reports (task_uuid, step_uuid);

CREATE TABLE tasker.workers (
    worker_uuid        uuid PRIMARY KEY,
    name               text NOT NULL,
    namespaces         text[] NOT NULL,
    handlers           text[] NOT NULL,
    version            text NOT NULL DEFAULT '',
    max_concurrency    integer NOT NULL,
    heartbeat_interval interval NOT NULL,
    lease              interval NOT NULL,
    registered_at      timestamptz NOT NULL DEFAULT now(),
    last_heartbeat_at  timestamptz NOT NULL DEFAULT now(),
    left_at            timestamptz
);
COMMENT ON TABLE tasker.workers IS 'The workers that registered, with what they were promised and the last sign of life of each.';
CREATE INDEX workers_by_heartbeat ON tasker.workers (last_heartbeat_at DESC);
