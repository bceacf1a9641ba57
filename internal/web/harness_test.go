package web_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/feed"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/web"
)

func TestMain(m *testing.M) {
	os.Exit(browsertest.Run(func() int { return pgtest.Run(m) }))
}

// A harness is the pages and the API with a real engine on a database of its own, and
// a worker that a test moves by hand.
type harness struct {
	*enginetest.Harness
	server *httptest.Server
	ops    *operation.Service
	worker tasker.ID
	client *http.Client
	stop   func()       // tells the server that it stops
	sorted *atomic.Bool // whether requests find all investigations in their cases, so that none looks
}

func newHarness(t *testing.T, change ...func(*web.Options)) *harness {
	t.Helper()
	h := &harness{Harness: enginetest.New(t)}
	h.ops = operation.New(h.DB, h.Engine, h.DLQ, operation.Options{})
	o := web.Options{
		DB: h.DB, Engine: h.Engine, DLQ: h.DLQ, Cases: h.Cases, Operations: h.ops, Version: "1.2.3",
		Holds: hold.New(h.DB, h.Engine, hold.Options{}), Explain: explain.New(h.DB, explain.Options{}),
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	o.Timeout, o.PartTimeout = 100*time.Second, time.Minute // machines that build meanwhile are slow
	o.Feed = feed.New(h.DB, feed.Options{MaxReaders: 1000, MaxShare: 1000})
	for _, f := range change {
		f(&o)
	}
	stopping, stop := context.WithCancel(context.WithoutCancel(t.Context())) // which ends before the tabs are closed
	mux := http.NewServeMux()
	pages := web.New(stopping, o)
	mux.Handle(web.Root, pages)
	mux.Handle(web.Root+"/", pages)
	mux.Handle("/", api.New(stopping, api.Options{DB: h.DB, Engine: h.Engine, DLQ: h.DLQ, Cases: h.Cases, Auth: o.Auth, Feed: api.FeedOptions{Feed: o.Feed}}))
	unsorted := h.WithCases(mux)
	h.sorted, h.stop = new(atomic.Bool), stop
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.sorted.Load() {
			mux.ServeHTTP(w, r)
			return
		}
		unsorted.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		stop() // ends the live feeds
		h.server.CloseClientConnections()
		h.server.Close()
	})
	jar, err := cookiejar.New(nil)
	h.Must(err)
	h.client = &http.Client{Jar: jar, Timeout: 2 * time.Minute}
	h.worker = h.RegisterWorker("run")
	h.Exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour'`) // it is alive for as long as a test may take
	return h
}

// A reply is an answer that was read to its end, after redirects.
type reply struct {
	status int
	header http.Header
	text   string
	url    string
}

func (h *harness) do(r *http.Request) reply {
	h.Helper()
	answer, err := h.client.Do(r)
	h.Must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	h.Must(err)
	return reply{answer.StatusCode, answer.Header, string(text), answer.Request.URL.RequestURI()}
}

func (h *harness) get(path string, headers ...string) reply {
	h.Helper()
	return h.send(http.MethodGet, path, "", headers...)
}

// send sends a request. Headers are "Name: value".
func (h *harness) send(method, path, body string, headers ...string) reply {
	h.Helper()
	r, err := http.NewRequestWithContext(h.Context(), method, h.server.URL+path, strings.NewReader(body))
	h.Must(err)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	return h.do(r)
}

// token is what a form of this browser sends. A page is opened for it only if none was.
func (h *harness) token() string {
	h.Helper()
	u, err := url.Parse(h.server.URL + "/ui/")
	h.Must(err)
	for range 2 {
		for _, c := range h.client.Jar.Cookies(u) {
			if c.Name == "tasker_form" {
				return c.Value
			}
		}
		h.get("/ui/")
	}
	h.Fatal("no cookie with a token")
	return ""
}

// post sends a form as a browser would. Fields are "name=value".
func (h *harness) post(path string, fields ...string) reply {
	h.Helper()
	form := url.Values{"token": {h.token()}}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		form.Set(name, value)
	}
	return h.postRaw(path, form.Encode())
}

// open opens a page in a browser.
func (h *harness) open(path string) *browsertest.Tab {
	h.Helper()
	tab := browsertest.Open(h.T)
	tab.Go(h.server.URL + path)
	return tab
}

// step describes a step of a template, which depends on others by name.
func step(name string, after ...string) tasker.StepTemplate {
	return tasker.StepTemplate{
		Name: name, Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Dependencies: after,
		Retry: tasker.Retry{Retryable: true, MaxAttempts: 1, Backoff: tasker.ConstantBackoff, BaseMS: 1, MaxBackoffMS: 1},
	}
}

// create makes a task of a template.
func (h *harness) create(name string, doc string) tasker.ID {
	h.Helper()
	made, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: name, Context: json.RawMessage(doc)}})
	h.Must(err)
	return made[0].TaskUUID
}

// work claims what is enqueued and reports of each step what outcome says: an error
// fails the step for good.
func (h *harness) work(outcome func(tasker.Assignment) error) {
	h.Helper()
	for {
		list := h.claim(100)
		if len(list) == 0 {
			return
		}
		var outcomes []tasker.Outcome
		for _, a := range list {
			o := tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`{"ok":true}`)}
			if err := outcome(a); err != nil {
				o = tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: err.Error(), Type: "test"}}
			}
			outcomes = append(outcomes, o)
		}
		_, err := h.Engine.Report(h.Context(), h.worker, outcomes, 0)
		h.Must(err)
	}
}

// fillQueue makes so many tasks of the template order that have failed in the same
// way, by the functions that the engine uses.
func (h *harness) fillQueue(count int) {
	h.Helper()
	h.fail("order", "charge", "card of order @ declined", 1)
	h.Exec(`
		WITH one AS (SELECT * FROM tasker.tasks LIMIT 1),
		step AS (SELECT * FROM tasker.workflow_steps LIMIT 1),
		ids AS MATERIALIZED (SELECT tasker.uuid_generate_v7() AS task, tasker.uuid_generate_v7() AS step FROM generate_series(2, $1)),
		tasks AS (
			INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
			SELECT i.task, o.template_uuid, o.namespace, o.name, o.version, o.state, o.state_since, o.context, i.task::text, o.created_at, o.updated_at FROM ids i, one o
		),
		task_log AS (
			INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at)
			SELECT i.task, h.from_state, h.to_state, h.event, h.created_at FROM ids i, tasker.task_transitions h JOIN one o USING (task_uuid) ORDER BY i.task, h.transition_id
		),
		step_log AS (
			INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at)
			SELECT i.task, i.step, h.from_state, h.to_state, h.event, h.attempt, h.created_at FROM ids i, tasker.workflow_step_transitions h JOIN one o USING (task_uuid) ORDER BY i.task, h.transition_id
		)
		INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
			parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, error)
		SELECT i.task, i.step, s.name, s.step_type, s.namespace, s.handler, 0, s.state, s.state_since, '{}', '{}', 0, s.attempts, s.max_attempts, s.retryable, s.backoff,
			s.backoff_base_ms, s.max_backoff_ms, s.backoff_jitter, s.created_at, s.updated_at, s.error
		FROM ids i, step s`, count)
	const part = 500 // all at once may take longer than a statement may
	h.Exec(`ANALYZE`)
	for opened := 1; opened < count; opened += part {
		h.Exec(`
			SELECT count(*)
			FROM (
				SELECT array_agg(s.task_uuid) AS tasks, array_agg(s.step_uuid) AS steps, array_agg(s.state_since) AS since, count(*)::integer AS n
				FROM (
					SELECT * FROM tasker.workflow_steps s
					WHERE NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = s.task_uuid)
					LIMIT $1
				) s
			) a,
			LATERAL tasker.create_dlq_entries(a.tasks, array_fill('max_retries_exceeded'::tasker.dlq_reason, ARRAY[n]), array_fill('permanent_failure'::text, ARRAY[n]),
				'inline', array_fill('steps_in_process'::text, ARRAY[n]), a.since, a.steps, 'tasker', NULL, array_fill(NULL::jsonb, ARRAY[n]))`, part)
	}
	h.Exec(`VACUUM ANALYZE tasker.tasks_dlq`)
	h.Exec(`ANALYZE`)
}

// steps returns the steps of a task.
func (h *harness) steps(task tasker.ID) []tasker.Step {
	h.Helper()
	steps, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	return steps
}

// tick does what the loop of a server does at due instants.
func (h *harness) tick() {
	h.Helper()
	_, err := h.Engine.Tick(h.Context())
	h.Must(err)
}

// claim claims up to n steps.
func (h *harness) claim(n int) []tasker.Assignment {
	h.Helper()
	list, err := h.Engine.Claim(h.Context(), h.worker, n, 0)
	h.Must(err)
	return list
}

func (h *harness) report(outcomes ...tasker.Outcome) {
	h.Helper()
	_, err := h.Engine.Report(h.Context(), h.worker, outcomes, 0)
	h.Must(err)
}

func (h *harness) operateStep(task, step tasker.ID, r tasker.ActionRequest) {
	h.Helper()
	_, err := h.Engine.OperateStep(h.Context(), task, step, r)
	h.Must(err)
}

// update updates an investigation.
func (h *harness) update(entry tasker.ID, u tasker.EntryUpdate) {
	h.Helper()
	_, _, err := h.DLQ.Update(h.Context(), entry, u)
	h.Must(err)
}
