package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	verifyBatch = 2000 // items per query
	verifyChunk = 200  // items per transaction
)

// cursors stores, for each operation and item state, where the next verification starts.
type cursors struct {
	mu sync.Mutex
	at map[cursorKey]int
}

type cursorKey struct {
	operation tasker.ID
	state     tasker.ItemState
}

func (c *cursors) get(key cursorKey) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[key]
}

// set stores a cursor. Zero is the beginning.
func (c *cursors) set(key cursorKey, ordinal int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil || len(c.at) > 2*tasker.MaxOpenOperations {
		c.at = map[cursorKey]int{}
	}
	c.at[key] = ordinal
}

// VerifyItems stores the outcomes of released items. It ends the investigations of verified items
// and attaches the proof. It returns the delay before the next call.
func (s *Service) VerifyItems(ctx context.Context) (time.Duration, error) {
	open, err := s.db.OperationsInFlight(ctx, tasker.MaxOpenOperations)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	more := false
	for i := range open {
		m, failed := s.verifyItemsOf(ctx, &open[i])
		more, err = more || m, errors.Join(err, failed) // a failure must not affect other operations
	}
	if _, failed := s.db.FinishOperations(ctx); err != nil || failed != nil {
		return 0, errors.Join(err, failed)
	}
	if more {
		return loop.AtOnce, nil
	}
	return activeInterval, nil
}

// verifyItemsOf verifies items of one operation and reports whether there are more.
func (s *Service) verifyItemsOf(ctx context.Context, o *postgres.RunningOperation) (more bool, err error) {
	failed, waits := false, false
	for _, state := range []tasker.ItemState{tasker.ItemRunning, tasker.ItemReleased} {
		key := cursorKey{o.UUID, state}
		list, last, err := s.db.ItemsToVerify(ctx, o.UUID, state, s.cursors.get(key), verifyBatch)
		if err != nil {
			return false, err
		}
		s.cursors.set(key, last)
		more = more || last > 0
		var ordinals []int
		for _, i := range list {
			if itemOutcome(o.Act, i) != nil {
				ordinals = append(ordinals, i.Ordinal)
			}
			waits = waits || i.AwaitsWorker
		}
		for part := range slices.Chunk(ordinals, verifyChunk) {
			bad, err := s.settleAll(ctx, o, part)
			if err != nil {
				return false, err
			}
			failed = failed || bad
		}
	}
	if failed || waits {
		err = s.applyGuards(ctx, o.UUID, waits)
	}
	return more, err
}

// settleAll settles items together or, if that fails, one by one. It reports whether an item has
// failed.
func (s *Service) settleAll(ctx context.Context, o *postgres.RunningOperation, ordinals []int) (failed bool, err error) {
	failed, err = s.settleItems(ctx, o, ordinals)
	if !isCausedByItem(ctx, err) {
		return failed, err
	}
	for _, n := range ordinals {
		bad, err := s.settleItems(ctx, o, []int{n})
		switch {
		case isCausedByItem(ctx, err):
			s.log.ErrorContext(ctx, "could not settle an item of an operation; trying again later", "operation", o.UUID, "item", n, "err", err)
		case err != nil:
			return failed, err
		}
		failed = failed || bad
	}
	return failed, nil
}

// settleItems stores the outcomes of items and ends the investigations of verified ones in the same
// transaction. It reports whether an item has failed.
func (s *Service) settleItems(ctx context.Context, o *postgres.RunningOperation, ordinals []int) (failed bool,
	err error) {
	var closed []postgres.EndedEntry
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		failed, closed = false, nil
		items, err := tx.LockItems(ctx, o.UUID, ordinals)
		if err != nil {
			return err
		}
		var moved []postgres.MovedItem
		var verified []postgres.InFlightItem
		for _, i := range items {
			m := itemOutcome(o.Act, i)
			if m == nil {
				continue
			}
			moved = append(moved, *m)
			failed = failed || m.Failed != nil || m.State == tasker.ItemFailedAgain
			if m.State == tasker.ItemVerified && i.EntryStatus == string(tasker.EntryPending) {
				verified = append(verified, i)
			}
		}
		if err = tx.MoveItems(ctx, o, moved); err != nil {
			return err
		}
		endings, err := buildEndings(ctx, tx, o, verified)
		if err != nil {
			return err
		}
		closed, err = dlq.EndEntries(ctx, tx, o.StartedBy, endings)
		return err
	})
	if err != nil {
		return false, err
	}
	s.dlq.RecordEnded(ctx, closed)
	return failed, nil
}

// buildEndings returns how to resolve the investigations of verified items. The items of a map step
// share an investigation, which stays open until all of them are verified.
func buildEndings(
	ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, verified []postgres.InFlightItem,
) ([]postgres.Ending, error) {
	var shared []tasker.ID
	for _, i := range verified {
		if i.OfMap {
			shared = append(shared, i.EntryUUID)
		}
	}
	seen := map[tasker.ID]bool{} // investigations that are ended or must stay open
	if len(shared) > 0 {
		open, err := tx.FindUnverified(ctx, o.UUID, shared)
		if err != nil {
			return nil, err
		}
		for _, entry := range open {
			seen[entry] = true
		}
	}
	var endings []postgres.Ending
	for _, i := range verified {
		if seen[i.EntryUUID] {
			continue
		}
		seen[i.EntryUUID] = true
		e, err := newEnding(o, i)
		if err != nil {
			return nil, err
		}
		endings = append(endings, e)
	}
	return endings, nil
}

// An endingProof is stored in the metadata of an investigation and shows why it ended.
type endingProof struct {
	OperationUUID tasker.ID        `json:"operation_uuid"`
	Act           tasker.Act       `json:"act"`
	TaskState     tasker.TaskState `json:"task_state"`
	StepUUID      *tasker.ID       `json:"step_uuid,omitempty"`
	StepName      string           `json:"step_name,omitempty"`
	StepState     tasker.StepState `json:"step_state,omitempty"`
	ReleasedAt    *time.Time       `json:"released_at,omitempty"`
	CompletedAt   *time.Time       `json:"completed_at,omitempty"`
	Attempt       int              `json:"attempt,omitempty"`
	WorkerUUID    *tasker.ID       `json:"worker_uuid,omitempty"`
	WorkerName    string           `json:"worker_name,omitempty"`
	WorkerVersion string           `json:"worker_version,omitempty"`
	MadeTaskUUID  *tasker.ID       `json:"made_task_uuid,omitempty"`
}

// newEnding returns how to resolve the investigation of a verified item: its status, notes and
// proof.
func newEnding(o *postgres.RunningOperation, i postgres.InFlightItem) (postgres.Ending, error) {
	p := endingProof{
		OperationUUID: o.UUID, Act: o.Act, TaskState: i.Task, StepUUID: &i.StepUUID, StepName: i.StepName,
		StepState: i.Step, ReleasedAt: &i.ReleasedAt, CompletedAt: i.CompletedAt,
	}
	how := "is " + string(i.Step)
	switch {
	case o.Act == tasker.ActReset && i.Step == tasker.StepSkipped:
		how = "was skipped after its release, as its template requires"
	case o.Act == tasker.ActReset:
		p.Attempt, p.WorkerUUID, p.WorkerName, p.WorkerVersion = i.Attempts, i.WorkerUUID, i.WorkerName, i.WorkerVersion
		how = "was completed after its release"
	}
	return p.addTo(postgres.Ending{
		EntryUUID: i.EntryUUID, TaskUUID: i.TaskUUID, State: i.Task, Status: tasker.EntryManuallyResolved,
		Notes: fmt.Sprintf("step %s %s, in operation %s: %s", i.StepName, how, o.UUID, o.Reason),
	})
}

// newTaskEnding returns how to resolve the investigation of an item that is a whole task.
func newTaskEnding(o *postgres.RunningOperation, i postgres.PlannedItem, t postgres.TaskTarget) (postgres.Ending, error) {
	p := endingProof{OperationUUID: o.UUID, Act: o.Act, TaskState: t.State}
	how := string(t.State)
	if t.Recovered && o.Act == tasker.ActEnd {
		how += " and continued automatically"
	}
	return p.addTo(postgres.Ending{
		EntryUUID: i.EntryUUID, TaskUUID: i.TaskUUID, State: t.State, Status: tasker.EntryManuallyResolved,
		Notes: fmt.Sprintf("the task is %s, in operation %s: %s", how, o.UUID, o.Reason),
	})
}

// addTo adds the proof to the resolution of an investigation.
func (p endingProof) addTo(e postgres.Ending) (postgres.Ending, error) {
	doc, err := json.Marshal(map[string]endingProof{"proof": p})
	if err != nil {
		return e, fmt.Errorf("write the proof of an item: %w", err)
	}
	e.Metadata = doc
	return e, nil
}

// applyGuards pauses an operation if its failures require it, or if waits is set because its steps
// wait for a worker.
func (s *Service) applyGuards(ctx context.Context, id tasker.ID, waits bool) error {
	var paused *tasker.OperationPause
	err := s.db.InTx(ctx, func(tx *postgres.Tx) error {
		paused = nil
		o, err := tx.LockOperation(ctx, id)
		if err != nil || o.State != tasker.OperationRunning {
			return err
		}
		failures, err := tx.CountFailures(ctx, o)
		if err != nil {
			return err
		}
		if paused = checkGuards(o, failures); paused == nil && waits {
			paused = &tasker.OperationPause{For: tasker.PausedNoWorker, By: tasker.SystemActor}
		}
		if paused == nil {
			return nil
		}
		return tx.PauseOperation(ctx, id, *paused)
	})
	if err == nil {
		s.announce(ctx, batchResult{}, paused)
	}
	return err
}
