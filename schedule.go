package tasker

import (
	"encoding/json"
	"time"
)

// Overlap selects the reaction to a firing while an earlier task of the schedule is open.
type Overlap string

// Overlap policies.
const (
	OverlapSkip   Overlap = "skip"   // create no task
	OverlapQueue  Overlap = "queue"  // create the task after the others ended; at most one waits
	OverlapCancel Overlap = "cancel" // cancel the others
	OverlapAllow  Overlap = "allow"  // run them concurrently
)

// Overlaps lists all overlap policies.
func Overlaps() []Overlap { return []Overlap{OverlapSkip, OverlapQueue, OverlapCancel, OverlapAllow} }

// CatchUp selects which missed firings of a schedule are executed late.
type CatchUp string

// Catch-up policies.
const (
	CatchUpNone CatchUp = "none"
	CatchUpLast CatchUp = "last" // the last one, unless the next firing is already due
	CatchUpAll  CatchUp = "all"  // the last ones, up to CatchUpMax
)

// CatchUps lists all catch-up policies.
func CatchUps() []CatchUp { return []CatchUp{CatchUpNone, CatchUpLast, CatchUpAll} }

// ScheduleRule defines the firing times of a schedule. Exactly one of Cron, Every and AfterEnd is
// set.
type ScheduleRule struct {
	Cron     string        // five fields, or six starting with seconds
	DayMatch string        // any or all: how two restricted day fields of Cron combine
	Zone     string        // of Cron and Except; the default is UTC
	Every    time.Duration // fixed rate, from StartAt or the creation
	AfterEnd time.Duration // fixed delay after the end of the previous task
	Except   []string      // excluded days: 2026-12-25, 2026-12-24..2027-01-01, sat
	Jitter   time.Duration // maximum delay, different for each firing
	StartAt  *time.Time    // no earlier firings
	EndAt    *time.Time    // no later firings
}

// ScheduleSpec is the user-defined part of a schedule.
type ScheduleSpec struct {
	Namespace  string // of schedule and template
	Name       string // unique within the namespace
	Template   string
	Version    string          // of the template; empty means the newest at each firing
	Context    json.RawMessage // of each task
	NominalKey string          // context key that receives the firing time; empty for none
	Priority   int
	Tags       []string
	ScheduleRule
	Overlap     Overlap
	CatchUp     CatchUp
	CatchUpMax  int           // for [CatchUpAll]
	StartWithin time.Duration // firings that are later count as missed
}

// Schedule creates tasks of a template at the firing times of a rule.
type Schedule struct {
	UUID ID
	ScheduleSpec
	Anchor       time.Time  // start of a fixed rate
	NextAt       *time.Time // next firing time, or nil
	FireAt       *time.Time // when a server processes the schedule next; nil: on request or when a task ends
	AwaitsTask   *ID        // task of a fixed delay that must end first
	PausedAt     *time.Time
	PausedUntil  *time.Time
	PausedBy     string
	PausedReason string
	CreatedAt    time.Time
	CreatedBy    string
	UpdatedAt    time.Time
	Revision     int // incremented by each change of the spec
	DeletedAt    *time.Time
}

// ScheduleState is the state of a schedule.
type ScheduleState string

// Schedule states.
const (
	ScheduleActive  ScheduleState = "active"  // has a next firing time
	SchedulePaused  ScheduleState = "paused"  // paused by an operator
	ScheduleWaiting ScheduleState = "waiting" // a fixed delay waits for its task to end
	ScheduleOver    ScheduleState = "over"    // has no further firing time
	ScheduleDeleted ScheduleState = "deleted"
)

// ScheduleStates lists all schedule states.
func ScheduleStates() []ScheduleState {
	return []ScheduleState{ScheduleActive, SchedulePaused, ScheduleWaiting, ScheduleOver, ScheduleDeleted}
}

// State returns the state of the schedule.
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

// FiringKind is the trigger of a [Firing].
type FiringKind string

// Firing kinds.
const (
	ClockFiring    FiringKind = "clock"    // a firing time was reached
	ManualFiring   FiringKind = "manual"   // an operator triggered it
	BackfillFiring FiringKind = "backfill" // an operator requested a firing time in the past
)

// FiringKinds lists all firing kinds.
func FiringKinds() []FiringKind { return []FiringKind{ClockFiring, ManualFiring, BackfillFiring} }

// FiringOutcome is the outcome of a firing.
type FiringOutcome string

// Firing outcomes.
const (
	FiringStarted FiringOutcome = "started" // a task was created
	FiringQueued  FiringOutcome = "queued"  // a task is created after the previous tasks end
	FiringSkipped FiringOutcome = "skipped" // no task: excluded day, pause, or an open task
	FiringMerged  FiringOutcome = "merged"  // merged into another firing
	FiringMissed  FiringOutcome = "missed"  // no server processed it in time
	FiringRefused FiringOutcome = "refused" // the task could not be created
)

// FiringOutcomes lists all firing outcomes.
func FiringOutcomes() []FiringOutcome {
	return []FiringOutcome{FiringStarted, FiringQueued, FiringSkipped, FiringMerged, FiringMissed, FiringRefused}
}

// Firing records the outcome of one firing time, or of consecutive ones with the same outcome.
type Firing struct {
	ScheduleUUID ID
	Kind         FiringKind
	NominalAt    time.Time // firing time without jitter
	NominalUntil time.Time // last of the firing times
	Instants     int64
	Outcome      FiringOutcome
	Reason       string
	TaskUUID     *ID // of [FiringStarted]
	Actor        string
	DecidedAt    time.Time
	LateMS       int64      // delay after the firing time including jitter
	EndedAt      *time.Time // of the task
	TaskState    TaskState  // empty if the task is deleted
}

// ScheduleDetail is a schedule with its next and last firings.
type ScheduleDetail struct {
	Schedule
	Next    []time.Time // upcoming firing times that create a task, if known
	Firings []Firing    // newest first, at most [MaxScheduleFirings]
	History []ScheduleChange
}

// ScheduleChange is one row of the history of a schedule.
type ScheduleChange struct {
	At       time.Time
	Event    string
	Actor    string
	Reason   string
	Metadata json.RawMessage
}

// ScheduleFilter selects and pages schedules, ordered by namespace and name.
type ScheduleFilter struct {
	Namespace string `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace."`
	Name      string `query:"name" maxLength:"128" doc:"Filter by name."`
	Paused    bool   `query:"paused" doc:"Only paused schedules."`
	After     *ID    `query:"after" doc:"Page cursor: next_after of the previous page."`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
}

// ScheduleHealth is a schedule and the outcome of its latest tasks.
type ScheduleHealth struct {
	Schedule
	// Consecutive latest tasks in error, cancelled or permanently failed; counting stops at
	// [ScheduleFailingMost].
	Failing int
	Refused bool // the latest due task could not be created
}

// A schedule is failing from ScheduleFailingFrom consecutive failed tasks.
const (
	ScheduleFailingFrom = 3
	ScheduleFailingMost = 5 // the SQL statement uses the same value
)

// FiringFilter selects and pages the firings of a schedule, newest first.
type FiringFilter struct {
	Schedule ID
	Outcome  FiringOutcome `query:"outcome" doc:"Filter by outcome."`
	Before   *time.Time    `query:"before" doc:"Page cursor: next_before of the previous page."`
	Kind     FiringKind    `query:"before_kind" doc:"With before: next_before_kind of the previous page."` // of the last firing
	Limit    int           `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
}

// BackfillInstant is the effect of a backfill on one firing time.
type BackfillInstant struct {
	NominalAt time.Time
	Starts    bool   // a task is created
	Reason    string // why no task is created
	TaskUUID  *ID    // created now or earlier
}

// Limits of schedules.
const (
	MaxSchedules            = 10_000 // per database, without deleted ones
	MaxSchedulesOfNamespace = 2000
	MaxScheduleFirings      = 20 // in a [ScheduleDetail]
	MaxScheduleHistory      = 100
	MaxScheduleNext         = 100
	MaxScheduleExcept       = 100
	MaxScheduleJitter       = time.Hour
	MaxScheduleInterval     = 366 * 24 * time.Hour
	MaxStartWithin          = 24 * time.Hour
	MaxCatchUp              = 1000
	MaxBackfill             = 500 // firing times per request
	DefaultStartWithin      = 5 * time.Minute
)
