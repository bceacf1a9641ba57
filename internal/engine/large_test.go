package engine_test

import (
	"context"
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
	id, err := pgtest.InsertBigTask(h.Context(), h.pool, b)
	h.Must(err)
	return id
}

// lastAttempts has the worker hold the steps of a task that are in progress, each with
// its last attempt, and returns their failures as it would report them.
func (h *harness) lastAttempts(task tasker.ID) []tasker.Outcome {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET worker_uuid = $2, fence = 1, max_attempts = 1, lease_expires_at = now() + interval '1 hour'
		WHERE task_uuid = $1 AND state = 'in_progress'`, task, h.worker)
	rows, err := h.pool.Query(h.Context(), `SELECT step_uuid FROM tasker.workflow_steps WHERE task_uuid = $1 AND state = 'in_progress' ORDER BY name`, task)
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

// Steps that fail together are one investigation with one snapshot, in any shape of
// task, and each of them is told in its history.
func TestManyLastFailuresInOneReport(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]pgtest.BigTask{
		"all of a fan-out":         {Steps: 100, Rest: tasker.StepInProgress},
		"a part of a thousand":     {Steps: 1000, Complete: 800, Failed: 100, Failures: 3, Rest: tasker.StepInProgress},
		"one at the end of a task": {Steps: 1000, Complete: 999, Chain: true, Rest: tasker.StepInProgress},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			h.wantState(task, tasker.TaskError)
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
			h.Must(h.pool.QueryRow(t.Context(), `SELECT count(*) FROM tasker.outbox WHERE task_uuid = $1`, task).Scan(&events))
			if events != len(e.History) {
				t.Errorf("%d events tell of %d lines of history", events, len(e.History))
			}
		})
	}
}

// Seven hundred steps that fail together bring their task to error with one
// investigation, and take no lease from whoever works on another task meanwhile.
func TestSevenHundredStepsFailTogether(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.large(pgtest.BigTask{Namespace: enginetest.Namespace, Steps: 700, Rest: tasker.StepInProgress})
	h.Exec(`ANALYZE`)
	h.Template("other", enginetest.Step("s"))
	bystander := h.Create("other")
	lease := h.claim()[0].Lease()
	before := h.step(bystander, "s").LeaseExpiresAt
	done := make(chan error, 1)
	outcomes := h.lastAttempts(task)
	began := time.Now()
	go func() {
		var err error
		for tries, undecided := 0, true; undecided && err == nil && tries < 20; tries++ {
			var receipt tasker.Receipt
			receipt, err = h.Engine.Report(context.WithoutCancel(t.Context()), h.worker, outcomes, 0)
			undecided = len(receipt.Rejected) > 0 && receipt.Rejected[0].Code == tasker.Unavailable
		}
		done <- err
	}()
	for running := true; running; {
		beat, err := h.Engine.Heartbeat(t.Context(), h.worker, []tasker.Lease{lease})
		if err != nil || len(beat.Extended) != 1 {
			t.Fatalf("the heartbeat of the bystander: %+v, %v", beat, err)
		}
		select {
		case err := <-done:
			h.Must(err)
			running = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Logf("a report of 700 last failures takes %s", time.Since(began))
	h.finishKept()
	h.wantState(task, tasker.TaskError)
	var lines int
	h.Must(h.pool.QueryRow(t.Context(), `
		SELECT count(*) FROM tasker.tasks_dlq_history h JOIN tasker.tasks_dlq d USING (dlq_entry_uuid) WHERE d.task_uuid = $1`, task).Scan(&lines))
	if lines != 700 {
		t.Errorf("the history has %d lines, want 700", lines)
	}
	if after := h.step(bystander, "s").LeaseExpiresAt; before == nil || after == nil || !after.After(*before) {
		t.Errorf("the lease of the bystander ran until %v, now until %v", before, after)
	}
}

// An investigation opens whatever the size of the stored results.
func TestAFailureBesideLargeResultsIsInvestigated(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]string{
		"results that are fifty times larger":     `(SELECT jsonb_agg(1e308) FROM generate_series(1, 174000))`,
		"results of more than 256 MB as jsonb":    `to_jsonb(repeat('x', 1000000))`,
		"a thousand results of sixteen kilobytes": `to_jsonb(repeat(md5(i::text), 500))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
				h.wantState(task, tasker.TaskError)
				var snapshot map[string]json.RawMessage
				h.Must(json.Unmarshal(h.Entry(task).Snapshot, &snapshot))
				why = string(snapshot["snapshot_failed"])
			}
			if why != "" {
				t.Errorf("the snapshot failed: %s", why)
			}
			if n := len(h.Entry(task).Snapshot); n > tasker.MaxSnapshotBytes {
				t.Errorf("the snapshot has %d bytes", n)
			}
		})
	}
}
