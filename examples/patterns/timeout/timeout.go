// Package timeout demonstrates a wait with a timeout and a default result.
package timeout

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// Price is the answer of the partner, or the default of the template.
type Price struct {
	Price  float64 `json:"price"`
	Source string  `json:"source"`
}

// Register registers the handlers of the template. ask sends the partner a question about a step
// of a task.
func Register(w *worker.Worker, ask func(ctx context.Context, task tasker.ID, step string) error) {
	worker.Handle(w, "ask_partner", func(ctx context.Context, s *worker.Step[struct{}]) (any, error) {
		return nil, ask(ctx, s.TaskUUID, "partner_price")
	})
	worker.Handle(w, "offer", func(_ context.Context, s *worker.Step[struct{}]) (Price, error) {
		var p Price
		err := s.Dependency("partner_price", &p)
		p.Price *= 1.1
		return p, err
	})
}
