package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// CreateTask is the body of POST /v1/tasks and an element of POST /v1/tasks/bulk.
type CreateTask struct {
	Namespace           string          `json:"namespace" minLength:"1" maxLength:"128" doc:"Namespace of the template." flag:"namespace,n" usage:"namespace of the template (required)" why:"it selects the template"`
	Name                string          `json:"name" minLength:"1" maxLength:"128" doc:"Name of the template." flag:"name" usage:"name of the template (required)" why:"it selects the template"`
	Version             string          `json:"version,omitempty" maxLength:"64" doc:"Version of the template. Default: the newest." flag:"version" usage:"version of the template (default: the newest)"`
	Context             json.RawMessage `json:"context,omitempty" doc:"Input of the task: a JSON object, validated against the input schema of the template."`
	Initiator           string          `json:"initiator,omitempty" maxLength:"255" doc:"Person or program that requested the task." flag:"initiator"`
	SourceSystem        string          `json:"source_system,omitempty" maxLength:"255" doc:"System that sent the request." flag:"source-system" usage:"system that creates the task"`
	Reason              string          `json:"reason,omitempty" maxLength:"2000" doc:"Reason for the task."`
	Priority            int             `json:"priority,omitempty" minimum:"-1000" maximum:"1000" doc:"Steps of tasks with a higher priority run first." flag:"priority,p" usage:"higher runs first"`
	Tags                []string        `json:"tags,omitempty" maxItems:"50" doc:"Search tags." flag:"tag" usage:"tag for searching; repeatable"`
	CorrelationID       string          `json:"correlation_id,omitempty" maxLength:"128" doc:"Links the task to its request. Default: generated." flag:"correlation-id" usage:"id that links the task to a request (default: a new one)"`
	ParentCorrelationID string          `json:"parent_correlation_id,omitempty" maxLength:"128" flag:"parent-correlation-id" usage:"correlation id of the parent request"`
	IdempotencyKey      string          `json:"idempotency_key,omitempty" maxLength:"255" doc:"The same key with the same body returns the existing task. With a different body it is a conflict." flag:"idempotency-key" usage:"return the existing task with this key, if any"`
	StartAt             *time.Time      `json:"start_at,omitempty" doc:"Earliest start." flag:"start-at" usage:"earliest start: 2026-01-31T12:00:00Z, or +90m from now"`
	RecreatedFrom       string          `json:"recreated_from,omitempty" format:"uuid" doc:"Task that this one replaces." flag:"recreated-from" usage:"task that this one replaces"`
	StartAfterSeconds   float64         `json:"start_after_seconds,omitempty" minimum:"0" maximum:"31622400" doc:"Earliest start after the creation, by the database clock. Alternative to start_at." flag:"start-after" usage:"delay before the task starts, such as 90m"`
	StartBy             *time.Time      `json:"start_by,omitempty" doc:"The task is cancelled with the reason expired unless a step is claimed by this time." flag:"start-by" usage:"expire the task if no step is claimed by this time: 2026-01-31T12:00:00Z, or +90m from now"`
	StartWithinSeconds  float64         `json:"start_within_seconds,omitempty" minimum:"0" maximum:"31622400" doc:"The same, relative to its start. Alternative to start_by." flag:"start-within" usage:"expire the task if no step is claimed within this time after its start"`
	DueAt               *time.Time      `json:"due_at,omitempty" doc:"Due time: in the future, by the database clock." flag:"due-at" usage:"due time: 2026-01-31T12:00:00Z, or +90m from now"`
	DueAfterSeconds     float64         `json:"due_after_seconds,omitempty" minimum:"0" maximum:"157680000" doc:"The same, relative to its start. Alternative to due_at." flag:"due-after" usage:"due time relative to the start, such as 24h"`
	Debounce            *Debounce       `json:"debounce,omitempty" doc:"Merges requests with equal keys into one task, which starts when no further request arrives for a while."`
	Unique              *Unique         `json:"unique,omitempty" doc:"Allows one open task of the template per key."`
}

// Debounce merges create requests. The waiting task gets the context of the latest request.
type Debounce struct {
	Key            string  `json:"key" minLength:"1" maxLength:"255" doc:"Unique within the template." flag:"debounce-key" usage:"merge requests with this key into one task of the template"`
	WaitSeconds    float64 `json:"wait_seconds" minimum:"0" maximum:"31622400" doc:"Delay of the start after the last request." flag:"debounce" usage:"start this long after the last merged request"`
	MaxWaitSeconds float64 `json:"max_wait_seconds,omitempty" minimum:"0" maximum:"31622400" doc:"Maximum delay after the first request. Default: ten times wait_seconds." flag:"debounce-max" usage:"maximum delay after the first request (default ten times --debounce)"`
}

// Unique is a key that at most one open task of a template may have.
type Unique struct {
	Key        string `json:"key" minLength:"1" maxLength:"255" doc:"Unique within the template." flag:"unique-key" usage:"allow only one open task of the template with this key"`
	OnConflict string `json:"on_conflict,omitempty" enum:"fail,use_existing,cancel_existing" doc:"Reaction if an open task has the key. fail, the default: 409 with its task_uuid in the details. use_existing: 200 with that task. cancel_existing: cancels that task."`
}

// Task is a task with its steps. Lists omit the steps.
type Task struct {
	TaskUUID             string           `json:"task_uuid"`
	Namespace            string           `json:"namespace"`
	Name                 string           `json:"name"`
	Version              string           `json:"version"`
	Status               string           `json:"status" doc:"State of the task."`
	Phase                *string          `json:"phase" enum:"compensating" doc:"compensating: the task compensates its completed steps. Otherwise null."`
	Outcome              *string          `json:"outcome" enum:"compensated,compensation_stopped,nothing_to_compensate" doc:"Outcome of a compensation: completed; cancelled before its end; no completed step had a compensation. Null without a compensation and while it runs."`
	StateSince           time.Time        `json:"state_since" doc:"When the task entered its state, or last made progress in it."`
	Priority             int              `json:"priority"`
	Context              json.RawMessage  `json:"context,omitempty" doc:"Absent in lists."`
	Initiator            string           `json:"initiator"`
	SourceSystem         string           `json:"source_system"`
	Reason               string           `json:"reason"`
	Tags                 []string         `json:"tags"`
	Attributes           []string         `json:"attributes,omitempty" doc:"Search attributes with a value, each as NAME:VALUE. Absent in lists and for callers without payloads:read."`
	Warnings             []tasker.Fault   `json:"warnings,omitempty" doc:"Only in create responses: search attributes that the task does not have, and why."`
	CorrelationID        string           `json:"correlation_id"`
	ParentCorrelationID  *string          `json:"parent_correlation_id"`
	RecreatedFrom        *string          `json:"recreated_from"`
	ParentTaskUUID       *string          `json:"parent_task_uuid" doc:"Task whose step started this one, or null. It may be deleted."`
	ParentStepUUID       *string          `json:"parent_step_uuid" doc:"Step that started this task."`
	StartAt              *time.Time       `json:"start_at"`
	StartBy              *time.Time       `json:"start_by" doc:"The task is cancelled with the reason expired unless a step is claimed by then. Null: no limit."`
	Due                  *tasker.Deadline `json:"due" doc:"Due time of the task, or null."`
	MaxDurationEndsAt    *time.Time       `json:"max_duration_ends_at" doc:"End of max_duration_minutes of its template, or null."`
	FirstDeadline        *string          `json:"first_deadline" enum:"due,max_duration" doc:"The earlier of the two, or null."`
	UniqueKey            *string          `json:"unique_key" doc:"Unique among the open tasks of the template. Null if there is none or the caller lacks payloads:read."`
	DebounceKey          *string          `json:"debounce_key" doc:"Requests with this key are merged into the task until it starts. Null if there is none or the caller lacks payloads:read."`
	MergedRequests       int              `json:"merged_requests" doc:"Merged requests after the first."`
	CreatedAt            time.Time        `json:"created_at"`
	UpdatedAt            time.Time        `json:"updated_at"`
	CompletedAt          *time.Time       `json:"completed_at"`
	TotalSteps           int              `json:"total_steps"`
	PendingSteps         int              `json:"pending_steps"`
	InProgressSteps      int              `json:"in_progress_steps"`
	CompletedSteps       int              `json:"completed_steps"`
	SkippedSteps         int              `json:"skipped_steps" doc:"Steps skipped by a branch."`
	FailedSteps          int              `json:"failed_steps"`
	ReadySteps           int              `json:"ready_steps"`
	CompletionPercentage float64          `json:"completion_percentage"`
	DeadLettered         bool             `json:"dead_lettered" doc:"An investigation of this task is open, or ended as permanently_failed."`
	DeadLetteredAt       *time.Time       `json:"dead_lettered_at"`
	DeadLetterReason     *string          `json:"dead_letter_reason"`
	DeadLetterMark       *string          `json:"dead_letter_mark" enum:"permanently_failed,under_investigation,opened_by_hand,recovered" doc:"Meaning of the investigation for the task: permanently failed; it cannot progress or a step failed; opened by an operator; it continued automatically and the investigation is still open. Null without one."`
	DeadLetterLabel      *string          `json:"dead_letter_label" doc:"Mark and reason in words."`
	DLQEntryUUID         *string          `json:"dlq_entry_uuid"`
	Steps                []Step           `json:"steps,omitempty" doc:"Absent in lists."`
}

// Settled reports whether the task has ended, or has an investigation that is open or has ended as
// permanently failed.
func (t Task) Settled() bool { return tasker.TaskState(t.Status).Final() || t.DeadLettered }

// ChangeDue is the body of PUT /v1/tasks/{uuid}/due.
type ChangeDue struct {
	DueAt  *time.Time `json:"due_at" required:"true" nullable:"true" doc:"New due time, in the future. Null removes it." flag:"at" usage:"due time: 2026-01-31T12:00:00Z, or +90m from now"`
	Step   string     `json:"step,omitempty" maxLength:"300" doc:"UUID or name of a step. Absent: the task." flag:"step" usage:"name or UUID of the step (default: the task)"`
	Reason string     `json:"reason,omitempty" maxLength:"2000" doc:"Reason for the history."`
	By     string     `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// TaskTree contains a task, its ancestors and its descendants.
type TaskTree struct {
	TaskUUID string     `json:"task_uuid" doc:"Requested task."`
	Tasks    []TreeTask `json:"tasks" doc:"From the topmost existing ancestor; parents precede their children. At most 20 children per task and 200 descendants of the requested task: open ones first, then the newest."`
}

// TreeTask is one task of a [TaskTree].
type TreeTask struct {
	Task         Task    `json:"task" doc:"Without steps and context."`
	Depth        int     `json:"depth" doc:"Number of ancestors."`
	StepName     *string `json:"step_name" doc:"Step that started it. Null for a root or a deleted step."`
	Current      bool    `json:"current" doc:"Latest child of the step. False for a child from before a reset."`
	WaitedFor    bool    `json:"waited_for" doc:"The step is waiting for this task."`
	MoreChildren bool    `json:"more_children" doc:"The response omits some of its children. GET /v1/tasks?parent= lists them."`
}

// FromTaskTree converts a tree of tasks.
func FromTaskTree(t tasker.TaskTree) TaskTree {
	return TaskTree{TaskUUID: t.TaskUUID.String(), Tasks: convert(t.Tasks, func(n tasker.TreeTask) TreeTask {
		return TreeTask{
			Task: FromTask(n.Task, nil), Depth: n.Depth, StepName: textOrNull(n.StepName),
			Current: n.Current, WaitedFor: n.WaitedFor, MoreChildren: n.MoreChildren,
		}
	})}
}

// Pagination describes the page of a list.
type Pagination struct {
	Limit   int  `json:"limit"`
	Offset  int  `json:"offset"`
	Count   int  `json:"count" doc:"Elements in this response."`
	HasMore bool `json:"has_more" doc:"More elements follow."`
}

// TaskList is the response of GET /v1/tasks, newest first.
type TaskList struct {
	Tasks      []Task   `json:"tasks"`
	Pagination TaskPage `json:"pagination"`
}

// TaskPage is the pagination of a list of tasks.
type TaskPage struct {
	Limit      int     `json:"limit"`
	Offset     int     `json:"offset"`
	Count      int     `json:"count" doc:"Elements in this response."`
	HasMore    bool    `json:"has_more" doc:"More elements follow."`
	NextBefore *string `json:"next_before" doc:"Value of before for the next page, without an offset. Null if the list is ordered by an attribute: use offset."`
}

// CreatedTask is the result for one element of POST /v1/tasks/bulk.
type CreatedTask struct {
	TaskUUID string `json:"task_uuid"`
	Created  bool   `json:"created" doc:"False if the idempotency key belongs to an existing task."`

	Warnings []tasker.Fault `json:"warnings,omitempty" doc:"Search attributes that the task does not have, and why."`
}

// CreatedTasks is the response of POST /v1/tasks/bulk, in request order.
type CreatedTasks struct {
	Tasks []CreatedTask `json:"tasks"`
}

// FromTask converts a task and its steps.
func FromTask(t tasker.Task, steps []tasker.Step) Task {
	out := Task{
		TaskUUID: t.UUID.String(), Namespace: t.Namespace, Name: t.Name, Version: t.Version,
		Status: string(t.State), Phase: textOrNull(string(t.Phase)), Outcome: textOrNull(string(t.Outcome)), StateSince: t.StateSince.UTC(), Priority: t.Priority, Context: t.Context,
		Initiator: t.Initiator, SourceSystem: t.SourceSystem, Reason: t.Reason, Tags: orEmpty(t.Tags), Attributes: t.Attributes,
		CorrelationID: t.CorrelationID, ParentCorrelationID: textOrNull(t.ParentCorrelationID),
		RecreatedFrom: idOrNull(t.RecreatedFrom), ParentTaskUUID: idOrNull(t.ParentTaskUUID), ParentStepUUID: idOrNull(t.ParentStepUUID), StartAt: toUTC(t.StartAt), CreatedAt: t.CreatedAt.UTC(),
		UpdatedAt: t.UpdatedAt.UTC(), CompletedAt: toUTC(t.CompletedAt),
		TotalSteps: t.Counts.Total, PendingSteps: t.Counts.Pending, InProgressSteps: t.Counts.InProgress,
		CompletedSteps: t.Counts.Completed, SkippedSteps: t.Counts.Skipped, FailedSteps: t.Counts.Failed, ReadySteps: t.Counts.Ready,
		DeadLettered: t.DeadLetter.DeadLettered, DeadLetteredAt: toUTC(t.DeadLetter.At),
		DeadLetterMark: textOrNull(string(t.DeadLetter.Kind())), DeadLetterLabel: textOrNull(t.DeadLetter.Label()),
		DeadLetterReason: textOrNull(t.DeadLetter.Reason), DLQEntryUUID: idOrNull(t.DeadLetter.EntryUUID),
	}
	if t.Counts.Total > 0 {
		out.CompletionPercentage = float64((t.Counts.Completed+t.Counts.Skipped)*10000/t.Counts.Total) / 100
	}
	out.Due, out.MaxDurationEndsAt = t.Due, toUTC(t.MaxDurationEndsAt)
	which, _ := tasker.FirstDeadline(t.Due, t.MaxDurationEndsAt)
	out.FirstDeadline = textOrNull(which)
	if o := t.Options; o != nil {
		out.StartBy, out.UniqueKey = toUTC(o.StartBy), textOrNull(o.UniqueKey)
		out.DebounceKey, out.MergedRequests = textOrNull(o.DebounceKey), o.MergedRequests
	}
	for _, s := range steps {
		out.Steps = append(out.Steps, FromStep(s))
	}
	return out
}

// AttributeList is a page of the attributes visible to the caller.
type AttributeList struct {
	Attributes []tasker.Attribute `json:"attributes"`
	Pagination Pagination         `json:"pagination"`
}

// CancelTasks is the body of POST /v1/tasks/cancel.
type CancelTasks struct {
	Compensate bool   `json:"compensate,omitempty" doc:"Compensate their completed steps before they are cancelled." flag:"compensate" usage:"compensate completed steps before cancelling"`
	DryRun     bool   `json:"dry_run,omitempty" doc:"Only report the next tasks."`
	Limit      int    `json:"limit,omitempty" minimum:"1" maximum:"100" doc:"Tasks per batch. Default: 100."`
	Reason     string `json:"reason,omitempty" maxLength:"2000" doc:"Reason for the history. Required unless dry_run is set." flag:"-"`
	By         string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// CancelledTasks is the response of POST /v1/tasks/cancel: the result of one batch.
type CancelledTasks struct {
	Cancelled int    `json:"cancelled" doc:"Cancelled or compensating tasks. In a dry run, tasks that would be."`
	Failed    int    `json:"failed" doc:"Tasks that could not be cancelled. The server log has the errors."`
	More      bool   `json:"more" doc:"More tasks match: repeat the request."`
	Sample    []Task `json:"sample" doc:"First tasks of the batch, in their previous state."`
}

// FromCancelBatch converts the result of a batch.
func FromCancelBatch(b tasker.CancelBatch) CancelledTasks {
	sample := convert(b.Sample, func(t tasker.Task) Task { return FromTask(t, nil) })
	return CancelledTasks{Cancelled: b.Cancelled, Failed: b.Failed, More: b.HasMore, Sample: sample}
}

// TaskRequestList is a page of task requests, newest first.
type TaskRequestList struct {
	Requests   []tasker.TaskRequest `json:"requests"`
	Pagination Pagination           `json:"pagination"`
}
