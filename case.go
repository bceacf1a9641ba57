package tasker

import (
	"encoding/json"
	"time"
)

// CaseState is the state of a [Case].
type CaseState string

// Case states. If several apply, the first one in this order counts: resolved, resting, regressed,
// escalating, new, ongoing.
const (
	CaseNew        CaseState = "new"        // first occurrence of the failure, without an owner
	CaseOngoing    CaseState = "ongoing"    // has open investigations
	CaseEscalating CaseState = "escalating" // growing fast, or more than 100, 1,000 or 10,000 are open
	CaseRegressed  CaseState = "regressed"  // failed again after it was resolved
	CaseResting    CaseState = "resting"    // snoozed
	CaseResolved   CaseState = "resolved"   // has no open investigation
)

// CaseStates lists all case states.
func CaseStates() []CaseState {
	return []CaseState{CaseNew, CaseOngoing, CaseEscalating, CaseRegressed, CaseResting, CaseResolved}
}

// Progress is the repair state of the task of an open investigation.
type Progress string

// Repair states.
const (
	Waiting     Progress = "waiting"      // for a repair
	Proving     Progress = "proving"      // repaired, and not failed since
	FailedAgain Progress = "failed_again" // failed again after a repair
	Recovered   Progress = "recovered"    // the task continued automatically
)

// Case groups the investigations with the same cause: one fingerprint, or several merged ones.
type Case struct {
	ID           ID        `json:"case_id"`
	State        CaseState `json:"state" enum:"new,ongoing,escalating,regressed,resting,resolved"`
	StateSince   time.Time `json:"state_since"`
	Reason       Reason    `json:"dlq_reason"`
	DetailCode   string    `json:"detail_code"`
	Label        string    `json:"label" db:"-" doc:"Short description of the cause."`
	Severity     Severity  `json:"severity" db:"-" enum:"critical,high,medium,low"`
	Namespace    string    `json:"namespace_name"`
	TaskName     string    `json:"task_name"`
	StepName     string    `json:"step_name" doc:"Empty if no step failed."`
	ErrorType    string    `json:"error_type"`
	ErrorPattern string    `json:"error_pattern" doc:"Error text without task-specific values. Empty if no step failed."`
	CaseCounts
	FirstSeen       time.Time  `json:"first_seen_at"`
	Oldest          *time.Time `json:"oldest" doc:"When the oldest open investigation was opened."`
	Newest          *time.Time `json:"newest"`
	EntryUUID       OptionalID `json:"dlq_entry_uuid" doc:"The oldest open investigation, or empty."`
	CaseKey         OptionalID `json:"case_key" doc:"Deprecated: failure key of version 0.1, of the oldest investigation."`
	Owner           string     `json:"owner" doc:"Empty if it has no owner."`
	OwnedUntil      *time.Time `json:"owned_until"`
	SnoozedUntil    *time.Time `json:"snoozed_until" doc:"End of the snooze. It ends earlier if more than snooze_above investigations are open."`
	SnoozeThreshold *int64     `json:"snooze_above" db:"snooze_above"`
	FixedIn         string     `json:"fixed_in" doc:"Worker version with the fix."`
	ResolvedAt      *time.Time `json:"resolved_at"`
	MergedInto      *ID        `json:"merged_into,omitempty" doc:"Case that owns its investigations since a merge."`
	UpdatedAt       time.Time  `json:"updated_at"`
}

// CaseCounts summarizes the open investigations of a case.
type CaseCounts struct {
	Entries     int64   `json:"entries" doc:"Open investigations: the sum of the next four."`
	Waiting     int64   `json:"waiting" doc:"Waiting for a repair."`
	Proving     int64   `json:"proving" doc:"Repaired, and not failed since."`
	FailedAgain int64   `json:"failed_again" doc:"Failed again after a repair."`
	Recovered   int64   `json:"recovered" doc:"The task continued automatically."`
	Recent      int64   `json:"recent" doc:"Open investigations opened in the last five minutes."`
	Harm        float64 `json:"harm" doc:"Estimated impact. Lists are sorted by it."`
}

// CaseFilter selects cases with open investigations, or resolved cases. Empty fields match any.
// The embedded filter selects the investigations to count.
type CaseFilter struct {
	InvestigationFilter `without:"tag,correlation_id,attribute"`

	CaseState   CaseState `query:"case_state" doc:"Filter by state of the case."` // empty matches all but resolved cases
	Owner       string    `query:"owner" maxLength:"255" doc:"Filter by owner."`
	Unowned     bool      `query:"unowned" doc:"Only cases without an owner."`
	FailedAgain bool      `query:"failed_again" doc:"Only cases with a step that failed again after a repair."`
}

// CaseTotals contains the totals of all cases that match a filter.
type CaseTotals struct {
	TotalCases   int64      `json:"total_cases" doc:"All matching cases with open investigations."`
	TotalEntries int64      `json:"total_entries" doc:"Open investigations of these cases."`
	TotalRecent  int64      `json:"total_recent" doc:"Of these, opened in the last five minutes."`
	Unclassified int64      `json:"unclassified" db:"-" doc:"Open investigations without a case yet. They are classified within seconds."`
	OldestEntry  *time.Time `json:"oldest_entry" db:"total_oldest" doc:"When the oldest open investigation was opened."`
}

// CaseUpdate changes a case. Nil fields are left unchanged.
type CaseUpdate struct {
	Owner            *string       // empty removes the owner
	OwnedFor         time.Duration // with Owner; zero means [DefaultOwnership]
	Snooze           *time.Time    // end of the snooze; the zero time ends it now
	SnoozeThreshold  *int64        // with Snooze: also ends when more investigations are open
	FixedIn          *string
	Notes            *string
	Actor            string
	IfUnchangedSince *time.Time // expected time of the last update; nil disables the check
}

// Default and maximum duration of an ownership, and maximum duration of a snooze.
const (
	DefaultOwnership = 4 * time.Hour
	MaxOwnership     = 7 * 24 * time.Hour
	MaxSnooze        = 7 * 24 * time.Hour
)

// CaseChange is one row of the history of a case.
type CaseChange struct {
	At       time.Time       `json:"changed_at"`
	Event    string          `json:"event" enum:"opened,state_changed,owned,released,snoozed,woken,noted,fixed_in,merged,unmerged,split"`
	Actor    string          `json:"actor"`
	Notes    string          `json:"notes"`
	Metadata json.RawMessage `json:"metadata"`
}

// CaseDistribution counts the values of one property of the open investigations of a case.
type CaseDistribution struct {
	Fact   string       `json:"fact" enum:"worker_version,worker_name,task_version"`
	Values []ValueCount `json:"values" doc:"The most frequent values, at most 20."`
}

// ValueCount counts the investigations of a case with one value.
type ValueCount struct {
	Value   string `json:"value"`
	Entries int64  `json:"entries"`
}

// CaseDetail is a case with details of its investigations.
type CaseDetail struct {
	Case
	Fingerprints []CaseFingerprint          `json:"fingerprints" doc:"At most 100."`
	Samples      []CaseSample               `json:"samples" doc:"The newest open failures, at most 20."`
	Spread       []CaseDistribution         `json:"spread" doc:"Distribution of properties among the newest 1,000 open investigations."`
	Ended        map[ResolutionStatus]int64 `json:"ended" doc:"The newest 1000 ended investigations by resolution_status."`
	LastResolved []EndedEntry               `json:"last" doc:"The latest ended investigations."`
	RelatedCases []RelatedCase              `json:"elsewhere" doc:"Other open cases with the same error."`
	History      []CaseChange               `json:"history" doc:"Newest first, at most 200."`
}

// CaseFingerprint is a fingerprint that belongs to a case.
type CaseFingerprint struct {
	Fingerprint  ID        `json:"fingerprint"`
	OriginalCase ID        `db:"home" json:"home_case_id" doc:"The case that owned it before a merge."`
	Version      int       `json:"rules_version"`
	ErrorType    string    `json:"error_type"`
	Pattern      string    `json:"pattern"`
	FirstSeen    time.Time `json:"first_seen_at"`
}

// CaseSample is the latest failure of one investigation of a case.
type CaseSample struct {
	EntryUUID     ID        `json:"dlq_entry_uuid"`
	TaskUUID      ID        `json:"task_uuid"`
	At            time.Time `json:"failed_at"`
	ErrorType     string    `json:"error_type"`
	ErrorMessage  string    `json:"error_message"`
	WorkerName    string    `json:"worker_name"`
	WorkerVersion string    `json:"worker_version"`
	TaskVersion   string    `json:"task_version"`
}

// RelatedCase is another open case with the same error.
type RelatedCase struct {
	ID        ID     `json:"case_id"`
	Namespace string `json:"namespace_name"`
	TaskName  string `json:"task_name"`
	StepName  string `json:"step_name"`
	Entries   int64  `json:"entries"`
}

// Limits of a case.
const (
	MaxCaseHistory      = 200
	MaxCaseSamples      = 20
	MaxCaseFingerprints = 100
	MaxCaseMerged       = 1000 // fingerprints per case
	MaxRefinements      = 20   // splits per fingerprint
	MaxFingerprint      = 200  // characters of a fingerprint set by a handler
)

// CaseGrouping explains why investigations share a case.
type CaseGrouping struct {
	CaseID           ID                `json:"case_id"`
	Parts            []CasePart        `json:"parts" doc:"Properties that all of them share."`
	MessagesExamined int               `json:"looked" doc:"Number of examined messages, newest first."`
	Rules            []string          `json:"rules" doc:"Normalization rules that matched. See docs/concepts/fingerprints.md."`
	Masks            []CaseVariable    `json:"masks" doc:"Ignored parts of the message, in the order of the text."`
	Fingerprints     []CaseFingerprint `json:"fingerprints"`
}

// CasePart is a part of the fingerprint of a case.
type CasePart struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Parts returns the properties that all investigations of the case share.
func (c Case) Parts() []CasePart {
	return []CasePart{
		{"namespace", c.Namespace}, {"template", c.TaskName}, {"step", c.StepName}, {"reason", string(c.Reason)},
		{"detail_code", c.DetailCode}, {"error_type", c.ErrorType}, {"error_pattern", c.ErrorPattern},
	}
}

// CaseVariable is a part of the message that differs among the investigations of a case.
type CaseVariable struct {
	Label     string       `json:"label"`
	Different int          `json:"different" doc:"Number of different values."`
	Values    []ValueCount `json:"values" doc:"The most frequent values, at most 5."`
}

// Limits of a [CaseGrouping].
const (
	MaxCaseMasks  = 50
	MaxCaseValues = 5
)

// CaseSplit moves failures out of a case by the value of one field: error_message contains the
// literal; error_type, worker_version and task_version equal it.
type CaseSplit struct {
	Field, Literal string
	Actor, Reason  string
}

// CaseComparison compares the failures of a case with the successes of the same step, and shows
// the impact. It is evidence, not a conclusion.
type CaseComparison struct {
	CaseID          ID               `json:"case_id"`
	FirstFailure    *time.Time       `json:"first_failure" doc:"Of the open investigations."`
	LastSuccess     *CaseSuccess     `json:"last_success" doc:"Of the same step before that. Null if the examined tasks had none."`
	TasksExamined   int              `json:"looked_at" doc:"Examined tasks of the template: at most 500 before the first failure and 500 since."`
	Failures        int              `json:"failures" doc:"Compared failures, newest first, at most 1,000."`
	Successes       int              `json:"successes" doc:"Compared successes."`
	Since           bool             `json:"since" doc:"The successes are from after the first failure. False: from before, because there are fewer than 30 since."`
	Differences     []CaseDifference `json:"differences" doc:"Values that are far more frequent among failures than successes, most significant first, at most 5. They are evidence, not a conclusion. Empty if there is no difference or fewer than 30 attempts could be compared."`
	CoincidentCases []RelatedCase    `json:"began" doc:"Other open cases first seen within two minutes of this one."`
	Impact          CaseImpact       `json:"impact"`
}

// CaseSuccess is a successful attempt of the step of a case.
type CaseSuccess struct {
	TaskUUID      ID        `json:"task_uuid"`
	At            time.Time `json:"at"`
	WorkerName    string    `json:"worker_name"`
	WorkerVersion string    `json:"worker_version"`
	TaskVersion   string    `json:"task_version"`
}

// CaseDifference is a value that is far more frequent among failures than among successes.
type CaseDifference struct {
	// worker_version, worker_name, task_version, or a JSON Pointer into the context
	Fact      string  `json:"fact" doc:"worker_version, worker_name or task_version; or a context key listed under triage in the template, as a JSON Pointer such as /customer/country. Values of context keys require payloads:read."`
	Value     string  `json:"value"`
	Failures  int     `json:"failures" doc:"Failures with this value."`
	Successes int     `json:"successes" doc:"Successes with this value."`
	Lift      float64 `json:"lift" doc:"Share of failures with this value, divided by the share of successes."` // ratio of the shares
}

// CaseImpact summarizes the work blocked by the newest open investigations of a case.
type CaseImpact struct {
	Tasks    int64      `json:"tasks" doc:"Examined tasks, at most 2,000."`
	Steps    int64      `json:"steps" doc:"Unfinished steps of these tasks, without the failed ones."`
	Deadline *time.Time `json:"deadline" doc:"Earliest end of max_duration_minutes of these tasks, or null."`
	DueTask  OptionalID `json:"due_task" doc:"Task with that deadline."`
}

// Limits of a [CaseComparison]: tasks on each side, compared attempts, and investigations of the
// impact.
const (
	MaxCaseTasks    = 500
	MaxCaseCompared = 1000
	MaxCaseImpact   = 2000
)

// Format and version of an [IncidentReport].
const (
	ReportFormat  = "tasker.report"
	ReportVersion = 1
)

// IncidentReport is the post-incident report of a case, an incident or a time range: stuck time
// by phase, actions, outcomes and open points. Once all its investigations have ended, it no
// longer changes.
type IncidentReport struct {
	Format     string            `json:"format"`  // [ReportFormat]
	Version    int               `json:"version"` // [ReportVersion]
	Subject    ReportSubject     `json:"of"`
	AsOf       time.Time         `json:"as_of"`    // now, or the last end if nothing is open
	Began      *time.Time        `json:"began_at"` // when the first task got stuck, or null
	Counts     ReportCounts      `json:"counts"`
	StuckTime  float64           `json:"stuck_task_minutes"` // sum of the phases
	Phases     ReportPhases      `json:"phases"`
	Cases      []ReportCase      `json:"cases"` // those with the most stuck time, at most [MaxReportCases]
	Actions    []ReportAction    `json:"acts"`
	Operations []ReportOperation `json:"operations"`
	Messages   []ReportMessage   `json:"messages"`
	Unproved   []ReportMember    `json:"never_proved"` // ended without verification, at most [MaxReportMembers]
	Open       []ReportMember    `json:"still_open"`
	Timeline   []ReportEvent     `json:"timeline"` // oldest first, at most [MaxReportEvents]
	Digest     string            `json:"digest"`   // SHA-256 of the report with an empty digest, in hex
}

// ReportSubject identifies the subject of an [IncidentReport].
type ReportSubject struct {
	Kind      string     `json:"kind"` // case, incident or range
	ID        *ID        `json:"id"`
	Namespace string     `json:"namespace"` // empty means all that the caller may read
	From      *time.Time `json:"from"`      // opened at or after this time
	To        *time.Time `json:"to"`        // opened before this time
}

// ReportCounts counts the investigations of an [IncidentReport] by outcome.
type ReportCounts struct {
	Entries           int64 `json:"investigations"` // sum of the next six
	Proved            int64 `json:"proved"`         // the repaired step completed
	Recovered         int64 `json:"recovered"`      // the task continued automatically
	Cancelled         int64 `json:"cancelled"`      // the task was cancelled
	PermanentlyFailed int64 `json:"written_off"`
	Unproved          int64 `json:"unproved"` // ended otherwise
	Open              int64 `json:"open"`
	Cases             int64 `json:"cases"`
}

// ReportPhases splits the time during which tasks were stuck into four phases.
type ReportPhases struct {
	TimeToDetect ReportPhase `json:"undetected"` // until the investigation was opened
	TimeToOwn    ReportPhase `json:"unowned"`    // until its case had an owner, or an operator acted on it
	TimeToRepair ReportPhase `json:"in_repair"`  // until the repair that was verified
	TimeToVerify ReportPhase `json:"proving"`    // until the verification, or the end
}

// ReportPhase is the duration of one phase.
type ReportPhase struct {
	TaskMinutes float64 `json:"task_minutes"`
	P50Seconds  float64 `json:"p50_seconds"` // per investigation
	P95Seconds  float64 `json:"p95_seconds"`
}

// ReportCase is one case of an [IncidentReport].
type ReportCase struct {
	CaseID    *ID     `json:"case_id"` // null if not classified yet
	Namespace string  `json:"namespace"`
	Place     string  `json:"place"` // template and step
	Cause     string  `json:"cause"`
	Entries   int64   `json:"investigations"`
	Proved    int64   `json:"proved"`
	Open      int64   `json:"open"`
	Stuck     float64 `json:"stuck_task_minutes"`
}

// ReportAction counts the investigations on which one actor performed one action.
type ReportAction struct {
	Event         string    `json:"event"` // as in the history of investigations
	Actor         string    `json:"actor"`
	OperationUUID *ID       `json:"operation_uuid"` // null for a manual action
	Entries       int64     `json:"investigations"`
	First         time.Time `json:"first_at"`
	Last          time.Time `json:"last_at"`
}

// ReportOperation is an operation on investigations of an [IncidentReport]. Its counts include
// all of its items.
type ReportOperation struct {
	OperationUUID ID                  `json:"operation_uuid"`
	Act           Act                 `json:"act"`
	State         OperationState      `json:"state"`
	Actor         string              `json:"started_by"`
	Reason        string              `json:"reason"`
	StartedAt     *time.Time          `json:"started_at"`
	EndedAt       *time.Time          `json:"settled_at"`
	Items         int64               `json:"items"`
	Counts        map[ItemState]int64 `json:"counts"`
	Waves         []ReportWave        `json:"waves"`
}

// ReportWave is one wave of a [ReportOperation].
type ReportWave struct {
	Wave     int        `json:"wave"` // from 1
	Items    int64      `json:"items"`
	Verified int64      `json:"verified"`
	Failed   int64      `json:"failed_again"`
	From     time.Time  `json:"released_at"`
	To       *time.Time `json:"ended_at"` // null while an item is unfinished
}

// ReportMessage is a notification that was sent.
type ReportMessage struct {
	At    time.Time `json:"at"`
	Topic string    `json:"topic"`
	Sinks []string  `json:"sinks"` // that accepted it
}

// ReportMember is one investigation of an [IncidentReport].
type ReportMember struct {
	EntryUUID ID         `json:"dlq_entry_uuid"`
	TaskUUID  ID         `json:"task_uuid"`
	OpenedAt  time.Time  `json:"dlq_timestamp"`
	EndedAt   *time.Time `json:"resolved_at"`
	By        string     `json:"resolved_by"`
	Status    string     `json:"resolution_status"`
}

// ReportEvent is one line of the timeline.
type ReportEvent struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Actor  string    `json:"actor"`
	CaseID *ID       `json:"case_id"`
	Detail string    `json:"detail"`
}

// IncidentReportQuery selects the subject of an [IncidentReport]: a case, an incident, or the
// investigations opened in a time range.
type IncidentReportQuery struct {
	Case      *ID
	Incident  *ID
	Namespace string
	From, To  time.Time
}
