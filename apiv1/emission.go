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

// Sink is the state of a sink.
type Sink struct {
	Sink          string     `json:"sink"`
	Status        string     `json:"status" enum:"up,failing"`
	FailingSince  *time.Time `json:"failing_since" doc:"Since an attempt failed, or since the oldest due event if none was accepted for a minute. Null if it works."`
	LastError     *string    `json:"last_error"`
	NextTryAt     *time.Time `json:"next_try_at" doc:"Earliest time of the next attempt, while it fails."`
	LastSuccessAt *time.Time `json:"last_success_at"`
	Pending       int64      `json:"pending" doc:"Undelivered events. Counting stops at 10000."`
	OldestPending *time.Time `json:"oldest_pending" doc:"Time of the oldest undelivered event."`
	SetAside      int64      `json:"set_aside" doc:"Events that it rejected too often. Counting stops at 10000."`
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

// FromSinkState converts the state of a sink.
func FromSinkState(s tasker.SinkState) Sink {
	status := "up"
	if s.FailingSince != nil {
		status = "failing"
	}
	return Sink{
		Sink: s.Sink, Status: status, FailingSince: toUTC(s.FailingSince), LastError: s.LastError,
		NextTryAt:     toUTC(s.NextTryAt),
		LastSuccessAt: toUTC(s.LastSuccessAt), Pending: s.Pending, OldestPending: toUTC(s.OldestPending), SetAside: s.Undeliverable,
	}
}

// Incident groups the cases of one namespace whose first notifications were sent within ten
// minutes.
type Incident struct {
	IncidentID    string     `json:"incident_id"`
	State         string     `json:"state" enum:"open,ended"`
	NamespaceName string     `json:"namespace_name"`
	LeadCaseID    string     `json:"lead_case_id" doc:"Case named by the latest notification: the largest open one at that time. Names, reason and error come from this case."`
	DedupKey      string     `json:"dedup_key" doc:"Identical in all notifications of the incident."`
	Severity      string     `json:"severity" enum:"critical,high,medium,low" doc:"Highest severity of its cases so far."`
	BeganAt       time.Time  `json:"began_at" doc:"When the first notification was sent."`
	EndedAt       *time.Time `json:"ended_at" doc:"When the notification of its resolution was sent."`
	UnownedSince  *time.Time `json:"unowned_since" doc:"Since when an open case that is not snoozed has had no owner."`
	Escalation    int        `json:"escalation" doc:"Additional routes notified because it has no owner: 1 the next route, 2 all routes."`
	ToldAt        time.Time  `json:"told_at" doc:"When the latest notification was sent."`
	TaskName      string     `json:"task_name"`
	StepName      string     `json:"step_name"`
	DLQReason     string     `json:"dlq_reason"`
	DetailCode    string     `json:"detail_code"`
	Label         string     `json:"label" doc:"Short description of the cause."`
	ErrorType     string     `json:"error_type"`
	ErrorPattern  string     `json:"error_pattern"`
	Cases         int64      `json:"cases"`
	CasesOpen     int64      `json:"cases_open"`
	CasesNotOwned int64      `json:"cases_not_owned" doc:"Open cases without an owner."`
	OwnedBy       []string   `json:"owned_by" doc:"Owners of its open cases."`
	Entries       int64      `json:"entries" doc:"Open investigations of its cases. 0 after the end."`
	Messages      int64      `json:"messages" doc:"Number of notifications."`
}

// IncidentList is a page of incidents, newest first.
type IncidentList struct {
	Incidents  []Incident `json:"incidents"`
	Pagination Pagination `json:"pagination"`
}

// IncidentDetail is an incident with its cases and notifications.
type IncidentDetail struct {
	Incident
	Members []tasker.IncidentCase `json:"members" doc:"In the order in which they joined, at most 200."`
	Told    []Message             `json:"told" doc:"Oldest first, at most 200."`
}

// Message is a notification, for example about an incident or an operation.
type Message struct {
	MessageUUID string                   `json:"message_uuid"`
	Topic       string                   `json:"topic"`
	SubjectKind string                   `json:"subject_kind"`
	SubjectID   string                   `json:"subject_id"`
	IncidentID  *string                  `json:"incident_id"`
	DedupKey    string                   `json:"dedup_key"`
	Escalation  int                      `json:"escalation"`
	CreatedAt   time.Time                `json:"created_at"`
	RoutedAt    *time.Time               `json:"routed_at" doc:"When its sinks were selected."`
	Data        json.RawMessage          `json:"data"`
	Emissions   []tasker.MessageEmission `json:"emissions" doc:"One per sink."`
}

// FromIncident converts an incident.
func FromIncident(i tasker.Incident) Incident {
	state := tasker.IncidentOpen
	if i.EndedAt != nil {
		state = tasker.IncidentEnded
	}
	return Incident{
		IncidentID: i.ID.String(), State: string(state), NamespaceName: i.Namespace, LeadCaseID: i.LeadCaseID.String(), DedupKey: i.DedupKey,
		Severity: string(i.Severity), BeganAt: i.BeganAt.UTC(), EndedAt: toUTC(i.EndedAt), UnownedSince: toUTC(i.UnownedSince), Escalation: i.Escalation,
		ToldAt: i.LastNotifiedAt.UTC(), TaskName: i.TaskName, StepName: i.StepName, DLQReason: string(i.Reason), DetailCode: i.DetailCode,
		Label: tasker.CauseOf(i.Reason, i.DetailCode).Label, ErrorType: i.ErrorType, ErrorPattern: i.ErrorPattern, Cases: i.Cases, CasesOpen: i.CasesOpen,
		CasesNotOwned: i.UnownedCases, OwnedBy: orEmpty(i.Owners), Entries: i.Entries, Messages: i.Messages,
	}
}

// FromIncidentDetail converts an incident with its details.
func FromIncidentDetail(d tasker.IncidentDetail) IncidentDetail {
	return IncidentDetail{Incident: FromIncident(d.Incident), Members: orEmpty(d.Members), Told: convert(d.Notifications, FromMessage)}
}

// FromMessage converts a notification and its deliveries.
func FromMessage(m tasker.Notification) Message {
	return Message{
		MessageUUID: m.UUID.String(), Topic: m.Topic, SubjectKind: m.SubjectKind, SubjectID: m.SubjectID.String(), IncidentID: idOrNull(m.IncidentID),
		DedupKey: m.DedupKey, Escalation: m.Escalation, CreatedAt: m.At.UTC(), RoutedAt: toUTC(m.RoutedAt), Data: orNull(m.Data), Emissions: orEmpty(m.Emissions),
	}
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
