-- Events of investigations, kept until they are delivered; what must not be shown
-- in evidence; records that only grow.

CREATE TABLE tasker.outbox (
    position       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_uuid     uuid NOT NULL DEFAULT tasker.uuid_generate_v7() UNIQUE,
    topic          text NOT NULL,
    task_uuid      uuid NOT NULL,
    dlq_entry_uuid uuid NOT NULL REFERENCES tasker.tasks_dlq,
    data           jsonb NOT NULL,
    written_in     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_topic_is_known CHECK (topic IN (
        'dlq.entry.created', 'dlq.entry.updated', 'dlq.entry.recovered', 'dlq.entry.resolved'
    ))
);
COMMENT ON TABLE tasker.outbox IS 'What became of investigations, in order, for those who want to be told: written in the transaction that it tells of.';
COMMENT ON COLUMN tasker.outbox.event_uuid IS 'The event''s id wherever it is told; who gets it twice knows it by this.';
COMMENT ON COLUMN tasker.outbox.written_in IS 'The transaction that wrote it. Positions become visible out of order; those of transactions before pg_snapshot_xmin(pg_current_snapshot()) are complete.';
CREATE INDEX outbox_by_entry ON tasker.outbox (dlq_entry_uuid, position);

-- An event is what the history says, so the history writes it: no path can forget.
CREATE FUNCTION tasker.tell_of_investigation() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data, created_at)
    SELECT
        'dlq.entry.' || CASE WHEN h.event IN ('step_failed', 'stuck_again') THEN 'updated' ELSE h.event END,
        d.task_uuid, d.dlq_entry_uuid, tasker.dlq_event_data(d, t, h), h.changed_at
    FROM added a
    JOIN tasker.tasks_dlq_history h ON h.history_id = a.history_id
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = h.dlq_entry_uuid
    JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
    ORDER BY h.history_id;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.tell_of_investigation() IS 'Puts into the outbox what was added to the history of investigations.';
CREATE TRIGGER history_is_told
    AFTER INSERT ON tasker.tasks_dlq_history
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.tell_of_investigation();

CREATE TABLE tasker.redaction (
    only_row    boolean PRIMARY KEY DEFAULT true,
    key_pattern text NOT NULL,
    key_words   text[] NOT NULL,
    paths       jsonb NOT NULL DEFAULT '[]',
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT redaction_is_one_row CHECK (only_row)
);
COMMENT ON TABLE tasker.redaction IS 'What the evidence of investigations must not show, from the server''s configuration.';
COMMENT ON COLUMN tasker.redaction.key_pattern IS 'Regular expression of the keys whose values are hidden, to match keys in lower case without dashes, underscores and blanks.';
COMMENT ON COLUMN tasker.redaction.key_words IS 'A text without any of these words holds no such key.';
COMMENT ON COLUMN tasker.redaction.paths IS 'Places in the snapshot that are hidden: arrays of keys; * stands for each key or element.';
INSERT INTO tasker.redaction (key_pattern, key_words) VALUES (
    '^(.*password.*|.*passwd.*|passphrase|.*secret.*|.*token|.*apikey|.*accesskey.*|.*privatekey|.*credential.*|authorization|proxyauthorization|cookie|setcookie|cardnumber|cvv|cvc|iban|ssn)$',
    '{password,passwd,passphrase,secret,token,apikey,accesskey,privatekey,credential,authorization,proxyauthorization,cookie,setcookie,cardnumber,cvv,cvc,iban,ssn}'
);

-- Records only grow, and an investigation that has ended stays so: by the
-- database, not by good manners.
CREATE FUNCTION tasker.refuse_change_of_record() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% on tasker.% is refused: the record of an investigation never changes', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION tasker.refuse_change_of_record() IS 'Refuses to change or remove what is on record.';
CREATE TRIGGER entry_is_never_removed
    BEFORE DELETE ON tasker.tasks_dlq
    FOR EACH ROW EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER entries_are_never_removed
    BEFORE TRUNCATE ON tasker.tasks_dlq
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER entry_ended_stays_so
    BEFORE UPDATE ON tasker.tasks_dlq
    FOR EACH ROW WHEN (
        OLD.resolution_status <> 'pending'
        AND (NEW.resolution_status <> OLD.resolution_status OR NEW.resolved_at IS DISTINCT FROM OLD.resolved_at)
    )
    EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER history_never_changes
    BEFORE UPDATE OR DELETE ON tasker.tasks_dlq_history
    FOR EACH ROW EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER history_is_never_removed
    BEFORE TRUNCATE ON tasker.tasks_dlq_history
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_change_of_record();

COMMENT ON TYPE tasker.dlq_reason IS 'Why a task needs a human (seed 000); detail_code of an investigation says more.';
COMMENT ON TYPE tasker.dlq_resolution_status IS 'Where an investigation stands: pending, or how it ended.';

-- The dashboard counts what is open and adds what has ended, which never changes
-- again and is therefore added up once: its cost does not grow with history.
CREATE TABLE tasker.dlq_totals (
    dlq_reason        tasker.dlq_reason NOT NULL,
    resolution_status tasker.dlq_resolution_status NOT NULL,
    entries           bigint NOT NULL,
    open_seconds      numeric NOT NULL,
    oldest_entry      timestamptz NOT NULL,
    newest_entry      timestamptz NOT NULL,
    PRIMARY KEY (dlq_reason, resolution_status),
    CONSTRAINT dlq_totals_are_of_ended_entries CHECK (resolution_status <> 'pending')
);
COMMENT ON TABLE tasker.dlq_totals IS 'Investigations that have ended, added up by reason and by how they ended.';
COMMENT ON COLUMN tasker.dlq_totals.open_seconds IS 'How long they were open, all together.';
INSERT INTO tasker.dlq_totals (dlq_reason, resolution_status, entries, open_seconds, oldest_entry, newest_entry)
SELECT d.dlq_reason, d.resolution_status, count(*), sum(extract(epoch FROM d.resolved_at - d.dlq_timestamp)), min(d.dlq_timestamp), max(d.dlq_timestamp)
FROM tasker.tasks_dlq d
WHERE d.resolution_status <> 'pending'
GROUP BY d.dlq_reason, d.resolution_status;

CREATE FUNCTION tasker.add_to_dlq_totals() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.dlq_totals AS t (dlq_reason, resolution_status, entries, open_seconds, oldest_entry, newest_entry)
    VALUES (NEW.dlq_reason, NEW.resolution_status, 1, extract(epoch FROM NEW.resolved_at - NEW.dlq_timestamp), NEW.dlq_timestamp, NEW.dlq_timestamp)
    ON CONFLICT (dlq_reason, resolution_status) DO UPDATE
    SET entries = t.entries + 1,
        open_seconds = t.open_seconds + excluded.open_seconds,
        oldest_entry = least(t.oldest_entry, excluded.oldest_entry),
        newest_entry = greatest(t.newest_entry, excluded.newest_entry);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.add_to_dlq_totals() IS 'Adds an investigation that has ended to the totals.';
CREATE TRIGGER entry_made_ended_is_added_up
    AFTER INSERT ON tasker.tasks_dlq
    FOR EACH ROW WHEN (NEW.resolution_status <> 'pending')
    EXECUTE FUNCTION tasker.add_to_dlq_totals();
CREATE TRIGGER entry_ended_is_added_up
    AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolution_status = 'pending' AND NEW.resolution_status <> 'pending')
    EXECUTE FUNCTION tasker.add_to_dlq_totals();
CREATE INDEX tasks_dlq_pending_by_reason ON tasker.tasks_dlq (dlq_reason, dlq_timestamp) WHERE resolution_status = 'pending';

-- Tasks of one threshold turn warning and stale in the order in which they came
-- to their state, so one index serves the sweep and the monitor in its exact
-- order. Seconds, because an interval of days is not the same in every time zone.
CREATE INDEX tasks_by_threshold ON tasker.tasks (
    (extract(epoch FROM stale_at - state_since)::double precision), state_since, task_uuid
) WHERE stale_at IS NOT NULL;
DROP INDEX tasker.tasks_by_staleness;

-- An investigation that ends although its task is still in error has not mended it,
-- or was not about it: then the sweep looks after the task again. Who wants to give
-- a task up says so: permanently_failed, or cancelled for what the system found.
CREATE FUNCTION tasker.watch_task_again() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE tasker.tasks t
    SET attend_by = clock_timestamp() + make_interval(mins => st.error_recovery_minutes)
    FROM tasker.staleness_thresholds st
    WHERE t.task_uuid = NEW.task_uuid AND t.state = 'error' AND t.attend_by IS NULL AND st.only_row;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.watch_task_again() IS 'Has the sweep look after a task in error whose investigation ended.';
CREATE TRIGGER entry_ended_task_is_watched
    AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (
        OLD.resolution_status = 'pending'
        AND (NEW.resolution_status = 'manually_resolved' OR (NEW.resolution_status = 'cancelled' AND NEW.dlq_reason = 'manual_dlq'))
    )
    EXECUTE FUNCTION tasker.watch_task_again();

-- Who is looked into already when the last branch ends needs nobody else.
CREATE OR REPLACE FUNCTION tasker.watch_task_in_error() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.attend_by := CASE WHEN NEW.state = 'error' AND NOT EXISTS (
        SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = NEW.task_uuid AND d.resolution_status = 'pending'
    ) THEN clock_timestamp() + (
        SELECT make_interval(mins => st.error_recovery_minutes) FROM tasker.staleness_thresholds st WHERE st.only_row
    ) END;
    RETURN NEW;
END
$$;
UPDATE tasker.tasks t SET attend_by = NULL
WHERE t.attend_by IS NOT NULL AND EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'pending');

-- A claim walks over the index entries of steps that were claimed since the last
-- vacuum, so that comes sooner than a fifth of the table is dead.
ALTER TABLE tasker.tasks SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE tasker.workflow_steps SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- Investigations that ended before there was such a rule.
UPDATE tasker.tasks t
SET attend_by = clock_timestamp() + make_interval(mins => st.error_recovery_minutes)
FROM tasker.staleness_thresholds st
WHERE st.only_row AND t.state = 'error' AND t.attend_by IS NULL
  AND NOT EXISTS (
      SELECT FROM tasker.tasks_dlq d
      WHERE d.task_uuid = t.task_uuid
        AND (d.resolution_status IN ('pending', 'permanently_failed') OR (d.resolution_status = 'cancelled' AND d.dlq_reason <> 'manual_dlq'))
  );
