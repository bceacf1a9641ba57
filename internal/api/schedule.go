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
			method: "GET", path: "/v1/schedules", id: "listSchedules", class: overload.Reads, needs: access.ReadTasks, tag: tag,
			summary: "List schedules, by namespace and name, with how their last tasks went",
			params: []param{
				textParam("namespace", "Only those of this namespace.", 128), textParam("name", "Only those of this name.", 128), boolParam("paused", "Only those that are paused."),
				idParam("after", "Only those behind this schedule: next_after of the page before."), limitParam(defaultLimit),
			},
			answers: map[int]any{http.StatusOK: apiv1.ScheduleList{}},
			serve:   s.listSchedules,
		},
		{
			method: "GET", path: schedulePath, id: "getSchedule", class: overload.Reads, needs: access.ReadTasks, tag: tag,
			summary: "One schedule with its next instants, its last firings and its history",
			params:  []param{intParam("next", "How many of the next instants.", 0, tasker.MaxScheduleNext, 5)},
			answers: map[int]any{http.StatusOK: apiv1.ScheduleDetail{}},
			serve:   s.oneSchedule,
		},
		{
			method: "GET", path: schedulePath + "/firings", id: "listFirings", class: overload.Reads, needs: access.ReadTasks, tag: tag,
			summary: "List what became of the instants of a schedule, newest first",
			about:   "Each instant that has come is in one firing of the kind clock; instants in a row that made no task for the same reason share one. Firings are kept for 30 days.",
			params: []param{
				choiceParam("outcome", "Only those with this outcome.", tasker.FiringOutcomes()), timeParam("before", "Only those behind this instant: next_before of the page before."),
				choiceParam("before_kind", "With before: next_before_kind of the page before.", tasker.FiringKinds()), limitParam(defaultLimit),
			},
			answers: map[int]any{http.StatusOK: apiv1.FiringList{}},
			serve:   s.listFirings,
		},
	}
	return append(reads, s.scheduleActionRoutes(tag)...)
}

func (s *server) scheduleActionRoutes(tag string) []*route {
	return []*route{
		{
			method: "POST", path: "/v1/schedules", id: "createSchedule", class: overload.Operations, needs: access.WriteSchedules, tag: tag,
			summary: "Make tasks of a template at the instants of a rule",
			about: "For developers. The first instant is the next one by the rule. A schedule of which no task could be made now, because of its template or its context, is INVALID. " +
				"A name that the namespace has already is a CONFLICT, so repeating is safe.",
			body:    apiv1.CreateSchedule{},
			answers: map[int]any{http.StatusCreated: apiv1.Schedule{}},
			serve:   withBody(s.createSchedule),
		},
		{
			method: "PUT", path: schedulePath, id: "updateSchedule", class: overload.Operations, needs: access.WriteSchedules, tag: tag,
			summary: "Give a schedule another rule, template or context",
			about:   "For developers: safe to repeat without a revision. The body is the whole of what people say of the schedule. Instants until now are those of the rule before; the next is the next one by the new rule.",
			body:    apiv1.UpdateSchedule{},
			answers: map[int]any{http.StatusOK: apiv1.Schedule{}},
			serve:   withBody(s.updateSchedule),
		},
		{
			method: "DELETE", path: schedulePath, id: "deleteSchedule", class: overload.Operations, needs: access.WriteSchedules, tag: tag,
			summary: "Remove a schedule: its tasks go on",
			about:   "For developers. Its firings can be read until they are removed by age.",
			params:  []param{textParam("reason", "Why, for the history.", 2000), textParam("by", "Who, for the history.", 255)},
			answers: map[int]any{http.StatusOK: apiv1.Schedule{}},
			serve:   s.deleteSchedule,
		},
		{
			method: "POST", path: schedulePath + "/pause", id: "pauseSchedule", class: overload.Operations, needs: access.OperateSchedules, tag: tag,
			summary: "Have a schedule make no tasks by itself, for a while or until it is resumed",
			about:   "For operators: safe to repeat. The instants within the pause make no tasks; one firing says so.",
			body:    apiv1.PauseSchedule{},
			answers: map[int]any{http.StatusOK: apiv1.Schedule{}},
			serve:   withBody(s.pauseSchedule),
		},
		{
			method: "POST", path: schedulePath + "/resume", id: "resumeSchedule", class: overload.Operations, needs: access.OperateSchedules, tag: tag,
			summary: "End the pause of a schedule",
			about:   "For operators. A schedule that is not paused is a CONFLICT.",
			body:    apiv1.ChangeSchedule{},
			answers: map[int]any{http.StatusOK: apiv1.Schedule{}},
			serve:   withBody(s.resumeSchedule),
		},
		{
			method: "POST", path: schedulePath + "/trigger", id: "triggerSchedule", class: overload.Operations, needs: access.OperateSchedules, tag: tag,
			summary: "Make a task of a schedule at once, beside those of its instants",
			about:   "For operators: also when the schedule is paused or a task of it has not ended. Under an Idempotency-Key the same request again makes no other task and answers with the firing that it made.",
			keyed:   true,
			body:    apiv1.ChangeSchedule{},
			answers: map[int]any{http.StatusCreated: apiv1.Firing{}},
			serve:   withBody(s.triggerSchedule),
		},
		{
			method: "POST", path: schedulePath + "/backfill", id: "backfillSchedule", class: overload.Operations, needs: access.OperateSchedules, tag: tag,
			summary: "Make the tasks of instants in the past that have none, or say which those are",
			about:   "For operators: safe to repeat. At most 500 instants, from from to to; all of the tasks are made, or none. An instant that has its task gets no other. Overlap does not matter: the tasks start at once.",
			body:    apiv1.BackfillSchedule{},
			answers: map[int]any{http.StatusOK: apiv1.Backfill{}},
			serve:   withBody(s.backfillSchedule),
		},
	}
}

func (s *server) createSchedule(x *request, req apiv1.CreateSchedule) error {
	if req.Namespace != "" {
		if err := x.mayUse(req.Namespace); err != nil {
			return err
		}
	}
	made, err := s.engine.CreateSchedule(x.ctx, req.Spec(), engine.ScheduleChange{Actor: x.scheduler(req.By), Reason: req.Reason})
	return respondWith(x, http.StatusCreated, made, err, apiv1.FromSchedule)
}

// scheduler is who changes a schedule, by their name if they have one.
func (x *request) scheduler(by string) string {
	if actor := x.actor(by); actor != "" {
		return actor
	}
	return unknownActor
}

func (s *server) listSchedules(x *request) error {
	f := tasker.ScheduleFilter{Namespace: x.text("namespace"), Name: x.text("name"), Paused: isTrue(x.bool("paused")), Limit: x.int("limit")}
	if text := x.text("after"); text != "" {
		id, err := parseID(text)
		if err != nil {
			return err
		}
		f.After = &id
	}
	list, more, err := s.engine.Schedules(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.SchedulePage{Limit: f.Limit, Count: len(list), HasMore: more}
	if more {
		last := list[len(list)-1].UUID.String()
		page.NextAfter = &last
	}
	return x.answer(http.StatusOK, apiv1.ScheduleList{Schedules: convert(list, apiv1.FromScheduleHealth), Pagination: page})
}

func (s *server) oneSchedule(x *request) error {
	id := x.id("schedule_uuid")
	d, err := s.engine.Schedule(x.ctx, id, x.int("next"))
	return respondWith(x, http.StatusOK, d, err, apiv1.FromScheduleDetail)
}

func (s *server) listFirings(x *request) error {
	id := x.id("schedule_uuid")
	f := tasker.FiringFilter{Schedule: id, Outcome: tasker.FiringOutcome(x.text("outcome")), Kind: tasker.FiringKind(x.text("before_kind")), Limit: x.int("limit")}
	if at := x.time("before"); !at.IsZero() {
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
	return x.answer(http.StatusOK, apiv1.FiringList{Firings: convert(list, apiv1.FromFiring), Pagination: page})
}

func (s *server) updateSchedule(x *request, req apiv1.UpdateSchedule) error {
	return x.changeSchedule(http.StatusOK, func(id tasker.ID) (tasker.Schedule, error) {
		return s.engine.UpdateSchedule(x.ctx, id, req.Spec(), req.Revision, engine.ScheduleChange{Actor: x.scheduler(req.By), Reason: req.Reason})
	})
}

func (s *server) deleteSchedule(x *request) error {
	return x.changeSchedule(http.StatusOK, func(id tasker.ID) (d tasker.Schedule, err error) {
		if err := s.engine.DeleteSchedule(x.ctx, id, engine.ScheduleChange{Actor: x.scheduler(x.text("by")), Reason: x.text("reason")}); err != nil {
			return d, err
		}
		detail, err := s.engine.Schedule(x.ctx, id, 0)
		return detail.Schedule, err
	})
}

func (s *server) pauseSchedule(x *request, req apiv1.PauseSchedule) error {
	return x.changeSchedule(http.StatusOK, func(id tasker.ID) (tasker.Schedule, error) {
		return s.engine.PauseSchedule(x.ctx, id, req.Until, engine.ScheduleChange{Actor: x.scheduler(req.By), Reason: req.Reason})
	})
}

func (s *server) resumeSchedule(x *request, req apiv1.ChangeSchedule) error {
	return x.changeSchedule(http.StatusOK, func(id tasker.ID) (tasker.Schedule, error) {
		return s.engine.ResumeSchedule(x.ctx, id, engine.ScheduleChange{Actor: x.scheduler(req.By), Reason: req.Reason})
	})
}

func (x *request) changeSchedule(status int, do func(tasker.ID) (tasker.Schedule, error)) error {
	id := x.id("schedule_uuid")
	changed, err := do(id)
	if err != nil {
		return err
	}
	return x.answer(status, apiv1.FromSchedule(changed))
}

func (s *server) triggerSchedule(x *request, req apiv1.ChangeSchedule) error {
	id := x.id("schedule_uuid")
	f, err := s.engine.TriggerSchedule(x.ctx, id, engine.ScheduleChange{Actor: x.scheduler(req.By), Reason: req.Reason, RequestKey: x.requestKey()})
	return respondWith(x, http.StatusCreated, f, err, apiv1.FromFiring)
}

func (s *server) backfillSchedule(x *request, req apiv1.BackfillSchedule) error {
	id := x.id("schedule_uuid")
	for path, at := range map[string]time.Time{"from": req.From, "to": req.To} {
		if at.Year() < 2000 || at.Year() > 2200 {
			return invalidBody([]tasker.Fault{{Path: path, Message: "must lie between the years 2000 and 2200"}})
		}
	}
	b := engine.Backfill{From: req.From, To: req.To, DryRun: req.DryRun}
	list, err := s.engine.BackfillSchedule(x.ctx, id, b, engine.ScheduleChange{Actor: x.scheduler(req.By), Reason: req.Reason})
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromBackfill(req.DryRun, list))
}
