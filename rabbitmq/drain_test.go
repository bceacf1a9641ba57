package rabbitmq_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/rabbitmq"
	"tasker.example/tasker/worker"
)

// patience is how long anything may take on a machine that has much else to do.
const patience = time.Minute

// draining is a server that asks for rare heartbeats, and whose steps are all taken.
type draining struct {
	*engine.Engine
	registered chan tasker.ID
	takes      atomic.Int32
	taking     chan struct{}   // has a value when steps are asked for by their ids
	told       chan error      // has a value when the server is told of a drain: of the context
	answer     <-chan struct{} // closed when it answers who asks for steps
}

func newDraining(t *testing.T, d *tasker.Dispatch) *draining {
	answer := make(chan struct{})
	close(answer)
	return &draining{Engine: newServer(t, d), registered: make(chan tasker.ID, 1), taking: make(chan struct{}, 10_000), told: make(chan error, 1), answer: answer}
}

func (s *draining) RegisterWorker(ctx context.Context, w tasker.WorkerSpec) (tasker.Registration, error) {
	r, err := s.Engine.RegisterWorker(ctx, w)
	r.HeartbeatInterval, r.LeaseDuration = time.Hour, 3*time.Hour
	s.registered <- r.WorkerUUID
	return r, err
}

func (s *draining) TakeSteps(ctx context.Context, id tasker.ID, steps []tasker.StepRef) ([]tasker.Assignment, error) {
	s.takes.Add(1)
	s.taking <- struct{}{}
	select {
	case <-s.answer:
	case <-ctx.Done():
	}
	return s.Engine.TakeSteps(ctx, id, steps)
}

func (s *draining) DrainWorker(ctx context.Context, id tasker.ID) error {
	s.told <- ctx.Err()
	return s.Engine.DrainWorker(ctx, id)
}

// announcer returns a broker like that of the server.
func announcer(t *testing.T, d *tasker.Dispatch) *amqp.Broker {
	t.Helper()
	b, err := amqp.New(amqp.Options{
		URL: mqtest.URL(t), Exchange: d.Exchange, QueueTTL: d.QueueTTL, DeadLetter: amqp.DeadLetter{Enabled: true, Exchange: d.DeadLetterExchange, TTL: d.DeadLetterTTL},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// announce tells of a step that is taken already.
func announce(t *testing.T, b *amqp.Broker, namespace string) {
	t.Helper()
	body, err := json.Marshal(rabbitmq.Body{TaskUUID: tasker.NewID(), StepUUID: tasker.NewID()})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // again
		_, err := b.Publish(t.Context(), []amqp.Message{{ID: "m", Namespace: namespace, Type: rabbitmq.MessageType, Body: body}})
		if err == nil {
			return
		}
		if tasker.CodeOf(err) != tasker.Unavailable || time.Now().After(deadline) { // a loaded broker confirms late
			t.Fatal(err)
		}
	}
}

// A worker that an operator drains finds out when it is given nothing of what it is told of, or when
// a claim without the broker is answered early: its next heartbeat is in an hour.
func TestAWorkerThatIsDrainedFromAfarStopsListening(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"the broker is there": false, "the broker is away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, namespace := broker(t), mqtest.Name(t)
			server, b := newDraining(t, d), announcer(t, d)
			proxy := mqtest.Proxy(t, mqtest.URL(t))
			if away {
				proxy.Cut()
			}
			w := worker.New(rabbitmq.NewBackend(server, rabbitmq.Options{URL: proxy.URL}), worker.Options{Namespaces: []string{namespace}})
			worker.Handle(w, "run", func(context.Context, *worker.Step[json.RawMessage]) (string, error) { return "", nil })
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			id := <-server.registered
			for listens := away; !listens; {
				_, consumers, err := b.Depth(ctx, amqp.QueueName(namespace))
				listens = consumers > 0 || err != nil && tasker.CodeOf(err) != tasker.NotFound
			}
			if err := server.Engine.DrainWorker(ctx, id); err != nil {
				t.Fatal(err)
			}
			again := time.NewTicker(2 * time.Second) // it may not learn by one message, if its server is slow to say so
			defer again.Stop()
			for working := true; working; {
				announce(t, b, namespace)
				select {
				case err := <-ended:
					working = false
					if err != nil || ctx.Err() != nil {
						t.Errorf("ended with %v, %v", err, ctx.Err())
					}
				case <-again.C:
				}
			}
			if n := server.takes.Load(); away && n != 0 {
				t.Errorf("it asked %d times for what it is told of", n)
			}
		})
	}
}

// The server is told of a drain at once, whatever is under way.
func TestAServerIsToldOfADrainWhileAMessageIsUnderWay(t *testing.T) {
	t.Parallel()
	d, namespace := broker(t), mqtest.Name(t)
	server, announcing := newDraining(t, d), announcer(t, d)
	answer := make(chan struct{})
	server.answer = answer
	b := rabbitmq.NewBackend(server, rabbitmq.Options{URL: mqtest.URL(t)})
	r, err := b.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{namespace}, Handlers: []string{"run"}, MaxConcurrency: 10})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.Claim(ctx, r.WorkerUUID, 10, patience) // until ctx ends
	}()
	announce(t, announcing, namespace)
	<-server.taking
	drained := make(chan error, 1)
	telling, stopTelling := context.WithTimeout(ctx, 3*time.Second) // less than the broker waits for what is under way
	defer stopTelling()
	go func() { drained <- b.DrainWorker(telling, r.WorkerUUID) }()
	if err := <-server.told; err != nil {
		t.Error(err)
	}
	close(answer)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	stop()
	<-ended
	if err := b.LeaveWorker(t.Context(), r.WorkerUUID); err != nil {
		t.Error(err)
	}
}
