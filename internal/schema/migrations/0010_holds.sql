-- Holds and breakers: steps that are kept from workers while what they need is away.

CREATE TABLE tasker.holds (
    hold_uuid     uuid PRIMARY KEY,
    kind          text NOT NULL,
    namespace     text NOT NULL,
    handler       text,
    task_name     text,
    step_name     text,
    case_id       uuid,
    cause         text,
    cause_key     text,
    reason        text NOT NULL,
    owner         text NOT NULL,
    state         text NOT NULL DEFAULT 'active',
    blocks        boolean NOT NULL DEFAULT true,
    waves         integer[] NOT NULL DEFAULT '{}',
    wave          integer NOT NULL DEFAULT 0,
    wave_since    timestamptz,
    wave_steps    integer NOT NULL DEFAULT 0,
    began_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    ends_at       timestamptz NOT NULL,
    warned_at     timestamptz,
    next_probe_at timestamptz,
    probes        integer NOT NULL DEFAULT 0,
    failed_probes integer NOT NULL DEFAULT 0,
    released      bigint NOT NULL DEFAULT 0,
    ended_at      timestamptz,
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT hold_has_an_owner CHECK (length(owner) >= 1 AND length(owner) <= 255),
    CONSTRAINT hold_kind_is_known CHECK (kind IN ('manual', 'breaker')),
    CONSTRAINT hold_state_is_known CHECK (state IN ('active', 'releasing', 'ended')),
    CONSTRAINT hold_that_ended_blocks_nothing CHECK (state <> 'ended' OR NOT blocks),
    CONSTRAINT hold_that_ended_has_its_time CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
    CONSTRAINT hold_that_is_active_blocks CHECK (state <> 'active' OR blocks)
);
COMMENT ON TABLE tasker.holds IS 'Steps of which scope are not handed out, since when, until when, and why.';
COMMENT ON COLUMN tasker.holds.kind IS 'manual: a person began it. breaker: many failures of one cause did.';
COMMENT ON COLUMN tasker.holds.handler IS 'Only steps with this handler; null: any.';
COMMENT ON COLUMN tasker.holds.task_name IS 'Only steps of tasks of this template; null: any.';
COMMENT ON COLUMN tasker.holds.step_name IS 'Only steps with this name; null: any.';
COMMENT ON COLUMN tasker.holds.case_id IS 'The case that it was begun for.';
COMMENT ON COLUMN tasker.holds.cause_key IS 'Of a breaker: the key of the cause that opened it.';
COMMENT ON COLUMN tasker.holds.blocks IS 'Whether steps of the scope are held. False once the last wave has succeeded, while the rest is let go, and afterwards.';
COMMENT ON COLUMN tasker.holds.waves IS 'How many steps each wave of the release lets go; after the last all that are left.';
COMMENT ON COLUMN tasker.holds.wave IS 'How many waves of the release have begun.';
COMMENT ON COLUMN tasker.holds.released IS 'How many steps were let go.';
CREATE INDEX holds_by_age ON tasker.holds (began_at, hold_uuid);
CREATE INDEX holds_that_block ON tasker.holds (namespace) WHERE blocks;
CREATE UNIQUE INDEX one_blocking_breaker_of_a_handler ON tasker.holds (namespace, handler) WHERE kind = 'breaker' AND blocks;
CREATE INDEX open_holds ON tasker.holds (hold_uuid) WHERE ended_at IS NULL;

CREATE FUNCTION tasker.follow_hold() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.blocks THEN
        INSERT INTO tasker.claim_conditions VALUES (NEW.hold_uuid) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM tasker.claim_conditions WHERE condition_uuid = NEW.hold_uuid;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_hold() IS 'Keeps tasker.claim_conditions as holds begin and end.';
CREATE TRIGGER follow_inserted_hold AFTER INSERT ON tasker.holds
    FOR EACH ROW
    EXECUTE FUNCTION tasker.follow_hold();

CREATE TRIGGER follow_updated_hold AFTER UPDATE OF blocks ON tasker.holds
    FOR EACH ROW WHEN (NEW.blocks <> OLD.blocks)
    EXECUTE FUNCTION tasker.follow_hold();

CREATE TABLE tasker.hold_history (
    change_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hold_uuid  uuid NOT NULL,
    event      text NOT NULL,
    actor      text NOT NULL,
    reason     text,
    metadata   jsonb NOT NULL DEFAULT '{}',
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT hold_history_hold_uuid_fkey FOREIGN KEY (hold_uuid) REFERENCES tasker.holds (hold_uuid) ON DELETE CASCADE
);
COMMENT ON TABLE tasker.hold_history IS 'What happened to each hold.';
CREATE INDEX hold_history_by_hold ON tasker.hold_history (hold_uuid, change_id);

CREATE TABLE tasker.hold_releases (
    hold_uuid   uuid NOT NULL,
    task_uuid   uuid NOT NULL,
    step_uuid   uuid NOT NULL,
    wave        integer NOT NULL,
    fence       bigint NOT NULL,
    released_at timestamptz NOT NULL,
    outcome     text,
    failure     text,
    judged_at   timestamptz,
    PRIMARY KEY (hold_uuid, task_uuid, step_uuid, released_at),
    CONSTRAINT outcome_of_a_release_is_known CHECK (outcome IN ('succeeded', 'failed', 'no_answer', 'gone')),
    CONSTRAINT hold_releases_hold_uuid_fkey FOREIGN KEY (hold_uuid) REFERENCES tasker.holds (hold_uuid) ON DELETE CASCADE
);
COMMENT ON TABLE tasker.hold_releases IS 'Steps that a hold let go as a probe (wave 0) or in a wave that has to succeed before the next.';
COMMENT ON COLUMN tasker.hold_releases.fence IS 'Of the step when it was let go: an attempt that was claimed later has a higher one.';
COMMENT ON COLUMN tasker.hold_releases.outcome IS 'What became of the attempt; null while it is awaited.';
COMMENT ON COLUMN tasker.hold_releases.failure IS 'With what it failed, without what must not be shown.';
CREATE INDEX hold_releases_awaited ON tasker.hold_releases (hold_uuid) WHERE outcome IS NULL;
CREATE INDEX hold_releases_by_age ON tasker.hold_releases (hold_uuid, released_at);
CREATE INDEX hold_releases_in_flight ON tasker.hold_releases (task_uuid, step_uuid) WHERE outcome IS NULL;

CREATE TABLE tasker.breaker_counts (
    server_uuid uuid NOT NULL,
    namespace   text NOT NULL,
    handler     text NOT NULL,
    cause_key   text NOT NULL,
    cause       text NOT NULL,
    failed      integer NOT NULL,
    tasks       integer NOT NULL,
    concluded   integer NOT NULL,
    counted_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (server_uuid, namespace, handler, cause_key)
);
COMMENT ON TABLE tasker.breaker_counts IS 'How many attempts of a handler each server saw fail with one cause within the window of breakers.';
COMMENT ON COLUMN tasker.breaker_counts.tasks IS 'Of how many tasks, counted up to the number that opens a breaker.';
COMMENT ON COLUMN tasker.breaker_counts.concluded IS 'All attempts of the handler that ended within the window.';
