package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	claimActivityInterval = 10 * time.Second // how often it is stored of a queue that steps of it are claimed
	maxNoted              = 10_000           // queues that are remembered; all are forgotten beyond it
	keepBatch             = 500              // steps whose limits are moved on in one transaction
	keepRounds            = 20               // such transactions in a pass
	relieveEvery          = time.Minute
	relieveAfter          = time.Minute // without a step past its limit a queue is saturated no more
	relieveBatch          = 1000
	forgetQueueIn         = 24 * time.Hour
)

// claimActivity collects queues with claimed steps until they are stored.
type claimActivity struct {
	mu     sync.Mutex
	stored map[postgres.QueueName]time.Time // when that was to be stored last
	noted  map[postgres.QueueName]bool      // is to be stored
	passed time.Time                        // the last pass of the loop that stores them
	wake   chan struct{}                    // of the loop
}

func newBusyQueues() *claimActivity {
	return &claimActivity{stored: map[postgres.QueueName]time.Time{}, noted: map[postgres.QueueName]bool{}, wake: make(chan struct{}, 1)}
}

// note has the loop store of which queues the steps were, unless it was stored a moment ago.
func (b *claimActivity) note(now time.Time, claimed []postgres.Claimed) {
	if len(claimed) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var last postgres.QueueName
	for _, c := range claimed {
		q := postgres.QueueName{Namespace: c.Namespace, Handler: c.Handler}
		if q == last || now.Sub(b.stored[q]) < claimActivityInterval {
			continue
		}
		last = q
		if len(b.stored) >= maxNoted {
			clear(b.stored)
			clear(b.noted)
		}
		b.stored[q], b.noted[q] = now, true
		loop.Wake(b.wake)
	}
}

// take returns the queues to store now, or how long to wait for more of them.
func (b *claimActivity) take(now time.Time) (queues []postgres.QueueName, rest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rest = b.passed.Add(storeRest).Sub(now); rest > 0 && len(b.noted) > 0 {
		return nil, rest
	}
	b.passed = now
	for q := range b.noted {
		queues = append(queues, q)
	}
	clear(b.noted)
	return queues, 0
}

// failed has queues be noted again that could not be stored.
func (b *claimActivity) failed(queues []postgres.QueueName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range queues {
		delete(b.stored, q)
	}
}

// flushClaimActivity stores of which queues steps were claimed lately.
func (e *Engine) flushClaimActivity(ctx context.Context) (time.Duration, error) {
	queues, rest := e.busy.take(e.now())
	if len(queues) == 0 {
		return rest, nil
	}
	err := e.db.RecordClaims(ctx, queues)
	if err != nil {
		e.busy.failed(queues)
	}
	return 0, err
}

// findExpired finds steps that no worker took in time. The limits of those in queues that are
// saturated are moved on, many at once: there may be as many as a backlog has.
func (e *Engine) findExpired(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	for range keepRounds {
		due, err := e.db.ExpiredSteps(ctx, e.sweepGrace(), keepBatch)
		if err != nil || len(due) == 0 {
			e.keptMore.Store(false)
			return nil, err
		}
		kept, err := e.db.ExtendQueueDeadline(ctx, due)
		if err != nil {
			return nil, err
		}
		e.keptMore.Store(len(kept) > 0)
		if left := leave(due, kept); len(left) > 0 || len(due) < keepBatch {
			return left[:min(limit, len(left))], nil
		}
	}
	return nil, nil
}

// leave returns the steps without others.
func leave(steps, others []tasker.StepRef) []tasker.StepRef {
	if len(others) == 0 {
		return steps
	}
	without := make(map[tasker.StepRef]bool, len(others))
	for _, s := range others {
		without[s] = true
	}
	return slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return without[s] })
}

// relieveQueues notes which queues are saturated no more, and forgets those that nobody claims from.
func (e *Engine) relieveQueues(ctx context.Context) (time.Duration, error) {
	n, err := e.db.ClearSaturation(ctx, relieveAfter, relieveBatch)
	if err != nil {
		return 0, err
	}
	if n == relieveBatch {
		return loop.AtOnce, nil
	}
	return 0, e.db.ForgetQueues(ctx, forgetQueueIn, relieveBatch)
}
