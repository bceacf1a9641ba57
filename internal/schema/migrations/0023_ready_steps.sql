-- The steps that wait for a worker, and the leases that may have to be taken back, are
-- found in small tables of their own, and not by indexes of tasker.workflow_steps. When
-- those are dropped, a step is updated in place.

CREATE TABLE tasker.ready_steps (
    namespace    text        NOT NULL,
    handler      text        NOT NULL,
    priority     integer     NOT NULL,
    state_since  timestamptz NOT NULL,
    step_uuid    uuid        NOT NULL,
    task_uuid    uuid        NOT NULL,
    expires_at   timestamptz NOT NULL,
    queue_ttl_ms bigint,
    inputs_bytes bigint
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE UNIQUE INDEX ready_steps_to_claim ON tasker.ready_steps (namespace, handler, priority DESC, state_since, step_uuid);
CREATE INDEX ready_steps_by_expiry ON tasker.ready_steps (expires_at);

COMMENT ON TABLE tasker.ready_steps IS 'A row for each enqueued step: where claims find it. The state is in tasker.workflow_steps.';
COMMENT ON COLUMN tasker.ready_steps.priority IS 'That of the step.';
COMMENT ON COLUMN tasker.ready_steps.state_since IS 'Since when the step is enqueued. If the step says otherwise, the row is outdated, and goes with the next claim.';
COMMENT ON COLUMN tasker.ready_steps.expires_at IS 'When the step has waited for a worker too long.';
COMMENT ON COLUMN tasker.ready_steps.queue_ttl_ms IS 'The step''s own limit of that. Null: the limit of the server.';
COMMENT ON COLUMN tasker.ready_steps.inputs_bytes IS 'Size of what the step is handed out with. Null: not measured.';

CREATE TABLE tasker.claims (
    look_at    timestamptz NOT NULL,
    claimed_at timestamptz NOT NULL,
    tasks      uuid[]      NOT NULL,
    steps      uuid[]      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX claims_to_look_at ON tasker.claims (look_at);

COMMENT ON TABLE tasker.claims IS 'A row for each claim of which a lease may still run: where expired leases are found. Lease and worker are in tasker.workflow_steps.';
COMMENT ON COLUMN tasker.claims.look_at IS 'When to look at it: some seconds after the claim, when most steps have ended, and then when the first of its leases may have expired.';
COMMENT ON COLUMN tasker.claims.claimed_at IS 'When the steps were claimed. A step that was claimed again belongs to another row.';
COMMENT ON COLUMN tasker.claims.tasks IS 'The tasks of the steps, in the same order.';
COMMENT ON COLUMN tasker.claims.steps IS 'The steps that were claimed.';

-- For writes that do not keep the tables themselves: those of servers of earlier
-- versions, and by hand. It waits for no row of ready_steps, because a claim that has
-- one waits for the row of the step. A row that it leaves is outdated.
CREATE FUNCTION tasker.follow_step() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.state = 'enqueued' THEN
        DELETE FROM tasker.ready_steps d
        WHERE d.ctid IN (
            SELECT r.ctid
            FROM tasker.ready_steps r
            WHERE r.namespace = OLD.namespace AND r.handler = OLD.handler AND r.priority = OLD.priority
              AND r.state_since = OLD.state_since AND r.step_uuid = OLD.step_uuid
            FOR UPDATE SKIP LOCKED
        );
    END IF;
    IF NEW.state = 'enqueued' THEN
        INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes)
        VALUES (NEW.namespace, NEW.handler, NEW.priority, NEW.state_since, NEW.step_uuid, NEW.task_uuid, NEW.expires_at, NEW.queue_ttl_ms, NEW.inputs_bytes)
        ON CONFLICT DO NOTHING;
    ELSIF NEW.state = 'in_progress' AND (TG_OP = 'INSERT' OR OLD.state <> 'in_progress' OR NEW.lease_expires_at < OLD.lease_expires_at) THEN
        INSERT INTO tasker.claims (look_at, claimed_at, tasks, steps)
        VALUES (NEW.lease_expires_at, coalesce(NEW.last_attempted_at, NEW.state_since), ARRAY[NEW.task_uuid], ARRAY[NEW.step_uuid]);
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.follow_step() IS 'Keeps tasker.ready_steps and tasker.claims for writes of tasker.workflow_steps that do not.';

CREATE TRIGGER follow_inserted_step AFTER INSERT ON tasker.workflow_steps FOR EACH ROW
    WHEN (NEW.state IN ('enqueued', 'in_progress') AND current_setting('tasker.keeps_ready_steps', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION tasker.follow_step();
CREATE TRIGGER follow_updated_step AFTER UPDATE ON tasker.workflow_steps FOR EACH ROW
    WHEN (current_setting('tasker.keeps_ready_steps', true) IS DISTINCT FROM 'on' AND (OLD.state = 'enqueued' OR NEW.state IN ('enqueued', 'in_progress')))
    EXECUTE FUNCTION tasker.follow_step();

-- A batch updates rows that are neighbours: each page has room for its next versions.
ALTER TABLE tasker.workflow_steps SET (fillfactor = 40);
