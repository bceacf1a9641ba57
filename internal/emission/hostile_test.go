package emission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/mqtest"
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
func TestHangingReceiverDelaysNobody(t *testing.T) {
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
