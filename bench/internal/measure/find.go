package measure

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// foundTasks is how many tasks there are for each that is drained: a million for 20,000.
const foundTasks = 50

// Rows of tasks that have ended. Triggers are left out, as they would write what nobody reads here.
const insertFound = `
WITH template AS (
    INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum, attributes)
    VALUES ('find', 'found', '1.0.0', '{}', '', '', '{customer,risk}') RETURNING template_uuid
), names AS (
    INSERT INTO tasker.attribute_names (namespace, name, type) VALUES ('find', 'customer', 'text'), ('find', 'risk', 'number')
)
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, tags, correlation_id, created_at, updated_at, completed_at)
SELECT tasker.uuid_generate_v7(), m.template_uuid, 'find', 'found', '1.0.0', 'complete', now(), '{}',
    CASE WHEN n % 1000 = 0 THEN ARRAY['all', 'seldom'] ELSE ARRAY['all'] END, 'c-' || n, now(), now(), now()
FROM template m, generate_series(1, $1) n`

const insertFoundBy = `
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value, number_value)
SELECT t.task_uuid, t.namespace, w.name, w.text_value, w.number_value
FROM tasker.tasks t
CROSS JOIN LATERAL (
    SELECT 'tag', g.tag, NULL::numeric FROM unnest(t.tags) AS g (tag)
    UNION ALL VALUES
        ('correlation_id', t.correlation_id, NULL), ('customer', 'customer ' || substr(t.correlation_id, 3)::int % 10000, NULL),
        ('risk', NULL, substr(t.correlation_id, 3)::numeric / 1000)
) w (name, text_value, number_value)
WHERE t.namespace = 'find'`

// found measures how long it takes to find the tasks of a page of 50 among a million.
func (b *bench) found(ctx context.Context) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	if err := b.insertFound(ctx); err != nil {
		return err
	}
	var deep tasker.ID
	err := b.db.Pool().QueryRow(ctx, `SELECT task_uuid FROM tasker.tasks WHERE namespace = 'find' ORDER BY task_uuid OFFSET $1 LIMIT 1`, b.Tasks*foundTasks/10).Scan(&deep)
	if err != nil {
		return err
	}
	attribute := func(name, value string) []tasker.AttributeFilter { return []tasker.AttributeFilter{{Name: name, Value: value}} }
	for _, q := range []struct {
		name   string
		filter tasker.TaskFilter
	}{
		{"a tag that all have", tasker.TaskFilter{Tags: []string{"all"}}},
		{"the same, behind 90 %, by before", tasker.TaskFilter{Tags: []string{"all"}, Before: deep}},
		{"the same, behind 90 %, by offset", tasker.TaskFilter{Tags: []string{"all"}, Offset: b.Tasks * foundTasks / 10 * 9}},
		{"the same and a state that none has", tasker.TaskFilter{Tags: []string{"all"}, State: tasker.TaskError}},
		{"two tags, one of them seldom and second", tasker.TaskFilter{Tags: []string{"all", "seldom"}}},
		{"a correlation id", tasker.TaskFilter{CorrelationID: "c-7"}},
		{"an attribute", tasker.TaskFilter{Attributes: attribute("customer", "customer 7")}},
		{"a range of an attribute", tasker.TaskFilter{Attributes: attribute("risk", ">0.5")}},
		{"all tasks, behind 90 %, by before", tasker.TaskFilter{Before: deep}},
	} {
		q.filter.Limit = 50
		for run := range b.Runs + 1 {
			start := time.Now()
			if _, _, err := b.db.Tasks(ctx, q.filter); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			if took := time.Since(start); run > 0 { // the first is with cold caches
				b.note(figure{name: "a page of " + q.name, unit: "ms"}, float64(took.Microseconds())/1000)
			}
		}
	}
	return b.reset(ctx)
}

func (b *bench) insertFound(ctx context.Context) error {
	conn, err := b.db.Pool().Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	const set = `SELECT set_config('session_replication_role', $1, false), set_config('statement_timeout', $2, false)`
	if _, err := conn.Exec(ctx, set, "replica", "0"); err != nil {
		return err
	}
	defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), set, "origin", "60000") }()
	if _, err := conn.Exec(ctx, insertFound, b.Tasks*foundTasks); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, insertFoundBy); err != nil {
		return err
	}
	for _, table := range []string{"tasks", "task_attributes"} {
		if _, err := conn.Exec(ctx, `VACUUM (ANALYZE) tasker.`+table); err != nil {
			return err
		}
	}
	return nil
}
