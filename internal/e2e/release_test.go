package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const outside = `package main

import (
	"fmt"

	"tasker.example/tasker/client"
	"tasker.example/tasker/worker"
)

func main() {
	c, err := client.New("http://127.0.0.1:1")
	worker.New(c.Backend(), worker.Options{Name: "outside", Namespaces: []string{"a"}})
	fmt.Println("ran:", err == nil)
}
`

// What make release writes is all that a program outside of this module needs: it
// builds and runs, and the command can be installed and knows its version.
func TestReleaseBuildsOtherPrograms(t *testing.T) {
	t.Parallel()
	checkout, proxy, dir := checkout(t), t.TempDir(), t.TempDir()
	env := goEnv(t)
	version := fmt.Sprintf("v0.0.0-test.%d", time.Now().UnixNano())
	env = append(env, "GOPROXY=file://"+proxy+","+lookUp(env, "GOPROXY"), "GONOSUMDB=tasker.example/tasker,"+lookUp(env, "GONOSUMDB"),
		"GOFLAGS=-mod=mod -modcacherw -buildvcs=false", "GOBIN="+dir, "GOWORK=off", "MAKEFLAGS=")
	t.Cleanup(func() { // the module cache is the machine's
		cache := lookUp(env, "GOMODCACHE")
		left, _ := filepath.Glob(filepath.Join(cache, "cache/download/tasker.example/tasker/@v", version+".*"))
		for _, name := range append(left, filepath.Join(cache, "tasker.example", "tasker@"+version)) {
			if err := os.RemoveAll(name); err != nil {
				t.Error(err)
			}
		}
	})
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = in, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	env = append(env, "GOVULNDB=http://127.0.0.1:1") // it cannot be reached
	release := []string{"make", "release", "VERSION=" + version, "OUT=" + proxy, "PROGRAMS="}
	refused := exec.CommandContext(t.Context(), release[0], release[1:]...)
	refused.Dir, refused.Env = checkout, env
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "vulnerabilities were NOT checked") {
		t.Errorf("a release whose vulnerabilities cannot be checked: %v\n%s", err, out)
	}
	if files, err := os.ReadDir(proxy); err != nil || len(files) > 0 {
		t.Errorf("it was written nevertheless: %v, %v", files, err)
	}
	release = append(release, "VULNCHECK=report")
	run(checkout, release...)
	run(checkout, release...) // the same again changes nothing
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": "module outside.example/app\n\ngo 1.26.0\n", "main.go": outside, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(dir, "go", "get", "tasker.example/tasker@"+version)
	if out := run(dir, "go", "run", "."); out != "ran: true\n" {
		t.Errorf("the program printed %q", out)
	}
	run(dir, "go", "list", "-deps", "tasker.example/tasker/embedded") // all that it imports and embeds is in the release
	run(dir, "go", "install", "tasker.example/tasker/cmd/tasker-ctl@"+version)
	if out := run(dir, filepath.Join(dir, "tasker-ctl"), "version"); !strings.Contains(out, version) {
		t.Errorf("the installed command prints %q", out)
	}
}

// Another path for the module is one command away, and leaves nothing of the old one.
func TestModuleIsRenamed(t *testing.T) {
	t.Parallel()
	dir := checkout(t)
	env := append(goEnv(t), "GOFLAGS=-buildvcs=false", "GOWORK=off", "MAKEFLAGS=")
	run := func(in string, args ...string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = in, env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, invalid := range []string{"tasker", "a.example/b c", "a.example/", "a.example/b;c"} {
		if out, err := run(dir, "make", "rename-module", "MODULE="+invalid); err == nil {
			t.Errorf("%q was taken: %s", invalid, out)
		}
	}
	if out, err := run(dir, "make", "rename-module", "MODULE=code.example/team/flow"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := run(dir, "git", "grep", "-n", "tasker.example/tasker"); err == nil {
		t.Errorf("the old path is left:\n%s", out)
	}
	if out, err := run(dir, "go", "list", "-deps", "-test", "./..."); err != nil { // resolves every import without compiling
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(dir, "gofmt", "-l", "."); err != nil || out != "" {
		t.Errorf("not formatted: %s %v", out, err)
	}
}

// checkout returns a git checkout of this module as it is on disk, committed.
func checkout(t *testing.T) string {
	t.Helper()
	const from = "../.."
	dir := t.TempDir()
	skipped := map[string]bool{".git": true, ".cache": true, "bin": true, "artifacts": true}
	err := filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err := filepath.Rel(from, name)
		switch {
		case err != nil || path == ".":
			return err
		case skipped[path] && entry.IsDir():
			return filepath.SkipDir
		case entry.IsDir():
			return os.Mkdir(filepath.Join(dir, path), 0o755)
		case !entry.Type().IsRegular() || skipped[path]:
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), content, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-qm", "as it is on disk"}} {
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	return dir
}

// goEnv is the environment of this process, with the go command's settings spelled out.
func goEnv(t *testing.T) []string {
	t.Helper()
	env := os.Environ()
	for _, name := range []string{"GOPROXY", "GONOSUMDB", "GOMODCACHE", "GOCACHE"} {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	return env
}

// lookUp returns a variable of an environment; the last one counts.
func lookUp(env []string, name string) (value string) {
	for _, line := range env {
		if v, ok := strings.CutPrefix(line, name+"="); ok {
			value = v
		}
	}
	return value
}
