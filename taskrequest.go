package tasker

import (
	"encoding/json"
	"time"
)

// TaskRequest is a task that a program requested with the SQL function tasker.create_task, and that
// no server has created yet or that a server refused to create.
type TaskRequest struct {
	TaskUUID       ID              `json:"task_uuid" format:"uuid" doc:"UUID of the task, once it is created."`
	Namespace      string          `json:"namespace"`
	Name           string          `json:"name"`
	Version        string          `json:"version" doc:"Requested version of the template. Empty: the newest."`
	Context        json.RawMessage `json:"context,omitempty" doc:"Absent without payloads:read."`
	Priority       int             `json:"priority"`
	Tags           []string        `json:"-"`
	IdempotencyKey OptionalString  `json:"idempotency_key"`
	CorrelationID  string          `json:"-"`
	Reason         string          `json:"-"`
	SourceSystem   string          `json:"-"`
	Initiator      string          `json:"initiator"`
	StartAt        *time.Time      `json:"-"`
	DueAt          *time.Time      `json:"-"`
	CreatedAt      time.Time       `json:"created_at"`
	RefusedAt      *time.Time      `json:"refused_at" doc:"When a server refused to create the task. Null: a server will create it."`
	ErrorCode      OptionalString  `json:"error_code" doc:"Code of the error of a refused request."`
	ErrorMessage   OptionalString  `json:"error_message"`
}

// TaskRequestFilter selects and pages task requests, newest first.
type TaskRequestFilter struct {
	Namespace string `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace."`
	Refused   *bool  `query:"refused" doc:"Filter by refused or pending requests."` // nil selects all
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
	Offset    int    `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`
}

// ToNewTask returns the task to create.
func (r TaskRequest) ToNewTask() NewTask {
	t := NewTask{
		Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: r.Context, Priority: r.Priority, Tags: r.Tags,
		IdempotencyKey: string(r.IdempotencyKey), CorrelationID: r.CorrelationID, Reason: r.Reason, SourceSystem: r.SourceSystem, Initiator: r.Initiator,
	}
	if r.StartAt != nil {
		t.StartAt = *r.StartAt
	}
	if r.DueAt != nil {
		t.DueAt = *r.DueAt
	}
	return t
}
