package amqp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

const (
	// window is how many messages of one call wait for their confirmation at a
	// time. A quorum queue writes many to disk at once, so waiting for each
	// would cost a factor of thirty.
	window = 500

	// Silence is how long a call waits for one confirmation before it takes the
	// queue for dead. A call that may not take longer never learns which queue it is.
	Silence = 5 * time.Second

	// mostIdle is how many channels are kept open for the next publishers.
	mostIdle = 8
)

// A post is what one call publishes, and what is said of what fails. Each message
// has a place in it.
type post interface {
	// form returns a message, and the routing key under which it goes.
	form(place int) (key string, m amqp091.Publishing)

	// unroutable returns the error for a message that no queue took.
	unroutable(place int) error

	// notTaken returns the error for one that a queue refused.
	notTaken(place int) error

	// silent returns the error for one that is not confirmed at all.
	silent(ctx context.Context, place int) error

	// confirmed is told at the end what came of each message.
	confirmed(ctx context.Context, answers []error)
}

// errUnanswered stands for the answer that a message does not have yet.
var errUnanswered = errors.New("not confirmed")

// unanswered returns as many answers as there are messages.
func unanswered(messages int) []error {
	answers := make([]error, messages)
	for i := range answers {
		answers[i] = errUnanswered
	}
	return answers
}

// A publisher is a channel with confirmations, used by one call at a time.
type publisher struct {
	s       *session
	ch      *amqp091.Channel
	returns chan amqp091.Return // those of the messages that no queue took
	closed  chan *amqp091.Error // why the broker closed the channel
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
	ch, err := s.open(ctx, func(ch *amqp091.Channel) error {
		// Room for all that can be on its way: the client must never wait for
		// us, or the whole connection would.
		p.returns = ch.NotifyReturn(make(chan amqp091.Return, 2*window))
		p.closed = ch.NotifyClose(make(chan *amqp091.Error, 1))
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
	route route
	dc    *amqp091.DeferredConfirmation
}

// route is what the broker tells of a message that it returns.
type route struct{ key, id string }

// publish sends messages and records the answers; err is nil if all are confirmed. Another
// goroutine writes, because that may block.
func (p *publisher) publish(ctx context.Context, messages post, places []int, answers []error) error {
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
		p: p, messages: messages, answers: answers,
		returned: map[route]bool{}, quiet: time.NewTimer(Silence),
	}
	defer c.quiet.Stop()
	err := c.collect(ctx, pending)
	if err == nil {
		err = <-written
	}
	if err == nil {
		messages.confirmed(ctx, answers)
		if c.first == nil {
			p.release()
			return nil
		}
		if p.ch.IsClosed() {
			return p.reason(amqp091.ErrClosed)
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
func (p *publisher) write(ctx context.Context, messages post, places []int, pending chan<- sent) error {
	for _, place := range places {
		key, m := messages.form(place)
		m.DeliveryMode = amqp091.Persistent
		dc, err := p.ch.PublishWithDeferredConfirmWithContext(ctx, p.s.b.o.Exchange, key, true, false, m)
		if err != nil {
			return err
		}
		select {
		case pending <- sent{place, route{key, m.MessageId}, dc}:
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
		if closed != nil && closed.Code == amqp091.NotFound {
			// Somebody has deleted the exchange, and so all bindings.
			p.s.forgetAll()
			p.s.askAgain()
		}
		p.s.learnLargest(closed)
		if closed != nil && p.s.alive() {
			return tasker.Errorf(tasker.Unavailable, "the message broker closed the channel: %w", closed)
		}
	default:
	}
	if tasker.CodeOf(err) == tasker.Unavailable {
		return err
	}
	if errors.Is(err, amqp091.ErrClosed) || !p.s.alive() {
		return p.s.lostError()
	}
	return tasker.Errorf(tasker.Unavailable, "the message broker did not confirm in time: %w", err)
}

// A collector matches confirmations with messages.
type collector struct {
	p        *publisher
	messages post
	answers  []error
	returned map[route]bool
	first    error       // why one was refused
	quiet    *time.Timer // runs while nothing is confirmed
}

// collect waits for all confirmations. An error says that it gave up.
func (c *collector) collect(ctx context.Context, pending <-chan sent) error {
	for {
		select {
		case m, ok := <-pending:
			if !ok {
				return nil
			}
			c.quiet.Reset(Silence)
			err := c.wait(ctx, m)
			c.judge(m)
			if errors.Is(err, errSilence) {
				return c.messages.silent(ctx, m.place)
			}
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-c.p.s.gone:
			return amqp091.ErrClosed
		}
	}
}

// errSilence says that a confirmation did not come.
var errSilence = errors.New("no confirmation")

// wait waits for one confirmation.
func (c *collector) wait(ctx context.Context, m sent) error {
	select {
	case <-m.dc.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.quiet.C:
		return errSilence
	case <-c.p.s.gone:
		return amqp091.ErrClosed
	}
}

// judge records the outcome of one message, if known.
func (c *collector) judge(m sent) {
	select {
	case <-m.dc.Done():
	default:
		return
	}
	acked := m.dc.Acked()
	c.drain() // a message is returned before it is confirmed
	var err error
	switch {
	case acked && c.returned[m.route]:
		err = c.messages.unroutable(m.place)
	case !acked && c.p.ch.IsClosed():
		err = errUnanswered
	case !acked:
		err = c.messages.notTaken(m.place)
	}
	c.answers[m.place] = err
	if c.first == nil {
		c.first = err
	}
}

// sweep records the answers to those that nobody waits for any longer.
func (c *collector) sweep(pending <-chan sent) {
	for {
		select {
		case m, ok := <-pending:
			if !ok {
				return
			}
			c.judge(m)
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
