package architecture

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each pattern of the documents is a directory with a template, handlers and a test, and each
// directory is in the documents.
func TestEachPatternHasAnExample(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/how-to/patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for part := range strings.SplitSeq(string(text), "\n## ") {
		_, after, found := strings.Cut(part, "\n[examples/patterns/")
		if name, _, _ := strings.Cut(after, "]"); found {
			names = append(names, name)
		} else if !strings.HasPrefix(part, "# Patterns") {
			t.Errorf("the section %q does not begin with its example", strings.SplitN(part, "\n", 2)[0])
		}
	}
	dirs, err := os.ReadDir(root + "/examples/patterns")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !slices.Contains(names, d.Name()) {
			t.Errorf("docs/how-to/patterns.md does not have examples/patterns/%s", d.Name())
		}
	}
	for _, name := range names {
		for _, file := range []string{"template.yaml", name + ".go", name + "_test.go"} {
			if _, err := os.Stat(filepath.Join(root, "examples/patterns", name, file)); err != nil {
				t.Errorf("the pattern %s: %v", name, err)
			}
		}
	}
}
