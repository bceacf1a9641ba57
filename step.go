package tasker

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// StepState is the state of a step.
type StepState string

// The states of a step.
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

// StepStates lists every state of a step, in the order of the documents.
func StepStates() []StepState {
	return []StepState{
		StepPending, StepEnqueued, StepInProgress, StepEnqueuedForOrchestration,
		StepComplete, StepError, StepCancelled, StepResolvedManually, StepSkipped,
	}
}

// Done reports whether the steps behind a step in state s need not wait for it any more.
func (s StepState) Done() bool {
	return s == StepComplete || s == StepResolvedManually || s == StepSkipped
}

// A Step is one node of a task's graph, with its readiness.
type Step struct {
	UUID                  ID
	TaskUUID              ID
	Name                  string
	Type                  StepType
	Handler               string
	State                 StepState
	StateSince            time.Time
	DependenciesSatisfied bool
	RetryEligible         bool
	ReadyForExecution     bool
	TotalParents          int
	CompletedParents      int
	Attempts              int
	MaxAttempts           int
	Retryable             bool
	Parents               []ID
	WorkerUUID            *ID
	LeaseExpiresAt        *time.Time
	LastAttemptedAt       *time.Time
	LastFailureAt         *time.Time
	NextRetryAt           *time.Time
	CreatedAt             time.Time
	UpdatedAt             time.Time
	CompletedAt           *time.Time
	DecisionDue           bool            // it is pending, and about to be decided
	DecidedAt             *time.Time      // when it was decided that it runs
	SkipReason            string          // why it is skipped
	WaitUntil             *time.Time      // when the wait of an external step ends by the clock
	Reminders             int             // of an external step, in this wait
	RemindAt              *time.Time      // when people are next reminded of it
	Assignee              string          // who is to answer an external step; empty: nobody in particular
	ChildTaskUUID         *ID             // the task that a child step started last
	Map                   *MapItem        `db:"-"` // of an item of a map step: whose it is
	Items                 *ItemCounts     `db:"-"` // of a map step that has its items
	Checkpoint            *Checkpoint     `db:"-"` // the last that its workers saved; nil: none, or the step is done
	Due                   *Deadline       // nil: none, or it is not ready yet
	Results               json.RawMessage // a [StepResult], or nil
	Error                 json.RawMessage // a [StepFailure], or nil
}

// UndoOf returns the name of the step that this one undoes; empty when it undoes none.
func (s Step) UndoOf() string {
	if name, ok := strings.CutPrefix(s.Name, UndoPrefix); ok {
		return name
	}
	return ""
}

// A MapItem says which item of a map step a step is.
type MapItem struct {
	StepUUID ID              // the map step
	Ordinal  int             // its place among the items, from 0
	Value    json.RawMessage // what its handler is given
}

// A Checkpoint is what a worker has saved of how far a step has come. The attempts that follow
// are given it.
type Checkpoint struct {
	Attempt int             `json:"attempt"` // that saved it
	Bytes   int             `json:"bytes"`
	SavedAt time.Time       `json:"saved_at"`
	Value   json.RawMessage `json:"value,omitempty"` // nil in lists
}

// ItemCounts are the items of a map step by their states.
type ItemCounts struct {
	Total      int `json:"total"`
	Pending    int `json:"pending"` // they wait for a place
	Enqueued   int `json:"enqueued"`
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed"` // or resolved by hand
	Retrying   int `json:"retrying"`  // they have failed, and rest before the next attempt
	Failed     int `json:"failed"`
	Cancelled  int `json:"cancelled"`
	Skipped    int `json:"skipped"`
}

// Open returns how many are not done.
func (c ItemCounts) Open() int { return c.Total - c.Completed - c.Skipped - c.Cancelled }

// A MapItemFilter selects and pages the items of a map step, in their order.
type MapItemFilter struct {
	State StepState // empty means any
	From  int       // the ordinal of the first
	Limit int
}

// ItemResults are results of the items of a map step in their order, one after the other.
type ItemResults struct {
	Results []json.RawMessage // null of an item without a result
	Next    int               // the ordinal of the first of the page after it; 0 when there is none
}

// ItemResultsPath returns the path of the API at which the results of the items of a map step are
// read.
func ItemResultsPath(task ID, step string) string { return ResultPath(task, step) + "/items" }

// ItemName returns the name of an item of a map step.
func ItemName(step string, ordinal int) string { return step + "[" + strconv.Itoa(ordinal) + "]" }

// TemplateName returns the name of a step in its template: of an item that of its map step.
func TemplateName(step string) string {
	name, _, _ := strings.Cut(step, "[") // which no name in a template has
	return name
}

// A StepResult is what a step that succeeded leaves behind. Steps that depend on
// it receive Result.
type StepResult struct {
	Success  bool            `json:"success"` // always true: failures are a [StepFailure]
	Result   json.RawMessage `json:"result"`
	Metadata json.RawMessage `json:"metadata,omitempty"`

	// GoesOn are, of a step of type decision, those of its direct dependents that go on. The
	// engine reads them from Result, in whichever form that says it.
	GoesOn []string `json:"goes_on,omitzero"`
}

// ResultPath returns the path of the API at which the result of a step is read. The step is
// named by its UUID or its name.
func ResultPath(task ID, step string) string {
	return "/v1/tasks/" + task.String() + "/results/" + step
}

// ContextPath returns the path of the API at which the context of a task is read.
func ContextPath(task ID) string { return "/v1/tasks/" + task.String() + "/context" }

// A StepFailure is the last failure of a step.
type StepFailure struct {
	Message     string          `json:"message"`
	Type        string          `json:"type"`
	Retryable   bool            `json:"retryable"`
	Attempt     int             `json:"attempt,omitempty"`
	WorkerUUID  string          `json:"worker_uuid,omitempty"`
	RetryAfter  int64           `json:"retry_after_ms,omitempty"`
	Context     json.RawMessage `json:"context,omitempty"`
	Fingerprint string          `json:"fingerprint,omitempty"` // the handler's own, see docs/concepts/fingerprints.md
}

// The types of a [StepFailure] that the engine itself gives.
const (
	WorkerLost  = "worker_lost"  // the lease ran out: the worker fell silent
	StepTimeout = "step_timeout" // the attempt ran longer than timeout_seconds
	QueueExpiry = "queue_expiry" // no worker took the step in time

	InvalidResult   = "invalid_result"   // the handler returned what cannot be stored
	InvalidDecision = "invalid_decision" // the handler of a decision did not say which steps go on
)

// An Assignment is a step handed to a worker, with all that its handler needs.
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
	Fence             int64  // identifies this attempt's lease, goes up with every claim; 0 where a server hands it out
	LeaseToken        string `db:"-"` // identifies it to the server that handed it out; opaque
	LeaseExpiresAt    time.Time
	Deadline          *time.Time // end of timeout_seconds; nil means none
	CorrelationID     string
	Context           json.RawMessage
	ContextOmitted    []string                   // of an item of a map step: JSON Pointers of what its context is without, which is the list that it was made of
	DependencyResults map[string]json.RawMessage // by name of the step depended on; null when it has no result
	DependencyRefs    map[string]ResultRef       `db:"-"` // of those whose results do not come along, because there are too many bytes of them
	Initialization    json.RawMessage            `db:"-"`
	Item              json.RawMessage            // of an item of a map step: the element, or elements, that it is for
	Index             *int                       // of such an item: its place in the list, from 0
	Checkpoint        json.RawMessage            // the last that was saved of the step; nil when there is none
}

// A ResultRef names a result that an assignment does not carry; it is read where it
// is needed.
type ResultRef struct {
	StepUUID ID    `json:"step_uuid"` // of the step whose result it is
	Bytes    int64 `json:"bytes"`
}

// A StepRef names a step of a task.
type StepRef struct {
	TaskUUID ID
	StepUUID ID
}

// A Lease names one attempt of one step: the right to report its outcome. Inside
// the engine's program it is named by its fence, to a server by its token.
type Lease struct {
	TaskUUID ID
	StepUUID ID
	Fence    int64
	Token    string
}

// An Outcome is what a worker reports of one attempt.
type Outcome struct {
	Lease
	Success  bool
	Result   json.RawMessage // of a success; any JSON
	Metadata json.RawMessage
	Failure  *Failure // of a failure
}

// A Failure is why an attempt did not succeed.
type Failure struct {
	Message     string
	Type        string
	Retryable   bool
	RetryAfter  time.Duration // 0 means by the step's backoff
	Fingerprint string        // what the handler says is the same failure, at most [MaxFingerprint] characters; empty: its type and message tell
	Context     json.RawMessage
}

// A Rejection is a report that was refused, and why.
type Rejection struct {
	StepUUID ID
	Code     Code
	Message  string
}

// StepAction is what an operator may do to a step.
type StepAction string

// The actions.
const (
	ResetForRetry    StepAction = "reset_for_retry"
	ResolveManually  StepAction = "resolve_manually"
	CompleteManually StepAction = "complete_manually"
)

// A StepRefusal is the details of a Conflict about an action on a step: the states
// that do not allow it, and the actions that they do allow.
type StepRefusal struct {
	TaskState      TaskState    `json:"task_state"`
	StepState      StepState    `json:"step_state"`
	AllowedActions []StepAction `json:"allowed_actions"` // empty: none
	NeedsInterrupt bool         `json:"needs_interrupt"` // these actions need interrupt
}

// An ActionRequest is a step action with who asks for it and why.
type ActionRequest struct {
	Action   StepAction
	Actor    string
	Reason   string
	Result   json.RawMessage // of complete_manually
	Metadata json.RawMessage // of complete_manually

	// ResultExpression gives the result of complete_manually in place of Result, see
	// docs/how-to/operations.md.
	ResultExpression string `json:",omitempty"`

	Answer bool `json:",omitempty"` // the form of the step must accept the result

	Interrupt bool // take the step out of the hands of a worker that holds it

	// NewChild has the reset of a child step start another task, also in place of one that is
	// complete or can still come to be.
	NewChild bool `json:",omitempty"`

	// DiscardCheckpoint has a reset remove what workers have saved of the step, which then begins
	// anew; of a map step, of its items that are not done.
	DiscardCheckpoint bool `json:",omitempty"`

	Operation *ID `json:",omitempty"` // that it is an item of; nil: it is done by hand

	// RequestKey is the same when the same request is made again, which then changes
	// nothing. Empty: each request is a new one.
	RequestKey string
}
