package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// ErrUniqueKeyTaken indicates that an open task of the template has the same unique key.
var ErrUniqueKeyTaken = errors.New("unique key is taken")

// UniqueKey is a key that at most one open task of a template can have.
type UniqueKey struct{ Namespace, Name, Key string }

// UniqueKey returns the unique key of the task, or the zero value if it has none.
func (t *CreatedTask) UniqueKey() UniqueKey {
	if t.Options == nil || t.Options.Unique.Key == "" {
		return UniqueKey{}
	}
	return UniqueKey{t.Template.Namespace, t.Template.Name, t.Options.Unique.Key}
}

// ReplacesExisting reports whether the task cancels an open task that has the same unique key.
func (t *CreatedTask) ReplacesExisting() bool {
	return t.UniqueKey() != UniqueKey{} && t.Options.Unique.OnConflict == tasker.ConflictCancelExisting
}

// UniqueTask returns the open task with a unique key, or the zero id if there is none.
func (db *DB) UniqueTask(ctx context.Context, key UniqueKey) (tasker.ID, error) {
	return findUniqueTask(ctx, db.pool, key)
}

// UniqueTask is [DB.UniqueTask] within the transaction.
func (tx *Tx) UniqueTask(ctx context.Context, key UniqueKey) (tasker.ID, error) {
	return findUniqueTask(ctx, tx, key)
}

func findUniqueTask(ctx context.Context, q querier, key UniqueKey) (id tasker.ID, err error) {
	found, err := queryFirst[tasker.ID](ctx, q, statement("uniqueTask"), key.Namespace, key.Name, key.Key)
	if found != nil {
		id = *found
	}
	return id, wrapError(err, "find unique key")
}

// CancelUnique cancels the open tasks whose unique keys new tasks take over. The initiator of the
// new task is recorded as the actor. If an open task is being compensated, it returns a Conflict,
// because the compensation would remain incomplete.
func (tx *Tx) CancelUnique(ctx context.Context, tasks []*CreatedTask) error {
	type holder struct {
		TaskUUID tasker.ID
		Place    int // position of the new task, starting with 1
	}
	var namespaces, names, keys, actors []string
	var made []tasker.ID
	for _, t := range tasks {
		if t.ReplacesExisting() {
			k := t.UniqueKey()
			namespaces, names, keys, made = append(namespaces, k.Namespace), append(names, k.Name), append(keys, k.Key), append(made, t.UUID)
			actors = append(actors, cmp.Or(t.Request.Initiator, tasker.SystemActor))
		}
	}
	if len(made) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, statement("lockUniqueKeys"), namespaces, names, keys); err != nil {
		return fmt.Errorf("lock unique keys: %w", err)
	}
	held, err := collect[holder](ctx, tx, statement("selectUnique"), namespaces, names, keys, made)
	if err != nil {
		return fmt.Errorf("find unique keys: %w", err)
	}
	if len(held) == 0 {
		return nil
	}
	old, actorOf := make([]tasker.ID, len(held)), make(map[tasker.ID]string, len(held))
	for i, h := range held {
		old[i], actorOf[h.TaskUUID] = h.TaskUUID, actors[h.Place-1]
	}
	if err := tx.LockTasks(ctx, old); err != nil {
		return err
	}
	targets, err := tx.TaskTargets(ctx, old)
	if err != nil {
		return err
	}
	open := map[string][]TaskTarget{}
	for _, t := range targets {
		if _, err := core.TaskMoves.Next(t.State, core.CancelTask); err != nil {
			continue
		}
		if t.Undone {
			return tasker.Errorf(tasker.Conflict, "task %s has the same unique key and is being compensated: "+
				"retry when compensation ends, or cancel that task (steps not yet compensated stay "+
				"completed)", t.TaskUUID).
				WithDetails(map[string]string{"task_uuid": t.TaskUUID.String()})
		}
		open[actorOf[t.TaskUUID]] = append(open[actorOf[t.TaskUUID]], t)
	}
	for _, actor := range slices.Sorted(maps.Keys(open)) {
		if err := tx.CancelTasks(ctx, open[actor], Cancellation{Operator: Operator{Actor: actor, Reason: "replaced by another task with the same unique key"}}); err != nil {
			return err
		}
	}
	return nil
}

// FreeUniqueKeys releases the unique keys of tasks that new tasks replace. The tasks must be
// locked.
func (tx *Tx) FreeUniqueKeys(ctx context.Context, tasks []*CreatedTask) error {
	var replaced []tasker.ID
	for _, t := range tasks {
		if (t.UniqueKey() != UniqueKey{}) {
			replaced = append(replaced, t.Request.RecreatedFrom)
		}
	}
	if len(replaced) == 0 {
		return nil
	}
	return exec(ctx, tx, "release unique keys", statement("freeUniqueKeys"), replaced)
}
