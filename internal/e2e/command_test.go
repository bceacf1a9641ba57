package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/pgtest"
)

// run runs tasker to its end.
func run(t *testing.T, env []string, args ...string) (code int, out, errs string) {
	t.Helper()
	return runProgram(t, env, program("tasker"), args...)
}

// runProgram runs a program to its end.
func runProgram(t *testing.T, env []string, name string, args ...string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), o.String(), e.String()
	}
	must(t, err)
	return 0, o.String(), e.String()
}

// emptyDatabase is a database without a schema.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	url := pgtest.New(t).AdminURL
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	_, err = conn.Exec(t.Context(), "DROP SCHEMA tasker CASCADE")
	must(t, err)
	must(t, conn.Close(t.Context()))
	return url
}

func TestLogFollowsItsSettings(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t).URL
	for setting, want := range map[string]string{"TASKER_LOG_FORMAT=json": `"msg":"stopping"`, "TASKER_LOG_LEVEL=error": ""} {
		p := serve(t, database, setting)
		p.url()
		p.stop()
		said := p.log.String()
		if !strings.Contains(said, want) || (want == "" && strings.Contains(said, "stopping")) {
			t.Errorf("with %s the log is %s", setting, said)
		}
	}
}
