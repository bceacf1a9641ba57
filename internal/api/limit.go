package api

import (
	"cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/engine"
)

// limitsWithKeys is the maximum number of limits in a response with keys.
const limitsWithKeys = 10

func (s *server) listLimits(x *request, f tasker.LimitFilter) (answer apiv1.LimitList, err error) {
	if f.Keys {
		f.Limit = min(f.Limit, limitsWithKeys)
	}
	list, more, err := s.engine.Limits(x.ctx, f)
	page := apiv1.LimitPage{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextAfter = nextCursor(list, more, func(l tasker.Limit) string { return l.LimitRef.String() })
	answer = apiv1.LimitList{Limits: convert(list, apiv1.FromLimit), Pagination: page}
	for i := 0; f.Keys && i < len(list); i++ {
		d, err := s.engine.Limit(x.ctx, list[i].LimitRef)
		if err != nil {
			return answer, err
		}
		answer.Limits[i] = apiv1.FromLimitDetail(d)
	}
	return answer, err
}

func (s *server) setLimit(x *request, req apiv1.SetLimit) (apiv1.Limit, error) {
	ref := tasker.LimitRef{Kind: tasker.LimitKind(req.Kind), Namespace: req.Namespace, Name: req.Name}
	if err := cmp.Or(ref.Check(), x.caller.RequireLimitPermission(ref)); err != nil {
		return apiv1.Limit{}, err
	}
	l, err := s.engine.SetLimit(x.ctx, ref, tasker.LimitValue{MaxInProgress: req.MaxInProgress, PerSecond: req.PerSecond, Burst: req.Burst},
		engine.LimitChange{Actor: x.resolveActor(req.By), Reason: req.Reason})
	return apiv1.FromLimit(l), err
}

func (s *server) deleteLimit(x *request, q apiv1.DeleteLimitQuery) (none, error) {
	ref := tasker.LimitRef{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name}
	if err := cmp.Or(ref.Check(), x.caller.RequireLimitPermission(ref)); err != nil {
		return none{}, err
	}
	return none{}, s.engine.DeleteLimit(x.ctx, ref, engine.LimitChange{Actor: x.resolveActor(q.By), Reason: q.Reason})
}
