package apiv1

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"tasker.example/tasker"
)

// StepItemList is a page of the items of a map step, in order.
type StepItemList struct {
	Items []tasker.Step `json:"items"`
	Next  *int          `json:"next" doc:"Value of from for the next page. Null at the end."`
}

// ItemResults is a page of the results of a map step, in the order of its items.
type ItemResults struct {
	Results []json.RawMessage `json:"results" doc:"Null for an item without a result."`
	Next    *int              `json:"next" doc:"Value of from for the next page. Null at the end."`
}

// DocumentTag returns the unquoted ETag of a response with a bare document, such as a step result.
func DocumentTag(doc []byte) string {
	sum := sha256.Sum256(doc)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// StepAction is the body of PATCH /v1/tasks/{uuid}/workflow_steps/{step}. ActionType selects one
// of the three actions.
type StepAction struct {
	ActionType     string          `json:"action_type"`
	Reason         string          `json:"reason"`
	ResetBy        string          `json:"reset_by,omitempty"`
	ResolvedBy     string          `json:"resolved_by,omitempty"`
	CompletedBy    string          `json:"completed_by,omitempty"`
	CompletionData *CompletionData `json:"completion_data,omitempty"`
	Interrupt      bool            `json:"interrupt,omitempty" flag:"interrupt" usage:"act even if the step is queued or running; its worker's result is rejected"`
	Child          string          `json:"child,omitempty"` // [NewChild], for reset_for_retry

	DiscardCheckpoint bool `json:"discard_checkpoint,omitempty"` // for reset_for_retry
}

// NewChild as [StepAction.Child] starts another child task.
const NewChild = "new"

// CompletionData replaces the result of a handler.
type CompletionData struct {
	Result   json.RawMessage `json:"result"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Completion is the body of POST /v1/tasks/{uuid}/workflow_steps/{step}/completion: the outcome
// of an external step, reported by an external system.
type Completion struct {
	Success  bool            `json:"success"`
	Result   json.RawMessage `json:"result,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Error    *ResultError    `json:"error,omitempty"`
	Source   string          `json:"source,omitempty" maxLength:"255" doc:"Reporting system." flag:"source"`
}

// Inbox is a page of waiting human steps, earliest due first.
type Inbox struct {
	Steps      []tasker.HumanStep `json:"steps"`
	Pagination InboxPage          `json:"pagination"`
}

// InboxPage is the pagination of the inbox.
type InboxPage struct {
	Limit     int     `json:"limit"`
	Count     int     `json:"count"`
	HasMore   bool    `json:"has_more"`
	NextAfter *string `json:"next_after" doc:"Value of after for the next page. Null at the end."`
}

// AssignStep is the body of PUT /v1/tasks/{uuid}/workflow_steps/{step}/assignee.
type AssignStep struct {
	Assignee string `json:"assignee" maxLength:"128" doc:"A person, or group: followed by the name of a group. Empty removes the assignee." flag:"to" usage:"assignee: a person, or group:NAME"`
	Reason   string `json:"reason,omitempty" maxLength:"2000" doc:"Reason for the history."`
	By       string `json:"by,omitempty" maxLength:"255" doc:"Actor for the history."`
}

// AnswerLinks lists the links of a step.
type AnswerLinks struct {
	Links []tasker.AnswerLink `json:"links" doc:"Newest first: all usable links and the last 30 others."`
}

// CreateAnswerLink is the body of POST /v1/tasks/{uuid}/workflow_steps/{step}/answer_links.
type CreateAnswerLink struct {
	ExpiresInSeconds *int64 `json:"expires_in_seconds,omitempty" minimum:"60" maximum:"2592000" doc:"Lifetime. Default: 259200, three days." flag:"expires-in" usage:"validity of the link, such as 4h or 7d (default: 3d)"`
	By               string `json:"by,omitempty" maxLength:"255" doc:"Actor for the audit log."`
}

// NewAnswerLink is a new answer link with its token.
type NewAnswerLink struct {
	tasker.AnswerLink
	Token string  `json:"token" doc:"It cannot be retrieved later: only its SHA-256 is stored."`
	Path  string  `json:"path" doc:"Path of the answer page."`
	URL   *string `json:"url" doc:"URL of the answer page. Null if emission.public_url is not configured."`
}

// FromNewAnswerLink converts a new answer link. base is the public URL of the server, or empty.
func FromNewAnswerLink(l tasker.NewAnswerLink, base string) NewAnswerLink {
	out := NewAnswerLink{AnswerLink: l.AnswerLink, Token: l.Token, Path: l.Path()}
	if base != "" {
		out.URL = textOrNull(base + l.Path())
	}
	return out
}
