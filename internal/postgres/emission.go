package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// DueEvent is an event to deliver and the time at which it became due.
type DueEvent struct {
	tasker.Event
	Due time.Time
}

// OpenMessageSink registers a sink that receives only notifications.
func (db *DB) OpenMessageSink(ctx context.Context, sink string) error {
	_, err := db.pool.Exec(ctx, statement("openMessageSink"), sink)
	return wrapError(err, "register sink %s", sink)
}

// OpenSink registers a sink. A new sink receives events from now on.
func (db *DB) OpenSink(ctx context.Context, sink string) error {
	_, err := db.pool.Exec(ctx, statement("openSink"), sink)
	return wrapError(err, "register sink %s", sink)
}

// SinkLease describes a sink to which the holder may deliver.
type SinkLease struct {
	Failing   bool
	Rest      *time.Duration // delay before the next attempt
	NewEvents bool           // [DB.TakeEvents] would find new events
	Pending   bool           // the delivery list contains events or notifications, due or not
}

// AcquireSinkLease acquires or renews the lease of a sink. It returns nil if another holder has the
// lease.
func (db *DB) AcquireSinkLease(ctx context.Context, sink string, holder tasker.ID, lease time.Duration) (*SinkLease, error) {
	held, err := queryOne[SinkLease](ctx, db.pool, statement("holdSink"), sink, holder, lease)
	return held, wrapError(err, "acquire the lease of sink %s", sink)
}

// ReleaseSinkLease releases the lease of a sink.
func (db *DB) ReleaseSinkLease(ctx context.Context, sink string, holder tasker.ID) error {
	_, err := db.pool.Exec(ctx, statement("releaseSinkLease"), sink, holder)
	return wrapError(err, "release the lease of sink %s", sink)
}

// TakeEvents adds up to limit new events to the delivery list of a sink and returns their number.
// It also detects that the database was restored while servers were running.
func (db *DB) TakeEvents(ctx context.Context, sink string, limit int) (n int, err error) {
	ahead := false
	if err = db.pool.QueryRow(ctx, statement("takeEvents"), sink, limit).Scan(&n, &ahead); err != nil {
		return 0, fmt.Errorf("create deliveries to sink %s: %w", sink, err)
	}
	if !ahead {
		return n, nil
	}
	return n, db.adoptSinks(ctx)
}

// DueEmissions returns due events of a sink, at most most. They belong to at most limit tasks and
// to the task with the newest event.
func (db *DB) DueEmissions(ctx context.Context, sink string, limit, most int) ([]DueEvent, error) {
	rows, err := collect[DueEvent](ctx, db.pool, statement("dueEmissions"), sink, limit, most)
	return rows, wrapError(err, "read due events of sink %s", sink)
}

// Emitted is the outcome of delivering an event or notification.
type Emitted struct {
	Position  int64
	Attempts  int // attempts since the last stored outcome
	Published bool
	Refused   bool          // the sink rejected the event
	SetAside  bool          // undeliverable because it was rejected too often
	Rest      time.Duration // minimum delay before the next attempt
	Error     string
	Due       time.Time // due time of the event that was delivered; zero matches any
	Message   bool      // it is a notification
}

var emittedColumns = columns[Emitted]{
	newColumn("position bigint", func(e *Emitted) int64 { return e.Position }),
	newColumn("attempts int", func(e *Emitted) int32 { return int32(e.Attempts) }),
	newColumn("published bool", func(e *Emitted) bool { return e.Published }),
	newColumn("refused bool", func(e *Emitted) bool { return e.Refused }),
	newColumn("rest_ms bigint", func(e *Emitted) int64 { return e.Rest.Milliseconds() }),
	newColumn("error text", func(e *Emitted) string { return e.Error }),
	newColumn("due timestamptz", func(e *Emitted) *time.Time { return nilIfZeroTime(e.Due) }),
}

// SettleEmissions records outcomes of delivering events. A failed delivery is retried after at most
// about a minute, or after the delay that the sink requested. An event becomes undeliverable after
// the given number of refusals. SettleEmissions returns the positions of these events.
func (db *DB) SettleEmissions(ctx context.Context, sink string, list []Emitted, refusals int) (setAside []int64, err error) {
	return db.settleEmissions(ctx, statement("settleEmissions"), sink, list, refusals)
}

// SinkStatusUpdate describes the state of a sink after a round of deliveries.
type SinkStatusUpdate struct {
	Problem string        // empty if the sink works
	Took    bool          // the sink accepted an event
	Rest    time.Duration // delay before the next attempt
}

// RecordSinkStatus stores the state of a sink. It does nothing if the holder does not have the
// lease.
func (db *DB) RecordSinkStatus(ctx context.Context, sink string, holder tasker.ID, n SinkStatusUpdate) error {
	_, err := db.pool.Exec(ctx, statement("noteSink"), sink, holder, n.Problem, n.Took, n.Rest)
	return wrapError(err, "store the status of sink %s", sink)
}

// SinkStates returns the states of sinks. It counts at most limit events of each. A sink is also
// failing if its oldest event has been due for a minute during which the sink accepted none.
func (db *DB) SinkStates(ctx context.Context, sinks []string, limit int) ([]tasker.SinkState, error) {
	rows, err := collect[tasker.SinkState](ctx, db.pool, statement("sinkStates"), sinks, limit)
	if err != nil {
		return nil, fmt.Errorf("read sink states: %w", err)
	}
	for i := range rows {
		if rows[i].Status = "up"; rows[i].FailingSince != nil {
			rows[i].Status = "failing"
		}
		access.RedactLastError(ctx, &rows[i].LastError)
	}
	return rows, nil
}
