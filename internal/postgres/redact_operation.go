package postgres

import (
	"context"
	"encoding/json"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// hideOperation hides the payloads of an operation: the result of its act, what of payloads its selection names, and the text of a failure.
func hideOperation(ctx context.Context, o *tasker.Operation) {
	for _, n := range o.Namespaces {
		if access.PayloadsOf(ctx).Has(n) {
			continue
		}
		o.Arguments = json.RawMessage("{}")
		hideSelection(&o.Selection)
		if o.Pause != nil && o.Pause.FailureText != "" {
			o.Pause.FailureText = access.Hidden
		}
	}
}

// hideSelection hides the parts of contexts, results and errors by which investigations are selected.
func hideSelection(s *tasker.OperationSelection) {
	if s.Filter.Text != "" {
		s.Filter.Text = access.Hidden
	}
	s.Filter.Attributes = slices.Clone(s.Filter.Attributes)
	for i := range s.Filter.Attributes {
		s.Filter.Attributes[i].Value = access.Hidden
	}
}
