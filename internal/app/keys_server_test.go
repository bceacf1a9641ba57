package app_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/config"
)

const workerSpec = `{"name": "w", "namespaces": ["n"], "handlers": ["h"], "max_concurrency": 1}`

var serverEffects = map[string]func(*keyTest){
	"server.listen": func(k *keyTest) {
		k.options.Config.Server.Listen = config.Default().Server.Listen
		k.set("localhost:0")
		if s := k.start(); strings.HasSuffix(s.url, ":8080") {
			k.Errorf("the server is at %s", s.url)
		}
	},
	"server.allowed_hosts": func(k *keyTest) {
		k.set("tasker.example.com")
		s := k.start()
		for host, want := range map[string]int{"tasker.example.com": http.StatusOK, "other.example.com": http.StatusMisdirectedRequest} {
			if a := k.ask(s, http.MethodGet, "/v1/tasks", "", host); a.status != want {
				k.Errorf("%s: %d, want %d", host, a.status, want)
			}
		}
	},
	"server.environment": func(k *keyTest) {
		k.set("production")
		s := k.start()
		k.expectAnswer(s, http.MethodPost, "/v1/templates", `{"namespace_name": "n", "name": "greet", "version": "1.0.0",
			"steps": [{"name": "one", "handler": {"callable": "h"}}],
			"environments": {"production": {"steps": [{"name": "one", "retry": {"max_attempts": 7}}]}}}`, http.StatusCreated)
		k.expectAnswer(s, http.MethodPost, "/v1/tasks", `{"namespace": "n", "name": "greet"}`, http.StatusCreated)
		k.expect("7", `SELECT max_attempts FROM tasker.workflow_steps`)
	},
	"server.templates": func(k *keyTest) {
		k.set(folder(k.T, template))
		k.expectAnswer(k.start(), http.MethodPost, "/v1/tasks", `{"namespace": "n", "name": "greet"}`, http.StatusCreated)
	},
	"server.max_body_bytes": func(k *keyTest) {
		k.set("65536")
		body := `{"namespace": "n", "name": "` + strings.Repeat("x", 70_000) + `"}`
		k.expectAnswer(k.start(), http.MethodPost, "/v1/tasks", body, http.StatusRequestEntityTooLarge)
	},
	"server.max_inflight_bytes":       maxInflightBytes,
	"server.shutdown_timeout_seconds": shutdownTimeout,
	"database.url": func(k *keyTest) {
		k.options.Config.Database.URL = ""
		k.set(k.database.URL)
		k.expectAnswer(k.start(), http.MethodPost, "/v1/workers", workerSpec, http.StatusCreated)
		k.expect("1", `SELECT count(*) FROM tasker.workers`)
	},
	"database.max_connections": maxConnections,
	"database.statement_timeout_ms": func(k *keyTest) {
		k.exec(`CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$`)
		k.exec(`CREATE TRIGGER dawdle BEFORE INSERT ON tasker.workers FOR EACH ROW EXECUTE FUNCTION public.dawdle()`)
		k.set("300")
		s := k.start()
		begun := time.Now()
		k.expectAnswer(s, http.MethodPost, "/v1/workers", workerSpec, http.StatusServiceUnavailable)
		if took := time.Since(begun); took > soon {
			k.Errorf("the statement was given up after %v", took)
		}
	},
	"workers.lease_seconds": func(k *keyTest) {
		k.set("90")
		k.create(1)
		r, c := k.register(k.start())
		list, err := c.Backend().Claim(k.Context(), r.WorkerUUID, 1, 0)
		k.must(err)
		if len(list) != 1 || r.LeaseDuration != 90*time.Second || time.Until(list[0].LeaseExpiresAt) < time.Minute {
			k.Errorf("the worker is told %v, and has claimed %+v", r.LeaseDuration, list)
		}
	},
	"workers.heartbeat_interval_seconds": func(k *keyTest) {
		k.set("4")
		if r, _ := k.register(k.start()); r.HeartbeatInterval != 4*time.Second {
			k.Errorf("the worker is told %v", r.HeartbeatInterval)
		}
	},
	"workers.max_retry_after_seconds": func(k *keyTest) {
		k.set("3600")
		k.create(1)
		r, c := k.register(k.start())
		list, err := c.Backend().Claim(k.Context(), r.WorkerUUID, 1, 0)
		k.must(err)
		if len(list) != 1 {
			k.Fatalf("%d steps are handed out", len(list))
		}
		_, err = c.Backend().Report(k.Context(), r.WorkerUUID, []tasker.Outcome{{
			Lease: list[0].Lease(), Failure: &tasker.Failure{Message: "busy", Type: "gateway", Retryable: true, RetryAfter: time.Hour + time.Millisecond},
		}}, 0)
		k.must(err)
		k.expect("1", `SELECT count(*) FROM tasker.tasks_dlq`)
	},
	"retention.finished_days": func(k *keyTest) {
		task := k.create(1)[0]
		k.must(k.tasks.CancelTask(k.Context(), task, "ann", "no longer needed"))
		k.makeOld(task, 3)
		k.set("2")
		k.start()
		k.until("0", `SELECT count(*) FROM tasker.tasks`)
	},
	"ui.enabled": func(k *keyTest) {
		k.set("false")
		k.expectAnswer(k.start(), http.MethodGet, "/ui/", "", http.StatusNotFound)
	},
	"ui.read_only": func(k *keyTest) {
		k.set("true")
		if a := k.expectAnswer(k.start(), http.MethodGet, "/ui/", "", http.StatusOK); !strings.Contains(a.text, "Read-only") {
			k.Error("the page does not say that it is read-only")
		}
	},
	"redaction.keys":  func(k *keyTest) { k.set("colour"); k.expectSnapshot("a@example.com", "crimson") },
	"redaction.paths": func(k *keyTest) { k.set("$.task.context.mail"); k.expectSnapshot("crimson", "a@example.com") },
	"log.level": func(k *keyTest) {
		k.set("error")
		if said := k.logged(); said != "" {
			k.Errorf("the log has %s", said)
		}
	},
	"log.format": func(k *keyTest) {
		k.set("json")
		if said := k.logged(); !strings.HasPrefix(said, `{"time":`) {
			k.Errorf("the log is %s", said)
		}
	},
}

// register registers a worker with the server.
func (k *keyTest) register(s *server) (tasker.Registration, *client.Client) {
	k.Helper()
	c, err := client.New(s.url)
	k.must(err)
	r, err := c.Backend().RegisterWorker(k.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{"n"}, Handlers: []string{"h"}, MaxConcurrency: 1})
	k.must(err)
	return r, c
}

// maxInflightBytes: a request that has most of the room makes another one wait in vain.
func maxInflightBytes(k *keyTest) {
	k.also("server.max_body_bytes", "65536")
	k.set("65536")
	s := k.start()
	u, err := url.Parse(s.url)
	k.must(err)
	const size = 65_000
	slow, err := net.Dial("tcp", u.Host)
	k.must(err)
	defer slow.Close()
	_, err = fmt.Fprintf(slow, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		size, strings.Repeat(" ", size-1))
	k.must(err)
	await(k.T, "a request that finds no room", func() bool {
		return k.ask(s, http.MethodPost, "/v1/tasks", strings.Repeat(" ", size), "").status == http.StatusServiceUnavailable
	})
}

// shutdownTimeout: a request under way is cut off when the timeout is over.
func shutdownTimeout(k *keyTest) {
	h := newSlow()
	k.options.Mount = map[string]http.Handler{"/slow": h}
	k.set("1")
	s := k.start()
	cut := make(chan error, 1)
	go func() {
		_, _, err := s.get("/slow")
		cut <- err
	}()
	<-h.entered
	s.stop()
	select {
	case err := <-cut:
		if err == nil {
			k.Error("the request was answered")
		}
	case <-time.After(soon):
		k.Error("the request is still under way")
		close(h.release)
	}
}

// maxConnections: however much is asked at once, the server opens no more.
func maxConnections(k *keyTest) {
	k.also("limits.reads", "8")
	k.set("2")
	s := k.start()
	const listening = 1
	tx, err := k.database.Pool(k.T).Begin(k.Context())
	k.must(err)
	defer func() { _ = tx.Rollback(k.Context()) }()
	_, err = tx.Exec(k.Context(), `LOCK TABLE tasker.tasks IN ACCESS EXCLUSIVE MODE`)
	k.must(err)
	for range 8 {
		go func() { _, _, _ = s.get("/v1/tasks") }()
	}
	const open = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tasker'`
	k.until("2", open+` AND wait_event_type = 'Lock'`)
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		if n := counted(k.T, k.pool, open); n > 2+listening {
			k.Fatalf("the server has %d connections", n)
		}
	}
}

// makeOld makes it so that a task was created and ended so many days ago. The id of
// a task says when it was created.
func (k *keyTest) makeOld(task tasker.ID, days int) {
	k.Helper()
	k.open()
	old := task
	at := time.Now().AddDate(0, 0, -days).UnixMilli()
	for i := range 6 {
		old[i] = byte(at >> (40 - 8*i))
	}
	k.must(pgx.BeginFunc(k.Context(), k.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(k.Context(), `SET LOCAL session_replication_role = replica`); err != nil { // ids never change otherwise
			return err
		}
		for _, table := range []string{"tasks", "task_history", "workflow_steps", "step_history"} {
			if _, err := tx.Exec(k.Context(), `UPDATE tasker.`+table+` SET task_uuid = $2 WHERE task_uuid = $1`, task, old); err != nil {
				return err
			}
		}
		_, err := tx.Exec(k.Context(), `UPDATE tasker.tasks SET updated_at = updated_at - make_interval(days => $1)`, days)
		return err
	}))
}

// expectSnapshot opens an investigation of a task and fails unless its evidence
// shows one text and hides another.
func (k *keyTest) expectSnapshot(shown, hidden string) {
	k.Helper()
	s := k.start()
	task := k.create(1)[0]
	k.expectAnswer(s, http.MethodPost, "/v1/dlq/task/"+task.String(), `{"reason": "r", "created_by": "ann"}`, http.StatusCreated)
	snapshot := k.one(`SELECT task_snapshot FROM tasker.tasks_dlq`)
	if !strings.Contains(snapshot, shown) || strings.Contains(snapshot, hidden) {
		k.Errorf("the snapshot should have %s and not %s: %s", shown, hidden, snapshot)
	}
}

// logged returns the log of a server from its start to its end, made as the command
// makes it, which has a test of its own.
func (k *keyTest) logged() string {
	k.Helper()
	log := newWords()
	o := k.options
	o.Log = o.Config.Logger(log)
	s := start(k.T, o)
	s.stop()
	k.must(s.wait())
	return log.String()
}
