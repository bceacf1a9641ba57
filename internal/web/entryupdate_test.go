package web_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

// seen is what a form that was opened now knows of the entry.
func (st *stuck) seen() string {
	st.Helper()
	return st.entryNow().UpdatedAt.UTC().Format(time.RFC3339Nano)
}

func TestAnInvestigationIsUpdated(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	path := st.page() + "/update"
	st.shows(st.get(path), http.StatusOK, "Stays open", "Permanently failed", "The task is marked as permanently failed", "<strong>charge</strong>", `value="`+st.seen(),
		"--notes findings", "--if-unchanged-since "+st.seen())
	st.shows(st.get(path+"?end=1"), http.StatusOK, `value="manually_resolved" checked`, "--status manually_resolved")
	st.shows(st.post(path, "seen="+st.seen(), "actor=ann", "notes=looking at the bank", "assignee=bob"), http.StatusOK,
		"The note was added.", "assigned to bob", "updated</strong> by <bdi>ann", "looking at the bank")
	st.shows(st.post(path, "seen="+st.seen(), "actor=ann", "assignee=carol"), http.StatusOK, "The investigation is assigned to carol.")
	st.shows(st.post(path, "seen="+st.seen(), "actor=ann", "assignee=", "had=carol"), http.StatusOK, "The investigation is unassigned.")
	r := st.post(path, "seen="+st.seen(), "actor=ann", "status=manually_resolved", "notes=it will heal")
	st.shows(r, http.StatusOK, `<p class="note" id="note" role="status">The investigation has ended: manually resolved.</p>`,
		`<p class="note warning" role="alert">Task `+st.task.String()+" is still in error", "repair its steps, or write it off", "by ann", "it will heal")
	if strings.Contains(r.text, "PATCH /v1/tasks/") {
		t.Error("a note of the page names a request of the API")
	}
	r = st.get(path)
	st.shows(r, http.StatusOK, "The investigation has ended. You can still add notes")
	if strings.Contains(r.text, `name="status"`) {
		t.Error("an ended investigation can be ended")
	}
	st.shows(st.post(path, "seen="+st.seen(), "actor=ann", "notes=a word more"), http.StatusOK, "The note was added.", "a word more")
	st.shows(st.post(path, "seen="+st.seen(), "actor=ann", "notes=again", "status=cancelled"), http.StatusConflict, "ended as manually_resolved and cannot be reopened", ">again</textarea>")
}

// Ended in the page although its step has failed again, an investigation is
// followed by another one at once, and the page warns of it.
func TestAnInvestigationThatFailedAgainIsEnded(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	first := st.entryNow()
	st.operateStep(st.task, *first.StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "again"})
	st.work(func(tasker.Assignment) error { return errDeclined })
	r := st.post(st.page()+"/update", "seen="+st.seen(), "actor=ann", "status=manually_resolved", "notes=it will heal")
	next := st.Entry(st.task)
	if next.UUID == first.UUID || next.ResolutionStatus != tasker.EntryPending {
		t.Fatalf("the newest investigation is %s, %s", next.UUID, next.ResolutionStatus)
	}
	st.shows(r, http.StatusOK, `<p class="note warning" role="alert">A step of task `+st.task.String()+" failed while this investigation was open", next.UUID.String(),
		"Since then it failed again at ")
	st.shows(st.get("/ui/investigations/"+next.UUID.String()), http.StatusOK, "Step charge of")
}

func TestUpdateFormReportsInvalidInput(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	path := st.page() + "/update"
	for _, tt := range []struct {
		fields []string
		says   string
	}{
		{[]string{"actor=ann"}, "Nothing would change"},
		{[]string{"notes=x"}, "Your name is missing"},
		{[]string{"actor=ann", "status=manually_resolved"}, "The notes are missing"},
		{[]string{"actor=ann", "status=exploded", "notes=x"}, "resolution_status"},
		{[]string{"actor=ann", "notes=" + strings.Repeat("x", 20_001)}, "20000"},
		{[]string{"actor=ann", "assignee=" + strings.Repeat("x", 256)}, "Invalid assignee"},
		{[]string{"actor=ann", "notes=x", "seen=yesterday"}, "reload the page"},
	} {
		st.shows(st.post(path, append([]string{"seen=" + st.seen()}, tt.fields...)...), http.StatusBadRequest, tt.says)
	}
	if len(st.entryNow().History) != 1 {
		t.Error("something was changed")
	}
}

// A form that was opened before somebody else worked overwrites nothing. What was typed stays, and
// is stored when it is sent again.
func TestAStaleFormShowsWhatChanged(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	path, typed := st.page()+"/update", []string{"actor=ann", "notes=it was the network", "assignee=", "had=", "seen=" + st.seen()}
	st.shows(st.post(st.page()+"/own", "actor=bob"), http.StatusOK, "The investigation is assigned to bob.", "assigned to bob")
	st.shows(st.post(path, "seen="+st.seen(), "actor=bob", "assignee=bob", "notes=the bank's <b>pool</b>"), http.StatusOK)
	r := st.post(path, typed...)
	st.shows(r, http.StatusConflict, "The investigation has changed since you opened this page.", "the bank's <b>pool</b>", `"assignee": "bob"`, ">it was the network</textarea>")
	if n := st.entryNow().ResolutionNotes; n == nil || *n != "the bank's <b>pool</b>" {
		t.Errorf("the notes are %v", n)
	}
	for i, name := range []string{2: "assignee", 3: "had", 4: "seen"} {
		if name != "" {
			typed[i] = name + "=" + html.UnescapeString(valueOf(r, name))
		}
	}
	st.shows(st.post(path, typed...), http.StatusOK, "The note was added.", "assigned to bob") // which nobody has touched
	if n := st.entryNow().ResolutionNotes; n == nil || *n != "it was the network" {
		t.Errorf("the notes are %v", n)
	}
}

// valueOf returns the value of a field of a page.
func valueOf(r reply, name string) string {
	field := regexp.MustCompile(`<input[^>]* name="` + name + `"[^>]*>`).FindString(r.text)
	if value := regexp.MustCompile(` value="([^"]*)"`).FindStringSubmatch(field); value != nil {
		return value[1]
	}
	return ""
}

func parseMember(e tasker.Entry, name string) string {
	_, after, _ := strings.Cut(string(e.Metadata), `"`+name+`": `)
	value, _, _ := strings.Cut(after, "}")
	return value
}

func TestShownCommandsUpdateAnInvestigation(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	for _, tool := range []string{"tasker-ctl", "curl"} {
		st = st.stuckTask()
		run := func(r reply) {
			st.shows(r, http.StatusBadRequest)
			st.call(tool, r)
		}
		const notes = "it's $HOME,\n\"quoted\""
		run(st.post(st.page()+"/update", "seen="+st.seen(), "notes="+notes, "assignee=o'neil"))
		e := st.entryNow()
		if e.ResolutionNotes == nil || *e.ResolutionNotes != notes || e.ResolvedBy != nil || parseMember(e, "assignee") != `"o'neil"` || e.History[1].Actor != "you@example.com" {
			t.Errorf("by %s the investigation is %+v", tool, e)
		}
		run(st.post(st.page()+"/own", "actor="))
		run(st.post(st.page()+"/update", "seen="+st.seen(), "notes=done", "assignee=you@example.com", "status=cancelled"))
		if e = st.entryNow(); e.ResolutionStatus != tasker.EntryCancelled || *e.ResolvedBy != "you@example.com" || parseMember(e, "assignee") != `"you@example.com"` {
			t.Errorf("by %s the investigation is %+v", tool, e)
		}
	}
}
