package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

// checkEvery is how often a consumer makes sure that the broker knows of it.
// RabbitMQ forgets to tell when a queue is deleted and made anew at once.
const checkEvery = 10 * time.Second

// What Ack and Nack of a [Delivery] return.
var (
	// ErrLost says that the delivery was not settled, because its channel is
	// lost. The broker delivers the message again.
	ErrLost = errors.New("the channel of the delivery is lost; the broker delivers the message again")

	// ErrSettled says that the delivery was acknowledged or returned before.
	ErrSettled = errors.New("the delivery is settled already")
)

// ConsumeOptions selects one queue, or the work queues of namespaces, created if missing.
type ConsumeOptions struct {
	Queue      string
	Namespaces []string
	Prefetch   int    // how many deliveries of one queue may be unsettled; 1 if 0
	Tag        string // of the consumer, as the broker lists it; made up when empty
}

// Delivery is a message from the broker, redelivered unless acknowledged.
type Delivery struct {
	ID, Type    string
	Queue       string // from which it came
	Body        []byte
	Redelivered bool    // it was handed out before, perhaps to somebody who is gone
	Deaths      []Death // why it is a dead letter, newest first; empty if it is none

	// Ack tells the broker that the message is done with; Nack returns it, to
	// be delivered again, or to be dead-lettered. One of them, once, from any
	// goroutine; they return [ErrLost] or [ErrSettled].
	Ack  func() error
	Nack func(requeue bool) error
}

// Consume passes the messages of the queues to handle until ctx ends, then returns nil. It
// recovers from connection loss and from deleted or refused queues. Deliveries of one queue are
// sequential, of several queues concurrent. handle settles every delivery. When ctx ends,
// deliveries in hand have a few seconds to be settled; the rest returns to the broker.
func (b *Broker) Consume(ctx context.Context, o ConsumeOptions, handle func(context.Context, Delivery)) error {
	if (o.Queue == "") == (len(o.Namespaces) == 0) {
		return tasker.Errorf(tasker.Invalid, "consume either a queue or the queues of namespaces")
	}
	if o.Prefetch < 0 || o.Prefetch > 65535 {
		return tasker.Errorf(tasker.Invalid, "prefetch must be between 1 and 65535, not %d", o.Prefetch)
	}
	o.Prefetch = max(o.Prefetch, 1)
	if o.Queue != "" {
		c := &consumer{b: b, o: o, queue: o.Queue, handle: handle}
		c.run(ctx)
		return nil
	}
	var all sync.WaitGroup
	for _, namespace := range o.Namespaces {
		c := &consumer{b: b, o: o, queue: QueueOf(namespace), namespace: namespace, handle: handle}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	return nil
}

// A consumer takes what one queue holds, over every loss of the connection.
type consumer struct {
	b         *Broker
	o         ConsumeOptions
	queue     string
	namespace string // empty: the queue is not ours to make
	handle    func(context.Context, Delivery)
}

func (c *consumer) run(ctx context.Context) {
	noun := "consumer of " + queueNoun(c.queue)
	rest := firstRest
	for {
		s := c.b.next(ctx)
		if s == nil {
			break
		}
		began, err := c.subscribe(ctx, s)
		if ctx.Err() != nil {
			break
		}
		if began {
			rest = firstRest
		}
		if s.alive() { // else there is nothing wrong with the queue
			c.b.note(ctx, noun, err)
		}
		pause(ctx, rest)
		rest = min(2*rest, longestRest)
	}
	c.b.note(context.WithoutCancel(ctx), noun, nil)
}

// subscribe consumes on a channel of the session until one of them ends.
func (c *consumer) subscribe(ctx context.Context, s *session) (began bool, err error) {
	if c.namespace != "" {
		if err := s.ensure(ctx, c.namespace); err != nil {
			return false, err
		}
	}
	if !s.enter() {
		return false, s.lostError()
	}
	defer s.consumers.Done()
	sub := &subscription{s: s, c: c, tag: c.tag(), empty: make(chan struct{})}
	closed := make(chan *amqp091.Error, 1)
	sub.ch, err = s.open(ctx, func(ch *amqp091.Channel) (err error) {
		ch.NotifyClose(closed)
		if err := ch.Qos(c.o.Prefetch, 0, false); err != nil {
			return err
		}
		sub.deliveries, err = ch.Consume(c.queue, sub.tag, false, false, false, false, nil)
		return err
	})
	if err != nil {
		c.forget(s)
		return false, fmt.Errorf("consume %s: %w", queueNoun(c.queue), err)
	}
	c.b.note(ctx, "consumer of "+queueNoun(c.queue), nil)
	if sub.pump(ctx) {
		sub.finish(ctx)
		return true, nil
	}
	c.forget(s)
	s.spawn(func() { _ = sub.ch.Close() }) // open still, if only the queue is gone
	select {
	case err := <-closed:
		if err != nil {
			return true, fmt.Errorf("consume %s: %w", queueNoun(c.queue), err)
		}
	default:
	}
	return true, tasker.Errorf(tasker.Unavailable, "consume %s: the broker ended the consumer; the queue was deleted or has moved", queueNoun(c.queue))
}

// forget makes the next attempt declare the queue: it may be missing.
func (c *consumer) forget(s *session) {
	if c.namespace != "" {
		s.forget(c.namespace)
	}
}

var lastTag atomic.Int64

// tag returns a name that is unique in the connection.
func (c *consumer) tag() string {
	name := c.o.Tag
	if name == "" {
		name = c.b.o.Name
	}
	return fmt.Sprintf("%.200s-%d", name, lastTag.Add(1))
}

// A subscription is a consumer on one channel.
type subscription struct {
	s          *session
	c          *consumer
	ch         *amqp091.Channel
	tag        string
	deliveries <-chan amqp091.Delivery

	mu     sync.Mutex
	inHand int           // handed out and not settled
	ending bool          // nothing more is handed out
	empty  chan struct{} // closed when ending and inHand is 0
}

// pump hands out deliveries; true if it was stopped, false if there are no more.
func (sub *subscription) pump(ctx context.Context) bool {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return true
		case <-sub.s.closing:
			return true
		default:
		}
		select {
		case d, ok := <-sub.deliveries:
			if !ok {
				return false
			}
			sub.c.handle(ctx, sub.delivery(d))
		case <-check.C:
			if !sub.known(ctx) {
				return false
			}
		case <-ctx.Done():
			return true
		case <-sub.s.closing:
			return true
		}
	}
}

// known reports whether the broker counts a consumer on the queue. It cannot
// tell ours from others; while there are others, messages are taken.
func (sub *subscription) known(ctx context.Context) bool {
	_, consumers, err := sub.s.depth(ctx, sub.c.queue)
	return err == nil && consumers > 0 || err != nil && tasker.CodeOf(err) != tasker.NotFound
}

// finish cancels the consumer, returns what has arrived and waits for deliveries in hand.
func (sub *subscription) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
	defer cancel()
	sub.mu.Lock()
	sub.ending = true
	if sub.inHand == 0 {
		close(sub.empty)
	}
	sub.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = sub.ch.Cancel(sub.tag, false) // else the channel is closed, which returns them as well
		for d := range sub.deliveries {
			_ = d.Nack(false, true)
		}
		select {
		case <-sub.empty:
		case <-ctx.Done():
		case <-sub.s.gone:
		}
		_ = sub.ch.Close()
	}()
	select {
	case <-done:
	case <-sub.s.gone:
		<-done // everything that it waits for has ended with the connection
	case <-ctx.Done(): // the broker stands still; the goroutine ends with the connection
	}
}

// delivery converts a message that arrived.
func (sub *subscription) delivery(d amqp091.Delivery) Delivery {
	sub.mu.Lock()
	sub.inHand++
	sub.mu.Unlock()
	var settled atomic.Bool
	settle := func(send func() error) error {
		if !settled.CompareAndSwap(false, true) {
			return ErrSettled
		}
		defer sub.settled()
		if err := send(); err != nil {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		return nil
	}
	return Delivery{
		ID: d.MessageId, Type: d.Type, Queue: sub.c.queue, Body: d.Body,
		Redelivered: d.Redelivered,
		Deaths:      deathsOf(d.Headers),
		Ack:         func() error { return settle(func() error { return d.Ack(false) }) },
		Nack: func(requeue bool) error {
			return settle(func() error { return d.Nack(false, requeue) })
		},
	}
}

// settled counts one delivery out.
func (sub *subscription) settled() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.inHand--
	if sub.ending && sub.inHand == 0 {
		close(sub.empty)
	}
}

// A Death is one time that the broker took a message out of a queue for good.
// Publishers could forge it: it is evidence, not proof.
type Death struct {
	Queue, Reason string // expired, rejected, maxlen or delivery_limit
	Exchange      string // to which the message was published before
	RoutingKeys   []string
	Count         int64     // how often, for the same queue and reason
	Time          time.Time // of the first; to the second
}

// deathsOf reads the header in which the broker keeps them.
func deathsOf(headers amqp091.Table) []Death {
	list, _ := headers["x-death"].([]any)
	deaths := make([]Death, 0, len(list))
	for _, entry := range list {
		t, ok := entry.(amqp091.Table)
		if !ok {
			continue
		}
		var d Death
		d.Queue, _ = t["queue"].(string)
		d.Reason, _ = t["reason"].(string)
		d.Exchange, _ = t["exchange"].(string)
		d.Count, _ = t["count"].(int64)
		if at, ok := t["time"].(time.Time); ok {
			d.Time = at.UTC()
		}
		keys, _ := t["routing-keys"].([]any)
		for _, key := range keys {
			if text, ok := key.(string); ok {
				d.RoutingKeys = append(d.RoutingKeys, text)
			}
		}
		deaths = append(deaths, d)
	}
	return deaths
}
