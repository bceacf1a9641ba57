package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Queues returns up to limit queues that have waiting or parked steps, in one namespace, or in all
// if namespace is empty. Queues without live workers come first, then those with the longest wait,
// then those with only parked steps. If not all steps of a queue were counted, NextExpiresAt
// considers only its most urgent and its oldest steps. Outdated rows count until they are removed.
func (db *DB) Queues(ctx context.Context, namespace string, limit int) ([]tasker.Queue, error) {
	return db.listQueues(ctx, namespace, limit, tasker.MaxQueueCount)
}

func (db *DB) listQueues(ctx context.Context, namespace string, limit, maxSteps int) ([]tasker.Queue, error) {
	list, err := collect[tasker.Queue](ctx, db.pool, statement("selectQueues"), namespace, limit, maxSteps, access.ScopeFromContext(ctx).List())
	return list, wrapError(err, "list queues")
}

// Limits of Backlogs, which is called every few seconds.
const (
	backlogQueues = 1000
	backlogSteps  = 1000 // per queue
)

// Backlogs returns the namespaces with waiting steps or live workers, most unserved steps first. It
// counts at most 1000 queues and 1000 steps per queue.
func (db *DB) Backlogs(ctx context.Context) ([]tasker.Backlog, error) {
	queues, err := db.listQueues(ctx, "", backlogQueues, backlogSteps)
	if err != nil {
		return nil, err
	}
	workers, err := selectMap[string, int64](ctx, db.pool, "count live workers", statement("liveWorkers"))
	if err != nil {
		return nil, err
	}
	now, err := queryValue[time.Time](ctx, db.pool, statement("selectNow"))
	if err != nil {
		return nil, fmt.Errorf("read the clock of the database: %w", err)
	}
	all := map[string]*tasker.Backlog{}
	of := func(namespace string) *tasker.Backlog {
		if all[namespace] == nil {
			all[namespace] = &tasker.Backlog{Namespace: namespace}
		}
		return all[namespace]
	}
	for _, q := range queues {
		b := of(q.Namespace)
		b.Steps += int64(q.Queued)
		b.Held += int64(q.Held)
		b.Limited += int64(q.Limited)
		b.Saturated += int64(q.Saturated)
		if q.OldestQueuedAt != nil {
			b.Oldest = max(b.Oldest, now.Sub(*q.OldestQueuedAt))
		}
		if q.Unserved {
			b.Unserved += int64(q.Queued + q.AwaitingWorker)
		}
	}
	for namespace, n := range workers {
		of(namespace).Workers = n
	}
	list := slices.SortedFunc(maps.Values(all), func(a, b *tasker.Backlog) int {
		return cmp.Or(cmp.Compare(b.Unserved, a.Unserved), cmp.Compare(b.Steps, a.Steps), cmp.Compare(a.Namespace, b.Namespace))
	})
	return mapSlice(list, func(b *tasker.Backlog) tasker.Backlog { return *b }), nil
}
