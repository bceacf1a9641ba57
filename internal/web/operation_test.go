package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/loop"
)

// planned plans an operation that runs the failed steps of a case again.
func (h *harness) planned(template string) tasker.ID {
	h.Helper()
	id := h.caseOf(template)
	o, _, err := h.ops.Plan(h.Context(), tasker.OperationPlan{
		Act: tasker.ActReset, Actor: "test", Reason: "again", Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Case: &id}},
	})
	h.Must(err)
	return o.UUID
}

// operate releases what may be released and looks what became of it, as the loops of a server do.
func (h *harness) operate() {
	h.Helper()
	for range 2 { // the second release begins the next wave
		h.Exec(`UPDATE tasker.operations SET next_release_at = now()`) // whatever the rate
		for {
			next, err := h.ops.Release(h.Context())
			h.Must(err)
			if next != loop.AtOnce {
				break
			}
		}
		_, err := h.ops.VerifyItems(h.Context())
		h.Must(err)
	}
}

func TestAnOperationFromACaseToItsEnd(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.shows(h.get("/ui/operations"), http.StatusOK, "No operations")
	h.declined(13)
	path := h.casePath("order")
	h.shows(h.get(path), http.StatusOK, "Retry 13…", path+"/run")
	h.shows(h.get(path+"/run"), http.StatusOK, "The most urgent 10 of 13", `value="1, 10, 100"`, "tasker-ctl --server "+h.server.URL+" operation plan --case")
	r := h.post(path+"/run", "actor=ann", "reason=gateway is back", "waves=1, 10", "rate=200/s", "tolerate=2%", "key=k")
	h.shows(r, http.StatusOK, "13 steps are frozen. Later", "wave 1: 1 → wave 2: 10 → rest: 2, at most 200/s", "13 would be released.", "13 <strong>charge</strong> steps would be enqueued",
		"Start with 1 step", "Simulated and rolled back")
	plan := r.url
	page := strings.TrimSuffix(plan, "/start")
	if again := h.post(path+"/run", "actor=ann", "reason=gateway is back", "waves=1, 10", "rate=200/s", "tolerate=2%", "key=k"); again.url != plan {
		t.Errorf("the same form again goes on to %s, not to %s", again.url, plan)
	}
	h.shows(h.post(path+"/run", "actor=bob", "reason=mine", "waves=all", "tolerate=2%", "key=l"), http.StatusConflict, "planned by ann, includes 13 of the selected steps", ">mine</textarea>", `href="`+page+`"`)
	h.shows(h.get(page), http.StatusOK, "Not started. An unstarted plan expires", "13 remaining = 13", "13 planned", plan)
	h.shows(h.get("/ui/operations?state=planned"), http.StatusOK, "Retry 13 steps", "gateway is back")
	h.shows(h.get("/ui/operations?state=done"), http.StatusOK, "No operation is done")
	h.shows(h.get(path), http.StatusOK, `<a href="`+page+`">Retry 13 steps</a>`)

	digest := regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(r.text)[1]
	h.shows(h.post(plan, "actor=ann", "seen=planned", "digest=sha256:other"), http.StatusConflict, "review it again", `value="`+digest+`"`)
	h.shows(h.post(plan, "actor=ann", "seen=planned", "digest="+digest), http.StatusOK, "The operation was started.", "wave 1: 1, running")
	h.shows(h.get(plan), http.StatusConflict, "This operation is running and can't be started.")
	h.operate()
	h.work(func(tasker.Assignment) error { return nil })
	h.operate()
	h.shows(h.get(page), http.StatusOK, "1 verified", "wave 1: 1 ✓", "wave 2: 10, running")
	h.shows(h.get(path), http.StatusOK, "10 verifying")
	n := 0
	h.work(func(tasker.Assignment) error {
		if n++; n <= 2 {
			return errors.New("HTTP 404 <b>gone</b>")
		}
		return nil
	})
	h.operate()
	r = h.get(page)
	h.shows(r, http.StatusOK, "Paused automatically", "HTTP 404 <b>gone</b>", "2 failed again", "9 verified", "2 remaining = 13", page+"/resume", page+"/abort")
	if before, _, found := strings.Cut(r.text, "2 failed again</h2>"); !found || strings.Contains(before, "9 verified</h2>") {
		t.Error("what failed again does not come first")
	}
	h.lacks(r, page+"/pause")
	h.shows(h.get(page+"?state=failed_again"), http.StatusOK, "2 failed again</h2>", "Items in all states")
	h.shows(h.get(page+"?state=running"), http.StatusOK, "No item is running")
	h.shows(h.get(page+"?state=odd"), http.StatusBadRequest, "Invalid state")
	h.fail("order", "charge", "declined", 3)
	h.shows(h.get(page), http.StatusOK, "3 investigations opened since the plan", path+"/run")
	h.shows(h.post(page+"/resume", "actor=ann", "seen=running"), http.StatusConflict, "The operation is now paused")
	h.shows(h.get(page+"/resume"), http.StatusOK, "Continues the current wave and resets the failure counts.", `name="tolerate_cause"`)
	h.shows(h.post(page+"/resume", "actor=ann", "seen=paused", "tolerate=some"), http.StatusBadRequest, "Invalid tolerance")
	h.shows(h.post(page+"/resume", "actor=ann", "seen=paused", "tolerate=5%", "tolerate_cause=1"), http.StatusOK, "The operation was resumed.",
		"if more than 5% of a wave fail", "failures of 1 cause")
	h.shows(h.post(page+"/pause", "actor=ann", "seen=running"), http.StatusOK, "The operation was paused.", "Paused by ann")
	h.shows(h.post(page+"/abort", "seen=paused"), http.StatusBadRequest, "Your name is missing")
	h.shows(h.post(page+"/abort", "actor=ann"), http.StatusBadRequest, "is missing the operation")
	r = h.post(page+"/abort", "actor=ann", "seen=paused")
	h.shows(r, http.StatusOK, "The operation was aborted.", "2 aborted")
	h.lacks(r, page+"/abort", page+"/resume")
	h.shows(h.get(page+"/abort"), http.StatusConflict, "This operation is finished and can't be aborted.")
}

// Every act can be planned from the page of a case, and does what it says.
func TestEveryActFromACase(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for i, tt := range []struct {
		act   tasker.Act
		more  string
		says  string
		state tasker.StepState
	}{
		{tasker.ActReset, "", "Retry 2 steps", tasker.StepEnqueued},
		{tasker.ActResolve, "", "Skip 2 steps", tasker.StepResolvedManually},
		{tasker.ActComplete, `result={"paid": true}`, "Complete 2 steps with a result", tasker.StepComplete},
		{tasker.ActComplete, `result_expression={"was": error.message}`, "Complete 2 steps with a result", tasker.StepComplete},
		{tasker.ActCancel, "", "Cancel 2 tasks", tasker.StepCancelled},
		{tasker.ActRecreate, "", "Recreate 2 tasks", tasker.StepError}, // new ones take their place
		{tasker.ActEnd, "", "End 2 investigations", tasker.StepError},  // refused where the task has not ended
	} {
		template := fmt.Sprint("order", i)
		h.Template(template, step("charge"))
		tasks := h.fail(template, "charge", "declined", 2)
		path := h.casePath(template)
		h.shows(h.get(path), http.StatusOK, path+"/run?act=")
		form := h.get(path + "/run?act=" + string(tt.act))
		if tt.act != tasker.ActEnd { // which cannot work, and is not offered
			h.shows(form, http.StatusOK, `value="`+string(tt.act)+`" checked`)
		}
		h.shows(form, http.StatusOK, "Plan: <bdi>shop/"+template+" › charge", "operation plan --case")
		fields := []string{"actor=ann", "reason=right", "waves=all", "tolerate=2%", "act=" + string(tt.act), "k=v"}
		if tt.more != "" {
			h.shows(h.post(path+"/run", append(fields, "result=not JSON")...), http.StatusBadRequest, "Invalid result", "not JSON</textarea>")
			fields = append(fields, tt.more)
		}
		r := h.post(path+"/run", fields...)
		h.shows(r, http.StatusOK, tt.says)
		if strings.Contains(tt.more, "expression") {
			h.shows(r, http.StatusOK, `The expression <code><bdi>{"was": error.message}</bdi></code> computes`, `would be <code><bdi>{"was":"declined"}</bdi></code>`)
			both := h.post(path+"/run", append(fields, "result=1")...)
			h.shows(both, http.StatusBadRequest, "enter a result or an expression, not both", "error.message}</textarea>")
		}
		digest := regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(r.text)[1]
		h.shows(h.post(r.url, "actor=ann", "seen=planned", "digest="+digest), http.StatusOK, "The operation was started.")
		h.operate()
		for _, task := range tasks {
			steps := h.steps(task)
			if steps[0].State != tt.state {
				t.Errorf("%s: the step is %s, want %s", tt.act, steps[0].State, tt.state)
			}
		}
	}
}

// What is selected in a list is planned: investigations as one operation, each case as one of its own.
func TestAPlanOfASelection(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("refund", step("pay"))
	tasks := h.fail("order", "charge", "declined", 3)
	h.fail("refund", "pay", "closed", 2)
	h.Template("parcel", step("pack"))
	h.fail("parcel", "pack", "broken", 1)
	order, refund, parcel := h.caseOf("order"), h.caseOf("refund"), h.caseOf("parcel")
	var ids []string
	for _, task := range tasks {
		e := h.Entry(task)
		ids = append(ids, e.UUID.String())
		h.shows(h.get("/ui/?view=entries"), http.StatusOK, `form="selection" name="id" value="`+e.UUID.String()+`"`)
		h.shows(h.get(h.caseURL(order)), http.StatusOK, `form="selection" name="id" value="`+e.UUID.String()+`"`)
	}
	h.shows(h.get("/ui/"), http.StatusOK, `form="selection" name="case" value="`+order.String()+`"`, `id="selection" method="get" action="/ui/plan"`)
	planned := func() []tasker.Operation {
		t.Helper()
		list, _, err := h.DB.Operations(t.Context(), tasker.OperationFilter{Limit: 10})
		h.Must(err)
		return list
	}
	path := "/ui/plan?id=" + ids[0] + "&id=" + ids[1]
	h.shows(h.get(path), http.StatusOK, "Plan: <bdi>2 selected investigations", "/ui/investigations/"+ids[0], "operation plan "+ids[0])
	h.shows(h.post(path, "actor=ann", "reason=why", "waves=all", "tolerate=2%", "key=a"), http.StatusOK, "Retry 2 steps", "2 steps are frozen")
	if list := planned(); len(list) != 1 || list[0].Items != 2 {
		t.Fatalf("planned %+v", list)
	}
	cli, _ := h.calls(h.get("/ui/plan?id=" + ids[2] + "&act=resolve_manually"))
	h.ctl(cli)
	if list := planned(); len(list) != 2 || list[0].Items != 1 || list[0].Act != tasker.ActResolve {
		t.Fatalf("planned from a terminal %+v", list)
	}
	path = "/ui/plan?case=" + refund.String() + "&case="
	h.shows(h.get(path+order.String()), http.StatusOK, "Plan: <bdi>2 cases", "Creates one operation per case", h.caseURL(refund))
	fields := []string{"actor=ann", "reason=why", "waves=all", "tolerate=2%", "key=b"}
	h.shows(h.post(path+order.String(), fields...), http.StatusConflict, "The case shop/order › charge: ", "1 operation already planned")
	path += parcel.String()
	h.shows(h.post(path, fields...), http.StatusOK, "2 operations planned. Start each one from here.")
	h.post(path, fields...) // the same again
	if list := planned(); len(list) != 4 || list[0].Items+list[1].Items != 3 {
		t.Errorf("planned %+v", list)
	}
	many := "/ui/plan?x=1" + strings.Repeat("&id="+ids[0], 201)
	for path, says := range map[string]string{
		"/ui/plan": "The selection is empty", "/ui/plan?id=x": "Invalid selection", "/ui/plan?case=%3Cb%3E": "Invalid selection", many: "201 investigations are selected", path + "&act=odd": "",
	} {
		if says == "" {
			h.shows(h.post(path, fields...), http.StatusBadRequest, `role="alert"`)
			continue
		}
		h.shows(h.get(path), http.StatusBadRequest, says)
	}
	if r := h.get("/ui/plan?case=" + newID().String()); r.status != http.StatusNotFound {
		t.Errorf("a case that is not there: %d", r.status)
	}
}

// Rows are selected by keys alone, stay selected while the page keeps itself up to date, and are planned for.
func TestSelectingByKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(5)
	h.FindCases()
	for width, path := range map[int64]string{1280: "/ui/?view=entries", 390: h.casePath("order")} {
		tab := h.open(path)
		tab.Size(width, 844)
		tab.Fits()
		picked := func(n int) {
			t.Helper()
			tab.Until(fmt.Sprintf(`document.querySelectorAll("[data-pick]:checked").length === %d && document.querySelector("#selected").textContent === %q`, n, map[bool]string{true: fmt.Sprintf("%d selected", n)}[n > 0]))
		}
		tab.Keys("jx")
		picked(1)
		tab.Keys("jj")
		tab.Keys("X")
		picked(3)
		tab.Keys("x")
		picked(2)
		tab.Keys("kX") // the range has the state of the row from which it goes
		picked(1)
		tab.Keys("x")
		picked(2)
		tab.Accessible()
		rows := `document.querySelectorAll("[data-row]").length`
		tab.Eval("window.was = " + rows)
		h.fail("order", "charge", "declined", 1)
		h.FindCases()
		tab.Until(rows + " === window.was + 1")
		picked(2)
		tab.KeysAway("a")
		tab.Sees("2 selected investigations")
		tab.Fits()
	}
	tab := h.open("/ui/")
	tab.Keys("jx")
	tab.KeysAway("a")
	tab.Sees("Plan: shop/order › charge")
}

func TestPlanFormReportsInvalidInput(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.declined(2)
	path := h.casePath("order") + "/run"
	for field, says := range map[string]string{
		"reason=": "The reason is missing", "actor=": "Your name is missing", "waves=0": `Invalid waves "0"`, "waves=1,x": "Invalid waves", "waves=": "Invalid waves", "waves=100001": "Invalid waves",
		"rate=5": `Invalid rate "5"`, "rate=0/s": "Invalid rate", "rate=1001/s": "Invalid rate", "tolerate=101%": "guards.tolerate: must be from 0", "tolerate=x": "Invalid tolerance",
	} {
		r := h.post(path, "actor=ann", "reason=the <i>bank</i>", "waves=1,2", "rate=7/s", "tolerate=2", "skip=1", field)
		h.shows(r, http.StatusBadRequest, says, `role="alert"`, `name="skip" value="1" checked`)
		if !strings.HasPrefix(field, "reason") {
			h.shows(r, http.StatusBadRequest, "the <i>bank</i></textarea>")
		}
	}
	for _, task := range tasks { // their steps are no longer failed
		h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "over"))
	}
	h.shows(h.post(path, "actor=ann", "reason=kept", "waves=1", "tolerate=2"), http.StatusConflict, "there is nothing to retry, skip or complete", ">kept</textarea>")
	for _, p := range []string{"/ui/operations/x", "/ui/operations/" + newID().String(), "/ui/operations/" + newID().String() + "/start", "/ui/cases/" + newID().String() + "/run"} {
		if r := h.get(p); r.status != http.StatusNotFound {
			t.Errorf("%s is answered with %d", p, r.status)
		}
	}
	if list, _, err := h.DB.Operations(t.Context(), tasker.OperationFilter{Limit: 1}); err != nil || len(list) != 0 {
		t.Errorf("%d operations, %v", len(list), err)
	}
}

// reach moves the focus to an element with the Tab key.
func reach(tab *browsertest.Tab, selector string) {
	tab.Helper()
	at := fmt.Sprintf(`document.activeElement.matches(%q)`, selector)
	for range 100 {
		if tab.Is(at) {
			return
		}
		tab.Keys("\t")
	}
	tab.Until(at) // which it is not: this says so
}

// An operation is planned, started and followed to its end, and a hold is begun and released, by keys
// alone, on pages that fit a wide and a narrow window.
func TestAnOperationAndAHoldByKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.fail("order", "charge", "HTTP 503", 3)
	tab := h.open(h.casePath("order"))
	fits := func() {
		t.Helper()
		for _, width := range []int64{1280, 390} {
			tab.Size(width, 844)
			tab.Fits()
		}
	}
	tab.KeysAway("r")
	reach(tab, "textarea[name=reason]")
	tab.Keys("gateway is back")
	reach(tab, "main input[name=actor]")
	tab.Keys("ann")
	reach(tab, "#guards summary")
	tab.Keys(" ")
	reach(tab, "input[name=waves]")
	tab.Keys("all") // replaces what is selected there
	fits()
	tab.KeysAway("\r")
	tab.Sees("3 would be released.")
	fits()
	reach(tab, "main form button")
	tab.KeysAway("\r")
	tab.Sees("The operation was started.")
	h.operate()
	h.work(func(tasker.Assignment) error { return nil })
	h.operate()
	tab.Sees("3 verified")
	looksGood(tab)

	tab.Go(h.server.URL + "/ui/queues/shop/run")
	tab.KeysAway("h")
	reach(tab, "textarea[name=reason]")
	tab.Keys("PSP outage")
	reach(tab, "main form button")
	fits()
	tab.KeysAway("\r")
	tab.Sees("Steps in the scope are held.")
	h.create("order", `{}`)
	h.goOn()
	tab.Sees("1 step")
	fits()
	tab.KeysAway("r")
	reach(tab, "textarea[name=reason]")
	tab.Keys("PSP is back")
	reach(tab, "main form button")
	fits()
	tab.KeysAway("\r")
	tab.Sees("The hold is being released.")
	held := 0
	for range 4 { // a wave each
		h.goOn()
		h.work(func(tasker.Assignment) error { held++; return nil })
	}
	h.goOn()
	if held != 1 {
		t.Errorf("%d steps were worked on after the release, want 1", held)
	}
	h.shows(h.get("/ui/holds?state=open"), http.StatusOK, "No open holds")
}

// newestOperation returns the operation that was planned last; its id is zero if there is none.
func (h *harness) newestOperation() tasker.Operation {
	h.Helper()
	list, _, err := h.DB.Operations(h.Context(), tasker.OperationFilter{Limit: 1})
	h.Must(err)
	return append(list, tasker.Operation{})[0]
}
