package apiv1

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Step is one step of a task.
type Step struct {
	StepUUID              string             `json:"step_uuid"`
	TaskUUID              string             `json:"task_uuid"`
	Name                  string             `json:"name"`
	Type                  string             `json:"type"`
	Handler               string             `json:"handler"`
	CurrentState          string             `json:"current_state"`
	DependenciesSatisfied bool               `json:"dependencies_satisfied"`
	RetryEligible         bool               `json:"retry_eligible" doc:"The step is in error, retryable, and its backoff has passed."`
	ReadyForExecution     bool               `json:"ready_for_execution"`
	TotalParents          int                `json:"total_parents"`
	CompletedParents      int                `json:"completed_parents"`
	Dependencies          []string           `json:"dependencies" doc:"Ids of the steps that must complete first."`
	Attempts              int                `json:"attempts"`
	MaxAttempts           int                `json:"max_attempts"`
	LastAttemptedAt       *time.Time         `json:"last_attempted_at"`
	LastFailureAt         *time.Time         `json:"last_failure_at"`
	NextRetryAt           *time.Time         `json:"next_retry_at"`
	WorkerUUID            *string            `json:"worker_uuid"`
	LeaseExpiresAt        *time.Time         `json:"lease_expires_at"`
	CreatedAt             time.Time          `json:"created_at"`
	UpdatedAt             time.Time          `json:"updated_at"`
	CompletedAt           *time.Time         `json:"completed_at"`
	DecisionDue           bool               `json:"decision_due" doc:"A server is about to decide whether the step runs or is skipped."`
	DecidedAt             *time.Time         `json:"decided_at" doc:"When its condition and join allowed the step to run. Null if not decided yet or not applicable."`
	WaitUntil             *time.Time         `json:"wait_until" doc:"When the wait of the step times out, with the outcome on_timeout of its template. Null if it does not wait or has no timeout."`
	Reminders             int                `json:"reminders" doc:"Reminders sent in the current wait of an external step."`
	RemindAt              *time.Time         `json:"remind_at" doc:"Next reminder, from remind_after_seconds of the template, or null."`
	Assignee              *string            `json:"assignee" doc:"Assignee of an external step: a person, or group: and a group. Null if unassigned."`
	Due                   *tasker.Deadline   `json:"due" doc:"Due time of the step. Null if it has none or is not ready."`
	UndoOf                *string            `json:"undo_of" doc:"Name of the step that this one compensates. Null for steps of the template."`
	ChildTaskUUID         *string            `json:"child_task_uuid" doc:"Latest task of a child step, or null."`
	MapStepUUID           *string            `json:"map_step_uuid,omitempty" doc:"Map step of an item. Absent for other steps."`
	Ordinal               *int               `json:"ordinal,omitempty" doc:"Position of an item, from 0."`
	Item                  json.RawMessage    `json:"item,omitempty" doc:"Element of the list for the handler of an item."`
	Items                 *tasker.ItemCounts `json:"items,omitempty" doc:"Items of a map step by state. Absent if it has none yet."`
	Checkpoint            *tasker.Checkpoint `json:"checkpoint,omitempty" doc:"Latest checkpoint. Absent if there is none or the step is done."`
	SkipReason            *string            `json:"skip_reason" doc:"Why the step was skipped, or null."`
	Results               json.RawMessage    `json:"results" doc:"Last result {success, result, metadata}, or null."`
	Error                 json.RawMessage    `json:"error" doc:"Last failure {message, type, retryable, …}, or null."`
}

// StepItemList is a page of the items of a map step, in order.
type StepItemList struct {
	Items []Step `json:"items"`
	Next  *int   `json:"next" doc:"Value of from for the next page. Null at the end."`
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

// FromStep converts a step.
func FromStep(s tasker.Step) Step {
	out := Step{
		StepUUID: s.UUID.String(), TaskUUID: s.TaskUUID.String(), Name: s.Name, Type: string(s.Type), Handler: s.Handler,
		CurrentState: string(s.State), DependenciesSatisfied: s.DependenciesSatisfied, RetryEligible: s.RetryEligible,
		ReadyForExecution: s.ReadyForExecution, TotalParents: s.TotalParents, CompletedParents: s.CompletedParents,
		Dependencies: convert(s.Parents, tasker.ID.String), Attempts: s.Attempts, MaxAttempts: s.MaxAttempts,
		LastAttemptedAt: toUTC(s.LastAttemptedAt), LastFailureAt: toUTC(s.LastFailureAt), NextRetryAt: toUTC(s.NextRetryAt),
		WorkerUUID: idOrNull(s.WorkerUUID), LeaseExpiresAt: toUTC(s.LeaseExpiresAt), CreatedAt: s.CreatedAt.UTC(),
		UpdatedAt: s.UpdatedAt.UTC(), CompletedAt: toUTC(s.CompletedAt), DecisionDue: s.DecisionDue, DecidedAt: toUTC(s.DecidedAt), SkipReason: textOrNull(s.SkipReason), UndoOf: textOrNull(s.UndoOf()), WaitUntil: toUTC(s.WaitUntil), Reminders: s.Reminders, RemindAt: toUTC(s.RemindAt),
		ChildTaskUUID: idOrNull(s.ChildTaskUUID), Assignee: textOrNull(s.Assignee), Due: s.Due,
		Items: s.Items, Results: orNull(s.Results), Error: orNull(s.Error),
	}
	if s.Map != nil {
		id := s.Map.StepUUID.String()
		out.MapStepUUID, out.Ordinal, out.Item = &id, &s.Map.Ordinal, s.Map.Value
	}
	if c := s.Checkpoint; c != nil {
		saved := *c
		saved.SavedAt = c.SavedAt.UTC()
		out.Checkpoint = &saved
	}
	return out
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
