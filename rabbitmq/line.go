package rabbitmq

import (
	"context"
	"sync"
	"time"

	"tasker.example/tasker/internal/amqp"
)

// A line is one worker's connection to the broker: what is delivered waits here
// until the worker has a place for it. A worker that has had no place for a while
// stops listening, so that what was delivered to it goes to others.
type line struct {
	broker     *amqp.Broker
	namespaces []string
	prefetch   int
	messages   chan amqp.Delivery
	connected  context.Context //nolint:containedctx // it ends with the line, not with a call
	disconnect context.CancelFunc
	connection sync.WaitGroup

	mu       sync.Mutex
	over     bool
	gathers  int                // under way
	idle     *time.Timer        // stops listening
	stop     context.CancelFunc // of the consumer; nil while nobody listens
	consumer *sync.WaitGroup
}

// holdTime is how long messages may wait for a worker that is busy.
const holdTime = 2 * time.Second

// newLine connects for steps of the namespaces. The broker hands out no more than
// prefetch messages that are not acknowledged.
func newLine(b *amqp.Broker, namespaces []string, prefetch int) *line {
	l := &line{broker: b, namespaces: namespaces, prefetch: prefetch, messages: make(chan amqp.Delivery)}
	l.connected, l.disconnect = context.WithCancel(context.Background())
	l.connection.Go(func() { _ = b.Run(l.connected) })
	return l
}

// listen begins to listen, if nobody does, and keeps it up until rest is called.
func (l *line) listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gathers++
	if l.idle != nil {
		l.idle.Stop()
		l.idle = nil
	}
	if l.over || l.stop != nil {
		return
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(l.connected)
	l.consumer = &sync.WaitGroup{}
	l.consumer.Go(func() {
		_ = l.broker.Consume(ctx, amqp.ConsumeOptions{Namespaces: l.namespaces, Prefetch: l.prefetch}, l.deliver)
	})
}

// rest says that the worker has no place for more, for now.
func (l *line) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gathers--; l.gathers == 0 && !l.over {
		l.idle = time.AfterFunc(holdTime, l.pause)
	}
}

// pause stops listening, unless the worker has a place again. What is not taken goes
// back to the broker.
func (l *line) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gathers == 0 {
		l.deafen()
	}
}

// deafen ends the consumer. The caller holds the mutex.
func (l *line) deafen() {
	if l.stop != nil {
		l.stop()
		l.consumer.Wait()
		l.stop, l.consumer = nil, nil
	}
}

// deliver waits for a claim to take the delivery.
func (l *line) deliver(ctx context.Context, d amqp.Delivery) {
	select {
	case l.messages <- d:
	case <-ctx.Done():
		_ = d.Nack(true)
	}
}

const gatherMore = 200 * time.Microsecond // for what comes in the same breath; a lone step waits as long

// gather waits for a message up to wait, and takes up to limit of those that come
// with it.
func (l *line) gather(ctx context.Context, limit int, wait time.Duration) []amqp.Delivery {
	l.listen()
	defer l.rest()
	var list []amqp.Delivery
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	for len(list) < limit {
		select {
		case d := <-l.messages:
			list = append(list, d)
			if len(list) == 1 {
				timer.Reset(gatherMore)
			}
		case <-timer.C:
			return list
		case <-l.connected.Done():
			return list
		case <-ctx.Done():
			return list
		}
	}
	return list
}

func (l *line) giveBack(list []amqp.Delivery) {
	for _, d := range list {
		_ = d.Nack(true)
	}
}

// hangUp stops listening and disconnects. What is not taken goes back to the broker.
func (l *line) hangUp() {
	l.mu.Lock()
	l.over = true
	if l.idle != nil {
		l.idle.Stop()
	}
	l.deafen()
	l.mu.Unlock()
	l.disconnect()
	l.connection.Wait()
}
