package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

const (
	deadLetterSuffix = ".queue"

	// deadLetterDeliveries is so large that the dead-letter queue never drops a
	// message for having delivered it too often. RabbitMQ 4 would do so after 20.
	deadLetterDeliveries = 1_000_000

	// refusalRest is how long a refusal is believed before the broker is asked
	// again: each time it writes to its log, too.
	refusalRest = 2 * time.Second

	// silenceRest is how long a queue that confirms nothing is left alone: each
	// new attempt holds up the messages that are sent with it.
	silenceRest = 30 * time.Second
)

// A declaration is what came of declaring the work queue of a namespace.
type declaration struct {
	done chan struct{} // closed when it is known
	err  error
	at   time.Time
	rest time.Duration // for which an error is believed
}

// DeadLetterQueue returns the name of the queue where dead letters wait.
func (b *Broker) DeadLetterQueue() string { return b.o.DeadLetter.Exchange + deadLetterSuffix }

// The nouns name things in errors and in the log.
func exchangeNoun(name string) string { return fmt.Sprintf("exchange %q", name) }
func queueNoun(name string) string    { return fmt.Sprintf("queue %q", name) }
func silentNoun(name string) string   { return "confirmations of " + queueNoun(name) }

// declareShared declares shared exchanges and queues, and notes refusals. An error means no
// connection.
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
		time.AfterFunc(refusalRest, s.askAgain)
	}
	return nil
}

// askAgain makes Run declare the shared things again.
func (s *session) askAgain() {
	select {
	case s.again <- struct{}{}:
	default: // it will do so already
	}
}

// ensure declares the work queue of a namespace, once for each connection.
func (s *session) ensure(ctx context.Context, namespace string) error {
	s.mu.Lock()
	d := s.declared[namespace]
	mine := d == nil || d.stale()
	if mine {
		d = &declaration{done: make(chan struct{})}
		s.declared[namespace] = d
	}
	s.mu.Unlock()
	if mine {
		d.err = s.declare(ctx, s.b.workQueue(namespace))
		d.at, d.rest = time.Now(), refusalRest
		if d.err != nil && !isRefusal(d.err) {
			s.forget(namespace) // nothing is known: the next one asks again
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

// giveUp pauses the queue of a namespace that confirms nothing, and returns the error.
func (s *session) giveUp(ctx context.Context, namespace string) error {
	if reason := s.blocked.Load(); reason != nil {
		return blockedError(*reason) // then no queue confirms anything
	}
	name := QueueOf(namespace)
	err := tasker.Errorf(tasker.Unavailable, "%s confirms no messages: if rabbitmq-queues quorum_status %s%s shows no leader, "+
		"a crash has broken it (RabbitMQ does not always recover a queue that was made shortly before); %s",
		queueNoun(name), quote(name), s.b.vhostFlag(), s.b.workQueue(namespace).remedy)
	s.b.note(ctx, silentNoun(name), err)
	s.believe(namespace, err, silenceRest)
	return err
}

// missing returns the error for a message that no queue took. Somebody has
// deleted the queue, or its binding. It is made anew after a rest: consumers of
// a queue that comes back at once are not told, and receive nothing any more.
func (s *session) missing(namespace string) error {
	err := tasker.Errorf(tasker.Unavailable, "no queue took a message: %s was missing, and will be made anew",
		queueNoun(QueueOf(namespace)))
	s.believe(namespace, err, refusalRest)
	return err
}

// believe makes err the answer for a namespace, for a while.
func (s *session) believe(namespace string, err error, rest time.Duration) {
	d := &declaration{done: make(chan struct{}), err: err, at: time.Now(), rest: rest}
	close(d.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declared[namespace] = d
}

// stale reports whether a refusal is so old that the broker is to be asked again.
func (d *declaration) stale() bool {
	select {
	case <-d.done:
		return d.err != nil && time.Since(d.at) > d.rest
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

// forgetAll is forget for all namespaces.
func (s *session) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.declared)
}

// A thing is an exchange or a queue with its bindings.
type thing struct {
	noun    string
	declare func(*amqp091.Channel) error
	remedy  string // how to delete it
}

func (b *Broker) exchange(name string) thing {
	return thing{
		noun: exchangeNoun(name),
		declare: func(ch *amqp091.Channel) error {
			return ch.ExchangeDeclare(name, amqp091.ExchangeTopic, true, false, false, false, nil)
		},
		remedy: "delete the exchange, and Tasker makes it and its bindings anew: rabbitmqctl eval " +
			quote(`rabbit_exchange:delete(rabbit_misc:r(<<"`+b.vhost+`">>, exchange, <<"`+name+`">>), false, <<"operator">>).`),
	}
}

// vhostFlag ends the commands of RabbitMQ that are about a virtual host: they take / for the one that is meant.
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
		remedy: "once it is empty, delete the queue, and Tasker makes it anew: rabbitmqctl delete_queue " + quote(name) + b.vhostFlag(),
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

// workQueue is the queue of a namespace. It lets go of a dead letter only when
// the dead-letter queue has it, which RabbitMQ does only for a quorum queue that
// rejects what it has no room for.
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

// declare declares one thing and notes what came of it.
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

// isRefusal reports whether the broker has answered, and said no.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*amqp091.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case amqp091.PreconditionFailed, amqp091.AccessRefused, amqp091.NotFound, amqp091.ResourceLocked:
		return true
	default:
		return false
	}
}

// refusal explains what the broker said about a thing, and what to do.
func (b *Broker) refusal(t thing, err error) error {
	e, _ := errors.AsType[*amqp091.Error](err)
	said := strings.TrimPrefix(e.Reason, "PRECONDITION_FAILED - ")
	err = &answer{said, e}
	switch e.Code {
	case amqp091.PreconditionFailed:
		if !strings.Contains(said, "inequivalent") {
			break
		}
		return &tasker.Error{
			Code: tasker.Conflict, Err: err,
			Message: fmt.Sprintf("%s exists with other settings (%s), which RabbitMQ cannot change: "+
				"restore the setting of Tasker that it was made with; or %s", t.noun, said, t.remedy),
		}
	case amqp091.AccessRefused:
		return &tasker.Error{
			Code: tasker.Forbidden, Err: err,
			Message: fmt.Sprintf("%s may not be declared (%s): give the user of Tasker configure, write and read: "+
				"rabbitmqctl set_permissions USER '.*' '.*' '.*'%s", t.noun, said, b.vhostFlag()),
		}
	}
	return &tasker.Error{
		Code: tasker.Unavailable, Err: err,
		Message: fmt.Sprintf("%s cannot be declared: %s", t.noun, said),
	}
}

// An answer is what the broker said, in the words that the message repeats, so
// that it is not told twice.
type answer struct {
	text string
	err  *amqp091.Error
}

func (a *answer) Error() string { return a.text }
func (a *answer) Unwrap() error { return a.err }

// quote quotes a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
