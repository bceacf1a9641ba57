package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
)

// dispatching returns the options of a server with a broker, on a database of its own.
func dispatching(t *testing.T, broker string) app.Options {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	o := options(d.URL)
	name := mqtest.Name(t)
	o.Config.Workers.LeaseSeconds, o.Config.Workers.HeartbeatIntervalSeconds = 3, 1
	q := &o.Config.MessageQueue
	q.Transport, q.RabbitMQ.URL, q.RabbitMQ.Exchange, q.RabbitMQ.DeadLetter.Exchange = "rabbitmq", broker, name, name+".dlx"
	q.RabbitMQ.WorkerQueueTTLMS = 4000
	return o
}

// scraped returns the value of a series; -1 if there is none.
func (s *server) scraped(series string) float64 {
	s.Helper()
	_, body, err := s.get("/metrics")
	if err != nil {
		s.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		s.Fatal(err)
	}
	return v
}

// await looks at a series until it has a value.
func (s *server) await(series string, want float64) {
	s.Helper()
	s.until(fmt.Sprintf("%s to be %g", series, want), func() bool { return s.scraped(series) == want })
}

// until looks again and again until it is so.
func (s *server) until(what string, so func() bool) {
	s.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			s.Fatalf("waited in vain for %s", what)
		}
	}
}

func (s *server) post(path, body string) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		s.Fatalf("POST %s: %s", path, answer.Status)
	}
}

type health struct {
	Status     string
	Components map[string]struct {
		Status    string
		LastError string `json:"last_error"`
	}
}

func (s *server) ready() health {
	s.Helper()
	status, body, err := s.get("/health/ready")
	if err != nil || status != http.StatusOK {
		s.Fatalf("%d %s, %v", status, body, err)
	}
	var h health
	if err := json.Unmarshal([]byte(body), &h); err != nil {
		s.Fatal(err)
	}
	return h
}

// Steps that no worker takes show in every metric of the dispatch, on their way
// through a real broker.
func TestMetricsOfTheDispatch(t *testing.T) {
	t.Parallel()
	broker := mqtest.Proxy(t, mqtest.URL(t))
	space := mqtest.Name(t) // no other test has queues for it
	of := func(series string) string { return series + `{namespace="` + space + `"}` }
	s := start(t, dispatching(t, broker.URL))
	s.await("tasker_dispatch_broker_up", 1)
	for series, want := range map[string]float64{
		`tasker_dispatch_announced_total{outcome="confirmed"}`:  0,
		`tasker_dispatch_announced_total{outcome="failed"}`:     0,
		`tasker_dispatch_dead_letters_total{outcome="expired"}`: 0,
		`tasker_dispatch_dead_letters_total{outcome="retried"}`: 0,
		`tasker_dispatch_reannounced_total`:                     0,
		`tasker_dispatch_dead_letter_queue_depth`:               0,
		`tasker_dispatch_outbox_pending`:                        0,
		`tasker_dispatch_outbox_oldest_seconds`:                 0,
	} {
		s.await(series, want)
	}
	if got := s.ready().Components["broker"]; got.Status != "up" || got.LastError != "" {
		t.Errorf("the broker is %+v", got)
	}

	s.post("/v1/templates", `{"namespace_name": "`+space+`", "name": "one", "version": "1.0.0", "steps": [{"name": "a", "handler": {"callable": "b"}}]}`)
	s.post("/v1/tasks", `{"namespace": "`+space+`", "name": "one"}`)
	s.post("/v1/tasks", `{"namespace": "`+space+`", "name": "one"}`)
	s.await(of("tasker_queue_unserved_steps"), 2)
	s.await(`tasker_dispatch_announced_total{outcome="confirmed"}`, 2)
	if got := s.scraped(of("tasker_workers_live")); got != 0 {
		t.Errorf("%g workers live", got)
	}
	s.await(`tasker_dispatch_dead_letters_total{outcome="expired"}`, 2)
	s.await(`tasker_dispatch_expired_total{detail_code="no_workers",detected_by="broker",namespace="`+space+`"}`, 2)
	if got := s.scraped(`tasker_dispatch_expired_total{detail_code="no_workers",detected_by="sweep",namespace="` + space + `"}`); got != 0 {
		t.Errorf("the sweep found %g", got)
	}
	if got := s.scraped("tasker_dispatch_dead_letter_latency_milliseconds_count"); got < 1 {
		t.Errorf("the latency was measured %g times", got)
	}
	s.until("a canary to come back", func() bool { return s.scraped("tasker_dispatch_canary_returned_timestamp_seconds") > 0 })
	s.await(of("tasker_queue_steps"), 0)
	s.await(of("tasker_queue_unserved_steps"), 2)                      // they wait for a worker to live
	s.until("a worker to live, and no step to lack one", func() bool { // it sends no heartbeat
		s.post("/v1/workers", `{"name": "w", "namespaces": ["`+space+`"], "handlers": ["b"], "max_concurrency": 1}`)
		return s.scraped(of("tasker_workers_live")) >= 1 && s.scraped(of("tasker_queue_unserved_steps")) == 0
	})

	broker.Cut()
	s.await("tasker_dispatch_broker_up", 0)
	if got := s.scraped("tasker_dispatch_dead_letter_queue_depth"); got != -1 {
		t.Errorf("of a broker that is away the depth is %g", got)
	}
	s.post("/v1/tasks", `{"namespace": "`+space+`", "name": "one"}`)
	s.until("something to wait for the broker", func() bool {
		return s.scraped("tasker_dispatch_outbox_pending") >= 1 && s.scraped("tasker_dispatch_outbox_oldest_seconds") > 0
	})
	if got := s.ready(); got.Status != "ready" || got.Components["broker"].Status != "down" || got.Components["broker"].LastError == "" {
		t.Errorf("the server is %+v", got)
	}
	broker.Restore(t)
	s.await("tasker_dispatch_outbox_pending", 0)
	s.await("tasker_dispatch_broker_up", 1)
}

// What is wrong with the broker is told without its password.
func TestHealthTellsNoPassword(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(mqtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("guest", "open-sesame")
	s := start(t, dispatching(t, u.String()))
	s.until("the refusal", func() bool {
		_, body, err := s.get("/health/ready")
		if err != nil || strings.Contains(body, "sesame") {
			t.Fatalf("%s, %v", body, err)
		}
		return strings.Contains(body, "username or password not allowed")
	})
	if got := s.ready(); got.Status != "ready" || got.Components["broker"].Status != "down" {
		t.Errorf("the server is %+v", got)
	}
	if strings.Contains(s.log.String(), "sesame") {
		t.Error("the log tells it")
	}
}

func TestHealthOfAServerWithoutABroker(t *testing.T) {
	t.Parallel()
	s := start(t, options(pgtest.New(t).URL))
	if got := s.ready().Components["broker"]; got.Status != "off" {
		t.Errorf("the broker is %+v", got)
	}
	s.post("/v1/workers", `{"name": "w", "namespaces": ["shop"], "handlers": ["b"], "max_concurrency": 1}`)
	if _, body, err := s.get("/metrics"); err != nil || strings.Contains(body, "tasker_dispatch_broker_up") || !strings.Contains(body, "\ntasker_workers_live{namespace=\"shop\"} 1\n") {
		t.Errorf("%v\n%s", err, body)
	}
}

// The broker does not know a limit of a template or step that is shorter than that of
// its queue. It holds there all the same, and nobody waits for the broker to tell.
func TestAShorterLimitHoldsOnTheBroker(t *testing.T) {
	t.Parallel()
	k := &keyTest{T: t, database: pgtest.New(t)}
	k.options = options(k.database.URL)
	k.broker()
	k.also("workers.lease_seconds", "3")
	k.also("workers.heartbeat_interval_seconds", "1")
	k.also("message_queue.rabbitmq.sweep_grace_ms", "3600000")
	k.also("message_queue.no_worker_after_ms", "3600000")
	s := k.start()
	s.await("tasker_dispatch_broker_up", 1)
	space := mqtest.Name(t)
	for name, limit := range map[string]string{"own": `"worker_queue_ttl_ms": 1000,`, "plain": ""} {
		k.expectAnswer(s, http.MethodPost, "/v1/templates",
			`{"namespace_name": "`+space+`", "name": "`+name+`", "version": "1.0.0", "steps": [{"name": "a", `+limit+` "handler": {"callable": "h"}}]}`, http.StatusCreated)
		k.expectAnswer(s, http.MethodPost, "/v1/tasks", `{"namespace": "`+space+`", "name": "`+name+`"}`, http.StatusCreated)
	}
	k.until("own sweep 1000", `SELECT task_name || ' ' || detected_by || ' ' || (metadata->'dispatch'->>'worker_queue_ttl_ms') FROM tasker.tasks_dlq`)
	k.expect("enqueued", `SELECT s.state FROM tasker.workflow_steps s JOIN tasker.tasks t USING (task_uuid) WHERE t.name = 'plain'`)
}
