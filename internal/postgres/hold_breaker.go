package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
)

// A BreakerCount contains the number of failures of a handler with one cause. If it has no cause,
// it contains only the number of ended attempts.
type BreakerCount struct {
	Namespace string
	Handler   string
	CauseKey  string
	Cause     string
	Failed    int
	Tasks     int
	Concluded int // ended attempts of the handler, regardless of their outcome
}

// A FailingQueue is a handler in a namespace whose attempts have failed.
type FailingQueue struct{ Namespace, Handler string }

// FailingQueues returns the handlers for which other servers have counted failures within the
// duration valid.
func (db *DB) FailingQueues(ctx context.Context, server tasker.ID, valid time.Duration) ([]FailingQueue, error) {
	list, err := collect[FailingQueue](ctx, db.pool, statement("failingQueues"), server, valid)
	return list, wrapError(err, "find the failing queues of other servers")
}

// ShareBreakerCounts publishes the counts of this server and returns the sums over all servers.
// Counts are valid for the given duration.
func (db *DB) ShareBreakerCounts(ctx context.Context, server tasker.ID, list []BreakerCount, valid time.Duration) ([]BreakerCount, error) {
	var namespaces, handlers, keys, causes []string
	var failed, tasks, concluded []int32
	for _, n := range list {
		namespaces, handlers, keys, causes = append(namespaces, n.Namespace), append(handlers, n.Handler), append(keys, n.CauseKey), append(causes, n.Cause)
		failed, tasks, concluded = append(failed, int32(n.Failed)), append(tasks, int32(n.Tasks)), append(concluded, int32(n.Concluded))
	}
	sums, err := collect[BreakerCount](ctx, db.pool, statement("shareBreakerCounts"), server, valid, namespaces, handlers, keys, causes, failed, tasks, concluded)
	return sums, wrapError(err, "share the counts of breakers")
}
