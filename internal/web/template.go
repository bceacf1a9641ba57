package web

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/postgres"
)

const (
	templatesPath = Root + "/templates"
	navTemplates  = "Templates"

	versionRows = 20
	shownFaults = 20
)

func templatePath(t tasker.StoredTemplate) string {
	return strings.Join([]string{
		templatesPath, url.PathEscape(t.Namespace), url.PathEscape(t.Name), url.PathEscape(t.Version),
	}, "/")
}

type templatesPage struct {
	Namespace  string
	Namespaces []string
	Templates  []tasker.StoredTemplate
	Pager      pager

	Faults []string // errors of template files that this server did not register
	Hidden int      // number of further errors
}

func (s *server) showTemplates(req *request) (*view, error) {
	q := req.query()
	p, offset := templatesPage{Namespace: q.readText("namespace", 128)}, q.readOffset()
	list, err := s.DB.Templates(req.Context(), p.Namespace, listRows+1, offset)
	req.fail(err)
	p.Templates, p.Pager = cutPage(req, list, offset, listRows)
	p.Namespaces = loadAll(req, s.DB.Namespaces)
	if access.ScopeFromContext(req.Context()).List() == nil { // files can belong to any namespace
		p.Faults = s.TemplateFaults[:min(len(s.TemplateFaults), shownFaults)]
		p.Hidden = len(s.TemplateFaults) - len(p.Faults)
	}
	return &view{page: "templates", title: navTemplates, nav: navTemplates, body: p}, nil
}

type templatePage struct {
	tasker.StoredTemplate
	Graph    graph
	Versions []tasker.StoredTemplate // newest first
	Verbs    []link
	Document document
}

func (s *server) showTemplate(req *request) (*view, error) {
	t := s.loadTemplate(req, access.ReadTemplates)
	versions, err := s.DB.TemplateVersions(req.Context(), t.Namespace, t.Name, versionRows)
	req.fail(err)
	p := templatePage{StoredTemplate: t, Graph: drawTemplate(t.Template), Versions: versions}
	p.Document = document{Name: "Document", Text: truncate(t.Source, maxShown),
		Size: fmt.Sprintf("%d bytes", len(t.Source))}
	if s.canShowAction(req, access.WriteTemplates, t.Namespace) {
		p.Verbs = append(p.Verbs, newRetireVerb(t).link(templatePath(t)))
	}
	if s.canShowAction(req, access.OperateSteps, t.Namespace) && len(versions) > 1 {
		p.Verbs = append(p.Verbs, verb{Word: wordChange, Name: "Change the version of its tasks…", Key: "v",
			Does: "move open tasks to another version"}.link(templatePath(t)))
	}
	return &view{page: "template", title: formatVersion(t), nav: navTemplates, body: p}, nil
}

// formatVersion returns the namespace, name and version of a template.
func formatVersion(t tasker.StoredTemplate) string {
	return t.Namespace + "/" + t.Name + " " + t.Version
}

// loadTemplate reads the template version in the path. It fails if the caller lacks the permission
// in its namespace.
func (s *server) loadTemplate(req *request, needs access.Permission) tasker.StoredTemplate {
	namespace := req.PathValue("namespace")
	if req.fail(req.caller.RequirePermission(needs, namespace)); req.err() != nil {
		return tasker.StoredTemplate{}
	}
	t, err := s.DB.Template(req.Context(), namespace, req.PathValue("template"), req.PathValue("version"))
	req.fail(err)
	return t
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
			endpoint: endpoint.UnretireTemplate,
			Long:     "New tasks can use this version again. It is the default if it is the newest version that is not retired."}
	}
	return verb{Word: wordRetire, Name: "Retire…", Key: "r", Does: "prevent new tasks of this version",
		endpoint: endpoint.RetireTemplate,
		Long:     "New tasks cannot use this version: requests that name it are rejected, and other requests use the newest version that is not retired. Existing tasks continue."}
}

// retireForm is the form to retire or unretire a version of a template.
type retireForm struct {
	form
	verb
	Template tasker.StoredTemplate
}

func (s *server) newRetireForm(req *request, v verb) *retireForm {
	t := s.loadTemplate(req, access.WriteTemplates)
	f := &retireForm{Template: t, verb: newRetireVerb(t)}
	f.form = req.newForm(form{
		page: "retire", title: f.button() + " " + formatVersion(t), nav: navTemplates, Button: f.button(),
		Back: templatePath(t), maxReason: maxReason,
	})
	if v.Word != f.Word {
		f.Refused = "The version is already " + v.Word + "d."
	}
	c := f.newCall(f.endpoint, "template "+f.Word, t.Namespace, t.Name, t.Version)
	c.setReason()
	c.setActor("--by", "by")
	f.Command = c.format()
	return f
}

func (f *retireForm) do(req *request) (*view, error) {
	t := tasker.TemplateVersion{Namespace: f.Template.Namespace, Name: f.Template.Name, Version: f.Template.Version}
	_, err := f.DB.RetireTemplate(req.Context(), t, f.Word == wordRetire,
		postgres.Operator{Actor: f.Actor, Reason: f.Reason})
	return &view{next: f.Back, note: "The version was " + f.Word + "d."}, err
}

// changeForm is the form to move the open tasks of a version to another version, in batches.
type changeForm struct {
	form
	Template tasker.StoredTemplate
	To       string
	Versions []string // possible versions, newest first
	Before   string   // id of the task before which the batch begins
	Plan     tasker.VersionBatch
}

// More reports whether there is another batch.
func (f *changeForm) More() bool { return f.Plan.Next != tasker.ID{} }

// newChangeForm returns the form with a plan for the next batch.
func (s *server) newChangeForm(req *request) *changeForm {
	t := s.loadTemplate(req, access.OperateSteps)
	f := &changeForm{Template: t}
	if req.err() != nil {
		return f
	}
	f.form = req.newForm(form{
		page: "changetasks", title: "Change the version of tasks of " + formatVersion(t), nav: navTemplates,
		Button: "Change these tasks", Back: templatePath(t), maxReason: maxReason,
	})
	f.Versions = load(req, s.DB.OtherVersions, f.parseVersion())
	f.To, f.Before = cmp.Or(append([]string{req.FormValue("to")}, f.Versions...)...), req.FormValue("before")
	if f.To == "" {
		f.Refused = "The template has no other version for new tasks."
		return f
	}
	var err error
	f.Plan, err = f.change(req, true)
	switch {
	case err != nil:
		f.refuse(err)
	case f.Plan.Changed == 0 && f.Plan.Refused == 0 && !f.More():
		f.Refused = fmt.Sprintf("No open task has version %s.", t.Version)
	case f.Plan.Changed == 0 && !f.More():
		f.Refused = "None of these tasks can be changed."
	}
	c := f.newCall(endpoint.ChangeTasks, "template "+wordChange, t.Namespace, t.Name, t.Version)
	c.set("--to", "to_version", f.To)
	c.setReason()
	c.member("before", f.Before)
	c.setActor("--by", "by")
	f.Command = c.format()
	return f
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
