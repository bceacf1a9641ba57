package tasker

import (
	"encoding/json"
	"strings"
	"time"
)

// GroupPrefix starts an assignee that is a group of the identity provider.
const GroupPrefix = "group:"

// AssigneeFault returns why name is not a valid assignee, or "" if it is valid.
func AssigneeFault(name string) string {
	switch {
	case len(name) > MaxAssigneeBytes:
		return "is longer than 128 bytes"
	case strings.TrimPrefix(name, GroupPrefix) == "":
		return "is empty"
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' || r == '(' || r == ')' }):
		return "contains a space, a parenthesis or a non-printable character"
	default:
		return ""
	}
}

// HumanStep is an external step that a person answers.
type HumanStep struct {
	StepRef
	StepName     string         `json:"step" doc:"Name of the step."`
	Namespace    string         `json:"namespace"`
	TaskName     string         `json:"template"`
	Assignee     OptionalString `json:"assignee" doc:"A person, or group: and a group. Null if unassigned."`
	AssignedBy   OptionalString `json:"assigned_by" doc:"Null: the template."`
	AssignedAt   *time.Time     `json:"assigned_at"` // nil if the step was never in the inbox
	Waiting      bool           `json:"waiting" doc:"The step is waiting for an answer."`
	WaitingSince *time.Time     `json:"waiting_since"`
	DueAt        *time.Time     `json:"due_at" doc:"Timeout, or null."`
	EscalatedAt  *time.Time     `json:"escalated_at" doc:"When escalate_to of the template became the assignee, or null."`
	Reminders    int            `json:"reminders" doc:"Reminders sent in the current wait."`
}

// HumanStepDetail is a human step with its form and its history.
type HumanStepDetail struct {
	HumanStep
	Form    json.RawMessage   `json:"form" doc:"JSON Schema of the answer. Null accepts any result."`
	History []HumanStepChange `json:"history" doc:"Newest first, at most 50."`
}

// MaxHumanStepHistory limits the listed history of a human step to the newest changes.
const MaxHumanStepHistory = 50

// HumanStepChange is one row of the history of a human step.
type HumanStepChange struct {
	At       time.Time      `json:"at"`
	Event    string         `json:"event" enum:"assigned,unassigned,escalated"`
	Actor    string         `json:"actor"`
	Reason   OptionalString `json:"reason"`
	Assignee OptionalString `json:"assignee" doc:"New assignee."`
}

// InboxFilter selects and pages waiting human steps, earliest due first.
type InboxFilter struct {
	Namespace string   // empty matches any
	Template  string   // name; empty matches any
	Assignees []string // any of these, "" for unassigned steps; nil matches all
	DueBefore *time.Time
	Overdue   bool // only steps past their timeout
	After     *InboxCursor
	Limit     int
}

// InboxCursor marks the end of a page of the inbox.
type InboxCursor struct {
	DueAt *time.Time // nil: after all steps with a timeout
	Step  ID
}

// String formats the cursor for [ParseInboxCursor].
func (p InboxCursor) String() string {
	due := ""
	if p.DueAt != nil {
		due = p.DueAt.UTC().Format(time.RFC3339Nano)
	}
	return due + "~" + p.Step.String()
}

// ParseInboxCursor parses the result of [InboxCursor.String]. It returns an Invalid error if text
// is malformed.
func ParseInboxCursor(text string) (p InboxCursor, err error) {
	due, step, found := strings.Cut(text, "~")
	if found && due != "" {
		at, wrong := time.Parse(time.RFC3339Nano, due)
		p.DueAt, found = &at, wrong == nil && at.Year() >= 1900 && at.Year() < 3000
	}
	if !found || p.Step.UnmarshalText([]byte(step)) != nil {
		return InboxCursor{}, Errorf(Invalid, "invalid after: must be next_after of the previous page")
	}
	return p, nil
}

// AssignRequest changes the assignee of a waiting external step.
type AssignRequest struct {
	Assignee string // empty removes the assignee
	Actor    string
	Reason   string
}

// AnswerLinkState is the state of an answer link.
type AnswerLinkState string

// Answer link states.
const (
	LinkOpen    AnswerLinkState = "open"
	LinkUsed    AnswerLinkState = "used"
	LinkRevoked AnswerLinkState = "revoked"
	LinkExpired AnswerLinkState = "expired"
	LinkVoid    AnswerLinkState = "void" // the step was answered differently, reset or reassigned
)

// AnswerLinkStates lists all answer link states.
func AnswerLinkStates() []AnswerLinkState {
	return []AnswerLinkState{LinkOpen, LinkUsed, LinkRevoked, LinkExpired, LinkVoid}
}

// AnswerLink allows the holder of its token to answer a waiting step once without signing in.
type AnswerLink struct {
	UUID ID `json:"link_uuid"`
	StepRef
	Assignee  string          `json:"assignee" doc:"Recipient. The answer is recorded as link: and this name."`
	State     AnswerLinkState `json:"state" enum:"open,used,revoked,expired,void" doc:"void: the step was answered differently, reset or reassigned."`
	CreatedBy string          `json:"created_by"`
	CreatedAt time.Time       `json:"created_at"`
	ExpiresAt time.Time       `json:"expires_at"`
	UsedAt    *time.Time      `json:"used_at"`
	RevokedAt *time.Time      `json:"revoked_at"`
	RevokedBy OptionalString  `json:"revoked_by"`
}

// AnswerLinkRequest creates an answer link.
type AnswerLinkRequest struct {
	Life  time.Duration // 0 means [DefaultAnswerLinkLife]
	Actor string
}

// NewAnswerLink is a new answer link with its token. The token cannot be retrieved later.
type NewAnswerLink struct {
	AnswerLink
	Token string
}

// Path returns the path of the answer page.
func (l NewAnswerLink) Path() string { return AnswerLinkPath + l.Token }

// AnswerLinkPath is the path prefix of answer pages.
const AnswerLinkPath = "/ui/answer/"

// Lifetimes of an answer link.
const (
	DefaultAnswerLinkLife = 72 * time.Hour
	MinAnswerLinkLife     = time.Minute
	MaxAnswerLinkLife     = 30 * 24 * time.Hour
)

// AnswerQuestion contains everything that the holder of an answer link may read.
type AnswerQuestion struct {
	State     AnswerLinkState
	Step      string // name
	Assignee  string
	Form      json.RawMessage
	ExpiresAt time.Time
}
