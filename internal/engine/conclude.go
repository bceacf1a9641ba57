package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/postgres"
)

// Time limits for applying outcomes. Their sum is shorter than the timeout of a request, so that a
// slow outcome does not delay the others.
const (
	batchTime     = 10 * time.Second // all outcomes of a report together
	singleTimeout = 3 * time.Second  // one outcome alone
	restTime      = 12 * time.Second // no further outcome is tried alone after this time
)

// concludeOrKeep concludes steps and settles their tasks. If the batch fails, it tries each outcome
// alone. If an outcome keeps failing, its report is stored as pending, so that no accepted report
// is lost. Outcomes for which no time is left are marked as undecided.
func (e *Engine) concludeOrKeep(ctx context.Context, list []outcome, next *postgres.NextClaim) (moved []int, claimed *postgres.ClaimResult, err error) {
	together, cancel := context.WithTimeout(ctx, batchTime)
	moved, claimed, err = e.conclude(together, list, next)
	cancel()
	if !isSingleOutcomeError(ctx, err) {
		return moved, claimed, err
	}
	begun := time.Now()
	for i := range list {
		v := &list[i]
		if time.Since(begun) > restTime {
			v.undecided = true
			continue
		}
		var one []int
		if len(list) > 1 {
			one, err = concludeAlone(ctx, *v, func(ctx context.Context, v outcome) ([]int, error) {
				moved, _, err := e.conclude(ctx, []outcome{v}, nil)
				return moved, err
			})
		}
		if isSingleOutcomeError(ctx, err) {
			e.log.ErrorContext(ctx, "applying a report failed; it stays pending",
				"task_uuid", v.TaskUUID, "step_uuid", v.StepUUID, "err", err)
			one, err = concludeAlone(ctx, *v, e.storePendingReport)
		}
		switch {
		case err == nil && len(one) > 0:
			moved = append(moved, i)
		case err == nil:
		case ctx.Err() != nil || postgres.IsUnavailable(err):
			return nil, nil, err
		default:
			e.log.ErrorContext(ctx, "outcome neither applied nor stored; the worker will report it again",
				"task_uuid", v.TaskUUID, "step_uuid", v.StepUUID, "err", err)
			v.undecided = true
		}
	}
	return moved, nil, nil
}

// concludeAlone calls do for one outcome with the timeout singleTimeout.
func concludeAlone(ctx context.Context, v outcome, do func(context.Context, outcome) ([]int, error)) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, singleTimeout)
	defer cancel()
	return do(ctx, v)
}

// isSingleOutcomeError reports whether an error may be caused by a single outcome of a batch.
func isSingleOutcomeError(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !postgres.IsUnavailable(err) && (tasker.CodeOf(err) == tasker.Internal || postgres.IsTimeout(err))
}

// conclude applies outcomes in one transaction: it moves steps, settles their tasks and opens
// investigations for final failures. It returns the indexes of the outcomes that it applied. If
// next is set and all outcomes are successes, it also claims the worker's next steps.
func (e *Engine) conclude(ctx context.Context, list []outcome, next *postgres.NextClaim) ([]int, *postgres.ClaimResult, error) {
	if !slices.ContainsFunc(list, func(v outcome) bool { return v.To() == tasker.StepError }) {
		return e.succeed(ctx, list, next)
	}
	var concluded postgres.Concluded
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := tx.LockTasks(ctx, taskIDs(list)); err != nil {
			return err
		}
		var err error
		concluded, err = e.concludeIn(ctx, tx, list, postgres.Operator{})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	e.notifyAttemptsEnded(list, concluded)
	e.notify(concluded.Namespaces)
	e.wakeLimitWaiters(len(concluded.Moved), 0)
	e.scheduleDecision(concluded)
	return concluded.Moved, nil, nil
}

// Attempt describes an attempt that has ended.
type Attempt struct {
	Namespace string
	Handler   string
	TaskUUID  tasker.ID
	Failure   *tasker.Failure // nil for a success
}

// notifyAttemptsEnded reports attempts that have ended to the callback. A lost lease is not
// evidence about the handler, so such attempts are omitted.
func (e *Engine) notifyAttemptsEnded(list []outcome, done postgres.Concluded) {
	if len(done.Queues) != len(done.Moved) {
		return
	}
	attempts := make([]Attempt, 0, len(done.Moved))
	for i, place := range done.Moved {
		q, v := done.Queues[i], list[place]
		if v.Event == core.Lose {
			continue
		}
		attempts = append(attempts, Attempt{Namespace: q.Namespace, Handler: q.Handler, TaskUUID: v.TaskUUID, Failure: v.failure})
	}
	e.opts.Hooks.AttemptsEnded(attempts)
}

// succeed is conclude for successes. It notifies workers only of steps that the reporting worker
// did not claim itself.
func (e *Engine) succeed(ctx context.Context, list []outcome, next *postgres.NextClaim) ([]int, *postgres.ClaimResult, error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err() // the worker has disconnected and must get no work
	}
	concluded, claimed, err := e.reportAndClaim(ctx, list, next)
	if err != nil && next != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "combined report and claim failed; applying the report alone", "err", err)
		next = nil
		concluded, claimed, err = e.reportAndClaim(ctx, list, nil)
	}
	if err != nil {
		return nil, nil, err
	}
	e.notifyAttemptsEnded(list, concluded)
	e.requestPoll()
	e.wakeLimitWaiters(len(concluded.Moved), len(claimed.Steps))
	e.scheduleDecision(concluded)
	if claimed.RetryAfter() > 0 {
		e.waiters.limited.addWaiters(e.now(), next.Namespaces)
	}
	taken := newIDSet(claimed.Steps, func(c postgres.Claimed) tasker.ID { return c.StepUUID })
	if slices.ContainsFunc(concluded.Enqueued, func(step tasker.ID) bool { return !taken[step] }) {
		e.notify(concluded.Namespaces)
	}
	if next == nil {
		return concluded.Moved, nil, nil
	}
	return concluded.Moved, &claimed, nil
}

func (e *Engine) reportAndClaim(ctx context.Context, list []outcome, next *postgres.NextClaim) (postgres.Concluded, postgres.ClaimResult, error) {
	if next != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), batchTime) // see claimContext
		defer cancel()
	}
	return e.db.Report(ctx, toCoreOutcomes(list), next)
}

// concludeIn is conclude in a transaction that already holds the locks on the tasks.
func (e *Engine) concludeIn(ctx context.Context, tx *postgres.Tx, list []outcome, by postgres.Operator) (postgres.Concluded, error) {
	concluded, err := tx.ConcludeSteps(ctx, toCoreOutcomes(list))
	if err != nil {
		return concluded, err
	}
	if len(concluded.FailedForGood) > 0 {
		if concluded, err = e.tolerateFailures(ctx, tx, list, concluded); err != nil {
			return concluded, err
		}
	}
	settled, err := tx.SettleTasks(ctx, taskIDs(list), by)
	if err != nil {
		return concluded, err
	}
	return concluded, investigateFailed(ctx, tx, pick(list, concluded.FailedForGood), indexByTask(settled))
}

// investigateFailed opens an investigation for each task with a final failure. The argument was
// contains the states of the tasks that have not ended.
func investigateFailed(ctx context.Context, tx *postgres.Tx, failed []outcome, was map[tasker.ID]postgres.Settled) error {
	var entries []postgres.NewEntry
	for _, v := range failed {
		s, ok := was[v.TaskUUID]
		if !ok {
			continue // the task has ended
		}
		entries = append(entries, postgres.NewEntry{
			TaskUUID: v.TaskUUID, StepUUID: &v.StepUUID, Reason: tasker.MaxRetriesExceeded, DetailCode: v.Detail,
			DetectedBy: tasker.DetectedInline, OriginalState: s.Was, Since: s.Since, Actor: tasker.SystemActor,
		})
	}
	_, err := tx.OpenEntries(ctx, entries)
	return err
}

func indexByTask(settled []postgres.Settled) map[tasker.ID]postgres.Settled {
	of := make(map[tasker.ID]postgres.Settled, len(settled))
	for _, s := range settled {
		of[s.TaskUUID] = s
	}
	return of
}

func toCoreOutcomes(list []outcome) []core.Outcome {
	out := make([]core.Outcome, len(list))
	for i, v := range list {
		out[i] = v.Outcome
	}
	return out
}

func taskIDs(list []outcome) []tasker.ID { return postgres.TaskIDs(toCoreOutcomes(list)) }

func pick(list []outcome, indexes []int) []outcome {
	out := make([]outcome, len(indexes))
	for n, i := range indexes {
		out[n] = list[i]
	}
	return out
}

// storePendingReport stores a report as pending, without applying it.
func (e *Engine) storePendingReport(ctx context.Context, v outcome) ([]int, error) {
	doc, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("store pending report: %w", err)
	}
	kept := v.Outcome
	kept.Event, kept.Body, kept.KeepReport = core.Keep, nil, doc
	var concluded postgres.Concluded
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := tx.LockTasks(ctx, []tasker.ID{v.TaskUUID}); err != nil {
			return err
		}
		concluded, err = tx.ConcludeSteps(ctx, []core.Outcome{kept})
		return err
	})
	return concluded.Moved, err
}

// completePendingReports applies pending reports in one transaction.
func (e *Engine) completePendingReports(ctx context.Context, steps []tasker.StepRef) error {
	kept, err := e.db.PendingReports(ctx, steps)
	if err != nil || len(kept) == 0 {
		return err
	}
	list, err := toOutcomes(ctx, e.db, kept)
	if err != nil {
		return err
	}
	_, _, err = e.conclude(ctx, list, nil)
	return err
}

// toOutcomes converts pending reports back to outcomes.
func toOutcomes(ctx context.Context, from decisionReader, kept []postgres.PendingReport) ([]outcome, error) {
	list := make([]outcome, len(kept))
	for i, k := range kept {
		if err := json.Unmarshal(k.Report, &list[i]); err != nil {
			return nil, fmt.Errorf("read pending report of step %s: %w", k.StepUUID, err)
		}
		v := &list[i]
		v.From, v.Fence, v.Worker, v.Digest, v.KeepReport = tasker.StepEnqueuedForOrchestration, k.Fence, nil, nil, nil
		if v.To() != tasker.StepError {
			continue
		}
		f, err := decodeFailure(v.Body)
		if err != nil {
			return nil, fmt.Errorf("read pending failure of step %s: %w", k.StepUUID, err)
		}
		v.failure = &f
	}
	_, err := readDecisions(ctx, from, list)
	return list, err
}
