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
	// answerTimeout is the default timeout of a response.
	answerTimeout = 10 * time.Second

	// settleTimeout limits how long a consumer or the connection waits for unsettled deliveries
	// before it ends.
	settleTimeout = 5 * time.Second

	// closeTimeout is the timeout for closing the connection.
	closeTimeout = time.Second
)

// session is one connection, from the handshake to its loss.
type session struct {
	b    *Broker
	conn *amqp091.Connection
	raw  net.Conn

	gone      chan struct{} // closed when the connection is lost or closed
	cause     error         // valid after gone
	closing   chan struct{} // closed when the session is about to end
	redeclare chan struct{} // requests that shared exchanges and queues are declared again
	blocked   atomic.Pointer[string]
	largest   atomic.Int64 // maximum message size in bytes; 0 if unknown

	mu        sync.Mutex
	ended     bool
	declared  map[string]*declaration // by namespace
	idle      []*publisher
	calls     sync.WaitGroup // goroutines that wait for the broker
	consumers sync.WaitGroup // subscriptions
}

// deadlineConn limits the duration of each write, because a blocked write holds the locks of the
// connection.
type deadlineConn struct {
	net.Conn
	timeout time.Duration
}

func (c *deadlineConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// dial connects. It aborts when ctx ends.
func (b *Broker) dial(ctx context.Context) (*session, error) {
	s := &session{
		b: b, gone: make(chan struct{}), closing: make(chan struct{}), redeclare: make(chan struct{}, 1),
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
			s.raw = &deadlineConn{Conn: raw, timeout: max(2*b.o.Heartbeat, time.Second)}
			return s.raw, raw.SetDeadline(deadline) // the client removes it after the handshake
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

// watch records when the connection ends, why, and whether the broker blocks publishing.
func (s *session) watch(closed <-chan *amqp091.Error, blocked <-chan amqp091.Blocking) {
	for {
		select {
		case err := <-closed:
			s.cause = errors.New("closed")
			if err != nil {
				s.cause = err
			}
			// The client closes its channels before the socket and would wait forever for a blocked
			// write.
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

// isAlive reports whether the session can be used. It also asks the client, which cancels waiting
// calls before it announces that the connection is lost.
func (s *session) isAlive() bool {
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

// lostError returns the reason for the end of the connection.
func (s *session) lostError() error {
	if s.conn.IsClosed() {
		<-s.gone // closed soon
	}
	select {
	case <-s.gone:
		return tasker.Errorf(tasker.Unavailable, "the connection to the message broker was lost: %w", s.cause)
	default:
		return tasker.Errorf(tasker.Unavailable, "the connection to the message broker is being closed")
	}
}

func newBlockedError(reason string) error {
	return tasker.Errorf(tasker.Unavailable, "the message broker has blocked publishing (%s): "+
		"check rabbitmqctl list_connections name state and the memory and disk alarms", reason)
}

// quiesce stops the consumers and waits until they have ended.
func (s *session) quiesce() {
	s.mu.Lock()
	s.ended = true // rejects new consumers
	s.mu.Unlock()
	close(s.closing)
	done := make(chan struct{})
	go func() {
		s.consumers.Wait()
		close(done)
	}()
	timer := time.NewTimer(settleTimeout + closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-s.gone:
	case <-timer.C:
	}
}

// close closes the connection and waits for its goroutines.
func (s *session) close() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	hurry := time.AfterFunc(closeTimeout, func() { _ = s.raw.Close() })
	_ = s.conn.Close() // it may be closed already
	hurry.Stop()
	_ = s.raw.Close()
	<-s.gone
	s.calls.Wait()
}

// beginUse registers a consumer. It returns false if the session is about to end.
func (s *session) beginUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.consumers.Add(1)
	return true
}

// spawn runs f in a goroutine for which end waits. It returns false if the session has ended.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.calls.Go(f)
	return true
}

// openChannel opens a channel and calls prepare. It returns an error when ctx ends.
func (s *session) openChannel(ctx context.Context, prepare func(*amqp091.Channel) error) (*amqp091.Channel, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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
				_ = ch.Close() // usually the broker has closed it
			}
		}
		select {
		case results <- result{ch, err}:
		case <-ctx.Done():
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
		return nil, tasker.Errorf(tasker.Unavailable, "the message broker did not respond: %w", ctx.Err())
	}
}

// withChannel calls f with a temporary channel. It returns an error when ctx ends.
func (s *session) withChannel(ctx context.Context, f func(*amqp091.Channel) error) error {
	_, err := s.openChannel(ctx, func(ch *amqp091.Channel) error {
		if err := f(ch); err != nil {
			return err
		}
		return ch.Close()
	})
	return err
}

// Depth returns the number of ready messages and consumers of a queue, or NotFound.
func (b *Broker) Depth(ctx context.Context, queue string) (messages, consumers int, err error) {
	s, err := b.currentSession()
	if err != nil {
		return 0, 0, err
	}
	return s.queueDepth(ctx, queue)
}

func (s *session) queueDepth(ctx context.Context, queue string) (messages, consumers int, err error) {
	var q amqp091.Queue
	err = s.withChannel(ctx, func(ch *amqp091.Channel) (err error) {
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
