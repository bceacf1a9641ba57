package emission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

const (
	lease        = 30 * time.Second // duration of the exclusive right to send to a sink
	batchTime    = lease / 3        // a batch starts no further events after this time
	batchSize    = 200
	takeLimit    = 5000
	probes       = 3 // number of events that are tried while a sink fails, each of a different task
	maxBackoff   = time.Minute
	firstBackoff = time.Second
	reportEvery  = 5 * time.Second // interval of log entries about progress on a backlog
	closeTimeout = 5 * time.Second
)

// A sinkWorker sends events from the database to one sink.
type sinkWorker struct {
	*Relay

	sink   sink.Sink
	events bool // the sink receives investigation events as well as notifications
	log    *slog.Logger
	wake   chan struct{}

	known    bool      // the sink has a row in the database
	holds    bool      // this server holds the lease
	failures int       // consecutive passes without an accepted event
	sent     int       // events sent since the last report
	next     time.Time // when the rate limit allows the next event
	reported time.Time
	busy     time.Time // when there last were events
	repeated time.Time // when the last repetition began
	again    bool      // the repetition is not complete
	after    tasker.ID // subject that was repeated last
}

// run sends events until ctx ends.
func (l *sinkWorker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		delay, err := l.pass(ctx)
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "could not poll for events; retrying", "err", err)
			delay = firstBackoff
		}
		l.sleep(ctx, delay)
	}
	if l.holds {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := l.DB.ReleaseSinkLease(leaving, l.sink.Name(), l.id); err != nil {
			l.log.WarnContext(leaving, "could not release the lease of a sink; another server continues when it expires", "err", err)
		}
	}
	return l.sink.Close()
}

// sleep waits for d, but returns early if there may be new events or ctx ends.
func (l *sinkWorker) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-l.wake:
	case <-timer.C:
	}
}

// idleDelay returns the current polling interval.
func (l *sinkWorker) idleDelay(held *postgres.SinkLease) time.Duration {
	now := l.Now()
	if held.NewEvents || held.Pending {
		l.busy = now
	}
	if now.Sub(l.busy) < l.IdleInterval {
		return l.PollInterval
	}
	return l.IdleInterval
}

// pass sends a batch of due events and returns the delay before the next pass.
func (l *sinkWorker) pass(ctx context.Context) (time.Duration, error) {
	held, err := l.acquireLease(ctx)
	if err != nil || held == nil {
		return lease / 6, err // another server holds the lease, or the database is unavailable
	}
	held.NewEvents = held.NewEvents && l.events
	if held.NewEvents {
		if err := l.takeLease(ctx); err != nil {
			l.log.WarnContext(ctx, "could not create deliveries of new events; sending existing ones", "err", err)
		}
	}
	if delay := l.nextDelay(held); delay > 0 {
		return min(delay, l.PollInterval), nil
	}
	if !held.NewEvents && !held.Pending {
		return l.repeatOpen(ctx, l.idleDelay(held)), nil
	}
	limit := batchSize
	if held.Failing {
		limit = probes
	}
	events, err := l.findDue(ctx, limit)
	if err != nil {
		return l.idleDelay(held), err
	}
	if len(events) == 0 {
		return l.repeatOpen(ctx, l.idleDelay(held)), nil
	}
	out, err := l.sendUnderLease(ctx, events)
	l.adjustPace(out)
	if err != nil {
		return firstBackoff, err
	}
	if delay := l.recordOutcome(ctx, out); delay > 0 {
		return min(delay, l.PollInterval), nil
	}
	l.report(ctx, out)
	return l.repeatOpen(ctx, 0), nil
}

// nextDelay returns how long to wait because of the rate limit or a delay that the sink requested.
func (l *sinkWorker) nextDelay(held *postgres.SinkLease) time.Duration {
	delay := l.next.Sub(l.Now())
	if held.Rest != nil {
		delay = max(delay, *held.Rest)
	}
	return delay
}

// sendUnderLease sends events and meanwhile renews the lease. If it loses the lease, it stops.
func (l *sinkWorker) sendUnderLease(ctx context.Context, events []postgres.DueEvent) (outcome, error) {
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var renewal sync.WaitGroup
	defer renewal.Wait()
	done := make(chan struct{})
	defer close(done)
	renewal.Go(func() {
		timer := time.NewTicker(lease / 3)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			if held, err := l.acquireLease(sending); err == nil && held == nil {
				l.log.WarnContext(ctx, "another server has the lease of a sink; this one stops sending")
				stop()
			}
		}
	})
	return l.send(sending, events)
}

func (l *sinkWorker) withStoreTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.StoreTimeout)
}

// acquireLease acquires or renews the lease of the sink. It returns nil if another server holds it.
func (l *sinkWorker) acquireLease(ctx context.Context) (*postgres.SinkLease, error) {
	if !l.known {
		limited, cancel := l.withStoreTimeout(ctx)
		defer cancel()
		open := l.DB.OpenMessageSink
		if l.events {
			open = l.DB.OpenSink
		}
		if err := open(limited, l.sink.Name()); err != nil {
			return nil, err
		}
		l.known = true
	}
	limited, cancel := l.withStoreTimeout(ctx)
	defer cancel()
	held, err := l.DB.AcquireSinkLease(limited, l.sink.Name(), l.id, lease)
	if err == nil {
		l.holds = held != nil
	}
	return held, err
}

// takeLease adds new events to the delivery list, even while the sink is paused.
func (l *sinkWorker) takeLease(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, max(l.StoreTimeout, batchTime))
	defer cancel()
	_, err := l.DB.TakeEvents(limited, l.sink.Name(), takeLimit)
	return err
}

// findDue returns the due events, with notifications first.
func (l *sinkWorker) findDue(ctx context.Context, limit int) ([]postgres.DueEvent, error) {
	limited, cancel := l.withStoreTimeout(ctx)
	defer cancel()
	batch := batchSize
	if l.PerSecond > 0 {
		batch = min(batch, l.PerSecond)
	}
	messages, err := l.DB.DueMessages(limited, l.sink.Name(), min(limit, batch))
	if err != nil || !l.events || len(messages) >= batch {
		return messages, err
	}
	events, err := l.DB.DueEmissions(limited, l.sink.Name(), limit, batch-len(messages))
	return append(messages, events...), err
}

// maxRepeatedEvents limits the number of notifications that are repeated.
const maxRepeatedEvents = 1000

// repeatTime limits the repetition in one pass, so that between passes the lease is renewed and due
// events are sent.
const repeatTime = 3 * time.Second

// repeatOpen resends part of the ongoing notifications if the sink repeats them. It returns the
// delay before the next pass, which is at most delay. It only logs errors.
func (l *sinkWorker) repeatOpen(ctx context.Context, delay time.Duration) time.Duration {
	r, ok := l.sink.(sink.Repeating)
	if !ok || !l.again && l.Now().Sub(l.repeated) < r.RepeatEvery() {
		return delay
	}
	if !l.again {
		l.again, l.repeated, l.after = true, l.Now(), tasker.ID{}
	}
	limited, cancel := l.withStoreTimeout(ctx)
	defer cancel()
	open, err := l.DB.OpenMessages(limited, l.sink.Name(), maxRepeatedEvents) // excludes ended ones
	if err == nil {
		l.again, err = l.repeatPart(ctx, r, open)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		l.log.WarnContext(ctx, "could not repeat ongoing messages; retrying", "err", err)
		return min(delay, l.PollInterval)
	case l.again:
		return 0
	}
	return delay
}

// repeatPart resends notifications until its time is over, new events are due, or the sink fails.
// It reports whether some remain.
func (l *sinkWorker) repeatPart(ctx context.Context, r sink.Repeating, open []tasker.Event) (more bool, err error) {
	until := l.Now().Add(repeatTime)
	for _, e := range open { // ordered by subject
		if bytes.Compare(e.Subject.ID[:], l.after[:]) <= 0 {
			continue
		}
		if more {
			return true, err
		}
		l.after = e.Subject.ID
		limited, cancel := context.WithTimeout(ctx, l.EmitTimeout)
		failed := r.Repeat(limited, e)
		cancel()
		if failed != nil {
			err = failed
		}
		// A rejected notification does not stop the others.
		more = ctx.Err() != nil || !l.Now().Before(until) || len(l.wake) > 0 || failed != nil && !sink.IsRefused(failed)
	}
	return false, err
}

// recordOutcome stores whether the sink accepts events. While it does not, note returns a growing
// delay.
func (l *sinkWorker) recordOutcome(ctx context.Context, out outcome) (delay time.Duration) {
	if out.published+out.refused+out.failed == 0 {
		return 0 // shut down before the first attempt
	}
	problem := ""
	if out.published == 0 && out.refused == 0 && out.failed > 0 {
		problem = out.problem
		delay = max(out.rest, min(firstBackoff<<min(l.failures, 6), maxBackoff))
		if l.failures == 0 {
			l.log.WarnContext(ctx, "the sink accepts no events; they wait in the database", "err", problem, "rest", delay)
		}
		l.failures++
	} else if l.failures > 0 && out.published > 0 {
		l.log.InfoContext(ctx, "the sink accepts events again")
		l.failures = 0
	}
	limited, cancel := l.withStoreTimeout(context.WithoutCancel(ctx))
	defer cancel()
	update := postgres.SinkStatusUpdate{Problem: problem, Took: out.published > 0, Rest: delay}
	if err := l.DB.RecordSinkStatus(limited, l.sink.Name(), l.id, update); err != nil {
		l.log.WarnContext(ctx, "could not store the state of a sink", "err", err)
	}
	return delay
}

// report logs progress on a backlog.
func (l *sinkWorker) report(ctx context.Context, out outcome) {
	l.sent += out.published
	now := l.Now()
	if l.sent < batchSize || now.Sub(l.reported) < reportEvery {
		return
	}
	limited, cancel := l.withStoreTimeout(ctx)
	defer cancel()
	const countTo = 100_000
	states, err := l.DB.SinkStates(limited, []string{l.sink.Name()}, countTo)
	if err != nil || len(states) == 0 {
		return
	}
	l.log.InfoContext(ctx, "sending events", "sent", l.sent, "left", states[0].Pending)
	l.sent, l.reported = 0, now
}

// adjustPace delays the next events as the rate limit requires.
func (l *sinkWorker) adjustPace(out outcome) {
	if l.PerSecond > 0 {
		now := l.Now()
		if l.next.Before(now.Add(-time.Second)) {
			l.next = now.Add(-time.Second) // limits a burst to the events of one second
		}
		l.next = l.next.Add(time.Duration(out.published) * time.Second / time.Duration(l.PerSecond))
	}
}

// audit records a failed delivery in the audit log.
func (l *sinkWorker) audit(ctx context.Context, action string, e postgres.DueEvent, attempts int, problem string) {
	details := map[string]any{"topic": e.Topic, "sink": l.sink.Name(), "position": e.Position, "attempts": attempts, "error": problem}
	switch {
	case e.Subject != nil:
		details["subject_kind"], details["subject_id"] = e.Subject.Kind, e.Subject.ID
	case e.EntryUUID == tasker.ID{}:
		details["task_uuid"] = e.TaskUUID
	default:
		details["task_uuid"], details["dlq_entry_uuid"] = e.TaskUUID, e.EntryUUID
	}
	data, err := json.Marshal(details)
	if err == nil {
		limited, cancel := l.withStoreTimeout(context.WithoutCancel(ctx))
		defer cancel()
		err = l.DB.Audit(limited, "tasker", action, fmt.Sprint(e.UUID), data)
	}
	if err != nil {
		l.log.ErrorContext(ctx, "could not store an audit event", "action", action, "event_uuid", e.UUID, "err", err)
	}
}
