package operation

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/postgres"
)

// compensate is act for tasks to compensate, which must be locked. It ends the investigations at
// once. The items wait until the compensations are complete.
func (s *Service) compensate(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem, d *batchResult) error {
	unchanged, err := selectUnchanged(ctx, tx, items, d)
	if err != nil {
		return err
	}
	by := newCancellation(o)
	var endings []postgres.Ending
	for _, i := range unchanged {
		began, err := s.engine.Compensate(ctx, tx, i.TaskUUID, by)
		if tasker.CodeOf(err) == tasker.Conflict || err == nil && began.Before {
			d.skipItem(i.Ordinal, outcomeRefused)
			continue
		}
		if err != nil {
			return err
		}
		e, err := newUndoneEnding(o, i.PlannedItem, began.Steps)
		if err != nil {
			return err
		}
		endings = append(endings, e)
		d.namespaces = append(d.namespaces, began.Namespaces...)
		d.released++
		d.moved = append(d.moved, postgres.MovedItem{Ordinal: i.Ordinal, State: tasker.ItemReleased, Made: i.TaskUUID, Released: true})
	}
	d.ended, err = dlq.EndEntries(ctx, tx, formatActor(o), endings)
	return err
}

// newUndoneEnding returns how to resolve the investigation of a task that is being compensated.
func newUndoneEnding(o *postgres.RunningOperation, i postgres.PlannedItem, steps int) (postgres.Ending, error) {
	state, how := tasker.TaskStepsInProcess, fmt.Sprintf("the task is being compensated, with %d steps", steps)
	if steps == 0 {
		state, how = tasker.TaskCancelled, "the task is cancelled; there was nothing to compensate"
	}
	return endingProof{OperationUUID: o.UUID, Act: o.Act, TaskState: state}.addTo(postgres.Ending{
		EntryUUID: i.EntryUUID, TaskUUID: i.TaskUUID, State: state, Status: tasker.EntryManuallyResolved,
		Notes: fmt.Sprintf("%s, in operation %s: %s", how, o.UUID, o.Reason),
	})
}
