package operation

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/postgres"
)

// batchSize returns how many items an act may change in one transaction.
func batchSize(o *postgres.RunningOperation) int {
	args, err := parseArguments(o)
	if o.Act == tasker.ActRecreate || o.Act == tasker.ActCompensate || err == nil && args.Expression != "" {
		return tasker.MaxRecreateChunk
	}
	return tasker.MaxOperationChunk
}

// recreate performs an act that marks the tasks of items as permanently failed and creates new
// ones. The tasks must be locked. A task that cannot be recreated is unchanged, and its
// investigation stays open.
func (s *Service) recreate(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem, d *batchResult) error {
	targets, err := tx.RecreateTargets(ctx, items)
	if err != nil {
		return err
	}
	recreation := s.engine.NewRecreation(tx)
	var endings []postgres.Ending
	var repairs []postgres.Repair
	for _, i := range items {
		t, exists := targets[i.TaskUUID]
		if outcome := explainBarred(i, t, exists); outcome != "" {
			d.skipItem(i.Ordinal, outcome)
			continue
		}
		request := t.ToNewTask()
		request.IdempotencyKey = fmt.Sprintf("%s:%d", o.UUID, i.Ordinal)
		made, err := recreation.Add(ctx, request)
		if outcome := unmakeable[tasker.CodeOf(err)]; err != nil && outcome != "" {
			d.skipItem(i.Ordinal, outcome)
			continue
		}
		if err != nil {
			return err
		}
		e, err := writeOff(o, i, t.State, made)
		if err != nil {
			return err
		}
		endings, repairs = append(endings, e), append(repairs, newRecreatedRepair(o, i, made))
		d.made = append(d.made, made)
		d.released++
		d.moved = append(d.moved, postgres.MovedItem{Ordinal: i.Ordinal, State: tasker.ItemReleased, Made: made, Released: true})
	}
	if d.namespaces, err = recreation.Store(ctx); err != nil {
		return err
	}
	if d.ended, err = dlq.EndEntries(ctx, tx, formatActor(o), endings); err != nil {
		return err
	}
	if n := len(d.ended); n != len(endings) {
		return fmt.Errorf("of %d investigations of recreated tasks, only %d ended", len(endings), n)
	}
	return tx.RecordRepairs(ctx, repairs)
}

// explainBarred returns why the task of an item must not be recreated, as an outcome, or "".
func explainBarred(i postgres.PlannedItem, t postgres.RecreateTarget, exists bool) string {
	switch {
	case !exists:
		return outcomeGone
	case string(t.State) != i.ExpectedState || !t.Open:
		return outcomeChanged
	case t.WrittenOff || dlq.CheckWriteOff(t.TaskUUID, t.State, t.Held) != nil:
		return outcomeRefused
	}
	return ""
}

// unmakeable maps error codes of a task creation to outcomes.
var unmakeable = map[tasker.Code]string{
	tasker.NotFound: outcomeNoTemplate, tasker.Conflict: outcomeCycle,
	tasker.Invalid: outcomeContext, tasker.TooLarge: outcomeContext,
}

// writeOff returns how to resolve the investigation of a task that was replaced by the task made.
func writeOff(o *postgres.RunningOperation, i postgres.PlannedItem, state tasker.TaskState, made tasker.ID) (postgres.Ending, error) {
	return endingProof{OperationUUID: o.UUID, Act: o.Act, TaskState: state, MadeTaskUUID: &made}.addTo(postgres.Ending{
		EntryUUID: i.EntryUUID, TaskUUID: i.TaskUUID, State: state, Status: tasker.EntryPermanentlyFailed,
		Notes: fmt.Sprintf("recreated as %s, in operation %s: %s", made, o.UUID, o.Reason),
	})
}

// newRecreatedRepair returns the audit record of a recreated task. The end of its investigation has
// its own.
func newRecreatedRepair(o *postgres.RunningOperation, i postgres.PlannedItem, made tasker.ID) postgres.Repair {
	return postgres.Repair{
		TaskUUID: i.TaskUUID, Event: "task_recreated", Action: "task.recreated", Subject: i.TaskUUID, Actor: formatActor(o),
		Data: map[string]any{"task_uuid": i.TaskUUID, "made_task_uuid": made, "operation_uuid": o.UUID, "reason": o.Reason},
	}
}
