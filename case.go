package tasker

import (
	"encoding/json"
	"time"
)

// CaseState is how a [Case] is.
type CaseState string

// The states of a case. The first of these that holds is its state: resolved, resting,
// regressed, escalating, new, ongoing.
const (
	CaseNew        CaseState = "new"        // its failure was never seen before, and nobody has taken it
	CaseOngoing    CaseState = "ongoing"    // it has open investigations, and nothing else holds
	CaseEscalating CaseState = "escalating" // far more investigations than before, or more than 100, 1,000 or 10,000 are open
	CaseRegressed  CaseState = "regressed"  // it was resolved, and an attempt that began after that failed again
	CaseResting    CaseState = "resting"    // somebody has snoozed it
	CaseResolved   CaseState = "resolved"   // none of its investigations is open
)

// CaseStates lists every state of a case.
func CaseStates() []CaseState {
	return []CaseState{CaseNew, CaseOngoing, CaseEscalating, CaseRegressed, CaseResting, CaseResolved}
}

// Progress is how far the repair of the task of an open investigation is.
type Progress string

// How far a repair is.
const (
	Waiting     Progress = "waiting"      // for somebody who repairs it
	Proving     Progress = "proving"      // a step was repaired, and has not failed since
	FailedAgain Progress = "failed_again" // after a repair
	Recovered   Progress = "recovered"    // the task continued automatically
)

// A Case is the investigations of one cause: of one fingerprint, or of several that were
// merged. It is worked on as one thing.
type Case struct {
	ID              ID
	State           CaseState
	StateSince      time.Time
	Reason          Reason
	DetailCode      string
	Namespace       string
	TaskName        string
	StepName        string // empty when no step failed
	ErrorType       string
	ErrorPattern    string // the error without what differs from task to task
	FirstSeen       time.Time
	Owner           string // empty for a case without an owner
	OwnedUntil      *time.Time
	SnoozedUntil    *time.Time
	SnoozeThreshold *int64 `db:"snooze_above"` // it rests while no more investigations are open
	FixedIn         string // the version of the worker in which the cause is repaired
	ResolvedAt      *time.Time
	MergedInto      *ID
	UpdatedAt       time.Time
	CaseCounts
}

// CaseCounts are of the open investigations of a case.
type CaseCounts struct {
	Entries     int64 // the sum of the next four
	Waiting     int64
	Proving     int64
	FailedAgain int64
	Recovered   int64
	Recent      int64      // of them opened in the last five minutes
	Oldest      *time.Time // when the oldest was opened; nil when none is open
	Newest      *time.Time
	EntryUUID   *ID // the oldest
	CaseKey     *ID // of that, as version 0.1 told which failures are the same
	Harm        float64
}

// A CaseFilter selects cases with open investigations, or those that are resolved. Empty
// fields mean any. The fields of InvestigationFilter select the investigations that are counted.
type CaseFilter struct {
	InvestigationFilter
	States  []CaseState // [CaseResolved] only alone: those have no open investigation
	Owner   string
	Unowned bool // nobody has taken it
	// FailedAgain selects cases with an investigation whose step failed again after a repair.
	FailedAgain bool
}

// CaseTotals are what the cases of a filter are together.
type CaseTotals struct {
	Cases        int64
	Entries      int64
	Oldest       *time.Time // when the oldest of the entries was opened; nil when there is none
	Recent       int64      // entries opened in the last five minutes
	Unclassified int64      `db:"unknown"` // open investigations whose case is not known yet; they follow within seconds
}

// A CaseUpdate is what somebody changes of a case. Nil fields stay as they are.
type CaseUpdate struct {
	Owner            *string       // empty removes the owner
	OwnedFor         time.Duration // with Owner; zero means [DefaultOwnership]
	Snooze           *time.Time    // rest until then; the zero time ends the rest
	SnoozeThreshold  *int64        // with Snooze: or until more investigations are open
	FixedIn          *string
	Notes            *string
	Actor            string
	IfUnchangedSince *time.Time // only if it was last updated just then; nil means in any case
}

// How long a case is somebody's, unless they say otherwise, and how long at most it may
// be somebody's, or rest.
const (
	DefaultOwnership = 4 * time.Hour
	MaxOwnership     = 7 * 24 * time.Hour
	MaxSnooze        = 7 * 24 * time.Hour
)

// A CaseChange is one line of the history of a case.
type CaseChange struct {
	At       time.Time
	Event    string // opened, state_changed, owned, released, snoozed, woken, noted, fixed_in, merged, unmerged, split
	Actor    string
	Notes    *string
	Metadata json.RawMessage
}

// A CaseDistribution describes how the open investigations of a case are distributed over the values of
// one of their facts.
type CaseDistribution struct {
	Fact   string       `json:"fact" enum:"worker_version,worker_name,task_version"`
	Values []ValueCount `json:"values" doc:"The most frequent, at most 20."`
}

// A ValueCount is how many of the investigations of a case have a value.
type ValueCount struct {
	Value   string `json:"value"`
	Entries int64  `json:"entries"`
}

// A CaseDetail is a case with what is known of its investigations.
type CaseDetail struct {
	Case
	Fingerprints []CaseFingerprint
	History      []CaseChange // newest first, at most [MaxCaseHistory]
	Spread       []CaseDistribution
	Samples      []CaseSample // the newest messages
	Ended        map[ResolutionStatus]int64
	LastResolved []EndedEntry // the newest of those that have ended
	RelatedCases []RelatedCase
}

// A CaseFingerprint is a fingerprint that belongs to a case.
type CaseFingerprint struct {
	Fingerprint  ID        `json:"fingerprint"`
	OriginalCase ID        `db:"home" json:"home_case_id" doc:"The case it belonged to before a merge."`
	Version      int       `json:"rules_version"`
	ErrorType    string    `json:"error_type"`
	Pattern      string    `json:"pattern"`
	FirstSeen    time.Time `json:"first_seen_at"`
}

// A CaseSample is the failure of one investigation of a case.
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

// A RelatedCase is another open case whose error is the same.
type RelatedCase struct {
	ID        ID     `json:"case_id"`
	Namespace string `json:"namespace_name"`
	TaskName  string `json:"task_name"`
	StepName  string `json:"step_name"`
	Entries   int64  `json:"entries"`
}

// Bounds of what is told of a case at once.
const (
	MaxCaseHistory      = 200
	MaxCaseSamples      = 20
	MaxCaseFingerprints = 100
	MaxCaseMerged       = 1000 // fingerprints of one case
	MaxRefinements      = 20   // splits of one fingerprint
	MaxFingerprint      = 200  // characters of a handler's own
)

// A CaseGrouping says why the investigations of a case are one.
type CaseGrouping struct {
	Case             Case
	Fingerprints     []CaseFingerprint
	MessagesExamined int            // how many messages were looked at, the newest
	Rules            []string       // the rules that fired
	Masks            []CaseVariable // what was left out of the messages, in the order of the text
}

// A CaseVariable is a place of the message that differs among the investigations of a case.
type CaseVariable struct {
	Label     string       `json:"label"`
	Different int          `json:"different" doc:"How many values stood there."`
	Values    []ValueCount `json:"values" doc:"The most frequent, at most 5."`
}

// Bounds of a [CaseGrouping].
const (
	MaxCaseMasks  = 50
	MaxCaseValues = 5
)

// A CaseSplit takes the failures out of a case that have a text in one of their fields:
// error_message contains it; error_type, worker_version or task_version is it.
type CaseSplit struct {
	Field, Literal string
	Actor, Reason  string
}

// CaseComparison describes the differences between the failures of a case and the successes of the same
// step, who is hit, and until when. It is evidence, and no verdict.
type CaseComparison struct {
	Case            Case
	FirstFailure    *time.Time   // of those that are open
	LastSuccess     *CaseSuccess // of the same step before that; nil when none of the tasks that were looked at had one
	TasksExamined   int          // tasks that were looked at for it
	Failures        int          // compared, the newest
	Successes       int          // compared with them: since the first failure, or else before it
	Since           bool         // the successes are of after the first failure
	Differences     []CaseDifference
	CoincidentCases []RelatedCase // other open cases that were first seen within two minutes
	Impact          CaseImpact
}

// A CaseSuccess is an attempt of the step of a case that succeeded.
type CaseSuccess struct {
	TaskUUID      ID        `json:"task_uuid"`
	At            time.Time `json:"at"`
	WorkerName    string    `json:"worker_name"`
	WorkerVersion string    `json:"worker_version"`
	TaskVersion   string    `json:"task_version"`
}

// A CaseDifference is a value of a fact that failures have far more often than successes.
type CaseDifference struct {
	Fact      string  `json:"fact" doc:"worker_version, worker_name or task_version; or a key of the context that triage of the template names, as a JSON Pointer such as /customer/country. The values of such keys are payloads: payloads:read is needed."`
	Value     string  `json:"value"`
	Failures  int     `json:"failures" doc:"That have it."`
	Successes int     `json:"successes" doc:"That have it."`
	Lift      float64 `json:"lift" doc:"How many times as often failures have it."`
}

// CaseImpact is who waits for a case, among its newest open investigations.
type CaseImpact struct {
	Tasks    int64 // looked at
	Steps    int64 // of them, not done yet besides the ones that failed
	Deadline *time.Time
	DueTask  *ID // whose deadline that is
}

// Bounds of [CaseComparison]: tasks that are looked at on each side, and investigations.
const (
	MaxCaseTasks    = 500
	MaxCaseCompared = 1000
	MaxCaseImpact   = 2000
)

// What an [IncidentReport] says of itself.
const (
	ReportFormat  = "tasker.report"
	ReportVersion = 1
)

// An IncidentReport says afterwards how an incident went: what was stuck for how long, and in which
// phase; who did what; what was proved; what was not. It is read from the records, and of what
// has come to its end it never changes.
type IncidentReport struct {
	Format     string            `json:"format"`  // [ReportFormat]
	Version    int               `json:"version"` // [ReportVersion]
	Subject    ReportSubject     `json:"of"`
	AsOf       time.Time         `json:"as_of"`    // now; when nothing is open, the last end
	Began      *time.Time        `json:"began_at"` // when the first task was stuck; null: there is none
	Counts     ReportCounts      `json:"counts"`
	StuckTime  float64           `json:"stuck_task_minutes"` // the sum of the four
	Phases     ReportPhases      `json:"phases"`
	Cases      []ReportCase      `json:"cases"` // those with most stuck time, at most [MaxReportCases]
	Actions    []ReportAction    `json:"acts"`
	Operations []ReportOperation `json:"operations"`
	Messages   []ReportMessage   `json:"messages"`
	Unproved   []ReportMember    `json:"never_proved"` // ended without a proof, at most [MaxReportMembers]
	Open       []ReportMember    `json:"still_open"`
	Timeline   []ReportEvent     `json:"timeline"` // oldest first, at most [MaxReportEvents]
	Digest     string            `json:"digest"`   // SHA-256 of the report with an empty digest, in hex
}

// A ReportSubject is what an [IncidentReport] is about.
type ReportSubject struct {
	Kind      string     `json:"kind"` // case, incident or range
	ID        *ID        `json:"id"`
	Namespace string     `json:"namespace"` // empty: all that the caller may see
	From      *time.Time `json:"from"`      // opened at this instant or later
	To        *time.Time `json:"to"`        // and before this one
}

// ReportCounts are the investigations of an [IncidentReport] by how they came to their end.
type ReportCounts struct {
	Entries           int64 `json:"investigations"` // the sum of the next six
	Proved            int64 `json:"proved"`         // the step that was repaired is done
	Recovered         int64 `json:"recovered"`      // the task went on by itself
	Cancelled         int64 `json:"cancelled"`      // the task was cancelled
	PermanentlyFailed int64 `json:"written_off"`    // permanently failed
	Unproved          int64 `json:"unproved"`       // ended in another way
	Open              int64 `json:"open"`
	Cases             int64 `json:"cases"`
}

// ReportPhases are the four phases of the time for which a task is stuck.
type ReportPhases struct {
	TimeToDetect ReportPhase `json:"undetected"` // until the investigation was opened
	TimeToOwn    ReportPhase `json:"unowned"`    // until its case had an owner, or somebody acted on it
	TimeToRepair ReportPhase `json:"in_repair"`  // until the act that was proved
	TimeToVerify ReportPhase `json:"proving"`    // until the proof, or the end
}

// A ReportPhase is how long it took.
type ReportPhase struct {
	TaskMinutes float64 `json:"task_minutes"`
	P50Seconds  float64 `json:"p50_seconds"` // of one investigation
	P95Seconds  float64 `json:"p95_seconds"`
}

// A ReportCase is a case of an [IncidentReport].
type ReportCase struct {
	CaseID    *ID     `json:"case_id"` // null: the case is not known yet
	Namespace string  `json:"namespace"`
	Place     string  `json:"place"` // its template and step
	Cause     string  `json:"cause"`
	Entries   int64   `json:"investigations"`
	Proved    int64   `json:"proved"`
	Open      int64   `json:"open"`
	Stuck     float64 `json:"stuck_task_minutes"`
}

// A ReportAction counts the investigations on which an actor did one thing.
type ReportAction struct {
	Event         string    `json:"event"` // of the history of investigations
	Actor         string    `json:"actor"`
	OperationUUID *ID       `json:"operation_uuid"` // null: by hand
	Entries       int64     `json:"investigations"`
	First         time.Time `json:"first_at"`
	Last          time.Time `json:"last_at"`
}

// A ReportOperation is an operation on investigations of an [IncidentReport]. Its counts are of all
// of its items.
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

// A ReportWave is a wave of a [ReportOperation].
type ReportWave struct {
	Wave     int        `json:"wave"` // the first is 1
	Items    int64      `json:"items"`
	Verified int64      `json:"verified"`
	Failed   int64      `json:"failed_again"`
	From     time.Time  `json:"released_at"`
	To       *time.Time `json:"ended_at"` // null while one of its items goes on
}

// A ReportMessage is what people were told.
type ReportMessage struct {
	At    time.Time `json:"at"`
	Topic string    `json:"topic"`
	Sinks []string  `json:"sinks"` // that took it
}

// A ReportMember is one investigation of an [IncidentReport].
type ReportMember struct {
	EntryUUID ID         `json:"dlq_entry_uuid"`
	TaskUUID  ID         `json:"task_uuid"`
	OpenedAt  time.Time  `json:"dlq_timestamp"`
	EndedAt   *time.Time `json:"resolved_at"`
	By        string     `json:"resolved_by"`
	Status    string     `json:"resolution_status"`
}

// A ReportEvent is a line of the timeline.
type ReportEvent struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Actor  string    `json:"actor"`
	CaseID *ID       `json:"case_id"`
	Detail string    `json:"detail"`
}

// An IncidentReportQuery says what an [IncidentReport] is about: a case, an incident, or the investigations
// that were opened in a time.
type IncidentReportQuery struct {
	Case      *ID
	Incident  *ID
	Namespace string
	From, To  time.Time // zero: no bound
}
