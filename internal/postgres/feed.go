package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// A Horizon is a transaction id below which all transactions have ended. It never decreases within
// one database. A restored or promoted server counts as a different database.
type Horizon struct {
	Transaction uint64
	Database    string // identifies the database by 12 hexadecimal digits
}

// Horizon returns the current horizon.
func (db *DB) Horizon(ctx context.Context) (h Horizon, err error) {
	err = db.pool.QueryRow(ctx, statement("horizon")).Scan(&h.Transaction, &h.Database)
	return h, wrapError(err, "read the event horizon")
}

// FeedHorizon returns the highest horizon, at least from, that does not separate the events of a
// task in such a way that they would be read out of order.
func (db *DB) FeedHorizon(ctx context.Context, from uint64) (Horizon, error) {
	h, err := db.Horizon(ctx)
	for err == nil && h.Transaction > from {
		earlier, err := queryValue[uint64](ctx, db.pool, statement("splitTasks"), from, h.Transaction)
		if err != nil {
			return Horizon{}, fmt.Errorf("read the event horizon: %w", err)
		}
		if earlier == 0 {
			return h, nil
		}
		h.Transaction = earlier
	}
	h.Transaction = max(h.Transaction, from)
	return h, err
}

// FeedBounds returns the first and last position of the events that the transactions [from, before)
// wrote, or 0 for both if there are none.
func (db *DB) FeedBounds(ctx context.Context, from, before uint64) (first, last int64, err error) {
	sql, args := statement("feedBounds"), []any{fmt.Sprint(from), fmt.Sprint(before)}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql, args = statement("feedBoundsOf"), append(args, scope.List())
	}
	err = db.pool.QueryRow(ctx, sql, args...).Scan(&first, &last)
	return first, last, wrapError(err, "find events")
}

// A FeedEvent is an event and the id of the transaction that wrote it.
type FeedEvent struct {
	tasker.Event
	WrittenIn uint64
}

// A FeedPart selects events by transaction and position.
type FeedPart struct {
	From, Before uint64 // transactions [From, Before)
	After, Last  int64  // positions (After, Last]
}

// FeedEvents returns the next events of a part, ordered by position, and the rest of the part. It
// reads limit rows. It may return no events even though the rest contains some.
func (db *DB) FeedEvents(ctx context.Context, p FeedPart, limit int) (list []FeedEvent, rest FeedPart, err error) {
	sql, args := statement("feedEvents"), []any{p.After, p.Last, limit}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql, args = statement("feedEventsOf"), append(args, scope.List())
	}
	rows, err := collect[FeedEvent](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, p, fmt.Errorf("read events: %w", err)
	}
	for _, e := range rows {
		if e.WrittenIn >= p.From && e.WrittenIn < p.Before {
			list = append(list, e)
		}
		p.After = e.Position
	}
	if len(rows) < limit {
		p.After = p.Last
	}
	return list, p, nil
}
