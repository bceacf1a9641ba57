package tasker

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ID identifies a task, step, entry, template or worker. It is a version 7 UUID, so ids sort by
// creation time.
type ID = uuid.UUID

// NewID returns a new UUID of version 7.
func NewID() ID { return uuid.Must(uuid.NewV7()) }

// TaskState is the state of a task. docs/reference/states.md describes the states; package
// lifecycle defines the transitions.
type TaskState string

// Task states.
const (
	TaskPending                TaskState = "pending"
	TaskInitializing           TaskState = "initializing"
	TaskEnqueuingSteps         TaskState = "enqueuing_steps"
	TaskStepsInProcess         TaskState = "steps_in_process"
	TaskEvaluatingResults      TaskState = "evaluating_results"
	TaskWaitingForDependencies TaskState = "waiting_for_dependencies"
	TaskWaitingForRetry        TaskState = "waiting_for_retry"
	TaskBlockedByFailures      TaskState = "blocked_by_failures"
	TaskComplete               TaskState = "complete"
	TaskError                  TaskState = "error"
	TaskCancelled              TaskState = "cancelled"
	TaskResolvedManually       TaskState = "resolved_manually"
)

// TaskStates lists all task states, in the order of the documentation.
func TaskStates() []TaskState {
	return []TaskState{
		TaskPending, TaskInitializing, TaskEnqueuingSteps, TaskStepsInProcess, TaskEvaluatingResults,
		TaskWaitingForDependencies, TaskWaitingForRetry, TaskBlockedByFailures,
		TaskComplete, TaskError, TaskCancelled, TaskResolvedManually,
	}
}

// Final reports whether a task in the state has ended. A task in error has not: an operator can
// continue it.
func (s TaskState) Final() bool {
	return s == TaskComplete || s == TaskCancelled || s == TaskResolvedManually
}

// TaskPhase is the phase of an open task.
type TaskPhase string

// Compensating is the phase of a task that compensates its completed steps. All other tasks have
// no phase.
const Compensating TaskPhase = "compensating"

// MarshalJSON returns null if p is empty.
func (p TaskPhase) MarshalJSON() ([]byte, error) { return marshalOptional(string(p)) }

// TaskOutcome is the outcome of a compensation.
type TaskOutcome string

// MarshalJSON returns null if o is empty.
func (o TaskOutcome) MarshalJSON() ([]byte, error) { return marshalOptional(string(o)) }

// Compensation outcomes. A task that was cancelled without compensation has none.
const (
	Compensated         TaskOutcome = "compensated"           // all compensation steps completed
	CompensationStopped TaskOutcome = "compensation_stopped"  // the task was cancelled first
	NothingToCompensate TaskOutcome = "nothing_to_compensate" // no completed step has a compensation
)

// NewTask describes a task to create.
type NewTask struct {
	Namespace           string
	Name                string
	Version             string          // empty means the newest
	Context             json.RawMessage // JSON object, validated against the input schema of the template
	Initiator           string
	SourceSystem        string
	Reason              string
	Priority            int
	Tags                []string
	CorrelationID       string // generated if empty
	ParentCorrelationID string
	IdempotencyKey      string
	StartAt             time.Time // zero means immediately
	RecreatedFrom       ID        // task that this one replaces; zero means none

	StartAfter  time.Duration // after the creation; alternative to StartAt
	StartBy     time.Time     // the task expires unless a step is claimed by then; zero means never
	StartWithin time.Duration // after the start; alternative to StartBy
	Unique      Unique        // zero: from the template
	Debounce    Debounce      // zero: from the template

	DueAt    time.Time     // zero: from the template
	DueAfter time.Duration // after the start; alternative to DueAt
}

// Task is one run of a template. Lists omit its context, its attributes and its steps.
type Task struct {
	UUID                ID              `json:"task_uuid"`
	TemplateUUID        ID              `json:"-"`
	Namespace           string          `json:"namespace"`
	Name                string          `json:"name"`
	Version             string          `json:"version"`
	State               TaskState       `json:"status" doc:"State of the task."`
	Phase               TaskPhase       `json:"phase" enum:"compensating" doc:"compensating: the task compensates its completed steps. Otherwise null."`
	Outcome             TaskOutcome     `json:"outcome" enum:"compensated,compensation_stopped,nothing_to_compensate" doc:"Outcome of a compensation: completed; cancelled before its end; no completed step had a compensation. Null without a compensation and while it runs."`
	StateSince          time.Time       `json:"state_since" doc:"When the task entered its state, or last made progress in it."`
	Priority            int             `json:"priority"`
	Context             json.RawMessage `json:"context,omitempty" doc:"Absent in lists."`
	Initiator           string          `json:"initiator"`
	SourceSystem        string          `json:"source_system"`
	Reason              string          `json:"reason"`
	Tags                []string        `json:"tags"`
	Attributes          []string        `json:"attributes,omitempty" doc:"Search attributes with a value, each as NAME:VALUE. Absent in lists and for callers without payloads:read."`
	Warnings            []Fault         `json:"warnings,omitempty" db:"-" doc:"Only in create responses: search attributes that the task does not have, and why."`
	CorrelationID       string          `json:"correlation_id"`
	ParentCorrelationID OptionalString  `json:"parent_correlation_id"`
	IdempotencyKey      string          `json:"-"` // a secret of the caller that created the task
	RecreatedFrom       *ID             `json:"recreated_from"`
	ParentTaskUUID      *ID             `json:"parent_task_uuid" doc:"Task whose step started this one, or null. It may be deleted."`
	ParentStepUUID      *ID             `json:"parent_step_uuid" doc:"Step that started this task."`
	StartAt             *time.Time      `json:"start_at"`
	TaskOptions
	Due               *Deadline      `json:"due" doc:"Due time of the task, or null."`
	MaxDurationEndsAt *time.Time     `json:"max_duration_ends_at" doc:"End of max_duration_minutes of its template, or null."`
	FirstDeadline     OptionalString `json:"first_deadline" db:"-" enum:"due,max_duration" doc:"The earlier of the two, or null."`
	CreatedAt         time.Time      `json:"created_at"`
	UpdatedAt         time.Time      `json:"updated_at"`
	CompletedAt       *time.Time     `json:"completed_at"`
	StepCounts
	CompletionPercentage float64 `json:"completion_percentage" db:"-"`
	DeadLetter
	Steps []Step `json:"steps,omitempty" db:"-" doc:"Absent in lists."` // set only in responses of the API
}

// Describe sets the derived fields.
func (t *Task) Describe() {
	if t.Tags == nil {
		t.Tags = []string{}
	}
	if t.Total > 0 {
		t.CompletionPercentage = float64((t.Completed+t.Skipped)*10000/t.Total) / 100
	}
	first, _ := FirstDeadline(t.Due, t.MaxDurationEndsAt)
	t.FirstDeadline = OptionalString(first)
	t.Mark, t.MarkLabel = t.Kind(), OptionalString(t.Label())
}

// Settled reports whether the task has ended, or has an investigation that is open or has ended as
// permanently failed. Callers that wait for a task wait until then.
func (t Task) Settled() bool { return t.State.Final() || t.DeadLettered }

// StepCounts counts the steps of a task by state.
type StepCounts struct {
	Total      int `json:"total_steps"`
	Pending    int `json:"pending_steps"`
	InProgress int `json:"in_progress_steps"` // enqueued, in progress or waiting for orchestration
	Completed  int `json:"completed_steps"`   // complete or resolved manually
	Skipped    int `json:"skipped_steps" doc:"Steps skipped by a branch."`
	Failed     int `json:"failed_steps"` // in error, including steps that will be retried
	Ready      int `json:"ready_steps"`  // enqueued
	Cancelled  int `json:"-"`
}

// DeadLetter marks a task whose investigation is open or has ended as permanently failed.
type DeadLetter struct {
	DeadLettered   bool             `json:"dead_lettered" doc:"An investigation of this task is open, or ended as permanently_failed."`
	DeadLetteredAt *time.Time       `json:"dead_lettered_at" db:"dead_lettered_at"`
	MarkReason     OptionalString   `json:"dead_letter_reason" db:"dead_letter_reason"`
	Mark           MarkKind         `json:"dead_letter_mark" db:"-" enum:"permanently_failed,under_investigation,opened_by_hand,recovered" doc:"Meaning of the investigation for the task: permanently failed; it cannot progress or a step failed; opened by an operator; it continued automatically and the investigation is still open. Null without one."`
	MarkLabel      OptionalString   `json:"dead_letter_label" db:"-" doc:"Mark and reason in words."`
	EntryUUID      *ID              `json:"dlq_entry_uuid" db:"dlq_entry_uuid"`
	EntryStatus    ResolutionStatus `json:"-" db:"dead_letter_status"` // pending or permanently_failed
	RecoveredAt    *time.Time       `json:"-" db:"dead_letter_recovered_at"`
}

// MarkKind classifies the mark of a task.
type MarkKind string

// Kinds of marks.
const (
	MarkPermanentlyFailed  MarkKind = "permanently_failed"  // an operator marked the task as permanently failed
	MarkUnderInvestigation MarkKind = "under_investigation" // the task cannot progress, or a step has failed
	// An operator opened the investigation; the task may be healthy.
	MarkOpenedByHand MarkKind = "opened_by_hand"
	// The task continued automatically; the investigation is still open.
	MarkRecovered MarkKind = "recovered"
)

// MarshalJSON returns null if k is empty.
func (k MarkKind) MarshalJSON() ([]byte, error) { return marshalOptional(string(k)) }

// MarkKinds lists all kinds of marks.
func MarkKinds() []MarkKind {
	return []MarkKind{MarkPermanentlyFailed, MarkUnderInvestigation, MarkOpenedByHand, MarkRecovered}
}

// Kind returns the kind of the mark, or "" if the task has none.
func (d DeadLetter) Kind() MarkKind {
	switch {
	case !d.DeadLettered:
		return ""
	case d.EntryStatus == EntryPermanentlyFailed:
		return MarkPermanentlyFailed
	case d.RecoveredAt != nil:
		return MarkRecovered
	case d.MarkReason == OptionalString(ManualDLQ):
		return MarkOpenedByHand
	default:
		return MarkUnderInvestigation
	}
}

// Label returns the mark in words, such as "Under investigation: max retries exceeded", or "" if
// the task has none.
func (d DeadLetter) Label() string {
	reason := strings.ReplaceAll(string(d.MarkReason), "_", " ")
	switch d.Kind() {
	case "":
		return ""
	case MarkPermanentlyFailed:
		return "Permanently failed: " + reason
	case MarkRecovered:
		return "Recovered, investigation still open: " + reason
	case MarkOpenedByHand:
		return "Under investigation, opened by hand"
	default:
		return "Under investigation: " + reason
	}
}

// TaskFilter selects and pages tasks, newest first. Zero fields match any task; the others must
// all match.
type TaskFilter struct {
	State          TaskState         `query:"status" flag:"status,s" doc:"Filter by state."`
	Phase          TaskPhase         `query:"phase" doc:"Filter by phase."`
	Namespace      string            `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace."`
	Name           string            `query:"name" maxLength:"128" doc:"Filter by template."`
	DeadLettered   *bool             `query:"dead_lettered" doc:"Filter by open or permanent investigation."`
	Tags           []string          `query:"tag" maxLength:"128" maxItems:"10" doc:"Filter by tag."` // all of them
	CorrelationID  string            `query:"correlation_id" maxLength:"128" doc:"Filter by correlation id."`
	IdempotencyKey string            `query:"idempotency_key" maxLength:"255" doc:"Filter by idempotency key."`
	Initiator      string            `query:"initiator" maxLength:"255" doc:"Filter by initiator."`
	SourceSystem   string            `query:"source_system" maxLength:"255" doc:"Filter by source system."`
	CreatedAfter   time.Time         `query:"created_after" doc:"Filter by creation time, inclusive."`
	CreatedBefore  time.Time         `query:"created_before" doc:"Filter by creation time, exclusive."`
	Parent         ID                `query:"parent" doc:"Filter by parent task."` // task that started it
	Overdue        bool              `query:"overdue" doc:"Only overdue tasks, longest overdue first."`
	DueBefore      time.Time         `query:"due_before" doc:"Only open tasks due before this time, earliest first."`
	Attributes     []AttributeFilter `query:"attribute" maxLength:"400" maxItems:"10" doc:"Filter by search attribute, as NAME:VALUE, such as customer:4711. Values of numbers and times may begin with >, >=, < or <=. With a range and no exact filter, results are ordered by descending value."` // all of them
	Limit          int               `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
	Offset         int               `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`
	Before         ID                `query:"before" doc:"Page cursor: next_before of the previous page. Unlike with offset, later pages cost the same."`
	NotUndone      bool              // has no phase
}

// ByDueTime reports whether the list contains only open tasks with a due time, earliest first.
func (f TaskFilter) ByDueTime() bool { return f.Overdue || !f.DueBefore.IsZero() }

// InOrderOfValues reports whether the list is ordered by an attribute or a due time instead of
// newest first. That is the case for attribute ranges without a more selective condition.
func (f TaskFilter) InOrderOfValues() bool {
	if f.Parent == (ID{}) && f.ByDueTime() {
		return true
	}
	selects := f.Parent != (ID{}) || len(f.Tags) > 0 || f.IdempotencyKey+f.CorrelationID+f.SourceSystem+f.Initiator != ""
	for _, a := range f.Attributes {
		selects = selects || !strings.HasPrefix(a.Value, ">") && !strings.HasPrefix(a.Value, "<")
	}
	return !selects && len(f.Attributes) > 0
}

// AttributeFilter is a condition on a search attribute. The value of a number or time may start
// with >, >=, < or <=.
type AttributeFilter struct{ Name, Value string }

// ParseAttributeFilter parses a condition such as customer:4711 or risk:>0.5. Errors are Invalid.
func ParseAttributeFilter(text string) (AttributeFilter, error) {
	name, value, found := strings.Cut(text, ":")
	if !found || name == "" || value == "" {
		return AttributeFilter{}, Errorf(Invalid,
			"invalid attribute %q: must be NAME:VALUE, such as customer:4711 or risk:>0.5", text)
	}
	return AttributeFilter{name, value}, nil
}

// String formats the condition for [ParseAttributeFilter].
func (a AttributeFilter) String() string { return a.Name + ":" + a.Value }

// ParseAttributeFilters parses conditions as [ParseAttributeFilter] does. It returns an Invalid
// error for the first malformed one.
func ParseAttributeFilters(texts []string) (list []AttributeFilter, err error) {
	for _, text := range texts {
		a, err := ParseAttributeFilter(text)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// Attribute is a search attribute that templates of a namespace declare.
type Attribute struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Type      AttributeType `json:"type" enum:"text,number,time,bool"`
	Templates []string      `json:"templates" doc:"Templates that declare it in any version."`
}

// Transition is one row of the history of a task or step.
type Transition struct {
	ID         int64           `json:"transition_id"`
	TaskUUID   ID              `json:"task_uuid"`
	StepUUID   *ID             `json:"step_uuid,omitempty"` // nil for the task itself
	From       string          `json:"from_state"`
	To         string          `json:"to_state"`
	Event      string          `json:"event"`
	Attempt    *int            `json:"attempt,omitempty"`
	WorkerUUID *ID             `json:"worker_uuid,omitempty"`
	Actor      string          `json:"actor,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Detail     json.RawMessage `json:"detail,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`

	OperationUUID *ID `json:"operation_uuid,omitempty" doc:"The operation that caused the transition."`
}
