package api_test

import (
	"net/http"
	"testing"
	"time"

	"tasker.example/tasker/apiv1"
)

// Cases, related investigations and counts over time say what the pages say.
func TestCasesRelatedInvestigationsAndCounts(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	var entries, tasks []string
	for range 4 {
		task := h.stuck(worker)
		tasks, entries = append(tasks, task.TaskUUID), append(entries, *task.DLQEntryUUID)
	}
	h.end(entries[0], "manually_resolved")
	h.Exec(`UPDATE tasker.tasks_dlq SET recovered_at = now() WHERE dlq_entry_uuid = $1::uuid`, entries[1])

	list := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases", nil)
	if len(list.Cases) != 1 || list.HasMore || list.TotalCases != 1 || list.TotalEntries != 3 || list.OldestEntry == nil {
		t.Fatalf("cases %+v", list)
	}
	c := list.Cases[0]
	queue := want[[]apiv1.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue", nil)
	if c.Entries != 3 || c.Recovered != 1 || c.DLQEntryUUID != entries[1] || c.NamespaceName != "shop" || c.TaskName != "order" ||
		c.StepName == "" || c.ErrorPattern == "" || c.Label == "" || c.Severity == "" || c.DLQReason != "max_retries_exceeded" {
		t.Errorf("case %+v", c)
	}
	for _, q := range queue {
		if q.CaseKey != c.CaseKey || q.StepName != c.StepName || q.ErrorPattern != c.ErrorPattern {
			t.Errorf("the queue says %+v of case %+v", q, c)
		}
	}
	for query, n := range map[string]int{
		"case_key=" + c.CaseKey: 3, "case_key=" + entries[0]: 0, "text=" + c.StepName: 3, "text=nothing": 0, "text=" + tasks[2]: 1,
		"min_age_minutes=1": 0, "min_age_minutes=0": 3, "recovered=true": 1,
	} {
		if got := want[[]apiv1.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue?"+query, nil); len(got) != n {
			t.Errorf("%s: %d investigations, want %d", query, len(got), n)
		}
		if got := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases?"+query, nil); got.TotalEntries != int64(n) || len(got.Cases) != min(n, 1) {
			t.Errorf("%s: cases %+v, want %d entries", query, got, n)
		}
	}
	h.wantError(http.StatusBadRequest, "INVALID", "case_key", "GET", "/v1/cases?case_key=x", nil)
	h.wantError(http.StatusBadRequest, "INVALID", "min_age_minutes", "GET", "/v1/cases?min_age_minutes=-1", nil)

	related := want[apiv1.RelatedEntries](h, http.StatusOK, "GET", "/v1/dlq/entry/"+entries[2]+"/related", nil)
	if related.CaseKey != c.CaseKey || related.Open != 2 || related.OpenHasMore || related.Ended["manually_resolved"] != 1 || len(related.Last) != 1 ||
		related.Last[0].DLQEntryUUID != entries[0] || related.Last[0].TaskUUID != tasks[0] || related.Last[0].ResolvedBy == "" || related.Last[0].ResolutionNotes == "" {
		t.Errorf("related %+v", related)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "", "GET", "/v1/dlq/entry/"+tasks[0]+"/related", nil)

	var opened, ended int64
	counts := want[[]apiv1.EntryCount](h, http.StatusOK, "GET", "/v1/dlq/counts?interval_minutes=30&intervals=3", nil)
	for i, n := range counts {
		opened, ended = opened+n.Opened, ended+n.Ended
		if i > 0 && n.From.Sub(counts[i-1].From) != 30*time.Minute {
			t.Errorf("interval %d begins at %s, the one before at %s", i, n.From, counts[i-1].From)
		}
	}
	if len(counts) != 3 || opened != 4 || ended != 1 {
		t.Errorf("%d intervals, %d opened, %d ended: %+v", len(counts), opened, ended, counts)
	}
}
