-- The sweep moves tasks in sets: the row of a task that is moved together with its
-- investigation is written once, and what is told of many investigations is put
-- together in one statement.

-- Whoever opens an investigation in the same transaction moves the task to error with
-- attend_by 'infinity': it is looked into already, and a second version of the row,
-- with its index entries, would say so again.
CREATE OR REPLACE FUNCTION tasker.watch_task_in_error() RETURNS trigger
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

CREATE OR REPLACE FUNCTION tasker.tell_of_investigation() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data, created_at)
    SELECT
        'dlq.entry.' || CASE WHEN e.event IN ('step_failed', 'stuck_again') THEN 'updated' ELSE e.event END,
        e.task_uuid, e.dlq_entry_uuid, e.data, e.changed_at
    FROM tasker.dlq_events((SELECT array_agg(a.history_id) FROM added a)) e
    ORDER BY e.history_id;
    RETURN NULL;
END
$$;

-- A snapshot is compressed when it is stored: lz4 takes a tenth of the time, where
-- the server was built with it.
DO $$
BEGIN
    ALTER TABLE tasker.tasks_dlq ALTER COLUMN task_snapshot SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

-- What is due for a retry and is left alone, because its task is in error, is gone
-- through a few at a time: from one of them to the next.
DROP INDEX tasker.steps_to_retry;
CREATE INDEX steps_to_retry ON tasker.workflow_steps (next_retry_at, task_uuid, step_uuid) WHERE next_retry_at IS NOT NULL;
