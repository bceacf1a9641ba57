package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
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
		tasks, entries = append(tasks, task.UUID.String()), append(entries, task.EntryUUID.String())
	}
	h.end(entries[0], "manually_resolved")
	h.Exec(`UPDATE tasker.tasks_dlq SET recovered_at = now() WHERE dlq_entry_uuid = $1::uuid`, entries[1])

	list := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases", nil)
	if len(list.Cases) != 1 || list.HasMore || list.TotalCases != 1 || list.TotalEntries != 3 || list.OldestEntry == nil {
		t.Fatalf("cases %+v", list)
	}
	c := list.Cases[0]
	queue := want[[]tasker.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue", nil)
	if c.Entries != 3 || c.Recovered != 1 || c.EntryUUID.String() != entries[1] || c.Namespace != "shop" || c.TaskName != "order" ||
		c.StepName == "" || c.ErrorPattern == "" || c.Label == "" || c.Severity == "" || c.Reason != "max_retries_exceeded" {
		t.Errorf("case %+v", c)
	}
	for _, q := range queue {
		if q.CaseKey != c.CaseKey.ID || q.StepName != c.StepName || q.ErrorPattern != c.ErrorPattern {
			t.Errorf("the queue says %+v of case %+v", q, c)
		}
	}
	for query, n := range map[string]int{
		"case=" + c.ID.String(): 3, "case_key=" + c.CaseKey.String(): 3, "case_key=" + entries[0]: 0, "text=" + c.StepName: 3, "text=nothing": 0,
		"min_age_minutes=1": 0, "min_age_minutes=0": 3, "recovered=true": 1,
	} {
		if got := want[[]tasker.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue?"+query, nil); len(got) != n {
			t.Errorf("%s: %d investigations, want %d", query, len(got), n)
		}
		if got := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases?"+query, nil); got.TotalEntries != int64(n) || len(got.Cases) != min(n, 1) {
			t.Errorf("%s: cases %+v, want %d entries", query, got, n)
		}
	}
	h.wantError(http.StatusBadRequest, "INVALID", "case_key", "GET", "/v1/cases?case_key=x", nil)
	h.wantError(http.StatusBadRequest, "INVALID", "min_age_minutes", "GET", "/v1/cases?min_age_minutes=-1", nil)

	related := want[tasker.RelatedEntries](h, http.StatusOK, "GET", "/v1/dlq/entry/"+entries[2]+"/related", nil)
	if related.Case.String() != c.ID.String() || related.CaseKey != c.CaseKey.ID || related.Open != 2 || related.More || related.Counts["manually_resolved"] != 1 || len(related.Last) != 1 ||
		related.Last[0].EntryUUID.String() != entries[0] || related.Last[0].TaskUUID.String() != tasks[0] || related.Last[0].By == "" || related.Last[0].Notes == "" {
		t.Errorf("related %+v", related)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "", "GET", "/v1/dlq/entry/"+tasks[0]+"/related", nil)

	var opened, ended int64
	counts := want[[]tasker.EntryCount](h, http.StatusOK, "GET", "/v1/dlq/counts?interval_minutes=30&intervals=3", nil)
	for i, n := range counts {
		opened, ended = opened+n.Opened, ended+n.Ended
		if i > 0 && n.From.Sub(counts[i-1].From) != 30*time.Minute {
			t.Errorf("interval %d begins at %s, the one before at %s", i, n.From, counts[i-1].From)
		}
	}
	if len(counts) != 3 || opened != 4 || ended != 1 || counts[2].Open == nil || *counts[2].Open != 3 {
		t.Errorf("%d intervals, %d opened, %d ended: %+v", len(counts), opened, ended, counts)
	}
	times := want[tasker.ResolutionTimes](h, http.StatusOK, "GET", "/v1/dlq/times?minutes=60", nil)
	if len(times.Times) != 5 || times.Entries != 1 || times.Times[4].Phase != "resolve" || times.Times[4].Cases != 1 || times.Times[4].P50Seconds <= 0 || time.Since(times.Since) < time.Hour {
		t.Errorf("times %+v", times)
	}
	h.wantError(http.StatusBadRequest, "INVALID", "minutes", "GET", "/v1/dlq/times?minutes=0", nil)
}

// A case is worked on as one thing: taken, snoozed, noted, split, merged, and told why it is one.
func TestWorkOnACase(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	for range 3 {
		h.stuck(worker)
	}
	c := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases?unowned=true", nil).Cases[0]
	path := "/v1/cases/" + c.ID.String()
	d := want[tasker.CaseDetail](h, http.StatusOK, "GET", path, nil)
	if d.ID.String() != c.ID.String() || d.Entries != 3 || d.Waiting != 3 || len(d.Samples) != 3 || d.Samples[0].ErrorMessage == "" || len(d.Fingerprints) != 1 ||
		len(d.History) == 0 || d.History[len(d.History)-1].Event != "opened" || len(d.Spread) == 0 {
		t.Errorf("detail %+v", d)
	}
	why := want[tasker.CaseGrouping](h, http.StatusOK, "GET", path+"/why", nil)
	if why.MessagesExamined != 3 || len(why.Parts) != 7 || why.Parts[2].Value != c.StepName {
		t.Errorf("why %+v", why)
	}
	owned := want[tasker.Case](h, http.StatusOK, "PATCH", path, `{"owner":"ann","owned_for_minutes":60,"notes":"mine","actor":"ann","expected_updated_at":"`+c.UpdatedAt.Format(time.RFC3339Nano)+`"}`)
	if owned.Owner != "ann" || owned.State != "ongoing" || owned.OwnedUntil == nil {
		t.Errorf("owned %+v", owned)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "with owner ann", "PATCH", path, `{"owner":"bo","expected_updated_at":"`+c.UpdatedAt.Format(time.RFC3339Nano)+`"}`)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if s := want[tasker.Case](h, http.StatusOK, "PATCH", path, `{"snooze_until":"`+until+`","snooze_above":5}`); s.State != "resting" || s.SnoozedUntil == nil || *s.SnoozeThreshold != 5 {
		t.Errorf("snoozed %+v", s)
	}
	if s := want[tasker.Case](h, http.StatusOK, "PATCH", path, `{"wake":true}`); s.State != "ongoing" || s.SnoozedUntil != nil {
		t.Errorf("woken %+v", s)
	}
	nobody := tasker.NewID().String()
	for _, tt := range []struct {
		status             int
		code, words        string
		method, path, body string
	}{
		{400, "INVALID", "nothing to change", "PATCH", path, `{}`},
		{400, "INVALID", "wake", "PATCH", path, `{"wake":true,"snooze_until":"` + until + `"}`},
		{404, "NOT_FOUND", "not found", "PATCH", "/v1/cases/" + nobody, `{"notes":"x"}`},
		{404, "NOT_FOUND", "not found", "GET", "/v1/cases/" + nobody, ""},
		{404, "NOT_FOUND", "not found", "GET", "/v1/cases/" + nobody + "/why", ""},
		{400, "INVALID", "into", "POST", path + "/merge", `{"into":"x","reason":"r"}`},
		{400, "INVALID", "itself", "POST", path + "/merge", `{"into":"` + c.ID.String() + `","reason":"r"}`},
		{404, "NOT_FOUND", "not found", "POST", path + "/merge", `{"into":"` + nobody + `","reason":"r"}`},
		{409, "CONFLICT", "not merged", "POST", path + "/unmerge", `{"reason":"r"}`},
		{409, "CONFLICT", "there is nothing to split off", "POST", path + "/split", `{"literal":"nowhere","reason":"r"}`},
		{400, "INVALID", "field", "POST", path + "/split", `{"field":"x","literal":"nowhere","reason":"r"}`},
		{400, "INVALID", "resolved cases", "GET", "/v1/cases?case_state=resolved&recovered=true", ""},
	} {
		var body any
		if tt.body != "" {
			body = tt.body
		}
		h.wantError(tt.status, tt.code, tt.words, tt.method, tt.path, body)
	}
	h.Exec(`UPDATE tasker.case_members SET task_version = 'other' WHERE opened_at = (SELECT max(opened_at) FROM tasker.case_members)`)
	if s := want[apiv1.CaseSplit](h, http.StatusAccepted, "POST", path+"/split", `{"field":"task_version","literal":"other","reason":"r","actor":"ann"}`); s.Entries != 1 {
		t.Errorf("split %+v", s)
	}
	list := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases", nil)
	if len(list.Cases) != 2 || list.Unclassified != 0 {
		t.Fatalf("split: %+v", list)
	}
	other := list.Cases[0].ID.String()
	if other == c.ID.String() {
		other = list.Cases[1].ID.String()
	}
	if m := want[tasker.Case](h, http.StatusOK, "POST", "/v1/cases/"+other+"/merge", `{"into":"`+c.ID.String()+`","reason":"one after all"}`); m.ID.String() != c.ID.String() || m.Entries != 3 {
		t.Errorf("merged %+v", m)
	}
	if m := want[tasker.CaseDetail](h, http.StatusOK, "GET", "/v1/cases/"+other, nil); *m.MergedInto != c.ID {
		t.Errorf("merged away %+v", m)
	}
	if m := want[tasker.Case](h, http.StatusOK, "POST", "/v1/cases/"+other+"/unmerge", `{"reason":"two"}`); m.ID.String() != other || m.Entries != 1 {
		t.Errorf("unmerged %+v", m)
	}
	if list := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases?case_state=resolved", nil); len(list.Cases) != 0 {
		t.Errorf("resolved %+v", list)
	}
}

// What a handler says is the same failure is one case, also where the messages differ, and a
// fingerprint that is none is ignored.
func TestTheFingerprintOfAReport(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	for _, e := range []map[string]any{
		{"message": "no route to the bank", "fingerprint": "outage"}, {"message": "the bank is closed", "fingerprint": "outage"},
		{"message": "the bank is closed", "fingerprint": strings.Repeat("x", 1000)}, {"message": "no number", "fingerprint": 7},
	} {
		h.createTask(1)
		step := h.claim(worker, map[string]any{"max": 1})[0]
		e["retryable"] = false
		h.report(worker, map[string]any{"step_uuid": step.StepUUID, "lease_token": step.LeaseToken, "success": false, "error": e})
	}
	counts := map[string]int64{}
	for _, c := range want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases", nil).Cases {
		counts[c.ErrorPattern] = c.Entries
	}
	if len(counts) != 3 || counts["outage"] != 2 || counts[strings.Repeat("x", tasker.MaxFingerprint)] != 1 || counts["no number"] != 1 {
		t.Errorf("cases %v", counts)
	}
}
