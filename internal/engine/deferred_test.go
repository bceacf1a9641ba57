package engine_test

import (
	"encoding/json"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// tryAgain tries deferred work again, as when its time has come.
func (h *harness) tryAgain() {
	h.Helper()
	h.Exec(`UPDATE tasker.deferred_work SET retry_at = now()`)
	_, err := h.Engine.RetryDeferred(h.Context())
	h.Must(err)
}

func TestWorkThatKeepsFailingOpensOneInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("single", attempts(3, enginetest.Step("one")))
	task := h.Create("single")
	h.accepted(failure(h.claimOne("one"), true))
	h.fails(`UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.task_uuid = '` + task.String() + `' AND NEW.state = 'enqueued')`)
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now()`)
	h.tick()
	entries := func() int { return h.count("tasks_dlq") }
	for n := 2; n < tasker.MaxSilentFailures; n++ {
		h.tryAgain()
	}
	if entries() != 0 {
		t.Errorf("%d investigations before failure %d", entries(), tasker.MaxSilentFailures)
	}
	h.tryAgain()
	e := h.Entry(task)
	var m struct {
		Work struct {
			Kind      string
			Failures  int
			LastError string `json:"last_error"`
		} `json:"deferred_work"`
	}
	h.Must(json.Unmarshal(e.Metadata, &m))
	if e.Reason != tasker.StalenessTimeout || e.DetailCode != tasker.DeferredWork || m.Work.Kind != "retry" || m.Work.Failures != tasker.MaxSilentFailures || m.Work.LastError == "" {
		t.Errorf("the investigation has %s, %s and metadata %s", e.Reason, e.DetailCode, e.Metadata)
	}
	h.tryAgain()
	if entries() != 1 || h.State(task) != tasker.TaskWaitingForRetry {
		t.Errorf("%d investigations of the task, which is %s; want 1 and its state unchanged", entries(), h.State(task))
	}
	h.Exec(`DROP TRIGGER broken ON tasker.workflow_steps`)
	h.tryAgain()
	if e := h.Entry(task); e.RecoveredAt == nil || h.count("deferred_work") != 0 {
		t.Errorf("the work succeeded: recovered at %v, %d rows deferred", e.RecoveredAt, h.count("deferred_work"))
	}
	h.accepted(success(h.claimOne("one"), `1`))
	h.wantState(task, tasker.TaskComplete)
}
