package tasker

import "time"

// Explanation reports why a task, step, investigation, case, operation, hold or queue is in its
// state: the main condition, and further facts.
type Explanation struct {
	Kind       ExplainedKind `json:"kind" enum:"task,step,investigation,case,operation,hold,queue"`
	ID         OptionalID    `json:"id" doc:"Id of the explained object. Empty for a queue."`
	Namespaces []string      `json:"namespaces" doc:"Only operations have several."`
	Name       string        `json:"name" doc:"Step, template of the task, step of the case, action of the operation, scope of the hold, or handler."`
	TaskUUID   OptionalID    `json:"task_uuid" doc:"Of a task, step or investigation. Otherwise empty."`
	AsOf       time.Time     `json:"as_of"`
	Condition
	Facts  []ExplainedFact `json:"facts" doc:"Additional facts."`
	Steps  []ExplainedStep `json:"steps" doc:"Of a task or investigation: open steps that wait for no other step, at most 20. The first determines the reason."`
	Counts []ReasonCount   `json:"counts" doc:"By reason: such steps, the newest open investigations of a case, or the released items of an operation."`
	Looked int             `json:"looked" doc:"Number of examined objects, at most 100."`
	More   bool            `json:"more" doc:"There may be more."`
}

// Condition is the main reason why something is not progressing, with a remedy and the next actor.
type Condition struct {
	Reason    ConditionReason `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Message   string          `json:"sentence"`
	Since     *time.Time      `json:"since" doc:"Null if unknown."`
	Remedy    string          `json:"unblocks" doc:"What would let it continue. Empty if nothing would."`
	NextActor NextActor       `json:"turn" enum:"worker,operator,outside,clock,server,nobody" doc:"The party that acts next."`
}

// ExplainedKind is the kind of the explained object.
type ExplainedKind string

// Kinds of explained objects.
const (
	ExplainedTask          ExplainedKind = "task"
	ExplainedStepOfTask    ExplainedKind = "step"
	ExplainedInvestigation ExplainedKind = "investigation"
	ExplainedCase          ExplainedKind = "case"
	ExplainedOperation     ExplainedKind = "operation"
	ExplainedHold          ExplainedKind = "hold"
	ExplainedQueue         ExplainedKind = "queue"
)

// ConditionReason identifies the cause of a [Condition].
type ConditionReason string

// Condition reasons. docs/reference/explain.md defines them. If several apply, the first one
// counts.
const (
	ConditionEnded           ConditionReason = "ended"
	ConditionNotStarted      ConditionReason = "not_started"
	ConditionCycle           ConditionReason = "cycle"
	ConditionOperation       ConditionReason = "operation"
	ConditionResultPending   ConditionReason = "result_kept"
	ConditionFailed          ConditionReason = "failed"
	ConditionNotInvestigated ConditionReason = "unattended"
	ConditionHeld            ConditionReason = "held"
	ConditionLimit           ConditionReason = "limit"
	ConditionGate            ConditionReason = "gate"
	ConditionNoWorker        ConditionReason = "no_worker"
	ConditionSaturated       ConditionReason = "saturated"
	ConditionQueue           ConditionReason = "queue"
	ConditionRunning         ConditionReason = "running"
	ConditionRetry           ConditionReason = "retry"
	ConditionDecision        ConditionReason = "decision"
	ConditionExternal        ConditionReason = "outside"
	ConditionWait            ConditionReason = "wait"
	ConditionChild           ConditionReason = "child"
	ConditionItems           ConditionReason = "items"
	ConditionParents         ConditionReason = "parents"
	ConditionEmpty           ConditionReason = "empty"   // of a queue
	ConditionUnknown         ConditionReason = "unknown" // no other reason applies: a bug
)

// ConditionReasons lists all reasons in order of precedence.
func ConditionReasons() []ConditionReason {
	return []ConditionReason{
		ConditionEnded, ConditionNotStarted, ConditionCycle, ConditionOperation, ConditionResultPending, ConditionFailed, ConditionNotInvestigated, ConditionHeld, ConditionLimit, ConditionGate, ConditionNoWorker, ConditionSaturated, ConditionQueue,
		ConditionRunning, ConditionRetry, ConditionDecision, ConditionExternal, ConditionWait, ConditionChild, ConditionItems, ConditionParents, ConditionEmpty, ConditionUnknown,
	}
}

// NextActor is the party that must act next.
type NextActor string

// Next actors.
const (
	NextWorker   NextActor = "worker"
	NextOperator NextActor = "operator"
	NextExternal NextActor = "outside" // an external system that reports an outcome
	NextTimer    NextActor = "clock"   // continues automatically at a known time
	NextServer   NextActor = "server"
	NextNone     NextActor = "nobody"
)

// NextActors lists all next actors.
func NextActors() []NextActor {
	return []NextActor{NextWorker, NextOperator, NextExternal, NextTimer, NextServer, NextNone}
}

// ExplainedFact is an additional fact of an [Explanation].
type ExplainedFact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ExplainedStep is an open step of an explained task.
type ExplainedStep struct {
	UUID  ID        `json:"step_uuid"`
	Name  string    `json:"name"`
	State StepState `json:"state"`
	Condition
}

// ReasonCount counts the steps or investigations that wait for one reason.
type ReasonCount struct {
	Reason ConditionReason `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Count  int             `json:"count"`
	Task   ID              `json:"task_uuid" doc:"One of their tasks."`
}

// Limits of an [Explanation].
const (
	MaxExplainedSteps = 100  // open steps per task
	MaxExplainedTasks = 100  // newest investigations of a case, or items of an operation
	MaxExplainedQueue = 1000 // where counting waiting steps stops
)
