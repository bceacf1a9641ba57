package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// A limit assigned by templates has the value of the newest registration until an operator changes
// it.
const storeTemplateLimits = `
WITH assigned AS (
    SELECT * FROM unnest($2::text[], $3::int[], $4::float8[], $5::int[]) AS u (name, max_in_progress, per_second, burst)
),
stored AS (
    INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, per_second, burst, by_template, changed_by)
    SELECT 'name', $1, g.name, nullif(g.max_in_progress, 0), nullif(g.per_second, 0), nullif(g.burst, 0), true, $6
    FROM assigned g
    ORDER BY g.name
    ON CONFLICT (namespace, kind, name) DO UPDATE
    SET max_in_progress = CASE WHEN limits.by_template THEN excluded.max_in_progress ELSE limits.max_in_progress END,
        per_second = CASE WHEN limits.by_template THEN excluded.per_second ELSE limits.per_second END,
        burst = CASE WHEN limits.by_template THEN excluded.burst ELSE limits.burst END,
        changed_by = CASE WHEN limits.by_template THEN excluded.changed_by ELSE limits.changed_by END,
        changed_at = CASE WHEN limits.by_template THEN clock_timestamp() ELSE limits.changed_at END
    RETURNING limit_id, name
)
INSERT INTO tasker.limit_queues (namespace, handler, limit_id)
SELECT DISTINCT $1, q.handler, s.limit_id
FROM unnest($7::text[], $8::text[]) AS q (name, handler)
JOIN stored s ON s.name = q.name
ON CONFLICT DO NOTHING`

func (tx *Tx) storeTemplateLimits(ctx context.Context, t tasker.Template) error {
	if len(t.Limits) == 0 {
		return nil
	}
	var names, of, handlers []string
	var most, bursts []int
	var rates []float64
	for _, l := range t.Limits {
		v := l.Value()
		if err := v.Check(); err != nil {
			return err
		}
		names, most, rates, bursts = append(names, l.Name), append(most, v.MaxInProgress), append(rates, v.PerSecond), append(bursts, v.Burst)
		for _, s := range t.Steps {
			if s.HasHandler() && (len(l.Steps) == 0 || slices.Contains(l.Steps, s.Name)) {
				of, handlers = append(of, l.Name), append(handlers, s.Handler.Callable)
			}
		}
	}
	by := cmp.Or(access.IdentityOf(ctx).Subject, tasker.SystemActor)
	_, err := tx.Exec(ctx, storeTemplateLimits, t.Namespace, names, most, rates, bursts, by, of, handlers)
	return wrap(err, "store the limits of a template")
}

// A TaskLimit is a limit that a template assigns to a new task.
type TaskLimit struct {
	Name, Key string
	Step      *tasker.ID // nil for every step
	Weight    int        // slots per step
}

type newTaskLimit struct {
	task *CreatedTask
	TaskLimit
}

var taskLimitColumns = columns[newTaskLimit]{
	col("task_uuid uuid", func(l *newTaskLimit) tasker.ID { return l.task.UUID }),
	col("namespace text", func(l *newTaskLimit) string { return l.task.Template.Namespace }),
	col("name text", func(l *newTaskLimit) string { return l.Name }),
	col("key text", func(l *newTaskLimit) string { return l.Key }),
	col("step_uuid uuid", func(l *newTaskLimit) pgtype.UUID { return nullable(l.Step) }),
	col("weight integer", func(l *newTaskLimit) int { return l.Weight }),
}

var insertTaskLimits = `
INSERT INTO tasker.task_limits (task_uuid, step_uuid, limit_id, key, weight)
SELECT u.task_uuid, u.step_uuid, l.limit_id, u.key, u.weight
FROM ` + taskLimitColumns.unnest("u", 1) + `
JOIN tasker.limits l ON l.namespace = u.namespace AND l.kind = 'name' AND l.name = u.name`

// makeTaskKeys creates missing keys. It looks each up separately to avoid a bad plan.
const makeTaskKeys = `
INSERT INTO tasker.limit_keys (limit_id, key)
SELECT l.limit_id, u.key
FROM (SELECT DISTINCT namespace, name, key FROM unnest($1::text[], $2::text[], $3::text[]) AS u (namespace, name, key)) u
JOIN tasker.limits l ON l.namespace = u.namespace AND l.kind = 'name' AND l.name = u.name
WHERE (SELECT k.limit_key_id FROM tasker.limit_keys k WHERE k.limit_id = l.limit_id AND k.key = u.key) IS NULL
ORDER BY l.limit_id, u.key
ON CONFLICT (limit_id, key) DO NOTHING`

func keysOfLimits(limits []newTaskLimit) []any {
	namespaces, names, keys := make([]string, len(limits)), make([]string, len(limits)), make([]string, len(limits))
	for i, l := range limits {
		namespaces[i], names[i], keys[i] = l.task.Template.Namespace, l.Name, l.Key
	}
	return []any{namespaces, names, keys}
}

func limitsOfTasks(tasks []*CreatedTask) (list []newTaskLimit) {
	for _, t := range tasks {
		for _, l := range t.Limits {
			list = append(list, newTaskLimit{t, l})
		}
	}
	return list
}

const changeLimitKeys = `
UPDATE tasker.task_limits t SET key = u.key
FROM unnest($2::text[], $3::text[]) AS u (name, key)
JOIN tasker.limits l ON l.namespace = $4 AND l.kind = 'name' AND l.name = u.name
WHERE t.task_uuid = $1 AND t.limit_id = l.limit_id`

// changeLimitKeys changes the limit keys of a task that has not started.
func (tx *Tx) changeLimitKeys(ctx context.Context, task tasker.ID, t *CreatedTask) error {
	if len(t.Limits) == 0 {
		return nil
	}
	var names, keys []string // a name repeats with the same key
	for _, l := range t.Limits {
		names, keys = append(names, l.Name), append(keys, l.Key)
	}
	_, err := tx.Exec(ctx, changeLimitKeys, task, names, keys, t.Template.Namespace)
	return wrap(err, "change the keys of limits")
}
