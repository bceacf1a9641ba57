package lifecycle

import "tasker.example/tasker"

// StepEvent is what can happen to a step.
type StepEvent string

// The events of a step.
const (
	Enqueue          StepEvent = "enqueue"           // its dependencies are satisfied
	Claim            StepEvent = "claim"             // a worker took it
	Succeed          StepEvent = "succeed"           // its worker delivered a result
	Fail             StepEvent = "fail"              // its worker reported a failure
	Keep             StepEvent = "keep"              // a result came in whose follow-up failed; it is kept and tried again
	Release          StepEvent = "release"           // its worker gave it back unstarted
	Lose             StepEvent = "lose"              // its lease ran out
	TimeOut          StepEvent = "time_out"          // its attempt, or its wait for an answer, took longer than timeout_seconds
	Expire           StepEvent = "expire"            // no worker took it in time
	RejectInputs     StepEvent = "reject_inputs"     // its inputs are larger than any worker can be given
	Retry            StepEvent = "retry"             // its backoff has passed
	Redispatch       StepEvent = "redispatch"        // it was taken by no worker in time, and one for it lives now
	Reset            StepEvent = "reset_for_retry"   // an operator gave it new attempts
	Resolve          StepEvent = "resolve_manually"  // an operator settled it without a result
	CompleteByHand   StepEvent = "complete_manually" // an operator gave it a result
	CompleteExternal StepEvent = "complete_external" // the outside reported success
	FailExternal     StepEvent = "fail_external"     // the outside reported failure
	Cancel           StepEvent = "cancel"            // its task was cancelled
	Elapse           StepEvent = "elapse"            // its wait ended by the clock, which completes it
	Skip             StepEvent = "skip"              // it was decided that it does not run
	FailDecision     StepEvent = "fail_decision"     // an expression of it could not be evaluated, or its child task not be started
	CompleteChild    StepEvent = "complete_child"    // its child task is complete
	FailChild        StepEvent = "fail_child"        // its child task was cancelled or given up
	JoinItems        StepEvent = "join_items"        // all of its items are done
	Tolerate         StepEvent = "tolerate"          // it is an item that has failed for good, and its step tolerates that
)

// Step is every legal move of a step.
var Step = Table[tasker.StepState, StepEvent]{
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
	{tasker.StepInProgress, Fail}:           tasker.StepError, // whether it may run again: next_retry_at
	{tasker.StepInProgress, Keep}:           tasker.StepEnqueuedForOrchestration,
	{tasker.StepInProgress, Release}:        tasker.StepEnqueued,
	{tasker.StepInProgress, Lose}:           tasker.StepError,
	{tasker.StepInProgress, TimeOut}:        tasker.StepError,
	{tasker.StepInProgress, Reset}:          tasker.StepPending, // only with interrupt
	{tasker.StepInProgress, Resolve}:        tasker.StepResolvedManually,
	{tasker.StepInProgress, CompleteByHand}: tasker.StepComplete,
	{tasker.StepInProgress, Cancel}:         tasker.StepCancelled,

	{tasker.StepEnqueuedForOrchestration, Succeed}:        tasker.StepComplete,
	{tasker.StepEnqueuedForOrchestration, Fail}:           tasker.StepError,
	{tasker.StepEnqueuedForOrchestration, Reset}:          tasker.StepPending, // only with interrupt
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

// Held reports whether a step in state s is on its way: in the queue, or in the
// hands of a worker or of the engine. An operator must say interrupt to take it
// away, so that of two operators at one step the second learns of the first.
func Held(s tasker.StepState) bool {
	return s == tasker.StepEnqueued || s == tasker.StepInProgress || s == tasker.StepEnqueuedForOrchestration
}
