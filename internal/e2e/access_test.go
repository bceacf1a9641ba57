package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
)

// askingEnv has a server on loopback ask who is calling.
const askingEnv = "TASKER_AUTH_MODE=required"

// bootstrap creates the first key of a database and returns its token.
func bootstrap(t *testing.T, database string) string {
	t.Helper()
	code, token, errs := run(t, nil, "key", "bootstrap", "--database-url", database)
	if code != 0 || strings.Contains(errs, "tsk_") || !strings.HasPrefix(token, "tsk_") {
		t.Fatalf("tasker key bootstrap ended with %d: %s", code, errs)
	}
	return strings.TrimSpace(token)
}

// signedIn is somebody with a key.
type signedIn struct {
	t          *testing.T
	url, token string
}

// ctl runs tasker-ctl and returns how it ends and what it prints.
func (s signedIn) ctl(args ...string) (code int, out, errs string) {
	s.t.Helper()
	return runProgram(s.t, []string{"TASKER_TOKEN=" + s.token}, program("tasker-ctl"), append([]string{"--server", s.url}, args...)...)
}

// done is ctl for what must succeed.
func (s signedIn) done(args ...string) string {
	s.t.Helper()
	code, out, errs := s.ctl(args...)
	if code != 0 {
		s.t.Fatalf("tasker-ctl %s ended with %d: %s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// key creates a key and returns its token.
func (s signedIn) key(name string, grants ...string) string {
	s.t.Helper()
	args := []string{"key", "create", name}
	for _, g := range grants {
		args = append(args, "--grant", g)
	}
	return strings.TrimSpace(s.done(args...))
}

// as returns somebody with a new key.
func (s signedIn) as(name string, grants ...string) signedIn {
	s.t.Helper()
	return signedIn{s.t, s.url, s.key(name, grants...)}
}

func (s signedIn) client() *client.Client {
	s.t.Helper()
	c, err := client.New(s.url, client.WithToken(s.token), client.WithRetries(0))
	must(s.t, err)
	return c
}

// A server that other machines can reach asks everybody, whatever the configuration says. Everybody
// who takes part in the work of a namespace has a key, and may do what is theirs.
func TestEverybodyNeedsAKey(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	server := start(t, []string{"TASKER_AUTH_MODE=auto"}, program("tasker"), "serve", "--database-url", database.URL, "--listen", "0.0.0.0:0", "--templates", "testdata/templates")
	url := server.url()
	wantHiddenPassword(t, server.cmd.Process.Pid, database.URL)
	if got := status(t, url+"/v1/tasks"); got != http.StatusUnauthorized {
		t.Errorf("without a key: %d", got)
	}
	if got := ready(t, url); got != http.StatusOK {
		t.Errorf("a probe: %d", got)
	}
	if !strings.Contains(server.log.String(), "tasker key bootstrap --database-url") {
		t.Errorf("the log does not say how the first key is made: %s", server.log)
	}
	admin := signedIn{t, url, bootstrap(t, database.URL)}
	if code, _, errs := run(t, nil, "key", "bootstrap", "--database-url", database.URL); code != 1 || !strings.Contains(errs, "the first key already exists") {
		t.Errorf("a second first key: %d, %s", code, errs)
	}
	developer, operator := admin.as("dora", "developer@order_processing"), admin.as("olaf", "operator@order_processing")
	viewer := admin.as("vera", "viewer@elsewhere")
	tokenFile := filepath.Join(t.TempDir(), "worker.token")
	must(t, os.WriteFile(tokenFile, []byte(admin.key("worker-1", "worker@order_processing")), 0o600))
	startWorker(t, admin.url, tokenFile, tokenFileEnv+"="+tokenFile)

	task := strings.TrimSpace(developer.done("task", "submit", "--namespace", "order_processing", "--name", "fulfill_order", "--context", `{"order_id": 7}`, "--wait", "-q"))
	if got := operator.done("task", "get", task, "-o", "json"); !strings.Contains(got, `"status": "complete"`) || !strings.Contains(got, `"order_id": 7`) {
		t.Errorf("the operator sees %s", got)
	}
	if code, out, errs := viewer.ctl("task", "get", task); code != 3 || strings.Contains(out+errs, "order_processing") {
		t.Errorf("a viewer of another namespace: %d, %s%s", code, out, errs)
	}
	if code, _, errs := operator.ctl("task", "submit", "--namespace", "order_processing", "--name", "fulfill_order"); code != 1 || !strings.Contains(errs, "tasks:create") {
		t.Errorf("the operator creates a task: %d, %s", code, errs)
	}
	if strings.Contains(server.log.String(), "tsk_") {
		t.Error("the server's log has a token")
	}
}

// wantHiddenPassword checks that the list of processes does not show the password of a database.
func wantHiddenPassword(t *testing.T, pid int, database string) {
	t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return // the machine has no such list
	}
	u, err := neturl.Parse(database)
	must(t, err)
	if secret, _ := u.User.Password(); secret == "" || bytes.Contains(list, []byte(secret)) || !bytes.Contains(list, []byte("--listen")) {
		t.Errorf("the list of processes shows %q", list)
	}
}
