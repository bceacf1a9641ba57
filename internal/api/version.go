package api

import (
	"errors"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

func (s *server) versionRoutes() []*route {
	return []*route{
		{
			method: "POST", path: taskPath + "/change_version", id: "changeVersion", class: overload.Operations, permission: access.OperateSteps, tag: "tasks",
			summary: "Move an open task to another version of its template",
			doc: "In one transaction: finished and claimed steps do not change; pending, enqueued and failed steps take their definition from the new version; " +
				"new steps are added, and removed steps are deleted if they have not started. If the move is not possible, the task does not change and the response is a CONFLICT with the change and all reasons as its details; " +
				"with dry_run it is 200. Safe to repeat.",
			body: apiv1.ChangeVersion{}, responses: okResponse(tasker.VersionChange{}), serve: withBody(s.changeVersion),
		},
		{
			method: "POST", path: "/v1/templates/{namespace}/{name}/{version}/change_tasks", id: "changeTasks", class: overload.Operations, permission: access.OperateSteps, tag: "templates",
			summary: "Move a batch of the open tasks of a version to another version",
			doc: "Up to 100 tasks, newest first, each in its own transaction, for up to ten seconds; next is the cursor of the next batch. Tasks that cannot be moved are counted by reason. " +
				"Safe to repeat. Tasks created meanwhile are not included: retire the version first.",
			body: apiv1.ChangeTasks{}, responses: okResponse(apiv1.ChangedTasks{}), serve: withBody(s.changeTasks),
		},
	}
}

func (s *server) changeVersion(x *request, req apiv1.ChangeVersion) error {
	id := x.pathUUID("uuid")
	change, err := s.engine.ChangeVersion(x.ctx, id, tasker.VersionRequest{
		From: req.FromVersion, To: req.ToVersion, DryRun: req.DryRun, Actor: x.resolveActorOrUnknown(req.By),
		Reason: req.Reason,
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
