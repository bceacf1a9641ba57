-- Investigations: the evidence of tasks that cannot progress, their history and totals, and the settings of their detection.

CREATE TYPE tasker.dlq_reason AS ENUM ('staleness_timeout', 'max_retries_exceeded', 'dependency_cycle_detected', 'worker_unavailable', 'manual_dlq');
COMMENT ON TYPE tasker.dlq_reason IS 'Why a task needs an operator; the detail code of an investigation says more.';

CREATE TYPE tasker.dlq_resolution_status AS ENUM ('pending', 'manually_resolved', 'permanently_failed', 'cancelled');
COMMENT ON TYPE tasker.dlq_resolution_status IS 'Where an investigation stands: pending, or how it ended.';

CREATE TABLE tasker.tasks_dlq (
    dlq_entry_uuid        uuid DEFAULT tasker.uuid_generate_v7() PRIMARY KEY,
    task_uuid             uuid NOT NULL,
    step_uuid             uuid,
    original_state        character varying(50) NOT NULL,
    dlq_reason            tasker.dlq_reason NOT NULL,
    detail_code           text NOT NULL,
    detected_by           text NOT NULL,
    dlq_timestamp         timestamptz NOT NULL DEFAULT now(),
    priority_at           timestamptz NOT NULL,
    task_snapshot         jsonb NOT NULL,
    resolution_status     tasker.dlq_resolution_status NOT NULL DEFAULT 'pending',
    resolution_notes      text,
    resolved_at           timestamptz,
    resolved_by           character varying(255),
    metadata              jsonb,
    recovered_at          timestamptz,
    predecessor_uuid      uuid,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    namespace             text NOT NULL,
    task_name             text NOT NULL,
    step_name             text,
    error_pattern         text,
    case_key              uuid NOT NULL,
    time_in_state_minutes numeric,
    original_reason       tasker.dlq_reason,
    original_detail_code  text,
    CONSTRAINT entry_ended_has_time_and_person CHECK (
        (resolution_status = 'pending') = (resolved_at IS NULL)
        AND (resolution_status = 'pending' OR (resolved_by IS NOT NULL AND btrim(resolution_notes) <> ''))
    ),
    CONSTRAINT tasks_dlq_predecessor_uuid_fkey FOREIGN KEY (predecessor_uuid) REFERENCES tasker.tasks_dlq (dlq_entry_uuid),
    CONSTRAINT tasks_dlq_task_uuid_fkey FOREIGN KEY (task_uuid) REFERENCES tasker.tasks (task_uuid)
);
COMMENT ON TABLE tasker.tasks_dlq IS 'Investigations: why a task is stuck, as evidence, and who looked into it. Only a weightier reason replaces the reason of an open one.';
COMMENT ON COLUMN tasker.tasks_dlq.priority_at IS 'dlq_timestamp less the base priority of the reason in minutes: the order of the investigation queue, which time does not change because age grows equally for all.';
COMMENT ON COLUMN tasker.tasks_dlq.recovered_at IS 'When the task went on by itself although the entry is open.';
COMMENT ON COLUMN tasker.tasks_dlq.error_pattern IS 'The message of the step''s error when the entry was opened, without ids and numbers; null when no step failed.';
COMMENT ON COLUMN tasker.tasks_dlq.case_key IS 'The same for investigations of the same failure: namespace, template, reason, step and error.';
COMMENT ON COLUMN tasker.tasks_dlq.time_in_state_minutes IS 'What the snapshot says of it. Null: nothing, or it is hidden.';
COMMENT ON COLUMN tasker.tasks_dlq.original_reason IS 'The reason it was opened for, when a weightier one has replaced that since; null otherwise.';
COMMENT ON COLUMN tasker.tasks_dlq.original_detail_code IS 'The detail code it was opened for, when a weightier reason has replaced that since; null otherwise.';
CREATE UNIQUE INDEX idx_dlq_unique_pending_task ON tasker.tasks_dlq (task_uuid) WHERE resolution_status = 'pending';
CREATE INDEX tasks_dlq_by_namespace ON tasker.tasks_dlq (namespace, dlq_timestamp DESC, dlq_entry_uuid DESC);
CREATE INDEX tasks_dlq_by_status ON tasker.tasks_dlq (resolution_status, dlq_timestamp DESC, dlq_entry_uuid DESC);
CREATE INDEX tasks_dlq_by_task ON tasker.tasks_dlq (task_uuid, dlq_timestamp DESC);
CREATE INDEX tasks_dlq_by_time ON tasker.tasks_dlq (dlq_timestamp DESC, dlq_entry_uuid DESC);
CREATE INDEX tasks_dlq_ended_by_case ON tasker.tasks_dlq (case_key, resolved_at DESC) WHERE resolution_status <> 'pending';
CREATE INDEX tasks_dlq_pending_by_case ON tasker.tasks_dlq
    (namespace, dlq_reason, case_key, dlq_timestamp) INCLUDE (recovered_at) WHERE resolution_status = 'pending';
CREATE INDEX tasks_dlq_queue ON tasker.tasks_dlq ((recovered_at IS NOT NULL), priority_at, dlq_entry_uuid) WHERE resolution_status = 'pending';
CREATE INDEX tasks_dlq_queue_of_namespace ON tasker.tasks_dlq
    (namespace, (recovered_at IS NOT NULL), priority_at, dlq_entry_uuid) WHERE resolution_status = 'pending' AND namespace > '';

CREATE FUNCTION tasker.refuse_change_of_record() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% on tasker.% is refused: the record of an investigation never changes', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION tasker.refuse_change_of_record() IS 'Refuses to change or remove what is on record.';
CREATE TRIGGER entries_are_never_removed BEFORE TRUNCATE ON tasker.tasks_dlq
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_change_of_record();

CREATE FUNCTION tasker.add_to_dlq_totals() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.dlq_totals AS t (namespace, dlq_reason, resolution_status, entries, open_seconds, oldest_entry, newest_entry)
    VALUES (NEW.namespace, NEW.dlq_reason, NEW.resolution_status, 1, extract(epoch FROM NEW.resolved_at - NEW.dlq_timestamp), NEW.dlq_timestamp, NEW.dlq_timestamp)
    ON CONFLICT (namespace, dlq_reason, resolution_status) DO UPDATE
    SET entries = t.entries + 1,
        open_seconds = t.open_seconds + excluded.open_seconds,
        oldest_entry = least(t.oldest_entry, excluded.oldest_entry),
        newest_entry = greatest(t.newest_entry, excluded.newest_entry);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.add_to_dlq_totals() IS 'Adds an investigation that has ended to the totals.';
CREATE TRIGGER entry_ended_is_added_up AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolution_status = 'pending' AND NEW.resolution_status <> 'pending')
    EXECUTE FUNCTION tasker.add_to_dlq_totals();

CREATE TRIGGER entry_ended_stays_so BEFORE UPDATE ON tasker.tasks_dlq
    FOR EACH ROW WHEN (
        OLD.resolution_status <> 'pending'
        AND (NEW.resolution_status <> OLD.resolution_status OR NEW.resolved_at IS DISTINCT FROM OLD.resolved_at)
    )
    EXECUTE FUNCTION tasker.refuse_change_of_record();

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
CREATE TRIGGER entry_ended_task_is_watched AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (
        OLD.resolution_status = 'pending'
        AND (NEW.resolution_status = 'manually_resolved' OR (NEW.resolution_status = 'cancelled' AND NEW.dlq_reason = 'manual_dlq'))
    )
    EXECUTE FUNCTION tasker.watch_task_again();

CREATE FUNCTION tasker.refuse_change_of_evidence() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the evidence of investigation % never changes', OLD.dlq_entry_uuid
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION tasker.refuse_change_of_evidence() IS 'Refuses an update that would change what an investigation recorded when it was opened.';
CREATE TRIGGER entry_evidence_never_changes BEFORE UPDATE ON tasker.tasks_dlq
    FOR EACH ROW WHEN (
        OLD.task_uuid IS DISTINCT FROM NEW.task_uuid
        OR OLD.original_state IS DISTINCT FROM NEW.original_state
        OR OLD.detected_by IS DISTINCT FROM NEW.detected_by
        OR OLD.dlq_timestamp IS DISTINCT FROM NEW.dlq_timestamp
        OR OLD.task_snapshot IS DISTINCT FROM NEW.task_snapshot
        OR OLD.predecessor_uuid IS DISTINCT FROM NEW.predecessor_uuid
        OR OLD.created_at IS DISTINCT FROM NEW.created_at
        OR OLD.namespace IS DISTINCT FROM NEW.namespace
        OR OLD.task_name IS DISTINCT FROM NEW.task_name
        OR (OLD.dlq_reason IS DISTINCT FROM NEW.dlq_reason
            OR OLD.detail_code IS DISTINCT FROM NEW.detail_code
            OR OLD.step_uuid IS DISTINCT FROM NEW.step_uuid
            OR OLD.priority_at IS DISTINCT FROM NEW.priority_at
            OR OLD.step_name IS DISTINCT FROM NEW.step_name
            OR OLD.error_pattern IS DISTINCT FROM NEW.error_pattern
            OR OLD.case_key IS DISTINCT FROM NEW.case_key
            OR OLD.original_reason IS DISTINCT FROM NEW.original_reason
            OR OLD.original_detail_code IS DISTINCT FROM NEW.original_detail_code)
        -- A weightier reason may replace the one of an open investigation, which keeps the first.
        AND (OLD.resolution_status <> 'pending' OR NEW.resolution_status <> 'pending'
            OR NEW.dlq_reason = OLD.dlq_reason OR NEW.priority_at >= OLD.priority_at
            OR NEW.original_reason IS DISTINCT FROM coalesce(OLD.original_reason, OLD.dlq_reason)
            OR NEW.original_detail_code IS DISTINCT FROM coalesce(OLD.original_detail_code, OLD.detail_code))
    )
    EXECUTE FUNCTION tasker.refuse_change_of_evidence();

CREATE FUNCTION tasker.free_unique_key() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
    UPDATE tasker.deadlines x SET ended_at = clock_timestamp(), look_at = 'infinity' WHERE x.task_uuid = NEW.task_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.free_unique_key() IS 'Frees the unique key of a task that was given up, and ends its due times.';
CREATE TRIGGER entry_frees_unique_key AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolution_status = 'pending' AND NEW.resolution_status = 'permanently_failed')
    EXECUTE FUNCTION tasker.free_unique_key();

CREATE FUNCTION tasker.follow_given_up_child() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
    SELECT 'ended', t.task_uuid, t.parent_task_uuid, t.parent_step_uuid
    FROM tasker.tasks t
    WHERE t.task_uuid = NEW.task_uuid AND t.parent_step_uuid IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_given_up_child() IS 'Leaves word that a child task was given up.';
CREATE TRIGGER entry_gave_up_child AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolution_status = 'pending' AND NEW.resolution_status = 'permanently_failed')
    EXECUTE FUNCTION tasker.follow_given_up_child();

CREATE TRIGGER entry_gave_up_scheduled_task AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolution_status = 'pending' AND NEW.resolution_status = 'permanently_failed')
    EXECUTE FUNCTION tasker.follow_scheduled_task();

-- follow_entry copies the end of an investigation to its row in case_members.
CREATE FUNCTION tasker.follow_entry() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE tasker.case_members
    SET ended_at = NEW.resolved_at, recovered_at = NEW.recovered_at, resolution_status = nullif(NEW.resolution_status, 'pending')
    WHERE dlq_entry_uuid = NEW.dlq_entry_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_entry() IS 'Has the row in tasker.case_members follow its investigation.';
CREATE TRIGGER entry_has_its_member AFTER UPDATE OF resolution_status, recovered_at ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolved_at IS DISTINCT FROM NEW.resolved_at OR OLD.recovered_at IS DISTINCT FROM NEW.recovered_at)
    EXECUTE FUNCTION tasker.follow_entry();

CREATE TRIGGER entry_is_never_removed BEFORE DELETE ON tasker.tasks_dlq
    FOR EACH ROW
    EXECUTE FUNCTION tasker.refuse_change_of_record();

CREATE TRIGGER entry_made_ended_is_added_up AFTER INSERT ON tasker.tasks_dlq
    FOR EACH ROW WHEN (NEW.resolution_status <> 'pending')
    EXECUTE FUNCTION tasker.add_to_dlq_totals();

CREATE FUNCTION tasker.note_time_in_state() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF jsonb_typeof(NEW.task_snapshot -> 'time_in_state_minutes') = 'number' THEN
        NEW.time_in_state_minutes := (NEW.task_snapshot ->> 'time_in_state_minutes')::numeric;
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.note_time_in_state() IS 'Keeps beside an entry what lists need of its snapshot.';
CREATE TRIGGER entry_time_is_noted BEFORE INSERT ON tasker.tasks_dlq
    FOR EACH ROW
    EXECUTE FUNCTION tasker.note_time_in_state();

-- lz4 compresses a snapshot in a tenth of the time, where PostgreSQL was built with it.
DO $$
BEGIN
    ALTER TABLE tasker.tasks_dlq ALTER COLUMN task_snapshot SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

CREATE TABLE tasker.tasks_dlq_history (
    history_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dlq_entry_uuid uuid NOT NULL,
    event          text NOT NULL,
    actor          text NOT NULL,
    from_status    tasker.dlq_resolution_status,
    to_status      tasker.dlq_resolution_status NOT NULL,
    notes          text,
    metadata       jsonb,
    changed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tasks_dlq_history_dlq_entry_uuid_fkey FOREIGN KEY (dlq_entry_uuid) REFERENCES tasker.tasks_dlq (dlq_entry_uuid)
);
COMMENT ON TABLE tasker.tasks_dlq_history IS 'Every change of an investigation: who, when, from, to. Append-only.';
CREATE INDEX tasks_dlq_history_by_entry ON tasker.tasks_dlq_history (dlq_entry_uuid, history_id);

CREATE TRIGGER history_is_never_removed BEFORE TRUNCATE ON tasker.tasks_dlq_history
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_change_of_record();

-- tell_of_investigation writes the events of an investigation, and keeps its row in
-- case_members up to date.
CREATE FUNCTION tasker.tell_of_investigation() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    _changes bigint[] := (SELECT array_agg(a.history_id) FROM added a);
BEGIN
    WITH told AS MATERIALIZED (
        SELECT e.* FROM tasker.dlq_events(_changes) e
    ),
    events AS (
        INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data, created_at)
        SELECT
            'dlq.entry.' || CASE WHEN e.event IN ('created', 'recovered', 'resolved') THEN e.event ELSE 'updated' END,
            e.task_uuid, e.dlq_entry_uuid, e.data, e.changed_at
        FROM told e
        ORDER BY e.history_id
    )
    INSERT INTO tasker.case_members (
        dlq_entry_uuid, namespace, opened_at, task_name, task_version, step_name, dlq_reason, detail_code,
        error_type, error_message, error_fingerprint, worker_uuid, attempted_at, recovered_at, ended_at
    )
    SELECT
        e.dlq_entry_uuid, e.data ->> 'namespace', (e.data ->> 'dlq_timestamp')::timestamptz, e.data ->> 'task_name', e.data ->> 'task_version',
        coalesce(e.data #>> '{step,name}', ''), (e.data ->> 'dlq_reason')::tasker.dlq_reason, e.data ->> 'detail_code',
        left(e.data #>> '{step,error_type}', 200), e.data #>> '{step,error_message}',
        left(e.data #>> '{step,error_fingerprint}', 200), left(e.data #>> '{step,worker_uuid}', 100), (e.data #>> '{step,last_attempted_at}')::timestamptz,
        (e.data ->> 'recovered_at')::timestamptz, (e.data ->> 'resolved_at')::timestamptz
    FROM told e
    WHERE e.event = 'created'
    ON CONFLICT DO NOTHING;

    IF NOT EXISTS (SELECT FROM added a WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled', 'step_failed', 'raised')) THEN
        RETURN NULL;
    END IF;
    UPDATE tasker.case_members m
    SET acted_at = greatest(m.acted_at, c.acted_at),
        failed_again_at = CASE WHEN greatest(m.acted_at, c.acted_at) < c.failed_at THEN c.failed_at ELSE m.failed_again_at END,
        revision = m.revision + CASE WHEN c.cause THEN 1 ELSE 0 END,
        fingerprint_version = CASE WHEN c.cause THEN 0 ELSE m.fingerprint_version END,
        dlq_reason = coalesce(f.dlq_reason, c.dlq_reason, m.dlq_reason), detail_code = coalesce(f.detail_code, c.detail_code, m.detail_code),
        step_name = coalesce(f.step_name, m.step_name),
        error_type = CASE WHEN f.step_name IS NULL THEN m.error_type ELSE left(f.error ->> 'type', 200) END,
        error_message = CASE WHEN f.step_name IS NULL THEN m.error_message ELSE f.error ->> 'message' END,
        error_fingerprint = CASE WHEN f.step_name IS NULL THEN m.error_fingerprint ELSE left(f.error ->> 'fingerprint', 200) END,
        worker_uuid = CASE WHEN f.step_name IS NULL THEN m.worker_uuid ELSE left(f.error ->> 'worker_uuid', 100) END,
        worker_name = CASE WHEN f.step_name IS NULL THEN m.worker_name END,
        worker_version = CASE WHEN f.step_name IS NULL THEN m.worker_version END,
        attempted_at = CASE WHEN f.step_name IS NULL THEN m.attempted_at ELSE f.last_attempted_at END
    FROM (
        SELECT
            a.dlq_entry_uuid,
            max(a.changed_at) FILTER (WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled')) AS acted_at,
            max(a.changed_at) FILTER (WHERE a.event = 'step_failed') AS failed_at,
            bool_or(a.event IN ('step_failed', 'raised')) AS cause,
            max(a.history_id) FILTER (WHERE a.event = 'step_failed') AS failure,
            (max((a.metadata #>> '{to,dlq_reason}')) FILTER (WHERE a.event = 'raised'))::tasker.dlq_reason AS dlq_reason,
            max(a.metadata #>> '{to,detail_code}') FILTER (WHERE a.event = 'raised') AS detail_code
        FROM added a
        WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled', 'step_failed', 'raised')
        GROUP BY a.dlq_entry_uuid
    ) c
    LEFT JOIN LATERAL (
        SELECT (a.metadata ->> 'dlq_reason')::tasker.dlq_reason AS dlq_reason, a.metadata ->> 'detail_code' AS detail_code, s.name AS step_name,
            CASE WHEN jsonb_typeof(a.metadata -> 'error') = 'object' THEN a.metadata -> 'error' ELSE '{}' END AS error, s.last_attempted_at
        FROM added a
        JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = a.dlq_entry_uuid
        JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = (a.metadata ->> 'step_uuid')::uuid
        WHERE a.history_id = c.failure
    ) f ON true
    WHERE m.dlq_entry_uuid = c.dlq_entry_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.tell_of_investigation() IS 'Puts into the outbox what was added to the history of investigations.';
CREATE TRIGGER history_is_told AFTER INSERT ON tasker.tasks_dlq_history REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.tell_of_investigation();

CREATE TRIGGER history_never_changes BEFORE DELETE OR UPDATE ON tasker.tasks_dlq_history
    FOR EACH ROW
    EXECUTE FUNCTION tasker.refuse_change_of_record();

CREATE TABLE tasker.dlq_totals (
    namespace         text NOT NULL,
    dlq_reason        tasker.dlq_reason NOT NULL,
    resolution_status tasker.dlq_resolution_status NOT NULL,
    entries           bigint NOT NULL,
    open_seconds      numeric NOT NULL,
    oldest_entry      timestamptz NOT NULL,
    newest_entry      timestamptz NOT NULL,
    PRIMARY KEY (namespace, dlq_reason, resolution_status),
    CONSTRAINT dlq_totals_are_of_ended_entries CHECK (resolution_status <> 'pending')
);
COMMENT ON TABLE tasker.dlq_totals IS 'Investigations that have ended, added up by namespace, reason and how they ended.';
COMMENT ON COLUMN tasker.dlq_totals.open_seconds IS 'How long they were open, all together.';

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

CREATE TABLE tasker.staleness_thresholds (
    only_row                         boolean DEFAULT true PRIMARY KEY,
    waiting_for_dependencies_minutes integer NOT NULL DEFAULT 60,
    waiting_for_retry_minutes        integer NOT NULL DEFAULT 30,
    steps_in_process_minutes         integer NOT NULL DEFAULT 30,
    updated_at                       timestamptz NOT NULL DEFAULT now(),
    error_recovery_minutes           integer NOT NULL DEFAULT 60,
    applied_at                       timestamptz,
    CONSTRAINT staleness_recovery_is_positive CHECK (error_recovery_minutes > 0),
    CONSTRAINT staleness_thresholds_are_positive CHECK (waiting_for_dependencies_minutes > 0 AND waiting_for_retry_minutes > 0 AND steps_in_process_minutes > 0),
    CONSTRAINT staleness_thresholds_is_one_row CHECK (only_row)
);
COMMENT ON TABLE tasker.staleness_thresholds IS 'The server''s staleness thresholds, from its configuration. A template''s own thresholds win.';
COMMENT ON COLUMN tasker.staleness_thresholds.error_recovery_minutes IS 'How long a task may stand in error without an investigation.';
COMMENT ON COLUMN tasker.staleness_thresholds.applied_at IS 'The updated_at whose thresholds every watched task has. Another one: a server is about to apply them.';

INSERT INTO tasker.staleness_thresholds (applied_at) VALUES (clock_timestamp());

CREATE TABLE tasker.redaction (
    only_row      boolean DEFAULT true PRIMARY KEY,
    key_pattern   text NOT NULL,
    key_words     text[] NOT NULL,
    paths         jsonb NOT NULL DEFAULT '[]',
    updated_at    timestamptz NOT NULL DEFAULT now(),
    text_patterns text[],
    CONSTRAINT redaction_is_one_row CHECK (only_row)
);
COMMENT ON TABLE tasker.redaction IS 'What the evidence of investigations must not show, from the server''s configuration.';
COMMENT ON COLUMN tasker.redaction.key_pattern IS 'Regular expression of the keys whose values are hidden, for the words of a key (function key_words).';
COMMENT ON COLUMN tasker.redaction.key_words IS 'One regular expression for the text of a document: one that does not match holds nothing that is hidden (function document_pattern).';
COMMENT ON COLUMN tasker.redaction.paths IS 'Places in the snapshot that are hidden: arrays of keys; * stands for each key or element.';
COMMENT ON COLUMN tasker.redaction.text_patterns IS 'Regular expressions of what is hidden inside of texts: three groups, what stays before, what is hidden, what stays after.';

INSERT INTO tasker.redaction (key_pattern, key_words) VALUES (
    '^(.*password.*|.*passwd.*|passphrase|.*secret.*|.*token|.*apikey|.*accesskey.*|.*privatekey|.*credential.*|authorization|proxyauthorization|cookie|setcookie|cardnumber|cvv|cvc|iban|ssn)$',
    '{password,passwd,passphrase,secret,token,apikey,accesskey,privatekey,credential,authorization,proxyauthorization,cookie,setcookie,cardnumber,cvv,cvc,iban,ssn}'
);
