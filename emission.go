package tasker

import (
	"encoding/json"
	"time"
)

// Event is an outbox event. It is written in the same transaction as the change it reports.
type Event struct {
	UUID      ID
	Position  int64 // in the outbox
	Topic     string
	TaskUUID  ID
	EntryUUID ID // zero for an event of a task
	At        time.Time
	Data      json.RawMessage
	Subject   *Subject `db:"-"` // of a notification; nil for an event
}

// Subject identifies the object of a notification.
type Subject struct {
	Kind     string
	ID       ID
	DedupKey string // empty: derived from kind and id
}

// Topics of investigation events.
const (
	EntryCreatedTopic   = "dlq.entry.created"
	EntryUpdatedTopic   = "dlq.entry.updated"
	EntryRecoveredTopic = "dlq.entry.recovered"
	EntryResolvedTopic  = "dlq.entry.resolved"
)

// Topics of task events.
const (
	TaskCompletedTopic = "task.completed" // the task moved to complete
	TaskFailedTopic    = "task.failed"    // the task moved to error, or its investigation ended as permanently_failed
	TaskCancelledTopic = "task.cancelled" // the task moved to cancelled
	StepFailedTopic    = "step.failed"    // the step moved to error without a scheduled retry
)

// TaskTopics lists the topics of task events.
func TaskTopics() []string {
	return []string{TaskCompletedTopic, TaskFailedTopic, TaskCancelledTopic, StepFailedTopic}
}

// Topics lists the topics of investigation events and of task events.
func Topics() []string {
	return append([]string{EntryCreatedTopic, EntryUpdatedTopic, EntryRecoveredTopic, EntryResolvedTopic}, TaskTopics()...)
}

// A TaskSubscription selects task events. Task events without a subscription are not written.
type TaskSubscription struct {
	Topics         []string `json:"topics"`              // of [TaskTopics]
	Namespace      string   `json:"namespace,omitempty"` // empty means any
	Template       string   `json:"template,omitempty"`  // template name; empty means any
	IncludeResult  bool     `json:"include_result"`      // results of the last steps in task.completed
	IncludeContext bool     `json:"include_context"`
	MaxBytes       int      `json:"max_bytes"` // limit of the context, and of the results
}

// EmissionState is the delivery state of an event at one sink.
type EmissionState string

// Emission states.
const (
	EmissionPending   EmissionState = "pending"
	EmissionPublished EmissionState = "published"
	EmissionSetAside  EmissionState = "set_aside" // rejected too often; an operator must redeliver it
)

// EmissionStates lists all emission states.
func EmissionStates() []EmissionState {
	return []EmissionState{EmissionPending, EmissionPublished, EmissionSetAside}
}

// Emission is the delivery of an event to one sink.
type Emission struct {
	Event
	Sink          string
	State         EmissionState
	Attempts      int
	Refusals      int        // attempts that the sink rejected
	NextAttemptAt *time.Time // set while pending
	LastAttemptAt *time.Time
	LastError     *string
	PublishedAt   *time.Time
}

// EmissionFilter selects and pages emissions, newest event first.
type EmissionFilter struct {
	State  EmissionState `query:"state" flag:"state,s" doc:"Filter by state."`
	Sink   string        `query:"sink" maxLength:"128" doc:"Filter by sink."`
	Topic  string        `query:"topic" choices:"topics" doc:"Filter by topic."`
	Before int64         `query:"before" maximum:"9007199254740992" doc:"Page cursor: position of the last event. 0 starts with the newest."`
	Limit  int           `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of elements."`
}

// SinkState describes the health and the backlog of a sink.
type SinkState struct {
	Sink           string     `json:"sink"`
	Status         string     `json:"status" db:"-" enum:"up,failing"`
	FailingSince   *time.Time `json:"failing_since" doc:"Since an attempt failed, or since the oldest due event if none was accepted for a minute. Null if it works."`
	LastError      *string    `json:"last_error"`
	NextTryAt      *time.Time `json:"next_try_at" doc:"Earliest time of the next attempt, while it fails."`
	LastSuccessAt  *time.Time `json:"last_success_at"`
	Pending        int64      `json:"pending" doc:"Undelivered events. Counting stops at 10000."`
	OldestPending  *time.Time `json:"oldest_pending" doc:"Time of the oldest undelivered event."`
	OldestPosition *int64     `json:"-"` // outbox position of that event
	Undeliverable  int64      `json:"set_aside" db:"set_aside" doc:"Events that it rejected too often. Counting stops at 10000."`
}

// AuditEvent is an administrative action, recorded in the audit log.
type AuditEvent struct {
	ID      int64           `json:"audit_id"`
	Actor   string          `json:"actor"`
	Action  string          `json:"action"`
	Subject string          `json:"subject"`
	Data    json.RawMessage `json:"data"`
	At      time.Time       `json:"created_at"`
}

// Incident groups the cases of one namespace whose first notifications were sent within ten
// minutes of each other. Notifications name all of its cases and lead to the first.
type Incident struct {
	ID             ID            `json:"incident_id"`
	State          IncidentState `json:"state" db:"-" enum:"open,ended"`
	Namespace      string        `json:"namespace_name"`
	LeadCaseID     ID            `json:"lead_case_id" db:"lead" doc:"Case named by the latest notification: the largest open one at that time. Names, reason and error come from this case."`
	DedupKey       string        `json:"dedup_key" doc:"Identical in all notifications of the incident."`
	Severity       Severity      `json:"severity" enum:"critical,high,medium,low" doc:"Highest severity of its cases so far."`
	BeganAt        time.Time     `json:"began_at" doc:"When the first notification was sent."`
	EndedAt        *time.Time    `json:"ended_at" doc:"When the notification of its resolution was sent."`
	UnownedSince   *time.Time    `json:"unowned_since" doc:"Since when an open case that is not snoozed has had no owner."`
	Escalation     int           `json:"escalation" doc:"Additional routes notified because it has no owner: 1 the next route, 2 all routes."`
	LastNotifiedAt time.Time     `json:"told_at" db:"told_at" doc:"When the latest notification was sent."`
	TaskName       string        `json:"task_name"`
	StepName       string        `json:"step_name"`
	Reason         Reason        `json:"dlq_reason"`
	DetailCode     string        `json:"detail_code"`
	Label          string        `json:"label" db:"-" doc:"Short description of the cause."`
	ErrorType      string        `json:"error_type"`
	ErrorPattern   string        `json:"error_pattern"`
	Cases          int64         `json:"cases"`
	CasesOpen      int64         `json:"cases_open"`
	UnownedCases   int64         `json:"cases_not_owned" db:"cases_not_owned" doc:"Open cases without an owner."`
	Owners         []string      `json:"owned_by" db:"owned_by" doc:"Owners of its open cases."`
	Entries        int64         `json:"entries" doc:"Open investigations of its cases. 0 after the end."`
	Messages       int64         `json:"messages" doc:"Number of notifications."`
}

// IncidentState is the state of an incident.
type IncidentState string

// Incident states.
const (
	IncidentOpen  IncidentState = "open"
	IncidentEnded IncidentState = "ended"
)

// IncidentStates lists all incident states.
func IncidentStates() []IncidentState { return []IncidentState{IncidentOpen, IncidentEnded} }

// IncidentFilter selects and pages incidents, newest first. Empty fields match any.
type IncidentFilter struct {
	State     IncidentState `query:"state" flag:"state,s" doc:"Filter by state."`
	Namespace string        `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace."`
	Limit     int           `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
	Offset    int           `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`
}

// IncidentDetail is an incident with its cases and notifications.
type IncidentDetail struct {
	Incident
	Members       []IncidentCase `json:"members" doc:"In the order in which they joined, at most 200."`
	Notifications []Notification `json:"told" doc:"Oldest first, at most 200."`
}

// IncidentCase is the current state of a case of an incident.
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
	Owner        string     `json:"owner" doc:"Empty if the case has no owner."`
	Entries      int64      `json:"entries" doc:"Open investigations."`
	ResolvedAt   *time.Time `json:"resolved_at"`
}

// Limits of an [IncidentDetail].
const (
	MaxIncidentCases    = 200
	MaxIncidentMessages = 200
)

// Notification informs people of an event, such as an incident or the end of an operation.
type Notification struct {
	UUID        ID                `json:"message_uuid"`
	Position    int64             `json:"-"` // among all notifications
	Topic       string            `json:"topic"`
	SubjectKind string            `json:"subject_kind"`
	SubjectID   ID                `json:"subject_id"` // notifications of one subject are sent in order
	IncidentID  *ID               `json:"incident_id"`
	Namespaces  []string          `json:"-"`         // of the subject
	DedupKey    string            `json:"dedup_key"` // receivers use it to group notifications of one subject
	Escalation  int               `json:"escalation"`
	At          time.Time         `json:"created_at"`
	RoutedAt    *time.Time        `json:"routed_at" doc:"When its sinks were selected."`
	Data        json.RawMessage   `json:"data"`
	Emissions   []MessageEmission `json:"emissions" db:"-" doc:"One per sink."`
}

// MessageEmission is the delivery of a notification to one sink.
type MessageEmission struct {
	Sink          string        `json:"sink"`
	State         EmissionState `json:"state" enum:"pending,published,set_aside"`
	Attempts      int           `json:"attempts"`
	Refusals      int           `json:"refusals"`
	NextAttemptAt *time.Time    `json:"next_attempt_at"` // set while pending
	LastError     *string       `json:"last_error"`
	PublishedAt   *time.Time    `json:"published_at"`
}

// SystemActor is the actor of automatic changes.
const SystemActor = "tasker"

// Topics of notifications.
const (
	CaseOpenedTopic       = "case.opened"    // an incident began
	CaseGrewTopic         = "case.grew"      // the incident has more cases, or far more investigations
	CaseChangedTopic      = "case.changed"   // the incident's largest open case changed
	CaseRegressedTopic    = "case.regressed" // a resolved case failed again
	CaseWokeTopic         = "case.woke"      // a snooze ended
	CaseOwnedTopic        = "case.owned"     // all cases of the incident have an owner
	CaseUnownedTopic      = "case.unowned"   // the incident has no owner: more routes are notified
	CaseResolvedTopic     = "case.resolved"  // all cases of the incident are resolved
	DigestTopic           = "digest.cases"   // cases too small for their own notification
	OperationStartedTopic = "operation.started"
	OperationPausedTopic  = "operation.paused"
	OperationDoneTopic    = "operation.done"
	HoldBeganTopic        = "hold.began"
	HoldEndingTopic       = "hold.ending" // four fifths of its time have passed
	HoldFailedTopic       = "hold.failed" // released steps failed, and the hold is active again
	HoldEndedTopic        = "hold.ended"
	BreakerOpenedTopic    = "breaker.opened" // attempts of a handler kept failing, and its steps are held
	BreakerEndingTopic    = "breaker.ending"
	BreakerClosedTopic    = "breaker.closed"
	StepReminderTopic     = "step.reminder"    // an external step still waits for its answer
	StepWaitingTopic      = "step.waiting"     // a human step started to wait
	StepAssignedTopic     = "step.assigned"    // a human step has another assignee
	TaskCompensatedTopic  = "task.compensated" // a compensation ended
	TaskExpiredTopic      = "task.expired"     // no step of a task was claimed in time
	TaskDueSoonTopic      = "task.due_soon"
	TaskOverdueTopic      = "task.overdue"
	StepDueSoonTopic      = "step.due_soon"
	StepOverdueTopic      = "step.overdue"
	QueueSaturatedTopic   = "queue.saturated" // steps wait past their limit because the workers of a queue are busy
	QueueRelievedTopic    = "queue.relieved"  // the queue is no longer saturated
	TestTopic             = "message.test"    // an operator tests the routes
)

// MessageTopics lists the topics of notifications.
func MessageTopics() []string {
	return []string{
		CaseOpenedTopic, CaseGrewTopic, CaseChangedTopic, CaseRegressedTopic, CaseWokeTopic, CaseOwnedTopic, CaseUnownedTopic, CaseResolvedTopic, DigestTopic,
		OperationStartedTopic, OperationPausedTopic, OperationDoneTopic, HoldBeganTopic, HoldEndingTopic, HoldFailedTopic, HoldEndedTopic,
		BreakerOpenedTopic, BreakerEndingTopic, BreakerClosedTopic, StepReminderTopic, StepWaitingTopic, StepAssignedTopic, TaskCompensatedTopic, TaskExpiredTopic,
		TaskDueSoonTopic, TaskOverdueTopic, StepDueSoonTopic, StepOverdueTopic, QueueSaturatedTopic, QueueRelievedTopic, TestTopic,
	}
}

// Subject kinds of notifications.
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

// NotificationData is the payload of a notification.
type NotificationData struct {
	Summary   string   `json:"summary"` // one line
	Text      string   `json:"text,omitempty"`
	Severity  Severity `json:"severity"`
	Namespace string   `json:"namespace,omitempty"`
	Template  string   `json:"template,omitempty"`
	Step      string   `json:"step,omitempty"`
	Handler   string   `json:"handler,omitempty"` // of a queue
	Reason    Reason   `json:"dlq_reason,omitempty"`
	ErrorType string   `json:"error_type,omitempty"`
	Case      *ID      `json:"case,omitempty"` // lead case
	Operation *ID      `json:"operation,omitempty"`
	Hold      *ID      `json:"hold,omitempty"`
	Task      *ID      `json:"task,omitempty"` // compensated task, or the task of a waiting step
	// Of the lead case, operation or hold; outcome of a compensation.
	State        string          `json:"state,omitempty"`
	Entries      int64           `json:"entries"` // open investigations
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
	By           string          `json:"by,omitempty"`       // actor
	Assignee     string          `json:"assignee,omitempty"` // of a human step
	Members      []MessageMember `json:"members,omitempty"`  // the most harmful, at most [MaxMessageMembers]
	Path         string          `json:"path,omitempty"`     // of its page in the UI
}

// MessageMember is a case in a notification.
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

// MaxMessageMembers limits the cases and the owners that a notification lists.
const MaxMessageMembers = 10
