package api

import (
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) openEntry(x *request, req apiv1.OpenEntry) (tasker.Entry, error) {
	task := x.pathUUID("task_uuid")
	return s.dlq.Open(x.ctx, task, tasker.NewEntry{Actor: x.resolveActor(req.CreatedBy), Reason: req.Reason, Metadata: nullToNil(req.Metadata), RequestKey: x.idempotencyKey()})
}

func (s *server) getEntry(x *request, q apiv1.EntryQuery) (tasker.Entry, error) {
	return s.db.EntryFrom(x.ctx, x.pathUUID("dlq_entry_uuid"), q.HistoryOffset)
}

func (s *server) updateEntry(x *request, req apiv1.UpdateEntry) (apiv1.UpdatedEntry, error) {
	id := x.pathUUID("dlq_entry_uuid")
	u := tasker.EntryUpdate{Notes: req.ResolutionNotes, ResolvedBy: x.resolveOptionalActor(req.ResolvedBy), Metadata: nullToNil(req.Metadata), Actor: x.resolveActor(req.UpdatedBy), IfUnchangedSince: req.ExpectedUpdatedAt}
	if req.ResolutionStatus != nil {
		u.Status = new(tasker.ResolutionStatus(*req.ResolutionStatus))
	}
	u.RequestKey, u.Compensate = x.idempotencyKey(), req.Compensate
	e, warnings, err := s.dlq.Update(x.ctx, id, u)
	message := "investigation updated"
	if u.Status != nil {
		message = "investigation ended as " + string(e.ResolutionStatus)
	}
	return apiv1.UpdatedEntry{Success: true, Message: message, Warnings: orEmpty(warnings), Entry: e}, err
}

func (s *server) listInvestigationQueue(x *request, f tasker.InvestigationFilter) ([]tasker.InvestigationQueueEntry, error) {
	list, _, err := s.db.InvestigationQueue(x.ctx, f)
	return list, err
}

func (s *server) listRelatedEntries(x *request, q apiv1.RelatedQuery) (tasker.RelatedEntries, error) {
	return s.db.RelatedEntries(x.ctx, x.pathUUID("dlq_entry_uuid"), q.Limit)
}

// countEntries returns counts for intervals that start at multiples of their width, so that
// repeated requests use the same intervals.
func (s *server) countEntries(x *request, q apiv1.EntryCountQuery) ([]tasker.EntryCount, error) {
	back := time.Duration(q.Intervals-1) * q.Interval
	return s.db.EntryCounts(x.ctx, time.Now().Truncate(q.Interval).Add(-back), q.Interval)
}

func (s *server) getEntryTimes(x *request, q apiv1.EntryTimesQuery) (tasker.ResolutionTimes, error) {
	return s.db.EntryTimes(x.ctx, time.Now().Truncate(time.Minute).Add(-q.Window))
}
