package postgres

import (
	"context"
	"encoding/json"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// redactOperation hides the payloads in an operation unless the caller may read the payloads of all
// its namespaces. Payloads are the arguments, the search terms of the selection and the text of a
// failure.
func redactOperation(ctx context.Context, o *tasker.Operation) {
	for _, n := range o.Namespaces {
		if access.PayloadScopeFromContext(ctx).Has(n) {
			continue
		}
		o.Arguments = json.RawMessage("{}")
		redactSelection(&o.Selection)
		if o.Pause != nil && o.Pause.FailureText != "" {
			o.Pause.FailureText = access.Hidden
		}
	}
}

func redactSelection(s *tasker.OperationSelection) {
	if s.Filter.Text != "" {
		s.Filter.Text = access.Hidden
	}
	s.Filter.Attributes = slices.Clone(s.Filter.Attributes)
	for i := range s.Filter.Attributes {
		s.Filter.Attributes[i].Value = access.Hidden
	}
}
