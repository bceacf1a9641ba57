package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// NotifyPauses stores messages about operations that a guard paused at least [toNotice.PauseAfter]
// ago.
func (db *DB) NotifyPauses(ctx context.Context) error {
	type paused struct {
		OperationUUID tasker.ID
		PausedBy      string
	}
	err := db.InTx(ctx, func(tx *Tx) error {
		list, err := collect[paused](ctx, tx, statement("selectPaused"), string(tasker.PausedByOperator), notice.PauseAfter, tasker.OperationPausedTopic)
		for _, o := range list {
			err = errors.Join(err, tx.notifyOperation(ctx, o.OperationUUID, tasker.OperationPausedTopic, o.PausedBy))
		}
		return err
	})
	return wrapError(err, "notify of paused operations")
}

// notifyOperation stores a message about a locked operation. It ignores operations that were never
// started, and [tasker.OperationDoneTopic] as long as items are open.
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
	o, err := queryOne[row](ctx, tx, statement("operationToNotify"), operation)
	if err != nil {
		return fmt.Errorf("notify of operation %s: %w", operation, err)
	}
	if o == nil || o.StartedAt == nil || topic == tasker.OperationDoneTopic && o.SettledAt == nil {
		return nil
	}
	data := notice.NewOperationData(notice.Repair{
		ID: operation, State: o.State, Act: o.Act, Namespaces: o.Namespaces, PausedFor: o.PausedFor, BeganAt: *o.StartedAt, By: by,
		Items: o.Items, Verified: o.Verified, FailedAgain: o.FailedAgain, Skipped: o.Skipped,
	})
	_, err = tx.CreateNotification(ctx, NewMessage{Topic: topic, SubjectKind: tasker.OperationSubject, SubjectID: operation, Namespaces: o.Namespaces, Data: data})
	return err
}
