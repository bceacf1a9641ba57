package tasker

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"
)

// Act is the action that an operation applies to each item.
type Act string

// Actions of operations.
const (
	ActReset      Act = "reset_for_retry"
	ActResolve    Act = "resolve_manually"
	ActComplete   Act = "complete_manually"
	ActAnswer     Act = "answer"     // complete waiting external steps
	ActCancel     Act = "cancel"     // cancel the task
	ActCompensate Act = "compensate" // cancel the task and compensate its completed steps
	ActRecreate   Act = "recreate"   // mark the task as permanently failed and create a new one
	// Resolve an investigation whose task has ended or recovered, or that an operator opened.
	ActEnd Act = "end_investigation"
)

// Acts lists all actions.
func Acts() []Act {
	return []Act{ActReset, ActResolve, ActComplete, ActAnswer, ActCancel, ActCompensate, ActRecreate, ActEnd}
}

// StepAction returns the step action of a, or false if a applies to whole tasks.
func (a Act) StepAction() (StepAction, bool) {
	if a == ActAnswer {
		return CompleteManually, true
	}
	return StepAction(a), slices.Contains([]Act{ActReset, ActResolve, ActComplete}, a)
}

// TakesResult reports whether a completes steps with a result.
func (a Act) TakesResult() bool { return a == ActComplete || a == ActAnswer }

// OperationState is the state of an operation.
type OperationState string

// Operation states.
const (
	OperationPlanned OperationState = "planned"
	OperationRunning OperationState = "running"
	OperationPaused  OperationState = "paused"
	OperationDone    OperationState = "done"
	OperationAborted OperationState = "aborted"
)

// OperationStates lists all operation states.
func OperationStates() []OperationState {
	return []OperationState{OperationPlanned, OperationRunning, OperationPaused, OperationDone, OperationAborted}
}

// ItemState is the state of one item of an operation.
type ItemState string

// Item states.
const (
	ItemPlanned     ItemState = "planned"
	ItemReleased    ItemState = "released"     // the action was applied
	ItemRunning     ItemState = "running"      // and a worker claimed the step
	ItemVerified    ItemState = "verified"     // the step completed
	ItemFailedAgain ItemState = "failed_again" // the step failed permanently again
	ItemSkipped     ItemState = "skipped"      // the action was not applied, or another actor changed the step
	ItemAborted     ItemState = "aborted"      // the operation ended first
)

// ItemStates lists all item states.
func ItemStates() []ItemState {
	return []ItemState{ItemPlanned, ItemReleased, ItemRunning, ItemVerified, ItemFailedAgain, ItemSkipped, ItemAborted}
}

// OperationSelection selects open investigations. The failed step of each becomes an item, or the
// task if the action applies to tasks.
type OperationSelection struct {
	Filter        InvestigationFilter // its paging is ignored
	WorkerVersion string              // version of the worker that failed
	FailedSince   *time.Time          // inclusive
	IDs           []ID                // investigations or tasks that also match the filter; nil means all
}

// IsEmpty reports whether the selection has no condition and would match everything.
func (s OperationSelection) IsEmpty() bool {
	f := s.Filter
	f.Limit, f.Offset = 0, 0
	return reflect.ValueOf(f).IsZero() && s.WorkerVersion == "" && s.FailedSince == nil && s.IDs == nil
}

// Guards pause an operation automatically.
type Guards struct {
	Tolerate       *FailureTolerance // steps of a wave that may fail; nil means the default
	IgnoreNewCause bool              // treat failures with unselected causes like others
	WaveTimeout    time.Duration     // for the outcome of a wave; 0 means the default
	WorkerAtLeast  string            // minimum worker version for [ActReset]; empty means any
}

// OperationPlan describes an operation to create.
type OperationPlan struct {
	Act              Act
	Result           json.RawMessage // of complete_manually, the same for all items
	ResultExpression string          `json:",omitempty"` // alternatively, an expression evaluated per item
	Metadata         json.RawMessage // of complete_manually
	Selection        OperationSelection
	Actor            string
	Reason           string
	Waves            []int // items per wave; the rest follows the last; nil means the default
	RatePerMinute    int   // items released per minute; 0 means unlimited
	Guards           Guards
	Limit            int  // maximum number of items; 0 means [MaxOperationItems]
	SkipOverlap      bool // skip items of other operations instead of failing
	RequestKey       string
}

// DefaultWaves returns the default waves of an operation.
func DefaultWaves() []int { return []int{1, 10, 100} }

// Default guards.
const (
	DefaultTolerate    = 2 // percent of the steps of a wave
	DefaultWaveTimeout = 15 * time.Minute
)

// Operation applies one action to a frozen selection of steps. Any server can continue it.
type Operation struct {
	UUID          ID
	Act           Act
	Arguments     json.RawMessage // of complete_manually: result or expression, and metadata
	Selection     OperationSelection
	Selected      int // number of selected ids
	PlannedBy     string
	Reason        string
	Namespaces    []string // of the items
	State         OperationState
	Items         int
	Capped        bool // the selection exceeded the limit
	WithoutStep   int  // selected investigations without a failed step
	Overlapping   []OperationOverlap
	PlanDigest    string
	Waves         []int
	Wave          int // current one, from 0; len(Waves) is the rest
	RatePerMinute int
	Guards        Guards
	Tolerated     []string        // causes that the guards ignore
	Pause         *OperationPause // set while paused
	CreatedAt     time.Time
	ExpiresAt     time.Time // if it is not started before
	StartedBy     string
	StartedAt     *time.Time
	EndedAt       *time.Time
	SettledAt     *time.Time          // when the last item got its outcome
	Counts        map[ItemState]int64 // items by state, all states
}

// OperationOverlap is another open operation with some of the same steps.
type OperationOverlap struct {
	OperationUUID ID     `json:"operation_uuid"`
	PlannedBy     string `json:"planned_by"`
	Items         int64  `json:"items"` // in both selections
}

// PauseReason classifies why an operation is paused.
type PauseReason string

// Pause reasons.
const (
	PausedByOperator  PauseReason = "operator"
	PausedSameCause   PauseReason = "same_cause"   // too many failures with one cause
	PausedNewCause    PauseReason = "new_cause"    // too many failures with unselected causes
	PausedWaveFailed  PauseReason = "wave_failed"  // too many steps of a wave failed permanently
	PausedWaveTimeout PauseReason = "wave_timeout" // a wave was not verified in time
	PausedNoWorker    PauseReason = "no_worker"    // no live worker for the steps
)

// PauseReasons lists all pause reasons.
func PauseReasons() []PauseReason {
	return []PauseReason{PausedByOperator, PausedSameCause, PausedNewCause, PausedWaveFailed, PausedWaveTimeout, PausedNoWorker}
}

// ByGuard reports whether a guard paused the operation.
func (r PauseReason) ByGuard() bool { return r != PausedByOperator }

// OperationPause describes the pause of an operation.
type OperationPause struct {
	For         PauseReason `json:"for" enum:"operator,same_cause,new_cause,wave_failed,wave_timeout,no_worker"`
	By          string      `json:"by"`
	At          time.Time   `json:"at"`
	Failures    int         `json:"failures" doc:"Failures counted by the guard."`
	FailureText string      `json:"failure_text,omitempty" doc:"Example failure."`
	TaskUUID    *ID         `json:"task_uuid,omitempty" doc:"Task of the example."`
	Causes      []string    `json:"causes,omitempty" doc:"Fingerprints of the failures. Resume with tolerate_cause to ignore them."`
}

// ResumeOptions changes the guards of a resumed operation. The zero value leaves them unchanged.
type ResumeOptions struct {
	Tolerate      *FailureTolerance // new tolerance, or nil
	TolerateCause bool              // ignore further failures with the causes of the pause
}

// OperationItem is one step, or one task, of an operation.
type OperationItem struct {
	Ordinal     int        `json:"ordinal"`
	TaskUUID    ID         `json:"task_uuid"`
	StepUUID    *ID        `json:"step_uuid" doc:"Null for actions on whole tasks."`
	EntryUUID   ID         `json:"dlq_entry_uuid"`
	Namespace   string     `json:"namespace"`
	State       ItemState  `json:"state" enum:"planned,released,running,verified,failed_again,skipped,aborted"`
	Outcome     string     `json:"outcome" doc:"Code that explains the state."`
	Wave        *int       `json:"wave" doc:"From 1. Null before the release."`
	ReleasedAt  *time.Time `json:"released_at"`
	FailedAt    *time.Time `json:"failed_at" doc:"Latest failure of the step after its release."`
	FailureText string     `json:"failure_text" doc:"Message of that failure, or why the result of the item could not be computed."`
	MadeTask    *ID        `json:"made_task_uuid" doc:"The new task of recreate. The item waits for it."`
	EndedAt     *time.Time `json:"ended_at"`
}

// OperationFilter selects and pages operations, newest first.
type OperationFilter struct {
	State     OperationState `query:"state" flag:"state,s" doc:"Filter by state."`
	Namespace string         `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace of the items."` // of at least one item
	Limit     int            `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
	Offset    int            `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`
}

// OperationItemFilter selects and pages the items of an operation, in order.
type OperationItemFilter struct {
	State ItemState `query:"state" flag:"state,s" doc:"Filter by state."`
	After int       `query:"after" maximum:"100000" doc:"Page cursor: next of the previous page."`
	Limit int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of elements."`
}

// DryRun is the predicted effect of one part of an operation.
type DryRun struct {
	LookedAt     int             `json:"looked_at"`
	WouldRelease int             `json:"would_release"`
	Busy         int             `json:"busy" doc:"Locked by another transaction. The operation retries them."`
	Refused      []DryRunRefusal `json:"refused"`
	Enqueues     map[string]int  `json:"enqueues" doc:"Steps that would become ready, by name."`
	Results      []DryRunResult  `json:"results,omitempty" doc:"Results of the first items, with result_expression."`
	Limitations  []string        `json:"cannot_see" doc:"Limitations of a dry run."`
	Next         *int            `json:"next" doc:"Value of after for the next part. Null at the end."`
}

// DryRunRefusal groups items that would be skipped for one reason.
type DryRunRefusal struct {
	Outcome string `json:"outcome"` // code
	Items   int    `json:"items"`
	Sample  []ID   `json:"sample" doc:"Some of their tasks."`
	Reason  string `json:"reason,omitempty" doc:"Of the first item, if results are computed."`
}

// DryRunResult is the result that would complete an item.
type DryRunResult struct {
	TaskUUID ID              `json:"task_uuid"`
	StepUUID ID              `json:"step_uuid"`
	Result   json.RawMessage `json:"result,omitempty" doc:"Absent if larger than 2048 bytes."`
	Bytes    int             `json:"bytes"`
}
