package e2e

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

func TestMigrate(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	for _, tt := range []struct {
		name string
		args []string
		env  []string
		code int
		says []string
	}{
		{name: "status of an empty database", args: []string{"migrate", "status", "--database-url", database}, code: 1, says: []string{"pending", "run: tasker migrate up"}},
		{name: "serve on an empty database", args: []string{"serve", "--database-url", database, "--listen", "127.0.0.1:0"}, code: 1, says: []string{"Error: ", "run: tasker migrate up"}},
		{name: "up", args: []string{"migrate", "up"}, env: []string{"DATABASE_URL=" + database}, says: []string{"applied migrations/0001_templates.sql", "functions and views"}},
		{name: "up again", args: []string{"migrate", "up", "--database-url", database}, says: []string{"nothing to do"}},
		{name: "status", args: []string{"migrate", "status", "--database-url", database}, says: []string{"0002", "the schema is current"}},
		{name: "no database named", args: []string{"migrate", "up"}, env: []string{"DATABASE_URL=", "TASKER_DATABASE_URL="}, code: 2, says: []string{"no database: set --database-url"}},
		{name: "no database there", args: []string{"migrate", "up", "--database-url", "postgres://x@127.0.0.1:1/x"}, code: 1, says: []string{"cannot connect to the database"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := run(t, tt.env, tt.args...)
			wantSaid(t, code, tt.code, out+errs, tt.says)
		})
	}
}

func wantSaid(t *testing.T, code, want int, said string, words []string) {
	t.Helper()
	if code != want {
		t.Errorf("exit status %d, want %d", code, want)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("said %q, which lacks %q", said, w)
		}
	}
}

func TestStartsThatAreRefused(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t).URL
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	must(t, os.WriteFile(bad, []byte("namespace: a\nname: b\nversion: 1.0.0\nsteps:\n  - name: one\n    retri: {}\n"), 0o600))
	file := filepath.Join(dir, "tasker.toml")
	must(t, os.WriteFile(file, []byte("[server]\nlistn = \"x\"\n"), 0o600))
	serve := []string{"serve", "--database-url", database, "--listen", "127.0.0.1:0"}
	for _, tt := range []struct {
		name string
		args []string
		env  []string
		code int
		says []string
	}{
		{name: "an address that is taken", args: []string{"serve", "--database-url", database, "--listen", taken.Addr().String()}, code: 1, says: []string{"is in use", "--listen"}},
		{name: "an unknown flag", args: []string{"serve", "--colour"}, code: 2, says: []string{"--colour", "tasker serve --help"}},
		{name: "an argument", args: append(serve, "now"), code: 2, says: []string{"now"}},
		{name: "an unknown command", args: []string{"server"}, code: 2, says: []string{"server"}},
		{name: "a wrong template", args: []string{"dev", "--data-dir", filepath.Join(dataDir(t), "y"), "--listen", "127.0.0.1:0", "--templates", dir}, code: 1, says: []string{"bad.yaml", "line 6", "did you mean retry?"}},
		{name: "no such directory", args: append(serve, "--templates", filepath.Join(dir, "none")), code: 1, says: []string{"none"}},
		{name: "a wrong file", args: append(serve, "--config", file), code: 1, says: []string{"line 2", "did you mean", "listen"}},
		{name: "a wrong variable", args: serve, env: []string{"TASKER_SERVER_LISTN=x"}, code: 1, says: []string{"TASKER_SERVER_LISTEN"}},
		{name: "a lease shorter than three heartbeats", args: serve, env: []string{"TASKER_WORKERS_LEASE_SECONDS=5"}, code: 1, says: []string{"lease_seconds"}},
		{name: "no database", args: []string{"serve"}, env: []string{"DATABASE_URL=", "TASKER_DATABASE_URL="}, code: 1, says: []string{"database.url"}},
		{name: "a malformed database", args: []string{"serve", "--database-url", "postgres://%zz", "--listen", "127.0.0.1:0"}, code: 1, says: []string{"Error: "}},
		{name: "a demo without a rest", args: []string{"dev", "--demo", "--demo-every", "0s", "--data-dir", filepath.Join(dataDir(t), "x"), "--listen", "127.0.0.1:0"}, code: 2, says: []string{"--demo-every"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := run(t, tt.env, tt.args...)
			wantSaid(t, code, tt.code, errs, tt.says)
			if out != "" {
				t.Errorf("standard output says %q", out)
			}
		})
	}
}

func TestHelpAndSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		env  []string
		says []string
	}{
		{args: []string{"--help"}, says: []string{"tasker dev --demo", "migrate"}},
		{args: []string{"dev", "--help"}, says: []string{"--data-dir", "--demo", "PostgreSQL 15 or newer"}},
		{args: []string{"serve", "--help"}, says: []string{"--database-url", "--config"}},
		{args: []string{"config"}, env: []string{"TASKER_DATABASE_URL=postgres://a:hunter2@b/c", "TASKER_SERVER_LISTEN=127.0.0.1:99"}, says: []string{"127.0.0.1:99", "postgres://a:"}},
		{args: []string{"config", "keys"}, says: []string{"workers.lease_seconds", "TASKER_WORKERS_LEASE_SECONDS"}},
		{args: []string{"version"}, says: []string{"tasker "}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			code, out, _ := run(t, tt.env, tt.args...)
			wantSaid(t, code, 0, out, tt.says)
			if strings.Contains(out, "hunter2") {
				t.Error("a password is shown")
			}
		})
	}
}

// What the configuration says of the log holds in the program.
func TestTheLogIsWrittenAsConfigured(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"TASKER_LOG_FORMAT=json": `"msg":"stopping"`, "TASKER_LOG_LEVEL=error": ""} {
		p := serve(t, pgtest.New(t).URL, setting)
		p.url()
		p.stop()
		said := p.log.String()
		if !strings.Contains(said, want) || (want == "" && strings.Contains(said, "stopping")) {
			t.Errorf("with %s the log is %s", setting, said)
		}
	}
}
