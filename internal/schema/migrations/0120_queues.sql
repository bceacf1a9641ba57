-- Whether the workers of a queue are busy, or take nothing. It is in a table of its own: claims write no more than before, and
-- each server stores every few seconds of which queues it handed out steps.
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
