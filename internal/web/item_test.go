package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
)

// lists makes a task whose map step has so many items, of which some have failed.
func (h *harness) lists(n int, failed ...int) (task, refund tasker.ID) {
	h.Helper()
	s := step("refund")
	s.Type, s.Over = tasker.MapStep, "context.lines"
	h.Template("refunds", s)
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"line": %d}`, i)
	}
	task = h.create("refunds", `{"lines": [`+strings.Join(lines, ",")+`]}`)
	h.tick()
	for left := n; left > 0; {
		for _, a := range h.next() {
			o := tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(fmt.Sprint(*a.Index))}
			for _, i := range failed {
				if i == *a.Index {
					o = tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "bank is <b>closed</b>", Type: "test"}}
				}
			}
			_, err := h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{o}, 0)
			h.Must(err)
			left--
		}
	}
	steps := h.steps(task)
	return task, steps[0].UUID
}

// The page of a task leads to all items of a map step, in pages and by state, and each is repaired there.
func TestItemsAreListedAndRepaired(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, refund := h.lists(120, 3, 7)
	path := pageOf(task) + "/steps/" + refund.String() + "/items"
	h.shows(h.get(pageOf(task)), http.StatusOK, `<a href="`+path+`">120 items, 118 done, <strong>2 failed</strong></a>`)

	first := h.get(path)
	h.shows(first, http.StatusOK, ">refund[0]</a>", ">refund[99]</a>", `href="`+path+`?from=100" rel="next"`, "0–99", `"line": 42`)
	if strings.Contains(first.text, "refund[100]") || strings.Contains(first.text, `rel="prev"`) {
		t.Error("the first page has what is on the second")
	}
	h.shows(h.get(path+"?from=100"), http.StatusOK, ">refund[100]</a>", ">refund[119]</a>", `href="`+path+`" rel="prev"`)
	failed := h.get(path + "?state=error")
	h.shows(failed, http.StatusOK, `<a href="`+path+`?state=error" aria-current="page">error</a>`, ">refund[3]</a>", ">refund[7]</a>", "bank is <b>closed</b>")
	if n := strings.Count(failed.text, "data-row"); n != 2 {
		t.Errorf("%d items have failed", n)
	}
	h.shows(h.get(path+"?state=enqueued"), http.StatusOK, "No item is enqueued")
	h.shows(h.get(path+"?state=lost"), http.StatusBadRequest, "state")
	h.shows(h.get(path+"?from=-1"), http.StatusBadRequest, "from")
	h.shows(h.get(pageOf(task)+"/steps/"+tasker.NewID().String()+"/items"), http.StatusNotFound)

	third, err := h.DB.StepNamed(t.Context(), task, "refund[3]")
	h.Must(err)
	resolve := pageOf(task) + "/steps/" + third.String() + "/resolve"
	h.shows(failed, http.StatusOK, `href="`+resolve+`"`)
	h.at(h.post(resolve, "reason=not needed", "actor=bob"), path)
	h.shows(h.get(path+"?state=resolved_manually"), http.StatusOK, ">refund[3]</a>")
}

// A step that is none of type map, or whose list is not known yet, has no items.
func TestAStepWithoutItems(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.shows(st.get(pageOf(st.task)+"/steps/"+st.step.String()+"/items"), http.StatusOK, "The step has no items.", "No items")
}
