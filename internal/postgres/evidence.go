package postgres

import (
	"context"
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Now returns the current time of the database clock.
func (db *DB) Now(ctx context.Context) (time.Time, error) {
	now, err := queryValue[time.Time](ctx, db.pool, statement("selectNow"))
	return now.UTC(), wrapError(err, "read the clock of the database")
}

// FailedInput is a step with its stored inputs. Only errors are redacted.
type FailedInput struct {
	tasker.EvidenceStep
	Place   int                      // index of the step in the task's snapshot
	Tries   []tasker.EvidenceAttempt // failed attempts, newest first
	Error   json.RawMessage
	Parents []ParentResult // in template order
	Item    json.RawMessage
	Index   *int
	Context json.RawMessage // context of an item; if nil, that of the task applies
}

// ParentResult is the result of a step that another step depends on.
type ParentResult struct {
	StepUUID tasker.ID       `json:"step_uuid"`
	Name     string          `json:"name"`
	Place    int             `json:"place"` // index of the step in the task's snapshot
	Bytes    int64           `json:"bytes"`
	Large    bool            `json:"large"` // the result is too large and omitted
	Result   json.RawMessage `json:"result"`
}

// FailedInput returns a step of an investigated task with its attempts and inputs, or NotFound.
func (db *DB) FailedInput(ctx context.Context, e tasker.Entry, step tasker.ID) (FailedInput, error) {
	in, err := queryRequired[FailedInput](ctx, db.pool, NewStepNotFoundError(e.TaskUUID, step),
		"read the inputs of a step",
		statement("selectFailedInput"), e.TaskUUID, step, e.UUID)
	for i, a := range in.Tries {
		in.Tries[i].FailedAt = a.FailedAt.UTC()
		if a.BeganAt != nil {
			began := a.BeganAt.UTC()
			in.Tries[i].BeganAt = &began
		}
	}
	return in, err
}

// RedactSnapshots redacts documents that have the structure of a snapshot.
func (db *DB) RedactSnapshots(ctx context.Context, docs []string) ([]json.RawMessage, error) {
	list, err := collectColumn[json.RawMessage](ctx, db.pool, statement("redactSnapshots"), docs)
	return list, wrapError(err, "redact the inputs of a step")
}
