-- What investigations have in common: the template, the step that failed, and its
-- error without what differs from task to task. Four thousand same failures are one
-- case then, and what became of earlier ones is found. Stored with the entry, as
-- evidence: the error of the step is another one when somebody asks.

ALTER TABLE tasker.tasks_dlq
    ADD COLUMN namespace     text,
    ADD COLUMN task_name     text,
    ADD COLUMN step_name     text,
    ADD COLUMN error_pattern text,
    ADD COLUMN case_key      uuid;
COMMENT ON COLUMN tasker.tasks_dlq.error_pattern IS 'The message of the step''s error when the entry was opened, without ids and numbers; null when no step failed.';
COMMENT ON COLUMN tasker.tasks_dlq.case_key IS 'The same for investigations of the same failure: namespace, template, reason, step and error.';

-- Of entries from before, the error is told by the step as it stands, unless it may
-- be that it is to be hidden. What the functions error_pattern and case_key do, which come
-- after the migrations.
UPDATE tasker.tasks_dlq d
SET namespace = t.namespace, task_name = t.name
FROM tasker.tasks t
WHERE t.task_uuid = d.task_uuid;
UPDATE tasker.tasks_dlq d
SET step_name = s.name,
    error_pattern = CASE WHEN r.paths = '[]' AND (cardinality(r.key_words) = 0 OR 'stepserrormessage' !~ array_to_string(r.key_words, '|')) THEN left(regexp_replace(left(s.error ->> 'message', 500),
        '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|\m0x[0-9a-fA-F]+\M|\m(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{7,}\M|[0-9]+([.,:][0-9]+)*', '#', 'g'), 200) END
FROM tasker.workflow_steps s
CROSS JOIN tasker.redaction r
WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND r.only_row;
UPDATE tasker.tasks_dlq
SET case_key = md5(concat_ws(E'\x1f', namespace, task_name, dlq_reason, detail_code, coalesce(step_name, ''), coalesce(error_pattern, '')))::uuid;

ALTER TABLE tasker.tasks_dlq
    ALTER COLUMN namespace SET NOT NULL,
    ALTER COLUMN task_name SET NOT NULL,
    ALTER COLUMN case_key SET NOT NULL;

-- The cases that are open; counts by reason read the same index.
CREATE INDEX tasks_dlq_pending_by_case ON tasker.tasks_dlq (dlq_reason, case_key, dlq_timestamp) INCLUDE (recovered_at)
    WHERE resolution_status = 'pending';
DROP INDEX tasker.tasks_dlq_pending_by_reason;
-- How earlier ones ended, and how many ended when: entered when one ends, not when
-- it is opened.
CREATE INDEX tasks_dlq_ended_by_case ON tasker.tasks_dlq (case_key, resolved_at DESC) WHERE resolution_status <> 'pending';
CREATE INDEX tasks_dlq_by_end ON tasker.tasks_dlq (resolved_at) WHERE resolution_status <> 'pending';

CREATE TRIGGER entry_case_never_changes
    BEFORE UPDATE ON tasker.tasks_dlq
    FOR EACH ROW
    WHEN (
        (OLD.namespace, OLD.task_name, OLD.step_name, OLD.error_pattern, OLD.case_key)
        IS DISTINCT FROM (NEW.namespace, NEW.task_name, NEW.step_name, NEW.error_pattern, NEW.case_key)
    )
    EXECUTE FUNCTION tasker.refuse_change_of_evidence();
