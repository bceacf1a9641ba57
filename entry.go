package tasker

import (
	"encoding/json"
	"time"
)

// Reason is why a task needs an investigator: the five values of the
// wire.
type Reason string

// The reasons.
const (
	StalenessTimeout        Reason = "staleness_timeout"
	MaxRetriesExceeded      Reason = "max_retries_exceeded"
	DependencyCycleDetected Reason = "dependency_cycle_detected"
	WorkerUnavailable       Reason = "worker_unavailable"
	ManualDLQ               Reason = "manual_dlq"
)

// Reasons lists every reason.
func Reasons() []Reason {
	return []Reason{StalenessTimeout, MaxRetriesExceeded, DependencyCycleDetected, WorkerUnavailable, ManualDLQ}
}

// ResolutionStatus is how far an investigation has come.
type ResolutionStatus string

// The statuses. All but the first end the investigation.
const (
	EntryPending           ResolutionStatus = "pending"
	EntryManuallyResolved  ResolutionStatus = "manually_resolved"
	EntryPermanentlyFailed ResolutionStatus = "permanently_failed"
	EntryCancelled         ResolutionStatus = "cancelled"
)

// ResolutionStatuses lists every status.
func ResolutionStatuses() []ResolutionStatus {
	return []ResolutionStatus{EntryPending, EntryManuallyResolved, EntryPermanentlyFailed, EntryCancelled}
}

// Who detected that a task needs an investigator.
const (
	DetectedInline   = "inline"   // the transaction that made the task stuck
	DetectedSweep    = "sweep"    // the periodic look for what only time shows
	DetectedBroker   = "broker"   // the message broker, which dead-lettered a step
	DetectedOperator = "operator" // a person
)

// An Entry is one investigation: why a task is stuck, and who looked into it. Its
// snapshot, original state and time never change. Its cause, which is reason, detail
// code and step, is only replaced by a weightier one that comes to the task while the
// investigation is open.
type Entry struct {
	UUID             ID
	TaskUUID         ID
	Namespace        string // of the task
	StepUUID         *ID    // the step that failed, when one step is the cause
	OriginalState    TaskState
	Reason           Reason
	DetailCode       string
	OriginalReason   Reason // what it was opened for, when its cause has been replaced; empty otherwise
	OriginalCode     string // the detail code of that
	DetectedBy       string
	At               time.Time
	Snapshot         json.RawMessage
	ResolutionStatus ResolutionStatus
	ResolutionNotes  *string
	ResolvedAt       *time.Time
	ResolvedBy       *string
	Metadata         json.RawMessage
	RecoveredAt      *time.Time
	PredecessorUUID  *ID
	CurrentTaskState TaskState   // live
	FailedStep       *FailedStep `db:"-"` // live; nil when no step has failed, and once the investigation has ended
	CreatedAt        time.Time
	UpdatedAt        time.Time
	History          []EntryChange `db:"-"` // only where one entry is asked for
	MoreHistory      bool          `db:"-"` // the history continues after these
}

// A FailedStep is the step that keeps a task from going on now: it has failed, and is
// not tried again by itself. It need not be the step an investigation was opened for,
// which may be repaired while another one failed.
type FailedStep struct {
	UUID  ID
	Name  string
	Since time.Time
}

// An EntryChange is one row of an entry's history.
type EntryChange struct {
	At       time.Time
	Actor    string
	Event    string // created, updated, resolved, recovered, stuck_again, step_failed, raised, step_reset, step_resolved, step_completed, task_cancelled
	From     ResolutionStatus
	To       ResolutionStatus
	Notes    *string
	Metadata json.RawMessage
}

// An EntryOpening is what a person says who opens an investigation.
type EntryOpening struct {
	Actor, Reason string
	Metadata      json.RawMessage // an object; nil means none
	RequestKey    string          // as of an [ActionRequest]
}

// An EntryUpdate is what an investigator changes. Nil fields stay as they are.
type EntryUpdate struct {
	Status     *ResolutionStatus
	Notes      *string
	ResolvedBy *string
	Metadata   json.RawMessage
	Actor      string     // who is calling; kept beside ResolvedBy
	Unchanged  *time.Time // only if it was last updated just then; nil means in any case
	RequestKey string     // as of an [ActionRequest]
}

// An EntryFilter selects and pages entries, newest first.
type EntryFilter struct {
	Status ResolutionStatus // empty means any
	Reason Reason
	Limit  int
	Offset int
}

// EntryStats counts the entries of one reason (view v_dlq_dashboard).
type EntryStats struct {
	Reason                   Reason
	Total                    int64
	Pending                  int64
	ManuallyResolved         int64
	PermanentFailures        int64
	Cancelled                int64
	Oldest                   *time.Time
	Newest                   *time.Time
	AvgResolutionTimeMinutes *float64 // of ended entries only
}

// An EntryCount is how many investigations were opened, and how many ended, in a
// stretch of time.
type EntryCount struct {
	From   time.Time
	Opened int64
	Ended  int64
}

// MaxEntryCount is where counting over time stops, for each of the two.
const MaxEntryCount = 100_000

// An InvestigationQueueEntry is one line of the investigation queue (view v_dlq_investigation_queue).
type InvestigationQueueEntry struct {
	EntryUUID          ID
	TaskUUID           ID
	StepUUID           *ID
	OriginalState      TaskState
	Reason             Reason
	DetailCode         string
	At                 time.Time
	MinutesInDLQ       float64
	Namespace          string
	TaskName           string
	CurrentState       TaskState
	TimeInStateMinutes *float64 // when the entry was opened
	PriorityScore      float64
	RecoveredAt        *time.Time
	StepName           string // empty when no step failed
	ErrorPattern       string // the step's error without ids and numbers
	CaseKey            ID     // the same for entries of the same failure, as the version 0.1 told it
	CaseID             *ID    // the case it belongs to; nil until it is known, a moment after the failure
	ErrorMessage       string // of its newest failure, redacted, the beginning
	Progress           Progress
	Assignee           string      // who looks into it, by the entry's metadata
	FailedStep         *FailedStep `db:"-"` // as in an [Entry]
}

// An InvestigationFilter selects open investigations. Empty fields mean any.
type InvestigationFilter struct {
	Reason    Reason
	Namespace string
	Name      string // of the template
	Case      *ID    // the case it belongs to
	CaseKey   *ID
	State     TaskState     // of the task now
	Age       time.Duration // at least
	Text      string        // in the namespace, the template, the step, its error, the assignee; or an id
	Recovered *bool
	Limit     int
	Offset    int
}

// RelatedEntries counts the other investigations of the same case.
type RelatedEntries struct {
	Case    *ID // nil as long as it is not known
	CaseKey ID
	Open    int64                      // others that are open; counting stops at MaxRelated
	More    bool                       // there are more of them
	Counts  map[ResolutionStatus]int64 // how the last MaxRelated of those ended that have
	Last    []EndedEntry               // of those, newest first
}

// MaxRelated is how many investigations of a case are looked at.
const MaxRelated = 1000

// An EndedEntry is how one investigation ended.
type EndedEntry struct {
	EntryUUID ID
	TaskUUID  ID
	Status    ResolutionStatus
	At        time.Time
	By        string
	Notes     string
	Open      time.Duration // how long it was
}

// Health is how near a task is to its staleness threshold.
type Health string

// The classes: below 80 % of the threshold, from there on, and past it.
const (
	Healthy Health = "healthy"
	Warning Health = "warning"
	Stale   Health = "stale"
)

// A StalenessLine is one line of the staleness monitor (view v_task_staleness_monitoring).
type StalenessLine struct {
	TaskUUID           ID
	Namespace          string
	TaskName           string
	State              TaskState
	TimeInStateMinutes float64
	TaskAgeMinutes     float64
	ThresholdMinutes   float64
	Health             Health
	Priority           int
}
