package tasker

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// StepState is the state of a step.
type StepState string

// Step states.
const (
	StepPending                  StepState = "pending"
	StepEnqueued                 StepState = "enqueued"
	StepInProgress               StepState = "in_progress"
	StepEnqueuedForOrchestration StepState = "enqueued_for_orchestration"
	StepComplete                 StepState = "complete"
	StepError                    StepState = "error"
	StepCancelled                StepState = "cancelled"
	StepResolvedManually         StepState = "resolved_manually"
	StepSkipped                  StepState = "skipped"
)

// StepStates lists all step states, in the order of the documentation.
func StepStates() []StepState {
	return []StepState{
		StepPending, StepEnqueued, StepInProgress, StepEnqueuedForOrchestration,
		StepComplete, StepError, StepCancelled, StepResolvedManually, StepSkipped,
	}
}

// Done reports whether dependents no longer wait for a step in state s.
func (s StepState) Done() bool {
	return s == StepComplete || s == StepResolvedManually || s == StepSkipped
}

// Step is one node of the graph of a task.
type Step struct {
	UUID                  ID              `json:"step_uuid"`
	TaskUUID              ID              `json:"task_uuid"`
	Name                  string          `json:"name"`
	Type                  StepType        `json:"type"`
	Handler               string          `json:"handler"`
	State                 StepState       `json:"current_state"`
	StateSince            time.Time       `json:"-"`
	DependenciesSatisfied bool            `json:"dependencies_satisfied"`
	RetryEligible         bool            `json:"retry_eligible" doc:"The step is in error, retryable, and its backoff has passed."`
	ReadyForExecution     bool            `json:"ready_for_execution"`
	TotalParents          int             `json:"total_parents"`
	CompletedParents      int             `json:"completed_parents"`
	Parents               []ID            `json:"dependencies" doc:"Ids of the steps that must complete first."`
	Attempts              int             `json:"attempts"`
	MaxAttempts           int             `json:"max_attempts"`
	Retryable             bool            `json:"-"`
	LastAttemptedAt       *time.Time      `json:"last_attempted_at"`
	LastFailureAt         *time.Time      `json:"last_failure_at"`
	NextRetryAt           *time.Time      `json:"next_retry_at"`
	WorkerUUID            *ID             `json:"worker_uuid"`
	LeaseExpiresAt        *time.Time      `json:"lease_expires_at"`
	CreatedAt             time.Time       `json:"created_at"`
	UpdatedAt             time.Time       `json:"updated_at"`
	CompletedAt           *time.Time      `json:"completed_at"`
	DecisionDue           bool            `json:"decision_due" doc:"A server is about to decide whether the step runs or is skipped."`
	DecidedAt             *time.Time      `json:"decided_at" doc:"When its condition and join allowed the step to run. Null if not decided yet or not applicable."`
	WaitUntil             *time.Time      `json:"wait_until" doc:"When the wait of the step times out, with the outcome on_timeout of its template. Null if it does not wait or has no timeout."`
	Reminders             int             `json:"reminders" doc:"Reminders sent in the current wait of an external step."`
	RemindAt              *time.Time      `json:"remind_at" doc:"Next reminder, from remind_after_seconds of the template, or null."`
	Assignee              OptionalString  `json:"assignee" doc:"Assignee of an external step: a person, or group: and a group. Null if unassigned."`
	Due                   *Deadline       `json:"due" doc:"Due time of the step. Null if it has none or is not ready."`
	Undoes                OptionalString  `json:"undo_of" db:"-" doc:"Name of the step that this one compensates. Null for steps of the template."`
	ChildTaskUUID         *ID             `json:"child_task_uuid" doc:"Latest task of a child step, or null."`
	MapStepUUID           *ID             `json:"map_step_uuid,omitempty" doc:"Map step of an item. Absent for other steps."`
	Ordinal               *int            `json:"ordinal,omitempty" doc:"Position of an item, from 0."`
	Item                  json.RawMessage `json:"item,omitempty" doc:"Element of the list for the handler of an item."`
	Items                 *ItemCounts     `json:"items,omitempty" db:"counted" doc:"Items of a map step by state. Absent if it has none yet."`
	Checkpoint            *Checkpoint     `json:"checkpoint,omitempty" db:"saved" doc:"Latest checkpoint. Absent if there is none or the step is done."`
	SkipReason            OptionalString  `json:"skip_reason" doc:"Why the step was skipped, or null."`
	Results               json.RawMessage `json:"results" doc:"Last result {success, result, metadata}, or null."`
	Error                 json.RawMessage `json:"error" doc:"Last failure {message, type, retryable, …}, or null."`
}

// Describe sets the derived fields.
func (s *Step) Describe() {
	s.Undoes = OptionalString(s.UndoOf())
	if s.Parents == nil {
		s.Parents = []ID{}
	}
}

// UndoOf returns the name of the step that s compensates, or "".
func (s Step) UndoOf() string {
	if name, ok := strings.CutPrefix(s.Name, UndoPrefix); ok {
		return name
	}
	return ""
}

// Checkpoint is the progress that a worker saved. Later attempts receive it.
type Checkpoint struct {
	Attempt int             `json:"attempt" doc:"Attempt that saved it."`
	Bytes   int             `json:"bytes"`
	SavedAt time.Time       `json:"saved_at"`
	Value   json.RawMessage `json:"value,omitempty" doc:"Absent in lists."`
}

// ItemCounts counts the items of a map step by state.
type ItemCounts struct {
	Total      int `json:"total"`
	Pending    int `json:"pending" doc:"Waiting for a slot."`
	Enqueued   int `json:"enqueued"`
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed" doc:"Complete or resolved manually."`
	Retrying   int `json:"retrying" doc:"Failed, waiting for the next attempt."`
	Failed     int `json:"failed"`
	Cancelled  int `json:"cancelled"`
	Skipped    int `json:"skipped"`
}

// Open returns the number of items that are not done.
func (c ItemCounts) Open() int { return c.Total - c.Completed - c.Skipped - c.Cancelled }

// MapItemFilter selects and pages the items of a map step, in order.
type MapItemFilter struct {
	State StepState `query:"state" flag:"state,s" doc:"Filter by state."`
	From  int       `query:"from" maximum:"10000000" doc:"Page cursor: next of the previous page."` // ordinal of the first item
	Limit int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of elements."`
}

// ItemResults is a page of the results of a map step, in the order of its items.
type ItemResults struct {
	Results []json.RawMessage // null for an item without a result
	Next    int               // ordinal of the next page; 0 at the end
}

// ItemResultsPath returns the API path of the results of a map step.
func ItemResultsPath(task ID, step string) string { return ResultPath(task, step) + "/items" }

// ItemName returns the name of an item of a map step.
func ItemName(step string, ordinal int) string { return step + "[" + strconv.Itoa(ordinal) + "]" }

// TemplateName returns the name of a step in its template. For an item, that is the name of its
// map step.
func TemplateName(step string) string {
	name, _, _ := strings.Cut(step, "[") // never part of a name in a template
	return name
}

// StepResult is the stored outcome of a successful step. Dependents receive Result.
type StepResult struct {
	Success  bool            `json:"success"` // always true: failures are a [StepFailure]
	Result   json.RawMessage `json:"result"`
	Metadata json.RawMessage `json:"metadata,omitempty"`

	GoesOn []string `json:"goes_on,omitzero"` // dependents chosen by a decision step, extracted from Result
}

// ResultPath returns the API path of the result of a step. The step is a UUID or a name.
func ResultPath(task ID, step string) string {
	return "/v1/tasks/" + task.String() + "/results/" + step
}

// ContextPath returns the API path of the context of a task.
func ContextPath(task ID) string { return "/v1/tasks/" + task.String() + "/context" }

// StepFailure is the stored last failure of a step.
type StepFailure struct {
	Message    string          `json:"message"`
	Type       string          `json:"type"`
	Retryable  bool            `json:"retryable"`
	Attempt    int             `json:"attempt,omitempty"`
	WorkerUUID string          `json:"worker_uuid,omitempty"`
	RetryAfter int64           `json:"retry_after_ms,omitempty"`
	Context    json.RawMessage `json:"context,omitempty"`
	// Set by the handler, see docs/concepts/fingerprints.md.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// Failure types set by the engine.
const (
	WorkerLost  = "worker_lost"  // the lease expired
	StepTimeout = "step_timeout" // the attempt exceeded timeout_seconds
	QueueExpiry = "queue_expiry" // no worker claimed the step in time

	InvalidResult   = "invalid_result"   // the result of the handler cannot be stored
	InvalidDecision = "invalid_decision" // the handler of a decision step did not name the steps to run
)

// Assignment is a claimed step with all inputs of its handler.
type Assignment struct {
	StepUUID          ID
	TaskUUID          ID
	Namespace         string
	TaskName          string
	TaskVersion       string
	Name              string
	Handler           string
	Attempt           int
	MaxAttempts       int
	Fence             int64  // fencing token, rises with each claim; 0 if a server assigned the step
	LeaseToken        string `db:"-"` // opaque token of the server that assigned the step
	LeaseExpiresAt    time.Time
	Deadline          *time.Time // end of timeout_seconds, or nil
	CorrelationID     string
	Context           json.RawMessage
	ContextOmitted    []string                   // for an item: JSON Pointers of context parts left out, such as the list itself
	DependencyResults map[string]json.RawMessage // by step name; null if there is no result
	DependencyRefs    map[string]ResultRef       `db:"-"` // results that are too large to be carried inline
	Initialization    json.RawMessage            `db:"-"`
	Item              json.RawMessage            // for an item of a map step: its element or elements
	Index             *int                       // for an item: position in the list, from 0
	Checkpoint        json.RawMessage            // latest checkpoint of the step, or nil
}

// ResultRef identifies a result that an assignment does not carry inline.
type ResultRef struct {
	StepUUID ID    `json:"step_uuid"`
	Bytes    int64 `json:"bytes"`
}

// StepRef identifies a step of a task.
type StepRef struct {
	TaskUUID ID `json:"task_uuid"`
	StepUUID ID `json:"step_uuid"`
}

// Lease is the right to report the outcome of one attempt. The engine identifies it by its fence,
// a server by its token.
type Lease struct {
	TaskUUID ID
	StepUUID ID
	Fence    int64
	Token    string
}

// Outcome is the report of one attempt.
type Outcome struct {
	Lease
	Success  bool
	Result   json.RawMessage // any JSON, on success
	Metadata json.RawMessage
	Failure  *Failure // nil on success
}

// Failure describes why an attempt failed.
type Failure struct {
	Message    string
	Type       string
	Retryable  bool
	RetryAfter time.Duration // 0 means the backoff of the step
	// Groups equal failures, at most [MaxFingerprint] characters; empty: derived from type and
	// message.
	Fingerprint string
	Context     json.RawMessage
}

// Rejection is a rejected report.
type Rejection struct {
	StepUUID ID
	Code     Code
	Message  string
}

// StepAction is an operator action on a step.
type StepAction string

// Step actions.
const (
	ResetForRetry    StepAction = "reset_for_retry"
	ResolveManually  StepAction = "resolve_manually"
	CompleteManually StepAction = "complete_manually"
)

// StepRefusal contains the details of a Conflict about a step action.
type StepRefusal struct {
	TaskState      TaskState    `json:"task_state"`
	StepState      StepState    `json:"step_state"`
	AllowedActions []StepAction `json:"allowed_actions"`
	NeedsInterrupt bool         `json:"needs_interrupt"` // the allowed actions require Interrupt
}

// ActionRequest is a step action with its actor and reason.
type ActionRequest struct {
	Action   StepAction
	Actor    string
	Reason   string
	Result   json.RawMessage // of complete_manually
	Metadata json.RawMessage // of complete_manually

	ResultExpression string `json:",omitempty"` // alternative to Result, see docs/how-to/operations.md

	Answer bool `json:",omitempty"` // validate the result against the form of the step

	Interrupt bool // revoke the lease of the current worker

	// Reset: start another child task even if the last one completed or may still complete.
	NewChild bool `json:",omitempty"`

	// Reset: delete the checkpoint of the step, or of the unfinished items of a map step.
	DiscardCheckpoint bool `json:",omitempty"`

	Operation *ID `json:",omitempty"` // nil if the action was requested manually

	RequestKey string // repeated requests with the same key have no effect; empty disables the check
}
