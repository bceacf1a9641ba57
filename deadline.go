package tasker

import "time"

// MaxWait is the longest wait of a step by the clock.
const MaxWait = 5 * 365 * 24 * time.Hour

// MaxDue bounds how far ahead a task or a step may be due.
const MaxDue = MaxWait

// MaxCountedOverdue is up to how many overdue tasks of a namespace are counted for the metric of them.
const MaxCountedOverdue = 10_000

// DuePolicy say by when the tasks of a template, or a step of them, are due.
type DuePolicy struct {
	AfterSeconds int    `json:"after_seconds,omitempty"` // after the start of the task; of a step after it became ready
	At           string `json:"at,omitempty"`            // or an expression: at which instant

	WarnBeforeSeconds *int          `json:"warn_before_seconds,omitempty"` // how long before people are told; nil: when four fifths of the time are over
	Overdue           OverduePolicy `json:"overdue,omitempty"`             // empty means tell
}

// IsZero reports whether the rules say nothing.
func (r DuePolicy) IsZero() bool { return r == DuePolicy{} }

// HasDueTime reports whether the rules say by when something is due.
func (r DuePolicy) HasDueTime() bool { return r.AfterSeconds > 0 || r.At != "" }

// OpensInvestigation reports whether what is overdue is investigated.
func (r DuePolicy) OpensInvestigation() bool { return r.Overdue == OverdueInvestigate }

// An OverduePolicy says what becomes of what is overdue.
type OverduePolicy string

// The policies.
const (
	OverdueNotify      OverduePolicy = "tell"        // people are told, and it is shown
	OverdueInvestigate OverduePolicy = "investigate" // an investigation is opened as well, as where max_duration is over
)

// A StepOrder says which of the steps of one priority workers are given first.
type StepOrder string

// OrderDue is the order of when steps and their tasks are due; what is not due at any time comes
// last. Empty means the order in which they were enqueued.
const OrderDue StepOrder = "due"

// DeadlineState says how a due time stands.
type DeadlineState string

// The states. The first three are of what has not ended.
const (
	DeadlineAhead   DeadlineState = "ahead"
	DeadlineSoon    DeadlineState = "soon" // people are warned
	DeadlineOverdue DeadlineState = "overdue"
	DeadlineMet     DeadlineState = "met"    // it is complete, and was in time
	DeadlineMissed  DeadlineState = "missed" // it is complete, and was not
	DeadlineEnded   DeadlineState = "ended"  // it was cancelled or given up
)

// DeadlineStates lists the states.
func DeadlineStates() []DeadlineState {
	return []DeadlineState{DeadlineAhead, DeadlineSoon, DeadlineOverdue, DeadlineMet, DeadlineMissed, DeadlineEnded}
}

// DeadlineSource says who said by when something is due.
type DeadlineSource string

// The sources.
const (
	DueByRequest  DeadlineSource = "request"
	DueByTemplate DeadlineSource = "template"
	DueByOperator DeadlineSource = "operator"
)

// A Deadline is by when a task or a step is due, by the clock of the database.
type Deadline struct {
	DueAt       time.Time      `json:"due_at"`
	WarnAt      time.Time      `json:"warn_at"`
	State       DeadlineState  `json:"state"`
	Overdue     OverduePolicy  `json:"overdue"` // what becomes of it then
	Source      DeadlineSource `json:"source"`
	SetBy       string         `json:"set_by"` // the operator; empty: none changed it
	WarnedAt    *time.Time     `json:"warned_at"`
	AnnouncedAt *time.Time     `json:"announced_at"` // when people were told that it is overdue
}

// A DueUpdate gives a task or a step another due time.
type DueUpdate struct {
	StepUUID ID         // zero: the task
	DueAt    *time.Time // nil: none any more
	Actor    string
	Reason   string
}

// The names of instants by which a task is to have ended.
const (
	ByDueTime     = "due"
	ByMaxDuration = "max_duration"
)

// FirstDeadline says which of the instants by which a task is to have ended comes first, and when: its due
// time or the end of max_duration_minutes. Empty: there is neither.
func FirstDeadline(due *Deadline, maxDuration *time.Time) (which string, at time.Time) {
	switch {
	case due == nil && maxDuration == nil:
		return "", time.Time{}
	case due == nil, maxDuration != nil && maxDuration.Before(due.DueAt):
		return ByMaxDuration, *maxDuration
	default:
		return ByDueTime, due.DueAt
	}
}
