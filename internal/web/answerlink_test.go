package web_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/web"
)

// linked is a task with a step that waits for ann, and the page of its links.
func (h *harness) linked() (task tasker.ID, page string) {
	h.Helper()
	h.Template("refund", tasker.StepTemplate{Name: "approve", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), Assignee: "ann", Form: []byte(answerSchema)})
	task = h.create("refund", `{"customer": "the secret of eve"}`)
	h.tick()
	steps := h.steps(task)
	return task, "/ui/tasks/" + task.String() + "/steps/" + steps[0].UUID.String() + "/links"
}

var linkOnPage = regexp.MustCompile(`https?://[^<]*(/ui/answer/tsl_[A-Z2-7]{26})`)

// pathOfLink is the path of the link that a page shows.
func (h *harness) pathOfLink(r reply) string {
	h.Helper()
	found := linkOnPage.FindStringSubmatch(r.text)
	if r.status != http.StatusCreated || found == nil {
		h.Fatalf("%d\n%s", r.status, r.text)
	}
	return found[1]
}

// Somebody who has not signed in answers by a link, once. The page shows what is asked and nothing else.
func TestAStepIsAnsweredByALink(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	task, page := h.linked()
	olaf := h.signedIn("olaf", "operator@*")
	olaf.sees(olaf.get("/ui/tasks/"+task.String()), page)
	olaf.shows(olaf.post(page, "hours=0"), http.StatusBadRequest, "from 1 to 720")
	made := olaf.post(page, "hours=5")
	path := h.pathOfLink(made)
	olaf.sees(made, "task answer-link "+task.String()+" approve", "It is shown only once")
	if again := olaf.get(page); strings.Contains(again.text, path[len("/ui/answer/"):]) || !strings.Contains(again.text, "<td data-label=\"State\">open</td>") {
		t.Errorf("the page has the link for ever:\n%s", again.text)
	}

	b := h.browser()
	got := b.get(path)
	b.shows(got, http.StatusOK, "Refund <b>", `name="f.approved" value="true"`, "You answer as <bdi>ann</bdi>")
	for _, hidden := range []string{task.String(), "the secret of eve", "refund", "/ui/tasks", "<script", "<nav", "key:olaf", h.Space} {
		if strings.Contains(got.text, hidden) {
			t.Errorf("the page has %q:\n%s", hidden, got.text)
		}
	}
	for name, want := range map[string]string{"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow"} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q", name, got.header.Get(name))
		}
	}
	if !strings.Contains(got.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Error("the page can be framed")
	}
	for range 3 { // prefetching a link, or looking at it again, answers nothing
		b.get(path)
		b.send(http.MethodHead, path, "")
	}
	b.shows(b.post(path, "f.approved=true", "f.amount=900"), http.StatusBadRequest, "Maximum: got 900", `value="900"`)
	if r := b.postRaw(path, "f.approved=true&f.amount=9&token=forged"); r.status != http.StatusForbidden {
		t.Errorf("a form of another site is answered with %d", r.status)
	}
	b.shows(b.post(path, "f.approved=true", "f.amount=9"), http.StatusOK, "Your answer was sent")
	steps := h.steps(task)
	if steps[0].State != tasker.StepComplete || !strings.Contains(string(steps[0].Results), `"amount": 9`) {
		t.Errorf("%s %s", steps[0].State, steps[0].Results)
	}
	b.shows(b.post(path, "f.approved=true", "f.amount=9"), http.StatusGone, "This link has been used")
	b.shows(b.get(path), http.StatusGone, "This link has been used")
	if n := h.Count(`SELECT count(*) FROM tasker.step_history WHERE actor = 'link:ann'`); n != 1 {
		t.Error("the history does not say who has answered")
	}
}

// A link that is worth nothing says so, without saying why; and who tries many is not heard any more.
func TestInvalidAnswerLinks(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking, func(o *web.Options) { o.PublicURL = "https://tasker.example.com/" })
	_, page := h.linked()
	olaf := h.signedIn("olaf", "operator@*")
	made := olaf.post(page, "hours=5")
	revoked := h.pathOfLink(made)
	olaf.sees(made, "https://tasker.example.com/ui/answer/")
	expired := h.pathOfLink(olaf.post(page, "hours=5"))
	var first, second string
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT min(link_uuid::text), max(link_uuid::text) FROM tasker.answer_links`).Scan(&first, &second))
	olaf.leads(olaf.post(page, "revoke="+first), page)
	olaf.shows(olaf.post(page, "revoke=x"), http.StatusBadRequest, "must be the UUID of a link")
	h.Exec(`UPDATE tasker.answer_links SET expires_at = now() WHERE link_uuid = $1`, second)

	b := h.browser()
	b.shows(b.get(expired), http.StatusGone, "This link has expired")
	b.shows(b.post(expired, "f.approved=true"), http.StatusGone, "This link has expired")
	never := "/ui/answer/tsl_" + strings.Repeat("A", 26)
	was, not := b.get(revoked), b.get(never)
	if was.status != http.StatusNotFound || not.status != was.status || not.text != was.text {
		t.Errorf("a revoked link: %d\n%s\none that never was: %d\n%s", was.status, was.text, not.status, not.text)
	}
	for range web.MaxFailures - 2 {
		b.shows(b.post(never, "f.approved=true"), http.StatusNotFound, "invalid or no longer valid")
	}
	b.shows(b.get(expired), http.StatusGone, "This link has expired") // wrong links lock out no other
	if r := b.get(never); r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
		t.Errorf("the next one is answered with %d", r.status)
	}
}

// Browsers that follow no-referrer send the form with the origin null; over plain HTTP nothing else
// says that it comes from this page. A read-only server takes no answer.
func TestAnswerFormAcceptsNullOrigin(t *testing.T) {
	t.Parallel()
	for _, readOnly := range []bool{false, true} {
		h := newHarness(t, func(o *web.Options) { o.ReadOnly = readOnly })
		_, page := h.linked()
		if readOnly {
			step := strings.Split(page, "/")
			var ref tasker.StepRef
			h.Must(ref.TaskUUID.UnmarshalText([]byte(step[3])))
			h.Must(ref.StepUUID.UnmarshalText([]byte(step[5])))
			l, err := h.Engine.CreateAnswerLink(t.Context(), ref, tasker.AnswerLinkRequest{Actor: "bo"})
			h.Must(err)
			h.shows(h.get(l.Path()), http.StatusForbidden, "read-only (ui.read_only)")
			h.shows(h.post(l.Path(), "f.approved=true", "f.amount=9"), http.StatusForbidden, "read-only (ui.read_only)")
			continue
		}
		path := h.pathOfLink(h.post(page, "hours=5", "actor=bo"))
		if got := h.get(path); strings.Contains(got.text, "You are</label>") {
			t.Error("the page asks who somebody is")
		}
		form := url.Values{"token": {h.token()}, "f.approved": {"true"}, "f.amount": {"9"}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.server.URL+path, strings.NewReader(form.Encode()))
		h.Must(err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "null")
		cross := r.Clone(t.Context())
		cross.Header.Set("Sec-Fetch-Site", "cross-site")
		cross.Body = http.NoBody
		if got := h.do(cross); got.status != http.StatusForbidden {
			t.Errorf("a form of another site is answered with %d", got.status)
		}
		h.shows(h.do(r), http.StatusOK, "Your answer was sent")
	}
}

// A link is answered in a browser, and the page can be used by everybody.
func TestAnswerLinkInABrowser(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, page := h.linked()
	tab := h.open(h.pathOfLink(h.post(page, "hours=5", "actor=bo")))
	tab.Accessible()
	tab.Type("input[name='f.amount']", "9")
	tab.Follow("button[name='f.approved'][value='true']")
	tab.Sees("Your answer was sent")
	tab.Accessible()
}
