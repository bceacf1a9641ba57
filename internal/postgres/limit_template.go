package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

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
	by := cmp.Or(access.IdentityFromContext(ctx).Subject, tasker.SystemActor)
	_, err := tx.Exec(ctx, statement("storeTemplateLimits"), t.Namespace, names, most, rates, bursts, by, of, handlers)
	return wrapError(err, "store the limits of a template")
}

// A TaskLimit is a limit that a template assigns to a new task.
type TaskLimit struct {
	Name, Key string
	Step      *tasker.ID // nil if the limit applies to every step
	Weight    int        // number of slots per step
}

type newTaskLimit struct {
	task *CreatedTask
	TaskLimit
}

var taskLimitColumns = columns[newTaskLimit]{
	newColumn("task_uuid uuid", func(l *newTaskLimit) tasker.ID { return l.task.UUID }),
	newColumn("namespace text", func(l *newTaskLimit) string { return l.task.Template.Namespace }),
	newColumn("name text", func(l *newTaskLimit) string { return l.Name }),
	newColumn("key text", func(l *newTaskLimit) string { return l.Key }),
	newColumn("step_uuid uuid", func(l *newTaskLimit) pgtype.UUID { return toNullableUUID(l.Step) }),
	newColumn("weight integer", func(l *newTaskLimit) int { return l.Weight }),
}

func newLimitKeyArgs(limits []newTaskLimit) []any {
	namespaces, names, keys := make([]string, len(limits)), make([]string, len(limits)), make([]string, len(limits))
	for i, l := range limits {
		namespaces[i], names[i], keys[i] = l.task.Template.Namespace, l.Name, l.Key
	}
	return []any{namespaces, names, keys}
}

func collectTaskLimits(tasks []*CreatedTask) (list []newTaskLimit) {
	for _, t := range tasks {
		for _, l := range t.Limits {
			list = append(list, newTaskLimit{t, l})
		}
	}
	return list
}

// changeLimitKeys changes the limit keys of a task that has not started yet.
func (tx *Tx) changeLimitKeys(ctx context.Context, task tasker.ID, t *CreatedTask) error {
	if len(t.Limits) == 0 {
		return nil
	}
	var names, keys []string // names may repeat, but always with the same key
	for _, l := range t.Limits {
		names, keys = append(names, l.Name), append(keys, l.Key)
	}
	_, err := tx.Exec(ctx, statement("changeLimitKeys"), task, names, keys, t.Template.Namespace)
	return wrapError(err, "change the keys of limits")
}
