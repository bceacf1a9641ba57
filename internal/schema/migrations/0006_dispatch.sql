-- Limits of the queue, workers that drain, and steps announced through a message
-- broker.

ALTER TABLE tasker.workflow_steps
    ADD COLUMN queue_ttl_ms        bigint,
    ADD COLUMN expires_at          timestamptz,
    ADD COLUMN queue_expiries      integer NOT NULL DEFAULT 0,
    ADD COLUMN awaits_worker_since timestamptz;
COMMENT ON COLUMN tasker.workflow_steps.queue_ttl_ms IS 'How long the step may wait in the queue, in milliseconds. Null: as the server says.';
COMMENT ON COLUMN tasker.workflow_steps.expires_at IS 'Instant from which an enqueued step counts as taken by no worker in time.';
COMMENT ON COLUMN tasker.workflow_steps.queue_expiries IS 'How often in a row it was taken by no worker in time although one was alive.';
COMMENT ON COLUMN tasker.workflow_steps.awaits_worker_since IS 'When it was taken by no worker in time. It goes back into the queue by itself once a worker for it lives.';

-- Steps that wait at the upgrade get the whole time.
UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() + interval '5 minutes' WHERE state = 'enqueued';

ALTER TABLE tasker.workflow_steps
    ADD CONSTRAINT step_enqueued_has_its_limit CHECK ((state = 'enqueued') = (expires_at IS NOT NULL)),
    ADD CONSTRAINT step_queue_ttl_is_positive CHECK (queue_ttl_ms > 0),
    ADD CONSTRAINT step_awaits_worker_only_in_error CHECK (
        awaits_worker_since IS NULL OR (state = 'error' AND next_retry_at IS NULL)
    );

-- The timers: what was taken by no worker in time; and what goes back when a
-- worker appears, by what the worker must be able to do.
CREATE INDEX steps_by_expiry ON tasker.workflow_steps (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX steps_awaiting_worker ON tasker.workflow_steps (namespace, handler, awaits_worker_since)
    WHERE awaits_worker_since IS NOT NULL;

ALTER TABLE tasker.workers ADD COLUMN draining_since timestamptz;
COMMENT ON COLUMN tasker.workers.draining_since IS 'From when on the worker gets no new work: it finishes what it holds and leaves.';

CREATE TABLE tasker.dispatch_canary (
    only_row    boolean PRIMARY KEY DEFAULT true,
    sent_at     timestamptz,
    returned_at timestamptz,
    CONSTRAINT dispatch_canary_is_one_row CHECK (only_row)
);
COMMENT ON TABLE tasker.dispatch_canary IS 'A message that no worker takes, sent now and then, to see that the message broker dead-letters: when it was sent last, and when one came back.';
INSERT INTO tasker.dispatch_canary DEFAULT VALUES;

CREATE TABLE tasker.dispatch_outbox (
    position   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_uuid  uuid NOT NULL,
    step_uuid  uuid NOT NULL,
    namespace  text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at     timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
COMMENT ON TABLE tasker.dispatch_outbox IS 'Steps to be announced through the message broker, written in the transaction that enqueues them and removed once the broker has confirmed.';
CREATE INDEX dispatch_outbox_by_step ON tasker.dispatch_outbox (step_uuid);
COMMENT ON COLUMN tasker.dispatch_outbox.due_at IS 'Not to be announced before this instant: after a try that failed, and for a step that came to a worker without its handler.';
