package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The command says what the doctor finds, and ends with 1 when something is not as it must be.
func TestDoctor(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	run := func(wantCode int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "tasker", append(args, "--database-url", database)...)
		cmd.Env = environment()
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != wantCode {
			t.Fatalf("tasker %s ends with %d, %v:\n%s", strings.Join(args, " "), code, err, out)
		}
		return string(out)
	}
	says := func(out string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
	}
	says(run(1, "doctor"), "schema      FAULT", "tasker migrate up")
	run(0, "migrate", "up")
	says(run(0, "doctor"), "schema      ok", "objects     ok", "invariants  ok      none is violated", "work        ok      no work is deferred", "reads the whole database")

	execute(t, database, `INSERT INTO tasker.deferred_work (kind, task_uuid, last_error, retry_at) VALUES ('sweep', gen_random_uuid(), 'no luck', now())`)
	says(run(1, "doctor"), "schema      ok", "invariants  ok", "work        FAULT   sweep of task", "last with: no luck")
	says(run(2, "doctor", "--timeout", "1ms"), "--timeout must be at least 1s")
}
