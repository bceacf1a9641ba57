package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// following runs the command as a process, whose end by Ctrl-C is to be seen.
func (h *harness) following(t *testing.T, args ...string) (cmd *exec.Cmd, lines *bufio.Scanner) {
	t.Helper()
	cmd = process(t, h.url, args...)
	return cmd, begin(t, cmd)
}

// process is the command as a process.
func process(t *testing.T, url string, args ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tasker-ctl")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, program); err != nil { // a test binary of testscript goes by its name
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "TASKER_URL="+url)
	cmd.Stderr = t.Output()
	return cmd
}

// begin starts a process and returns what it prints.
func begin(t *testing.T, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return bufio.NewScanner(out)
}

func (h *harness) investigated(t *testing.T) (entry string) {
	t.Helper()
	task := h.must(t, "", "task", "submit", "--namespace", "orders", "--name", "one", "--quiet")
	h.must(t, "", "dlq", "create", task, "--reason", "parcel lost")
	var e tasker.Entry
	if err := json.Unmarshal([]byte(h.must(t, "", "dlq", "get", task, "-o", "json")), &e); err != nil {
		t.Fatal(err)
	}
	return e.UUID.String()
}

// Each event is a line, as it happens; Ctrl-C ends it with success.
func TestFollow(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(t, oneStep, "template", "register", "-")
	first := h.investigated(t)
	cmd, lines := h.following(t, "dlq", "watch", "--from-beginning")
	for _, entry := range []string{first, ""} {
		if entry == "" {
			entry = h.investigated(t)
		}
		if !lines.Scan() {
			t.Fatal("it ended", lines.Err())
		}
		words := strings.Fields(lines.Text())
		if len(words) != 5 || words[1] != "dlq.entry.created" || words[2] != "manual_dlq" || words[3] != "orders/one" || words[4] != entry {
			t.Errorf("line %q", lines.Text())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted, it ended with %v", err)
	}
}

func TestFollowForPrograms(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(t, oneStep, "template", "register", "-")
	entry := h.investigated(t)
	h.must(t, "", "dlq", "update", entry, "--status", "manually_resolved", "--notes", "found")
	cmd, lines := h.following(t, "dlq", "watch", "--from-beginning", "--topic", "dlq.entry.resolved,dlq.entry.recovered", "-o", "json")
	var e apiv1.CloudEvent
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || e.Type != "tasker.dlq.entry.resolved" || e.Subject != entry {
		t.Errorf("line %q", lines.Text())
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
