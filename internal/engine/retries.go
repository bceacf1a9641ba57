package engine

import (
	"context"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// retries is how far this process has come with the failed steps whose rest is over. Those of
// tasks in error are due for as long as those are, and the rest stands among and behind them:
// what is due since a while is gone through in rounds, a batch a pass, without a rest between.
type retries struct {
	mu    sync.Mutex
	mark  postgres.RetryMark
	spent time.Duration // in this round, with looking
	again time.Time     // when the next round may begin
}

// After a round of several passes the next one begins after so many times as long as it took to
// look, so that many steps of tasks in error do not keep the database busy.
const (
	roundRest     = 4
	mostRoundRest = time.Minute
)

// more reports whether the next look for retries goes on where the last one ended.
func (r *retries) more() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mark.Begun()
}

// findRetries finds tasks with a failed step whose rest is over.
func (e *Engine) findRetries(ctx context.Context, limit int) ([]tasker.ID, error) {
	r := &e.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	begun, from := e.now(), r.mark
	if !from.Begun() {
		r.spent, from.Recent = 0, begun.Before(r.again)
	}
	tasks, mark, err := e.db.TasksWithDueRetries(ctx, from, limit)
	if err != nil {
		return nil, err
	}
	now := e.now()
	r.spent += now.Sub(begun)
	if from.Begun() && !mark.Begun() {
		r.again = now.Add(min(roundRest*r.spent, mostRoundRest))
	}
	r.mark = mark
	return tasks, nil
}
