package operation

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/postgres"
)

// maxShown limits the length of an item's error text in characters.
const maxShown = 300

// failureCause returns the key of the cause of a failure.
func failureCause(f postgres.ItemFailure) string {
	return fingerprint.Normalize(fingerprint.Failure{Type: f.ErrorType, Message: f.ErrorMessage, Given: f.ErrorFingerprint}).Key
}

// findCauses returns the distinct causes of the failures of selected items, or nil if there are too
// many.
func findCauses(ctx context.Context, tx *postgres.Tx, operation tasker.ID, items int) ([]string, error) {
	seen, causes := map[string]bool{}, []string{}
	err := tx.FailuresOfItems(ctx, operation, items, func(f postgres.ItemFailure) {
		if cause := failureCause(f); !seen[cause] && len(causes) <= tasker.MaxOperationCauses {
			seen[cause] = true
			causes = append(causes, cause)
		}
	})
	if len(causes) > tasker.MaxOperationCauses {
		return nil, err
	}
	return causes, err
}
