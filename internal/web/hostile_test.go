package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/browsertest"
)

// hostile is a text that tries to become markup, wherever it is shown.
const hostile = "<script>alert(1)</script>\"><img src=x onerror=alert(1)>{{.}}javascript:alert(1)\u202edcba'--></title></textarea>"

// seesHostile checks that a page shows the hostile text as text, also in a narrow window.
func seesHostile(tab *browsertest.Tab) {
	tab.Helper()
	tab.Eval(`document.querySelectorAll("details").forEach((d) => { d.open = true })`)
	tab.Sees("<script>alert(1)</script>")
	if tab.Has("main script, main img, main [onerror]") || tab.Is(`[...document.querySelectorAll("a")].some((a) => !/^[#/]/.test(a.getAttribute("href")))`) {
		tab.Errorf("%s has an element that a text made", tab.Address())
	}
	if tab.Is(`document.body.innerText.includes("\u202e")`) {
		tab.Errorf("%s turns the direction of text", tab.Address())
	}
	tab.Size(390, 800)
	tab.Fits()
	tab.Size(1280, 900)
}

// What users and workers write is text on every page, and so is what comes back of a refused form.
func TestUserTextIsNeverMarkup(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sinks(hostile, "log")
	doc := fmt.Sprintf(`{%[1]s: %[1]s}`, quoteFailure(hostile))
	h.audit(hostile, hostile, hostile, doc)
	pages := h.hostileCase()
	st := h.hostileTask(doc)
	e := h.hostileEvent(st.entry)
	h.Template("parcel", served("pack", "wrap"))
	h.create("parcel", `{}`)
	h.Exec(`UPDATE tasker.workflow_steps SET namespace = $1, handler = $1 WHERE handler = 'wrap'`, hostile)
	stale := h.watch("parcel", 66)
	h.Exec(`UPDATE tasker.tasks SET namespace = $2, name = $2 WHERE task_uuid = $1`, stale, hostile)
	h.Exec(`UPDATE tasker.workers SET name = $1, version = $1, namespaces = ARRAY[$1, $1], handlers = ARRAY[$1, $1, $1, $1, $1]`, hostile)
	ship, task := st.stepOf(hostile+"ship").UUID.String(), pageOf(st.task)
	pages = append(pages, "/ui/", "/ui/?view=entries", "/ui/operations", "/ui/audit", "/ui/audit?action="+url.QueryEscape(hostile), "/ui/dashboard", "/ui/workers",
		"/ui/workers/"+h.worker.String()+"/drain", "/ui/emissions", "/ui/emissions?state=set_aside&sink="+url.QueryEscape(hostile), e, e+"/re-emit",
		st.page(), st.page()+"/update", st.page()+"/own", "/ui/staleness", "/ui/tasks", task, task+"/cancel", task+"/investigate",
		task+"/steps/"+ship+"/reset", task+"/steps/"+ship+"/resolve", task+"/steps/"+ship+"/complete")
	tab := h.open("/ui/?text=" + url.QueryEscape(hostile))
	if got := tab.Value("input[name=text]"); got != hostile {
		t.Errorf("the filter has %q", got)
	}
	for _, page := range pages {
		tab.Go(h.server.URL + page)
		seesHostile(tab)
	}
	tab.Type("#result", `{"a": 1, "a": 2}`)
	tab.Type("#reason", hostile)
	tab.Type("#actor", "</p><script>alert(1)</script>")
	tab.Follow("main form button")
	tab.Until(`document.querySelector("[role=alert]") !== null`)
	seesHostile(tab)
}

// hostileCase makes a case of hostile failures that somebody owns and repairs, and returns its pages.
func (h *harness) hostileCase() []string {
	h.Helper()
	h.Template("refund", step("pay"))
	h.fail("refund", "pay", hostile, 2)
	path := h.casePath("refund")
	h.post(path+"/own", "seen="+h.caseSeen("refund"), "actor="+hostile, "owner="+hostile, "reason="+hostile)
	h.post(path+"/fixed", "seen="+h.caseSeen("refund"), "actor="+hostile, "fixed_in="+hostile)
	start := h.post(path+"/run", "actor="+hostile, "reason="+hostile, "waves=all", "tolerate=0").url
	if !strings.Contains(start, "/ui/operations/") {
		h.Fatalf("the plan leads to %s", start)
	}
	return []string{path, path + "?why=1", path + "/own", path + "/merge", path + "/run", start, strings.TrimSuffix(start, "/start")}
}

// hostileTask makes a task of which every text is hostile: names are checked when a template is
// registered, and a page must not rely on it.
func (h *harness) hostileTask(doc string) *stuck {
	h.Helper()
	h.foundByCustomer("order", step("charge"), step("ship", "charge"))
	st := &stuck{harness: h, task: h.create("order", doc)}
	h.work(func(tasker.Assignment) error { return errors.New(hostile) })
	e := h.Entry(st.task)
	st.entry, st.step = e.UUID, *e.StepUUID
	notes := hostile
	_, _, err := h.DLQ.Update(h.Context(), st.entry, tasker.EntryUpdate{
		Notes: &notes, Actor: hostile, Metadata: json.RawMessage(fmt.Sprintf(`{"assignee": %s, %s}`, quoteFailure(hostile), doc[1:len(doc)-1])),
	})
	h.Must(err)
	_, err = h.Engine.OperateStep(h.Context(), st.task, st.step, tasker.ActionRequest{
		Action: tasker.CompleteManually, Actor: hostile, Reason: hostile, Result: json.RawMessage(doc),
	})
	h.Must(err)
	h.work(func(tasker.Assignment) error { return errors.New(hostile) })
	for _, sql := range []string{
		`UPDATE tasker.tasks SET namespace = $1, name = $1, version = $1, initiator = $1, source_system = $1, reason = $1, tags = ARRAY[$1, $1],
			correlation_id = $1, parent_correlation_id = $1, idempotency_key = $1 WHERE name = 'order'`,
		`WITH gone AS (DELETE FROM tasker.task_attributes a USING tasker.tasks t WHERE t.task_uuid = a.task_uuid AND t.name = $1)
			INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value)
			SELECT t.task_uuid, $1, w.name, $1 FROM tasker.tasks t, unnest(ARRAY['tag', 'correlation_id', 'initiator', 'source_system', 'customer']) AS w (name) WHERE t.name = $1`,
		`UPDATE tasker.workflow_steps s SET name = $1 || s.name, handler = $1, results = jsonb_build_object($1::text, $1::text)
			FROM tasker.tasks t WHERE t.task_uuid = s.task_uuid AND t.name = $1`,
		`UPDATE tasker.task_history SET actor = $1, reason = $1, detail = jsonb_build_object($1::text, $1::text)`,
		`UPDATE tasker.step_history SET actor = $1, reason = $1`,
	} {
		h.Exec(sql, hostile)
	}
	return st
}

// hostileEvent makes the texts of the event of an investigation hostile, and returns its page.
func (h *harness) hostileEvent(entry tasker.ID) string {
	h.Helper()
	_, err := h.DB.TakeEvents(h.Context(), hostile, 100)
	h.Must(err)
	var id tasker.ID
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT event_uuid FROM tasker.outbox WHERE dlq_entry_uuid = $1 ORDER BY position LIMIT 1`, entry).Scan(&id))
	e, err := h.DB.Event(h.Context(), id)
	h.Must(err)
	h.settle(hostile, e, true, hostile)
	h.Exec(`UPDATE tasker.emission_sinks SET failing_since = now(), last_error = $1`, hostile)
	h.Exec(`UPDATE tasker.outbox SET data = jsonb_build_object($1::text, $1::text)`, hostile)
	return eventPath(e)
}
