// Package approval demonstrates a human step: a refund that a person approves or rejects, with a
// default when the deadline passes.
package approval

import (
	"context"

	"tasker.example/tasker/worker"
)

// Refund is the context of a task.
type Refund struct {
	Amount float64 `json:"amount"`
}

// Answer is the result of the step approve.
type Answer struct {
	Approved bool   `json:"approved"`
	By       string `json:"by,omitempty"`
}

// Register registers the handlers of the template.
func Register(w *worker.Worker) {
	worker.Handle(w, "check", func(_ context.Context, s *worker.Step[Refund]) (map[string]any, error) {
		return map[string]any{"amount": s.Input.Amount}, nil
	})
	worker.Handle(w, "refuse", func(_ context.Context, s *worker.Step[Refund]) (map[string]string, error) {
		var a Answer
		err := s.Dependency("approve", &a)
		return map[string]string{"refused_by": a.By}, err
	})
	worker.Handle(w, "pay", func(_ context.Context, s *worker.Step[Refund]) (map[string]any, error) {
		return map[string]any{"paid": s.Input.Amount, "payment": s.StepUUID}, nil // idempotency key of the payment
	})
}
