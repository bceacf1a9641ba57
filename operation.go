package tasker

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"
)

// An Act is what an operation does to each of its items.
type Act string

// The acts.
const (
	ActReset      Act = "reset_for_retry"
	ActResolve    Act = "resolve_manually"
	ActComplete   Act = "complete_manually"
	ActAnswer     Act = "answer"            // external steps that wait
	ActCancel     Act = "cancel"            // the task
	ActCompensate Act = "compensate"        // the task is cancelled, and what it has done is undone
	ActRecreate   Act = "recreate"          // the task: it is written off, and a new one takes its place
	ActEnd        Act = "end_investigation" // of a task that is complete or cancelled or has recovered, or one that a person opened
)

// Acts lists every act.
func Acts() []Act {
	return []Act{ActReset, ActResolve, ActComplete, ActAnswer, ActCancel, ActCompensate, ActRecreate, ActEnd}
}

// StepAction returns the step action of an act; false for an act on whole tasks.
func (a Act) StepAction() (StepAction, bool) {
	if a == ActAnswer {
		return CompleteManually, true
	}
	return StepAction(a), slices.Contains([]Act{ActReset, ActResolve, ActComplete}, a)
}

// TakesResult reports whether the act ends steps with a result.
func (a Act) TakesResult() bool { return a == ActComplete || a == ActAnswer }

// OperationState is the state of an operation.
type OperationState string

// The states of an operation.
const (
	OperationPlanned OperationState = "planned"
	OperationRunning OperationState = "running"
	OperationPaused  OperationState = "paused"
	OperationDone    OperationState = "done"
	OperationAborted OperationState = "aborted"
)

// OperationStates lists every state of an operation.
func OperationStates() []OperationState {
	return []OperationState{OperationPlanned, OperationRunning, OperationPaused, OperationDone, OperationAborted}
}

// ItemState is the state of an item of an operation.
type ItemState string

// The states of an item.
const (
	ItemPlanned     ItemState = "planned"
	ItemReleased    ItemState = "released"     // the action is done
	ItemRunning     ItemState = "running"      // and a worker was seen to execute the step
	ItemVerified    ItemState = "verified"     // it has succeeded
	ItemFailedAgain ItemState = "failed_again" // it has failed for good once more
	ItemSkipped     ItemState = "skipped"      // the action was not done, or somebody else took over
	ItemAborted     ItemState = "aborted"      // the operation ended before
)

// ItemStates lists every state of an item.
func ItemStates() []ItemState {
	return []ItemState{ItemPlanned, ItemReleased, ItemRunning, ItemVerified, ItemFailedAgain, ItemSkipped, ItemAborted}
}

// An OperationSelection selects open investigations. Of each, the step that has failed
// becomes an item, or the task where the act is on tasks.
type OperationSelection struct {
	Filter        InvestigationFilter // its page does not count
	WorkerVersion string              // the failed attempt was of a worker of this version
	FailedSince   *time.Time          // the step failed at this instant or later
	IDs           []ID                // investigations or tasks, of which the filter selects; nil: of all
}

// IsEmpty reports whether the selection names nothing, and so would select everything.
func (s OperationSelection) IsEmpty() bool {
	f := s.Filter
	f.Limit, f.Offset = 0, 0
	return reflect.ValueOf(f).IsZero() && s.WorkerVersion == "" && s.FailedSince == nil && s.IDs == nil
}

// Guards pause an operation automatically.
type Guards struct {
	Tolerate       *FailureTolerance // how many steps of a wave may fail; nil: the default
	IgnoreNewCause bool              // count failures of a cause that was not selected as those of any other
	WaveTimeout    time.Duration     // for the proof of a wave; 0: the default
	WorkerAtLeast  string            // only workers of this version or a newer one take the steps; empty: any. Of [ActReset] only
}

// An OperationPlan is a request for an operation.
type OperationPlan struct {
	Act              Act
	Result           json.RawMessage // of complete_manually: one for all
	ResultExpression string          `json:",omitempty"` // or an expression, which gives one for each item
	Metadata         json.RawMessage // of complete_manually
	Selection        OperationSelection
	Actor            string
	Reason           string
	Waves            []int // how many items each wave releases, and then the rest; nil: the default
	RatePerMinute    int   // of items that are released; 0: no limit
	Guards           Guards
	Limit            int  // of items; 0: MaxOperationItems
	SkipOverlap      bool // leave out what another operation has selected, instead of refusing
	RequestKey       string
}

// DefaultWaves are the waves of a plan that says nothing of them.
func DefaultWaves() []int { return []int{1, 10, 100} }

// The guards of a plan that says nothing of them.
const (
	DefaultTolerate    = 2 // percent of the steps of a wave
	DefaultWaveTimeout = 15 * time.Minute
)

// An Operation is one action on many steps: a selection that is frozen, and a job that any
// server goes on with.
type Operation struct {
	UUID          ID
	Act           Act
	Arguments     json.RawMessage // of complete_manually: result or its expression, and metadata
	Selection     OperationSelection
	Selected      int // ids that were given
	PlannedBy     string
	Reason        string
	Namespaces    []string // of the items
	State         OperationState
	Items         int
	Capped        bool // more was selected than the limit allows
	WithoutStep   int  // selected investigations whose task has no step that has failed
	Overlapping   []OperationOverlap
	PlanDigest    string
	Waves         []int
	Wave          int // the one under way, from 0; len(Waves) is the rest
	RatePerMinute int
	Guards        Guards
	Tolerated     []string        // causes whose failures the guards do not count
	Pause         *OperationPause // while it is paused
	CreatedAt     time.Time
	ExpiresAt     time.Time // if it is not started before
	StartedBy     string
	StartedAt     *time.Time
	EndedAt       *time.Time
	SettledAt     *time.Time          // when its last item came to its end
	Counts        map[ItemState]int64 // of all states; they add up to Items
}

// An OperationOverlap is another operation that had selected the same steps before.
type OperationOverlap struct {
	OperationUUID ID     `json:"operation_uuid"`
	PlannedBy     string `json:"planned_by"`
	Items         int64  `json:"items"` // that both have selected
}

// PauseReason is why an operation is paused.
type PauseReason string

// The reasons of a pause.
const (
	PausedByOperator  PauseReason = "operator"
	PausedSameCause   PauseReason = "same_cause"   // too many failures of one cause
	PausedNewCause    PauseReason = "new_cause"    // too many failures of causes that were not selected
	PausedWaveFailed  PauseReason = "wave_failed"  // too many steps of a wave have failed for good
	PausedWaveTimeout PauseReason = "wave_timeout" // a wave was not proved in time
	PausedNoWorker    PauseReason = "no_worker"    // no worker takes the steps
)

// PauseReasons lists every reason of a pause.
func PauseReasons() []PauseReason {
	return []PauseReason{PausedByOperator, PausedSameCause, PausedNewCause, PausedWaveFailed, PausedWaveTimeout, PausedNoWorker}
}

// ByGuard reports whether the operation paused by itself.
func (r PauseReason) ByGuard() bool { return r != PausedByOperator }

// An OperationPause is why, when and by whom an operation was paused.
type OperationPause struct {
	For         PauseReason
	By          string
	At          time.Time
	Failures    int      // that the guard counted
	FailureText string   // of one of them
	TaskUUID    *ID      // of that one
	Causes      []string // fingerprints of the failures; empty if the pause is not about failures
}

// ResumeOptions changes the guards of an operation that is resumed; the zero value changes nothing.
type ResumeOptions struct {
	Tolerate      *FailureTolerance // replaces the tolerance; nil keeps it
	TolerateCause bool              // ignore failures of the causes for which it is paused from now on
}

// An OperationItem is one step of an operation, or one task.
type OperationItem struct {
	Ordinal     int
	TaskUUID    ID
	StepUUID    *ID // nil for an act on whole tasks
	EntryUUID   ID
	Namespace   string
	State       ItemState
	Outcome     string // why it came to its state, as a code
	Wave        *int
	ReleasedAt  *time.Time
	FailedAt    *time.Time // when the step last failed after its release
	FailureText string
	MadeTask    *ID // the new task of [ActRecreate]
	EndedAt     *time.Time
}

// An OperationFilter selects and pages operations, newest first.
type OperationFilter struct {
	State     OperationState // empty means any
	Namespace string         // of one item at least; empty means any
	Limit     int
	Offset    int
}

// A DryRun is what a part of an operation would do.
type DryRun struct {
	LookedAt     int
	WouldRelease int
	Busy         int // held by somebody else at that moment
	Refused      []DryRunRefusal
	Enqueues     map[string]int // steps that would become ready, by their names
	Results      []DryRunResult // of the first items, where an expression gives them
	Next         *int           // the ordinal after which the next part begins; nil at the end
}

// A DryRunRefusal is items that would be skipped for one reason.
type DryRunRefusal struct {
	Outcome string // the code
	Items   int
	Sample  []ID   // some of the tasks
	Reason  string // of the first, where the code does not say all
}

// A DryRunResult is the result with which an item would be completed.
type DryRunResult struct {
	TaskUUID ID
	StepUUID ID
	Result   json.RawMessage // nil when it is too large to be told
	Bytes    int
}
