package tasker

import (
	"encoding/json"
	"time"
)

// An Event is what became of an investigation, as the outbox has it: written in
// the transaction that it tells of.
type Event struct {
	UUID      ID
	Position  int64 // in the outbox
	Topic     string
	TaskUUID  ID
	EntryUUID ID
	At        time.Time
	Data      json.RawMessage
	Subject   *Subject `db:"-"` // of a message; nil for what became of an investigation
}

// A Subject is what a message is about.
type Subject struct {
	Kind     string
	ID       ID
	DedupKey string // empty: it follows from the kind and the id
}

// The topics of events.
const (
	EntryCreatedTopic   = "dlq.entry.created"
	EntryUpdatedTopic   = "dlq.entry.updated"
	EntryRecoveredTopic = "dlq.entry.recovered"
	EntryResolvedTopic  = "dlq.entry.resolved"
)

// Topics lists every topic.
func Topics() []string {
	return []string{EntryCreatedTopic, EntryUpdatedTopic, EntryRecoveredTopic, EntryResolvedTopic}
}

// EmissionState is how far sending an event to a sink has come.
type EmissionState string

// The states.
const (
	EmissionPending   EmissionState = "pending"
	EmissionPublished EmissionState = "published"
	EmissionSetAside  EmissionState = "set_aside" // refused too often; an operator sends it again
)

// EmissionStates lists every state.
func EmissionStates() []EmissionState {
	return []EmissionState{EmissionPending, EmissionPublished, EmissionSetAside}
}

// An Emission is what became of sending an event to one sink.
type Emission struct {
	Event
	Sink          string
	State         EmissionState
	Attempts      int
	Refusals      int
	NextAttemptAt *time.Time // of a pending one
	LastAttemptAt *time.Time
	LastError     *string
	PublishedAt   *time.Time
}

// An EmissionFilter selects and pages emissions, the newest event first.
type EmissionFilter struct {
	Sink   string // empty means any
	State  EmissionState
	Before int64 // position where the last page ended; 0 for the first page
	Limit  int
}

// A SinkState says whether a sink takes events, and how many wait for it.
type SinkState struct {
	Sink           string
	FailingSince   *time.Time // nil while it takes events
	LastError      *string
	LastSuccessAt  *time.Time
	NextTryAt      *time.Time // of a failing one
	Pending        int64      // events that it has not got; counted up to a limit
	OldestPending  *time.Time // when the first of them happened
	OldestPosition *int64     // where that is in the outbox
	Undeliverable  int64      `db:"set_aside"` // events that it refused too often; counted up to a limit
}

// An AuditEvent is something that happened to Tasker itself.
type AuditEvent struct {
	ID      int64           `json:"audit_id"`
	Actor   string          `json:"actor"`
	Action  string          `json:"action"`
	Subject string          `json:"subject"`
	Data    json.RawMessage `json:"data"`
	At      time.Time       `json:"created_at"`
}

// An Incident is the cases of one namespace that people were first told of within ten
// minutes. They are told of them together, through the first.
type Incident struct {
	ID             ID
	Namespace      string
	LeadCaseID     ID `db:"lead"` // the case that the last message named
	DedupKey       string
	Severity       Severity // the highest that one of its cases had
	BeganAt        time.Time
	EndedAt        *time.Time // when people were notified that all of its cases are resolved
	UnownedSince   *time.Time // since when an active case has no owner
	Escalation     int        // routes notified in addition because no one took it: 1 the next one, 2 all
	LastNotifiedAt time.Time  `db:"told_at"` // when people were last notified of it
	TaskName       string     // this and the next are those of the lead
	StepName       string
	Reason         Reason
	DetailCode     string
	ErrorType      string
	ErrorPattern   string
	Cases          int64
	CasesOpen      int64 // of them
	Entries        int64 // their open investigations; 0 when it has ended
	Messages       int64
	Owners         []string `db:"owned_by"`        // who has taken its open cases
	UnownedCases   int64    `db:"cases_not_owned"` // of the open ones
}

// IncidentState says whether an incident goes on.
type IncidentState string

// The states of an incident.
const (
	IncidentOpen  IncidentState = "open"
	IncidentEnded IncidentState = "ended"
)

// IncidentStates lists every state of an incident.
func IncidentStates() []IncidentState { return []IncidentState{IncidentOpen, IncidentEnded} }

// An IncidentFilter selects and pages incidents, newest first. Empty fields mean any.
type IncidentFilter struct {
	State         IncidentState
	Namespace     string
	Limit, Offset int
}

// An IncidentDetail is an incident with its cases and with what people were told of it.
type IncidentDetail struct {
	Incident
	Members       []IncidentCase // in the order in which they joined, at most [MaxIncidentCases]
	Notifications []Notification // oldest first, at most [MaxIncidentMessages]
}

// An IncidentCase is a case of an incident, as it is now.
type IncidentCase struct {
	ID           ID         `json:"case_id"`
	JoinedAt     time.Time  `json:"joined_at"`
	State        CaseState  `json:"state" enum:"new,ongoing,escalating,regressed,resting,resolved"`
	TaskName     string     `json:"task_name"`
	StepName     string     `json:"step_name"`
	Reason       Reason     `json:"dlq_reason"`
	DetailCode   string     `json:"detail_code"`
	ErrorType    string     `json:"error_type"`
	ErrorPattern string     `json:"error_pattern"`
	Owner        string     `json:"owner" doc:"Empty when nobody has taken it."`
	Entries      int64      `json:"entries" doc:"Open investigations."`
	ResolvedAt   *time.Time `json:"resolved_at"`
}

// Bounds of what is told of an incident at once.
const (
	MaxIncidentCases    = 200
	MaxIncidentMessages = 200
)

// A Notification informs people of an event, such as an incident or the end of an operation.
type Notification struct {
	UUID        ID
	Position    int64 // among all messages
	Topic       string
	SubjectKind string
	SubjectID   ID // messages of one subject are sent in their order
	IncidentID  *ID
	Namespaces  []string // of what it is about
	DedupKey    string   // by which receivers know that messages are about the same thing
	Escalation  int
	Data        json.RawMessage
	At          time.Time
	RoutedAt    *time.Time // when its sinks were chosen
	Emissions   []MessageEmission
}

// A MessageEmission is what became of sending a message to one sink.
type MessageEmission struct {
	Sink          string        `json:"sink"`
	State         EmissionState `json:"state" enum:"pending,published,set_aside"`
	Attempts      int           `json:"attempts"`
	Refusals      int           `json:"refusals"`
	NextAttemptAt *time.Time    `json:"next_attempt_at"` // of a pending one
	LastError     *string       `json:"last_error"`
	PublishedAt   *time.Time    `json:"published_at"`
}

// SystemActor is who acts where no person does.
const SystemActor = "tasker"

// The topics of messages.
const (
	CaseOpenedTopic       = "case.opened"    // an incident began
	CaseGrewTopic         = "case.grew"      // it has more cases, or far more investigations
	CaseChangedTopic      = "case.changed"   // its largest open case is another than in the last message
	CaseRegressedTopic    = "case.regressed" // a case of it was resolved, and fails again
	CaseWokeTopic         = "case.woke"      // a case of it rests no more
	CaseOwnedTopic        = "case.owned"     // somebody has taken all of its cases
	CaseUnownedTopic      = "case.unowned"   // nobody has taken it: more routes are told
	CaseResolvedTopic     = "case.resolved"  // all of its cases are resolved
	DigestTopic           = "digest.cases"   // cases that are too small to be told of alone
	OperationStartedTopic = "operation.started"
	OperationPausedTopic  = "operation.paused"
	OperationDoneTopic    = "operation.done"
	HoldBeganTopic        = "hold.began"
	HoldEndingTopic       = "hold.ending" // four fifths of its time are over
	HoldFailedTopic       = "hold.failed" // steps that it let go have failed, and it holds again
	HoldEndedTopic        = "hold.ended"
	BreakerOpenedTopic    = "breaker.opened" // attempts of a handler kept failing, and its steps are held
	BreakerEndingTopic    = "breaker.ending"
	BreakerClosedTopic    = "breaker.closed"
	StepReminderTopic     = "step.reminder"    // a step waits for an answer from outside
	StepWaitingTopic      = "step.waiting"     // a step begins to wait for an answer of a person
	StepAssignedTopic     = "step.assigned"    // it is another person who is to answer
	TaskCompensatedTopic  = "task.compensated" // the compensation of a task has ended
	TaskExpiredTopic      = "task.expired"     // no step of a task was claimed in time
	TaskDueSoonTopic      = "task.due_soon"    // a task is due soon
	TaskOverdueTopic      = "task.overdue"     // its due time is over, and it has not ended
	StepDueSoonTopic      = "step.due_soon"    // the same of a step
	StepOverdueTopic      = "step.overdue"
	QueueSaturatedTopic   = "queue.saturated" // steps wait past their limit because the workers of a queue are busy
	QueueRelievedTopic    = "queue.relieved"  // none does any more
	TestTopic             = "message.test"    // somebody tries the routes
)

// MessageTopics lists the topics of messages.
func MessageTopics() []string {
	return []string{
		CaseOpenedTopic, CaseGrewTopic, CaseChangedTopic, CaseRegressedTopic, CaseWokeTopic, CaseOwnedTopic, CaseUnownedTopic, CaseResolvedTopic, DigestTopic,
		OperationStartedTopic, OperationPausedTopic, OperationDoneTopic, HoldBeganTopic, HoldEndingTopic, HoldFailedTopic, HoldEndedTopic,
		BreakerOpenedTopic, BreakerEndingTopic, BreakerClosedTopic, StepReminderTopic, StepWaitingTopic, StepAssignedTopic, TaskCompensatedTopic, TaskExpiredTopic,
		TaskDueSoonTopic, TaskOverdueTopic, StepDueSoonTopic, StepOverdueTopic, QueueSaturatedTopic, QueueRelievedTopic, TestTopic,
	}
}

// The kinds of subjects of messages.
const (
	IncidentSubject  = "incident"
	DigestSubject    = "digest"
	OperationSubject = "operation"
	HoldSubject      = "hold"
	StepSubject      = "step"
	TaskSubject      = "task"
	QueueSubject     = "queue"
	TestSubject      = "test"
)

// NotificationData is the data of a notification.
type NotificationData struct {
	Summary      string          `json:"summary"` // in one line
	Text         string          `json:"text,omitempty"`
	Severity     Severity        `json:"severity"`
	Namespace    string          `json:"namespace,omitempty"`
	Template     string          `json:"template,omitempty"`
	Step         string          `json:"step,omitempty"`
	Handler      string          `json:"handler,omitempty"` // of a queue
	Reason       Reason          `json:"dlq_reason,omitempty"`
	ErrorType    string          `json:"error_type,omitempty"`
	Case         *ID             `json:"case,omitempty"` // the lead
	Operation    *ID             `json:"operation,omitempty"`
	Hold         *ID             `json:"hold,omitempty"`
	Task         *ID             `json:"task,omitempty"`  // that was undone, or whose step waits for an answer
	State        string          `json:"state,omitempty"` // of the lead, the operation or the hold; of a task that was undone its outcome
	Entries      int64           `json:"entries"`         // open investigations
	Waiting      int64           `json:"waiting"`
	Proving      int64           `json:"proving"`
	FailedAgain  int64           `json:"failed_again"`
	Recovered    int64           `json:"recovered"`
	Cases        int             `json:"cases"`
	CasesOpen    int             `json:"cases_open"`
	Harm         float64         `json:"harm,omitempty"`
	BeganAt      time.Time       `json:"began_at"`
	UnownedSince *time.Time      `json:"unowned_since,omitempty"`
	Owners       []string        `json:"owners,omitempty"`   // the first [MaxMessageMembers]
	By           string          `json:"by,omitempty"`       // who acted
	Assignee     string          `json:"assignee,omitempty"` // who is to answer a step
	Members      []MessageMember `json:"members,omitempty"`  // of most harm, at most [MaxMessageMembers]
	Path         string          `json:"path,omitempty"`     // of the page about it
}

// A MessageMember is a case that a message is about.
type MessageMember struct {
	Case     ID        `json:"case"`
	State    CaseState `json:"state"`
	Severity Severity  `json:"severity"`
	Template string    `json:"template"`
	Step     string    `json:"step,omitempty"`
	Text     string    `json:"text,omitempty"`
	Entries  int64     `json:"entries"`
	Owner    string    `json:"owner,omitempty"`
}

// MaxMessageMembers is how many cases, and how many owners of cases, a message names.
const MaxMessageMembers = 10
