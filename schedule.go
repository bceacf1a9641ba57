package tasker

import (
	"encoding/json"
	"time"
)

// Overlap says what a schedule does at an instant while a task of it has not ended.
type Overlap string

// What it may do.
const (
	OverlapSkip   Overlap = "skip"   // no task is made for the instant
	OverlapQueue  Overlap = "queue"  // the task is made when the others have ended; one instant waits at a time
	OverlapCancel Overlap = "cancel" // the others are cancelled
	OverlapAllow  Overlap = "allow"  // they run beside each other
)

// Overlaps lists every way.
func Overlaps() []Overlap { return []Overlap{OverlapSkip, OverlapQueue, OverlapCancel, OverlapAllow} }

// CatchUp says which instants of a schedule are made up for that no server handled in time.
type CatchUp string

// Which they may be.
const (
	CatchUpNone CatchUp = "none"
	CatchUpLast CatchUp = "last" // the last one, unless another instant is due by then
	CatchUpAll  CatchUp = "all"  // the last of them, up to a number
)

// CatchUps lists every way.
func CatchUps() []CatchUp { return []CatchUp{CatchUpNone, CatchUpLast, CatchUpAll} }

// A ScheduleRule says at which instants a schedule makes tasks. It has one of Cron, Every and
// AfterEnd.
type ScheduleRule struct {
	Cron     string        // five fields, or six with the second first
	DayMatch string        // any or all: what it means that Cron restricts both day fields
	Zone     string        // of Cron and Except; UTC when empty
	Every    time.Duration // a fixed rate, counted from StartAt or from the creation
	AfterEnd time.Duration // a fixed delay: after the task before has ended
	Except   []string      // at which no task is made: 2026-12-25, 2026-12-24..2027-01-01, sat
	Jitter   time.Duration // instants are handled up to so much later, each by a time of its own
	StartAt  *time.Time    // no instant is before
	EndAt    *time.Time    // no instant is after
}

// ScheduleSpec is what people say of a schedule.
type ScheduleSpec struct {
	Namespace  string // of the schedule and of the template
	Name       string // unique within the namespace
	Template   string
	Version    string          // of the template; empty means the newest at each instant
	Context    json.RawMessage // of each task
	NominalKey string          // the key of the context that gets the instant; empty means none does
	Priority   int
	Tags       []string
	ScheduleRule
	Overlap     Overlap
	CatchUp     CatchUp
	CatchUpMax  int           // of CatchUpAll
	StartWithin time.Duration // an instant that is handled later is one to catch up with
}

// A Schedule makes tasks of a template at the instants of a rule.
type Schedule struct {
	UUID ID
	ScheduleSpec
	Anchor       time.Time  // what a fixed rate is counted from
	NextAt       *time.Time // the first instant that has no firing yet; nil: none is known
	FireAt       *time.Time // when a server handles the schedule next; nil: when somebody or a task asks for it
	AwaitsTask   *ID        // of a fixed delay: the task whose end is awaited
	PausedAt     *time.Time
	PausedUntil  *time.Time
	PausedBy     string
	PausedReason string
	CreatedAt    time.Time
	CreatedBy    string
	UpdatedAt    time.Time
	Revision     int // goes up with each change of what people say of it
	DeletedAt    *time.Time
}

// ScheduleState is how a schedule is.
type ScheduleState string

// The states.
const (
	ScheduleActive  ScheduleState = "active"  // an instant is to come
	SchedulePaused  ScheduleState = "paused"  // somebody has paused it
	ScheduleWaiting ScheduleState = "waiting" // for its task to end, as a fixed delay does
	ScheduleOver    ScheduleState = "over"    // no instant is to come
	ScheduleDeleted ScheduleState = "deleted"
)

// ScheduleStates lists every state.
func ScheduleStates() []ScheduleState {
	return []ScheduleState{ScheduleActive, SchedulePaused, ScheduleWaiting, ScheduleOver, ScheduleDeleted}
}

// State says how the schedule is.
func (s Schedule) State() ScheduleState {
	switch {
	case s.DeletedAt != nil:
		return ScheduleDeleted
	case s.PausedAt != nil:
		return SchedulePaused
	case s.AwaitsTask != nil:
		return ScheduleWaiting
	case s.NextAt == nil:
		return ScheduleOver
	default:
		return ScheduleActive
	}
}

// FiringKind says what caused a [Firing].
type FiringKind string

// The kinds.
const (
	ClockFiring    FiringKind = "clock"    // the instant came
	ManualFiring   FiringKind = "manual"   // somebody asked for a task at once
	BackfillFiring FiringKind = "backfill" // somebody asked for a task of an instant in the past
)

// FiringKinds lists every kind.
func FiringKinds() []FiringKind { return []FiringKind{ClockFiring, ManualFiring, BackfillFiring} }

// FiringOutcome is what became of an instant of a schedule.
type FiringOutcome string

// The outcomes.
const (
	FiringStarted FiringOutcome = "started" // a task was made
	FiringQueued  FiringOutcome = "queued"  // one is made when the tasks before have ended
	FiringSkipped FiringOutcome = "skipped" // none was: the calendar, a pause, or a task before that has not ended
	FiringMerged  FiringOutcome = "merged"  // another instant stands for it
	FiringMissed  FiringOutcome = "missed"  // no server handled it in time
	FiringRefused FiringOutcome = "refused" // the task could not be made
)

// FiringOutcomes lists every outcome.
func FiringOutcomes() []FiringOutcome {
	return []FiringOutcome{FiringStarted, FiringQueued, FiringSkipped, FiringMerged, FiringMissed, FiringRefused}
}

// A Firing says what became of an instant of a schedule, or of some instants in a row that had the
// same fate.
type Firing struct {
	ScheduleUUID ID
	Kind         FiringKind
	NominalAt    time.Time // the instant by the rule, without jitter
	NominalUntil time.Time // the last of the instants
	Instants     int64
	Outcome      FiringOutcome
	Reason       string
	TaskUUID     *ID // of [FiringStarted]
	Actor        string
	DecidedAt    time.Time
	LateMS       int64      // how long after the instant, with its jitter, it was handled
	EndedAt      *time.Time // the task
	TaskState    TaskState  // of the task; empty when it is gone
}

// A ScheduleDetail is a schedule with what comes next and came last.
type ScheduleDetail struct {
	Schedule
	Next    []time.Time // instants to come at which a task is made, as far as anybody knows
	Firings []Firing    // newest first, at most [MaxScheduleFirings]
	History []ScheduleChange
}

// A ScheduleChange is one line of the history of a schedule.
type ScheduleChange struct {
	At       time.Time
	Event    string
	Actor    string
	Reason   string
	Metadata json.RawMessage
}

// A ScheduleFilter selects and pages schedules, by namespace and name.
type ScheduleFilter struct {
	Namespace string
	Name      string
	Paused    bool // only those that are paused
	After     *ID  // the last of the page before
	Limit     int
}

// A ScheduleHealth is a schedule of a list with how its last tasks went.
type ScheduleHealth struct {
	Schedule
	Failing int  // so many of its tasks in a row, the newest first, are in error or were cancelled or given up; counted to [ScheduleFailingMost]
	Refused bool // the last instant at which a task was due made none, because it could not be made
}

// Failing schedules are told of from so many tasks on.
const (
	ScheduleFailingFrom = 3
	ScheduleFailingMost = 5 // as the statement that counts them says
)

// A FiringFilter selects and pages the firings of a schedule, newest first.
type FiringFilter struct {
	Schedule ID
	Outcome  FiringOutcome // empty means any
	Before   *time.Time    // NominalAt of the last of the page before, with
	Kind     FiringKind    // its kind
	Limit    int
}

// A BackfillInstant is what a backfill does, or would do, for one instant.
type BackfillInstant struct {
	NominalAt time.Time
	Starts    bool   // a task is made
	Reason    string // why none is
	TaskUUID  *ID    // that was made, now or before
}

// Bounds of schedules.
const (
	MaxSchedules = 10_000 // of a database, without those that were deleted
	// MaxSchedulesOfNamespace leaves room to other namespaces.
	MaxSchedulesOfNamespace = 2000
	MaxScheduleFirings      = 20 // that are shown with a schedule
	MaxScheduleHistory      = 100
	MaxScheduleNext         = 100
	MaxScheduleExcept       = 100
	MaxScheduleJitter       = time.Hour
	MaxScheduleInterval     = 366 * 24 * time.Hour
	MaxStartWithin          = 24 * time.Hour
	MaxCatchUp              = 1000
	MaxBackfill             = 500             // instants of one request
	DefaultStartWithin      = 5 * time.Minute // of a schedule that does not say
)
