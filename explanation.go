package tasker

import "time"

// An Explanation says why something is where it is: the one fact that keeps it there, since
// when, what would let it go on, and whose turn it is.
type Explanation struct {
	Kind       ExplainedKind
	ID         ID // of what is explained; zero for a queue
	Namespaces []string
	Name       string // the step, the template of the task, the place of the case, the act of the operation, the scope of the hold, or the handler
	TaskUUID   *ID    // whose task or step it is; nil for cases, operations, holds and queues
	AsOf       time.Time
	Condition
	Facts  []ExplainedFact // what else is known
	Steps  []ExplainedStep // of a task or investigation: its open steps whose parents are done
	Counts []ReasonCount   // of such steps, of the open investigations of a case, or of the released items of an operation, by fact
	Looked int             // how many of those were looked at
	More   bool            // there are more
}

// Condition is the answer of an [Explanation].
type Condition struct {
	Reason    ConditionReason `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Message   string          `json:"sentence"`
	Since     *time.Time      `json:"since" doc:"Null when it is not known."`
	Remedy    string          `json:"unblocks" doc:"What would let it go on; empty when nothing would."`
	NextActor NextActor       `json:"turn" enum:"worker,operator,outside,clock,server,nobody" doc:"Who or what acts next."`
}

// ExplainedKind is the kind of what is explained.
type ExplainedKind string

// The kinds.
const (
	ExplainedTask          ExplainedKind = "task"
	ExplainedStepOfTask    ExplainedKind = "step"
	ExplainedInvestigation ExplainedKind = "investigation"
	ExplainedCase          ExplainedKind = "case"
	ExplainedOperation     ExplainedKind = "operation"
	ExplainedHold          ExplainedKind = "hold"
	ExplainedQueue         ExplainedKind = "queue"
)

// ConditionReason names the cause that keeps something waiting.
type ConditionReason string

// The facts. docs/reference/explain.md says when each holds; of several the first counts.
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
	ConditionUnknown         ConditionReason = "unknown" // none of these: a defect
)

// ConditionReasons lists every fact in the order in which they are looked for.
func ConditionReasons() []ConditionReason {
	return []ConditionReason{
		ConditionEnded, ConditionNotStarted, ConditionCycle, ConditionOperation, ConditionResultPending, ConditionFailed, ConditionNotInvestigated, ConditionHeld, ConditionLimit, ConditionGate, ConditionNoWorker, ConditionSaturated, ConditionQueue,
		ConditionRunning, ConditionRetry, ConditionDecision, ConditionExternal, ConditionWait, ConditionChild, ConditionItems, ConditionParents, ConditionEmpty, ConditionUnknown,
	}
}

// NextActor names the party that acts next.
type NextActor string

// The turns.
const (
	NextWorker   NextActor = "worker"
	NextOperator NextActor = "operator"
	NextExternal NextActor = "outside" // a system that reports an outcome
	NextTimer    NextActor = "clock"   // it continues automatically at an instant
	NextServer   NextActor = "server"  // a server works on it
	NextNone     NextActor = "nobody"
)

// NextActors lists every turn.
func NextActors() []NextActor {
	return []NextActor{NextWorker, NextOperator, NextExternal, NextTimer, NextServer, NextNone}
}

// An ExplainedFact is one more thing that is known of what is explained.
type ExplainedFact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An ExplainedStep is a step that has its part in why a task is where it is.
type ExplainedStep struct {
	UUID  ID        `json:"step_uuid"`
	Name  string    `json:"name"`
	State StepState `json:"state"`
	Condition
}

// A ReasonCount counts the steps, investigations or items that wait for one reason.
type ReasonCount struct {
	Reason ConditionReason `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Count  int             `json:"count"`
	Task   ID              `json:"task_uuid" doc:"One of their tasks."`
}

// The bounds of an [Explanation].
const (
	MaxExplainedSteps = 100  // open steps of one task that are looked at
	MaxExplainedTasks = 100  // of the newest investigations of a case, or of the items of an operation
	MaxExplainedQueue = 1000 // where counting what waits stops
)
