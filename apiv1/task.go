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

// ChangeDue is the body of PUT /v1/tasks/{uuid}/due.
type ChangeDue struct {
	DueAt  *time.Time `json:"due_at" required:"true" nullable:"true" doc:"New due time, in the future. Null removes it." flag:"at" usage:"due time: 2026-01-31T12:00:00Z, or +90m from now"`
	Step   string     `json:"step,omitempty" maxLength:"300" doc:"UUID or name of a step. Absent: the task." flag:"step" usage:"name or UUID of the step (default: the task)"`
	Reason string     `json:"reason,omitempty" maxLength:"2000" doc:"Reason for the history."`
	By     string     `json:"by,omitempty" maxLength:"255" doc:"Actor."`
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
	Tasks      []tasker.Task `json:"tasks"`
	Pagination TaskPage      `json:"pagination"`
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
	TaskUUID tasker.ID `json:"task_uuid"`
	Created  bool      `json:"created" doc:"False if the idempotency key belongs to an existing task."`

	Warnings []tasker.Fault `json:"warnings,omitempty" doc:"Search attributes that the task does not have, and why."`
}

// CreatedTasks is the response of POST /v1/tasks/bulk, in request order.
type CreatedTasks struct {
	Tasks []CreatedTask `json:"tasks"`
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

// TaskRequestList is a page of task requests, newest first.
type TaskRequestList struct {
	Requests   []tasker.TaskRequest `json:"requests"`
	Pagination Pagination           `json:"pagination"`
}
