package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	claimRounds  = 4                      // how often one claim removes blockers and tries again
	measureTime  = 250 * time.Millisecond // time for measuring inputs in one round
	skipDuration = time.Minute            // how long claims skip a step that should meanwhile be measured or failed
	maxSkipped   = 10_000                 // maximum number of skipped steps
	rejectChunk  = 10                     // steps per transaction, since each opens an investigation
)

// ItemResults returns the item results of a map step, starting at an ordinal. It returns NotFound
// if the step does not exist.
func (e *Engine) ItemResults(ctx context.Context, task tasker.ID, step string, from int) (tasker.ItemResults, error) {
	return e.db.ItemResultsFrom(ctx, task, nil, step, from)
}

// TaskContext returns the context of a task, or NotFound.
func (e *Engine) TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error) {
	return e.db.TaskContext(ctx, task)
}

// StepResult returns the result of a step as its dependents receive it. It returns NotFound, or
// TooLarge above [tasker.MaxAnswerBytes].
func (e *Engine) StepResult(ctx context.Context, task, step tasker.ID) (json.RawMessage, error) {
	return e.db.StepResult(ctx, task, &step, "", tasker.MaxAnswerBytes)
}

// claimAssignments claims up to limit steps. It removes what blocks claims: it measures inputs of
// unknown size, and leaves steps whose inputs are too large to the loop that fails them.
func (e *Engine) claimAssignments(ctx context.Context, c postgres.Claimant, limit int) (all []postgres.Claimed, again time.Duration, err error) {
	for round := 1; ; round++ {
		c.Without = e.skipped.ids(e.now())
		next, err := e.db.ClaimSteps(ctx, c, limit-len(all))
		if err != nil && len(all) > 0 {
			e.log.WarnContext(ctx, "claimed fewer steps than available", "worker_uuid", c.WorkerUUID, "err", err)
			return all, again, nil // the claimed steps are committed, so the worker must receive them
		}
		if err != nil {
			return nil, 0, err
		}
		all = append(all, next.Steps...)
		if again = next.RetryAfter(); again > 0 {
			e.waiters.limited.addWaiters(e.now(), c.Namespaces)
		}
		if !next.IsBlocked() {
			return all, again, nil
		}
		e.removeBlockers(ctx, c, next)
		if round == claimRounds || len(all) >= limit {
			return all, again, nil
		}
	}
}

// removeBlockers removes what blocks claims: it measures inputs, removes queue rows whose steps are
// not enqueued, and marks steps whose inputs are too large to be failed. If it fails, claims skip
// the steps for a while.
func (e *Engine) removeBlockers(ctx context.Context, c postgres.Claimant, h postgres.ClaimResult) {
	n, err := 0, error(nil)
	if len(h.Unmeasured) > 0 {
		n, err = e.db.MeasureInputs(ctx, h.Unmeasured, measureTime)
	}
	if err != nil {
		e.log.ErrorContext(ctx, "measuring inputs failed; claims skip the steps for a while", "steps", len(h.Unmeasured), "err", err)
		e.skipped.add(e.now(), h.Unmeasured)
	}
	if n > 0 {
		e.log.DebugContext(ctx, "measured the inputs of steps", "steps", n)
	}
	if n == len(h.Unmeasured) && len(h.TooLarge) == 0 {
		return
	}
	removed, err := e.db.RemoveOutdated(ctx, c, slices.Concat(h.Unmeasured, h.TooLarge))
	if err != nil {
		e.log.ErrorContext(ctx, "removing outdated queue rows failed", "err", err)
	}
	if removed > 0 {
		e.log.WarnContext(ctx, "removed queue rows of steps that are not enqueued", "rows", removed)
		return // the steps may have other rows
	}
	e.skipped.addFailed(e.now(), h.TooLarge)
}

// rejectInputs fails steps whose inputs are too large for any worker and opens an investigation for
// each.
func (e *Engine) rejectInputs(ctx context.Context, rows []tasker.StepRef) error {
	return e.concludeFree(ctx, rows, func(tx *postgres.Tx, free []tasker.ID) ([]outcome, error) {
		list, err := tx.TooLargeInputs(ctx, selectSteps(free, rows))
		if err != nil {
			return nil, err
		}
		outcomes := make([]outcome, len(list))
		for i, s := range list {
			body, err := encodeFailure(newTooLargeFailure(s), "")
			if err != nil {
				return nil, err
			}
			outcomes[i] = outcome{Detail: tasker.InputTooLarge, Outcome: core.Outcome{
				TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepEnqueued, Fence: s.Fence,
				Event: core.RejectInputs, Body: body, RaiseFence: true,
			}}
			e.log.WarnContext(ctx, "step failed: inputs too large",
				"task_uuid", s.TaskUUID, "step_uuid", s.StepUUID, "context_bytes", s.ContextBytes, "results_bytes", s.ResultsBytes)
		}
		return outcomes, nil
	})
}

func newTooLargeFailure(s postgres.TooLargeStep) tasker.Failure {
	f := tasker.Failure{Type: tasker.InputTooLarge, Message: fmt.Sprintf(
		"the results of this step's dependencies have %d bytes in total; the limit is %d: depend on fewer steps, "+
			"or return smaller results",
		s.ResultsBytes, tasker.MaxInputBytes)}
	if s.ContextBytes > tasker.MaxClaimBytes {
		f.Message = fmt.Sprintf("the task's stored context has %d bytes; a worker can receive at most %d: "+
			"create a new task with a smaller context", s.ContextBytes, tasker.MaxClaimBytes)
	}
	return f
}

// buildAssignments adds template data to claimed steps. If the template of a step cannot be read or
// the response would become too large, it releases the step without using an attempt. It returns an
// error only if no step can be assigned.
func (e *Engine) buildAssignments(ctx context.Context, worker tasker.ID, claimed []postgres.Claimed) ([]tasker.Assignment, error) {
	e.busy.recordClaims(e.now(), claimed)
	out := make([]tasker.Assignment, 0, len(claimed))
	var back []postgres.Claimed
	var failed error
	budget := tasker.MaxAnswerBytes - tasker.MaxClaimBytes // for data that does not count as input
	for _, c := range claimed {
		g, err := e.loadGraphByID(ctx, e.db, c.TemplateUUID)
		if err != nil {
			failed = fmt.Errorf("template of step %s: %w", c.StepUUID, err)
			back = append(back, c)
			continue
		}
		a := c.Assignment
		step, _, _ := g.findStep(c.Name)
		a.Initialization = step.Handler.Initialization
		if budget -= len(a.Initialization) + len(a.Checkpoint); budget < 0 && len(out) > 0 {
			back = append(back, c)
			continue
		}
		out = append(out, a)
	}
	if len(back) > 0 {
		_, err := e.db.ReleaseSteps(ctx, worker, mapSlice(back, postgres.Claimed.Lease))
		failed = errors.Join(failed, err)
	}
	if failed != nil && len(out) > 0 {
		e.log.ErrorContext(ctx, "claimed steps could not be assigned and were released", "worker_uuid", worker, "steps", len(back), "err", failed)
		failed = nil
	}
	return out, failed
}

// skipList contains the steps that claims skip for a while.
type skipList struct {
	mu     sync.Mutex
	until  map[tasker.ID]time.Time
	reject []tasker.StepRef // steps to fail
	wake   chan struct{}    // wakes the loop that fails them
}

func (a *skipList) add(now time.Time, steps []tasker.StepRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range steps {
		a.tryAdd(now, s)
	}
}

// addFailed adds steps that are to be failed. Claims skip them until then.
func (a *skipList) addFailed(now time.Time, steps []tasker.StepRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range steps {
		if a.tryAdd(now, s) {
			a.reject = append(a.reject, s)
		}
	}
	if len(a.reject) > 0 {
		loop.Wake(a.wake)
	}
}

// tryAdd adds a step and reports whether it did.
func (a *skipList) tryAdd(now time.Time, s tasker.StepRef) bool {
	if _, ok := a.until[s.StepUUID]; ok || len(a.until) >= maxSkipped {
		return false
	}
	a.until[s.StepUUID] = now.Add(skipDuration)
	return true
}

// takeFailed removes up to limit of the steps to fail and returns them.
func (a *skipList) takeFailed(_ context.Context, limit int) ([]tasker.StepRef, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(limit, len(a.reject))
	steps := slices.Clone(a.reject[:n])
	a.reject = slices.Delete(a.reject, 0, n)
	return steps, nil
}

// ids returns the steps to skip.
func (a *skipList) ids(now time.Time) []tasker.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	var steps []tasker.ID
	for id, until := range a.until {
		if now.Before(until) {
			steps = append(steps, id)
		} else {
			delete(a.until, id)
		}
	}
	return steps
}
