package licences

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// The list has the licence of everything that others wrote, and all of them are allowed.
func TestEverythingOfOthersHasAnAllowedLicence(t *testing.T) {
	t.Parallel()
	l := list(t)
	released, outside := modulesHere(t)
	if len(released) < 20 || len(outside) < 5 {
		t.Fatalf("%d and %d modules: they are not found", len(released), len(outside))
	}
	if err := l.Check(released, true); err != nil {
		t.Error(err)
	}
	if err := l.Check(outside, false); err != nil {
		t.Error(err)
	}
	if err := l.CheckFiles(root, filesHere(t)); err != nil {
		t.Error(err)
	}
}

func list(t *testing.T) List {
	t.Helper()
	l, err := ReadList()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func modulesHere(t *testing.T) (released, outside []Module) {
	t.Helper()
	released, err := Released(t.Context(), root, Platforms())
	if err != nil {
		t.Fatal(err)
	}
	if outside, err = Outside(t.Context(), root, released); err != nil {
		t.Fatal(err)
	}
	return released, outside
}

func filesHere(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal("list the files of the checkout:", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// moduleWith makes a module with files, and one package beside them.
func moduleWith(t *testing.T, files map[string]string) Module {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"inner/package.go": "package inner\n"}
	maps.Copy(all, files)
	for name, text := range all {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Module{Path: "other.example/module", Version: "v1.2.3", Dir: dir, Packages: []string{filepath.Join(dir, "inner")}}
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A module whose licence is not known, not allowed, or not the listed one is reported with
// the file that says so.
func TestLicencesThatAreReported(t *testing.T) {
	t.Parallel()
	mit, mpl := textOf(t, "LICENSE"), textOf(t, "internal/browsertest/axe.LICENSE")
	for _, tt := range []struct {
		name   string
		files  map[string]string
		listed string
		says   []string // none: it is as it must be
	}{
		{"as listed", map[string]string{"LICENSE": mit}, "MIT", nil},
		{"with a notice", map[string]string{"COPYING": mit, "NOTICE": "x"}, "MIT", nil},
		{"not listed", map[string]string{"LICENSE": mit}, "", []string{"other.example/module@v1.2.3 is not in the list", "MIT (LICENSE)", "released"}},
		{"another one", map[string]string{"LICENSE": mit}, "ISC", []string{"has MIT (LICENSE)", "says ISC"}},
		{"not allowed", map[string]string{"LICENSE": mpl}, "MPL-2.0", []string{"MPL-2.0 (LICENSE), which is not allowed"}},
		{"not allowed beside a package", map[string]string{"LICENSE": mit, "inner/LICENCE.txt": mpl}, "MIT", []string{"MPL-2.0 (inner/LICENCE.txt)", "not allowed"}},
		{"beside a package that is not used", map[string]string{"LICENSE": mit, "cmd/LICENSE": mpl}, "MIT", nil},
		{"no file", nil, "MIT", []string{"has no file with a licence in"}},
		{"not recognised", map[string]string{"LICENSE": "Ask us."}, "MIT", []string{"/LICENSE, whose licence is not recognised"}},
		{"with conditions of its own", map[string]string{"LICENSE": mit + strings.Repeat("You must send us a list of all who use it. ", 50)}, "MIT", []string{"not recognised"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := List{Allowed: []string{"MIT", "ISC"}, AllowedOutside: []string{"MPL-2.0"}, Released: map[string]string{}}
			if tt.listed != "" {
				l.Released["other.example/module"] = tt.listed
			}
			wantSays(t, l.Check([]Module{moduleWith(t, tt.files)}, true), tt.says)
		})
	}
}

func wantSays(t *testing.T, err error, says []string) {
	t.Helper()
	if (err != nil) != (len(says) > 0) {
		t.Fatalf("got %v, want one that says %q", err, says)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

// What tests use may have a licence that what is released may not have; a module that
// nothing uses any more leaves the list.
func TestTheTwoListsOfModules(t *testing.T) {
	t.Parallel()
	m := moduleWith(t, map[string]string{"LICENSE": textOf(t, "internal/browsertest/axe.LICENSE")})
	l := List{Allowed: []string{"MIT"}, AllowedOutside: []string{"MPL-2.0"}, Outside: map[string]string{m.Path: "MPL-2.0"}}
	wantSays(t, l.Check([]Module{m}, false), nil)
	wantSays(t, l.Check(nil, false), []string{"other.example/module is not used any more", "outside"})
	l.Released = l.Outside
	wantSays(t, l.Check([]Module{m}, true), []string{"not allowed"})
}

// Files that come from elsewhere are listed with their licences, and say so themselves.
func TestFilesOfOthersThatAreReported(t *testing.T) {
	t.Parallel()
	names := filesHere(t)
	for _, name := range []string{"internal/web/static/new.js", "docs/ui/x.min.js", "internal/web/fonts/a.woff2", "third_party/x.c"} {
		wantSays(t, list(t).CheckFiles(root, append(names, name)), []string{name + " is not in the list"})
	}
	for name, change := range map[string]func(*List){
		"idiomorph has 0BSD (internal/web/static/idiomorph.LICENSE), and licences.yaml says MIT": func(l *List) { l.Files[0].Licence = "MIT" },
		"axe-core has the licence MPL-2.0 (internal/browsertest/axe.LICENSE), which is not":      func(l *List) { l.Files[1].Released = true },
		"the licence of idiomorph: open": func(l *List) { l.Files[0].LicenceFile = "none" },
		"gone.min.js does not exist":     func(l *List) { l.Ours = append(l.Ours, "gone.min.js") },
	} {
		l := list(t)
		change(&l)
		wantSays(t, l.CheckFiles(root, names), []string{name})
	}
}

// The notices have the licence of each part of a released program, and the notices that
// the Apache licence wants to be passed on.
func TestNoticesHaveEveryLicence(t *testing.T) {
	t.Parallel()
	l := list(t)
	released, _ := modulesHere(t)
	var b strings.Builder
	if err := l.Notices(&b, root, released); err != nil {
		t.Fatal(err)
	}
	notices := b.String()
	for _, m := range released {
		found, err := l.Licences(m)
		if err != nil {
			t.Error(err)
		}
		_, part, ok := strings.Cut(notices, rule+m.String()+"\n")
		if part, _, _ = strings.Cut(part, rule); !ok {
			t.Errorf("the notices have nothing of %s", m)
		}
		for _, f := range found {
			if !strings.Contains(part, strings.TrimSpace(string(f.Text))) {
				t.Errorf("the notices do not have %s of %s", f.Name, m)
			}
		}
	}
	for _, has := range []string{"idiomorph@0.8.0", "Zero-Clause BSD", "std\nLicence: BSD-3-Clause", "-- NOTICE --"} {
		if !strings.Contains(notices, has) {
			t.Errorf("the notices do not have %q", has)
		}
	}
	if strings.Contains(notices, "axe-core") {
		t.Error("the notices have what is not released")
	}
}
