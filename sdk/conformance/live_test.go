package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"tasker.example/tasker/sdk/conformance/live"
)

// The Go worker completes all tasks of a real server although responses get lost, a worker is killed
// and the server is restarted.
func TestGoWorkerAgainstARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	server := os.Getenv("TASKER_BINARY")
	if server == "" {
		server = filepath.Join(t.TempDir(), "tasker")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", server, "tasker.example/tasker/cmd/tasker")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the server: %v\n%s", err, out)
		}
	}
	o := live.Options{Tasker: server, Command: []string{program}, Tasks: 60, Kills: 1, Seed: 7, Log: t.Logf}
	if err := live.Run(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// A worker that reports another result is found.
func TestLiveRunFindsWrongResults(t *testing.T) {
	if err := live.CheckResult("last", []byte(`{"value":{"slept_ms":41}}`), 1); err == nil {
		t.Error("a wrong result of the step last passed")
	}
}
