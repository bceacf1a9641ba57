-- The weight of a reason in the investigation queue is configured. Servers of the
-- previous version write nothing here, so the defaults hold until a server that knows
-- the table starts.

CREATE TABLE tasker.dlq_base_priorities (
    dlq_reason tasker.dlq_reason PRIMARY KEY,
    minutes    integer NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT dlq_base_priority_is_not_negative CHECK (minutes >= 0)
);
COMMENT ON TABLE tasker.dlq_base_priorities IS 'Base priorities of the reasons, from the server''s configuration: minutes of age that a reason is worth in the investigation queue.';
INSERT INTO tasker.dlq_base_priorities (dlq_reason, minutes) VALUES
    ('dependency_cycle_detected', 1000),
    ('max_retries_exceeded', 500),
    ('staleness_timeout', 100),
    ('worker_unavailable', 50),
    ('manual_dlq', 10);
