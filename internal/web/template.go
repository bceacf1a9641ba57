package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/postgres"
)

const (
	templatesPath = Root + "/templates"
	navTemplates  = "Templates"

	templateRows = 50
	versionRows  = 20
	shownFaults  = 20
)

// templateLine is a version of a template in a list.
type templateLine struct{ tasker.StoredTemplate }

func newTemplateLines(list []tasker.StoredTemplate) (lines []templateLine) {
	for _, t := range list {
		lines = append(lines, templateLine{t})
	}
	return lines
}

func (l templateLine) Path() string { return templatePath(l.Namespace, l.Name, l.Version) }

// Tasks returns the link to the tasks of all versions of the template.
func (l templateLine) Tasks() string {
	return tasksPath + "?" + url.Values{"namespace": {l.Namespace}, "name": {l.Name}}.Encode()
}

func templatePath(namespace, name, version string) string {
	return templatesPath + "/" + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "/" + url.PathEscape(version)
}

// templatesPage lists the versions of templates.
type templatesPage struct {
	Namespace  string
	Namespaces []string
	Templates  []templateLine
	Pager      pager

	Faults []string // errors of template files that this server did not register
	Hidden int      // number of further errors
}

func (s *server) showTemplates(req *request) (*view, error) {
	q := req.query()
	p, offset := templatesPage{Namespace: q.readText("namespace", 128)}, q.readOffset()
	if q.err != nil {
		return nil, q.err
	}
	list, err := s.DB.Templates(req.Context(), p.Namespace, templateRows+1, offset)
	if err != nil {
		return nil, err
	}
	p.Templates = newTemplateLines(list[:min(len(list), templateRows)])
	p.Pager = req.newPager(offset, templateRows, len(p.Templates), len(list) > templateRows)
	if p.Namespaces, err = s.DB.Namespaces(req.Context()); err != nil {
		return nil, err
	}
	if access.ScopeFromContext(req.Context()).List() == nil { // files can belong to any namespace
		p.Faults = s.TemplateFaults[:min(len(s.TemplateFaults), shownFaults)]
		p.Hidden = len(s.TemplateFaults) - len(p.Faults)
	}
	return &view{page: "templates", title: navTemplates, nav: navTemplates, body: p}, nil
}

// templatePage shows a version of a template.
type templatePage struct {
	templateLine
	Graph    graph
	Versions []templateLine // newest first
	Verbs    []link
	Document document
}

func (s *server) showTemplate(req *request) (*view, error) {
	t, err := s.loadTemplate(req, access.ReadTemplates)
	if err != nil {
		return nil, err
	}
	versions, err := s.DB.TemplateVersions(req.Context(), t.Namespace, t.Name, versionRows)
	if err != nil {
		return nil, err
	}
	p := templatePage{templateLine: templateLine{t}, Graph: drawTemplate(t.Template), Versions: newTemplateLines(versions)}
	p.Document = document{Name: "Document", Text: truncate(t.Source, maxShown),
		Size: fmt.Sprintf("%d bytes", len(t.Source))}
	if s.canShowAction(req, access.WriteTemplates, t.Namespace) {
		p.Verbs = append(p.Verbs, newRetireVerb(t).link(p.Path()))
	}
	if s.canShowAction(req, access.OperateSteps, t.Namespace) && len(versions) > 1 {
		p.Verbs = append(p.Verbs, verb{Word: wordChange, Name: "Change the version of its tasks…", Key: "v", Does: "move open tasks to another version"}.link(p.Path()))
	}
	return &view{page: "template", title: t.Namespace + "/" + t.Name + " " + t.Version, nav: navTemplates, body: p}, nil
}

// loadTemplate reads the template version in the path. It returns an error if the caller lacks
// the permission in its namespace.
func (s *server) loadTemplate(req *request, needs access.Permission) (tasker.StoredTemplate, error) {
	namespace := req.PathValue("namespace")
	if err := req.caller.RequirePermission(needs, namespace); err != nil {
		return tasker.StoredTemplate{}, err
	}
	return s.DB.Template(req.Context(), namespace, req.PathValue("template"), req.PathValue("version"))
}

func drawTemplate(t tasker.Template) graph {
	steps, id, about := make([]tasker.Step, len(t.Steps)), map[string]tasker.ID{}, map[string]string{}
	for i, st := range t.Steps {
		id[st.Name] = tasker.NewID()
		steps[i] = tasker.Step{UUID: id[st.Name], Name: st.Name, Type: st.Type}
		if about[st.Name] = cmp.Or(nodeKinds[st.Type], truncateToWidth(st.Handler.Callable, nodeText)); st.Type == tasker.MapStep {
			about[st.Name] = "map"
		}
	}
	for i, st := range t.Steps {
		for _, parent := range st.Dependencies {
			steps[i].Parents = append(steps[i].Parents, id[parent])
		}
	}
	g := drawGraph(steps, nil, nil)
	for i := range g.Nodes {
		g.Nodes[i].Line = about[g.Nodes[i].Name]
	}
	return g
}

const (
	wordRetire   = "retire"
	wordUnretire = "unretire"
	wordChange   = "change-tasks"
)

// newRetireVerb returns the action that retires or unretires a version.
func newRetireVerb(t tasker.StoredTemplate) verb {
	if t.Retired != nil {
		return verb{Word: wordUnretire, Name: "Unretire…", Key: "r", Does: "allow new tasks of this version",
			Long: "New tasks can use this version again. It is the default if it is the newest version that is not retired."}
	}
	return verb{Word: wordRetire, Name: "Retire…", Key: "r", Does: "prevent new tasks of this version",
		Long: "New tasks cannot use this version: requests that name it are rejected, and other requests use the newest version that is not retired. Existing tasks continue."}
}

// newRetireForm is the form to retire or unretire a version of a template.
type retireForm struct {
	*server
	form
	verb
	Template templateLine
}

func (s *server) newRetireForm(req *request, v verb) (*retireForm, error) {
	t, err := s.loadTemplate(req, access.WriteTemplates)
	if err != nil {
		return nil, err
	}
	f := &retireForm{server: s, Template: templateLine{t}, verb: newRetireVerb(t)}
	f.form = req.newForm(form{
		page: "retire", title: f.button() + " " + t.Namespace + "/" + t.Name + " " + t.Version, nav: navTemplates,
		Button: f.button(), Back: f.Template.Path(),
	})
	if v.Word != f.Word {
		f.Refused = "The version is already " + v.Word + "d."
		return f, nil
	}
	actor, reason := f.placeholders()
	ctl := append([]string{"template", f.Word, t.Namespace, t.Name, t.Version, "--reason", reason},
		f.actorFlags("--by", actor)...)
	body := apiv1.RetireTemplate{Reason: reason, By: f.actorInBody(actor)}
	f.Command = newCommand(req, ctl, http.MethodPost, templateAPIPath(t)+"/"+f.Word, body)
	return f, nil
}

func templateAPIPath(t tasker.StoredTemplate) string {
	return "/v1" + strings.TrimPrefix(templatePath(t.Namespace, t.Name, t.Version), Root)
}

func (f *retireForm) do(req *request) (*view, error) {
	if err := f.checkReason(req, maxReason); err != nil {
		return nil, err
	}
	t := f.Template
	_, err := f.DB.RetireTemplate(req.Context(), tasker.TemplateVersion{Namespace: t.Namespace, Name: t.Name, Version: t.Version}, f.Word == wordRetire,
		postgres.Operator{Actor: f.Actor, Reason: f.Reason})
	return &view{next: f.Back, note: "The version was " + f.Word + "d."}, err
}

// newChangeForm is the form to move the open tasks of a version to another version, in batches.
type changeForm struct {
	*server
	form
	Template templateLine
	To       string
	Versions []string // possible versions, newest first
	Before   string   // id of the task before which the batch begins
	Plan     tasker.VersionBatch
}

// Open returns the number of open tasks in the batch.
func (f *changeForm) Open() int { return f.Plan.Changed + f.Plan.Refused }

// More reports whether there is another batch.
func (f *changeForm) More() bool { return f.Plan.Next != tasker.ID{} }

// newChangeForm returns the form with a plan for the next batch.
func (s *server) newChangeForm(req *request) (*changeForm, error) {
	t, err := s.loadTemplate(req, access.OperateSteps)
	if err != nil {
		return nil, err
	}
	f := &changeForm{server: s, Template: templateLine{t}}
	f.form = req.newForm(form{
		page: "changetasks", title: "Change the version of tasks of " + t.Namespace + "/" + t.Name + " " + t.Version, nav: navTemplates,
		Button: "Change these tasks", Back: f.Template.Path(),
	})
	if f.Versions, err = s.DB.OtherVersions(req.Context(), f.parseVersion()); err != nil {
		return nil, err
	}
	f.To, f.Before = cmp.Or(append([]string{req.FormValue("to")}, f.Versions...)...), req.FormValue("before")
	if f.To == "" {
		f.Refused = "The template has no other version for new tasks."
		return f, nil
	}
	f.Plan, err = f.change(req, true)
	switch code := tasker.CodeOf(err); {
	case code == tasker.Conflict, code == tasker.NotFound, code == tasker.Invalid:
		f.Refused = errorMessage(err)
		return f, nil
	case err != nil:
		return nil, err
	case f.Plan.Changed == 0 && f.Plan.Refused == 0 && !f.More():
		f.Refused = fmt.Sprintf("No open task has version %s.", t.Version)
	case f.Plan.Changed == 0 && !f.More():
		f.Refused = "None of these tasks can be changed."
	}
	actor, reason := f.placeholders()
	ctl := append([]string{"template", wordChange, t.Namespace, t.Name, t.Version, "--to", f.To, "--reason", reason}, f.actorFlags("--by", actor)...)
	body := apiv1.ChangeTasks{ToVersion: f.To, Reason: reason, By: f.actorInBody(actor), Before: f.Before}
	f.Command = newCommand(req, ctl, http.MethodPost, templateAPIPath(t)+"/change_tasks", body)
	return f, nil
}

func (f *changeForm) parseVersion() tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: f.Template.Namespace, Name: f.Template.Name, Version: f.Template.Version}
}

func (f *changeForm) change(req *request, dryRun bool) (tasker.VersionBatch, error) {
	r := tasker.VersionBatchRequest{Template: f.parseVersion(), To: f.To, DryRun: dryRun, Actor: f.Actor, Reason: f.Reason}
	if f.Before != "" && r.Before.UnmarshalText([]byte(f.Before)) != nil {
		return tasker.VersionBatch{}, tasker.Errorf(tasker.Invalid, "invalid before %q: must be the id of a task", truncate(f.Before, 60))
	}
	return f.Engine.ChangeVersions(req.Context(), r)
}

func (f *changeForm) do(req *request) (*view, error) {
	if err := f.checkReason(req, maxReason); err != nil {
		return nil, err
	}
	done, err := f.change(req, false)
	if err != nil {
		return nil, err
	}
	v := &view{next: f.Back, note: fmt.Sprintf("%s moved to version %s; %s refused.", formatCount(done.Changed, "task"), f.To, formatCount(done.Refused, ""))}
	if (done.Next != tasker.ID{}) {
		v.next = f.Back + "/" + wordChange + "?" + url.Values{"to": {f.To}, "before": {done.Next.String()}}.Encode()
		v.note += " This page shows the next batch."
	}
	return v, nil
}
