package drill

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/loop"
)

const (
	cancelPage        = 500
	cancelConcurrency = 8
)

// A Cleaned is the result of [Clean].
type Cleaned struct {
	Cancelled int   `json:"cancelled"` // tasks
	Ended     int64 `json:"ended"`     // investigations
}

// Clean cancels the tasks of a sandbox namespace and ends its investigations. It can be repeated.
func Clean(ctx context.Context, o Options) (Cleaned, error) {
	var c Cleaned
	if err := CheckNamespace(o.Namespace); err != nil {
		return c, err
	}
	d := &drill{Options: o}
	if err := d.checkSandbox(ctx); err != nil {
		return c, err
	}
	for _, state := range []tasker.TaskState{
		tasker.TaskPending, tasker.TaskStepsInProcess, tasker.TaskWaitingForDependencies, tasker.TaskWaitingForRetry,
		tasker.TaskError,
	} {
		n, err := d.cancelTasks(ctx, state)
		c.Cancelled += n
		if err != nil {
			return c, err
		}
	}
	o.Say("Cancelled %d tasks of %s.", c.Cancelled, o.Namespace)
	open, err := d.listOpenCases(ctx)
	if err != nil || open.TotalEntries+open.Unclassified == 0 {
		return c, err
	}
	c.Ended, err = d.endInvestigations(ctx)
	o.Say("Ended %d investigations.", c.Ended)
	return c, err
}

// cancelTasks cancels the tasks in a state. It always reads the first page, because cancelled tasks
// are no longer listed.
func (d *drill) cancelTasks(ctx context.Context, state tasker.TaskState) (n int, err error) {
	for {
		page, err := d.Client.Tasks(ctx, tasker.TaskFilter{
			Namespace: d.Namespace, State: state, Limit: cancelPage,
		})
		if err != nil || len(page.Tasks) == 0 {
			return n, err
		}
		g, each := errgroup.WithContext(ctx)
		g.SetLimit(cancelConcurrency)
		for _, t := range page.Tasks {
			g.Go(func() error { return d.cancelTask(each, t.UUID) })
		}
		if err := g.Wait(); err != nil {
			return n, err
		}
		if n += len(page.Tasks); n > 2*MaxTasks {
			return n, tasker.Errorf(tasker.Conflict,
				"namespace %s has more than %d tasks, more than any drill creates: "+
					"cancel them yourself", d.Namespace, 2*MaxTasks)
		}
	}
}

func (d *drill) cancelTask(ctx context.Context, task tasker.ID) error {
	_, err := d.Client.CancelTask(ctx, task, "the drill is over", "drill")
	if tasker.CodeOf(err) == tasker.Conflict {
		return nil // it has completed
	}
	return err
}

// endInvestigations ends the investigations of the namespace with an operation and waits until it
// is done.
func (d *drill) endInvestigations(ctx context.Context) (int64, error) {
	plan, err := d.Client.PlanOperation(ctx, apiv1.PlanOperation{
		Act: apiv1.OperationAct{Type: string(tasker.ActEnd)}, Select: apiv1.OperationSelection{Namespace: d.Namespace},
		Reason: "the drill is over", PlannedBy: "drill", Waves: &[]int{}, Overlap: "skip",
	}, "")
	if err != nil {
		return 0, err
	}
	if !slices.Equal(plan.Namespaces, []string{d.Namespace}) {
		return 0, tasker.Errorf(tasker.Internal, "operation %s covers namespaces %q, not only %s: it was not started",
			plan.OperationUUID, plan.Namespaces, d.Namespace)
	}
	id, err := uuid.Parse(plan.OperationUUID)
	if err != nil {
		return 0, err
	}
	if _, err := d.Client.StartOperation(ctx, id, apiv1.StartOperation{PlanDigest: plan.PlanDigest, By: "drill"}); err != nil {
		return 0, err
	}
	for {
		o, err := d.Client.Operation(ctx, id)
		switch {
		case err != nil:
			return 0, err
		case o.SettledAt != nil:
			return o.Counts[string(tasker.ItemVerified)], nil
		case o.State == string(tasker.OperationPaused):
			return 0, tasker.Errorf(tasker.Conflict,
				"operation %s has paused: for the reason, run tasker-ctl operation show %s", id, id)
		case !loop.Sleep(ctx, max(d.Every, 10*time.Millisecond)):
			return 0, ctx.Err()
		}
	}
}
