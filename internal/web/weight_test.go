package web_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tasker.example/tasker"
)

// Counts up to seven digits are shown in full at every width, and nothing of a row is cut.
func TestCountsAreNeverCut(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.fail("order", "charge", "declined for @", 1)
	tab := h.open("/ui/")
	for _, width := range []int64{390, 768, 1024, 1280, 1920} {
		tab.Size(width, 844)
		tab.Eval(`document.querySelector("td.open").firstChild.data = "1,234,567", document.querySelector("td.recent").textContent = "+1,234,567"`)
		tab.Fits()
		for _, cell := range []string{"td.open", "td.recent", "td.state", "td.pickrow", ".totals", ".tools .who button"} {
			if !tab.Is(fmt.Sprintf(`[...document.querySelectorAll(%q)].every((e) => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight + 1)`, cell)) {
				t.Errorf("%s is cut at %d px", cell, width)
			}
		}
		if !tab.Is(`(() => { const box = document.querySelector(".pickbox input").getBoundingClientRect(), row = document.querySelector("tr[data-row]").getBoundingClientRect(); return box.right <= row.right && box.left >= row.left; })()`) {
			t.Errorf("the check box is cut at %d px", width)
		}
		if width >= 768 && !tab.Is(`document.querySelector("td.what").getBoundingClientRect().width >= 200`) {
			t.Errorf("no room for the case at %d px", width)
		}
	}
	h.shows(h.get("/ui/"), 200, `title="1 open, high`)
}

// Arriving investigations move nothing of the list.
func TestListIsStableWhileCasesArrive(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("refund", step("pay"))
	h.fail("order", "charge", "declined for @", 3)
	h.fail("refund", "pay", "closed", 2)
	for _, width := range []int64{390, 1280} {
		tab := h.open("/ui/")
		tab.Size(width, 844)
		drawn := func() {
			tab.Eval(`window.drawn = 0, requestAnimationFrame(function next() { if (++window.drawn < 5) requestAnimationFrame(next); })`)
			tab.Until(`window.drawn >= 5`)
		}
		tab.Until(`document.querySelector("td.open") !== null`)
		drawn()
		tab.Eval(`window.moved = 0, new PerformanceObserver((l) => { for (const e of l.getEntries()) { window.moved += e.value; window.what = [...(window.what || []), ...e.sources.map((s) => (s.node?.parentElement || s.node)?.className + ":" + (s.node?.textContent || "").slice(0, 20))]; } }).observe({ type: "layout-shift" })`)
		for range 3 {
			h.fail("order", "charge", "declined for @", 40)
			tab.Until(fmt.Sprintf(`document.querySelector("td.open").textContent.startsWith("%d")`, h.openOf("order")))
		}
		tab.Eval(`document.querySelector(".news").innerHTML = "<a href='/ui/'>217 being grouped</a>"`)
		drawn()
		if !tab.Is(`window.moved < 0.01`) {
			t.Errorf("at %d px the page moved by %s", width, tab.Answer(`window.moved + " " + window.what`))
		}
	}
}

// A page about many steps has at most 3,000 elements, and shows the step that failed.
func TestManyStepsArePaged(t *testing.T) {
	t.Parallel()
	const many = 500 // all of them would be more elements than a page may have
	h := newHarness(t)
	var steps []tasker.StepTemplate
	for i := range many {
		s := step(fmt.Sprintf("s%03d", i))
		if i >= 25 {
			s.Dependencies = []string{fmt.Sprintf("s%03d", i-25)}
			if i%25 > 0 {
				s.Dependencies = append(s.Dependencies, fmt.Sprintf("s%03d", i-26))
			}
		}
		steps = append(steps, s)
	}
	h.Template("grid", steps...)
	task := h.create("grid", `{}`)
	h.work(func(a tasker.Assignment) error {
		if a.Name == "s312" {
			return errors.New("no such bucket")
		}
		return nil
	})
	h.FindCases()
	failed := h.stepNamed(task, "s312")
	tab := h.open("/ui/tasks/" + task.String())
	nodes := func(what string) {
		t.Helper()
		if !tab.Is(`document.querySelectorAll("*").length <= 3000`) {
			t.Errorf("%s has %s elements", what, tab.Answer(`String(document.querySelectorAll("*").length)`))
		}
		if !tab.Is(`(() => { const g = document.querySelector(".graph"), m = g.querySelector(".marked"); if (!m) return false; const a = g.getBoundingClientRect(), b = m.getBoundingClientRect(); return b.left >= a.left && b.right <= a.right && b.top >= a.top && b.bottom <= a.bottom; })()`) {
			t.Errorf("%s does not show the failed step in its picture", what)
		}
	}
	for _, width := range []int64{390, 1280} {
		tab.Size(width, 1000)
		tab.Go(h.server.URL + "/ui/tasks/" + task.String())
		nodes("the task")
		if !tab.Is(fmt.Sprintf(`document.querySelector("table.steps tbody tr").id === "step-%s"`, failed)) {
			t.Errorf("the first row is not the failed step")
		}
		tab.Go(h.server.URL + "/ui/investigations/" + h.Entry(task).UUID.String())
		nodes("the investigation")
	}
	tab.Accessible()

	// Each step is on one page, which a link to it finds; without script as well.
	seen := map[string]bool{}
	for at := 0; at < many; at += 40 {
		for _, part := range strings.Split(h.get(fmt.Sprintf("/ui/tasks/%s?steps=%d", task, at)).text, `<tr data-row id="step-`)[1:] {
			seen[part[:36]] = true
		}
	}
	if len(seen) != many {
		t.Errorf("the pages have %d steps", len(seen))
	}
	last := h.stepNamed(task, "s003")
	h.shows(h.get("/ui/tasks/"+task.String()+"?step="+last), 200, `<tr data-row id="step-`+last)
	h.shows(h.get("/ui/tasks/"+task.String()), 200, "1–40 of 500 steps, failed and waiting first", `?step=`)
	h.shows(h.get("/ui/tasks/"+task.String()+"?steps=x"), 400)
}

func (h *harness) stepNamed(task tasker.ID, name string) (id string) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT step_uuid::text FROM tasker.workflow_steps WHERE task_uuid = $1 AND name = $2`, task, name).Scan(&id))
	return id
}

func (h *harness) openOf(template string) (n int) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT count(*) FROM tasker.case_members WHERE task_name = $1 AND ended_at IS NULL`, template).Scan(&n))
	return n
}
