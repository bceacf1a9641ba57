package web

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// A row without an id would become another row under the reader's eyes when the page
// is brought up to date.
func TestEveryRowHasAnID(t *testing.T) {
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := templateFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range regexp.MustCompile(`<tr[^>]*data-row[^>]*>`).FindAllString(string(text), -1) {
			if !strings.Contains(row, ` id="`) {
				t.Errorf("%s: %s", name, row)
			}
		}
		if strings.Contains(string(text), "style=") || regexp.MustCompile(`\son[a-z]+=`).Match(text) {
			t.Errorf("%s has a style or a handler of its own, which the policy forbids", name)
		}
	}
}

// What turns the direction of text is shown on a page; what a form sends back is as it was given.
func TestBidirectionalControlsAreMarked(t *testing.T) {
	t.Parallel()
	page := "<p>safe\u202egnp.exe</p><input name=\"a\" value=\"x\u202ey\"><textarea rows=\"2\">\n\u2066</textarea><b title=\"\u2069\">\u200f</b>"
	want := "<p>safe[RLO]gnp.exe</p><input name=\"a\" value=\"x\u202ey\"><textarea rows=\"2\">\n\u2066</textarea><b title=\"[PDI]\">\u200f</b>"
	if got := markBidi(page); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
