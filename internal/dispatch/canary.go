package dispatch

import (
	"context"
	"time"

	"tasker.example/tasker/internal/amqp"
)

const (
	canaryType  = "tasker.canary"
	canaryLife  = time.Second
	canaryEvery = time.Minute

	// CanaryPatience is how long a canary may be away before the way of dead letters
	// counts as broken.
	CanaryPatience = 30 * time.Second
)

// canary sends a message that no worker takes through a queue like all others. It
// must come back as a dead letter: else the exchange, the binding or the queue
// of dead letters is not as it was declared, and steps that nobody takes are found by
// the sweep alone.
func (s *Service) canary(ctx context.Context) (time.Duration, error) {
	missing, err := s.DB.CanaryMissing(ctx, CanaryPatience)
	if err != nil {
		return 0, err
	}
	if !s.Broker.Ready() {
		return time.Second, nil
	}
	if missing > 0 {
		s.Log.WarnContext(ctx, "the broker has not dead-lettered a message that nobody took; steps that no worker takes are found by the sweep alone",
			"missing_for", missing.Round(time.Second), "queue", s.Broker.DeadLetterQueue())
	}
	send, err := s.DB.SendCanary(ctx, canaryEvery)
	if err != nil || !send {
		return 0, err
	}
	_, err = s.Broker.Publish(ctx, []amqp.Message{{
		ID: "canary", Namespace: "~" + s.Broker.DeadLetterQueue(), // no template can have that namespace
		Type: canaryType, Body: []byte(`{}`), Expiration: canaryLife,
	}})
	return 0, err
}
