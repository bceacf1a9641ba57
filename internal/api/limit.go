package api

import (
	"cmp"
	"net/http"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/overload"
)

const limitPath = "/v1/limits"

// limitsWithKeys is the maximum number of limits in a response with keys.
const limitsWithKeys = 10

func (s *server) limitRoutes() []*route {
	const tag = "limits"
	named := []param{
		choiceParam("kind", "Kind of the limit.", tasker.LimitKinds()), textParam("namespace", "Namespace of the limit; absent for the server.", 128),
		textParam("name", "Handler, or the name that templates assign.", 128),
	}
	return []*route{
		{
			method: "GET", path: limitPath, id: "listLimits", class: overload.Reads, permission: access.ReadWorkers, tag: tag,
			summary: "List limits with their usage, by namespace, kind and name",
			params: append(slices.Clone(named), boolParam("keys", "Include the keys and the steps that have their slots; then at most 10 limits."),
				textParam("after", "Page cursor: next_after of the previous page.", 300), limitParam(defaultLimit)),
			responses: okResponse(apiv1.LimitList{}), serve: s.listLimits,
		},
		{
			method: "PUT", path: limitPath, id: "setLimit", class: overload.Operations, permission: access.OperateSteps,
			tag:     tag,
			summary: "Set how many steps may run at once, or start per second",
			doc: "For operators of the namespace; the limit of the server is for administrators of all namespaces. Safe to repeat. " +
				"It applies to all later claims on every server; running steps continue. It is recorded in the audit log.",
			body: apiv1.SetLimit{}, responses: okResponse(apiv1.Limit{}), serve: withBody(s.setLimit),
		},
		{
			method: "DELETE", path: limitPath, id: "deleteLimit", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary:   "Delete a limit; steps that wait for it are enqueued again",
			doc:       "Requires the permissions of setLimit. A limit that templates assign is a CONFLICT: change its value instead. It is recorded in the audit log.",
			params:    append(slices.Clone(named), textParam("reason", "Reason, for the audit log.", 2000), textParam("by", "Actor, for the audit log.", 255)),
			responses: noContent, serve: s.deleteLimit,
		},
	}
}

func (s *server) listLimits(x *request) error {
	f := tasker.LimitFilter{
		Namespace: x.queryText("namespace"), Kind: tasker.LimitKind(x.queryText("kind")), Name: x.queryText("name"), After: x.queryText("after"), Limit: x.queryInt("limit"),
	}
	keys := x.queryFlag("keys")
	if keys {
		f.Limit = min(f.Limit, limitsWithKeys)
	}
	list, more, err := s.engine.Limits(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.LimitPage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextAfter = nextCursor(list, more, func(l tasker.Limit) string { return l.LimitRef.String() })
	answer := apiv1.LimitList{Limits: convert(list, apiv1.FromLimit), Pagination: page}
	for i := 0; keys && i < len(list); i++ {
		d, err := s.engine.Limit(x.ctx, list[i].LimitRef)
		if err != nil {
			return err
		}
		answer.Limits[i] = apiv1.FromLimitDetail(d)
	}
	return x.respond(http.StatusOK, answer)
}

func (s *server) setLimit(x *request, req apiv1.SetLimit) error {
	ref := tasker.LimitRef{Kind: tasker.LimitKind(req.Kind), Namespace: req.Namespace, Name: req.Name}
	if err := cmp.Or(ref.Check(), x.caller.RequireLimitPermission(ref)); err != nil {
		return err
	}
	l, err := s.engine.SetLimit(x.ctx, ref, tasker.LimitValue{MaxInProgress: req.MaxInProgress, PerSecond: req.PerSecond, Burst: req.Burst},
		engine.LimitChange{Actor: x.resolveActor(req.By), Reason: req.Reason})
	return respondWith(x, http.StatusOK, l, err, apiv1.FromLimit)
}

func (s *server) deleteLimit(x *request) error {
	ref := tasker.LimitRef{Kind: tasker.LimitKind(x.queryText("kind")), Namespace: x.queryText("namespace"),
		Name: x.queryText("name")}
	if err := cmp.Or(ref.Check(), x.caller.RequireLimitPermission(ref)); err != nil {
		return err
	}
	if err := s.engine.DeleteLimit(x.ctx, ref, engine.LimitChange{Actor: x.resolveActor(x.queryText("by")), Reason: x.queryText("reason")}); err != nil {
		return err
	}
	return x.respond(http.StatusNoContent, nil)
}
