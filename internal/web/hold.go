package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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

// A holdLine is a hold as a list shows it.
type holdLine struct{ tasker.Hold }

// Path is its page.
func (l holdLine) Path() string { return holdsPath + "/" + l.UUID.String() }

// Scope says what it holds.
func (l holdLine) Scope() string { return l.String() }

// Count is how many steps it holds.
func (l holdLine) Count() string {
	if l.Held >= tasker.MaxHeldCount {
		return count(l.Held, "") + " or more steps"
	}
	return count(l.Held, "step")
}

// Who is whose it is.
func (l holdLine) Who() string {
	if l.Kind == tasker.BreakerHold {
		return "a breaker"
	}
	return l.Owner
}

// Releasing reports whether its steps are being let go.
func (l holdLine) Releasing() bool { return l.State == tasker.HoldReleasing }

// WaveName is the wave that is under way.
func (l holdLine) WaveName() string {
	if !l.Blocks {
		return "the rest"
	}
	return fmt.Sprintf("wave %d of %d", l.Wave, len(l.Waves)+1)
}

func holdLines(list []tasker.Hold) []holdLine {
	lines := make([]holdLine, len(list))
	for i, h := range list {
		lines[i] = holdLine{h}
	}
	return lines
}

// held returns the open holds of the namespaces whose tasks the caller may see, for the banner
// of every page to which its caller was admitted: a refusal costs the database nothing. A page is
// there without it.
func (s *server) held(req *request) []holdLine {
	if !req.admitted || !req.sees(access.ReadTasks) {
		return nil
	}
	ctx, cancel := context.WithTimeout(req.within(access.ReadTasks).Context(), bannerTime)
	defer cancel()
	list, _, err := s.Holds.List(ctx, tasker.HoldFilter{Open: true, Limit: bannerHolds})
	if err != nil {
		s.Log.WarnContext(req.Context(), "a page does not say what is held", "err", err)
	}
	return holdLines(list)
}

// A holdsPage lists holds, newest first.
type holdsPage struct {
	Open  bool // only those that have not ended
	Holds []holdLine
	Begin string // the form that begins one; empty where the caller may not
	Pager pager
}

func (s *server) holds(req *request) (*view, error) {
	q := req.query()
	f := tasker.HoldFilter{Open: choice(q, "state", []tasker.HoldState{"open"}) != "", Limit: holdRows}
	if text := q.Get("before"); text != "" {
		var id tasker.ID
		if id.UnmarshalText([]byte(text)) != nil {
			q.refuse("before", "the id of a hold")
		}
		f.Before = &id
	}
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.Holds.List(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := holdsPage{Open: f.Open, Holds: holdLines(list)}
	if more {
		p.Pager.After = req.link("before", list[len(list)-1].UUID.String())
	}
	if !s.ReadOnly && req.sees(access.OperateSteps) {
		p.Begin = Root + beginPath
	}
	return &view{page: "holds", title: "Holds", nav: navHolds, live: true, body: p}, nil
}

// A holdPage is one hold with its history.
type holdPage struct {
	holdLine
	History  []tasker.HoldChange
	Releases []tasker.HoldRelease
	Case     string // the page of the case that it was begun for
	Verbs    []caseLink
}

func (s *server) onHold(req *request) (*view, error) {
	id, err := req.id("hold")
	if err != nil {
		return nil, err
	}
	d, err := s.Holds.Detail(req.Context(), id)
	if err != nil {
		return nil, err
	}
	p := holdPage{holdLine: holdLine{d.Hold}, History: d.History, Releases: d.Releases}
	if d.CaseID != nil {
		p.Case = casePath(*d.CaseID)
	}
	if s.showsAction(req, access.OperateSteps, d.Namespace) {
		for _, v := range holdVerbs {
			if v.refusal(d.Hold) == "" {
				p.Verbs = append(p.Verbs, caseLink{Name: v.Name, Href: p.Path() + "/" + v.Word, Key: v.Key, Does: v.Does})
			}
		}
	}
	return &view{page: "hold", title: "Hold of " + p.Scope(), nav: navHolds, live: true, body: p}, nil
}

// More is what else a line of the history of a hold says.
func (p holdPage) More(c tasker.HoldChange) string {
	return strings.Trim(compactJSON(c.Metadata), "{}")
}

// A holdVerb changes a hold, in the words of tasker-ctl.
type holdVerb struct {
	Word, Name, Key, Does string
	Long                  string
}

const (
	wordProbe  = "probe"
	wordExtend = "extend"
)

var holdVerbs = []holdVerb{
	{Word: wordProbe, Name: "Probe now…", Key: "b", Does: "let one step go, to see whether it succeeds",
		Long: "One step is let go, another one than before. Its page, and this one, say what became of it. Nothing else of the hold changes, unless a breaker began it."},
	{Word: wordExtend, Name: "Extend…", Does: "move the end of the hold",
		Long: "The hold ends by itself at its new end. Whoever owns it is asked before."},
	{Word: wordRelease, Name: "Release…", Key: "r", Does: "let the steps of the hold go",
		Long: "Its steps go in waves, each after the one before has succeeded. When a tenth of a wave fails, the hold holds again. [] or all lets all go at once."},
}

// refusal says why the verb makes no sense for a hold; empty when it does.
func (v holdVerb) refusal(h tasker.Hold) string {
	switch {
	case h.State == tasker.HoldEnded:
		return "The hold has ended."
	case h.State == tasker.HoldReleasing && (v.Word != wordRelease || !h.Blocks):
		return "The hold is being released: it cannot be changed so."
	default:
		return ""
	}
}

// A holdForm begins a hold, where it has no verb, or changes one.
type holdForm struct {
	*server
	form
	holdVerb
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

// Durations are what the form proposes for how long.
func (*holdForm) Durations() []ageChoice {
	return []ageChoice{{"15m", "15 minutes"}, {"1h", "1 hour"}, {"4h", "4 hours"}, {"8h", "8 hours"}, {"24h", "1 day"}}
}

// beginForm is the form that begins a hold: of what was typed, or of what the address names.
func (s *server) beginForm(req *request) (*holdForm, error) {
	p := &holdForm{server: s}
	field := func(name string) string { return strings.TrimSpace(req.FormValue(name)) }
	p.Namespace, p.Handler, p.Template, p.Step, p.Case = field("namespace"), field("handler"), field("template"), field("step"), field("case")
	p.form = req.formOf(form{page: "holdaction", title: "Hold steps", nav: navHolds, Button: "Hold", Back: holdsPath})
	p.Long = "From now on no server hands out a step of the scope. Tasks are accepted all the same, and steps that workers have go on. No attempt is used, and neither the time in the queue nor staleness runs."
	p.read(req)
	p.Command = p.command(req)
	return p, nil
}

func (p *holdForm) read(req *request) {
	p.Owner, p.For, p.Waves = strings.TrimSpace(req.typed("owner")), cmp.Or(req.PostFormValue("for"), "1h"), cmp.Or(req.PostFormValue("waves"), "1, 10, 100")
}

func (s *server) holdForm(req *request, v holdVerb) (*holdForm, error) {
	id, err := req.id("hold")
	if err != nil {
		return nil, err
	}
	d, err := s.Holds.Detail(req.Context(), id)
	if err != nil {
		return nil, err
	}
	p := &holdForm{server: s, holdVerb: v, Hold: holdLine{d.Hold}}
	name := strings.TrimSuffix(v.Name, "…")
	p.form = req.formOf(form{page: "holdaction", title: name + ": " + p.Hold.Scope(), nav: navHolds, Button: name, Back: p.Hold.Path()})
	p.Refused = v.refusal(d.Hold)
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
		v.note = "A step is let go within a second."
		_, err = p.Holds.Probe(ctx, id, c)
	case wordExtend:
		v.note = "The hold ends later."
		var long time.Duration
		if long, err = p.long(); err == nil {
			_, err = p.Holds.Extend(ctx, id, tasker.HoldExtension{For: long, Owner: p.Owner}, c)
		}
	default:
		v.note = "The hold is being released."
		var waves []int
		if waves, err = p.waves(); err == nil {
			_, err = p.Holds.Release(ctx, id, waves, c)
		}
	}
	return v, err
}

// begin begins a hold.
func (p *holdForm) begin(req *request) (*view, error) {
	long, err := p.long()
	if err != nil {
		return nil, err
	}
	n := tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: p.Namespace, Handler: p.Handler, TaskName: p.Template, StepName: p.Step},
		For:       long, Owner: cmp.Or(p.Owner, p.Actor), Reason: p.Reason, Actor: p.Actor,
	}
	if p.Case != "" {
		if n.CaseID, err = p.ofCase(req); err != nil {
			return nil, err
		}
		n.HoldScope = tasker.HoldScope{}
	} else if n.Namespace != "" {
		if err := req.caller.MayUse(access.OperateSteps, n.Namespace); err != nil {
			return nil, asTyped(err)
		}
	}
	h, err := p.Holds.Begin(req.Context(), n)
	return &view{next: holdLine{h}.Path(), note: "Steps of the scope are held."}, asTyped(err)
}

// ofCase reads the case whose place is held.
func (p *holdForm) ofCase(req *request) (*tasker.ID, error) {
	var id tasker.ID
	if id.UnmarshalText([]byte(p.Case)) != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid case %q: must be the id of a case", clip(p.Case, 60))
	}
	_, err := access.Finder(p.DB.NamespacesOf).Check(req.Context(), req.caller, access.OperateSteps, access.Resource{Kind: access.CaseKind, ID: id})
	return &id, asTyped(err)
}

// asTyped makes an error of what is not there one of what was typed, which is not lost then.
func asTyped(err error) error {
	if tasker.CodeOf(err) == tasker.NotFound {
		return tasker.Errorf(tasker.Invalid, "%s", messageOf(err))
	}
	return err
}

func (p *holdForm) long() (time.Duration, error) {
	long, err := time.ParseDuration(p.For)
	if err != nil {
		return 0, tasker.Errorf(tasker.Invalid, "invalid time %q: must be a duration such as 30m or 8h", clip(p.For, 40))
	}
	return long, nil
}

// waves reads the waves that were typed.
func (p *holdForm) waves() ([]int, error) {
	waves := []int{}
	if p.Waves == "all" {
		return waves, nil
	}
	for part := range strings.SplitSeq(p.Waves, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, tasker.Errorf(tasker.Invalid, "invalid waves %q: must be numbers with commas between them, or all", clip(p.Waves, 60))
		}
		waves = append(waves, n)
	}
	return waves, nil
}

// command returns the same from a terminal.
func (p *holdForm) command(req *request) command {
	actor, reason := p.placeholders()
	by := p.byInBody(actor)
	seconds := 3600
	if d, err := p.long(); err == nil {
		seconds = int(d / time.Second)
	}
	owner := func(ctl []string) []string {
		if p.Owner == "" {
			return ctl
		}
		return append(ctl, "--owner", p.Owner)
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
		ctl, path, body = owner(beginCommand(b, p.For)), "/v1/holds", b
	case wordProbe:
		body = apiv1.ProbeHold{Reason: p.Reason, By: by}
	case wordExtend:
		ctl = owner(append(ctl, "--for", p.For, "--reason", reason))
		body = apiv1.ExtendHold{ForSeconds: seconds, Owner: p.Owner, Reason: reason, By: by}
	default:
		waves, _ := p.waves()
		ctl = append(ctl, "--waves", strings.ReplaceAll(p.Waves, " ", ""), "--reason", reason)
		body = apiv1.ReleaseHold{Waves: &waves, Reason: reason, By: by}
	}
	return commandOf(req, append(ctl, p.by("--by", actor)...), http.MethodPost, path, body)
}

func beginCommand(b apiv1.BeginHold, long string) []string {
	ctl := []string{"hold", "add"}
	for _, f := range []struct{ flag, value string }{
		{"--case", b.CaseID}, {"--namespace", b.Namespace}, {"--handler", b.Handler}, {"--name", b.TaskName}, {"--step", b.StepName}, {"--for", long}, {"--reason", b.Reason},
	} {
		if f.value != "" {
			ctl = append(ctl, f.flag, f.value)
		}
	}
	return ctl
}

// holdLink is the form that begins a hold of a scope; empty where the caller may not.
func (s *server) holdLink(req *request, namespace string, scope ...string) string {
	if !s.showsAction(req, access.OperateSteps, namespace) {
		return ""
	}
	q := url.Values{}
	for pair := range slices.Chunk(scope, 2) {
		q.Set(pair[0], pair[1])
	}
	return Root + beginPath + "?" + q.Encode()
}
