package web_test

import (
	"encoding/json"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/web"
)

// A tenant is a namespace with one of each: everything in it has its mark, and payloads
// another one.
type tenant struct {
	mark   string
	secret []string // marks of payloads
	ids    []string
	task   tasker.ID
	entry  tasker.ID
}

// tenant makes a namespace in which so many tasks have failed.
func (h *harness) tenant(mark string, failed int) *tenant {
	h.Helper()
	tn := &tenant{mark: mark, secret: []string{"ctxw" + mark, "resw" + mark, "errw" + mark, "innerw" + mark, "metaw" + mark, "sinkw" + mark}}
	in := *h
	harness := *h.Harness
	in.Harness = &harness
	in.Space = "space-" + mark
	handled := func(name string, after ...string) tasker.StepTemplate {
		s := step(name+"-"+mark, after...)
		s.Handler.Callable = "run-" + mark
		return s
	}
	in.Template("order-"+mark, handled("reserve"), handled("charge", "reserve-"+mark), handled("ship", "charge-"+mark))
	waiting := handled("wait")
	waiting.Handler.Callable = "nobody-" + mark
	in.Template("waiting-"+mark, waiting)
	r, err := h.Engine.RegisterWorker(h.Context(), tasker.WorkerSpec{
		Name: "till-" + mark, Namespaces: []string{in.Space}, Handlers: []string{"run-" + mark}, Version: "v-" + mark, MaxConcurrency: 50,
	})
	h.Must(err)
	create := func(name string) tasker.ID {
		made, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{
			Namespace: in.Space, Name: name, Context: json.RawMessage(`{"note": "ctxw` + mark + `"}`), Tags: []string{"tag-" + mark}, Initiator: "by-" + mark,
		}})
		h.Must(err)
		tn.ids = append(tn.ids, made[0].TaskUUID.String())
		return made[0].TaskUUID
	}
	for range failed {
		tn.task = create("order-" + mark)
	}
	for _, name := range []string{"charge-", "reserve-"} { // fails, succeeds
		list, err := h.Engine.Claim(h.Context(), r.WorkerUUID, 100, 0)
		h.Must(err)
		var outcomes []tasker.Outcome
		for _, a := range list {
			o := tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`"resw` + mark + `"`)}
			if strings.HasPrefix(a.Name, "charge-") {
				o = tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{
					Message: "errw" + mark, Type: "type-" + mark, Context: json.RawMessage(`{"deep": ["innerw` + mark + `"]}`),
				}}
			}
			outcomes = append(outcomes, o)
			tn.ids = append(tn.ids, a.StepUUID.String())
		}
		_, err = h.Engine.Report(h.Context(), r.WorkerUUID, outcomes, 0)
		h.Must(err)
		_ = name
	}
	create("waiting-" + mark)
	stale := create("order-" + mark)
	h.Exec(`UPDATE tasker.tasks SET state_since = now() - interval '66 minutes', warn_at = now() - interval '20 minutes', stale_at = now() - interval '6 minutes' WHERE task_uuid = $1`, stale)
	e := h.Entry(tn.task)
	tn.entry = e.UUID
	note := "note-" + mark
	_, _, err = h.DLQ.Update(h.Context(), e.UUID, tasker.EntryUpdate{
		Notes: &note, Metadata: json.RawMessage(`{"assignee": "kim-` + mark + `", "ticket": "metaw` + mark + `"}`), Actor: "kim-" + mark,
	})
	h.Must(err)
	tn.ids = append(tn.ids, tn.entry.String(), r.WorkerUUID.String())
	return tn
}

// settled has a sink refuse the events of a tenant, with its mark.
func (h *harness) settled(sink string, tn *tenant) {
	h.Helper()
	_, err := h.DB.TakeEvents(h.Context(), sink, 1000)
	h.Must(err)
	h.Exec(`UPDATE tasker.emissions e SET last_error = 'sinkw' || $1, attempts = 1, last_attempt_at = now()
		FROM tasker.tasks t WHERE t.task_uuid = e.task_uuid AND t.namespace = 'space-' || $1`, tn.mark)
	rows, err := h.Admin().Query(h.Context(), `SELECT o.event_uuid FROM tasker.outbox o JOIN tasker.tasks t USING (task_uuid) WHERE t.namespace = 'space-' || $1`, tn.mark)
	h.Must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[tasker.ID])
	h.Must(err)
	for _, id := range ids {
		tn.ids = append(tn.ids, id.String())
	}
}

// operated plans an operation in the namespace of a tenant, and pauses it with a failure.
func (h *harness) operated(tn *tenant) {
	h.Helper()
	h.FindCases()
	o, _, err := operation.New(h.DB, h.Engine, h.DLQ, operation.Options{}).Plan(h.Context(), tasker.OperationPlan{
		Act: tasker.ActComplete, Result: json.RawMessage(`"resw` + tn.mark + `"`), Actor: "kim-" + tn.mark, Reason: "reason-" + tn.mark,
		Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Namespace: "space-" + tn.mark}},
	})
	h.Must(err)
	h.Exec(`UPDATE tasker.operations SET state = 'paused', started_at = now(), started_by = planned_by, paused_for = 'same_cause', paused_by = 'tasker', paused_at = now(),
		paused_details = jsonb_build_object('failures', 2, 'text', 'errw' || $2) WHERE operation_uuid = $1`, o.UUID, tn.mark)
	h.Exec(`UPDATE tasker.operation_items SET failure_text = 'errw' || $2 WHERE operation_uuid = $1`, o.UUID, tn.mark)
	tn.ids = append(tn.ids, o.UUID.String())
	rows, err := h.Admin().Query(h.Context(), `SELECT case_id FROM tasker.cases WHERE namespace = 'space-' || $1`, tn.mark)
	h.Must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[tasker.ID])
	h.Must(err)
	for _, id := range ids {
		tn.ids = append(tn.ids, id.String())
	}
}

var pageLink = regexp.MustCompile(`(?:href|action)="(/ui/[^"#]*)`)

// crawl opens all pages of the route table and those that they lead to, and returns them
// by their paths.
func (h *harness) crawl(tn *tenant) map[string]reply {
	h.Helper()
	start := []string{"/ui/?view=entries", "/ui/?namespace=space-" + tn.mark, "/ui/tasks?state=error", "/ui/tasks?dead_lettered=true", "/ui/staleness?health=stale",
		"/ui/emissions?sink=webhook&state=pending", "/ui/tasks?id=" + tn.task.String(), "/ui/tasks?namespace=space-" + tn.mark}
	for _, rt := range web.Routes() {
		if rt.Method == http.MethodGet && rt.Of == "" && rt.Path != "/events" && !strings.Contains(rt.Path, "{name") && !strings.HasPrefix(rt.Path, "/sign-") {
			start = append(start, web.Root+strings.Replace(rt.Path, "{$}", "", 1))
		}
	}
	pages := map[string]reply{}
	h.follow(start, func(path string, r reply) bool {
		pages[path] = r
		return true
	})
	return pages
}

// follow opens pages and those that they lead to, once each, as long as next wants to go on from
// a page.
func (h *harness) follow(pages []string, next func(path string, r reply) bool) {
	h.Helper()
	seen := map[string]bool{"/ui/sign-out": true}
	for len(pages) > 0 {
		path := html.UnescapeString(pages[0])
		if pages = pages[1:]; seen[path] || strings.HasPrefix(path, "/ui/static/") {
			continue
		}
		seen[path] = true
		r := h.get(path)
		if r.status >= http.StatusInternalServerError || len(seen) > 500 {
			h.Fatalf("%d pages; %s is answered with %d", len(seen), path, r.status)
		}
		if !next(path, r) {
			continue
		}
		for _, link := range pageLink.FindAllStringSubmatch(r.text, -1) {
			pages = append(pages, link[1])
		}
		if to := r.header.Get("Location"); to != "" {
			pages = append(pages, to)
		}
	}
}

// Whoever may do everything in one namespace sees nothing of another, on no page.
func TestNoPageShowsAnotherNamespace(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.Exec(`DELETE FROM tasker.workers`)
	h.sinks("webhook")
	mine, other := h.tenant("aqz", 1), h.tenant("bqz", 3)
	h.settled("webhook", mine)
	h.settled("webhook", other)
	h.operated(mine)
	h.operated(other)
	for _, role := range []string{"viewer", "admin"} {
		b := h.signedIn(role, role+"@space-aqz")
		pages := b.crawl(mine)
		if len(pages) < 25 {
			t.Errorf("%s: %d pages only", role, len(pages))
		}
		shown := map[string]bool{}
		for path, r := range pages {
			for _, text := range append([]string{"bqz"}, other.ids...) {
				if strings.Contains(r.text, text) || strings.Contains(r.header.Get("Location"), text) {
					t.Errorf("%s: %s shows %s", role, path, text)
				}
			}
			for _, text := range append(slices.Clone(mine.secret), mine.ids...) {
				shown[text] = shown[text] || strings.Contains(r.text, text)
			}
			if role == "viewer" && r.status == http.StatusOK && strings.Contains(path, mine.entry.String()) && !strings.Contains(r.text, "Payloads are hidden") {
				t.Errorf("%s does not say that payloads are hidden", path)
			}
		}
		for text, is := range shown {
			if want := !strings.HasPrefix(text, "sinkw") && role != "viewer" || !slices.Contains(mine.secret, text); want && !is {
				t.Errorf("%s: no page shows %s", role, text)
			}
			if role == "viewer" && is && slices.Contains(mine.secret, text) {
				t.Errorf("a viewer sees the payload %s", text)
			}
		}
		b.sees(b.get("/ui/dashboard"), `<div class="big">1</div>open`)
		b.lacks(b.get("/ui/dashboard"), "<h2>Sinks</h2>", "3 steps")
		b.sees(b.get("/ui/"), "1 investigation in 1 case")
		b.sees(b.get("/ui/staleness"), "all <strong>2<")
		b.lacks(b.get("/ui/emissions"), "<h2>Sinks</h2>")
		// A search finds what is shown, and nothing else.
		for text, want := range map[string]bool{"errwaqz": role != "viewer", "order-aqz": true, "order-bqz": false, "errwbqz": false, "kim-bqz": false, other.task.String(): false} {
			if found := strings.Contains(b.get("/ui/?view=entries&text="+text).text, "data-row"); found != want {
				t.Errorf("%s: a search for %s finds something: %v", role, text, found)
			}
		}
	}
}

// A viewer of everything sees every page, and no payload.
func TestAViewerOfEverythingSeesNoPayload(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.Exec(`DELETE FROM tasker.workers`)
	h.sinks("webhook")
	mine := h.tenant("aqz", 2)
	h.settled("webhook", mine)
	h.operated(mine)
	h.Exec(`UPDATE tasker.emission_sinks SET failing_since = now(), last_error = 'sinkwaqz'`)
	viewer, operator := h.signedIn("viewer", "viewer@*"), h.signedIn("operator", "viewer@*", "operator@space-aqz")
	all := ""
	for path, r := range viewer.crawl(mine) {
		all += r.text
		for _, text := range mine.secret {
			if strings.Contains(r.text, text) {
				t.Errorf("%s shows %s", path, text)
			}
		}
	}
	viewer.sees(viewer.get("/ui/emissions"), "<h2>Sinks</h2>", "[hidden]")
	viewer.sees(viewer.get("/ui/dashboard"), "<h2>Sinks</h2>")
	viewer.sees(viewer.get("/ui/tasks/"+mine.task.String()), "charge-aqz failed permanently", "Payloads are hidden")
	viewer.sees(viewer.get("/ui/investigations/"+mine.entry.String()), "Step charge-aqz of space-aqz/order-aqz failed in attempt 1 of 1", "type-aqz", "note-aqz", "assigned to kim-aqz")
	for _, id := range mine.ids {
		if !strings.Contains(all, id) {
			t.Errorf("no page has %s", id)
		}
	}
	everything := ""
	for _, r := range operator.crawl(mine) {
		everything += r.text
	}
	for _, text := range mine.secret {
		if !strings.Contains(everything, text) {
			t.Errorf("an operator sees %s on no page", text)
		}
	}
	if strings.Contains(everything, "Payloads are hidden") {
		t.Error("an operator is told that payloads are hidden")
	}
}
