package web_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/web"
)

const sessionLife = 12 * time.Hour

// asking has the pages and the API ask who is calling.
func asking(o *web.Options) {
	o.Auth = auth.New(auth.Options{DB: o.DB, SessionLife: sessionLife, SessionIdle: time.Hour})
}

// askingWith is asking, and keeps the authenticator for the test.
func askingWith(a **auth.Authenticator) func(*web.Options) {
	return func(o *web.Options) {
		asking(o)
		*a = o.Auth
	}
}

// key makes an API key and returns its token.
func (h *harness) key(name string, grants ...string) string {
	h.Helper()
	_, token, err := auth.CreateKey(h.Context(), h.DB, auth.NewKey{Name: name, Grants: grants, Actor: "test"})
	h.Must(err)
	return token
}

// browser returns the harness with a browser of its own, which follows no redirects.
func (h *harness) browser() *harness {
	h.Helper()
	other := *h
	jar, err := cookiejar.New(nil)
	h.Must(err)
	other.client = &http.Client{Jar: jar, Timeout: h.client.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &other
}

// finishSignIn returns a browser that has signed in with a new key.
func (h *harness) signedIn(name string, grants ...string) *harness {
	h.Helper()
	b := h.browser()
	if r := b.post("/ui/sign-in", "key="+h.key(name, grants...)); r.status != http.StatusSeeOther {
		h.Fatalf("signing in is answered with %d:\n%s", r.status, r.text)
	}
	return b
}

// session is the secret of the session, as the browser keeps it.
func (h *harness) session() string {
	h.Helper()
	u, err := url.Parse(h.server.URL + "/ui/")
	h.Must(err)
	for _, c := range h.client.Jar.Cookies(u) {
		if c.Name == "tasker_session" {
			return c.Value
		}
	}
	return ""
}

// leads checks that a reply sends the browser on.
func (h *harness) leads(r reply, to string) {
	h.Helper()
	if r.status != http.StatusSeeOther || r.header.Get("Location") != to {
		h.Errorf("%s: %d to %q, want 303 to %q\n%s", r.url, r.status, r.header.Get("Location"), to, r.text)
	}
}

func TestSigningIn(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	b := h.browser()
	token := h.key("ann", "viewer@shop")
	b.leads(b.get("/ui/tasks?state=error&name=a%26b"), "/ui/sign-in?back=%2Fui%2Ftasks%3Fstate%3Derror%26name%3Da%2526b")
	r := b.get("/ui/sign-in?back=%2Fui%2Ftasks%3Fstate%3Derror")
	b.sees(r, `name="key" type="password"`, `autocomplete="off"`, `value="/ui/tasks?state=error"`)
	b.lacks(r, "Signed in as", `name="actor"`, `id="who"`, "Staleness")
	if r.status != http.StatusOK || r.header.Get("Cache-Control") != "no-store" || r.header.Get("Strict-Transport-Security") != "" {
		t.Errorf("%d, %v", r.status, r.header)
	}
	before := b.token()
	r = b.post("/ui/sign-in", "key= "+token+" ", "back=/ui/tasks?state=error")
	b.leads(r, "/ui/tasks?state=error")
	cookies := strings.Join(r.header.Values("Set-Cookie"), "\n")
	if want := fmt.Sprintf(`tasker_session=[\w-]{32}; Path=/ui; Max-Age=%d; HttpOnly; SameSite=Lax`, int(sessionLife.Seconds())); !regexp.MustCompile(want).MatchString(cookies) || strings.Contains(cookies, "Secure") {
		t.Errorf("cookies:\n%s", cookies)
	}
	if b.token() == before {
		t.Error("forms of before have the token of after")
	}
	r = b.get("/ui/tasks")
	b.sees(r, "Signed in as <bdi>key:ann</bdi>", `action="/ui/sign-out"`)
	b.lacks(r, `id="who"`, token)
	b.leads(b.get("/ui/sign-in?back=/ui/tasks"), "/ui/tasks")

	// Whoever signs in again has another session, and the one before has ended.
	old := b.session()
	b.leads(b.post("/ui/sign-in", "key="+token), "/ui/")
	if now := b.session(); now == old || now == "" {
		t.Errorf("the session was %q and is %q", old, now)
	}
	b.signedOut(old)

	last := b.session()
	b.leads(b.post("/ui/sign-out"), "/ui/sign-in")
	if b.session() != "" {
		t.Error("the cookie is still there")
	}
	b.sees(b.get("/ui/sign-in"), "Signed out.")
	b.signedOut(last)
	if r := b.post("/ui/sign-out"); r.status != http.StatusUnauthorized {
		t.Errorf("signed out twice: %d", r.status)
	}
}

// signedOut checks that a session opens no page.
func (h *harness) signedOut(session string) {
	h.Helper()
	h.leads(h.browser().get("/ui/tasks", "Cookie: tasker_session="+session), "/ui/sign-in?back=%2Fui%2Ftasks")
}

func TestSigningInBehindTLS(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	b := h.browser()
	r := b.postRaw("/ui/sign-in", url.Values{"token": {b.token()}, "key": {h.key("ann", "viewer@shop")}}.Encode(), "X-Forwarded-Proto: https", "Cookie: __Host-tasker_form="+b.token())
	var session *http.Cookie
	for _, line := range r.header.Values("Set-Cookie") {
		c, err := http.ParseSetCookie(line)
		h.Must(err)
		if strings.Contains(c.Name, "session") {
			session = c
		}
	}
	if session == nil || session.Name != "__Host-tasker_session" || session.Path != "/" || !session.Secure || !session.HttpOnly || session.Domain != "" || session.SameSite != http.SameSiteLaxMode {
		t.Fatalf("the cookie is %+v", session)
	}
	if r.header.Get("Strict-Transport-Security") == "" {
		t.Error("no Strict-Transport-Security")
	}
	for name, want := range map[string]int{"__Host-tasker_session": http.StatusOK, "tasker_session": http.StatusSeeOther} {
		if got := h.browser().get("/ui/tasks", "X-Forwarded-Proto: https", "Cookie: "+name+"="+session.Value); got.status != want {
			t.Errorf("with cookie %s: %d, want %d", name, got.status, want)
		}
	}
}

func TestWrongKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	b := h.browser()
	right, revoked := h.key("ann", "viewer@shop"), h.key("gone", "admin@*")
	h.Exec(`UPDATE tasker.api_keys SET revoked_at = now(), revoked_by = 'test' WHERE name = 'gone'`)
	expired := h.key("late", "admin@*")
	h.Exec(`UPDATE tasker.api_keys SET expires_at = now() - interval '1 second' WHERE name = 'late'`)
	b.leads(b.post("/ui/sign-in", "key="+right), "/ui/")
	b.leads(b.post("/ui/sign-out"), "/ui/sign-in")
	wrong := []string{revoked, expired, access.NewToken().Text, "", "hunter2", right + "x", right[:len(right)-1], `"><script>alert(1)</script>`, "tsk_\x00", strings.Repeat("x", 200)}
	for _, key := range wrong {
		r := b.post("/ui/sign-in", "key="+key, "back=/ui/workers")
		b.refused(r, http.StatusUnauthorized, "Invalid API key: unknown, revoked or expired.", `name="key"`, `value="/ui/workers"`)
		if key != "" {
			b.lacks(r, key)
		}
		if b.session() != "" {
			t.Fatalf("%q begins a session", key)
		}
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'sign_in.refused' AND actor = 'unknown' AND data = '{"from": "127.0.0.1"}'`); n != len(wrong) {
		t.Errorf("%d refusals in the audit log, want %d", n, len(wrong))
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events a WHERE strpos(a::text, $1) > 0`, revoked); n != 0 {
		t.Error("the audit log has a key")
	}
	r := b.post("/ui/sign-in", "key="+access.NewToken().Text)
	b.refused(r, http.StatusTooManyRequests, "Too many failed sign-ins", `name="key"`)
	b.leads(b.post("/ui/sign-in", "key="+right), "/ui/") // wrong keys lock out no valid one
	if wait := r.header.Get("Retry-After"); !regexp.MustCompile(`^[1-9]\d?$`).MatchString(wait) {
		t.Errorf("Retry-After: %q", wait)
	}
}

func TestUnavailableDatabaseIsNotAWrongKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	b := h.browser()
	form := url.Values{"token": {b.token()}, "key": {h.key("ann", "viewer@shop")}}.Encode()
	h.DB.Close()
	for range web.MaxFailures + 1 {
		if r := b.postRaw("/ui/sign-in", form); r.status != http.StatusServiceUnavailable {
			t.Fatalf("%d, want 503:\n%s", r.status, r.text)
		}
	}
	if got := h.browser().get("/ui/", "Cookie: tasker_session="+strings.Repeat("x", 32)); got.status != http.StatusServiceUnavailable {
		t.Errorf("with a session: %d, want 503", got.status)
	}
}

func TestFailuresAreCountedByAddress(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var f web.Failures
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for range web.MaxFailures {
		if _, ok := f.Take(a, now); !ok {
			t.Fatal("refused too early")
		}
	}
	if wait, ok := f.Take(a, now.Add(20*time.Second)); ok || wait != 40*time.Second {
		t.Errorf("after too many: wait %s, %v", wait, ok)
	}
	for range web.MaxFailures {
		f.Take(b, now)
	}
	if _, ok := f.Take(netip.MustParseAddr("2001:db8::ffff"), now); ok {
		t.Error("another address of the same network is not counted")
	}
	if _, ok := f.Take(netip.MustParseAddr("2001:db8:0:1::1"), now); !ok {
		t.Error("another network is refused")
	}
	if _, ok := f.Take(a, now.Add(time.Minute)); !ok || f.Addresses() != 1 {
		t.Error("a minute later it still counts")
	}
	for i := range 2 * web.MaxAddresses {
		f.Take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now.Add(time.Minute))
	}
	if n := f.Addresses(); n != web.MaxAddresses {
		t.Errorf("%d addresses are remembered, want %d", n, web.MaxAddresses)
	}
}

func TestSessionsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	h := newHarness(t, askingWith(&a))
	for name, sql := range map[string]string{
		"the key is revoked":   `UPDATE tasker.api_keys SET revoked_at = now(), revoked_by = 'test'`,
		"the key has expired":  `UPDATE tasker.api_keys SET expires_at = now() - interval '1 second'`,
		"the session is over":  `UPDATE tasker.sessions SET ends_at = now() - interval '1 second'`,
		"the session is idle":  `UPDATE tasker.sessions SET seen_at = now() - interval '61 minutes', ends_at = ends_at + interval '0 seconds'`,
		"the key is gone":      `DELETE FROM tasker.sessions`,
		"the session is ended": `UPDATE tasker.sessions SET ended_at = now()`,
	} {
		b := h.signedIn(strings.ReplaceAll(name, " ", "-"), "viewer@shop")
		if r := b.get("/ui/tasks"); r.status != http.StatusOK {
			t.Fatalf("%s: signed in: %d", name, r.status)
		}
		h.Exec(sql)
		h.Exec(`INSERT INTO tasker.access_changes DEFAULT VALUES`)
		a.PollRevocations(t.Context())
		b.leads(b.get("/ui/tasks"), "/ui/sign-in?back=%2Fui%2Ftasks")
	}
}

func TestASessionHasTheGrantsOfItsKey(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	h := newHarness(t, askingWith(&a))
	b := h.signedIn("ann", "viewer@shop")
	if r := b.get("/ui/tasks"); r.status != http.StatusOK {
		t.Fatalf("signed in: %d", r.status)
	}
	h.Exec(`UPDATE tasker.api_keys SET grants = '{worker@shop}'`)
	a.PollRevocations(t.Context())
	r := b.get("/ui/tasks")
	b.refused(r, http.StatusForbidden, "needs permission tasks:read")
	b.lacks(r, `href="/ui/tasks"`)
}

func TestSigningInLeadsBackToOurPagesOnly(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	b := h.browser()
	token := h.key("ann", "viewer@shop")
	for back, want := range map[string]string{
		"/ui/tasks?state=error": "/ui/tasks?state=error", "": "/ui/", "https://evil.example/": "/ui/", "//evil.example/ui/": "/ui/", "/ui/\\evil": "/ui/",
		"/v1/tasks": "/ui/", "/ui/..//evil.example": "/ui/", "/ui//evil.example": "/ui/", "javascript:/ui/": "/ui/", "/ui/sign-in?back=/ui/": "/ui/", "/ui/sign-in/provider": "/ui/",
		"/ui/a\r\nSet-Cookie: x=y": "/ui/", "\t//evil.example": "/ui/", "http:/ui/": "/ui/", "/%75i/tasks": "/%75i/tasks", "ui/tasks": "/ui/",
		"/ui": "/ui", "/uiX": "/ui/", "/ui/../v1/tasks": "/ui/", "/ui/%2e%2e/v1": "/ui/", "/ui/tasks/..": "/ui/", "/ui/tasks?back=/ui/../x": "/ui/tasks?back=/ui/../x",
	} {
		b.leads(b.post("/ui/sign-in", "key="+token, "back="+back), want)
		b.leads(b.get("/ui/sign-in?"+url.Values{"back": {back}}.Encode()), want)
		b.client.Jar = h.browser().client.Jar
		r := b.get("/ui/sign-in?" + url.Values{"back": {back}}.Encode())
		b.sees(r, `name="back" value="`+want+`"`)
	}
}

func TestFormsOfOthersDoNotSignIn(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	token := h.key("ann", "viewer@shop")
	b := h.browser()
	b.get("/ui/sign-in")
	for _, form := range []string{"key=" + token, "token=&key=" + token, "token=AAAAAAAAAAAAAAAAAAAAAA&key=" + token} {
		if r := b.postRaw("/ui/sign-in", form); r.status != http.StatusForbidden || b.session() != "" {
			t.Errorf("%s: %d", form, r.status)
		}
	}
	if r := b.postRaw("/ui/sign-in", "token="+b.token()+"&key="+token, "Origin: https://evil.example"); r.status != http.StatusForbidden {
		t.Errorf("from another origin: %d", r.status)
	}
	if r := b.postRaw("/ui/sign-in", "token="+b.token()+"&key="+strings.Repeat("x", 20<<10)); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("too large a form: %d", r.status)
	}
	b.post("/ui/sign-in", "key="+token)
	if r := b.postRaw("/ui/sign-out", ""); r.status != http.StatusForbidden {
		t.Errorf("signing out without the token: %d", r.status)
	}
	if r := b.get("/ui/tasks"); r.status != http.StatusOK {
		t.Errorf("somebody else signed us out: %d", r.status)
	}
	// Neither a key nor a cookie of the API opens a page.
	h.leads(h.browser().get("/ui/tasks", "Authorization: Bearer "+token), "/ui/sign-in?back=%2Fui%2Ftasks")
	if r := b.get("/v1/tasks"); r.status != http.StatusUnauthorized {
		t.Errorf("the API takes the session: %d", r.status)
	}
}

// A script or a form cannot go on from the page to sign in.
func TestRequestsWithoutSession(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	b := h.browser()
	for mode, want := range map[string]int{"navigate": 303, "cors": 401, "same-origin": 401, "no-cors": 401} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.server.URL+"/ui/tasks", nil)
		h.Must(err)
		r.Header.Set("Sec-Fetch-Mode", mode)
		if refreshes := web.Refreshes(r); refreshes != (mode != "navigate") {
			t.Errorf("Sec-Fetch-Mode %s: a refresh: %v", mode, refreshes)
		}
		if got := b.do(r); got.status != want {
			t.Errorf("Sec-Fetch-Mode %s: %d, want %d", mode, got.status, want)
		}
	}
	script, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.server.URL+"/ui/tasks", nil)
	h.Must(err)
	script.Header.Set("Tasker-Refresh", "1")
	if got := b.do(script); got.status != http.StatusUnauthorized || !web.Refreshes(script) {
		t.Errorf("the script of a page: %d, want 401", got.status)
	}
	r := b.post("/ui/workers/" + h.worker.String() + "/drain")
	b.refused(r, http.StatusUnauthorized, "You are not signed in", `href="/ui/sign-in?back=%2Fui%2F"`)
	b.lacks(r, h.worker.String(), "Staleness")
	r = b.get("/ui/nowhere")
	b.refused(r, http.StatusNotFound, "Page not found: /")
	b.lacks(r, "Staleness")
}

func TestSignInIsUnavailableWithoutAuthentication(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	b := h.browser()
	b.leads(b.get("/ui/sign-in?back=/ui/tasks"), "/ui/tasks")
	b.leads(b.post("/ui/sign-in", "key=x", "back=/ui/tasks"), "/ui/tasks")
	b.leads(b.post("/ui/sign-out"), "/ui/")
	r := b.get("/ui/")
	b.sees(r, `id="who"`, `data-feed="/ui/events"`)
	b.lacks(r, "Sign out")
}

// Who has signed in and asks for more than they may is in the audit log, so many times.
func TestRefusalsAreAudited(t *testing.T) {
	t.Parallel()
	st := newStuck(t, asking)
	b := st.signedIn("ann", "viewer@shop")
	path := "/ui/tasks/" + st.task.String() + "/cancel"
	if r := b.get(path); r.status != http.StatusForbidden {
		t.Fatalf("%d, want 403", r.status)
	}
	b.get("/ui/tasks/" + tasker.NewID().String()) // is not there
	list, _, err := st.DB.AuditEvents(t.Context(), "access.refused", 0, 100)
	st.Must(err)
	var data map[string]string
	if len(list) == 1 {
		st.Must(json.Unmarshal(list[0].Data, &data))
	}
	want := map[string]string{"method": "GET", "route": "/ui/tasks/{task}/cancel", "task": st.task.String(), "from": "127.0.0.1"}
	if len(list) != 1 || list[0].Actor != "key:ann" || !maps.Equal(data, want) {
		t.Errorf("recorded: %+v, %v", list, data)
	}
	for range 3 * auth.MaxRefusals {
		b.post(path, "reason=x")
	}
	if n := st.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'access.refused'`); n < auth.MaxRefusals || n > 2*auth.MaxRefusals {
		t.Errorf("%d refusals are recorded", n)
	}
}

func TestRoutesSayWhoMayUseThem(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]web.Route{
		"no rule":               {Method: "GET", Path: "/x"},
		"two rules":             {Method: "GET", Path: "/x", Needs: access.ReadTasks, Anyone: true},
		"public and anyone":     {Method: "GET", Path: "/x", Public: true, Anyone: true},
		"an unknown permission": {Method: "GET", Path: "/x", Needs: "tasks:see"},
		"an unknown parameter":  {Method: "GET", Path: "/x/{id}", Needs: access.ReadTasks},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it is taken")
				}
			}()
			web.CheckRoute(r)
		})
	}
	web.CheckRoute(web.Route{Method: "GET", Path: "/tasks/{task}/steps/{step}/x", Needs: access.ReadTasks})
}

// An operator signs in, repairs a step and signs out, in a browser; a page that is open
// when the session ends leads to the page to sign in, and back.
func TestSigningInInABrowser(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	st := newStuck(t, askingWith(&a))
	token := st.key("ann", "operator@shop")
	tab := st.open(st.page())
	tab.Sees("API key")
	if !tab.Is(`document.activeElement.name === "key" && document.activeElement.type === "password"`) {
		t.Error("typing does not begin with the key")
	}
	tab.Accessible()
	tab.Type("input[name=key]", "tsk_wrong")
	tab.KeysAway("\r")
	tab.Sees("Invalid API key")
	tab.Accessible()
	tab.Size(390, 844)
	tab.Fits()
	tab.Size(1280, 900)
	tab.Type("input[name=key]", token)
	tab.Follow("main form button")
	if got := tab.Address(); got != st.server.URL+st.page() {
		t.Fatalf("signing in leads to %s", got)
	}
	tab.Sees("What happened")
	if got := tab.Text(".who"); !strings.Contains(got, "Signed in as key:ann") {
		t.Errorf("the head says %q", got)
	}
	tab.Size(390, 844)
	tab.Fits()
	tab.Size(1280, 900)
	tab.KeysAway("m")
	tab.Sees("Recorded with the name key:ann.")
	tab.Accessible()
	tab.Type("textarea[name=reason]", "paid by telephone")
	tab.Follow("main form button:not(.plain)")
	tab.Sees("Step charge was resolved")
	if actors := st.actors()["step resolve_manually"]; len(actors) != 1 || actors[0] != "key:ann" {
		t.Errorf("recorded as done by %q", actors)
	}
	// The session ends while the page is open.
	tab.Go(st.server.URL + "/ui/tasks?state=error")
	st.Exec(`UPDATE tasker.sessions SET ended_at = now()`)
	a.PollRevocations(t.Context())
	tab.Until(`location.pathname === "/ui/sign-in"`)
	tab.Type("input[name=key]", token)
	tab.Follow("main form button")
	if got := tab.Address(); got != st.server.URL+"/ui/tasks?state=error" {
		t.Errorf("signing in again leads to %s", got)
	}
	tab.Follow(".who button")
	tab.Sees("Signed out.")
	tab.Type("input[name=key]", st.key(strings.Repeat("n", 100), "viewer@shop"))
	tab.Follow("main form button")
	tab.Size(390, 844)
	tab.Fits()
	tab.Follow(".who button")
	tab.Go(st.server.URL + "/ui/tasks")
	tab.Sees("API key")
}
