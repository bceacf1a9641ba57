package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// vulnerable makes a database in which one function of a module is vulnerable, in versions
// from one on, and returns its URL.
func vulnerable(t *testing.T, module, pkg, function, introduced string) string {
	t.Helper()
	const at = "2026-01-02T03:04:05Z"
	dir := t.TempDir()
	for name, content := range map[string]any{
		"index/db.json":      map[string]any{"modified": at},
		"index/modules.json": []any{map[string]any{"path": module, "vulns": []any{map[string]any{"id": "GO-2026-9999", "modified": at}}}},
		"index/vulns.json":   []any{map[string]any{"id": "GO-2026-9999", "modified": at}},
		"ID/GO-2026-9999.json": map[string]any{
			"schema_version": "1.3.1", "id": "GO-2026-9999", "modified": at, "published": at,
			"summary": "a vulnerability for a test", "details": "It is not real.",
			"affected": []any{map[string]any{
				"package":            map[string]any{"name": module, "ecosystem": "Go"},
				"ranges":             []any{map[string]any{"type": "SEMVER", "events": []any{map[string]any{"introduced": introduced}}}},
				"ecosystem_specific": map[string]any{"imports": []any{map[string]any{"path": pkg, "symbols": []string{function}}}},
			}},
			"database_specific": map[string]any{"url": "https://pkg.go.dev/vuln/GO-2026-9999", "review_status": "REVIEWED"},
		},
	} {
		name = filepath.Join(dir, name)
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}

// A function that our own code calls is found when a database says that it is vulnerable,
// with the place of the call; what is not called and other versions are not.
func TestVulnerableFunctionsThatAreCalledAreFound(t *testing.T) {
	t.Parallel()
	const yaml = "go.yaml.in/yaml/v3"
	for _, tt := range []struct {
		name                              string
		module, pkg, function, introduced string
		found                             bool
	}{
		{"called", yaml, yaml, "NewDecoder", "0", true},
		{"not called", yaml, yaml, "NewEncoder", "0", false},
		{"in later versions", yaml, yaml, "NewDecoder", "3.999.0", false},
		{"of a module that is not used", "other.example/module", "other.example/module", "F", "0", false},
	} {
		var out strings.Builder
		database := vulnerable(t, tt.module, tt.pkg, tt.function, tt.introduced)
		found, err := scanPackages(t.Context(), root, "./internal/templatefile", database, &out)
		if err != nil || found != tt.found {
			t.Errorf("%s: found is %v, %v:\n%s", tt.name, found, err, out.String())
		}
		for _, s := range []string{"GO-2026-9999", "Found in: go.yaml.in/yaml/v3@v3", "internal/templatefile/", "yaml.NewDecoder"} {
			if tt.found && !strings.Contains(out.String(), s) {
				t.Errorf("%s: it does not say %q:\n%s", tt.name, s, out.String())
			}
		}
	}
}

// All modules of the repository are checked.
func TestAllModulesAreChecked(t *testing.T) {
	t.Parallel()
	dirs, err := modulesOf(t.Context(), root)
	if want := []string{"bench", ".", "tools"}; err != nil || !slices.Equal(dirs, want) {
		t.Errorf("the modules are %q, %v, want %q", dirs, err, want)
	}
}

// checkout makes a checkout with two modules, of which the second calls a function of
// golang.org/x/mod.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`golang\.org/x/mod v\S+`).FindString(string(text))
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":         "module test.example/first\n\ngo 1.26.0\n",
		"main.go":        "package main\n\nfunc main() {}\n",
		"second/go.mod":  "module test.example/second\n\ngo 1.26.0\n\nrequire " + version + "\n",
		"second/go.sum":  string(sums),
		"second/main.go": "package main\n\nimport \"golang.org/x/mod/semver\"\n\nfunc main() { println(semver.IsValid(\"v1\")) }\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// A database that cannot be used is never taken for one without vulnerabilities.
func TestADatabaseThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := checkout(t)
	absent := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(absent.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(html.Close)
	half := vulnerable(t, "a.example/a", "a.example/a", "F", "0")
	if err := os.Remove(filepath.Join(strings.TrimPrefix(half, "file://"), "index", "modules.json")); err != nil {
		t.Fatal(err)
	}
	for database, says := range map[string]string{
		gone.URL:                "connection refused",
		absent.URL:              "404 Not Found",
		html.URL:                "GET ",
		"file://" + t.TempDir(): "no such file",
		"vuln.go.dev":           "must begin with file://",
		half:                    "unrecognized vulndb format",
	} {
		var out strings.Builder
		code, err := check(t.Context(), dir, database, &out)
		if code != isUnknown || err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "NOT checked") {
			t.Errorf("%s: code %d, %v, want one that says %q", database, code, err, says)
		}
		if database != half && (err == nil || !strings.Contains(err.Error(), "Set GOVULNDB to the file:// URL of a copy")) {
			t.Errorf("%s: %v does not say what to do", database, err)
		}
	}
}

// The command ends with the codes that it documents, and with -report with 0.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir, program := checkout(t), filepath.Join(t.TempDir(), "vulncheck")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const mod = "golang.org/x/mod"
	affected, clean := vulnerable(t, mod, mod+"/semver", "IsValid", "0"), vulnerable(t, mod, mod+"/semver", "IsValid", "1.0.0")
	for _, tt := range []struct {
		database string
		args     []string
		code     int
		says     string
	}{
		{clean, nil, isClean, "No vulnerabilities found"},
		{affected, nil, isVulnerable, "semver.IsValid"},
		{affected, []string{"-report"}, isClean, "GO-2026-9999"},
		{"http://127.0.0.1:1", nil, isUnknown, "NOT checked"},
		{"http://127.0.0.1:1", []string{"-report"}, isClean, "NOT checked"},
		{affected, []string{"surplus"}, isUsage, ""},
	} {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"-root", dir}, tt.args...)...)
		cmd.Env = append(os.Environ(), databaseVariable+"="+tt.database)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(out), tt.says) {
			t.Errorf("%v with %s: code %d, want %d with %q: %v\n%s", tt.args, tt.database, code, tt.code, tt.says, err, out)
		}
		if tt.database == affected && tt.code == isClean && !strings.Contains(string(out), "== module second") {
			t.Errorf("the second module is not checked:\n%s", out)
		}
	}
}
