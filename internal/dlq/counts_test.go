package dlq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/postgres"
)

// counted gives a harness metrics and returns what reads those that have counted anything.
func (h *harness) counted() func() map[string]string {
	h.Helper()
	return h.countedAndLogged(io.Discard)
}

func (h *harness) countedAndLogged(log io.Writer) func() map[string]string {
	h.Helper()
	reader := sdk.NewManualReader()
	m, err := metrics.New(sdk.NewMeterProvider(sdk.WithReader(reader)), h.DB.OpenEntries, slog.New(slog.DiscardHandler))
	h.Must(err)
	h.DB.OnOpened(m.EntryCreated)
	h.DLQ = dlq.New(h.DB, dlq.Options{Metrics: m, Log: slog.New(slog.NewTextHandler(log, nil))})
	return func() map[string]string {
		h.Helper()
		var all metricdata.ResourceMetrics
		h.Must(reader.Collect(context.WithoutCancel(h.Context()), &all))
		got := map[string]string{}
		for _, m := range all.ScopeMetrics[0].Metrics {
			name := strings.TrimPrefix(m.Name, "tasker.")
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, d := range data.DataPoints {
					if d.Value != 0 {
						got[labelled(name, d.Attributes)] = fmt.Sprint(d.Value)
					}
				}
			case metricdata.Gauge[int64]:
				got[name] = fmt.Sprint(data.DataPoints[0].Value)
			case metricdata.Histogram[float64]:
				for _, d := range data.DataPoints {
					got[labelled(name, d.Attributes)] = fmt.Sprint(d.Count)
				}
			}
		}
		return got
	}
}

func labelled(name string, attributes attribute.Set) string {
	for _, a := range attributes.ToSlice() {
		name += " " + a.Value.AsString()
	}
	return name
}

// Each investigation is counted once, whoever opened it and however, and only
// when it is in the database.
func TestEveryWayIntoTheQueueIsCounted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	read := h.counted()
	first := h.failed() // inline
	stale, poisoned, byHand := h.create(), h.create(), h.create()
	h.openByHand(byHand)
	_, err := h.DLQ.Open(t.Context(), byHand, tasker.NewEntry{Actor: "ann", Reason: "odd"})
	h.WantCode(err, tasker.Conflict)
	h.stand(stale, 31*time.Minute)
	h.stand(poisoned, 31*time.Minute)
	h.poison("NEW.task_uuid = '%s'", poisoned)
	h.sweep(1)
	h.update(first.UUID, resolution())
	_, _, err = h.DLQ.Update(t.Context(), first.UUID, resolution()) // the same again
	h.Must(err)
	err = h.DB.InTx(t.Context(), func(tx *postgres.Tx) error { // one that does not come to be
		if err := tx.LockTasks(t.Context(), []tasker.ID{first.TaskUUID}); err != nil {
			return err
		}
		_, err := tx.OpenEntry(t.Context(), postgres.NewEntry{
			TaskUUID: first.TaskUUID, Reason: tasker.ManualDLQ, DetailCode: tasker.OperatorRequest, DetectedBy: tasker.DetectedOperator,
			OriginalState: tasker.TaskError, Actor: "ann", Notes: "why",
		})
		return errors.Join(err, errRolledBack)
	})
	if !errors.Is(err, errRolledBack) {
		t.Fatal(err)
	}

	want := map[string]string{
		"database.up": "1",
		"dlq.entries_created.total max_retries_exceeded shop":                                 "1",
		"dlq.entries_created.total manual_dlq shop":                                           "1",
		"dlq.entries_created.total staleness_timeout shop":                                    "1",
		"staleness.tasks_detected.total staleness_timeout shop steps_in_process":              "2",
		"staleness.tasks_failed.total P0001":                                                  "1",
		"staleness.tasks_transitioned_to_error.total staleness_timeout shop steps_in_process": "1",
		"staleness.detection_runs.total success":                                              "1",
		"staleness.detection.duration":                                                        "1",
		"dlq.time_in_queue max_retries_exceeded manually_resolved":                            "1",
		"dlq.pending_investigations":                                                          "2",
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Error(diff)
	}
}

var errRolledBack = errors.New("rolled back")

func resolution() tasker.EntryUpdate {
	status, notes, by := tasker.EntryManuallyResolved, "fixed", "ann"
	return tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Actor: by}
}

// The gauge says what the database says: from the start, in every server.
func TestTheGaugeIsRightAfterARestartAndInEveryServer(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.failed()
	h.failed()
	one := h.counted()
	another := h.counted() // has counted nothing itself
	for _, want := range []string{"2", "3"} {
		for _, read := range []func() map[string]string{one, another} {
			if got := read()["dlq.pending_investigations"]; got != want {
				t.Errorf("pending investigations: %s, want %s", got, want)
			}
		}
		h.failed()
	}
}

func TestASweepThatFailsIsCounted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	read := h.counted()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.DLQ.Sweep(ctx); err == nil {
		t.Fatal("a sweep that could not ask the database succeeded")
	}
	if got := read(); got["staleness.detection_runs.total failure"] != "1" || got["staleness.detection_runs.total success"] != "" {
		t.Errorf("counted %v", got)
	}
}

// Why no investigation could be opened is in the server's log, in its readiness and in
// its metrics; who has no access to the log of PostgreSQL need not look there.
func TestSweepReportsWhyATaskFailed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var said bytes.Buffer
	read := h.countedAndLogged(&said)
	failing := h.create()
	h.stand(failing, time.Hour)
	h.stand(h.create(), time.Hour)
	h.poison("NEW.task_uuid = '%s'", failing)
	h.sweep(1)
	if want := "level=ERROR msg=\"the sweep could not open an investigation; retrying later\" task_uuid=" + failing.String(); !strings.Contains(said.String(), want) {
		t.Errorf("no %s in\n%s", want, &said)
	}
	if want := "action=transition_failed sqlstate=P0001 err=broken\n"; !strings.Contains(said.String(), want) {
		t.Errorf("no %s in\n%s", want, &said)
	}
	if got := read()["staleness.tasks_failed.total P0001"]; got != "1" {
		t.Errorf("counted %s", got)
	}
	list, err := h.DB.DeferredCounts(t.Context(), 10)
	if err != nil || len(list) != 1 || list[0].Kind != "sweep" || list[0].Error != "broken (SQLSTATE P0001)" {
		t.Errorf("set aside: %+v, %v", list, err)
	}
}

func TestEachRunLogsWhatItFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var said bytes.Buffer
	h.DLQ = dlq.New(h.DB, dlq.Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	h.sweep(0)
	if !strings.Contains(said.String(), `level=INFO msg="staleness sweep" tasks=0 took=`) {
		t.Errorf("a run that found nothing says %s", &said)
	}
	said.Reset()
	stale := h.create()
	h.stand(stale, time.Hour)
	h.stand(h.create(), time.Hour)
	failed := h.create()
	h.Exec(`UPDATE tasker.tasks SET state = 'error', warn_at = NULL, stale_at = NULL WHERE task_uuid = $1`, failed)
	h.Exec(`UPDATE tasker.tasks SET attend_by = now() WHERE task_uuid = $1`, failed)
	h.Exec(`UPDATE tasker.workflow_steps SET state = 'error', expires_at = NULL, unwritten = 0 WHERE task_uuid = $1`, failed)
	h.Exec(`INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at)
		SELECT task_uuid, from_state, to_state, event, now() FROM tasker.task_settle_paths, tasker.tasks
		WHERE (rest_from, rest_to, task_uuid) = ('steps_in_process', 'error', $1) ORDER BY ordinal`, failed)
	h.Exec(`INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at, moves_id, enqueued_at)
		SELECT task_uuid, step_uuid, m.was, m.state, m.event, 1, now(), CASE m.event WHEN 'claim' THEN moves_id END, CASE m.event WHEN 'claim' THEN state_since END
		FROM tasker.workflow_steps, (VALUES ('enqueued', 'in_progress', 'claim'), ('in_progress', 'error', 'fail')) AS m (was, state, event)
		WHERE task_uuid = $1`, failed)
	h.sweep(3)
	for _, want := range []string{
		"tasks=3", "max_retries_exceeded=1 staleness_timeout=2", "moved_to_dlq_only=1 transitioned_to_dlq_and_error=2",
		"level=WARN msg=\"the sweep found a task that needs an operator\" task_uuid=" + stale.String(),
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %s in\n%s", want, &said)
		}
	}
}
