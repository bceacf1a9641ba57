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
			method: "POST", path: "/v1/holds", id: "beginHold", class: overload.Operations, needs: access.OperateSteps, tag: tag,
			summary: "Have the enqueued steps of a scope held: they are accepted and not handed out",
			about: "For operators. From the answer on no server hands out a step of the scope. Steps that workers have go on. No attempt is used, and neither the time in the queue " +
				"nor staleness runs. When the same scope is held already, the CONFLICT has the id of that hold in its details.",
			body:    apiv1.BeginHold{},
			answers: map[int]any{http.StatusCreated: apiv1.Hold{}},
			serve:   withBody(s.beginHold),
		},
		{
			method: "GET", path: "/v1/holds", id: "listHolds", class: overload.Reads, needs: access.ReadTasks, tag: tag,
			summary: "List holds, newest first",
			params: []param{
				textParam("namespace", "Only those of this namespace.", 128), boolParam("open", "Only those that have not ended."),
				idParam("before", "Only those behind this hold: next_before of the page before."), limitParam(defaultLimit),
			},
			answers: map[int]any{http.StatusOK: apiv1.HoldList{}},
			serve:   s.listHolds,
		},
		{
			method: "GET", path: holdPath, id: "getHold", class: overload.Reads, needs: access.ReadTasks, tag: tag,
			summary: "One hold with its history and with what became of its probes and waves",
			answers: map[int]any{http.StatusOK: apiv1.HoldDetail{}},
			serve:   s.oneHold,
		},
		{
			method: "POST", path: holdPath + "/probe", id: "probeHold", class: overload.Operations, needs: access.OperateSteps, tag: tag,
			summary: "Let one step of an active hold go, to see whether it succeeds",
			about:   "For operators. A server lets it go within a second. A probe that is on its way, or a hold without steps, is a CONFLICT.",
			body:    apiv1.ProbeHold{},
			answers: map[int]any{http.StatusOK: apiv1.Hold{}},
			serve:   withBody(s.probeHold),
		},
		{
			method: "POST", path: holdPath + "/extend", id: "extendHold", class: overload.Operations, needs: access.OperateSteps, tag: tag,
			summary: "Move the end of an active hold, or hand it to another owner",
			about:   "For operators. A hold that is being released, or has ended, is a CONFLICT.",
			body:    apiv1.ExtendHold{},
			answers: map[int]any{http.StatusOK: apiv1.Hold{}},
			serve:   withBody(s.extendHold),
		},
		{
			method: "POST", path: holdPath + "/release", id: "releaseHold", class: overload.Operations, needs: access.OperateSteps, tag: tag,
			summary: "Let the steps of a hold go, in waves",
			about: "For operators. Each wave begins when all of the one before have succeeded but for less than a tenth; else the hold holds again. With waves=[] all go at once, " +
				"also when a release is under way. Otherwise a hold that is being released, or has ended, is a CONFLICT.",
			body:    apiv1.ReleaseHold{},
			answers: map[int]any{http.StatusOK: apiv1.Hold{}},
			serve:   withBody(s.releaseHold),
		},
	}
}

func (s *server) beginHold(x *request, req apiv1.BeginHold) error {
	n := tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: req.Namespace, Handler: req.Handler, TaskName: req.TaskName, StepName: req.StepName},
		Until:     req.Until, For: time.Duration(req.ForSeconds) * time.Second, Reason: req.Reason, Actor: x.actor(req.By),
	}
	n.Owner = cmp.Or(req.Owner, n.Actor)
	if req.CaseID != "" {
		id, err := parseID(req.CaseID)
		if err != nil {
			return invalidBody([]tasker.Fault{{Path: "case_id", Message: err.Error()}})
		}
		if _, err = access.Finder(s.namespacesOf).Check(x.ctx, x.caller.Identity, x.route.needs, access.Resource{Kind: access.CaseKind, ID: id}); err != nil {
			return err
		}
		n.CaseID = &id
	}
	if n.Namespace != "" {
		if err := x.mayUse(n.Namespace); err != nil {
			return err
		}
	}
	h, err := s.holds.Begin(x.ctx, n)
	return respondWith(x, http.StatusCreated, h, err, apiv1.FromHold)
}

func (s *server) listHolds(x *request) error {
	f := tasker.HoldFilter{Namespace: x.text("namespace"), Open: isTrue(x.bool("open")), Limit: x.int("limit")}
	if text := x.text("before"); text != "" {
		id, err := parseID(text)
		if err != nil {
			return err
		}
		f.Before = &id
	}
	list, more, err := s.holds.List(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.HoldPage{Limit: f.Limit, Count: len(list), HasMore: more}
	if more {
		last := list[len(list)-1].UUID.String()
		page.NextBefore = &last
	}
	return x.answer(http.StatusOK, apiv1.HoldList{Holds: convert(list, apiv1.FromHold), Pagination: page})
}

func (s *server) oneHold(x *request) error {
	id := x.id("hold_uuid")
	d, err := s.holds.Detail(x.ctx, id)
	return respondWith(x, http.StatusOK, d, err, apiv1.FromHoldDetail)
}

func (s *server) probeHold(x *request, req apiv1.ProbeHold) error {
	return x.changeHold(func(id tasker.ID) (tasker.Hold, error) {
		return s.holds.Probe(x.ctx, id, hold.Change{Actor: x.actor(req.By), Reason: req.Reason})
	})
}

func (s *server) extendHold(x *request, req apiv1.ExtendHold) error {
	return x.changeHold(func(id tasker.ID) (tasker.Hold, error) {
		e := tasker.HoldExtension{Until: req.Until, For: time.Duration(req.ForSeconds) * time.Second, Owner: req.Owner}
		return s.holds.Extend(x.ctx, id, e, hold.Change{Actor: x.actor(req.By), Reason: req.Reason})
	})
}

func (s *server) releaseHold(x *request, req apiv1.ReleaseHold) error {
	var waves []int
	if req.Waves != nil {
		waves = append([]int{}, *req.Waves...)
	}
	return x.changeHold(func(id tasker.ID) (tasker.Hold, error) {
		return s.holds.Release(x.ctx, id, waves, hold.Change{Actor: x.actor(req.By), Reason: req.Reason})
	})
}

func (x *request) changeHold(do func(tasker.ID) (tasker.Hold, error)) error {
	id := x.id("hold_uuid")
	h, err := do(id)
	return respondWith(x, http.StatusOK, h, err, apiv1.FromHold)
}
