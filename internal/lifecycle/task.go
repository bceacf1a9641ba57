package lifecycle

import (
	"slices"

	"tasker.example/tasker"
)

// TaskEvent is what can happen to a task.
type TaskEvent string

// The events of a task.
const (
	Initialize   TaskEvent = "initialize"    // its start time has come
	EnqueueSteps TaskEvent = "enqueue_steps" // steps have become ready
	Start        TaskEvent = "start"         // they are enqueued
	Evaluate     TaskEvent = "evaluate"      // something about its steps has changed
	AwaitRetry   TaskEvent = "await_retry"   // only a backoff is left to wait for
	Await        TaskEvent = "await"         // only something outside is left to wait for
	Finish       TaskEvent = "finish"        // every step is done
	Block        TaskEvent = "block"         // a step failed for good and nothing else can run
	GiveUp       TaskEvent = "give_up"       // so a person must look at it
	Reject       TaskEvent = "reject"        // its graph has a cycle
	DeclareStale TaskEvent = "declare_stale" // it stood still past its threshold
	CancelTask   TaskEvent = "cancel"        // somebody cancelled it
	MergeRequest TaskEvent = "merge"         // another request was merged into it before it started
	ExpireTask   TaskEvent = "expire"        // no step of it was claimed in time
	Compensate   TaskEvent = "compensate"    // somebody wants undone what it has done

	FinishCompensation TaskEvent = "finish_compensation" // that is undone

	ChangeVersion TaskEvent = "change_version" // somebody brought it to another version of its template
	ChangeDue     TaskEvent = "change_due"     // somebody gave it, or a step of it, another due time
)

// Task is every legal move of a task. No edge leads to
// resolved_manually: the documents list the state, and a task whose steps were
// all settled by hand is complete.
var Task = Table[tasker.TaskState, TaskEvent]{
	{tasker.TaskPending, Initialize}:   tasker.TaskInitializing,
	{tasker.TaskPending, MergeRequest}: tasker.TaskPending,
	{tasker.TaskPending, CancelTask}:   tasker.TaskCancelled,
	{tasker.TaskPending, ExpireTask}:   tasker.TaskCancelled,

	// Where the task then comes to rest is another move.
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

	{tasker.TaskError, EnqueueSteps}: tasker.TaskEnqueuingSteps, // a step was repaired, or progress came late
	{tasker.TaskError, Evaluate}:     tasker.TaskEvaluatingResults,
	{tasker.TaskError, Compensate}:   tasker.TaskEnqueuingSteps,
	{tasker.TaskError, CancelTask}:   tasker.TaskCancelled,
	{tasker.TaskError, ExpireTask}:   tasker.TaskCancelled,
}

// Resting lists the states in which a committed task may stand.
func Resting() []tasker.TaskState {
	return []tasker.TaskState{
		tasker.TaskPending, tasker.TaskStepsInProcess, tasker.TaskWaitingForRetry,
		tasker.TaskWaitingForDependencies, tasker.TaskError, tasker.TaskComplete, tasker.TaskCancelled,
	}
}

// SettlePath returns the shortest legal way from one resting state to another
// that passes only through states in which no task rests: the rows that one
// transaction writes into the history when the state of the steps decides.
// What somebody else decides is a move by itself, so no path takes it: cancelling, expiring, rejecting,
// declaring stale, the wish to compensate, and another version. It returns nil where there is no way.
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
		for _, e := range Task.Edges() {
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

// RestingState returns the state that the steps of a task bring it to. The database has
// the same rule, task_resting_state(); a test compares the two. A task that has steps which
// undo others has cancelled those that it gave up, and is cancelled itself when they are done.
func RestingState(steps []tasker.Step) tasker.TaskState {
	var undoes, open, active, retrying, failed bool
	for _, s := range steps {
		undoes = undoes || s.UndoOf() != ""
		open = open || !s.State.Done() && s.State != tasker.StepCancelled
		active = active || Held(s.State) || s.DecisionDue
		retrying = retrying || s.State == tasker.StepError && s.NextRetryAt != nil
		failed = failed || s.State == tasker.StepError
		if n := s.Items; n != nil { // of which only those that have failed are among the steps
			active, retrying = active || n.Enqueued+n.InProgress > 0, retrying || n.Retrying > 0
		}
	}
	switch {
	case !open && undoes:
		return tasker.TaskCancelled
	case !open:
		return tasker.TaskComplete
	case active:
		return tasker.TaskStepsInProcess
	case retrying:
		return tasker.TaskWaitingForRetry
	case failed:
		return tasker.TaskError
	default:
		return tasker.TaskWaitingForDependencies
	}
}
