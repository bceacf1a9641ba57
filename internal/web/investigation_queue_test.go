package web_test

import (
	"errors"
	"flag"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/web"
)

// fail makes so many tasks of a template whose step fails with a message.
func (h *harness) fail(template, step, message string, count int) (tasks []tasker.ID) {
	h.Helper()
	for range count {
		tasks = append(tasks, h.create(template, `{}`))
	}
	h.work(func(a tasker.Assignment) error {
		if a.TaskName == template && a.Name == step {
			return errors.New(strings.ReplaceAll(message, "@", a.TaskUUID.String()))
		}
		return nil
	})
	return tasks
}

// declined makes so many tasks of a new template order whose step charge fails.
func (h *harness) declined(count int) []tasker.ID {
	h.Helper()
	h.Template("order", step("charge"))
	return h.fail("order", "charge", "declined", count)
}

func TestQueueGroupsEqualFailures(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("validate"), step("charge", "validate"))
	h.Template("refund", step("pay"))
	tasks := h.fail("order", "charge", "card of order @ declined", 7)
	h.fail("refund", "pay", "bank is closed", 1)

	r := h.get("/ui/")
	h.shows(r, http.StatusOK, "8 investigations in 2 cases", "shop/order › charge", "card of order <id> declined", "shop/refund › pay")
	r = h.get("/ui/?view=entries")
	if n := strings.Count(r.text, "data-row"); n != 8 || !strings.Contains(r.text, "a handler reported a permanent failure") || !strings.Contains(r.text, "card of order "+tasks[0].String()+" declined") || strings.Count(r.text, ">waiting</span>") != 8 {
		t.Errorf("%d rows, want 8:\n%s", n, r.text)
	}
	for query, want := range map[string]int{
		"template=refund": 1, "reason=max_retries_exceeded": 8, "reason=manual_dlq": 0, "text=declined": 7, "text=" + tasks[0].String(): 1,
		"state=error": 8, "age=1h": 0, "recovered=true": 0, "limit=3": 3, "limit=3&offset=6": 2, "namespace=shop&text=bank": 1,
	} {
		r := h.get("/ui/?view=entries&" + query)
		if n := strings.Count(r.text, "data-row"); r.status != http.StatusOK || n != want {
			t.Errorf("%s: %d with %d rows, want %d", query, r.status, n, want)
		}
		if nothing := strings.Contains(r.text, "Nothing matches"); nothing != (want == 0) {
			t.Errorf("%s: says that nothing matches: %v", query, nothing)
		}
	}
	for query, want := range map[string]string{
		"reason=boredom": "invalid reason", "state=happy": "invalid state", "limit=0": "must be a number from 1 to 1000",
		"limit=1001": "from 1 to 1000", "offset=x": "invalid offset", "age=long": "must be a duration", "age=-5m": "must be a duration",
		"case=7": "invalid case", "case_state=odd": "invalid case_state", "unowned=x": "invalid unowned", "failed_again=x": "invalid failed_again", "owner=%00": "invalid owner",
		"case_state=resolved&age=1h": "resolved cases have no open investigations", "text=%00": "must be valid utf-8 without nul", "namespace=%ff": "must be valid utf-8 without nul", "recovered=perhaps": "invalid recovered",
	} {
		if r := h.get("/ui/?" + query); r.status != http.StatusBadRequest || !strings.Contains(strings.ToLower(r.text), want) {
			t.Errorf("%s: %d, without %q", query, r.status, want)
		}
	}
}

func TestTheQueueByKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("refund", step("pay"))
	h.fail("order", "charge", "declined", 3)
	h.fail("refund", "pay", "closed", 2)
	tab := h.open("/ui/")
	tab.KeysAway("v")
	tab.Sees("5 investigations on this page")
	tab.Keys("j")
	tab.Keys("j")
	tab.Keys("j")
	tab.Keys("k")
	tab.Until(`document.activeElement.closest("[data-row]") === document.querySelectorAll("[data-row]")[1]`)
	tab.KeysAway("v")
	tab.Sees("in 2 cases")
	tab.Keys("/")
	tab.Until(`document.activeElement.name === "text"`)
	tab.KeysAway("refund\r")
	tab.Sees("2 investigations in 1 case")
	tab.Keys("g")
	tab.KeysAway("q")
	tab.Sees("5 investigations in 2 cases")
}

// What happens shows by itself, and the reader stays where they are: the row that has
// the focus keeps it, an open part stays open, and what is typed is not touched.
func TestTheQueueKeepsItselfUpToDate(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(3)
	tab := h.open("/ui/?view=entries")
	tab.Sees("3 investigations on this page")
	tab.Keys("j")
	tab.Keys("j")
	tab.Eval(`window.here = document.activeElement.href`)
	h.fail("order", "charge", "declined", 2)
	tab.Sees("5 investigations on this page")
	if !tab.Is(`document.activeElement.href === window.here`) {
		t.Error("the focus is lost")
	}
	tab.Keys("p") // stop
	tab.Until(`document.getElementById("pause").getAttribute("aria-pressed") === "true"`)
	h.fail("order", "charge", "declined", 1)
	tab.Keys("p")
	tab.Sees("6 investigations on this page")
	tab.Keys("/")
	tab.Keys("dec")
	h.fail("order", "charge", "declined", 1)
	tab.Keys("line")
	tab.Until(`document.querySelector("input[name=text]").value === "decline"`)
	tab.Keys("\x1b") // Esc: leave the field
	tab.Sees("7 investigations on this page")
}

func TestAnEmptyQueueSaysWhatIsWatched(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.create("order", `{}`)
	h.sees(h.get("/ui/"), "No open investigations", "closest to its staleness limit", "shop/order")
}

// The list is dense: the first case is near the top, and a case is a line.
func TestCaseListIsDense(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for i := range 20 {
		name := "order_with_a_name_that_is_long_" + string(rune('a'+i))
		h.Template(name, step("charge"))
		h.fail(name, "charge", "HTTP 503 from https://pay.example/charge/ORDER-@, and a long text behind it that no line of the list has room for", i%3+1)
	}
	tab := h.open("/ui/")
	tab.Sees("20 cases")
	top := `document.querySelector("tr[data-row]").getBoundingClientRect().top + scrollY`
	if !tab.Is(top + ` <= 260`) {
		t.Errorf("at 1280 the first case is at %s", tab.Answer(`String(`+top+`)`))
	}
	if !tab.Is(`[...document.querySelectorAll("tr[data-row]")].every((r) => r.offsetHeight <= 36)`) {
		t.Errorf("at 1280 a case is %s high", tab.Answer(`String(document.querySelector("tr[data-row]").offsetHeight)`))
	}
	tab.Accessible()
	tab.Size(390, 844)
	if !tab.Is(top + ` <= 260`) {
		t.Errorf("at 390 the first case is at %s", tab.Answer(`String(`+top+`)`))
	}
	if !tab.Is(`[...document.querySelectorAll("tr[data-row]")].every((r) => r.offsetHeight <= 120)`) {
		t.Errorf("at 390 a case is %s high", tab.Answer(`String(document.querySelector("tr[data-row]").offsetHeight)`))
	}
	tab.Fits()
}

// While the case of an investigation is not known the page does not say that nothing needs anybody.
func TestUngroupedInvestigationsAreShown(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(2)
	h.WithCases(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(t.Context()))
	h.fail("order", "charge", "closed", 3)
	pages := web.New(t.Context(), web.Options{
		DB: h.DB, Engine: h.Engine, DLQ: h.DLQ, Cases: cases.New(h.DB, cases.Options{}), Operations: h.ops, Explain: explain.New(h.DB, explain.Options{}),
		Holds: hold.New(h.DB, h.Engine, hold.Options{}),
	}) // no loop has found their cases
	get := func(path string) string {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil).WithContext(t.Context()))
		return w.Body.String()
	}
	if text := get("/ui/"); !strings.Contains(text, "3 new investigations are being grouped") || !strings.Contains(text, "2 investigations in 1 case") {
		t.Errorf("says\n%s", text)
	}
	h.Exec(`UPDATE tasker.case_members SET fingerprint = NULL, fingerprint_version = 0`)
	if text := get("/ui/"); !strings.Contains(text, "5 new investigations are being grouped into cases") || strings.Contains(text, "No open investigations") {
		t.Errorf("says\n%s", text)
	}
}

// The chips show what they say.
func TestFilterChips(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, name := range []string{"order", "refund", "again", "over"} {
		h.Template(name, step("pay"))
	}
	h.fail("order", "pay", "declined", 2)
	h.fail("refund", "pay", "closed", 1)
	over := h.fail("over", "pay", "late", 1)[0]
	again := h.fail("again", "pay", "broken", 1)[0]
	list := func(query string) (names []string) {
		t.Helper()
		r := h.get("/ui/" + query)
		for _, name := range []string{"order", "refund", "again", "over"} {
			if strings.Contains(r.text, "shop/"+name+" › pay</bdi>") {
				names = append(names, name)
			}
		}
		return names
	}
	all := list("")
	h.Must(h.Engine.CancelTask(t.Context(), over, "ann", "late"))
	e := h.Entry(over)
	h.update(e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("late"), ResolvedBy: new("ann"), Actor: "ann"})
	steps := h.steps(again)
	h.operateStep(again, steps[0].UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "again"})
	h.work(func(tasker.Assignment) error { return errors.New("broken") })
	h.post("/ui/name", "name=ann")
	h.post(h.casePath("refund")+"/own", "seen="+h.caseSeen("refund"), "actor=ann")
	h.post(h.casePath("order")+"/snooze", "seen="+h.caseSeen("order"), "actor=ann", "for=1h")
	r := h.get("/ui/")
	for _, c := range []struct {
		chip string
		want []string
	}{
		{"unowned", []string{"order", "again"}}, {"mine", []string{"refund"}}, {"new", nil}, {"growing", nil}, {"regressed", nil},
		{"failed again", []string{"again"}}, {"snoozed", []string{"order"}}, {"resolved", []string{"over"}},
	} {
		link := regexp.MustCompile(`<a href="/ui/([^"]*)">` + c.chip + `</a>`).FindStringSubmatch(r.text)
		if link == nil {
			t.Errorf("no chip %s:\n%s", c.chip, r.text)
			continue
		}
		if got := list(html.UnescapeString(link[1])); !slices.Equal(got, c.want) {
			t.Errorf("%s shows %q, want %q", c.chip, got, c.want)
		}
	}
	if len(all) != 4 {
		t.Errorf("all are %q", all)
	}
}

var queueLength = flag.Int("queue", 1000, "how many investigations are open; `make large` has 10,000")

// Thousands of open investigations make the page no slower than two calls of the API; what the two
// take is logged, and compared in docs/reference/ui.md.
func TestALongQueueIsALightPage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.fillQueue(*queueLength)
	took := func(path string) time.Duration {
		var best time.Duration
		for range 9 {
			start := time.Now()
			if r := h.get(path); r.status != http.StatusOK {
				t.Fatalf("%s: %d", path, r.status)
			}
			if d := time.Since(start); best == 0 || d < best {
				best = d
			}
		}
		return best
	}
	t.Logf("queue by case %v, each %v; two calls of the API %v", took("/ui/"), took("/ui/?view=entries"), 2*took("/v1/dlq/investigation-queue"))
	for _, path := range []string{"/ui/", "/ui/?view=entries"} {
		weight := len(h.get(path, "Accept-Encoding: gzip").text) // set here, so that the client does not decompress it
		t.Logf("%s weighs %d bytes", path, weight)
		if most := 100_000; weight > most { // besides what it loads, which is counted elsewhere
			t.Errorf("%s weighs %d bytes, want at most %d", path, weight, most)
		}
	}
	tab := h.open("/ui/")
	tab.Sees(fmt.Sprintf("%d,000 investigations in 1 case", *queueLength/1000))
	tab.Reload() // with what a browser keeps
	tab.Until(`performance.getEntriesByName("first-contentful-paint").length > 0`)
	t.Logf("in the browser: %s", tab.Answer(`(async () => {
		const calls = async () => {
			const start = performance.now();
			for (let i = 0; i < 2; i++) await (await fetch("/v1/dlq/investigation-queue")).json();
			return performance.now() - start;
		};
		let best = 1e9;
		for (let i = 0; i < 9; i++) best = Math.min(best, await calls());
		const nav = performance.getEntriesByType("navigation")[0];
		const paint = performance.getEntriesByName("first-contentful-paint")[0];
		return JSON.stringify({page_ms: nav.responseEnd - nav.requestStart, first_paint_ms: paint.startTime, two_calls_ms: best});
	})()`))
	tab.Go(h.server.URL + "/ui/?view=entries")
	tab.Sees("100 investigations on this page")
}
