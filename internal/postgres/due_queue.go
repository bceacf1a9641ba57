package postgres

import (
	"context"
	"slices"

	"tasker.example/tasker"
)

// orderQueues records that the queues of a template are ordered by due time, if the template
// requires this.
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
	_, err := tx.Exec(ctx, statement("orderQueues"), t.Namespace, handlers)
	return wrapError(err, "store queues ordered by due time")
}

// maxOpenExamined limits how many open tasks of each state are searched for one of a retired
// template.
const maxOpenExamined = 10_000

// ForgetDueQueues removes the order by due time from queues for which no template requires it any
// more.
func (db *DB) ForgetDueQueues(ctx context.Context) error {
	open := slices.DeleteFunc(tasker.TaskStates(), func(s tasker.TaskState) bool { return slices.Contains(finalStates, s) })
	found, err := queryValue[bool](ctx, db.pool, statement("anyUnorderedQueue"), open, maxOpenExamined)
	if err == nil && found {
		err = db.InTx(ctx, func(tx *Tx) error {
			// This waits for registrations of templates and blocks later ones.
			if _, err := tx.Exec(ctx, statement("lockDueQueues")); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, statement("pruneDueQueues"), open, maxOpenExamined)
			return err
		})
	}
	return wrapError(err, "remove queues that no template orders by due time")
}
