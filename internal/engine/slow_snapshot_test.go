package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// An investigation whose snapshot takes longer than the caller waits opens without it, in that
// time: the database gives up before the caller does. Where several tasks are at stake each is
// tried by itself first, and what else the transaction does has its time as before.
func TestAnInvestigationOpensInTimeWithoutASlowSnapshot(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(1, enginetest.Step("one")))
	h.Exec(`ALTER FUNCTION tasker.task_snapshots RENAME TO sound_snapshots`)
	h.Exec(`
		CREATE FUNCTION tasker.task_snapshots(p_tasks uuid[], p_states text[], p_since timestamptz[], p_by text, p_at timestamptz, p_cuts jsonb DEFAULT NULL)
		RETURNS TABLE (task_uuid uuid, snapshot jsonb, plain boolean) LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); END $$`)
	inTime := func(try func(ctx context.Context) error) {
		t.Helper()
		for limit := 400 * time.Millisecond; ; limit *= 2 { // more on a loaded machine
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			err := try(ctx)
			cancel()
			if err == nil {
				return
			}
			if limit > 5*time.Second {
				t.Fatalf("no investigation opens within %v: %v", limit, err)
			}
		}
	}
	withoutSnapshot := func(task tasker.ID) {
		t.Helper()
		var snapshot struct {
			Failed string `json:"snapshot_failed"`
		}
		h.Must(json.Unmarshal(h.Entry(task).Snapshot, &snapshot))
		if !strings.Contains(snapshot.Failed, "57014") {
			t.Errorf("the snapshot failed for %q", snapshot.Failed)
		}
	}

	task := h.Create("single")
	last := failure(h.claimOne("one"), true)
	inTime(func(ctx context.Context) error {
		r, err := h.Engine.Report(ctx, h.worker, []tasker.Outcome{last}, 0)
		if err == nil && len(r.Accepted) == 0 {
			err = errors.New("the report is not decided")
		}
		return err
	})
	withoutSnapshot(task)

	one, two := h.Create("single"), h.Create("single")
	entry := func(task tasker.ID) postgres.NewEntry {
		return postgres.NewEntry{TaskUUID: task, Reason: tasker.ManualDLQ, DetailCode: "operator_request", DetectedBy: "operator", OriginalState: tasker.TaskStepsInProcess, Actor: "ann"}
	}
	inTime(func(ctx context.Context) error {
		return h.DB.InTx(ctx, func(tx *postgres.Tx) error {
			var before, after string
			if err := tx.QueryRow(ctx, `SHOW statement_timeout`).Scan(&before); err != nil {
				return err
			}
			if _, err := tx.OpenEntry(ctx, entry(one)); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, `SHOW statement_timeout`).Scan(&after); err != nil {
				return err
			}
			if before != after {
				t.Errorf("the statements after it have %s, want %s", after, before)
			}
			return nil
		})
	})
	withoutSnapshot(one)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := h.DB.InTx(ctx, func(tx *postgres.Tx) error {
		_, err := tx.OpenEntries(ctx, []postgres.NewEntry{entry(two), entry(h.Create("single"))})
		return err
	})
	if !postgres.IsTimeout(err) {
		t.Errorf("of several tasks one goes without its snapshot before it is tried by itself: %v", err)
	}
}
