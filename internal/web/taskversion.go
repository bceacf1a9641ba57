package web

import (
	"cmp"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/endpoint"
)

type versionForm struct {
	taskForm
	From     string // version when the form was opened
	To       string
	Versions []string // possible versions, newest first
	Plan     tasker.VersionChange
}

// newVersionForm returns the form with a plan for the requested version. The default is the newest
// other version.
func (s *server) newVersionForm(req *request) *versionForm {
	t := s.newTaskForm(req, form{page: "taskversion", title: "Change the version of", Button: "Change the version", maxReason: maxReason})
	f := &versionForm{taskForm: t, From: cmp.Or(truncate(req.rawField("from"), maxVersion), t.Task.Version)}
	f.Versions = load(req, s.DB.OtherVersions, templateVersion(t.Task))
	if f.To = cmp.Or(append([]string{req.PostFormValue("to"), req.query().Get("to")}, f.Versions...)...); f.To == "" {
		f.Refused = "The template has no other version for new tasks."
		return f
	}
	var err error
	f.Plan, err = s.Engine.ChangeVersion(req.Context(), t.Task.UUID, tasker.VersionRequest{To: f.To, DryRun: true})
	switch {
	case err != nil:
		f.refuse(err)
		return f
	case f.To == t.Task.Version:
		f.Refused = fmt.Sprintf("The task already has version %s.", f.To)
	case len(f.Plan.Refusals) > 0:
		f.Refused = fmt.Sprintf("The task cannot move to version %s.", f.To)
	}
	c := f.newCall(endpoint.ChangeVersion, "task change-version", t.Task.UUID.String())
	c.set("--to", "to_version", f.To)
	c.setReason()
	c.setActor("--by", "by")
	f.Command = c.format()
	return f
}

func templateVersion(t tasker.Task) tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: t.Namespace, Name: t.Name, Version: t.Version}
}

func (f *versionForm) do(req *request) (*view, error) {

	_, err := f.Engine.ChangeVersion(req.Context(), f.Task.UUID, tasker.VersionRequest{From: f.From, To: f.To, Actor: f.Actor, Reason: f.Reason})
	return &view{next: f.Back, note: "The task has version " + f.To + "."}, err
}
