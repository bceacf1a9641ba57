package tasker

import (
	"encoding/json"
	"time"
)

// TaskRequest is a task that a program requested with the SQL function tasker.create_task, and that
// no server has created yet or that a server refused to create.
type TaskRequest struct {
	TaskUUID       ID // of the task, once it is created
	Namespace      string
	Name           string
	Version        string
	Context        json.RawMessage
	Priority       int
	Tags           []string
	IdempotencyKey string
	CorrelationID  string
	Reason         string
	SourceSystem   string
	Initiator      string
	StartAt        *time.Time
	DueAt          *time.Time
	CreatedAt      time.Time
	RefusedAt      *time.Time // nil: a server will create the task
	ErrorCode      Code       // of a refused request
	ErrorMessage   string
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
		IdempotencyKey: r.IdempotencyKey, CorrelationID: r.CorrelationID, Reason: r.Reason, SourceSystem: r.SourceSystem, Initiator: r.Initiator,
	}
	if r.StartAt != nil {
		t.StartAt = *r.StartAt
	}
	if r.DueAt != nil {
		t.DueAt = *r.DueAt
	}
	return t
}
