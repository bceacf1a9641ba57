package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/metrics"
)

// place is metrics whose database says what the test wants.
type place struct {
	*metrics.Metrics
	t       *testing.T
	reader  *sdk.ManualReader
	pending int64
	failing error

	provider metric.MeterProvider
	queues   []tasker.Backlog
	broker   *broker // nil: there is none
}

// A broker is what a message broker and the outbox for it say.
type broker struct {
	down, deaf bool // not reached; reached, and not answering
	depth      int64
	outbox     int64
	oldest     time.Duration
	canary     time.Time
}

func newPlace(t *testing.T) *place {
	t.Helper()
	var p *place
	p = newPlaceThatReads(t, func(context.Context) (int64, []string, error) { return p.pending, []string{"default"}, p.failing })
	return p
}

func newPlaceThatReads(t *testing.T, read metrics.Read) *place {
	t.Helper()
	p := &place{t: t, reader: sdk.NewManualReader()}
	p.provider = sdk.NewMeterProvider(sdk.WithReader(p.reader))
	var err error
	p.Metrics, err = metrics.New(p.provider, read, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// collect returns each series with its value, and each metric with its type and unit.
func (p *place) collect() (series, kinds map[string]string) {
	p.t.Helper()
	var got metricdata.ResourceMetrics
	if err := p.reader.Collect(p.t.Context(), &got); err != nil {
		p.t.Fatal(err)
	}
	series, kinds = map[string]string{}, map[string]string{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Description == "" {
				p.t.Errorf("%s has no description", m.Name)
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				kinds[m.Name] = fmt.Sprintf("counter %v", data.IsMonotonic)
				for _, d := range data.DataPoints {
					series[spelled(m.Name, d.Attributes)] = fmt.Sprint(d.Value)
				}
			case metricdata.Gauge[int64]:
				kinds[m.Name] = "gauge"
				for _, d := range data.DataPoints {
					series[spelled(m.Name, d.Attributes)] = fmt.Sprint(d.Value)
				}
			case metricdata.Gauge[float64]:
				kinds[m.Name] = "gauge"
				for _, d := range data.DataPoints {
					series[spelled(m.Name, d.Attributes)] = fmt.Sprint(d.Value)
				}
			case metricdata.Histogram[float64]:
				kinds[m.Name] = "histogram " + m.Unit
				for _, d := range data.DataPoints {
					series[spelled(m.Name, d.Attributes)] = fmt.Sprintf("%d: %g", d.Count, d.Sum)
				}
			default:
				p.t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return series, kinds
}

func spelled(name string, attributes attribute.Set) string {
	for _, a := range attributes.ToSlice() {
		name += " " + a.Value.AsString()
	}
	return name
}

func (p *place) want(want map[string]string) {
	p.t.Helper()
	got, _ := p.collect()
	for name, value := range want {
		if got[name] != value {
			p.t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}

// The names, types and units are those of the specification.
func TestNames(t *testing.T) {
	p := newPlace(t)
	p.Swept(t.Context(), time.Second, []metrics.Stale{{Failed: true, ErrorCode: "57014"}}, nil)
	p.Resolved(t.Context(), tasker.ManualDLQ, tasker.EntryCancelled, time.Hour)
	_, kinds := p.collect()
	want := map[string]string{
		"tasker.dlq.entries_created.total":                   "counter true",
		"tasker.staleness.tasks_detected.total":              "counter true",
		"tasker.staleness.tasks_transitioned_to_error.total": "counter true",
		"tasker.staleness.tasks_failed.total":                "counter true",
		"tasker.staleness.detection_runs.total":              "counter true",
		"tasker.staleness.detection.duration":                "histogram ms",
		"tasker.dlq.time_in_queue":                           "histogram h",
		"tasker.dlq.pending_investigations":                  "gauge",
		"tasker.database.up":                                 "gauge",
		"tasker.dispatch.expired.total":                      "counter true",
		"tasker.explain.unknown.total":                       "counter true",
		"tasker.attributes.left_out.total":                   "counter true",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestCounting(t *testing.T) {
	p := newPlace(t)
	ctx := t.Context()
	p.EntryCreated(ctx, tasker.MaxRetriesExceeded, "shop")
	p.EntryCreated(ctx, tasker.MaxRetriesExceeded, "shop")
	p.Swept(ctx, 1500*time.Millisecond, []metrics.Stale{
		{Reason: tasker.StalenessTimeout, Namespace: "shop", State: tasker.TaskWaitingForRetry, Transitioned: true},
		{Reason: tasker.StalenessTimeout, Namespace: "shop", State: tasker.TaskWaitingForRetry, Failed: true, ErrorCode: "57014"},
	}, nil)
	p.Swept(ctx, time.Second, nil, errors.New("no database"))
	p.Resolved(ctx, tasker.StalenessTimeout, tasker.EntryManuallyResolved, 90*time.Minute)
	p.want(map[string]string{
		"tasker.dlq.entries_created.total max_retries_exceeded shop":                                  "2",
		"tasker.staleness.tasks_detected.total staleness_timeout shop waiting_for_retry":              "2",
		"tasker.staleness.tasks_transitioned_to_error.total staleness_timeout shop waiting_for_retry": "1",
		"tasker.staleness.tasks_failed.total 57014":                                                   "1",
		"tasker.staleness.detection_runs.total success":                                               "1",
		"tasker.staleness.detection_runs.total failure":                                               "1",
		"tasker.staleness.detection.duration":                                                         "2: 2500",
		"tasker.dlq.time_in_queue staleness_timeout manually_resolved":                                "1: 1.5",
	})
	if p.LastRun() != time.Second {
		t.Errorf("the last run took %s", p.LastRun())
	}
}

// A series that appears with its first task hides that task from a rate.
func TestWhatIsNotExplainedIsCounted(t *testing.T) {
	p := newPlace(t)
	p.NotExplained(t.Context())
	(*metrics.Metrics)(nil).NotExplained(t.Context())
	p.AttributeSkipped(t.Context())
	(*metrics.Metrics)(nil).AttributeSkipped(t.Context())
	got, _ := p.collect()
	for _, name := range []string{"tasker.explain.unknown.total", "tasker.attributes.left_out.total"} {
		if got[name] != "1" {
			t.Errorf("%s is %q", name, got[name])
		}
	}
}

func TestSeriesBeginAtZero(t *testing.T) {
	p := newPlace(t)
	p.collect()
	got, _ := p.collect()
	for _, r := range tasker.Reasons() {
		if name := fmt.Sprintf("tasker.dlq.entries_created.total %s default", r); got[name] != "0" {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	for name, value := range map[string]string{
		"tasker.staleness.tasks_detected.total staleness_timeout default steps_in_process": "0",
		"tasker.staleness.detection_runs.total success":                                    "0",
		"tasker.explain.unknown.total":                                                     "0",
		"tasker.attributes.left_out.total":                                                 "0",
	} {
		if got[name] != value {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	for name := range got {
		if strings.Contains(name, "overflow") {
			t.Error(name)
		}
	}
}

// An alert must not end because the database cannot be asked.
func TestTheGaugeKeepsItsValue(t *testing.T) {
	const gauge = "tasker.dlq.pending_investigations"
	p := newPlace(t)
	p.failing = errors.New("no database")
	if got, _ := p.collect(); got[gauge] != "" {
		t.Errorf("the gauge is %q before anybody could count", got[gauge])
	}
	p.failing, p.pending = nil, 77
	p.want(map[string]string{gauge: "77", "tasker.database.up": "1"})
	p.failing, p.pending = errors.New("no database"), 0
	p.want(map[string]string{gauge: "77", "tasker.database.up": "0"})
	p.failing = nil
	p.want(map[string]string{gauge: "0"})
}

func TestNobodyCounts(t *testing.T) {
	var m *metrics.Metrics
	m.EntryCreated(t.Context(), tasker.ManualDLQ, "a")
	m.Swept(t.Context(), time.Second, []metrics.Stale{{}}, nil)
	m.Resolved(t.Context(), tasker.ManualDLQ, tasker.EntryCancelled, time.Hour)
	m.StepExpired(t.Context(), "a", tasker.DetectedSweep, tasker.NoWorkers)
	for _, m := range []*metrics.Metrics{m, newPlace(t).Metrics} { // nor does one without a broker and sinks
		m.Announced(t.Context(), 1, 1)
		m.Reannounced(t.Context(), 1)
		m.DeadLetter(t.Context(), "expired", time.Second)
		m.EmitFailed(t.Context(), tasker.EntryCreatedTopic, "log")
		m.Emitted(t.Context(), tasker.EntryCreatedTopic, "log", time.Second)
		m.EventDropped(t.Context(), tasker.EntryCreatedTopic, "log")
	}
}

// Rules and dashboards name the attributes, not only their values.
func TestAttributesHaveTheirNames(t *testing.T) {
	p := newPlace(t)
	ctx := t.Context()
	p.EntryCreated(ctx, tasker.MaxRetriesExceeded, "shop")
	p.Swept(ctx, time.Second, []metrics.Stale{{Reason: tasker.StalenessTimeout, Namespace: "shop", State: tasker.TaskWaitingForRetry, Transitioned: true}}, nil)
	p.Resolved(ctx, tasker.StalenessTimeout, tasker.EntryManuallyResolved, time.Hour)
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(ctx, &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		var sets []attribute.Set
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, d := range data.DataPoints {
				sets = append(sets, d.Attributes)
			}
		case metricdata.Histogram[float64]:
			for _, d := range data.DataPoints {
				sets = append(sets, d.Attributes)
			}
		}
		for _, set := range sets {
			var names []string
			for _, a := range set.ToSlice() {
				names = append(names, string(a.Key))
			}
			got[m.Name] = strings.Join(names, " ")
		}
	}
	for name, want := range map[string]string{
		"tasker.dlq.entries_created.total":                   "dlq_reason namespace",
		"tasker.staleness.tasks_detected.total":              "dlq_reason namespace state",
		"tasker.staleness.tasks_transitioned_to_error.total": "dlq_reason namespace state",
		"tasker.staleness.detection_runs.total":              "outcome",
		"tasker.staleness.detection.duration":                "",
		"tasker.dlq.time_in_queue":                           "dlq_reason resolution_status",
	} {
		if names, ok := got[name]; !ok || names != want {
			t.Errorf("%s has the attributes %q, want %q", name, names, want)
		}
	}
}

// A database that answers every question, and none of them fast, keeps no scrape longer than
// Prometheus waits: the server would look dead.
func TestASlowDatabaseDelaysACollectionOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := func(ctx context.Context, d time.Duration) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(d):
				return nil
			}
		}
		const each = 2500 * time.Millisecond
		p := newPlaceThatReads(t, func(ctx context.Context) (int64, []string, error) {
			return 7, []string{"default"}, takes(ctx, 2*time.Second)
		})
		number := func(ctx context.Context) (int64, error) { return 1, takes(ctx, each) }
		for _, err := range []error{
			p.ObserveSchedules(number),
			p.ObserveDeadlines(number),
			p.ObserveDue(func(ctx context.Context) (map[string]float64, error) { return nil, takes(ctx, each) }),
			p.ObserveHolds(func(ctx context.Context) ([]tasker.HoldGroup, error) { return nil, takes(ctx, each) }, func() int64 { return 0 }),
			p.ObserveStaleness(func(ctx context.Context) ([]tasker.StalenessCount, error) { return nil, takes(ctx, each) }),
			p.ObserveOperations(func(ctx context.Context) (map[tasker.ItemState]int64, error) { return nil, takes(ctx, each) }),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second has as much time as the first
			begun := time.Now()
			series, _ := p.collect()
			if took := time.Since(begun); took != 8*time.Second {
				t.Errorf("a collection took %s, want 8s", took)
			}
			if got := series["tasker.dlq.pending_investigations"]; got != "7" {
				t.Errorf("%q open investigations, want 7", got)
			}
			if got := series["tasker.schedules.failing"]; got != "1" {
				t.Errorf("%q schedules fail, want 1; of %v", got, series)
			}
		}
	})
}
