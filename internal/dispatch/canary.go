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

	// CanaryTimeout is the time within which a canary must return. Otherwise dead-lettering counts
	// as broken.
	CanaryTimeout = 30 * time.Second
)

// sendCanary sends a message that no worker consumes. It must return as a dead letter. Otherwise
// the dead-letter exchange, binding or queue differs from its declaration, and only the sweep finds
// unclaimed steps.
func (s *Service) sendCanary(ctx context.Context) (time.Duration, error) {
	missing, err := s.DB.FindMissingCanary(ctx, CanaryTimeout)
	if err != nil {
		return 0, err
	}
	if !s.Broker.Ready() {
		return time.Second, nil
	}
	if missing > 0 {
		s.Log.WarnContext(ctx, "broker dead-lettering does not work; relying on the sweep",
			"missing_for", missing.Round(time.Second), "queue", s.Broker.DeadLetterQueue())
	}
	send, err := s.DB.SendCanary(ctx, canaryEvery)
	if err != nil || !send {
		return 0, err
	}
	_, err = s.Broker.Publish(ctx, []amqp.Message{{
		ID: "canary", Namespace: "~" + s.Broker.DeadLetterQueue(), // no template can have this namespace
		Type: canaryType, Body: []byte(`{}`), Expiration: canaryLife,
	}})
	return 0, err
}
