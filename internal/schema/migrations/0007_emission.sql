-- Who is told of investigations, what became of each telling, and what failed.

-- Events become visible in the order of their transactions' ends, not of their
-- positions. What was written by transactions before some id is complete once they
-- have ended, so whoever reads all events reads them by that.
CREATE INDEX outbox_by_transaction ON tasker.outbox (written_in, position);

CREATE TABLE tasker.emission_sinks (
    sink            text PRIMARY KEY,
    taken_before    xid8 NOT NULL DEFAULT pg_snapshot_xmin(pg_current_snapshot()),
    holder          uuid,
    held_until      timestamptz,
    failing_since   timestamptz,
    last_error      text,
    last_success_at timestamptz,
    next_try_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT emission_sink_failing_says_why CHECK ((failing_since IS NULL) = (last_error IS NULL))
);
COMMENT ON TABLE tasker.emission_sinks IS 'Where events of investigations are sent. A new one is told of what happens from then on.';
COMMENT ON COLUMN tasker.emission_sinks.taken_before IS 'Events of transactions before this one have their rows in emissions.';
COMMENT ON COLUMN tasker.emission_sinks.holder IS 'The server that sends to it now, until held_until: one at a time, so that events keep their order.';
COMMENT ON COLUMN tasker.emission_sinks.next_try_at IS 'Not to be tried before this instant, after it failed.';

CREATE TABLE tasker.emissions (
    sink            text NOT NULL REFERENCES tasker.emission_sinks,
    position        bigint NOT NULL REFERENCES tasker.outbox,
    event_uuid      uuid NOT NULL,
    task_uuid       uuid NOT NULL,
    state           text NOT NULL DEFAULT 'pending',
    attempts        integer NOT NULL DEFAULT 0,
    refusals        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_attempt_at timestamptz,
    last_error      text,
    published_at    timestamptz,
    PRIMARY KEY (sink, position),
    CONSTRAINT emission_state_is_known CHECK (state IN ('pending', 'published', 'set_aside')),
    CONSTRAINT emission_published_has_its_time CHECK (state <> 'published' OR published_at IS NOT NULL)
) WITH (fillfactor = 85);
COMMENT ON TABLE tasker.emissions IS 'What became of sending an event to a sink: one row each.';
COMMENT ON COLUMN tasker.emissions.attempts IS 'How often it was sent, all tries counted.';
COMMENT ON COLUMN tasker.emissions.refusals IS 'How often the sink refused the event itself; after some it is set aside.';
-- The conditions on position and next_attempt_at are always true. A query that does
-- not repeat them cannot use the index: the planner, which takes what is pending for
-- nothing most of the time, would read all of it for each row.
-- What is to be sent, and when; how old the oldest is; what waits before an event of
-- the same task; what was set aside; one event at all sinks.
CREATE INDEX emissions_due ON tasker.emissions (sink, next_attempt_at, position)
    WHERE state = 'pending' AND next_attempt_at > '-infinity';
CREATE INDEX emissions_pending ON tasker.emissions (sink, position) WHERE state = 'pending' AND position > 0;
CREATE INDEX emissions_pending_by_task ON tasker.emissions (sink, task_uuid, position) WHERE state = 'pending';
CREATE INDEX emissions_set_aside ON tasker.emissions (sink, position) WHERE state = 'set_aside';
CREATE INDEX emissions_by_event ON tasker.emissions (event_uuid);

CREATE TABLE tasker.audit_events (
    audit_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    actor      text NOT NULL,
    action     text NOT NULL,
    subject    text NOT NULL,
    data       jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE tasker.audit_events IS 'What happened to Tasker itself and who did it: events that could not be sent, and what operators did about it. It only grows.';
CREATE INDEX audit_events_by_action ON tasker.audit_events (action, audit_id DESC);

CREATE FUNCTION tasker.audit_only_grows() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the audit log only grows' USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION tasker.audit_only_grows() IS 'Refuses to change or remove what was recorded.';
CREATE TRIGGER audit_never_changes BEFORE UPDATE OR DELETE ON tasker.audit_events
    FOR EACH ROW EXECUTE FUNCTION tasker.audit_only_grows();
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON tasker.audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.audit_only_grows();
