package tasker

// Severity rates the usual impact of a stuck task.
type Severity string

// Severities.
const (
	Critical Severity = "critical" // no task of its kind can run
	High     Severity = "high"     // a task failed and waits for an operator
	Medium   Severity = "medium"   // a task is stalled but may continue automatically
	Low      Severity = "low"      // an operator requested a review
)

// Detail codes, the second level below a [Reason]. WorkerLost, StepTimeout, InputTooLarge and the
// monitored task states are detail codes too.
const (
	RetriesExhausted = "retries_exhausted"
	PermanentFailure = "permanent_failure"
	ExternalFailure  = "external_failure"
	ExternalTimeout  = "external_timeout"
	ExpressionFailed = "expression_failed"
	ChildRefused     = "child_refused"
	ChildFailed      = "child_failed"
	DependencyCycle  = "dependency_cycle"
	MaxDuration      = "max_duration"
	Overdue          = "overdue"
	UnrecoveredError = "unrecovered_error"
	NoWorkers        = "no_workers"
	DispatchExpired  = "dispatch_expired"
	DeferredWork     = "deferred_work"
	OperatorRequest  = "operator_request"
)

// Cause describes why a task needs an investigation, with guidance for the investigator. A new
// detail code needs one entry in [Causes]; tests list what else depends on it.
type Cause struct {
	Reason       Reason
	Code         string // detail code
	Label        string // short description
	Severity     Severity
	BasePriority int    // default for the reason, in minutes of age
	Guidance     string // first checks and possible fixes
}

// DefaultBasePriorities returns the default weight of each reason in the investigation queue, in
// minutes of age.
func DefaultBasePriorities() map[Reason]int {
	return map[Reason]int{
		DependencyCycleDetected: 1000, MaxRetriesExceeded: 500, StalenessTimeout: 100, WorkerUnavailable: 50, ManualDLQ: 10,
	}
}

var causes = []Cause{
	{
		Reason: DependencyCycleDetected, Code: DependencyCycle, Severity: Critical, Label: "steps depend on each other in a cycle",
		Guidance: "The template can never run. Register a version without the cycle, end this investigation as permanently_failed, and create a new task.",
	},
	{
		Reason: MaxRetriesExceeded, Code: RetriesExhausted, Severity: High, Label: "a step failed in all of its attempts",
		Guidance: "Read the step's failures in the snapshot. Fix their cause, then reset the step; or complete it with a result you vouch for.",
	},
	{
		Reason: MaxRetriesExceeded, Code: PermanentFailure, Severity: High, Label: "a handler reported a permanent failure",
		Guidance: "The handler's error describes the problem of this task. Complete the step by hand or resolve it; a reset helps only after the cause is fixed.",
	},
	{
		Reason: MaxRetriesExceeded, Code: WorkerLost, Severity: High, Label: "workers fell silent in the last attempt",
		Guidance: "Look at the workers: crashes, memory, network. The step may have been executed in part; make sure before you reset it.",
	},
	{
		Reason: MaxRetriesExceeded, Code: StepTimeout, Severity: High, Label: "the last attempt ran longer than its timeout",
		Guidance: "Find what the handler waits for. Reset the step when that is quick again, or register a version with a longer timeout_seconds.",
	},
	{
		Reason: MaxRetriesExceeded, Code: ExternalFailure, Severity: High, Label: "the system outside reported a failure",
		Guidance: "Ask the system that reported it. Reset the step to wait for another outcome, or complete it by hand.",
	},
	{
		Reason: MaxRetriesExceeded, Code: ExternalTimeout, Severity: High, Label: "an external step was not answered in time",
		Guidance: "Find out who should have answered. Reset the step to wait once more, complete it by hand with the answer, or resolve it. " +
			"on_timeout in the template determines the effect of a timeout.",
	},
	{
		Reason: MaxRetriesExceeded, Code: ExpressionFailed, Severity: High, Label: "a step's condition cannot be evaluated",
		Guidance: "The step's error names the part of its condition that failed. If the values are wrong, complete or resolve the step by hand; if the condition is wrong, " +
			"register a version with a corrected condition and create a new task. A reset evaluates the same condition again.",
	},
	{
		Reason: MaxRetriesExceeded, Code: ChildRefused, Severity: High, Label: "a step's child task cannot be started",
		Guidance: "The step's error contains the reason: the template does not exist or does not accept the input. Register or correct the template, then reset the step, " +
			"which tries again; or complete it by hand with the result that the child would have.",
	},
	{
		Reason: MaxRetriesExceeded, Code: ChildFailed, Severity: High, Label: "a step's child task was cancelled or given up",
		Guidance: "The step's error names the child; see the child's history and investigation. Reset the step to start another child, complete it by hand with the " +
			"result, or resolve it. on_child in the template determines the effect on the step.",
	},
	{
		Reason: MaxRetriesExceeded, Code: InputTooLarge, Severity: High, Label: "a step's inputs are larger than any worker can be given",
		Guidance: "The step's error contains their size. Complete the step by hand with a result that you are sure of, or cancel the task and create a new one " +
			"with smaller inputs. Steps that pass on much data should return where it is kept, not the data.",
	},
	{
		Reason: MaxRetriesExceeded, Code: UnrecoveredError, Severity: High, Label: "a failed task without an investigation",
		Guidance: "The task failed without an investigation of its own. Read the errors of its steps, and repair the one that failed.",
	},
	{
		Reason: StalenessTimeout, Code: string(TaskStepsInProcess), Severity: Medium, Label: "steps are queued or running for too long",
		Guidance: "Check that workers for the handlers of its open steps are alive (tasker-ctl worker list). When one reports a result, the task continues automatically.",
	},
	{
		Reason: StalenessTimeout, Code: string(TaskWaitingForDependencies), Severity: Medium, Label: "something outside is missing for too long",
		Guidance: "Find the external step that waits, and who should complete it. Complete it by hand, or resolve it.",
	},
	{
		Reason: StalenessTimeout, Code: string(TaskWaitingForRetry), Severity: Medium, Label: "the task has waited for a retry for too long",
		Guidance: "See when the next attempt of its failed step is due. When it is overdue, see whether servers run and reach the database; " +
			"when it rests for longer than the template allows, raise that limit in a new version. Reset the step to try again at once.",
	},
	{
		Reason: StalenessTimeout, Code: MaxDuration, Severity: Medium, Label: "the task runs longer than its template allows",
		Guidance: "Look at which step takes the time. Repair that step, or raise max_duration_minutes in a new version.",
	},
	{
		Reason: StalenessTimeout, Code: Overdue, Severity: Medium, Label: "the task or a step of it is overdue",
		Guidance: "See which step takes the time, and how late it is (tasker-ctl explain). Repair that step, or agree on another due time (tasker-ctl task due).",
	},
	{
		Reason: StalenessTimeout, Code: UnrecoveredError, Severity: Medium, Label: "a task in error without an investigation",
		Guidance: "The task was put into the state error. Its history shows by whom and when. Repair a step, and the task continues.",
	},
	{
		Reason: StalenessTimeout, Code: DeferredWork, Severity: Medium, Label: "the server cannot move the task forward",
		Guidance: "The first note in the history contains the failing work, the number of failures and the last error; the server's log has more. Fix that cause. " +
			"The server tries again every few minutes: once it succeeds, the task continues and this investigation is marked recovered.",
	},
	{
		Reason: WorkerUnavailable, Code: NoWorkers, Severity: High, Label: "no worker for a step is alive",
		Guidance: "See which workers are there (tasker-ctl worker list) and what waits for one (tasker-ctl queue list), and start one with the step's " +
			"namespace and handler. The step goes back into the queue by itself then; it has used no attempt.",
	},
	{
		Reason: WorkerUnavailable, Code: DispatchExpired, Severity: Medium, Label: "workers are alive, and none took a step in time",
		Guidance: "The workers claimed no step of its queue for as long as its limit and had free places, or queue_ttl is always: see how much waits and who is there (tasker-ctl queue list, tasker-ctl worker list), restart workers that take nothing, or add some. " +
			"The step returns to the queue automatically a few times; see metadata.dispatch. Otherwise, reset it.",
	},
	{
		Reason: ManualDLQ, Code: OperatorRequest, Severity: Low, Label: "opened by a person",
		Guidance: "The first note in the history contains the reason. The investigation does not affect the task, which continues or has ended.",
	},
}

// Causes lists every cause.
func Causes() []Cause {
	list := make([]Cause, len(causes))
	priorities := DefaultBasePriorities()
	for i, c := range causes {
		c.BasePriority = priorities[c.Reason]
		list[i] = c
	}
	return list
}

// CauseOf returns the cause for a reason and a detail code. An unknown code, stored by a newer
// program, gets the defaults of its reason.
func CauseOf(reason Reason, code string) Cause {
	for _, c := range Causes() {
		if c.Reason == reason && c.Code == code {
			return c
		}
	}
	return Cause{Reason: reason, Code: code, Label: code, Severity: Medium, BasePriority: DefaultBasePriorities()[reason]}
}
