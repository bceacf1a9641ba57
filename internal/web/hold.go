package web

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/hold"
)

const (
	holdsPath = Root + "/holds"
	beginPath = "/begin-hold"
	navHolds  = "Holds"

	bannerHolds = 3
	bannerTime  = time.Second
)

// formatHeld formats the number of steps that a hold keeps from being claimed.
func formatHeld(h tasker.Hold) string {
	if h.Held >= tasker.MaxHeldCount {
		return formatCount(h.Held, "") + " or more steps"
	}
	return formatCount(h.Held, "step")
}

// listOpenHolds returns the open holds of the caller's namespaces for the banner. It returns none
// for a request that was not admitted, so that a refusal costs no query, or if the query fails.
func (s *server) listOpenHolds(req *request) []tasker.Hold {
	if !req.admitted || !req.canSee(access.ReadTasks) {
		return nil
	}
	ctx, cancel := context.WithTimeout(req.withPermission(access.ReadTasks).Context(), bannerTime)
	defer cancel()
	list, _, err := s.Holds.List(ctx, tasker.HoldFilter{Open: true, Limit: bannerHolds})
	if err != nil {
		s.Log.WarnContext(req.Context(), "hold banner failed", "err", err)
	}
	return list
}

func (s *server) showHolds(req *request) (*view, error) {
	q := req.query()
	f := tasker.HoldFilter{Open: readChoice(q, "state", []tasker.HoldState{"open"}) != "", Before: q.readID("before"),
		Limit: listRows}
	list, more := loadPage(req, s.Holds.List, f)
	p := newListPage(req, list, more, "before", func(h tasker.Hold) any { return h.UUID })
	return &view{page: "holds", title: "Holds", nav: navHolds, live: true, body: p}, nil
}

type holdPage struct {
	tasker.HoldDetail
	Verbs []link
}

func (s *server) showHold(req *request) (*view, error) {
	p := holdPage{HoldDetail: loadByID(req, "hold", s.Holds.Detail)}
	if s.canShowAction(req, access.OperateSteps, p.Namespace) {
		p.Verbs = linkVerbs(holdPath(p.UUID), holdVerbs, func(v verb) string { return checkHoldVerb(v, p.Hold) })
	}
	return &view{page: "hold", title: "Hold of " + p.String(), nav: navHolds, live: true, body: p}, nil
}

func holdPath(id tasker.ID) string { return holdsPath + "/" + id.String() }

const (
	wordProbe  = "probe"
	wordExtend = "extend"
)

var holdVerbs = []verb{
	{Word: wordProbe, Name: "Probe now…", Key: "b", Does: "release one step to test it", endpoint: endpoint.ProbeHold,
		Long: "Releases one more step as a probe. Its outcome is shown on this page. Only a circuit breaker reacts to it."},
	{Word: wordExtend, Name: "Extend…", Does: "extend the hold", endpoint: endpoint.ExtendHold,
		Long: "Moves the end of the hold. Its owner is warned before it ends."},
	{Word: wordRelease, Name: "Release…", Key: "r", Does: "release the steps of the hold",
		endpoint: endpoint.ReleaseHold,
		Long:     "Releases the steps in waves, each after the previous wave has succeeded. If 10 % of a wave fails, the hold becomes active again."},
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

// holdForm is the form to change a hold, or to create one if it has no verb.
type holdForm struct {
	form
	verb
	Hold tasker.Hold

	Namespace, Handler, Template, Step, Case, Owner, For, Waves string // as typed
}

// TakesEnd reports whether the form has fields for the end of the hold and its owner.
func (p *holdForm) TakesEnd() bool { return p.Word == "" || p.Word == wordExtend }

func (s *server) newBeginHoldForm(req *request) *holdForm {
	p := &holdForm{Namespace: req.trimmedValue("namespace"), Handler: req.trimmedValue("handler"),
		Template: req.trimmedValue("template")}
	p.Step, p.Case = req.trimmedValue("step"), req.trimmedValue("case")
	p.form = req.newForm(form{page: "holdaction", title: "Hold steps", nav: navHolds, Button: "Hold", Back: holdsPath})
	p.Long = "Steps in the scope cannot be claimed. New tasks are accepted and running steps continue. Held steps use no attempt, and their queue timeout and staleness are stopped."
	p.read(req)
	return p
}

func (p *holdForm) read(req *request) {
	p.Owner, p.For, p.Waves = req.trimmedField("owner"), cmp.Or(req.PostFormValue("for"), "1h"), cmp.Or(req.PostFormValue("waves"), "1, 10, 100")
	p.Command = p.command()
}

func (s *server) newHoldForm(req *request, v verb) *holdForm {
	h := loadByID(req, "hold", s.Holds.Detail).Hold
	p := &holdForm{verb: v, Hold: h}
	p.form = req.newForm(form{page: "holdaction", title: v.button() + ": " + h.String(), nav: navHolds,
		Button: v.button(), Back: holdPath(h.UUID)})
	p.Refused = checkHoldVerb(v, h)
	p.read(req)
	return p
}

func (p *holdForm) do(req *request) (*view, error) {
	ctx, id, c := req.Context(), p.Hold.UUID, hold.Change{Actor: p.Actor, Reason: p.Reason}
	v := &view{next: p.Back}
	d, err := parseDuration(p.For)
	if p.TakesEnd() && err != nil {
		return nil, err
	}
	switch p.Word {
	case "":
		return p.begin(req, d)
	case wordProbe:
		v.note = "A probe is released within a second."
		_, err = p.Holds.Probe(ctx, id, c)
	case wordExtend:
		v.note = "The hold was extended."
		_, err = p.Holds.Extend(ctx, id, tasker.HoldExtension{For: d, Owner: p.Owner}, c)
	default:
		v.note = "The hold is being released."
		var waves []int
		if waves, err = readWaves(p.Waves); err == nil {
			_, err = p.Holds.Release(ctx, id, waves, c)
		}
	}
	return v, err
}

func (p *holdForm) begin(req *request, d time.Duration) (*view, error) {
	n := tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: p.Namespace, Handler: p.Handler, TaskName: p.Template, StepName: p.Step},
		For:       d, Owner: cmp.Or(p.Owner, p.Actor), Reason: p.Reason, Actor: p.Actor,
	}
	var err error
	if p.Case != "" {
		n.CaseID, err = p.readCase(req)
		n.HoldScope = tasker.HoldScope{}
	} else if n.Namespace != "" {
		err = req.caller.RequirePermission(access.OperateSteps, n.Namespace)
	}
	if err != nil {
		return nil, asInputError(err)
	}
	h, err := p.Holds.Begin(req.Context(), n)
	return &view{next: holdPath(h.UUID), note: "Steps in the scope are held."}, asInputError(err)
}

// readCase reads the case whose scope is held.
func (p *holdForm) readCase(req *request) (*tasker.ID, error) {
	id, err := uuid.Parse(p.Case)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid case %q: must be the id of a case", truncate(p.Case, 60))
	}
	_, err = access.Finder(p.DB.FindNamespaces).Check(req.Context(), req.caller, access.OperateSteps,
		access.Resource{Kind: access.CaseKind, ID: id})
	return &id, err
}

// asInputError turns a NotFound error into an Invalid error, so that the form is shown again with
// the input.
func asInputError(err error) error {
	if tasker.CodeOf(err) == tasker.NotFound {
		return tasker.Errorf(tasker.Invalid, "%s", errorMessage(err))
	}
	return err
}

func (p *holdForm) command() command {
	var c *call
	if p.Word == "" {
		c = p.newCall(endpoint.BeginHold, "hold add")
	} else {
		c = p.newCall(p.endpoint, "hold "+p.Word, p.Hold.UUID.String())
	}
	switch {
	case p.Word == "" && p.Case != "":
		c.set("--case", "case_id", p.Case)
	case p.Word == "":
		c.set("--namespace", "namespace", cmp.Or(p.Namespace, "NAMESPACE"))
		c.set("--handler", "handler", p.Handler)
		c.set("--name", "task_name", p.Template)
		c.set("--step", "step_name", p.Step)
	case p.Word == wordProbe:
		c.member("reason", p.Reason)
	case p.Word == wordRelease:
		waves, _ := readWaves(p.Waves)
		c.flag("--waves", strings.ReplaceAll(p.Waves, " ", ""))
		c.member("waves", &waves)
	}
	if p.TakesEnd() {
		seconds := 3600
		if d, err := parseDuration(p.For); err == nil {
			seconds = int(d / time.Second)
		}
		c.flag("--for", p.For)
		c.member("for_seconds", seconds)
		c.set("--owner", "owner", p.Owner)
	}
	if p.Word != wordProbe {
		c.setReason()
	}
	c.setActor("--by", "by")
	return c.format()
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
