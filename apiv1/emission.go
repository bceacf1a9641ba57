package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// CloudEvent is a CloudEvents 1.0 event about an investigation or a task. The live feed and all sinks use
// the same format.
type CloudEvent struct {
	SpecVersion     string          `json:"specversion" enum:"1.0"`
	ID              string          `json:"id" doc:"Identical for every delivery of the event."`
	Source          string          `json:"source" doc:"Installation that published the event."`
	Type            string          `json:"type" doc:"tasker. and the topic, such as tasker.dlq.entry.created."`
	Subject         string          `json:"subject,omitempty" doc:"The dlq_entry_uuid, or the task_uuid for an event of a task. For a notification: the incident or operation."`
	Time            time.Time       `json:"time" doc:"When it happened."`
	DataContentType string          `json:"datacontenttype"`
	TaskUUID        string          `json:"taskuuid,omitempty"`
	DedupKey        string          `json:"dedupkey,omitempty" doc:"For a notification: identical in all notifications of one subject."`
	Sequence        string          `json:"sequence" doc:"Position of the event, zero-padded. It rises within a task."`
	Data            json.RawMessage `json:"data,omitempty"`
}

// TaskEvent is an event of the stream of one task (GET /v1/tasks/{uuid}/events): its state at the
// beginning, a transition of the task or of one of its steps, or its end.
type TaskEvent struct {
	Kind              string             `json:"kind" enum:"state,transition,end"`
	TaskUUID          tasker.ID          `json:"task_uuid"`
	Status            tasker.TaskState   `json:"status,omitempty" doc:"State of the task. Absent in transitions, and if the task was removed."`
	PermanentlyFailed bool               `json:"permanently_failed,omitempty" doc:"The end: the investigation of the task ended as permanently_failed."`
	Transition        *tasker.Transition `json:"transition,omitempty" doc:"Without a step_uuid it is of the task itself."`
}

// Emission is the delivery of an event to one sink.
type Emission struct {
	EventUUID     string     `json:"event_uuid"`
	Position      int64      `json:"position" doc:"Position among all events."`
	Topic         string     `json:"topic"`
	TaskUUID      string     `json:"task_uuid"`
	DLQEntryUUID  string     `json:"dlq_entry_uuid" doc:"Empty for an event of a task."`
	OccurredAt    time.Time  `json:"occurred_at"`
	Sink          string     `json:"sink"`
	State         string     `json:"state" enum:"pending,published,set_aside" doc:"set_aside: the sink rejected it too often; an operator must redeliver it."`
	Attempts      int        `json:"attempts"`
	Refusals      int        `json:"refusals" doc:"Rejections by the sink since the delivery was last requested."`
	NextAttemptAt *time.Time `json:"next_attempt_at" doc:"Earliest time of the next attempt, while pending."`
	LastAttemptAt *time.Time `json:"last_attempt_at"`
	LastError     *string    `json:"last_error"`
	PublishedAt   *time.Time `json:"published_at" doc:"When the sink last accepted it."`
}

// Continuation is the pagination of a list that continues before a position.
type Continuation struct {
	Limit      int    `json:"limit"`
	Count      int    `json:"count" doc:"Elements in this response."`
	HasMore    bool   `json:"has_more" doc:"More elements follow."`
	NextBefore *int64 `json:"next_before" doc:"Value of before for the next page."`
}

// EmissionList is the response of GET /v1/dlq/emissions, newest event first.
type EmissionList struct {
	Emissions  []Emission   `json:"emissions"`
	Pagination Continuation `json:"pagination"`
}

// EmittedEvent is an event and its deliveries.
type EmittedEvent struct {
	EventUUID    string          `json:"event_uuid"`
	Position     int64           `json:"position"`
	Topic        string          `json:"topic"`
	TaskUUID     string          `json:"task_uuid"`
	DLQEntryUUID string          `json:"dlq_entry_uuid" doc:"Empty for an event of a task."`
	OccurredAt   time.Time       `json:"occurred_at"`
	Data         json.RawMessage `json:"data"`
	Emissions    []Emission      `json:"emissions" doc:"One per sink."`
}

// ReEmit is the body of POST /v1/dlq/emissions/re-emit: one event, or a range of positions.
type ReEmit struct {
	EventUUID    *string  `json:"event_uuid,omitempty" format:"uuid"`
	FromPosition *int64   `json:"from_position,omitempty" minimum:"1"`
	ToPosition   *int64   `json:"to_position,omitempty" minimum:"1" doc:"Inclusive."`
	Sinks        []string `json:"sinks,omitempty" maxItems:"20" doc:"Target sinks. Default: all known sinks." flag:"sink" usage:"send only to this sink; repeatable (default: all sinks)"`
	Actor        string   `json:"actor" minLength:"1" maxLength:"255" doc:"Actor for the audit log." flag:"actor"`
	Reason       string   `json:"reason" minLength:"1" maxLength:"2000" doc:"Reason for the audit log."`
}

// ReEmitted describes the requested deliveries.
type ReEmitted struct {
	Events           int      `json:"events"`
	Emissions        int      `json:"emissions" doc:"Deliveries: events times sinks."`
	Sinks            []string `json:"sinks"`
	NextFromPosition *int64   `json:"next_from_position" doc:"First position of the next request if the range exceeds the limit, or null."`
}

// AuditList is the response of GET /v1/audit, newest first.
type AuditList struct {
	Events     []tasker.AuditEvent `json:"events"`
	Pagination Continuation        `json:"pagination"`
}

// entryText returns the id of an investigation, or "" for the zero id.
func entryText(id tasker.ID) string {
	if id == (tasker.ID{}) {
		return ""
	}
	return id.String()
}

// FromEmission converts a delivery.
func FromEmission(e tasker.Emission) Emission {
	return Emission{
		EventUUID: e.UUID.String(), Position: e.Position, Topic: e.Topic, TaskUUID: e.TaskUUID.String(), DLQEntryUUID: entryText(e.EntryUUID),
		OccurredAt: e.At.UTC(), Sink: e.Sink, State: string(e.State), Attempts: e.Attempts, Refusals: e.Refusals,
		NextAttemptAt: toUTC(e.NextAttemptAt), LastAttemptAt: toUTC(e.LastAttemptAt), LastError: e.LastError, PublishedAt: toUTC(e.PublishedAt),
	}
}

// FromEvent converts an event and its deliveries.
func FromEvent(e tasker.Event, emissions []tasker.Emission) EmittedEvent {
	return EmittedEvent{
		EventUUID: e.UUID.String(), Position: e.Position, Topic: e.Topic, TaskUUID: e.TaskUUID.String(), DLQEntryUUID: entryText(e.EntryUUID),
		OccurredAt: e.At.UTC(), Data: orNull(e.Data), Emissions: convert(emissions, FromEmission),
	}
}

// IncidentList is a page of incidents, newest first.
type IncidentList struct {
	Incidents  []tasker.Incident `json:"incidents"`
	Pagination Pagination        `json:"pagination"`
}

// TryMessage is the body of POST /v1/messages/test. It contains the properties that routes match.
type TryMessage struct {
	Namespace string `json:"namespace" minLength:"1" maxLength:"128" flag:"namespace,n" usage:"namespace of the notification (required)" why:"it selects the routes"`
	Template  string `json:"template,omitempty" maxLength:"128" flag:"template" usage:"template"`
	Severity  string `json:"severity,omitempty" enum:"critical,high,medium,low" doc:"Default: low." flag:"severity" usage:"severity: critical, high, medium or low"`
	Reason    string `json:"reason,omitempty" maxLength:"64" flag:"reason" usage:"investigation reason, such as max_retries_exceeded"`
	Cause     string `json:"cause,omitempty" maxLength:"300" doc:"Sample error text." flag:"cause" usage:"error text"`
	By        string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// TriedMessage lists the routes and sinks of a test notification.
type TriedMessage struct {
	SubjectID string   `json:"subject_id" doc:"Subject of the test notification."`
	Routes    []int    `json:"routes" doc:"Numbers of the matching routes, from 1. The first is used; the others are notified if an incident has no owner."`
	Sinks     []string `json:"sinks" doc:"Sinks that receive it. tasker-ctl dlq sinks shows their state."`
}
