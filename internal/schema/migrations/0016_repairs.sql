-- What a person does to a task is on record in its investigation, and a request of
-- a person that is sent twice is applied once.

CREATE TABLE tasker.operator_requests (
    request_key text PRIMARY KEY,
    action      text NOT NULL,
    digest      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT operator_request_key_is_short CHECK (length(request_key) BETWEEN 1 AND 255)
);
COMMENT ON TABLE tasker.operator_requests IS 'Requests of operators that bore a key and took effect, written in the transaction of their effect, so that the same request again is recognised. Kept for a week.';
COMMENT ON COLUMN tasker.operator_requests.digest IS 'Of all that the request says; tells apart two requests under one key.';
CREATE INDEX operator_requests_by_age ON tasker.operator_requests (created_at);

-- The history of an investigation has repairs, too. An event is told under its own
-- topic if it has one, and as an update otherwise.
CREATE OR REPLACE FUNCTION tasker.tell_of_investigation() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data, created_at)
    SELECT
        'dlq.entry.' || CASE WHEN e.event IN ('created', 'recovered', 'resolved') THEN e.event ELSE 'updated' END,
        e.task_uuid, e.dlq_entry_uuid, e.data, e.changed_at
    FROM tasker.dlq_events((SELECT array_agg(a.history_id) FROM added a)) e
    ORDER BY e.history_id;
    RETURN NULL;
END
$$;
