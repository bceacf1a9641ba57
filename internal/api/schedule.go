package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/engine"
)

func (s *server) createSchedule(x *request, req apiv1.CreateSchedule) error {
	if req.Namespace != "" {
		if err := x.checkNamespace(req.Namespace); err != nil {
			return err
		}
	}
	made, err := s.engine.CreateSchedule(x.ctx, req.Spec(), engine.ScheduleChange{Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason})
	return respondWith(x, http.StatusCreated, made, err, apiv1.FromSchedule)
}

func (s *server) listSchedules(x *request, f tasker.ScheduleFilter) error {
	list, more, err := s.engine.Schedules(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.SchedulePage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextAfter = nextCursor(list, more, func(s tasker.ScheduleHealth) string { return s.UUID.String() })
	return x.respond(http.StatusOK, apiv1.ScheduleList{Schedules: convert(list, apiv1.FromScheduleHealth), Pagination: page})
}

func (s *server) getSchedule(x *request, q apiv1.ScheduleQuery) error {
	d, err := s.engine.Schedule(x.ctx, x.pathUUID("schedule_uuid"), *q.Next)
	return respondWith(x, http.StatusOK, d, err, apiv1.FromScheduleDetail)
}

func (s *server) listFirings(x *request, f tasker.FiringFilter) error {
	f.Schedule = x.pathUUID("schedule_uuid")
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

func (s *server) deleteSchedule(x *request, q apiv1.ChangeQuery) error {
	return x.changeSchedule(func(id tasker.ID) (d tasker.Schedule, err error) {
		if err := s.engine.DeleteSchedule(x.ctx, id, engine.ScheduleChange{Actor: x.resolveActorOrUnknown(q.By), Reason: q.Reason}); err != nil {
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
		return s.engine.ResumeSchedule(x.ctx, id, engine.ScheduleChange{Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason})
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
