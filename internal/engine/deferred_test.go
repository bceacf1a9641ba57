package engine_test

import (
	"encoding/json"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
)

func TestRepeatedlyFailingWorkOpensOneInvestigation(t *testing.T) {
	h := newHarness(t)
	h.Template("single", attempts(3, enginetest.Step("one")))
	task := h.Create("single")
	h.Accepted(failure(h.ClaimOne("one"), true))
	h.poison("UPDATE ON tasker.workflow_steps", `NEW.task_uuid = '`+task.String()+`' AND NEW.state = 'enqueued'`)
	fixture.RetriesDue(h, h.Admin())
	h.Tick()
	entries := func() int { return h.count("tasks_dlq") }
	for n := 2; n < tasker.MaxSilentFailures; n++ {
		h.retryDeferred()
	}
	check(t, entries() == 0, "%d investigations before failure %d", entries(), tasker.MaxSilentFailures)
	h.retryDeferred()
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
	h.retryDeferred()
	if entries() != 1 || h.State(task) != tasker.TaskWaitingForRetry {
		t.Errorf("%d investigations of the task, which is %s; want 1 and its state unchanged", entries(), h.State(task))
	}
	h.heal()
	h.retryDeferred()
	if e := h.Entry(task); e.RecoveredAt == nil || h.count("deferred_work") != 0 {
		t.Errorf("the work succeeded: recovered at %v, %d rows deferred", e.RecoveredAt, h.count("deferred_work"))
	}
	h.Complete("one")
	h.WantState(task, tasker.TaskComplete)
}
