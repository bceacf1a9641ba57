-- Cases: investigations with the same cause.

CREATE TABLE tasker.cases (
    case_id       uuid DEFAULT tasker.uuid_generate_v7() PRIMARY KEY,
    namespace     text NOT NULL,
    task_name     text NOT NULL,
    step_name     text NOT NULL,
    dlq_reason    tasker.dlq_reason NOT NULL,
    detail_code   text NOT NULL,
    error_type    text NOT NULL,
    error_pattern text NOT NULL,
    state         text NOT NULL DEFAULT 'new',
    state_since   timestamptz NOT NULL,
    first_seen_at timestamptz NOT NULL,
    level         integer NOT NULL DEFAULT 0,
    owner         text,
    owned_until   timestamptz,
    snoozed_until timestamptz,
    snooze_above  bigint,
    fixed_in      text,
    resolved_at   timestamptz,
    merged_into   uuid,
    updated_at    timestamptz NOT NULL,
    digested_at   timestamptz,
    CONSTRAINT case_owner_has_an_end CHECK ((owner IS NULL) = (owned_until IS NULL)),
    CONSTRAINT case_resolved_has_a_time CHECK ((state = 'resolved') = (resolved_at IS NOT NULL)),
    CONSTRAINT case_resting_has_an_end CHECK (snooze_above IS NULL OR snoozed_until IS NOT NULL),
    CONSTRAINT case_state_is_known CHECK (state IN ('new', 'ongoing', 'escalating', 'regressed', 'resting', 'resolved')),
    CONSTRAINT cases_merged_into_fkey FOREIGN KEY (merged_into) REFERENCES tasker.cases (case_id)
);
COMMENT ON TABLE tasker.cases IS 'Investigations of one cause: where it is worked on together. How many are open is counted in tasker.case_members.';
COMMENT ON COLUMN tasker.cases.step_name IS 'Empty when no step failed.';
COMMENT ON COLUMN tasker.cases.error_pattern IS 'The error of its first investigation, without what differs from task to task.';
COMMENT ON COLUMN tasker.cases.level IS 'The highest of 100, 1,000 and 10,000 that its open investigations have passed; 0 for none. Each counts as an escalation once.';
COMMENT ON COLUMN tasker.cases.owned_until IS 'When the ownership ends by itself.';
COMMENT ON COLUMN tasker.cases.snoozed_until IS 'The case rests until then, or until more than snooze_above investigations are open.';
COMMENT ON COLUMN tasker.cases.fixed_in IS 'The version of the worker in which the cause is repaired: failures of earlier ones are no regression.';
COMMENT ON COLUMN tasker.cases.merged_into IS 'The case that its fingerprints belong to since it was merged.';
COMMENT ON COLUMN tasker.cases.digested_at IS 'When it was last part of a digest: it was too small to be told of by itself, and nobody had taken it.';
CREATE INDEX cases_open ON tasker.cases (case_id) WHERE state <> 'resolved';
CREATE INDEX cases_open_of_namespace ON tasker.cases (namespace, case_id) WHERE state <> 'resolved';
CREATE INDEX cases_resolved ON tasker.cases (resolved_at DESC, case_id) WHERE state = 'resolved';
CREATE INDEX cases_resolved_of_namespace ON tasker.cases (namespace, resolved_at DESC, case_id) WHERE state = 'resolved';

CREATE TABLE tasker.case_fingerprints (
    fingerprint   uuid PRIMARY KEY,
    case_id       uuid NOT NULL,
    home_case_id  uuid NOT NULL,
    version       smallint NOT NULL,
    error_type    text NOT NULL,
    error_pattern text NOT NULL,
    first_seen_at timestamptz NOT NULL,
    CONSTRAINT case_fingerprints_case_id_fkey FOREIGN KEY (case_id) REFERENCES tasker.cases (case_id),
    CONSTRAINT case_fingerprints_home_case_id_fkey FOREIGN KEY (home_case_id) REFERENCES tasker.cases (case_id)
);
COMMENT ON TABLE tasker.case_fingerprints IS 'Which case a fingerprint belongs to. A merge changes case_id, and can be undone because home_case_id stays.';
COMMENT ON COLUMN tasker.case_fingerprints.version IS 'The version of the rules that the fingerprint was first computed with.';
CREATE INDEX case_fingerprints_by_case ON tasker.case_fingerprints (case_id);
CREATE INDEX case_fingerprints_by_home ON tasker.case_fingerprints (home_case_id);

CREATE TABLE tasker.case_members (
    dlq_entry_uuid      uuid PRIMARY KEY,
    namespace           text NOT NULL,
    fingerprint         uuid,
    fingerprint_version smallint NOT NULL DEFAULT 0,
    opened_at           timestamptz NOT NULL,
    acted_at            timestamptz,
    failed_again_at     timestamptz,
    recovered_at        timestamptz,
    ended_at            timestamptz,
    revision            integer NOT NULL DEFAULT 0,
    task_name           text NOT NULL,
    task_version        text NOT NULL,
    step_name           text NOT NULL,
    dlq_reason          tasker.dlq_reason NOT NULL,
    detail_code         text NOT NULL,
    error_type          text,
    error_message       text,
    error_fingerprint   text,
    worker_uuid         text,
    worker_name         text,
    worker_version      text,
    attempted_at        timestamptz,
    resolution_status   tasker.dlq_resolution_status
) WITH (fillfactor=70);
COMMENT ON TABLE tasker.case_members IS 'A row for each investigation: its newest failure, by which it belongs to a case, and how far its repair is. It follows the investigation and its history.';
COMMENT ON COLUMN tasker.case_members.fingerprint IS 'Null until it is computed, a moment after the failure.';
COMMENT ON COLUMN tasker.case_members.fingerprint_version IS 'The version of the rules it was computed with; 0: it is to be computed.';
COMMENT ON COLUMN tasker.case_members.acted_at IS 'When a person last repaired a step of the task, or cancelled the task.';
COMMENT ON COLUMN tasker.case_members.failed_again_at IS 'When a step of the task last failed for good after that.';
COMMENT ON COLUMN tasker.case_members.revision IS 'Rises when the failure is another one.';
COMMENT ON COLUMN tasker.case_members.error_message IS 'The redacted message of the newest failure, as it is stored of the step.';
COMMENT ON COLUMN tasker.case_members.error_fingerprint IS 'What the handler says is the same failure.';
COMMENT ON COLUMN tasker.case_members.attempted_at IS 'When the attempt began that failed.';
COMMENT ON COLUMN tasker.case_members.resolution_status IS 'How the investigation ended. Null while it is open, and when it ended before the column was added.';
CREATE INDEX case_members_by_end ON tasker.case_members
    (ended_at) INCLUDE (resolution_status, acted_at, failed_again_at, dlq_entry_uuid) WHERE ended_at IS NOT NULL;
CREATE INDEX case_members_ended ON tasker.case_members (fingerprint, ended_at DESC) WHERE ended_at IS NOT NULL;
CREATE INDEX case_members_of_namespace_by_end ON tasker.case_members
    (namespace, ended_at) INCLUDE (resolution_status, acted_at, failed_again_at, dlq_entry_uuid) WHERE ended_at IS NOT NULL;
CREATE INDEX case_members_open ON tasker.case_members
    (namespace, fingerprint, opened_at) INCLUDE (acted_at, failed_again_at, recovered_at, dlq_entry_uuid) WHERE ended_at IS NULL;
CREATE INDEX case_members_to_classify ON tasker.case_members (fingerprint_version, opened_at) WHERE ended_at IS NULL;

CREATE TABLE tasker.case_history (
    history_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    case_id    uuid NOT NULL,
    event      text NOT NULL,
    actor      text NOT NULL,
    notes      text,
    metadata   jsonb,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT case_notes_are_short CHECK (length(notes) <= 10000),
    CONSTRAINT case_history_case_id_fkey FOREIGN KEY (case_id) REFERENCES tasker.cases (case_id)
);
COMMENT ON TABLE tasker.case_history IS 'Every change of a case: who, when, what. Append-only.';
CREATE INDEX case_history_by_case ON tasker.case_history (case_id, history_id);

CREATE TRIGGER case_history_is_never_removed BEFORE TRUNCATE ON tasker.case_history
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_change_of_record();

CREATE TRIGGER case_history_never_changes BEFORE DELETE OR UPDATE ON tasker.case_history
    FOR EACH ROW
    EXECUTE FUNCTION tasker.refuse_change_of_record();

CREATE TABLE tasker.case_refinements (
    refinement_id uuid DEFAULT tasker.uuid_generate_v7() PRIMARY KEY,
    case_id       uuid NOT NULL,
    fingerprint   uuid NOT NULL,
    field         text NOT NULL,
    literal       text NOT NULL,
    actor         text NOT NULL,
    reason        text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_at    timestamptz,
    CONSTRAINT refinement_field_is_known CHECK (field IN ('error_message', 'error_type', 'worker_version', 'task_version')),
    CONSTRAINT refinement_literal_is_short CHECK (length(literal) >= 1 AND length(literal) <= 200),
    CONSTRAINT case_refinements_fingerprint_field_literal_key UNIQUE (fingerprint, field, literal),
    CONSTRAINT case_refinements_case_id_fkey FOREIGN KEY (case_id) REFERENCES tasker.cases (case_id),
    CONSTRAINT case_refinements_fingerprint_fkey FOREIGN KEY (fingerprint) REFERENCES tasker.case_fingerprints (fingerprint)
);
COMMENT ON TABLE tasker.case_refinements IS 'How cases were split: failures of a fingerprint that have a text in a field are another case.';
COMMENT ON COLUMN tasker.case_refinements.applied_at IS 'When those that were open then had followed.';
CREATE INDEX case_refinements_of_case ON tasker.case_refinements (case_id);
CREATE INDEX case_refinements_to_apply ON tasker.case_refinements (created_at) WHERE applied_at IS NULL;
