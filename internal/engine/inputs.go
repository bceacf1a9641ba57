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
	"tasker.example/tasker/internal/lifecycle"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	claimRounds  = 4                      // how often one claim removes what blocks it and claims again
	measureTime  = 250 * time.Millisecond // for measuring inputs of unknown size, in one round
	skipDuration = time.Minute            // how long claims skip a step that should be measured or failed by then
	maxSkipped   = 10_000                 // steps that are skipped
	rejectChunk  = 10                     // in one transaction, as each opens an investigation
)

// ItemResults returns the item results of a map step from an ordinal on, or NotFound.
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

// claimAssignments claims up to limit steps and removes what blocks claims: it measures inputs, and
// leaves inputs that are too large to the loop that fails their steps.
func (e *Engine) claimAssignments(ctx context.Context, c postgres.Claimant, limit int) (all []postgres.Claimed, again time.Duration, err error) {
	for round := 1; ; round++ {
		c.Without = e.skipped.ids(e.now())
		next, err := e.db.ClaimSteps(ctx, c, limit-len(all))
		if err != nil && len(all) > 0 {
			e.log.WarnContext(ctx, "claimed fewer steps than available", "worker_uuid", c.WorkerUUID, "err", err)
			return all, again, nil // the claimed steps are committed and must reach the worker
		}
		if err != nil {
			return nil, 0, err
		}
		all = append(all, next.Steps...)
		if again = next.RetryAfter(); again > 0 {
			e.limited.wait(e.now(), c.Namespaces)
		}
		if !next.Blocked() {
			return all, again, nil
		}
		e.removeBlockers(ctx, c, next)
		if round == claimRounds || len(all) >= limit {
			return all, again, nil
		}
	}
}

// removeBlockers removes what blocks claims. It measures inputs, removes queue rows whose steps are
// not enqueued, and has steps with too large inputs failed. If it fails, claims skip the steps for
// a while.
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

// rejectInputs fails steps whose inputs are too large for any worker, each with an investigation.
func (e *Engine) rejectInputs(ctx context.Context, rows []tasker.StepRef) error {
	return e.concludeFree(ctx, rows, func(tx *postgres.Tx, free []tasker.ID) ([]outcome, error) {
		list, err := tx.TooLargeInputs(ctx, stepsOf(free, rows))
		if err != nil {
			return nil, err
		}
		outcomes := make([]outcome, len(list))
		for i, s := range list {
			body, err := failureBody(tooLarge(s), "")
			if err != nil {
				return nil, err
			}
			outcomes[i] = outcome{Detail: tasker.InputTooLarge, Conclusion: postgres.Conclusion{
				TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepEnqueued, Fence: s.Fence,
				Event: lifecycle.RejectInputs, To: tasker.StepError, Body: body, RaiseFence: true,
			}}
			e.log.WarnContext(ctx, "step failed: inputs too large",
				"task_uuid", s.TaskUUID, "step_uuid", s.StepUUID, "context_bytes", s.ContextBytes, "results_bytes", s.ResultsBytes)
		}
		return outcomes, nil
	})
}

func tooLarge(s postgres.TooLargeStep) tasker.Failure {
	f := tasker.Failure{Type: tasker.InputTooLarge, Message: fmt.Sprintf(
		"the results of the steps that this one depends on have %d bytes together; %d is the limit: depend on fewer steps, or have them return less",
		s.ResultsBytes, tasker.MaxInputBytes)}
	if s.ContextBytes > tasker.MaxClaimBytes {
		f.Message = fmt.Sprintf("the context of the task has %d bytes as it is read back; no more than %d can be handed to a worker: "+
			"create a new task with a smaller one", s.ContextBytes, tasker.MaxClaimBytes)
	}
	return f
}

// assignments adds template data to claimed steps. It releases a step, without using an attempt, if
// its template cannot be read or it would make the response too large. It returns an error only if
// no step can be assigned.
func (e *Engine) assignments(ctx context.Context, worker tasker.ID, claimed []postgres.Claimed) ([]tasker.Assignment, error) {
	e.busy.note(e.now(), claimed)
	out := make([]tasker.Assignment, 0, len(claimed))
	var back []postgres.Claimed
	var failed error
	budget := tasker.MaxAnswerBytes - tasker.MaxClaimBytes // for data that does not count as input
	for _, c := range claimed {
		g, err := e.graphIn(ctx, e.db, c.TemplateUUID)
		if err != nil {
			failed = fmt.Errorf("template of step %s: %w", c.StepUUID, err)
			back = append(back, c)
			continue
		}
		a := c.Assignment
		step, _, _ := g.step(c.Name)
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

// skipList holds steps that claims skip for a while.
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

// addFailed has steps failed, and skipped by claims until then.
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

// tryAdd reports whether the step was added.
func (a *skipList) tryAdd(now time.Time, s tasker.StepRef) bool {
	if _, ok := a.until[s.StepUUID]; ok || len(a.until) >= maxSkipped {
		return false
	}
	a.until[s.StepUUID] = now.Add(skipDuration)
	return true
}

// takeFailed removes and returns up to limit steps to fail.
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
