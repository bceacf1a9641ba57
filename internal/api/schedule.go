package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/overload"
)

const schedulePath = "/v1/schedules/{schedule_uuid}"

func (s *server) scheduleRoutes() []*route {
	const tag = "schedules"
	reads := []*route{
		{
			method: "GET", path: "/v1/schedules", id: "listSchedules", class: overload.Reads, permission: access.ReadTasks,
			tag:     tag,
			summary: "List schedules by namespace and name, with the results of their latest tasks",
			params: []param{
				textParam("namespace", "Filter by namespace.", 128), textParam("name", "Filter by name.", 128), boolParam("paused", "Only paused schedules."),
				idParam("after", "Page cursor: next_after of the previous page."), limitParam(defaultLimit),
			},
			responses: okResponse(apiv1.ScheduleList{}), serve: s.listSchedules,
		},
		{
			method: "GET", path: schedulePath, id: "getSchedule", class: overload.Reads, permission: access.ReadTasks, tag: tag,
			summary:   "Get a schedule with its next firing times, its latest firings and its history",
			params:    []param{intParam("next", "Number of future firing times.", 0, tasker.MaxScheduleNext, 5)},
			responses: okResponse(apiv1.ScheduleDetail{}), serve: s.getSchedule,
		},
		{
			method: "GET", path: schedulePath + "/firings", id: "listFirings", class: overload.Reads, permission: access.ReadTasks, tag: tag,
			summary: "List the firings of a schedule, newest first",
			doc:     "Each past firing time belongs to one firing of the kind clock; consecutive ones without a task for the same reason share one. Firings are kept for 30 days.",
			params: []param{
				choiceParam("outcome", "Filter by outcome.", tasker.FiringOutcomes()), timeParam("before", "Page cursor: next_before of the previous page."),
				choiceParam("before_kind", "With before: next_before_kind of the previous page.", tasker.FiringKinds()), limitParam(defaultLimit),
			},
			responses: okResponse(apiv1.FiringList{}), serve: s.listFirings,
		},
	}
	return append(reads, s.scheduleActionRoutes(tag)...)
}

func (s *server) scheduleActionRoutes(tag string) []*route {
	return []*route{
		{
			method: "POST", path: "/v1/schedules", id: "createSchedule", class: overload.Operations, permission: access.WriteSchedules, tag: tag,
			summary: "Create a schedule",
			doc: "For developers. The first firing time is the next one of the rule. If no task could be created now, because of the template or the context, the response is INVALID. " +
				"A name that exists in the namespace is a CONFLICT, so repeating is safe.",
			body: apiv1.CreateSchedule{}, responses: createdResponse(apiv1.Schedule{}), serve: withBody(s.createSchedule),
		},
		{
			method: "PUT", path: schedulePath, id: "updateSchedule", class: overload.Operations, permission: access.WriteSchedules, tag: tag,
			summary: "Update the rule, template or context of a schedule",
			doc:     "For developers. Safe to repeat without a revision. The body replaces the whole specification. Firing times until now follow the previous rule, later ones the new rule.",
			body:    apiv1.UpdateSchedule{}, responses: okResponse(apiv1.Schedule{}), serve: withBody(s.updateSchedule),
		},
		{
			method: "DELETE", path: schedulePath, id: "deleteSchedule", class: overload.Operations, permission: access.WriteSchedules, tag: tag,
			summary:   "Delete a schedule but not its tasks",
			doc:       "For developers. Its firings are kept for 30 days.",
			params:    []param{textParam("reason", "Reason, for the history.", 2000), textParam("by", "Actor, for the history.", 255)},
			responses: okResponse(apiv1.Schedule{}), serve: s.deleteSchedule,
		},
		{
			method: "POST", path: schedulePath + "/pause", id: "pauseSchedule", class: overload.Operations, permission: access.OperateSchedules, tag: tag,
			summary: "Pause a schedule, until a time or until it is resumed",
			doc:     "For operators. Safe to repeat. Firing times during the pause create no tasks; one firing records them.",
			body:    apiv1.PauseSchedule{}, responses: okResponse(apiv1.Schedule{}), serve: withBody(s.pauseSchedule),
		},
		{
			method: "POST", path: schedulePath + "/resume", id: "resumeSchedule", class: overload.Operations, permission: access.OperateSchedules, tag: tag,
			summary: "Resume a schedule",
			doc:     "For operators. A schedule that is not paused is a CONFLICT.",
			body:    apiv1.ChangeSchedule{}, responses: okResponse(apiv1.Schedule{}), serve: withBody(s.resumeSchedule),
		},
		{
			method: "POST", path: schedulePath + "/trigger", id: "triggerSchedule", class: overload.Operations, permission: access.OperateSchedules, tag: tag,
			summary: "Run a schedule now, in addition to its firing times",
			doc:     "For operators. Works for paused schedules and while a task is open. With an Idempotency-Key a repeated request creates no task and returns the first firing.",
			keyed:   true, body: apiv1.ChangeSchedule{}, responses: createdResponse(apiv1.Firing{}),
			serve: withBody(s.triggerSchedule),
		},
		{
			method: "POST", path: schedulePath + "/backfill", id: "backfillSchedule", class: overload.Operations, permission: access.OperateSchedules, tag: tag,
			summary: "Create tasks for past firing times, or list these",
			doc:     "For operators. Safe to repeat. Up to 500 firing times from from to to; all tasks are created, or none. A firing time never gets a second task. The overlap policy does not apply: the tasks start at once.",
			body:    apiv1.BackfillSchedule{}, responses: okResponse(apiv1.Backfill{}), serve: withBody(s.backfillSchedule),
		},
	}
}

func (s *server) createSchedule(x *request, req apiv1.CreateSchedule) error {
	if req.Namespace != "" {
		if err := x.checkNamespace(req.Namespace); err != nil {
			return err
		}
	}
	made, err := s.engine.CreateSchedule(x.ctx, req.Spec(), engine.ScheduleChange{Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason})
	return respondWith(x, http.StatusCreated, made, err, apiv1.FromSchedule)
}

func (s *server) listSchedules(x *request) error {
	f := tasker.ScheduleFilter{Namespace: x.queryText("namespace"), Name: x.queryText("name"), Paused: x.queryFlag("paused"), After: x.queryUUID("after"), Limit: x.queryInt("limit")}

	list, more, err := s.engine.Schedules(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.SchedulePage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextAfter = nextCursor(list, more, func(s tasker.ScheduleHealth) string { return s.UUID.String() })
	return x.respond(http.StatusOK, apiv1.ScheduleList{Schedules: convert(list, apiv1.FromScheduleHealth), Pagination: page})
}

func (s *server) getSchedule(x *request) error {
	id := x.pathUUID("schedule_uuid")
	d, err := s.engine.Schedule(x.ctx, id, x.queryInt("next"))
	return respondWith(x, http.StatusOK, d, err, apiv1.FromScheduleDetail)
}

func (s *server) listFirings(x *request) error {
	id := x.pathUUID("schedule_uuid")
	f := tasker.FiringFilter{Schedule: id, Outcome: tasker.FiringOutcome(x.queryText("outcome")), Kind: tasker.FiringKind(x.queryText("before_kind")), Limit: x.queryInt("limit")}
	if at := x.queryTime("before"); !at.IsZero() {
		f.Before = &at
	}
	list, more, err := s.engine.Firings(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.FiringPage{Limit: f.Limit, Count: len(list), HasMore: more}
	if more {
		last := list[len(list)-1]
		at, kind := last.NominalAt.UTC(), string(last.Kind)
		page.NextBefore, page.NextKind = &at, &kind
	}
	return x.respond(http.StatusOK, apiv1.FiringList{Firings: convert(list, apiv1.FromFiring), Pagination: page})
}

func (s *server) updateSchedule(x *request, req apiv1.UpdateSchedule) error {
	return x.changeSchedule(func(id tasker.ID) (tasker.Schedule, error) {
		return s.engine.UpdateSchedule(x.ctx, id, req.Spec(), req.Revision, engine.ScheduleChange{Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason})
	})
}

func (s *server) deleteSchedule(x *request) error {
	return x.changeSchedule(func(id tasker.ID) (d tasker.Schedule, err error) {
		if err := s.engine.DeleteSchedule(x.ctx, id, engine.ScheduleChange{Actor: x.resolveActorOrUnknown(x.queryText("by")), Reason: x.queryText("reason")}); err != nil {
			return d, err
		}
		detail, err := s.engine.Schedule(x.ctx, id, 0)
		return detail.Schedule, err
	})
}

func (s *server) pauseSchedule(x *request, req apiv1.PauseSchedule) error {
	return x.changeSchedule(func(id tasker.ID) (tasker.Schedule, error) {
		return s.engine.PauseSchedule(x.ctx, id, req.Until, engine.ScheduleChange{Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason})
	})
}

func (s *server) resumeSchedule(x *request, req apiv1.ChangeSchedule) error {
	return x.changeSchedule(func(id tasker.ID) (tasker.Schedule, error) {
		return s.engine.ResumeSchedule(x.ctx, id, engine.ScheduleChange{Actor: x.resolveActorOrUnknown(req.By),
			Reason: req.Reason})
	})
}

func (x *request) changeSchedule(do func(tasker.ID) (tasker.Schedule, error)) error {
	changed, err := do(x.pathUUID("schedule_uuid"))
	return respondWith(x, http.StatusOK, changed, err, apiv1.FromSchedule)
}

func (s *server) triggerSchedule(x *request, req apiv1.ChangeSchedule) error {
	f, err := s.engine.TriggerSchedule(x.ctx, x.pathUUID("schedule_uuid"),
		engine.ScheduleChange{Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason, RequestKey: x.idempotencyKey()})
	return respondWith(x, http.StatusCreated, f, err, apiv1.FromFiring)
}

func (s *server) backfillSchedule(x *request, req apiv1.BackfillSchedule) error {
	id := x.pathUUID("schedule_uuid")
	for path, at := range map[string]time.Time{"from": req.From, "to": req.To} {
		if at.Year() < 2000 || at.Year() > 2200 {
			return newInvalidBodyError([]tasker.Fault{{Path: path, Message: "must be between the years 2000 and 2200"}})
		}
	}
	b := engine.Backfill{From: req.From, To: req.To, DryRun: req.DryRun}
	list, err := s.engine.BackfillSchedule(x.ctx, id, b, engine.ScheduleChange{Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.FromBackfill(req.DryRun, list))
}
