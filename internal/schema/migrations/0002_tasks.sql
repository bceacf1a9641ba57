-- Tasks: one row for each run of a template, its history, and what it was created with.

CREATE TABLE tasker.tasks (
    task_uuid             uuid PRIMARY KEY,
    template_uuid         uuid NOT NULL,
    namespace             text NOT NULL,
    name                  text NOT NULL,
    version               text NOT NULL,
    state                 text NOT NULL,
    state_since           timestamptz NOT NULL,
    warn_at               timestamptz,
    stale_at              timestamptz,
    ends_at               timestamptz,
    priority              integer NOT NULL DEFAULT 0,
    context               jsonb NOT NULL,
    initiator             text NOT NULL DEFAULT '',
    source_system         text NOT NULL DEFAULT '',
    reason                text NOT NULL DEFAULT '',
    tags                  text[] NOT NULL DEFAULT '{}',
    correlation_id        text NOT NULL,
    parent_correlation_id text NOT NULL DEFAULT '',
    idempotency_key       text,
    request_digest        bytea,
    recreated_from        uuid,
    start_at              timestamptz,
    created_at            timestamptz NOT NULL,
    updated_at            timestamptz NOT NULL,
    completed_at          timestamptz,
    attend_by             timestamptz,
    context_bytes         integer,
    phase                 text,
    outcome               text,
    parent_task_uuid      uuid,
    parent_step_uuid      uuid,
    depth                 smallint,
    schedule_uuid         uuid,
    options               jsonb,
    CONSTRAINT task_context_is_an_object CHECK (jsonb_typeof(context) = 'object'),
    CONSTRAINT task_rests_only_where_it_may CHECK (state IN ('pending', 'steps_in_process', 'waiting_for_dependencies', 'waiting_for_retry', 'complete', 'error', 'cancelled')),
    CONSTRAINT task_watched_has_deadlines CHECK ((state IN ('steps_in_process', 'waiting_for_dependencies', 'waiting_for_retry')) = (stale_at IS NOT NULL AND warn_at IS NOT NULL)),
    CONSTRAINT tasks_template_uuid_fkey FOREIGN KEY (template_uuid) REFERENCES tasker.task_templates (template_uuid)
) WITH (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
COMMENT ON TABLE tasker.tasks IS 'One row a task: a run of a template.';
COMMENT ON COLUMN tasker.tasks.state_since IS 'When the task entered its state, or last made progress in it (to about a second).';
COMMENT ON COLUMN tasker.tasks.warn_at IS 'Instant from which the staleness monitor warns: 80 % of the threshold.';
COMMENT ON COLUMN tasker.tasks.stale_at IS 'Instant from which the task counts as stale: state_since and the threshold of its state. Null in states that nobody watches.';
COMMENT ON COLUMN tasker.tasks.ends_at IS 'Instant at which max_duration_minutes of the template is over. Null when it has none.';
COMMENT ON COLUMN tasker.tasks.attend_by IS 'Instant from which a task in error needs an investigation if it has none. Null when it has one, or is not in error.';
COMMENT ON COLUMN tasker.tasks.context_bytes IS 'Size of the context as it is read back. Null: not measured.';
COMMENT ON COLUMN tasker.tasks.phase IS 'compensating: the open task undoes what its steps have done. Null: it goes forward, or has ended.';
COMMENT ON COLUMN tasker.tasks.outcome IS 'Of a cancelled task that was to undo what it had done: compensated, compensation_stopped or nothing_to_compensate.';
COMMENT ON COLUMN tasker.tasks.parent_task_uuid IS 'The task whose step started this one. It may have been removed since. Null: no task did.';
COMMENT ON COLUMN tasker.tasks.parent_step_uuid IS 'The step of that task.';
COMMENT ON COLUMN tasker.tasks.depth IS 'How many tasks are above it. Null: none.';
COMMENT ON COLUMN tasker.tasks.schedule_uuid IS 'The schedule that made it. It may have been removed since. Null: none did.';
COMMENT ON COLUMN tasker.tasks.options IS 'What the task was created with beyond its request, such as start_by, as it is shown. Null: nothing.';
CREATE UNIQUE INDEX task_idempotency_key_is_unique ON tasker.tasks (namespace, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX tasks_by_duration ON tasker.tasks (ends_at) WHERE ends_at IS NOT NULL AND stale_at IS NOT NULL;
CREATE INDEX tasks_by_phase ON tasker.tasks (phase, task_uuid DESC) WHERE phase IS NOT NULL;
CREATE INDEX tasks_by_state ON tasker.tasks (state, task_uuid DESC);
CREATE INDEX tasks_by_threshold ON tasker.tasks
    ((extract(epoch FROM stale_at - state_since)::float8), state_since, task_uuid) WHERE stale_at IS NOT NULL;
CREATE INDEX tasks_of_parent ON tasker.tasks (parent_task_uuid, task_uuid DESC) WHERE parent_task_uuid IS NOT NULL;
CREATE INDEX tasks_of_template ON tasker.tasks (template_uuid, task_uuid DESC);
CREATE INDEX tasks_to_start ON tasker.tasks (start_at) WHERE state = 'pending';
CREATE INDEX tasks_unattended ON tasker.tasks (attend_by) WHERE attend_by IS NOT NULL;

CREATE FUNCTION tasker.follow_child_task() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.parent_step_uuid IS NOT NULL THEN
        INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
        VALUES ('ended', NEW.task_uuid, NEW.parent_task_uuid, NEW.parent_step_uuid)
        ON CONFLICT DO NOTHING;
    END IF;
    IF NEW.state = 'cancelled' THEN
        INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
        SELECT 'cancel', c.task_uuid, c.parent_task_uuid, c.parent_step_uuid
        FROM tasker.tasks c
        WHERE c.parent_task_uuid = NEW.task_uuid AND c.state NOT IN ('complete', 'cancelled')
          AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
        ORDER BY c.task_uuid
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_child_task() IS 'Leaves word that a child task has ended, and that the children of a cancelled task are to be cancelled.';
CREATE TRIGGER child_task_is_followed AFTER UPDATE OF state ON tasker.tasks
    FOR EACH ROW WHEN (
        NEW.state IN ('complete', 'cancelled')
        AND OLD.state <> NEW.state
        AND (NEW.state = 'cancelled' OR NEW.parent_step_uuid IS NOT NULL)
    )
    EXECUTE FUNCTION tasker.follow_child_task();

CREATE FUNCTION tasker.tell_of_compensation() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data)
    VALUES ('task.compensated', 'task', NEW.task_uuid, ARRAY[NEW.namespace], jsonb_build_object(
        'summary', format('%s: the compensation of a task of %s has ended: %s', NEW.namespace, NEW.name, replace(NEW.outcome, '_', ' ')),
        'severity', CASE NEW.outcome WHEN 'compensation_stopped' THEN 'medium' ELSE 'low' END,
        'namespace', NEW.namespace, 'template', NEW.name, 'task', NEW.task_uuid, 'state', NEW.outcome,
        'began_at', NEW.state_since, 'path', '/ui/tasks/' || NEW.task_uuid,
        'entries', 0, 'waiting', 0, 'proving', 0, 'failed_again', 0, 'recovered', 0, 'cases', 0, 'cases_open', 0));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.tell_of_compensation() IS 'Puts a message on the list that says how the compensation of a task has ended.';
CREATE TRIGGER compensation_is_told AFTER UPDATE OF outcome ON tasker.tasks
    FOR EACH ROW WHEN (OLD.outcome IS NULL AND NEW.outcome IS NOT NULL)
    EXECUTE FUNCTION tasker.tell_of_compensation();

CREATE FUNCTION tasker.follow_scheduled_task() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.schedule_signals (task_uuid, schedule_uuid)
    SELECT t.task_uuid, t.schedule_uuid
    FROM tasker.tasks t
    WHERE t.task_uuid = NEW.task_uuid AND t.schedule_uuid IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_scheduled_task() IS 'Leaves word that a task of a schedule has ended, or was given up.';
CREATE TRIGGER scheduled_task_is_followed AFTER UPDATE OF state ON tasker.tasks
    FOR EACH ROW WHEN (NEW.schedule_uuid IS NOT NULL AND NEW.state IN ('complete', 'cancelled') AND OLD.state <> NEW.state)
    EXECUTE FUNCTION tasker.follow_scheduled_task();

CREATE FUNCTION tasker.watch_task_in_error() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.state <> 'error' OR NEW.attend_by = 'infinity' THEN
        NEW.attend_by := NULL;
        RETURN NEW;
    END IF;
    NEW.attend_by := CASE WHEN NOT EXISTS (
        SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = NEW.task_uuid AND d.resolution_status = 'pending'
    ) THEN clock_timestamp() + (
        SELECT make_interval(mins => st.error_recovery_minutes) FROM tasker.staleness_thresholds st WHERE st.only_row
    ) END;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.watch_task_in_error() IS 'Sets the instant from which a task in error needs an investigation.';
CREATE TRIGGER task_in_error_is_watched BEFORE UPDATE OF state ON tasker.tasks
    FOR EACH ROW WHEN (OLD.state <> NEW.state AND ('error' = OLD.state OR 'error' = NEW.state))
    EXECUTE FUNCTION tasker.watch_task_in_error();

CREATE TRIGGER task_made_in_error_is_watched BEFORE INSERT ON tasker.tasks
    FOR EACH ROW WHEN (NEW.state = 'error')
    EXECUTE FUNCTION tasker.watch_task_in_error();

CREATE FUNCTION tasker.end_task_options() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.state = 'pending' THEN
        DELETE FROM tasker.debounced_tasks x WHERE x.task_uuid = NEW.task_uuid;
    END IF;
    IF NEW.state IN ('complete', 'cancelled') THEN
        DELETE FROM tasker.task_starts x WHERE x.task_uuid = NEW.task_uuid;
        DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
        UPDATE tasker.deadlines x SET ended_at = clock_timestamp(), look_at = 'infinity' WHERE x.task_uuid = NEW.task_uuid;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.end_task_options() IS 'Deletes the unique key, the debounce key, the due times and the start of a task that has ended.';
CREATE TRIGGER task_options_end AFTER UPDATE OF state ON tasker.tasks
    FOR EACH ROW WHEN (NEW.options IS NOT NULL AND OLD.state <> NEW.state AND (OLD.state = 'pending' OR NEW.state IN ('complete', 'cancelled')))
    EXECUTE FUNCTION tasker.end_task_options();

CREATE TABLE tasker.task_history (
    task_uuid     uuid NOT NULL,
    transition_id bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY 8) NOT NULL,
    from_state    text NOT NULL,
    to_state      text NOT NULL,
    event         text,
    actor         text,
    reason        text,
    detail        jsonb,
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (task_uuid, transition_id)
);
COMMENT ON TABLE tasker.task_history IS 'History of the tasks, append-only: read it as tasker.task_transitions.';
COMMENT ON COLUMN tasker.task_history.event IS 'Null: the row is the whole path from from_state to to_state in tasker.task_settle_paths.';

CREATE FUNCTION tasker.refuse_removal_of_records() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    _record uuid;
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'workflow_steps' THEN -- another version may remove steps that never began
            SELECT r.task_uuid INTO _record FROM removed r JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid WHERE r.state <> 'pending' LIMIT 1;
        WHEN 'operation_items' THEN
            SELECT r.operation_uuid INTO _record FROM removed r JOIN tasker.operations o ON o.operation_uuid = r.operation_uuid WHERE o.settled_at IS NULL LIMIT 1;
        WHEN 'operations' THEN
            SELECT r.operation_uuid INTO _record FROM removed r WHERE r.settled_at IS NULL LIMIT 1;
        ELSE
            SELECT r.task_uuid INTO _record FROM removed r JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid LIMIT 1;
    END CASE;
    IF _record IS NOT NULL THEN
        RAISE EXCEPTION 'rows of % are not removed: % is investigated or has not settled', TG_TABLE_NAME, _record
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.refuse_removal_of_records() IS 'Refuses to remove steps and histories of investigated tasks, and operations that have not settled.';
CREATE TRIGGER history_of_investigated_task_stays AFTER DELETE ON tasker.task_history REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_removal_of_records();

CREATE TABLE tasker.task_settle_paths (
    rest_from  text NOT NULL,
    rest_to    text NOT NULL,
    ordinal    integer NOT NULL,
    event      text NOT NULL,
    from_state text NOT NULL,
    to_state   text NOT NULL,
    PRIMARY KEY (rest_from, rest_to, ordinal)
);
COMMENT ON TABLE tasker.task_settle_paths IS 'The history rows that lead from one resting state of a task to another: a copy of the lifecycle table, kept equal by a test.';

INSERT INTO tasker.task_settle_paths (rest_from, rest_to, ordinal, event, from_state, to_state) VALUES
    ('pending', 'steps_in_process', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'steps_in_process', 2, 'enqueue_steps', 'initializing', 'enqueuing_steps'),
    ('pending', 'steps_in_process', 3, 'start', 'enqueuing_steps', 'steps_in_process'),
    ('pending', 'waiting_for_retry', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'waiting_for_retry', 2, 'evaluate', 'initializing', 'evaluating_results'),
    ('pending', 'waiting_for_retry', 3, 'await_retry', 'evaluating_results', 'waiting_for_retry'),
    ('pending', 'waiting_for_dependencies', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'waiting_for_dependencies', 2, 'await', 'initializing', 'waiting_for_dependencies'),
    ('pending', 'error', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'error', 2, 'evaluate', 'initializing', 'evaluating_results'),
    ('pending', 'error', 3, 'block', 'evaluating_results', 'blocked_by_failures'),
    ('pending', 'error', 4, 'give_up', 'blocked_by_failures', 'error'),
    ('pending', 'complete', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'complete', 2, 'evaluate', 'initializing', 'evaluating_results'),
    ('pending', 'complete', 3, 'finish', 'evaluating_results', 'complete'),
    ('steps_in_process', 'waiting_for_retry', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'waiting_for_retry', 2, 'await_retry', 'evaluating_results', 'waiting_for_retry'),
    ('steps_in_process', 'waiting_for_dependencies', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'waiting_for_dependencies', 2, 'await', 'evaluating_results', 'waiting_for_dependencies'),
    ('steps_in_process', 'error', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'error', 2, 'block', 'evaluating_results', 'blocked_by_failures'),
    ('steps_in_process', 'error', 3, 'give_up', 'blocked_by_failures', 'error'),
    ('steps_in_process', 'complete', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'complete', 2, 'finish', 'evaluating_results', 'complete'),
    ('waiting_for_retry', 'steps_in_process', 1, 'enqueue_steps', 'waiting_for_retry', 'enqueuing_steps'),
    ('waiting_for_retry', 'steps_in_process', 2, 'start', 'enqueuing_steps', 'steps_in_process'),
    ('waiting_for_retry', 'waiting_for_dependencies', 1, 'evaluate', 'waiting_for_retry', 'evaluating_results'),
    ('waiting_for_retry', 'waiting_for_dependencies', 2, 'await', 'evaluating_results', 'waiting_for_dependencies'),
    ('waiting_for_retry', 'error', 1, 'evaluate', 'waiting_for_retry', 'evaluating_results'),
    ('waiting_for_retry', 'error', 2, 'block', 'evaluating_results', 'blocked_by_failures'),
    ('waiting_for_retry', 'error', 3, 'give_up', 'blocked_by_failures', 'error'),
    ('waiting_for_retry', 'complete', 1, 'evaluate', 'waiting_for_retry', 'evaluating_results'),
    ('waiting_for_retry', 'complete', 2, 'finish', 'evaluating_results', 'complete'),
    ('waiting_for_dependencies', 'steps_in_process', 1, 'enqueue_steps', 'waiting_for_dependencies', 'enqueuing_steps'),
    ('waiting_for_dependencies', 'steps_in_process', 2, 'start', 'enqueuing_steps', 'steps_in_process'),
    ('waiting_for_dependencies', 'waiting_for_retry', 1, 'evaluate', 'waiting_for_dependencies', 'evaluating_results'),
    ('waiting_for_dependencies', 'waiting_for_retry', 2, 'await_retry', 'evaluating_results', 'waiting_for_retry'),
    ('waiting_for_dependencies', 'error', 1, 'evaluate', 'waiting_for_dependencies', 'evaluating_results'),
    ('waiting_for_dependencies', 'error', 2, 'block', 'evaluating_results', 'blocked_by_failures'),
    ('waiting_for_dependencies', 'error', 3, 'give_up', 'blocked_by_failures', 'error'),
    ('waiting_for_dependencies', 'complete', 1, 'evaluate', 'waiting_for_dependencies', 'evaluating_results'),
    ('waiting_for_dependencies', 'complete', 2, 'finish', 'evaluating_results', 'complete'),
    ('error', 'steps_in_process', 1, 'enqueue_steps', 'error', 'enqueuing_steps'),
    ('error', 'steps_in_process', 2, 'start', 'enqueuing_steps', 'steps_in_process'),
    ('error', 'waiting_for_retry', 1, 'evaluate', 'error', 'evaluating_results'),
    ('error', 'waiting_for_retry', 2, 'await_retry', 'evaluating_results', 'waiting_for_retry'),
    ('error', 'waiting_for_dependencies', 1, 'evaluate', 'error', 'evaluating_results'),
    ('error', 'waiting_for_dependencies', 2, 'await', 'evaluating_results', 'waiting_for_dependencies'),
    ('error', 'complete', 1, 'evaluate', 'error', 'evaluating_results'),
    ('error', 'complete', 2, 'finish', 'evaluating_results', 'complete'),
    ('pending', 'cancelled', 1, 'initialize', 'pending', 'initializing'),
    ('pending', 'cancelled', 2, 'evaluate', 'initializing', 'evaluating_results'),
    ('pending', 'cancelled', 3, 'finish_compensation', 'evaluating_results', 'cancelled'),
    ('steps_in_process', 'cancelled', 1, 'evaluate', 'steps_in_process', 'evaluating_results'),
    ('steps_in_process', 'cancelled', 2, 'finish_compensation', 'evaluating_results', 'cancelled'),
    ('waiting_for_retry', 'cancelled', 1, 'evaluate', 'waiting_for_retry', 'evaluating_results'),
    ('waiting_for_retry', 'cancelled', 2, 'finish_compensation', 'evaluating_results', 'cancelled'),
    ('waiting_for_dependencies', 'cancelled', 1, 'evaluate', 'waiting_for_dependencies', 'evaluating_results'),
    ('waiting_for_dependencies', 'cancelled', 2, 'finish_compensation', 'evaluating_results', 'cancelled'),
    ('error', 'cancelled', 1, 'evaluate', 'error', 'evaluating_results'),
    ('error', 'cancelled', 2, 'finish_compensation', 'evaluating_results', 'cancelled');

CREATE TABLE tasker.task_attributes (
    task_uuid    uuid NOT NULL,
    namespace    text NOT NULL,
    name         text NOT NULL,
    text_value   text,
    number_value numeric,
    time_value   timestamptz,
    CONSTRAINT attribute_has_one_value CHECK (num_nonnulls(text_value, number_value, time_value) = 1)
);
COMMENT ON TABLE tasker.task_attributes IS 'What tasks are found by: a row for each tag, for the correlation id, initiator and source system that a task was given, and for each attribute that its template declares.';
COMMENT ON COLUMN tasker.task_attributes.name IS 'tag, correlation_id, initiator or source_system, or the name of an attribute that a template declares.';
COMMENT ON COLUMN tasker.task_attributes.text_value IS 'Of a text; true or false of a bool.';
CREATE INDEX task_attributes_by_number ON tasker.task_attributes
    (namespace, name, number_value, task_uuid NULLS FIRST) WHERE number_value IS NOT NULL;
CREATE INDEX task_attributes_by_text ON tasker.task_attributes (namespace, name, text_value, task_uuid NULLS FIRST) WHERE text_value IS NOT NULL;
CREATE INDEX task_attributes_by_time ON tasker.task_attributes (namespace, name, time_value, task_uuid NULLS FIRST) WHERE time_value IS NOT NULL;
CREATE INDEX task_attributes_of_task ON tasker.task_attributes (task_uuid);

CREATE TABLE tasker.task_starts (
    task_uuid uuid PRIMARY KEY,
    start_by  timestamptz NOT NULL
);
COMMENT ON TABLE tasker.task_starts IS 'Open tasks that end as expired unless a step of them is claimed by an instant. The row goes when the task has ended, or when that instant finds a step claimed.';
CREATE INDEX task_starts_by_time ON tasker.task_starts (start_by);

CREATE TABLE tasker.unique_tasks (
    namespace  text NOT NULL,
    name       text NOT NULL,
    unique_key text NOT NULL,
    task_uuid  uuid NOT NULL,
    CONSTRAINT unique_task_has_its_key PRIMARY KEY (namespace, name, unique_key),
    CONSTRAINT unique_task_has_one_key UNIQUE (task_uuid)
);
COMMENT ON TABLE tasker.unique_tasks IS 'The open tasks that have a unique key, by their template and key.';

CREATE TABLE tasker.debounced_tasks (
    namespace    text NOT NULL,
    name         text NOT NULL,
    debounce_key text NOT NULL,
    task_uuid    uuid NOT NULL,
    latest_start timestamptz NOT NULL,
    CONSTRAINT debounced_task_has_its_key PRIMARY KEY (namespace, name, debounce_key),
    CONSTRAINT debounced_task_has_one_key UNIQUE (task_uuid)
);
COMMENT ON TABLE tasker.debounced_tasks IS 'The pending tasks into which requests with their debounce key are merged. The row goes when its task starts or ends.';
COMMENT ON COLUMN tasker.debounced_tasks.latest_start IS 'It starts by then, however many requests come.';

CREATE TABLE tasker.deadlines (
    task_uuid    uuid NOT NULL,
    step_uuid    uuid NOT NULL,
    namespace    text NOT NULL,
    due_at       timestamptz NOT NULL,
    warn_at      timestamptz NOT NULL,
    look_at      timestamptz NOT NULL,
    warn_s       integer,
    investigate  boolean NOT NULL,
    orders       boolean NOT NULL,
    source       text NOT NULL,
    set_by       text NOT NULL DEFAULT '',
    set_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    warned_at    timestamptz,
    announced_at timestamptz,
    ended_at     timestamptz,
    PRIMARY KEY (task_uuid, step_uuid),
    CONSTRAINT deadline_is_in_bounds CHECK (warn_at <= due_at AND due_at <= (set_at + '1826 days') AND warn_s >= 0),
    CONSTRAINT deadline_source_is_known CHECK (source IN ('request', 'template', 'operator')),
    CONSTRAINT deadline_that_is_asked_for_is_ahead CHECK (source = 'template' OR due_at > set_at)
);
COMMENT ON TABLE tasker.deadlines IS 'By when tasks and steps are due. The row stays when the task has ended, and is removed with it.';
COMMENT ON COLUMN tasker.deadlines.step_uuid IS 'The step that is due; all zeros: the whole task is.';
COMMENT ON COLUMN tasker.deadlines.look_at IS 'When people are told next: of what is due soon, or overdue. Infinity: there is nothing to tell.';
COMMENT ON COLUMN tasker.deadlines.warn_s IS 'How long before people are told. Null: when four fifths of the time are over.';
COMMENT ON COLUMN tasker.deadlines.investigate IS 'The sweep opens an investigation once it is overdue.';
COMMENT ON COLUMN tasker.deadlines.orders IS 'Of steps of one priority the one that is due first is handed out first.';
COMMENT ON COLUMN tasker.deadlines.source IS 'Who said so last: the request, the template, or an operator.';
COMMENT ON COLUMN tasker.deadlines.warned_at IS 'When people were told that it is due soon. Null: they were not.';
COMMENT ON COLUMN tasker.deadlines.announced_at IS 'When people were told that it is overdue. Null: they were not.';
COMMENT ON COLUMN tasker.deadlines.ended_at IS 'When its task ended or was given up. Null: it has not.';
CREATE INDEX deadlines_of_open_tasks ON tasker.deadlines
    (namespace, due_at, task_uuid) WHERE ended_at IS NULL AND step_uuid = '00000000-0000-0000-0000-000000000000'::uuid;
CREATE INDEX deadlines_to_investigate ON tasker.deadlines (due_at) WHERE ended_at IS NULL AND investigate;
CREATE INDEX deadlines_to_look_at ON tasker.deadlines (look_at, task_uuid, step_uuid) WHERE look_at < 'infinity';
