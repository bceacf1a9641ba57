package amqp

import (
	"context"
	"strconv"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

// Message is one message for the workers of a namespace.
type Message struct {
	ID        string // tells a message from its repetition; at most 255 bytes
	Namespace string
	Type      string // what the body is; at most 255 bytes
	Body      []byte // JSON

	Expiration time.Duration // after which it is dead-lettered, if that is before the queue's own TTL; 0 means only then
}

// Publish sends the messages to the work queues of their namespaces and reports for each whether
// the broker has stored it. Unconfirmed ones may have arrived and must be published again. err is
// the first reason why one is not confirmed; confirmed always has one value per message. It
// returns soon after ctx ends, and at once without a connection.
func (b *Broker) Publish(ctx context.Context, messages []Message) (confirmed []bool, err error) {
	confirmed = make([]bool, len(messages))
	if len(messages) == 0 {
		return confirmed, nil
	}
	s, err := b.publishable()
	if err != nil {
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
	answers := unanswered(len(messages))
	err = p.publish(ctx, &dispatches{s, messages}, good, answers)
	if err == nil {
		err = refused
	}
	for i, answer := range answers {
		confirmed[i] = answer == nil
	}
	return confirmed, err
}

// Unusable returns why no message can be published now, whatever its queue: there is no
// connection, or the broker takes none, or refuses the exchange. It is nil if a queue may take one.
func (b *Broker) Unusable() error {
	_, err := b.publishable()
	return err
}

// dispatches are messages for the work queues of their namespaces.
type dispatches struct {
	s    *session
	list []Message
}

func (d *dispatches) form(place int) (key string, m amqp091.Publishing) {
	message := d.list[place]
	expiration := ""
	if message.Expiration > 0 {
		expiration = strconv.FormatInt(message.Expiration.Milliseconds(), 10)
	}
	return RoutingKey(message.Namespace), amqp091.Publishing{
		Expiration:  expiration,
		ContentType: "application/json",
		MessageId:   message.ID,
		Type:        message.Type,
		Body:        message.Body,
	}
}

func (d *dispatches) unroutable(place int) error { return d.s.missing(d.list[place].Namespace) }

func (d *dispatches) notTaken(place int) error {
	return tasker.Errorf(tasker.Unavailable, "the message broker did not take a message for %s: the queue is full, or cannot be written",
		queueNoun(QueueOf(d.list[place].Namespace)))
}

func (d *dispatches) silent(ctx context.Context, place int) error {
	return d.s.giveUp(ctx, d.list[place].Namespace)
}

// confirmed takes back what was said of queues that confirm again.
func (d *dispatches) confirmed(ctx context.Context, answers []error) {
	done := map[string]bool{}
	for i, m := range d.list {
		if answers[i] == nil && !done[m.Namespace] {
			done[m.Namespace] = true
			d.s.b.note(ctx, silentNoun(QueueOf(m.Namespace)), nil)
		}
	}
}

// admit returns the places of messages that can be sent, and the first reason for the others.
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
