package postgres

import (
	"context"
	"fmt"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// TaskTree returns a task with its ancestors and its nearest descendants. It contains at most
// [tasker.MaxTreeTasks] tasks and [tasker.MaxTreeChildren] children of each. It returns NotFound if
// the task does not exist.
func (db *DB) TaskTree(ctx context.Context, task tasker.ID) (tasker.TaskTree, error) {
	above, err := db.Ancestors(ctx, task)
	if err != nil {
		return tasker.TaskTree{}, err
	}
	below, more, err := db.findDescendants(ctx, task)
	if err != nil {
		return tasker.TaskTree{}, err
	}
	var ids []tasker.ID
	for _, a := range slices.Backward(above) {
		ids = append(ids, a.TaskUUID)
	}
	return db.readTree(ctx, task, slices.Concat(ids, []tasker.ID{task}, below), more)
}

// findDescendants returns the descendants of a task, level by level, and the tasks some of whose
// children are missing. It queries one level at a time, so that each level is truncated before the
// next one is read.
func (db *DB) findDescendants(ctx context.Context, task tasker.ID) (ids []tasker.ID, more map[tasker.ID]bool,
	err error) {
	type row struct{ TaskUUID, ParentUUID tasker.ID }
	more = map[tasker.ID]bool{}
	parents := []tasker.ID{task}
	for depth := 0; len(parents) > 0 && depth <= tasker.MaxChildDepth; depth++ {
		rows, err := collect[row](ctx, db.pool, statement("tasksBelow"), parents, tasker.MaxTreeChildren+1)
		if err != nil {
			return nil, nil, fmt.Errorf("read the tasks below a task: %w", err)
		}
		parents = nil
		of := map[tasker.ID]int{}
		for _, r := range rows {
			if of[r.ParentUUID]++; of[r.ParentUUID] > tasker.MaxTreeChildren || len(ids) == tasker.MaxTreeTasks {
				more[r.ParentUUID] = true
				continue
			}
			ids, parents = append(ids, r.TaskUUID), append(parents, r.TaskUUID)
		}
	}
	return ids, more, nil
}

// readTree reads tasks and arranges them as a tree. Parents must precede their children.
func (db *DB) readTree(ctx context.Context, task tasker.ID, ids []tasker.ID, more map[tasker.ID]bool) (tasker.TaskTree, error) {
	type row struct {
		taskRow
		Depth              int
		StepName           tasker.OptionalString
		Current, WaitedFor bool
	}
	rows, err := collect[row](ctx, db.pool, statement("treeTasks"), ids)
	if err != nil {
		return tasker.TaskTree{}, fmt.Errorf("read a task tree: %w", err)
	}
	scope := access.ScopeFromContext(ctx)
	children := map[tasker.ID][]tasker.TreeTask{}
	known := map[tasker.ID]bool{}
	var top []tasker.TreeTask
	for _, r := range rows {
		if !scope.Has(r.Namespace) {
			continue
		}
		known[r.UUID] = true
		n := tasker.TreeTask{Task: r.toTask(), Depth: r.Depth, StepName: r.StepName, Current: r.Current, WaitedFor: r.WaitedFor, MoreChildren: more[r.UUID]}
		if p := r.ParentTaskUUID; p != nil && known[*p] {
			children[*p] = append(children[*p], n)
		} else {
			top = append(top, n)
		}
	}
	if !known[task] {
		return tasker.TaskTree{}, newTaskNotFoundError(task)
	}
	tree := tasker.TaskTree{TaskUUID: task}
	var add func([]tasker.TreeTask)
	add = func(list []tasker.TreeTask) {
		for _, n := range list {
			tree.Tasks = append(tree.Tasks, n)
			add(children[n.Task.UUID])
		}
	}
	add(top)
	return tree, nil
}
