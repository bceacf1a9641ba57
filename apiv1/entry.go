package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// UpdateEntry is the body of PATCH /v1/dlq/entry/{dlq_entry_uuid}.
type UpdateEntry struct {
	ResolutionStatus *string         `json:"resolution_status,omitempty" enum:"manually_resolved,permanently_failed,cancelled" doc:"Ends the investigation. Requires resolution_notes."`
	ResolutionNotes  *string         `json:"resolution_notes,omitempty" maxLength:"20000"`
	ResolvedBy       *string         `json:"resolved_by,omitempty" maxLength:"255"`
	Metadata         json.RawMessage `json:"metadata,omitempty" doc:"JSON object, merged into the existing metadata key by key."`

	Compensate bool `json:"compensate,omitempty" doc:"With permanently_failed: also compensate the completed steps of the task and cancel the others, in the same transaction." flag:"compensate" usage:"with permanently_failed: compensate the completed steps of the task"`

	UpdatedBy         string     `json:"updated_by,omitempty" maxLength:"255" doc:"Actor for the history. Default: resolved_by."`
	ExpectedUpdatedAt *time.Time `json:"expected_updated_at,omitempty" doc:"Expected updated_at. If the entry has changed since, the response is 409." flag:"if-unchanged-since" usage:"fail if the investigation changed since this updated_at"`
}

// UpdatedEntry is the response to an update, with the current entry.
type UpdatedEntry struct {
	Success  bool     `json:"success"`
	Message  string   `json:"message"`
	Warnings []string `json:"warnings"`
	tasker.Entry
}

// OpenEntry is the body of POST /v1/dlq/task/{task_uuid}.
type OpenEntry struct {
	Reason    string          `json:"reason" minLength:"1" maxLength:"20000" doc:"Why the task needs an investigation."`
	CreatedBy string          `json:"created_by" minLength:"1" maxLength:"255" flag:"created-by"`
	Metadata  json.RawMessage `json:"metadata,omitempty" doc:"JSON object."`
}
