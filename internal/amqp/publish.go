package amqp

import (
	"context"
	"strconv"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

// Message is a message for the workers of a namespace.
type Message struct {
	ID        string // for deduplication; at most 255 bytes
	Namespace string
	Type      string // type of the body; at most 255 bytes
	Body      []byte // JSON

	Expiration time.Duration // time until it is dead-lettered, if less than the TTL of the queue; 0 means the TTL
}

// Publish sends messages to the work queues of their namespaces and reports which of them the
// broker has confirmed as stored. The others may have arrived and must be published again; err is
// the first reason. confirmed always has one value per message. Publish returns soon after ctx
// ends, or at once if there is no connection.
func (b *Broker) Publish(ctx context.Context, messages []Message) (confirmed []bool, err error) {
	confirmed = make([]bool, len(messages))
	if len(messages) == 0 {
		return confirmed, nil
	}
	s, err := b.publishableSession()
	if err != nil {
		return confirmed, err
	}
	good, refused := s.admit(ctx, messages)
	if len(good) == 0 {
		return confirmed, refused
	}
	p, err := s.acquirePublisher(ctx)
	if err != nil {
		return confirmed, err
	}
	answers := newErrors(len(messages))
	err = p.publish(ctx, &dispatchBatch{s, messages}, good, answers)
	if err == nil {
		err = refused
	}
	for i, answer := range answers {
		confirmed[i] = answer == nil
	}
	return confirmed, err
}

// CheckUsable returns why no message can be published to any queue: there is no connection, or the
// broker blocks publishing or refuses the exchange. It returns nil if some queue may accept
// messages.
func (b *Broker) CheckUsable() error {
	_, err := b.publishableSession()
	return err
}

// dispatchBatch is a batch of messages for work queues.
type dispatchBatch struct {
	s    *session
	list []Message
}

func (d *dispatchBatch) buildMessage(index int) (key string, m amqp091.Publishing) {
	message := d.list[index]
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

func (d *dispatchBatch) unroutableError(index int) error {
	return d.s.checkDeclared(d.list[index].Namespace)
}

func (d *dispatchBatch) nackError(index int) error {
	return tasker.Errorf(tasker.Unavailable,
		"the message broker rejected a message for %s: the queue is full or not writable",
		describeQueue(QueueName(d.list[index].Namespace)))
}

func (d *dispatchBatch) timeoutError(ctx context.Context, index int) error {
	return d.s.recordFailure(ctx, d.list[index].Namespace)
}

// recordConfirms clears the recorded errors of queues that confirm messages again.
func (d *dispatchBatch) recordConfirms(ctx context.Context, answers []error) {
	done := map[string]bool{}
	for i, m := range d.list {
		if answers[i] == nil && !done[m.Namespace] {
			done[m.Namespace] = true
			d.s.b.recordError(ctx, describeUnresponsive(QueueName(m.Namespace)), nil)
		}
	}
}

// admit returns the indexes of the messages that can be sent, and the first error among the others.
func (s *session) admit(ctx context.Context, messages []Message) (good []int, first error) {
	known := map[string]error{}
	good = make([]int, 0, len(messages))
	for i, m := range messages {
		err, ok := known[m.Namespace]
		switch {
		case m.Namespace == "":
			err = tasker.Errorf(tasker.Invalid, "message %q has no namespace", m.ID)
		case len(m.ID) > maxName || len(m.Type) > maxName: // would close the connection
			err = tasker.Errorf(tasker.Invalid,
				"the id or type of message %.40q is longer than %d bytes", m.ID, maxName)
		case !ok:
			err = s.ensureQueue(ctx, m.Namespace)
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
