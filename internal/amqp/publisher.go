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
	// window limits the unconfirmed messages of one call. A quorum queue writes many messages to
	// disk together, so waiting for each one would be thirty times slower.
	window = 500

	// Silence is the time for which a call waits for one confirmation before it treats the queue
	// as unavailable. A call with a shorter deadline cannot detect which queue is unavailable.
	Silence = 5 * time.Second

	// maxIdle limits the channels that stay open for later calls.
	maxIdle = 8
)

// outgoing is a batch of messages, addressed by their index, with the errors for those that fail.
type outgoing interface {
	// buildMessage returns the message to publish and its routing key.
	buildMessage(index int) (key string, m amqp091.Publishing)

	// unroutableError returns the error for a message that reached no queue.
	unroutableError(index int) error

	// nackError returns the error for a message that a queue rejected.
	nackError(index int) error

	// timeoutError returns the error for a message that the broker neither confirmed nor rejected.
	timeoutError(ctx context.Context, index int) error

	// recordConfirms is called at the end with the result for each message.
	recordConfirms(ctx context.Context, answers []error)
}

// errUnanswered is the result of a message that is not confirmed yet.
var errUnanswered = errors.New("not confirmed")

// newErrors returns a slice of errUnanswered.
func newErrors(messages int) []error {
	answers := make([]error, messages)
	for i := range answers {
		answers[i] = errUnanswered
	}
	return answers
}

// publisher is a channel in confirm mode. One call uses it at a time.
type publisher struct {
	s       *session
	ch      *amqp091.Channel
	returns chan amqp091.Return // unroutable messages
	closed  chan *amqp091.Error // why the broker closed the channel
}

// acquirePublisher returns an idle publisher, or opens one.
func (s *session) acquirePublisher(ctx context.Context) (*publisher, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		p := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return p, nil
	}
	s.mu.Unlock()
	p := &publisher{s: s}
	ch, err := s.openChannel(ctx, func(ch *amqp091.Channel) error {
		// Room for all unconfirmed messages: if the client blocked here, it would block the whole
		// connection.
		p.returns = ch.NotifyReturn(make(chan amqp091.Return, 2*window))
		p.closed = ch.NotifyClose(make(chan *amqp091.Error, 1))
		return ch.Confirm(false)
	})
	if err != nil {
		return nil, fmt.Errorf("open a publishing channel: %w", err)
	}
	p.ch = ch
	return p, nil
}

// pendingMessage is a published message that is not confirmed yet.
type pendingMessage struct {
	index int
	route route
	dc    *amqp091.DeferredConfirmation
}

// route identifies a message that the broker returned.
type route struct{ key, id string }

// publish sends messages and records the answers. err is nil if all are confirmed. Writing can
// block, so another goroutine does it.
func (p *publisher) publish(ctx context.Context, messages outgoing, indexes []int, answers []error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pending := make(chan pendingMessage, window)
	written := make(chan error, 1)
	spawned := p.s.spawn(func() {
		written <- p.write(ctx, messages, indexes, pending)
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
		messages.recordConfirms(ctx, answers)
		if c.first == nil {
			p.release()
			return nil
		}
		if p.ch.IsClosed() {
			return p.wrapError(amqp091.ErrClosed)
		}
		p.discard() // the broker's end of the channel refers to the deleted queue
		return c.first
	}
	stop()
	c.drainPending(pending)
	p.discard()
	return p.wrapError(err)
}

// write sends messages in order and blocks while pending is full.
func (p *publisher) write(ctx context.Context, messages outgoing, indexes []int, pending chan<- pendingMessage) error {
	for _, index := range indexes {
		key, m := messages.buildMessage(index)
		m.DeliveryMode = amqp091.Persistent
		dc, err := p.ch.PublishWithDeferredConfirmWithContext(ctx, p.s.b.o.Exchange, key, true, false, m)
		if err != nil {
			return err
		}
		select {
		case pending <- pendingMessage{index, route{key, m.MessageId}, dc}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// release makes the publisher available to the next call, or closes it if it is unusable or enough
// others are idle.
func (p *publisher) release() {
	s := p.s
	s.mu.Lock()
	reusable := len(s.idle) < maxIdle && !p.ch.IsClosed()
	if reusable {
		s.idle = append(s.idle, p)
	}
	s.mu.Unlock()
	if !reusable {
		p.discard()
	}
}

// discard closes the channel in the background.
func (p *publisher) discard() {
	p.s.spawn(func() { _ = p.ch.Close() }) // without a session the channel is already closed
}

// wrapError returns an Unavailable error that explains why publishing failed. It prefers the reason
// that the broker stated to err.
func (p *publisher) wrapError(err error) error {
	select {
	case closed := <-p.closed:
		if closed != nil && closed.Code == amqp091.NotFound { // the exchange was deleted, and all bindings with it
			p.s.forgetDeclarations()
			p.s.requestDeclare()
		}
		p.s.recordMaxMessageSize(closed)
		if closed != nil && p.s.isAlive() {
			return tasker.Errorf(tasker.Unavailable, "the message broker closed the channel: %w", closed)
		}
	default:
	}
	if tasker.CodeOf(err) == tasker.Unavailable {
		return err
	}
	if errors.Is(err, amqp091.ErrClosed) || !p.s.isAlive() {
		return p.s.lostError()
	}
	return tasker.Errorf(tasker.Unavailable, "the message broker did not confirm in time: %w", err)
}

// collector assigns confirmations to messages.
type collector struct {
	p        *publisher
	messages outgoing
	answers  []error
	returned map[route]bool
	first    error       // first rejection
	quiet    *time.Timer // runs while there are no confirmations
}

// collect waits for all confirmations. It returns an error if it gave up.
func (c *collector) collect(ctx context.Context, pending <-chan pendingMessage) error {
	for {
		select {
		case m, ok := <-pending:
			if !ok {
				return nil
			}
			c.quiet.Reset(Silence)
			err := c.wait(ctx, m)
			c.record(m)
			if errors.Is(err, errSilence) {
				return c.messages.timeoutError(ctx, m.index)
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

// errSilence means that a confirmation did not arrive in time.
var errSilence = errors.New("no confirmation")

func (c *collector) wait(ctx context.Context, m pendingMessage) error {
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

// record stores the result of a message, if it is known.
func (c *collector) record(m pendingMessage) {
	select {
	case <-m.dc.Done():
	default:
		return
	}
	acked := m.dc.Acked()
	c.drain() // the broker returns a message before it confirms it
	var err error
	switch {
	case acked && c.returned[m.route]:
		err = c.messages.unroutableError(m.index)
	case !acked && c.p.ch.IsClosed():
		err = errUnanswered
	case !acked:
		err = c.messages.nackError(m.index)
	}
	c.answers[m.index] = err
	if c.first == nil {
		c.first = err
	}
}

// drainPending records the confirmations that have arrived, without waiting.
func (c *collector) drainPending(pending <-chan pendingMessage) {
	for {
		select {
		case m, ok := <-pending:
			if !ok {
				return
			}
			c.record(m)
		default:
			return
		}
	}
}

// drain reads which messages the broker returned.
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
