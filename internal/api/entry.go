package api

import (
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// triageLimit is how many lines the queue and the staleness monitor have by
// themselves.
const triageLimit = 100

func (s *server) listEntries(x *request) error {
	list, err := s.db.Entries(x.ctx, tasker.EntryFilter{
		Status: tasker.ResolutionStatus(x.text("resolution_status")), Reason: tasker.Reason(x.text("dlq_reason")),
		Limit: x.int("limit"), Offset: x.int("offset"),
	})
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, convert(list, apiv1.FromEntry))
}

func (s *server) entryOfTask(x *request) error {
	task, err := x.id("task_uuid")
	if err != nil {
		return err
	}
	e, err := s.db.EntryOfTask(x.ctx, task)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromEntry(e))
}

func (s *server) openEntry(x *request) error {
	task, err := x.id("task_uuid")
	if err != nil {
		return err
	}
	var req apiv1.OpenEntry
	if err := x.read(&req); err != nil {
		return err
	}
	e, err := s.dlq.Open(x.ctx, task, tasker.EntryOpening{Actor: req.CreatedBy, Reason: req.Reason, Metadata: given(req.Metadata), RequestKey: x.requestKey()})
	if err != nil {
		return err
	}
	return x.answer(http.StatusCreated, apiv1.FromEntry(e))
}

func (s *server) oneEntry(x *request) error {
	id, err := x.id("dlq_entry_uuid")
	if err != nil {
		return err
	}
	e, err := s.db.EntryFrom(x.ctx, id, x.int("history_offset"))
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromEntry(e))
}

func (s *server) updateEntry(x *request) error {
	id, err := x.id("dlq_entry_uuid")
	if err != nil {
		return err
	}
	var req apiv1.UpdateEntry
	if err := x.read(&req); err != nil {
		return err
	}
	u := tasker.EntryUpdate{Notes: req.ResolutionNotes, ResolvedBy: req.ResolvedBy, Metadata: given(req.Metadata), Actor: req.UpdatedBy, Unchanged: req.ExpectedUpdatedAt}
	if req.ResolutionStatus != nil {
		status := tasker.ResolutionStatus(*req.ResolutionStatus)
		u.Status = &status
	}
	u.RequestKey = x.requestKey()
	e, warnings, err := s.dlq.Update(x.ctx, id, u)
	if err != nil {
		return err
	}
	message := "investigation updated"
	if u.Status != nil {
		message = "investigation ended as " + string(e.ResolutionStatus)
	}
	return x.answer(http.StatusOK, apiv1.UpdatedEntry{
		Success: true, Message: message, Warnings: append([]string{}, warnings...), Entry: apiv1.FromEntry(e),
	})
}

func (s *server) entryStats(x *request) error {
	list, err := s.db.EntryStats(x.ctx)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, convert(list, apiv1.FromEntryStats))
}

func (s *server) staleness(x *request) error {
	list, err := s.db.Staleness(x.ctx, x.int("limit"))
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, convert(list, apiv1.FromStalenessLine))
}
