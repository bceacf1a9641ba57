package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"tasker"
	"tasker/internal/payload"
	"tasker/internal/postgres"
)

// identity returns the digest that tells the reports of one attempt apart. Two
// reports are the same if they say the same: of a success its result, compared by
// value; of a failure its type, its message and whether it may be retried. What a
// worker measures anew each time does not count: metadata, the context of a
// failure, and the rest that it asks for. Outcomes that cannot be stored have been
// refused before.
func (v verdict) identity(o tasker.Outcome) ([]byte, error) {
	var said json.RawMessage
	var err error
	if o.Success {
		said = json.RawMessage("null")
		if len(o.Result) > 0 {
			said, err = payload.Canonical(o.Result)
		}
	} else {
		var f tasker.StepFailure
		if err = json.Unmarshal(v.Body, &f); err == nil {
			said, err = json.Marshal([]any{f.Type, f.Message, f.Retryable})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("digest of a report: %w", err)
	}
	sum := sha256.Sum256(append([]byte(v.Event+":"), said...))
	return sum[:], nil
}

// repeats tells whether v is the report that the attempt was concluded with.
// Versions before this one kept a digest of the stored text.
func (v verdict) repeats(m postgres.Mark) bool {
	if m.ReportedFence == nil || *m.ReportedFence != v.Fence {
		return false
	}
	text := sha256.Sum256(append([]byte(v.Event), v.Body...))
	return bytes.Equal(m.ReportDigest, v.Digest) || bytes.Equal(m.ReportDigest, text[:])
}
