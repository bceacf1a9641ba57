package lifecycle

import "tasker.example/tasker"

// EntryEvent is what can happen to an investigation.
type EntryEvent string

// The events of an entry. A note changes nothing about its status.
const (
	SettleEntry EntryEvent = "manually_resolved"
	FailEntry   EntryEvent = "permanently_failed"
	CancelEntry EntryEvent = "cancelled"
)

// Entry is every legal move of an entry: an ended one stays as it is, a new
// problem is a new entry.
var Entry = Table[tasker.ResolutionStatus, EntryEvent]{
	{tasker.EntryPending, SettleEntry}: tasker.EntryManuallyResolved,
	{tasker.EntryPending, FailEntry}:   tasker.EntryPermanentlyFailed,
	{tasker.EntryPending, CancelEntry}: tasker.EntryCancelled,
}
