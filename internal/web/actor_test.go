package web_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/web"
)

// as returns the stuck task as another browser sees it.
func (st *stuck) as(h *harness) *stuck {
	other := *st
	other.harness = h
	return &other
}

// actors returns who is recorded, by what was done.
func (h *harness) actors() map[string][]string {
	h.Helper()
	rows, err := h.Admin().Query(h.Context(), `
		SELECT 'task ' || event AS what, actor FROM tasker.task_transitions WHERE actor IS NOT NULL
		UNION SELECT 'step ' || event, actor FROM tasker.workflow_step_transitions WHERE actor IS NOT NULL
		UNION SELECT 'investigation ' || event, actor FROM tasker.tasks_dlq_history
		UNION SELECT 'resolved', resolved_by FROM tasker.tasks_dlq WHERE resolved_by IS NOT NULL
		UNION SELECT 'audit ' || action, actor FROM tasker.audit_events
		UNION SELECT 'case ' || event, actor FROM tasker.case_history
		UNION SELECT 'operation', planned_by FROM tasker.operations
		UNION SELECT 'operation', started_by FROM tasker.operations WHERE started_by IS NOT NULL
		UNION SELECT 'assignee', metadata ->> 'assignee' FROM tasker.tasks_dlq WHERE metadata ? 'assignee'`)
	h.Must(err)
	out := map[string][]string{}
	var what, actor string
	_, err = pgx.ForEachRow(rows, []any{&what, &actor}, func() error {
		out[what] = append(out[what], actor)
		return nil
	})
	h.Must(err)
	return out
}

// Whatever a form or a cookie says, what is recorded is who has signed in.
func TestAnActorCannotBeForged(t *testing.T) {
	t.Parallel()
	st := newStuck(t, asking)
	st.sinks("webhook")
	_, err := st.DB.TakeEvents(t.Context(), "webhook", 100)
	st.Must(err)
	st = st.as(st.signedIn("ann", "operator@shop"))
	u, err := url.Parse(st.server.URL + "/ui/")
	st.Must(err)
	st.client.Jar.SetCookies(u, []*http.Cookie{{Name: "tasker_actor", Value: "bWFsbG9yeQ", Path: "/ui"}})

	const forged = "actor=key:mallory" // looks like a subject
	for _, path := range []string{st.action("reset"), st.page() + "/update", "/ui/tasks/" + st.task.String() + "/cancel"} {
		r := st.get(path)
		st.sees(r, "Recorded with the name <bdi>key:ann</bdi>.")
		st.lacks(r, `name="actor"`, "mallory")
	}
	st.lacks(st.get(st.page()), `name="actor"`, "mallory")
	named := st.post("/ui/name", "name=mallory")
	st.leads(named, "/ui/")
	if cookies := named.header.Values("Set-Cookie"); len(cookies) > 0 {
		t.Errorf("the browser keeps another name: %q", cookies)
	}
	aCase := st.casePath("order")
	st.leads(st.post(aCase+"/own", forged, "seen="+st.caseSeen("order")), aCase)
	if owner := st.theCase("order").Owner; owner != "key:ann" {
		t.Errorf("the case is owned by %q", owner)
	}
	st.leads(st.post(aCase+"/note", forged, "seen="+st.caseSeen("order"), "reason=x"), aCase)
	op := st.post(aCase+"/run", forged, "reason=again", "waves=1", "tolerate=2%", "planned_by=key:mallory").header.Get("Location")
	digest := regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(st.get(op).text)
	st.leads(st.post(op, forged, "seen=planned", "digest="+digest[1]), strings.TrimSuffix(op, "/start"))
	st.leads(st.post(strings.TrimSuffix(op, "/start")+"/abort", forged, "seen=running"), strings.TrimSuffix(op, "/start"))
	st.leads(st.post(st.page()+"/own", forged), st.page())
	st.leads(st.post(st.action("reset"), forged, "reason=again", "reset_by=key:mallory", "entry="+st.entry.String()), st.page())
	st.leads(st.post(st.page()+"/update", forged, "seen="+st.seen(), "assignee=key:ann", "had=key:ann", "status=manually_resolved", "notes=fine", "resolved_by=key:mallory"), st.page())
	st.leads(st.post("/ui/tasks/"+st.task.String()+"/investigate", forged, "reason=look"), entryOfTask(st.harness, st.task))
	st.leads(st.post("/ui/workers/"+st.worker.String()+"/drain", forged), "/ui/workers")
	st.leads(st.post("/ui/tasks/"+st.task.String()+"/cancel", forged, "reason=enough"), "/ui/tasks/"+st.task.String())
	event := "/ui/emissions/" + st.firstEvent().String()
	st.leads(st.sendAgain(event+"/re-emit", "key:mallory", "lost", "webhook"), event)

	got := st.actors()
	for _, what := range []string{
		"task cancel", "step cancel", "step reset_for_retry", "investigation updated", "investigation created", "resolved", "assignee", "audit dlq.re_emit", "audit worker.drained",
		"case owned", "case noted", "operation", "audit operation.started", "audit operation.aborted", "audit case.owned",
	} {
		if !slices.Contains(got[what], "key:ann") {
			t.Errorf("%s: recorded as done by %q", what, got[what])
		}
	}
	for what, actors := range got {
		if slices.ContainsFunc(actors, func(a string) bool { return strings.Contains(a, "mallory") }) {
			t.Errorf("%s: recorded as done by %q", what, actors)
		}
	}
}

// entryOfTask is the page of the newest investigation of a task.
func entryOfTask(h *harness, task tasker.ID) string {
	h.Helper()
	e := h.Entry(task)
	return "/ui/investigations/" + e.UUID.String()
}

// What a page says to type in a terminal is done by whoever has the key.
func TestShownCommandsActAsTheKey(t *testing.T) {
	t.Parallel()
	st := newStuck(t, asking)
	token := st.key("ann", "operator@shop")
	b := st.browser()
	b.leads(b.post("/ui/sign-in", "key="+token), "/ui/")
	for _, path := range []func() string{
		func() string { return st.page() + "/own" }, func() string { return st.casePath("order") + "/own" }, func() string { return st.casePath("order") + "/run" },
		func() string { return "/ui/operations/" + st.newestOperation().UUID.String() + "/start" },
		func() string { st = st.stuckTask(); return st.action("complete") }, func() string { return st.page() + "/update?end=1" }, func() string { return pageOf(st.task) + "/cancel" },
		func() string { return "/ui/workers/" + st.worker.String() + "/drain" },
	} {
		page := path()
		r := b.get(page)
		b.sees(r, "curl -H &#34;Authorization: Bearer $TASKER_TOKEN&#34; ")
		b.lacks(r, token)
		cli, curl := b.callsWith(r, "TASKER_TOKEN="+token)
		for _, word := range cli {
			if strings.Contains(word, "-by") || strings.Contains(word, "key:ann") && page != st.page()+"/own" || word == "actor=key:ann" {
				t.Errorf("tasker-ctl is told who acts: %q", cli)
			}
		}
		if i := slices.Index(curl, "-H"); i < 0 || curl[i+1] != "Authorization: Bearer "+token {
			t.Fatalf("curl %q has no key", curl)
		}
		st.curl(curl)
	}
	for what, actors := range st.actors() {
		if slices.ContainsFunc(actors, func(a string) bool {
			return a != "key:ann" && a != "test" && a != "system" && !strings.HasPrefix(a, "tasker")
		}) {
			t.Errorf("%s: recorded as done by %q", what, actors)
		}
	}
}

// Who may not change anything is offered nothing, and who may is offered it where the
// page is not read-only.
func TestPagesOfferOnlyAllowedActions(t *testing.T) {
	t.Parallel()
	for _, readOnly := range []bool{false, true} {
		st := newStuck(t, asking, func(o *web.Options) { o.ReadOnly = readOnly })
		event := "/ui/emissions/" + st.firstEvent().String()
		task := "/ui/tasks/" + st.task.String()
		second := st.create("order", `{}`)
		st.FindCases()
		aCase, planned := st.casePath("order"), "/ui/operations/"+st.planned("order").String()
		actions := map[string][]string{ // by page: the links of its actions
			task:                               {task + "/cancel", st.action("reset"), st.action("resolve"), st.action("complete")},
			"/ui/tasks/" + second.String():     {"/ui/tasks/" + second.String() + "/investigate", "/ui/tasks/" + second.String() + "/cancel"},
			st.page():                          {st.page() + "/update", st.page() + "/own", st.action("reset")},
			aCase:                              {aCase + "/own", aCase + "/note", aCase + "/split", aCase + "/run"},
			planned:                            {planned + "/start", planned + "/abort"},
			"/ui/workers":                      {"/ui/workers/" + st.worker.String() + "/drain"},
			event:                              {event + "/re-emit"},
			"/ui/":                             {"/ui/tasks", "/ui/operations", "/ui/staleness", "/ui/dashboard", "/ui/workers", "/ui/emissions"},
			"/ui/tasks?state=steps_in_process": {},
		}
		for name, may := range map[string]func(link string) bool{
			"viewer":    func(link string) bool { return !strings.Contains(link[4:], "-") },
			"operator":  func(string) bool { return true },
			"developer": func(link string) bool { return !strings.Contains(link[4:], "-") || strings.HasSuffix(link, "/cancel") },
			"worker":    nil,
		} {
			b := st.signedIn(name, name+"@shop")
			for page, links := range actions {
				r := b.get(page)
				if may == nil {
					b.refused(r, http.StatusForbidden, "needs permission")
				}
				for _, link := range links {
					acts := strings.Contains(link[4:], "-")
					want := may != nil && may(link) && (!acts || !readOnly)
					if got := strings.Contains(r.text, `"`+link+`"`) || strings.Contains(r.text, `"`+link+`?`); got != want {
						t.Errorf("%s, read-only %v: %s offers %s: %v, want %v", name, readOnly, page, link, got, want)
					}
				}
			}
			b.lacks(b.get("/ui/emissions"), "/ui/audit")
		}
		admin := st.signedIn("root", "admin@*")
		admin.sees(admin.get("/ui/emissions"), "/ui/audit")
	}
}
