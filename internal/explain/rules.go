package explain

import (
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/version"
)

// A view is all that the rules look at: a step of a task, or the task alone where it has no
// step that is open.
type view struct {
	now     time.Time
	task    *postgres.ExplainedTask
	step    *postgres.ExplainedStep
	queue   *postgres.ExplainedQueue // where the step waits; nil where it does not, or where too many queues are asked for
	before  *int64                   // steps before it in the queue; nil: they were not counted
	blocker *match                   // of a step whose parents are open: the nearest ancestor that waits for no other
	others  int                      // as near as that
	child   *match                   // why the task is where it is that the step waits for; nil: that is not followed
	above   []postgres.Ancestor      // the tasks above the one that was asked about, the nearest first
	shows   visibility
}

// visibility is what the caller may see beside tasks.
type visibility struct{ payloads, investigations bool }

// A match is the fact that keeps a step where it is.
type match struct {
	view
	rank   int // of its rule
	why    tasker.Condition
	ofTask bool // the sentence is about the task
}

// answer is what a rule says: the sentence is a predicate, without what it is about.
type answer struct {
	tasker.Condition
	ofTask bool
}

// A rule says when a fact keeps something where it is.
type rule struct {
	fact     tasker.ConditionReason
	when     string // for docs/reference/explain.md
	turns    []tasker.NextActor
	matches  func(view) bool
	describe func(view) answer
}

// rules are all facts of tasks and steps. The first that holds counts.
var rules = []rule{
	{
		tasker.ConditionEnded, "the task or the step has ended, or the task was written off and the step has failed",
		[]tasker.NextActor{tasker.NextNone, tasker.NextOperator}, view.ended, view.sayEnded,
	},
	{
		tasker.ConditionNotStarted, "the task waits for its start time",
		[]tasker.NextActor{tasker.NextTimer, tasker.NextServer}, func(v view) bool { return v.task.TaskState == tasker.TaskPending }, view.sayNotStarted,
	},
	{
		tasker.ConditionCycle, "the steps of the task depend on each other in a cycle",
		[]tasker.NextActor{tasker.NextOperator}, view.cycle, view.sayCycle,
	},
	{
		tasker.ConditionOperation, "the step is an item of an open operation that has not released it",
		[]tasker.NextActor{tasker.NextOperator, tasker.NextServer}, func(v view) bool { return v.step != nil && v.step.ItemState == string(tasker.ItemPlanned) }, view.sayOperation,
	},
	{
		tasker.ConditionResultPending, "the result of the step is accepted, and what follows from it could not be stored yet",
		[]tasker.NextActor{tasker.NextServer}, in(tasker.StepEnqueuedForOrchestration), view.describePendingResult,
	},
	{
		tasker.ConditionFailed, "the step has failed for good, and the task has an open investigation",
		[]tasker.NextActor{tasker.NextOperator}, func(v view) bool { return v.failedForGood() && v.task.EntryStatus == tasker.EntryPending }, view.sayFailed,
	},
	{
		tasker.ConditionNotInvestigated, "the step has failed for good, and the task has no open investigation",
		[]tasker.NextActor{tasker.NextTimer, tasker.NextServer, tasker.NextOperator}, view.failedForGood, view.sayUnattended,
	},
	{
		tasker.ConditionHeld, "the step is enqueued, and a hold keeps it from workers",
		[]tasker.NextActor{tasker.NextOperator, tasker.NextTimer, tasker.NextServer}, func(v view) bool { return v.step != nil && v.step.HoldUUID != nil }, view.sayHeld,
	},
	{
		tasker.ConditionLimit, "the step is enqueued, and a limit of steps in progress or of a rate keeps it from workers",
		[]tasker.NextActor{tasker.NextWorker, tasker.NextTimer}, func(v view) bool { return v.step != nil && v.step.LimitKind != "" }, view.sayLimited,
	},
	{
		tasker.ConditionGate, "the step is enqueued, its operation asks for workers of a version or newer ones, and none of these is alive",
		[]tasker.NextActor{tasker.NextOperator}, view.gated, view.sayGate,
	},
	{
		tasker.ConditionNoWorker, "the step waits for a worker, and none is alive for its namespace and handler, or none took it in time",
		[]tasker.NextActor{tasker.NextOperator, tasker.NextServer}, view.noWorker, view.sayNoWorker,
	},
	{
		tasker.ConditionSaturated, "the step has waited for a worker for longer than its limit, and does not fail: live workers take steps of its queue, and are busy",
		[]tasker.NextActor{tasker.NextWorker}, view.saturated, view.saySaturated,
	},
	{
		tasker.ConditionQueue, "the step waits in a queue that live workers serve",
		[]tasker.NextActor{tasker.NextWorker}, in(tasker.StepEnqueued), view.sayQueue,
	},
	{
		tasker.ConditionRunning, "a worker executes the step",
		[]tasker.NextActor{tasker.NextWorker, tasker.NextServer}, in(tasker.StepInProgress), view.sayRunning,
	},
	{
		tasker.ConditionRetry, "the step has failed and is tried again",
		[]tasker.NextActor{tasker.NextTimer, tasker.NextServer, tasker.NextOperator}, func(v view) bool { return v.step != nil && v.step.NextRetryAt != nil }, view.sayRetry,
	},
	{
		tasker.ConditionDecision, "the step is about to be decided: it runs, or it is skipped",
		[]tasker.NextActor{tasker.NextServer}, func(v view) bool {
			return v.step != nil && v.step.StepState == tasker.StepPending && v.step.DecideAt != nil
		}, view.sayDecision,
	},
	{
		tasker.ConditionExternal, "the step waits for an outcome from outside",
		[]tasker.NextActor{tasker.NextExternal, tasker.NextServer}, view.outside, view.sayOutside,
	},
	{
		tasker.ConditionWait, "the step waits for an instant",
		[]tasker.NextActor{tasker.NextTimer, tasker.NextServer}, func(v view) bool { return v.waits(tasker.WaitStep) && v.step.WaitUntil != nil }, view.sayWait,
	},
	{
		tasker.ConditionChild, "the step waits for its child task: what keeps that where it is decides, down to ten levels",
		tasker.NextActors(), view.waitsForChild, view.sayChild,
	},
	{
		tasker.ConditionItems, "the step runs once for each element of a list, and waits for its items; or it is such an item, and waits until others of it have ended",
		[]tasker.NextActor{tasker.NextWorker, tasker.NextOperator, tasker.NextTimer, tasker.NextServer}, func(v view) bool { return v.step != nil && (v.step.Items != nil || v.step.WaitsForPlace) }, view.sayItems,
	},
	{
		tasker.ConditionParents, "the step waits for other steps: the nearest one that waits for none decides",
		tasker.NextActors(), func(v view) bool { return v.blocker != nil }, view.sayParents,
	},
	{
		tasker.ConditionUnknown, "none of these: a defect, which is logged and counted",
		[]tasker.NextActor{tasker.NextOperator}, func(view) bool { return true }, view.sayUnknown,
	},
}

// decide returns the fact that keeps what a view shows where it is.
func decide(v view) match {
	for i, r := range rules {
		if r.matches(v) {
			s := r.describe(v)
			s.Reason = r.fact
			return match{view: v, rank: i, why: s.Condition, ofTask: s.ofTask}
		}
	}
	panic("the last rule holds always")
}

func in(state tasker.StepState) func(view) bool {
	return func(v view) bool { return v.step != nil && v.step.StepState == state }
}

func (v view) ended() bool {
	switch s := v.step; {
	case v.task.TaskState == tasker.TaskComplete || v.task.TaskState == tasker.TaskCancelled:
		return true
	case s == nil:
		return v.task.WrittenOffAt != nil && v.task.TaskState == tasker.TaskError
	case over(s.StepState):
		return true
	default: // what is enqueued or runs goes on
		return v.task.WrittenOffAt != nil && (v.failedForGood() || v.task.TaskState == tasker.TaskError && (s.StepState == tasker.StepPending || s.NextRetryAt != nil))
	}
}

// over reports whether a state of a step is one that it does not leave.
func over(s tasker.StepState) bool {
	return s.Done() || s == tasker.StepCancelled
}

// waitsForNoStep reports whether the dependencies of a step need no waiting for.
func waitsForNoStep(s *postgres.ExplainedStep) bool { return s.ParentsOpen == 0 || s.DecidedAt != nil }

// A task with a cycle is made in error. Any other task comes there by another event.
func (v view) cycle() bool {
	return v.task.TaskState == tasker.TaskError && v.task.MovedTo == string(tasker.TaskError) && v.task.MovedBy == "reject"
}

func (v view) failedForGood() bool {
	return v.step != nil && v.step.StepState == tasker.StepError && v.step.NextRetryAt == nil && v.step.AwaitsWorkerSince == nil
}

func (v view) noWorker() bool {
	return v.step != nil && (v.step.AwaitsWorkerSince != nil || v.step.StepState == tasker.StepEnqueued && v.queue != nil && v.queue.Live == 0)
}

func (v view) saturated() bool {
	return v.step != nil && v.step.StepState == tasker.StepEnqueued && v.queue != nil && v.queue.SaturatedSince != nil &&
		v.step.ExpiresAt != nil && v.step.ExpiresAt.Before(v.now)
}

func (v view) gated() bool {
	return v.step != nil && v.step.StepState == tasker.StepEnqueued && v.step.Gate != "" &&
		!slices.ContainsFunc(v.step.GateVersions, func(of string) bool { return version.AtLeast(of, v.step.Gate) })
}

func (v view) sayGate() answer {
	s := v.step
	return say(tasker.NextOperator, &s.StepSince, fmt.Sprintf("Start a worker of version %s or newer with handler %s for namespace %s; or abort the operation.", s.Gate, s.Handler, v.task.Namespace),
		"waits for a worker of version %s or newer, as operation %s asks; none is alive", s.Gate, s.OperationUUID)
}

func (v view) outside() bool { return v.waits(tasker.ExternalStep) }

func (v view) waitsForChild() bool { return v.waits(tasker.ChildStep) && v.step.ChildUUID != nil }

// waits reports whether the step is one of a type that no worker executes, and waits for
// no other step.
func (v view) waits(t tasker.StepType) bool {
	return v.step != nil && v.step.StepState == tasker.StepPending && v.step.StepType == string(t) && waitsForNoStep(v.step)
}
