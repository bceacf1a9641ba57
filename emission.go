package tasker

import (
	"encoding/json"
	"time"
)

// An Event is what became of an investigation, as the outbox has it: written in
// the transaction that it tells of.
type Event struct {
	UUID      ID
	Position  int64 // in the outbox
	Topic     string
	TaskUUID  ID
	EntryUUID ID
	At        time.Time
	Data      json.RawMessage
}

// The topics of events.
const (
	EntryCreatedTopic   = "dlq.entry.created"
	EntryUpdatedTopic   = "dlq.entry.updated"
	EntryRecoveredTopic = "dlq.entry.recovered"
	EntryResolvedTopic  = "dlq.entry.resolved"
)

// Topics lists every topic.
func Topics() []string {
	return []string{EntryCreatedTopic, EntryUpdatedTopic, EntryRecoveredTopic, EntryResolvedTopic}
}

// EmissionState is how far sending an event to a sink has come.
type EmissionState string

// The states.
const (
	EmissionPending   EmissionState = "pending"
	EmissionPublished EmissionState = "published"
	EmissionSetAside  EmissionState = "set_aside" // refused too often; an operator sends it again
)

// EmissionStates lists every state.
func EmissionStates() []EmissionState {
	return []EmissionState{EmissionPending, EmissionPublished, EmissionSetAside}
}

// An Emission is what became of sending an event to one sink.
type Emission struct {
	Event
	Sink          string
	State         EmissionState
	Attempts      int
	Refusals      int
	NextAttemptAt *time.Time // of a pending one
	LastAttemptAt *time.Time
	LastError     *string
	PublishedAt   *time.Time
}

// An EmissionFilter selects and pages emissions, the newest event first.
type EmissionFilter struct {
	Sink   string // empty means any
	State  EmissionState
	Before int64 // position where the last page ended; 0 for the first page
	Limit  int
}

// A SinkState says whether a sink takes events, and how many wait for it.
type SinkState struct {
	Sink           string
	FailingSince   *time.Time // nil while it takes events
	LastError      *string
	LastSuccessAt  *time.Time
	NextTryAt      *time.Time // of a failing one
	Pending        int64      // events that it has not got; counted up to a limit
	OldestPending  *time.Time // when the first of them happened
	OldestPosition *int64     // where that is in the outbox
	SetAside       int64      // events that it refused too often; counted up to a limit
}

// An AuditEvent is something that happened to Tasker itself.
type AuditEvent struct {
	ID      int64
	Actor   string
	Action  string
	Subject string
	Data    json.RawMessage
	At      time.Time
}
