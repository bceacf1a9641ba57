package tasker

import "time"

// Explanation reports why a task, step, investigation, case, operation, hold or queue is in its
// state: the main condition, and further facts.
type Explanation struct {
	Kind       ExplainedKind
	ID         ID // zero for a queue
	Namespaces []string
	Name       string // step, template, case, step action of the operation, scope of the hold, or handler
	TaskUUID   *ID    // of a task, step or investigation
	AsOf       time.Time
	Condition
	Facts  []ExplainedFact // additional facts
	Steps  []ExplainedStep // of a task or investigation: open steps with completed parents
	Counts []ReasonCount   // by reason: such steps, open investigations of a case, or released steps of an operation
	Looked int             // number of objects counted
	More   bool            // not all were counted
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
