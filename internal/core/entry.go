package core

import "tasker.example/tasker"

// EntryEvent is an event that ends an investigation.
type EntryEvent string

// The events of an investigation. Adding a note is not an event, since it does not change the
// status.
const (
	SettleEntry EntryEvent = "manually_resolved"
	FailEntry   EntryEvent = "permanently_failed"
	CancelEntry EntryEvent = "cancelled"
)

// EntryMoves contains the legal transitions of an investigation. An ended investigation never changes
// again; a new problem gets a new investigation.
var EntryMoves = Table[tasker.ResolutionStatus, EntryEvent]{
	{tasker.EntryPending, SettleEntry}: tasker.EntryManuallyResolved,
	{tasker.EntryPending, FailEntry}:   tasker.EntryPermanentlyFailed,
	{tasker.EntryPending, CancelEntry}: tasker.EntryCancelled,
}
