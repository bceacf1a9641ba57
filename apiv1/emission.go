package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// CloudEvent is an event of an investigation as the world is told of it:
// CloudEvents 1.0, the same in the live feed and at every sink.
type CloudEvent struct {
	SpecVersion     string          `json:"specversion" enum:"1.0"`
	ID              string          `json:"id" doc:"The same however often and wherever the event is told."`
	Source          string          `json:"source" doc:"Which installation tells it."`
	Type            string          `json:"type" doc:"The topic after tasker, such as tasker.dlq.entry.created."`
	Subject         string          `json:"subject,omitempty" doc:"The investigation: its dlq_entry_uuid."`
	Time            time.Time       `json:"time" doc:"When it happened."`
	DataContentType string          `json:"datacontenttype"`
	TaskUUID        string          `json:"taskuuid,omitempty"`
	Sequence        string          `json:"sequence" doc:"Position of the event, in digits of one length. It rises within a task."`
	Data            json.RawMessage `json:"data,omitempty"`
}

// Emission is what became of sending an event to one sink.
type Emission struct {
	EventUUID     string     `json:"event_uuid"`
	Position      int64      `json:"position" doc:"Of the event among all events."`
	Topic         string     `json:"topic"`
	TaskUUID      string     `json:"task_uuid"`
	DLQEntryUUID  string     `json:"dlq_entry_uuid"`
	OccurredAt    time.Time  `json:"occurred_at"`
	Sink          string     `json:"sink"`
	State         string     `json:"state" enum:"pending,published,set_aside" doc:"set_aside: the sink refused it too often; it is sent again only when somebody asks for it."`
	Attempts      int        `json:"attempts"`
	Refusals      int        `json:"refusals" doc:"How often the sink refused the event itself, since it was last asked to be sent."`
	NextAttemptAt *time.Time `json:"next_attempt_at" doc:"Not before; of a pending one."`
	LastAttemptAt *time.Time `json:"last_attempt_at"`
	LastError     *string    `json:"last_error"`
	PublishedAt   *time.Time `json:"published_at" doc:"When the sink last confirmed it."`
}

// Continuation says how a list goes on whose pages are told apart by an element.
type Continuation struct {
	Limit      int    `json:"limit"`
	Count      int    `json:"count" doc:"Elements in this answer."`
	HasMore    bool   `json:"has_more" doc:"There are elements after these."`
	NextBefore *int64 `json:"next_before" doc:"What to ask for as before, to get them."`
}

// EmissionList is the answer of GET /v1/dlq/emissions, the newest event first.
type EmissionList struct {
	Emissions  []Emission   `json:"emissions"`
	Pagination Continuation `json:"pagination"`
}

// EmittedEvent is an event with what became of it at each sink.
type EmittedEvent struct {
	EventUUID    string          `json:"event_uuid"`
	Position     int64           `json:"position"`
	Topic        string          `json:"topic"`
	TaskUUID     string          `json:"task_uuid"`
	DLQEntryUUID string          `json:"dlq_entry_uuid"`
	OccurredAt   time.Time       `json:"occurred_at"`
	Data         json.RawMessage `json:"data"`
	Emissions    []Emission      `json:"emissions" doc:"One for each sink that is or was to be told."`
}

// ReEmit is the body of POST /v1/dlq/emissions/re-emit: one event, or all from one
// position to another.
type ReEmit struct {
	EventUUID    *string  `json:"event_uuid,omitempty" format:"uuid"`
	FromPosition *int64   `json:"from_position,omitempty" minimum:"1"`
	ToPosition   *int64   `json:"to_position,omitempty" minimum:"1" doc:"The last one, included."`
	Sinks        []string `json:"sinks,omitempty" maxItems:"20" doc:"Where to; to all that are known when absent."`
	Actor        string   `json:"actor" minLength:"1" maxLength:"255" doc:"Who asks for it, for the audit log."`
	Reason       string   `json:"reason" minLength:"1" maxLength:"2000" doc:"Why, for the audit log."`
}

// ReEmitted is what will be sent again.
type ReEmitted struct {
	Events           int      `json:"events"`
	Emissions        int      `json:"emissions" doc:"Events, counted once for each sink."`
	Sinks            []string `json:"sinks"`
	NextFromPosition *int64   `json:"next_from_position" doc:"The range had more events than one request takes: ask again from here. Null means that this was all."`
}

// Sink is how a sink is.
type Sink struct {
	Sink          string     `json:"sink"`
	Status        string     `json:"status" enum:"up,failing"`
	FailingSince  *time.Time `json:"failing_since"`
	LastError     *string    `json:"last_error"`
	NextTryAt     *time.Time `json:"next_try_at" doc:"Not to be tried before this, because it fails."`
	LastSuccessAt *time.Time `json:"last_success_at"`
	Pending       int64      `json:"pending" doc:"Events that are still to be sent. Counting stops at 10000."`
	OldestPending *time.Time `json:"oldest_pending" doc:"When the first of them happened."`
	SetAside      int64      `json:"set_aside" doc:"Events that it refused too often. Counting stops at 10000."`
}

// AuditEvent is something that happened to Tasker itself.
type AuditEvent struct {
	AuditID   int64           `json:"audit_id"`
	Actor     string          `json:"actor"`
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`
	Data      json.RawMessage `json:"data"`
	CreatedAt time.Time       `json:"created_at"`
}

// AuditList is the answer of GET /v1/audit, newest first.
type AuditList struct {
	Events     []AuditEvent `json:"events"`
	Pagination Continuation `json:"pagination"`
}

// FromEmission converts what became of an event at one sink.
func FromEmission(e tasker.Emission) Emission {
	return Emission{
		EventUUID: e.UUID.String(), Position: e.Position, Topic: e.Topic, TaskUUID: e.TaskUUID.String(), DLQEntryUUID: e.EntryUUID.String(),
		OccurredAt: e.At.UTC(), Sink: e.Sink, State: string(e.State), Attempts: e.Attempts, Refusals: e.Refusals,
		NextAttemptAt: utc(e.NextAttemptAt), LastAttemptAt: utc(e.LastAttemptAt), LastError: e.LastError, PublishedAt: utc(e.PublishedAt),
	}
}

// FromEvent converts an event and what became of it.
func FromEvent(e tasker.Event, emissions []tasker.Emission) EmittedEvent {
	out := EmittedEvent{
		EventUUID: e.UUID.String(), Position: e.Position, Topic: e.Topic, TaskUUID: e.TaskUUID.String(), DLQEntryUUID: e.EntryUUID.String(),
		OccurredAt: e.At.UTC(), Data: orNull(e.Data), Emissions: make([]Emission, len(emissions)),
	}
	for i, m := range emissions {
		out.Emissions[i] = FromEmission(m)
	}
	return out
}

// FromSinkState converts how a sink is.
func FromSinkState(s tasker.SinkState) Sink {
	status := "up"
	if s.FailingSince != nil {
		status = "failing"
	}
	return Sink{
		Sink: s.Sink, Status: status, FailingSince: utc(s.FailingSince), LastError: s.LastError, NextTryAt: utc(s.NextTryAt),
		LastSuccessAt: utc(s.LastSuccessAt), Pending: s.Pending, OldestPending: utc(s.OldestPending), SetAside: s.SetAside,
	}
}

// FromAuditEvent converts what happened to Tasker itself.
func FromAuditEvent(e tasker.AuditEvent) AuditEvent {
	return AuditEvent{AuditID: e.ID, Actor: e.Actor, Action: e.Action, Subject: e.Subject, Data: orNull(e.Data), CreatedAt: e.At.UTC()}
}
