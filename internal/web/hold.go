package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/hold"
)

const (
	holdsPath = Root + "/holds"
	beginPath = "/begin-hold"
	navHolds  = "Holds"

	holdRows    = 50
	bannerHolds = 3
	bannerTime  = time.Second
)

// holdLine is a hold in a list.
type holdLine struct{ tasker.Hold }

func (l holdLine) Path() string { return holdsPath + "/" + l.UUID.String() }

func (l holdLine) Scope() string { return l.String() }

// Count returns the number of held steps.
func (l holdLine) Count() string {
	if l.Held >= tasker.MaxHeldCount {
		return formatCount(l.Held, "") + " or more steps"
	}
	return formatCount(l.Held, "step")
}

func (l holdLine) Who() string {
	if l.Kind == tasker.BreakerHold {
		return "a circuit breaker"
	}
	return l.Owner
}

func (l holdLine) Releasing() bool { return l.State == tasker.HoldReleasing }

// WaveName returns the current wave.
func (l holdLine) WaveName() string {
	if !l.Blocks {
		return "last wave"
	}
	return fmt.Sprintf("wave %d of %d", l.Wave, len(l.Waves)+1)
}

func newHoldLines(list []tasker.Hold) []holdLine {
	lines := make([]holdLine, len(list))
	for i, h := range list {
		lines[i] = holdLine{h}
	}
	return lines
}

// listOpenHolds returns the open holds of the caller's namespaces for the banner. It returns none
// for a request that was not admitted, so that a refusal costs no query, or if the query fails.
func (s *server) listOpenHolds(req *request) []holdLine {
	if !req.admitted || !req.canSee(access.ReadTasks) {
		return nil
	}
	ctx, cancel := context.WithTimeout(req.withPermission(access.ReadTasks).Context(), bannerTime)
	defer cancel()
	list, _, err := s.Holds.List(ctx, tasker.HoldFilter{Open: true, Limit: bannerHolds})
	if err != nil {
		s.Log.WarnContext(req.Context(), "hold banner failed", "err", err)
	}
	return newHoldLines(list)
}

// holdsPage lists holds, newest first.
type holdsPage struct {
	Open  bool // only those that have not ended
	Holds []holdLine
	Begin string // link to create one; empty without permission
	Pager pager
}

func (s *server) showHolds(req *request) (*view, error) {
	q := req.query()
	f := tasker.HoldFilter{Open: readChoice(q, "state", []tasker.HoldState{"open"}) != "", Before: q.readID("before"), Limit: holdRows}
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.Holds.List(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := holdsPage{Open: f.Open, Holds: newHoldLines(list)}
	if more {
		p.Pager.After = req.buildLink("before", list[len(list)-1].UUID.String())
	}
	if !s.ReadOnly && req.canSee(access.OperateSteps) {
		p.Begin = Root + beginPath
	}
	return &view{page: "holds", title: "Holds", nav: navHolds, live: true, body: p}, nil
}

// holdPage shows a hold with its history.
type holdPage struct {
	holdLine
	History  []tasker.HoldChange
	Releases []tasker.HoldRelease
	Case     string // page of its case
	Verbs    []link
}

func (s *server) showHold(req *request) (*view, error) {
	d, err := findByID(req, "hold", s.Holds.Detail)
	if err != nil {
		return nil, err
	}
	p := holdPage{holdLine: holdLine{d.Hold}, History: d.History, Releases: d.Releases}
	if d.CaseID != nil {
		p.Case = casePath(*d.CaseID)
	}
	if s.canShowAction(req, access.OperateSteps, d.Namespace) {
		for _, v := range holdVerbs {
			if checkHoldVerb(v, d.Hold) == "" {
				p.Verbs = append(p.Verbs, v.link(p.Path()))
			}
		}
	}
	return &view{page: "hold", title: "Hold of " + p.Scope(), nav: navHolds, live: true, body: p}, nil
}

// More returns the metadata of a change as text.
func (p holdPage) More(c tasker.HoldChange) string {
	return strings.Trim(compactJSON(c.Metadata), "{}")
}

const (
	wordProbe  = "probe"
	wordExtend = "extend"
)

var holdVerbs = []verb{
	{Word: wordProbe, Name: "Probe now…", Key: "b", Does: "release one step to test it",
		Long: "Releases one more step as a probe. Its outcome is shown on this page. Only a circuit breaker reacts to it."},
	{Word: wordExtend, Name: "Extend…", Does: "extend the hold",
		Long: "Moves the end of the hold. Its owner is warned before it ends."},
	{Word: wordRelease, Name: "Release…", Key: "r", Does: "release the steps of the hold",
		Long: "Releases the steps in waves, each after the previous wave has succeeded. If 10 % of a wave fails, the hold becomes active again."},
}

// checkHoldVerb returns why a hold does not accept an action, or "" if it does.
func checkHoldVerb(v verb, h tasker.Hold) string {
	switch {
	case h.State == tasker.HoldEnded:
		return "The hold has ended."
	case h.State == tasker.HoldReleasing && (v.Word != wordRelease || !h.Blocks):
		return "The hold is being released and cannot be changed."
	default:
		return ""
	}
}

// newHoldForm is the form to change a hold, or to create one if it has no verb.
type holdForm struct {
	*server
	form
	verb
	Hold holdLine

	Namespace, Handler, Template, Step, Case, Owner, For, Waves string // as typed
}

// Takes reports whether the form has a field.
func (p *holdForm) Takes(field string) bool {
	switch field {
	case "scope":
		return p.Word == ""
	case "end":
		return p.Word == "" || p.Word == wordExtend
	case "waves":
		return p.Word == wordRelease
	default:
		return p.Word == field
	}
}

func (*holdForm) Durations() []ageChoice {
	return []ageChoice{{"15m", "15 minutes"}, {"1h", "1 hour"}, {"4h", "4 hours"}, {"8h", "8 hours"}, {"24h", "1 day"}}
}

func (s *server) newBeginHoldForm(req *request) (*holdForm, error) {
	p := &holdForm{server: s}
	field := func(name string) string { return strings.TrimSpace(req.FormValue(name)) }
	p.Namespace, p.Handler, p.Template, p.Step, p.Case = field("namespace"), field("handler"), field("template"), field("step"), field("case")
	p.form = req.newForm(form{page: "holdaction", title: "Hold steps", nav: navHolds, Button: "Hold", Back: holdsPath})
	p.Long = "Steps in the scope cannot be claimed. New tasks are accepted and running steps continue. Held steps use no attempt, and their queue timeout and staleness are stopped."
	p.read(req)
	p.Command = p.command(req)
	return p, nil
}

func (p *holdForm) read(req *request) {
	p.Owner, p.For, p.Waves = req.trimmedField("owner"), cmp.Or(req.PostFormValue("for"), "1h"), cmp.Or(req.PostFormValue("waves"), "1, 10, 100")
}

func (s *server) newHoldForm(req *request, v verb) (*holdForm, error) {
	d, err := findByID(req, "hold", s.Holds.Detail)
	if err != nil {
		return nil, err
	}
	p := &holdForm{server: s, verb: v, Hold: holdLine{d.Hold}}
	p.form = req.newForm(form{page: "holdaction", title: v.button() + ": " + p.Hold.Scope(), nav: navHolds, Button: v.button(), Back: p.Hold.Path()})
	p.Refused = checkHoldVerb(v, d.Hold)
	p.read(req)
	p.Command = p.command(req)
	return p, nil
}

func (p *holdForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	if p.Word == "" {
		return p.begin(req)
	}
	ctx, id, c := req.Context(), p.Hold.UUID, hold.Change{Actor: p.Actor, Reason: p.Reason}
	v := &view{next: p.Back}
	var err error
	switch p.Word {
	case wordProbe:
		v.note = "A probe is released within a second."
		_, err = p.Holds.Probe(ctx, id, c)
	case wordExtend:
		v.note = "The hold was extended."
		var d time.Duration
		if d, err = parseDuration(p.For); err == nil {
			_, err = p.Holds.Extend(ctx, id, tasker.HoldExtension{For: d, Owner: p.Owner}, c)
		}
	default:
		v.note = "The hold is being released."
		var waves []int
		if waves, err = readWaves(p.Waves); err == nil {
			_, err = p.Holds.Release(ctx, id, waves, c)
		}
	}
	return v, err
}

func (p *holdForm) begin(req *request) (*view, error) {
	d, err := parseDuration(p.For)
	if err != nil {
		return nil, err
	}
	n := tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: p.Namespace, Handler: p.Handler, TaskName: p.Template, StepName: p.Step},
		For:       d, Owner: cmp.Or(p.Owner, p.Actor), Reason: p.Reason, Actor: p.Actor,
	}
	if p.Case != "" {
		if n.CaseID, err = p.readCase(req); err != nil {
			return nil, err
		}
		n.HoldScope = tasker.HoldScope{}
	} else if n.Namespace != "" {
		if err := req.caller.RequirePermission(access.OperateSteps, n.Namespace); err != nil {
			return nil, asInputError(err)
		}
	}
	h, err := p.Holds.Begin(req.Context(), n)
	return &view{next: holdLine{h}.Path(), note: "Steps in the scope are held."}, asInputError(err)
}

// readCase reads the case whose scope is held.
func (p *holdForm) readCase(req *request) (*tasker.ID, error) {
	var id tasker.ID
	if id.UnmarshalText([]byte(p.Case)) != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid case %q: must be the id of a case", truncate(p.Case, 60))
	}
	_, err := access.Finder(p.DB.FindNamespaces).Check(req.Context(), req.caller, access.OperateSteps, access.Resource{Kind: access.CaseKind, ID: id})
	return &id, asInputError(err)
}

// asInputError turns a NotFound error into an Invalid error, so that the form is shown again with
// the input.
func asInputError(err error) error {
	if tasker.CodeOf(err) == tasker.NotFound {
		return tasker.Errorf(tasker.Invalid, "%s", errorMessage(err))
	}
	return err
}

func (p *holdForm) command(req *request) command {
	actor, reason := p.placeholders()
	by := p.actorInBody(actor)
	seconds := 3600
	if d, err := parseDuration(p.For); err == nil {
		seconds = int(d / time.Second)
	}
	id := p.Hold.UUID.String()
	ctl, path := []string{"hold", p.Word, id}, "/v1/holds/"+id+"/"+p.Word
	var body any
	switch p.Word {
	case "":
		b := apiv1.BeginHold{ForSeconds: seconds, Owner: p.Owner, Reason: reason, By: by, CaseID: p.Case}
		if b.CaseID == "" {
			b.Namespace, b.Handler, b.TaskName, b.StepName = cmp.Or(p.Namespace, "NAMESPACE"), p.Handler, p.Template, p.Step
		}
		ctl = append([]string{"hold", "add"}, buildFlags("--case", b.CaseID, "--namespace", b.Namespace, "--handler",
			b.Handler,
			"--name", b.TaskName, "--step", b.StepName, "--for", p.For, "--reason", reason, "--owner", p.Owner)...)
		path, body = "/v1/holds", b
	case wordProbe:
		body = apiv1.ProbeHold{Reason: p.Reason, By: by}
	case wordExtend:
		ctl = append(ctl, buildFlags("--for", p.For, "--reason", reason, "--owner", p.Owner)...)
		body = apiv1.ExtendHold{ForSeconds: seconds, Owner: p.Owner, Reason: reason, By: by}
	default:
		waves, _ := readWaves(p.Waves)
		ctl = append(ctl, "--waves", strings.ReplaceAll(p.Waves, " ", ""), "--reason", reason)
		body = apiv1.ReleaseHold{Waves: &waves, Reason: reason, By: by}
	}
	return newCommand(req, append(ctl, p.actorFlags("--by", actor)...), http.MethodPost, path, body)
}

// buildHoldLink returns the link to the form that holds a scope, or "" if the caller lacks the
// permission.
func (s *server) buildHoldLink(req *request, namespace string, scope ...string) string {
	if !s.canShowAction(req, access.OperateSteps, namespace) {
		return ""
	}
	q := url.Values{}
	for pair := range slices.Chunk(scope, 2) {
		q.Set(pair[0], pair[1])
	}
	return Root + beginPath + "?" + q.Encode()
}
