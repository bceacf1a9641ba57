package main

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

// A database administrator runs what tasker migrate roles prints; from then on one user
// migrates and another serves, and neither may do more.
func TestOneUserMigratesAndAnotherServes(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	prefix := "cmd_tasker_" + strings.ToLower(rand.Text()[:10])
	run := func(wantCode int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "tasker", args...)
		cmd.Env = environment()
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != wantCode {
			t.Fatalf("tasker %s ends with %d, %v:\n%s", strings.Join(args, " "), code, err, out)
		}
		return string(out)
	}
	sql := run(0, "migrate", "roles", "--prefix", prefix)
	execute(t, database, sql)
	deploy, serve := prefix+"_deploy", prefix+"_app"
	execute(t, database, `CREATE ROLE `+deploy+` LOGIN PASSWORD 'geheim' IN ROLE `+prefix+`_migrate; CREATE ROLE `+serve+` LOGIN PASSWORD 'geheim'`)
	t.Cleanup(func() {
		roles := strings.Join([]string{deploy, serve, prefix + "_migrate", prefix + "_server", prefix + "_reader"}, ", ")
		execute(t, database, `DROP OWNED BY `+roles+` CASCADE; DROP ROLE `+roles)
	})
	as := func(user string) string {
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(user, "geheim")
		return u.String()
	}

	if out := run(1, "migrate", "up", "--database-url", as(serve)); !strings.Contains(out, "GRANT "+prefix+"_migrate TO "+serve) {
		t.Errorf("who may not migrate is told %s", out)
	}
	run(0, "migrate", "up", "--database-url", as(deploy))
	if out := run(0, "migrate", "status", "--database-url", as(deploy)); !strings.Contains(out, "granted to "+prefix+"_server and "+prefix+"_reader") {
		t.Errorf("status says %s", out)
	}
	if out := run(1, "serve", "--listen", "127.0.0.1:0", "--database-url", as(serve)); !strings.Contains(out, "GRANT "+prefix+"_server TO "+serve) {
		t.Errorf("a server that may not is told %s", out)
	}
	execute(t, database, `GRANT `+prefix+`_server TO `+serve)
	p := launch(t, "serve", "--listen", "127.0.0.1:0", "--database-url", as(serve))
	client := http.Client{Timeout: patience}
	answer, err := client.Get(p.ready() + "/health/ready")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("ready: %s", answer.Status)
	}
}
