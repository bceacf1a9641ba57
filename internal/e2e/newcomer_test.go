package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
)

func tasks(t *testing.T, c *client.Client, status string) []tasker.Task {
	t.Helper()
	list, err := c.Tasks(t.Context(), tasker.TaskFilter{State: tasker.TaskState(status)})
	must(t, err)
	return list.Tasks
}

// The example that the README walks through.
func TestMinimalExample(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	url := start(t, nil, program("tasker"), "serve", "--database-url", database.URL, "--listen", "127.0.0.1:0",
		"--templates", "../../examples/minimal").url()
	start(t, []string{"TASKER_URL=" + url}, program("minimal"))
	said := ctl(t, url, "task", "submit", "--namespace", "greetings", "--name", "greet", "--context", `{"who": "you"}`, "--wait")
	if !strings.Contains(said, "complete") {
		t.Errorf("tasker-ctl said %s", said)
	}
}

// What was there before a crash is there after it.
func TestDevSurvivesACrash(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	args := []string{"dev", "--listen", "127.0.0.1:0", "--data-dir", dir, "--templates", "testdata/templates", "--log-level", "debug"}
	first := start(t, nil, program("tasker"), args...)
	task := submit(t, first.url())
	_, printed, said := run(t, nil, "dev", "--data-dir", dir, "--print-url")
	conn, err := pgx.Connect(t.Context(), strings.TrimSpace(printed))
	if err != nil {
		t.Fatalf("%s%s: %v", printed, said, err)
	}
	must(t, conn.Close(t.Context()))
	if code, _, said := run(t, nil, "dev", "--data-dir", t.TempDir(), "--print-url"); code != 1 || !strings.Contains(said, "start it with tasker dev") {
		t.Errorf("of a directory where none runs: %d %s", code, said)
	}

	second := start(t, nil, program("tasker"), args...)
	await(t, "the second to give up", func() bool {
		select {
		case <-second.done:
			return true
		default:
			return false
		}
	})
	if second.err == nil || !strings.Contains(second.log.String(), "is in use by process") {
		t.Errorf("the second one on the same directory said (%v): %s", second.err, second.log)
	}
	first.kill()
	again := start(t, nil, program("tasker"), args...)
	awaitStatus(t, newClient(t, again.url()), task, "steps_in_process")
	password, err := os.ReadFile(filepath.Join(dir, "password"))
	must(t, err)
	for _, log := range []string{first.log.String(), second.log.String(), again.log.String()} {
		if strings.Contains(log, strings.TrimSpace(string(password))) {
			t.Errorf("the log shows the password of the private PostgreSQL: %s", log)
		}
	}
}

// dataDir returns a directory that PostgreSQL may enter when we are root; one of
// the testing package it may not.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tasker-e2e-data-") //nolint:usetesting // see above
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	must(t, os.Chmod(dir, 0o755))
	return filepath.Join(dir, "data")
}
