package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
)

// large writes a task of many steps into the harness.
func (h *harness) large(b pgtest.BigTask) tasker.ID {
	h.Helper()
	id, err := pgtest.InsertBigTask(h.Context(), h.Admin(), b)
	h.Must(err)
	return id
}

// lastAttempts has the worker hold the steps of a task that are in progress, each with
// its last attempt, and returns their failures as it would report them.
func (h *harness) lastAttempts(task tasker.ID) []tasker.Outcome {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET worker_uuid = $2, fence = 1, max_attempts = 1, lease_expires_at = now() + interval '1 hour'
		WHERE task_uuid = $1 AND state = 'in_progress'`, task, h.Worker)
	rows, err := h.Admin().Query(h.Context(), `SELECT step_uuid FROM tasker.workflow_steps WHERE task_uuid = $1 AND state = 'in_progress' ORDER BY name`, task)
	h.Must(err)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (tasker.Outcome, error) {
		o := tasker.Outcome{Lease: tasker.Lease{TaskUUID: task, Fence: 1}, Failure: &tasker.Failure{
			Message: "the service is down", Type: "unavailable", Context: json.RawMessage(`{"status":503}`),
		}}
		return o, row.Scan(&o.StepUUID)
	})
	h.Must(err)
	return list
}

// investigation is the newest investigation of a task, with its history.
func (h *harness) investigation(task tasker.ID) tasker.Entry {
	h.Helper()
	e, err := h.DB.Entry(h.Context(), h.Entry(task).UUID)
	h.Must(err)
	return e
}

func TestFailuresOfOneReportOpenOneInvestigation(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]pgtest.BigTask{
		"all of a fan-out":         {Steps: 100, Rest: tasker.StepInProgress},
		"a part of a thousand":     {Steps: 1000, Complete: 800, Failed: 100, Failures: 3, Rest: tasker.StepInProgress},
		"one at the end of a task": {Steps: 1000, Complete: 999, Chain: true, Rest: tasker.StepInProgress},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			b.Namespace = enginetest.Namespace
			task := h.large(b)
			h.Exec(`ANALYZE`)
			if b.Failed > 0 {
				h.Exec(`SELECT tasker.create_dlq_entry($1, 'manual_dlq', 'operator_request', 'operator', 'steps_in_process')`, task)
			}
			outcomes := h.lastAttempts(task)
			began := time.Now()
			h.acceptedInTime(outcomes...)
			t.Logf("a report of %d last failures of a task of %d steps takes %s", len(outcomes), b.Steps, time.Since(began))
			h.WantState(task, tasker.TaskError)
			e := h.investigation(task)
			told := map[string]int{}
			for _, c := range e.History {
				told[c.Event]++
			}
			want := map[string]int{"created": 1, "step_failed": len(outcomes) - 1}
			if b.Failed > 0 {
				want["step_failed"] = len(outcomes)
			}
			if fmt.Sprint(told["created"], told["step_failed"]) != fmt.Sprint(want["created"], want["step_failed"]) {
				t.Errorf("the history has %v, want %v", told, want)
			}
			var events int
			h.Must(h.Admin().QueryRow(t.Context(), `SELECT count(*) FROM tasker.outbox WHERE task_uuid = $1`, task).Scan(&events))
			equal(t, "events", events, len(e.History))
		})
	}
}

func TestLargeResultsDoNotPreventAnInvestigation(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]string{
		"results that are fifty times larger":     `(SELECT jsonb_agg(1e308) FROM generate_series(1, 174000))`,
		"results of more than 256 MB as jsonb":    `to_jsonb(repeat('x', 1000000))`,
		"a thousand results of sixteen kilobytes": `to_jsonb(repeat(md5(i::text), 500))`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			b := pgtest.BigTask{Namespace: enginetest.Namespace, Steps: 6, Complete: 5, Rest: tasker.StepInProgress, Result: result}
			if strings.HasPrefix(result, "to_jsonb") {
				b.Steps, b.Complete = 300, 299
			}
			var task tasker.ID
			why := "57014" // a statement timeout, into which one round may run on a loaded machine
			for round := 0; round < 3 && strings.Contains(why, "57014"); round++ {
				task = h.large(b)
				h.acceptedInTime(h.lastAttempts(task)...)
				h.finishKept() // on a loaded machine the follow-up may run out of its time
				h.WantState(task, tasker.TaskError)
				var snapshot map[string]json.RawMessage
				h.Must(json.Unmarshal(h.Entry(task).Snapshot, &snapshot))
				why = string(snapshot["snapshot_failed"])
			}
			equal(t, "the snapshot failed", why, "")
			n := len(h.Entry(task).Snapshot)
			check(t, n <= tasker.MaxSnapshotBytes, "the snapshot has %d bytes", n)
		})
	}
}
