package apiv1

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Step is a step with its readiness.
type Step struct {
	StepUUID              string          `json:"step_uuid"`
	TaskUUID              string          `json:"task_uuid"`
	Name                  string          `json:"name"`
	Type                  string          `json:"type"`
	Handler               string          `json:"handler"`
	CurrentState          string          `json:"current_state"`
	DependenciesSatisfied bool            `json:"dependencies_satisfied"`
	RetryEligible         bool            `json:"retry_eligible" doc:"The step is in error, may be retried, and its backoff has passed."`
	ReadyForExecution     bool            `json:"ready_for_execution"`
	TotalParents          int             `json:"total_parents"`
	CompletedParents      int             `json:"completed_parents"`
	Dependencies          []string        `json:"dependencies" doc:"Ids of the steps that come before."`
	Attempts              int             `json:"attempts"`
	MaxAttempts           int             `json:"max_attempts"`
	LastAttemptedAt       *time.Time      `json:"last_attempted_at"`
	LastFailureAt         *time.Time      `json:"last_failure_at"`
	NextRetryAt           *time.Time      `json:"next_retry_at"`
	WorkerUUID            *string         `json:"worker_uuid"`
	LeaseExpiresAt        *time.Time      `json:"lease_expires_at"`
	CreatedAt             time.Time       `json:"created_at"`
	UpdatedAt             time.Time       `json:"updated_at"`
	CompletedAt           *time.Time      `json:"completed_at"`
	DecisionDue           bool            `json:"decision_due" doc:"A server is about to decide whether the step runs or is skipped."`
	DecidedAt             *time.Time      `json:"decided_at" doc:"When it was decided that the step runs, by its condition and its join. Null: not decided yet, or nothing is to be decided."`
	WaitUntil             *time.Time      `json:"wait_until" doc:"When the wait of an external step ends by the clock, as on_timeout of its template says. Null: it does not wait, or without end."`
	Reminders             int             `json:"reminders" doc:"How often people were reminded of an external step in this wait."`
	RemindAt              *time.Time      `json:"remind_at" doc:"When people are next reminded of the step, as remind_after_seconds of its template says. Null: not again."`
	Assignee              *string         `json:"assignee" doc:"Who is to answer an external step: a person, or group: and a group. Null: nobody in particular."`
	Due                   *Deadline       `json:"due" doc:"By when the step is due. Null: it has no due time, or is not ready yet."`
	UndoOf                *string         `json:"undo_of" doc:"The name of the step that this one undoes. Null for the steps of the template."`
	ChildTaskUUID         *string         `json:"child_task_uuid" doc:"The task that a step of type child started last. Null: it has not started one."`
	MapStepUUID           *string         `json:"map_step_uuid,omitempty" doc:"Of an item of a step of type map: that step. Missing: the step is no item."`
	Ordinal               *int            `json:"ordinal,omitempty" doc:"The place of an item among the items of its step, from 0."`
	Item                  json.RawMessage `json:"item,omitempty" doc:"What the handler of an item is given: an element of the list."`
	Items                 *ItemCounts     `json:"items,omitempty" doc:"The items of a step of type map, by their states. Missing: it has none yet, or is of another type."`
	Checkpoint            *Checkpoint     `json:"checkpoint,omitempty" doc:"What workers last saved of how far the step has come. Missing: nothing, or the step is done."`
	SkipReason            *string         `json:"skip_reason" doc:"Why the step is skipped. Null unless it is."`
	Results               json.RawMessage `json:"results" doc:"Object of the last result {success, result, metadata}, or null."`
	Error                 json.RawMessage `json:"error" doc:"Object of the last failure {message, type, retryable, …}, or null."`
}

// Checkpoint is what a worker has saved of how far a step has come.
type Checkpoint struct {
	Attempt int             `json:"attempt" doc:"The attempt that saved it."`
	Bytes   int             `json:"bytes"`
	SavedAt time.Time       `json:"saved_at"`
	Value   json.RawMessage `json:"value,omitempty" doc:"Missing in lists."`
}

// ItemCounts are the items of a step of type map by their states.
type ItemCounts struct {
	Total      int `json:"total"`
	Pending    int `json:"pending" doc:"They wait for a place."`
	Enqueued   int `json:"enqueued"`
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed" doc:"Or resolved by hand."`
	Retrying   int `json:"retrying" doc:"They have failed, and rest before the next attempt."`
	Failed     int `json:"failed"`
	Cancelled  int `json:"cancelled"`
	Skipped    int `json:"skipped"`
}

// StepItemList is a page of the items of a step of type map, in their order.
type StepItemList struct {
	Items []Step `json:"items"`
	Next  *int   `json:"next" doc:"The value of from for the next page; null at the end."`
}

// ItemResults are results of the items of a step of type map, in their order.
type ItemResults struct {
	Results []json.RawMessage `json:"results" doc:"One after the other; null of an item without a result."`
	Next    *int              `json:"next" doc:"The value of from for the next page; null at the end."`
}

// DocumentTag is the ETag, without its quotes, of an answer that is a bare document, such as the
// result of a step.
func DocumentTag(doc []byte) string {
	sum := sha256.Sum256(doc)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// StepAction is the body of PATCH /v1/tasks/{uuid}/workflow_steps/{step}:
// one of the three actions, told apart by action_type.
type StepAction struct {
	ActionType     string          `json:"action_type"`
	Reason         string          `json:"reason"`
	ResetBy        string          `json:"reset_by,omitempty"`
	ResolvedBy     string          `json:"resolved_by,omitempty"`
	CompletedBy    string          `json:"completed_by,omitempty"`
	CompletionData *CompletionData `json:"completion_data,omitempty"`
	Interrupt      bool            `json:"interrupt,omitempty"`
	Child          string          `json:"child,omitempty"` // new: of reset_for_retry

	DiscardCheckpoint bool `json:"discard_checkpoint,omitempty"` // of reset_for_retry
}

// NewChild is the value of [StepAction.Child] with which a child step starts another task.
const NewChild = "new"

// CompletionData is what an operator gives in place of a handler's result.
type CompletionData struct {
	Result   json.RawMessage `json:"result"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Completion is the body of POST /v1/tasks/{uuid}/workflow_steps/{step}/completion:
// the outcome of an external step, told by the system outside.
type Completion struct {
	Success  bool            `json:"success"`
	Result   json.RawMessage `json:"result,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Error    *ResultError    `json:"error,omitempty"`
	Source   string          `json:"source,omitempty" maxLength:"255" doc:"Who reports the outcome."`
}

// FromStep converts a step.
func FromStep(s tasker.Step) Step {
	out := Step{
		StepUUID: s.UUID.String(), TaskUUID: s.TaskUUID.String(), Name: s.Name, Type: string(s.Type), Handler: s.Handler,
		CurrentState: string(s.State), DependenciesSatisfied: s.DependenciesSatisfied, RetryEligible: s.RetryEligible,
		ReadyForExecution: s.ReadyForExecution, TotalParents: s.TotalParents, CompletedParents: s.CompletedParents,
		Dependencies: []string{}, Attempts: s.Attempts, MaxAttempts: s.MaxAttempts,
		LastAttemptedAt: utc(s.LastAttemptedAt), LastFailureAt: utc(s.LastFailureAt), NextRetryAt: utc(s.NextRetryAt),
		WorkerUUID: idOrNull(s.WorkerUUID), LeaseExpiresAt: utc(s.LeaseExpiresAt), CreatedAt: s.CreatedAt.UTC(),
		UpdatedAt: s.UpdatedAt.UTC(), CompletedAt: utc(s.CompletedAt), DecisionDue: s.DecisionDue, DecidedAt: utc(s.DecidedAt), SkipReason: textOrNull(s.SkipReason), UndoOf: textOrNull(s.UndoOf()), WaitUntil: utc(s.WaitUntil), Reminders: s.Reminders, RemindAt: utc(s.RemindAt),
		ChildTaskUUID: idOrNull(s.ChildTaskUUID), Assignee: textOrNull(s.Assignee), Due: deadline(s.Due),
		Results: orNull(s.Results), Error: orNull(s.Error),
	}
	if s.Map != nil {
		id := s.Map.StepUUID.String()
		out.MapStepUUID, out.Ordinal, out.Item = &id, &s.Map.Ordinal, s.Map.Value
	}
	if c := s.Checkpoint; c != nil {
		out.Checkpoint = &Checkpoint{Attempt: c.Attempt, Bytes: c.Bytes, SavedAt: c.SavedAt.UTC(), Value: c.Value}
	}
	if s.Items != nil {
		items := ItemCounts(*s.Items)
		out.Items = &items
	}
	for _, p := range s.Parents {
		out.Dependencies = append(out.Dependencies, p.String())
	}
	return out
}

// HumanStep is an external step that a person answers.
type HumanStep struct {
	TaskUUID     string     `json:"task_uuid"`
	StepUUID     string     `json:"step_uuid"`
	Step         string     `json:"step" doc:"Its name."`
	Namespace    string     `json:"namespace"`
	Template     string     `json:"template"`
	Assignee     *string    `json:"assignee" doc:"Who is to answer: a person, or group: and a group. Null: nobody in particular."`
	AssignedBy   *string    `json:"assigned_by" doc:"Who said so. Null: the template."`
	AssignedAt   *time.Time `json:"assigned_at"`
	Waiting      bool       `json:"waiting" doc:"The step waits for an answer."`
	WaitingSince *time.Time `json:"waiting_since"`
	DueAt        *time.Time `json:"due_at" doc:"Its timeout. Null: it has none."`
	EscalatedAt  *time.Time `json:"escalated_at" doc:"When escalate_to of its template became the assignee, because nobody answered. Null: it did not."`
	Reminders    int        `json:"reminders" doc:"How often people were reminded of it in this wait."`
}

// HumanStepDetail is a human step with what an answer looks like, and its history.
type HumanStepDetail struct {
	HumanStep
	Form    json.RawMessage   `json:"form" doc:"JSON Schema of the answer. Null: any result is one."`
	History []HumanStepChange `json:"history" doc:"Newest first, at most 50."`
}

// HumanStepChange is a line of the history of a human step.
type HumanStepChange struct {
	At       time.Time `json:"at"`
	Event    string    `json:"event" enum:"assigned,unassigned,escalated"`
	Actor    string    `json:"actor"`
	Reason   *string   `json:"reason"`
	Assignee *string   `json:"assignee" doc:"Who was to answer from then on."`
}

// Inbox is a page of what waits for people, what is due first before the rest.
type Inbox struct {
	Steps      []HumanStep `json:"steps"`
	Pagination InboxPage   `json:"pagination"`
}

// InboxPage says where a page of the inbox ends.
type InboxPage struct {
	Limit     int     `json:"limit"`
	Count     int     `json:"count"`
	HasMore   bool    `json:"has_more"`
	NextAfter *string `json:"next_after" doc:"The value of after for the next page; null at the end."`
}

// AssignStep is the body of PUT /v1/tasks/{uuid}/workflow_steps/{step}/assignee.
type AssignStep struct {
	Assignee string `json:"assignee" maxLength:"128" doc:"A person, or group: and a group. Empty: nobody in particular."`
	Reason   string `json:"reason,omitempty" maxLength:"2000" doc:"Why, for the history."`
	By       string `json:"by,omitempty" maxLength:"255" doc:"Who, for the history."`
}

// FromHumanStep converts a human step.
func FromHumanStep(h tasker.HumanStep) HumanStep {
	out := HumanStep{
		TaskUUID: h.TaskUUID.String(), StepUUID: h.StepUUID.String(), Step: h.StepName, Namespace: h.Namespace, Template: h.TaskName,
		Assignee: textOrNull(h.Assignee), AssignedBy: textOrNull(h.AssignedBy), Waiting: h.Waiting, DueAt: utc(h.DueAt), EscalatedAt: utc(h.EscalatedAt), Reminders: h.Reminders,
	}
	if !h.WaitingSince.IsZero() { // it is in the inbox, or was
		out.AssignedAt, out.WaitingSince = utc(&h.AssignedAt), utc(&h.WaitingSince)
	}
	return out
}

// FromHumanStepDetail converts a human step with its history.
func FromHumanStepDetail(d tasker.HumanStepDetail) HumanStepDetail {
	out := HumanStepDetail{HumanStep: FromHumanStep(d.HumanStep), Form: orNull(d.Form), History: []HumanStepChange{}}
	for _, c := range d.History {
		out.History = append(out.History, HumanStepChange{At: c.At.UTC(), Event: c.Event, Actor: c.Actor, Reason: textOrNull(c.Reason), Assignee: textOrNull(c.Assignee)})
	}
	return out
}

// AnswerLink is a link by which a step is answered once, without signing in. Its token is shown when
// it is made, and never again.
type AnswerLink struct {
	UUID      string     `json:"link_uuid"`
	TaskUUID  string     `json:"task_uuid"`
	StepUUID  string     `json:"step_uuid"`
	Assignee  string     `json:"assignee" doc:"For whom it was made: the answer is recorded as that of link: and this name."`
	State     string     `json:"state" enum:"open,used,revoked,expired,void" doc:"void: the step was answered otherwise, was reset, or is assigned to somebody else."`
	CreatedBy string     `json:"created_by"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	UsedAt    *time.Time `json:"used_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	RevokedBy *string    `json:"revoked_by"`
}

// AnswerLinks are the links of a step.
type AnswerLinks struct {
	Links []AnswerLink `json:"links" doc:"Newest first: those that can be used, and the last 30 of the others."`
}

// CreateAnswerLink is the body of POST /v1/tasks/{uuid}/workflow_steps/{step}/answer_links.
type CreateAnswerLink struct {
	ExpiresInSeconds *int64 `json:"expires_in_seconds,omitempty" minimum:"60" maximum:"2592000" doc:"How long it can be used. Default: 259200, three days."`
	By               string `json:"by,omitempty" maxLength:"255" doc:"Who makes it, for the audit log."`
}

// NewAnswerLink is a link with its token.
type NewAnswerLink struct {
	AnswerLink
	Token string  `json:"token" doc:"It cannot be had again: what is stored is its SHA-256."`
	Path  string  `json:"path" doc:"Of the page on which the step is answered."`
	URL   *string `json:"url" doc:"Its address. Null: the server does not know where browsers reach it (emission.public_url)."`
}

// FromAnswerLink converts an answer link.
func FromAnswerLink(l tasker.AnswerLink) AnswerLink {
	return AnswerLink{
		UUID: l.UUID.String(), TaskUUID: l.TaskUUID.String(), StepUUID: l.StepUUID.String(), Assignee: l.Assignee, State: string(l.State), CreatedBy: l.CreatedBy,
		CreatedAt: l.CreatedAt.UTC(), ExpiresAt: l.ExpiresAt.UTC(), UsedAt: utc(l.UsedAt), RevokedAt: utc(l.RevokedAt), RevokedBy: textOrNull(l.RevokedBy),
	}
}

// FromNewAnswerLink converts an answer link with its token. The base is where browsers reach the
// server; empty: nobody knows.
func FromNewAnswerLink(l tasker.NewAnswerLink, base string) NewAnswerLink {
	out := NewAnswerLink{AnswerLink: FromAnswerLink(l.AnswerLink), Token: l.Token, Path: l.Path()}
	if base != "" {
		out.URL = textOrNull(base + l.Path())
	}
	return out
}
