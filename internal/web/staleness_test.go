package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// watch makes a task of a template that has been in process for so many minutes,
// with a threshold of 60.
func (h *harness) watch(template string, minutes int) (task string) {
	h.Helper()
	id := h.create(template, `{}`)
	h.Exec(`UPDATE tasker.tasks SET state_since = now() - make_interval(mins => $2), created_at = now() - make_interval(mins => $2 + 5),
		warn_at = now() + make_interval(mins => 48 - $2), stale_at = now() + make_interval(mins => 60 - $2) WHERE task_uuid = $1`, id, minutes)
	return id.String()
}

// sees checks that a page has these texts.
func (h *harness) sees(r reply, texts ...string) {
	h.Helper()
	for _, text := range texts {
		if !strings.Contains(r.text, text) {
			h.Errorf("%s has no %q:\n%s", r.url, text, r.text)
		}
	}
}

// at checks where a request has led.
func (h *harness) at(r reply, url string) {
	h.Helper()
	if r.url != url {
		h.Errorf("it leads to %s, want %s:\n%s", r.url, url, r.text)
	}
}

// matches checks that each of these patterns matches a part of a page.
func (h *harness) matches(r reply, patterns ...string) {
	h.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(r.text) {
			h.Errorf("%s has nothing that matches %s:\n%s", r.url, p, r.text)
		}
	}
}

// lacks checks that a page has none of these texts.
func (h *harness) lacks(r reply, texts ...string) {
	h.Helper()
	for _, text := range texts {
		if strings.Contains(r.text, text) {
			h.Errorf("%s has %q", r.url, text)
		}
	}
}

// refused checks the status of a page that is an error, and what it says.
func (h *harness) refused(r reply, status int, texts ...string) {
	h.Helper()
	if r.status != status {
		h.Errorf("%s: %d, want %d", r.url, r.status, status)
	}
	h.sees(r, append(texts, `role="alert"`)...)
}

func TestStaleness(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.get("/ui/staleness")
	h.sees(r, "No watched tasks", "data-live")
	h.Template("order", step("pay"))
	healthy, warning, stale := h.watch("order", 12), h.watch("order", 52), h.watch("order", 66)
	r = h.get("/ui/staleness")
	h.sees(r, "/ui/tasks/"+healthy, "/ui/tasks/"+warning, "/ui/tasks/"+stale, "52 of 60 min, 86 %", "12 of 60 min, 20 %", "66 of 60 min, 110 %",
		`<rect class="good" width="20"`, `<rect class="warn" width="87"`, `<rect class="bad" width="110"`, "stale <strong>1<", "all <strong>3<")
	if strings.Index(r.text, stale) > strings.Index(r.text, warning) {
		t.Error("the most urgent is not the first")
	}
	r = h.get("/ui/staleness?health=warning")
	h.sees(r, warning, "stale <strong>1<")
	h.lacks(r, stale, healthy)
	r = h.get("/ui/staleness?health=warning&namespace=shop&name=order")
	h.sees(r, warning, "stale <strong>1<", `<input type="hidden" name="health" value="warning">`, `name="name" value="order"`,
		`href="/ui/staleness?health=stale&amp;name=order&amp;namespace=shop"`, `href="/ui/staleness?health=warning" data-key="c"`)
	h.lacks(r, stale, healthy)
	h.sees(h.get("/ui/staleness?name=other"), "No task matches", "all <strong>0<")
	h.refused(h.get("/ui/staleness?health=ill"), http.StatusBadRequest, "Invalid health")
	h.refused(h.get("/ui/staleness?offset=-1"), http.StatusBadRequest, "Invalid offset")
}

func TestStalenessIsPaged(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("pay"))
	for range 101 {
		h.create("order", `{}`)
	}
	r := h.get("/ui/staleness")
	h.sees(r, "1–100", "/ui/staleness?offset=100")
	if n := strings.Count(r.text, "data-row"); n != 100 {
		t.Errorf("%d rows", n)
	}
	r = h.get("/ui/staleness?offset=100")
	if n := strings.Count(r.text, "data-row"); n != 1 {
		t.Errorf("%d rows", n)
	}
	h.sees(h.get("/ui/staleness?health=stale"), "No task is stale")
	h.sees(h.get("/ui/staleness?name=order"), "/ui/staleness?name=order&amp;offset=100")
	h.sees(h.get("/ui/staleness?offset=1000"), "No watched tasks")
}
