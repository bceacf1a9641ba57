package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// Start starts a planned operation. The digest must be that of its plan. It returns a Conflict if
// the plan is different, has expired or was aborted.
func (s *Service) Start(ctx context.Context, id tasker.ID, planDigest, actor string) (tasker.Operation, error) {
	return s.changeOperation(ctx, id, actor, func(tx *postgres.Tx, o *postgres.RunningOperation) error {
		switch {
		case planDigest != o.PlanDigest:
			return tasker.Errorf(tasker.Conflict,
				"the plan of operation %s does not have digest %q: review it again", id, planDigest)
		case o.State == tasker.OperationAborted:
			return checkNotEnded(o)
		case o.State != tasker.OperationPlanned:
			return nil // already started
		case !o.Now.Before(o.ExpiresAt):
			return tasker.Errorf(tasker.Conflict,
				"the plan of operation %s expired at %s: plan it again", id, o.ExpiresAt.Format(time.RFC3339))
		}
		if o.Act == tasker.ActReset { // only reset enqueues steps
			if err := tx.RefuseHeldItems(ctx, id); err != nil {
				return err
			}
		}
		return tx.StartOperation(ctx, id, actor)
	})
}

// Pause stops the release of further items. Repeating it has no effect.
func (s *Service) Pause(ctx context.Context, id tasker.ID, actor string) (tasker.Operation, error) {
	return s.changeOperation(ctx, id, actor, func(tx *postgres.Tx, o *postgres.RunningOperation) error {
		switch o.State {
		case tasker.OperationPaused:
			return nil
		case tasker.OperationRunning:
			return tx.PauseOperation(ctx, id, tasker.OperationPause{For: tasker.PausedByOperator, By: actor})
		case tasker.OperationPlanned:
			return tasker.Errorf(tasker.Conflict, "operation %s is planned and cannot be paused before it starts", id)
		default:
			return checkNotEnded(o)
		}
	})
}

// Resume resumes a paused operation, optionally with other guards. It returns a Conflict if the
// operation is not paused and the guards differ, or if there are no causes to tolerate.
func (s *Service) Resume(ctx context.Context, id tasker.ID, actor string, with tasker.ResumeOptions) (tasker.Operation, error) {
	if t := with.Tolerate; t != nil && !isValidTolerance(t) {
		fault := tasker.Fault{Path: "tolerate", Message: fmt.Sprintf(outOfRange, tasker.MaxOperationItems, t)}
		return tasker.Operation{}, tasker.Errorf(tasker.Invalid, "the operation cannot be resumed: %s", fault).WithDetails([]tasker.Fault{fault})
	}
	return s.changeOperation(ctx, id, actor, func(tx *postgres.Tx, o *postgres.RunningOperation) error {
		switch o.State {
		case tasker.OperationRunning:
			if with.Tolerate != nil && *with.Tolerate != *o.Guards.Tolerate || with.TolerateCause && len(o.Tolerated) == 0 {
				return tasker.Errorf(tasker.Conflict, "operation %s is running: pause it to change its guards", id)
			}
			return nil
		case tasker.OperationPaused:
			if with.TolerateCause && len(o.Pause.Causes) == 0 {
				return tasker.Errorf(tasker.Conflict,
					"operation %s is paused for %s and has no failure cause to tolerate: "+
						"resume it without tolerating a cause", id, o.Pause.For)
			}
			if with.TolerateCause {
				o.Tolerated = slices.Compact(slices.Sorted(slices.Values(append(o.Tolerated, o.Pause.Causes...))))
			}
			o.Guards.Tolerate = cmp.Or(with.Tolerate, o.Guards.Tolerate)
			return tx.ResumeOperation(ctx, o.Operation, actor)
		case tasker.OperationPlanned:
			return tasker.Errorf(tasker.Conflict, "operation %s is planned: start it", id)
		default:
			return checkNotEnded(o)
		}
	})
}

// Abort ends an operation. Items that have not been released never will be; released items continue
// and are still verified. Repeating it has no effect. If the operation is done, it returns a
// Conflict.
func (s *Service) Abort(ctx context.Context, id tasker.ID, actor string) (tasker.Operation, error) {
	return s.changeOperation(ctx, id, actor, func(tx *postgres.Tx, o *postgres.RunningOperation) error {
		switch o.State {
		case tasker.OperationAborted:
			return nil
		case tasker.OperationDone:
			return checkNotEnded(o)
		default:
			_, err := tx.AbortOperation(ctx, id, actor, "aborted")
			return err
		}
	})
}

func checkNotEnded(o *postgres.RunningOperation) error {
	return tasker.Errorf(tasker.Conflict, "operation %s is already %s", o.UUID, o.State).WithDetails(map[string]any{"state": o.State})
}

// changeOperation locks an operation, applies do and returns the changed operation.
func (s *Service) changeOperation(
	ctx context.Context, id tasker.ID, actor string, do func(*postgres.Tx, *postgres.RunningOperation) error,
) (after tasker.Operation, err error) {
	if payload.IsBlank(actor) || payload.CheckText(actor, maxPerson) != "" {
		return after, tasker.Errorf(tasker.Invalid, "actor must be 1 to %d characters long", maxPerson)
	}
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		o, err := tx.LockOperation(ctx, id)
		if err != nil {
			return err
		}
		if err := do(tx, o); err != nil {
			return err
		}
		after, err = tx.Operation(ctx, id)
		return err
	})
	if err == nil {
		loop.Wake(s.release)
		loop.Wake(s.verify)
	}
	return after, err
}
