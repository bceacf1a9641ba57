-- The handlers that the templates of a namespace name, so that their number can be bounded
-- without reading all templates.
CREATE TABLE tasker.template_handlers (
    namespace text NOT NULL,
    handler   text NOT NULL,
    PRIMARY KEY (namespace, handler)
);
COMMENT ON TABLE tasker.template_handlers IS 'Handlers that templates of a namespace name. Some may be named by none any more, because an unused version was replaced.';
INSERT INTO tasker.template_handlers (namespace, handler)
SELECT DISTINCT t.namespace, s.step -> 'handler' ->> 'callable'
FROM tasker.task_templates t
CROSS JOIN LATERAL jsonb_array_elements(CASE WHEN jsonb_typeof(t.configuration -> 'steps') = 'array' THEN t.configuration -> 'steps' ELSE '[]' END) AS s (step)
WHERE s.step -> 'handler' ->> 'callable' <> '';
