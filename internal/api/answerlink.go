package api

import (
	"net/http"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

func (s *server) answerLinkRoutes() []*route {
	const tag, links = "inbox", stepPath + "/answer_links"
	return []*route{
		{
			method: "POST", path: links, id: "createAnswerLink", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Create a link with which the assignee answers an external step without signing in",
			doc: "The response contains its token, which cannot be shown again. It is valid for one answer, until it expires, while the step waits and its assignee does not change. " +
				"Anyone with the link can answer. A step that does not wait or has no assignee is a CONFLICT, and so are too many links.",
			body: apiv1.CreateAnswerLink{}, responses: createdResponse(apiv1.NewAnswerLink{}), serve: s.createAnswerLink,
		},
		{
			method: "GET", path: links, id: "listAnswerLinks", class: overload.Reads, permission: access.ReadTasks, tag: tag,
			summary:   "List the answer links of a step, newest first, without their tokens",
			responses: okResponse(apiv1.AnswerLinks{}), serve: s.listAnswerLinks,
		},
		{
			method: "DELETE", path: links + "/{link_uuid}", id: "revokeAnswerLink", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary:   "Revoke an answer link",
			doc:       "Safe to repeat. A link that was used is a CONFLICT.",
			responses: okResponse(apiv1.AnswerLink{}), serve: s.revokeAnswerLink,
		},
	}
}

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
	return x.respond(http.StatusOK, apiv1.AnswerLinks{Links: convert(list, apiv1.FromAnswerLink)})
}

func (s *server) revokeAnswerLink(x *request) error {
	task, step, err := s.readTaskAndStepIDs(x)
	if err != nil {
		return err
	}
	l, err := s.engine.RevokeAnswerLink(x.ctx, tasker.StepRef{TaskUUID: task, StepUUID: step}, x.pathUUID("link_uuid"), x.resolveActorOrUnknown(""))
	return respondWith(x, http.StatusOK, l, err, apiv1.FromAnswerLink)
}
