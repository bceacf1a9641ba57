package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
)

// previous names what `make upgrade-test` builds: tasker of the previous version, and
// e2e.test, these tests at that version, for its worker.
var previous = flag.String("previous", "", "directory with tasker and e2e.test of the previous version: `make upgrade-test` builds them and runs TestUpgradeBesideThePreviousVersion")

const (
	upgradeSteady  = 60              // diamonds that complete before the next phase of the upgrade
	upgradeDump    = 3 * time.Second // that a dump holds its locks while the migration begins
	upgradeSlowest = 5 * time.Second // an answer of a server: two attempts at a lock, and a loaded machine
)

// An upgrade is an installation of the previous version that is brought to this one while it works.
type upgrade struct {
	*testing.T

	database string
	pool     *pgxpool.Pool
	handler  string // exists when the handler that fails at first works

	load    context.Context
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	made    []tasker.ID // diamonds, which complete by themselves
	broken  []tasker.ID // tasks that need a repair
	slowest map[string]time.Duration
	asked   map[string]int
}

// A database is migrated under load while servers of the previous version go on; then
// servers of both versions work together, each with workers of both; then the previous
// version stops, and what only it needed is removed. No request fails, and no task is lost.
func TestUpgradeBesideThePreviousVersion(t *testing.T) {
	if *previous == "" {
		t.Skip("the programs of the previous version are not here: run make upgrade-test, which builds them from git")
	}
	u := newUpgrade(t)
	code, _, errs := runProgram(t, nil, u.old("tasker"), "migrate", "up", "--database-url", u.database)
	if code != 0 {
		t.Fatal(errs)
	}
	before := u.serve(u.old("tasker"))
	oldWorkers := []*process{u.worker(u.newWorker(), before), u.worker(u.newWorker(), before), u.worker(u.old("e2e.test"), before)}
	u.request("before", before)
	u.progress("the previous version works")

	u.migrate()
	u.progress("the previous version works on the new schema")

	after := u.serve(program("tasker"))
	u.worker(u.newWorker(), after)
	u.worker(u.old("e2e.test"), after)
	u.request("after", after)
	u.progress("both versions work")
	must(t, os.WriteFile(u.handler, nil, 0o600))
	u.repair(before, after)
	u.progress("both versions have repaired")

	u.stop()
	u.clients.Wait()
	for _, w := range oldWorkers {
		w.stop()
	}
	before.stop()
	u.complete()
	u.ended(before, after)
}

func newUpgrade(t *testing.T) *upgrade {
	u := &upgrade{
		T: t, database: emptyDatabase(t), handler: filepath.Join(t.TempDir(), "up"),
		slowest: map[string]time.Duration{}, asked: map[string]int{},
	}
	t.Cleanup(func() {
		found, err := pgtest.Violations(context.WithoutCancel(t.Context()), u.database)
		if err != nil {
			t.Error(err)
		}
		for _, v := range found {
			t.Error(v)
		}
	})
	var err error
	u.pool, err = pgxpool.New(t.Context(), u.database)
	must(t, err)
	t.Cleanup(u.pool.Close)
	u.load, u.stop = context.WithCancel(t.Context())
	return u
}

func (u *upgrade) old(name string) string {
	u.Helper()
	path, err := filepath.Abs(filepath.Join(*previous, name))
	must(u.T, err)
	return path
}

func (u *upgrade) newWorker() string {
	u.Helper()
	self, err := os.Executable()
	must(u.T, err)
	return self
}

func (u *upgrade) serve(program string) *process {
	u.Helper()
	env := []string{
		"TASKER_WORKERS_LEASE_SECONDS=6", "TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=2",
		"TASKER_STALENESS_DETECTION_DETECTION_INTERVAL_SECONDS=1", "TASKER_LOG_FORMAT=json",
	}
	p := start(u.T, env, program, "serve", "--database-url", u.database, "--listen", "127.0.0.1:0", "--templates", "testdata/templates")
	p.url()
	return p
}

func (u *upgrade) worker(program string, server *process) *process {
	u.Helper()
	return start(u.T, []string{workerEnv + "=" + server.url(), databaseEnv + "=" + u.handler}, program)
}

// request has clients create tasks and read at a server until the load ends. Every
// answer must be a good one: they do not try again.
func (u *upgrade) request(name string, server *process) {
	u.Cleanup(func() {
		u.stop()
		u.clients.Wait()
	})
	base := server.url()
	post := func(n int) {
		task := apiv1.CreateTask{
			Namespace: "order_processing", Name: "diamond",
			Context: json.RawMessage(fmt.Sprintf(`{"api_password": "hunter2", "n": %d, "text": %q}`, n, strings.Repeat("x", n%5000))),
		}
		if n%10 == 0 {
			task.Name = "fulfill_order"
		}
		body, err := json.Marshal(task)
		if err != nil {
			u.Error(err)
			return
		}
		var made tasker.Task
		if !u.ask(name, http.MethodPost, base+"/v1/tasks", body, &made) {
			return
		}
		id := made.UUID
		u.mu.Lock()
		defer u.mu.Unlock()
		if n%10 == 0 {
			u.broken = append(u.broken, id)
			return
		}
		u.made = append(u.made, id)
	}
	for w := range 2 {
		u.clients.Go(func() {
			for n := w; u.load.Err() == nil; n += 2 {
				post(n)
				pause(u.load, 5*time.Millisecond)
			}
		})
	}
	u.clients.Go(func() {
		for u.load.Err() == nil {
			for _, path := range []string{
				"/v1/dlq", "/v1/dlq/stats", "/v1/dlq/investigation-queue", "/v1/dlq/staleness", "/v1/tasks?limit=20", "/v1/workers", "/health/ready", "/metrics",
			} {
				u.ask(name, http.MethodGet, base+path, nil, nil)
				pause(u.load, 50*time.Millisecond)
			}
		}
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ask sends one request, and reports whether it was answered well.
func (u *upgrade) ask(name, method, url string, body []byte, answer any) bool {
	began := time.Now()
	// A request that is under way when the load ends is to be answered.
	request, err := http.NewRequestWithContext(context.WithoutCancel(u.Context()), method, url, bytes.NewReader(body))
	if err != nil {
		u.Error(err)
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		u.Errorf("server %s: %v", name, err)
		return false
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	u.mu.Lock()
	u.asked[name]++
	u.slowest[name] = max(u.slowest[name], time.Since(began))
	u.mu.Unlock()
	if err != nil || response.StatusCode >= 300 {
		u.Errorf("server %s: %s %s: %s %v: %.500s", name, method, url, response.Status, err, text)
		return false
	}
	if answer == nil {
		return true
	}
	if err := json.Unmarshal(text, answer); err != nil {
		u.Errorf("server %s: %s %s: %v: %.500s", name, method, url, err, text)
		return false
	}
	return true
}

// progress waits until more tasks have completed.
func (u *upgrade) progress(what string) {
	u.Helper()
	before := count(u.T, u.pool, "state = 'complete'")
	await(u.T, what, func() bool { return count(u.T, u.pool, "state = 'complete'") >= before+upgradeSteady })
	u.mu.Lock()
	defer u.mu.Unlock()
	u.Logf("%s: %d tasks made, slowest answers so far %v", what, len(u.made)+len(u.broken), u.slowest)
}

// migrate migrates beside a dump and a transaction that stays open.
func (u *upgrade) migrate() {
	u.Helper()
	long, err := u.pool.BeginTx(u.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(u.T, err)
	_, err = long.Exec(u.Context(), `SELECT pg_current_snapshot()`)
	must(u.T, err)
	dump, err := u.pool.Begin(u.Context())
	must(u.T, err)
	_, err = dump.Exec(u.Context(), `
		DO $$ BEGIN
			EXECUTE (SELECT 'LOCK TABLE ' || string_agg(format('tasker.%I', tablename), ', ') || ' IN ACCESS SHARE MODE' FROM pg_tables WHERE schemaname = 'tasker');
		END $$`)
	must(u.T, err)
	released := make(chan error, 1)
	go func() {
		<-time.After(upgradeDump)
		err := dump.Rollback(u.Context())
		<-time.After(upgradeDump)
		if err == nil {
			err = long.Rollback(u.Context()) // a migration that makes an index waits for it
		}
		released <- err
	}()
	began := time.Now()
	code, said, errs := run(u.T, nil, "migrate", "up", "--database-url", u.database)
	if code != 0 || !strings.Contains(said, "functions and views") {
		u.Errorf("migrate up: exit status %d: %s%s", code, said, errs)
	}
	u.Logf("migrated in %s: %s%s", time.Since(began).Round(time.Millisecond), said, errs)
	must(u.T, <-released)
}

// repair repairs what has failed, half of it at each server, and reads it at the other one.
func (u *upgrade) repair(before, after *process) {
	u.Helper()
	servers := []*client.Client{newClient(u.T, before.url()), newClient(u.T, after.url())}
	repaired := 0
	u.mu.Lock()
	broken := slices.Clone(u.broken)
	u.mu.Unlock()
	for i, id := range broken {
		state, err := u.state(id)
		must(u.T, err)
		if state != "error" {
			continue // it was made lately, and the handler works by now
		}
		here, there := servers[i%2], servers[(i+1)%2]
		step := stepNamed(u.T, here, id, "step_2")
		entry, err := there.EntryOfTask(u.Context(), id)
		must(u.T, err)
		if text := string(entry.Snapshot); strings.Contains(text, "hunter2") {
			u.Errorf("the snapshot of investigation %s shows a password", entry.UUID.String())
		}
		_, err = here.ActOnStep(u.Context(), id, readID(u.T, step.UUID.String()), apiv1.StepAction{
			ActionType: "reset_for_retry", Reason: "the database is back", ResetBy: "operator@example.com",
		})
		must(u.T, err)
		status, notes, by := "manually_resolved", "the password=hunter2 was wrong", "operator@example.com"
		_, err = there.UpdateEntry(u.Context(), readID(u.T, entry.UUID.String()), apiv1.UpdateEntry{ResolutionStatus: &status, ResolutionNotes: &notes, ResolvedBy: &by})
		must(u.T, err)
		for _, c := range servers {
			_, err = c.Entry(u.Context(), readID(u.T, entry.UUID.String()))
			must(u.T, err)
		}
		repaired++
	}
	if repaired < 2 {
		u.Errorf("%d tasks were repaired: too few to show anything", repaired)
	}
	u.Logf("%d tasks were repaired", repaired)
}

func (u *upgrade) state(id tasker.ID) (state string, err error) {
	err = u.pool.QueryRow(u.Context(), `SELECT state FROM tasker.tasks WHERE task_uuid = $1`, id.String()).Scan(&state)
	return state, err
}

// complete waits until every task that a server has promised is complete.
func (u *upgrade) complete() {
	u.Helper()
	for _, id := range slices.Concat(u.made, u.broken) {
		await(u.T, "task "+id.String()+" to be complete", func() bool {
			state, err := u.state(id)
			must(u.T, err)
			return state == "complete"
		})
	}
	u.Logf("all %d tasks are complete", len(u.made)+len(u.broken))
}

// ended checks what the servers have answered, and logged.
func (u *upgrade) ended(servers ...*process) {
	u.Helper()
	for _, name := range slices.Sorted(maps.Keys(u.asked)) {
		u.Logf("server %s: %d requests, the slowest took %s", name, u.asked[name], u.slowest[name].Round(time.Millisecond))
		if u.slowest[name] > upgradeSlowest {
			u.Errorf("server %s: an answer took %s, which is more than %s", name, u.slowest[name], upgradeSlowest)
		}
	}
	for _, p := range servers {
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, `"level":"ERROR"`) {
				u.Errorf("%s logged %s", p.cmd.Path, line)
			}
			if strings.Contains(line, `"level":"WARN"`) && !strings.Contains(line, `"msg":"investigation event"`) {
				u.Logf("%s logged %s", p.cmd.Path, line)
			}
		}
	}
}
