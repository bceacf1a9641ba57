package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"tasker.example/tasker/internal/pgtest"
)

// all runs the tests and then stops their PostgreSQL.
type all struct{ *testing.M }

func (a all) Run() int { return pgtest.Run(a.M) }

// The tests run the real program: this binary, under its name.
func TestMain(m *testing.M) {
	testscript.Main(all{m}, map[string]func(){"tasker": main})
}

// exits runs a command and compares its exit code: exits 2 tasker dve.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:  "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each command rests a second under -race
			e.Setenv("DATABASE_URL", emptyDatabase(t))
			return nil
		},
	})
}

// emptyDatabase makes a database without a schema. It ends with its server, or with the test.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	server, name := pgtest.Server(t), "cmd_tasker_"+strings.ToLower(rand.Text())
	execute(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func execute(t *testing.T, database, sql string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also for what the end of the test does
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(ctx, sql)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

func environment(extra ...string) []string {
	kept := []string{"GORACE=atexit_sleep_ms=0"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TASKER_SERVER_") && !strings.HasPrefix(v, "DATABASE_URL=") {
			kept = append(kept, v)
		}
	}
	return append(kept, extra...)
}
