package engine

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// requestFacts contains the fields that identify a request under its idempotency key. Zero fields
// are omitted, so that new fields do not change old digests. Names and their order must never
// change.
type requestFacts struct {
	Namespace           string          `json:"namespace,omitzero"`
	Name                string          `json:"name,omitzero"`
	Version             string          `json:"version,omitzero"`
	Context             json.RawMessage `json:"context,omitzero"`
	Initiator           string          `json:"initiator,omitzero"`
	SourceSystem        string          `json:"source_system,omitzero"`
	Reason              string          `json:"reason,omitzero"`
	Priority            int             `json:"priority,omitzero"`
	Tags                []string        `json:"tags,omitempty"`
	CorrelationID       string          `json:"correlation_id,omitzero"`
	ParentCorrelationID string          `json:"parent_correlation_id,omitzero"`
	IdempotencyKey      string          `json:"idempotency_key,omitzero"`
	StartAt             time.Time       `json:"start_at,omitzero"`
	RecreatedFrom       tasker.ID       `json:"recreated_from,omitzero"`
	StartAfter          time.Duration   `json:"start_after,omitzero"`
	StartBy             time.Time       `json:"start_by,omitzero"`
	StartWithin         time.Duration   `json:"start_within,omitzero"`
	Unique              tasker.Unique   `json:"unique,omitzero"`
	Debounce            tasker.Debounce `json:"debounce,omitzero"`
	DueAt               time.Time       `json:"due_at,omitzero"`
	DueAfter            time.Duration   `json:"due_after,omitzero"`
}

// computeDigest returns a hash of a request that does not depend on the order of keys or the
// notation of numbers. It modifies value, the decoded context.
func computeDigest(r tasker.NewTask, value any) ([]byte, error) {
	canonical, err := payload.CanonicalValue(value)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "context: %w", err)
	}
	facts := requestFacts{
		Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: canonical, Initiator: r.Initiator,
		SourceSystem: r.SourceSystem, Reason: r.Reason, Priority: r.Priority, Tags: r.Tags, CorrelationID: r.CorrelationID,
		ParentCorrelationID: r.ParentCorrelationID, IdempotencyKey: r.IdempotencyKey, StartAt: r.StartAt.UTC(), RecreatedFrom: r.RecreatedFrom,
		StartAfter: r.StartAfter, StartBy: r.StartBy.UTC(), StartWithin: r.StartWithin, Unique: r.Unique, Debounce: r.Debounce, DueAt: r.DueAt.UTC(), DueAfter: r.DueAfter,
	}
	all, err := json.Marshal(facts)
	if err != nil {
		return nil, fmt.Errorf("compute request digest: %w", err)
	}
	sum := sha256.Sum256(all)
	return sum[:], nil
}
