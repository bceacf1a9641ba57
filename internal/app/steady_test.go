package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/worker"
)

// registered has the server know a template of one step.
func registered(t *testing.T, c *client.Client, namespace string) {
	t.Helper()
	_, err := c.RegisterTemplate(t.Context(), []byte(fmt.Sprintf(
		"namespace_name: %s\nname: one\nversion: 1.0.0\nsteps:\n  - name: only\n    handler: {callable: run}\n", namespace)), "application/yaml")
	if err != nil {
		t.Fatal(err)
	}
}

// employ runs a worker until the test ends.
func employ(t *testing.T, c *client.Client, namespace string, log *words, run func(context.Context) error) {
	t.Helper()
	w := worker.New(c.Backend(), worker.Options{Namespaces: []string{namespace}, Concurrency: 4, Log: slog.New(slog.NewTextHandler(log, nil))})
	worker.Handle(w, "run", func(ctx context.Context, _ *worker.Step[json.RawMessage]) (int, error) { return 1, run(ctx) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("worker stopped with %v", err)
		}
	})
}

// counted asks a database for a number.
func counted(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// A worker whose lease is short keeps its step beside a flood of bulk creates: its heartbeats have
// connections of their own, and few floods are served at once. The worker is in the process of the
// flood, which has two processors: it may come too late by itself, but not three times.
func TestAFloodOfBulkCreatesCostsNoLease(t *testing.T) {
	t.Parallel()
	for range 3 {
		lost := lostToAFlood(t)
		if lost == 0 {
			return
		}
		t.Logf("%d attempts were lost", lost)
	}
	t.Error("each flood cost an attempt")
}

// lostToAFlood counts the attempts that a flood of bulk creates costs.
func lostToAFlood(t *testing.T) int {
	t.Helper()
	database := pgtest.New(t)
	o := options(database.URL)
	o.Config.Database.MaxConnections = 10
	o.Config.Workers.LeaseSeconds, o.Config.Workers.HeartbeatIntervalSeconds = 6, 2
	s := start(t, o)
	c, err := client.New(s.url, client.WithHTTPClient(&http.Client{Transport: &http.Transport{}, Timeout: patience}))
	if err != nil {
		t.Fatal(err)
	}
	registered(t, c, "calm")
	registered(t, c, "flood")
	held, release := make(chan struct{}, 10), make(chan struct{})
	employ(t, c, "calm", newWords(), func(ctx context.Context) error {
		held <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	task, err := c.CreateTask(t.Context(), apiv1.CreateTask{Namespace: "calm", Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	<-held
	id := task.UUID
	list := make([]apiv1.CreateTask, 300)
	for i := range list {
		list[i] = apiv1.CreateTask{Namespace: "flood", Name: "one"}
	}
	var floods sync.WaitGroup
	var made, refused atomic.Int64
	until := time.Now().Add(13 * time.Second) // more than two leases
	for range 60 {
		floods.Go(func() {
			for time.Now().Before(until) && t.Context().Err() == nil {
				_, err := c.CreateTasks(t.Context(), list)
				switch {
				case err == nil:
					made.Add(1)
				case tasker.CodeOf(err) == tasker.Unavailable:
					refused.Add(1)
				default:
					t.Errorf("a bulk create says %v", err)
					return
				}
			}
		})
	}
	floods.Wait()
	close(release)
	await(t, "the step that was held", func() bool {
		got, err := c.Task(t.Context(), id)
		return err == nil && got.State == tasker.TaskComplete
	})
	t.Logf("%d bulk creates served, %d told to try again", made.Load(), refused.Load())
	if made.Load() == 0 {
		t.Error("no bulk create was served: there was no flood")
	}
	return counted(t, database.Pool(t), `SELECT count(*) FROM tasker.workflow_step_transitions WHERE event IN ('lose', 'fail', 'time_out')`)
}

// While the database takes no writes, nothing is lost: the server says that it is
// unavailable, the worker keeps what it has finished, and no attempt is lost to it.
func TestAReadOnlyDatabaseLosesNothing(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := start(t, options(database.URL))
	c, err := client.New(s.url, client.WithHTTPClient(&http.Client{Transport: &http.Transport{}, Timeout: patience}))
	if err != nil {
		t.Fatal(err)
	}
	registered(t, c, "calm")
	var runs atomic.Int64
	said := newWords()
	employ(t, c, "calm", said, func(context.Context) error { runs.Add(1); return nil })
	admin := database.Pool(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	name := ""
	if err := admin.QueryRow(t.Context(), `SELECT quote_ident(current_database())`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	const cut = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'tasker'`
	tasks, unavailable := 0, 0
	create := func() {
		t.Helper()
		_, err := c.CreateTask(t.Context(), apiv1.CreateTask{Namespace: "calm", Name: "one"}) // without a key it is not repeated
		switch {
		case err == nil:
			tasks++
		case tasker.CodeOf(err) == tasker.Unavailable:
			unavailable++
		default:
			t.Errorf("a create says %v", err)
		}
	}
	for range 20 {
		create()
	}
	exec("ALTER DATABASE " + name + " SET default_transaction_read_only = on")
	exec(cut)
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until); {
		create()
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the database is read-only for a while
	}
	exec("SET default_transaction_read_only = off")
	exec("ALTER DATABASE " + name + " RESET default_transaction_read_only")
	await(t, "the server to take writes again", func() bool { before := tasks; create(); return tasks > before })
	await(t, "all tasks to complete", func() bool {
		return counted(t, admin, `SELECT count(*) FROM tasker.tasks WHERE state = 'complete'`) == tasks
	})
	if unavailable == 0 {
		t.Error("no create was refused: the database was not read-only")
	}
	if n := counted(t, admin, `SELECT count(*) FROM tasker.workflow_step_transitions WHERE event IN ('lose', 'fail', 'time_out')`); n > 0 {
		t.Errorf("%d attempts were lost", n)
	}
	if text := s.log.String(); strings.Contains(text, "status=500") {
		t.Error("the server called it an internal error")
	}
	if text := said.String(); strings.Contains(text, "dropped an outcome") {
		t.Errorf("the worker threw results away:\n%s", text)
	}
}
