package engine

import (
	"context"
	"time"

	"tasker"
	"tasker/internal/loop"
)

const (
	pruneEvery = 10 * time.Minute
	pruneBatch = 500
)

// A pruner removes finished tasks that are old, a batch a pass. Any number may
// run at once: each takes what no other holds.
type pruner struct {
	*Engine
	state tasker.TaskState
	after tasker.ID // where the last batch ended
}

// pruners return the loops of the retention; none when all is kept.
func (e *Engine) pruners() []*loop.Loop {
	if e.retention <= 0 {
		return nil
	}
	var loops []*loop.Loop
	for _, s := range []tasker.TaskState{tasker.TaskComplete, tasker.TaskCancelled} {
		p := &pruner{Engine: e, state: s}
		loops = append(loops, &loop.Loop{
			Name: "retention of " + string(s) + " tasks", Every: pruneEvery, Timeout: timerDeadline, Pass: p.pass, Log: e.log,
		})
	}
	return loops
}

func (p *pruner) pass(ctx context.Context) (time.Duration, error) {
	done, err := p.db.PruneTasks(ctx, p.state, p.after, p.retention, pruneBatch)
	if err != nil {
		return 0, err
	}
	if done.Removed > 0 {
		p.log.InfoContext(ctx, "removed finished tasks", "state", p.state, "tasks", done.Removed)
	}
	if done.Seen < pruneBatch {
		p.after = tasker.ID{} // from the beginning, next time
		return 0, nil
	}
	p.after = *done.Last
	return loop.AtOnce, nil
}
