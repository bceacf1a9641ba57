package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/postgres"
)

// Compensation describes the start of a task's compensation.
type Compensation struct {
	Steps      int      // number of compensation steps; 0 if there are none or if Before is set
	Before     bool     // the compensation had already begun
	Namespaces []string // namespaces with ready steps
}

// CompensateTask undoes the completed steps of a task in reverse order of completion, as its
// template defines, and then cancels the task. Repeating it has no effect. It returns a Conflict if
// the task has already ended in another way.
func (e *Engine) CompensateTask(ctx context.Context, task tasker.ID, actor, reason string) error {
	var c Compensation
	err := e.db.InTx(ctx, func(tx *postgres.Tx) (err error) {
		c, err = e.Compensate(ctx, tx, task, postgres.Cancellation{Operator: postgres.Operator{Actor: actor, Reason: reason}})
		return err
	})
	if err == nil {
		e.notify(c.Namespaces)
	}
	return err
}

// CompensateTaskTx is [Engine.CompensateTask] in the caller's transaction. The caller must call
// committed after the commit.
func (e *Engine) CompensateTaskTx(ctx context.Context, tx *postgres.Tx, task tasker.ID, by postgres.Operator) (committed func(), err error) {
	c, err := e.Compensate(ctx, tx, task, postgres.Cancellation{Operator: by})
	return func() { e.notify(c.Namespaces) }, err
}

// Compensate is [Engine.CompensateTask] in the caller's transaction. The caller must pass the
// namespaces to [Engine.Enqueued] after the commit.
func (e *Engine) Compensate(ctx context.Context, tx *postgres.Tx, task tasker.ID, by postgres.Cancellation) (Compensation, error) {
	t, err := tx.LockCompensable(ctx, task)
	if err != nil {
		return Compensation{}, err
	}
	if t.Phase == tasker.Compensating || t.Outcome == tasker.Compensated || t.Outcome == tasker.NothingToCompensate {
		return Compensation{Before: true}, nil
	}
	if err := checkCompensable(t); err != nil {
		return Compensation{}, err
	}
	g, err := e.loadGraphByID(ctx, tx, t.TemplateUUID)
	if err != nil {
		return Compensation{}, err
	}
	undone, steps, err := e.planUndo(ctx, tx, task, g)
	if err != nil {
		return Compensation{}, err
	}
	if len(steps) == 0 {
		by.Outcome = tasker.NothingToCompensate
		return Compensation{}, tx.CancelTasks(ctx, []postgres.TaskTarget{{TaskUUID: task, State: t.State}}, by)
	}
	namespaces, err := tx.Compensate(ctx, postgres.Compensation{Task: t, Template: g.stored, Undone: undone, Steps: steps}, by)
	return Compensation{Steps: len(steps), Namespaces: namespaces}, err
}

// checkCompensable returns a Conflict if the compensation of a task cannot begin.
func checkCompensable(t postgres.CompensableTask) error {
	switch {
	case t.State == tasker.TaskComplete:
		return tasker.Errorf(tasker.Conflict,
			"task %s is complete and cannot be compensated: undo its effects with another task", t.TaskUUID)
	case t.Outcome == tasker.CompensationStopped:
		return tasker.Errorf(tasker.Conflict, "task %s was cancelled during compensation, which cannot resume: "+
			"check which steps are compensated, and undo the others with another task", t.TaskUUID)
	case t.State == tasker.TaskCancelled:
		return tasker.Errorf(tasker.Conflict, "task %s was cancelled without compensation, which can no longer "+
			"start: undo its effects with another task", t.TaskUUID)
	}
	_, err := core.TaskMoves.Next(t.State, core.CancelTask)
	return err
}

// planUndo returns the completed steps, most recent first, and the chain of steps that undo them.
// It first concludes steps whose work is done but not yet concluded.
func (e *Engine) planUndo(ctx context.Context, tx *postgres.Tx, task tasker.ID, g *graph) ([]postgres.DoneStep, []postgres.CreatedStep, error) {
	var names []string
	for _, s := range g.stored.Steps {
		if s.OnFailure != nil {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil, nil
	}
	if err := e.concludeDone(ctx, tx, task, names); err != nil {
		return nil, nil, fmt.Errorf("conclude completed steps: %w", err)
	}
	done, err := tx.DoneSteps(ctx, task, names)
	if err != nil {
		return nil, nil, err
	}
	depth := g.computeDepths()
	slices.SortFunc(done, func(a, b postgres.DoneStep) int {
		i, j := g.byName[a.Name], g.byName[b.Name]
		return cmp.Or(b.CompletedAt.Compare(a.CompletedAt), cmp.Compare(depth[j], depth[i]), cmp.Compare(j, i))
	})
	steps := make([]postgres.CreatedStep, len(done))
	for i, d := range done {
		s, _ := g.stored.Steps[g.byName[d.Name]].Undo()
		steps[i] = postgres.CreatedStep{
			StepTemplate: s, UUID: tasker.NewID(), State: tasker.StepPending, Parents: []tasker.ID{d.StepUUID}, ParentsDone: 1, InputSize: d.ResultBytes,
		}
		if i > 0 {
			steps[i].Parents = append(steps[i].Parents, steps[i-1].UUID)
			steps[i-1].Children = []tasker.ID{steps[i].UUID}
		}
	}
	return done, steps, nil
}

// concludeDone concludes those of the named steps that have a pending report or whose child task
// has ended. The task must be locked.
func (e *Engine) concludeDone(ctx context.Context, tx *postgres.Tx, task tasker.ID, names []string) error {
	steps, err := tx.LockUnconcluded(ctx, task, names)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(steps, childChunk) { // each may have a large result
		kept, err := tx.PendingReports(ctx, chunk)
		if err != nil {
			return err
		}
		list, err := toOutcomes(ctx, tx, kept)
		if err != nil {
			return err
		}
		ended, err := e.collectChildEnds(ctx, tx, []tasker.ID{task}, chunk)
		if err != nil {
			return err
		}
		if list = append(list, ended...); len(list) == 0 {
			continue
		}
		if _, err := tx.ConcludeSteps(ctx, toCoreOutcomes(list)); err != nil {
			return err
		}
	}
	return nil
}

// computeDepths returns the length of the longest path to each step. In a cyclic template, all are
// zero.
func (g *graph) computeDepths() []int {
	depth := make([]int, len(g.parents))
	if g.cycle != nil {
		return depth
	}
	known := make([]bool, len(g.parents))
	var visit func(i int) int
	visit = func(i int) int {
		if !known[i] {
			for _, p := range g.parents[i] {
				depth[i] = max(depth[i], visit(p)+1)
			}
			known[i] = true
		}
		return depth[i]
	}
	for i := range g.parents {
		visit(i)
	}
	return depth
}
