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
	Why
	Facts  []ExplainedFact // what else is known
	Steps  []ExplainedStep // of a task or investigation: its open steps whose parents are done
	Counts []FactCount     // of such steps, of the open investigations of a case, or of the released items of an operation, by fact
	Looked int             // how many of those were looked at
	More   bool            // there are more
}

// Why is the answer of an [Explanation].
type Why struct {
	Fact     Fact
	Sentence string
	Since    *time.Time // nil when it is not known
	Unblocks string     // what would let it go on; empty when nothing would
	Turn     Turn
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

// Fact is what keeps something where it is.
type Fact string

// The facts. docs/reference/explain.md says when each holds; of several the first counts.
const (
	FactEnded      Fact = "ended"
	FactNotStarted Fact = "not_started"
	FactCycle      Fact = "cycle"
	FactOperation  Fact = "operation"
	FactResultKept Fact = "result_kept"
	FactFailed     Fact = "failed"
	FactUnattended Fact = "unattended"
	FactHeld       Fact = "held"
	FactLimit      Fact = "limit"
	FactGate       Fact = "gate"
	FactNoWorker   Fact = "no_worker"
	FactSaturated  Fact = "saturated"
	FactQueue      Fact = "queue"
	FactRunning    Fact = "running"
	FactRetry      Fact = "retry"
	FactDecision   Fact = "decision"
	FactOutside    Fact = "outside"
	FactWait       Fact = "wait"
	FactChild      Fact = "child"
	FactItems      Fact = "items"
	FactParents    Fact = "parents"
	FactEmpty      Fact = "empty"   // of a queue
	FactUnknown    Fact = "unknown" // none of these: a defect
)

// ExplainedFacts lists every fact in the order in which they are looked for.
func ExplainedFacts() []Fact {
	return []Fact{
		FactEnded, FactNotStarted, FactCycle, FactOperation, FactResultKept, FactFailed, FactUnattended, FactHeld, FactLimit, FactGate, FactNoWorker, FactSaturated, FactQueue,
		FactRunning, FactRetry, FactDecision, FactOutside, FactWait, FactChild, FactItems, FactParents, FactEmpty, FactUnknown,
	}
}

// Turn says who or what acts next.
type Turn string

// The turns.
const (
	TurnWorker   Turn = "worker"
	TurnOperator Turn = "operator"
	TurnOutside  Turn = "outside" // a system that reports an outcome
	TurnClock    Turn = "clock"   // it goes on by itself at an instant
	TurnServer   Turn = "server"  // a server works on it
	TurnNobody   Turn = "nobody"
)

// Turns lists every turn.
func Turns() []Turn {
	return []Turn{TurnWorker, TurnOperator, TurnOutside, TurnClock, TurnServer, TurnNobody}
}

// An ExplainedFact is one more thing that is known of what is explained.
type ExplainedFact struct {
	Name  string
	Value string
}

// An ExplainedStep is a step that has its part in why a task is where it is.
type ExplainedStep struct {
	UUID  ID
	Name  string
	State StepState
	Why
}

// A FactCount is how many steps, investigations or items one fact keeps where they are.
type FactCount struct {
	Fact  Fact
	Count int
	Task  ID // one of their tasks
}

// The bounds of an [Explanation].
const (
	MaxExplainedSteps = 100  // open steps of one task that are looked at
	MaxExplainedTasks = 100  // of the newest investigations of a case, or of the items of an operation
	MaxExplainedQueue = 1000 // where counting what waits stops
)
