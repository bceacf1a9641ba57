package rabbitmq

import (
	"context"
	"sync"
	"time"

	"tasker.example/tasker/internal/amqp"
)

// A consumer is one worker's connection to the broker. Deliveries wait here until the
// worker has a free slot. While a worker has had none for a while it stops consuming, so
// that the broker gives them to others.
type consumer struct {
	broker     *amqp.Broker
	namespaces []string
	prefetch   int
	messages   chan amqp.Delivery
	connected  context.Context //nolint:containedctx // it ends with the consumer, not with a call
	disconnect context.CancelFunc
	connection sync.WaitGroup
	consuming  sync.WaitGroup

	mu      sync.Mutex
	over    bool
	gathers int                // under way
	idle    *time.Timer        // stops listening
	stop    context.CancelFunc // of consuming; nil while nobody listens
}

// holdTime is how long messages may wait for a worker that is busy.
const holdTime = 2 * time.Second

// newConsumer connects for steps of the namespaces. The broker hands out no more than
// prefetch messages that are not acknowledged.
func newConsumer(b *amqp.Broker, namespaces []string, prefetch int) *consumer {
	c := &consumer{broker: b, namespaces: namespaces, prefetch: prefetch, messages: make(chan amqp.Delivery)}
	c.connected, c.disconnect = context.WithCancel(context.Background())
	c.connection.Go(func() { _ = b.Run(c.connected) })
	return c
}

// listen begins to listen, if nobody does, and keeps it up until rest is called.
func (c *consumer) listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathers++
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	if c.over || c.stop != nil {
		return
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(c.connected)
	c.consuming.Go(func() {
		_ = c.broker.Consume(ctx, amqp.ConsumeOptions{Namespaces: c.namespaces, Prefetch: c.prefetch}, c.deliver)
	})
}

// pauseAfterIdle says that the worker has no place for more, for now.
func (c *consumer) pauseAfterIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gathers--; c.gathers == 0 && !c.over {
		c.idle = time.AfterFunc(holdTime, c.pause)
	}
}

// pause stops listening, unless the worker has a place again. What is not taken goes
// back to the broker.
func (c *consumer) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gathers == 0 {
		c.stopAsync()
	}
}

// stopAsync has the consumer end, and does not wait for it: it ends when what is in hand is settled,
// and those who settle it may need the mutex, which the caller holds.
func (c *consumer) stopAsync() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// deliver waits for a claim to take the delivery.
func (c *consumer) deliver(ctx context.Context, d amqp.Delivery) {
	select {
	case c.messages <- d:
	case <-ctx.Done():
		_ = d.Nack(true)
	}
}

const gatherMore = 200 * time.Microsecond // for what comes in the same breath; a lone step waits as long

// receiveBatch waits for a message up to wait, and takes up to limit of those that come
// with it.
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
				timer.Reset(gatherMore)
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

func (c *consumer) giveBack(list []amqp.Delivery) {
	for _, d := range list {
		_ = d.Nack(true)
	}
}

// close stops listening and disconnects. What is not taken goes back to the broker.
func (c *consumer) close() {
	c.mu.Lock()
	c.over = true
	if c.idle != nil {
		c.idle.Stop()
	}
	c.stopAsync()
	c.mu.Unlock()
	c.consuming.Wait()
	c.disconnect()
	c.connection.Wait()
}
