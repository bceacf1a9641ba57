package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
)

// findFailedSteps returns the failed step of each task, or nil for a task that has none. It prefers
// the given step; otherwise it returns the step that failed last.
func findFailedSteps(ctx context.Context, q querier, tasks []tasker.ID, steps []*tasker.ID) ([]*tasker.FailedStep,
	error) {
	out := make([]*tasker.FailedStep, len(tasks))
	if len(tasks) == 0 {
		return out, nil
	}
	type row struct {
		Place int
		tasker.FailedStep
	}
	rows, err := collect[row](ctx, q, statement("selectFailedSteps"), tasks, steps)
	if err != nil {
		return nil, fmt.Errorf("read the failed steps: %w", err)
	}
	for _, r := range rows {
		out[r.Place-1] = &r.FailedStep
	}
	return out, nil
}

// addFailedSteps sets the failed step of each open investigation in list, and describes all of them.
func addFailedSteps(ctx context.Context, q querier, list []tasker.Entry) error {
	var open []*tasker.Entry
	var tasks []tasker.ID
	var steps []*tasker.ID
	for i := range list {
		if e := &list[i]; e.ResolutionStatus == tasker.EntryPending {
			open, tasks, steps = append(open, e), append(tasks, e.TaskUUID), append(steps, e.StepUUID)
		}
	}
	failed, err := findFailedSteps(ctx, q, tasks, steps)
	for i, f := range failed {
		open[i].FailedStep = f
	}
	for i := range list {
		list[i].Describe()
	}
	return err
}
