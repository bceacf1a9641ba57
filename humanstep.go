package tasker

import (
	"encoding/json"
	"strings"
	"time"
)

// GroupPrefix begins an assignee that is a group of people, as the identity provider names it.
const GroupPrefix = "group:"

// AssigneeFault says why a text does not name an assignee; empty when it does.
func AssigneeFault(name string) string {
	switch {
	case len(name) > MaxAssigneeBytes:
		return "has more than 128 bytes"
	case strings.TrimPrefix(name, GroupPrefix) == "":
		return "is empty"
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' || r == '(' || r == ')' }):
		return "has a blank, a parenthesis or a character that cannot be printed"
	default:
		return ""
	}
}

// A HumanStep is an external step that a person answers: who that is, and since when it waits.
type HumanStep struct {
	StepRef
	Namespace    string
	TaskName     string // the name of the template
	StepName     string
	Assignee     string // a person, or a group; empty: nobody in particular
	AssignedBy   string // empty: its template says so
	AssignedAt   time.Time
	Waiting      bool // for an answer
	WaitingSince time.Time
	DueAt        *time.Time // its timeout; nil: it has none
	EscalatedAt  *time.Time // when its wait got another assignee because nobody answered; nil: it did not
	Reminders    int        // of this wait
}

// A HumanStepDetail is an assignment with what an answer looks like, and its history.
type HumanStepDetail struct {
	HumanStep
	Form    json.RawMessage // JSON Schema of the answer; nil: any result is one
	History []HumanStepChange
}

// MaxHumanStepHistory is how many changes of an assignment are listed, the newest.
const MaxHumanStepHistory = 50

// A HumanStepChange is a line of the history of an assignment.
type HumanStepChange struct {
	At       time.Time
	Event    string // assigned, unassigned or escalated
	Actor    string
	Reason   string
	Assignee string // after it
}

// An InboxFilter selects and pages what waits for people, what is due first before the rest.
type InboxFilter struct {
	Namespace string   // empty: any
	Template  string   // its name; empty: any
	Assignees []string // any of these; nil: whoever it is. The empty text means nobody in particular
	DueBefore *time.Time
	Overdue   bool // only what should have been answered by now
	After     *InboxCursor
	Limit     int
}

// An InboxCursor marks the end of a page of the inbox.
type InboxCursor struct {
	DueAt *time.Time // nil: behind all that have a timeout
	Step  ID
}

// String spells the place, for [ParseInboxCursor].
func (p InboxCursor) String() string {
	due := ""
	if p.DueAt != nil {
		due = p.DueAt.UTC().Format(time.RFC3339Nano)
	}
	return due + "~" + p.Step.String()
}

// ParseInboxCursor reads where a page of the inbox ended. The error is Invalid.
func ParseInboxCursor(text string) (p InboxCursor, err error) {
	due, step, found := strings.Cut(text, "~")
	if found && due != "" {
		at, wrong := time.Parse(time.RFC3339Nano, due)
		p.DueAt, found = &at, wrong == nil && at.Year() >= 1900 && at.Year() < 3000
	}
	if !found || p.Step.UnmarshalText([]byte(step)) != nil {
		return InboxCursor{}, Errorf(Invalid, "after: must be next_after of the page before")
	}
	return p, nil
}

// An AssignRequest gives an external step that waits another assignee.
type AssignRequest struct {
	Assignee string // empty: nobody in particular
	Actor    string
	Reason   string
}

// An AnswerLinkState says whether the token of an answer link is worth anything.
type AnswerLinkState string

// The states of answer links.
const (
	LinkOpen    AnswerLinkState = "open"
	LinkUsed    AnswerLinkState = "used"
	LinkRevoked AnswerLinkState = "revoked"
	LinkExpired AnswerLinkState = "expired"
	LinkVoid    AnswerLinkState = "void" // the step was answered otherwise, was reset, or is assigned to somebody else
)

// AnswerLinkStates lists the states of answer links.
func AnswerLinkStates() []AnswerLinkState {
	return []AnswerLinkState{LinkOpen, LinkUsed, LinkRevoked, LinkExpired, LinkVoid}
}

// An AnswerLink lets whoever has its token answer a step that waits, once and without signing in.
type AnswerLink struct {
	UUID ID
	StepRef
	Assignee  string // for whom it was made
	State     AnswerLinkState
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time
	UsedAt    *time.Time
	RevokedAt *time.Time
	RevokedBy string
}

// An AnswerLinkRequest asks for an answer link.
type AnswerLinkRequest struct {
	Life  time.Duration // 0 means [DefaultAnswerLinkLife]
	Actor string
}

// A NewAnswerLink is an answer link with its token, which cannot be had again.
type NewAnswerLink struct {
	AnswerLink
	Token string
}

// Path is that of the page on which the step is answered.
func (l NewAnswerLink) Path() string { return AnswerLinkPath + l.Token }

// AnswerLinkPath begins the paths of the pages on which steps are answered by a link.
const AnswerLinkPath = "/ui/answer/"

// Bounds of an answer link.
const (
	DefaultAnswerLinkLife = 72 * time.Hour
	MinAnswerLinkLife     = time.Minute
	MaxAnswerLinkLife     = 30 * 24 * time.Hour
)

// An AnswerQuestion is what the holder of an answer link may see: what is asked, and nothing else
// of the task.
type AnswerQuestion struct {
	State     AnswerLinkState
	Step      string // its name
	Assignee  string // for whom the link was made
	Form      json.RawMessage
	ExpiresAt time.Time
}
