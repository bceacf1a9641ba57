package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
)

// messagesLock serializes the routing of messages among servers.
const messagesLock = `hashtextextended('tasker.messages', 0)`

const selectUnrouted = `
SELECT ` + messageColumns + `, array(
        SELECT DISTINCT e.sink
        FROM tasker.messages b
        JOIN tasker.message_emissions e ON e.position = b.position
        WHERE b.subject_id = m.subject_id AND b.position < m.position
    ) AS earlier
FROM tasker.messages m
WHERE m.routed_at IS NULL
ORDER BY m.position
LIMIT $1`

const routeMessages = `
WITH chosen AS (
    SELECT u.position, u.sink, m.subject_id
    FROM unnest($1::bigint[], $2::text[]) AS u (position, sink)
    JOIN tasker.messages m ON m.position = u.position
),
known AS (
    INSERT INTO tasker.emission_sinks (sink, events) SELECT DISTINCT sink, false FROM chosen ON CONFLICT DO NOTHING
),
listed AS (
    INSERT INTO tasker.message_emissions (sink, position, subject_id)
    SELECT sink, position, subject_id FROM chosen
    ON CONFLICT DO NOTHING
)
UPDATE tasker.messages SET routed_at = clock_timestamp() WHERE position = ANY ($3)`

// RouteMessages assigns up to limit messages to the sinks that choose returns, and returns the
// number of messages. It passes choose the sinks of earlier messages of the same subject.
func (db *DB) RouteMessages(ctx context.Context, limit int, choose func(m tasker.Notification, earlier []string) []string) (n int, err error) {
	type row struct {
		tasker.Notification
		Earlier []string
	}
	err = db.InTx(ctx, func(tx *Tx) error {
		n = 0
		free, err := column[bool](ctx, tx, `SELECT pg_try_advisory_xact_lock(`+messagesLock+`)`)
		if err != nil || !free[0] {
			return err
		}
		rows, err := collect[row](ctx, tx, selectUnrouted, limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		n = len(rows)
		var all, positions []int64
		var sinks []string
		now := map[tasker.ID][]string{} // sinks of a subject in this batch
		for _, r := range rows {
			earlier := slices.Concat(r.Earlier, now[r.SubjectID])
			slices.Sort(earlier)
			all = append(all, r.Position)
			for _, s := range choose(r.Notification, slices.Compact(earlier)) {
				positions, sinks = append(positions, r.Position), append(sinks, s)
				now[r.SubjectID] = append(now[r.SubjectID], s)
			}
		}
		_, err = tx.Exec(ctx, routeMessages, positions, sinks, all)
		return err
	})
	return n, wrap(err, "route messages")
}

// A message waits for earlier messages of its subject.
const dueMessages = `
SELECT ` + messageColumns + `, e.next_attempt_at AS due
FROM tasker.message_emissions e
JOIN tasker.messages m ON m.position = e.position
WHERE e.sink = $1 AND e.state = 'pending' AND e.next_attempt_at <= clock_timestamp()
  AND NOT EXISTS (
      SELECT FROM tasker.message_emissions b
      WHERE b.sink = $1 AND b.state = 'pending' AND b.subject_id = e.subject_id AND b.position < e.position
  )
ORDER BY e.position
LIMIT $2`

// DueMessages returns messages that are due for a sink, at most one of each subject.
func (db *DB) DueMessages(ctx context.Context, sink string, limit int) ([]DueEvent, error) {
	type row struct {
		tasker.Notification
		Due time.Time
	}
	rows, err := collect[row](ctx, db.pool, dueMessages, sink, limit)
	if err != nil {
		return nil, fmt.Errorf("find messages to send to %s: %w", sink, err)
	}
	return mapped(rows, func(r row) DueEvent { return DueEvent{Event: messageEvent(r.Notification), Due: r.Due} }), nil
}

// messageEvent converts a message to the event that sinks receive.
func messageEvent(r tasker.Notification) tasker.Event {
	return tasker.Event{
		UUID: r.UUID, Position: r.Position, Topic: r.Topic, At: r.At, Data: r.Data,
		Subject: &tasker.Subject{Kind: r.SubjectKind, ID: r.SubjectID, DedupKey: r.DedupKey},
	}
}

// Open subjects are open incidents and holds, and paused operations.
const openMessages = `
SELECT DISTINCT ON (m.subject_id) ` + messageColumns + `
FROM (
    SELECT i.incident_id AS subject_id FROM tasker.incidents i WHERE i.ended_at IS NULL
    UNION ALL
    SELECT o.operation_uuid FROM tasker.operations o WHERE o.state = 'paused'
    UNION ALL
    SELECT h.hold_uuid FROM tasker.holds h WHERE h.ended_at IS NULL
) s
JOIN tasker.messages m ON m.subject_id = s.subject_id
JOIN tasker.message_emissions e ON e.position = m.position AND e.sink = $1 AND e.state = 'published'
ORDER BY m.subject_id, m.position DESC
LIMIT $2`

// OpenMessages returns the last message that a sink received about each open subject.
func (db *DB) OpenMessages(ctx context.Context, sink string, limit int) ([]tasker.Event, error) {
	rows, err := collect[tasker.Notification](ctx, db.pool, openMessages, sink, limit)
	return mapped(rows, messageEvent), wrap(err, "read the open messages of %s", sink)
}

// SettleMessages records the delivery outcome of messages, as SettleEmissions does for events.
func (db *DB) SettleMessages(ctx context.Context, sink string, list []Emitted, refusals int) (setAside []int64, err error) {
	return db.settleAt(ctx, settleMessages, sink, list, refusals)
}

// settleAt records delivery outcomes and returns the positions that became undeliverable.
func (db *DB) settleAt(ctx context.Context, sql, sink string, list []Emitted, refusals int) (setAside []int64, err error) {
	// Rows are locked in this order.
	list = slices.SortedFunc(slices.Values(list), func(a, b Emitted) int { return cmp.Compare(a.Position, b.Position) })
	args := append([]any{sink, refusals}, emittedColumns.arrays(list)...)
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

// MessagesPending reports whether messages are due.
func (db *DB) MessagesPending(ctx context.Context) (bool, error) {
	pending, err := value[bool](ctx, db.pool, `
		SELECT EXISTS (SELECT FROM tasker.message_emissions WHERE state = 'pending' AND next_attempt_at <= clock_timestamp())`)
	return pending, wrap(err, "find messages to send")
}

// Messages of open incidents remain: their sinks also receive the final message.
const pruneMessages = `
WITH old AS MATERIALIZED (
    SELECT m.position
    FROM (
        SELECT n.position, n.created_at
        FROM tasker.messages n
        WHERE NOT EXISTS (SELECT FROM tasker.incidents i WHERE i.incident_id = n.incident_id AND i.ended_at IS NULL)
        ORDER BY n.position
        LIMIT $2
    ) m
    WHERE m.created_at < clock_timestamp() - $1::interval
),
unsent AS (
    DELETE FROM tasker.message_emissions e USING old o WHERE e.position = o.position RETURNING e.published_at
),
gone AS (
    DELETE FROM tasker.messages m USING old o WHERE m.position = o.position RETURNING m.position
)
SELECT (SELECT count(*) FROM gone) AS removed, (SELECT count(*) FROM unsent WHERE published_at IS NULL) AS unsent`

// PrunedMessages counts the messages that [DB.PruneMessages] removed.
type PrunedMessages struct {
	Removed int
	Unsent  int // removed deliveries that were not published
}

// PruneMessages removes the messages older than age among the oldest limit messages.
func (db *DB) PruneMessages(ctx context.Context, age time.Duration, limit int) (PrunedMessages, error) {
	return required[PrunedMessages](ctx, db.pool, nil, "remove old messages", pruneMessages, age, limit)
}
