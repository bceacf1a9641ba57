package api_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/redact"
)

// stuck makes a task whose first step failed for good, and returns it.
func (h *harness) stuck(worker string) tasker.Task {
	h.Helper()
	task := h.createTask(1)
	step := h.claim(worker, map[string]any{"max": 1})[0]
	h.report(worker, map[string]any{
		"step_uuid": step.StepUUID, "lease_token": step.LeaseToken, "success": false,
		"error": map[string]any{"message": "card declined", "type": "declined", "retryable": false},
	})
	return want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil)
}

func (h *harness) report(worker string, result map[string]any) {
	h.Helper()
	got := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", map[string]any{"results": []any{result}})
	if len(got.Accepted) != 1 {
		h.Fatalf("report %+v", got)
	}
}

func TestAnInvestigationFromFailureToResolution(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	task := h.stuck(worker)
	if task.State != "error" || !task.DeadLettered || task.EntryUUID == nil || task.MarkReason != "max_retries_exceeded" {
		t.Fatalf("task %+v", task)
	}
	list := want[[]tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq?resolution_status=pending&dlq_reason=max_retries_exceeded&limit=50", nil)
	if len(list) != 1 || list[0].UUID.String() != task.EntryUUID.String() || list[0].CurrentTaskState != "error" || list[0].History != nil {
		t.Errorf("list %+v", list)
	}
	if none := want[[]tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq?resolution_status=cancelled", nil); len(none) != 0 {
		t.Errorf("cancelled %+v", none)
	}
	newest := want[tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq/task/"+task.UUID.String(), nil)
	if newest.UUID.String() != task.EntryUUID.String() || !strings.Contains(string(newest.Snapshot), "card declined") {
		t.Errorf("newest %+v", newest)
	}
	path := "/v1/dlq/entry/" + newest.UUID.String()
	one := want[tasker.Entry](h, http.StatusOK, "GET", path, nil)
	if len(one.History) != 1 || one.History[0].Event != "created" || one.StepUUID.String() != task.Steps[0].UUID.String() {
		t.Errorf("one %+v", one)
	}
	queue := want[[]tasker.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue?limit=100", nil)
	if len(queue) != 1 || queue[0].PriorityScore < 500 || queue[0].Namespace != "shop" || queue[0].CurrentState != "error" {
		t.Errorf("queue %+v", queue)
	}
	stats := want[[]tasker.EntryStats](h, http.StatusOK, "GET", "/v1/dlq/stats", nil)
	if len(stats) != 1 || stats[0].Pending != 1 || stats[0].AvgResolutionTimeMinutes != nil {
		t.Errorf("stats %+v", stats)
	}

	end := map[string]any{
		"resolution_status": "manually_resolved", "resolution_notes": "looked into", "resolved_by": "ann",
		"metadata": map[string]any{"root_cause": "bank"},
	}
	done := want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", path, end)
	if !done.Success || done.ResolvedAt == nil || *done.ResolvedBy != "ann" || len(done.Warnings) != 1 || !strings.Contains(string(done.Metadata), `"bank"`) {
		t.Errorf("done %+v", done)
	}
	want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", path, end)
	end["resolution_status"] = "cancelled"
	h.wantError(http.StatusConflict, "CONFLICT", "ended as manually_resolved", "PATCH", path, end)
}

// When the step that an entry was opened for is repaired and another one fails, the
// answers name the other.
func TestTheStepThatHasFailedNow(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	task := h.stuck(worker)
	path := "/v1/dlq/entry/" + task.EntryUUID.String()
	names := func(where, name string) {
		h.Helper()
		one := want[tasker.Entry](h, http.StatusOK, "GET", path, nil)
		all := []*tasker.FailedStep{
			one.FailedStep,
			want[[]tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq", nil)[0].FailedStep,
			want[tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq/task/"+task.UUID.String(), nil).FailedStep,
			want[[]tasker.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue", nil)[0].FailedStep,
			want[[]tasker.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue?namespace=shop", nil)[0].FailedStep,
		}
		for i, f := range all {
			if name == "" && f != nil || name != "" && (f == nil || f.Name != name || f.Since.IsZero()) {
				t.Errorf("%s, answer %d: failed step %+v, want %q", where, i, f, name)
			}
		}
		if !strings.Contains(one.Guidance, cmp.Or(name, "No step of the task has failed now")) {
			t.Errorf("%s: guidance %q", where, one.Guidance)
		}
	}
	names("at first", "charge")
	want[tasker.Step](h, http.StatusOK, "PATCH", "/v1/tasks/"+task.UUID.String()+"/workflow_steps/"+task.Steps[0].UUID.String(), map[string]any{
		"action_type": "complete_manually", "reason": "paid in cash", "completed_by": "ann", "completion_data": map[string]any{"result": 5},
	})
	names("repaired", "")
	next := h.claim(worker, map[string]any{"max": 1})[0]
	h.report(worker, map[string]any{
		"step_uuid": next.StepUUID, "lease_token": next.LeaseToken, "success": false, "error": map[string]any{"message": "no truck", "retryable": false},
	})
	names("another failed", task.Steps[1].Name)
}

// What an investigator writes is hidden by the same rules as the evidence, in each
// answer; and a repeated request is still known by what was written.
func TestInvestigationNotesAreRedacted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.redacts()
	h.register(chain)
	task := h.stuck(h.worker())
	path := "/v1/dlq/entry/" + task.EntryUUID.String()
	update := map[string]any{
		"resolution_status": "manually_resolved", "resolution_notes": "the URL was amqp://u:S3CR3T@mq", "resolved_by": "ann",
		"metadata": map[string]any{"api.key": "S3CR3T", "ticket": "INC-7"},
	}
	answers := map[string]any{
		"first": want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", path, update),
		"again": want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", path, update),
		"one":   want[tasker.Entry](h, http.StatusOK, "GET", path, nil),
		"list":  want[[]tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq", nil),
		"task":  want[tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq/task/"+task.UUID.String(), nil),
	}
	for name, answer := range answers {
		doc, err := json.Marshal(answer)
		h.Must(err)
		if text := string(doc); strings.Contains(text, "S3CR3T") || !strings.Contains(text, "amqp://u:[redacted]@mq") || !strings.Contains(text, "INC-7") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if one, ok := answers["one"].(tasker.Entry); !ok || len(one.History) != 2 {
		t.Errorf("the history has %d rows, want 2: the request was applied twice", len(one.History))
	}
}

// redacts stores the default rules, as a server does when it starts.
func (h *harness) redacts() {
	h.Helper()
	r, err := redact.New(redact.DefaultKeys, "")
	h.Must(err)
	err = h.DB.SetRedaction(h.Context(), postgres.Redaction{
		KeyPattern: r.Pattern(), Document: r.Document(), TextPatterns: r.Texts(), Paths: r.Paths(),
	})
	h.Must(err)
}

func TestStepActions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		action    map[string]any
		state     tasker.StepState
		taskState tasker.TaskState
		result    string // that the next step receives
	}{
		{
			"reset", map[string]any{"action_type": "reset_for_retry", "reason": "bank is back", "reset_by": "ann"},
			"pending", "steps_in_process", "",
		},
		{
			"resolve", map[string]any{"action_type": "resolve_manually", "reason": "paid in cash", "resolved_by": "ann"},
			"resolved_manually", "steps_in_process", "null",
		},
		{
			"complete", map[string]any{
				"action_type": "complete_manually", "reason": "paid in cash", "completed_by": "ann",
				"completion_data": map[string]any{"result": map[string]any{"paid": 5}, "metadata": map[string]any{"receipt": "r1"}},
			},
			"complete", "steps_in_process", `{"paid":5}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.register(chain)
			worker := h.worker()
			task := h.stuck(worker)
			path := "/v1/tasks/" + task.UUID.String() + "/workflow_steps"
			step := path + "/" + task.Steps[0].UUID.String()
			before := want[tasker.Step](h, http.StatusOK, "GET", step, nil)
			if before.State != "error" || before.Attempts != 1 {
				t.Errorf("before %+v", before)
			}
			after := want[tasker.Step](h, http.StatusOK, "PATCH", step, tt.action)
			if after.State != tt.state {
				t.Errorf("step is %s, want %s", after.State, tt.state)
			}
			if got := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil); got.State != tt.taskState {
				t.Errorf("task is %s, want %s", got.State, tt.taskState)
			}
			history := want[[]tasker.Transition](h, http.StatusOK, "GET", step+"/transitions", nil)
			said := false
			for _, row := range history {
				said = said || row.Actor == "ann" && row.Reason == tt.action["reason"]
			}
			if !said {
				t.Errorf("the history does not say who and why: %+v", history)
			}
			next := h.claim(worker, map[string]any{"max": 5})
			if len(next) != 1 || string(next[0].DependencyResults["charge"]) != tt.result {
				t.Errorf("next %+v", next)
			}
			steps := want[[]tasker.Step](h, http.StatusOK, "GET", path, nil)
			if len(steps) != 2 {
				t.Errorf("steps %+v", steps)
			}
		})
	}
}

func TestOpeningAnInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.createTask(1)
	path := "/v1/dlq/task/" + task.UUID.String()
	open := map[string]any{"reason": "looks odd", "created_by": "ann", "metadata": map[string]any{"ticket": 7}}
	e := want[tasker.Entry](h, http.StatusCreated, "POST", path, open)
	if e.Reason != "manual_dlq" || e.OriginalState != "steps_in_process" || e.CurrentTaskState != "steps_in_process" {
		t.Errorf("entry %+v", e)
	}
	p := h.wantError(http.StatusConflict, "CONFLICT", "already has an open investigation", "POST", path, open)
	if !strings.Contains(string(p.Error.Details), e.UUID.String()) {
		t.Errorf("details %s", p.Error.Details)
	}
	if lines := want[[]tasker.StaleTask](h, http.StatusOK, "GET", "/v1/dlq/staleness?limit=1000", nil); len(lines) != 1 || lines[0].Health != "healthy" {
		t.Errorf("staleness %+v", lines)
	}
}
