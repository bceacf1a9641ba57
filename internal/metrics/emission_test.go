package metrics_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/metrics"
)

var _ emission.Counts = (*metrics.Metrics)(nil)

// newSinks is newPlace for a server that sends to the sinks log and webhook.
func newSinks(t *testing.T, read func(context.Context) ([]tasker.SinkState, error)) *place {
	t.Helper()
	p := newPlace(t)
	if err := p.ObserveEmission(metrics.SinkSource{Sinks: []string{"log", "webhook"}, Read: read}); err != nil {
		t.Fatal(err)
	}
	return p
}

func none(context.Context) ([]tasker.SinkState, error) { return nil, nil }

func TestNamesOfTheEmission(t *testing.T) {
	p := newSinks(t, func(context.Context) ([]tasker.SinkState, error) { return []tasker.SinkState{{Sink: "log"}}, nil })
	p.Emitted(t.Context(), tasker.EntryCreatedTopic, "log", time.Second)
	_, kinds := p.collect()
	want := map[string]string{
		"tasker.dlq.emit_failures.total":     "counter true",
		"tasker.dlq.events_emitted.total":    "counter true",
		"tasker.dlq.events_set_aside.total":  "counter true",
		"tasker.dlq.emission.latency":        "histogram ms",
		"tasker.dlq.emission.pending":        "gauge",
		"tasker.dlq.emission.set_aside":      "gauge",
		"tasker.dlq.emission.oldest_seconds": "gauge",
		"tasker.dlq.emission.sink_up":        "gauge",
	}
	for name := range kinds {
		if want[name] == "" {
			delete(kinds, name)
		}
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestCountingTheEmission(t *testing.T) {
	p := newSinks(t, none)
	ctx := t.Context()
	p.EmitFailed(ctx, tasker.EntryCreatedTopic, "webhook")
	p.EmitFailed(ctx, tasker.EntryCreatedTopic, "webhook")
	p.Emitted(ctx, tasker.EntryResolvedTopic, "log", 1500*time.Millisecond)
	p.Emitted(ctx, tasker.EntryCreatedTopic, "log", time.Second)
	p.EventDropped(ctx, tasker.EntryUpdatedTopic, "webhook")
	p.want(map[string]string{
		"tasker.dlq.emit_failures.total webhook dlq.entry.created":    "2",
		"tasker.dlq.emit_failures.total log dlq.entry.created":        "0",
		"tasker.dlq.events_emitted.total log dlq.entry.resolved":      "1",
		"tasker.dlq.events_emitted.total log dlq.entry.created":       "1",
		"tasker.dlq.events_set_aside.total webhook dlq.entry.updated": "1",
		"tasker.dlq.emission.latency log":                             "2: 2500",
	})
}

// A rate must see the first failure of a topic at a sink.
func TestSeriesOfTheEmissionBeginAtZero(t *testing.T) {
	got, _ := newSinks(t, none).collect()
	for _, name := range []string{"tasker.dlq.emit_failures.total", "tasker.dlq.events_emitted.total", "tasker.dlq.events_set_aside.total"} {
		for _, sink := range []string{"log", "webhook"} {
			for _, topic := range tasker.Topics() {
				if series := name + " " + sink + " " + topic; got[series] != "0" {
					t.Errorf("%s is %q", series, got[series])
				}
			}
		}
	}
}

func TestAServerWithoutSinksTellsOfNone(t *testing.T) {
	p := newPlace(t)
	if err := p.ObserveEmission(metrics.SinkSource{}); err != nil {
		t.Fatal(err)
	}
	p.EmitFailed(t.Context(), tasker.EntryCreatedTopic, "log")
	p.wantNone("tasker.dlq.emi", "tasker.dlq.events")
}

// What was read last stays while the database does not answer. Only the oldest event grows older.
func TestGaugesOfTheSinks(t *testing.T) {
	const (
		oldest = "tasker.dlq.emission.oldest_seconds webhook"
		aside  = "tasker.dlq.emission.set_aside webhook"
	)
	var states []tasker.SinkState
	failing := errors.New("no database")
	p := newSinks(t, func(context.Context) ([]tasker.SinkState, error) { return states, failing })
	p.wantNone("tasker.dlq.emission.pending", "tasker.dlq.emission.sink_up")

	states, failing = []tasker.SinkState{
		{Sink: "log"},
		{Sink: "webhook", FailingSince: new(time.Now()), Pending: 7, Undeliverable: 2, OldestPending: new(time.Now().Add(-time.Hour))},
	}, nil
	p.want(map[string]string{
		"tasker.dlq.emission.pending log": "0", "tasker.dlq.emission.oldest_seconds log": "0", "tasker.dlq.emission.sink_up log": "1",
		"tasker.dlq.emission.pending webhook": "7", aside: "2", "tasker.dlq.emission.sink_up webhook": "0",
	})
	age := func() float64 {
		got, _ := p.collect()
		age, err := strconv.ParseFloat(got[oldest], 64)
		if err != nil || age < 3600 || age > 7200 {
			t.Fatalf("the oldest event is %q seconds old", got[oldest])
		}
		return age
	}
	before := age()
	states, failing = nil, errors.New("no database")
	if age() <= before {
		t.Error("the oldest event does not grow older while the database is away")
	}
	p.want(map[string]string{aside: "2"})

	states, failing = []tasker.SinkState{{Sink: "webhook", OldestPending: new(time.Now().Add(time.Hour))}}, nil // by another clock
	p.want(map[string]string{oldest: "0", aside: "0", "tasker.dlq.emission.sink_up webhook": "1"})
}

// A database that hangs costs a scrape the patience for one question, not for each:
// Prometheus would take the server for dead.
func TestADatabaseThatHangsIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	var first, others []time.Duration
	hang := func(into *[]time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			*into = append(*into, time.Until(deadline))
			<-ctx.Done()
			return ctx.Err()
		}
	}
	p := newPlaceThatReads(t, func(ctx context.Context) (int64, []string, error) { return 0, nil, hang(&first)(ctx) })
	queues := hang(&others)
	if err := p.ObserveDispatch(metrics.Sources{Backlogs: func(ctx context.Context) ([]tasker.Backlog, error) { return nil, queues(ctx) }}); err != nil {
		t.Fatal(err)
	}
	if err := p.ObserveEmission(metrics.SinkSource{
		Sinks: []string{"log"}, Read: func(ctx context.Context) ([]tasker.SinkState, error) { return nil, queues(ctx) },
	}); err != nil {
		t.Fatal(err)
	}
	got, _ := p.collect()
	if len(first) != 1 || len(others) != 2 || first[0] < time.Second || max(others[0], others[1]) > time.Second {
		t.Errorf("waited %s for the first answer, %s for the others", first, others)
	}
	if got["tasker.database.up"] != "0" {
		t.Errorf("the database is %q", got["tasker.database.up"])
	}
	for name := range got {
		if strings.HasPrefix(name, "tasker.dlq.emission.") {
			t.Errorf("there is %s", name)
		}
	}
}
