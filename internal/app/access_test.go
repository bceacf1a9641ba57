package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

const noKeyYet = "there is none yet"

// bootstrap creates the first key of a database and returns its token.
func bootstrap(t *testing.T, url string) string {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, postgres.Options{MaxConns: 2})
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

// getWith is get with a token; empty is none.
func (s *server) getWith(token, path string) *http.Response {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { resp.Body.Close() })
	return resp
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
	if got := s.getWith("", "/v1/tasks"); got.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(got.Header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("without a key: %s, %v", got.Status, got.Header)
	}
	token := bootstrap(t, o.Config.Database.URL)
	for _, path := range []string{"/v1/tasks", "/v1/keys", "/metrics"} {
		if got := s.getWith(token, path); got.StatusCode != http.StatusOK {
			t.Errorf("%s with a key: %s", path, got.Status)
		}
	}
	if got := s.getWith(token[:len(token)-1]+"A", "/v1/tasks"); got.StatusCode != http.StatusUnauthorized && token[len(token)-1] != 'A' {
		t.Errorf("with a wrong key: %s", got.Status)
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
			if got := s.getWith("", "/v1/tasks"); got.StatusCode != tt.status {
				t.Errorf("%s", got.Status)
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
}
