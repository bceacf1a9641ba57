// Package saga demonstrates compensation: a trip is booked in several systems and the bookings are
// cancelled when a later step fails.
package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"tasker.example/tasker/worker"
)

// Agency books and cancels. Repeating a call with the same key must have no effect.
type Agency interface {
	Book(ctx context.Context, key, what string) (booking string, err error)
	Cancel(ctx context.Context, booking string) error
}

// Register registers the handlers of the template.
func Register(w *worker.Worker, agency Agency) {
	worker.Handle(w, "book", func(ctx context.Context, s *worker.Step[struct{}]) (string, error) {
		var init struct{ What string }
		if err := json.Unmarshal(s.Initialization, &init); err != nil {
			return "", worker.Permanent(fmt.Errorf("initialization of step %s: %w", s.Name, err))
		}
		return agency.Book(ctx, s.StepUUID.String(), init.What)
	})
	worker.Handle(w, "cancel", func(ctx context.Context, s *worker.Step[struct{}]) (string, error) {
		var booking string
		if err := s.Dependency(strings.TrimPrefix(s.Name, "undo:"), &booking); err != nil {
			return "", err
		}
		return booking, agency.Cancel(ctx, booking)
	})
}
