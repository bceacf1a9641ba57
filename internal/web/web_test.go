package web_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestPagesAreGuarded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.get("/ui/")
	csp := r.header.Get("Content-Security-Policy")
	if r.status != http.StatusOK || !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("%d with the policy %q", r.status, csp)
	}
}
