package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker"
	"tasker/internal/postgres"
)

const (
	maxTake      = 1000
	declinedRest = time.Second // before a step is announced again that came to a worker without its handler
)

// TakeSteps hands the named steps to a worker that was told of them by the message
// broker: those that are still enqueued and that it can execute. The others are
// settled all the same: they have moved on, or are announced again for a worker
// that has their handler.
func (e *Engine) TakeSteps(ctx context.Context, worker tasker.ID, steps []tasker.StepRef) ([]tasker.Assignment, error) {
	if len(steps) == 0 || len(steps) > maxTake {
		return nil, tasker.Errorf(tasker.Invalid, "%d steps; 1 to %d can be taken at once", len(steps), maxTake)
	}
	m, err := e.member(ctx, worker)
	if err != nil {
		return nil, err
	}
	handing, cancel := handingOut(ctx)
	defer cancel()
	claimed, err := e.db.TakeSteps(handing, e.claimant(worker, m), steps)
	if err != nil {
		return nil, err
	}
	if len(claimed) < len(steps) {
		if _, err := e.db.AnnounceAgain(handing, notClaimed(steps, claimed), declinedRest); err != nil {
			// They wait in the database: reconciliation finds them, or their limit does.
			e.log.WarnContext(ctx, "steps that a worker could not take are not announced again yet", "err", err)
		}
	}
	return e.assignments(handing, claimed)
}

func notClaimed(steps []tasker.StepRef, claimed []postgres.Claimed) []tasker.StepRef {
	taken := make(map[tasker.ID]bool, len(claimed))
	for _, c := range claimed {
		taken[c.StepUUID] = true
	}
	var rest []tasker.StepRef
	for _, s := range steps {
		if !taken[s.StepUUID] {
			rest = append(rest, s)
		}
	}
	return rest
}

// lockAll waits for whoever works on the tasks.
func lockAll(ctx context.Context, tx *postgres.Tx, tasks []tasker.ID) ([]tasker.ID, error) {
	return tasks, tx.LockTasks(ctx, tasks)
}

// A DeadLetter is a step whose announcement the message broker gave up, with what
// it says of that.
type DeadLetter struct {
	tasker.StepRef
	Evidence json.RawMessage
}

// DeadLettered says what became of dead letters, by their step: each is settled.
type DeadLettered struct {
	Expired []tasker.ID // failed now, because no worker took them in time
	Again   []tasker.ID // still have time, and are announced again
}

// DeadLetters does what dead letters ask for (seed 004, "Dead Letter Handler"):
// steps past their limit fail, those that still have time are announced again, all
// others have moved on, or never were. An error means that nothing is settled.
func (e *Engine) DeadLetters(ctx context.Context, letters []DeadLetter) (DeadLettered, error) {
	evidence := make(map[tasker.ID]json.RawMessage, len(letters))
	steps := make([]tasker.StepRef, len(letters))
	for i, l := range letters {
		steps[i], evidence[l.StepUUID] = l.StepRef, l.Evidence
	}
	expired, err := e.expire(ctx, steps, evidence, lockAll)
	if err != nil {
		return DeadLettered{}, fmt.Errorf("fail steps that no worker took: %w", err)
	}
	var done DeadLettered
	failed := make(map[tasker.ID]bool, len(expired))
	for _, x := range expired {
		failed[x.StepUUID] = true
		done.Expired = append(done.Expired, x.StepUUID)
	}
	var others []tasker.StepRef
	for _, s := range steps {
		if !failed[s.StepUUID] {
			others = append(others, s)
		}
	}
	if len(others) == 0 {
		return done, nil
	}
	if done.Again, err = e.db.AnnounceAgain(ctx, others, 0); err != nil {
		return DeadLettered{}, err
	}
	for _, s := range others { // the sweep may have been first
		if err := e.db.NoteDeadLetter(ctx, s, evidence[s.StepUUID]); err != nil {
			return DeadLettered{}, err
		}
	}
	return done, nil
}
