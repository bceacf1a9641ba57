package core

import (
	"slices"

	"tasker.example/tasker"
)

// TaskEvent is an event in the life of a task.
type TaskEvent string

// The events of a task.
const (
	Initialize   TaskEvent = "initialize"    // its start time has come
	EnqueueSteps TaskEvent = "enqueue_steps" // steps are ready
	Start        TaskEvent = "start"         // the steps are enqueued
	Evaluate     TaskEvent = "evaluate"      // its steps have changed
	AwaitRetry   TaskEvent = "await_retry"   // it only waits for a backoff
	Await        TaskEvent = "await"         // it only waits for dependencies, an answer or a time
	Finish       TaskEvent = "finish"        // every step is done
	Block        TaskEvent = "block"         // a step has failed permanently and no other can run
	GiveUp       TaskEvent = "give_up"       // an operator must act
	Reject       TaskEvent = "reject"        // its graph has a cycle
	DeclareStale TaskEvent = "declare_stale" // it made no progress within its staleness threshold
	CancelTask   TaskEvent = "cancel"        // a caller cancelled it
	MergeRequest TaskEvent = "merge"         // another request was merged into it before it started
	ExpireTask   TaskEvent = "expire"        // none of its steps was claimed in time
	Compensate   TaskEvent = "compensate"    // an operator requested that its completed steps be undone

	FinishCompensation TaskEvent = "finish_compensation" // all compensation steps are done

	ChangeVersion TaskEvent = "change_version" // an operator changed its template version
	ChangeDue     TaskEvent = "change_due"     // an operator changed its due time or that of a step
)

// TaskMoves contains the legal transitions of a task. None of them leads to resolved_manually: the state
// is documented, but a task whose steps were all resolved manually is complete.
var TaskMoves = Table[tasker.TaskState, TaskEvent]{
	{tasker.TaskPending, Initialize}:   tasker.TaskInitializing,
	{tasker.TaskPending, MergeRequest}: tasker.TaskPending,
	{tasker.TaskPending, CancelTask}:   tasker.TaskCancelled,
	{tasker.TaskPending, ExpireTask}:   tasker.TaskCancelled,

	// Settling the task afterwards is a separate move.
	{tasker.TaskPending, ChangeVersion}:                tasker.TaskPending,
	{tasker.TaskStepsInProcess, ChangeVersion}:         tasker.TaskStepsInProcess,
	{tasker.TaskWaitingForDependencies, ChangeVersion}: tasker.TaskWaitingForDependencies,
	{tasker.TaskWaitingForRetry, ChangeVersion}:        tasker.TaskWaitingForRetry,
	{tasker.TaskError, ChangeVersion}:                  tasker.TaskError,

	{tasker.TaskPending, ChangeDue}:                tasker.TaskPending,
	{tasker.TaskStepsInProcess, ChangeDue}:         tasker.TaskStepsInProcess,
	{tasker.TaskWaitingForDependencies, ChangeDue}: tasker.TaskWaitingForDependencies,
	{tasker.TaskWaitingForRetry, ChangeDue}:        tasker.TaskWaitingForRetry,
	{tasker.TaskError, ChangeDue}:                  tasker.TaskError,

	{tasker.TaskInitializing, EnqueueSteps}: tasker.TaskEnqueuingSteps,
	{tasker.TaskInitializing, Await}:        tasker.TaskWaitingForDependencies,
	{tasker.TaskInitializing, Evaluate}:     tasker.TaskEvaluatingResults,
	{tasker.TaskInitializing, Reject}:       tasker.TaskError,

	{tasker.TaskEnqueuingSteps, Start}: tasker.TaskStepsInProcess,

	{tasker.TaskStepsInProcess, Evaluate}:     tasker.TaskEvaluatingResults,
	{tasker.TaskStepsInProcess, DeclareStale}: tasker.TaskError,
	{tasker.TaskStepsInProcess, Compensate}:   tasker.TaskEnqueuingSteps,
	{tasker.TaskStepsInProcess, CancelTask}:   tasker.TaskCancelled,
	{tasker.TaskStepsInProcess, ExpireTask}:   tasker.TaskCancelled,

	{tasker.TaskEvaluatingResults, Await}:      tasker.TaskWaitingForDependencies,
	{tasker.TaskEvaluatingResults, AwaitRetry}: tasker.TaskWaitingForRetry,
	{tasker.TaskEvaluatingResults, Finish}:     tasker.TaskComplete,
	{tasker.TaskEvaluatingResults, Block}:      tasker.TaskBlockedByFailures,

	{tasker.TaskEvaluatingResults, FinishCompensation}: tasker.TaskCancelled,

	{tasker.TaskBlockedByFailures, GiveUp}: tasker.TaskError,

	{tasker.TaskWaitingForDependencies, EnqueueSteps}: tasker.TaskEnqueuingSteps,
	{tasker.TaskWaitingForDependencies, Evaluate}:     tasker.TaskEvaluatingResults,
	{tasker.TaskWaitingForDependencies, DeclareStale}: tasker.TaskError,
	{tasker.TaskWaitingForDependencies, Compensate}:   tasker.TaskEnqueuingSteps,
	{tasker.TaskWaitingForDependencies, CancelTask}:   tasker.TaskCancelled,
	{tasker.TaskWaitingForDependencies, ExpireTask}:   tasker.TaskCancelled,

	{tasker.TaskWaitingForRetry, EnqueueSteps}: tasker.TaskEnqueuingSteps,
	{tasker.TaskWaitingForRetry, Evaluate}:     tasker.TaskEvaluatingResults,
	{tasker.TaskWaitingForRetry, DeclareStale}: tasker.TaskError,
	{tasker.TaskWaitingForRetry, Compensate}:   tasker.TaskEnqueuingSteps,
	{tasker.TaskWaitingForRetry, CancelTask}:   tasker.TaskCancelled,
	{tasker.TaskWaitingForRetry, ExpireTask}:   tasker.TaskCancelled,

	{tasker.TaskError, EnqueueSteps}: tasker.TaskEnqueuingSteps, // after a repair or a late report
	{tasker.TaskError, Evaluate}:     tasker.TaskEvaluatingResults,
	{tasker.TaskError, Compensate}:   tasker.TaskEnqueuingSteps,
	{tasker.TaskError, CancelTask}:   tasker.TaskCancelled,
	{tasker.TaskError, ExpireTask}:   tasker.TaskCancelled,
}

// Resting lists the stable states. Only these states are ever committed.
func Resting() []tasker.TaskState {
	return []tasker.TaskState{
		tasker.TaskPending, tasker.TaskStepsInProcess, tasker.TaskWaitingForRetry,
		tasker.TaskWaitingForDependencies, tasker.TaskError, tasker.TaskComplete, tasker.TaskCancelled,
	}
}

// SettlePath returns the shortest legal path between two stable states that passes through
// transient states only, or nil if there is none. When the states of steps change, one transaction
// writes these moves to the history. The path contains no move that requires a decision of a caller
// or a scan: merging, cancelling, expiring, rejecting, declaring stale, compensating, or changing
// the version or due time.
func SettlePath(from, to tasker.TaskState) []Edge[tasker.TaskState, TaskEvent] {
	type way struct {
		at   tasker.TaskState
		path []Edge[tasker.TaskState, TaskEvent]
	}
	queue := []way{{at: from}}
	seen := map[tasker.TaskState]bool{from: true}
	for len(queue) > 0 {
		w := queue[0]
		queue = queue[1:]
		for _, e := range TaskMoves.Edges() {
			if e.From != w.at || slices.Contains([]TaskEvent{MergeRequest, CancelTask, ExpireTask, Reject, DeclareStale, Compensate, ChangeVersion, ChangeDue}, e.Event) {
				continue
			}
			path := append(slices.Clone(w.path), e)
			if e.To == to {
				return path
			}
			if !seen[e.To] && !slices.Contains(Resting(), e.To) {
				seen[e.To] = true
				queue = append(queue, way{e.To, path})
			}
		}
	}
	return nil
}
