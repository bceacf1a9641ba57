package web_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
)

func TestTheEvidenceFileIsDownloaded(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	path := st.page() + "/evidence.json"
	if page := st.get(st.page()); !strings.Contains(page.text, `href="`+path+`" download`) {
		t.Error("the page has no link to the file")
	}
	r := st.get(path)
	var f tasker.EvidenceFile
	st.Must(json.Unmarshal([]byte(r.text), &f))
	if want := `attachment; filename="evidence-` + st.entry.String() + `.json"`; r.status != http.StatusOK || r.header.Get("Content-Disposition") != want || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, header %v", r.status, r.header)
	}
	if f.Step == nil || f.Step.StepUUID != st.step || f.Investigation.EntryUUID != st.entry || !strings.Contains(string(f.Input.Context), `12.5`) {
		t.Errorf("file %+v", f)
	}
}

func TestTheReportOfACaseIsDownloaded(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.FindCases()
	var id string
	st.Must(st.Admin().QueryRow(t.Context(), `SELECT case_id::text FROM tasker.cases`).Scan(&id))
	path := "/ui/cases/" + id + "/report.md"
	if page := st.get("/ui/cases/" + id); !strings.Contains(page.text, `href="`+path+`" download`) {
		t.Error("the page has no link to the report")
	}
	r := st.get(path)
	if want := `attachment; filename="report-` + id + `.md"`; r.status != http.StatusOK || r.header.Get("Content-Disposition") != want || r.header.Get("Content-Type") != "text/markdown; charset=utf-8" {
		t.Errorf("status %d, header %v", r.status, r.header)
	}
	if !strings.Contains(r.text, "1 investigation of 1 case: 0 proved") || !strings.Contains(r.text, "card declined by the bank") {
		t.Errorf("report %s", r.text)
	}
}
