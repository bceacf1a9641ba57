package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// selectPaused selects operations that a guard paused at least $2 ago, without a message since.
const selectPaused = `
SELECT o.operation_uuid, o.paused_by
FROM tasker.operations o
WHERE o.state = 'paused' AND o.paused_for <> $1 AND o.paused_at <= now() - $2::interval AND NOT EXISTS (
    SELECT FROM tasker.messages m WHERE m.subject_id = o.operation_uuid AND m.topic = $3 AND m.created_at >= o.paused_at
)
FOR NO KEY UPDATE SKIP LOCKED`

// NotifyPauses enqueues messages about operations that a guard paused [notice.PauseAfter] ago.
func (db *DB) NotifyPauses(ctx context.Context) error {
	type paused struct {
		OperationUUID tasker.ID
		PausedBy      string
	}
	err := db.InTx(ctx, func(tx *Tx) error {
		list, err := collect[paused](ctx, tx, selectPaused, string(tasker.PausedByOperator), notice.PauseAfter, tasker.OperationPausedTopic)
		for _, o := range list {
			err = errors.Join(err, tx.notifyOperation(ctx, o.OperationUUID, tasker.OperationPausedTopic, o.PausedBy))
		}
		return err
	})
	return wrap(err, "notify of paused operations")
}

const operationToNotify = `
SELECT o.state, o.act, o.namespaces, coalesce(o.paused_for, '') AS paused_for, o.created_at, o.started_at, o.settled_at, n.items, n.verified, n.failed_again, n.skipped
FROM tasker.operations o
CROSS JOIN LATERAL (
    SELECT count(*) AS items, count(*) FILTER (WHERE i.state = 'verified') AS verified, count(*) FILTER (WHERE i.state = 'failed_again') AS failed_again,
        count(*) FILTER (WHERE i.state IN ('skipped', 'aborted')) AS skipped
    FROM tasker.operation_items i
    WHERE i.operation_uuid = o.operation_uuid
) n
WHERE o.operation_uuid = $1`

// notifyOperation enqueues a message about a locked operation. It skips operations that never
// started, and [tasker.OperationDoneTopic] while items are open.
func (tx *Tx) notifyOperation(ctx context.Context, operation tasker.ID, topic, by string) error {
	type row struct {
		State       tasker.OperationState
		Act         tasker.Act
		Namespaces  []string
		PausedFor   tasker.PauseReason
		CreatedAt   time.Time
		StartedAt   *time.Time
		SettledAt   *time.Time
		Items       int64
		Verified    int64
		FailedAgain int64
		Skipped     int64
	}
	o, err := one[row](ctx, tx, operationToNotify, operation)
	if err != nil {
		return fmt.Errorf("notify of operation %s: %w", operation, err)
	}
	if o == nil || o.StartedAt == nil || topic == tasker.OperationDoneTopic && o.SettledAt == nil {
		return nil
	}
	data := notice.Operation(notice.Repair{
		ID: operation, State: o.State, Act: o.Act, Namespaces: o.Namespaces, PausedFor: o.PausedFor, BeganAt: *o.StartedAt, By: by,
		Items: o.Items, Verified: o.Verified, FailedAgain: o.FailedAgain, Skipped: o.Skipped,
	})
	_, err = tx.CreateNotification(ctx, NewMessage{Topic: topic, SubjectKind: tasker.OperationSubject, SubjectID: operation, Namespaces: o.Namespaces, Data: data})
	return err
}
