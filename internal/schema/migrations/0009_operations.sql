-- Operations: repairs of many investigations or tasks in waves, and the requests of operators.

CREATE TABLE tasker.operations (
    operation_uuid    uuid PRIMARY KEY,
    request_key       text NOT NULL,
    digest            bytea NOT NULL,
    act               text NOT NULL,
    arguments         jsonb NOT NULL DEFAULT '{}',
    selection         jsonb NOT NULL,
    planned_by        text NOT NULL,
    reason            text NOT NULL,
    namespaces        text[] NOT NULL,
    state             text NOT NULL,
    items             integer NOT NULL DEFAULT 0,
    capped            boolean NOT NULL DEFAULT false,
    without_step      integer NOT NULL DEFAULT 0,
    overlapping       jsonb NOT NULL DEFAULT '[]',
    plan_digest       text NOT NULL DEFAULT '',
    causes            text[],
    waves             integer[] NOT NULL,
    wave              integer NOT NULL DEFAULT 0,
    round             integer NOT NULL DEFAULT 0,
    wave_since        timestamptz,
    rate_per_minute   integer NOT NULL DEFAULT 0,
    stop_on_new_cause boolean NOT NULL,
    wave_timeout      interval NOT NULL,
    next_release_at   timestamptz,
    paused_by         text,
    paused_for        text,
    paused_details    jsonb,
    paused_at         timestamptz,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at        timestamptz NOT NULL,
    started_at        timestamptz,
    started_by        text,
    ended_at          timestamptz,
    settled_at        timestamptz,
    worker_at_least   text,
    tolerate          text NOT NULL DEFAULT '1',
    tolerated_causes  text[] NOT NULL DEFAULT '{}',
    CONSTRAINT operation_act_is_known CHECK (
        act IN ('reset_for_retry', 'resolve_manually', 'complete_manually', 'answer', 'cancel', 'compensate', 'recreate', 'end_investigation')
    ),
    CONSTRAINT operation_request_key_is_short CHECK (length(request_key) >= 1 AND length(request_key) <= 255),
    CONSTRAINT operation_settles_after_its_end CHECK (settled_at IS NULL OR ended_at IS NOT NULL),
    CONSTRAINT operation_state_is_known CHECK (state IN ('planned', 'running', 'paused', 'done', 'aborted')),
    CONSTRAINT operation_that_ended_has_its_time CHECK ((state IN ('done', 'aborted')) = (ended_at IS NOT NULL)),
    CONSTRAINT operation_that_is_paused_says_why CHECK ((state = 'paused') = (paused_for IS NOT NULL))
);
COMMENT ON TABLE tasker.operations IS 'One action on many steps: planned, running or paused, done or aborted.';
COMMENT ON COLUMN tasker.operations.request_key IS 'With it the same request is recognised when it is sent again.';
COMMENT ON COLUMN tasker.operations.digest IS 'Of all that the request says; tells apart two requests under one key.';
COMMENT ON COLUMN tasker.operations.items IS 'How many items were frozen. The items in each state always add up to it.';
COMMENT ON COLUMN tasker.operations.capped IS 'More was selected than the limit allows.';
COMMENT ON COLUMN tasker.operations.without_step IS 'Selected investigations whose task has no step that has failed.';
COMMENT ON COLUMN tasker.operations.overlapping IS 'Other operations that had selected items of this one, which were left out.';
COMMENT ON COLUMN tasker.operations.causes IS 'The causes of the failures that were selected; null when there were too many.';
COMMENT ON COLUMN tasker.operations.waves IS 'How many items each wave releases; after the last all that are left.';
COMMENT ON COLUMN tasker.operations.round IS 'Goes up with each wave and each resume: items that are released together.';
COMMENT ON COLUMN tasker.operations.next_release_at IS 'When the next items may be released, by the rate.';
COMMENT ON COLUMN tasker.operations.settled_at IS 'When the last item came to its end. Servers look at operations that have ended until then.';
COMMENT ON COLUMN tasker.operations.worker_at_least IS 'Only workers of this version or a newer one take the steps that it released. Null: any.';
COMMENT ON COLUMN tasker.operations.tolerate IS 'How many steps of a wave may fail: a number, a percentage, or all_but_one.';
COMMENT ON COLUMN tasker.operations.tolerated_causes IS 'Fingerprints of failures that the guards do not count, named by the operators who resumed the operation.';
CREATE UNIQUE INDEX operation_request_key_is_unique ON tasker.operations (request_key);
CREATE INDEX operations_by_time ON tasker.operations (created_at DESC, operation_uuid DESC);
CREATE INDEX operations_unsettled ON tasker.operations (created_at) WHERE settled_at IS NULL;

CREATE FUNCTION tasker.follow_gate() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.settled_at IS NULL THEN
        INSERT INTO tasker.claim_conditions VALUES (NEW.operation_uuid) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM tasker.claim_conditions WHERE condition_uuid = NEW.operation_uuid;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_gate() IS 'Keeps tasker.claim_conditions as operations with a version of workers begin and end.';
CREATE TRIGGER follow_inserted_gate AFTER INSERT ON tasker.operations
    FOR EACH ROW WHEN (NEW.worker_at_least IS NOT NULL)
    EXECUTE FUNCTION tasker.follow_gate();

CREATE TRIGGER follow_settled_gate AFTER UPDATE OF settled_at ON tasker.operations
    FOR EACH ROW WHEN (NEW.worker_at_least IS NOT NULL)
    EXECUTE FUNCTION tasker.follow_gate();

CREATE TRIGGER unsettled_operation_stays AFTER DELETE ON tasker.operations REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_removal_of_records();

CREATE TABLE tasker.operation_items (
    operation_uuid uuid NOT NULL,
    ordinal        integer NOT NULL,
    task_uuid      uuid NOT NULL,
    step_uuid      uuid NOT NULL,
    entry_uuid     uuid NOT NULL,
    namespace      text NOT NULL,
    expected_state text NOT NULL,
    expected_fence bigint NOT NULL,
    state          text NOT NULL DEFAULT 'planned',
    outcome        text,
    tries          integer NOT NULL DEFAULT 0,
    wave           integer,
    round          integer,
    released_fence bigint,
    released_at    timestamptz,
    failed_at      timestamptz,
    failure_cause  text,
    failure_text   text,
    ended_at       timestamptz,
    made_task      uuid,
    PRIMARY KEY (operation_uuid, ordinal),
    CONSTRAINT operation_item_state_is_known CHECK (state IN ('planned', 'released', 'running', 'verified', 'failed_again', 'skipped', 'aborted')),
    CONSTRAINT operation_item_that_ended_has_its_time CHECK ((state IN ('verified', 'failed_again', 'skipped', 'aborted')) = (ended_at IS NOT NULL)),
    CONSTRAINT operation_item_that_was_released_has_its_time CHECK (state NOT IN ('released', 'running', 'verified', 'failed_again') OR released_at IS NOT NULL)
) WITH (fillfactor=80);
COMMENT ON TABLE tasker.operation_items IS 'The steps of an operation, in the order of task and step. Of the tasks of actions on whole tasks, the step is 00000000-0000-0000-0000-000000000000.';
COMMENT ON COLUMN tasker.operation_items.expected_fence IS 'The fence of the step when it was planned: the action is done only if nothing has happened to the step since.';
COMMENT ON COLUMN tasker.operation_items.outcome IS 'Why the item came to its state, as a code.';
COMMENT ON COLUMN tasker.operation_items.tries IS 'How often the task was held by others when the item was to be released.';
COMMENT ON COLUMN tasker.operation_items.released_fence IS 'The fence of the step as the action left it: attempts from then on have a higher one.';
COMMENT ON COLUMN tasker.operation_items.failed_at IS 'When the step last failed after its release, as far as servers have seen.';
COMMENT ON COLUMN tasker.operation_items.made_task IS 'The task that the item waits for: of the act recreate that which was made in the place of task_uuid, of the act compensate task_uuid itself.';
CREATE UNIQUE INDEX operation_item_is_open_once ON tasker.operation_items (task_uuid, step_uuid) WHERE state IN ('planned', 'released', 'running');
CREATE INDEX operation_items_by_round ON tasker.operation_items (operation_uuid, round, state) WHERE round IS NOT NULL;
CREATE INDEX operation_items_by_state ON tasker.operation_items (operation_uuid, state, ordinal);
CREATE INDEX operation_items_that_failed ON tasker.operation_items (operation_uuid, round, failure_cause) WHERE failure_cause IS NOT NULL;

CREATE TRIGGER items_of_unsettled_operation_stay AFTER DELETE ON tasker.operation_items REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.refuse_removal_of_records();

CREATE TABLE tasker.operator_requests (
    request_key text PRIMARY KEY,
    action      text NOT NULL,
    digest      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT operator_request_key_is_short CHECK (length(request_key) >= 1 AND length(request_key) <= 255)
);
COMMENT ON TABLE tasker.operator_requests IS 'Requests of operators that bore a key and took effect, written in the transaction of their effect, so that the same request again is recognised. Kept for a week.';
COMMENT ON COLUMN tasker.operator_requests.digest IS 'Of all that the request says; tells apart two requests under one key.';
CREATE INDEX operator_requests_by_age ON tasker.operator_requests (created_at);
