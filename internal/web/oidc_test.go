package web_test

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/oidctest"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/web"
)

// people has the pages send people to an identity provider, whose groups are named as the
// grants that they give: viewer@shop and so on.
func people(t *testing.T, a **auth.Authenticator) (provider *oidctest.Provider, change func(*web.Options), public func(*httptest.Server)) {
	t.Helper()
	provider = oidctest.New(t)
	from, err := idp.New(idp.Options{Issuer: provider.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, PublicURL: "http://127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	bindings := access.Bindings{}
	for _, role := range access.Roles() {
		for _, namespace := range []string{"shop", "space-aqz", access.AllNamespaces} {
			g := access.Grant{Role: role, Namespace: namespace}
			bindings[g.String()] = []access.Grant{g}
		}
	}
	change = func(o *web.Options) {
		*a = auth.New(auth.Options{DB: o.DB, SessionLife: sessionLife, SessionIdle: sessionLife, Provider: from, Bindings: bindings})
		o.Auth = *a
	}
	return provider, change, func(s *httptest.Server) { from.PublicURL = s.URL }
}

// Strangers begin sign-ins at the provider as often as an office does and no more, of IPv6 from
// all addresses of a site together, and within the limit of requests.
func TestSignInsAreBegunAtARate(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	_, change, _ := people(t, &a)
	var o web.Options
	h := newHarness(t, change, func(given *web.Options) { o = *given })
	begin := func(pages http.Handler, n int) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/sign-in/provider", http.NoBody)
		r.RemoteAddr = fmt.Sprintf("[2001:db8::%d]:1", n+1)
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r)
		return w
	}
	pages := web.New(t.Context(), o)
	for n := range web.MaxSignIns {
		if w := begin(pages, n); w.Code != http.StatusSeeOther {
			t.Fatalf("sign-in %d: %d %s", n, w.Code, w.Body)
		}
	}
	before := h.Count(`SELECT count(*) FROM tasker.sign_ins`)
	if w := begin(pages, 1000); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "Too many sign-ins") {
		t.Errorf("one more: %d %s", w.Code, w.Body)
	}
	comeBack := func() *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/sign-in/callback?state=made-up&code=made-up", http.NoBody)
		r.RemoteAddr = "192.0.2.7:1"
		r.AddCookie(&http.Cookie{Name: "tasker_sign_in", Value: "made-up"})
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r)
		return w
	}
	for range web.MaxSignIns {
		if w := comeBack(); w.Code != http.StatusUnauthorized {
			t.Fatalf("a made-up sign-in: %d %s", w.Code, w.Body)
		}
	}
	if w := comeBack(); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "Too many sign-ins") {
		t.Errorf("one more that was made up: %d %s", w.Code, w.Body)
	}
	o.Gate = overload.New(overload.Options{Rate: 0.001, Limits: map[overload.Class]overload.Limit{overload.Reads: {Running: 1}}})
	pages = web.New(t.Context(), o)
	first, second := begin(pages, 1), begin(pages, 2)
	if first.Code != http.StatusSeeOther || second.Code != http.StatusTooManyRequests {
		t.Errorf("of two within the limit of requests: %d, %d", first.Code, second.Code)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.sign_ins`); n != before+1 {
		t.Errorf("%d sign-ins are stored, and %d before", n, before)
	}
}

// actions are links to what changes something.
const actions = "main a[href$='/cancel'], main a[href$='/investigate'], main a[href$='/update'], main a[href$='/own'], main a[href$='/drain'], main a[href$='/re-emit']"

// signIn goes to the provider from the page to sign in.
func signIn(tab *browsertest.Tab) {
	tab.Helper()
	tab.Sees("Sign in with your account")
	tab.Follow("a.button[href*='/sign-in/provider']")
}

// times are the instants of a page: a second and its fraction may look like an amount.
var times = regexp.MustCompile(`:\d\d(\.\d+)?`)

// Somebody signs in at the provider, comes back to the page that they asked for, repairs a step and signs out.
func TestProviderSignInInABrowser(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	provider, change, public := people(t, &a)
	st := newStuck(t, change)
	public(st.server)
	st.looks(a)
	other := st.tenant("bqz", 2)

	// A viewer sees the page that they asked for, and nothing to do.
	provider.User("vera", "viewer@shop")
	tab := st.open(st.page())
	signIn(tab)
	if got := tab.Address(); got != st.server.URL+st.page() {
		t.Fatalf("signing in leads to %s", got)
	}
	tab.Sees("Signed in as user:vera")
	tab.Sees("What happened")
	tab.Sees("Payloads are hidden")
	for path, shows := range map[string]string{st.page(): "charge", "/ui/tasks/" + st.task.String(): "reserve", "/ui/tasks": "order", "/ui/workers": "test", "/ui/?view=entries": "charge"} {
		tab.Go(st.server.URL + path)
		tab.Sees(shows)
		text := times.ReplaceAllString(tab.Answer(`document.documentElement.outerHTML`), "")
		for _, hidden := range append([]string{"bqz", "12.50", errDeclined.Error()}, other.ids...) {
			if strings.Contains(text, hidden) {
				t.Errorf("a viewer sees %q on %s", hidden, path)
			}
		}
		if forms := tab.Texts("main form[method=post], main a[href*='/steps/'], " + actions); len(forms) > 0 {
			t.Errorf("a viewer is offered %q on %s", forms, path)
		}
	}
	tab.Accessible()
	tab.Go(st.server.URL + st.action("resolve"))
	tab.Sees("steps:operate")
	tab.Go(st.server.URL + "/ui/tasks/" + other.task.String())
	tab.Sees("Not found")

	// An operator repairs the step, as who the provider says.
	provider.User("olaf", "operator@shop")
	operator := st.open(st.page())
	signIn(operator)
	operator.Sees(errDeclined.Error())
	operator.KeysAway("m")
	operator.Sees("Recorded with the name user:olaf.")
	operator.Type("textarea[name=reason]", "paid by telephone")
	operator.Follow("main form button:not(.plain)")
	operator.Sees("Step charge was resolved")
	operator.Sees("user:olaf")
	if actors := st.actors()["step resolve_manually"]; !slices.Equal(actors, []string{"user:olaf"}) {
		t.Errorf("recorded as done by %q", actors)
	}
	operator.Go(st.server.URL + st.page())
	operator.Sees("user:olaf")

	// After signing out neither going back nor loading again shows a page.
	operator.Follow(".who button")
	operator.Sees("Signed out.")
	operator.Eval(`history.back()`)
	operator.Until(`location.pathname === "/ui/sign-in" && document.readyState === "complete"`)
	operator.Go(st.server.URL + st.page())
	operator.Sees("Sign in with your account")
	operator.Reload()
	operator.Sees("Sign in with your account")

	// Who is in no group may do nothing, and is told so.
	provider.User("mallory")
	operator.Follow("a.button[href*='/sign-in/provider']")
	operator.Sees("has no permissions")
	tab.Sees("Not found") // vera's session goes on
}

// The session ends while a form is open: nothing is sent, and nothing is lost that was typed.
func TestExpiredSessionKeepsTypedText(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	provider, change, public := people(t, &a)
	st := newStuck(t, change)
	public(st.server)
	st.looks(a)
	provider.User("olaf", "operator@shop")
	tab := st.open(st.action("resolve"))
	signIn(tab)
	tab.Type("textarea[name=reason]", "paid by telephone")
	st.Exec(`UPDATE tasker.sessions SET ended_at = now()`)
	a.PollRevocations(t.Context())
	tab.Click("main form button:not(.plain)")
	tab.Sees("Session expired. Nothing was sent")
	tab.Accessible()
	if got := tab.Value("textarea[name=reason]"); got != "paid by telephone" || st.stepOf("charge").State != tasker.StepError {
		t.Errorf("the field has %q, and the step is %s", got, st.stepOf("charge").State)
	}
	// Somebody else signs in in another tab.
	again := tab.Another()
	provider.User("oona", "operator@shop")
	again.Go(st.server.URL + "/ui/sign-in?back=/ui/tasks")
	again.Sees("Session expired. Sign in again.")
	signIn(again)
	again.Sees("Signed in as user:oona")
	tab.Click("main form button:not(.plain)")
	tab.Until(`!document.querySelector("#ended").hidden`)
	again.Follow(".who button")
	provider.User("olaf", "operator@shop")
	signIn(again)
	again.Sees("Signed in as user:olaf")
	tab.Follow("main form button:not(.plain)")
	tab.Sees("Step charge was resolved")
	if actors := st.actors()["step resolve_manually"]; !slices.Equal(actors, []string{"user:olaf"}) {
		t.Errorf("recorded as done by %q", actors)
	}
	// A page without anything typed leads to the page to sign in by itself, within seconds.
	tab.Go(st.server.URL + st.page())
	st.Exec(`UPDATE tasker.sessions SET ended_at = now()`)
	tab.Until(`location.pathname === "/ui/sign-in"`)
	tab.Sees("Session expired. Sign in again.")
}

// For each role, every page that a page leads to is there, and every form that is shown may be sent.
// Of pages that differ in ids and values only, two are opened.
func TestShownActionsAreAllowed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.sinks("webhook")
	tn := h.tenant("aqz", 2)
	h.tenant("bqz", 1)
	h.settled("webhook", tn)
	h.asks("space-aqz")
	repairs := []string{
		"answer", "assign", "begin-hold", "cancel", "cancel-tasks", "complete", "drain", "due", "fixed", "investigate", "links", "merge", "note", "own", "plan", "re-emit", "release", "reset", "resolve", "run", "set-limit", "snooze", "split", "update", "wake",
	}
	all := slices.Sorted(slices.Values(append(slices.Clone(repairs), "new-schedule", "retire", "set-weight")))
	for grant, want := range map[string][]string{"viewer@space-aqz": nil, "developer@space-aqz": {"cancel", "cancel-tasks", "new-schedule", "retire"}, "operator@space-aqz": repairs, "admin@*": all} {
		h.Exec(`UPDATE tasker.workers SET draining_since = NULL, last_heartbeat_at = now(), heartbeat_interval = interval '10 minutes', lease = interval '1 hour'`) // whoever came before has drained them
		h.Exec(`UPDATE tasker.cases SET owner = NULL, owned_until = NULL, snoozed_until = NULL, snooze_above = NULL, state = 'ongoing'`)
		b := h.signedIn(strings.NewReplacer("@*", "", "@", "-").Replace(grant), grant)
		alike, forms := map[string]int{}, map[string]bool{}
		b.follow([]string{"/ui/tasks"}, func(path string, r reply) bool {
			shape := shapeOf(path)
			if alike[shape]++; alike[shape] > 2 || !strings.HasPrefix(path, "/ui/") {
				return false
			}
			if r.status == http.StatusForbidden || r.status == http.StatusUnauthorized {
				t.Errorf("%s: %s is refused with %d", grant, path, r.status)
			}
			for _, f := range formsOf(r, path) {
				forms[f.action[strings.LastIndex(f.action, "/")+1:]] = true
				if got := b.postRaw(f.to, f.fields.Encode()); got.status == http.StatusForbidden || got.status == http.StatusUnauthorized || got.status >= 500 {
					t.Errorf("%s: the form of %s is refused with %d", grant, path, got.status)
				}
			}
			return true
		})
		if got := slices.Sorted(maps.Keys(forms)); len(alike) < 15 || !slices.Equal(got, want) {
			t.Errorf("%s: %d kinds of pages, forms %q, want %q", grant, len(alike), got, want)
		}
	}
}

// shapeOf returns the path of a page and the names of its parameters.
func shapeOf(path string) string {
	u, _ := url.Parse(path)
	return regexp.MustCompile(`[0-9a-f-]{36}`).ReplaceAllString(u.Path, "ID") + fmt.Sprint(slices.Sorted(maps.Keys(u.Query())))
}

// A shownForm is a form of a page, with the values that its fields have.
type shownForm struct {
	to, action string // action has no query
	fields     url.Values
}

var (
	postForm   = regexp.MustCompile(`(?s)<form([^>]*method="post"[^>]*)>(.*?)</form>`)
	inputField = regexp.MustCompile(`<input([^>]*)>`)
	selected   = regexp.MustCompile(`(?s)<select[^>]* name="([^"]*)"[^>]*>\s*<option(?: value="([^"]*)")?[^>]*>([^<]*)`)
	attribute  = regexp.MustCompile(` (name|value|type|action)="([^"]*)"`)
)

// formsOf returns the forms in the main part of a page that change something.
func formsOf(r reply, path string) (forms []shownForm) {
	_, text, _ := strings.Cut(r.text, "<main")
	for _, form := range postForm.FindAllStringSubmatch(text, -1) {
		f := shownForm{to: path, fields: url.Values{}}
		if to := attributesOf(form[1])["action"]; to != "" {
			f.to = to
		}
		f.action, _, _ = strings.Cut(f.to, "?")
		for _, input := range inputField.FindAllStringSubmatch(form[2], -1) {
			a := attributesOf(input[1])
			if choice := a["type"] == "radio" || a["type"] == "checkbox"; a["name"] != "" && (!choice || strings.Contains(input[1], " checked")) {
				f.fields.Add(a["name"], a["value"])
			}
		}
		for _, s := range selected.FindAllStringSubmatch(form[2], -1) {
			f.fields.Add(s[1], html.UnescapeString(cmp.Or(s[2], s[3])))
		}
		forms = append(forms, f)
	}
	return forms
}

func attributesOf(tag string) map[string]string {
	found := map[string]string{}
	for _, a := range attribute.FindAllStringSubmatch(tag, -1) {
		found[a[1]] = html.UnescapeString(a[2])
	}
	return found
}

// asks makes a task in a namespace with a step that waits for ann, and whose form refuses an answer without a text.
func (h *harness) asks(namespace string) {
	h.Helper()
	_, _, err := h.Engine.RegisterTemplate(h.Context(), tasker.Template{Namespace: namespace, Name: "asked", Version: "1.0.0", Steps: []tasker.StepTemplate{{
		Name: "approve", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), Assignee: "ann", Form: []byte(`{"type": "object", "required": ["why"], "properties": {"why": {"type": "string"}}}`),
	}}}, "")
	h.Must(err)
	h.CreateWith(tasker.NewTask{Namespace: namespace, Name: "asked"})
	h.tick()
}
