package rabbitmq

import (
	"context"
	"sync"
	"time"

	"tasker/internal/rabbit"
)

// A line is one worker's connection to the broker: what is delivered waits here
// until the worker has a place for it.
type line struct {
	broker   *rabbit.Broker
	messages chan rabbit.Delivery
	stop     context.CancelFunc
	stopped  <-chan struct{}
	done     sync.WaitGroup
}

// newLine listens for steps of the namespaces. The broker hands out no more than
// prefetch messages that are not acknowledged.
func newLine(b *rabbit.Broker, namespaces []string, prefetch int) *line {
	connected, disconnect := context.WithCancel(context.Background())
	listening, stop := context.WithCancel(connected)
	l := &line{broker: b, messages: make(chan rabbit.Delivery), stop: stop, stopped: listening.Done()}
	var connection sync.WaitGroup
	connection.Go(func() { _ = b.Run(connected) })
	l.done.Go(func() {
		defer connection.Wait()
		defer disconnect()
		_ = b.Consume(listening, rabbit.ConsumeOptions{Namespaces: namespaces, Prefetch: prefetch}, l.deliver)
	})
	return l
}

// deliver waits for a claim to take the delivery.
func (l *line) deliver(ctx context.Context, d rabbit.Delivery) {
	select {
	case l.messages <- d:
	case <-ctx.Done():
		_ = d.Nack(true)
	}
}

const gatherMore = 2 * time.Millisecond // for what comes in the same breath

// gather waits for a message up to wait, and takes up to limit of those that come
// with it.
func (l *line) gather(ctx context.Context, limit int, wait time.Duration) []rabbit.Delivery {
	var list []rabbit.Delivery
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
		case <-l.stopped:
			return list
		case <-ctx.Done():
			return list
		}
	}
	return list
}

func (l *line) giveBack(list []rabbit.Delivery) {
	for _, d := range list {
		_ = d.Nack(true)
	}
}

// hangUp stops listening and disconnects. What is not taken goes back to the broker.
func (l *line) hangUp() {
	l.stop()
	l.done.Wait()
}
