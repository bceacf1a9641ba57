package app_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker/internal/pgtest"
)

// visit asks as a browser does, and returns the status and where it ends up.
func (s *server) visit(path, host string) (status int, at string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,application/xhtml+xml")
	req.Host = host
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Request.URL.Path
}

func TestAServerHasItsPages(t *testing.T) {
	t.Parallel()
	s := start(t, options(pgtest.New(t).URL))
	for path, want := range map[string]string{"/": "/ui/", "/ui": "/ui/", "/ui/": "/ui/", "/ui/tasks": "/ui/tasks"} {
		if status, at := s.visit(path, ""); status != http.StatusOK || at != want {
			t.Errorf("%s: %d at %s, want %s", path, status, at, want)
		}
	}
	if status, _ := s.visit("/ui/", "evil.example"); status != http.StatusMisdirectedRequest {
		t.Errorf("under another name: %d", status)
	}
	if status, at := s.visit("/", "evil.example"); status != http.StatusMisdirectedRequest || at != "/" {
		t.Errorf("the root under another name: %d at %s", status, at)
	}
	// A program that asks for the root is not sent to a page.
	if status, body, err := s.get("/"); err != nil || status != http.StatusNotFound || !strings.Contains(body, "NOT_FOUND") {
		t.Errorf("a program at the root: %d %s %v", status, body, err)
	}
}

func TestAServerWithoutPages(t *testing.T) {
	t.Parallel()
	o := options(pgtest.New(t).URL)
	o.Config.UI.Enabled = false
	s := start(t, o)
	for _, path := range []string{"/", "/ui/"} {
		if status, _ := s.visit(path, ""); status != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, status)
		}
	}
}
