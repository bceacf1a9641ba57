package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

// joinedSender is the sender of notifications from callers' transactions. Every process handles
// these, including this one, which does not know when the caller commits.
const joinedSender = "transaction"

// runInTx runs do in the caller's transaction. After the commit, every process is notified of the
// namespaces that have work.
func (e *Engine) runInTx(ctx context.Context, outer pgx.Tx,
	do func(*postgres.Tx) (namespaces []string, err error)) error {
	return e.db.Join(ctx, outer, func(tx *postgres.Tx) error {
		namespaces, err := do(tx)
		if err != nil {
			return err
		}
		return tx.Notify(ctx, channel, encodeMessages(joinedSender, namespaces))
	})
}

// notifyAfterCommit handles the notification that a caller's transaction was committed.
func (e *Engine) notifyAfterCommit(namespaces []string) {
	e.waiters.notifier.wake(namespaces)
	e.requestPoll()
	e.decideNow()
	e.opts.Hooks.StepsEnqueued()
	e.db.Committed()
}

// CreateTasksTx is [Engine.CreateTasks] in the caller's transaction, which remains usable after an
// error.
func (e *Engine) CreateTasksTx(ctx context.Context, outer pgx.Tx, requests []tasker.NewTask) ([]Created, error) {
	if err := checkCount(requests); err != nil {
		return nil, err
	}
	const tries = 3 // a try fails if a concurrent request uses the same key or replaces the template
	for n := 1; ; n++ {
		var created []Created
		err := e.runInTx(ctx, outer, func(tx *postgres.Tx) (namespaces []string, err error) {
			created, namespaces, err = e.createIn(ctx, tx, requests)
			return namespaces, err
		})
		switch {
		case err == nil:
			return created, nil
		case !isKeyOrTemplateRace(err):
			return nil, err
		case n == tries: // this transaction does not see later commits
			return nil, tasker.Errorf(tasker.Conflict, "another transaction created a task with the same "+
				"idempotency_key or unique key, or replaced the template, unseen by this transaction: restart it")
		}
	}
}

func (e *Engine) createIn(ctx context.Context, tx *postgres.Tx, requests []tasker.NewTask) (out []Created, namespaces []string, err error) {
	c := e.newCreation(tx, templatefile.NewBudget())
	c.asked = true
	if out, err = c.addAll(ctx, requests, tx.KeyHolders); err != nil || len(c.tasks) == 0 {
		return out, nil, err
	}
	err = c.reject(ctx, tx)
	c.addMerged(out)
	return out, c.listNamespaces(), err
}

// CompleteStepTx completes a leased step in the caller's transaction, so that the step and the
// caller's changes are committed together. Completing it again with the same result has no effect;
// this includes the worker's own report. It returns a Conflict if the lease is lost.
func (e *Engine) CompleteStepTx(ctx context.Context, outer pgx.Tx, o tasker.Outcome) error {
	v, err := evaluateOutcome(tasker.ID{}, o)
	if err != nil {
		return err
	}
	if !o.Success {
		return tasker.Errorf(tasker.Invalid,
			"the outcome of step %s is a failure: roll back the transaction and report the failure", o.StepUUID)
	}
	v.Worker = nil // the fence identifies the lease
	return e.runInTx(ctx, outer, func(tx *postgres.Tx) ([]string, error) {
		if err := tx.CheckReadCommitted(ctx); err != nil {
			return nil, err
		}
		if err := tx.LockTasks(ctx, []tasker.ID{v.TaskUUID}); err != nil {
			return nil, err
		}
		done, err := tx.ConcludeSteps(ctx, toCoreOutcomes([]outcome{v}))
		if err != nil {
			return nil, err
		}
		if len(done.Moved) == 0 {
			return nil, explainNotCompleted(ctx, tx, v)
		}
		_, err = tx.SettleTasks(ctx, []tasker.ID{v.TaskUUID}, postgres.Operator{})
		return done.Namespaces, err
	})
}

// explainNotCompleted returns an error that explains why a leased step was not completed. It
// returns nil if the step was completed earlier with the same result.
func explainNotCompleted(ctx context.Context, tx *postgres.Tx, v outcome) error {
	before, err := tx.LockStepLease(ctx, v.TaskUUID, v.StepUUID)
	switch {
	case err != nil:
		return err
	case before.State == string(tasker.StepInProgress) && before.Fence == v.Fence:
		return tasker.Errorf(tasker.Invalid, "step %s is a decision and cannot be completed in a transaction: "+
			"return the result from the handler", v.StepUUID)
	case before.ReportedFence != nil && *before.ReportedFence == v.Fence && string(before.ReportDigest) == string(v.Digest):
		return nil
	default:
		return tasker.Errorf(tasker.Conflict, "%s", explainLost(before, v))
	}
}

func explainLost(m postgres.StepLease, v outcome) string {
	if m.ReportedFence != nil && *m.ReportedFence == v.Fence {
		return fmt.Sprintf("a different outcome of this attempt was already accepted; the step is %s", m.State)
	}
	return fmt.Sprintf("lease lost: the step is %s and this attempt no longer counts", m.State)
}

// CompleteExternalTx is [Engine.CompleteExternal] in the caller's transaction.
func (e *Engine) CompleteExternalTx(ctx context.Context, outer pgx.Tx, step tasker.StepRef, o tasker.Outcome, source string) error {
	v, err := evaluateExternalOutcome(step, o, source)
	if err != nil {
		return err
	}
	return e.runInTx(ctx, outer, func(tx *postgres.Tx) ([]string, error) {
		if err := tx.CheckReadCommitted(ctx); err != nil {
			return nil, err
		}
		concluded, err := e.completeExternalIn(ctx, tx, v)
		return concluded.Namespaces, err
	})
}

// evaluateExternalOutcome validates a reported outcome of an external step and converts it.
func evaluateExternalOutcome(step tasker.StepRef, o tasker.Outcome, source string) (outcome, error) {
	if wrong := checkText(source, 255, false); wrong != "" {
		return outcome{}, tasker.Errorf(tasker.Invalid, "source: %s", wrong)
	}
	if o.Failure != nil {
		f := *o.Failure
		f.Retryable = false // only an operator can retry an external step
		o.Failure = &f
	}
	o.Lease = tasker.Lease{TaskUUID: step.TaskUUID, StepUUID: step.StepUUID}
	v, err := evaluateOutcome(tasker.ID{}, o)
	if err != nil {
		return v, err
	}
	v.Event, v.Actor, v.Worker, v.given = core.CompleteExternal, source, nil, o.Result
	if !o.Success {
		v.Event, v.Detail = core.FailExternal, tasker.ExternalFailure
		if v.Body, err = encodeFailure(*o.Failure, ""); err != nil {
			return v, err
		}
	}
	v.Digest = v.computeDigest()
	return v, nil
}

// completeExternalIn concludes an external step, unless it was already concluded by the same
// outcome.
func (e *Engine) completeExternalIn(ctx context.Context, tx *postgres.Tx, v outcome) (postgres.Concluded, error) {
	done, err := e.checkCompletion(ctx, tx, &v)
	if err != nil || done {
		return postgres.Concluded{}, err
	}
	return e.concludeIn(ctx, tx, []outcome{v}, postgres.Operator{})
}
