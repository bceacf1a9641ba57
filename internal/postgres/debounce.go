package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
)

// CanMerge reports whether the request may be merged into a waiting task.
func (t *CreatedTask) CanMerge() bool { return t.Options != nil && t.Options.Debounce.Key != "" }

// LockDebounceKeys makes requests with the same debounce keys wait until the transaction ends.
func (tx *Tx) LockDebounceKeys(ctx context.Context, tasks []*CreatedTask) error {
	if len(tasks) == 0 {
		return nil
	}
	var namespaces, names, keys []string
	for _, t := range tasks {
		namespaces, names, keys = append(namespaces, t.Template.Namespace), append(names, t.Template.Name), append(keys, t.Options.Debounce.Key)
	}
	_, err := tx.Exec(ctx, statement("lockDebounceKeys"), namespaces, names, keys)
	return wrapError(err, "lock debounce keys")
}

// WaitingTask is a task that has not started yet, so that requests can be merged into it.
type WaitingTask struct {
	UUID    tasker.ID
	Version string
}

// WaitingTask locks and returns the waiting task that has the same debounce key as t, or nil.
func (tx *Tx) WaitingTask(ctx context.Context, t *CreatedTask) (*WaitingTask, error) {
	found, err := queryOne[WaitingTask](ctx, tx, statement("waitingTask"), t.Template.Namespace, t.Template.Name, t.Options.Debounce.Key)
	return found, wrapError(err, "find debounce key")
}

// MergeRequest replaces the data of a locked waiting task with that of a request and delays its
// start.
func (tx *Tx) MergeRequest(ctx context.Context, task tasker.ID, t *CreatedTask) error {
	o := t.Options
	tag, err := tx.Exec(ctx, statement("mergeRequest"), task, string(t.Request.Context), t.ContextSize, o.Debounce.Wait.Milliseconds(), o.StartWithin.Milliseconds(),
		t.Request.Initiator, t.Request.Reason, nilIfZeroTime(o.StartBy))
	if err != nil {
		return fmt.Errorf("merge a request: %w", classifyInsertionError(err))
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("task %s, which is locked, is not pending", task)
	}
	if err := tx.replaceDeadline(ctx, task, o); err != nil {
		return err
	}
	if err := tx.changeLimitKeys(ctx, task, t); err != nil {
		return err
	}
	var found TaskAttributeSet
	found.Add(task, t.Template.Namespace, t.Attributes)
	return tx.ReplaceAttributes(ctx, nil, found)
}
