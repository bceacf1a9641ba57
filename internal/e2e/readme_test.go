package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker/worker"
)

// The Go worker of the README runs as printed, in a program, with its template and command.
func TestWorkerOfTheReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	must(t, err)
	block := func(language string) string {
		found := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(found) != 1 || strings.Count(found[0][1], "\n") >= 10 {
			t.Fatalf("the README has %d blocks of %s, want one of less than ten lines", len(found), language)
		}
		return found[0][1]
	}
	dir := filepath.Dir(dataDir(t))
	must(t, os.Mkdir(filepath.Join(dir, "templates"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "templates/order.yaml"), []byte(block("yaml")), 0o600))
	server := start(t, nil, program("tasker"), "dev", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"), "--templates", filepath.Join(dir, "templates"))
	code := strings.Replace(block("go"), "http://127.0.0.1:8080", server.url(), 1)
	const around = `package main
import ("context"; "fmt"; "log"; "os/signal"; "syscall"; "tasker.example/tasker/client"; "tasker.example/tasker/worker")
func main() {
ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM); defer stop()
CODE
if err != nil { log.Fatal(err) } }`
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(strings.Replace(around, "CODE", code, 1)), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "worker"), filepath.Join(dir, "main.go"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the worker: %v\n%s", err, out)
	}
	start(t, nil, filepath.Join(dir, "worker"))
	c := newClient(t, server.url())
	others := worker.New(c.Backend(), worker.Options{Namespaces: []string{"shop"}})
	worker.Handle(others, "charge_card", func(context.Context, *worker.Step[any]) (int, error) { return 1200, nil })
	worker.Handle(others, "ship_order", func(_ context.Context, s *worker.Step[any]) (shelf string, err error) {
		err = s.Dependency("reserve", &shelf)
		return shelf, err
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = others.Run(ctx) }() // it ends with the test
	submit := regexp.MustCompile(`(?m)^    tasker-ctl (task submit .*--wait)$`).FindSubmatch(text)
	if said := ctl(t, server.url(), strings.Fields(strings.NewReplacer(`'{"order": 7, "total": 1200}'`, `{"order":7,"total":1200}`).Replace(string(submit[1])))...); !strings.Contains(said, "complete") {
		t.Errorf("tasker-ctl said %s", said)
	}
	if ship := stepNamed(t, c, readID(t, tasks(t, c, "complete")[0].UUID.String()), "ship"); !strings.Contains(string(ship.Results), "shelf 7") {
		t.Errorf("the result of ship is %s", ship.Results)
	}
}
