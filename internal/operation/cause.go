package operation

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/postgres"
)

// maxShown is the length, in characters, at which the error of an item is cut.
const maxShown = 300

// causeOf is what failures of one cause have in common, as of cases.
func causeOf(f postgres.ItemFailure) string {
	return fingerprint.Normalise(fingerprint.Failure{Type: f.ErrorType, Message: f.ErrorMessage, Given: f.ErrorFingerprint}).Key
}

// causesOf returns the causes of selected failures; nil if there are too many.
func causesOf(ctx context.Context, tx *postgres.Tx, operation tasker.ID, items int) ([]string, error) {
	seen := map[string]bool{}
	causes := []string{}
	err := tx.FailuresOfItems(ctx, operation, items, func(f postgres.ItemFailure) {
		if cause := causeOf(f); !seen[cause] && len(causes) <= tasker.MaxOperationCauses {
			seen[cause] = true
			causes = append(causes, cause)
		}
	})
	if len(causes) > tasker.MaxOperationCauses {
		return nil, err
	}
	return causes, err
}
