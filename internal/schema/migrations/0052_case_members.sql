-- Cases are things of their own: open investigations of one cause, with a state, an owner
-- and a history. An investigation belongs to the case of its fingerprint, which programs
-- compute from what tasker.case_members keeps of its newest failure (package
-- fingerprint); the rules may change, so it is beside the evidence and no part of it.

CREATE TABLE tasker.cases (
    case_id       uuid PRIMARY KEY DEFAULT tasker.uuid_generate_v7(),
    namespace     text              NOT NULL,
    task_name     text              NOT NULL,
    step_name     text              NOT NULL,
    dlq_reason    tasker.dlq_reason NOT NULL,
    detail_code   text              NOT NULL,
    error_type    text              NOT NULL,
    error_pattern text              NOT NULL,
    state         text              NOT NULL DEFAULT 'new',
    state_since   timestamptz       NOT NULL,
    first_seen_at timestamptz       NOT NULL,
    level         integer           NOT NULL DEFAULT 0,
    owner         text,
    owned_until   timestamptz,
    snoozed_until timestamptz,
    snooze_above  bigint,
    fixed_in      text,
    resolved_at   timestamptz,
    merged_into   uuid REFERENCES tasker.cases (case_id),
    updated_at    timestamptz       NOT NULL,
    CONSTRAINT case_state_is_known CHECK (state IN ('new', 'ongoing', 'escalating', 'regressed', 'resting', 'resolved')),
    CONSTRAINT case_owner_has_an_end CHECK ((owner IS NULL) = (owned_until IS NULL)),
    CONSTRAINT case_resolved_has_a_time CHECK ((state = 'resolved') = (resolved_at IS NOT NULL)),
    CONSTRAINT case_resting_has_an_end CHECK (snooze_above IS NULL OR snoozed_until IS NOT NULL)
);
CREATE INDEX cases_open ON tasker.cases (case_id) WHERE state <> 'resolved';
CREATE INDEX cases_open_of_namespace ON tasker.cases (namespace, case_id) WHERE state <> 'resolved';
CREATE INDEX cases_resolved ON tasker.cases (resolved_at DESC, case_id) WHERE state = 'resolved';
CREATE INDEX cases_resolved_of_namespace ON tasker.cases (namespace, resolved_at DESC, case_id) WHERE state = 'resolved';
COMMENT ON TABLE tasker.cases IS 'Investigations of one cause: where it is worked on together. How many are open is counted in tasker.case_members.';
COMMENT ON COLUMN tasker.cases.step_name IS 'Empty when no step failed.';
COMMENT ON COLUMN tasker.cases.error_pattern IS 'The error of its first investigation, without what differs from task to task.';
COMMENT ON COLUMN tasker.cases.level IS 'The highest of 100, 1,000 and 10,000 that its open investigations have passed; 0 for none. Each counts as an escalation once.';
COMMENT ON COLUMN tasker.cases.owned_until IS 'When the ownership ends by itself.';
COMMENT ON COLUMN tasker.cases.snoozed_until IS 'The case rests until then, or until more than snooze_above investigations are open.';
COMMENT ON COLUMN tasker.cases.fixed_in IS 'The version of the worker in which the cause is repaired: failures of earlier ones are no regression.';
COMMENT ON COLUMN tasker.cases.merged_into IS 'The case that its fingerprints belong to since it was merged.';

CREATE TABLE tasker.case_fingerprints (
    fingerprint   uuid PRIMARY KEY,
    case_id       uuid        NOT NULL REFERENCES tasker.cases (case_id),
    home_case_id  uuid        NOT NULL REFERENCES tasker.cases (case_id),
    version       smallint    NOT NULL,
    error_type    text        NOT NULL,
    error_pattern text        NOT NULL,
    first_seen_at timestamptz NOT NULL
);
CREATE INDEX case_fingerprints_by_case ON tasker.case_fingerprints (case_id);
CREATE INDEX case_fingerprints_by_home ON tasker.case_fingerprints (home_case_id);
COMMENT ON TABLE tasker.case_fingerprints IS 'Which case a fingerprint belongs to. A merge changes case_id, and can be undone because home_case_id stays.';
COMMENT ON COLUMN tasker.case_fingerprints.version IS 'The version of the rules that the fingerprint was first computed with.';

CREATE TABLE tasker.case_members (
    dlq_entry_uuid      uuid PRIMARY KEY, -- of tasker.tasks_dlq, without a foreign key: its check would be part of each failure
    namespace           text              NOT NULL,
    fingerprint         uuid,
    fingerprint_version smallint          NOT NULL DEFAULT 0,
    opened_at           timestamptz       NOT NULL,
    acted_at            timestamptz,
    failed_again_at     timestamptz,
    recovered_at        timestamptz,
    ended_at            timestamptz,
    revision            integer           NOT NULL DEFAULT 0,
    task_name           text              NOT NULL,
    task_version        text              NOT NULL,
    step_name           text              NOT NULL,
    dlq_reason          tasker.dlq_reason NOT NULL,
    detail_code         text              NOT NULL,
    error_type          text,
    error_message       text,
    error_fingerprint   text,
    worker_uuid         text,
    worker_name         text,
    worker_version      text,
    attempted_at        timestamptz
) WITH (fillfactor = 70);
CREATE INDEX case_members_open ON tasker.case_members (namespace, fingerprint, opened_at)
    INCLUDE (acted_at, failed_again_at, recovered_at, dlq_entry_uuid) WHERE ended_at IS NULL;
CREATE INDEX case_members_to_classify ON tasker.case_members (fingerprint_version, opened_at) WHERE ended_at IS NULL;
CREATE INDEX case_members_ended ON tasker.case_members (fingerprint, ended_at DESC) WHERE ended_at IS NOT NULL;
COMMENT ON TABLE tasker.case_members IS 'A row for each investigation: its newest failure, by which it belongs to a case, and how far its repair is. It follows the investigation and its history.';
COMMENT ON COLUMN tasker.case_members.fingerprint IS 'Null until it is computed, a moment after the failure.';
COMMENT ON COLUMN tasker.case_members.fingerprint_version IS 'The version of the rules it was computed with; 0: it is to be computed.';
COMMENT ON COLUMN tasker.case_members.acted_at IS 'When a person last repaired a step of the task, or cancelled the task.';
COMMENT ON COLUMN tasker.case_members.failed_again_at IS 'When a step of the task last failed for good after that.';
COMMENT ON COLUMN tasker.case_members.revision IS 'Rises when the failure is another one.';
COMMENT ON COLUMN tasker.case_members.error_message IS 'The redacted message of the newest failure: 4,096 characters, or its first and last 2,048.';
COMMENT ON COLUMN tasker.case_members.error_fingerprint IS 'What the handler says is the same failure.';
COMMENT ON COLUMN tasker.case_members.attempted_at IS 'When the attempt began that failed.';

CREATE TABLE tasker.case_history (
    history_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    case_id    uuid        NOT NULL REFERENCES tasker.cases (case_id),
    event      text        NOT NULL,
    actor      text        NOT NULL,
    notes      text,
    metadata   jsonb,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT case_notes_are_short CHECK (length(notes) <= 10000)
);
CREATE INDEX case_history_by_case ON tasker.case_history (case_id, history_id);
COMMENT ON TABLE tasker.case_history IS 'Every change of a case: who, when, what. Append-only.';
CREATE TRIGGER case_history_never_changes BEFORE DELETE OR UPDATE ON tasker.case_history
    FOR EACH ROW EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER case_history_is_never_removed BEFORE TRUNCATE ON tasker.case_history
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_change_of_record();

CREATE TABLE tasker.case_refinements (
    refinement_id uuid PRIMARY KEY DEFAULT tasker.uuid_generate_v7(),
    case_id       uuid        NOT NULL REFERENCES tasker.cases (case_id),
    fingerprint   uuid        NOT NULL REFERENCES tasker.case_fingerprints (fingerprint),
    field         text        NOT NULL,
    literal       text        NOT NULL,
    actor         text        NOT NULL,
    reason        text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_at    timestamptz,
    CONSTRAINT refinement_field_is_known CHECK (field IN ('error_message', 'error_type', 'worker_version', 'task_version')),
    CONSTRAINT refinement_literal_is_short CHECK (length(literal) BETWEEN 1 AND 200),
    UNIQUE (fingerprint, field, literal)
);
CREATE INDEX case_refinements_of_case ON tasker.case_refinements (case_id);
CREATE INDEX case_refinements_to_apply ON tasker.case_refinements (created_at) WHERE applied_at IS NULL;
COMMENT ON COLUMN tasker.case_refinements.applied_at IS 'When those that were open then had followed.';
COMMENT ON TABLE tasker.case_refinements IS 'How cases were split: failures of a fingerprint that have a text in a field are another case.';

-- The events of an investigation, and the row in tasker.case_members that follows them.
CREATE OR REPLACE FUNCTION tasker.tell_of_investigation() RETURNS trigger
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
        left(e.data #>> '{step,error_type}', 200), left(e.data #>> '{step,error_message}', 2048) || right(substr(e.data #>> '{step,error_message}', 2049), 2048),
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
        error_message = CASE WHEN f.step_name IS NULL THEN m.error_message ELSE left(f.error ->> 'message', 2048) || right(substr(f.error ->> 'message', 2049), 2048) END,
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

CREATE FUNCTION tasker.follow_entry() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE tasker.case_members SET ended_at = NEW.resolved_at, recovered_at = NEW.recovered_at WHERE dlq_entry_uuid = NEW.dlq_entry_uuid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_entry() IS 'Has the row in tasker.case_members follow its investigation.';
CREATE TRIGGER entry_has_its_member AFTER UPDATE OF resolution_status, recovered_at ON tasker.tasks_dlq FOR EACH ROW
    WHEN (OLD.resolved_at IS DISTINCT FROM NEW.resolved_at OR OLD.recovered_at IS DISTINCT FROM NEW.recovered_at)
    EXECUTE FUNCTION tasker.follow_entry();
