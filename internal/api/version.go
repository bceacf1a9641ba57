package api

import (
	"cmp"
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
			method: "POST", path: taskPath + "/change_version", id: "changeVersion", class: overload.Operations, needs: access.OperateSteps, tag: "tasks",
			summary: "Bring an open task to another version of its template",
			about: "In one transaction: steps that have ended, or that a worker has, stay as they are; steps that have not begun, are enqueued or have failed take their definition from the new version; " +
				"steps that it adds are added, and steps that it lacks are removed if they have not begun. A task for which that cannot be done is a CONFLICT with the change and all reasons as its details, " +
				"and stays as it is; dry_run answers 200 with them. Safe to repeat: a task that is of the version stays so.",
			body:    apiv1.ChangeVersion{},
			answers: map[int]any{http.StatusOK: tasker.VersionChange{}},
			serve:   withBody(s.changeVersion),
		},
		{
			method: "POST", path: "/v1/templates/{namespace}/{name}/{version}/change_tasks", id: "changeTasks", class: overload.Operations, needs: access.OperateSteps, tag: "templates",
			summary: "Bring a part of the open tasks of a version to another version",
			about: "Up to 100 tasks, for up to ten seconds, the newest first, each in a transaction of its own; next says where the next part begins. What cannot be done is counted by its reason, and the other tasks are changed. " +
				"Safe to repeat. Tasks that are created of the version meanwhile are not among them: retire it first.",
			body:    apiv1.ChangeTasks{},
			answers: map[int]any{http.StatusOK: apiv1.ChangedTasks{}},
			serve:   withBody(s.changeTasks),
		},
	}
}

func (s *server) changeVersion(x *request, req apiv1.ChangeVersion) error {
	id := x.id("uuid")
	change, err := s.engine.ChangeVersion(x.ctx, id, tasker.VersionRequest{
		From: req.FromVersion, To: req.ToVersion, DryRun: req.DryRun, Actor: cmp.Or(x.actor(req.By), unknownActor), Reason: req.Reason,
	})
	if known, ok := errors.AsType[*tasker.Error](err); ok && len(change.Refusals) > 0 {
		return known.WithDetails(apiv1.FromVersionChange(change))
	}
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromVersionChange(change))
}

func (s *server) changeTasks(x *request, req apiv1.ChangeTasks) error {
	v := x.templateVersion()
	r := tasker.VersionBatchRequest{Template: v, To: req.ToVersion, Limit: req.Limit, DryRun: req.DryRun, Actor: cmp.Or(x.actor(req.By), unknownActor), Reason: req.Reason}
	if req.Before != "" {
		var err error
		if r.Before, err = parseID(req.Before); err != nil {
			return tasker.Errorf(tasker.Invalid, "before %w", err)
		}
	}
	batch, err := s.engine.ChangeVersions(x.ctx, r)
	return respondWith(x, http.StatusOK, batch, err, apiv1.FromVersionBatch)
}
