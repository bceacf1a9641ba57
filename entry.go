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
	TaskDue          *Deadline   `db:"-"` // live; nil: the task has no due time
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
	Event    string // created, updated, resolved, recovered, stuck_again, step_failed, raised, step_reset, step_resolved, step_completed, task_cancelled, version_changed
	From     ResolutionStatus
	To       ResolutionStatus
	Notes    *string
	Metadata json.RawMessage
}

// A NewEntry describes an investigation that a person opens.
type NewEntry struct {
	Actor, Reason string
	Metadata      json.RawMessage // an object; nil means none
	RequestKey    string          // as of an [ActionRequest]
}

// An EntryUpdate is what an investigator changes. Nil fields stay as they are.
type EntryUpdate struct {
	Status           *ResolutionStatus
	Notes            *string
	ResolvedBy       *string
	Metadata         json.RawMessage
	Actor            string     // who is calling; kept beside ResolvedBy
	IfUnchangedSince *time.Time // only if it was last updated just then; nil means in any case
	RequestKey       string     // as of an [ActionRequest]

	// Compensate has the task undone with it, of an entry that ends as permanently failed.
	Compensate bool `json:",omitempty"`
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
	Reason                   Reason     `json:"dlq_reason"`
	Total                    int64      `json:"total_entries"`
	Pending                  int64      `json:"pending"`
	ManuallyResolved         int64      `json:"manually_resolved"`
	PermanentFailures        int64      `json:"permanent_failures"`
	Cancelled                int64      `json:"cancelled"`
	Oldest                   *time.Time `json:"oldest_entry"`
	Newest                   *time.Time `json:"newest_entry"`
	AvgResolutionTimeMinutes *float64   `json:"avg_resolution_time_minutes"` // of ended entries only
}

// An EntryCount is how many investigations were opened, and how many ended, in a
// stretch of time, and how many were open then.
type EntryCount struct {
	From   time.Time `json:"from" doc:"When the interval begins."`
	Opened int64     `json:"opened"`
	Ended  int64     `json:"ended"`
	Proved int64     `json:"proved" doc:"Of those that ended: manually resolved after a repair, without a failure since."`
	Open   *int64    `json:"open" doc:"At the end of the interval, or now; null before the oldest that were counted."`
}

// A Phase is a part of the time between the failure and the end of an investigation.
type Phase string

// The phases. Each begins when the investigation is opened, but for the last but one, which begins
// with the repair that it proves.
const (
	PhaseAcknowledge Phase = "acknowledge" // until a person did anything about it or its case
	PhaseOwn         Phase = "own"         // until somebody had the case
	PhaseRepair      Phase = "repair"      // until the last repair
	PhaseProve       Phase = "prove"       // from there to the end, where it was proved
	PhaseResolve     Phase = "resolve"     // until it ended
)

// Phases lists every phase in the order of time.
func Phases() []Phase {
	return []Phase{PhaseAcknowledge, PhaseOwn, PhaseRepair, PhaseProve, PhaseResolve}
}

// ResolutionTimes has the durations of the investigations that ended since an instant. Each case counts
// once, with the median of its investigations.
type ResolutionTimes struct {
	Since   time.Time
	Entries int64 // that were looked at, the newest; at most MaxTimedEntries
	Times   []PhaseTime
}

// A PhaseTime is how long a phase took.
type PhaseTime struct {
	Phase    Phase
	Cases    int64         // that have come through it
	P50, P95 time.Duration // zero when none has
}

// MaxTimedEntries bounds the investigations that [ResolutionTimes] measures.
const MaxTimedEntries = 500

// MaxEntryCount bounds the opened and the ended investigations that counts over time read.
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
	TaskDue            *Deadline   `db:"-"` // nil: the task has no due time
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

	// What the task is found by; of the queue and of operations only.
	Tags          []string          `json:",omitempty"` // it has all of them
	CorrelationID string            `json:",omitempty"`
	Attributes    []AttributeFilter `json:",omitempty"` // of those that templates declare; it fits all of them
}

// FindsTasks reports whether the filter has something that tasks are found by.
func (f InvestigationFilter) FindsTasks() bool {
	return len(f.Tags) > 0 || f.CorrelationID != "" || len(f.Attributes) > 0
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

// Healths lists every class, the most urgent first.
func Healths() []Health { return []Health{Stale, Warning, Healthy} }

// A StalenessFilter selects and pages watched tasks.
type StalenessFilter struct {
	Health    Health // empty means any
	Namespace string
	Name      string // of the template
	Limit     int
	Offset    int
}

// A StalenessCount counts watched tasks of one namespace and health.
type StalenessCount struct {
	Namespace string
	Health    Health
	Tasks     int64
}

// A StaleTask is one line of the staleness monitor (view v_task_staleness_monitoring).
type StaleTask struct {
	TaskUUID           ID        `json:"task_uuid"`
	Namespace          string    `json:"namespace_name"`
	TaskName           string    `json:"task_name"`
	State              TaskState `json:"current_state"`
	TimeInStateMinutes float64   `json:"time_in_state_minutes"`
	TaskAgeMinutes     float64   `json:"task_age_minutes"`
	ThresholdMinutes   float64   `json:"staleness_threshold_minutes"`
	Health             Health    `json:"health_status" enum:"healthy,warning,stale"`
	Priority           int       `json:"priority"`
}

// What an [EvidenceFile] says of itself.
const (
	EvidenceFormat  = "tasker.evidence"
	EvidenceVersion = 1
)

// An EvidenceFile is an investigation as one file: the step that failed, what its handler
// was given, how it failed, and who did what since. What must not be shown is replaced, and
// Redacted has the places of that in Input.
type EvidenceFile struct {
	Format        string             `json:"format"`  // [EvidenceFormat]
	Version       int                `json:"version"` // [EvidenceVersion]
	ExportedAt    time.Time          `json:"exported_at"`
	Investigation EvidenceEntry      `json:"investigation"`
	Task          EvidenceTask       `json:"task"`
	Step          *EvidenceStep      `json:"step"`     // null: no step of the task has failed
	Input         *EvidenceInput     `json:"input"`    // null without a step
	Redacted      []string           `json:"redacted"` // JSON pointers into input
	Omitted       []EvidenceOmission `json:"omitted"`
	Error         json.RawMessage    `json:"error"`    // the last failure of the step, or null
	Attempts      []EvidenceAttempt  `json:"attempts"` // that failed, the newest first, at most [MaxEvidenceAttempts]
	History       []EvidenceChange   `json:"history"`  // of the investigation, oldest first
	MoreHistory   bool               `json:"history_has_more"`
}

// An EvidenceEntry is the investigation of an [EvidenceFile].
type EvidenceEntry struct {
	EntryUUID  ID               `json:"dlq_entry_uuid"`
	Reason     Reason           `json:"dlq_reason"`
	DetailCode string           `json:"detail_code"`
	DetectedBy string           `json:"detected_by"`
	At         time.Time        `json:"dlq_timestamp"`
	Status     ResolutionStatus `json:"resolution_status"`
}

// An EvidenceTask is the task of an [EvidenceFile].
type EvidenceTask struct {
	TaskUUID      ID        `json:"task_uuid"`
	Namespace     string    `json:"namespace"`
	Name          string    `json:"name"`
	Version       string    `json:"version"` // of the template
	State         TaskState `json:"state"`
	CorrelationID string    `json:"correlation_id"`
	CreatedAt     time.Time `json:"created_at"`
}

// An EvidenceStep is the step of an [EvidenceFile], with its options.
type EvidenceStep struct {
	StepUUID    ID        `json:"step_uuid"`
	Name        string    `json:"name"`
	Type        StepType  `json:"type"`
	Handler     string    `json:"handler"`
	State       StepState `json:"state"`
	Attempts    int       `json:"attempts"`
	MaxAttempts int       `json:"max_attempts"`
	Retryable   bool      `json:"retryable"`
	TimeoutMS   int64     `json:"timeout_ms"` // of one attempt; 0 means none
}

// An EvidenceInput is what a handler is given. A result that a step did not leave is null.
type EvidenceInput struct {
	Attempt           int                        `json:"attempt"` // the last
	Context           json.RawMessage            `json:"context"`
	DependencyResults map[string]json.RawMessage `json:"dependency_results"` // by name of the step depended on
	Initialization    json.RawMessage            `json:"initialization"`     // or null
	Item              json.RawMessage            `json:"item,omitempty"`     // of an item of a map step
	Index             *int                       `json:"index,omitempty"`    // of it, from 0
}

// An EvidenceOmission is a result that is too large for the file.
type EvidenceOmission struct {
	Place  string `json:"place"` // JSON pointer into input, where it would be
	Bytes  int64  `json:"bytes"`
	ReadAt string `json:"read_at"` // path of the API that has it
}

// An EvidenceAttempt is an attempt that failed.
type EvidenceAttempt struct {
	Attempt       int             `json:"attempt"`
	BeganAt       *time.Time      `json:"began_at"`
	FailedAt      time.Time       `json:"failed_at"`
	WorkerUUID    *ID             `json:"worker_uuid"`
	WorkerName    string          `json:"worker_name"` // empty when it is not known any more
	WorkerVersion string          `json:"worker_version"`
	Error         json.RawMessage `json:"error"`
}

// An EvidenceChange is a line of the history of an investigation.
type EvidenceChange struct {
	At       time.Time       `json:"changed_at"`
	Actor    string          `json:"actor"`
	Event    string          `json:"event"`
	Notes    *string         `json:"notes"`
	Metadata json.RawMessage `json:"metadata"`
}
