package postgres

import (
	"context"
	"slices"

	"tasker.example/tasker"
)

// orderQueues notes in which queues the steps of a template come first that are due first.
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
	return wrap(err, "note which queues are ordered by due times")
}

// maxOpenLooked is how many open tasks of each state are looked at to find out whether a retired template still has some.
const maxOpenLooked = 10_000

// unorderedQueue is true of a row q of due_queues for which no template asks any more: each that did is retired and has no
// open task, as far as that is told by looking at so many ($2) of each open state ($1). Where there are more the row stays. A state is asked for as a range, as in [tasksPage].
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

// forgetDueQueues removes what no template asks for. Registrations wait meanwhile, and it has waited for those before.
const forgetDueQueues = `DELETE FROM tasker.due_queues q WHERE ` + unorderedQueue

const anyUnorderedQueue = `SELECT EXISTS (SELECT FROM tasker.due_queues q WHERE ` + unorderedQueue + `)`

// ForgetDueQueues has claims of queues not look at due times any more in which no template asks for that order.
func (db *DB) ForgetDueQueues(ctx context.Context) error {
	open := slices.DeleteFunc(tasker.TaskStates(), func(s tasker.TaskState) bool { return slices.Contains(finalStates, s) })
	found, err := column[bool](ctx, db.pool, anyUnorderedQueue, open, maxOpenLooked)
	if err == nil && found[0] {
		err = db.InTx(ctx, func(tx *Tx) error {
			if _, err := tx.Exec(ctx, `LOCK TABLE tasker.due_queues IN SHARE ROW EXCLUSIVE MODE`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, forgetDueQueues, open, maxOpenLooked)
			return err
		})
	}
	return wrap(err, "forget queues that no template orders by due times")
}
