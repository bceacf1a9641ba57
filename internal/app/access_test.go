package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

const noKeyYet = "no API key exists"

// bootstrap creates the first key of a database and returns its token.
func bootstrap(t *testing.T, database string) string {
	t.Helper()
	db, err := postgres.Open(t.Context(), database, postgres.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	token, err := auth.BootstrapKey(t.Context(), db, "admin")
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// An answered request is what came back, read to its end.
type answered struct {
	status int
	header http.Header
	text   string
}

// getWith is get with a token; empty is none.
func (s *server) getWith(token, path string) answered {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header, string(text)}
}

// A server that other machines can reach starts without more ado, and asks every caller. It
// says how the first key is made.
func TestAServerThatOthersCanReachAsksForAKey(t *testing.T) {
	t.Parallel()
	o := options(pgtest.New(t).URL)
	o.Config.Server.Listen = "0.0.0.0:0"
	s := start(t, o)
	if !strings.HasPrefix(s.url, "http://127.0.0.1:") {
		t.Errorf("prints the address %s, which nobody can connect to", s.url)
	}
	if said := s.log.wait(t, noKeyYet, s.ended); strings.Count(said, noKeyYet) != 1 || !strings.Contains(said, "tasker key bootstrap --database-url") {
		t.Errorf("the log: %s", said)
	}
	status, body, err := s.get("/health/ready")
	var health map[string]any
	if err != nil || status != http.StatusOK || json.Unmarshal([]byte(body), &health) != nil || health["status"] != "ready" || health["checks"] != nil || health["loops"] != nil {
		t.Errorf("ready: %d, %s, %v", status, body, err)
	}
	if got := s.getWith("", "/v1/tasks"); got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("without a key: %d, %v", got.status, got.header)
	}
	token := bootstrap(t, o.Config.Database.URL)
	for _, path := range []string{"/v1/tasks", "/v1/keys", "/metrics"} {
		if got := s.getWith(token, path); got.status != http.StatusOK {
			t.Errorf("%s with a key: %d", path, got.status)
		}
	}
	if got := s.getWith(token[:len(token)-1]+"A", "/v1/tasks"); got.status != http.StatusUnauthorized && token[len(token)-1] != 'A' {
		t.Errorf("with a wrong key: %d", got.status)
	}
	if strings.Contains(s.log.String(), token) {
		t.Error("the log has the token")
	}
}

// On loopback only a server that is configured so asks; where there is a key it has nothing to say.
func TestWhichServersOnLoopbackAsk(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, mode string
		keys       bool
		status     int
		warns      bool
	}{
		{"by default", "auto", false, http.StatusOK, false},
		{"configured to ask", config.AuthRequired, false, http.StatusUnauthorized, true},
		{"configured to ask, with a key", config.AuthRequired, true, http.StatusUnauthorized, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options(pgtest.New(t).URL)
			o.Config.Auth.Mode = tt.mode
			if tt.keys {
				bootstrap(t, o.Config.Database.URL)
			}
			s := start(t, o)
			if got := s.getWith("", "/v1/tasks"); got.status != tt.status {
				t.Errorf("%d", got.status)
			}
			if warns := strings.Contains(s.log.String(), noKeyYet); warns != tt.warns {
				t.Errorf("warns: %t, want %t", warns, tt.warns)
			}
		})
	}
}

var accessEffects = map[string]func(*keyTest){
	"auth.mode": func(k *keyTest) {
		k.set(config.AuthRequired)
		k.expectAnswer(k.start(), http.MethodGet, "/v1/tasks", "", http.StatusUnauthorized)
	},
	"auth.session_hours": func(k *keyTest) {
		k.set("5")
		b := k.signIn()
		k.expect("05:00:00", `SELECT date_trunc('minute', ends_at - created_at + interval '1 second')::text FROM tasker.sessions`)
		if got := b.open("/ui/tasks"); got != http.StatusOK {
			k.Errorf("the page is answered with %d", got)
		}
	},
	"auth.session_idle_minutes": func(k *keyTest) {
		k.set("5")
		b := k.signIn()
		k.exec(`UPDATE tasker.sessions SET seen_at = clock_timestamp() - interval '6 min'`)
		if got := b.open("/ui/tasks"); got != http.StatusSeeOther {
			k.Errorf("the page is answered with %d", got)
		}
	},
}

// A browser follows no redirects.
type browser struct {
	*keyTest
	url string
	http.Client
}

// signIn starts a server that asks, and signs in with the first key. Nothing has used the session
// yet.
func (k *keyTest) signIn() *browser {
	k.Helper()
	k.also("auth.mode", config.AuthRequired)
	jar, err := cookiejar.New(nil)
	k.must(err)
	b := &browser{k, k.start().url, http.Client{
		Jar: jar, Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	b.open("/ui/sign-in")
	at, err := url.Parse(b.url + "/ui/")
	k.must(err)
	form := url.Values{"key": {bootstrap(k.T, k.options.Config.Database.URL)}}
	for _, c := range jar.Cookies(at) {
		form.Set("token", c.Value)
	}
	if got := b.send(http.MethodPost, "/ui/sign-in", form.Encode()); got != http.StatusSeeOther {
		k.Fatalf("signing in is answered with %d", got)
	}
	return b
}

// open returns the status of a page.
func (b *browser) open(path string) int {
	b.Helper()
	return b.send(http.MethodGet, path, "")
}

func (b *browser) send(method, path, form string) int {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(form))
	b.must(err)
	if form != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.Do(req)
	b.must(err)
	b.must(resp.Body.Close())
	return resp.StatusCode
}
