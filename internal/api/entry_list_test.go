package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// investigations makes five entries, the oldest first: three of tasks that failed and two by hand.
// The second has ended as cancelled, the fourth as manually_resolved.
func (h *harness) investigations() []string {
	h.Helper()
	worker := h.worker()
	failed := func() string { return h.stuck(worker).EntryUUID.String() }
	var ids []string
	ids = append(ids, failed(), failed(), failed())
	for range 2 {
		task := h.createTask(1)
		e := want[tasker.Entry](h, http.StatusCreated, "POST", "/v1/dlq/task/"+task.UUID.String(), map[string]any{"reason": "odd", "created_by": "ann"})
		ids = append(ids, e.UUID.String())
	}
	h.end(ids[1], "cancelled")
	h.end(ids[3], "manually_resolved")
	return ids
}

// end ends an investigation.
func (h *harness) end(entry, status string) apiv1.UpdatedEntry {
	h.Helper()
	return want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", "/v1/dlq/entry/"+entry, map[string]any{
		"resolution_status": status, "resolution_notes": "seen", "resolved_by": "ann",
	})
}

func TestTheListOfInvestigations(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	ids := h.investigations()
	for query, positions := range map[string][]int{
		"":                                      {4, 3, 2, 1, 0}, // newest first
		"?limit=2":                              {4, 3},
		"?limit=2&offset=2":                     {2, 1},
		"?limit=2&offset=4":                     {0},
		"?limit=2&offset=5":                     {},
		"?offset=3":                             {1, 0},
		"?resolution_status=pending":            {4, 2, 0},
		"?resolution_status=cancelled":          {1},
		"?resolution_status=manually_resolved":  {3},
		"?resolution_status=permanently_failed": {},
		"?dlq_reason=max_retries_exceeded":      {2, 1, 0},
		"?dlq_reason=manual_dlq":                {4, 3},
		"?dlq_reason=staleness_timeout":         {},
		"?dlq_reason=max_retries_exceeded&resolution_status=pending":                   {2, 0},
		"?dlq_reason=max_retries_exceeded&resolution_status=pending&limit=1&offset=1":  {0},
		"?dlq_reason=manual_dlq&resolution_status=cancelled":                           {},
		"?dlq_reason=manual_dlq&resolution_status=manually_resolved&limit=50&offset=0": {3},
	} {
		list := want[[]tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq"+query, nil)
		ordered, got := []string{}, []string{}
		for _, p := range positions {
			ordered = append(ordered, ids[p])
		}
		for _, e := range list {
			got = append(got, e.UUID.String())
		}
		if diff := cmp.Diff(ordered, got); diff != "" {
			t.Errorf("GET /v1/dlq%s: %s", query, diff)
		}
	}
}

// Who changes what somebody else has changed since learns when, and may decide anew.
func TestAStaleUpdateOfAnInvestigationIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.stuck(h.worker())
	path := "/v1/dlq/entry/" + task.EntryUUID.String()
	read := want[tasker.Entry](h, http.StatusOK, "GET", path, nil)
	note := func(text string, at time.Time) map[string]any {
		return map[string]any{"resolution_notes": text, "expected_updated_at": at}
	}
	first := want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", path, note("mine", read.UpdatedAt))
	if !first.UpdatedAt.After(read.UpdatedAt) {
		t.Fatalf("updated at %s, before at %s", first.UpdatedAt, read.UpdatedAt)
	}
	before := h.fingerprint()
	p := h.wantError(http.StatusConflict, "CONFLICT", "read it again", "PATCH", path, note("mine, too", read.UpdatedAt))
	if h.fingerprint() != before {
		t.Error("the update that was refused has changed something")
	}
	var details map[string]time.Time
	if err := json.Unmarshal(p.Error.Details, &details); err != nil {
		t.Fatalf("%v in %s", err, p.Error.Details)
	}
	if is, ok := details["updated_at"]; !ok || len(details) != 1 || !is.Equal(first.UpdatedAt) {
		t.Errorf("details %s, want updated_at %s", p.Error.Details, first.UpdatedAt)
	}
	end := map[string]any{
		"resolution_status": "cancelled", "resolution_notes": "seen", "resolved_by": "bob", "expected_updated_at": read.UpdatedAt,
	}
	h.wantError(http.StatusConflict, "CONFLICT", "read it again", "PATCH", path, end)
	end["expected_updated_at"] = details["updated_at"]
	if got := want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", path, end); got.ResolutionStatus != "cancelled" || *got.ResolutionNotes != "seen" {
		t.Errorf("ended as %s: %s", got.ResolutionStatus, *got.ResolutionNotes)
	}
}

func TestTheMarkOfADeadLetteredTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.stuck(h.worker())
	h.createTask(2)
	e := want[tasker.Entry](h, http.StatusOK, "GET", "/v1/dlq/task/"+task.UUID.String(), nil)
	check := func(mark tasker.MarkKind, label tasker.OptionalString) {
		t.Helper()
		list := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?dead_lettered=true", nil).Tasks
		one := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil)
		for _, got := range append(list, one) {
			if got.UUID != task.UUID || !got.DeadLettered || !got.DeadLetteredAt.Equal(e.At) || got.EntryUUID.String() != e.UUID.String() ||
				got.MarkReason != "max_retries_exceeded" || got.Mark != mark || got.MarkLabel != label {
				t.Errorf("%+v, want mark %s, %s", got, mark, label)
			}
		}
		unmarked := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?dead_lettered=false", nil).Tasks
		if len(list) != 1 || len(unmarked) != 1 || unmarked[0].DeadLettered || unmarked[0].Mark != "" {
			t.Errorf("%d tasks are marked, not marked are %+v", len(list), unmarked)
		}
	}
	check("under_investigation", "Under investigation: max retries exceeded")
	h.end(e.UUID.String(), "permanently_failed")
	check("permanently_failed", "Permanently failed: max retries exceeded")
}

// The queue goes on beyond a page, and its filters select.
func TestTheQueueIsPagedAndFiltered(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	var entries []string
	for range 3 {
		entries = append(entries, h.stuck(worker).EntryUUID.String())
	}
	h.Exec(`UPDATE tasker.tasks_dlq SET recovered_at = now() WHERE dlq_entry_uuid = $1::uuid`, entries[0])
	for query, expected := range map[string][]string{
		"limit=2": {entries[1], entries[2]}, "limit=2&offset=2": {entries[0]}, "offset=3": {}, "recovered=true": {entries[0]},
		"recovered=false": {entries[1], entries[2]}, "current_state=error&namespace=shop&name=order&dlq_reason=max_retries_exceeded&limit=1": {entries[1]},
		"current_state=complete": {}, "namespace=none": {}, "name=none": {}, "dlq_reason=manual_dlq": {},
	} {
		got := []string{}
		for _, q := range want[[]tasker.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue?"+query, nil) {
			got = append(got, q.EntryUUID.String())
		}
		if !slices.Equal(got, expected) {
			t.Errorf("%s: %v, want %v", query, got, expected)
		}
	}
}
