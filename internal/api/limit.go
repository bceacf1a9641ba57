package api

import (
	"net/http"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/overload"
)

const limitPath = "/v1/limits"

// limitsWithKeys is how many limits an answer has at most with their keys.
const limitsWithKeys = 10

// limitRoutes are about limits of steps in progress and of rates.
func (s *server) limitRoutes() []*route {
	const tag = "limits"
	named := []param{
		choiceParam("kind", "What is limited.", tasker.LimitKinds()), textParam("namespace", "Whose steps are limited; absent for the server.", 128),
		textParam("name", "The handler, or the name that templates give.", 128),
	}
	return []*route{
		{
			method: "GET", path: limitPath, id: "listLimits", class: overload.Reads, needs: access.ReadWorkers, tag: tag,
			summary: "List limits with how many steps have a place and how many wait, by namespace, kind and name",
			params: append(slices.Clone(named), boolParam("keys", "Each with its keys, and who has their places; at most 10 limits then."),
				textParam("after", "Only those behind this limit: next_after of the page before.", 300), limitParam(defaultLimit)),
			answers: map[int]any{http.StatusOK: apiv1.LimitList{}},
			serve:   s.listLimits,
		},
		{
			method: "PUT", path: limitPath, id: "setLimit", class: overload.Operations, needs: access.OperateSteps, tag: tag,
			summary: "Set how many steps may be in progress at a time, or begin in a second",
			about: "For operators of the namespace; that of the server is for administrators of all namespaces. Safe to repeat. " +
				"It holds for what is handed out from the answer on, in every server; steps in progress go on. It is recorded in the audit log.",
			body:    apiv1.SetLimit{},
			answers: map[int]any{http.StatusOK: apiv1.Limit{}},
			serve:   withBody(s.setLimit),
		},
		{
			method: "DELETE", path: limitPath, id: "deleteLimit", class: overload.Operations, needs: access.OperateSteps, tag: tag,
			summary: "Remove a limit: what waits for it goes back into the queue",
			about:   "As to set one. A limit that templates give to their steps is a CONFLICT: set another value. It is recorded in the audit log.",
			params:  append(slices.Clone(named), textParam("reason", "Why, for the audit log.", 2000), textParam("by", "Who, for the audit log.", 255)),
			answers: map[int]any{http.StatusNoContent: nil},
			serve:   s.deleteLimit,
		},
	}
}

func (s *server) listLimits(x *request) error {
	f := tasker.LimitFilter{
		Namespace: x.text("namespace"), Kind: tasker.LimitKind(x.text("kind")), Name: x.text("name"), After: x.text("after"), Limit: x.int("limit"),
	}
	keys := isTrue(x.bool("keys"))
	if keys {
		f.Limit = min(f.Limit, limitsWithKeys)
	}
	list, more, err := s.engine.Limits(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.LimitPage{Limit: f.Limit, Count: len(list), HasMore: more}
	if more {
		last := list[len(list)-1].LimitRef.String()
		page.NextAfter = &last
	}
	answer := apiv1.LimitList{Limits: convert(list, apiv1.FromLimit), Pagination: page}
	for i := 0; keys && i < len(list); i++ {
		d, err := s.engine.Limit(x.ctx, list[i].LimitRef)
		if err != nil {
			return err
		}
		answer.Limits[i] = apiv1.FromLimitDetail(d)
	}
	return x.answer(http.StatusOK, answer)
}

func (s *server) setLimit(x *request, req apiv1.SetLimit) error {
	ref := tasker.LimitRef{Kind: tasker.LimitKind(req.Kind), Namespace: req.Namespace, Name: req.Name}
	if err := ref.Check(); err != nil {
		return err
	}
	if err := x.caller.MayLimit(ref); err != nil {
		return err
	}
	l, err := s.engine.SetLimit(x.ctx, ref, tasker.LimitValue{MaxInProgress: req.MaxInProgress, PerSecond: req.PerSecond, Burst: req.Burst},
		engine.LimitChange{Actor: x.actor(req.By), Reason: req.Reason})
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromLimit(l))
}

func (s *server) deleteLimit(x *request) error {
	ref := tasker.LimitRef{Kind: tasker.LimitKind(x.text("kind")), Namespace: x.text("namespace"), Name: x.text("name")}
	if err := ref.Check(); err != nil {
		return err
	}
	if err := x.caller.MayLimit(ref); err != nil {
		return err
	}
	if err := s.engine.DeleteLimit(x.ctx, ref, engine.LimitChange{Actor: x.actor(x.text("by")), Reason: x.text("reason")}); err != nil {
		return err
	}
	return x.answer(http.StatusNoContent, nil)
}
