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

func TestInvestigationOpensWithoutASlowSnapshot(t *testing.T) {
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
			require(t, limit <= 5*time.Second, "no investigation opens within %v: %v", limit, err)
		}
	}
	withoutSnapshot := func(task tasker.ID) {
		t.Helper()
		var snapshot struct {
			Failed string `json:"snapshot_failed"`
		}
		h.Must(json.Unmarshal(h.Entry(task).Snapshot, &snapshot))
		check(t, strings.Contains(snapshot.Failed, "57014"), "the snapshot failed for %q", snapshot.Failed)
	}

	task := h.Create("single")
	last := failure(h.ClaimOne("one"), true)
	inTime(func(ctx context.Context) error {
		r, err := h.Engine.Report(ctx, h.Worker, []tasker.Outcome{last}, 0)
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
			equal(t, "the statements after it have", before, after)
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
