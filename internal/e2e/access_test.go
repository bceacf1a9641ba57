package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptrace"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
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

// Everybody who takes part in the work of a namespace has a key of their own, and may do what is theirs:
// the real programs together.
func TestEverybodyHasAKey(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	server := serve(t, database.URL, askingEnv)
	admin := signedIn{t, server.url(), bootstrap(t, database.URL)}
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

	// What is in another namespace does not exist.
	for _, args := range [][]string{{"task", "get", task}, {"task", "steps", task}, {"dlq", "get", task}, {"task", "cancel", task, "--reason", "x"}} {
		if code, out, errs := viewer.ctl(args...); code == 0 || strings.Contains(out+errs, "order_processing") || args[1] != "cancel" && code != 3 {
			t.Errorf("tasker-ctl %s ended with %d: %s%s", strings.Join(args, " "), code, out, errs)
		}
	}
	for _, args := range [][]string{{"task", "list"}, {"template", "list"}, {"worker", "list"}, {"queue", "list"}, {"dlq", "list"}, {"dlq", "queue"}, {"dlq", "staleness"}} {
		if got := viewer.done(append(args, "-o", "json")...); strings.Contains(got, "order_processing") || strings.Contains(got, task) {
			t.Errorf("tasker-ctl %s shows %s", strings.Join(args, " "), got)
		}
	}

	// Nor may anybody do what is not theirs.
	for name, who := range map[string]signedIn{"the developer": developer, "the operator": operator, "the viewer": viewer} {
		if code, _, errs := who.ctl("key", "create", "more", "--grant", "admin@*"); code != 1 || !strings.Contains(errs, "system:admin") {
			t.Errorf("%s creates a key: %d, %s", name, code, errs)
		}
	}
	if code, _, errs := operator.ctl("task", "submit", "--namespace", "order_processing", "--name", "fulfill_order"); code != 1 || !strings.Contains(errs, "tasks:create") {
		t.Errorf("the operator creates a task: %d, %s", code, errs)
	}
	if strings.Contains(server.log.String(), "tsk_") {
		t.Error("the server's log has a token")
	}
}

// revocation is how soon a revoked key ends what is done with it, on a loaded machine; a poll lasts longer.
const revocation = 40 * time.Second

// A poll that waits ends when its key is revoked, and nothing else is taken under it.
func TestARevokedWorkerPollsNoMore(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	admin := signedIn{t, serve(t, database.URL, askingEnv).url(), bootstrap(t, database.URL)}
	second := signedIn{t, serve(t, database.URL, askingEnv).url(), admin.token} // it hears of the revocation from the database
	type end struct {
		at  time.Time
		err error
	}
	// revoke returns when the key was revoked under which a poll had been sent, and how the poll ended.
	revoke := func() (worker *client.Backend, id tasker.ID, revoked time.Time, poll end) {
		worker = signedIn{t, second.url, admin.key("worker", "worker@order_processing")}.client().Backend()
		r, err := worker.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{"order_processing"}, Handlers: []string{"none"}, MaxConcurrency: 1})
		must(t, err)
		ended, sent := make(chan end, 1), make(chan struct{})
		go func() {
			ctx := httptrace.WithClientTrace(context.WithoutCancel(t.Context()), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
			_, err := worker.Claim(ctx, r.WorkerUUID, 1, time.Minute)
			ended <- end{time.Now(), err}
		}()
		<-sent
		admin.done("key", "revoke", "worker")
		revoked = time.Now()
		select {
		case poll = <-ended:
		case <-time.After(patience):
			t.Fatal("the poll did not end")
		}
		return worker, r.WorkerUUID, revoked, poll
	}
	worker, id, revoked, poll := revoke()
	for range 4 {
		if tasker.CodeOf(poll.err) != tasker.Unauthorized {
			break
		}
		worker, id, revoked, poll = revoke() // a busy server had not looked at the request when the key was revoked
	}
	t.Logf("the poll ended %v after the key was revoked: %v", poll.at.Sub(revoked), poll.err)
	if took := poll.at.Sub(revoked); took > revocation || tasker.CodeOf(poll.err) != tasker.Unavailable || !strings.Contains(poll.err.Error(), "the API key or its permissions changed") {
		t.Errorf("the poll ended %v after the key was revoked: %v", took, poll.err)
	}
	var err error
	await(t, "the refusal", func() bool { // what was remembered when it ended counts for a moment
		_, err = worker.Claim(t.Context(), id, 1, 0)
		return err != nil
	})
	if tasker.CodeOf(err) != tasker.Unauthorized || time.Since(revoked) > revocation+time.Second {
		t.Errorf("the next call, %v later: %v", time.Since(revoked), err)
	}
	if _, err := worker.RegisterWorker(t.Context(), tasker.WorkerSpec{}); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("registering again: %v", err)
	}
}

// Both tokens of a rotated key are valid for the grace, then only the new one. A worker follows, with its file, and
// loses nothing.
func TestARotatedKey(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	admin := signedIn{t, serve(t, database.URL, askingEnv).url(), bootstrap(t, database.URL)}
	old := signedIn{t, admin.url, admin.key("worker", "worker@order_processing")}
	tokenFile := filepath.Join(t.TempDir(), "worker.token")
	must(t, os.WriteFile(tokenFile, []byte(old.token), 0o600))
	p := startWorker(t, admin.url, tokenFile, tokenFileEnv+"="+tokenFile)
	await(t, "the worker", func() bool { return strings.Contains(p.log.String(), "worker registered") })

	const grace = 5 * time.Second
	began := time.Now()
	renewed := signedIn{t, admin.url, strings.TrimSpace(admin.done("key", "rotate", "worker", "--grace", grace.String()))}
	rotated := time.Now()
	for _, s := range []signedIn{old, renewed} {
		if i, err := s.client().WhoAmI(t.Context()); err != nil && time.Since(began) < grace || err == nil && i.Subject != "key:worker" {
			t.Errorf("within the grace: %v, %v", i, err)
		}
	}
	await(t, "the end of the old token", func() bool {
		_, err := old.client().WhoAmI(t.Context())
		return tasker.CodeOf(err) == tasker.Unauthorized
	})
	if most, least := time.Since(began), time.Since(rotated); most < grace || least > grace+revocation {
		t.Errorf("the old token ended %v to %v after the rotation", least, most)
	}
	if _, err := renewed.client().WhoAmI(t.Context()); err != nil {
		t.Errorf("the new token: %v", err)
	}

	// The worker has the old one still. It is given work, and does it when it has the new one.
	await(t, "the worker's complaint", func() bool { return strings.Contains(p.log.String(), "rejected this worker's key") })
	c := admin.client()
	made, err := c.CreateTask(t.Context(), apiv1.CreateTask{Namespace: "order_processing", Name: "fulfill_order", Context: json.RawMessage(`{"order_id": 8}`)})
	must(t, err)
	must(t, os.WriteFile(tokenFile+".new", []byte(renewed.token), 0o600))
	must(t, os.Rename(tokenFile+".new", tokenFile))
	await(t, "the task", func() bool {
		task, err := c.Task(t.Context(), readID(t, made.TaskUUID))
		must(t, err)
		return task.Status == string(tasker.TaskComplete)
	})
	if strings.Count(p.log.String(), "rejected this worker's key") != 1 || strings.Contains(p.log.String(), "tsk_") {
		t.Errorf("the worker's log: %s", p.log)
	}
}

// A worker without a key that is accepted does not start, and says why.
func TestAWorkerWithoutAKeyDoesNotStart(t *testing.T) {
	t.Parallel()
	url := serve(t, pgtest.New(t).URL, askingEnv).url()
	self, err := os.Executable()
	must(t, err)
	code, _, errs := runProgram(t, []string{workerEnv + "=" + url}, self)
	if code != 1 || !strings.Contains(errs, "register worker") || !strings.Contains(errs, "send an API key") {
		t.Errorf("ended with %d: %s", code, errs)
	}
}

// A server that other machines can reach asks, whatever the configuration says, and answers probes.
func TestAServerForOthersAsks(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t).URL
	p := start(t, []string{"TASKER_AUTH_MODE=auto"}, program("tasker"), "serve", "--database-url", database, "--listen", "0.0.0.0:0")
	url := p.url()
	if list, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid)); err == nil { // where there is one
		u, err := neturl.Parse(database)
		must(t, err)
		if secret, _ := u.User.Password(); secret == "" || bytes.Contains(list, []byte(secret)) || !bytes.Contains(list, []byte("--listen")) {
			t.Errorf("the list of processes shows %q", list)
		}
	}
	get := func(path, token string) (status int, header http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		must(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := (&http.Client{Timeout: patience}).Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		return resp.StatusCode, resp.Header
	}
	if status, header := get("/v1/tasks", ""); status != http.StatusUnauthorized || header.Get("WWW-Authenticate") == "" {
		t.Errorf("without a key: %d, %v", status, header)
	}
	if status, _ := get("/health/ready", ""); status != http.StatusOK {
		t.Errorf("a probe: %d", status)
	}
	if !strings.Contains(p.log.String(), "tasker key bootstrap --database-url") {
		t.Errorf("the log does not say how the first key is made: %s", p.log)
	}
	if status, _ := get("/v1/tasks", bootstrap(t, database)); status != http.StatusOK {
		t.Errorf("with the first key: %d", status)
	}
}
