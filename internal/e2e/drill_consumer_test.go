package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker/apiv1"
)

// eventExchange and eventQueue are of the broker that belongs to the drill.
const (
	eventExchange = "tasker.events"
	eventQueue    = "everything"
)

// A consumer notes what it gets, as it comes.
type consumer struct {
	mu   sync.Mutex
	got  []apiv1.CloudEvent // without their data
	seen map[string]bool
	bad  []string // what is no event
}

// take notes an event, also one that came before.
func (c *consumer) take(body []byte) {
	var e apiv1.CloudEvent
	err := json.Unmarshal(body, &e)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.bad = append(c.bad, string(body))
		return
	}
	e.Data = nil
	c.got = append(c.got, e)
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	c.seen[e.ID] = true
}

func (c *consumer) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

func (c *consumer) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// missing counts the events that never came.
func (c *consumer) missing(events map[string]bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range events {
		if !c.seen[id] {
			n++
		}
	}
	return n
}

// check wants all events, each of a task in its place but for repetitions, and no other.
func (c *consumer) check(t *testing.T, name string, events map[string]bool) {
	t.Helper()
	if n := c.missing(events); n > 0 {
		t.Errorf("%s did not get %d of %d events", name, n, len(events))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, body := range c.bad {
		t.Errorf("%s got what is no event: %.200s", name, body)
	}
	last, known := map[string]string{}, map[string]bool{}
	for _, e := range c.got {
		if known[e.ID] {
			continue
		}
		known[e.ID] = true
		if e.TaskUUID == "" || e.Sequence <= last[e.TaskUUID] {
			t.Errorf("%s got %s %s of task %s after %s", name, e.Type, e.Sequence, e.TaskUUID, last[e.TaskUUID])
		}
		last[e.TaskUUID] = e.Sequence
		if !events[e.ID] {
			t.Errorf("%s got an event that did not happen: %+v", name, e)
		}
	}
}

// events are the ids of all that has happened.
func (d *drill) events() map[string]bool {
	d.Helper()
	events := map[string]bool{}
	for _, id := range d.texts(`SELECT event_uuid::text FROM tasker.outbox`) {
		events[id] = true
	}
	return events
}

func (d *drill) texts(sql string, args ...any) []string {
	d.Helper()
	rows, err := d.pool.Query(d.Context(), sql, args...)
	must(d.T, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(d.T, err)
	return list
}

// A hookConsumer is told by HTTP, and answers as it shall.
type hookConsumer struct {
	consumer
	server *httptest.Server
	status atomic.Int64
	loses  atomic.Bool // every tenth answer, of events that it has taken
}

func newHookConsumer(t *testing.T) *hookConsumer {
	h := &hookConsumer{}
	h.answer(http.StatusOK)
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if status := int(h.status.Load()); status != http.StatusOK || err != nil {
			http.Error(w, "not now", max(status, http.StatusBadRequest))
			return
		}
		h.take(body)
		if h.loses.Load() && h.count()%10 == 0 {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(h.server.Close)
	return h
}

func (h *hookConsumer) answer(status int) { h.status.Store(int64(status)) }

// A busConsumer reads a durable queue, over all that happens to the broker.
type busConsumer struct {
	consumer
	url  string
	ctx  context.Context
	stop context.CancelFunc
}

// newBusConsumer binds the queue, before anything is sent.
func newBusConsumer(t *testing.T, url string) *busConsumer {
	t.Helper()
	conn, err := amqp091.Dial(url)
	must(t, err)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.ExchangeDeclare(eventExchange, amqp091.ExchangeTopic, true, false, false, false, nil))
	_, err = ch.QueueDeclare(eventQueue, true, false, false, false, nil)
	must(t, err)
	must(t, ch.QueueBind(eventQueue, "#", eventExchange, false, nil))
	b := &busConsumer{url: url}
	b.ctx, b.stop = context.WithCancel(t.Context())
	return b
}

// run consumes until it is stopped.
func (b *busConsumer) run() {
	each(b.ctx, 200*time.Millisecond, func() {
		conn, err := amqp091.Dial(b.url)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		b.consume(conn)
	})
}

// consume returns when the connection is lost.
func (b *busConsumer) consume(conn *amqp091.Connection) {
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	if err := ch.Qos(100, 0, false); err != nil {
		return
	}
	messages, err := ch.ConsumeWithContext(b.ctx, eventQueue, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for m := range messages {
		b.take(m.Body)
		_ = m.Ack(false) // else it comes again
	}
}
