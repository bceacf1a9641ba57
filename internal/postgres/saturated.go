package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// busyFor is the minimum time for which a queue counts as busy after a claim. Claims are recorded
// only every few seconds.
const busyFor = 30 * time.Second

// ExtendQueueDeadline extends the queue timeouts of those of the steps that are in saturated
// queues, and returns these steps.
func (db *DB) ExtendQueueDeadline(ctx context.Context, steps []tasker.StepRef) (extended []tasker.StepRef, err error) {
	type row struct {
		tasker.StepRef
		changedQueue
		Began bool
	}
	tasks, ids := toRefArrays(steps)
	err = db.InTx(ctx, func(tx *Tx) error {
		rows, err := collect[row](ctx, tx, statement("extendQueueDeadlines"), tasks, ids, tx.queue.ttlMS, busyFor,
			tx.queue.expiry)
		extended = mapSlice(rows, func(r row) tasker.StepRef { return r.StepRef })
		notified := map[tasker.ID]bool{}
		for _, r := range rows {
			if r.Began && !notified[r.QueueUUID] {
				notified[r.QueueUUID] = true
				if err := tx.notifyQueue(ctx, tasker.QueueSaturatedTopic, r.changedQueue); err != nil {
					return err
				}
			}
		}
		return err
	})
	return extended, wrapError(err, "extend queue deadlines")
}

// changedQueue is a queue that has become saturated or ceased to be.
type changedQueue struct {
	QueueUUID          tasker.ID
	Namespace, Handler string
	SaturatedSince     time.Time
}

// notifyQueue stores a message about a locked queue.
func (tx *Tx) notifyQueue(ctx context.Context, topic string, q changedQueue) error {
	_, err := tx.CreateNotification(ctx, NewMessage{
		Topic: topic, SubjectKind: tasker.QueueSubject, SubjectID: q.QueueUUID, Namespaces: []string{q.Namespace},
		Data: notice.NewSaturationData(topic, q.Namespace, q.Handler, q.SaturatedSince),
	})
	return err
}

// QueueName identifies a queue.
type QueueName struct{ Namespace, Handler string }

// RecordClaims records that steps were just claimed from the queues.
func (db *DB) RecordClaims(ctx context.Context, queues []QueueName) error {
	namespaces, handlers := make([]string, len(queues)), make([]string, len(queues))
	for i, q := range queues {
		namespaces[i], handlers[i] = q.Namespace, q.Handler
	}
	return retry(ctx, func() error {
		return exec(ctx, db.pool, "record claims", statement("noteBusy"), namespaces,
			handlers)
	})
}

// ClearSaturation ends the saturation of up to limit queues in which no step has exceeded its queue
// timeout for the given duration. It returns the number of these queues.
func (db *DB) ClearSaturation(ctx context.Context, after time.Duration, limit int) (n int, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		list, err := collect[changedQueue](ctx, tx, statement("relieveQueues"), after, limit)
		n = len(list)
		for _, q := range list {
			if err := tx.notifyQueue(ctx, tasker.QueueRelievedTopic, q); err != nil {
				return err
			}
		}
		return err
	})
	return n, wrapError(err, "clear saturated queues")
}

// PruneQueues removes up to limit queues from which no step has been claimed for age.
func (db *DB) PruneQueues(ctx context.Context, age time.Duration, limit int) error {
	return exec(ctx, db.pool, "remove unused queues", statement("pruneQueues"), age, limit)
}
