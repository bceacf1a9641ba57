package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

// checkEvery is the interval at which a consumer verifies that the broker still knows it. RabbitMQ
// does not notify a consumer if its queue is deleted and immediately recreated.
const checkEvery = 10 * time.Second

// Errors of Ack and Nack of a [Delivery].
var (
	// ErrLost means that the delivery was not settled because its channel was lost. The broker
	// redelivers the message.
	ErrLost = errors.New("the channel of the delivery was lost: the broker will redeliver the message")

	// ErrSettled means that the delivery has already been settled.
	ErrSettled = errors.New("the delivery is already settled")
)

// ConsumeOptions selects a queue, or the work queues of namespaces, which are created if missing.
type ConsumeOptions struct {
	Queue      string
	Namespaces []string
	Prefetch   int    // unsettled deliveries per queue; default 1
	Tag        string // tag of the consumer at the broker; optional
}

// Delivery is a message from the broker. It is redelivered unless it is acknowledged.
type Delivery struct {
	ID, Type    string
	Queue       string // the queue it was consumed from
	Body        []byte
	Redelivered bool    // it was delivered before
	Deaths      []Death // its dead-letterings, newest first
	// Ack acknowledges the message. Nack returns it to be redelivered or dead-lettered. Call one of
	// them once, from any goroutine; they return [ErrLost] or [ErrSettled].
	Ack  func() error
	Nack func(requeue bool) error
}

// Consume passes the messages of the queues to handle until ctx ends, and then returns nil. It
// recovers from connection loss and from deleted or refused queues. Deliveries of one queue are
// sequential; those of several queues are concurrent. handle must settle every delivery. After ctx
// has ended, deliveries that handle has received can be settled within settleTimeout; the others
// return to the broker.
func (b *Broker) Consume(ctx context.Context, o ConsumeOptions, handle func(context.Context, Delivery)) error {
	if (o.Queue == "") == (len(o.Namespaces) == 0) {
		return tasker.Errorf(tasker.Invalid, "set either a queue or namespaces to consume from")
	}
	if o.Prefetch < 0 || o.Prefetch > 65535 {
		return tasker.Errorf(tasker.Invalid, "prefetch must be between 1 and 65535, not %d", o.Prefetch)
	}
	o.Prefetch = max(o.Prefetch, 1)
	if o.Queue != "" {
		(&consumer{b: b, o: o, queue: o.Queue, handle: handle}).run(ctx)
		return nil
	}
	var all sync.WaitGroup
	for _, namespace := range o.Namespaces {
		c := &consumer{b: b, o: o, queue: QueueName(namespace), namespace: namespace, handle: handle}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	return nil
}

// consumer receives the messages of one queue and reconnects after connection loss.
type consumer struct {
	b         *Broker
	o         ConsumeOptions
	queue     string
	namespace string // empty for a queue that must not be declared
	handle    func(context.Context, Delivery)
}

func (c *consumer) run(ctx context.Context) {
	noun := "consumer of " + describeQueue(c.queue)
	backoff := firstBackoff
	for {
		s := c.b.waitForSession(ctx)
		if s == nil {
			break
		}
		began, err := c.subscribe(ctx, s)
		if ctx.Err() != nil {
			break
		}
		if began {
			backoff = firstBackoff
		}
		if s.isAlive() { // otherwise the connection is the problem
			c.b.recordError(ctx, noun, err)
		}
		sleep(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
	c.b.recordError(context.WithoutCancel(ctx), noun, nil)
}

// subscribe consumes on a channel of the session until the channel or the session ends.
func (c *consumer) subscribe(ctx context.Context, s *session) (began bool, err error) {
	if c.namespace != "" {
		if err := s.ensureQueue(ctx, c.namespace); err != nil {
			return false, err
		}
	}
	if !s.beginUse() {
		return false, s.lostError()
	}
	defer s.consumers.Done()
	sub := &subscription{s: s, c: c, tag: c.newTag(), empty: make(chan struct{})}
	closed := make(chan *amqp091.Error, 1)
	sub.ch, err = s.openChannel(ctx, func(ch *amqp091.Channel) (err error) {
		ch.NotifyClose(closed)
		if err := ch.Qos(c.o.Prefetch, 0, false); err != nil {
			return err
		}
		sub.deliveries, err = ch.Consume(c.queue, sub.tag, false, false, false, false, nil)
		return err
	})
	if err != nil {
		c.releaseSession(s)
		return false, fmt.Errorf("consume %s: %w", describeQueue(c.queue), err)
	}
	c.b.recordError(ctx, "consumer of "+describeQueue(c.queue), nil)
	if sub.forwardDeliveries(ctx) {
		sub.cancelAndDrain(ctx)
		return true, nil
	}
	c.releaseSession(s)
	s.spawn(func() { _ = sub.ch.Close() }) // it is still open if only the queue is gone
	select {
	case err := <-closed:
		if err != nil {
			return true, fmt.Errorf("consume %s: %w", describeQueue(c.queue), err)
		}
	default:
	}
	return true, tasker.Errorf(tasker.Unavailable,
		"consume %s: the broker cancelled the consumer: the queue was deleted or moved", describeQueue(c.queue))
}

// releaseSession makes the next attempt declare the queue, which may be missing.
func (c *consumer) releaseSession(s *session) {
	if c.namespace != "" {
		s.forgetDeclaration(c.namespace)
	}
}

var lastTag atomic.Int64

// newTag returns a tag that is unique in the connection.
func (c *consumer) newTag() string {
	return fmt.Sprintf("%.200s-%d", cmp.Or(c.o.Tag, c.b.o.Name), lastTag.Add(1))
}

// subscription is a consumer on one channel.
type subscription struct {
	s          *session
	c          *consumer
	ch         *amqp091.Channel
	tag        string
	deliveries <-chan amqp091.Delivery

	mu     sync.Mutex
	inHand int           // unsettled deliveries of handle
	ending bool          // no more deliveries
	empty  chan struct{} // closed when ending and inHand is 0
}

// forwardDeliveries passes deliveries to handle. It returns true if ctx or the session ended, and
// false if the broker delivers no more.
func (sub *subscription) forwardDeliveries(ctx context.Context) bool {
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
			sub.c.handle(ctx, sub.newDelivery(d))
		case <-check.C:
			if !sub.checkQueue(ctx) {
				return false
			}
		case <-ctx.Done():
			return true
		case <-sub.s.closing:
			return true
		}
	}
}

// checkQueue reports whether the broker counts a consumer on the queue. Another consumer counts as
// well, since it receives the messages meanwhile.
func (sub *subscription) checkQueue(ctx context.Context) bool {
	_, consumers, err := sub.s.queueDepth(ctx, sub.c.queue)
	return err == nil && consumers > 0 || err != nil && tasker.CodeOf(err) != tasker.NotFound
}

// cancelAndDrain cancels the consumer, returns buffered messages and waits until the others are
// settled.
func (sub *subscription) cancelAndDrain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
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
		_ = sub.ch.Cancel(sub.tag, false) // a failure closes the channel, which returns the messages as well
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
		<-done // does not block without a connection
	case <-ctx.Done(): // the broker does not respond; the goroutine ends with the connection
	}
}

func (sub *subscription) newDelivery(d amqp091.Delivery) Delivery {
	sub.mu.Lock()
	sub.inHand++
	sub.mu.Unlock()
	var settled atomic.Bool
	settle := func(send func() error) error {
		if !settled.CompareAndSwap(false, true) {
			return ErrSettled
		}
		defer sub.recordSettled()
		if err := send(); err != nil {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		return nil
	}
	return Delivery{
		ID: d.MessageId, Type: d.Type, Queue: sub.c.queue, Body: d.Body,
		Redelivered: d.Redelivered,
		Deaths:      parseDeaths(d.Headers),
		Ack:         func() error { return settle(func() error { return d.Ack(false) }) },
		Nack: func(requeue bool) error {
			return settle(func() error { return d.Nack(false, requeue) })
		},
	}
}

// recordSettled decrements the number of unsettled deliveries.
func (sub *subscription) recordSettled() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.inHand--
	if sub.ending && sub.inHand == 0 {
		close(sub.empty)
	}
}

// A Death describes why the broker removed a message from a queue. Publishers can forge it.
type Death struct {
	Queue, Reason string // expired, rejected, maxlen or delivery_limit
	Exchange      string // to which the message was published
	RoutingKeys   []string
	Count         int64     // occurrences for this queue and reason
	Time          time.Time // of the first occurrence, in seconds
}

// parseDeaths parses the header x-death, in which the broker records why it dead-lettered a
// message.
func parseDeaths(headers amqp091.Table) []Death {
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
