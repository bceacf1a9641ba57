// Package clients tests that the generator of the Go section of docs/how-to/generate-clients.md
// makes a working client of the OpenAPI document. The tests of the SDKs run the other sections.
package clients

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	_ "github.com/oapi-codegen/runtime" // of generated clients
)

const (
	root     = "../.."
	template = "{namespace_name: shop, name: pay, version: 1.0.0, steps: [{name: charge, handler: {callable: charge_card}}]}"
)

func TestOapiCodegenMakesAClient(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, root, "docs/how-to/generate-clients.md"), "\n## Go\n")
	generate := match(t, section, `(?m)^ {4}(go run \S+/oapi-codegen@\S+ .*)$`)
	program := match(t, section, "(?s)```go\n(.*?)```")
	modules := strings.ReplaceAll(read(t, "..", "go.mod"), " // indirect", "")
	for _, used := range regexp.MustCompile(`(github\.com/oapi-codegen/\S+?)(?:/cmd/\S+)?@(\S+)`).FindAllStringSubmatch(section, -1) {
		if !strings.Contains(modules, used[1]+" "+used[2]+"\n") {
			t.Errorf("the page uses %s %s: tools/go.mod has another version", used[1], used[2])
		}
	}
	if !found || t.Failed() {
		t.Fatal("the page and tools/go.mod differ")
	}

	// The module has the versions of tools/go.mod, so that nothing is downloaded.
	dir := t.TempDir()
	write(t, dir, "go.mod", regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(modules, "module example.com/shop"))
	write(t, dir, "go.sum", read(t, "..", "go.sum"))
	write(t, dir, "openapi.json", read(t, root, "internal/api/testdata/openapi.json"))
	write(t, dir, "main.go", program)
	write(t, dir, "tasker/.keep", "")
	generate = regexp.MustCompile(`^go run \S+`).ReplaceAllString(generate, "go tool oapi-codegen")
	run(t, dir, nil, strings.Fields(generate)...)
	run(t, dir, nil, "go", "build", "-o", "try", ".")

	got := run(t, dir, []string{"TASKER_URL=" + startServer(t)}, filepath.Join(dir, "try"))
	if want := "pay true\n404 NOT_FOUND\n"; got != want {
		t.Errorf("the program printed %q, want %q", got, want)
	}
}

// startServer starts a server with its own PostgreSQL and returns its URL. TASKER_BINARY names the
// program; without it, the test builds one.
func startServer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// PostgreSQL runs as another user if this program runs as root.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "templates/pay.yaml", template)
	binary := os.Getenv("TASKER_BINARY")
	if binary == "" {
		binary = filepath.Join(dir, "tasker")
		run(t, root, nil, "go", "build", "-o", binary, "./cmd/tasker")
	}

	cmd := exec.CommandContext(t.Context(), binary, "dev", "--listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(dir, "data"), "--templates", filepath.Join(dir, "templates"))
	cmd.Env = environment()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the context of the test has ended
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if _, url, found := strings.Cut(lines.Text(), "tasker is ready at "); found {
			go func() {
				for lines.Scan() { // the server must be able to print
				}
			}()
			return strings.TrimSpace(url)
		}
	}
	t.Fatal("tasker dev ended before it was ready")
	return ""
}

// environment returns the environment without settings of a server, which the server would read.
func environment() []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TASKER_") {
			env = append(env, variable)
		}
	}
	return env
}

func run(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(environment(), env...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, output)
	}
	return string(output)
}

func match(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("the page has nothing that matches %s", pattern)
	}
	return found[1]
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
