package templatefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tasker.example/tasker"

	"github.com/google/go-cmp/cmp"
)

// small is a template with one step.
func small(name string) string {
	return fmt.Sprintf("namespace_name: n\nname: %s\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: h}}]\n", name)
}

// write makes files below a new directory.
func write(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadDir(t *testing.T) {
	dir := write(t, map[string]string{
		"b.yaml":                  small("b"),
		"a/deep/er.YML":           small("er"),
		"a.json":                  `{"namespace": "n", "name": "j", "version": "1.0.0", "steps": [{"name": "a", "handler": {"callable": "h"}}]}`,
		"README.md":               "not a template",
		".hidden.yaml":            "not: a template",
		".git/config.yaml":        "not: a template",
		"..2026_01_01/mapped.yml": "not: a template",
		"dir.yaml/c.yaml":         small("c"),
	})
	if err := os.Symlink("b.yaml", filepath.Join(dir, "..data.yaml")); err != nil {
		t.Fatal(err)
	}
	read, faults, err := LoadDir(dir)
	if err = errors.Join(err, NewFaultsError(dir, faults)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range read {
		name, err := filepath.Rel(dir, f.Path)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name+" "+f.Template.Name)
		content, _ := os.ReadFile(f.Path)
		if f.Source != string(content) {
			t.Errorf("%s: source differs from the file", name)
		}
	}
	want := []string{"a.json j", "a/deep/er.YML er", "b.yaml b", "dir.yaml/c.yaml c"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}

func TestLoadDirFollowsLinksInside(t *testing.T) {
	dir := write(t, map[string]string{".data/a.yaml": small("a")})
	if err := os.Symlink(".data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	read, faults, err := LoadDir(dir)
	if err != nil || len(faults) > 0 || len(read) != 1 || read[0].Template.Name != "a" {
		t.Errorf("%v, %v", read, err)
	}
}

func TestLoadDirListsAllFaults(t *testing.T) {
	outside := write(t, map[string]string{"secret.yaml": small("secret")})
	dir := write(t, map[string]string{
		"1.yaml":     small("one"),
		"2/bad.yaml": "namespace_name: n\nname: two\nversion: 1\nstepps: []\n",
		"3.json":     small("three"),
		"4.yaml":     small("one"),
		"5.yaml":     "",
		"6.yaml":     strings.Repeat("#", 50<<20),
	})
	for link, target := range map[string]string{
		"7.yaml": filepath.Join(outside, "secret.yaml"),
		"8.yaml": "nowhere.yaml",
		"9.yaml": "9.yaml",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "a.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	read, faults, err := LoadDir(dir)
	if len(read) != 0 || err != nil {
		t.Fatalf("%v, %v", read, err)
	}
	if err = NewFaultsError(dir, faults); tasker.CodeOf(err) != tasker.Invalid {
		t.Fatal(err)
	}
	want := `the templates in "DIR" have 12 errors in 9 files:
  DIR/2/bad.yaml: line 1: steps: is missing
  DIR/2/bad.yaml: line 3: version: must be a semantic version such as 1.0.0, but "1" is read as a number: put all three parts in quotes: "1.0.0"
  DIR/2/bad.yaml: line 4: stepps: unknown key; did you mean steps?
  DIR/3.json: line 1: invalid start of a JSON value: 'n'
  DIR/4.yaml: duplicate template n/one 1.0.0, also in DIR/1.yaml: remove one, or change its version
  DIR/5.yaml: line 1: the document is empty
  DIR/6.yaml: has 52428800 bytes; the limit is 262144
  DIR/7.yaml: cannot be read: path escapes from parent
  DIR/8.yaml: cannot be read: no such file or directory
  DIR/9.yaml: cannot be read: too many levels of symbolic links
  DIR/a.yaml: not a regular file`
	want = strings.Replace(want, "12 errors in 9 files", "11 errors in 9 files", 1)
	if diff := cmp.Diff(want, strings.ReplaceAll(err.Error(), dir, "DIR")); diff != "" {
		t.Errorf("error differs (-want +got):\n%s", diff)
	}
	var e *tasker.Error
	if !errors.As(err, &e) || len(e.Details.([]FileFault)) != 11 {
		t.Errorf("details %v", e.Details)
	}
}

func TestLoadDirIsBounded(t *testing.T) {
	content := map[string]string{}
	for i := range 40 {
		content[fmt.Sprintf("%d.yaml", i)] = strings.Repeat("- x\n", 3) + "steps: [" + strings.Repeat("{},", 60) + "]"
		content[fmt.Sprintf("%d.yaml", i)] = "steps: [" + strings.Repeat("{},", 60) + "]"
	}
	_, faults, err := LoadDir(write(t, content))
	err = errors.Join(err, NewFaultsError("DIR", faults))
	var e *tasker.Error
	if !errors.As(err, &e) || len(e.Details.([]FileFault)) != maxFilesFaults {
		t.Fatalf("%v", err)
	}
	if lines := strings.Count(err.Error(), "\n"); lines != maxDirMessage+1 {
		t.Errorf("%d lines", lines)
	}
	if !strings.HasPrefix(err.Error()[strings.Index(err.Error(), "have "):], "have 4000 errors in 40 files") {
		t.Errorf("%.200s", err)
	}
}

func TestLoadDirSaysWhatIsWrongWithTheDirectory(t *testing.T) {
	dir := write(t, map[string]string{"file": ""})
	for name, want := range map[string]string{
		"missing": `the template directory "DIR/missing" does not exist`,
		"file":    `cannot open the template directory "DIR/file": not a directory`,
	} {
		_, _, err := LoadDir(filepath.Join(dir, name))
		if tasker.CodeOf(err) != tasker.Invalid || !strings.HasPrefix(strings.ReplaceAll(err.Error(), dir, "DIR"), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	read, faults, err := LoadDir(t.TempDir())
	if len(read) != 0 || len(faults) != 0 || err != nil {
		t.Errorf("an empty directory: %v, %v", read, err)
	}
}

// What is wrong with some files is nothing to the others; of two with the same template neither counts.
func TestLoadDirReturnsTheFilesWithoutFaults(t *testing.T) {
	dir := write(t, map[string]string{"1.yaml": small("one"), "2.yaml": "steps: []\n", "3.yaml": small("three"), "4.yaml": small("one"), "5.yaml": small("five")})
	read, faults, err := LoadDir(dir)
	if err != nil || len(faults) == 0 {
		t.Fatalf("%v, %v", faults, err)
	}
	var names []string
	for _, f := range read {
		names = append(names, f.Template.Name)
	}
	if diff := cmp.Diff([]string{"three", "five"}, names); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}
