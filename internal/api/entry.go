package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// triageLimit is the default page size of the queue and the staleness monitor.
const triageLimit = 100

func (s *server) listEntries(x *request) error {
	list, err := s.db.Entries(x.ctx, tasker.EntryFilter{
		Status: tasker.ResolutionStatus(x.queryText("resolution_status")), Reason: tasker.Reason(x.queryText("dlq_reason")),
		Limit: x.queryInt("limit"), Offset: x.queryInt("offset"),
	})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, convert(list, apiv1.FromEntry))
}

func (s *server) openEntry(x *request, req apiv1.OpenEntry) error {
	task := x.pathUUID("task_uuid")
	e, err := s.dlq.Open(x.ctx, task, tasker.NewEntry{Actor: x.resolveActor(req.CreatedBy), Reason: req.Reason, Metadata: nullToNil(req.Metadata), RequestKey: x.idempotencyKey()})
	return respondWith(x, http.StatusCreated, e, err, apiv1.FromEntry)
}

func (s *server) getEntry(x *request) error {
	id := x.pathUUID("dlq_entry_uuid")
	e, err := s.db.EntryFrom(x.ctx, id, x.queryInt("history_offset"))
	return respondWith(x, http.StatusOK, e, err, apiv1.FromEntry)
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
		Success: true, Message: message, Warnings: append([]string{}, warnings...), Entry: apiv1.FromEntry(e),
	})
}

func (s *server) getEntryStats(x *request) error {
	list, err := s.db.EntryStats(x.ctx)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

func (s *server) listStaleTasks(x *request) error {
	list, err := s.db.Staleness(x.ctx, tasker.StalenessFilter{
		Health: tasker.Health(x.queryText("health_status")), Namespace: x.queryText("namespace"), Name: x.queryText("name"),
		Limit: x.queryInt("limit"), Offset: x.queryInt("offset"),
	})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

const queuesLimit = 100

func (s *server) listQueues(x *request) error {
	list, err := s.db.Queues(x.ctx, x.queryText("namespace"), x.queryInt("limit"))
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

const maxIntervals = 1000

// investigationParams returns the query parameters for the fields of [tasker.InvestigationFilter].
func investigationParams() []param {
	return []param{
		choiceParam("dlq_reason", "Filter by reason.", tasker.Reasons()),
		textParam("namespace", "Filter by namespace.", 128), textParam("name", "Filter by template.", 128),
		idParam("case", "Filter by case."), idParam("case_key", "Deprecated: filter by case_key."),
		choiceParam("current_state", "Filter by current state of the task.", tasker.TaskStates()),
		intParam("min_age_minutes", "Filter by minimum age.", 0, maxAgeMinutes, 0),
		textParam("text", "Filter by text in namespace, template, step, error pattern or assignee, or by six or more digits of an id.", 200),
		boolParam("recovered", "Filter by automatic recovery."),
		limitParam(triageLimit), offsetParam(),
	}
}

func taskSearchParams() []param {
	return []param{
		textParam("tag", "Filter by tag of the task.", 128).withMaxValues(tasker.MaxSearchTags), textParam("correlation_id", "Filter by correlation id of the task.", 128),
		textParam("attribute", "Filter by search attribute of the task, as NAME:VALUE, such as customer:4711. Values of numbers and times may begin with >, >=, < or <=.", 400).
			withMaxValues(tasker.MaxSearchConditions),
	}
}

const maxAgeMinutes = 10 * 365 * 24 * 60

func (x *request) readInvestigationFilter() tasker.InvestigationFilter {
	return tasker.InvestigationFilter{
		Reason: tasker.Reason(x.queryText("dlq_reason")), Namespace: x.queryText("namespace"), Name: x.queryText("name"), Text: x.queryText("text"),
		State: tasker.TaskState(x.queryText("current_state")), Recovered: x.queryBool("recovered"), Age: time.Duration(x.queryInt("min_age_minutes")) * time.Minute,
		Case: x.queryUUID("case"), CaseKey: x.queryUUID("case_key"), Limit: x.queryInt("limit"), Offset: x.queryInt("offset"),
	}
}

func (s *server) listInvestigationQueue(x *request) error {
	f := x.readInvestigationFilter()
	f.Tags, f.CorrelationID = dropEmpty(x.queryTexts("tag")), x.queryText("correlation_id")
	var err error
	if f.Attributes, err = tasker.ParseAttributeFilters(dropEmpty(x.queryTexts("attribute"))); err != nil {
		return err
	}
	list, _, err := s.db.InvestigationQueue(x.ctx, f)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, convert(list, apiv1.FromInvestigationQueueEntry))
}

func (s *server) listRelatedEntries(x *request) error {
	related, err := s.db.RelatedEntries(x.ctx, x.pathUUID("dlq_entry_uuid"), x.queryInt("limit"))
	return respondWith(x, http.StatusOK, related, err, apiv1.FromRelated)
}

// countEntries returns counts for intervals that start at multiples of their width, so that
// repeated requests use the same intervals.
func (s *server) countEntries(x *request) error {
	width := time.Duration(x.queryInt("interval_minutes")) * time.Minute
	back := time.Duration(x.queryInt("intervals")-1) * width
	list, err := s.db.EntryCounts(x.ctx, time.Now().Truncate(width).Add(-back), width)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}

func (s *server) getEntryTimes(x *request) error {
	t, err := s.db.EntryTimes(x.ctx, time.Now().Truncate(time.Minute).Add(-time.Duration(x.queryInt("minutes"))*time.Minute))
	return respondWith(x, http.StatusOK, t, err, apiv1.FromEntryTimes)
}
