package api

import (
	"cmp"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/hold"
)

func (s *server) beginHold(x *request, req apiv1.BeginHold) (h tasker.Hold, err error) {
	n := tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: req.Namespace, Handler: req.Handler, TaskName: req.TaskName, StepName: req.StepName},
		Until:     req.Until, For: time.Duration(req.ForSeconds) * time.Second, Reason: req.Reason, Actor: x.resolveActor(req.By),
	}
	n.Owner = cmp.Or(req.Owner, n.Actor)
	if req.CaseID != "" {
		id, err := parseID(req.CaseID)
		if err != nil {
			return h, newInvalidBodyError([]tasker.Fault{{Path: "case_id", Message: err.Error()}})
		}
		if _, err = access.Finder(s.findNamespaces).Check(x.ctx, x.caller.Identity, x.route.Needs, access.Resource{Kind: access.CaseKind, ID: id}); err != nil {
			return h, err
		}
		n.CaseID = &id
	}
	if n.Namespace != "" {
		if err := x.checkNamespace(n.Namespace); err != nil {
			return h, err
		}
	}
	return s.holds.Begin(x.ctx, n)
}

func (s *server) listHolds(x *request, f tasker.HoldFilter) (apiv1.HoldList, error) {
	list, more, err := s.holds.List(x.ctx, f)
	page := apiv1.HoldPage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextBefore = nextCursor(list, more, func(h tasker.Hold) string { return h.UUID.String() })
	return apiv1.HoldList{Holds: orEmpty(list), Pagination: page}, err
}

func (x *request) newHoldChange(by, reason string) hold.Change {
	return hold.Change{Actor: x.resolveActor(by), Reason: reason}
}

func (s *server) probeHold(x *request, req apiv1.ProbeHold) (tasker.Hold, error) {
	return s.holds.Probe(x.ctx, x.pathUUID("hold_uuid"), x.newHoldChange(req.By, req.Reason))
}

func (s *server) extendHold(x *request, req apiv1.ExtendHold) (tasker.Hold, error) {
	e := tasker.HoldExtension{Until: req.Until, For: time.Duration(req.ForSeconds) * time.Second, Owner: req.Owner}
	return s.holds.Extend(x.ctx, x.pathUUID("hold_uuid"), e, x.newHoldChange(req.By, req.Reason))
}

func (s *server) releaseHold(x *request, req apiv1.ReleaseHold) (tasker.Hold, error) {
	return s.holds.Release(x.ctx, x.pathUUID("hold_uuid"), readWaves(req.Waves), x.newHoldChange(req.By, req.Reason))
}

// readWaves returns the requested waves. nil means the default.
func readWaves(waves *[]int) []int {
	if waves == nil {
		return nil
	}
	return append([]int{}, *waves...)
}
