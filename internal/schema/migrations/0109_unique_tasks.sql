-- Of the tasks of a template that have a unique key, one may be open at a time. The row goes in the
-- transaction that ends its task, also where a server of the previous version ends it.
CREATE TABLE tasker.unique_tasks (
    namespace  text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    unique_key text COLLATE "C" NOT NULL,
    task_uuid  uuid NOT NULL,
    CONSTRAINT unique_task_has_its_key PRIMARY KEY (namespace, name, unique_key),
    CONSTRAINT unique_task_has_one_key UNIQUE (task_uuid)
);
COMMENT ON TABLE tasker.unique_tasks IS 'The open tasks that have a unique key, by their template and key.';

CREATE OR REPLACE FUNCTION tasker.end_task_options() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM tasker.task_starts x WHERE x.task_uuid = NEW.task_uuid;
    DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
    RETURN NULL;
END
$$;
