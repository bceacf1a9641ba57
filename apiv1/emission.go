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
	Subject         string          `json:"subject,omitempty" doc:"The investigation: its dlq_entry_uuid. Of a message, the incident or the operation."`
	Time            time.Time       `json:"time" doc:"When it happened."`
	DataContentType string          `json:"datacontenttype"`
	TaskUUID        string          `json:"taskuuid,omitempty"`
	DedupKey        string          `json:"dedupkey,omitempty" doc:"Of a message: the same in all messages about one thing."`
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
	FailingSince  *time.Time `json:"failing_since" doc:"Since an attempt failed, or since an event is due, if it took none for a minute. Null: it works."`
	LastError     *string    `json:"last_error"`
	NextTryAt     *time.Time `json:"next_try_at" doc:"Not to be tried before this, because it fails."`
	LastSuccessAt *time.Time `json:"last_success_at"`
	Pending       int64      `json:"pending" doc:"Events that are still to be sent. Counting stops at 10000."`
	OldestPending *time.Time `json:"oldest_pending" doc:"When the first of them happened."`
	SetAside      int64      `json:"set_aside" doc:"Events that it refused too often. Counting stops at 10000."`
}

// AuditList is the answer of GET /v1/audit, newest first.
type AuditList struct {
	Events     []tasker.AuditEvent `json:"events"`
	Pagination Continuation        `json:"pagination"`
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
		LastSuccessAt: utc(s.LastSuccessAt), Pending: s.Pending, OldestPending: utc(s.OldestPending), SetAside: s.Undeliverable,
	}
}

// Incident is the cases of one namespace that people were first told of within ten minutes.
type Incident struct {
	IncidentID    string     `json:"incident_id"`
	State         string     `json:"state" enum:"open,ended"`
	NamespaceName string     `json:"namespace_name"`
	LeadCaseID    string     `json:"lead_case_id" doc:"The case that the last message named: the largest that was open then. Names, reason and error come from this case."`
	DedupKey      string     `json:"dedup_key" doc:"The same in all messages of the incident."`
	Severity      string     `json:"severity" enum:"critical,high,medium,low" doc:"The highest that one of its cases had."`
	BeganAt       time.Time  `json:"began_at" doc:"When people were first told of it."`
	EndedAt       *time.Time `json:"ended_at" doc:"When they were told that all of its cases are resolved."`
	UnownedSince  *time.Time `json:"unowned_since" doc:"Since when one of its open cases is nobody's and does not rest."`
	Escalation    int        `json:"escalation" doc:"Who was told because nobody took it: 1 the next route, 2 all routes."`
	ToldAt        time.Time  `json:"told_at" doc:"When people were last told of it."`
	TaskName      string     `json:"task_name"`
	StepName      string     `json:"step_name"`
	DLQReason     string     `json:"dlq_reason"`
	DetailCode    string     `json:"detail_code"`
	Label         string     `json:"label" doc:"The cause in a few words."`
	ErrorType     string     `json:"error_type"`
	ErrorPattern  string     `json:"error_pattern"`
	Cases         int64      `json:"cases"`
	CasesOpen     int64      `json:"cases_open"`
	CasesNotOwned int64      `json:"cases_not_owned" doc:"Of the open ones."`
	OwnedBy       []string   `json:"owned_by" doc:"Who has taken its open cases."`
	Entries       int64      `json:"entries" doc:"Open investigations of its cases; 0 when it has ended."`
	Messages      int64      `json:"messages" doc:"How often people were told of it."`
}

// IncidentList is a page of incidents, newest first.
type IncidentList struct {
	Incidents  []Incident `json:"incidents"`
	Pagination Pagination `json:"pagination"`
}

// IncidentDetail is an incident with its cases and with what people were told of it.
type IncidentDetail struct {
	Incident
	Members []tasker.IncidentCase `json:"members" doc:"Its cases, in the order in which they joined it; at most 200."`
	Told    []Message             `json:"told" doc:"Oldest first, at most 200."`
}

// Message is what people are told of an incident, an operation and the like.
type Message struct {
	MessageUUID string                   `json:"message_uuid"`
	Topic       string                   `json:"topic"`
	SubjectKind string                   `json:"subject_kind"`
	SubjectID   string                   `json:"subject_id"`
	IncidentID  *string                  `json:"incident_id"`
	DedupKey    string                   `json:"dedup_key"`
	Escalation  int                      `json:"escalation"`
	CreatedAt   time.Time                `json:"created_at"`
	RoutedAt    *time.Time               `json:"routed_at" doc:"When its sinks were chosen; a moment after it was written."`
	Data        json.RawMessage          `json:"data"`
	Emissions   []tasker.MessageEmission `json:"emissions" doc:"One for each sink that is to get it."`
}

// FromIncident converts an incident.
func FromIncident(i tasker.Incident) Incident {
	state := tasker.IncidentOpen
	if i.EndedAt != nil {
		state = tasker.IncidentEnded
	}
	return Incident{
		IncidentID: i.ID.String(), State: string(state), NamespaceName: i.Namespace, LeadCaseID: i.LeadCaseID.String(), DedupKey: i.DedupKey,
		Severity: string(i.Severity), BeganAt: i.BeganAt.UTC(), EndedAt: utc(i.EndedAt), UnownedSince: utc(i.UnownedSince), Escalation: i.Escalation,
		ToldAt: i.LastNotifiedAt.UTC(), TaskName: i.TaskName, StepName: i.StepName, DLQReason: string(i.Reason), DetailCode: i.DetailCode,
		Label: tasker.CauseOf(i.Reason, i.DetailCode).Label, ErrorType: i.ErrorType, ErrorPattern: i.ErrorPattern, Cases: i.Cases, CasesOpen: i.CasesOpen,
		CasesNotOwned: i.UnownedCases, OwnedBy: orEmpty(i.Owners), Entries: i.Entries, Messages: i.Messages,
	}
}

// FromIncidentDetail converts an incident with what is known of it.
func FromIncidentDetail(d tasker.IncidentDetail) IncidentDetail {
	out := IncidentDetail{Incident: FromIncident(d.Incident), Members: orEmpty(d.Members), Told: []Message{}}
	for _, m := range d.Notifications {
		out.Told = append(out.Told, FromMessage(m))
	}
	return out
}

// FromMessage converts a message with what became of it at each sink.
func FromMessage(m tasker.Notification) Message {
	return Message{
		MessageUUID: m.UUID.String(), Topic: m.Topic, SubjectKind: m.SubjectKind, SubjectID: m.SubjectID.String(), IncidentID: idOrNull(m.IncidentID),
		DedupKey: m.DedupKey, Escalation: m.Escalation, CreatedAt: m.At.UTC(), RoutedAt: utc(m.RoutedAt), Data: orNull(m.Data), Emissions: orEmpty(m.Emissions),
	}
}

// TryMessage is the body of POST /v1/messages/test: what the message pretends to be about, for
// the conditions of routes.
type TryMessage struct {
	Namespace string `json:"namespace" minLength:"1" maxLength:"128"`
	Template  string `json:"template,omitempty" maxLength:"128"`
	Severity  string `json:"severity,omitempty" enum:"critical,high,medium,low" doc:"low when absent."`
	Reason    string `json:"reason,omitempty" maxLength:"64"`
	Cause     string `json:"cause,omitempty" maxLength:"300" doc:"Stands for the text of an error."`
	By        string `json:"by,omitempty" maxLength:"255" doc:"Who tries them."`
}

// TriedMessage is which sinks get a message with which somebody tries the routes.
type TriedMessage struct {
	SubjectID string   `json:"subject_id" doc:"Of the message."`
	Routes    []int    `json:"routes" doc:"The numbers of those that are for it, from 1. The first counts; the others are told when nobody takes an incident."`
	Sinks     []string `json:"sinks" doc:"They are sent it now; tasker-ctl dlq sinks shows how they are."`
}
