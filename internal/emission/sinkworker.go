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
	lease       = 30 * time.Second // of the right to send to a sink
	batchTime   = lease / 3        // after which a batch begins no other event
	batchSize   = 200
	takeAtOnce  = 5000
	probes      = 3 // events that are tried while a sink fails, of as many tasks
	longestRest = time.Minute
	firstRest   = time.Second
	reportEvery = 5 * time.Second // of progress on a backlog
	farewell    = 5 * time.Second
)

// A sinkWorker is what goes on between the database and one sink.
type sinkWorker struct {
	*Relay

	sink   sink.Sink
	events bool // it is told of what becomes of investigations, too
	log    *slog.Logger
	wake   chan struct{} // has a value when there may be new events or messages

	known    bool // the sink has its row
	holds    bool
	failures int       // passes in a row in which nothing was taken
	sent     int       // since the last report
	next     time.Time // by the rate, nothing is sent before it
	reported time.Time
	busy     time.Time // when there were events last
	repeated time.Time // when what goes on began to be sent again
	again    bool      // it is not sent as a whole yet
	after    tasker.ID // the last of it that was
}

// run looks for events until ctx ends.
func (l *sinkWorker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		rest, err := l.pass(ctx)
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "events could not be looked for; trying again", "err", err)
			rest = firstRest
		}
		l.sleep(ctx, rest)
	}
	if l.holds {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if err := l.DB.ReleaseSinkLease(leaving, l.sink.Name(), l.id); err != nil {
			l.log.WarnContext(leaving, "another server goes on sending only when the lease has run out", "err", err)
		}
	}
	return l.sink.Close()
}

// sleep waits for a while, or until there may be new events.
func (l *sinkWorker) sleep(ctx context.Context, rest time.Duration) {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-l.wake:
	case <-timer.C:
	}
}

// idle is for how long to rest when there is nothing to send now.
func (l *sinkWorker) idle(held *postgres.SinkLease) time.Duration {
	now := l.Now()
	if held.NewEvents || held.Pending {
		l.busy = now
	}
	if now.Sub(l.busy) < l.IdleEvery {
		return l.LookEvery
	}
	return l.IdleEvery
}

// pass sends what is due, a batch, and returns how long to rest.
func (l *sinkWorker) pass(ctx context.Context) (time.Duration, error) {
	held, err := l.acquireLease(ctx)
	if err != nil || held == nil {
		return lease / 6, err // another server sends; or nobody can
	}
	held.NewEvents = held.NewEvents && l.events
	if held.NewEvents {
		if err := l.take(ctx); err != nil {
			l.log.WarnContext(ctx, "new events could not be put on the list; sending those on it", "err", err)
		}
	}
	if rest := l.delay(held); rest > 0 {
		return min(rest, l.LookEvery), nil
	}
	if !held.NewEvents && !held.Pending {
		return l.repeat(ctx, l.idle(held)), nil
	}
	limit := batchSize
	if held.Failing {
		limit = probes
	}
	events, err := l.due(ctx, limit)
	if err != nil {
		return l.idle(held), err
	}
	if len(events) == 0 {
		return l.repeat(ctx, l.idle(held)), nil
	}
	out, err := l.sendHolding(ctx, events)
	l.pace(out)
	if err != nil {
		return firstRest, err
	}
	if rest := l.note(ctx, out); rest > 0 {
		return min(rest, l.LookEvery), nil
	}
	l.report(ctx, out)
	return l.repeat(ctx, 0), nil
}

// delay is for how long nothing is to be sent: the sink asked for it, or the rate does.
func (l *sinkWorker) delay(held *postgres.SinkLease) time.Duration {
	rest := l.next.Sub(l.Now())
	if held.Rest != nil {
		rest = max(rest, *held.Rest)
	}
	return rest
}

// sendHolding keeps the right to send while it sends, and stops when it is lost.
func (l *sinkWorker) sendHolding(ctx context.Context, events []postgres.DueEvent) (outcome, error) {
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var keeping sync.WaitGroup
	defer keeping.Wait()
	done := make(chan struct{})
	defer close(done)
	keeping.Go(func() {
		timer := time.NewTicker(lease / 3)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			if held, err := l.acquireLease(sending); err == nil && held == nil {
				l.log.WarnContext(ctx, "another server has begun to send; this one stops")
				stop()
			}
		}
	})
	return l.send(sending, events)
}

func (l *sinkWorker) store(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.StoreTimeout)
}

// acquireLease keeps the right to send to the sink; nil says that another has it.
func (l *sinkWorker) acquireLease(ctx context.Context) (*postgres.SinkLease, error) {
	if !l.known {
		limited, cancel := l.store(ctx)
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
	limited, cancel := l.store(ctx)
	defer cancel()
	held, err := l.DB.AcquireSinkLease(limited, l.sink.Name(), l.id, lease)
	if err == nil {
		l.holds = held != nil
	}
	return held, err
}

// take adds new events to the list, even while the sink rests.
func (l *sinkWorker) take(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, max(l.StoreTimeout, batchTime))
	defer cancel()
	_, err := l.DB.TakeEvents(limited, l.sink.Name(), takeAtOnce)
	return err
}

// due returns what is to be sent now.
func (l *sinkWorker) due(ctx context.Context, limit int) ([]postgres.DueEvent, error) {
	limited, cancel := l.store(ctx)
	defer cancel()
	most := batchSize
	if l.PerSecond > 0 {
		most = min(most, l.PerSecond)
	}
	messages, err := l.DB.DueMessages(limited, l.sink.Name(), min(limit, most))
	if err != nil || !l.events || len(messages) >= most {
		return messages, err
	}
	events, err := l.DB.DueEmissions(limited, l.sink.Name(), limit, most-len(messages))
	return append(messages, events...), err
}

// maxRepeatedEvents bounds what is sent again of what goes on.
const maxRepeatedEvents = 1000

// repeatTime is how long a pass sends again what goes on. The next one asks for the right to
// send, and looks for what is due, before it goes on.
const repeatTime = 3 * time.Second

// repeat resends a part of ongoing messages and returns how long to rest, at most rest. It logs
// failures.
func (l *sinkWorker) repeat(ctx context.Context, rest time.Duration) time.Duration {
	r, ok := l.sink.(sink.Repeating)
	if !ok || !l.again && l.Now().Sub(l.repeated) < r.RepeatEvery() {
		return rest
	}
	if !l.again {
		l.again, l.repeated, l.after = true, l.Now(), tasker.ID{}
	}
	limited, cancel := l.store(ctx)
	defer cancel()
	open, err := l.DB.OpenMessages(limited, l.sink.Name(), maxRepeatedEvents) // what has ended meanwhile is not among it
	if err == nil {
		l.again, err = l.repeatPart(ctx, r, open)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		l.log.WarnContext(ctx, "what goes on could not be sent again; trying again", "err", err)
		return min(rest, l.LookEvery)
	case l.again:
		return 0
	}
	return rest
}

// repeatPart sends again what comes after the part before, until its time is over, something new is to be sent,
// or the sink takes nothing; and reports whether there is more.
func (l *sinkWorker) repeatPart(ctx context.Context, r sink.Repeating, open []tasker.Event) (more bool, err error) {
	until := l.Now().Add(repeatTime)
	for _, e := range open { // in the order of their subjects
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
		more = ctx.Err() != nil || !l.Now().Before(until) || len(l.wake) > 0 || failed != nil && !sink.Refused(failed) // one that is refused keeps none behind it
	}
	return false, err
}

// note records whether the sink takes events; a failing one rests longer each time.
func (l *sinkWorker) note(ctx context.Context, out outcome) (rest time.Duration) {
	if out.published+out.refused+out.failed == 0 {
		return 0 // it was told to end before it had tried
	}
	problem := ""
	if out.published == 0 && out.refused == 0 && out.failed > 0 {
		problem = out.problem
		rest = min(firstRest<<min(l.failures, 6), longestRest)
		rest = max(rest, out.rest)
		if l.failures == 0 {
			l.log.WarnContext(ctx, "the sink takes no events; they wait in the database", "err", problem, "rest", rest)
		}
		l.failures++
	} else if l.failures > 0 && out.published > 0 {
		l.log.InfoContext(ctx, "the sink takes events again")
		l.failures = 0
	}
	limited, cancel := l.store(context.WithoutCancel(ctx))
	defer cancel()
	if err := l.DB.NoteSink(limited, l.sink.Name(), l.id, postgres.SinkStatusUpdate{Problem: problem, Took: out.published > 0, Rest: rest}); err != nil {
		l.log.WarnContext(ctx, "how the sink is could not be noted", "err", err)
	}
	return rest
}

// report says how a backlog shrinks.
func (l *sinkWorker) report(ctx context.Context, out outcome) {
	l.sent += out.published
	now := l.Now()
	if l.sent < batchSize || now.Sub(l.reported) < reportEvery {
		return
	}
	limited, cancel := l.store(ctx)
	defer cancel()
	const countTo = 100_000
	states, err := l.DB.SinkStates(limited, []string{l.sink.Name()}, countTo)
	if err != nil || len(states) == 0 {
		return
	}
	l.log.InfoContext(ctx, "sending events", "sent", l.sent, "left", states[0].Pending)
	l.sent, l.reported = 0, now
}

// pace keeps to the rate.
func (l *sinkWorker) pace(out outcome) {
	if l.PerSecond > 0 {
		now := l.Now()
		if l.next.Before(now.Add(-time.Second)) {
			l.next = now.Add(-time.Second) // no more than a second's worth is saved up
		}
		l.next = l.next.Add(time.Duration(out.published) * time.Second / time.Duration(l.PerSecond))
	}
}

// audit records that an event could not be sent.
func (l *sinkWorker) audit(ctx context.Context, action string, e postgres.DueEvent, attempts int, problem string) {
	about := map[string]any{"topic": e.Topic, "sink": l.sink.Name(), "position": e.Position, "attempts": attempts, "error": problem}
	if e.Subject != nil {
		about["subject_kind"], about["subject_id"] = e.Subject.Kind, e.Subject.ID
	} else {
		about["task_uuid"], about["dlq_entry_uuid"] = e.TaskUUID, e.EntryUUID
	}
	data, err := json.Marshal(about)
	if err == nil {
		limited, cancel := l.store(context.WithoutCancel(ctx))
		defer cancel()
		err = l.DB.Audit(limited, "tasker", action, fmt.Sprint(e.UUID), data)
	}
	if err != nil {
		l.log.ErrorContext(ctx, "an audit event could not be stored", "action", action, "event_uuid", e.UUID, "err", err)
	}
}
