// Package branch demonstrates conditional execution: a decision step chooses a branch, and an
// expression skips a step inside it.
package branch

import (
	"context"

	"tasker.example/tasker/worker"
)

// Parcel is the context of a task.
type Parcel struct {
	Kg     float64
	Abroad bool
}

// Register registers the handlers of the template.
func Register(w *worker.Worker) {
	worker.Handle(w, "route", func(_ context.Context, s *worker.Step[Parcel]) (map[string][]string, error) {
		way := "by_bike"
		if s.Input.Kg > 20 {
			way = "by_truck"
		}
		return map[string][]string{"steps": {way}}, nil
	})
	for _, name := range []string{"deliver", "declare", "tell"} {
		worker.Handle(w, name, func(_ context.Context, s *worker.Step[Parcel]) (string, error) { return s.Name, nil })
	}
}
