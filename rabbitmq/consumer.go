package rabbitmq

import (
	"context"
	"sync"
	"time"

	"tasker.example/tasker/internal/amqp"
)

// consumer is the broker connection of one worker. It holds deliveries until the worker has a
// free slot. If there is none for a while, it stops consuming, so that the broker delivers to
// other workers.
type consumer struct {
	broker     *amqp.Broker
	namespaces []string
	prefetch   int
	messages   chan amqp.Delivery
	connected  context.Context //nolint:containedctx // ends with the consumer, not with a call
	disconnect context.CancelFunc
	connection sync.WaitGroup
	consuming  sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	receivers int                // pending receives
	idle      *time.Timer        // stops consuming
	stop      context.CancelFunc // of consuming; nil while not consuming
}

// holdTime limits how long messages wait for a busy worker.
const holdTime = 2 * time.Second

// newConsumer connects to the broker to receive announcements of steps of the namespaces. The
// broker delivers at most prefetch unacknowledged messages.
func newConsumer(b *amqp.Broker, namespaces []string, prefetch int) *consumer {
	c := &consumer{broker: b, namespaces: namespaces, prefetch: prefetch, messages: make(chan amqp.Delivery)}
	c.connected, c.disconnect = context.WithCancel(context.Background())
	c.connection.Go(func() { _ = b.Run(c.connected) })
	return c
}

// listen starts consuming, if necessary, and prevents a pause until pauseAfterIdle is called.
func (c *consumer) listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receivers++
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	if c.closed || c.stop != nil {
		return
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(c.connected)
	c.consuming.Go(func() {
		_ = c.broker.Consume(ctx, amqp.ConsumeOptions{Namespaces: c.namespaces, Prefetch: c.prefetch}, c.deliver)
	})
}

// pauseAfterIdle schedules a pause after the last pending receive.
func (c *consumer) pauseAfterIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receivers--; c.receivers == 0 && !c.closed {
		c.idle = time.AfterFunc(holdTime, c.pause)
	}
}

// pause stops consuming unless a receive is pending. The broker redelivers messages that were not
// taken.
func (c *consumer) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receivers == 0 {
		c.stopAsync()
	}
}

// stopAsync stops consuming without waiting for pending deliveries, whose settlement may need the
// mutex. The caller holds the mutex.
func (c *consumer) stopAsync() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// deliver passes a delivery to a waiting claim, or returns it to the broker if ctx ends first.
func (c *consumer) deliver(ctx context.Context, d amqp.Delivery) {
	select {
	case c.messages <- d:
	case <-ctx.Done():
		_ = d.Nack(true)
	}
}

// gatherWait is the time for which a batch waits for further messages. It also delays a single
// step.
const gatherWait = 200 * time.Microsecond

// receiveBatch waits up to wait for a message and returns up to limit messages that arrive
// together.
func (c *consumer) receiveBatch(ctx context.Context, limit int, wait time.Duration) []amqp.Delivery {
	c.listen()
	defer c.pauseAfterIdle()
	var list []amqp.Delivery
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	for len(list) < limit {
		select {
		case d := <-c.messages:
			list = append(list, d)
			if len(list) == 1 {
				timer.Reset(gatherWait)
			}
		case <-timer.C:
			return list
		case <-c.connected.Done():
			return list
		case <-ctx.Done():
			return list
		}
	}
	return list
}

func (c *consumer) requeue(list []amqp.Delivery) {
	for _, d := range list {
		_ = d.Nack(true)
	}
}

// close stops consuming and disconnects. The broker redelivers messages that were not taken.
func (c *consumer) close() {
	c.mu.Lock()
	c.closed = true
	if c.idle != nil {
		c.idle.Stop()
	}
	c.stopAsync()
	c.mu.Unlock()
	c.consuming.Wait()
	c.disconnect()
	c.connection.Wait()
}
