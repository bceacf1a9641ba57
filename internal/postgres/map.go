package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"tasker.example/tasker"
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

// ExpandMap inserts the items of a map step, enqueues them and returns the namespaces of the
// enqueued ones. The caller must hold the task lock and settle the task afterwards.
func (tx *Tx) ExpandMap(ctx context.Context, m ExpandedMap) ([]string, error) {
	items := mapSlice(m.Items, func(item json.RawMessage) string { return string(item) })
	list, err := collectColumn[string](ctx, tx, statement("expandMap"), m.TaskUUID, m.StepUUID, tx.queue.ttlMS, tx.queue.announce, m.IDs, items, m.Bytes, nilIfZero(m.Limit),
		nilIfEmptyDoc(m.Context), nonNil(m.Omitted), nonNil(m.ListedBy))
	return list, wrapError(err, "insert the items of a map step")
}

// FailedItem describes an item of a map step that has failed permanently.
type FailedItem struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	Fence        int64
	Name         string
	MapStepUUID  tasker.ID
	Of           string // name of the map step
	Total        int    // number of items of the map step
	TemplateUUID tasker.ID
}

// FailedItems returns those of the steps that are map items and have failed permanently, in the
// order of the items. The caller must hold the task locks.
func (tx *Tx) FailedItems(ctx context.Context, steps []tasker.StepRef) ([]FailedItem, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collect[FailedItem](ctx, tx, statement("failedItems"), tasks, ids)
	return list, wrapError(err, "read failed items")
}

// ToleratedItems counts the items of a map step that have failed and were skipped.
func (tx *Tx) ToleratedItems(ctx context.Context, step tasker.StepRef) (int, error) {
	n, err := queryValue[int](ctx, tx, statement("toleratedItems"), step.TaskUUID, step.StepUUID)
	return n, wrapError(err, "count skipped items")
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
