package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker/apiv1"
)

// investigations makes five entries, the oldest first: three of tasks that failed
// and two by hand. The second has ended as cancelled, the fourth as
// manually_resolved.
func (h *harness) investigations() []string {
	h.Helper()
	worker := h.worker()
	failed := func() string { return *h.stuck(worker).DLQEntryUUID }
	var ids []string
	ids = append(ids, failed(), failed(), failed())
	for range 2 {
		task := h.createTask(1)
		e := want[apiv1.Entry](h, http.StatusCreated, "POST", "/v1/dlq/task/"+task.TaskUUID, map[string]any{"reason": "odd", "created_by": "ann"})
		ids = append(ids, e.DLQEntryUUID)
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
		list := want[[]apiv1.Entry](h, http.StatusOK, "GET", "/v1/dlq"+query, nil)
		ordered, got := []string{}, []string{}
		for _, p := range positions {
			ordered = append(ordered, ids[p])
		}
		for _, e := range list {
			got = append(got, e.DLQEntryUUID)
		}
		if diff := cmp.Diff(ordered, got); diff != "" {
			t.Errorf("GET /v1/dlq%s: %s", query, diff)
		}
	}
}

// Who changes what somebody else has changed since learns when, and may decide
// anew.
func TestAStaleUpdateOfAnInvestigationIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.stuck(h.worker())
	path := "/v1/dlq/entry/" + *task.DLQEntryUUID
	read := want[apiv1.Entry](h, http.StatusOK, "GET", path, nil)
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

// A mark is what a summary says of a task's investigation.
type mark struct {
	Lettered bool
	At       *time.Time
	Reason   *string
	Entry    *string
	Mark     *string
	Label    *string
}

func markOf(t apiv1.Task) mark {
	return mark{t.DeadLettered, t.DeadLetteredAt, t.DeadLetterReason, t.DLQEntryUUID, t.DeadLetterMark, t.DeadLetterLabel}
}

// marks are those of the tasks that a list has.
func (h *harness) marks(query string) map[string]mark {
	h.Helper()
	out := map[string]mark{}
	for _, t := range want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks"+query, nil).Tasks {
		out[t.TaskUUID] = markOf(t)
	}
	return out
}

func (h *harness) wantMarks(dead, plain string, dies mark) {
	h.Helper()
	all := map[string]mark{dead: dies, plain: {}}
	if diff := cmp.Diff(all, h.marks("")); diff != "" {
		h.Errorf("all: %s", diff)
	}
	marked, others := map[string]mark{}, map[string]mark{plain: {}}
	if dies.Lettered {
		marked[dead] = dies
	} else {
		others[dead] = dies
	}
	if diff := cmp.Diff(marked, h.marks("?dead_lettered=true")); diff != "" {
		h.Errorf("dead_lettered=true: %s", diff)
	}
	if diff := cmp.Diff(others, h.marks("?dead_lettered=false")); diff != "" {
		h.Errorf("dead_lettered=false: %s", diff)
	}
	one := want[apiv1.Task](h, http.StatusOK, "GET", "/v1/tasks/"+dead, nil)
	if diff := cmp.Diff(dies, markOf(one)); diff != "" {
		h.Errorf("the task itself: %s", diff)
	}
}

func TestTheMarkOfADeadLetteredTask(t *testing.T) {
	t.Parallel()
	for status, stays := range map[string]bool{"manually_resolved": false, "permanently_failed": true, "cancelled": false} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.register(chain)
			task := h.stuck(h.worker())
			plain := h.createTask(2).TaskUUID
			e := want[apiv1.Entry](h, http.StatusOK, "GET", "/v1/dlq/task/"+task.TaskUUID, nil)
			marked := mark{true, &e.DLQTimestamp, &e.DLQReason, &e.DLQEntryUUID, new("under_investigation"), new("Under investigation: max retries exceeded")}
			if e.DLQReason != "max_retries_exceeded" {
				t.Errorf("entry %+v", e)
			}
			h.wantMarks(task.TaskUUID, plain, marked)
			h.end(e.DLQEntryUUID, status)
			marked.Mark, marked.Label = new("permanently_failed"), new("Permanently failed: max retries exceeded")
			if !stays {
				marked = mark{}
			}
			h.wantMarks(task.TaskUUID, plain, marked)
		})
	}
}

// The queue goes on beyond a page, and its filters select.
func TestTheQueueIsPagedAndFiltered(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	var entries []string
	for range 3 {
		entries = append(entries, *h.stuck(worker).DLQEntryUUID)
	}
	if _, err := h.Admin().Exec(t.Context(), `UPDATE tasker.tasks_dlq SET recovered_at = now() WHERE dlq_entry_uuid = $1::uuid`, entries[0]); err != nil {
		t.Fatal(err)
	}
	for query, expected := range map[string][]string{
		"limit=2": {entries[1], entries[2]}, "limit=2&offset=2": {entries[0]}, "offset=3": {}, "recovered=true": {entries[0]},
		"recovered=false": {entries[1], entries[2]}, "current_state=error&namespace=shop&name=order&dlq_reason=max_retries_exceeded&limit=1": {entries[1]},
		"current_state=complete": {}, "namespace=none": {}, "name=none": {}, "dlq_reason=manual_dlq": {},
	} {
		got := []string{}
		for _, q := range want[[]apiv1.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue?"+query, nil) {
			got = append(got, q.DLQEntryUUID)
		}
		if !slices.Equal(got, expected) {
			t.Errorf("%s: %v, want %v", query, got, expected)
		}
	}
}
