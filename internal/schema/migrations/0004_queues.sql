-- Queues: steps that wait for a worker, leases, workers, and what is announced to a message broker.

CREATE TABLE tasker.queues (
    namespace       text NOT NULL,
    handler         text NOT NULL,
    queue_uuid      uuid NOT NULL DEFAULT tasker.uuid_generate_v7(),
    busy_at         timestamptz NOT NULL,
    saturated_since timestamptz,
    kept_at         timestamptz,
    PRIMARY KEY (namespace, handler)
);
COMMENT ON TABLE tasker.queues IS 'The queues of which steps were handed out lately. A row goes when none was for a day.';
COMMENT ON COLUMN tasker.queues.queue_uuid IS 'What messages about the queue are told by.';
COMMENT ON COLUMN tasker.queues.busy_at IS 'When a step of the queue was last claimed, to some seconds, or a worker of it had no free place.';
COMMENT ON COLUMN tasker.queues.saturated_since IS 'Since when steps of it wait past their limit because its workers are busy. Null: none does.';
COMMENT ON COLUMN tasker.queues.kept_at IS 'When the limit of such a step was last moved on.';
CREATE INDEX queues_saturated ON tasker.queues (namespace, handler) WHERE saturated_since IS NOT NULL;

CREATE TABLE tasker.due_queues (
    namespace text NOT NULL,
    handler   text NOT NULL,
    PRIMARY KEY (namespace, handler)
);
COMMENT ON TABLE tasker.due_queues IS 'Queues in which a template has the steps that are due first come first. Claims of other queues do not look at due times.';

CREATE TABLE tasker.ready_steps (
    namespace       text NOT NULL,
    handler         text NOT NULL,
    priority        integer NOT NULL,
    state_since     timestamptz NOT NULL,
    step_uuid       uuid NOT NULL,
    task_uuid       uuid NOT NULL,
    expires_at      timestamptz NOT NULL,
    queue_ttl_ms    bigint,
    inputs_bytes    bigint,
    released_by     uuid,
    limit_passed_at timestamptz,
    due_at          timestamptz
) WITH (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
COMMENT ON TABLE tasker.ready_steps IS 'A row for each enqueued step: where claims find it. The state is in tasker.workflow_steps.';
COMMENT ON COLUMN tasker.ready_steps.priority IS 'That of the step.';
COMMENT ON COLUMN tasker.ready_steps.state_since IS 'Since when the step is enqueued. If the step says otherwise, the row is outdated, and goes with the next claim.';
COMMENT ON COLUMN tasker.ready_steps.expires_at IS 'When the step has waited for a worker too long.';
COMMENT ON COLUMN tasker.ready_steps.queue_ttl_ms IS 'The step''s own limit of that. Null: the limit of the server.';
COMMENT ON COLUMN tasker.ready_steps.inputs_bytes IS 'Size of what the step is handed out with. Null: not measured.';
COMMENT ON COLUMN tasker.ready_steps.released_by IS 'The hold that let it go: it holds it no more.';
COMMENT ON COLUMN tasker.ready_steps.limit_passed_at IS 'When the step had waited for a worker too long, and did not fail because its queue is saturated: expires_at was moved on. Null: it was not.';
COMMENT ON COLUMN tasker.ready_steps.due_at IS 'By when the step or its task is due, where its template has its steps ordered by that. Null: it has not.';
CREATE INDEX ready_steps_by_due ON tasker.ready_steps (namespace, handler, priority DESC, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ready_steps_by_expiry ON tasker.ready_steps (expires_at);
CREATE INDEX ready_steps_past_limit ON tasker.ready_steps (namespace, handler) WHERE limit_passed_at IS NOT NULL;
CREATE UNIQUE INDEX ready_steps_to_claim ON tasker.ready_steps (namespace, handler, priority DESC, state_since, step_uuid);

CREATE TABLE tasker.claims (
    look_at    timestamptz NOT NULL,
    claimed_at timestamptz NOT NULL,
    tasks      uuid[] NOT NULL,
    steps      uuid[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
COMMENT ON TABLE tasker.claims IS 'A row for each claim of which a lease may still run: where expired leases are found. Lease and worker are in tasker.workflow_steps.';
COMMENT ON COLUMN tasker.claims.look_at IS 'When to look at it: some seconds after the claim, when most steps have ended, and then when the first of its leases may have expired.';
COMMENT ON COLUMN tasker.claims.claimed_at IS 'When the steps were claimed. A step that was claimed again belongs to another row.';
COMMENT ON COLUMN tasker.claims.tasks IS 'The tasks of the steps, in the same order.';
COMMENT ON COLUMN tasker.claims.steps IS 'The steps that were claimed.';
CREATE INDEX claims_to_look_at ON tasker.claims (look_at);

CREATE TABLE tasker.held_steps (
    hold_uuid     uuid,
    namespace     text NOT NULL,
    handler       text NOT NULL,
    priority      integer NOT NULL,
    state_since   timestamptz NOT NULL,
    step_uuid     uuid NOT NULL,
    task_uuid     uuid NOT NULL,
    queue_ttl_ms  bigint,
    inputs_bytes  bigint,
    held_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    counted_until timestamptz,
    limit_key_id  bigint,
    released_by   uuid,
    PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.held_steps IS 'The enqueued steps that a hold or a limit keeps from claims, with their rows of tasker.ready_steps. If the step is elsewhere by now the row is outdated, and goes when the hold ends, or with the next claim.';
COMMENT ON COLUMN tasker.held_steps.hold_uuid IS 'The hold. Null: a limit keeps it.';
COMMENT ON COLUMN tasker.held_steps.held_at IS 'Since when its times stand still.';
COMMENT ON COLUMN tasker.held_steps.counted_until IS 'Until when the time for which its task is held was added to what the task may take as a whole. Null: from held_at on it was not.';
COMMENT ON COLUMN tasker.held_steps.limit_key_id IS 'The key of the limit. Null: a hold keeps it.';
COMMENT ON COLUMN tasker.held_steps.released_by IS 'The hold that let it go before a limit kept it from claims.';
CREATE INDEX held_steps_by_limit ON tasker.held_steps (limit_key_id, priority DESC, state_since) WHERE limit_key_id IS NOT NULL;
CREATE INDEX held_steps_by_queue ON tasker.held_steps (namespace, handler);
CREATE INDEX held_steps_of_limit ON tasker.held_steps (namespace, handler, limit_key_id, priority DESC, state_since) WHERE limit_key_id IS NOT NULL;
CREATE INDEX held_steps_to_release ON tasker.held_steps (hold_uuid, priority DESC, state_since, step_uuid);

CREATE TABLE tasker.claim_conditions (
    condition_uuid uuid PRIMARY KEY
);
COMMENT ON TABLE tasker.claim_conditions IS 'The holds that block, and the operations that say which workers take their steps, until the last of their items has ended. While there is none, claims ask of no step.';

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
    left_at            timestamptz,
    draining_since     timestamptz,
    registered_by      text
);
COMMENT ON TABLE tasker.workers IS 'The workers that registered, with what they were promised and the last sign of life of each.';
COMMENT ON COLUMN tasker.workers.draining_since IS 'From when on the worker gets no new work: it finishes what it holds and leaves.';
COMMENT ON COLUMN tasker.workers.registered_by IS 'The subject that registered the worker; null where nobody signs in.';
CREATE INDEX workers_by_heartbeat ON tasker.workers (last_heartbeat_at DESC);

CREATE TABLE tasker.lease_key (
    only_row   boolean DEFAULT true PRIMARY KEY,
    secret     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT lease_key_is_long_enough CHECK (octet_length(secret) >= 32),
    CONSTRAINT lease_key_is_one_row CHECK (only_row)
);
COMMENT ON TABLE tasker.lease_key IS 'The key that signs lease tokens. Whoever reads it can report results in the name of any worker.';

INSERT INTO tasker.lease_key (secret) VALUES (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))); -- 244 random bits

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

CREATE TABLE tasker.deferred_work (
    kind            text NOT NULL,
    task_uuid       uuid NOT NULL,
    step_uuid       uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'::uuid,
    failures        integer NOT NULL DEFAULT 1,
    last_error      text NOT NULL,
    first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_failed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_at        timestamptz NOT NULL,
    PRIMARY KEY (kind, task_uuid, step_uuid),
    CONSTRAINT deferred_work_error_is_short CHECK (length(last_error) <= 1000),
    CONSTRAINT deferred_work_failures_are_counted CHECK (failures > 0),
    CONSTRAINT deferred_work_kind_is_short CHECK (length(kind) >= 1 AND length(kind) <= 50)
);
COMMENT ON TABLE tasker.deferred_work IS 'Work of the server that failed and is tried again later: one row for each task or step and each kind of work. A success deletes the row.';
COMMENT ON COLUMN tasker.deferred_work.kind IS 'The loop that failed: sweep, or the name of a timer.';
COMMENT ON COLUMN tasker.deferred_work.step_uuid IS 'All zeros when the work concerns the whole task.';
COMMENT ON COLUMN tasker.deferred_work.failures IS 'Failures in a row.';
COMMENT ON COLUMN tasker.deferred_work.retry_at IS 'The work is skipped until then. The delay doubles with each failure, from a second to an hour.';
CREATE INDEX deferred_work_by_retry ON tasker.deferred_work (retry_at);

CREATE TABLE tasker.dispatch_outbox (
    position   bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    task_uuid  uuid NOT NULL,
    step_uuid  uuid NOT NULL,
    namespace  text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (position)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
COMMENT ON TABLE tasker.dispatch_outbox IS 'Steps to be announced through the message broker, written in the transaction that enqueues them and removed once the broker has confirmed.';
COMMENT ON COLUMN tasker.dispatch_outbox.due_at IS 'Not to be announced before this instant: after a try that failed, and for a step that came to a worker without its handler.';
CREATE INDEX dispatch_outbox_by_step ON tasker.dispatch_outbox (step_uuid);

CREATE TABLE tasker.dispatch_canary (
    only_row    boolean DEFAULT true PRIMARY KEY,
    sent_at     timestamptz,
    returned_at timestamptz,
    CONSTRAINT dispatch_canary_is_one_row CHECK (only_row)
);
COMMENT ON TABLE tasker.dispatch_canary IS 'A message that no worker takes, sent now and then, to see that the message broker dead-letters: when it was sent last, and when one came back.';

INSERT INTO tasker.dispatch_canary DEFAULT VALUES;
