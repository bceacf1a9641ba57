package engine

import (
	"context"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// retryCursor records how far this process has scanned the failed steps whose backoff is over.
// Steps of tasks in error remain due while the error lasts, and other due steps may follow them.
// Therefore the due steps are scanned in rounds, one batch per pass, and the passes of a round
// follow each other at once.
type retryCursor struct {
	mu    sync.Mutex
	mark  postgres.RetryMark
	spent time.Duration // time spent on the scans of this round
	again time.Time     // earliest start of the next round
}

// The delay after a round with several passes is a multiple of its scan time. Otherwise many steps
// of tasks in error would keep the database busy.
const (
	roundRest    = 4
	maxRoundRest = time.Minute
)

// hasMore reports whether a round of scans is unfinished.
func (r *retryCursor) hasMore() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mark.HasBegun()
}

// findRetries finds tasks with failed steps whose backoff is over.
func (e *Engine) findRetries(ctx context.Context, limit int) ([]tasker.ID, error) {
	r := &e.timers.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	begun, from := e.now(), r.mark
	if !from.HasBegun() {
		r.spent, from.Recent = 0, begun.Before(r.again)
	}
	tasks, mark, err := e.db.TasksWithDueRetries(ctx, from, limit)
	if err != nil {
		return nil, err
	}
	now := e.now()
	r.spent += now.Sub(begun)
	if from.HasBegun() && !mark.HasBegun() {
		r.again = now.Add(min(roundRest*r.spent, maxRoundRest))
	}
	r.mark = mark
	return tasks, nil
}
