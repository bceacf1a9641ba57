package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker"
)

var (
	getForm   = regexp.MustCompile(`(?s)<form[^>]* method="get" action="([^"]*)".*?</form>`)
	fieldName = regexp.MustCompile(`<(?:input|select)[^>]* name="([^"]*)"`)
)

// sent returns the address to which a form of a page goes, with all of its fields left empty.
func sent(form []string) string {
	fields := url.Values{}
	for _, f := range fieldName.FindAllStringSubmatch(form[0], -1) {
		fields.Add(f[1], "")
	}
	return html.UnescapeString(form[1]) + "?" + fields.Encode()
}

// Pages accept every parameter of their own links and forms, and refuse any other one.
func TestPagesRefuseUnknownParameters(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.sinks("webhook")
	mine := h.tenant("aqz", 2)
	h.settled("webhook", mine)
	h.operated(mine)
	h.hold(tasker.HoldScope{Namespace: "space-aqz", Handler: "away"})
	admin := h.signedIn("admin", "admin@*")
	empty := map[string]bool{"/ui/plan": true, "/ui/limit": true, "/ui/delete-limit": true} // they need a parameter
	forms, asked := 0, 0
	for path, r := range admin.crawl(mine) {
		if r.status == http.StatusBadRequest && !empty[path] {
			t.Errorf("%s is answered with 400\n%.2000s", path, r.text)
		}
		for _, form := range getForm.FindAllStringSubmatch(r.text, -1) {
			forms++
			if to := sent(form); !strings.HasPrefix(to, "/ui/plan?") { // nothing is selected
				h.shows(admin.get(to), http.StatusOK)
			}
		}
		page, _ := url.Parse(path)
		if r.status != http.StatusOK || r.url != path || strings.HasPrefix(path, "/ui/sign-") || strings.Contains(path, "/tasks?id=") {
			continue
		}
		asked++
		query := page.Query()
		query.Set("nonsense", "1")
		page.RawQuery = query.Encode()
		h.shows(admin.get(page.String()), http.StatusBadRequest, `Unknown parameter "nonsense"`)
	}
	if forms < 10 || asked < 40 {
		t.Errorf("%d forms and %d pages were asked", forms, asked)
	}
	h.shows(admin.get("/ui/tasks?namespace=space-aqz&status=error"), http.StatusBadRequest, `Unknown parameter "status": this page has `, "; did you mean state?")
	h.shows(admin.get("/ui/holds?stat"), http.StatusBadRequest, `Unknown parameter "stat": this page has before, state; did you mean state?`)
	h.shows(admin.get("/ui/tasks?state=%zz"), http.StatusBadRequest, "Invalid query")
}

// A form whose address has a parameter that it does not know changes nothing.
func TestFormsRefuseUnknownParameters(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	for path, reason := range map[string]string{"/ui/cancel-tasks?namespace=shop&status=error": "all", st.action("resolve") + "?entrie=1": "one"} {
		r := st.post(path, "actor=ann", "reason="+reason)
		st.shows(r, http.StatusBadRequest, "Unknown parameter")
	}
	if s := st.stepOf("charge"); s.State != tasker.StepError {
		t.Errorf("the step is %s", s.State)
	}
}
