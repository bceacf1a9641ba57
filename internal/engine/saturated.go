package engine

import (
	"context"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	claimActivityInterval = 10 * time.Second // minimum between two records of claims from one queue
	maxNoted              = 10_000           // maximum number of remembered queues; beyond it, all are forgotten
	extendBatch           = 500              // steps per transaction whose queue deadlines are extended
	extendRounds          = 20               // such transactions per pass
	relieveEvery          = time.Minute
	relieveAfter          = time.Minute // saturation ends this long after the last expired step
	relieveBatch          = 1000
	forgetQueueIn         = 24 * time.Hour
)

// claimActivity collects the queues from which steps were claimed until a loop stores them.
type claimActivity struct {
	keyBuffer[postgres.QueueName]
	stored map[postgres.QueueName]time.Time // when each queue was last added
}

// recordClaims adds the queues of claimed steps, at most once per claimActivityInterval.
func (b *claimActivity) recordClaims(now time.Time, claimed []postgres.Claimed) {
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
			clear(b.keys)
		}
		b.stored[q], b.keys[q] = now, true
		loop.Wake(b.wake)
	}
}

// restoreClaims lets queues be added again that could not be stored.
func (b *claimActivity) restoreClaims(queues []postgres.QueueName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range queues {
		delete(b.stored, q)
	}
}

func (e *Engine) flushClaimActivity(ctx context.Context) (time.Duration, error) {
	queues, rest := e.busy.takeKeys(e.now(), storeInterval)
	if len(queues) == 0 {
		return rest, nil
	}
	err := e.db.RecordClaims(ctx, queues)
	if err != nil {
		e.busy.restoreClaims(queues)
	}
	return 0, err
}

// findExpired finds expired steps. It extends the deadlines of steps in saturated queues in large
// batches, since such steps may be as many as the whole backlog.
func (e *Engine) findExpired(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	for range extendRounds {
		due, err := e.db.ExpiredSteps(ctx, e.opts.Broker.Grace(), extendBatch)
		if err != nil || len(due) == 0 {
			e.timers.expiryExtended.Store(false)
			return nil, err
		}
		extended, err := e.db.ExtendQueueDeadline(ctx, due)
		if err != nil {
			return nil, err
		}
		e.timers.expiryExtended.Store(len(extended) > 0)
		if expired := excludeSteps(due, extended); len(expired) > 0 || len(due) < extendBatch {
			return expired[:min(limit, len(expired))], nil
		}
	}
	return nil, nil
}

// excludeSteps returns the steps that are not contained in others.
func excludeSteps(steps, others []tasker.StepRef) []tasker.StepRef {
	if len(others) == 0 {
		return steps
	}
	without := make(map[tasker.StepRef]bool, len(others))
	for _, s := range others {
		without[s] = true
	}
	return slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return without[s] })
}

// relieveQueues ends the saturation of queues without recently expired steps and removes queues
// without recent claims.
func (e *Engine) relieveQueues(ctx context.Context) (time.Duration, error) {
	n, err := e.db.ClearSaturation(ctx, relieveAfter, relieveBatch)
	if err != nil {
		return 0, err
	}
	if n == relieveBatch {
		return loop.AtOnce, nil
	}
	return 0, e.db.PruneQueues(ctx, forgetQueueIn, relieveBatch)
}
