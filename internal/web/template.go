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

// templateRoutes returns the pages of templates.
func (s *server) templateRoutes() []route {
	const version = "/templates/{namespace}/{template}/{version}"
	list := []route{
		{method: http.MethodGet, path: "/templates", rule: needs(access.ReadTemplates), serve: s.templates},
		{method: http.MethodGet, path: version, rule: needs(access.ReadTemplates), serve: s.template},
	}
	for _, word := range []string{wordRetire, wordUnretire} {
		list = append(list, actionRoutes(s, version+"/"+word, access.WriteTemplates,
			func(req *request) (*retireForm, error) { return s.retireForm(req, word) })...)
	}
	return append(list, actionRoutes(s, version+"/"+wordChange, access.OperateSteps, s.changeForm)...)
}

// A templateLine is one version of a template as a list shows it.
type templateLine struct{ tasker.StoredTemplate }

// Path is its page.
func (l templateLine) Path() string { return templatePath(l.Namespace, l.Name, l.Version) }

// Tasks is the list of the tasks of all versions.
func (l templateLine) Tasks() string {
	return tasksPath + "?" + url.Values{"namespace": {l.Namespace}, "name": {l.Name}}.Encode()
}

func templatePath(namespace, name, version string) string {
	return templatesPath + "/" + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "/" + url.PathEscape(version)
}

// A templatesPage lists the versions of templates.
type templatesPage struct {
	Namespace  string
	Namespaces []string
	Templates  []templateLine
	Pager      pager

	Faults []string // of template files that this server did not register
	Hidden int      // faults that are not shown
}

func (s *server) templates(req *request) (*view, error) {
	q := req.query()
	p, offset := templatesPage{Namespace: q.text("namespace", 128)}, q.offset()
	if q.err != nil {
		return nil, q.err
	}
	list, err := s.DB.Templates(req.Context(), p.Namespace, templateRows+1, offset)
	if err != nil {
		return nil, err
	}
	more := len(list) > templateRows
	for _, t := range list[:min(len(list), templateRows)] {
		p.Templates = append(p.Templates, templateLine{t})
	}
	p.Pager = req.pager(offset, templateRows, len(p.Templates), more)
	if p.Namespaces, err = s.DB.Namespaces(req.Context()); err != nil {
		return nil, err
	}
	if access.ScopeOf(req.Context()).List() == nil { // a file may be of any namespace
		p.Faults = s.TemplateFaults[:min(len(s.TemplateFaults), shownFaults)]
		p.Hidden = len(s.TemplateFaults) - len(p.Faults)
	}
	return &view{page: "templates", title: navTemplates, nav: navTemplates, body: p}, nil
}

// A templatePage is one version of a template.
type templatePage struct {
	templateLine
	Graph    graph
	Versions []templateLine // of the same template, the newest first
	Verbs    []caseLink
	Document document
}

func (s *server) template(req *request) (*view, error) {
	t, err := s.storedTemplate(req, access.ReadTemplates)
	if err != nil {
		return nil, err
	}
	p := templatePage{templateLine: templateLine{t}, Graph: drawTemplate(t.Template)}
	p.Document = document{Name: "Document", Text: clip(t.Source, maxShown), Size: fmt.Sprintf("%d bytes", len(t.Source))}
	versions, err := s.DB.TemplateVersions(req.Context(), t.Namespace, t.Name, versionRows)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		p.Versions = append(p.Versions, templateLine{v})
	}
	if s.showsAction(req, access.WriteTemplates, t.Namespace) {
		v := retireVerb(t)
		p.Verbs = append(p.Verbs, caseLink{Name: v.name + "…", Href: p.Path() + "/" + v.word, Key: "r", Does: v.does})
	}
	if s.showsAction(req, access.OperateSteps, t.Namespace) && len(versions) > 1 {
		p.Verbs = append(p.Verbs, caseLink{Name: "Change the version of its tasks…", Href: p.Path() + "/" + wordChange, Key: "v", Does: "bring open tasks to another version"})
	}
	return &view{page: "template", title: t.Namespace + "/" + t.Name + " " + t.Version, nav: navTemplates, body: p}, nil
}

// storedTemplate reads the version that the path names, for who has a permission in its namespace.
func (s *server) storedTemplate(req *request, needs access.Permission) (tasker.StoredTemplate, error) {
	namespace := req.PathValue("namespace")
	if err := req.caller.MayUse(needs, namespace); err != nil {
		return tasker.StoredTemplate{}, err
	}
	return s.DB.Template(req.Context(), namespace, req.PathValue("template"), req.PathValue("version"))
}

// drawTemplate draws the steps of a template.
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

// The words of what can be done with a version, in the words of tasker-ctl.
const (
	wordRetire   = "retire"
	wordUnretire = "unretire"
	wordChange   = "change-tasks"
)

// A templateVerb retires a version, or has tasks made of it again.
type templateVerb struct{ word, name, does, done string }

// retireVerb is the one of the two that makes sense for a version.
func retireVerb(t tasker.StoredTemplate) templateVerb {
	if t.Retired != nil {
		return templateVerb{wordUnretire, "Unretire", "have new tasks made of this version again", "New tasks are made of this version again."}
	}
	return templateVerb{wordRetire, "Retire", "have no new tasks made of this version", "No new tasks are made of this version."}
}

// A retireForm retires a version of a template, or has tasks made of it again.
type retireForm struct {
	*server
	form
	Template templateLine
	verb     templateVerb
}

// Retires tells which of the two it is.
func (f *retireForm) Retires() bool { return f.verb.word == wordRetire }

// retireForm reads a version for one of the two verbs.
func (s *server) retireForm(req *request, word string) (*retireForm, error) {
	t, err := s.storedTemplate(req, access.WriteTemplates)
	if err != nil {
		return nil, err
	}
	f := &retireForm{server: s, Template: templateLine{t}, verb: retireVerb(t)}
	f.form = req.formOf(form{page: "retire", title: f.verb.name + " " + t.Namespace + "/" + t.Name + " " + t.Version, nav: navTemplates, Button: f.verb.name, Back: f.Template.Path()})
	if word != f.verb.word {
		f.Refused = "It is " + word + "d already."
		return f, nil
	}
	actor, reason := f.placeholders()
	ctl := append([]string{"template", word, t.Namespace, t.Name, t.Version, "--reason", reason}, f.by("--by", actor)...)
	body := apiv1.RetireTemplate{Reason: reason, By: f.byInBody(actor)}
	f.Command = commandOf(req, ctl, http.MethodPost, apiOfTemplate(t)+"/"+word, body)
	return f, nil
}

func apiOfTemplate(t tasker.StoredTemplate) string {
	return "/v1" + strings.TrimPrefix(templatePath(t.Namespace, t.Name, t.Version), Root)
}

func (f *retireForm) do(req *request) (*view, error) {
	if err := f.check(req, maxReason); err != nil {
		return nil, err
	}
	t := f.Template
	_, err := f.DB.RetireTemplate(req.Context(), tasker.TemplateVersion{Namespace: t.Namespace, Name: t.Name, Version: t.Version}, f.Retires(),
		postgres.Operator{Actor: f.Actor, Reason: f.Reason})
	return &view{next: f.Back, note: f.verb.done}, err
}

// A changeForm brings the open tasks of a version to another one, a part at a time.
type changeForm struct {
	*server
	form
	Template templateLine
	To       string
	Versions []string // that its tasks can be brought to, the newest first
	Before   string   // the id of the task before which the part begins; empty at first
	Plan     tasker.VersionBatch
}

// Open is how many tasks the part has that have not ended.
func (f *changeForm) Open() int { return f.Plan.Changed + f.Plan.Refused }

// More tells whether there is a part after this one.
func (f *changeForm) More() bool { return f.Plan.Next != tasker.ID{} }

// changeForm reads a version and what would become of the next part of its tasks.
func (s *server) changeForm(req *request) (*changeForm, error) {
	t, err := s.storedTemplate(req, access.OperateSteps)
	if err != nil {
		return nil, err
	}
	f := &changeForm{server: s, Template: templateLine{t}}
	f.form = req.formOf(form{
		page: "changetasks", title: "Change the version of tasks of " + t.Namespace + "/" + t.Name + " " + t.Version, nav: navTemplates,
		Button: "Change these tasks", Back: f.Template.Path(),
	})
	if f.Versions, err = s.DB.OtherVersions(req.Context(), f.version()); err != nil {
		return nil, err
	}
	newest := ""
	if len(f.Versions) > 0 {
		newest = f.Versions[0]
	}
	f.To, f.Before = cmp.Or(req.FormValue("to"), newest), req.FormValue("before")
	if f.To == "" {
		f.Refused = "The template has no other version that takes tasks."
		return f, nil
	}
	f.Plan, err = f.change(req, true)
	switch code := tasker.CodeOf(err); {
	case code == tasker.Conflict, code == tasker.NotFound, code == tasker.Invalid:
		f.Refused = messageOf(err)
		return f, nil
	case err != nil:
		return nil, err
	case f.Plan.Changed == 0 && f.Plan.Refused == 0 && !f.More():
		f.Refused = fmt.Sprintf("No open task is of version %s.", t.Version)
	case f.Plan.Changed == 0 && !f.More():
		f.Refused = "None of these tasks can be changed."
	}
	actor, reason := f.placeholders()
	ctl := append([]string{"template", wordChange, t.Namespace, t.Name, t.Version, "--to", f.To, "--reason", reason}, f.by("--by", actor)...)
	body := apiv1.ChangeTasks{ToVersion: f.To, Reason: reason, By: f.byInBody(actor), Before: f.Before}
	f.Command = commandOf(req, ctl, http.MethodPost, apiOfTemplate(t)+"/change_tasks", body)
	return f, nil
}

func (f *changeForm) version() tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: f.Template.Namespace, Name: f.Template.Name, Version: f.Template.Version}
}

func (f *changeForm) change(req *request, dryRun bool) (tasker.VersionBatch, error) {
	r := tasker.VersionBatchRequest{Template: f.version(), To: f.To, DryRun: dryRun, Actor: f.Actor, Reason: f.Reason}
	if f.Before != "" && r.Before.UnmarshalText([]byte(f.Before)) != nil {
		return tasker.VersionBatch{}, tasker.Errorf(tasker.Invalid, "invalid before %q: must be the id of a task", clip(f.Before, 60))
	}
	return f.Engine.ChangeVersions(req.Context(), r)
}

func (f *changeForm) do(req *request) (*view, error) {
	if err := f.check(req, maxReason); err != nil {
		return nil, err
	}
	done, err := f.change(req, false)
	if err != nil {
		return nil, err
	}
	v := &view{next: f.Back, note: fmt.Sprintf("%s changed to version %s; %s refused.", count(done.Changed, "task"), f.To, count(done.Refused, ""))}
	if (done.Next != tasker.ID{}) {
		v.next = f.Back + "/" + wordChange + "?" + url.Values{"to": {f.To}, "before": {done.Next.String()}}.Encode()
		v.note += " These are the next."
	}
	return v, nil
}
