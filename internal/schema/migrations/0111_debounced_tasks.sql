-- Requests with a debounce key are merged into one task while that has not started.
CREATE TABLE tasker.debounced_tasks (
    namespace    text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    debounce_key text COLLATE "C" NOT NULL,
    task_uuid    uuid NOT NULL,
    latest_start timestamptz NOT NULL,
    CONSTRAINT debounced_task_has_its_key PRIMARY KEY (namespace, name, debounce_key),
    CONSTRAINT debounced_task_has_one_key UNIQUE (task_uuid)
);
COMMENT ON TABLE tasker.debounced_tasks IS 'The pending tasks into which requests with their debounce key are merged. The row goes when its task starts or ends.';
COMMENT ON COLUMN tasker.debounced_tasks.latest_start IS 'It starts by then, however many requests come.';

CREATE OR REPLACE FUNCTION tasker.end_task_options() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.state = 'pending' THEN
        DELETE FROM tasker.debounced_tasks x WHERE x.task_uuid = NEW.task_uuid;
    END IF;
    IF NEW.state IN ('complete', 'cancelled') THEN
        DELETE FROM tasker.task_starts x WHERE x.task_uuid = NEW.task_uuid;
        DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER task_options_end
    AFTER UPDATE OF state ON tasker.tasks
    FOR EACH ROW WHEN (NEW.options IS NOT NULL AND OLD.state <> NEW.state AND (OLD.state = 'pending' OR NEW.state IN ('complete', 'cancelled')))
    EXECUTE FUNCTION tasker.end_task_options();
