package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
)

// countTemplates counts up to one more than each bound, with skip scans of an index.
const countTemplates = `
WITH RECURSIVE spaces AS (
    (SELECT namespace FROM tasker.task_templates ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT t.namespace FROM tasker.task_templates t WHERE t.namespace > s.namespace ORDER BY t.namespace LIMIT 1)
    FROM spaces s
    WHERE s.namespace IS NOT NULL
),
names AS (
    (SELECT name FROM tasker.task_templates WHERE namespace = $1 ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT t.name FROM tasker.task_templates t WHERE t.namespace = $1 AND t.name > n.name ORDER BY t.name LIMIT 1)
    FROM names n
    WHERE n.name IS NOT NULL
)
SELECT
    (SELECT count(*) FROM (SELECT FROM spaces WHERE namespace IS NOT NULL LIMIT $4::bigint + 1) x) AS namespaces,
    (SELECT count(*) FROM (SELECT FROM names WHERE name IS NOT NULL LIMIT $5::bigint + 1) x) AS templates,
    (SELECT count(*) FROM (SELECT FROM tasker.task_templates WHERE namespace = $1 AND name = $2 LIMIT $6::bigint + 1) x) AS versions,
    NOT EXISTS (SELECT FROM tasker.task_templates WHERE namespace = $1 AND template_uuid <> $3) AS new_namespace,
    NOT EXISTS (SELECT FROM tasker.task_templates WHERE namespace = $1 AND name = $2 AND template_uuid <> $3) AS new_template`

const addHandlers = `
WITH added AS (
    INSERT INTO tasker.template_handlers (namespace, handler) SELECT DISTINCT $1, h FROM unnest($2::text[]) AS h
    ON CONFLICT DO NOTHING
    RETURNING handler
)
SELECT count(*) FROM added`

// forgetHandlers removes the handlers of a namespace that no template uses any more.
const forgetHandlers = `
DELETE FROM tasker.template_handlers h
WHERE h.namespace = $1 AND NOT EXISTS (
    SELECT FROM tasker.task_templates t
    WHERE t.namespace = $1 AND t.configuration @? format('$.steps[*] ? (@.handler.callable == %1$s || @.on_failure.compensate == %1$s)', to_json(h.handler))::jsonpath
)`

const countHandlers = `SELECT count(*) FROM (SELECT FROM tasker.template_handlers WHERE namespace = $1 LIMIT $2::bigint + 1) h`

// checkBounds returns a Conflict if a template that was just stored exceeds a bound. Concurrent
// registrations wait for each other.
func (tx *Tx) checkBounds(ctx context.Context, t tasker.Template, id tasker.ID, most tasker.Bounds) error {
	most = most.Complete()
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('tasker.task_templates', 0))`); err != nil {
		return fmt.Errorf("wait for other templates: %w", err)
	}
	type counts struct {
		Namespaces, Templates, Versions int
		NewNamespace, NewTemplate       bool
	}
	have, err := one[counts](ctx, tx, countTemplates, t.Namespace, t.Name, id, most.Namespaces, most.Templates, most.Versions)
	switch {
	case err != nil:
		return fmt.Errorf("count templates: %w", err)
	case have.NewNamespace && have.Namespaces > most.Namespaces:
		return tasker.Errorf(tasker.Conflict, "namespace %q would be one more than limits.namespaces, which is %d; use one of those there are, or raise the limit",
			t.Namespace, most.Namespaces)
	case have.NewTemplate && have.Templates > most.Templates:
		return tasker.Errorf(tasker.Conflict, "template %q would be one more than namespace %q may have: limits.templates is %d; make it a version of one there is, or raise the limit",
			t.Name, t.Namespace, most.Templates)
	case have.Versions > most.Versions:
		return tasker.Errorf(tasker.Conflict, "version %s would be one more than template %s/%s may have: limits.template_versions is %d; use another name, or raise the limit",
			t.Version, t.Namespace, t.Name, most.Versions)
	}
	return tx.boundHandlers(ctx, t, most.Handlers)
}

func (tx *Tx) boundHandlers(ctx context.Context, t tasker.Template, most int) error {
	var names []string
	for _, s := range t.Steps {
		if s.Handler.Callable != "" {
			names = append(names, s.Handler.Callable)
		}
		if undo, ok := s.Undo(); ok {
			names = append(names, undo.Handler.Callable)
		}
	}
	added, err := value[int](ctx, tx, addHandlers, t.Namespace, names)
	if err != nil || added == 0 {
		return wrap(err, "store the handlers of a template")
	}
	have, err := value[int](ctx, tx, countHandlers, t.Namespace, most)
	if err == nil && have > most { // templates may have stopped using some
		if _, err = tx.Exec(ctx, forgetHandlers, t.Namespace); err == nil {
			have, err = value[int](ctx, tx, countHandlers, t.Namespace, most)
		}
	}
	if err != nil || have <= most {
		return wrap(err, "count handlers")
	}
	return tasker.Errorf(tasker.Conflict, "the template would give namespace %q more handlers than limits.handlers, which is %d; use handlers there are, and tell what differs by their "+
		"initialization, or raise the limit", t.Namespace, most)
}
