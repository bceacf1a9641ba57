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
	reannounceDelay = time.Second // delay before announcing a step again that its recipient could not execute
)

// TakeSteps leases announced steps to a worker if they are still enqueued and the worker can
// execute them. Steps that it does not return have changed state or will be announced again.
func (e *Engine) TakeSteps(ctx context.Context, worker tasker.ID, steps []tasker.StepRef) ([]tasker.Assignment, error) {
	if len(steps) == 0 || len(steps) > maxTake {
		return nil, tasker.Errorf(tasker.Invalid,
			"invalid number of steps %d: must be from 1 to %d", len(steps), maxTake)
	}
	ctx = postgres.WithConnClass(ctx, postgres.Work)
	m, err := e.findMember(ctx, worker)
	if err != nil {
		return nil, err
	}
	handing, cancel := claimContext(ctx)
	defer cancel()
	claimed, err := e.takeNamed(handing, e.newClaimant(worker, m), steps)
	if err != nil {
		return nil, err
	}
	e.requestPoll()
	if len(claimed) < len(steps) {
		taken := newIDSet(claimed, func(c postgres.Claimed) tasker.ID { return c.StepUUID })
		others := slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return taken[s.StepUUID] })
		if err := e.recordDeclined(handing, m.spec.Namespaces, others); err != nil {
			// They will be announced by the reconciliation or when a slot is released.
			e.log.WarnContext(ctx, "could not announce unclaimed steps again", "err", err)
		}
	}
	return e.buildAssignments(handing, worker, claimed)
}

// recordDeclined announces unclaimed steps again. Steps that wait for a limit are announced when a
// slot is free, the others after a delay. The limits are checked at once, because a slot may have
// been freed before the steps were parked.
func (e *Engine) recordDeclined(ctx context.Context, namespaces []string, steps []tasker.StepRef) error {
	others, err := e.db.ParkLimited(ctx, steps)
	if err != nil {
		return err
	}
	if len(others) < len(steps) {
		e.waiters.limited.addWaiters(e.now(), namespaces)
		loop.Wake(e.waiters.limited.back)
	}
	if len(others) == 0 {
		return nil
	}
	_, err = e.db.AnnounceAgain(ctx, others, reannounceDelay)
	return err
}

// takeNamed claims the given steps. If some are blocked, it removes the blockers and tries again.
func (e *Engine) takeNamed(ctx context.Context, c postgres.Claimant, steps []tasker.StepRef) ([]postgres.Claimed, error) {
	claimed, err := e.db.TakeSteps(ctx, c, steps)
	if err != nil || !claimed.IsBlocked() {
		return claimed.Steps, err
	}
	e.removeBlockers(ctx, c, claimed)
	if len(claimed.Unmeasured) == 0 {
		return claimed.Steps, nil
	}
	measured, err := e.db.TakeSteps(ctx, c, claimed.Unmeasured)
	if err != nil {
		e.log.WarnContext(ctx, "could not claim measured steps", "worker_uuid", c.WorkerUUID, "err", err)
	}
	return append(claimed.Steps, measured.Steps...), nil
}

// DeadLetter is a step whose announcement the broker dead-lettered, with the broker's reason.
type DeadLetter struct {
	tasker.StepRef
	Evidence json.RawMessage
}

// DeadLettered describes what happened to the steps of dead letters. A step that is in none of the
// lists has changed state or never existed.
type DeadLettered struct {
	Expired []tasker.StepRef // failed because no worker had claimed them in time
	Again   []tasker.StepRef // announced again, since their time is not over
	Left    []tasker.StepRef // not processed; their letters must be delivered again
}

// DeadLetters processes dead letters: it fails steps that have expired and announces the others
// again if they still wait. No step expires during the grace period after a start. If it returns an
// error, the steps in done were processed nevertheless.
func (e *Engine) DeadLetters(ctx context.Context, letters []DeadLetter) (done DeadLettered, err error) {
	inTime := !e.outages.grace.isOver(e.now())
	var failed []error
	for some := range slices.Chunk(letters, expiryChunk) {
		err := inBatchOrEach(ctx, some, func(some []DeadLetter) error {
			return e.settleDeadLetters(ctx, some, inTime,
				&done)
		})
		failed = append(failed, err)
	}
	return done, errors.Join(failed...)
}

// inBatchOrEach calls do with the whole list and, if that fails, with each element alone.
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

func (e *Engine) settleDeadLetters(ctx context.Context, letters []DeadLetter, inTime bool, done *DeadLettered) error {
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
		return err // each letter is retried alone
	}
	done.Expired = append(done.Expired, expired...)
	done.Again = append(done.Again, again...)
	return nil
}

func (e *Engine) settleLetters(
	ctx context.Context, steps []tasker.StepRef, evidence map[tasker.StepRef]json.RawMessage, inTime bool,
) (expired, again []tasker.StepRef, err error) {
	if !inTime {
		list, err := e.expire(ctx, steps, expiryMode{wait: true, evidence: evidence})
		if err != nil {
			return nil, nil, fmt.Errorf("fail unclaimed steps: %w", err)
		}
		for _, x := range list {
			expired = append(expired, x.StepRef)
		}
	}
	others := slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return slices.Contains(expired, s) })
	if len(others) == 0 {
		return expired, nil, nil
	}
	for _, s := range others { // the sweep may have failed them in the meantime
		if err := e.db.RecordDeadLetter(ctx, s, evidence[s]); err != nil {
			e.log.WarnContext(ctx, "could not record the dead letter "+
				"of a step", "task_uuid", s.TaskUUID, "step_uuid", s.StepUUID, "err", err)
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
