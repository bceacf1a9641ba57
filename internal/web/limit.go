package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
)

const (
	limitsPath = Root + "/limits"
	navLimits  = "Limits"

	// Limits are selected by a query because their names can contain slashes.
	limitPath       = "/limit"
	setLimitPath    = "/set-limit"
	deleteLimitPath = "/delete-limit"

	limitRows = 100
)

// limitLine is a limit in a list.
type limitLine struct{ tasker.Limit }

func (l limitLine) Title() string { return limitTitle(l.LimitRef) }

func (l limitLine) Path() string { return limitLink(limitPath, l.LimitRef) }

// SetBy returns who set the value of the limit.
func (l limitLine) SetBy() string {
	if l.ByTemplate {
		return "template"
	}
	return l.ChangedBy
}

// Some formats a number for which counting stops at [tasker.MaxLimitCount].
func (limitLine) Some(n int64) string {
	if n >= tasker.MaxLimitCount {
		return formatCount(n, "") + " or more"
	}
	return formatCount(n, "")
}

func limitTitle(r tasker.LimitRef) string {
	switch r.Kind {
	case tasker.NamespaceLimit:
		return r.Namespace
	case tasker.HandlerLimit:
		return r.Namespace + ": handler " + r.Name
	case tasker.NamedLimit:
		return r.Namespace + ": " + r.Name
	case tasker.ServerLimit:
	}
	return "the server"
}

// limitQuery returns the parameters that select a limit.
func limitQuery(r tasker.LimitRef) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"kind": string(r.Kind), "namespace": r.Namespace, "name": r.Name} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// limitLink returns the address of the page path for a limit.
func limitLink(path string, r tasker.LimitRef) string {
	if q := limitQuery(r); len(q) > 0 {
		path += "?" + q.Encode()
	}
	return Root + path
}

// limitsPage lists limits, by namespace, kind and name.
type limitsPage struct {
	Namespace string // filter; empty for all
	Limits    []limitLine
	Pager     pager
	Set       string // form to set one; empty without permission
}

func (s *server) showLimits(req *request) (*view, error) {
	q := req.query()
	f := tasker.LimitFilter{Namespace: q.readText("namespace", 128), After: q.readText("after", 300), Limit: limitRows}
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.Engine.Limits(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := limitsPage{Namespace: f.Namespace}
	for _, l := range list {
		p.Limits = append(p.Limits, limitLine{l})
	}
	if more {
		p.Pager.After = req.buildLink("after", list[len(list)-1].LimitRef.String())
	}
	if !s.ReadOnly && req.canSee(access.OperateSteps) {
		p.Set = limitLink(setLimitPath, tasker.LimitRef{Namespace: f.Namespace})
	}
	return &view{page: "limits", title: navLimits, nav: navLimits, live: true, body: p}, nil
}

// limitDetailPage shows a limit and its keys with the most waiting steps.
type limitDetailPage struct {
	limitLine
	Keys        []tasker.LimitKey
	MoreKeys    bool
	Set, Delete string // forms; empty without permission
}

// readLimitRef reads the selected limit.
func readLimitRef(req *request) (ref tasker.LimitRef, err error) {
	field := func(name string) string { return strings.TrimSpace(req.FormValue(name)) }
	ref = tasker.LimitRef{Kind: tasker.LimitKind(field("kind")), Namespace: field("namespace"), Name: field("name")}
	if checkStorable(ref.Namespace+ref.Name) != nil {
		return tasker.LimitRef{}, tasker.Errorf(tasker.Invalid, "invalid limit name: must be valid UTF-8 without NUL")
	}
	return ref, nil
}

func (s *server) showLimit(req *request) (*view, error) {
	ref, err := readLimitRef(req)
	if err != nil {
		return nil, err
	}
	d, err := s.Engine.Limit(req.Context(), ref)
	if err != nil {
		return nil, err
	}
	p := limitDetailPage{limitLine: limitLine{d.Limit}, Keys: d.Keys, MoreKeys: len(d.Keys) == tasker.MaxLimitKeys}
	if !s.ReadOnly && req.caller.RequireLimitPermission(ref) == nil {
		p.Set = limitLink(setLimitPath, ref)
		if ref.Kind != tasker.NamedLimit { // templates define it
			p.Delete = limitLink(deleteLimitPath, ref)
		}
	}
	return &view{page: "limit", title: "Limit of " + p.Title(), nav: navLimits, live: true, body: p}, nil
}

// limitForm is the form to set or delete a limit.
type limitForm struct {
	*server
	form
	Ref     tasker.LimitRef // as typed
	Kinds   []tasker.LimitKind
	Deletes bool

	Max, Rate, Burst string // as typed
}

// Of returns the title of the limit, or "" while the reference is incomplete.
func (p *limitForm) Of() string {
	if p.Ref.Check() != nil {
		return ""
	}
	return limitTitle(p.Ref)
}

func (s *server) newSetLimitForm(req *request) (*limitForm, error) {
	ref, err := readLimitRef(req)
	if err != nil {
		return nil, err
	}
	p := &limitForm{server: s, Ref: ref}
	for _, kind := range tasker.LimitKinds() {
		if kind != tasker.ServerLimit || req.caller.RequireLimitPermission(tasker.LimitRef{Kind: kind}) == nil {
			p.Kinds = append(p.Kinds, kind)
		}
	}
	p.form = req.newForm(form{page: "limitaction", title: "Set a limit", nav: navLimits, Button: "Set the limit", Back: limitsPath})
	if p.Max, p.Rate, p.Burst = req.trimmedField("max"), req.trimmedField("rate"), req.trimmedField("burst"); req.Method != http.MethodPost && ref.Check() == nil {
		if err := p.fill(req); err != nil {
			return nil, err
		}
	}
	p.Command = p.command(req)
	return p, nil
}

// fill sets the fields to the current value of the limit.
func (p *limitForm) fill(req *request) error {
	d, err := p.Engine.Limit(req.Context(), p.Ref)
	if tasker.CodeOf(err) == tasker.NotFound {
		return nil // a new limit
	}
	if err != nil {
		return err
	}
	if d.MaxInProgress > 0 {
		p.Max = strconv.Itoa(d.MaxInProgress)
	}
	if d.PerSecond > 0 {
		p.Rate, p.Burst = strconv.FormatFloat(d.PerSecond, 'g', -1, 64), strconv.Itoa(d.Burst)
	}
	return nil
}

func (s *server) newDeleteLimitForm(req *request) (*limitForm, error) {
	ref, err := readLimitRef(req)
	if err != nil {
		return nil, err
	}
	d, err := s.Engine.Limit(req.Context(), ref)
	if err != nil {
		return nil, err
	}
	p := &limitForm{server: s, Ref: ref, Deletes: true}
	p.form = req.newForm(form{page: "limitaction", title: "Delete the limit of " + limitTitle(ref), nav: navLimits, Button: "Delete the limit", Back: limitLine{d.Limit}.Path(), Danger: true})
	p.Command = p.command(req)
	return p, nil
}

func (p *limitForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	if err := p.Ref.Check(); err != nil {
		return nil, err
	}
	if err := req.caller.RequireLimitPermission(p.Ref); err != nil {
		return nil, asInputError(err)
	}
	change := engine.LimitChange{Actor: p.Actor, Reason: p.Reason}
	if p.Deletes {
		return &view{next: limitsPath, note: "The limit of " + limitTitle(p.Ref) + " is deleted."}, p.Engine.DeleteLimit(req.Context(), p.Ref, change)
	}
	value, err := p.parseValue()
	if err != nil {
		return nil, err
	}
	l, err := p.Engine.SetLimit(req.Context(), p.Ref, value, change)
	return &view{next: limitLine{l}.Path(), note: "The limit is " + l.LimitValue.String() + "."}, err
}

// parseValue parses the fields to the value of a limit.
func (p *limitForm) parseValue() (v tasker.LimitValue, err error) {
	whole := func(name, text string) int {
		n, fault := strconv.Atoi(text)
		if text != "" && fault != nil {
			err = tasker.Errorf(tasker.Invalid, "invalid %s %q: must be a whole number", name, truncate(text, 40))
		}
		return n
	}
	v.MaxInProgress, v.Burst = whole("max", p.Max), whole("burst", p.Burst)
	if p.Rate != "" {
		var fault error
		if v.PerSecond, fault = strconv.ParseFloat(p.Rate, 64); fault != nil {
			err = tasker.Errorf(tasker.Invalid, "invalid rate %q: must be a number", truncate(p.Rate, 40))
		}
	}
	return v, err
}

func (p *limitForm) command(req *request) command {
	actor, reason := p.placeholders()
	ref := p.Ref
	if ref.Check() != nil {
		ref = tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: "NAMESPACE", Name: "HANDLER"}
	}
	ctl := func(word string, pairs ...string) []string {
		list := buildFlags(append([]string{"--namespace", ref.Namespace, "--name", ref.Name}, append(pairs, "--reason", reason)...)...)
		return slices.Concat([]string{"limit", word, string(ref.Kind)}, list, p.actorFlags("--by", actor))
	}
	if p.Deletes {
		q := limitQuery(ref)
		q.Set("reason", reason)
		if by := p.actorInBody(actor); by != "" {
			q.Set("by", by)
		}
		return newCommand(req, ctl("delete"), http.MethodDelete, "/v1/limits?"+q.Encode(), nil)
	}
	most, rate, burst := p.Max, p.Rate, p.Burst
	v, err := p.parseValue()
	if err != nil || v.Check() != nil {
		v, most, rate, burst = tasker.LimitValue{MaxInProgress: 10}, "10", "", ""
	}
	return newCommand(req, ctl("set", "--max", most, "--rate", rate, "--burst", burst), http.MethodPut, "/v1/limits", apiv1.SetLimit{
		Kind: string(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, MaxInProgress: v.MaxInProgress, PerSecond: v.PerSecond, Burst: v.Burst,
		Reason: reason, By: p.actorInBody(actor),
	})
}
