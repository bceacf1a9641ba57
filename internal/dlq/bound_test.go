package dlq_test

import (
	"strings"
	"testing"

	"tasker.example/tasker"
)

// However often somebody changes an investigation, its history has a bound. It can be
// ended all the same.
func TestChangesOfAnInvestigationAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed()
	h.Exec(`INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status)
		SELECT $1, 'updated', 'ann', 'pending', 'pending' FROM generate_series(1, $2::int)`, e.UUID, tasker.MaxEntryChanges-1)
	update := func(u tasker.EntryUpdate) error {
		u.Actor = "ann"
		_, _, err := h.DLQ.Update(t.Context(), e.UUID, u)
		return err
	}
	h.Must(update(tasker.EntryUpdate{ResolvedBy: new("ann")})) // has no notes, and so no bytes
	err := update(tasker.EntryUpdate{ResolvedBy: new("bob")})
	if tasker.CodeOf(err) != tasker.TooLarge || !strings.Contains(err.Error(), "1000 times") {
		t.Errorf("one more change: %v", err)
	}
	h.Must(update(tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("done"), ResolvedBy: new("ann")}))
}

// Investigations that somebody opens and ends again and again have a bound, and those that the
// engine opens are none of them.
func TestInvestigationsByHandAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed() // by the engine
	h.update(e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("done"), Actor: "ann"})
	opening := tasker.NewEntry{Actor: "ann", Reason: "look"}
	for range tasker.MaxEntriesByHand {
		last, err := h.DLQ.Open(t.Context(), e.TaskUUID, opening)
		h.Must(err)
		h.update(last.UUID, tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("done"), Actor: "ann"})
	}
	if _, err := h.DLQ.Open(t.Context(), e.TaskUUID, opening); tasker.CodeOf(err) != tasker.TooLarge || !strings.Contains(err.Error(), "100 investigations") {
		t.Errorf("one more: %v", err)
	}
}
