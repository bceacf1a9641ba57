package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) listEntries(x *request, f tasker.EntryFilter) error {
	list, err := s.db.Entries(x.ctx, f)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

func (s *server) openEntry(x *request, req apiv1.OpenEntry) error {
	task := x.pathUUID("task_uuid")
	e, err := s.dlq.Open(x.ctx, task, tasker.NewEntry{Actor: x.resolveActor(req.CreatedBy), Reason: req.Reason, Metadata: nullToNil(req.Metadata), RequestKey: x.idempotencyKey()})
	return x.respondResult(http.StatusCreated, e, err)
}

func (s *server) getEntry(x *request, q apiv1.EntryQuery) error {
	e, err := s.db.EntryFrom(x.ctx, x.pathUUID("dlq_entry_uuid"), q.HistoryOffset)
	return x.respondResult(http.StatusOK, e, err)
}

func (s *server) updateEntry(x *request, req apiv1.UpdateEntry) error {
	id := x.pathUUID("dlq_entry_uuid")
	u := tasker.EntryUpdate{Notes: req.ResolutionNotes, ResolvedBy: x.resolveOptionalActor(req.ResolvedBy), Metadata: nullToNil(req.Metadata), Actor: x.resolveActor(req.UpdatedBy), IfUnchangedSince: req.ExpectedUpdatedAt}
	if req.ResolutionStatus != nil {
		status := tasker.ResolutionStatus(*req.ResolutionStatus)
		u.Status = &status
	}
	u.RequestKey, u.Compensate = x.idempotencyKey(), req.Compensate
	e, warnings, err := s.dlq.Update(x.ctx, id, u)
	if err != nil {
		return err
	}
	message := "investigation updated"
	if u.Status != nil {
		message = "investigation ended as " + string(e.ResolutionStatus)
	}
	return x.respond(http.StatusOK, apiv1.UpdatedEntry{
		Success: true, Message: message, Warnings: append([]string{}, warnings...), Entry: e,
	})
}

func (s *server) getEntryStats(x *request) error {
	list, err := s.db.EntryStats(x.ctx)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

func (s *server) listStaleTasks(x *request, f tasker.StalenessFilter) error {
	list, err := s.db.Staleness(x.ctx, f)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

func (s *server) listQueues(x *request, q apiv1.QueueQuery) error {
	list, err := s.db.Queues(x.ctx, q.Namespace, q.Limit)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

func (s *server) listInvestigationQueue(x *request, f tasker.InvestigationFilter) error {
	list, _, err := s.db.InvestigationQueue(x.ctx, f)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

func (s *server) listRelatedEntries(x *request, q apiv1.RelatedQuery) error {
	related, err := s.db.RelatedEntries(x.ctx, x.pathUUID("dlq_entry_uuid"), q.Limit)
	return x.respondResult(http.StatusOK, related, err)
}

// countEntries returns counts for intervals that start at multiples of their width, so that
// repeated requests use the same intervals.
func (s *server) countEntries(x *request, q apiv1.EntryCountQuery) error {
	back := time.Duration(q.Intervals-1) * q.Interval
	list, err := s.db.EntryCounts(x.ctx, time.Now().Truncate(q.Interval).Add(-back), q.Interval)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

func (s *server) getEntryTimes(x *request, q apiv1.EntryTimesQuery) error {
	t, err := s.db.EntryTimes(x.ctx, time.Now().Truncate(time.Minute).Add(-q.Window))
	return x.respondResult(http.StatusOK, t, err)
}
