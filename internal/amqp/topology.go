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
func describeExchange(name string) string     { return fmt.Sprintf("exchange %q", name) }
func describeQueue(name string) string        { return fmt.Sprintf("queue %q", name) }
func describeUnresponsive(name string) string { return "confirmations of " + describeQueue(name) }

// declareShared declares the shared exchanges and queues and records refusals. An error means that
// there is no connection.
func (s *session) declareShared(ctx context.Context) error {
	o := s.b.o
	declare := []brokerObject{s.b.newExchange(o.Exchange)}
	if o.DeadLetter.Enabled {
		declare = append(declare, s.b.newExchange(o.DeadLetter.Exchange), s.b.newDeadLetterQueue())
	}
	refused := false
	for _, t := range declare {
		err := s.declare(ctx, t)
		if err != nil && !isDeclareRejection(err) {
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

// ensureQueue declares the work queue of a namespace once per connection.
func (s *session) ensureQueue(ctx context.Context, namespace string) error {
	s.mu.Lock()
	d := s.declared[namespace]
	owner := d == nil || d.isStale()
	if owner {
		d = &declaration{done: make(chan struct{})}
		s.declared[namespace] = d
	}
	s.mu.Unlock()
	if owner {
		d.err = s.declare(ctx, s.b.newWorkQueue(namespace))
		d.at, d.ttl = time.Now(), refusalBackoff
		if d.err != nil && !isDeclareRejection(d.err) {
			s.forgetDeclaration(namespace) // retry on the next call
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

// recordFailure treats the queue of a namespace as unavailable for silenceBackoff and returns the
// error.
func (s *session) recordFailure(ctx context.Context, namespace string) error {
	if reason := s.blocked.Load(); reason != nil {
		return newBlockedError(*reason) // no queue confirms anything
	}
	name := QueueName(namespace)
	err := tasker.Errorf(tasker.Unavailable,
		"%s confirms no messages: if rabbitmq-queues quorum_status %s%s shows no leader, "+
			"a crash has broken it (RabbitMQ may not recover a queue created shortly before a crash); %s",
		describeQueue(name), quoteShell(name), s.b.formatVhostFlag(), s.b.newWorkQueue(namespace).remedy)
	s.b.recordError(ctx, describeUnresponsive(name), err)
	s.cacheError(namespace, err, silenceBackoff)
	return err
}

// checkDeclared returns the error for a message that reached no queue because the queue or its
// binding was deleted. It delays recreating the queue, because RabbitMQ does not notify consumers
// if their queue is immediately recreated.
func (s *session) checkDeclared(namespace string) error {
	err := tasker.Errorf(tasker.Unavailable, "no queue accepted a message: %s is missing and will be recreated",
		describeQueue(QueueName(namespace)))
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

// isStale reports whether a cached error has expired.
func (d *declaration) isStale() bool {
	select {
	case <-d.done:
		return d.err != nil && time.Since(d.at) > d.ttl
	default:
		return false
	}
}

// forgetDeclaration makes the next use of a namespace declare its queue again.
func (s *session) forgetDeclaration(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.declared, namespace)
}

// forgetDeclarations is like forget for all namespaces.
func (s *session) forgetDeclarations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.declared)
}

// brokerObject is an exchange or a queue with its bindings.
type brokerObject struct {
	noun    string
	declare func(*amqp091.Channel) error
	remedy  string // instruction to delete it
}

func (b *Broker) newExchange(name string) brokerObject {
	return brokerObject{
		noun: describeExchange(name),
		declare: func(ch *amqp091.Channel) error {
			return ch.ExchangeDeclare(name, amqp091.ExchangeTopic, true, false, false, false, nil)
		},
		remedy: "delete the exchange, and Tasker recreates it and its bindings: rabbitmqctl eval " +
			quoteShell(`rabbit_exchange:delete(rabbit_misc:r(<<"`+b.vhost+`">>, exchange, <<"`+name+`">>), false, <<"operator">>).`),
	}
}

// formatVhostFlag returns the flag that selects the virtual host in RabbitMQ commands, or "" for
// the default host /.
func (b *Broker) formatVhostFlag() string {
	if b.vhost == "/" {
		return ""
	}
	return " --vhost " + quoteShell(b.vhost)
}

func (b *Broker) newQueue(name string, args amqp091.Table, exchange, key string) brokerObject {
	return brokerObject{
		noun: describeQueue(name),
		declare: func(ch *amqp091.Channel) error {
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				return err
			}
			return ch.QueueBind(name, key, exchange, false, nil)
		},
		remedy: "once it is empty, delete the queue, and Tasker recreates it: rabbitmqctl delete_queue " + quoteShell(name) + b.formatVhostFlag(),
	}
}

func (b *Broker) newDeadLetterQueue() brokerObject {
	d := b.o.DeadLetter
	return b.newQueue(b.DeadLetterQueue(), amqp091.Table{
		amqp091.QueueTypeArg:       amqp091.QueueTypeQuorum,
		amqp091.QueueMessageTTLArg: d.TTL.Milliseconds(),
		"x-delivery-limit":         int64(deadLetterDeliveries),
	}, d.Exchange, "#")
}

// newWorkQueue returns the queue of a namespace. The at-least-once strategy keeps a dead letter
// until the dead-letter queue has stored it; RabbitMQ supports it only for quorum queues that
// reject messages when they are full.
func (b *Broker) newWorkQueue(namespace string) brokerObject {
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
	return b.newQueue(QueueName(namespace), args, b.o.Exchange, RoutingKey(namespace))
}

// declare declares an exchange or a queue and records the result.
func (s *session) declare(ctx context.Context, t brokerObject) error {
	err := s.withChannel(ctx, t.declare)
	if err != nil && isDeclareRejection(err) {
		err = s.b.explainRejection(t, err)
	}
	if err == nil || isDeclareRejection(err) {
		s.b.recordError(ctx, t.noun, err)
		return err
	}
	return fmt.Errorf("declare %s: %w", t.noun, err)
}

// isDeclareRejection reports whether err means that the broker refused a declaration.
func isDeclareRejection(err error) bool {
	e, ok := errors.AsType[*amqp091.Error](err)
	if !ok {
		return false
	}
	return slices.Contains([]int{
		amqp091.PreconditionFailed, amqp091.AccessRefused, amqp091.NotFound, amqp091.ResourceLocked,
	}, e.Code)
}

// explainRejection explains a refusal and how to fix it.
func (b *Broker) explainRejection(t brokerObject, err error) error {
	e, _ := errors.AsType[*amqp091.Error](err)
	reason := strings.TrimPrefix(e.Reason, "PRECONDITION_FAILED - ")
	err = &confirmError{reason, e}
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
				"rabbitmqctl set_permissions USER '.*' '.*' '.*'%s", t.noun, reason, b.formatVhostFlag()),
		}
	}
	return &tasker.Error{
		Code: tasker.Unavailable, Err: err,
		Message: fmt.Sprintf("cannot declare %s: %s", t.noun, reason),
	}
}

// confirmError wraps an error of the broker whose text the message already quotes, so that it is
// not repeated.
type confirmError struct {
	text string
	err  *amqp091.Error
}

func (a *confirmError) Error() string { return a.text }
func (a *confirmError) Unwrap() error { return a.err }

// quoteShell quotes a word for a shell.
func quoteShell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
