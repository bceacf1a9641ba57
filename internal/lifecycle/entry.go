package lifecycle

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

// Entry contains the legal transitions of an investigation. An investigation that has ended never
// changes again; a new problem gets a new investigation.
var Entry = Table[tasker.ResolutionStatus, EntryEvent]{
	{tasker.EntryPending, SettleEntry}: tasker.EntryManuallyResolved,
	{tasker.EntryPending, FailEntry}:   tasker.EntryPermanentlyFailed,
	{tasker.EntryPending, CancelEntry}: tasker.EntryCancelled,
}
