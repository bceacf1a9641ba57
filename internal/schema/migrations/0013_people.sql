-- Steps that wait for a person, and links that answer them.

CREATE TABLE tasker.human_steps (
    task_uuid     uuid NOT NULL,
    step_uuid     uuid NOT NULL,
    namespace     text NOT NULL,
    task_name     text NOT NULL,
    step_name     text NOT NULL,
    assignee      text NOT NULL DEFAULT '',
    assigned_by   text NOT NULL DEFAULT '',
    assigned_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    waiting       boolean NOT NULL DEFAULT true,
    waiting_since timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at        timestamptz NOT NULL DEFAULT 'infinity',
    escalated_at  timestamptz,
    PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.human_steps IS 'External steps that people answer: who, and whether they wait. A row stays when its step has ended, and is removed with its task.';
COMMENT ON COLUMN tasker.human_steps.task_name IS 'The name of the template.';
COMMENT ON COLUMN tasker.human_steps.assignee IS 'A person, or group: and a group. Empty: nobody in particular.';
COMMENT ON COLUMN tasker.human_steps.assigned_by IS 'Who said so. Empty: the template of the task.';
COMMENT ON COLUMN tasker.human_steps.waiting IS 'The step waits for an answer.';
COMMENT ON COLUMN tasker.human_steps.due_at IS 'The timeout of the wait; infinity: it has none.';
COMMENT ON COLUMN tasker.human_steps.escalated_at IS 'When escalate_to of the template became the assignee in this wait. Null: it did not.';
CREATE INDEX inbox_by_assignee ON tasker.human_steps (namespace, assignee, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_assignee_and_template ON tasker.human_steps (namespace, assignee, task_name, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_namespace ON tasker.human_steps (namespace, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_template ON tasker.human_steps (namespace, task_name, due_at, step_uuid) WHERE waiting;

CREATE TABLE tasker.human_step_history (
    change_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_uuid  uuid NOT NULL,
    step_uuid  uuid NOT NULL,
    event      text NOT NULL,
    actor      text NOT NULL,
    reason     text NOT NULL DEFAULT '',
    assignee   text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT human_step_event_is_known CHECK (event IN ('assigned', 'unassigned', 'escalated'))
);
COMMENT ON TABLE tasker.human_step_history IS 'Who gave an external step another assignee. Removed with its task.';
COMMENT ON COLUMN tasker.human_step_history.assignee IS 'Who was to answer from then on.';
CREATE INDEX human_step_history_of_step ON tasker.human_step_history (task_uuid, step_uuid, change_id);

CREATE TABLE tasker.answer_links (
    link_uuid  uuid PRIMARY KEY,
    task_uuid  uuid NOT NULL,
    step_uuid  uuid NOT NULL,
    fence      bigint NOT NULL,
    assignee   text NOT NULL,
    digest     bytea NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    revoked_at timestamptz,
    revoked_by text NOT NULL DEFAULT '',
    CONSTRAINT answer_link_digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT answer_link_is_used_or_revoked CHECK (used_at IS NULL OR revoked_at IS NULL)
);
COMMENT ON TABLE tasker.answer_links IS 'Links by which a step that waits for a person is answered once, without signing in. Removed with the task.';
COMMENT ON COLUMN tasker.answer_links.fence IS 'The fence of the wait for which it was made: the step has another one after a reset.';
COMMENT ON COLUMN tasker.answer_links.assignee IS 'For whom it was made. It is worth nothing once the step is assigned to somebody else.';
COMMENT ON COLUMN tasker.answer_links.digest IS 'The SHA-256 of the token, which is shown once.';
CREATE UNIQUE INDEX answer_link_digest_is_unique ON tasker.answer_links (digest);
CREATE INDEX answer_links_of_step ON tasker.answer_links (task_uuid, step_uuid, link_uuid);

CREATE FUNCTION tasker.refuse_restored_access() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% that has ended stays ended', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION tasker.refuse_restored_access() IS 'Refuses an update that would give access again that was taken away or used up.';
CREATE TRIGGER used_link_stays_used BEFORE UPDATE ON tasker.answer_links
    FOR EACH ROW WHEN ((OLD.used_at IS NOT NULL AND NEW.used_at IS NULL) OR (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NULL))
    EXECUTE FUNCTION tasker.refuse_restored_access('an answer link');
