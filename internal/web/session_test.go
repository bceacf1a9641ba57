package web_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/hostguard"
	"tasker.example/tasker/internal/web"
)

// postRaw sends a form as somebody else's page might have a browser send it.
func (h *harness) postRaw(path, form string, headers ...string) reply {
	h.Helper()
	return h.send(http.MethodPost, path, form, append(headers, "Content-Type: application/x-www-form-urlencoded")...)
}

func TestOnlyOurOwnFormsChangeAnything(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	token := h.token()
	for _, tt := range []struct {
		name, form string
		headers    []string
		want       int
	}{
		{"ours", "token=" + token + "&name=Kim", nil, http.StatusOK},
		{"without the token", "name=Kim", nil, http.StatusForbidden},
		{"with another token", "token=AAAAAAAAAAAAAAAAAAAAAA&name=Kim", nil, http.StatusForbidden},
		{"with an empty one", "token=&name=Kim", nil, http.StatusForbidden},
		{"from another site", "token=" + token + "&name=Kim", []string{"Sec-Fetch-Site: cross-site"}, http.StatusForbidden},
		{"from another origin", "token=" + token + "&name=Kim", []string{"Origin: https://evil.example"}, http.StatusForbidden},
		{"no form", "%zz", nil, http.StatusBadRequest},
		{"too large a form", "token=" + token + "&name=" + strings.Repeat("x", 7<<20), nil, http.StatusRequestEntityTooLarge},
		{"a name of two lines", "token=" + token + "&name=a%0Ab", nil, http.StatusBadRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := h.postRaw("/ui/name", tt.form, tt.headers...); r.status != tt.want {
				t.Errorf("%d, want %d:\n%s", r.status, tt.want, r.text)
			}
		})
	}
	// Nobody has cookies yet: a token that one makes up is none.
	jar, err := cookiejar.New(nil)
	h.Must(err)
	h.client.Jar = jar
	if r := h.postRaw("/ui/name", "token=&name=Kim"); r.status != http.StatusForbidden {
		t.Errorf("without cookies: %d", r.status)
	}
}

func TestCookiesAreOursAlone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r := h.post("/ui/name", "name=Kim Ö")
	if r.status != http.StatusSeeOther || r.header.Get("Location") != "/ui/" {
		t.Fatalf("%d to %s", r.status, r.header.Get("Location"))
	}
	for _, line := range r.header.Values("Set-Cookie") {
		if !strings.Contains(line, "HttpOnly") || !strings.Contains(line, "SameSite=Lax") || !strings.Contains(line, "Path=/ui") || strings.Contains(line, "Secure") {
			t.Errorf("cookie %s", line)
		}
	}
	h.sees(h.get("/ui/"), `value="Kim Ö"`)
	behindTLS := h.postRaw("/ui/name", "token="+h.token()+"&name=Kim", "X-Forwarded-Proto: https", "Cookie: __Host-tasker_form="+h.token())
	lines := behindTLS.header.Values("Set-Cookie")
	if behindTLS.status != http.StatusSeeOther || len(lines) == 0 {
		t.Errorf("behind TLS the name is answered with %d", behindTLS.status)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "__Host-tasker_") || !strings.Contains(line, "Secure") || !strings.HasSuffix(strings.Split(line, "; ")[1], "Path=/") {
			t.Errorf("behind TLS the cookie is %s", line)
		}
	}
	// Another host of the domain can set a cookie without the prefix.
	if r := h.postRaw("/ui/name", "token="+h.token()+"&name=Kim", "X-Forwarded-Proto: https"); r.status != http.StatusForbidden {
		t.Errorf("behind TLS a form with the cookie of another host is answered with %d", r.status)
	}
	h.post("/ui/name", "name=")
	h.lacks(h.get("/ui/"), "Kim")
}

// A read-only server offers no form and takes none but that of the reader's name.
func TestReadOnlyPages(t *testing.T) {
	t.Parallel()
	st := newStuck(t, func(o *web.Options) { o.ReadOnly = true })
	st.sinks("log")
	task, drain, emission := pageOf(st.task), "/ui/workers/"+st.worker.String()+"/drain", "/ui/emissions/"+st.firstEvent().String()
	for page, offers := range map[string][]string{
		"/ui/": nil, "/ui/dashboard": nil, st.page(): {"/reset", "/update", "/own", `data-key="e"`}, emission: {"/re-emit", "Redeliver"},
		task:          {task + "/cancel", task + "/investigate", task + "/steps/", ">Actions</th>", `data-label="Actions"`},
		"/ui/workers": {drain},
	} {
		r := st.get(page)
		st.shows(r, http.StatusOK, "Read-only")
		st.lacks(r, offers...)
	}
	for _, form := range []string{
		st.page() + "/update", st.page() + "/own", st.action("reset"), st.action("complete"), task + "/cancel", task + "/investigate", emission + "/re-emit", drain,
	} {
		st.refused(st.get(form), http.StatusForbidden, "ui.read_only")
		st.refused(st.post(form, "actor=ann", "reason=x"), http.StatusForbidden, "ui.read_only")
	}
	if r := st.post("/ui/name", "name=Kim"); r.status != http.StatusOK {
		t.Errorf("a name: %d", r.status)
	}
	if s := st.stepOf("charge"); s.State != tasker.StepError {
		t.Errorf("the step is %s", s.State)
	}
}

func TestPagesThatAreNotThere(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for path, want := range map[string]int{"/ui/nowhere": 404, "/ui/static/nothing.css": 404, "/ui/static/../web.go": 404, "/ui/investigations": 404} {
		if r := h.get(path); r.status != want {
			t.Errorf("%s: %d, want %d", path, r.status, want)
		}
	}
	if r := h.get("/ui"); r.status != http.StatusOK || r.url != "/ui/" {
		t.Errorf("/ui leads to %s, %d", r.url, r.status)
	}
	r := h.get("/ui/" + url.PathEscape(`<script>alert(1)</script>`))
	if r.status != http.StatusNotFound || strings.Contains(r.text, "<script>alert") {
		t.Errorf("%d\n%s", r.status, r.text)
	}
}

func TestTheHostIsChecked(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *web.Options) { o.Guard = &hostguard.Guard{LoopbackOnly: true} })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.server.URL+"/ui/", nil)
	h.Must(err)
	r.Host = "evil.example"
	if got := h.do(r); got.status != http.StatusMisdirectedRequest || !strings.Contains(got.text, "server.allowed_hosts") {
		t.Errorf("%d", got.status)
	}
}

// A link from a chat or a ticket finds its reader as they are: their forms stay good.
func TestALinkFromElsewhereKeepsTheSession(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(1)
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>chat</title><link rel="icon" href="data:,"><a href="`+strings.Replace(h.server.URL, "127.0.0.1", "localhost", 1)+`/ui/">look</a></html>`)
	}))
	t.Cleanup(chat.Close)
	tab := browsertest.Open(t)
	tab.Go(strings.Replace(h.server.URL, "127.0.0.1", "localhost", 1) + "/ui/")
	tab.Type("#who", "Kim")
	tab.Follow(".who button")
	token := tab.Value("input[name=token]")
	tab.Go(chat.URL)
	tab.Follow("a")
	if got := tab.Value("input[name=token]"); got != token || tab.Value("#who") != "Kim" {
		t.Errorf("another token, or another name: %q", tab.Value("#who"))
	}
}
