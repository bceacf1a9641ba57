package dlq_test

import (
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// A detail code that this program does not know, from a newer server or from psql, does
// not keep an investigation from being opened: it is shown as it is.
func TestAnUnknownDetailCodeOpensAnInvestigation(t *testing.T) {
	t.Parallel()
	h := enginetest.At(t, pgtest.New(t).URL, postgres.Options{}) // the check at the end would report the code
	h.Template("single", enginetest.Step("one"))
	task := h.Create("single")
	h.Must(h.DB.InTx(t.Context(), func(tx *postgres.Tx) error {
		if err := tx.LockTasks(t.Context(), []tasker.ID{task}); err != nil {
			return err
		}
		_, err := tx.OpenEntry(t.Context(), postgres.NewEntry{
			TaskUUID: task, Reason: tasker.StalenessTimeout, DetailCode: "of_a_newer_server", DetectedBy: tasker.DetectedSweep,
			OriginalState: tasker.TaskStepsInProcess, Actor: "tasker",
		})
		return err
	}))
	list, err := h.DB.Entries(t.Context(), tasker.EntryFilter{Limit: 10})
	h.Must(err)
	if len(list) != 1 || list[0].DetailCode != "of_a_newer_server" || list[0].ResolvedAt != nil {
		t.Fatalf("%+v", list)
	}
	if c := tasker.CauseOf(list[0].Reason, list[0].DetailCode); c.Severity != tasker.Medium || c.Label != "of_a_newer_server" || c.BasePriority != 100 {
		t.Errorf("it counts as %+v", c)
	}
	if got := h.Count(`SELECT count(*) FROM tasker.v_dlq_investigation_queue WHERE detail_code = 'of_a_newer_server'`); got != 1 {
		t.Errorf("it is %d times in the queue", got)
	}
}
