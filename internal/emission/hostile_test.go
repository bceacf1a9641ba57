package emission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
	"tasker.example/tasker/worker"
)

// patientWebhook waits for an answer for as long as it is told.
func (h *harness) patientWebhook(url string, timeout time.Duration) sink.Sink {
	h.Helper()
	s, err := sink.NewWebhook(sink.WebhookOptions{URL: url, Timeout: timeout, AllowPrivate: true})
	h.Must(err)
	return s
}

// bus is a sink of RabbitMQ that has a queue which takes everything.
func (h *harness) bus() sink.Sink {
	h.Helper()
	exchange := mqtest.Name(h.T)
	conn, err := amqp091.Dial(mqtest.URL(h.T))
	h.Must(err)
	h.Cleanup(func() { _ = conn.Close() })
	c, err := conn.Channel()
	h.Must(err)
	h.Must(c.ExchangeDeclare(exchange, amqp091.ExchangeTopic, true, false, false, false, nil))
	q, err := c.QueueDeclare("", false, true, true, false, nil)
	h.Must(err)
	h.Must(c.QueueBind(q.Name, "#", exchange, false, nil))
	s, err := sink.NewRabbit(sink.RabbitOptions{URL: mqtest.URL(h.T), Exchange: exchange})
	h.Must(err)
	return s
}

// work runs a worker, whose steps fail for good where the task says so.
func (h *harness) work() {
	h.Helper()
	w := worker.New(h.Engine, worker.Options{Name: "hostile", Namespaces: []string{"shop"}})
	worker.Handle(w, "run", func(_ context.Context, s *worker.Step[struct{ Fail bool }]) (string, error) {
		if s.Input.Fail {
			return "", &worker.Error{Type: "told_to", Permanent: true, Err: errors.New("it shall fail")}
		}
		return "done", nil
	})
	ctx, cancel := context.WithCancel(h.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	h.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			h.Error(err)
		}
	})
}

func (h *harness) create(n int, fail bool) {
	h.Helper()
	list := make([]tasker.NewTask, n)
	for i := range list {
		list[i] = tasker.NewTask{Namespace: "shop", Name: "only", Context: json.RawMessage(fmt.Sprintf(`{"fail": %v}`, fail))}
	}
	_, err := h.Engine.CreateTasks(h.Context(), list)
	h.Must(err)
}

// A receiver takes requests and never answers. Nobody waits for it: no other sink,
// no step, no operator. All of the test goes by while its first requests wait.
func TestAReceiverThatHangsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	gone := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(gone) }))
	r.answer.Store(func(http.ResponseWriter, received) bool { <-gone; return true })
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.Must(h.DB.OpenSink(t.Context(), "rabbitmq"))
	const atOnce = 4
	patient := func(o *emission.Options) { o.EmitTimeout, o.Concurrency = 2*patience, atOnce }
	for range atOnce { // before anybody sends, so that all are tried at once
		h.investigate()
	}
	h.relay(h.DB, patient, h.patientWebhook(r.URL, 2*patience), h.bus())
	h.Eventually("it hangs", func() bool { return r.attempts() == atOnce })

	h.work()
	h.create(300, false)
	h.create(30, true)
	h.Eventually("all steps are done", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.tasks WHERE state IN ('complete', 'error')`) == atOnce+330
	})
	h.note(h.investigate(), "an operator was here")
	h.Eventually("the other sink has all", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.outbox o WHERE NOT EXISTS (
			SELECT FROM tasker.emissions e WHERE e.position = o.position AND e.sink = 'rabbitmq' AND e.state = 'published')`) == 0
	})
	if queue, _, err := h.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 1000}); err != nil || len(queue) < 30 {
		t.Errorf("the queue has %d investigations, %v", len(queue), err)
	}
	if n := r.attempts(); n != atOnce || h.counts.of(h.counts.failed, webhookCreated) != 0 {
		t.Errorf("%d requests were made: the first ones have ended", n)
	}
}

// What hangs is given up, and counts as a failure.
func TestAReceiverThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	gone := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(gone) }))
	r.answer.Store(func(http.ResponseWriter, received) bool { <-gone; return true })
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	for range 5 {
		h.investigate()
	}
	h.relay(h.DB, nil, h.patientWebhook(r.URL, 50*time.Millisecond))
	h.Eventually("that is noted", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NOT NULL AND last_error LIKE '%no answer within 50ms%'`) == 1
	})
	if s := h.states("webhook"); s != "5 pending" || h.counts.of(h.counts.failed, webhookCreated) == 0 {
		t.Errorf("the emissions are %s", s)
	}
	r.says(http.StatusOK)
	h.Eventually("all are received", func() bool {
		h.hurry()
		return h.states("webhook") == "5 published"
	})
	inOrder(t, r.all())
}

// A receiver refuses whatever comes. Each event is tried as often as it may be
// refused and set aside; what comes after has its turn; all can be sent again.
func TestAReceiverThatRefusesEverything(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	r.says(http.StatusBadRequest)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	for range 12 {
		h.note(h.investigate(), "second")
	}
	const refusals = 3
	h.relay(h.DB, func(o *emission.Options) { o.Refusals = refusals }, h.webhook(r.URL))
	h.Eventually("all are set aside", func() bool {
		h.hurry()
		return h.states("webhook") == "24 set_aside"
	})
	if n := r.attempts(); n != 24*refusals {
		t.Errorf("%d requests, want each event as often as it may be refused", n)
	}
	h.Eventually("that is counted and recorded", func() bool {
		return h.counts.of(h.counts.aside, webhookCreated) == 12 && h.counts.of(h.counts.aside, "webhook dlq.entry.updated") == 12 &&
			h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'dlq.event_set_aside'`) == 24
	})
	if n := h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NULL`); n != 1 {
		t.Error("the sink counts as down, although it answers")
	}

	r.says(http.StatusOK)
	h.investigate()
	h.Eventually("a later one is received", func() bool { return h.states("webhook") == "1 published, 24 set_aside" })
	again, err := h.DB.ReEmit(t.Context(), postgres.ReEmission{Sinks: []string{"webhook"}, Of: postgres.Span{To: 1 << 62}, By: postgres.Operator{Actor: "op", Reason: "fixed"}}, 100)
	if err != nil || again != 25 {
		t.Fatalf("%d sent again, %v", again, err)
	}
	h.Eventually("all are received", func() bool { return h.states("webhook") == "25 published" })
	if n := inOrder(t, r.all()); n != 1 || len(r.all()) != 26 {
		t.Errorf("%d received, %d of them again", len(r.all()), n)
	}
}

// flooded is how much a receiver can put on its way before it notices that nobody
// reads it: the buffers of the operating system.
const flooded = 32 << 20

// A receiver answers with a gigabyte. Its status counts, and hardly anything of it
// is read.
func TestAReceiverThatAnswersWithAGigabyte(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			h, r := newHarness(t), newReceiver(t)
			var most atomic.Int64
			chunk := []byte(strings.Repeat("x", 64<<10))
			r.answer.Store(func(w http.ResponseWriter, _ received) bool {
				w.WriteHeader(status)
				var written int64
				for written < 1<<30 {
					n, err := w.Write(chunk)
					written += int64(n)
					if err != nil {
						break // they have hung up
					}
				}
				for seen := most.Load(); written > seen && !most.CompareAndSwap(seen, written); seen = most.Load() {
				}
				return true
			})
			h.Must(h.DB.OpenSink(t.Context(), "webhook"))
			for range 10 {
				h.investigate()
			}
			h.relay(h.DB, nil, h.patientWebhook(r.URL, patience))
			if status == http.StatusOK {
				h.Eventually("all are published", func() bool { return h.states("webhook") == "10 published" })
			} else {
				h.Eventually("that is noted", func() bool {
					return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NOT NULL AND length(last_error) < 1000`) == 1
				})
				r.says(http.StatusOK)
				h.Eventually("all are received", func() bool {
					h.hurry()
					return h.states("webhook") == "10 published"
				})
			}
			r.Close() // waits for what is being answered
			if n := most.Load(); n == 0 || n > flooded {
				t.Errorf("the receiver could send %d bytes", n)
			}
		})
	}
}

// Receivers that break the connection, before or after they have read the event,
// or speak something else than HTTP. None of that is an answer.
func TestReceiversThatBreakTheConnection(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"nothing":         "",
		"half a head":     "HTTP/1.1 200 OK\r\nContent-Le",
		"another tongue":  "SSH-2.0-OpenSSH_9.2\r\n",
		"only an interim": "HTTP/1.1 100 Continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, r := newHarness(t), newReceiver(t)
			r.answer.Store(func(w http.ResponseWriter, _ received) bool {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return true
				}
				_, _ = conn.Write([]byte(says))
				_ = conn.Close()
				return true
			})
			h.isAwayAndComesBack(r.URL, func() {
				if r.attempts() == 0 {
					t.Error("the event was not sent")
				}
				r.says(http.StatusOK)
			})
			inOrder(t, r.all())
		})
	}
}

func TestAReceiverThatTakesConnectionsAndClosesThem(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	rude, err := net.Listen("tcp", "127.0.0.1:0")
	h.Must(err)
	var taken atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := rude.Accept()
			if err != nil {
				return
			}
			taken.Add(1)
			_ = conn.Close()
		}
	})
	end := sync.OnceFunc(func() {
		_ = rude.Close()
		all.Wait()
	})
	t.Cleanup(end)
	r := &receiver{}
	h.isAwayAndComesBack("http://"+rude.Addr().String(), func() {
		if taken.Load() == 0 {
			t.Error("nobody has connected")
		}
		end()
		r = newReceiverAt(t, rude.Addr().String())
	})
	inOrder(t, r.all())
}

// isAwayAndComesBack sends events to a receiver that takes none until it is fixed.
func (h *harness) isAwayAndComesBack(url string, fix func()) {
	h.Helper()
	h.Must(h.DB.OpenSink(h.Context(), "webhook"))
	for range 5 {
		h.note(h.investigate(), "second")
	}
	h.relay(h.DB, nil, h.webhook(url))
	h.Eventually("that is noted", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NOT NULL`) == 1
	})
	if s := h.states("webhook"); s != "10 pending" || h.counts.of(h.counts.failed, webhookCreated) == 0 {
		h.Errorf("the emissions are %s", s)
	}
	fix()
	h.Eventually("all are received", func() bool {
		h.hurry()
		return h.states("webhook") == "10 published"
	})
}

// newReceiverAt is a receiver that takes over an address.
func newReceiverAt(t *testing.T, address string) *receiver {
	t.Helper()
	r := newReceiver(t)
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: r.Config.Handler}
	var all sync.WaitGroup
	all.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		all.Wait()
	})
	return r
}
