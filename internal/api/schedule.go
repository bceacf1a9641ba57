package api

import (
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/engine"
)

func (x *request) newScheduleChange(by, reason string) engine.ScheduleChange {
	return engine.ScheduleChange{Actor: x.resolveActorOrUnknown(by), Reason: reason}
}

func (s *server) createSchedule(x *request, req apiv1.CreateSchedule) (apiv1.Schedule, error) {
	if req.Namespace != "" {
		if err := x.checkNamespace(req.Namespace); err != nil {
			return apiv1.Schedule{}, err
		}
	}
	made, err := s.engine.CreateSchedule(x.ctx, req.Spec(), x.newScheduleChange(req.By, req.Reason))
	return apiv1.FromSchedule(made), err
}

func (s *server) listSchedules(x *request, f tasker.ScheduleFilter) (apiv1.ScheduleList, error) {
	list, more, err := s.engine.Schedules(x.ctx, f)
	page := apiv1.SchedulePage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextAfter = nextCursor(list, more, func(s tasker.ScheduleHealth) string { return s.UUID.String() })
	return apiv1.ScheduleList{Schedules: convert(list, apiv1.FromScheduleHealth), Pagination: page}, err
}

func (s *server) getSchedule(x *request, q apiv1.ScheduleQuery) (apiv1.ScheduleDetail, error) {
	d, err := s.engine.Schedule(x.ctx, x.pathUUID("schedule_uuid"), *q.Next)
	return apiv1.FromScheduleDetail(d), err
}

func (s *server) listFirings(x *request, f tasker.FiringFilter) (apiv1.FiringList, error) {
	f.Schedule = x.pathUUID("schedule_uuid")
	list, more, err := s.engine.Firings(x.ctx, f)
	page := apiv1.FiringPage{Limit: f.Limit, Count: len(list), HasMore: more}
	if more {
		last := list[len(list)-1]
		at, kind := last.NominalAt.UTC(), string(last.Kind)
		page.NextBefore, page.NextKind = &at, &kind
	}
	return apiv1.FiringList{Firings: convert(list, apiv1.FromFiring), Pagination: page}, err
}

func (s *server) updateSchedule(x *request, req apiv1.UpdateSchedule) (apiv1.Schedule, error) {
	changed, err := s.engine.UpdateSchedule(x.ctx, x.pathUUID("schedule_uuid"), req.Spec(), req.Revision, x.newScheduleChange(req.By, req.Reason))
	return apiv1.FromSchedule(changed), err
}

func (s *server) deleteSchedule(x *request, q apiv1.ChangeQuery) (apiv1.Schedule, error) {
	id := x.pathUUID("schedule_uuid")
	if err := s.engine.DeleteSchedule(x.ctx, id, x.newScheduleChange(q.By, q.Reason)); err != nil {
		return apiv1.Schedule{}, err
	}
	d, err := s.engine.Schedule(x.ctx, id, 0)
	return apiv1.FromSchedule(d.Schedule), err
}

func (s *server) pauseSchedule(x *request, req apiv1.PauseSchedule) (apiv1.Schedule, error) {
	paused, err := s.engine.PauseSchedule(x.ctx, x.pathUUID("schedule_uuid"), req.Until, x.newScheduleChange(req.By, req.Reason))
	return apiv1.FromSchedule(paused), err
}

func (s *server) resumeSchedule(x *request, req apiv1.ChangeSchedule) (apiv1.Schedule, error) {
	resumed, err := s.engine.ResumeSchedule(x.ctx, x.pathUUID("schedule_uuid"), x.newScheduleChange(req.By, req.Reason))
	return apiv1.FromSchedule(resumed), err
}

func (s *server) triggerSchedule(x *request, req apiv1.ChangeSchedule) (apiv1.Firing, error) {
	c := x.newScheduleChange(req.By, req.Reason)
	c.RequestKey = x.idempotencyKey()
	f, err := s.engine.TriggerSchedule(x.ctx, x.pathUUID("schedule_uuid"), c)
	return apiv1.FromFiring(f), err
}

func (s *server) backfillSchedule(x *request, req apiv1.BackfillSchedule) (apiv1.Backfill, error) {
	for path, at := range map[string]time.Time{"from": req.From, "to": req.To} {
		if at.Year() < 2000 || at.Year() > 2200 {
			return apiv1.Backfill{}, newInvalidBodyError([]tasker.Fault{{Path: path, Message: "must be between the years 2000 and 2200"}})
		}
	}
	b := engine.Backfill{From: req.From, To: req.To, DryRun: req.DryRun}
	list, err := s.engine.BackfillSchedule(x.ctx, x.pathUUID("schedule_uuid"), b, x.newScheduleChange(req.By, req.Reason))
	return apiv1.FromBackfill(req.DryRun, list), err
}
