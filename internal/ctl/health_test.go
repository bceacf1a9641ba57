package ctl

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cli"
)

// What is wrong with a server is shown, and told by the exit code.
func TestHealth(t *testing.T) {
	t.Parallel()
	parts := apiv1.Health{
		Checks:     map[string]apiv1.HealthCheck{"database": {Status: "healthy"}, "loops": {Status: "unhealthy"}},
		Loops:      map[string]apiv1.HealthLoop{"retry steps": {Status: "late", Failures: 7}},
		Components: map[string]apiv1.HealthComponent{"deferred_work": {Status: "degraded", LastError: "sweep: 2\x1b[2J"}},
	}
	notReady := map[string]any{"error": map[string]any{"code": "UNAVAILABLE", "message": "the server is not ready; see details.checks", "details": parts}}
	ready := parts
	ready.Status = "ready"
	for _, tt := range []struct {
		name   string
		status int
		answer any
		code   int
		out    []string
		err    string
	}{
		{"ready", http.StatusOK, ready, cli.ExitOK, []string{"READY", "component  deferred_work  degraded   sweep: 2"}, ""},
		{"not ready", http.StatusServiceUnavailable, notReady, exitUnreachable, []string{"NOT_READY", "check      loops          unhealthy", "late       7 passes failed; last success -"}, "not ready"},
		{"a page of a proxy", http.StatusServiceUnavailable, "down", exitUnreachable, nil, "is it a Tasker server?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				w.WriteHeader(tt.status)
				if err := json.NewEncoder(w).Encode(tt.answer); err != nil || r.URL.Path != "/health/ready" {
					t.Error(r.URL, err)
				}
			}))
			defer s.Close()
			var out, errs strings.Builder
			code := Main([]string{"tasker-ctl", "health"}, strings.NewReader(""), &out, &errs, []string{"TASKER_URL=" + s.URL})
			if code != tt.code || asked != 1 {
				t.Errorf("exit code %d after %d requests, want %d after one", code, asked, tt.code)
			}
			for _, want := range tt.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("printed\n%s\nwithout %q", out.String(), want)
				}
			}
			if !strings.Contains(errs.String(), tt.err) || (tt.out == nil && out.Len() > 0) {
				t.Errorf("printed %q and the error %q, want one with %q", out.String(), errs.String(), tt.err)
			}
		})
	}
}
