package explain

import (
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/version"
)

// view contains all facts that the rules use about a step of a task, or about the task alone if it
// has no open step.
type view struct {
	now     time.Time
	task    *postgres.ExplainedTask
	step    *postgres.ExplainedStep
	queue   *postgres.ExplainedQueue // queue of the step; nil if it is not enqueued or too many queues were requested
	before  *int64                   // steps before it in the queue; nil if not counted
	blocker *match                   // reason of the nearest ancestor that waits for no step; nil if the step waits for none
	others  int                      // number of further ancestors at that distance
	child   *match                   // reason of the child task; nil if not read
	above   []postgres.Ancestor      // ancestors of the requested task, nearest first
	shows   visibility
}

// visibility describes the data that the caller may see in addition to tasks.
type visibility struct{ payloads, investigations bool }

// match is the rule that matched a view, with the resulting condition.
type match struct {
	view
	rank   int // of its rule
	why    tasker.Condition
	ofTask bool // the message is about the task
}

// explanation is the result of a rule. Its message is a predicate without a subject.
type explanation struct {
	tasker.Condition
	ofTask bool
}

// rule decides which views have one particular reason, and describes it.
type rule struct {
	fact     tasker.ConditionReason
	when     string // for docs/reference/explain.md
	turns    []tasker.NextActor
	matches  func(view) bool
	describe func(view) explanation
}

// rules lists all reasons why tasks and steps do not progress. The first match counts.
var rules = []rule{
	{
		tasker.ConditionEnded, "the task or the step has ended, or the task is marked as permanently failed and the step has failed",
		[]tasker.NextActor{tasker.NextNone, tasker.NextOperator}, view.hasEnded, view.describeEnded,
	},
	{
		tasker.ConditionNotStarted, "the task waits for its start time",
		[]tasker.NextActor{tasker.NextTimer, tasker.NextServer}, func(v view) bool { return v.task.TaskState == tasker.TaskPending }, view.describeNotStarted,
	},
	{
		tasker.ConditionCycle, "the steps of the task depend on each other in a cycle",
		[]tasker.NextActor{tasker.NextOperator}, view.isCycle, view.describeCycle,
	},
	{
		tasker.ConditionOperation, "the step is an item of an open operation that has not released it",
		[]tasker.NextActor{tasker.NextOperator, tasker.NextServer}, func(v view) bool { return v.step != nil && v.step.ItemState == string(tasker.ItemPlanned) }, view.describeOperation,
	},
	{
		tasker.ConditionResultPending, "the result of the step is accepted, but its follow-up is not stored yet",
		[]tasker.NextActor{tasker.NextServer}, inState(tasker.StepEnqueuedForOrchestration), view.describePendingResult,
	},
	{
		tasker.ConditionFailed, "the step has failed permanently, and the task has an open investigation",
		[]tasker.NextActor{tasker.NextOperator}, func(v view) bool { return v.hasFailedPermanently() && v.task.EntryStatus == tasker.EntryPending }, view.describeFailed,
	},
	{
		tasker.ConditionNotInvestigated, "the step has failed permanently, and the task has no open investigation",
		[]tasker.NextActor{tasker.NextTimer, tasker.NextServer, tasker.NextOperator}, view.hasFailedPermanently, view.describeUnattended,
	},
	{
		tasker.ConditionHeld, "the step is enqueued, and a hold parks it",
		[]tasker.NextActor{tasker.NextOperator, tasker.NextTimer, tasker.NextServer}, func(v view) bool { return v.step != nil && v.step.HoldUUID != nil }, view.describeHeld,
	},
	{
		tasker.ConditionLimit, "the step is enqueued, and a concurrency or rate limit parks it",
		[]tasker.NextActor{tasker.NextWorker, tasker.NextTimer}, func(v view) bool { return v.step != nil && v.step.LimitKind != "" }, view.describeLimited,
	},
	{
		tasker.ConditionGate, "the step is enqueued, its operation requires a minimum worker version, and no such worker is live",
		[]tasker.NextActor{tasker.NextOperator}, view.isGated, view.describeGate,
	},
	{
		tasker.ConditionNoWorker, "the step waits for a worker, and none is live for its namespace and handler, or none claimed it in time",
		[]tasker.NextActor{tasker.NextOperator, tasker.NextServer}, view.hasNoWorker, view.describeNoWorker,
	},
	{
		tasker.ConditionSaturated, "the step has exceeded its queue timeout but does not fail, because the live workers of its queue are busy",
		[]tasker.NextActor{tasker.NextWorker}, view.isSaturated, view.describeSaturated,
	},
	{
		tasker.ConditionQueue, "the step waits in a queue that live workers serve",
		[]tasker.NextActor{tasker.NextWorker}, inState(tasker.StepEnqueued), view.describeQueue,
	},
	{
		tasker.ConditionRunning, "a worker executes the step",
		[]tasker.NextActor{tasker.NextWorker, tasker.NextServer}, inState(tasker.StepInProgress), view.describeRunning,
	},
	{
		tasker.ConditionRetry, "the step has failed and will be retried",
		[]tasker.NextActor{tasker.NextTimer, tasker.NextServer, tasker.NextOperator}, func(v view) bool { return v.step != nil && v.step.NextRetryAt != nil }, view.describeRetry,
	},
	{
		tasker.ConditionDecision, "the server is about to decide whether the step runs or is skipped",
		[]tasker.NextActor{tasker.NextServer}, func(v view) bool {
			return v.step != nil && v.step.StepState == tasker.StepPending && v.step.DecideAt != nil
		}, view.describeDecision,
	},
	{
		tasker.ConditionExternal, "the step waits for an outcome from an external system or a person",
		[]tasker.NextActor{tasker.NextExternal, tasker.NextServer}, view.isExternal, view.describeOutside,
	},
	{
		tasker.ConditionWait, "the step waits for a time",
		[]tasker.NextActor{tasker.NextTimer, tasker.NextServer}, func(v view) bool { return v.waitsFor(tasker.WaitStep) && v.step.WaitUntil != nil }, view.describeWait,
	},
	{
		tasker.ConditionChild, "the step waits for its child task, whose fact determines the turn, down to ten levels",
		tasker.NextActors(), view.waitsForChild, view.describeChild,
	},
	{
		tasker.ConditionItems, "the step is a map step that waits for its items, or an item that waits until other items have ended",
		[]tasker.NextActor{tasker.NextWorker, tasker.NextOperator, tasker.NextTimer, tasker.NextServer}, func(v view) bool { return v.step != nil && (v.step.Items != nil || v.step.WaitsForPlace) }, view.describeItems,
	},
	{
		tasker.ConditionParents, "the step waits for other steps; the nearest one that waits for no step determines the turn",
		tasker.NextActors(), func(v view) bool { return v.blocker != nil }, view.describeParents,
	},
	{
		tasker.ConditionUnknown, "no other fact matches: a bug, which is logged and counted",
		[]tasker.NextActor{tasker.NextOperator}, func(view) bool { return true }, view.describeUnknown,
	},
}

func decide(v view) match {
	for i, r := range rules {
		if r.matches(v) {
			s := r.describe(v)
			s.Reason = r.fact
			return match{view: v, rank: i, why: s.Condition, ofTask: s.ofTask}
		}
	}
	panic("the last rule always matches")
}

func inState(state tasker.StepState) func(view) bool {
	return func(v view) bool { return v.step != nil && v.step.StepState == state }
}

func (v view) hasEnded() bool {
	switch s := v.step; {
	case v.task.TaskState == tasker.TaskComplete || v.task.TaskState == tasker.TaskCancelled:
		return true
	case s == nil:
		return v.task.WrittenOffAt != nil && v.task.TaskState == tasker.TaskError
	case isOver(s.StepState):
		return true
	default: // enqueued and running steps continue
		return v.task.WrittenOffAt != nil && (v.hasFailedPermanently() || v.task.TaskState == tasker.TaskError && (s.StepState == tasker.StepPending || s.NextRetryAt != nil))
	}
}

// isOver reports whether a step state is final.
func isOver(s tasker.StepState) bool {
	return s.Done() || s == tasker.StepCancelled
}

// hasNoOpenDependency reports whether a step no longer waits for its dependencies.
func hasNoOpenDependency(s *postgres.ExplainedStep) bool {
	return s.ParentsOpen == 0 || s.DecidedAt != nil
}

// isCycle reports whether the task was created in state error because of a dependency cycle. Other
// tasks reach that state through other events.
func (v view) isCycle() bool {
	return v.task.TaskState == tasker.TaskError && v.task.MovedTo == string(tasker.TaskError) && v.task.MovedBy == "reject"
}

func (v view) hasFailedPermanently() bool {
	return v.step != nil && v.step.StepState == tasker.StepError && v.step.NextRetryAt == nil && v.step.AwaitsWorkerSince == nil
}

func (v view) hasNoWorker() bool {
	return v.step != nil && (v.step.AwaitsWorkerSince != nil || v.step.StepState == tasker.StepEnqueued && v.queue != nil && v.queue.Live == 0)
}

func (v view) isSaturated() bool {
	return v.step != nil && v.step.StepState == tasker.StepEnqueued && v.queue != nil && v.queue.SaturatedSince != nil &&
		v.step.ExpiresAt != nil && v.step.ExpiresAt.Before(v.now)
}

func (v view) isGated() bool {
	return v.step != nil && v.step.StepState == tasker.StepEnqueued && v.step.Gate != "" &&
		!slices.ContainsFunc(v.step.GateVersions, func(of string) bool { return version.AtLeast(of, v.step.Gate) })
}

func (v view) describeGate() explanation {
	s := v.step
	return newExplanation(tasker.NextOperator, &s.StepSince, fmt.Sprintf("Start a worker of version %s or newer with handler %s for namespace %s; or abort the operation.", s.Gate, s.Handler, v.task.Namespace),
		"waits for a worker of version %s or newer, as operation %s asks; none is alive", s.Gate, s.OperationUUID)
}

func (v view) isExternal() bool { return v.waitsFor(tasker.ExternalStep) }

func (v view) waitsForChild() bool { return v.waitsFor(tasker.ChildStep) && v.step.ChildUUID != nil }

// waitsFor reports whether the step has type t, is pending and no longer waits for other steps.
func (v view) waitsFor(t tasker.StepType) bool {
	return v.step != nil && v.step.StepState == tasker.StepPending && v.step.StepType == string(t) && hasNoOpenDependency(v.step)
}
