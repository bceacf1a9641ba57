// Package foreach demonstrates a map step: one item per element of a list that is known only at run
// time.
package foreach

import (
	"context"

	"tasker.example/tasker/worker"
)

// Person is an element of the list.
type Person struct {
	Name   string  `json:"name"`
	Salary float64 `json:"salary"`
}

// Register registers the handlers of the template. people reads the list.
func Register(w *worker.Worker, people func(context.Context) ([]Person, error)) {
	worker.Handle(w, "list", func(ctx context.Context, _ *worker.Step[struct{}]) ([]Person, error) { return people(ctx) })
	worker.Handle(w, "pay", func(_ context.Context, s *worker.Step[struct{}]) (float64, error) {
		var p Person
		err := s.Element(&p)
		return p.Salary, err
	})
	worker.Handle(w, "tell", func(_ context.Context, s *worker.Step[struct{}]) (float64, error) {
		var paid struct{ Results []float64 } // in the order of the list
		err := s.Dependency("pay", &paid)
		total := 0.0
		for _, x := range paid.Results {
			total += x
		}
		return total, err
	})
}
