package amqp

import (
	"context"
	"errors"
	"regexp"
	"strconv"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
)

// Routed is a message for any queue that is bound to the exchange.
type Routed struct {
	ID          string // for deduplication; at most 255 bytes
	Key         string // routing key; at most 255 bytes
	Type        string // type of the body; at most 255 bytes
	ContentType string // at most 255 bytes
	Body        []byte
}

// PublishRouted sends messages to the exchange in order. For each message, it returns nil, or an
// error if the message may not be stored in every bound queue; it may have arrived nevertheless.
// The error is Unavailable if no queue is bound, and Invalid or TooLarge if the broker can never
// accept the message. PublishRouted returns soon after ctx ends, or at once if there is no
// connection.
func (b *Broker) PublishRouted(ctx context.Context, messages []Routed) []error {
	answers := newErrors(len(messages))
	s, err := b.publishableSession()
	if err != nil {
		return fillErrors(answers, err)
	}
	r := &routedBatch{s, messages}
	good := r.admit(answers)
	if len(good) == 0 {
		return answers
	}
	p, err := s.acquirePublisher(ctx)
	if err != nil {
		return fillErrors(answers, err)
	}
	if err := p.publish(ctx, r, good, answers); err != nil {
		r.admit(answers) // the broker may have rejected a message as too large
		fillErrors(answers, err)
	}
	return answers
}

// publishableSession returns the session if messages can be published.
func (b *Broker) publishableSession() (*session, error) {
	s, err := b.currentSession()
	if err != nil {
		return nil, err
	}
	if !s.isAlive() {
		return nil, s.lostError()
	}
	if reason := s.blocked.Load(); reason != nil {
		return nil, newBlockedError(*reason)
	}
	if err := b.lastErrorOf(describeExchange(b.o.Exchange)); err != nil {
		return nil, err
	}
	return s, nil
}

// fillErrors sets err as the result of all messages that have none yet.
func fillErrors(answers []error, err error) []error {
	for i := range answers {
		if errors.Is(answers[i], errUnanswered) {
			answers[i] = err
		}
	}
	return answers
}

// routedBatch is a batch of messages for bound queues.
type routedBatch struct {
	s    *session
	list []Routed
}

// admit returns the indexes of the messages that can be sent, and sets the errors of the others.
func (r *routedBatch) admit(answers []error) (good []int) {
	largest := r.s.largest.Load()
	for i, m := range r.list {
		if !errors.Is(answers[i], errUnanswered) {
			continue
		}
		switch {
		case max(len(m.ID), len(m.Key), len(m.Type), len(m.ContentType)) > maxName: // would close the connection
			answers[i] = tasker.Errorf(tasker.Invalid,
				"the id, key or types of message %.40q are longer than %d bytes", m.ID, maxName)
		case largest > 0 && int64(len(m.Body)) > largest:
			answers[i] = tasker.Errorf(tasker.TooLarge,
				"message %.40q has %d bytes, but the message broker accepts at most %d: "+
					"raise its max_message_size", m.ID, len(m.Body), largest)
		default:
			good = append(good, i)
		}
	}
	return good
}

func (r *routedBatch) buildMessage(index int) (key string, m amqp091.Publishing) {
	message := r.list[index]
	return message.Key, amqp091.Publishing{
		ContentType: message.ContentType,
		MessageId:   message.ID,
		Type:        message.Type,
		Body:        message.Body,
	}
}

func (r *routedBatch) unroutableError(index int) error {
	exchange, key := r.s.b.o.Exchange, r.list[index].Key
	return tasker.Errorf(tasker.Unavailable,
		"no queue is bound to exchange %q for key %q, so no worker would receive the message: "+
			"bind a queue with this key or #", exchange, key)
}

func (r *routedBatch) nackError(index int) error {
	return tasker.Errorf(tasker.Unavailable, "the message broker rejected a message: "+
		"a queue bound to exchange %q for key %q is full or not writable", r.s.b.o.Exchange, r.list[index].Key)
}

func (r *routedBatch) timeoutError(_ context.Context, index int) error {
	if reason := r.s.blocked.Load(); reason != nil {
		return newBlockedError(*reason) // no queue confirms anything
	}
	return tasker.Errorf(tasker.Unavailable, "the message broker confirmed no messages for %s: a queue bound to "+
		"exchange %q for key %q may have no leader; see rabbitmq-queues quorum_status QUEUE%s",
		Silence, r.s.b.o.Exchange, r.list[index].Key, r.s.b.formatVhostFlag())
}

func (*routedBatch) recordConfirms(context.Context, []error) {}

// tooLarge matches the broker's reason for closing a channel after an oversized message.
var tooLarge = regexp.MustCompile(`message size \d+ is larger than (?:configured )?max size (\d+)`)

// recordMaxMessageSize stores the size limit of the broker if the channel was closed because of it.
// Each oversized message would close the channel and delay the other messages.
func (s *session) recordMaxMessageSize(closed *amqp091.Error) {
	if closed == nil {
		return
	}
	if m := tooLarge.FindStringSubmatch(closed.Reason); m != nil {
		if largest, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			s.largest.Store(largest)
		}
	}
}
