package architecture

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const specification = "docs/specification.md"

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	testName = regexp.MustCompile(`^([a-z0-9]+)\.(Test\w+)$`)
	filePath = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+$|^\w+\.go$`)
)

// Every row of the specification names tests that exist, and every path in it exists.
func TestTheSpecificationNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, specification))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			name := testName.FindStringSubmatch(m[1])
			switch {
			case name != nil && len(packagesWith(name[1], name[2])) == 0:
				t.Errorf("%s:%d names %s, which does not exist: name the test that holds the requirement now", specification, i+1, m[1])
			case name == nil && filePath.MatchString(m[1]) && !exists(m[1]):
				t.Errorf("%s:%d names %s, which does not exist", specification, i+1, m[1])
			}
		}
	}
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

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}

// testDirs returns the directories of the packages that have a test, by the name of the test.
var testDirs = sync.OnceValue(func() map[string][]string {
	dirs := map[string][]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		for _, m := range declaredTest.FindAllStringSubmatch(string(text), -1) {
			dirs[m[1]] = append(dirs[m[1]], path.Dir(name))
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	return dirs
})

var declaredTest = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// packagesWith returns the directories of the packages of a name that have a test. The
// packages of internal and of bench/internal are named without it, and the one at the root
// by the name of the module.
func packagesWith(pkg, name string) []string {
	names := []string{"internal/" + pkg, pkg, "bench/internal/" + pkg}
	if pkg == "tasker" {
		names = append(names, ".")
	}
	var found []string
	for _, dir := range names {
		if slices.Contains(testDirs()[name], dir) {
			found = append(found, dir)
		}
	}
	return found
}
