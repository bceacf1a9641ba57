package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"tasker.example/tasker"
)

// newVersionForm is the form to move a task to another version of its template.
type versionForm struct {
	*server
	taskForm
	From     string // version when the form was opened
	To       string
	Versions []string // possible versions, newest first
	Plan     tasker.VersionChange
}

// Steps groups the steps by their change.
func (f *versionForm) Steps() []versionSteps {
	all := []versionSteps{
		{"Unchanged", f.Plan.Kept}, {"Redefined", f.Plan.Redefined}, {"Added", f.Plan.Added}, {"Removed", f.Plan.Removed},
		{"Kept without dependent steps", f.Plan.Left},
	}
	return slices.DeleteFunc(all, func(s versionSteps) bool { return len(s.Names) == 0 })
}

type versionSteps struct {
	What  string
	Names []string
}

// newVersionForm returns the form with a plan for the requested version. The default is the newest
// other version.
func (s *server) newVersionForm(req *request) (*versionForm, error) {
	t, err := s.newTaskForm(req, form{page: "taskversion", title: "Change the version of", Button: "Change the version"})
	if err != nil {
		return nil, err
	}
	f := &versionForm{server: s, taskForm: t, From: cmp.Or(truncate(req.rawField("from"), maxVersion), t.Task.Version)}
	if f.Versions, err = s.DB.OtherVersions(req.Context(), templateVersion(t.Task)); err != nil {
		return nil, err
	}
	if f.To = cmp.Or(append([]string{req.PostFormValue("to"), req.query().Get("to")}, f.Versions...)...); f.To == "" {
		f.Refused = "The template has no other version for new tasks."
		return f, nil
	}
	f.Plan, err = s.Engine.ChangeVersion(req.Context(), t.Task.UUID, tasker.VersionRequest{To: f.To, DryRun: true})
	switch code := tasker.CodeOf(err); {
	case code == tasker.Conflict, code == tasker.NotFound, code == tasker.Invalid:
		f.Refused = errorMessage(err)
		return f, nil
	case err != nil:
		return nil, err
	case f.To == t.Task.Version:
		f.Refused = fmt.Sprintf("The task already has version %s.", f.To)
	case len(f.Plan.Refusals) > 0:
		f.Refused = fmt.Sprintf("The task cannot move to version %s.", f.To)
	}
	actor, reason := f.placeholders()
	ctl := append([]string{"task", "change-version", t.Task.UUID.String(), "--to", f.To, "--reason", reason}, t.actorFlags("--by", actor)...)
	body := map[string]string{"to_version": f.To, "reason": reason}
	if t.Subject == "" {
		body["by"] = actor
	}
	f.Command = newCommand(req, ctl, http.MethodPost, taskAPIPath(t.Task)+"/change_version", body)
	return f, nil
}

func templateVersion(t tasker.Task) tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: t.Namespace, Name: t.Name, Version: t.Version}
}

func (f *versionForm) do(req *request) (*view, error) {
	if err := f.checkReason(req, maxReason); err != nil {
		return nil, err
	}
	_, err := f.Engine.ChangeVersion(req.Context(), f.Task.UUID, tasker.VersionRequest{From: f.From, To: f.To, Actor: f.Actor, Reason: f.Reason})
	return &view{next: f.Back, note: "The task has version " + f.To + "."}, err
}
