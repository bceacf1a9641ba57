package api

import (
	"cmp"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/overload"
)

const holdPath = "/v1/holds/{hold_uuid}"

func (s *server) holdRoutes() []*route {
	const tag = "holds"
	return []*route{
		{
			method: "POST", path: "/v1/holds", id: "beginHold", class: overload.Operations, permission: access.OperateSteps,
			tag:     tag,
			summary: "Hold the enqueued steps of a scope, so that workers cannot claim them",
			doc: "For operators. After the response no server assigns a step of the scope. Claimed steps continue. Held steps use no attempts, and their queue timeout and staleness are " +
				"suspended. If a hold with the same scope exists, the details of the CONFLICT contain its id.",
			body: apiv1.BeginHold{}, responses: createdResponse(apiv1.Hold{}), serve: withBody(s.beginHold),
		},
		{
			method: "GET", path: "/v1/holds", id: "listHolds", class: overload.Reads, permission: access.ReadTasks, tag: tag,
			summary: "List holds, newest first",
			params: []param{
				textParam("namespace", "Filter by namespace.", 128), boolParam("open", "Only open holds."),
				idParam("before", "Page cursor: next_before of the previous page."), limitParam(defaultLimit),
			},
			responses: okResponse(apiv1.HoldList{}), serve: s.listHolds,
		},
		{
			method: "GET", path: holdPath, id: "getHold", class: overload.Reads, permission: access.ReadTasks, tag: tag,
			summary:   "Get a hold with its history and the outcomes of its probes and waves",
			responses: okResponse(apiv1.HoldDetail{}), serve: newGetHandler("hold_uuid", s.holds.Detail, apiv1.FromHoldDetail),
		},
		{
			method: "POST", path: holdPath + "/probe", id: "probeHold", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Release one step of an active hold as a probe",
			doc:     "For operators. A server releases it within a second. If a probe is in progress, or the hold has no steps, the response is a CONFLICT.",
			body:    apiv1.ProbeHold{}, responses: okResponse(apiv1.Hold{}), serve: withBody(s.probeHold),
		},
		{
			method: "POST", path: holdPath + "/extend", id: "extendHold", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Extend an active hold, or assign it to another owner",
			doc:     "For operators. A hold that is releasing or has ended is a CONFLICT.",
			body:    apiv1.ExtendHold{}, responses: okResponse(apiv1.Hold{}), serve: withBody(s.extendHold),
		},
		{
			method: "POST", path: holdPath + "/release", id: "releaseHold", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Release the steps of a hold in waves",
			doc: "For operators. Each wave starts after fewer than a tenth of the previous one failed; otherwise the hold becomes active again. waves=[] releases all steps at once, " +
				"even during a release. Otherwise a hold that is releasing or has ended is a CONFLICT.",
			body: apiv1.ReleaseHold{}, responses: okResponse(apiv1.Hold{}), serve: withBody(s.releaseHold),
		},
	}
}

func (s *server) beginHold(x *request, req apiv1.BeginHold) error {
	n := tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: req.Namespace, Handler: req.Handler, TaskName: req.TaskName, StepName: req.StepName},
		Until:     req.Until, For: time.Duration(req.ForSeconds) * time.Second, Reason: req.Reason,
		Actor: x.resolveActor(req.By),
	}
	n.Owner = cmp.Or(req.Owner, n.Actor)
	if req.CaseID != "" {
		id, err := parseID(req.CaseID)
		if err != nil {
			return newInvalidBodyError([]tasker.Fault{{Path: "case_id", Message: err.Error()}})
		}
		if _, err = access.Finder(s.findNamespaces).Check(x.ctx, x.caller.Identity, x.route.permission, access.Resource{Kind: access.CaseKind, ID: id}); err != nil {
			return err
		}
		n.CaseID = &id
	}
	if n.Namespace != "" {
		if err := x.checkNamespace(n.Namespace); err != nil {
			return err
		}
	}
	h, err := s.holds.Begin(x.ctx, n)
	return respondWith(x, http.StatusCreated, h, err, apiv1.FromHold)
}

func (s *server) listHolds(x *request) error {
	f := tasker.HoldFilter{Namespace: x.queryText("namespace"), Open: x.queryFlag("open"), Before: x.queryUUID("before"), Limit: x.queryInt("limit")}

	list, more, err := s.holds.List(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.HoldPage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextBefore = nextCursor(list, more, func(h tasker.Hold) string { return h.UUID.String() })
	return x.respond(http.StatusOK, apiv1.HoldList{Holds: convert(list, apiv1.FromHold), Pagination: page})
}

func (s *server) probeHold(x *request, req apiv1.ProbeHold) error {
	return x.changeHold(func(id tasker.ID) (tasker.Hold, error) {
		return s.holds.Probe(x.ctx, id, hold.Change{Actor: x.resolveActor(req.By), Reason: req.Reason})
	})
}

func (s *server) extendHold(x *request, req apiv1.ExtendHold) error {
	return x.changeHold(func(id tasker.ID) (tasker.Hold, error) {
		e := tasker.HoldExtension{Until: req.Until, For: time.Duration(req.ForSeconds) * time.Second, Owner: req.Owner}
		return s.holds.Extend(x.ctx, id, e, hold.Change{Actor: x.resolveActor(req.By), Reason: req.Reason})
	})
}

func (s *server) releaseHold(x *request, req apiv1.ReleaseHold) error {
	var waves []int
	if req.Waves != nil {
		waves = append([]int{}, *req.Waves...)
	}
	return x.changeHold(func(id tasker.ID) (tasker.Hold, error) {
		return s.holds.Release(x.ctx, id, waves, hold.Change{Actor: x.resolveActor(req.By), Reason: req.Reason})
	})
}

func (x *request) changeHold(do func(tasker.ID) (tasker.Hold, error)) error {
	h, err := do(x.pathUUID("hold_uuid"))
	return respondWith(x, http.StatusOK, h, err, apiv1.FromHold)
}
