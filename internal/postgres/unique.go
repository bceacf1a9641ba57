package postgres

import (
	"context"
	"errors"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// ErrUniqueKeyTaken says that an open task of the template has the same unique key.
var ErrUniqueKeyTaken = errors.New("unique key is taken")

// A UniqueKey is one that an open task of a template may have.
type UniqueKey struct{ Namespace, Name, Key string }

// UniqueKey returns the unique key of the task; it is empty when it has none.
func (t *CreatedTask) UniqueKey() UniqueKey {
	if t.Options == nil || t.Options.Unique.Key == "" {
		return UniqueKey{}
	}
	return UniqueKey{t.Template.Namespace, t.Template.Name, t.Options.Unique.Key}
}

// Replaces reports whether the task takes over the unique key of another, which is cancelled.
func (t *CreatedTask) Replaces() bool {
	return t.UniqueKey() != UniqueKey{} && t.Options.Unique.OnConflict == tasker.ConflictCancelExisting
}

// UniqueTask returns the open task that has a unique key; the zero id when none has.
func (db *DB) UniqueTask(ctx context.Context, key UniqueKey) (tasker.ID, error) {
	return uniqueTask(ctx, db.pool, key)
}

// UniqueTask is [DB.UniqueTask] inside a transaction.
func (tx *Tx) UniqueTask(ctx context.Context, key UniqueKey) (tasker.ID, error) {
	return uniqueTask(ctx, tx, key)
}

func uniqueTask(ctx context.Context, q querier, key UniqueKey) (id tasker.ID, err error) {
	list, err := column[tasker.ID](ctx, q, `SELECT task_uuid FROM tasker.unique_tasks WHERE namespace = $1 AND name = $2 AND unique_key = $3`, key.Namespace, key.Name, key.Key)
	if err != nil {
		return id, fmt.Errorf("look for unique key: %w", err)
	}
	if len(list) > 0 {
		id = list[0]
	}
	return id, nil
}

// Those who take over a key come one after the other, in the order of the keys, so that each finds the
// task of the one before.
const lockUniqueKeys = `
SELECT pg_advisory_xact_lock(k.lock)
FROM (
    SELECT DISTINCT hashtextextended(u.namespace || chr(31) || u.name || chr(31) || u.unique_key, 7) AS lock
    FROM unnest($1::text[], $2::text[], $3::text[]) AS u (namespace, name, unique_key)
    ORDER BY 1
) k`

const selectUnique = `
SELECT x.task_uuid
FROM unnest($1::text[], $2::text[], $3::text[]) AS u (namespace, name, unique_key)
JOIN tasker.unique_tasks x ON x.namespace = u.namespace AND x.name = u.name AND x.unique_key = u.unique_key
WHERE x.task_uuid <> ALL ($4)`

// CancelUnique cancels the open tasks whose unique keys new ones take over.
func (tx *Tx) CancelUnique(ctx context.Context, tasks []*CreatedTask) error {
	var namespaces, names, keys []string
	var made []tasker.ID
	by := Operator{Actor: tasker.SystemActor}
	for _, t := range tasks {
		if !t.Replaces() {
			continue
		}
		k := t.UniqueKey()
		namespaces, names, keys, made = append(namespaces, k.Namespace), append(names, k.Name), append(keys, k.Key), append(made, t.UUID)
		if t.Request.Initiator != "" {
			by.Actor = t.Request.Initiator
		}
	}
	if len(made) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, lockUniqueKeys, namespaces, names, keys); err != nil {
		return fmt.Errorf("lock unique keys: %w", err)
	}
	old, err := column[tasker.ID](ctx, tx, selectUnique, namespaces, names, keys, made)
	if err != nil {
		return fmt.Errorf("look for unique keys: %w", err)
	}
	if len(old) == 0 {
		return nil
	}
	if err := tx.LockTasks(ctx, old); err != nil {
		return err
	}
	targets, err := tx.TaskTargets(ctx, old)
	if err != nil {
		return err
	}
	open := targets[:0]
	for _, t := range targets {
		if _, err := lifecycle.Task.Next(t.State, lifecycle.CancelTask); err == nil {
			open = append(open, t)
		}
	}
	by.Reason = "another task took over its unique key"
	return tx.CancelTasks(ctx, open, Cancellation{Operator: by})
}

// FreeUniqueKeys frees the unique keys of the tasks that new ones replace: the caller has locked
// these, and gives them up in the same transaction.
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
	if _, err := tx.Exec(ctx, `DELETE FROM tasker.unique_tasks WHERE task_uuid = ANY ($1)`, replaced); err != nil {
		return fmt.Errorf("free unique keys: %w", err)
	}
	return nil
}
