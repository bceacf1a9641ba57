package architecture

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	specification = "docs/internals/specification.md"
	threatModel   = "docs/reference/security.md"
)

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	testName = regexp.MustCompile(`^([a-z0-9]+)\.(Test\w+)$`)
	filePath = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+$|^\w+\.go$`)
)

// Every row of the specification names tests that exist, and every path in it exists.
func TestTheSpecificationNamesWhatExists(t *testing.T) {
	namesWhatExists(t, specification)
	namesWhatExists(t, threatModel)
	rows := requirements(t)
	for _, r := range rows {
		if len(r.tests) == 0 {
			t.Errorf("%s has a requirement without a test: name one, or move it to the open ones: %s", specification, r.name)
		}
	}
	if len(rows) < 100 {
		t.Errorf("%s has %d requirements: its tables are not read", specification, len(rows))
	}
}

// namesWhatExists reports the tests and paths in a document that do not exist.
func namesWhatExists(t *testing.T, document string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			name := testName.FindStringSubmatch(m[1])
			switch {
			case name != nil && len(packagesWith(t, name[1], name[2])) == 0:
				t.Errorf("%s:%d names %s, which does not exist: name the test that holds this now", document, i+1, m[1])
			case name == nil && filePath.MatchString(m[1]) && !exists(m[1]):
				t.Errorf("%s:%d names %s, which does not exist", document, i+1, m[1])
			}
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}

// testDirs are the directories of the packages that have a test, by the name of the test.
var (
	testDirs     = map[string][]string{}
	readTestDirs sync.Once
)

var declaredTest = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// packagesWith returns the directories of the packages of a name that have a test. The
// packages of internal, bench/internal and tools are named without it, and the one at the
// root by the name of the module.
func packagesWith(t *testing.T, pkg, name string) []string {
	t.Helper()
	readTestDirs.Do(func() {
		eachFile(t, func(file string, content []byte) {
			if !strings.HasSuffix(file, "_test.go") {
				return
			}
			for _, m := range declaredTest.FindAllStringSubmatch(string(content), -1) {
				testDirs[m[1]] = append(testDirs[m[1]], path.Dir(file))
			}
		})
	})
	names := []string{"internal/" + pkg, pkg, "examples/" + pkg, "examples/patterns/" + pkg, "bench/internal/" + pkg, "tools/" + pkg}
	if pkg == "tasker" {
		names = append(names, ".")
	}
	var found []string
	for _, dir := range names {
		if slices.Contains(testDirs[name], dir) {
			found = append(found, dir)
		}
	}
	return found
}
