package engine

import (
	"context"
	"errors"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	pruneEvery = 10 * time.Minute
	pruneTasks = 500
	pruneSteps = 2000             // each with some rows of history
	pruneTime  = 10 * time.Second // of one batch
	pruneFor   = 10 * time.Second // after which a pass begins no other
)

// A pruner removes finished tasks that are old, a batch a pass. Any number may
// run at once: each takes what no other holds.
type pruner struct {
	*Engine
	state tasker.TaskState
	after tasker.ID            // where the last batch ended
	most  postgres.PruneBounds // of the next
}

// pruners return the loops of the retention; none when all is kept.
func (e *Engine) pruners() []*loop.Loop {
	if e.retention <= 0 {
		return nil
	}
	var loops []*loop.Loop
	for _, s := range []tasker.TaskState{tasker.TaskComplete, tasker.TaskCancelled} {
		p := &pruner{Engine: e, state: s, most: usualPrune}
		loops = append(loops, spare(e.loop("retention of "+string(s)+" tasks", pruneEvery, p.pass)))
	}
	return loops
}

// usualPrune is how much a batch removes, unless one failed.
var usualPrune = postgres.PruneBounds{Tasks: pruneTasks, Steps: pruneSteps}

// pass removes a batch. One that fails is halved, until it is one task, which is
// stepped over: it keeps those behind it from nothing.
func (p *pruner) pass(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	for {
		limited, cancel := context.WithTimeout(ctx, pruneTime)
		done, err := p.db.PruneTasks(limited, p.state, p.after, p.retention, p.most)
		cancel()
		switch {
		case err != nil && (ctx.Err() != nil || postgres.IsAway(err)):
			return 0, err
		case err != nil && p.most.Tasks > 1:
			p.most = postgres.PruneBounds{Tasks: (p.most.Tasks + 1) / 2, Steps: p.most.Steps/2 + 1}
		case err != nil:
			last, skipErr := p.db.NextToPrune(ctx, p.state, p.after)
			if skipErr != nil || last == nil {
				return 0, errors.Join(err, skipErr)
			}
			p.log.ErrorContext(ctx, "a finished task cannot be removed and is stepped over", "task_uuid", *last, "err", err)
			p.after = *last
		default:
			return p.did(ctx, done), nil
		}
		if time.Since(begun) > pruneFor {
			return 0, nil // it goes on with the smaller batch
		}
	}
}

// did notes what a batch did, and says when to go on.
func (p *pruner) did(ctx context.Context, done postgres.Pruned) time.Duration {
	p.most = postgres.PruneBounds{Tasks: min(2*p.most.Tasks, pruneTasks), Steps: min(2*p.most.Steps, pruneSteps)}
	if done.Removed > 0 {
		p.log.InfoContext(ctx, "removed finished tasks", "state", p.state, "tasks", done.Removed)
	}
	if !done.More {
		p.after = tasker.ID{} // from the beginning, next time
		return 0
	}
	p.after = *done.Last
	return loop.AtOnce
}
