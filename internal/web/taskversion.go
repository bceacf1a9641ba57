package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"tasker.example/tasker"
)

// A versionForm brings a task to another version of its template.
type versionForm struct {
	*server
	taskForm
	From     string // the version of which the task was when the form was opened
	To       string
	Versions []string // that it can be brought to, the newest first
	Plan     tasker.VersionChange
}

// Steps are what becomes of the steps, in words.
func (f *versionForm) Steps() []versionSteps {
	all := []versionSteps{
		{"stay as they are", f.Plan.Kept}, {"are defined anew", f.Plan.Redefined}, {"are added", f.Plan.Added}, {"are removed", f.Plan.Removed},
		{"stay, and nothing depends on them any more", f.Plan.Left},
	}
	return slices.DeleteFunc(all, func(s versionSteps) bool { return len(s.Names) == 0 })
}

// versionSteps are steps of which the same becomes.
type versionSteps struct {
	What  string
	Names []string
}

// versionForm reads the task and what would become of it in the version that is chosen: the
// newest other one, unless the address names one.
func (s *server) versionForm(req *request) (*versionForm, error) {
	t, err := s.taskForm(req, form{page: "taskversion", title: "Change the version of", Button: "Change the version"})
	if err != nil {
		return nil, err
	}
	f := &versionForm{server: s, taskForm: t, From: cmp.Or(clip(req.typed("from"), maxVersion), t.Task.Version)}
	if f.Versions, err = s.DB.OtherVersions(req.Context(), versionOf(t.Task)); err != nil {
		return nil, err
	}
	newest := ""
	if len(f.Versions) > 0 {
		newest = f.Versions[0]
	}
	if f.To = cmp.Or(req.PostFormValue("to"), req.query().Get("to"), newest); f.To == "" {
		f.Refused = "The template has no other version that takes tasks."
		return f, nil
	}
	f.Plan, err = s.Engine.ChangeVersion(req.Context(), t.Task.UUID, tasker.VersionRequest{To: f.To, DryRun: true})
	switch code := tasker.CodeOf(err); {
	case code == tasker.Conflict, code == tasker.NotFound, code == tasker.Invalid:
		f.Refused = messageOf(err)
		return f, nil
	case err != nil:
		return nil, err
	case f.To == t.Task.Version:
		f.Refused = fmt.Sprintf("The task is of version %s already.", f.To)
	case len(f.Plan.Refusals) > 0:
		f.Refused = fmt.Sprintf("The task cannot be brought to version %s. Nothing changes.", f.To)
	}
	actor, reason := f.placeholders()
	ctl := append([]string{"task", "change-version", t.Task.UUID.String(), "--to", f.To, "--reason", reason}, t.by("--by", actor)...)
	body := map[string]string{"to_version": f.To, "reason": reason}
	if t.Subject == "" {
		body["by"] = actor
	}
	f.Command = commandOf(req, ctl, http.MethodPost, apiOfTask(t.Task)+"/change_version", body)
	return f, nil
}

func versionOf(t tasker.Task) tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: t.Namespace, Name: t.Name, Version: t.Version}
}

func (f *versionForm) do(req *request) (*view, error) {
	if err := f.check(req, maxReason); err != nil {
		return nil, err
	}
	_, err := f.Engine.ChangeVersion(req.Context(), f.Task.UUID, tasker.VersionRequest{From: f.From, To: f.To, Actor: f.Actor, Reason: f.Reason})
	if err != nil {
		return nil, err
	}
	return &view{next: f.Back, note: "The task is of version " + f.To + "."}, nil
}
