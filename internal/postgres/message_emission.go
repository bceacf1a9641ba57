package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
)

// RouteMessages assigns up to limit messages to the sinks that choose returns. It returns the
// number of messages. The argument earlier of choose contains the sinks of earlier messages about
// the same subject.
func (db *DB) RouteMessages(ctx context.Context, limit int, choose func(m tasker.Notification, earlier []string) []string) (n int, err error) {
	type row struct {
		tasker.Notification
		Earlier []string
	}
	err = db.InTx(ctx, func(tx *Tx) error {
		n = 0
		free, err := collectColumn[bool](ctx, tx, statement("tryLockMessages"))
		if err != nil || !free[0] {
			return err
		}
		rows, err := collect[row](ctx, tx, statement("selectUnrouted"), limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		n = len(rows)
		var all, positions []int64
		var sinks []string
		now := map[tasker.ID][]string{} // sinks of subjects in this batch
		for _, r := range rows {
			earlier := slices.Concat(r.Earlier, now[r.SubjectID])
			slices.Sort(earlier)
			all = append(all, r.Position)
			for _, s := range choose(r.Notification, slices.Compact(earlier)) {
				positions, sinks = append(positions, r.Position), append(sinks, s)
				now[r.SubjectID] = append(now[r.SubjectID], s)
			}
		}
		_, err = tx.Exec(ctx, statement("insertRoutedMessages"), positions, sinks, all)
		return err
	})
	return n, wrapError(err, "route notifications")
}

// DueMessages returns messages that are due for a sink. It returns at most one per subject.
func (db *DB) DueMessages(ctx context.Context, sink string, limit int) ([]DueEvent, error) {
	type row struct {
		tasker.Notification
		Due time.Time
	}
	rows, err := collect[row](ctx, db.pool, statement("dueMessages"), sink, limit)
	if err != nil {
		return nil, fmt.Errorf("find messages to send to %s: %w", sink, err)
	}
	return mapSlice(rows, func(r row) DueEvent { return DueEvent{Event: toEvent(r.Notification), Due: r.Due} }), nil
}

// toEvent converts a message to the event that sinks receive.
func toEvent(r tasker.Notification) tasker.Event {
	return tasker.Event{
		UUID: r.UUID, Position: r.Position, Topic: r.Topic, At: r.At, Data: r.Data,
		Subject: &tasker.Subject{Kind: r.SubjectKind, ID: r.SubjectID, DedupKey: r.DedupKey},
	}
}

// OpenMessages returns, for each open subject, the last message that a sink received.
func (db *DB) OpenMessages(ctx context.Context, sink string, limit int) ([]tasker.Event, error) {
	rows, err := collect[tasker.Notification](ctx, db.pool, statement("openMessages"), sink, limit)
	return mapSlice(rows, toEvent), wrapError(err, "read the open messages of %s", sink)
}

// SettleMessages records outcomes of delivering messages, as SettleEmissions does for events.
func (db *DB) SettleMessages(ctx context.Context, sink string, list []Emitted, refusals int) (setAside []int64, err error) {
	return db.settleEmissions(ctx, statement("settleMessages"), sink, list, refusals)
}

// settleEmissions records outcomes of deliveries. It returns the positions that have become
// undeliverable.
func (db *DB) settleEmissions(ctx context.Context, sql, sink string, list []Emitted, refusals int) (setAside []int64, err error) {
	// The rows are locked in this order.
	list = slices.SortedFunc(slices.Values(list), func(a, b Emitted) int { return cmp.Compare(a.Position, b.Position) })
	args := append([]any{sink, refusals}, emittedColumns.toArrays(list)...)
	type row struct {
		Position      int64
		SetAside      bool
		NextAttemptAt time.Time
	}
	var rows []row
	err = retry(ctx, func() error {
		rows, err = collect[row](ctx, db.pool, sql, args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record delivery outcomes: %w", err)
	}
	for _, r := range rows {
		if r.SetAside {
			setAside = append(setAside, r.Position)
		}
	}
	return setAside, nil
}

// HasPendingMessages reports whether messages are due.
func (db *DB) HasPendingMessages(ctx context.Context) (bool, error) {
	pending, err := queryValue[bool](ctx, db.pool, statement("messagesPending"))
	return pending, wrapError(err, "find messages to send")
}

// PrunedMessages counts the messages that [DB.PruneMessages] removed.
type PrunedMessages struct {
	Removed int
	Unsent  int // number of removed deliveries that had not succeeded
}

// PruneMessages removes messages that are older than age. It considers the oldest limit messages.
func (db *DB) PruneMessages(ctx context.Context, age time.Duration, limit int) (PrunedMessages, error) {
	return queryRequired[PrunedMessages](ctx, db.pool, nil, "remove old messages", statement("pruneMessages"), age, limit)
}
