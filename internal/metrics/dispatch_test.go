package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/metrics"
)

// newDispatch is newPlace for a server that dispatches, through a broker or not.
func newDispatch(t *testing.T, b *broker) *place {
	t.Helper()
	p := newPlace(t)
	p.broker = b
	s := metrics.Sources{Backlogs: func(context.Context) ([]tasker.Backlog, error) { return p.queues, p.failing }}
	if b != nil {
		s.Broker = &metrics.BrokerSources{
			Outcomes: []string{"expired", "invalid"}, Up: func() bool { return !b.down },
			Outbox: func(context.Context) (int64, time.Duration, error) { return b.outbox, b.oldest, p.failing },
			DeadLetters: func(ctx context.Context) (int64, error) {
				if b.deaf {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				return b.depth, nil
			},
			Canary: func(context.Context) (time.Time, error) { return b.canary, p.failing },
		}
	}
	if err := p.ObserveDispatch(s); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) wantNone(prefixes ...string) {
	p.t.Helper()
	got, _ := p.collect()
	for name := range got {
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				p.t.Errorf("there is %s", name)
			}
		}
	}
}

func TestNamesOfTheDispatch(t *testing.T) {
	const dispatch = "tasker.dispatch."
	p := newDispatch(t, &broker{})
	p.DeadLetter(t.Context(), "expired", time.Second)
	_, kinds := p.collect()
	for name := range kinds {
		if strings.HasPrefix(name, "tasker.dlq.") || strings.HasPrefix(name, "tasker.staleness.") || name == "tasker.database.up" || name == "tasker.explain.unknown.total" || name == "tasker.attributes.left_out.total" {
			delete(kinds, name)
		}
	}
	want := map[string]string{
		dispatch + "announced.total":                   "counter true",
		dispatch + "reannounced.total":                 "counter true",
		dispatch + "dead_letters.total":                "counter true",
		dispatch + "dead_letter.latency":               "histogram ms",
		dispatch + "expired.total":                     "counter true",
		dispatch + "dead_letter_queue.depth":           "gauge",
		dispatch + "outbox.pending":                    "gauge",
		dispatch + "outbox.oldest_seconds":             "gauge",
		dispatch + "broker_up":                         "gauge",
		dispatch + "canary.returned_timestamp_seconds": "gauge",
		"tasker.held_steps":                            "gauge",
		"tasker.limited_steps":                         "gauge",
		"tasker.queue.steps":                           "gauge",
		"tasker.queue.saturated_steps":                 "gauge",
		"tasker.queue.unserved_steps":                  "gauge",
		"tasker.queue.oldest_seconds":                  "gauge",
		"tasker.workers.live":                          "gauge",
	}
	p.collect() // the first has the series of namespaces made
	_, again := p.collect()
	for name := range want {
		if kinds[name] == "" {
			kinds[name] = again[name]
		}
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestCountingTheDispatch(t *testing.T) {
	p := newDispatch(t, &broker{depth: 7, outbox: 3, oldest: 1500 * time.Millisecond})
	p.queues = []tasker.Backlog{{Namespace: "shop", Steps: 5, Unserved: 2, Held: 4, Limited: 6, Saturated: 3, Workers: 1, Oldest: 2500 * time.Millisecond}}
	ctx := t.Context()
	p.Announced(ctx, 5, 2)
	p.Announced(ctx, 1, 0)
	p.Reannounced(ctx, 4)
	p.DeadLetter(ctx, "expired", 1500*time.Millisecond)
	p.DeadLetter(ctx, "expired", 0)
	p.StepExpired(ctx, "shop", tasker.DetectedBroker, tasker.NoWorkers)
	p.StepExpired(ctx, "shop", tasker.DetectedBroker, tasker.NoWorkers)
	p.StepExpired(ctx, "shop", tasker.DetectedSweep, tasker.DispatchExpired)
	p.want(map[string]string{
		"tasker.dispatch.announced.total confirmed":                 "6",
		"tasker.dispatch.announced.total failed":                    "2",
		"tasker.dispatch.reannounced.total":                         "4",
		"tasker.dispatch.dead_letters.total expired":                "2",
		"tasker.dispatch.dead_letters.total invalid":                "0",
		"tasker.dispatch.dead_letter.latency":                       "1: 1500",
		"tasker.dispatch.expired.total no_workers broker shop":      "2",
		"tasker.dispatch.expired.total dispatch_expired sweep shop": "1",
		"tasker.dispatch.dead_letter_queue.depth":                   "7",
		"tasker.dispatch.outbox.pending":                            "3",
		"tasker.dispatch.outbox.oldest_seconds":                     "1.5",
		"tasker.dispatch.broker_up":                                 "1",
		"tasker.queue.steps shop":                                   "5",
		"tasker.queue.unserved_steps shop":                          "2",
		"tasker.workers.live shop":                                  "1",
		"tasker.queue.oldest_seconds shop":                          "2.5",
		"tasker.held_steps shop":                                    "4",
		"tasker.limited_steps shop":                                 "6",
		"tasker.queue.saturated_steps shop":                         "3",
	})
}

// A rate must see the first step of a namespace, and a graph that nobody is there.
func TestSeriesOfTheDispatchBeginAtZero(t *testing.T) {
	for _, b := range []*broker{nil, {}} {
		p := newDispatch(t, b)
		p.collect()
		p.collect()
		p.want(map[string]string{
			"tasker.dispatch.expired.total no_workers sweep default":       "0",
			"tasker.dispatch.expired.total dispatch_expired sweep default": "0",
			"tasker.queue.steps default":                                   "0",
			"tasker.queue.unserved_steps default":                          "0",
			"tasker.workers.live default":                                  "0",
			"tasker.queue.oldest_seconds default":                          "0",
		})
		if b == nil {
			p.wantNone("tasker.dispatch.announced", "tasker.dispatch.dead", "tasker.dispatch.outbox", "tasker.dispatch.broker",
				"tasker.dispatch.expired.total no_workers broker")
			continue
		}
		p.want(map[string]string{
			"tasker.dispatch.expired.total no_workers broker default": "0",
			"tasker.dispatch.dead_letters.total expired":              "0",
			"tasker.dispatch.reannounced.total":                       "0",
		})
	}
}

// Of what the database holds the last value stays; of the broker it does not: how
// many dead letters there are nobody knows.
func TestGaugesOfTheDispatchWhenNobodyAnswers(t *testing.T) {
	const (
		depth  = "tasker.dispatch.dead_letter_queue.depth"
		canary = "tasker.dispatch.canary.returned_timestamp_seconds"
	)
	b := &broker{depth: 7, outbox: 3}
	p := newDispatch(t, b)
	p.failing = errors.New("no database")
	p.wantNone("tasker.dispatch.outbox", "tasker.queue.")
	p.failing, p.queues = nil, []tasker.Backlog{{Namespace: "shop", Steps: 5}}
	p.want(map[string]string{depth: "7", "tasker.dispatch.outbox.pending": "3", "tasker.queue.steps shop": "5", canary: "0"})
	b.canary = time.Unix(1234, 0)
	p.want(map[string]string{canary: "1234"})
	p.failing, b.outbox, p.queues = errors.New("no database"), 0, nil
	p.want(map[string]string{depth: "7", "tasker.dispatch.outbox.pending": "3", "tasker.queue.steps shop": "5"})
	p.wantNone(canary)
	p.failing, b.deaf = nil, true
	p.want(map[string]string{"tasker.dispatch.broker_up": "1"})
	p.wantNone(depth)
	b.deaf, b.down = false, true
	p.want(map[string]string{"tasker.dispatch.broker_up": "0"})
	p.wantNone(depth, canary)
}

// However many namespaces there are, some are shown: those that come first, and the others as one.
func TestManyNamespaces(t *testing.T) {
	p := newDispatch(t, nil)
	for i := range 1000 {
		p.queues = append(p.queues, tasker.Backlog{Namespace: fmt.Sprint("n", i), Steps: 1})
	}
	got, _ := p.collect()
	shown := 0
	for name := range got {
		if strings.HasPrefix(name, "tasker.queue.steps ") {
			shown++
		}
	}
	if shown != 101 || got["tasker.queue.steps n0"] != "1" {
		t.Errorf("%d namespaces are shown", shown)
	}
}
