package tasker

import (
	"encoding/json"
	"time"
)

// Reason classifies why a task needs an investigation. The API has these five values.
type Reason string

// Reasons.
const (
	StalenessTimeout        Reason = "staleness_timeout"
	MaxRetriesExceeded      Reason = "max_retries_exceeded"
	DependencyCycleDetected Reason = "dependency_cycle_detected"
	WorkerUnavailable       Reason = "worker_unavailable"
	ManualDLQ               Reason = "manual_dlq"
)

// Reasons lists all reasons.
func Reasons() []Reason {
	return []Reason{StalenessTimeout, MaxRetriesExceeded, DependencyCycleDetected, WorkerUnavailable, ManualDLQ}
}

// ResolutionStatus is the status of an investigation.
type ResolutionStatus string

// Resolution statuses. All but pending end the investigation.
const (
	EntryPending           ResolutionStatus = "pending"
	EntryManuallyResolved  ResolutionStatus = "manually_resolved"
	EntryPermanentlyFailed ResolutionStatus = "permanently_failed"
	EntryCancelled         ResolutionStatus = "cancelled"
)

// ResolutionStatuses lists all resolution statuses.
func ResolutionStatuses() []ResolutionStatus {
	return []ResolutionStatus{EntryPending, EntryManuallyResolved, EntryPermanentlyFailed, EntryCancelled}
}

// Values of Entry.DetectedBy.
const (
	DetectedInline   = "inline"   // the transaction in which the task got stuck
	DetectedSweep    = "sweep"    // the periodic staleness sweep
	DetectedBroker   = "broker"   // the message broker, which dead-lettered a step
	DetectedOperator = "operator" // an operator
)

// Entry is one investigation of a stuck task. Its snapshot, original state and time never change.
// Its cause (reason, detail code and step) changes only while it is open, to a more severe one.
type Entry struct {
	UUID             ID               `json:"dlq_entry_uuid"`
	TaskUUID         ID               `json:"task_uuid"`
	Namespace        string           `json:"-"`         // of the task
	StepUUID         *ID              `json:"step_uuid"` // failed step, if one step is the cause
	OriginalState    TaskState        `json:"original_state"`
	Reason           Reason           `json:"dlq_reason"`
	DetailCode       string           `json:"detail_code"`
	OriginalReason   OptionalString   `json:"original_reason" doc:"First reason, if a more severe one replaced it, or null."`
	OriginalCode     OptionalString   `json:"original_detail_code" db:"original_code" doc:"First detail code, if a more severe reason replaced it, or null."`
	Label            string           `json:"label" db:"-" doc:"Short description of the cause."`
	Severity         Severity         `json:"severity" db:"-" enum:"critical,high,medium,low"`
	Guidance         string           `json:"guidance" db:"-" doc:"First checks and possible fixes in the current state. It names the failed step."`
	DetectedBy       string           `json:"detected_by"`
	At               time.Time        `json:"dlq_timestamp"`
	ResolutionStatus ResolutionStatus `json:"resolution_status"`
	ResolutionNotes  *string          `json:"resolution_notes"`
	ResolvedAt       *time.Time       `json:"resolved_at"`
	ResolvedBy       *string          `json:"resolved_by"`
	Snapshot         json.RawMessage  `json:"task_snapshot"`
	Metadata         json.RawMessage  `json:"metadata"`
	RecoveredAt      *time.Time       `json:"recovered_at"`
	PredecessorUUID  *ID              `json:"predecessor_uuid"`
	CurrentTaskState TaskState        `json:"current_task_state" doc:"Current state of the task."`
	FailedStep       *FailedStep      `json:"failed_step" db:"-" doc:"The currently failed step. Null if none has failed or the investigation has ended. step_uuid is the step for which it was opened."`
	TaskDue          *Deadline        `json:"task_due" db:"-" doc:"Due time of the task, or null."`
	CreatedAt        time.Time        `json:"created_at"`
	UpdatedAt        time.Time        `json:"updated_at"`
	History          []EntryChange    `json:"history,omitempty" db:"-" doc:"Only in responses with a single entry: up to 500 rows."`
	MoreHistory      bool             `json:"history_has_more,omitempty" db:"-" doc:"More rows follow. Use history_offset to read them."`
}

// FailedStep is the failed step that currently blocks a task and is not retried. It can differ
// from the step of the investigation, which may have been repaired since.
type FailedStep struct {
	UUID  ID        `json:"step_uuid"`
	Name  string    `json:"name"`
	Since time.Time `json:"failed_since"`
}

// EntryChange is one row of the history of an investigation.
type EntryChange struct {
	At       time.Time        `json:"changed_at"`
	Actor    string           `json:"actor"`
	Event    string           `json:"event"` // created, updated, resolved, recovered, stuck_again, step_failed, raised, step_reset, step_resolved, step_completed, task_cancelled, version_changed
	From     OptionalString   `json:"from_status"`
	To       ResolutionStatus `json:"to_status"`
	Notes    *string          `json:"notes"`
	Metadata json.RawMessage  `json:"metadata"`
}

// NewEntry describes an investigation that an operator opens.
type NewEntry struct {
	Actor, Reason string
	Metadata      json.RawMessage // JSON object, or nil
	RequestKey    string          // see [ActionRequest]
}

// EntryUpdate changes an investigation. Nil fields are left unchanged.
type EntryUpdate struct {
	Status           *ResolutionStatus
	Notes            *string
	ResolvedBy       *string
	Metadata         json.RawMessage
	Actor            string     // authenticated caller, stored besides ResolvedBy
	IfUnchangedSince *time.Time // expected time of the last update; nil disables the check
	RequestKey       string     // see [ActionRequest]

	Compensate bool `json:",omitempty"` // with permanently_failed: also compensate the task
}

// EntryFilter selects and pages entries, newest first.
type EntryFilter struct {
	Status ResolutionStatus `query:"resolution_status" flag:"status,s" doc:"Filter by status."`
	Reason Reason           `query:"dlq_reason" flag:"reason" doc:"Filter by reason."`
	Limit  int              `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
	Offset int              `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`
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
	AvgResolutionTimeMinutes *float64   `json:"avg_resolution_time_minutes"` // average over ended entries
}

// EntryCount counts the investigations that opened and ended during an interval, and those open
// at its end.
type EntryCount struct {
	From   time.Time `json:"from" doc:"Start of the interval."`
	Opened int64     `json:"opened"`
	Ended  int64     `json:"ended"`
	Proved int64     `json:"proved" doc:"Of the ended ones: manually resolved after a repair and not failed since."`
	Open   *int64    `json:"open" doc:"At the end of the interval, or now. Null before the oldest interval that was counted."`
}

// Phase is a period in the life of an investigation.
type Phase string

// Phases. All start when the investigation opens, except prove, which starts with the repair.
const (
	PhaseAcknowledge Phase = "acknowledge" // until the first operator action on it or its case
	PhaseOwn         Phase = "own"         // until its case had an owner
	PhaseRepair      Phase = "repair"      // until the last repair
	PhaseProve       Phase = "prove"       // from the repair until it was verified
	PhaseResolve     Phase = "resolve"     // until it ended
)

// Phases lists all phases in chronological order.
func Phases() []Phase {
	return []Phase{PhaseAcknowledge, PhaseOwn, PhaseRepair, PhaseProve, PhaseResolve}
}

// ResolutionTimes contains the phase durations of the investigations that ended after Since. Each
// case counts once, with the median of its investigations.
type ResolutionTimes struct {
	Since   time.Time   `json:"since"`
	Entries int64       `json:"entries" doc:"Examined investigations, newest first, at most 10,000."` // at most [MaxTimedEntries]
	Times   []PhaseTime `json:"phases"`
}

// PhaseTime contains the median and the 95th percentile of the duration of a phase.
type PhaseTime struct {
	Phase      Phase   `json:"phase" enum:"acknowledge,own,repair,prove,resolve" doc:"acknowledge: until the first operator action on it or its case. own: until the case had an owner. repair: until the last repair. prove: from the repair to the end, if the repair was verified. resolve: until it ended."`
	Cases      int64   `json:"cases" doc:"Cases that completed the phase."`
	P50Seconds float64 `json:"p50_seconds"`
	P95Seconds float64 `json:"p95_seconds"`
}

// MaxTimedEntries limits the investigations that [ResolutionTimes] measures.
const MaxTimedEntries = 500

// MaxEntryCount limits how many opened, and how many ended, investigations are read to compute
// [EntryCount] values.
const MaxEntryCount = 100_000

// InvestigationQueueEntry is one row of the investigation queue (view v_dlq_investigation_queue).
type InvestigationQueueEntry struct {
	EntryUUID          ID          `json:"dlq_entry_uuid"`
	TaskUUID           ID          `json:"task_uuid"`
	StepUUID           *ID         `json:"step_uuid"`
	OriginalState      TaskState   `json:"original_state"`
	Reason             Reason      `json:"dlq_reason"`
	DetailCode         string      `json:"detail_code"`
	Label              string      `json:"label" db:"-" doc:"Short description of the cause."`
	Severity           Severity    `json:"severity" db:"-" enum:"critical,high,medium,low"`
	At                 time.Time   `json:"dlq_timestamp"`
	MinutesInDLQ       float64     `json:"minutes_in_dlq"`
	Namespace          string      `json:"namespace_name"`
	TaskName           string      `json:"task_name"`
	CurrentState       TaskState   `json:"current_state" doc:"Current state of the task."`
	TimeInStateMinutes *float64    `json:"time_in_state_minutes" doc:"At the time when the entry was opened."`
	PriorityScore      float64     `json:"priority_score"`
	RecoveredAt        *time.Time  `json:"recovered_at"`
	StepName           string      `json:"step_name" doc:"Empty if no step failed."`
	ErrorPattern       string      `json:"error_pattern" doc:"Error of the step without ids and numbers."`
	ErrorMessage       string      `json:"error_message" doc:"Latest failure, truncated."` // redacted
	CaseID             OptionalID  `json:"case_id" doc:"Case of the entry. Empty until the failure is classified, within seconds."`
	Progress           Progress    `json:"progress" enum:"waiting,proving,failed_again,recovered" doc:"State of the repair."`
	CaseKey            ID          `json:"case_key" doc:"Deprecated: failure key of version 0.1."`
	Assignee           string      `json:"assignee" doc:"Investigator from the metadata, or empty."`
	FailedStep         *FailedStep `json:"failed_step" db:"-" doc:"The currently failed step, or null. step_uuid is the step for which the entry was opened."`
	TaskDue            *Deadline   `json:"task_due" db:"-" doc:"Due time of the task, or null."`
}

// InvestigationFilter selects open investigations. Empty fields match any.
type InvestigationFilter struct {
	Reason    Reason        `query:"dlq_reason" flag:"reason" doc:"Filter by reason."`
	Namespace string        `query:"namespace" maxLength:"128" doc:"Filter by namespace."`
	Name      string        `query:"name" maxLength:"128" doc:"Filter by template."`
	Case      *ID           `query:"case" doc:"Filter by case."`
	CaseKey   *ID           `query:"case_key" doc:"Deprecated: filter by case_key."`
	State     TaskState     `query:"current_state" flag:"state" doc:"Filter by current state of the task."`
	Age       time.Duration `query:"min_age_minutes" flag:"min-age" maximum:"5256000" doc:"Filter by minimum age."`
	Text      string        `query:"text" maxLength:"200" doc:"Filter by text in namespace, template, step, error pattern or assignee, or by six or more digits of an id."`
	Recovered *bool         `query:"recovered" doc:"Filter by automatic recovery."`
	Limit     int           `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of elements."`
	Offset    int           `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`

	// Search fields of the task, supported by the queue and by operations.
	Tags          []string          `json:",omitempty" query:"tag" maxLength:"128" maxItems:"10" doc:"Filter by tag of the task."` // all of them
	CorrelationID string            `json:",omitempty" query:"correlation_id" maxLength:"128" doc:"Filter by correlation id of the task."`
	Attributes    []AttributeFilter `json:",omitempty" query:"attribute" maxLength:"400" maxItems:"10" doc:"Filter by search attribute of the task, as NAME:VALUE, such as customer:4711. Values of numbers and times may begin with >, >=, < or <=."` // all of them
}

// FindsTasks reports whether the filter uses search fields of tasks.
func (f InvestigationFilter) FindsTasks() bool {
	return len(f.Tags) > 0 || f.CorrelationID != "" || len(f.Attributes) > 0
}

// RelatedEntries counts the other investigations of the same case.
type RelatedEntries struct {
	Case    OptionalID                 `json:"case_id" doc:"Empty until the failure is classified, within seconds."`
	CaseKey ID                         `json:"case_key" doc:"Deprecated: failure key of version 0.1."`
	Open    int64                      `json:"open" doc:"Other open investigations of the case. Counting stops at 1000."`
	More    bool                       `json:"open_has_more" doc:"There may be more."`
	Counts  map[ResolutionStatus]int64 `json:"ended" doc:"The newest 1000 ended investigations by resolution_status."`
	Last    []EndedEntry               `json:"last" doc:"The latest ended investigations."`
}

// MaxRelated limits the investigations of a case that [RelatedEntries] counts.
const MaxRelated = 1000

// EndedEntry is the outcome of an ended investigation.
type EndedEntry struct {
	EntryUUID   ID               `json:"dlq_entry_uuid"`
	TaskUUID    ID               `json:"task_uuid"`
	Status      ResolutionStatus `json:"resolution_status"`
	Notes       string           `json:"resolution_notes"`
	At          time.Time        `json:"resolved_at"`
	By          string           `json:"resolved_by"`
	MinutesOpen float64          `json:"minutes_open"`
}

// Health classifies the age of a task relative to its staleness threshold.
type Health string

// Health classes: below 80 % of the threshold, from 80 %, and above the threshold.
const (
	Healthy Health = "healthy"
	Warning Health = "warning"
	Stale   Health = "stale"
)

// Healths lists all health classes, most urgent first.
func Healths() []Health { return []Health{Stale, Warning, Healthy} }

// StalenessFilter selects and pages tasks with a staleness threshold.
type StalenessFilter struct {
	Health    Health `query:"health_status" doc:"Filter by health."`
	Namespace string `query:"namespace" maxLength:"128" doc:"Filter by namespace."`
	Name      string `query:"name" maxLength:"128" doc:"Filter by template."`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of elements."`
	Offset    int    `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`
}

// StalenessCount counts the monitored tasks of one namespace and health.
type StalenessCount struct {
	Namespace string
	Health    Health
	Tasks     int64
}

// StaleTask is one row of the staleness monitor (view v_task_staleness_monitoring).
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

// Format and version of an [EvidenceFile].
const (
	EvidenceFormat  = "tasker.evidence"
	EvidenceVersion = 1
)

// EvidenceFile is an exported investigation: the failed step, its inputs, its failures and the
// history. Secrets are replaced; Redacted lists their places in Input.
type EvidenceFile struct {
	Format        string             `json:"format"`  // [EvidenceFormat]
	Version       int                `json:"version"` // [EvidenceVersion]
	ExportedAt    time.Time          `json:"exported_at"`
	Investigation EvidenceEntry      `json:"investigation"`
	Task          EvidenceTask       `json:"task"`
	Step          *EvidenceStep      `json:"step"`     // null if no step of the task has failed
	Input         *EvidenceInput     `json:"input"`    // null without a step
	Redacted      []string           `json:"redacted"` // JSON pointers into input
	Omitted       []EvidenceOmission `json:"omitted"`
	Error         json.RawMessage    `json:"error"`    // last failure of the step, or null
	Attempts      []EvidenceAttempt  `json:"attempts"` // failed ones, newest first, at most [MaxEvidenceAttempts]
	History       []EvidenceChange   `json:"history"`  // oldest first
	MoreHistory   bool               `json:"history_has_more"`
}

// EvidenceEntry is the investigation of an [EvidenceFile].
type EvidenceEntry struct {
	EntryUUID  ID               `json:"dlq_entry_uuid"`
	Reason     Reason           `json:"dlq_reason"`
	DetailCode string           `json:"detail_code"`
	DetectedBy string           `json:"detected_by"`
	At         time.Time        `json:"dlq_timestamp"`
	Status     ResolutionStatus `json:"resolution_status"`
}

// EvidenceTask is the task of an [EvidenceFile].
type EvidenceTask struct {
	TaskUUID      ID        `json:"task_uuid"`
	Namespace     string    `json:"namespace"`
	Name          string    `json:"name"`
	Version       string    `json:"version"` // of the template
	State         TaskState `json:"state"`
	CorrelationID string    `json:"correlation_id"`
	CreatedAt     time.Time `json:"created_at"`
}

// EvidenceStep is the step of an [EvidenceFile] and its options.
type EvidenceStep struct {
	StepUUID    ID        `json:"step_uuid"`
	Name        string    `json:"name"`
	Type        StepType  `json:"type"`
	Handler     string    `json:"handler"`
	State       StepState `json:"state"`
	Attempts    int       `json:"attempts"`
	MaxAttempts int       `json:"max_attempts"`
	Retryable   bool      `json:"retryable"`
	TimeoutMS   int64     `json:"timeout_ms"` // per attempt; 0 means none
}

// EvidenceInput is the input of the handler. Missing results are null.
type EvidenceInput struct {
	Attempt           int                        `json:"attempt"` // the last attempt
	Context           json.RawMessage            `json:"context"`
	DependencyResults map[string]json.RawMessage `json:"dependency_results"` // by step name
	Initialization    json.RawMessage            `json:"initialization"`     // or null
	Item              json.RawMessage            `json:"item,omitempty"`     // item of a map step
	Index             *int                       `json:"index,omitempty"`    // of the item, from 0
}

// EvidenceOmission is a result that is too large for the file.
type EvidenceOmission struct {
	Place  string `json:"place"` // JSON pointer into input
	Bytes  int64  `json:"bytes"`
	ReadAt string `json:"read_at"` // API path of the result
}

// EvidenceAttempt is a failed attempt.
type EvidenceAttempt struct {
	Attempt       int             `json:"attempt"`
	BeganAt       *time.Time      `json:"began_at"`
	FailedAt      time.Time       `json:"failed_at"`
	WorkerUUID    *ID             `json:"worker_uuid"`
	WorkerName    string          `json:"worker_name"` // empty if no longer known
	WorkerVersion string          `json:"worker_version"`
	Error         json.RawMessage `json:"error"`
}

// EvidenceChange is one row of the history of an investigation.
type EvidenceChange struct {
	At       time.Time       `json:"changed_at"`
	Actor    string          `json:"actor"`
	Event    string          `json:"event"`
	Notes    *string         `json:"notes"`
	Metadata json.RawMessage `json:"metadata"`
}
