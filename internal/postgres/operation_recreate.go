package postgres

import (
	"context"
	"encoding/json"

	"tasker.example/tasker"
)

// RecreateTarget describes the task of an item and the request for its replacement.
type RecreateTarget struct {
	TaskUUID   tasker.ID
	State      tasker.TaskState
	Held       int  // number of steps in flight
	Open       bool // whether the investigation of the item is open
	WrittenOff bool // whether an investigation of the task ended as permanently_failed

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

// Request returns the request for a replacement task with the newest template version.
func (t RecreateTarget) Request() tasker.NewTask {
	return tasker.NewTask{
		Namespace: t.Namespace, Name: t.Name, Context: t.Context, Initiator: t.Initiator, SourceSystem: t.SourceSystem, Reason: t.Reason,
		Priority: t.Priority, Tags: t.Tags, CorrelationID: t.CorrelationID, ParentCorrelationID: t.ParentCorrelationID, RecreatedFrom: t.TaskUUID,
	}
}

// RecreateTargets returns the locked tasks of items, by id.
func (tx *Tx) RecreateTargets(ctx context.Context, items []PlannedItem) (map[tasker.ID]RecreateTarget, error) {
	tasks, entries := make([]tasker.ID, len(items)), make([]tasker.ID, len(items))
	for i, item := range items {
		tasks[i], entries[i] = item.TaskUUID, item.EntryUUID
	}
	list, err := collect[RecreateTarget](ctx, tx, stmt("selectRecreateTargets"), tasks, entries)
	return byKey(list, func(t RecreateTarget) tasker.ID { return t.TaskUUID }), wrap(err, "read the tasks to recreate")
}
