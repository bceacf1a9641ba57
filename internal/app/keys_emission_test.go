package app_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker/internal/mqtest"
)

var emissionEffects = map[string]func(*keyTest){
	"emission.sinks": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", nil)
		k.set("webhook")
		k.investigate(1)
		r.wait(1)
	},
	"emission.source": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", nil)
		k.set("https://tasker.example.com/here")
		k.investigate(1)
		var event struct{ Source string }
		if err := json.Unmarshal(r.wait(1)[0].body, &event); err != nil || event.Source != "https://tasker.example.com/here" {
			k.Errorf("the source is %q, %v", event.Source, err)
		}
	},
	"emission.dlq_emit_retry_attempts": func(k *keyTest) {
		k.receiver("emission.webhook.url", failing)
		k.also("emission.dlq_emit_retry_delay_ms", "1")
		k.set("4")
		k.expectAttempts(5)
	},
	"emission.dlq_emit_retry_delay_ms": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", failing)
		k.set("3000")
		k.investigate(1)
		got := r.wait(2)
		if rest := got[1].at.Sub(got[0].at); rest < 2900*time.Millisecond {
			k.Errorf("the event was sent again after %v", rest)
		}
	},
	"emission.topics": func(k *keyTest) {
		k.receiver("emission.webhook.url", failing)
		k.set("dlq.entry.created=3/1")
		k.expectAttempts(4)
	},
	"emission.task_events": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", nil)
		k.also("emission.sinks", "webhook")
		k.set("topic=task.cancelled namespace=n include_context")
		if body := k.cancelOne(r); !strings.Contains(body, `"type":"tasker.task.cancelled"`) || !strings.Contains(body, "crimson") {
			k.Error(body)
		}
	},
	"emission.task_event_max_bytes": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", nil)
		k.also("emission.sinks", "webhook")
		k.also("emission.task_events", "topic=task.cancelled include_context")
		k.set("1024")
		k.context = []byte(`{"colour": "crimson", "text": "` + strings.Repeat("a", 2000) + `"}`)
		if body := k.cancelOne(r); !strings.Contains(body, `"omitted":true`) || strings.Contains(body, "crimson") {
			k.Error(body)
		}
	},
	"emission.store_timeout_ms": storeTimeout,
	"emission.max_per_second": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", nil)
		k.set("1")
		k.investigate(4)
		got := r.wait(4)
		if took := got[3].at.Sub(got[0].at); took < 1900*time.Millisecond {
			k.Errorf("four events were sent within %v", took)
		}
	},
	"emission.max_refusals": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
		k.set("1")
		k.investigate(1)
		k.until("1", `SELECT count(*) FROM tasker.emissions WHERE state = 'set_aside'`)
		if n := len(r.wait(1)); n != 1 {
			k.Errorf("the event was sent %d times", n)
		}
	},
	"emission.webhook.url": func(k *keyTest) {
		r := k.receiver("", nil)
		k.set(r.url)
		k.investigate(1)
		r.wait(1)
	},
	"emission.webhook.secret": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", nil)
		k.set("a-secret")
		k.investigate(1)
		got := r.wait(1)[0]
		mac := hmac.New(sha256.New, []byte("a-secret"))
		fmt.Fprintf(mac, "%s.%s.%s", got.header.Get("Webhook-Id"), got.header.Get("Webhook-Timestamp"), got.body)
		if s, want := got.header.Get("Webhook-Signature"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)); s != want {
			k.Errorf("the signature is %q, want %q", s, want)
		}
	},
	"emission.webhook.timeout_ms": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		k.set("45000")
		k.investigate(1)
		r.wait(1)
		time.Sleep(7 * time.Second) //nolint:forbidigo // longer than the default
		if n := len(r.wait(1)); n != 1 || k.one(`SELECT count(*) FROM tasker.audit_events`) != "0" {
			k.Errorf("the receiver was given up before its time; %d requests", n)
		}
	},
	"emission.webhook.allow_private": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", nil)
		k.also("emission.webhook.allow_private", "false")
		k.set("true")
		k.investigate(1)
		r.wait(1)
	},
	"emission.webhook.concurrency": func(k *keyTest) {
		r := k.receiver("emission.webhook.url", func(http.ResponseWriter, *http.Request) {
			time.Sleep(300 * time.Millisecond) //nolint:forbidigo // so that others come, if they may
		})
		k.set("1")
		k.investigate(4)
		r.wait(4)
		if most := r.mostAtOnce(); most != 1 {
			k.Errorf("%d events were posted at once", most)
		}
	},
	"emission.rabbitmq.url": func(k *keyTest) {
		name := mqtest.Name(k.T)
		k.also("emission.rabbitmq.exchange", name)
		k.set(mqtest.URL(k.T))
		k.expectOnExchange(name)
	},
	"emission.rabbitmq.exchange": func(k *keyTest) {
		name := mqtest.Name(k.T)
		k.also("emission.rabbitmq.url", mqtest.URL(k.T))
		k.set(name)
		k.expectOnExchange(name)
	},
}

func failing(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

// A posted is a request that the receiver got.
type posted struct {
	at     time.Time
	header http.Header
	body   []byte
}

// A receiver of events by HTTP.
type receiver struct {
	*testing.T
	url string

	mu   sync.Mutex
	got  []posted
	now  int // requests that are under way
	most int
}

// receiver starts a receiver, whose URL becomes the value of a key, and has the server
// send events to it.
func (k *keyTest) receiver(key string, answer http.HandlerFunc) *receiver {
	k.Helper()
	r := &receiver{T: k.T}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.got = append(r.got, posted{time.Now(), q.Header, body})
		r.now++
		r.most = max(r.most, r.now)
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			r.now--
			r.mu.Unlock()
		}()
		if answer != nil {
			answer(w, q)
		}
	}))
	k.Cleanup(server.Close)
	r.url = server.URL
	k.also("emission.sinks", "webhook")
	k.also("emission.webhook.allow_private", "true")
	if key != "" {
		k.also(key, r.url)
	}
	if k.key.Name == "emission.sinks" {
		k.also("emission.sinks", k.key.Default)
	}
	return r
}

// mostAtOnce returns how many requests were under way at the same time.
func (r *receiver) mostAtOnce() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

// wait returns the requests once there are so many.
func (r *receiver) wait(n int) []posted {
	r.Helper()
	var got []posted
	await(r.T, fmt.Sprint(n, " events"), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		got = r.got
		return len(got) >= n
	})
	return got
}

// investigate starts a server and has it open investigations of as many tasks, in
// one transaction, once its sink is known: a new sink gets what happens from then on.
func (k *keyTest) investigate(tasks int) *server {
	k.Helper()
	k.create(tasks)
	k.also("staleness_detection.detection_interval_seconds", "1")
	s := k.start()
	k.until("1", `SELECT count(*) FROM tasker.emission_sinks WHERE holder IS NOT NULL`)
	k.age()
	return s
}

// cancelOne has a server cancel a task, and returns the event that the sink receives.
func (k *keyTest) cancelOne(r *receiver) string {
	k.Helper()
	task := k.create(1)[0]
	s := k.start()
	k.until("1", `SELECT count(*) FROM tasker.emission_sinks WHERE holder IS NOT NULL`)
	k.expectAnswer(s, http.MethodDelete, "/v1/tasks/"+task.String(), `{"cancelled_by": "ann"}`, http.StatusOK)
	return string(r.wait(1)[0].body)
}

// expectAttempts fails unless an event was sent so often in a row.
func (k *keyTest) expectAttempts(want int) {
	k.Helper()
	k.investigate(1)
	const attempts = `SELECT data->>'attempts' FROM tasker.audit_events WHERE action = 'dlq.emit_failed' ORDER BY audit_id LIMIT 1`
	await(k.T, "the first failure", func() bool { return k.one(attempts) != "null" })
	k.expect(fmt.Sprint(want), attempts)
}

// storeTimeout: the relay waits for a row for longer than by default.
func storeTimeout(k *keyTest) {
	k.set("20000")
	k.start()
	k.until("1", `SELECT count(*) FROM tasker.emission_sinks WHERE holder IS NOT NULL`)
	tx, err := k.pool.Begin(k.Context())
	k.must(err)
	defer func() { _ = tx.Rollback(k.Context()) }()
	_, err = tx.Exec(k.Context(), `LOCK TABLE tasker.emission_sinks IN ACCESS EXCLUSIVE MODE`)
	k.must(err)
	await(k.T, "a statement that waits for longer than by default", func() bool {
		return k.one(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tasker'
			AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '3 seconds' AND query LIKE '%emission_sinks%'`) != "0"
	})
}

// expectOnExchange fails unless an event comes by way of an exchange.
func (k *keyTest) expectOnExchange(exchange string) {
	k.Helper()
	k.also("emission.sinks", "rabbitmq")
	ch := brokerChannel(k.T, mqtest.URL(k.T))
	k.must(ch.ExchangeDeclare(exchange, amqp091.ExchangeTopic, true, false, false, false, nil))
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	k.must(err)
	k.must(ch.QueueBind(q.Name, "#", exchange, false, nil))
	deliveries, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	k.must(err)
	k.investigate(1)
	select {
	case d := <-deliveries:
		if !strings.HasPrefix(d.RoutingKey, "dlq.entry.") {
			k.Errorf("got %+v", d)
		}
	case <-time.After(patience):
		k.Error("no event came")
	}
}

// brokerChannel opens a channel on a connection of its own.
func brokerChannel(t *testing.T, url string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.DialConfig(url, amqp091.Config{Dial: amqp091.DefaultDial(soon)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
