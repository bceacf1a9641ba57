package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// CreateTask is the body of POST /v1/tasks and an element of POST /v1/tasks/bulk.
type CreateTask struct {
	Namespace           string          `json:"namespace" minLength:"1" maxLength:"128" doc:"Namespace of the template."`
	Name                string          `json:"name" minLength:"1" maxLength:"128" doc:"Name of the template."`
	Version             string          `json:"version,omitempty" maxLength:"64" doc:"Version of the template; the newest when absent."`
	Context             json.RawMessage `json:"context,omitempty" doc:"Input of the task: a JSON object, checked against the template's input schema."`
	Initiator           string          `json:"initiator,omitempty" maxLength:"255" doc:"Who or what asked for the task."`
	SourceSystem        string          `json:"source_system,omitempty" maxLength:"255" doc:"The system the request comes from."`
	Reason              string          `json:"reason,omitempty" maxLength:"2000" doc:"Why the task was asked for."`
	Priority            int             `json:"priority,omitempty" minimum:"-1000" maximum:"1000" doc:"Higher runs first."`
	Tags                []string        `json:"tags,omitempty" maxItems:"50" doc:"Words to find the task by."`
	CorrelationID       string          `json:"correlation_id,omitempty" maxLength:"128" doc:"Ties the task to its request; made when absent."`
	ParentCorrelationID string          `json:"parent_correlation_id,omitempty" maxLength:"128"`
	IdempotencyKey      string          `json:"idempotency_key,omitempty" maxLength:"255" doc:"The same key with the same body returns the same task; with another body it is a conflict."`
	StartAt             *time.Time      `json:"start_at,omitempty" doc:"Not before this instant."`
	RecreatedFrom       string          `json:"recreated_from,omitempty" format:"uuid" doc:"The task that this one replaces."`
	StartAfterSeconds   float64         `json:"start_after_seconds,omitempty" minimum:"0" maximum:"31622400" doc:"Not before so long after its creation, by the clock of the database; in the place of start_at."`
	StartBy             *time.Time      `json:"start_by,omitempty" doc:"The task ends as cancelled, with the reason expired, unless a step of it is claimed by this instant."`
	StartWithinSeconds  float64         `json:"start_within_seconds,omitempty" minimum:"0" maximum:"31622400" doc:"The same, so long after its start; in the place of start_by."`
	DueAt               *time.Time      `json:"due_at,omitempty" doc:"By when the task is due: an instant ahead, by the clock of the database."`
	DueAfterSeconds     float64         `json:"due_after_seconds,omitempty" minimum:"0" maximum:"157680000" doc:"The same, so long after its start; in the place of due_at."`
	Debounce            *Debounce       `json:"debounce,omitempty" doc:"Merge the requests with a key into one task, which starts when none has come for a while."`
	Unique              *Unique         `json:"unique,omitempty" doc:"One task of the template is open at a time for a key."`
}

// Debounce merges requests: the task that waits takes the context of the last one.
type Debounce struct {
	Key            string  `json:"key" minLength:"1" maxLength:"255" doc:"The key, within the template."`
	WaitSeconds    float64 `json:"wait_seconds" minimum:"0" maximum:"31622400" doc:"The task starts so long after the last request."`
	MaxWaitSeconds float64 `json:"max_wait_seconds,omitempty" minimum:"0" maximum:"31622400" doc:"And at most so long after the first; ten times wait_seconds when absent."`
}

// Unique is a key that one open task of a template may have.
type Unique struct {
	Key        string `json:"key" minLength:"1" maxLength:"255" doc:"The key, within the template."`
	OnConflict string `json:"on_conflict,omitempty" enum:"fail,use_existing,cancel_existing" doc:"What becomes of the request when an open task has the key: fail, the default, answers 409 with its task_uuid in the details; use_existing answers 200 with that task; cancel_existing cancels that task."`
}

// Task is a task with its steps; in lists the steps are left out.
type Task struct {
	TaskUUID             string          `json:"task_uuid"`
	Namespace            string          `json:"namespace"`
	Name                 string          `json:"name"`
	Version              string          `json:"version"`
	Status               string          `json:"status" doc:"State of the task."`
	Phase                *string         `json:"phase" enum:"compensating" doc:"compensating: the task undoes what its steps have done. Null: it goes forward, or has ended."`
	Outcome              *string         `json:"outcome" enum:"compensated,compensation_stopped,nothing_to_compensate" doc:"What became of the compensation of a cancelled task: all is undone; it was cancelled before that; no completed step could be undone. Null when nobody asked for it, and while it lasts."`
	StateSince           time.Time       `json:"state_since" doc:"When the task entered its state, or last made progress in it."`
	Priority             int             `json:"priority"`
	Context              json.RawMessage `json:"context,omitempty" doc:"Left out of lists."`
	Initiator            string          `json:"initiator"`
	SourceSystem         string          `json:"source_system"`
	Reason               string          `json:"reason"`
	Tags                 []string        `json:"tags"`
	Attributes           []string        `json:"attributes,omitempty" doc:"What its template declares that it is found by, and what has a value: each as NAME:VALUE, as lists take it. Left out of lists, and for callers that may not read payloads."`
	Warnings             []tasker.Fault  `json:"warnings,omitempty" doc:"Only in the answer to a creation: the search attributes that the new task does not have, and why."`
	CorrelationID        string          `json:"correlation_id"`
	ParentCorrelationID  *string         `json:"parent_correlation_id"`
	RecreatedFrom        *string         `json:"recreated_from"`
	ParentTaskUUID       *string         `json:"parent_task_uuid" doc:"The task whose step started this one; it may have been removed since. Null: no step did."`
	ParentStepUUID       *string         `json:"parent_step_uuid" doc:"That step."`
	StartAt              *time.Time      `json:"start_at"`
	StartBy              *time.Time      `json:"start_by" doc:"It ends as cancelled, with the reason expired, unless a step of it is claimed by then. Null: it does not."`
	Due                  *Deadline       `json:"due" doc:"By when the task is due. Null: it has no due time."`
	MaxDurationEndsAt    *time.Time      `json:"max_duration_ends_at" doc:"When max_duration_minutes of its template is over. Null: it says none."`
	FirstDeadline        *string         `json:"first_deadline" enum:"due,max_duration" doc:"Which of the two comes first. Null: there is neither."`
	UniqueKey            *string         `json:"unique_key" doc:"No other open task of the template has it. Null: it has none, or the caller may not read payloads."`
	DebounceKey          *string         `json:"debounce_key" doc:"Requests with it are merged into the task until it starts. Null: none are, or the caller may not read payloads."`
	MergedRequests       int             `json:"merged_requests" doc:"How many were, after the first."`
	CreatedAt            time.Time       `json:"created_at"`
	UpdatedAt            time.Time       `json:"updated_at"`
	CompletedAt          *time.Time      `json:"completed_at"`
	TotalSteps           int             `json:"total_steps"`
	PendingSteps         int             `json:"pending_steps"`
	InProgressSteps      int             `json:"in_progress_steps"`
	CompletedSteps       int             `json:"completed_steps"`
	SkippedSteps         int             `json:"skipped_steps" doc:"Steps that a branch leaves out."`
	FailedSteps          int             `json:"failed_steps"`
	ReadySteps           int             `json:"ready_steps"`
	CompletionPercentage float64         `json:"completion_percentage"`
	DeadLettered         bool            `json:"dead_lettered" doc:"An investigation of this task is open, or ended as permanently_failed."`
	DeadLetteredAt       *time.Time      `json:"dead_lettered_at"`
	DeadLetterReason     *string         `json:"dead_letter_reason"`
	DeadLetterMark       *string         `json:"dead_letter_mark" enum:"permanently_failed,under_investigation,opened_by_hand,recovered" doc:"What the investigation means for the task: it was written off; it cannot progress, or a step of it has failed; a person asked for a look; it went on by itself and the investigation is still open. Null without one."`
	DeadLetterLabel      *string         `json:"dead_letter_label" doc:"The mark and its reason in words."`
	DLQEntryUUID         *string         `json:"dlq_entry_uuid"`
	Steps                []Step          `json:"steps,omitempty" doc:"Left out of lists."`
}

// Deadline is by when a task or a step is due, by the clock of the database.
type Deadline struct {
	DueAt       time.Time  `json:"due_at"`
	WarnAt      time.Time  `json:"warn_at" doc:"When people are told that it is due soon."`
	State       string     `json:"state" enum:"ahead,soon,overdue,met,missed,ended" doc:"How it stands: ahead, soon from warn_at on, overdue. Of what has ended: it was complete in time (met) or later (missed), or was cancelled or given up (ended)."`
	Overdue     string     `json:"overdue" enum:"tell,investigate" doc:"What becomes of what is overdue: people are told, or an investigation is opened as well."`
	Source      string     `json:"source" enum:"request,template,operator" doc:"Who said so last."`
	SetBy       *string    `json:"set_by" doc:"The operator. Null: none changed it."`
	WarnedAt    *time.Time `json:"warned_at" doc:"When people were told that it is due soon. Null: they were not."`
	AnnouncedAt *time.Time `json:"announced_at" doc:"When people were told that it is overdue. Null: they were not."`
}

func deadline(d *tasker.Deadline) *Deadline {
	if d == nil {
		return nil
	}
	return &Deadline{
		DueAt: d.DueAt.UTC(), WarnAt: d.WarnAt.UTC(), State: string(d.State), Overdue: string(d.Overdue), Source: string(d.Source), SetBy: textOrNull(d.SetBy),
		WarnedAt: utc(d.WarnedAt), AnnouncedAt: utc(d.AnnouncedAt),
	}
}

// ChangeDue is the body of PUT /v1/tasks/{uuid}/due.
type ChangeDue struct {
	DueAt  *time.Time `json:"due_at" required:"true" nullable:"true" doc:"By when it is due: an instant ahead. Null: it has no due time any more."`
	Step   string     `json:"step,omitempty" maxLength:"300" doc:"The UUID or the name of the step that is due. Absent: the task."`
	Reason string     `json:"reason,omitempty" maxLength:"2000" doc:"Why, for the history."`
	By     string     `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// TaskTree is a task with those above it and those that its steps started.
type TaskTree struct {
	TaskUUID string     `json:"task_uuid" doc:"The task that was asked for."`
	Tasks    []TreeTask `json:"tasks" doc:"The topmost that is still there first, and each before its children. At most 20 children of one task and 200 tasks below the one that was asked for: those that have not ended first, then the newest."`
}

// TreeTask is a task of a tree.
type TreeTask struct {
	Task         Task    `json:"task" doc:"Without its steps and its context."`
	Depth        int     `json:"depth" doc:"How many tasks are above it."`
	StepName     *string `json:"step_name" doc:"The step that started it. Null: no step did, or it has been removed."`
	Current      bool    `json:"current" doc:"The step names this task: it waits for it, or had its result. False of one that it started before a reset."`
	WaitedFor    bool    `json:"waited_for" doc:"The step waits for this task."`
	MoreChildren bool    `json:"more_children" doc:"It has children that are not in the answer: GET /v1/tasks?parent= lists them."`
}

// FromTaskTree converts a tree of tasks.
func FromTaskTree(t tasker.TaskTree) TaskTree {
	out := TaskTree{TaskUUID: t.TaskUUID.String(), Tasks: make([]TreeTask, len(t.Tasks))}
	for i, n := range t.Tasks {
		out.Tasks[i] = TreeTask{
			Task: FromTask(n.Task, nil), Depth: n.Depth, StepName: textOrNull(n.StepName),
			Current: n.Current, WaitedFor: n.WaitedFor, MoreChildren: n.MoreChildren,
		}
	}
	return out
}

// Pagination says which part of a list an answer holds.
type Pagination struct {
	Limit   int  `json:"limit"`
	Offset  int  `json:"offset"`
	Count   int  `json:"count" doc:"Elements in this answer."`
	HasMore bool `json:"has_more" doc:"There are elements after these."`
}

// TaskList is the answer of GET /v1/tasks, newest first.
type TaskList struct {
	Tasks      []Task   `json:"tasks"`
	Pagination TaskPage `json:"pagination"`
}

// TaskPage says which part of a list of tasks an answer holds, and how it goes on.
type TaskPage struct {
	Limit      int     `json:"limit"`
	Offset     int     `json:"offset"`
	Count      int     `json:"count" doc:"Elements in this answer."`
	HasMore    bool    `json:"has_more" doc:"There are elements after these."`
	NextBefore *string `json:"next_before" doc:"What to ask for as before, to get them, without an offset. Null when they are in the order of an attribute: these go on with offset."`
}

// CreatedTask says which task an element of POST /v1/tasks/bulk led to.
type CreatedTask struct {
	TaskUUID string `json:"task_uuid"`
	Created  bool   `json:"created" doc:"False when the idempotency key had led to this task before."`

	Warnings []tasker.Fault `json:"warnings,omitempty" doc:"The search attributes that the new task does not have, and why."`
}

// CreatedTasks is the answer of POST /v1/tasks/bulk, in the order of the request.
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
		RecreatedFrom: idOrNull(t.RecreatedFrom), ParentTaskUUID: idOrNull(t.ParentTaskUUID), ParentStepUUID: idOrNull(t.ParentStepUUID), StartAt: utc(t.StartAt), CreatedAt: t.CreatedAt.UTC(),
		UpdatedAt: t.UpdatedAt.UTC(), CompletedAt: utc(t.CompletedAt),
		TotalSteps: t.Counts.Total, PendingSteps: t.Counts.Pending, InProgressSteps: t.Counts.InProgress,
		CompletedSteps: t.Counts.Completed, SkippedSteps: t.Counts.Skipped, FailedSteps: t.Counts.Failed, ReadySteps: t.Counts.Ready,
		DeadLettered: t.DeadLetter.DeadLettered, DeadLetteredAt: utc(t.DeadLetter.At),
		DeadLetterMark: textOrNull(string(t.DeadLetter.Kind())), DeadLetterLabel: textOrNull(t.DeadLetter.Label()),
		DeadLetterReason: textOrNull(t.DeadLetter.Reason), DLQEntryUUID: idOrNull(t.DeadLetter.EntryUUID),
	}
	if t.Counts.Total > 0 {
		out.CompletionPercentage = float64((t.Counts.Completed+t.Counts.Skipped)*10000/t.Counts.Total) / 100
	}
	out.Due, out.MaxDurationEndsAt = deadline(t.Due), utc(t.MaxDurationEndsAt)
	which, _ := tasker.FirstDeadline(t.Due, t.MaxDurationEndsAt)
	out.FirstDeadline = textOrNull(which)
	if o := t.Options; o != nil {
		out.StartBy, out.UniqueKey = utc(o.StartBy), textOrNull(o.UniqueKey)
		out.DebounceKey, out.MergedRequests = textOrNull(o.DebounceKey), o.MergedRequests
	}
	for _, s := range steps {
		out.Steps = append(out.Steps, FromStep(s))
	}
	return out
}

// An Attribute is what tasks of a namespace are found by, as templates declare it.
type Attribute struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Type      string   `json:"type" enum:"text,number,time,bool"`
	Templates []string `json:"templates" doc:"The templates that declare it, in any version."`
}

// FromAttribute spells an attribute.
func FromAttribute(a tasker.Attribute) Attribute {
	return Attribute{Namespace: a.Namespace, Name: a.Name, Type: string(a.Type), Templates: orEmpty(a.Templates)}
}

// AttributeList is a part of the attributes that a caller may see.
type AttributeList struct {
	Attributes []Attribute `json:"attributes"`
	Pagination Pagination  `json:"pagination"`
}

// CancelTasks is the body of POST /v1/tasks/cancel.
type CancelTasks struct {
	Compensate bool   `json:"compensate,omitempty" doc:"Undo what their completed steps have done before they are cancelled."`
	DryRun     bool   `json:"dry_run,omitempty" doc:"Only say which tasks are next."`
	Limit      int    `json:"limit,omitempty" minimum:"1" maximum:"100" doc:"Tasks of one part; 100 when absent."`
	Reason     string `json:"reason,omitempty" maxLength:"2000" doc:"Why, for the history; needed unless dry_run is set."`
	By         string `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// CancelledTasks is the answer to it: what became of a part of the tasks of a filter.
type CancelledTasks struct {
	Cancelled int    `json:"cancelled" doc:"Tasks that are cancelled, or are being undone; or would be."`
	Failed    int    `json:"failed" doc:"Tasks for which the server failed; its log says why."`
	More      bool   `json:"more" doc:"There are others: ask again."`
	Sample    []Task `json:"sample" doc:"The first tasks of the part, as they were before."`
}

// FromCancelBatch converts what became of a part.
func FromCancelBatch(b tasker.CancelBatch) CancelledTasks {
	out := CancelledTasks{Cancelled: b.Cancelled, Failed: b.Failed, More: b.HasMore, Sample: []Task{}}
	for _, t := range b.Sample {
		out.Sample = append(out.Sample, FromTask(t, nil))
	}
	return out
}
