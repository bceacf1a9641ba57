package web_test

import (
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/web"
)

// caseOf returns the case of a template, which has one.
func (h *harness) caseOf(template string) tasker.ID {
	h.Helper()
	return h.theCase(template).ID
}

func (h *harness) theCase(template string) tasker.Case {
	h.Helper()
	h.FindCases()
	var id tasker.ID
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT case_id FROM tasker.cases WHERE namespace = $1 AND task_name = $2 ORDER BY first_seen_at, case_id LIMIT 1`,
		enginetest.Namespace, template).Scan(&id))
	c, err := h.DB.Case(h.Context(), id)
	h.Must(err)
	return c
}

func (h *harness) casePath(template string) string { return "/ui/cases/" + h.caseOf(template).String() }

func (*harness) caseURL(id tasker.ID) string { return "/ui/cases/" + id.String() }

// caseSeen is what a form of the case sends as what it has seen.
func (h *harness) caseSeen(template string) string {
	return h.theCase(template).UpdatedAt.UTC().Format(time.RFC3339Nano)
}

func TestACaseShowsWhatIsKnown(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("refund", step("charge"))
	tasks := h.fail("order", "charge", "HTTP 503 for order @", 4)
	h.fail("refund", "charge", "HTTP 503 for order @", 2)
	h.FindCases()
	ended := h.Entry(tasks[0])
	h.update(ended.UUID, tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("the bank was <b>away</b>"), ResolvedBy: new("kim"), Actor: "kim"})
	path := h.casePath("order")
	other := h.Entry(tasks[1])
	h.shows(h.get("/ui/investigations/"+other.UUID.String()), http.StatusOK, `Previous outcomes: <span class="chip`)
	last := h.Entry(tasks[3])
	r := h.get(path)
	h.shows(r, http.StatusOK, `<span class="many">3</span> <bdi>shop/order › charge`, `>new</span>`, "unowned", "HTTP 503 for order 0", "2 similar failures since <time",
		"3 waiting<", "Differences between investigations", "<dt>worker name</dt><dd><bdi>test</bdi> × 3</dd>", "/ui/investigations/"+last.UUID.String(),
		"Same error in other cases", "<bdi>shop/refund › charge</bdi></a>: 2 open", "1 cancelled", "the bank was <b>away</b>", "opened</strong> by <bdi>tasker",
		"Why these are grouped", "HTTP 503 for order <id>", "/ui/?view=entries&case="+h.caseOf("order").String())
	h.lacks(r, "Ignored in the newest")
	h.shows(h.get(path+"?why=1"), http.StatusOK, "Ignored in the newest 3 messages:", "<code><id></code>")
	h.shows(h.get("/ui/?view=entries&case="+h.caseOf("order").String()), http.StatusOK, "3 investigations on this page", `Case: <a href="`+path)
	h.shows(h.get("/ui/"), http.StatusOK, `<a href="`+path+`"><bdi>shop/order › charge`)
	for path, status := range map[string]int{"/ui/cases/x": 404, "/ui/cases/" + newID().String(): 404, path + "/explode": 404} {
		if r := h.get(path); r.status != status {
			t.Errorf("%s is answered with %d, want %d", path, r.status, status)
		}
	}
}

func TestWorkOnACaseOnItsPage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("refund", step("pay"))
	tasks := h.fail("order", "charge", "declined for @", 3)
	h.fail("refund", "pay", "closed", 1)
	path := h.casePath("order")
	do := func(word string, fields ...string) reply {
		t.Helper()
		return h.post(path+"/"+word, append([]string{"seen=" + h.caseSeen("order"), "actor=ann"}, fields...)...)
	}
	h.shows(do("own", "for=2h", "reason=asking <i>the bank</i>"), http.StatusOK, "The case is owned by ann.", "owned by <bdi>ann</bdi>", "asking <i>the bank</i>", `>ongoing</span>`, ">Release<")
	h.shows(do("own", "for=8h", "owner=bob"), http.StatusOK, "The case is owned by bob.")
	h.shows(do("release"), http.StatusOK, "The case is unowned.", "unowned")
	h.shows(do("release"), http.StatusConflict, "The case has no owner.")
	h.shows(do("snooze", "for=1h", "above=500"), http.StatusOK, "The case is snoozed.", ">snoozed</span>", "or when more than 500 are open")
	h.shows(do("wake"), http.StatusOK, "The case is not snoozed any more.", ">ongoing</span>")
	h.shows(do("wake"), http.StatusConflict, "The case is not snoozed.")
	h.shows(do("note", "reason=the provider <b>confirmed</b> it"), http.StatusOK, "The note was added.", "the provider <b>confirmed</b> it")
	h.shows(do("fixed", "fixed_in=1.6.0"), http.StatusOK, "The case is fixed in 1.6.0.", "fixed in 1.6.0</span>")
	h.shows(do("fixed", "fixed_in="), http.StatusOK, "The fixed version was removed.")

	other := h.caseOf("refund")
	r := do("merge", "into="+h.server.URL+"/ui/cases/"+other.String(), "reason=one outage")
	h.shows(r, http.StatusOK, "The cases were merged.", `<span class="many">4</span>`)
	h.at(r, "/ui/cases/"+other.String())
	r = h.get(path)
	h.shows(r, http.StatusOK, "Merged into <a href=\"/ui/cases/"+other.String(), "Undo merge…")
	h.lacks(r, "Take it", "Snooze")
	h.shows(do("own", "for=1h"), http.StatusConflict, "merged into another case: change that one")
	h.shows(do("unmerge", "reason=two after all"), http.StatusOK, "The merge was undone.", `<span class="many">3</span>`)

	h.shows(do("split", "field=worker_version", "literal=9.9", "reason=x"), http.StatusConflict, "there is nothing to split off", `value="9.9"`)
	h.shows(do("split", "field=error_message", "literal="+tasks[0].String(), "reason=another bug"), http.StatusOK, "1 investigation will move", "another bug")
	h.shows(h.get("/ui/?template=order"), http.StatusOK, "3 investigations in 2 cases")
}

// What is wrong is said above the form, which has all that was typed.
func TestCaseFormReportsInvalidInput(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(2)
	path := h.casePath("order")
	seen := "seen=" + h.caseSeen("order")
	for _, tt := range []struct {
		word   string
		fields []string
		status int
		says   []string
	}{
		{"own", []string{seen, "reason=kept"}, 400, []string{"Your name is missing", ">kept</textarea>"}},
		{"own", []string{"actor=ann", "reason=kept"}, 400, []string{"no state of the case", ">kept</textarea>"}},
		{"own", []string{seen, "actor=ann", "for=long", "owner=bob"}, 400, []string{`Invalid time "long"`, `value="bob"`, `value="long"`}},
		{"own", []string{seen, "actor=ann", "for=200h"}, 400, []string{"must be at most 168h"}},
		{"own", []string{seen, "actor=ann", "for=-1h"}, 400, []string{"Invalid time"}},
		{"own", []string{seen, "actor=ann", "owner=a\nb"}, 400, []string{"Invalid owner"}},
		{"snooze", []string{seen, "actor=ann", "for=1h", "above=many", "reason=kept"}, 400, []string{"Invalid number of investigations", `value="many"`, ">kept</textarea>"}},
		{"snooze", []string{seen, "actor=ann", "for=1000h"}, 400, []string{"can be snoozed for"}},
		{"note", []string{seen, "actor=ann"}, 400, []string{"The note is missing"}},
		{"note", []string{seen, "actor=ann", "reason=" + strings.Repeat("x", 10_001)}, 400, []string{"the limit is 10000"}},
		{"fixed", []string{seen, "actor=ann"}, 400, []string{"The version is missing"}},
		{"merge", []string{seen, "actor=ann", "into=<b>", "reason=kept"}, 400, []string{"Invalid case", `value="<b>"`, ">kept</textarea>"}},
		{"merge", []string{seen, "actor=ann", "into=" + newID().String(), "reason=kept"}, 400, []string{"to merge into not found", ">kept</textarea>"}},
		{"merge", []string{seen, "actor=ann", "into=" + h.caseOf("order").String(), "reason=kept"}, 400, []string{"cannot be merged into itself"}},
		{"merge", []string{seen, "actor=ann", "into=" + newID().String()}, 400, []string{"Reason is missing"}},
		{"split", []string{seen, "actor=ann", "literal=kept too", "reason=kept"}, 409, []string{"there is nothing to split off", `value="kept too"`, ">kept</textarea>"}},
		{"split", []string{seen, "actor=ann", "literal=declined", "reason=kept"}, 409, []string{"would leave the case empty"}},
		{"split", []string{seen, "actor=ann", "literal=x", "reason=x", "field=odd"}, 400, []string{"Invalid field"}},
	} {
		h.Exec(`SELECT 1`)
		r := h.post(path+"/"+tt.word, append([]string{"actor="}, tt.fields...)...)
		h.shows(r, tt.status, append(tt.says, `role="alert"`)...)
	}
	if c := h.theCase("order"); c.Owner != "" || c.SnoozedUntil != nil || c.FixedIn != "" {
		t.Errorf("the case has changed: %+v", c)
	}
}

// Of two people at once the second reads what the first did, and may send again.
func TestStaleCaseFormIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(2)
	path, seen := h.casePath("order"), "seen="+h.caseSeen("order")
	h.shows(h.post(path+"/own", seen, "actor=bob", "reason=mine"), http.StatusOK, "The case is owned by bob.")
	for _, word := range []string{"own", "note", "merge"} {
		r := h.post(path+"/"+word, seen, "actor=ann", "reason=typed", "into="+newID().String())
		h.shows(r, http.StatusConflict, "The case has changed since you opened this page", "Changes since you opened this page", "owned</strong> by <bdi>bob", "mine", ">typed</textarea>",
			`name="seen" value="`+h.caseSeen("order")+`"`)
	}
	h.shows(h.post(path+"/own", "seen="+h.caseSeen("order"), "actor=ann", "reason=typed"), http.StatusOK, "The case is owned by ann.")
}

// What a page says to type in a terminal does the same as the form.
func TestShownCommandsChangeACase(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for i, tool := range []string{"tasker-ctl", "curl"} {
		order, refund := "order-"+tool, "refund-"+tool
		h.Template(order, step("charge"))
		h.Template(refund, step("pay"))
		h.fail(order, "charge", "declined", 2)
		h.fail(refund, "pay", "closed", 1)
		path := h.casePath(order)
		for _, word := range []string{"own", "note", "snooze", "wake", "release", "fixed", "merge", "unmerge", "run"} {
			query := map[string]string{"merge": "?into=" + h.caseOf(refund).String()}[word]
			h.call(tool, h.get(path+"/"+word+query))
		}
		d, err := h.DB.CaseDetail(t.Context(), h.caseOf(order))
		h.Must(err)
		var events []string
		for _, c := range slices.Backward(d.History) {
			if c.Actor == "you@example.com" && c.Event != "state_changed" {
				events = append(events, c.Event)
			}
		}
		if want := []string{"owned", "noted", "snoozed", "woken", "released", "fixed_in", "merged", "unmerged"}; !slices.Equal(events, want) {
			t.Errorf("by %s: %q, want %q", tool, events, want)
		}
		list, _, err := h.DB.Operations(t.Context(), tasker.OperationFilter{Limit: 10})
		h.Must(err)
		if len(list) != i+1 || list[0].Items != 2 || list[0].Reason != "why" || list[0].PlannedBy != "you@example.com" {
			t.Errorf("by %s: planned %+v", tool, list)
		}
	}
}

// A case does not tell of others that the caller may not see, nor without payloads:read of messages.
func TestACaseShowsWhatTheCallerMaySee(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.Template("order", step("charge"))
	h.fail("order", "charge", "the secret is out", 2)
	bank := *h
	inner := *h.Harness
	bank.Harness = &inner
	bank.Space = "bank"
	bank.Template("transfer", step("charge"))
	_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "bank", Name: "transfer"}})
	h.Must(err)
	bank.worker = bank.RegisterWorker("run")
	bank.work(func(tasker.Assignment) error { return errorText("the secret is out") })
	path := h.casePath("order")
	one, two, viewer := h.signedIn("one", "operator@shop"), h.signedIn("two", "operator@*"), h.signedIn("viewer", "viewer@*")
	one.sees(one.get(path), "the secret is out")
	one.lacks(one.get(path), "bank/transfer")
	two.sees(two.get(path), "bank/transfer › charge")
	for _, page := range []string{path, path + "?why=1", "/ui/", "/ui/?view=entries"} {
		r := viewer.get(page)
		viewer.sees(r, "Payloads are hidden", "shop/order")
		viewer.lacks(r, "the secret is out", "[hidden]")
	}
}

// The page of a case says what `tasker-ctl case changes` says.
func TestACaseShowsWhatChanged(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Exec(`UPDATE tasker.workers SET version = '1.5.0', max_concurrency = 200`)
	h.Template("order", step("charge"), step("ship", "charge"))
	h.Template("refund", step("pay"))
	for range 40 {
		h.create("order", `{}`)
	}
	h.work(func(tasker.Assignment) error { return nil })
	h.Exec(`UPDATE tasker.workers SET version = '1.5.1', name = 'till'`)
	h.Exec(`INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease, last_heartbeat_at)
		SELECT gen_random_uuid(), 'before', namespaces, handlers, '1.5.0', 200, heartbeat_interval, lease, now() FROM tasker.workers`)
	h.Exec(`UPDATE tasker.workflow_steps SET worker_uuid = (SELECT worker_uuid FROM tasker.workers WHERE name = 'before')`)
	tasks := h.fail("order", "charge", "HTTP 503 for order @", 40)
	alone := h.fail("refund", "pay", "closed", 1)[0]
	h.Exec(`UPDATE tasker.tasks SET ends_at = now() + interval '42 minutes', stale_at = NULL, warn_at = NULL WHERE task_uuid = $1`, tasks[7])
	path := h.casePath("order") + "?changes=1" // however slow this machine is now
	h.shows(h.get(path), http.StatusOK, "Changes before the case, impact and deadline", "40 failures compared with 40 successes before the first failure",
		`<td data-label="Property">worker version</td><td data-label="Value"><bdi>1.5.1</bdi></td><td data-label="Failures">40 of 40 (100 %)</td>`,
		`<td data-label="Successes">0 of 40 (0 %)</td>`, "by <bdi>before</bdi> 1.5.0, template 1.0.0", "<dt>Blocked tasks</dt><dd>40</dd>", "<dt>Blocked steps</dt><dd>40</dd>",
		`</time> of <a class="mono" href="/ui/tasks/`+tasks[7].String(), "<dt>Started at the same time</dt><dd><a href=\"/ui/cases/"+h.caseOf("refund").String())
	h.Eventually("the page says it without being asked", func() bool { return strings.Contains(h.get(h.casePath("order")).text, "40 failures compared") })
	h.shows(h.get(h.casePath("refund")+"?changes=1"), http.StatusOK, "No significant difference: 1 failure compared with 0 successes", "none in 1 task")
	tab := h.open(path)
	tab.Sees("Changes before the case, impact and deadline")
	looksGood(tab)
	e := h.Entry(alone)
	h.update(e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("x"), ResolvedBy: new("kim"), Actor: "kim"})
	h.lacks(h.get(h.casePath("refund")+"?changes=1"), "Changes before the case")
}

// While the database is slow the page of a case is there without what changed, and has a link that waits.
func TestCasePageDoesNotWaitForChanges(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *web.Options) { o.Timeout, o.PartTimeout = 4*time.Second, 0 }) // less than a lock is waited for
	h.declined(2)
	path := h.casePath("order")
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE tasker.task_templates`) // which only that reads
	h.Must(err)
	h.shows(h.get(path), http.StatusOK, `<a href="`+path+`?changes=1#changed">Show changes, impact and deadline</a>`, "Newest investigations")
	h.shows(h.get(path+"?changes=1"), http.StatusServiceUnavailable, "The database did not answer")
	h.Must(tx.Rollback(t.Context()))
	h.Eventually("the page has no link any more", func() bool { return !strings.Contains(h.get(path).text, "?changes=1") })
}

// The text by which a case was split is part of a message: who may not read messages does not read
// it in the history, neither on the page nor by the API and tasker-ctl.
func TestSplitTextNeedsPayloadPermission(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.Template("order", step("charge"))
	tasks := h.fail("order", "charge", "the secret of @", 2)
	of := h.caseOf("order")
	_, err := h.Cases.Split(t.Context(), of, tasker.CaseSplit{Field: "error_message", Literal: tasks[0].String(), Actor: "ann", Reason: "two bugs"})
	h.Must(err)
	h.Exec(`INSERT INTO tasker.case_history (case_id, event, actor, metadata) VALUES ($1, 'split', 'ann', '{"field": "task_version", "literal": "9.9.9"}')`, of)
	literal := `"literal": "` + tasks[0].String() + `"`
	for _, who := range []struct {
		role  string
		reads bool
	}{{"viewer", false}, {"operator", true}} {
		r := h.signedIn(who.role, who.role+"@shop").get(h.caseURL(of))
		said, token := "", h.key(who.role+"-api", who.role+"@shop")
		for _, format := range []string{"table", "json"} {
			said += h.says([]string{"TASKER_URL=" + h.server.URL, "TASKER_TOKEN=" + token}, "case", "show", of.String(), "-o", format)
		}
		for place, text := range map[string]string{"page": html.UnescapeString(r.text), "tasker-ctl": said} {
			if shown := strings.Contains(text, literal) || strings.Contains(text, strings.ReplaceAll(literal, ": ", ":")); shown != who.reads {
				t.Errorf("%s on the %s: the text is shown: %v\n%s", who.role, place, shown, text)
			}
			if !strings.Contains(text, "9.9.9") || !strings.Contains(text, "two bugs") {
				t.Errorf("%s on the %s: what is no payload is missing\n%s", who.role, place, text)
			}
		}
	}
}

type errorText string

func (e errorText) Error() string { return string(e) }

// From the list to a case that is taken, by keys alone, on pages that fit a narrow window.
func TestACaseIsTakenByKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("refund", step("pay"))
	h.fail("order", "charge", "HTTP 503 for order @", 3)
	h.fail("refund", "pay", "closed", 1)
	tab := h.open("/ui/")
	tab.Size(390, 844)
	tab.Sees("4 investigations in 2 cases")
	tab.Keys("j")
	tab.Until(`document.activeElement.closest("[data-row]") === document.querySelector("[data-row]")`)
	tab.KeysAway("\r")
	tab.Sees("2 similar failures since")
	tab.Fits()
	tab.KeysAway("o")
	tab.Sees("Your name is missing")
	reach(tab, "main input[name=actor]")
	tab.Keys("ann")
	tab.KeysAway("\r")
	tab.Sees("The case is owned by ann.")
	tab.Sees("owned by ann")
	tab.Fits()
	tab.KeysAway("l")
	tab.Sees("Unsnooze when open investigations exceed")
	tab.Fits()
	tab.Accessible()
	tab.KeysAway("\r")
	tab.Sees("The case is snoozed.")
	tab.KeysAway("l")
	tab.Sees("The case returns to its place in the list.")
}

// Of a case in which more have ended than are counted, the pages say which are.
func TestEndedInvestigationsAreCountedUpToALimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cancelled int64
		want      string
	}{{2, ""}, {3, "Of the newest 1,000 resolved: "}} {
		got := web.EndedOf(map[tasker.ResolutionStatus]int64{tasker.EntryManuallyResolved: 997, tasker.EntryCancelled: tt.cancelled})
		if got != tt.want {
			t.Errorf("%d cancelled: %q, want %q", tt.cancelled, got, tt.want)
		}
	}
}
