package emission

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

// maxProblem limits the stored length of a delivery error in bytes.
const maxProblem = 2000

// An outcome summarizes the results of a batch.
type outcome struct {
	published, refused, failed int
	problem                    string        // the last error
	rest                       time.Duration // longest delay that the sink requested
}

// A batch is a set of events that are sent to a sink. Events of one task are sent in sequence, and
// different tasks concurrently.
type batch struct {
	*sinkWorker

	mu      sync.Mutex
	results []postgres.Emitted
	until   time.Time // no event is sent after this time, so that the lease does not expire meanwhile
	outcome outcome
	broken  bool // the sink accepts nothing; remaining events are not sent
}

// send sends events and stores the results.
func (l *sinkWorker) send(ctx context.Context, events []postgres.DueEvent) (outcome, error) {
	b := &batch{sinkWorker: l, until: l.Now().Add(batchTime)}
	groups := groupByTask(events)
	next := make(chan []postgres.DueEvent)
	var workers sync.WaitGroup
	for range min(l.Concurrency, len(groups)) {
		workers.Go(func() {
			for g := range next {
				b.sendTask(ctx, g)
			}
		})
	}
	for _, g := range groups {
		if b.isOver(ctx) {
			break
		}
		next <- g
	}
	close(next)
	workers.Wait()
	return b.outcome, b.storeResults(ctx, events)
}

// orderKey returns the key within which events are ordered: the subject of a notification, or else
// the task.
func orderKey(e postgres.DueEvent) tasker.ID {
	if e.Subject != nil {
		return e.Subject.ID
	}
	return e.TaskUUID
}

// eventAttr returns log attributes that identify what an event is about.
func eventAttr(e postgres.DueEvent) slog.Attr {
	if e.Subject != nil {
		return slog.Group("", "subject_kind", e.Subject.Kind, "subject_id", e.Subject.ID)
	}
	if e.EntryUUID == (tasker.ID{}) {
		return slog.Any("task_uuid", e.TaskUUID)
	}
	return slog.Group("", "task_uuid", e.TaskUUID, "dlq_entry_uuid", e.EntryUUID)
}

// groupByTask groups events by task, and notifications by subject. It preserves their order.
func groupByTask(events []postgres.DueEvent) [][]postgres.DueEvent {
	index := map[tasker.ID]int{}
	var groups [][]postgres.DueEvent
	for _, e := range events {
		i, ok := index[orderKey(e)]
		if !ok {
			i = len(groups)
			index[orderKey(e)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}

func (b *batch) isOver(ctx context.Context) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken || ctx.Err() != nil || !b.Now().Before(b.until)
}

// sendTask sends events of one task in order until one fails.
func (b *batch) sendTask(ctx context.Context, events []postgres.DueEvent) {
	for _, e := range events {
		if b.isOver(ctx) {
			return
		}
		result, err := b.sendOne(ctx, e)
		if err != nil && ctx.Err() != nil {
			return // shutting down: the event is sent again later
		}
		b.addResult(ctx, e, result, err)
		if err != nil {
			return
		}
	}
}

// sendOne sends an event and retries according to the policy of its topic. If the sink rejects an
// event, it does not retry.
func (b *batch) sendOne(ctx context.Context, e postgres.DueEvent) (postgres.Emitted, error) {
	policy := b.retryFor(e.Topic)
	r := postgres.Emitted{Position: e.Position, Due: e.Due, Message: e.Subject != nil}
	var err error
	for {
		r.Attempts++
		err = b.sendEvent(ctx, e)
		if err == nil || sink.IsRefused(err) || r.Attempts > policy.Attempts || sink.RetryAfter(err) > policy.Delay {
			return r, err
		}
		loop.Sleep(ctx, policy.Delay)
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
}

func (b *batch) sendEvent(ctx context.Context, e postgres.DueEvent) error {
	limited, cancel := context.WithTimeout(ctx, b.EmitTimeout)
	defer cancel()
	return sink.Emit(limited, b.sink, e.Event)
}

// addResult records the result of sending an event.
func (b *batch) addResult(ctx context.Context, e postgres.DueEvent, r postgres.Emitted, err error) {
	if err == nil {
		r.Published = true
		b.Counts.Emitted(ctx, e.Topic, b.sink.Name(), max(0, b.Now().Sub(e.At)))
	} else {
		r.Error, r.Refused, r.Rest = payload.CleanText(err.Error(), maxProblem), sink.IsRefused(err), sink.RetryAfter(err)
		b.Counts.EmitFailed(ctx, e.Topic, b.sink.Name())
		b.log.With(eventAttr(e)).ErrorContext(ctx, "could not send an event; retrying later",
			"topic", e.Topic, "event_uuid", e.UUID, "attempts", r.Attempts, "refused", r.Refused, "err", r.Error)
		b.audit(ctx, "dlq.emit_failed", e, r.Attempts, r.Error)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results = append(b.results, r)
	switch {
	case r.Published:
		b.outcome.published++
	case r.Refused:
		b.outcome.refused++
		b.outcome.problem = r.Error
	default:
		b.outcome.failed++
		b.outcome.problem, b.outcome.rest = r.Error, max(b.outcome.rest, r.Rest)
		b.broken = b.outcome.failed >= probes && b.outcome.published+b.outcome.refused == 0
	}
}

// storeResults stores the results. It does so even during a shutdown, since otherwise all events
// would be sent again.
func (b *batch) storeResults(ctx context.Context, events []postgres.DueEvent) error {
	if len(b.results) == 0 {
		return nil
	}
	limited, cancel := b.withStoreTimeout(context.WithoutCancel(ctx))
	defer cancel()
	type key struct {
		message  bool
		position int64
	}
	undeliverable := map[key]bool{}
	for message, settle := range map[bool]func(context.Context, string, []postgres.Emitted, int) ([]int64, error){
		true: b.DB.SettleMessages, false: b.DB.SettleEmissions,
	} {
		results := slices.DeleteFunc(slices.Clone(b.results), func(r postgres.Emitted) bool { return r.Message != message })
		if len(results) == 0 {
			continue
		}
		positions, err := settle(limited, b.sink.Name(), results, b.Refusals)
		if err != nil {
			return err
		}
		for _, p := range positions {
			undeliverable[key{message, p}] = true
		}
	}
	for _, e := range events {
		if !undeliverable[key{e.Subject != nil, e.Position}] {
			continue
		}
		b.Counts.EventDropped(ctx, e.Topic, b.sink.Name())
		b.log.With(eventAttr(e)).ErrorContext(ctx,
			"a sink rejected an event too often; redeliver it when the cause is fixed",
			"topic", e.Topic, "event_uuid", e.UUID)
		b.audit(ctx, "dlq.event_set_aside", e, 0, "refused too often")
	}
	return nil
}
