package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	maxTake         = 1000
	reannounceDelay = time.Second // before a step is announced again that came to a worker without its handler
)

// TakeSteps leases the named steps, announced by the message broker, to a worker: those still
// enqueued that it can execute. The others are settled too: they have moved or are announced
// again.
func (e *Engine) TakeSteps(ctx context.Context, worker tasker.ID, steps []tasker.StepRef) ([]tasker.Assignment, error) {
	if len(steps) == 0 || len(steps) > maxTake {
		return nil, tasker.Errorf(tasker.Invalid, "%d steps; 1 to %d can be taken at once", len(steps), maxTake)
	}
	ctx = postgres.WithConnClass(ctx, postgres.Work)
	m, err := e.member(ctx, worker)
	if err != nil {
		return nil, err
	}
	handing, cancel := claimContext(ctx)
	defer cancel()
	claimed, err := e.takeNamed(handing, e.claimant(worker, m), steps)
	if err != nil {
		return nil, err
	}
	e.requestPoll()
	if len(claimed) < len(steps) {
		if err := e.declined(handing, m.spec.Namespaces, notClaimed(steps, claimed)); err != nil {
			// They wait in the database: reconciliation finds them, or their limit does.
			e.log.WarnContext(ctx, "steps that a worker could not take are not announced again yet", "err", err)
		}
	}
	return e.assignments(handing, worker, claimed)
}

// declined has steps announced again that a worker could not take: those that wait for a place of a limit when there is one,
// and the others after a rest. A place may have come free before they were put aside, so they are looked for at once, too.
func (e *Engine) declined(ctx context.Context, namespaces []string, steps []tasker.StepRef) error {
	others, err := e.db.ParkLimited(ctx, steps)
	if err != nil {
		return err
	}
	if len(others) < len(steps) {
		e.limited.wait(e.now(), namespaces)
		loop.Wake(e.limited.back)
	}
	if len(others) == 0 {
		return nil
	}
	_, err = e.db.AnnounceAgain(ctx, others, reannounceDelay)
	return err
}

// takeNamed claims those of the steps that it can and removes obstacles of the others.
func (e *Engine) takeNamed(ctx context.Context, c postgres.Claimant, steps []tasker.StepRef) ([]postgres.Claimed, error) {
	claimed, err := e.db.TakeSteps(ctx, c, steps)
	if err != nil || !claimed.Blocked() {
		return claimed.Steps, err
	}
	e.removeBlockers(ctx, c, claimed)
	if len(claimed.Unmeasured) == 0 {
		return claimed.Steps, nil
	}
	measured, err := e.db.TakeSteps(ctx, c, claimed.Unmeasured)
	if err != nil {
		e.log.WarnContext(ctx, "steps that were measured are not taken yet", "worker_uuid", c.WorkerUUID, "err", err)
	}
	return append(claimed.Steps, measured.Steps...), nil
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

// A DeadLetter is a step with the broker's reason for giving up its announcement.
type DeadLetter struct {
	tasker.StepRef
	Evidence json.RawMessage
}

// DeadLettered is the outcome of dead letters; other steps have moved or never existed.
type DeadLettered struct {
	Expired []tasker.StepRef // failed now, because no worker took them in time
	Again   []tasker.StepRef // still have time, and are announced again
	Left    []tasker.StepRef // could not be settled: their letters must come again
}

// DeadLetters handles dead letters: expired steps fail, others that still wait are announced
// again. During the grace after a start no step expires. The error is about the remaining steps.
func (e *Engine) DeadLetters(ctx context.Context, letters []DeadLetter) (done DeadLettered, err error) {
	inTime := !e.grace.over(e.now())
	var failed []error
	for some := range slices.Chunk(letters, expiryChunk) {
		err := inBatchOrEach(ctx, some, func(some []DeadLetter) error { return e.deadLetters(ctx, some, inTime, &done) })
		failed = append(failed, err)
	}
	return done, errors.Join(failed...)
}

// inBatchOrEach does something to all of a list, or to each alone if that fails.
func inBatchOrEach[T any](ctx context.Context, list []T, do func([]T) error) error {
	err := do(list)
	if err == nil || len(list) == 1 || ctx.Err() != nil {
		return err
	}
	var failed []error
	for i := range list {
		failed = append(failed, do(list[i:i+1]))
	}
	return errors.Join(failed...)
}

func (e *Engine) deadLetters(ctx context.Context, letters []DeadLetter, inTime bool, done *DeadLettered) error {
	limited, cancel := context.WithTimeout(ctx, letterTime)
	defer cancel()
	evidence := make(map[tasker.StepRef]json.RawMessage, len(letters))
	steps := make([]tasker.StepRef, len(letters))
	for i, l := range letters {
		steps[i], evidence[l.StepRef] = l.StepRef, l.Evidence
	}
	expired, again, err := e.settleLetters(limited, steps, evidence, inTime)
	switch {
	case err == nil:
	case len(letters) == 1 || ctx.Err() != nil:
		done.Left = append(done.Left, steps...)
		return err
	default:
		return err // each is tried on its own
	}
	done.Expired = append(done.Expired, expired...)
	done.Again = append(done.Again, again...)
	return nil
}

func (e *Engine) settleLetters(
	ctx context.Context, steps []tasker.StepRef, evidence map[tasker.StepRef]json.RawMessage, inTime bool,
) (expired, again []tasker.StepRef, err error) {
	if !inTime {
		list, err := e.expire(ctx, steps, expiring{lock: lockAll, evidence: evidence})
		if err != nil {
			return nil, nil, fmt.Errorf("fail steps that no worker took: %w", err)
		}
		for _, x := range list {
			expired = append(expired, x.StepRef)
		}
	}
	others := slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return slices.Contains(expired, s) })
	if len(others) == 0 {
		return expired, nil, nil
	}
	for _, s := range others { // the sweep may have been first
		if err := e.db.NoteDeadLetter(ctx, s, evidence[s]); err != nil {
			e.log.WarnContext(ctx, "what the broker says of a step could not be noted", "task_uuid", s.TaskUUID, "step_uuid", s.StepUUID, "err", err)
		}
	}
	ids, err := e.db.AnnounceAgain(ctx, others, 0)
	for _, s := range others {
		if slices.Contains(ids, s.StepUUID) {
			again = append(again, s)
		}
	}
	return expired, again, err
}
