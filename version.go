package tasker

// VersionRequest moves a task to another version of its template.
type VersionRequest struct {
	From   string // required current version; empty means any
	To     string
	DryRun bool
	Actor  string
	Reason string
}

// VersionChange reports how moving a task to another version affects its steps, matched by name.
// A task with refusals is not changed.
type VersionChange struct {
	TaskUUID ID     `json:"task_uuid"`
	From     string `json:"from_version"`
	To       string `json:"to_version"`
	Changed  bool   `json:"changed" doc:"The task now has the new version. False for a dry run or if it already had it."`

	Kept      []string         `json:"kept" doc:"Steps that do not change."`
	Redefined []string         `json:"redefined" doc:"Steps that get another definition."`
	Added     []string         `json:"added" doc:"New steps."`
	Removed   []string         `json:"removed" doc:"Steps that have not started and are not in the new version."`
	Left      []string         `json:"left" doc:"Ended steps that are not in the new version. They remain, and no step depends on them."`
	Refusals  []VersionRefusal `json:"refusals" doc:"Why the change is not possible. Empty if it is."`
}

// VersionRefusal is a reason why a task cannot change its version.
type VersionRefusal struct {
	Code    VersionRefusalCode `json:"code"`
	Step    string             `json:"step,omitempty" doc:"The step concerned. Absent: the task."`
	Message string             `json:"message"`
}

// VersionRefusalCode classifies a [VersionRefusal].
type VersionRefusalCode string

// Version refusal codes.
const (
	RefusedTaskEnded    VersionRefusalCode = "task_ended"       // complete or cancelled
	RefusedWrittenOff   VersionRefusalCode = "task_written_off" // its investigation ended as permanently_failed
	RefusedCompensating VersionRefusalCode = "task_compensates" // its steps are being compensated
	RefusedTaskCycle    VersionRefusalCode = "task_has_cycle"   // its steps depend on each other
	// The steps of the new version depend on each other.
	RefusedVersionCycle VersionRefusalCode = "version_has_cycle"
	// The input schema of the new version rejects the context.
	RefusedContext VersionRefusalCode = "context_refused"
	// Including steps that remain although the new version lacks them.
	RefusedTooManySteps VersionRefusalCode = "too_many_steps"
	RefusedStepMissing  VersionRefusalCode = "begun_step_missing" // a running step is not in the new version
	// The new version lacks the compensation of a completed step.
	RefusedUndoMissing  VersionRefusalCode = "undo_missing"
	RefusedStepType     VersionRefusalCode = "step_type_changed"    // of a started step
	RefusedHeldByWorker VersionRefusalCode = "running_step_changed" // a worker has claimed the step
	// The step waits for an answer, a time, its child or its items.
	RefusedWaiting VersionRefusalCode = "waiting_step_changed"
	// The condition of an enqueued step has already been evaluated.
	RefusedCondition     VersionRefusalCode = "condition_changed"
	RefusedChildTemplate VersionRefusalCode = "child_template_changed"
	RefusedItems         VersionRefusalCode = "items_made" // a map step has items and another definition
	// A started step depends on another step that has not succeeded.
	RefusedNewDependency VersionRefusalCode = "dependency_open"
	// The dependents of an executed decision differ.
	RefusedDecisionChanged VersionRefusalCode = "decision_dependents"
	RefusedByFailure       VersionRefusalCode = "failure" // server error, see its log; other tasks are not affected
)

// VersionBatchRequest moves the open tasks of one version to another, one batch at a time.
type VersionBatchRequest struct {
	Template TemplateVersion // current version
	To       string
	Before   ID  // only older tasks; zero starts with the newest
	Limit    int // open tasks per batch; 0 means [MaxVersionBatch]
	DryRun   bool
	Actor    string
	Reason   string
}

// VersionBatch is the result of one batch.
type VersionBatch struct {
	Looked  int // examined tasks, including ended ones
	Changed int // in a dry run, tasks that would change
	Refused int
	Reasons map[VersionRefusalCode]int // refused tasks by reason; one may have several
	Sample  []VersionChange            // first refused tasks
	Next    ID                         // Before of the next call; zero after the last batch
}

// Limits of one batch.
const (
	MaxVersionBatch = 100

	MaxVersionSample = 10
)
