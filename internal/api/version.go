package api

import (
	"errors"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) changeVersion(x *request, req apiv1.ChangeVersion) error {
	id := x.pathUUID("uuid")
	change, err := s.engine.ChangeVersion(x.ctx, id, tasker.VersionRequest{
		From: req.FromVersion, To: req.ToVersion, DryRun: req.DryRun, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason,
	})
	if known, ok := errors.AsType[*tasker.Error](err); ok && len(change.Refusals) > 0 {
		return known.WithDetails(apiv1.FromVersionChange(change))
	}
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.FromVersionChange(change))
}

func (s *server) changeTasks(x *request, req apiv1.ChangeTasks) error {
	r := tasker.VersionBatchRequest{
		Template: x.readTemplateVersion(), To: req.ToVersion, Limit: req.Limit, DryRun: req.DryRun, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason,
	}
	if req.Before != "" {
		var err error
		if r.Before, err = parseID(req.Before); err != nil {
			return tasker.Errorf(tasker.Invalid, "before %w", err)
		}
	}
	batch, err := s.engine.ChangeVersions(x.ctx, r)
	return respondWith(x, http.StatusOK, batch, err, apiv1.FromVersionBatch)
}
