package amqp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

const (
	// answerPatience bounds one answer of the broker when nothing else does.
	answerPatience = 10 * time.Second

	// settlePatience is how long the end of a consumer, or of the connection,
	// waits for deliveries that are in hand.
	settlePatience = 5 * time.Second

	// closePatience is how long closing the connection may take.
	closePatience = time.Second
)

// A session is one connection, from its handshake to its loss.
type session struct {
	b    *Broker
	conn *amqp091.Connection
	raw  net.Conn

	gone    chan struct{} // closed when the connection is lost or closed
	cause   error         // why; to be read after gone
	closing chan struct{} // closed when the session is about to end
	again   chan struct{} // asks for the shared things to be declared again
	blocked atomic.Pointer[string]
	largest atomic.Int64 // bytes of a message that the broker takes; 0: not known

	mu        sync.Mutex
	ended     bool
	declared  map[string]*declaration // by namespace
	idle      []*publisher
	calls     sync.WaitGroup // goroutines that wait for the broker
	consumers sync.WaitGroup // subscriptions
}

// patientConn times out blocked writes, which would hold the connection's locks forever.
type patientConn struct {
	net.Conn
	patience time.Duration
}

func (c *patientConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// dial connects, and gives up when ctx ends.
func (b *Broker) dial(ctx context.Context) (*session, error) {
	s := &session{
		b:        b,
		gone:     make(chan struct{}),
		closing:  make(chan struct{}),
		again:    make(chan struct{}, 1),
		declared: map[string]*declaration{},
	}
	properties := amqp091.NewConnectionProperties()
	properties.SetClientConnectionName(b.o.Name)
	stopClosing := func() bool { return true }
	conn, err := amqp091.DialConfig(b.o.URL, amqp091.Config{
		Heartbeat:  b.o.Heartbeat,
		Properties: properties,
		Dial: func(network, address string) (net.Conn, error) {
			deadline := time.Now().Add(b.o.DialTimeout)
			raw, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			stopClosing = context.AfterFunc(ctx, func() { _ = raw.Close() })
			s.raw = &patientConn{Conn: raw, patience: max(2*b.o.Heartbeat, time.Second)}
			return s.raw, raw.SetDeadline(deadline) // the client lifts it after the handshake
		},
	})
	stopClosing()
	if err != nil {
		if s.raw != nil {
			_ = s.raw.Close()
		}
		return nil, err
	}
	s.conn = conn
	go s.watch(conn.NotifyClose(make(chan *amqp091.Error, 1)), conn.NotifyBlocked(make(chan amqp091.Blocking, 1)))
	return s, nil
}

// watch waits for the end of the connection.
func (s *session) watch(closed <-chan *amqp091.Error, blocked <-chan amqp091.Blocking) {
	for {
		select {
		case err := <-closed:
			if err != nil {
				s.cause = err
			} else {
				s.cause = errors.New("closed")
			}
			// The client frees its channels before its socket, and would wait
			// for ever for one that is in the middle of a write.
			_ = s.raw.Close()
			close(s.gone)
			return
		case block, ok := <-blocked:
			if !ok {
				blocked = nil
			} else if block.Active {
				s.blocked.Store(&block.Reason)
			} else {
				s.blocked.Store(nil)
			}
		}
	}
}

// alive reports whether the session can still be used. The client gives up all that waits for an
// answer before it tells that the connection is lost.
func (s *session) alive() bool {
	if s.conn.IsClosed() {
		return false
	}
	select {
	case <-s.gone:
		return false
	case <-s.closing:
		return false
	default:
		return true
	}
}

// lostError says that the connection was lost, and why.
func (s *session) lostError() error {
	if s.conn.IsClosed() {
		<-s.gone // in a moment
	}
	select {
	case <-s.gone:
		return tasker.Errorf(tasker.Unavailable, "the connection to the message broker was lost: %w", s.cause)
	default:
		return tasker.Errorf(tasker.Unavailable, "the connection to the message broker is being closed")
	}
}

func blockedError(reason string) error {
	return tasker.Errorf(tasker.Unavailable, "the message broker takes no messages now (%s): "+
		"see rabbitmqctl list_connections name state, and its alarms for memory and disk", reason)
}

// quiesce tells the consumers to end, and waits for them.
func (s *session) quiesce() {
	s.mu.Lock()
	s.ended = true // no consumer begins now
	s.mu.Unlock()
	close(s.closing)
	done := make(chan struct{})
	go func() {
		s.consumers.Wait()
		close(done)
	}()
	timer := time.NewTimer(settlePatience + closePatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-s.gone:
	case <-timer.C:
	}
}

// end closes the connection and waits for all users.
func (s *session) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	hurry := time.AfterFunc(closePatience, func() { _ = s.raw.Close() })
	_ = s.conn.Close() // closed before: then that is what we want
	hurry.Stop()
	_ = s.raw.Close()
	<-s.gone
	s.calls.Wait()
}

// enter counts a consumer in, unless the session is about to end.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.consumers.Add(1)
	return true
}

// spawn starts f; false if the session has ended.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.calls.Go(f)
	return true
}

// open opens and prepares a channel, or returns when ctx ends.
func (s *session) open(ctx context.Context, prepare func(*amqp091.Channel) error) (*amqp091.Channel, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	type result struct {
		ch  *amqp091.Channel
		err error
	}
	results := make(chan result)
	spawned := s.spawn(func() {
		ch, err := s.conn.Channel()
		if err == nil {
			if err = prepare(ch); err != nil {
				_ = ch.Close() // the broker has closed it, most often
			}
		}
		select {
		case results <- result{ch, err}:
		case <-ctx.Done(): // nobody wants it any more
			if err == nil {
				_ = ch.Close()
			}
		}
	})
	if !spawned {
		return nil, s.lostError()
	}
	select {
	case r := <-results:
		if r.err != nil && errors.Is(r.err, amqp091.ErrClosed) {
			return nil, s.lostError()
		}
		return r.ch, r.err
	case <-ctx.Done():
		return nil, tasker.Errorf(tasker.Unavailable, "the message broker did not answer: %w", ctx.Err())
	}
}

// do calls f with a temporary channel, or returns when ctx ends.
func (s *session) do(ctx context.Context, f func(*amqp091.Channel) error) error {
	_, err := s.open(ctx, func(ch *amqp091.Channel) error {
		if err := f(ch); err != nil {
			return err
		}
		return ch.Close()
	})
	return err
}

// Depth returns the ready messages and consumers of a queue, or NotFound.
func (b *Broker) Depth(ctx context.Context, queue string) (messages, consumers int, err error) {
	s, err := b.current()
	if err != nil {
		return 0, 0, err
	}
	return s.depth(ctx, queue)
}

func (s *session) depth(ctx context.Context, queue string) (messages, consumers int, err error) {
	var q amqp091.Queue
	err = s.do(ctx, func(ch *amqp091.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	if refused, ok := errors.AsType[*amqp091.Error](err); ok && refused.Code == amqp091.NotFound {
		return 0, 0, tasker.Errorf(tasker.NotFound, "the message broker has no queue %q", queue)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("depth of queue %q: %w", queue, err)
	}
	return q.Messages, q.Consumers, nil
}
