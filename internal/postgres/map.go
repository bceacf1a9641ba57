package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// ExpandedMap describes a map step and the items to create for it.
type ExpandedMap struct {
	tasker.StepRef
	IDs   []tasker.ID       // ascending
	Items []json.RawMessage // input of each item
	Bytes []int32           // size of each item's input
	Limit int               // maximum number of items in progress; 0 means no limit

	Context  json.RawMessage // context for the items; if nil, that of the task applies
	Omitted  []string        // JSON Pointers to the parts that are missing from Context
	ListedBy []string        // names of the steps whose results contain the list
}

// ExpandMap inserts the items of a map step, enqueues the first ones and returns their namespaces.
// The caller must hold the task lock and settle the task afterwards.
func (tx *Tx) ExpandMap(ctx context.Context, m ExpandedMap) ([]string, error) {
	inputs, err := queryFirst[*int64](ctx, tx, statement("insertMapInputs"), m.TaskUUID, m.StepUUID, nilIfEmptyDoc(m.Context), nonNil(m.Omitted), nonNil(m.ListedBy))
	if err != nil || inputs == nil {
		return nil, wrapError(err, "store the inputs of items")
	}
	states, err := loadTasks(ctx, tx, loadRequest{tasks: []tasker.ID{m.TaskUUID}, steps: []tasker.StepRef{m.StepRef}})
	if err != nil {
		return nil, err
	}
	t := states.tasks[m.TaskUUID]
	if t == nil || t.rows[m.StepUUID] == nil {
		return nil, NewStepNotFoundError(m.TaskUUID, m.StepUUID)
	}
	c := core.Begin(&t.Task, states.now)
	if !c.Expand(m.StepUUID, t.addItems(m, *inputs), nilIfZero(m.Limit)) {
		return nil, fmt.Errorf("map step %s is not due to get its items", m.StepUUID)
	}
	docs := mapSlice(m.Items, func(item json.RawMessage) string { return string(item) })
	if err := exec(ctx, tx, "insert the items of a map step", statement("insertItems"), m.TaskUUID, m.StepUUID, states.now, m.IDs, docs, m.Bytes, *inputs, nilIfZero(m.Limit)); err != nil {
		return nil, err
	}
	stored, err := tx.store(ctx, states, []*core.Change{c})
	return stored.Namespaces, err
}

// addItems adds the items of a map step, which must be loaded, to the rows of the task.
func (t *taskState) addItems(m ExpandedMap, bytes *int64) []*core.Step {
	of := t.rows[m.StepUUID]
	items := make([]*core.Step, len(m.IDs))
	for i, id := range m.IDs {
		s := &stepState{Step: core.Step{ID: id}, taskUUID: t.ID, namespace: of.namespace, handler: of.handler, priority: of.priority}
		if bytes != nil {
			sum := *bytes + int64(m.Bytes[i])
			s.InputBytes = &sum
		}
		t.rows[id], items[i] = s, &s.Step
	}
	return items
}

// FailedMap is a map step with items that have failed.
type FailedMap struct {
	tasker.StepRef
	Name         string
	Total        int // number of items
	TemplateUUID tasker.ID
}

// FailedMaps returns the pending map steps to which the steps belong. The caller must hold the task
// locks.
func (tx *Tx) FailedMaps(ctx context.Context, steps []tasker.StepRef) ([]FailedMap, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collect[FailedMap](ctx, tx, statement("failedMaps"), tasks, ids)
	return list, wrapError(err, "read the map steps of failed items")
}

// ToleratedItems counts the items of a map step that have failed and were skipped.
func (tx *Tx) ToleratedItems(ctx context.Context, step tasker.StepRef) (int, error) {
	n, err := queryValue[int](ctx, tx, statement("toleratedItems"), step.TaskUUID, step.StepUUID)
	return n, wrapError(err, "count skipped items")
}

// SkippedItems is the result of [Tx.TolerateItems].
type SkippedItems struct {
	Steps      map[tasker.ID]bool
	Enqueued   []tasker.ID
	Namespaces []string
	ToDecide   []tasker.StepRef
}

// TolerateItems skips those of the failed items that their map steps tolerate. The caller must hold
// the task locks and settle the tasks afterwards.
func (tx *Tx) TolerateItems(ctx context.Context, items []tasker.StepRef, maps []core.Tolerance) (SkippedItems, error) {
	skipped := map[tasker.ID]bool{}
	stored, err := tx.changeSteps(ctx, items, func(c *core.Change) {
		for _, t := range maps {
			if t.Map.TaskUUID != c.Task.ID {
				continue
			}
			for _, id := range c.Tolerate(t, items) {
				skipped[id] = true
			}
		}
	})
	return SkippedItems{skipped, stored.Enqueued, stored.Namespaces, stored.ToDecide}, wrapError(err, "skip tolerated items")
}

// ItemResults contains the results of a map step's items, in order.
type ItemResults struct {
	Items     int
	Tolerated json.RawMessage // ordinals of the skipped items, or nil if there are none
	Results   json.RawMessage // nil if the results are too large
}

// ItemResults returns the results of all items of a map step. They are omitted if they have more
// than maxBytes.
func (tx *Tx) ItemResults(ctx context.Context, step tasker.StepRef, maxBytes int) (ItemResults, error) {
	return queryRequired[ItemResults](ctx, tx, nil, "read item results", statement("itemResults"), step.TaskUUID, step.StepUUID, maxBytes)
}

// OpenItems returns the open items of a map step or, if failed is set, only those that have failed
// permanently.
func (tx *Tx) OpenItems(ctx context.Context, step tasker.StepRef, failed bool) ([]tasker.StepRef, error) {
	list, err := collect[tasker.StepRef](ctx, tx, statement("openItems"), step.TaskUUID, step.StepUUID, failed)
	return list, wrapError(err, "read open items")
}

// ItemResultsFrom returns a page of the item results of a map step. The step is identified by id
// or, if step is nil, by name. The result of an item that has none is null. It returns NotFound if
// there is no such map step.
func (db *DB) ItemResultsFrom(ctx context.Context, task tasker.ID, step *tasker.ID, name string, from int) (tasker.ItemResults, error) {
	type row struct {
		Name    string
		Total   *int
		Next    int
		Results []json.RawMessage
	}
	r, err := queryOne[row](ctx, db.pool, statement("itemResultsFrom"), task, step, name, from, listBudget, maxItemResults)
	switch {
	case err != nil:
		return tasker.ItemResults{}, fmt.Errorf("read item results: %w", err)
	case r == nil && step != nil:
		return tasker.ItemResults{}, NewStepNotFoundError(task, *step)
	case r == nil:
		return tasker.ItemResults{}, tasker.Errorf(tasker.NotFound, "task %s has no step %q", task, name)
	case r.Total == nil:
		return tasker.ItemResults{}, tasker.Errorf(tasker.NotFound, "step %s of task %s has no items", r.Name, task)
	}
	page := tasker.ItemResults{Results: r.Results}
	if r.Next < *r.Total {
		page.Next = r.Next
	}
	return page, nil
}

// maxItemResults is the maximum number of results on a page.
const maxItemResults = 1000

func nilIfZero(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
