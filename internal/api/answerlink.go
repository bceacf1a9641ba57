package api

import (
	"net/http"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) createAnswerLink(x *request) error {
	task, step, err := s.readTaskAndStepIDs(x)
	if err != nil {
		return err
	}
	var req apiv1.CreateAnswerLink
	if err := x.read(&req); err != nil {
		return err
	}
	r := tasker.AnswerLinkRequest{Actor: x.resolveActorOrUnknown(req.By)}
	if req.ExpiresInSeconds != nil {
		r.Life = time.Duration(*req.ExpiresInSeconds) * time.Second
	}
	made, err := s.engine.CreateAnswerLink(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step}, r)
	if err != nil {
		return err
	}
	return x.respond(http.StatusCreated, apiv1.FromNewAnswerLink(made, strings.TrimSuffix(s.publicURL, "/")))
}

func (s *server) listAnswerLinks(x *request) error {
	task, step, err := s.readTaskAndStepIDs(x)
	if err != nil {
		return err
	}
	list, err := s.engine.AnswerLinks(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.AnswerLinks{Links: orEmpty(list)})
}

func (s *server) revokeAnswerLink(x *request) error {
	task, step, err := s.readTaskAndStepIDs(x)
	if err != nil {
		return err
	}
	l, err := s.engine.RevokeAnswerLink(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step}, x.pathUUID("link_uuid"), x.resolveActorOrUnknown(""))
	return x.respondResult(http.StatusOK, l, err)
}
