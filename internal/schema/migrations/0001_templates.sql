-- Templates: what the tasks of a namespace are made of.

CREATE FUNCTION tasker.uuid_generate_v7() RETURNS uuid
LANGUAGE sql PARALLEL SAFE
AS $$
    SELECT encode(
        set_bit(
            set_bit(
                overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
                52, 1),
            53, 1),
        'hex')::uuid
$$;
COMMENT ON FUNCTION tasker.uuid_generate_v7() IS 'A UUID of version 7: the first 48 bits are the time in milliseconds, so ids sort by when they were made.';

CREATE TABLE tasker.namespaces (
    namespace text PRIMARY KEY,
    weight    float8 NOT NULL,
    set_by    text NOT NULL,
    set_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT namespace_weight_is_in_bounds CHECK (weight BETWEEN 0.01 AND 1000)
);
COMMENT ON TABLE tasker.namespaces IS 'The weights of namespaces in claims of several: their shares when all have work. A namespace without a row has the weight 1.';

CREATE TABLE tasker.task_templates (
    template_uuid                        uuid DEFAULT tasker.uuid_generate_v7() PRIMARY KEY,
    namespace                            text NOT NULL,
    name                                 text NOT NULL,
    version                              text NOT NULL,
    description                          text NOT NULL DEFAULT '',
    configuration                        jsonb NOT NULL,
    source                               text NOT NULL,
    checksum                             text NOT NULL,
    max_waiting_for_dependencies_minutes integer,
    max_waiting_for_retry_minutes        integer,
    max_steps_in_process_minutes         integer,
    max_duration_minutes                 integer,
    created_at                           timestamptz NOT NULL DEFAULT now(),
    retired_at                           timestamptz,
    retired_by                           text,
    retired_reason                       text,
    attributes                           text[],
    CONSTRAINT task_template_version_is_unique UNIQUE (namespace, name, version)
);
COMMENT ON TABLE tasker.task_templates IS 'Templates, one row a version. A version that a task uses never changes.';
COMMENT ON COLUMN tasker.task_templates.configuration IS 'The template as it is understood.';
COMMENT ON COLUMN tasker.task_templates.source IS 'The document as it was registered.';
COMMENT ON COLUMN tasker.task_templates.retired_at IS 'Since when no new tasks are made of this version. Null: they are.';
COMMENT ON COLUMN tasker.task_templates.retired_by IS 'Who retired it.';
COMMENT ON COLUMN tasker.task_templates.retired_reason IS 'Why.';
COMMENT ON COLUMN tasker.task_templates.attributes IS 'The names of the search attributes that it declares. Null: none.';

CREATE TABLE tasker.template_handlers (
    namespace text NOT NULL,
    handler   text NOT NULL,
    PRIMARY KEY (namespace, handler)
);
COMMENT ON TABLE tasker.template_handlers IS 'Handlers that templates of a namespace name. Some may be named by none any more, because an unused version was replaced.';

CREATE TABLE tasker.attribute_names (
    namespace text NOT NULL,
    name      text NOT NULL,
    type      text NOT NULL,
    PRIMARY KEY (namespace, name),
    CONSTRAINT attribute_type_is_known CHECK (type IN ('text', 'number', 'time', 'bool'))
);
COMMENT ON TABLE tasker.attribute_names IS 'The search attributes that templates declare, with the type that each has in the whole namespace.';
CREATE INDEX attribute_names_by_name ON tasker.attribute_names (name);
