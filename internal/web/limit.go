package web

import (
	"net/http"
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/engine"
	apiquery "tasker.example/tasker/internal/query"
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

// formatCapped formats a number for which counting stops at [tasker.MaxLimitCount].
func formatCapped(n int64) string {
	if n >= tasker.MaxLimitCount {
		return formatCount(n, "") + " or more"
	}
	return formatCount(n, "")
}

// limitPage returns the page of a limit.
func limitPage(r tasker.LimitRef) string { return limitLink(limitPath, r) }

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

// limitLink returns the address of the page path for a limit.
func limitLink(path string, r tasker.LimitRef) string {
	if q := apiquery.Encode(tasker.LimitFilter{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}); len(q) > 0 {
		path += "?" + q.Encode()
	}
	return Root + path
}

func (s *server) showLimits(req *request) (*view, error) {
	q := req.query()
	f := tasker.LimitFilter{Namespace: q.readText("namespace", 128), After: q.readText("after", 300), Limit: limitRows}
	list, more := loadPage(req, s.Engine.Limits, f)
	p := newListPage(req, list, more, "after", func(l tasker.Limit) any { return l.LimitRef })
	return &view{page: "limits", title: navLimits, nav: navLimits, live: true, body: p}, nil
}

type limitDetailPage struct {
	tasker.LimitDetail
	MoreKeys    bool
	Set, Delete string // forms; empty without permission
}

func readLimitRef(req *request) tasker.LimitRef {
	ref := tasker.LimitRef{Kind: tasker.LimitKind(req.trimmedValue("kind")), Namespace: req.trimmedValue("namespace"),
		Name: req.trimmedValue("name")}
	if checkStorable(ref.Namespace+ref.Name) != nil {
		req.fail(tasker.Errorf(tasker.Invalid, "invalid limit name: must be valid UTF-8 without NUL"))
	}
	return ref
}

func (s *server) showLimit(req *request) (*view, error) {
	ref := readLimitRef(req)
	d := load(req, s.Engine.Limit, ref)
	p := limitDetailPage{LimitDetail: d, MoreKeys: len(d.Keys) == tasker.MaxLimitKeys}
	if !s.ReadOnly && req.caller.RequireLimitPermission(ref) == nil {
		p.Set = limitLink(setLimitPath, ref)
		if ref.Kind != tasker.NamedLimit { // templates define it
			p.Delete = limitLink(deleteLimitPath, ref)
		}
	}
	return &view{page: "limit", title: "Limit of " + limitTitle(d.LimitRef), nav: navLimits, live: true, body: p}, nil
}

// limitForm is the form to set or delete a limit.
type limitForm struct {
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

func (s *server) newSetLimitForm(req *request) *limitForm {
	p := &limitForm{Ref: readLimitRef(req), Max: req.trimmedField("max"), Rate: req.trimmedField("rate"),
		Burst: req.trimmedField("burst")}
	for _, kind := range tasker.LimitKinds() {
		if kind != tasker.ServerLimit || req.caller.RequireLimitPermission(tasker.LimitRef{Kind: kind}) == nil {
			p.Kinds = append(p.Kinds, kind)
		}
	}
	p.form = req.newForm(form{page: "limitaction", title: "Set a limit", nav: navLimits, Button: "Set the limit", Back: limitsPath})
	if req.Method != http.MethodPost && p.Ref.Check() == nil && req.err() == nil {
		p.fill(req)
	}
	p.Command = p.command()
	return p
}

// fill sets the fields to the current value of the limit, if it exists.
func (p *limitForm) fill(req *request) {
	d, err := p.Engine.Limit(req.Context(), p.Ref)
	if tasker.CodeOf(err) != tasker.NotFound {
		req.fail(err)
	}
	if d.MaxInProgress > 0 {
		p.Max = strconv.Itoa(d.MaxInProgress)
	}
	if d.PerSecond > 0 {
		p.Rate, p.Burst = strconv.FormatFloat(d.PerSecond, 'g', -1, 64), strconv.Itoa(d.Burst)
	}
}

func (s *server) newDeleteLimitForm(req *request) *limitForm {
	p := &limitForm{Ref: readLimitRef(req), Deletes: true}
	back := limitPage(load(req, s.Engine.Limit, p.Ref).LimitRef)
	p.form = req.newForm(form{page: "limitaction", title: "Delete the limit of " + limitTitle(p.Ref), nav: navLimits,
		Button: "Delete the limit", Back: back, Danger: true})
	p.Command = p.command()
	return p
}

func (p *limitForm) do(req *request) (*view, error) {
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
	return &view{next: limitPage(l.LimitRef), note: "The limit is " + l.LimitValue.String() + "."}, err
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

func (p *limitForm) command() command {
	ref := p.Ref
	if ref.Check() != nil {
		ref = tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: "NAMESPACE", Name: "HANDLER"}
	}
	e, word := described(endpoint.SetLimit), "limit set "
	if p.Deletes {
		e, word = endpoint.DeleteLimit, "limit delete "
	}
	c := p.newCall(e, word+string(ref.Kind))
	c.member("kind", ref.Kind)
	c.set("--namespace", "namespace", ref.Namespace)
	c.set("--name", "name", ref.Name)
	if !p.Deletes {
		v, err := p.parseValue()
		if err != nil || v.Check() != nil {
			v = tasker.LimitValue{MaxInProgress: 10}
		}
		c.set("--max", "max_in_progress", v.MaxInProgress)
		c.set("--rate", "per_second", v.PerSecond)
		c.set("--burst", "burst", v.Burst)
	}
	c.setReason()
	c.setActor("--by", "by")
	return c.format()
}
