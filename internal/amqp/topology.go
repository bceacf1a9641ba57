package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

const (
	deadLetterSuffix = ".queue"

	// deadLetterDeliveries keeps the dead-letter queue from dropping messages. RabbitMQ 4 drops
	// them after 20 deliveries.
	deadLetterDeliveries = 1_000_000

	// refusalBackoff is the time for which a refusal is cached, because the broker logs every
	// refused attempt.
	refusalBackoff = 2 * time.Second

	// silenceBackoff is the time for which a queue that confirms nothing is skipped, because each
	// attempt delays other messages.
	silenceBackoff = 30 * time.Second
)

// declaration is the result of declaring the work queue of a namespace.
type declaration struct {
	done chan struct{} // closed when the result is known
	err  error
	at   time.Time
	ttl  time.Duration // of an error
}

// DeadLetterQueue returns the name of the dead-letter queue.
func (b *Broker) DeadLetterQueue() string { return b.o.DeadLetter.Exchange + deadLetterSuffix }

// The nouns identify exchanges and queues in errors and in the log.
func exchangeNoun(name string) string { return fmt.Sprintf("exchange %q", name) }
func queueNoun(name string) string    { return fmt.Sprintf("queue %q", name) }
func silentNoun(name string) string   { return "confirmations of " + queueNoun(name) }

// declareShared declares the shared exchanges and queues and records refusals. An error means that
// there is no connection.
func (s *session) declareShared(ctx context.Context) error {
	o := s.b.o
	declare := []thing{s.b.exchange(o.Exchange)}
	if o.DeadLetter.Enabled {
		declare = append(declare, s.b.exchange(o.DeadLetter.Exchange), s.b.deadLetterQueue())
	}
	refused := false
	for _, t := range declare {
		err := s.declare(ctx, t)
		if err != nil && !isRefusal(err) {
			return err
		}
		refused = refused || err != nil
	}
	if refused {
		time.AfterFunc(refusalBackoff, s.requestDeclare)
	}
	return nil
}

// requestDeclare makes Run declare the shared exchanges and queues again.
func (s *session) requestDeclare() {
	select {
	case s.redeclare <- struct{}{}:
	default: // already requested
	}
}

// ensure declares the work queue of a namespace once per connection.
func (s *session) ensure(ctx context.Context, namespace string) error {
	s.mu.Lock()
	d := s.declared[namespace]
	owner := d == nil || d.stale()
	if owner {
		d = &declaration{done: make(chan struct{})}
		s.declared[namespace] = d
	}
	s.mu.Unlock()
	if owner {
		d.err = s.declare(ctx, s.b.workQueue(namespace))
		d.at, d.ttl = time.Now(), refusalBackoff
		if d.err != nil && !isRefusal(d.err) {
			s.forget(namespace) // retry on the next call
		}
		close(d.done)
	}
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// giveUp treats the queue of a namespace as unavailable for silenceBackoff and returns the error.
func (s *session) giveUp(ctx context.Context, namespace string) error {
	if reason := s.blocked.Load(); reason != nil {
		return blockedError(*reason) // no queue confirms anything
	}
	name := QueueOf(namespace)
	err := tasker.Errorf(tasker.Unavailable,
		"%s confirms no messages: if rabbitmq-queues quorum_status %s%s shows no leader, "+
			"a crash has broken it (RabbitMQ may not recover a queue created shortly before a crash); %s",
		queueNoun(name), quote(name), s.b.vhostFlag(), s.b.workQueue(namespace).remedy)
	s.b.note(ctx, silentNoun(name), err)
	s.cacheError(namespace, err, silenceBackoff)
	return err
}

// missing returns the error for a message that reached no queue because the queue or its binding
// was deleted. It delays recreating the queue, because RabbitMQ does not notify consumers if their
// queue is immediately recreated.
func (s *session) missing(namespace string) error {
	err := tasker.Errorf(tasker.Unavailable, "no queue accepted a message: %s is missing and will be recreated",
		queueNoun(QueueOf(namespace)))
	s.cacheError(namespace, err, refusalBackoff)
	return err
}

// cacheError makes ensure return err for a while.
func (s *session) cacheError(namespace string, err error, ttl time.Duration) {
	d := &declaration{done: make(chan struct{}), err: err, at: time.Now(), ttl: ttl}
	close(d.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declared[namespace] = d
}

// stale reports whether a cached error has expired.
func (d *declaration) stale() bool {
	select {
	case <-d.done:
		return d.err != nil && time.Since(d.at) > d.ttl
	default:
		return false
	}
}

// forget makes the next use of a namespace declare its queue again.
func (s *session) forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.declared, namespace)
}

// forgetAll is like forget for all namespaces.
func (s *session) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.declared)
}

// thing is an exchange or a queue with its bindings.
type thing struct {
	noun    string
	declare func(*amqp091.Channel) error
	remedy  string // instruction to delete it
}

func (b *Broker) exchange(name string) thing {
	return thing{
		noun: exchangeNoun(name),
		declare: func(ch *amqp091.Channel) error {
			return ch.ExchangeDeclare(name, amqp091.ExchangeTopic, true, false, false, false, nil)
		},
		remedy: "delete the exchange, and Tasker recreates it and its bindings: rabbitmqctl eval " +
			quote(`rabbit_exchange:delete(rabbit_misc:r(<<"`+b.vhost+`">>, exchange, <<"`+name+`">>), false, <<"operator">>).`),
	}
}

// vhostFlag returns the flag that selects the virtual host in RabbitMQ commands, or "" for the
// default host /.
func (b *Broker) vhostFlag() string {
	if b.vhost == "/" {
		return ""
	}
	return " --vhost " + quote(b.vhost)
}

func (b *Broker) queue(name string, args amqp091.Table, exchange, key string) thing {
	return thing{
		noun: queueNoun(name),
		declare: func(ch *amqp091.Channel) error {
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				return err
			}
			return ch.QueueBind(name, key, exchange, false, nil)
		},
		remedy: "once it is empty, delete the queue, and Tasker recreates it: rabbitmqctl delete_queue " + quote(name) + b.vhostFlag(),
	}
}

func (b *Broker) deadLetterQueue() thing {
	d := b.o.DeadLetter
	return b.queue(b.DeadLetterQueue(), amqp091.Table{
		amqp091.QueueTypeArg:       amqp091.QueueTypeQuorum,
		amqp091.QueueMessageTTLArg: d.TTL.Milliseconds(),
		"x-delivery-limit":         int64(deadLetterDeliveries),
	}, d.Exchange, "#")
}

// workQueue returns the queue of a namespace. The at-least-once strategy keeps a dead letter until
// the dead-letter queue has stored it; RabbitMQ supports it only for quorum queues that reject
// messages when they are full.
func (b *Broker) workQueue(namespace string) thing {
	args := amqp091.Table{
		amqp091.QueueTypeArg:       amqp091.QueueTypeQuorum,
		amqp091.QueueMessageTTLArg: b.o.QueueTTL.Milliseconds(),
		amqp091.QueueOverflowArg:   amqp091.QueueOverflowRejectPublish,
		"x-delivery-limit":         int64(b.o.DeliverLimit),
	}
	if b.o.DeadLetter.Enabled {
		args["x-dead-letter-exchange"] = b.o.DeadLetter.Exchange
		args["x-dead-letter-strategy"] = "at-least-once"
	}
	return b.queue(QueueOf(namespace), args, b.o.Exchange, RoutingKey(namespace))
}

// declare declares an exchange or a queue and records the result.
func (s *session) declare(ctx context.Context, t thing) error {
	err := s.do(ctx, t.declare)
	if err != nil && isRefusal(err) {
		err = s.b.refusal(t, err)
	}
	if err == nil || isRefusal(err) {
		s.b.note(ctx, t.noun, err)
		return err
	}
	return fmt.Errorf("declare %s: %w", t.noun, err)
}

// isRefusal reports whether err means that the broker refused a declaration.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*amqp091.Error](err)
	if !ok {
		return false
	}
	return slices.Contains([]int{
		amqp091.PreconditionFailed, amqp091.AccessRefused, amqp091.NotFound, amqp091.ResourceLocked,
	}, e.Code)
}

// refusal explains a refusal and how to fix it.
func (b *Broker) refusal(t thing, err error) error {
	e, _ := errors.AsType[*amqp091.Error](err)
	reason := strings.TrimPrefix(e.Reason, "PRECONDITION_FAILED - ")
	err = &answer{reason, e}
	switch e.Code {
	case amqp091.PreconditionFailed:
		if !strings.Contains(reason, "inequivalent") {
			break
		}
		return &tasker.Error{
			Code: tasker.Conflict, Err: err,
			Message: fmt.Sprintf("%s exists with different settings (%s), which RabbitMQ cannot change: "+
				"restore the Tasker settings it was created with, or %s", t.noun, reason, t.remedy),
		}
	case amqp091.AccessRefused:
		return &tasker.Error{
			Code: tasker.Forbidden, Err: err,
			Message: fmt.Sprintf("permission to declare %s denied (%s): grant Tasker's user configure, write "+
				"and read: "+
				"rabbitmqctl set_permissions USER '.*' '.*' '.*'%s", t.noun, reason, b.vhostFlag()),
		}
	}
	return &tasker.Error{
		Code: tasker.Unavailable, Err: err,
		Message: fmt.Sprintf("cannot declare %s: %s", t.noun, reason),
	}
}

// answer wraps an error of the broker whose text the message already quotes, so that it is not
// repeated.
type answer struct {
	text string
	err  *amqp091.Error
}

func (a *answer) Error() string { return a.text }
func (a *answer) Unwrap() error { return a.err }

// quote quotes a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
