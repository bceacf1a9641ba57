package tasker

import "time"

// MaxWait is the longest timer of a wait step.
const MaxWait = 5 * 365 * 24 * time.Hour

// MaxDue limits how far in the future a task or step may be due.
const MaxDue = MaxWait

// MaxCountedOverdue limits how many overdue tasks the metric counts per namespace.
const MaxCountedOverdue = 10_000

// DuePolicy defines when the tasks of a template, or one of its steps, are due.
type DuePolicy struct {
	// From the start of the task, or from when the step became ready.
	AfterSeconds int    `json:"after_seconds,omitempty"`
	At           string `json:"at,omitempty"` // alternatively, an expression that returns the due time

	// Warning lead time; nil warns after four fifths of the time.
	WarnBeforeSeconds *int          `json:"warn_before_seconds,omitempty"`
	Overdue           OverduePolicy `json:"overdue,omitempty"` // empty means [OverdueNotify]
}

// IsZero reports whether the policy is empty.
func (r DuePolicy) IsZero() bool { return r == DuePolicy{} }

// HasDueTime reports whether the policy sets a due time.
func (r DuePolicy) HasDueTime() bool { return r.AfterSeconds > 0 || r.At != "" }

// OpensInvestigation reports whether an overdue task or step gets an investigation.
func (r DuePolicy) OpensInvestigation() bool { return r.Overdue == OverdueInvestigate }

// OverduePolicy selects the reaction to a missed due time.
type OverduePolicy string

// Overdue policies.
const (
	OverdueNotify      OverduePolicy = "tell"        // send notifications and show it in the UI
	OverdueInvestigate OverduePolicy = "investigate" // also open an investigation, as after max_duration
)

// StepOrder selects which steps of equal priority are claimed first.
type StepOrder string

// OrderDue orders steps by due time; steps without one come last. The default is the order in
// which they were enqueued.
const OrderDue StepOrder = "due"

// DeadlineState is the state of a due time.
type DeadlineState string

// Deadline states. The first three apply to open tasks and steps.
const (
	DeadlineAhead   DeadlineState = "ahead"
	DeadlineSoon    DeadlineState = "soon" // the warning time has passed
	DeadlineOverdue DeadlineState = "overdue"
	DeadlineMet     DeadlineState = "met"    // completed in time
	DeadlineMissed  DeadlineState = "missed" // completed late
	DeadlineEnded   DeadlineState = "ended"  // cancelled or permanently failed
)

// DeadlineStates lists all deadline states.
func DeadlineStates() []DeadlineState {
	return []DeadlineState{DeadlineAhead, DeadlineSoon, DeadlineOverdue, DeadlineMet, DeadlineMissed, DeadlineEnded}
}

// DeadlineSource identifies who set a due time.
type DeadlineSource string

// Deadline sources.
const (
	DueByRequest  DeadlineSource = "request"
	DueByTemplate DeadlineSource = "template"
	DueByOperator DeadlineSource = "operator"
)

// Deadline is the due time of a task or step, by the database clock.
type Deadline struct {
	DueAt       time.Time      `json:"due_at"`
	WarnAt      time.Time      `json:"warn_at" doc:"When the warning is sent."`
	State       DeadlineState  `json:"state" enum:"ahead,soon,overdue,met,missed,ended" doc:"While open: ahead, soon from warn_at on, overdue. After the end: completed in time (met) or later (missed), or cancelled or permanently failed (ended)."`
	Overdue     OverduePolicy  `json:"overdue" enum:"tell,investigate" doc:"Reaction to the missed due time: with tell, notifications are sent; with investigate, an investigation is opened as well."`
	Source      DeadlineSource `json:"source" enum:"request,template,operator" doc:"Origin of the current value."`
	SetBy       OptionalString `json:"set_by" doc:"Operator who changed it, or null."`
	WarnedAt    *time.Time     `json:"warned_at" doc:"When the warning was sent, or null."`
	AnnouncedAt *time.Time     `json:"announced_at" doc:"When the overdue notification was sent, or null."`
}

// DueUpdate changes the due time of a task or step.
type DueUpdate struct {
	StepUUID ID         // zero for the task
	DueAt    *time.Time // nil removes the due time
	Actor    string
	Reason   string
}

// Results of [FirstDeadline].
const (
	ByDueTime     = "due"
	ByMaxDuration = "max_duration"
)

// FirstDeadline returns the earlier of the due time and the end of max_duration_minutes, and
// which of the two it is. It returns "" if there is neither.
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
