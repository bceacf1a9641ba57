package lifecycle

import "tasker.example/tasker"

// EntryEvent is an event in the life of an investigation.
type EntryEvent string

// The events of an investigation. A note does not change its status.
const (
	SettleEntry EntryEvent = "manually_resolved"
	FailEntry   EntryEvent = "permanently_failed"
	CancelEntry EntryEvent = "cancelled"
)

// Entry contains the legal transitions of an investigation. An ended one never changes; a new
// problem gets a new investigation.
var Entry = Table[tasker.ResolutionStatus, EntryEvent]{
	{tasker.EntryPending, SettleEntry}: tasker.EntryManuallyResolved,
	{tasker.EntryPending, FailEntry}:   tasker.EntryPermanentlyFailed,
	{tasker.EntryPending, CancelEntry}: tasker.EntryCancelled,
}
