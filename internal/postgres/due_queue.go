package postgres

import (
	"context"
	"slices"

	"tasker.example/tasker"
)

// orderQueues marks the queues of a template as ordered by due time if the template requires it.
func (tx *Tx) orderQueues(ctx context.Context, t tasker.Template) error {
	if t.Order != tasker.OrderDue {
		return nil
	}
	var handlers []string
	for _, s := range t.Steps {
		if s.HasHandler() {
			handlers = append(handlers, s.Handler.Callable)
		}
	}
	_, err := tx.Exec(ctx, `INSERT INTO tasker.due_queues (namespace, handler) SELECT $1, h.name FROM unnest($2::text[]) AS h (name) ORDER BY h.name ON CONFLICT DO NOTHING`, t.Namespace, handlers)
	return wrap(err, "store queues ordered by due time")
}

// maxOpenExamined bounds the open tasks of each state in which to find one of a retired template.
const maxOpenExamined = 10_000

// unorderedQueue is true if no template requires row q of due_queues any more: each is retired and
// has no task among the $2 newest of each open state ($1). A state with more tasks keeps the row.
// BETWEEN makes the planner use an index range.
const unorderedQueue = `NOT EXISTS (
    SELECT FROM tasker.task_templates m
    CROSS JOIN LATERAL jsonb_array_elements(m.configuration -> 'steps') s
    WHERE m.namespace = q.namespace AND m.configuration ->> 'order' = 'due' AND s -> 'handler' ->> 'callable' = q.handler AND (
        m.retired_at IS NULL OR EXISTS (
            SELECT FROM unnest($1::text[]) AS u (state)
            CROSS JOIN LATERAL (
                SELECT count(*) AS seen, coalesce(bool_or(t.template_uuid = m.template_uuid), false) AS found
                FROM (SELECT t.template_uuid FROM tasker.tasks t WHERE t.state BETWEEN u.state AND u.state ORDER BY t.state, t.task_uuid DESC LIMIT $2) t
            ) o
            WHERE o.found OR o.seen = $2
        )
    )
)`

const forgetDueQueues = `DELETE FROM tasker.due_queues q WHERE ` + unorderedQueue

const anyUnorderedQueue = `SELECT EXISTS (SELECT FROM tasker.due_queues q WHERE ` + unorderedQueue + `)`

// ForgetDueQueues removes the order by due time from queues for which no template requires it.
func (db *DB) ForgetDueQueues(ctx context.Context) error {
	open := slices.DeleteFunc(tasker.TaskStates(), func(s tasker.TaskState) bool { return slices.Contains(finalStates, s) })
	found, err := value[bool](ctx, db.pool, anyUnorderedQueue, open, maxOpenExamined)
	if err == nil && found {
		err = db.InTx(ctx, func(tx *Tx) error {
			// Waits for registrations, and later ones wait for it.
			if _, err := tx.Exec(ctx, `LOCK TABLE tasker.due_queues IN SHARE ROW EXCLUSIVE MODE`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, forgetDueQueues, open, maxOpenExamined)
			return err
		})
	}
	return wrap(err, "remove queues that no template orders by due time")
}
