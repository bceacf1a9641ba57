package api

import (
	"cmp"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/hold"
)

func (s *server) beginHold(x *request, req apiv1.BeginHold) error {
	n := tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: req.Namespace, Handler: req.Handler, TaskName: req.TaskName, StepName: req.StepName},
		Until:     req.Until, For: time.Duration(req.ForSeconds) * time.Second, Reason: req.Reason, Actor: x.resolveActor(req.By),
	}
	n.Owner = cmp.Or(req.Owner, n.Actor)
	if req.CaseID != "" {
		id, err := parseID(req.CaseID)
		if err != nil {
			return newInvalidBodyError([]tasker.Fault{{Path: "case_id", Message: err.Error()}})
		}
		if _, err = access.Finder(s.findNamespaces).Check(x.ctx, x.caller.Identity, x.route.Needs, access.Resource{Kind: access.CaseKind, ID: id}); err != nil {
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
	return x.respondResult(http.StatusCreated, h, err)
}

func (s *server) listHolds(x *request, f tasker.HoldFilter) error {

	list, more, err := s.holds.List(x.ctx, f)
	if err != nil {
		return err
	}
	page := apiv1.HoldPage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextBefore = nextCursor(list, more, func(h tasker.Hold) string { return h.UUID.String() })
	return x.respond(http.StatusOK, apiv1.HoldList{Holds: orEmpty(list), Pagination: page})
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
	return x.respondResult(http.StatusOK, h, err)
}
