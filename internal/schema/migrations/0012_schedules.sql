-- Schedules, the tasks that they start, and their history.

CREATE TABLE tasker.schedules (
    schedule_uuid    uuid PRIMARY KEY,
    namespace        text NOT NULL,
    name             text NOT NULL,
    template_name    text NOT NULL,
    template_version text NOT NULL DEFAULT '',
    context          jsonb NOT NULL DEFAULT '{}',
    nominal_key      text NOT NULL DEFAULT '',
    priority         integer NOT NULL DEFAULT 0,
    tags             text[] NOT NULL DEFAULT '{}',
    cron             text NOT NULL DEFAULT '',
    day_match        text NOT NULL DEFAULT '',
    zone             text NOT NULL DEFAULT '',
    every_s          bigint NOT NULL DEFAULT 0,
    after_end_s      bigint NOT NULL DEFAULT 0,
    except_days      text[] NOT NULL DEFAULT '{}',
    jitter_s         bigint NOT NULL DEFAULT 0,
    start_at         timestamptz,
    end_at           timestamptz,
    overlap          text NOT NULL,
    catch_up         text NOT NULL,
    catch_up_max     integer NOT NULL DEFAULT 0,
    start_within_s   bigint NOT NULL,
    anchor           timestamptz NOT NULL,
    next_at          timestamptz,
    fire_at          timestamptz,
    awaits_task      uuid,
    paused_at        timestamptz,
    paused_until     timestamptz,
    paused_by        text NOT NULL DEFAULT '',
    paused_reason    text NOT NULL DEFAULT '',
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by       text NOT NULL,
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    revision         integer NOT NULL DEFAULT 1,
    deleted_at       timestamptz,
    CONSTRAINT schedule_catch_up_is_known CHECK (catch_up IN ('none', 'last', 'all')),
    CONSTRAINT schedule_has_one_rule CHECK (num_nonnulls(NULLIF(cron, ''), NULLIF(every_s, 0), NULLIF(after_end_s, 0)) = 1),
    CONSTRAINT schedule_overlap_is_known CHECK (overlap IN ('skip', 'queue', 'cancel', 'allow')),
    CONSTRAINT schedule_that_awaits_a_task_has_no_instant CHECK (awaits_task IS NULL OR next_at IS NULL),
    CONSTRAINT schedule_that_is_deleted_never_fires CHECK (deleted_at IS NULL OR fire_at IS NULL),
    CONSTRAINT schedule_with_an_instant_fires CHECK (next_at IS NULL OR fire_at IS NOT NULL OR paused_at IS NOT NULL OR deleted_at IS NOT NULL)
);
COMMENT ON TABLE tasker.schedules IS 'Of which template tasks are made, and at which instants.';
COMMENT ON COLUMN tasker.schedules.template_version IS 'Empty: the newest at each instant.';
COMMENT ON COLUMN tasker.schedules.nominal_key IS 'The key of the context that gets the instant; empty: none does.';
COMMENT ON COLUMN tasker.schedules.anchor IS 'What a fixed rate is counted from.';
COMMENT ON COLUMN tasker.schedules.next_at IS 'The first instant by the rule that is in no firing yet. Null: none is known.';
COMMENT ON COLUMN tasker.schedules.fire_at IS 'When a server attends to it next. Null: when somebody changes it, or a task of it ends.';
COMMENT ON COLUMN tasker.schedules.awaits_task IS 'Of a fixed delay: the task whose end its next instant follows.';
COMMENT ON COLUMN tasker.schedules.revision IS 'Goes up with each change of what people say of it.';
CREATE UNIQUE INDEX schedule_name_is_unique ON tasker.schedules (namespace, name) WHERE deleted_at IS NULL;
CREATE INDEX schedules_that_are_deleted ON tasker.schedules (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX schedules_to_fire ON tasker.schedules (fire_at) WHERE fire_at IS NOT NULL;

CREATE TABLE tasker.schedule_firings (
    schedule_uuid uuid NOT NULL,
    nominal_at    timestamptz NOT NULL,
    kind          text NOT NULL,
    nominal_until timestamptz NOT NULL,
    instants      bigint NOT NULL DEFAULT 1,
    outcome       text NOT NULL,
    reason        text NOT NULL DEFAULT '',
    task_uuid     uuid,
    task_open     boolean NOT NULL DEFAULT false,
    actor         text NOT NULL,
    decided_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    late_ms       bigint NOT NULL DEFAULT 0,
    ended_at      timestamptz,
    PRIMARY KEY (schedule_uuid, nominal_at, kind),
    CONSTRAINT firing_has_its_instants CHECK (instants > 0 AND nominal_until >= nominal_at AND (instants > 1) = (nominal_until > nominal_at)),
    CONSTRAINT firing_kind_is_known CHECK (kind IN ('clock', 'manual', 'backfill')),
    CONSTRAINT firing_outcome_is_known CHECK (outcome IN ('started', 'queued', 'skipped', 'merged', 'missed', 'refused')),
    CONSTRAINT firing_that_started_has_its_task CHECK ((outcome = 'started') = (task_uuid IS NOT NULL)),
    CONSTRAINT firing_with_an_open_task_has_one CHECK (NOT task_open OR (task_uuid IS NOT NULL AND ended_at IS NULL)),
    CONSTRAINT firing_without_a_task_says_why CHECK (outcome = 'started' OR reason <> ''),
    CONSTRAINT schedule_firings_schedule_uuid_fkey FOREIGN KEY (schedule_uuid) REFERENCES tasker.schedules (schedule_uuid) ON DELETE CASCADE
);
COMMENT ON TABLE tasker.schedule_firings IS 'What became of each instant of a schedule. Instants in a row that made no task for the same reason share one row.';
COMMENT ON COLUMN tasker.schedule_firings.nominal_at IS 'The instant by the rule, without jitter.';
COMMENT ON COLUMN tasker.schedule_firings.kind IS 'clock: the instant came. manual: somebody asked for a task. backfill: somebody asked for the task of an instant in the past.';
COMMENT ON COLUMN tasker.schedule_firings.task_open IS 'The task has not ended, as far as the schedule was told.';
COMMENT ON COLUMN tasker.schedule_firings.late_ms IS 'How long after the instant, with its jitter, a server attended to it.';
CREATE UNIQUE INDEX firing_of_task ON tasker.schedule_firings (task_uuid) WHERE task_uuid IS NOT NULL;
CREATE INDEX firings_by_age ON tasker.schedule_firings (decided_at);
CREATE INDEX firings_with_open_task ON tasker.schedule_firings (schedule_uuid, nominal_at) WHERE task_open;
CREATE UNIQUE INDEX one_firing_waits ON tasker.schedule_firings (schedule_uuid) WHERE outcome = 'queued';

CREATE TABLE tasker.schedule_history (
    change_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule_uuid uuid NOT NULL,
    event         text NOT NULL,
    actor         text NOT NULL,
    reason        text NOT NULL DEFAULT '',
    metadata      jsonb NOT NULL DEFAULT '{}',
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT schedule_history_schedule_uuid_fkey FOREIGN KEY (schedule_uuid) REFERENCES tasker.schedules (schedule_uuid) ON DELETE CASCADE
);
COMMENT ON TABLE tasker.schedule_history IS 'What people changed of each schedule.';
CREATE INDEX schedule_history_by_schedule ON tasker.schedule_history (schedule_uuid, change_id);

CREATE TABLE tasker.schedule_signals (
    task_uuid     uuid PRIMARY KEY,
    schedule_uuid uuid NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
COMMENT ON TABLE tasker.schedule_signals IS 'Tasks that have ended and whose schedules are to be told of it: left by the transaction that ends them.';
CREATE INDEX schedule_signals_by_time ON tasker.schedule_signals (created_at);
