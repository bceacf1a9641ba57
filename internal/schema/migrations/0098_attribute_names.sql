-- The attributes that templates declare. A name has one type within a namespace.
CREATE TABLE tasker.attribute_names (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    type      text NOT NULL,
    PRIMARY KEY (namespace, name),
    CONSTRAINT attribute_type_is_known CHECK (type IN ('text', 'number', 'time', 'bool'))
);
CREATE INDEX attribute_names_by_name ON tasker.attribute_names (name);
COMMENT ON TABLE tasker.attribute_names IS 'The search attributes that templates declare, with the type that each has in the whole namespace.';
ALTER TABLE tasker.task_templates ADD attributes text[];
COMMENT ON COLUMN tasker.task_templates.attributes IS 'The names of the search attributes that it declares. Null: none.';
