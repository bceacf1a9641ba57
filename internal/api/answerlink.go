package api

import (
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) createAnswerLink(x *request, ref tasker.StepRef, req apiv1.CreateAnswerLink) (apiv1.NewAnswerLink, error) {
	r := tasker.AnswerLinkRequest{Actor: x.resolveActorOrUnknown(req.By)}
	if req.ExpiresInSeconds != nil {
		r.Life = time.Duration(*req.ExpiresInSeconds) * time.Second
	}
	made, err := s.engine.CreateAnswerLink(x.ctx, ref, r)
	return apiv1.FromNewAnswerLink(made, strings.TrimSuffix(s.publicURL, "/")), err
}

func (s *server) listAnswerLinks(x *request, ref tasker.StepRef, _ none) (apiv1.AnswerLinks, error) {
	list, err := s.engine.AnswerLinks(x.ctx, ref)
	return apiv1.AnswerLinks{Links: orEmpty(list)}, err
}

func (s *server) revokeAnswerLink(x *request, ref tasker.StepRef, _ none) (tasker.AnswerLink, error) {
	return s.engine.RevokeAnswerLink(x.ctx, ref, x.pathUUID("link_uuid"), x.resolveActorOrUnknown(""))
}
