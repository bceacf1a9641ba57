package metrics_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/metrics"
)

// manyNames are more namespaces than have series of their own.
func manyNames(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return list
}

// total adds up the series of a metric.
func total(t *testing.T, series map[string]string, name string) (sum, count int) {
	t.Helper()
	for s, value := range series {
		if strings.HasPrefix(s, name+" ") {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			sum, count = sum+n, count+1
		}
	}
	return sum, count
}

// With more namespaces than have series of their own the others are counted together, and nothing
// is lost. Those with templates, of which nothing is counted, leave room for those in use.
func TestManyNamespacesHaveFewSeries(t *testing.T) {
	const namespaces, series = 3000, 201
	idle := manyNames("idle", 1000)
	p := newPlaceThatReads(t, func(context.Context) (int64, []string, error) { return 0, idle, nil })
	p.collect()
	for _, n := range manyNames("used", namespaces) {
		p.EntryCreated(t.Context(), tasker.ManualDLQ, n)
		p.StepExpired(t.Context(), n, tasker.DetectedSweep, tasker.NoWorkers)
		p.Swept(t.Context(), time.Second, []metrics.Stale{{Reason: tasker.StalenessTimeout, Namespace: n, State: tasker.TaskStepsInProcess, Transitioned: true}}, nil)
	}
	p.EntryCreated(t.Context(), tasker.ManualDLQ, "used-0000")
	got, _ := p.collect()
	for name, most := range map[string]int{
		"tasker.dlq.entries_created.total": series * len(tasker.Reasons()), "tasker.dispatch.expired.total": series * 4,
		"tasker.staleness.tasks_detected.total": series * 6, "tasker.staleness.tasks_transitioned_to_error.total": series * 6,
	} {
		want := namespaces
		if name == "tasker.dlq.entries_created.total" {
			want++
		}
		if sum, n := total(t, got, name); sum != want || n > most {
			t.Errorf("%s has %d series, which count %d; want at most %d and %d", name, n, sum, most, want)
		}
	}
	for name, want := range map[string]string{
		"tasker.dlq.entries_created.total manual_dlq used-0000":                            "2", // in use first
		"tasker.dlq.entries_created.total manual_dlq idle-0000":                            "0",
		"tasker.dlq.entries_created.total manual_dlq " + metrics.OtherNamespaces:           "2900",
		"tasker.dispatch.expired.total no_workers sweep " + metrics.OtherNamespaces:        "2900",
		"tasker.staleness.tasks_detected.total staleness_timeout (other) steps_in_process": "2900",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// Of the gauges those are shown that need it most, and the others added up.
func TestManyQueuesHaveFewSeries(t *testing.T) {
	p := newDispatch(t, nil)
	for i, n := range manyNames("used", 1000) {
		p.queues = append(p.queues, tasker.Backlog{Namespace: n, Steps: int64(1000 - i), Workers: 1, Unserved: 1, Oldest: time.Duration(i) * time.Second})
	}
	got, _ := p.collect()
	for name, want := range map[string]int{"tasker.queue.steps": 500_500, "tasker.queue.unserved_steps": 1000, "tasker.workers.live": 1000} {
		if sum, n := total(t, got, name); sum != want || n != 101 {
			t.Errorf("%s has %d series, which count %d; want 101 and %d", name, n, sum, want)
		}
	}
	p.want(map[string]string{"tasker.queue.steps used-0000": "1000", "tasker.queue.steps used-0100": "", "tasker.queue.oldest_seconds (other)": "999"})
}
