package core

import "tasker.example/tasker"

// StepEvent is an event in the life of a step.
type StepEvent string

// The events of a step.
const (
	Enqueue          StepEvent = "enqueue"           // its dependencies are satisfied
	Claim            StepEvent = "claim"             // a worker claimed it
	Succeed          StepEvent = "succeed"           // its worker reported a result
	Fail             StepEvent = "fail"              // its worker reported a failure
	Keep             StepEvent = "keep"              // applying a report failed; the report is pending
	Release          StepEvent = "release"           // its worker released it without an attempt
	Lose             StepEvent = "lose"              // its lease expired
	TimeOut          StepEvent = "time_out"          // its attempt, or its wait for an answer, exceeded timeout_seconds
	Expire           StepEvent = "expire"            // no worker claimed it in time
	RejectInputs     StepEvent = "reject_inputs"     // its inputs are too large for any worker
	Retry            StepEvent = "retry"             // its backoff is over
	Redispatch       StepEvent = "redispatch"        // it expired unclaimed, and a worker for it is online again
	Reset            StepEvent = "reset_for_retry"   // an operator granted new attempts
	Resolve          StepEvent = "resolve_manually"  // an operator resolved it without a result
	CompleteByHand   StepEvent = "complete_manually" // an operator supplied a result
	CompleteExternal StepEvent = "complete_external" // a success was reported from outside
	FailExternal     StepEvent = "fail_external"     // a failure was reported from outside
	Cancel           StepEvent = "cancel"            // its task was cancelled
	Elapse           StepEvent = "elapse"            // its wait is over, which completes it
	Skip             StepEvent = "skip"              // its condition or a dependency excludes it
	FailDecision     StepEvent = "fail_decision"     // an expression could not be evaluated, or its child task could not be started
	CompleteChild    StepEvent = "complete_child"    // its child task is complete
	FailChild        StepEvent = "fail_child"        // its child task was cancelled or marked as permanently failed
	JoinItems        StepEvent = "join_items"        // all its items are done
	Tolerate         StepEvent = "tolerate"          // it is a failed item that its map step tolerates
)

// StepMoves contains the legal transitions of a step.
var StepMoves = Table[tasker.StepState, StepEvent]{
	{tasker.StepPending, Enqueue}:          tasker.StepEnqueued,
	{tasker.StepPending, CompleteExternal}: tasker.StepComplete,
	{tasker.StepPending, FailExternal}:     tasker.StepError,
	{tasker.StepPending, Resolve}:          tasker.StepResolvedManually,
	{tasker.StepPending, CompleteByHand}:   tasker.StepComplete,
	{tasker.StepPending, Cancel}:           tasker.StepCancelled,
	{tasker.StepPending, TimeOut}:          tasker.StepError,
	{tasker.StepPending, Elapse}:           tasker.StepComplete,
	{tasker.StepPending, Skip}:             tasker.StepSkipped,
	{tasker.StepPending, FailDecision}:     tasker.StepError,
	{tasker.StepPending, CompleteChild}:    tasker.StepComplete,
	{tasker.StepPending, FailChild}:        tasker.StepError,
	{tasker.StepPending, JoinItems}:        tasker.StepComplete,

	{tasker.StepEnqueued, Claim}:          tasker.StepInProgress,
	{tasker.StepEnqueued, Expire}:         tasker.StepError,
	{tasker.StepEnqueued, RejectInputs}:   tasker.StepError,
	{tasker.StepEnqueued, Resolve}:        tasker.StepResolvedManually,
	{tasker.StepEnqueued, CompleteByHand}: tasker.StepComplete,
	{tasker.StepEnqueued, Cancel}:         tasker.StepCancelled,

	{tasker.StepInProgress, Succeed}:        tasker.StepComplete,
	{tasker.StepInProgress, Fail}:           tasker.StepError, // next_retry_at tells whether it is retried
	{tasker.StepInProgress, Keep}:           tasker.StepEnqueuedForOrchestration,
	{tasker.StepInProgress, Release}:        tasker.StepEnqueued,
	{tasker.StepInProgress, Lose}:           tasker.StepError,
	{tasker.StepInProgress, TimeOut}:        tasker.StepError,
	{tasker.StepInProgress, Reset}:          tasker.StepPending, // requires interrupt
	{tasker.StepInProgress, Resolve}:        tasker.StepResolvedManually,
	{tasker.StepInProgress, CompleteByHand}: tasker.StepComplete,
	{tasker.StepInProgress, Cancel}:         tasker.StepCancelled,

	{tasker.StepEnqueuedForOrchestration, Succeed}:        tasker.StepComplete,
	{tasker.StepEnqueuedForOrchestration, Fail}:           tasker.StepError,
	{tasker.StepEnqueuedForOrchestration, Reset}:          tasker.StepPending, // requires interrupt
	{tasker.StepEnqueuedForOrchestration, Resolve}:        tasker.StepResolvedManually,
	{tasker.StepEnqueuedForOrchestration, CompleteByHand}: tasker.StepComplete,
	{tasker.StepEnqueuedForOrchestration, Cancel}:         tasker.StepCancelled,

	{tasker.StepError, Retry}:          tasker.StepEnqueued,
	{tasker.StepError, Redispatch}:     tasker.StepEnqueued,
	{tasker.StepError, Reset}:          tasker.StepPending,
	{tasker.StepError, Resolve}:        tasker.StepResolvedManually,
	{tasker.StepError, CompleteByHand}: tasker.StepComplete,
	{tasker.StepError, Tolerate}:       tasker.StepSkipped,
	{tasker.StepError, Cancel}:         tasker.StepCancelled,
}

// IsHeld reports whether a step is enqueued, is running or has a pending report. Operators must set
// interrupt to act on such a step. This also warns the second of two concurrent operators.
func IsHeld(s tasker.StepState) bool {
	return s == tasker.StepEnqueued || s == tasker.StepInProgress || s == tasker.StepEnqueuedForOrchestration
}
