package architecture

import (
	"context"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

var breakMatching = flag.String("break", "", "break the requirements of "+specification+" that match this pattern, one after the other, and see that a test fails: `make break`")

// maxBreak is how long the tests of one broken requirement may take.
const maxBreak = 10 * time.Minute

// breakage is a change after which a requirement of the specification does not hold. Tests
// that pass in spite of it do not hold the requirement. They are in testdata/breaks, a file
// for each section.
type breakage struct {
	Requirement string // the first column of the specification
	File        string
	Old         string   // occurs once in the file; statements of SQL may repeat it
	New         string   // what is there instead
	Tests       []string // package.Test; those of the requirement's row if empty
}

// requirement is a row of the specification.
type requirement struct {
	name  string
	tests []string
}

// Each requirement of the specification has a breakage that can be applied. With -break,
// those that match are applied to a copy of the files, and a test must fail.
func TestRequirementsThatAreBrokenFailATest(t *testing.T) {
	broken, files := breakages(t), ""
	if *breakMatching != "" {
		files = copyOfFiles(t)
	}
	matching := regexp.MustCompile(*breakMatching)
	for _, r := range requirements(t) {
		i := slices.IndexFunc(broken, func(b breakage) bool { return b.Requirement == r.name })
		if i < 0 {
			t.Errorf("%s has the requirement %q, which nothing in testdata/breaks breaks", specification, r.name)
			continue
		}
		b := broken[i]
		broken = slices.Delete(broken, i, i+1)
		if len(b.Tests) == 0 {
			b.Tests = r.tests
		}
		b.check(t)
		if files != "" && matching.MatchString(b.Requirement) {
			t.Run(b.Requirement, func(t *testing.T) { b.apply(t, files) })
		}
	}
	for _, b := range broken {
		t.Errorf("testdata/breaks breaks %q, which is no requirement of %s", b.Requirement, specification)
	}
}

// check reports a breakage that cannot be applied.
func (b breakage) check(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.File)))
	if err != nil {
		t.Errorf("%q: %v", b.Requirement, err)
		return
	}
	if n := strings.Count(string(text), b.Old); n < 1 || n > 1 && !strings.HasSuffix(b.File, ".sql") || b.Old == b.New {
		t.Errorf("%q: %s has the text to replace %d times, must be once, by another: %q", b.Requirement, b.File, n, b.Old)
	}
	for _, name := range b.Tests {
		if m := testName.FindStringSubmatch(name); m == nil || len(packagesWith(t, m[1], m[2])) == 0 {
			t.Errorf("%q: the test %s does not exist", b.Requirement, name)
		}
	}
}

// apply breaks the copy of the files, runs the tests until one fails, and restores it.
func (b breakage) apply(t *testing.T, files string) {
	t.Helper()
	name := filepath.Join(files, filepath.FromSlash(b.File))
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	write(t, name, strings.ReplaceAll(string(text), b.Old, b.New))
	defer write(t, name, string(text))
	ctx, cancel := context.WithTimeout(t.Context(), maxBreak)
	defer cancel()
	for _, test := range b.Tests {
		m := testName.FindStringSubmatch(test)
		for _, dir := range packagesWith(t, m[1], m[2]) {
			if dir == "internal/e2e" {
				compile(ctx, t, files)
			}
			start := time.Now()
			module := files
			for _, other := range []string{"bench", "tools"} {
				if inOther, ok := strings.CutPrefix(dir, other+"/"); ok {
					module, dir = filepath.Join(files, other), inOther
				}
			}
			out, err := goCommand(ctx, module, "test", "-vet=off", "-count=1", "-run", "^"+m[2]+"$", "./"+dir).CombinedOutput()
			if strings.Contains(string(out), "[build failed]") {
				t.Fatalf("the tests do not compile:\n%s", out)
			}
			if err != nil {
				t.Logf("%s failed in %s, as it must: %s", test, time.Since(start).Round(time.Second), firstComplaint(string(out)))
				return
			}
		}
	}
	t.Errorf("no test noticed that the requirement was broken in %s; ran %s", b.File, strings.Join(b.Tests, ", "))
}

// compile reports a broken program that does not compile, which would say nothing about
// the tests of the binaries. Other tests are compiled with what they test.
func compile(ctx context.Context, t *testing.T, files string) {
	t.Helper()
	if out, err := goCommand(ctx, files, "build", "-o", os.DevNull, "./cmd/...").CombinedOutput(); err != nil {
		t.Fatalf("the broken program does not compile:\n%s", out)
	}
}

// firstComplaint returns the first message of a test that failed.
func firstComplaint(out string) string {
	for line := range strings.SplitSeq(out, "\n") {
		if strings.Contains(line, "_test.go:") && !strings.Contains(line, ": seed ") { // which random tests log first
			return strings.TrimSpace(line[:min(len(line), 300)])
		}
	}
	return strings.TrimSpace(out[:min(len(out), 200)])
}

// copyOfFiles copies the files that git knows, as they are now, so that breaking them
// disturbs nobody.
func copyOfFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal("list the files of the checkout:", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		from := filepath.Join(root, name)
		info, err := os.Lstat(from)
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted, or a link
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// goCommand returns a go command in a directory, which ends with all that it started.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath") // the builds of two copies are the same
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func breakages(t *testing.T) []breakage {
	t.Helper()
	var all []breakage
	names, err := filepath.Glob("testdata/breaks/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewDecoder(strings.NewReader(string(text)))
		decoder.KnownFields(true)
		var some []breakage
		if err := decoder.Decode(&some); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, some...)
	}
	return all
}

// requirements returns the rows of the specification.
func requirements(t *testing.T) []requirement {
	t.Helper()
	text, err := fs.ReadFile(os.DirFS(root), specification)
	if err != nil {
		t.Fatal(err)
	}
	var all []requirement
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| requirement ") {
			continue
		}
		r := requirement{name: strings.TrimSpace(strings.Split(line, " | ")[0][1:])}
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			if testName.MatchString(m[1]) {
				r.tests = append(r.tests, m[1])
			}
		}
		all = append(all, r)
	}
	return all
}
