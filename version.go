package tasker

// A VersionRequest asks for a task to be brought to another version of its template.
type VersionRequest struct {
	From   string // the version that the task must be of; empty: any
	To     string
	DryRun bool // only say what would be done
	Actor  string
	Reason string
}

// A VersionChange is what becomes of a task that is brought to another version of its
// template: step by step, by name. A task that has refusals stays as it is.
type VersionChange struct {
	TaskUUID ID     `json:"task_uuid"`
	From     string `json:"from_version"`
	To       string `json:"to_version"`
	Changed  bool   `json:"changed" doc:"The task is of the new version now. False of a dry run, and when it was before."`

	Kept      []string         `json:"kept" doc:"Steps that stay as they are."`
	Redefined []string         `json:"redefined" doc:"Steps that take another definition from the new version."`
	Added     []string         `json:"added" doc:"Steps that the new version adds."`
	Removed   []string         `json:"removed" doc:"Steps that have not begun, and that the new version lacks."`
	Left      []string         `json:"left" doc:"Steps that have ended, and that the new version lacks. They stay, and nothing depends on them any more."`
	Refusals  []VersionRefusal `json:"refusals" doc:"Why it cannot be done. Empty: it can."`
}

// A VersionRefusal is a reason why a task cannot be brought to a version.
type VersionRefusal struct {
	Code    VersionRefusalCode `json:"code"`
	Step    string             `json:"step,omitempty" doc:"The step that it is about; absent: the task."`
	Message string             `json:"message"`
}

// A VersionRefusalCode tells the reasons apart.
type VersionRefusalCode string

// The reasons why a task cannot be brought to another version.
const (
	RefusedTaskEnded       VersionRefusalCode = "task_ended"           // it is complete or cancelled
	RefusedWrittenOff      VersionRefusalCode = "task_written_off"     // its investigation ended as permanently_failed
	RefusedCompensating    VersionRefusalCode = "task_compensates"     // its steps are being undone
	RefusedTaskCycle       VersionRefusalCode = "task_has_cycle"       // its steps depend on each other in a cycle
	RefusedVersionCycle    VersionRefusalCode = "version_has_cycle"    // those of the new version do
	RefusedContext         VersionRefusalCode = "context_refused"      // by the input schema of the new version
	RefusedTooManySteps    VersionRefusalCode = "too_many_steps"       // with those that stay although the version lacks them
	RefusedStepMissing     VersionRefusalCode = "begun_step_missing"   // the version lacks a step that has begun and not ended
	RefusedUndoMissing     VersionRefusalCode = "undo_missing"         // the version cannot undo a complete step that can be undone now
	RefusedStepType        VersionRefusalCode = "step_type_changed"    // of a step that has begun
	RefusedHeldByWorker    VersionRefusalCode = "running_step_changed" // a worker has the step
	RefusedWaiting         VersionRefusalCode = "waiting_step_changed" // the step waits for an answer, an instant, its child task or its items
	RefusedCondition       VersionRefusalCode = "condition_changed"    // of a step that is enqueued: that it runs is decided
	RefusedChildTemplate   VersionRefusalCode = "child_template_changed"
	RefusedItems           VersionRefusalCode = "items_made"          // a map step has its items, and is defined otherwise
	RefusedNewDependency   VersionRefusalCode = "dependency_open"     // a step that has begun depends on another one, which has not succeeded
	RefusedDecisionChanged VersionRefusalCode = "decision_dependents" // other steps depend on a decision that has been made
	RefusedByFailure       VersionRefusalCode = "failure"             // of the server, which its log tells of; the other tasks are brought to the version
)

// A VersionBatchRequest asks for the open tasks of one version to be brought to another, a
// part of them at a time.
type VersionBatchRequest struct {
	Template TemplateVersion // whose tasks they are
	To       string
	Before   ID  // only tasks older than this one; zero: from the newest on
	Limit    int // open tasks of one part; 0 means [MaxVersionBatch]
	DryRun   bool
	Actor    string
	Reason   string
}

// A VersionBatch is what became of a part of the tasks of a version.
type VersionBatch struct {
	Looked  int // tasks that were looked at, ended ones among them
	Changed int // tasks that were brought to the new version, or would be
	Refused int
	Reasons map[VersionRefusalCode]int // tasks by reason; one may have several
	Sample  []VersionChange            // the first that were refused
	Next    ID                         // before which the next part begins; zero: there is none
}

// Bounds of one part of the tasks of a version.
const (
	// MaxVersionBatch bounds the open tasks of a version that one request changes.
	MaxVersionBatch = 100

	// MaxVersionSample bounds the refused tasks that one request tells of.
	MaxVersionSample = 10
)
