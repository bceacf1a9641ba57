package web_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// What others wrote is pinned: idiomorph 0.8.0 as the npm registry has it. A new
// version is a change of this line.
func TestIdiomorphIsThePinnedVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("static/idiomorph.min.js")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); got != "4cbd535caf7663a51eda9bce6595371c384fc430d54b8d414e29a61167f19f96" {
		t.Errorf("the sum is %s", got)
	}
}

func TestAssetsAreCachedAndCompressed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	page := h.get("/ui/")
	links := regexp.MustCompile(`/ui/static/[^"]+`).FindAllString(page.text, -1)
	if len(links) < 4 {
		t.Fatalf("the page loads %v", links)
	}
	total := 0
	for _, path := range append([]string{"/ui/"}, links...) {
		got := h.get(strings.ReplaceAll(path, "&amp;", "&"), "Accept-Encoding: gzip") // set here, so that the client does not decompress it
		if got.status != http.StatusOK || got.header.Get("Content-Encoding") != "gzip" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, got.status, got.header)
		}
		if kept := strings.Contains(got.header.Get("Cache-Control"), "immutable"); kept != strings.Contains(path, "static") {
			t.Errorf("%s: %s", path, got.header.Get("Cache-Control"))
		}
		total += len(got.text)
	}
	t.Logf("a page weighs %d bytes with all that it loads", total)
	if most := 150_000; total > most {
		t.Errorf("a page weighs %d bytes, want at most %d", total, most)
	}
	for accept, want := range map[string]string{"": "", "identity": "", "gzip;q=0": "", "br, gzip": "gzip", "gzip; q=0.5": "gzip"} {
		got := h.get("/ui/static/ui.css?v=old", "Accept-Encoding: "+accept)
		if got.header.Get("Content-Encoding") != want || strings.Contains(got.header.Get("Cache-Control"), "immutable") {
			t.Errorf("Accept-Encoding %q: %v", accept, got.header)
		}
	}
}
