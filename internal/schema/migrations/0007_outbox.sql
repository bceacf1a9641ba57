-- The outbox of events, and the sinks that they are sent to.

CREATE TABLE tasker.outbox (
    position       bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    event_uuid     uuid NOT NULL DEFAULT tasker.uuid_generate_v7(),
    topic          text NOT NULL,
    task_uuid      uuid NOT NULL,
    dlq_entry_uuid uuid,
    data           jsonb NOT NULL,
    written_in     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    namespace      text,
    PRIMARY KEY (position),
    CONSTRAINT outbox_topic_is_known CHECK (topic IN (
        'dlq.entry.created', 'dlq.entry.updated', 'dlq.entry.recovered', 'dlq.entry.resolved', 'task.completed', 'task.failed', 'task.cancelled', 'step.failed')),
    CONSTRAINT outbox_entry_fits_topic CHECK ((dlq_entry_uuid IS NULL) = (topic LIKE 'task.%' OR topic LIKE 'step.%')),
    CONSTRAINT outbox_event_uuid_key UNIQUE (event_uuid),
    CONSTRAINT outbox_dlq_entry_uuid_fkey FOREIGN KEY (dlq_entry_uuid) REFERENCES tasker.tasks_dlq (dlq_entry_uuid)
);
COMMENT ON TABLE tasker.outbox IS 'Events of investigations and tasks, in order: each is written in the transaction of its change.';
COMMENT ON COLUMN tasker.outbox.event_uuid IS 'The event''s id wherever it is told; who gets it twice knows it by this.';
COMMENT ON COLUMN tasker.outbox.dlq_entry_uuid IS 'The investigation. Null for an event of a task.';
COMMENT ON COLUMN tasker.outbox.written_in IS 'The transaction that wrote it. Positions become visible out of order; those of transactions before pg_snapshot_xmin(pg_current_snapshot()) are complete.';
COMMENT ON COLUMN tasker.outbox.namespace IS 'The namespace of the task.';
CREATE INDEX outbox_by_entry ON tasker.outbox (dlq_entry_uuid, position);
CREATE INDEX outbox_by_namespace ON tasker.outbox (namespace, position);
CREATE INDEX outbox_by_namespace_and_transaction ON tasker.outbox (namespace, written_in, position);
CREATE INDEX outbox_by_topic ON tasker.outbox (topic, position);
CREATE INDEX outbox_by_transaction ON tasker.outbox (written_in, position);
CREATE INDEX outbox_of_task ON tasker.outbox (task_uuid) WHERE dlq_entry_uuid IS NULL;

CREATE FUNCTION tasker.note_namespace() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.namespace := (SELECT t.namespace FROM tasker.tasks t WHERE t.task_uuid = NEW.task_uuid);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.note_namespace() IS 'Keeps the namespace of its task in a row.';
CREATE TRIGGER event_namespace_is_noted BEFORE INSERT ON tasker.outbox
    FOR EACH ROW WHEN (NEW.namespace IS NULL)
    EXECUTE FUNCTION tasker.note_namespace();

CREATE TRIGGER event_of_investigated_task_stays AFTER DELETE ON tasker.outbox REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_removal_of_records();

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
    opened_in       pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
    events          boolean NOT NULL DEFAULT true,
    CONSTRAINT emission_sink_failing_says_why CHECK ((failing_since IS NULL) = (last_error IS NULL))
);
COMMENT ON TABLE tasker.emission_sinks IS 'Where events are sent. A new sink receives the events from then on.';
COMMENT ON COLUMN tasker.emission_sinks.taken_before IS 'Events of transactions before this one have their rows in emissions.';
COMMENT ON COLUMN tasker.emission_sinks.holder IS 'The server that sends to it now, until held_until: one at a time, so that events keep their order.';
COMMENT ON COLUMN tasker.emission_sinks.next_try_at IS 'Not to be tried before this instant, after it failed.';
COMMENT ON COLUMN tasker.emission_sinks.opened_in IS 'Events whose transactions this snapshot sees are listed for the sink already or are older than it. It advances with each complete scan for new events.';
COMMENT ON COLUMN tasker.emission_sinks.events IS 'It receives events, and not only messages.';

CREATE TABLE tasker.emissions (
    sink            text NOT NULL,
    position        bigint NOT NULL,
    event_uuid      uuid NOT NULL,
    task_uuid       uuid NOT NULL,
    state           text NOT NULL DEFAULT 'pending',
    attempts        integer NOT NULL DEFAULT 0,
    refusals        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_attempt_at timestamptz,
    last_error      text,
    published_at    timestamptz,
    namespace       text,
    PRIMARY KEY (sink, position),
    CONSTRAINT emission_published_has_its_time CHECK (state <> 'published' OR published_at IS NOT NULL),
    CONSTRAINT emission_state_is_known CHECK (state IN ('pending', 'published', 'set_aside')),
    CONSTRAINT emissions_position_fkey FOREIGN KEY (position) REFERENCES tasker.outbox (position),
    CONSTRAINT emissions_sink_fkey FOREIGN KEY (sink) REFERENCES tasker.emission_sinks (sink)
) WITH (fillfactor=85);
COMMENT ON TABLE tasker.emissions IS 'What became of sending an event to a sink: one row each.';
COMMENT ON COLUMN tasker.emissions.attempts IS 'How often it was sent, all tries counted.';
COMMENT ON COLUMN tasker.emissions.refusals IS 'How often the sink refused the event itself; after some it is set aside.';
COMMENT ON COLUMN tasker.emissions.namespace IS 'The namespace of the task.';
CREATE INDEX emissions_by_namespace ON tasker.emissions (namespace, sink, position);
CREATE INDEX emissions_by_position ON tasker.emissions USING hash (position); -- for the foreign key; pages use the primary key
CREATE INDEX emissions_due ON tasker.emissions (sink, next_attempt_at, position) WHERE state = 'pending' AND next_attempt_at > '-infinity';
CREATE INDEX emissions_pending ON tasker.emissions (sink, position) WHERE state = 'pending' AND position > 0;
CREATE INDEX emissions_pending_by_task ON tasker.emissions (sink, task_uuid, position) WHERE state = 'pending';
CREATE INDEX emissions_set_aside ON tasker.emissions (sink, position) WHERE state = 'set_aside';
CREATE INDEX emissions_unpublished_by_namespace ON tasker.emissions
    (namespace, sink, state, position) WHERE state <> 'published' AND namespace > '';

CREATE TRIGGER emission_namespace_is_noted BEFORE INSERT ON tasker.emissions
    FOR EACH ROW WHEN (NEW.namespace IS NULL)
    EXECUTE FUNCTION tasker.note_namespace();

-- Events of tasks. The setting tasker.task_events has the subscriptions of the server (see
-- write_task_event). Without any, the conditions below are all that these triggers cost.
CREATE FUNCTION tasker.tell_of_task() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM tasker.write_task_event(
        CASE NEW.to_state WHEN 'complete' THEN 'task.completed' WHEN 'cancelled' THEN 'task.cancelled' ELSE 'task.failed' END, NEW.task_uuid, NULL,
        jsonb_build_object('event', coalesce(NEW.event, 'settle'), 'from_state', NEW.from_state, 'to_state', NEW.to_state, 'actor', NEW.actor, 'reason', NEW.reason, 'at', NEW.created_at));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.tell_of_task() IS 'Writes the event of a task that has ended or moved to error.';
CREATE TRIGGER task_is_told AFTER INSERT ON tasker.task_history
    FOR EACH ROW WHEN (NEW.to_state IN ('complete', 'cancelled', 'error') AND NEW.from_state <> NEW.to_state AND current_setting('tasker.task_events', true) <> '')
    EXECUTE FUNCTION tasker.tell_of_task();

CREATE FUNCTION tasker.tell_of_failed_step() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = NEW.task_uuid AND s.step_uuid = NEW.step_uuid AND s.state = 'error' AND s.next_retry_at IS NULL
    ) THEN
        PERFORM tasker.write_task_event('step.failed', NEW.task_uuid, NEW.step_uuid,
            jsonb_build_object('event', NEW.event, 'from_state', NEW.from_state, 'to_state', NEW.to_state, 'actor', NEW.actor, 'reason', NEW.reason, 'at', NEW.created_at));
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.tell_of_failed_step() IS 'Writes the event of a step that failed and is not retried.';
CREATE TRIGGER failed_step_is_told AFTER INSERT ON tasker.step_history
    FOR EACH ROW WHEN (NEW.to_state = 'error' AND current_setting('tasker.task_events', true) <> '')
    EXECUTE FUNCTION tasker.tell_of_failed_step();

CREATE FUNCTION tasker.tell_of_permanent_failure() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM tasker.write_task_event('task.failed', NEW.task_uuid, NULL, jsonb_build_object(
        'event', 'permanently_failed', 'actor', NEW.resolved_by, 'reason', NEW.resolution_notes, 'at', NEW.resolved_at, 'dlq_entry_uuid', NEW.dlq_entry_uuid));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.tell_of_permanent_failure() IS 'Writes the event of a task whose investigation ended as permanently_failed.';
CREATE TRIGGER permanent_failure_is_told AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (
        OLD.resolution_status = 'pending' AND NEW.resolution_status = 'permanently_failed' AND current_setting('tasker.task_events', true) <> ''
    )
    EXECUTE FUNCTION tasker.tell_of_permanent_failure();
