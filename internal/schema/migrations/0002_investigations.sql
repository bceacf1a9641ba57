-- The tables of the investigations: the dead letter queue as evidence and as a
-- record of who looked into it.

CREATE TABLE tasker.tasks_dlq (
    dlq_entry_uuid    uuid PRIMARY KEY DEFAULT tasker.uuid_generate_v7(),
    task_uuid         uuid NOT NULL REFERENCES tasker.tasks,
    step_uuid         uuid,
    original_state    varchar(50) NOT NULL,
    dlq_reason        tasker.dlq_reason NOT NULL,
    detail_code       text NOT NULL,
    detected_by       text NOT NULL,
    dlq_timestamp     timestamptz NOT NULL DEFAULT now(),
    priority_at       timestamptz NOT NULL,
    task_snapshot     jsonb NOT NULL,
    resolution_status tasker.dlq_resolution_status NOT NULL DEFAULT 'pending',
    resolution_notes  text,
    resolved_at       timestamptz,
    resolved_by       varchar(255),
    metadata          jsonb,
    recovered_at      timestamptz,
    predecessor_uuid  uuid REFERENCES tasker.tasks_dlq,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT entry_ended_has_time_and_person CHECK (
        (resolution_status = 'pending') = (resolved_at IS NULL)
        AND (resolution_status = 'pending' OR (resolved_by IS NOT NULL AND btrim(resolution_notes) <> ''))
    )
);
COMMENT ON TABLE tasker.tasks_dlq IS 'Investigations: why a task is stuck, as evidence that never changes, and who looked into it.';
COMMENT ON COLUMN tasker.tasks_dlq.priority_at IS 'dlq_timestamp less the base priority of the reason in minutes: the order of the triage queue, which never changes because age grows equally for all.';
COMMENT ON COLUMN tasker.tasks_dlq.recovered_at IS 'When the task went on by itself although the entry is open.';

-- One open investigation a task, any number of ended ones.
CREATE UNIQUE INDEX idx_dlq_unique_pending_task ON tasker.tasks_dlq (task_uuid)
    WHERE resolution_status = 'pending';
-- The newest of a task.
CREATE INDEX tasks_dlq_by_task ON tasker.tasks_dlq (task_uuid, dlq_timestamp DESC);
-- The triage queue: what is open, not recovered first, then by priority.
CREATE INDEX tasks_dlq_queue ON tasker.tasks_dlq ((recovered_at IS NOT NULL), priority_at, dlq_entry_uuid)
    WHERE resolution_status = 'pending';
-- Lists, newest first.
CREATE INDEX tasks_dlq_by_status ON tasker.tasks_dlq (resolution_status, dlq_timestamp DESC, dlq_entry_uuid DESC);
CREATE INDEX tasks_dlq_by_time ON tasker.tasks_dlq (dlq_timestamp DESC, dlq_entry_uuid DESC);

CREATE TABLE tasker.tasks_dlq_history (
    history_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dlq_entry_uuid uuid NOT NULL REFERENCES tasker.tasks_dlq,
    event          text NOT NULL,
    actor          text NOT NULL,
    from_status    tasker.dlq_resolution_status,
    to_status      tasker.dlq_resolution_status NOT NULL,
    notes          text,
    metadata       jsonb,
    changed_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE tasker.tasks_dlq_history IS 'Every change of an investigation: who, when, from, to. Append-only.';
CREATE INDEX tasks_dlq_history_by_entry ON tasker.tasks_dlq_history (dlq_entry_uuid, history_id);

-- Evidence is frozen by the database, not by good manners.
CREATE FUNCTION tasker.refuse_change_of_evidence() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the evidence of investigation % never changes', OLD.dlq_entry_uuid
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION tasker.refuse_change_of_evidence() IS 'Refuses an update that would change what an investigation recorded when it was opened.';

CREATE TRIGGER entry_evidence_never_changes
    BEFORE UPDATE ON tasker.tasks_dlq
    FOR EACH ROW
    WHEN (
        OLD.task_uuid IS DISTINCT FROM NEW.task_uuid
        OR OLD.step_uuid IS DISTINCT FROM NEW.step_uuid
        OR OLD.original_state IS DISTINCT FROM NEW.original_state
        OR OLD.dlq_reason IS DISTINCT FROM NEW.dlq_reason
        OR OLD.detail_code IS DISTINCT FROM NEW.detail_code
        OR OLD.detected_by IS DISTINCT FROM NEW.detected_by
        OR OLD.dlq_timestamp IS DISTINCT FROM NEW.dlq_timestamp
        OR OLD.priority_at IS DISTINCT FROM NEW.priority_at
        OR OLD.task_snapshot IS DISTINCT FROM NEW.task_snapshot
        OR OLD.predecessor_uuid IS DISTINCT FROM NEW.predecessor_uuid
        OR OLD.created_at IS DISTINCT FROM NEW.created_at
    )
    EXECUTE FUNCTION tasker.refuse_change_of_evidence();
