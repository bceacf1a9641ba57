package web_test

import (
	"html"
	"net/http"
	"regexp"
	"testing"

	"tasker.example/tasker"
)

// Only acts that can work for some of the investigations are offered, with their number.
func TestOnlyPossibleActsAreOffered(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(3)
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: "shop", Name: "export", Version: "1.0.0", Steps: []tasker.StepTemplate{{Name: "approve", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry()}},
	}, "")
	h.Must(err)
	for range 2 {
		task := h.CreateWith(tasker.NewTask{Namespace: "shop", Name: "export"})
		h.tick()
		h.post("/ui/tasks/"+task.String()+"/investigate", "actor=ann", "reason=nobody answers")
	}
	h.FindCases()
	failed, opened := h.casePath("order"), h.casePath("export")
	h.shows(h.get(failed), http.StatusOK, `href="`+failed+`/run" data-key="r" data-does="plan an operation on the case">Retry 3…`)
	h.lacks(h.get(failed), "Answer 3", "End 3", "Nothing to retry")
	h.shows(h.get(opened), http.StatusOK, `href="`+opened+`/run?act=answer" data-key="r" data-does="plan an operation on the case">Answer 2…`, "End 2…",
		"Nothing to retry: no step of these investigations has failed permanently.")
	h.lacks(h.get(opened), "Retry 2")
	h.shows(h.get("/ui/?namespace=shop"), http.StatusOK, "Retry all 3…", "Answer all 2…", "End all 2…")
	h.shows(h.get("/ui/?template=export"), http.StatusOK, `href="/ui/plan?act=answer&all=1&template=export" data-key="r"`)
	h.lacks(h.get("/ui/?template=export"), "Retry all")

	h.shows(h.get(failed+"/run"), http.StatusOK, `value="reset_for_retry" checked`, "Run again: 3", "Skip the step: 3", "Cancel the tasks: 3", "Recreate the tasks: 3",
		"Not possible: Answer: no external step waits for an answer; End the investigations: no task is complete, cancelled or recovered", "Create the plan", "Back without changes")
	h.lacks(h.get(failed+"/run"), `value="answer"`, `value="end_investigation"`)
	// What was asked for cannot work: the first act that can is chosen.
	for _, act := range []string{"", "?act=resolve_manually", "?act=answer"} {
		r := h.get(opened + "/run" + act)
		h.shows(r, http.StatusOK, `value="answer" checked`, "Answer: 2", "End the investigations: 2", "Not possible: Run again: no step of these investigations has failed permanently")
		h.lacks(r, `value="reset_for_retry"`)
	}
	h.shows(h.post(opened+"/run", "actor=ann", "reason=approved", "act=answer", `result={"ok": true}`, "waves=all", "tolerate=2%", "key=k"), http.StatusOK, "Answer 2 steps")
}

// The plan shows what has to be decided, and the rest on request.
func TestPlanGuardsAreCollapsed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(3)
	tab := h.open(h.casePath("order") + "/run")
	seen := func(selector string) bool {
		return tab.Is(`document.querySelector('` + selector + `').checkVisibility()`)
	}
	for selector, want := range map[string]bool{"#reason": true, "#actor": true, "#result": false, "#waves": false, "#failed_since": false} {
		if seen(selector) != want {
			t.Errorf("%s is shown: %v, want %v", selector, !want, want)
		}
	}
	tab.Click("input[value=complete_manually]")
	tab.Click("#guards summary")
	for _, selector := range []string{"#result", "#result_expression", "#waves", "#failed_since"} {
		if !seen(selector) {
			t.Errorf("%s is not shown", selector)
		}
	}
	h.shows(h.get(h.casePath("order")+"/run?failed_on=1.5.0"), http.StatusOK, `id="guards" open>`)
}

// The page of an operation plans for what failed again, as long as that can be retried.
func TestFailedItemsArePlannedTogether(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.declined(12)
	path := h.casePath("order")
	planned := h.post(path+"/run", "actor=ann", "reason=fixed", "waves=all", "tolerate=100%", "key=k")
	digest := regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(planned.text)[1]
	page := h.post(planned.url, "actor=ann", "seen=planned", "digest="+digest).url
	h.operate()
	h.work(func(tasker.Assignment) error { return errDeclined })
	h.operate()
	r := h.get(page)
	h.shows(r, http.StatusOK, "12 failed again", "Retry 12…")
	link := regexp.MustCompile(`href="(/ui/plan\?id=[^"]*)"`).FindStringSubmatch(r.text)
	if link == nil {
		t.Fatal("the page has no link to a plan")
	}
	h.shows(h.get(html.UnescapeString(link[1])), http.StatusOK, "Plan: <bdi>12 selected investigations", "Run again: 12")
	steps := h.steps(tasks[0])
	h.post("/ui/tasks/"+tasks[0].String()+"/steps/"+steps[0].UUID.String()+"/resolve", "actor=ann", "reason=skip it")
	h.shows(h.get(page), http.StatusOK, "12 failed again", "Retry 11…")
}
