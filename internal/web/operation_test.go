package web_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker"
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
		_, err := h.ops.Look(h.Context())
		h.Must(err)
	}
}

func TestAnOperationFromACaseToItsEnd(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.shows(h.get("/ui/operations"), http.StatusOK, "There are no operations")
	h.Template("order", step("charge"))
	h.fail("order", "charge", "declined", 13)
	path := h.casePath("order")
	h.shows(h.get(path), http.StatusOK, "Run 13 again…", path+"/run")
	h.shows(h.get(path+"/run"), http.StatusOK, "The most urgent 10 of 13", `value="1, 10, 100"`, "tasker-ctl --server "+h.server.URL+" operation plan --case")
	r := h.post(path+"/run", "actor=ann", "reason=gateway is back", "waves=1, 10", "rate=200/s", "stop_after=2", "key=k")
	h.shows(r, http.StatusOK, "13 steps are frozen: all that was selected", "wave 1: 1 → wave 2: 10 → rest: 2, rate 200/s", "13 would be released.", "13 × step <strong>charge</strong> would become ready",
		"Run 13 steps again, 1 first", "nothing has changed")
	plan := r.url
	page := strings.TrimSuffix(plan, "/start")
	if again := h.post(path+"/run", "actor=ann", "reason=gateway is back", "waves=1, 10", "rate=200/s", "stop_after=2", "key=k"); again.url != plan {
		t.Errorf("the same form again goes on to %s, not to %s", again.url, plan)
	}
	h.shows(h.post(path+"/run", "actor=bob", "reason=mine", "waves=all", "stop_after=2", "key=l"), http.StatusConflict, "of ann holds 13 of the selected steps", ">mine</textarea>", `href="`+page+`"`)
	h.shows(h.get(page), http.StatusOK, "Nothing is done yet", "13 to go = 13", "13 planned", plan)
	h.shows(h.get("/ui/operations?state=planned"), http.StatusOK, "Run 13 steps again", "gateway is back")
	h.shows(h.get("/ui/operations?state=done"), http.StatusOK, "No operation is done")
	h.shows(h.get(path), http.StatusOK, `<a href="`+page+`">Run 13 steps again</a>`)

	digest := regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(r.text)[1]
	h.shows(h.post(plan, "actor=ann", "seen=planned", "digest=sha256:other"), http.StatusConflict, "look at it again", `value="`+digest+`"`)
	h.shows(h.post(plan, "actor=ann", "seen=planned", "digest="+digest), http.StatusOK, "The operation is running.", "wave 1: 1, under way")
	h.shows(h.get(plan), http.StatusConflict, "The operation is running: it cannot be changed so.")
	h.operate()
	h.work(func(tasker.Assignment) error { return nil })
	h.operate()
	h.shows(h.get(page), http.StatusOK, "1 verified", "wave 1: 1 ✓", "wave 2: 10, under way")
	h.shows(h.get(path), http.StatusOK, "10 being proved")
	n := 0
	h.work(func(tasker.Assignment) error {
		if n++; n <= 2 {
			return errors.New("HTTP 404 <b>gone</b>")
		}
		return nil
	})
	h.operate()
	r = h.get(page)
	h.shows(r, http.StatusOK, "Paused by itself", "HTTP 404 <b>gone</b>", "2 failed again", "9 verified", "2 to go = 13", page+"/resume", page+"/abort")
	if before, _, found := strings.Cut(r.text, "2 failed again</h2>"); !found || strings.Contains(before, "9 verified</h2>") {
		t.Error("what failed again does not come first")
	}
	h.lacks(r, page+"/pause")
	h.shows(h.get(page+"?state=failed_again"), http.StatusOK, "2 failed again</h2>", "Items in all states")
	h.shows(h.get(page+"?state=running"), http.StatusOK, "No item is running")
	h.shows(h.get(page+"?state=odd"), http.StatusBadRequest, "Invalid state")
	h.fail("order", "charge", "declined", 3)
	h.shows(h.get(page), http.StatusOK, "3 investigations came since the plan", path+"/run")
	h.shows(h.post(page+"/resume", "actor=ann", "seen=running"), http.StatusConflict, "The operation is paused now")
	h.shows(h.post(page+"/resume", "actor=ann", "seen=paused"), http.StatusOK, "The operation is running.")
	h.shows(h.post(page+"/pause", "actor=ann", "seen=running"), http.StatusOK, "The operation is paused.", "Paused by ann")
	h.shows(h.post(page+"/abort", "seen=paused"), http.StatusBadRequest, "Give your name")
	h.shows(h.post(page+"/abort", "actor=ann"), http.StatusBadRequest, "which state of the operation")
	r = h.post(page+"/abort", "actor=ann", "seen=paused")
	h.shows(r, http.StatusOK, "The operation is aborted.", "2 aborted")
	h.lacks(r, page+"/abort", page+"/resume")
	h.shows(h.get(page+"/abort"), http.StatusConflict, "The operation is aborted: it cannot be changed so.")
}

func TestWhatIsWrongWithAPlan(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	tasks := h.fail("order", "charge", "declined", 2)
	path := h.casePath("order") + "/run"
	for field, says := range map[string]string{
		"reason=": "Give a reason", "actor=": "Give your name", "waves=0": `Invalid waves "0"`, "waves=1,x": "Invalid waves", "waves=": "Invalid waves", "waves=100001": "Invalid waves",
		"rate=5": `Invalid rate "5"`, "rate=0/s": "Invalid rate", "rate=1001/s": "Invalid rate", "stop_after=0": "Invalid number of failures", "stop_after=x": "Invalid number of failures",
	} {
		r := h.post(path, "actor=ann", "reason=the <i>bank</i>", "waves=1,2", "rate=7/s", "stop_after=3", "skip=1", field)
		h.shows(r, http.StatusBadRequest, says, `role="alert"`, `name="skip" value="1" checked`)
		if !strings.HasPrefix(field, "reason") {
			h.shows(r, http.StatusBadRequest, "the <i>bank</i></textarea>")
		}
	}
	for _, task := range tasks { // their steps are no longer failed
		h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "over"))
	}
	h.shows(h.post(path, "actor=ann", "reason=kept", "waves=1", "stop_after=3"), http.StatusConflict, "no step of their tasks has failed", ">kept</textarea>")
	for _, p := range []string{"/ui/operations/x", "/ui/operations/" + newID().String(), "/ui/operations/" + newID().String() + "/start", "/ui/cases/" + newID().String() + "/run"} {
		if r := h.get(p); r.status != http.StatusNotFound {
			t.Errorf("%s is answered with %d", p, r.status)
		}
	}
	if list, _, err := h.DB.Operations(t.Context(), tasker.OperationFilter{Limit: 1}); err != nil || len(list) != 0 {
		t.Errorf("%d operations, %v", len(list), err)
	}
}

// From a case to an operation that runs, in a browser, on a wide and on a narrow page.
func TestAnOperationByMouse(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.fail("order", "charge", "HTTP 503 for order @", 12)
	tab := h.open(h.casePath("order"))
	tab.Picture("case")
	tab.KeysAway("r")
	tab.Type("textarea[name=reason]", "gateway is back")
	tab.Type("main input[name=actor]", "ann")
	tab.Accessible()
	tab.Size(390, 844)
	tab.Fits()
	tab.Accessible()
	tab.Size(1280, 900)
	tab.Follow("main form button:not(.plain)")
	tab.Sees("12 would be released.")
	tab.Picture("plan")
	tab.Accessible()
	tab.Size(390, 844)
	tab.Fits()
	tab.Accessible()
	tab.Size(1280, 900)
	tab.Follow("main form button:not(.plain)")
	tab.Sees("wave 1: 1, under way")
	h.operate()
	h.work(func(tasker.Assignment) error { return nil })
	h.operate()
	tab.Sees("1 verified") // by itself
	tab.Picture("operation")
	tab.Accessible()
	tab.Size(390, 844)
	tab.Fits()
	tab.Accessible()
	tab.Dark(true)
	tab.Accessible()
	tab.Go(h.server.URL + "/ui/operations")
	tab.Sees("Run 12 steps again")
	tab.Fits()
	tab.Accessible()
}
