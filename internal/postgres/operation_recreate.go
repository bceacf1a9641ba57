package postgres

import (
	"context"
	"encoding/json"

	"tasker.example/tasker"
)

// RecreateTarget describes the task of an item from which a replacement is created.
type RecreateTarget struct {
	TaskUUID   tasker.ID
	State      tasker.TaskState
	Held       int  // number of steps in flight
	Open       bool // the investigation of the item is open
	WrittenOff bool // an investigation of the task ended as permanently_failed

	Namespace           string
	Name                string
	Context             json.RawMessage
	Initiator           string
	SourceSystem        string
	Reason              string
	Priority            int
	Tags                []string
	CorrelationID       string
	ParentCorrelationID string
}

// ToNewTask returns a request for a replacement task. It names no version, so the newest one is
// used.
func (t RecreateTarget) ToNewTask() tasker.NewTask {
	return tasker.NewTask{
		Namespace: t.Namespace, Name: t.Name, Context: t.Context, Initiator: t.Initiator, SourceSystem: t.SourceSystem, Reason: t.Reason,
		Priority: t.Priority, Tags: t.Tags, CorrelationID: t.CorrelationID, ParentCorrelationID: t.ParentCorrelationID, RecreatedFrom: t.TaskUUID,
	}
}

// RecreateTargets returns the tasks of items, by id. The tasks must be locked.
func (tx *Tx) RecreateTargets(ctx context.Context, items []PlannedItem) (map[tasker.ID]RecreateTarget, error) {
	tasks, entries := make([]tasker.ID, len(items)), make([]tasker.ID, len(items))
	for i, item := range items {
		tasks[i], entries[i] = item.TaskUUID, item.EntryUUID
	}
	list, err := collect[RecreateTarget](ctx, tx, statement("selectRecreateTargets"), tasks, entries)
	return groupByKey(list, func(t RecreateTarget) tasker.ID { return t.TaskUUID }),
		wrapError(err, "read the tasks to recreate")
}
