package rabbit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"tasker"
)

const (
	// window is how many messages of one call wait for their confirmation at a
	// time. A quorum queue writes many to disk at once, so waiting for each
	// would cost a factor of thirty.
	window = 500

	// silence is how long a call waits for one confirmation before it takes the
	// queue for dead.
	silence = 5 * time.Second

	// mostIdle is how many channels are kept open for the next publishers.
	mostIdle = 8
)

// Message is one message for the workers of a namespace.
type Message struct {
	ID        string // tells a message from its repetition; at most 255 bytes
	Namespace string
	Type      string // what the body is; at most 255 bytes
	Body      []byte // JSON

	Expiration time.Duration // after which it is dead-lettered, if that is before the queue's own TTL; 0 means only then
}

// Publish sends the messages to the work queues of their namespaces, and says of
// each whether the broker has it on disk. What is not confirmed may have arrived
// nevertheless, and is to be published again. The error is nil exactly when all
// are confirmed, and else the first reason why one is not; confirmed holds
// either way, and has one answer for each message. It returns soon after ctx
// ends, even if the broker stands still, and at once if there is no connection.
func (b *Broker) Publish(ctx context.Context, messages []Message) (confirmed []bool, err error) {
	confirmed = make([]bool, len(messages))
	if len(messages) == 0 {
		return confirmed, nil
	}
	s, err := b.current()
	if err != nil {
		return confirmed, err
	}
	if reason := s.blocked.Load(); reason != nil {
		return confirmed, blockedError(*reason)
	}
	if err := b.fault(exchangeNoun(b.o.Exchange)); err != nil {
		return confirmed, err
	}
	good, refused := s.admit(ctx, messages)
	if len(good) == 0 {
		return confirmed, refused
	}
	p, err := s.publisher(ctx)
	if err != nil {
		return confirmed, err
	}
	err = p.publish(ctx, messages, good, confirmed)
	if err == nil {
		err = refused
	}
	return confirmed, err
}

// admit returns the places of the messages that can be sent: those that AMQP
// can carry and whose namespace has its queue. The error is the reason for the
// first of the others.
func (s *session) admit(ctx context.Context, messages []Message) (good []int, first error) {
	known := map[string]error{}
	good = make([]int, 0, len(messages))
	for i, m := range messages {
		err, ok := known[m.Namespace]
		switch {
		case m.Namespace == "":
			err = tasker.Errorf(tasker.Invalid, "message %q has no namespace", m.ID)
		case len(m.ID) > longestName || len(m.Type) > longestName:
			// The client would close the connection over it.
			err = tasker.Errorf(tasker.Invalid, "id or type of message %.40q is longer than %d bytes", m.ID, longestName)
		case !ok:
			err = s.ensure(ctx, m.Namespace)
			known[m.Namespace] = err
		}
		if err == nil {
			good = append(good, i)
		} else if first == nil {
			first = err
		}
	}
	return good, first
}

// A publisher is a channel with confirmations, used by one call at a time.
type publisher struct {
	s       *session
	ch      *amqp.Channel
	returns chan amqp.Return // those of the messages that no queue took
	closed  chan *amqp.Error // why the broker closed the channel
}

// publisher returns an idle one, or opens one.
func (s *session) publisher(ctx context.Context) (*publisher, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		p := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return p, nil
	}
	s.mu.Unlock()
	p := &publisher{s: s}
	ch, err := s.open(ctx, func(ch *amqp.Channel) error {
		// Room for all that can be on its way: the client must never wait for
		// us, or the whole connection would.
		p.returns = ch.NotifyReturn(make(chan amqp.Return, 2*window))
		p.closed = ch.NotifyClose(make(chan *amqp.Error, 1))
		return ch.Confirm(false)
	})
	if err != nil {
		return nil, fmt.Errorf("open a channel to publish: %w", err)
	}
	p.ch = ch
	return p, nil
}

// A sent is a message that waits for its confirmation.
type sent struct {
	place int
	dc    *amqp.DeferredConfirmation
}

// route is what the broker tells of a message that it returns.
type route struct{ key, id string }

// publish sends the messages at the places and marks those that are confirmed.
// Writing may block in the client, so another goroutine does it.
func (p *publisher) publish(ctx context.Context, messages []Message, places []int, confirmed []bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pending := make(chan sent, window)
	written := make(chan error, 1)
	spawned := p.s.spawn(func() {
		written <- p.write(ctx, messages, places, pending)
		close(pending)
	})
	if !spawned {
		return p.s.lostError()
	}
	c := &collector{
		p: p, messages: messages, confirmed: confirmed,
		returned: map[route]bool{}, quiet: time.NewTimer(silence),
	}
	defer c.quiet.Stop()
	err := c.collect(ctx, pending)
	if err == nil {
		err = <-written
	}
	if err == nil {
		c.praise(ctx)
		if c.first == nil {
			p.release()
			return nil
		}
		if p.ch.IsClosed() {
			return p.reason(amqp.ErrClosed)
		}
		p.discard() // the broker's side of it remembers the queue that is gone
		return c.first
	}
	stop()
	c.sweep(pending)
	p.discard()
	return p.reason(err)
}

// write sends one message after another, as far as there is room in pending.
func (p *publisher) write(ctx context.Context, messages []Message, places []int, pending chan<- sent) error {
	for _, place := range places {
		m := messages[place]
		expiration := ""
		if m.Expiration > 0 {
			expiration = strconv.FormatInt(m.Expiration.Milliseconds(), 10)
		}
		dc, err := p.ch.PublishWithDeferredConfirmWithContext(ctx, p.s.b.o.Exchange, RoutingKey(m.Namespace), true, false, amqp.Publishing{
			Expiration:   expiration,
			ContentType:  "application/json",
			DeliveryMode: amqp.Persistent,
			MessageId:    m.ID,
			Type:         m.Type,
			Body:         m.Body,
		})
		if err != nil {
			return err
		}
		select {
		case pending <- sent{place, dc}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// release keeps the publisher for the next call.
func (p *publisher) release() {
	s := p.s
	s.mu.Lock()
	keep := len(s.idle) < mostIdle && !p.ch.IsClosed()
	if keep {
		s.idle = append(s.idle, p)
	}
	s.mu.Unlock()
	if !keep {
		p.discard()
	}
}

// discard closes the channel, and waits for nobody.
func (p *publisher) discard() {
	p.s.spawn(func() { _ = p.ch.Close() }) // or the session has ended, and the channel with it
}

// reason explains why the channel could not be used to the end.
func (p *publisher) reason(err error) error {
	select {
	case closed := <-p.closed:
		if closed != nil && closed.Code == amqp.NotFound {
			// Somebody has deleted the exchange, and so all bindings.
			p.s.forgetAll()
			p.s.askAgain()
		}
		if closed != nil && p.s.alive() {
			return tasker.Errorf(tasker.Unavailable, "the message broker closed the channel: %w", closed)
		}
	default:
	}
	if tasker.CodeOf(err) == tasker.Unavailable {
		return err
	}
	if errors.Is(err, amqp.ErrClosed) || !p.s.alive() {
		return p.s.lostError()
	}
	return tasker.Errorf(tasker.Unavailable, "the message broker did not confirm in time: %w", err)
}

// A collector matches confirmations with messages.
type collector struct {
	p         *publisher
	messages  []Message
	confirmed []bool
	returned  map[route]bool
	first     error       // why one was refused
	quiet     *time.Timer // runs while nothing is confirmed
}

// collect waits for all confirmations. An error says that it gave up.
func (c *collector) collect(ctx context.Context, pending <-chan sent) error {
	for {
		select {
		case m, ok := <-pending:
			if !ok {
				return nil
			}
			c.quiet.Reset(silence)
			acked, err := c.wait(ctx, m)
			c.judge(m, acked)
			if errors.Is(err, errSilence) {
				return c.p.s.giveUp(ctx, c.messages[m.place].Namespace)
			}
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-c.p.s.gone:
			return amqp.ErrClosed
		}
	}
}

// praise takes back what was said of queues that confirm again.
func (c *collector) praise(ctx context.Context) {
	done := map[string]bool{}
	for i, m := range c.messages {
		if c.confirmed[i] && !done[m.Namespace] {
			done[m.Namespace] = true
			c.p.s.b.note(ctx, silentNoun(QueueOf(m.Namespace)), nil)
		}
	}
}

// errSilence says that a confirmation did not come.
var errSilence = errors.New("no confirmation")

// wait waits for one confirmation.
func (c *collector) wait(ctx context.Context, m sent) (acked bool, err error) {
	select {
	case <-m.dc.Done():
		return m.dc.Acked(), nil
	case <-ctx.Done():
		return m.dc.Acked(), ctx.Err()
	case <-c.quiet.C:
		return m.dc.Acked(), errSilence
	case <-c.p.s.gone:
		return m.dc.Acked(), amqp.ErrClosed
	}
}

// judge records what came of one message.
func (c *collector) judge(m sent, acked bool) {
	c.drain() // a message is returned before it is confirmed
	message := c.messages[m.place]
	unroutable := c.returned[route{RoutingKey(message.Namespace), message.ID}]
	c.confirmed[m.place] = acked && !unroutable
	var err error
	switch {
	case unroutable:
		err = c.p.s.missing(message.Namespace)
	case !acked:
		err = tasker.Errorf(tasker.Unavailable, "the message broker did not take a message for %s: the queue is full, or cannot be written",
			queueNoun(QueueOf(message.Namespace)))
	}
	if c.first == nil {
		c.first = err
	}
}

// sweep marks what is confirmed among those that nobody waits for any longer.
func (c *collector) sweep(pending <-chan sent) {
	for {
		select {
		case m, ok := <-pending:
			if !ok {
				return
			}
			c.judge(m, m.dc.Acked())
		default:
			return
		}
	}
}

// drain reads the messages that came back.
func (c *collector) drain() {
	for {
		select {
		case r, ok := <-c.p.returns:
			if !ok {
				return
			}
			c.returned[route{r.RoutingKey, r.MessageId}] = true
		default:
			return
		}
	}
}
