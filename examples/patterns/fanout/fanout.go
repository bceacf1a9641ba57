// Package fanout demonstrates parallel steps: it queries several carriers and picks the cheapest.
package fanout

import (
	"context"
	"encoding/json"
	"fmt"

	"tasker.example/tasker/worker"
)

// Offer is the result of a step that queries a carrier.
type Offer struct {
	Carrier string  `json:"carrier"`
	Price   float64 `json:"price"`
}

// Register registers the handlers of the template.
func Register(w *worker.Worker) {
	worker.Handle(w, "weigh", func(_ context.Context, s *worker.Step[struct{ Kg float64 }]) (float64, error) {
		return s.Input.Kg, nil
	})
	worker.Handle(w, "ask", func(_ context.Context, s *worker.Step[struct{}]) (Offer, error) {
		var rate struct {
			Carrier    string
			PricePerKg float64 `json:"price_per_kg"`
		}
		if err := json.Unmarshal(s.Initialization, &rate); err != nil {
			return Offer{}, worker.Permanent(fmt.Errorf("initialization of step %s: %w", s.Name, err))
		}
		var kg float64
		err := s.Dependency("weigh", &kg)
		return Offer{Carrier: rate.Carrier, Price: kg * rate.PricePerKg}, err
	})
	worker.Handle(w, "choose", func(_ context.Context, s *worker.Step[struct{}]) (Offer, error) {
		var best Offer
		for _, d := range s.Dependencies() {
			var o Offer
			if err := s.Dependency(d.Name, &o); err != nil {
				return Offer{}, err
			}
			if best.Carrier == "" || o.Price < best.Price {
				best = o
			}
		}
		return best, nil
	})
}
