package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/web"
)

func pageOf(task tasker.ID) string { return "/ui/tasks/" + task.String() }

// fails reports that the one step which can be claimed failed, and may be retried.
func (h *harness) fails(message string) {
	h.Helper()
	list := h.next()
	h.report(tasker.Outcome{
		Lease: list[0].Lease(), Failure: &tasker.Failure{Message: message, Type: "test", Retryable: true},
	})
}

// external describes a step that somebody outside answers.
func external(name string, after ...string) tasker.StepTemplate {
	s := step(name, after...)
	s.Type, s.Handler = tasker.ExternalStep, tasker.Handler{}
	return s
}

// rowOf is the part of a task's page that shows a step.
func (h *harness) rowOf(r reply, step tasker.ID) string {
	h.Helper()
	_, rest, found := strings.Cut(r.text, `<tr data-row id="step-`+step.String()+`">`)
	row, _, ended := strings.Cut(rest, "</tr>")
	if !found || !ended {
		h.Fatalf("%s has no row of step %s:\n%s", r.url, step, r.text)
	}
	return row
}

// writtenOff ends the investigation of a task as permanently failed.
func (st *stuck) writtenOff() {
	st.Helper()
	status, notes := tasker.EntryPermanentlyFailed, "hopeless"
	st.update(st.entry, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &notes, Actor: "ann"})
}

// foundByCustomer registers a template of which tasks are found by a customer.
func (h *harness) foundByCustomer(name string, steps ...tasker.StepTemplate) {
	h.Helper()
	_, _, err := h.Engine.RegisterTemplate(h.Context(), tasker.Template{
		Namespace: h.Space, Name: name, Version: "1.0.0", Steps: steps, Search: map[string]tasker.SearchAttribute{"customer": {Type: tasker.AttributeText, From: "context.customer"}},
	}, "")
	h.Must(err)
}

func TestATaskShowsWhatItIs(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.foundByCustomer("order", step("reserve"), step("charge", "reserve"))
	first := h.create("order", `{}`)
	made, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{
		Namespace: enginetest.Namespace, Name: "order", Context: json.RawMessage(`{"total": 12.50, "customer": "ann"}`), Initiator: "the till", SourceSystem: "web shop",
		Reason: "a second try", Tags: []string{"vip", "gift"}, CorrelationID: "corr-1", ParentCorrelationID: "corr-0", IdempotencyKey: "key-7",
		Priority: 4, RecreatedFrom: first,
	}})
	h.Must(err)
	task := made[0].TaskUUID
	r := h.get(pageOf(task))
	h.shows(r, http.StatusOK, "<h1>shop/order", "1.0.0", task.String(), `href="/ui/tasks?namespace=shop&attribute=customer%3Aann"><bdi>customer:ann</bdi></a>`, "corr-1", "corr-0", "key-7", "the till", "web shop", "a second try",
		`<a class="tag" href="/ui/tasks?tag=vip">vip</a>`, `href="/ui/tasks?correlation_id=corr-1"`, "<dt>Priority</dt><dd>4</dd>", "12.50", "In progress.", "0 of 2 steps · 1 in progress",
		`<dt>Replaces</dt><dd><a class="mono" href="`+pageOf(first)+`">`+first.String(), `data-live="`+pageOf(task)+`"`,
		"reserve: enqueued", "enqueue", "the task")
	h.lacks(r, "<dt>Completed", "<dt>Starts", "Last investigation", "Older changes", `class="pager"`)
	h.lacks(h.get(pageOf(first)), "<dt>Replaces", "<dt>Reason", "<dt>Tags", "<dt>Attributes", "<dt>Initiator")
	steps := h.steps(task)
	charge := h.rowOf(r, steps[1].UUID)
	if !strings.Contains(charge, `<a href="#step-`+steps[0].UUID.String()+`">reserve</a> <span class="hint">(not done)`) {
		t.Errorf("it does not say what charge depends on: %s", charge)
	}
	h.work(fail())
	r = h.get(pageOf(task))
	h.shows(r, http.StatusOK, "All steps are done.", "<dt>Completed", "2 of 2 steps", "waited ", `"ok": true`, h.worker.String())
	h.lacks(r, "(not done)")
}

func TestPartsOfATaskThatAreNotThere(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	path := pageOf(h.create("order", `{}`))
	h.refused(h.get(path+"/explode"), http.StatusNotFound, "Page not found: /")
	for _, offset := range []string{"x", "-1", "2001", "1.5", "%3Cb%3E", "99999999999999999999"} {
		r := h.get(path + "?offset=" + offset)
		h.refused(r, http.StatusBadRequest, "must be a number from 0 to 2000")
		h.lacks(r, "<b>")
	}
	h.sees(h.get(path), `<rect class="idle" y="6" width="22"`, `<rect class="busy" y="2" width="22"`, `<path class="fail" d="M11 0V16"/></svg> tick: failed attempt`)
	r := h.get(path + "?offset=2000")
	h.shows(r, http.StatusOK, "No more history.", `rel="prev"`)
	h.lacks(r, "No history yet")
}

// Links lead only to what is possible.
func TestATaskOffersWhatIsPossible(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	looks := h.everyLook()
	made, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "order", Context: json.RawMessage(`{}`), StartAt: time.Now().Add(time.Hour)}})
	h.Must(err)
	looks["pending"] = made[0].TaskUUID
	for look, want := range map[string]struct {
		says                    string
		cancel, open, steps, in bool
	}{
		"pending":                  {"Not started yet.", true, true, false, false},
		"complete":                 {"All steps are done.", false, true, false, false},
		"error":                    {"Blocked: charge failed permanently, and the steps that depend on it cannot run.", true, false, true, true},
		"waiting for dependencies": {"Waiting for the result of an external step: answer.", true, true, true, false},
		"waiting for retry":        {"A failed step is retried automatically after its backoff.", true, true, true, false},
		"cancelled":                {"Cancelled. The history shows by whom and why.", false, true, false, false},
		"steps in process":         {"In progress.", true, true, true, false},
	} {
		path := pageOf(looks[look])
		r := h.get(path)
		h.shows(r, http.StatusOK, want.says, ">"+look+"</span>")
		for link, there := range map[string]bool{
			`href="` + path + `/cancel"`: want.cancel, `href="` + path + `/investigate"`: want.open,
			`href="` + path + `/steps/`: want.steps, ">Open investigation</a>": want.in,
		} {
			if strings.Contains(r.text, link) != there {
				t.Errorf("%s: a link with %s: %v", look, link, !there)
			}
		}
		if note := "The task is " + look + ": its steps can no longer be changed."; strings.Contains(r.text, note) != (look == "complete" || look == "cancelled") {
			t.Errorf("%s: says %q: %v", look, note, strings.Contains(r.text, note))
		}
		// Each link leads to a form.
		for _, m := range regexp.MustCompile(`href="(`+path+`/[^"]+)"`).FindAllStringSubmatch(r.text, -1) {
			if strings.HasSuffix(m[1], "/answer") {
				h.shows(h.get(m[1]), http.StatusOK, `name="token"`)
				continue
			}
			h.shows(h.get(m[1]), http.StatusOK, "What will happen", `name="reason"`)
		}
	}
	h.shows(h.get(pageOf(looks["cancelled"])), http.StatusOK, "Ada", "not needed")
	h.shows(h.get(pageOf(looks["waiting for retry"])), http.StatusOK, "retry <time", "1 of 9 attempts")
}

func TestATaskShowsItsInvestigation(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	path := pageOf(st.task)
	r := st.get(path)
	st.shows(r, http.StatusOK, `href="`+st.page()+`" data-key="o"`, "Open investigation</a> max retries exceeded, since", "card declined by the bank",
		"; needs an operator", `title="Under investigation: max retries exceeded"`, "1 failed attempt")
	st.lacks(r, "Permanently failed")
	if row := st.rowOf(r, st.step); strings.Count(row, path+"/steps/"+st.step.String()+"/") != 3 {
		t.Errorf("the failed step has not three actions: %s", row)
	}
	if row := st.rowOf(r, st.stepOf("reserve").UUID); strings.Contains(row, "/steps/") {
		t.Errorf("a complete step has an action: %s", row)
	}
	status, notes := tasker.EntryCancelled, "no harm"
	st.update(st.entry, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &notes, Actor: "ann"})
	r = st.get(path)
	st.shows(r, http.StatusOK, "Last investigation</a>: max retries exceeded, ended as cancelled <time", path+"/investigate")
	st.lacks(r, "needs an operator", "Open investigation</a>", "Permanently failed", "Under investigation", `class="skull`)
}

// The badge tells a task that went on by itself, and one that a person wants looked
// at, from one that cannot progress.
func TestBadgeShowsTheMark(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	well := st.create("order", `{}`)
	_, err := st.DLQ.Open(t.Context(), well, tasker.NewEntry{Actor: "ann", Reason: "odd"})
	st.Must(err)
	st.Exec(`UPDATE tasker.tasks_dlq SET recovered_at = now() WHERE dlq_entry_uuid = $1`, st.entry)
	for _, page := range []string{"/ui/tasks", pageOf(well)} {
		st.shows(st.get(page), http.StatusOK, `class="skull opened_by_hand"`, `title="Under investigation, opened by hand"`, `<span aria-hidden="true">?</span>`)
	}
	for _, page := range []string{"/ui/tasks", pageOf(st.task)} {
		st.shows(st.get(page), http.StatusOK, `class="skull recovered"`, `title="Recovered, investigation still open: max retries exceeded"`, `<span aria-hidden="true">↻</span>`)
	}
	st.lacks(st.get("/ui/tasks"), "Permanently failed", "☠")
}

func TestATaskThatWasWrittenOff(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.writtenOff()
	path := pageOf(st.task)
	r := st.get(path)
	st.shows(r, http.StatusOK, "marked as permanently failed: its steps can no longer be changed.", "ended as permanently failed", `class="skull permanently_failed"`,
		`title="Permanently failed: max retries exceeded"`, `aria-label="Permanently failed: max retries exceeded"`)
	st.lacks(r, path+"/investigate", path+"/steps/", ">Actions</th>")
	st.shows(st.get(path+"/investigate"), http.StatusConflict, "The task is marked as permanently failed", st.page())
	r = st.post(path+"/investigate", "actor=ann", "reason=once more")
	st.refused(r, http.StatusConflict, "The task is marked as permanently failed", `href="`+st.page()+`"`)
	st.shows(st.get(st.action("reset")), http.StatusConflict, "permanently failed")
	st.shows(st.post(st.action("reset"), "reason=x", "actor=ann"), http.StatusConflict, "permanently failed")
	// A link that is offered works.
	if strings.Contains(st.get(path).text, path+"/cancel") {
		st.shows(st.post(path+"/cancel", "actor=ann", "reason=tidy up"), http.StatusOK, "The task was cancelled.")
	}
}

// A step that was tried again shows in its bar when it failed and when it rested.
func TestRetriesAreSeenInTheBars(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	charge := step("charge")
	charge.Retry.MaxAttempts = 3
	h.Template("order", charge, step("ship", "charge"))
	st := &stuck{harness: h, task: h.create("order", `{}`)}
	h.fails("busy 1")
	h.fails("busy 2")
	list := h.next()
	h.report(tasker.Outcome{Lease: list[0].Lease(), Success: true, Result: json.RawMessage(`{"paid":12.50}`)})
	r := h.get(pageOf(st.task))
	row := h.rowOf(r, st.stepOf("charge").UUID)
	for what, want := range map[string]int{
		`<path class="fail"`: 2, `<rect class="busy"`: 3, `<rect class="warn"`: 2, `<rect class="idle"`: 3, "2 failed attempts": 2, "waited for retries": 2, "3 of 3 attempts": 1,
	} {
		if got := strings.Count(row, what); got != want {
			t.Errorf("%d times %s, want %d: %s", got, what, want, row)
		}
	}
	h.shows(r, http.StatusOK, "busy 1", "busy 2", "attempt 3", `"paid": 12.50`)
	if row = h.rowOf(r, st.stepOf("ship").UUID); strings.Contains(row, `class="fail"`) {
		t.Errorf("the bar of another step shows a failure: %s", row)
	}
}

// What waits for an answer from outside says so, and whom it holds up.
func TestAStepThatWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"), external("payment"), external("permit", "payment"), step("ship", "reserve", "payment"))
	st := &stuck{harness: h, task: h.create("order", `{}`)}
	h.work(fail())
	r := h.get(pageOf(st.task))
	h.shows(r, http.StatusOK, "Waiting for the result of an external step: payment.")
	payment := h.rowOf(r, st.stepOf("payment").UUID)
	if !strings.Contains(payment, "external") || !strings.Contains(payment, ">pending</span>") || !strings.Contains(payment, "/complete") {
		t.Errorf("the external step is shown as %s", payment)
	}
	ship := h.rowOf(r, st.stepOf("ship").UUID)
	if strings.Count(ship, "(not done)") != 1 {
		t.Errorf("ship waits for one step: %s", ship)
	}
	_, err := h.Engine.CompleteExternal(t.Context(), st.task, st.stepOf("payment").UUID, tasker.Outcome{Success: true, Result: json.RawMessage(`{"by": "bank"}`)}, "bank")
	h.Must(err)
	h.shows(h.get(pageOf(st.task)), http.StatusOK, `"by": "bank"`)
}

// A step that waits for an answer says until when, and what comes of it when nobody answers.
func TestAStepThatWaitsUntilItsTimeout(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	permit := external("permit")
	permit.TimeoutSeconds = 3 * 24 * 3600
	h.Template("order", permit, step("ship", "permit"))
	st := &stuck{harness: h, task: h.create("order", `{}`)}
	if row := h.rowOf(h.get(pageOf(st.task)), st.stepOf("permit").UUID); !strings.Contains(row, "waiting until") || !strings.Contains(row, "in 2 d 23 h") && !strings.Contains(row, "in 3 d") {
		t.Errorf("the step that waits is shown as %s", row)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET wait_until = now() WHERE wait_until IS NOT NULL`)
	h.tick()
	h.shows(h.get("/ui/investigations/"+h.Entry(st.task).UUID.String()), http.StatusOK, "Step permit of shop/order received no external result before its timeout")
}

// A task and the tasks that its steps started lead to each other.
func TestTaskLinksParentsAndChildren(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("archive", step("pack"))
	h.Template("order", tasker.StepTemplate{Name: "store", Type: tasker.ChildStep, Retry: tasker.DefaultRetry(), Child: tasker.ChildTemplate{Name: "archive"}}, step("ship", "store"))
	st := &stuck{harness: h, task: h.create("order", `{}`)}
	h.tick()
	store := st.stepOf("store")
	if store.ChildTaskUUID == nil {
		t.Fatalf("no child was started: %s", store.Error)
	}
	h.shows(h.get(pageOf(st.task)), http.StatusOK, `<a href="`+pageOf(*store.ChildTaskUUID)+`">child task</a>`, "Waiting for the child task of a step: store.")
	h.shows(h.get(pageOf(*store.ChildTaskUUID)), http.StatusOK, `href="`+pageOf(st.task)+`#step-`+store.UUID.String()+`">`+st.task.String())

	here, other := `<strong>shop/order</strong> <span class="hint">(this task)</span>`, `<span class="hint">· </span><a href="`+pageOf(*store.ChildTaskUUID)+`">shop/archive</a>`
	h.shows(h.get(pageOf(st.task)), http.StatusOK, here, other, `store <span class="hint">(waiting for it)</span>`)
	h.shows(h.get(pageOf(*store.ChildTaskUUID)), http.StatusOK, `<a href="`+pageOf(st.task)+`">shop/order</a>`, `<strong>shop/archive</strong>`)
	alone := h.get(pageOf(h.create("archive", `{}`)))
	if strings.Contains(alone.text, `id="tree"`) {
		t.Error("a task without parent and children has a tree")
	}
	// The step is reset to start another child.
	path := pageOf(st.task) + "/steps/" + store.UUID.String() + "/reset"
	h.shows(h.get(pageOf(st.task)), http.StatusOK, `href="`+path)
	h.shows(h.get(path), http.StatusOK, "The step waits for its child task", `name="new_child" value="1" checked`, "Interrupt: cancels the child task", "--new-child")
	h.shows(h.post(path, "reason=x", "actor=bob", "new_child=1"), http.StatusConflict, "set interrupt")
	h.at(h.post(path, "reason=x", "actor=bob", "new_child=1", "interrupt=1"), pageOf(st.task))
	h.tick()
	if again := st.stepOf("store"); *again.ChildTaskUUID == *store.ChildTaskUUID {
		t.Error("the step waits for the same child")
	} else {
		store = again
	}
	other = `<span class="hint">· </span><a href="` + pageOf(*store.ChildTaskUUID) + `">shop/archive</a>`

	// Of many children some are shown, and the list has them all.
	h.Exec(`INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id, created_at, updated_at, parent_task_uuid, parent_step_uuid, depth)
		SELECT tasker.uuid_generate_v7(), c.template_uuid, c.namespace, c.name, c.version, 'cancelled', now(), NULL, NULL, '{}', '', now(), now(), c.parent_task_uuid, c.parent_step_uuid, 1
		FROM tasker.tasks c, generate_series(1, 30) WHERE c.task_uuid = $1`, *store.ChildTaskUUID)
	defer h.Exec(`WITH gone AS (DELETE FROM tasker.tasks WHERE parent_task_uuid = $1 AND task_uuid <> $2 RETURNING task_uuid)
		DELETE FROM tasker.task_attributes a USING gone g WHERE a.task_uuid = g.task_uuid`, st.task, *store.ChildTaskUUID)
	all := web.Root + "/tasks?parent=" + st.task.String()
	r := h.get(pageOf(st.task))
	h.shows(r, http.StatusOK, other, `(before a reset)`, `<a class="hint" href="`+all+`">all children</a>`)
	if n := strings.Count(r.text, `<tr id="tree-`); n != 1+tasker.MaxTreeChildren {
		t.Errorf("%d tasks are shown", n)
	}
	if n := strings.Count(h.get(all).text, `data-row id="t-`); n != 32 {
		t.Errorf("the list has %d children", n)
	}
}

// A branch that was not taken says why, and its task counts as done.
func TestABranchThatIsNotTaken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	small, large := step("small", "score"), step("large", "score")
	small.When, large.When = "context.amount < 100", "context.amount >= 100 && results.score.ok"
	h.Template("order", step("score"), small, large, step("behind", "small"))
	st := &stuck{harness: h, task: h.create("order", `{"amount": 150}`)}
	h.work(fail())
	r := h.get(pageOf(st.task))
	if row := h.rowOf(r, st.stepOf("large").UUID); !strings.Contains(row, ">pending</span>") || !strings.Contains(row, "waiting for a decision") {
		t.Errorf("before it is decided the step is shown as %s", row)
	}
	h.tick()
	r = h.get(pageOf(st.task))
	if row := h.rowOf(r, st.stepOf("small").UUID); !strings.Contains(row, ">skipped</span>") || !strings.Contains(row, "condition is false: context.amount &lt; 100") {
		t.Errorf("the step that is skipped is shown as %s", row)
	}
	if row := h.rowOf(r, st.stepOf("behind").UUID); !strings.Contains(row, "small was skipped") || strings.Contains(row, "(not done)") {
		t.Errorf("the step behind it is shown as %s", row)
	}
	h.shows(r, http.StatusOK, "1 of 4 steps · 1 in progress · 2 skipped")
}

// Of large documents the beginning is shown, and where all of it is.
func TestLargeDocumentsOfATaskAreCut(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"), step("charge"))
	words := strings.Repeat("grün ", 14_000)
	st := &stuck{harness: h, task: h.create("order", fmt.Sprintf(`{"x": %q, "z": "the end of the context"}`, words))}
	list := h.claim(100)
	var outcomes []tasker.Outcome
	for _, a := range list {
		o := tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(fmt.Sprintf(`{"a": "head of the result", "x": %q, "z": "end of the result"}`, words[:9_000]))}
		if a.Name == "charge" {
			// Small as it is sent, large when it is indented.
			deep := strings.Repeat("[", 50)
			o.Result = json.RawMessage(`[` + strings.Repeat(deep+strings.Repeat("]", 50)+",", 70) + `"end of the deep result"]`)
		}
		outcomes = append(outcomes, o)
	}
	_, err := h.Engine.Report(t.Context(), h.worker, outcomes, 0)
	h.Must(err)
	r := h.get(pageOf(st.task))
	api := "/v1/tasks/" + st.task.String()
	h.shows(r, http.StatusOK, "head of the result", "shortened, 8", "grün grün",
		"Complete document: <code>GET "+api+"</code>", "Complete document: <code>GET "+api+"/workflow_steps/"+st.stepOf("reserve").UUID.String()+"</code>",
		"Complete document: <code>GET "+api+"/workflow_steps/"+st.stepOf("charge").UUID.String()+"</code>")
	h.lacks(r, "the end of the context", "end of the result", "end of the deep result", "\ufffd")
	if most := 250_000; len(r.text) > most {
		t.Errorf("the page has %d bytes", len(r.text))
	}
	// What it names has all of it.
	for _, m := range regexp.MustCompile(`Complete document: <code>GET ([^<]+)</code>`).FindAllStringSubmatch(r.text, -1) {
		if whole := h.get(m[1]); whole.status != http.StatusOK || !regexp.MustCompile(`end of the (context|result|deep result)`).MatchString(whole.text) {
			t.Errorf("%s is answered with %d, and has not all of it", m[1], whole.status)
		}
	}
}

// longHistory lets a stuck task move so many times more, five moves each, from an hour ago on.
func (st *stuck) longHistory(times int) {
	st.Helper()
	for _, sql := range []string{
		`UPDATE tasker.tasks SET created_at = created_at - interval '1 day'`,
		`UPDATE tasker.workflow_steps SET created_at = created_at - interval '1 day'`,
		`UPDATE tasker.task_history SET created_at = created_at - interval '1 day'`,
		`UPDATE tasker.step_history SET created_at = created_at - interval '1 day',
			enqueued_at = enqueued_at - interval '1 day', claimed_at = claimed_at - interval '1 day'`,
	} {
		st.Exec(sql)
	}
	st.Exec(`INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, actor, reason, created_at)
		SELECT t.task_uuid, p.from_state, p.to_state, p.event, 'ann', format('round %s move %s', n, p.ordinal), now() - interval '1 hour' + n * interval '1 second'
		FROM tasker.tasks t, generate_series(1, $1) n, (VALUES (1, 'error', 'enqueuing_steps', 'enqueue_steps'), (2, 'enqueuing_steps', 'steps_in_process', 'start'),
			(3, 'steps_in_process', 'evaluating_results', 'evaluate'), (4, 'evaluating_results', 'blocked_by_failures', 'block'),
			(5, 'blocked_by_failures', 'error', 'give_up')) AS p (ordinal, from_state, to_state, event)
		ORDER BY n, p.ordinal`, times)
}

func rowsOfHistory(r reply) int { return strings.Count(r.text, `<tr id="move-`) }

func TestALongHistoryOfATaskIsPaged(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	path := pageOf(st.task)
	before := rowsOfHistory(st.get(path))
	st.longHistory(30)
	r := st.get(path)
	st.shows(r, http.StatusOK, "Newest first, 1–100", path+"?offset=100", "round 30 move 5", "round 11 move 1")
	st.lacks(r, "round 10 move 5", `rel="prev"`, "Older changes")
	if n := rowsOfHistory(r); n != 100 {
		t.Errorf("%d rows, want 100", n)
	}
	r = st.get(path + "?offset=100")
	st.shows(r, http.StatusOK, "Newest first, 101–", "round 10 move 5", "round 1 move 1", `<a href="`+path+`" rel="prev"`)
	st.lacks(r, `rel="next"`, "round 11 move 1", "Older changes")
	if n := rowsOfHistory(r); n != 50+before {
		t.Errorf("%d rows, want %d", n, 50+before)
	}
	if ids := regexp.MustCompile(`<tr id="(move-[^"]+)"`).FindAllString(r.text+st.get(path).text, -1); len(ids) != 150+before {
		t.Errorf("%d moves on two pages, want %d", len(ids), 150+before)
	}
}

func TestVeryLongHistoryLinksTheAPI(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.longHistory(420)
	path := pageOf(st.task)
	r := st.get(path)
	st.shows(r, http.StatusOK, "Newest first, 1–100", "round 420 move 5", "Bars span 59 min")
	st.lacks(r, "Older changes")
	r = st.get(path + "?offset=1900")
	whole := "/v1/tasks/" + st.task.String() + "/transitions"
	st.shows(r, http.StatusOK, "Newest first, 1901–2000", "round 21 move 1", "Older changes: <code>GET "+whole+"</code>", `rel="prev"`)
	st.lacks(r, `rel="next"`, "round 20 move 5")
	st.shows(st.get(whole), http.StatusOK, "round 1 move 1")
	tab := st.open(path + "?offset=1900")
	tab.Sees("Older changes")
	tab.Fits()
	tab.KeysAway(",")
	tab.Sees("1801–1900")
	tab.KeysAway(".")
	tab.Sees("1901–2000")
}

// hundredSteps is a template of a hundred steps: ten lines of nine, and what comes
// before and after all of them.
func hundredSteps() []tasker.StepTemplate {
	list := []tasker.StepTemplate{step("start")}
	var ends []string
	for line := range 10 {
		last := "start"
		for i := range 9 + line/9*8 {
			name := fmt.Sprintf("line_%d_stage_%d", line, i)
			list = append(list, step(name, last))
			if last = name; len(list) == 99 {
				break
			}
		}
		ends = append(ends, last)
	}
	return append(list, step("collect_the_results_of_all_lines", ends...))
}

func TestATaskOfAHundredSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	steps := hundredSteps()
	if len(steps) != 100 {
		t.Fatalf("%d steps", len(steps))
	}
	h.Template("harvest", steps...)
	task := h.create("harvest", `{}`)
	h.work(fail("line_3_stage_4", "line_5_stage_7"))
	before := h.DB.Pool().Stat().AcquireCount()
	r := h.get(pageOf(task))
	if n := h.DB.Pool().Stat().AcquireCount() - before; n > 10 {
		t.Errorf("%d queries", n)
	}
	h.shows(r, http.StatusOK, "Blocked: ", "of 100 steps", "collect_the_resul…")
	if rows, nodes := strings.Count(r.text, "<tr data-row"), strings.Count(r.text, `<g class="node`); rows != 100 || nodes != 100 {
		t.Errorf("%d rows and %d nodes, want a hundred each", rows, nodes)
	}
}

func TestATaskInABrowser(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	tab := st.open("/ui/tasks")
	tab.Follow("[data-row] a")
	tab.Sees("Blocked: charge failed permanently")
	// By mouse: from the picture to the step's row, and into an action of it.
	tab.Click(`.graph a[href="#step-` + st.step.String() + `"]`)
	tab.Until(`document.querySelector("tr:target .name").textContent === "charge"`)
	tab.Follow(`tr:target a[data-key="r"]`)
	tab.Sees("Reset step charge")
	// By keys: to the second step, and its action.
	tab.Go(st.server.URL + pageOf(st.task))
	tab.Keys("jj")
	tab.Until(`document.activeElement.textContent === "charge"`)
	tab.KeysAway("m")
	tab.Sees("Resolve step charge")
}

// What happens appears by itself, and what the reader has opened stays open.
func TestATaskIsKeptUpToDate(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"), step("charge", "reserve"))
	task := h.create("order", `{"total": 12.50}`)
	list := h.claim(1)
	h.report(tasker.Outcome{Lease: list[0].Lease(), Success: true, Result: json.RawMessage(`{"reserved": true}`)})
	tab := h.open(pageOf(task))
	tab.Click("main > details.json summary")
	tab.Click(".steps details.json summary")
	tab.Sees("12.50")
	tab.Sees(`"reserved": true`)
	h.work(func(tasker.Assignment) error { return errDeclined })
	tab.Sees("Blocked: charge failed permanently")
	tab.Sees("Open investigation")
	for _, part := range []string{"main > details.json[open]", ".steps details.json[open]"} {
		if !tab.Has(part) {
			t.Errorf("%s: what the reader opened is closed", part)
		}
	}
	tab.Accessible()
}

// Items of a map step are counted; those that have failed have a row, and can be repaired.
func TestATaskShowsItems(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	each := enginetest.Once(step("each"))
	each.Type, each.Over = tasker.MapStep, "[1, 2, 3]"
	h.Template("list", each, step("end", "each"))
	task := h.create("list", `{}`)
	h.tick()
	list := append(h.next(), h.next()...)
	_, err := h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{
		{Lease: list[0].Lease(), Failure: &tasker.Failure{Message: "no such card", Type: "test"}}, {Lease: list[1].Lease(), Success: true},
	}, 0)
	h.Must(err)
	steps := h.steps(task)
	r := h.get(pageOf(task))
	if row := h.rowOf(r, steps[0].UUID); !strings.Contains(row, "3 items, 1 done, 1 enqueued, <strong>1 failed</strong>") {
		t.Errorf("the row of the step is %s", row)
	}
	if row := h.rowOf(r, list[0].StepUUID); !strings.Contains(row, list[0].Name) || !strings.Contains(row, "no such card") {
		t.Errorf("the row of the item is %s", row)
	}
	if strings.Contains(r.text, "step-"+list[1].StepUUID.String()) {
		t.Error("an item that is done has a row")
	}
	h.shows(h.get("/ui/tasks/"+task.String()+"/steps/"+list[0].StepUUID.String()+"/reset"), http.StatusOK, list[0].Name)
	h.shows(h.get("/ui/investigations/"+h.Entry(task).UUID.String()), http.StatusOK, list[0].Name, "no such card")
}

// The page of a task says what workers have saved of a step, and the form of a reset discards it.
func TestACheckpointIsShownAndDiscarded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("import", step("rows"))
	task := h.create("import", `{}`)
	a := h.next()[0]
	h.Must(h.Engine.SaveCheckpoint(t.Context(), h.worker, a.Lease(), json.RawMessage(`{"row": 10}`)))
	h.report(tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "no", Type: "test"}})
	if row := h.rowOf(h.get(pageOf(task)), a.StepUUID); !strings.Contains(row, "checkpoint <time") || !strings.Contains(row, "11 bytes") {
		t.Errorf("the row does not tell of the checkpoint: %s", row)
	}
	path := pageOf(task) + "/steps/" + a.StepUUID.String() + "/reset"
	h.shows(h.get(path), http.StatusOK, "Attempt 1 saved a checkpoint of 11 bytes", `name="discard_checkpoint" value="1"> Discard the checkpoint`)
	h.shows(h.post(path, "reason=", "actor=bob", "discard_checkpoint=1"), http.StatusBadRequest, `value="1" checked> Discard the checkpoint`, "--discard-checkpoint")
	h.at(h.post(path, "reason=another file", "actor=bob", "discard_checkpoint=1"), pageOf(task))
	if saved := h.Count(`SELECT count(*) FROM tasker.step_checkpoints WHERE task_uuid = $1`, task); saved != 0 {
		t.Errorf("%d checkpoints are left", saved)
	}
}
