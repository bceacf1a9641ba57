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

func TestAnEmptyQueueInABrowser(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tab := h.open("/ui/")
	tab.Sees("No open investigations")
	tab.Until(`document.getElementById("fresh").textContent.includes("Europe/Berlin")`)
	pictures(tab, "empty")
	tab.Keys("?")
	tab.Until(`document.querySelector("dialog[open]") !== null`)
	tab.Accessible()
	tab.Picture("keys")
}
