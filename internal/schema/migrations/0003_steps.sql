-- Steps: one row for each step of a task, its history, checkpoints and the inputs of map steps.

CREATE TABLE tasker.workflow_steps (
    task_uuid           uuid NOT NULL,
    step_uuid           uuid NOT NULL,
    name                text NOT NULL,
    step_type           text NOT NULL,
    namespace           text NOT NULL,
    handler             text NOT NULL,
    priority            integer NOT NULL,
    state               text NOT NULL,
    state_since         timestamptz NOT NULL,
    parent_uuids        uuid[] NOT NULL,
    child_uuids         uuid[] NOT NULL,
    parents_open        integer NOT NULL,
    attempts            integer NOT NULL DEFAULT 0,
    max_attempts        integer NOT NULL,
    retryable           boolean NOT NULL,
    backoff             text NOT NULL,
    backoff_base_ms     integer NOT NULL,
    max_backoff_ms      integer NOT NULL,
    backoff_jitter      boolean NOT NULL,
    timeout_ms          bigint,
    fence               bigint NOT NULL DEFAULT 0,
    reported_fence      bigint,
    report_digest       bytea,
    kept_report         jsonb,
    worker_uuid         uuid,
    lease_expires_at    timestamptz,
    timeout_at          timestamptz,
    next_retry_at       timestamptz,
    last_attempted_at   timestamptz,
    last_failure_at     timestamptz,
    completed_at        timestamptz,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    results             jsonb,
    error               jsonb,
    queue_ttl_ms        bigint,
    expires_at          timestamptz,
    queue_expiries      integer NOT NULL DEFAULT 0,
    awaits_worker_since timestamptz,
    results_bytes       integer,
    inputs_bytes        bigint,
    unwritten           smallint NOT NULL DEFAULT 0,
    moves_id            bigint,
    enqueued_at         timestamptz,
    join_rule           text,
    decide_at           timestamptz,
    decided_at          timestamptz,
    skip_reason         text,
    wait_until          timestamptz,
    remind_first_s      integer,
    reminders           integer NOT NULL DEFAULT 0,
    remind_at           timestamptz,
    is_decision         boolean,
    child_task_uuid     uuid,
    map_step_uuid       uuid,
    item_ordinal        integer,
    item                jsonb,
    items_total         integer,
    attributes_at       timestamptz,
    checkpointed        boolean,
    item_under_way      integer,
    items_limit         integer,
    items_free          integer,
    item_next           integer,
    PRIMARY KEY (task_uuid, step_uuid),
    CONSTRAINT step_has_all_of_its_state CHECK (
        state = ANY ('{pending,enqueued,in_progress,enqueued_for_orchestration,complete,error,resolved_manually,skipped,cancelled}')
        AND (expires_at IS NOT NULL) = (state = 'enqueued')
        AND (lease_expires_at IS NOT NULL) = (state = 'in_progress')
        AND (kept_report IS NOT NULL) = (state = 'enqueued_for_orchestration')
        AND (state = 'error' OR (next_retry_at IS NULL AND awaits_worker_since IS NULL))
        AND (next_retry_at IS NULL OR awaits_worker_since IS NULL)
        AND (expires_at IS NULL OR join_rule IS NULL OR decided_at IS NOT NULL)
        AND (skip_reason IS NOT NULL OR state <> 'skipped')
    ),
    CONSTRAINT step_has_all_of_its_type CHECK (
        step_type = ANY ('{standard,external,wait,child,map}')
        AND backoff = ANY ('{exponential,linear,constant}')
        AND queue_ttl_ms > 0
        AND (child_task_uuid IS NOT NULL OR decided_at IS NULL OR step_type <> 'child')
        AND parents_open >= 0
        AND (parents_open <= cardinality(parent_uuids) OR (items_total IS NOT NULL AND parents_open <= items_total) OR (map_step_uuid IS NOT NULL AND parents_open <= 1))
        AND (map_step_uuid IS NULL) = (item IS NULL)
        AND (map_step_uuid IS NULL) = (item_ordinal IS NULL)
        AND item_ordinal >= 0
    )
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, fillfactor=40);
COMMENT ON TABLE tasker.workflow_steps IS 'One row a step of a task. The edges of the graph are the arrays of parents and children.';
COMMENT ON COLUMN tasker.workflow_steps.parents_open IS 'Parents that are not yet complete, resolved by hand or skipped. Of a step whose join_rule is any, at least the true number. Of a step of type map that has its items: the items that are not.';
COMMENT ON COLUMN tasker.workflow_steps.fence IS 'Goes up with every claim and whenever a lease is taken away; a report must name the current one.';
COMMENT ON COLUMN tasker.workflow_steps.reported_fence IS 'The fence of the last report that counted, so that the same report sent again is recognised.';
COMMENT ON COLUMN tasker.workflow_steps.kept_report IS 'A report that was accepted but whose follow-up failed; it is tried again.';
COMMENT ON COLUMN tasker.workflow_steps.next_retry_at IS 'Instant from which a failed step may be enqueued again. Null in state error means: failed for good.';
COMMENT ON COLUMN tasker.workflow_steps.queue_ttl_ms IS 'How long the step may wait in the queue, in milliseconds. Null: as the server says.';
COMMENT ON COLUMN tasker.workflow_steps.expires_at IS 'Instant from which an enqueued step counts as taken by no worker in time.';
COMMENT ON COLUMN tasker.workflow_steps.queue_expiries IS 'How often in a row it was taken by no worker in time although one was alive.';
COMMENT ON COLUMN tasker.workflow_steps.awaits_worker_since IS 'When it was taken by no worker in time. It goes back into the queue by itself once a worker for it lives.';
COMMENT ON COLUMN tasker.workflow_steps.results_bytes IS 'Size of the result (results -> ''result'') as it is read back. Null: not measured, or there is none.';
COMMENT ON COLUMN tasker.workflow_steps.inputs_bytes IS 'Size of what the step is handed out with: the context of its task and the results of those of its parents that are done. Null: not measured.';
COMMENT ON COLUMN tasker.workflow_steps.unwritten IS 'Which moves of the attempt that is under way the history does not have yet: 1 enqueue, 2 claim, 3 both.';
COMMENT ON COLUMN tasker.workflow_steps.moves_id IS 'The transition_id of that enqueue; that of the claim is the next.';
COMMENT ON COLUMN tasker.workflow_steps.enqueued_at IS 'When that enqueue was, of a step that is claimed. While it is enqueued it is state_since.';
COMMENT ON COLUMN tasker.workflow_steps.join_rule IS 'all, any or none_failed: the step is decided when its parents are done. Null: it has no condition, and no parent of it can be skipped, so it is enqueued at once.';
COMMENT ON COLUMN tasker.workflow_steps.decide_at IS 'Instant from which a pending step is due to be decided. Null: not now.';
COMMENT ON COLUMN tasker.workflow_steps.decided_at IS 'When it was decided that the step runs.';
COMMENT ON COLUMN tasker.workflow_steps.skip_reason IS 'Why the step is skipped, in words.';
COMMENT ON COLUMN tasker.workflow_steps.wait_until IS 'When the wait of a pending external step ends by the clock. Null: it does not wait yet, or without end.';
COMMENT ON COLUMN tasker.workflow_steps.remind_first_s IS 'After how many seconds of its wait people are first reminded of the step. Null: they are not.';
COMMENT ON COLUMN tasker.workflow_steps.reminders IS 'How often people were reminded of the step in this wait.';
COMMENT ON COLUMN tasker.workflow_steps.remind_at IS 'When people are next reminded of a pending step. Null: it does not wait yet, or they are not reminded again.';
COMMENT ON COLUMN tasker.workflow_steps.is_decision IS 'True of a step of type decision: its result names which of its direct dependents go on. Null of all others.';
COMMENT ON COLUMN tasker.workflow_steps.child_task_uuid IS 'The task that a step of type child started last.';
COMMENT ON COLUMN tasker.workflow_steps.map_step_uuid IS 'Of an item: the step of type map that it belongs to.';
COMMENT ON COLUMN tasker.workflow_steps.item_ordinal IS 'Of an item: its place among the items of its step, from 0.';
COMMENT ON COLUMN tasker.workflow_steps.item IS 'Of an item: what its handler is given, an element of the list or several.';
COMMENT ON COLUMN tasker.workflow_steps.items_total IS 'Of a step of type map: how many items it has. Null: it has none yet.';
COMMENT ON COLUMN tasker.workflow_steps.attributes_at IS 'Instant from which the attributes of the task are to be evaluated because of this step. Infinity: its result is part of them, and they are evaluated. Null: it is part of none.';
COMMENT ON COLUMN tasker.workflow_steps.checkpointed IS 'Whether it has a row of step_checkpoints. Null: it has none.';
COMMENT ON COLUMN tasker.workflow_steps.item_under_way IS 'Of a step of type map: the ordinal at which an item was last found enqueued or in progress, or from which one is sought downwards. Null: from the last one. It may be out of date.';
COMMENT ON COLUMN tasker.workflow_steps.items_limit IS 'Of a step of type map: how many of its items are under way at once. Null: all.';
COMMENT ON COLUMN tasker.workflow_steps.items_free IS 'Of a step of type map with a limit: how many more may be under way.';
COMMENT ON COLUMN tasker.workflow_steps.item_next IS 'Of a step of type map with a limit: no item with a lower ordinal waits for a place.';
CREATE INDEX steps_awaiting_worker ON tasker.workflow_steps (namespace, handler, awaits_worker_since) WHERE awaits_worker_since IS NOT NULL;
CREATE INDEX steps_by_map ON tasker.workflow_steps (task_uuid, map_step_uuid, item_ordinal) WHERE map_step_uuid IS NOT NULL;
CREATE INDEX steps_by_reminder ON tasker.workflow_steps (remind_at, task_uuid, step_uuid) WHERE remind_at IS NOT NULL;
CREATE INDEX steps_by_wait ON tasker.workflow_steps (wait_until, task_uuid, step_uuid) WHERE wait_until IS NOT NULL;
CREATE INDEX steps_to_decide ON tasker.workflow_steps (decide_at, task_uuid, step_uuid) WHERE decide_at IS NOT NULL;
CREATE INDEX steps_to_retry ON tasker.workflow_steps (next_retry_at, task_uuid, step_uuid) WHERE next_retry_at IS NOT NULL;
CREATE INDEX steps_with_attributes_due ON tasker.workflow_steps (attributes_at, task_uuid, step_uuid) WHERE attributes_at < 'infinity';
CREATE INDEX steps_with_kept_report ON tasker.workflow_steps (task_uuid, step_uuid) WHERE kept_report IS NOT NULL;

CREATE TRIGGER steps_of_investigated_task_stay AFTER DELETE ON tasker.workflow_steps REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_removal_of_records();

CREATE TABLE tasker.step_history (
    task_uuid      uuid NOT NULL,
    transition_id  bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2) NOT NULL,
    step_uuid      uuid NOT NULL,
    from_state     text NOT NULL,
    to_state       text NOT NULL,
    event          text NOT NULL,
    attempt        integer NOT NULL,
    worker_uuid    uuid,
    actor          text,
    reason         text,
    detail         jsonb,
    created_at     timestamptz NOT NULL,
    moves_id       bigint,
    enqueued_at    timestamptz,
    claimed_at     timestamptz,
    operation_uuid uuid,
    PRIMARY KEY (task_uuid, transition_id)
);
COMMENT ON TABLE tasker.step_history IS 'History of the steps, append-only: read it as tasker.workflow_step_transitions. A row is a move, and may have the enqueue and the claim before it. A failure''s error is in detail.';
COMMENT ON COLUMN tasker.step_history.moves_id IS 'The transition_id of the enqueue that this row has; that of the claim is the next.';
COMMENT ON COLUMN tasker.step_history.enqueued_at IS 'When the attempt was enqueued, if no other row has that.';
COMMENT ON COLUMN tasker.step_history.claimed_at IS 'When it was claimed, if no other row has that.';
COMMENT ON COLUMN tasker.step_history.operation_uuid IS 'The operation whose item the move is; null when it was made by hand, or by nobody.';

CREATE TRIGGER history_of_investigated_task_stays AFTER DELETE ON tasker.step_history REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_removal_of_records();

CREATE TABLE tasker.step_checkpoints (
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    value     jsonb NOT NULL,
    bytes     integer NOT NULL,
    attempt   integer NOT NULL,
    saved_at  timestamptz NOT NULL,
    PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.step_checkpoints IS 'The last checkpoint of each step whose workers save any: handed out with the attempts that follow, removed with its task.';
COMMENT ON COLUMN tasker.step_checkpoints.bytes IS 'Size of the value.';
COMMENT ON COLUMN tasker.step_checkpoints.attempt IS 'The attempt that saved it.';

CREATE TABLE tasker.map_inputs (
    task_uuid     uuid NOT NULL,
    step_uuid     uuid NOT NULL,
    context       jsonb,
    context_bytes integer,
    omitted       text[],
    by_reference  uuid[],
    PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.map_inputs IS 'What the items of a map step are handed without the list that they are made of; removed with its task. No row: they are handed what a step is.';
COMMENT ON COLUMN tasker.map_inputs.step_uuid IS 'The map step.';
COMMENT ON COLUMN tasker.map_inputs.context IS 'The context of the task without the list. Null: all of it is handed out.';
COMMENT ON COLUMN tasker.map_inputs.context_bytes IS 'Size of the context.';
COMMENT ON COLUMN tasker.map_inputs.omitted IS 'JSON Pointers of what the context is without.';
COMMENT ON COLUMN tasker.map_inputs.by_reference IS 'Steps with the list in their result, which is handed out by reference.';

CREATE TABLE tasker.child_signals (
    kind             text NOT NULL,
    child_uuid       uuid NOT NULL,
    parent_task_uuid uuid NOT NULL,
    parent_step_uuid uuid NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (kind, child_uuid),
    CONSTRAINT child_signal_is_known CHECK (kind IN ('ended', 'cancel'))
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
COMMENT ON TABLE tasker.child_signals IS 'What child tasks and the steps that started them have to tell each other: left by the transaction that causes it, removed by the one that does it.';
COMMENT ON COLUMN tasker.child_signals.kind IS 'ended: the child has come to its end, which its parent step has to be told. cancel: nobody waits for the child any more, so it is to be cancelled.';
CREATE INDEX child_signals_by_time ON tasker.child_signals (kind, created_at);
CREATE INDEX child_signals_of_step ON tasker.child_signals (parent_step_uuid);
