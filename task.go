package tasker

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ID identifies a task, a step, an entry, a template or a worker: a UUID of
// version 7, so ids sort by the time they were made.
type ID = uuid.UUID

// NewID returns a new id.
func NewID() ID { return uuid.Must(uuid.NewV7()) }

// TaskState is the state of a task. docs/reference/states.md says what each means; package
// lifecycle has every legal move.
type TaskState string

// The states of a task.
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

// TaskStates lists every state of a task, in the order of the documents.
func TaskStates() []TaskState {
	return []TaskState{
		TaskPending, TaskInitializing, TaskEnqueuingSteps, TaskStepsInProcess, TaskEvaluatingResults,
		TaskWaitingForDependencies, TaskWaitingForRetry, TaskBlockedByFailures,
		TaskComplete, TaskError, TaskCancelled, TaskResolvedManually,
	}
}

// A TaskPhase says what an open task is about.
type TaskPhase string

// Compensating is the phase of a task that undoes what its steps have done. All others have
// none: they go forward.
const Compensating TaskPhase = "compensating"

// A TaskOutcome says what became of the wish to undo what a cancelled task had done.
type TaskOutcome string

// The outcomes. A task that was cancelled without that wish has none.
const (
	Compensated         TaskOutcome = "compensated"           // all that can be undone is
	CompensationStopped TaskOutcome = "compensation_stopped"  // the task was cancelled before that
	NothingToCompensate TaskOutcome = "nothing_to_compensate" // no step was complete that can be undone
)

// A NewTask is what a caller asks for.
type NewTask struct {
	Namespace           string
	Name                string
	Version             string          // empty means the newest
	Context             json.RawMessage // a JSON object, checked against the template's input schema
	Initiator           string
	SourceSystem        string
	Reason              string
	Priority            int
	Tags                []string
	CorrelationID       string // empty means one is made
	ParentCorrelationID string
	IdempotencyKey      string
	StartAt             time.Time // zero means at once
	RecreatedFrom       ID        // the task this one replaces; zero means none

	StartAfter  time.Duration // after its creation, in the place of StartAt
	StartBy     time.Time     // it ends as expired unless a step of it is claimed by then; zero means it does not
	StartWithin time.Duration // the same, so long after its start
	Unique      Unique        // zero: as the template says
	Debounce    Debounce      // the same

	DueAt    time.Time     // by when it is due; zero: as the template says
	DueAfter time.Duration // the same, so long after its start
}

// A Task is one run of a template.
type Task struct {
	UUID                ID
	TemplateUUID        ID
	Namespace           string
	Name                string
	Version             string
	State               TaskState
	StateSince          time.Time
	Phase               TaskPhase   // empty: it goes forward, or has ended
	Outcome             TaskOutcome // of a cancelled task; empty: nobody asked to undo anything
	Priority            int
	Context             json.RawMessage
	Initiator           string
	SourceSystem        string
	Reason              string
	Tags                []string
	Attributes          []string // that its template declares and that have a value, as ParseAttributeFilter reads them; none in lists
	CorrelationID       string
	ParentCorrelationID string
	IdempotencyKey      string
	RecreatedFrom       *ID
	ParentTaskUUID      *ID // the task whose step started this one; it may be gone
	ParentStepUUID      *ID // that step
	StartAt             *time.Time
	CreatedAt           time.Time
	UpdatedAt           time.Time
	CompletedAt         *time.Time
	Options             *TaskOptions // nil: none
	Due                 *Deadline    // nil: none
	MaxDurationEndsAt   *time.Time   // when max_duration_minutes of its template is over
	Counts              StepCounts   `db:"-"`
	DeadLetter          DeadLetter   `db:"-"`
}

// StepCounts says how many steps of a task stand where.
type StepCounts struct {
	Total      int
	Pending    int // pending
	InProgress int // enqueued, in progress or kept for orchestration
	Completed  int // complete or resolved by hand
	Failed     int // in error, whether or not a retry is due
	Ready      int // enqueued
	Cancelled  int
	Skipped    int
}

// DeadLetter is the mark of a task that has an open or permanent investigation.
type DeadLetter struct {
	DeadLettered bool
	At           *time.Time       `db:"dead_lettered_at"`
	Reason       string           `db:"dead_letter_reason"`
	EntryUUID    *ID              `db:"dlq_entry_uuid"`
	Status       ResolutionStatus `db:"dead_letter_status"` // pending or permanently_failed
	RecoveredAt  *time.Time       `db:"dead_letter_recovered_at"`
}

// MarkKind is what a mark says of its task.
type MarkKind string

// The kinds of a mark.
const (
	MarkPermanentlyFailed  MarkKind = "permanently_failed"  // the task was written off
	MarkUnderInvestigation MarkKind = "under_investigation" // it cannot progress, or a step of it has failed
	MarkOpenedByHand       MarkKind = "opened_by_hand"      // a person asked for a look; the task may be well
	MarkRecovered          MarkKind = "recovered"           // it went on by itself; the investigation is still open
)

// MarkKinds lists every kind.
func MarkKinds() []MarkKind {
	return []MarkKind{MarkPermanentlyFailed, MarkUnderInvestigation, MarkOpenedByHand, MarkRecovered}
}

// Kind returns what the mark says; empty when the task has none.
func (d DeadLetter) Kind() MarkKind {
	switch {
	case !d.DeadLettered:
		return ""
	case d.Status == EntryPermanentlyFailed:
		return MarkPermanentlyFailed
	case d.RecoveredAt != nil:
		return MarkRecovered
	case d.Reason == string(ManualDLQ):
		return MarkOpenedByHand
	default:
		return MarkUnderInvestigation
	}
}

// Label returns the mark in words, such as "Under investigation: max retries exceeded";
// empty when the task has none.
func (d DeadLetter) Label() string {
	reason := strings.ReplaceAll(d.Reason, "_", " ")
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

// A TaskFilter selects and pages tasks, newest first. A field at its zero value selects
// nothing; a task has to fit all others.
type TaskFilter struct {
	State          TaskState
	Phase          TaskPhase
	Namespace      string
	Name           string
	DeadLettered   *bool
	Tags           []string // it has all of them
	CorrelationID  string
	IdempotencyKey string
	Initiator      string
	SourceSystem   string
	Attributes     []AttributeFilter // of those that templates declare; a task fits all of them
	CreatedAfter   time.Time         // at this instant or later
	CreatedBefore  time.Time         // before this instant
	Parent         ID                // a step of it started the task
	Overdue        bool              // it has not ended, and its due time is over
	DueBefore      time.Time         // it has not ended, and is due before this instant
	NotUndone      bool              // it is in no phase
	Before         ID                // only tasks that are older than this one: the last of the page before
	Limit          int
	Offset         int
}

// ByDueTime reports whether only open tasks are listed that are due before an instant, those that are due
// first before the others.
func (f TaskFilter) ByDueTime() bool { return f.Overdue || !f.DueBefore.IsZero() }

// InOrderOfValues reports whether the tasks are listed in the order of the values of an attribute,
// of which there is a range and nothing that selects more, or of when they are due, and not the newest first.
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

// An AttributeFilter is a condition on a search attribute. The value of a number or a time may
// begin with >, >=, < or <=.
type AttributeFilter struct{ Name, Value string }

// ParseAttributeFilter reads a condition such as customer:4711 or risk:>0.5.
func ParseAttributeFilter(text string) (AttributeFilter, error) {
	name, value, found := strings.Cut(text, ":")
	if !found || name == "" || value == "" {
		return AttributeFilter{}, Errorf(Invalid, "an attribute is asked for as NAME:VALUE, such as customer:4711 or risk:>0.5, not %q", text)
	}
	return AttributeFilter{name, value}, nil
}

// String spells the condition as ParseAttributeFilter reads it.
func (a AttributeFilter) String() string { return a.Name + ":" + a.Value }

// ParseAttributeFilters reads conditions.
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

// An Attribute is what tasks of a namespace are found by, as templates declare it.
type Attribute struct {
	Namespace string
	Name      string
	Type      AttributeType
	Templates []string // that declare it in any version
}

// A Transition is one row of the history of a task or a step.
type Transition struct {
	ID         int64           `json:"transition_id"`
	TaskUUID   ID              `json:"task_uuid"`
	StepUUID   *ID             `json:"step_uuid,omitempty"` // nil for a move of the task itself
	From       string          `json:"from_state"`
	To         string          `json:"to_state"`
	Event      string          `json:"event"`
	Attempt    *int            `json:"attempt,omitempty"`
	WorkerUUID *ID             `json:"worker_uuid,omitempty"`
	Actor      string          `json:"actor,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Detail     json.RawMessage `json:"detail,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`

	OperationUUID *ID `json:"operation_uuid,omitempty" doc:"The operation that made the move."`
}
