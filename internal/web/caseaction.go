package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cases"
)

// A caseAction is something that people do about a case, in the words of this page and of
// tasker-ctl.
type caseAction struct {
	Word string // in a path
	Name string // on a button
	Key  string
	Does string
	Long string // what it means

	NeedsReason bool // otherwise a note is optional
}

const (
	wordOwn     = "own"
	wordRelease = "release"
	wordSnooze  = "snooze"
	wordWake    = "wake"
	wordNote    = "note"
	wordFixed   = "fixed"
	wordMerge   = "merge"
	wordUnmerge = "unmerge"
	wordSplit   = "split"
)

var caseVerbs = []caseAction{
	{
		Word: wordOwn, Name: "Take it", Key: "o", Does: "take the case",
		Long: "Others see that somebody works on it, and it comes after those that nobody has. After that time it is nobody's again.",
	},
	{Word: wordRelease, Name: "Give it back", Does: "give the case back", Long: "The case is nobody's: somebody else may take it."},
	{Word: wordWake, Name: "Wake it", Key: "l", Does: "end the rest of the case", Long: "It rests no longer, and has its place in the list again."},
	{
		Word: wordSnooze, Name: "Snooze…", Key: "l", Does: "snooze the case",
		Long: "It comes last in the list until then. It wakes by itself, earlier when more of its investigations are open than you say.",
	},
	{Word: wordNote, Name: "Note…", Key: "n", Does: "write a note", Long: "The note stands in the history of the case, for whoever comes next."},
	{
		Word: wordFixed, Name: "Fixed in…", Does: "say which version of the worker repairs the cause",
		Long: "Once the case is resolved, failures of workers of an older version do not bring it back as a regression.",
	},
	{
		Word: wordMerge, Name: "Merge into…", Does: "merge the case into another one", NeedsReason: true,
		Long: "Its investigations belong to the other case, now and from now on. No investigation is written, and it can be taken back exactly.",
	},
	{
		Word: wordUnmerge, Name: "Take the merge back…", Does: "take the merge back", NeedsReason: true,
		Long: "The case is as it was before it was merged, with what has come since.",
	},
	{
		Word: wordSplit, Name: "Split…", Does: "split the case", NeedsReason: true,
		Long: "Failures that have the text are a case of their own, now and from now on; open ones follow within seconds. To take it back, merge that case into this one.",
	},
}

// refusal says why the verb makes no sense for a case; empty when it does.
func (v caseAction) refusal(c tasker.Case, now time.Time) string {
	switch {
	case c.MergedInto != nil && v.Word != wordUnmerge:
		return "The case was merged into another one: change that one."
	case c.MergedInto == nil && v.Word == wordUnmerge:
		return "The case is not merged into another one."
	case v.Word == wordRelease && c.Owner == "":
		return "The case is unowned: there is no owner to remove."
	case v.Word == wordWake && !rests(c, now):
		return "The case does not rest."
	case (v.Word == wordSnooze || v.Word == wordOwn) && c.State == tasker.CaseResolved:
		return "The case is resolved: it can be owned or snoozed while it is open."
	default:
		return ""
	}
}

// A caseForm is an action on a case.
type caseForm struct {
	*server
	form
	caseAction
	Case      tasker.Case
	Seen      string              // when the case was last updated, as this page shows it
	Meanwhile []tasker.CaseChange // since the form was opened
	Others    []tasker.Case       // that it can be merged into

	Owner, For, Above, FixedIn, Into, Field, Literal string // as typed
}

// Takes reports whether the form has a field.
func (p *caseForm) Takes(field string) bool {
	switch field {
	case "owner":
		return p.Word == wordOwn
	case "for":
		return p.Word == wordOwn || p.Word == wordSnooze
	case "above":
		return p.Word == wordSnooze
	default:
		return p.Word == field
	}
}

// Typed returns what was typed into the fields of its own.
func (p *caseForm) Typed() []string {
	return slices.DeleteFunc([]string{p.Owner, p.Above, p.FixedIn, p.Into, p.Literal}, func(text string) bool { return text == "" })
}

// Durations are what the form proposes for how long.
func (*caseForm) Durations() []ageChoice {
	return []ageChoice{{"1h", "1 hour"}, {"4h", "4 hours"}, {"8h", "8 hours"}, {"24h", "1 day"}, {"72h", "3 days"}, {"168h", "7 days"}}
}

// Fields are what the case can be split by.
func (*caseForm) Fields() []string { return cases.SplitFields() }

func seenOf(c tasker.Case) string { return c.UpdatedAt.UTC().Format(time.RFC3339Nano) }

func (s *server) caseForm(req *request, v caseAction) (*caseForm, error) {
	p := &caseForm{server: s, caseAction: v}
	id, err := req.id("case")
	if err != nil {
		return nil, err
	}
	if p.Case, err = s.DB.Case(req.Context(), id); err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(v.Name, "…")
	p.form = req.formOf(form{page: "caseaction", title: name + ": " + placeOf(p.Case), nav: navCases, Button: name, Back: casePath(id)})
	p.Refused, p.Seen = v.refusal(p.Case, req.now), seenOf(p.Case)
	p.Owner, p.Above, p.FixedIn = strings.TrimSpace(req.typed("owner")), strings.TrimSpace(req.PostFormValue("above")), strings.TrimSpace(req.typed("fixed_in"))
	p.For = cmp.Or(req.PostFormValue("for"), "4h")
	p.Into, p.Field = strings.TrimSpace(req.FormValue("into")), cmp.Or(req.PostFormValue("field"), cases.SplitFields()[0])
	p.Literal = req.typed("literal")
	if req.Method == http.MethodPost {
		err = p.readMeanwhile(req)
	} else {
		p.FixedIn = p.Case.FixedIn
	}
	if err == nil && v.Word == wordMerge {
		err = p.findOthers(req.Context())
	}
	p.Command = p.command(req)
	return p, err
}

// readMeanwhile reads what was changed since the form was opened.
func (p *caseForm) readMeanwhile(req *request) error {
	seen, err := time.Parse(time.RFC3339Nano, req.PostFormValue("seen"))
	if err != nil || seen.Equal(p.Case.UpdatedAt) {
		return nil //nolint:nilerr // do refuses a form that does not say it
	}
	d, err := p.Cases.Detail(req.Context(), p.Case.ID)
	for _, c := range d.History {
		if c.At.After(seen) {
			p.Meanwhile = append(p.Meanwhile, c)
		}
	}
	return err
}

// maxOthers is how many cases a form proposes.
const maxOthers = 50

// findOthers finds the cases to propose: the open ones of the same namespace.
func (p *caseForm) findOthers(ctx context.Context) error {
	list, _, err := p.DB.Cases(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Namespace: p.Case.Namespace, Limit: maxOthers}})
	p.Others = slices.DeleteFunc(list, func(c tasker.Case) bool { return c.ID == p.Case.ID })
	return err
}

func (p *caseForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	seen, err := time.Parse(time.RFC3339Nano, req.PostFormValue("seen"))
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "the form does not say which state of the case it shows: open it again")
	}
	if !seen.Equal(p.Case.UpdatedAt) {
		return nil, changedMeanwhile()
	}
	v := &view{next: p.Back}
	switch p.Word {
	case wordMerge:
		v.next, v.note, err = p.merge(req.Context())
	case wordUnmerge:
		v.note, err = "The merge is taken back.", p.Cases.Unmerge(req.Context(), p.Case.ID, p.Actor, p.Reason)
	case wordSplit:
		v.note, err = p.split(req.Context())
	default:
		v.note, err = p.change(req, seen)
	}
	return v, err
}

func changedMeanwhile() error {
	return tasker.Errorf(tasker.Conflict, "the case has changed since you opened this page. Read what is new; what you typed is still here, and can be sent again.")
}

// merge merges the case into the one that was typed: its id, or the address of its page.
func (p *caseForm) merge(ctx context.Context) (next, note string, err error) {
	var into tasker.ID
	typed := p.Into[strings.LastIndexByte(p.Into, '/')+1:]
	if err := into.UnmarshalText([]byte(typed)); err != nil {
		return "", "", tasker.Errorf(tasker.Invalid, "invalid case %q: must be the id of a case, or the address of its page", clip(p.Into, 60))
	}
	err = p.Cases.Merge(ctx, p.Case.ID, into, p.Actor, p.Reason)
	if tasker.CodeOf(err) == tasker.NotFound { // else what was typed were lost
		err = tasker.Errorf(tasker.Invalid, "there is no case %s to merge into", into)
	}
	return casePath(into), "The cases are one now. The case that was merged can be taken out again on its own page: " + casePath(p.Case.ID), err
}

func (p *caseForm) split(ctx context.Context) (note string, err error) {
	n, err := p.Cases.Split(ctx, p.Case.ID, tasker.CaseSplit{Field: p.Field, Literal: p.Literal, Actor: p.Actor, Reason: p.Reason})
	return fmt.Sprintf("%s leave the case within seconds, and are a case of their own.", count(n, "investigation")), err
}

// change makes one of the changes that are no merge and no split.
func (p *caseForm) change(req *request, seen time.Time) (note string, err error) {
	u, note, err := p.update(req.now)
	if err != nil {
		return "", err
	}
	u.Actor, u.IfUnchangedSince = p.Actor, &seen
	_, err = p.Cases.Update(req.Context(), p.Case.ID, u)
	if tasker.CodeOf(err) == tasker.Conflict {
		err = changedMeanwhile()
	}
	return note, err
}

// update returns what the fields change about the case, and what to say when it is done.
func (p *caseForm) update(now time.Time) (u tasker.CaseUpdate, note string, err error) {
	if p.Reason != "" {
		u.Notes = &p.Reason
	}
	long, err := time.ParseDuration(p.For)
	if p.Takes("for") && (err != nil || long <= 0) {
		return u, "", tasker.Errorf(tasker.Invalid, "invalid time %q: must be a duration such as 30m or 8h", clip(p.For, 40))
	}
	switch p.Word {
	case wordOwn:
		owner := cmp.Or(p.Owner, p.Actor)
		u.Owner, u.OwnedFor, note = &owner, long, owner+" has the case now."
		if nameFault(owner) != nil {
			return u, "", tasker.Errorf(tasker.Invalid, "invalid owner: must have up to %d bytes, on one line", maxName)
		}
	case wordRelease:
		u.Owner, note = new(""), "The case is unowned now."
	case wordSnooze:
		u.Snooze, note = new(now.Add(long)), "The case rests."
		if u.SnoozeThreshold, err = readAbove(p.Above); err != nil {
			return u, "", err
		}
	case wordWake:
		u.Snooze, note = &time.Time{}, "The case rests no longer."
	case wordNote:
		note = "Your note is in the history."
		if p.Reason == "" {
			return u, "", tasker.Errorf(tasker.Invalid, "write the note: nothing would change without it")
		}
	case wordFixed:
		u.FixedIn, note = &p.FixedIn, "The case is fixed in "+p.FixedIn+"."
		if p.FixedIn == "" {
			note = "No version is said to repair the case now."
		}
		if p.FixedIn == "" && p.Case.FixedIn == "" {
			return u, "", tasker.Errorf(tasker.Invalid, "give the version of the worker that repairs the cause")
		}
	}
	return u, note, nil
}

// readAbove reads how many open investigations wake a case; nil for nothing.
func readAbove(text string) (*int64, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // it was left out
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, tasker.Errorf(tasker.Invalid, "invalid number of investigations %q: must be 0 or more", clip(text, 40))
	}
	return &n, nil
}

// command returns the same change from a terminal.
func (p *caseForm) command(req *request) command {
	actor, reason := p.placeholders()
	id := p.Case.ID.String()
	path, method := "/v1/cases/"+id, http.MethodPost
	ctl := []string{"case", p.Word, id}
	by := p.byInBody(actor)
	var body any
	switch p.Word {
	case wordMerge:
		into := cmp.Or(p.Into[strings.LastIndexByte(p.Into, '/')+1:], "CASE")
		ctl, path = append(ctl, "--into", into, "--reason", reason), path+"/merge"
		body = apiv1.MergeCase{Into: into, Reason: reason, Actor: by}
	case wordUnmerge:
		ctl, path = append(ctl, "--reason", reason), path+"/unmerge"
		body = apiv1.UnmergeCase{Reason: reason, Actor: by}
	case wordSplit:
		literal := cmp.Or(p.Literal, "TEXT")
		ctl, path = append(ctl, "--field", p.Field, "--literal", literal, "--reason", reason), path+"/split"
		body = apiv1.SplitCase{Field: p.Field, Literal: literal, Reason: reason, Actor: by}
	default:
		method = http.MethodPatch
		var u apiv1.UpdateCase
		u, ctl = p.updateCommand(req.now, ctl, actor)
		u.Actor = by
		body = u
	}
	c := commandOf(req, ctl, method, path, body)
	if p.Subject == "" {
		c.CLI = "TASKER_ACTOR=" + shellQuote(actor) + " " + c.CLI
	}
	return c
}

// updateCommand returns the body and the words of a change that is no merge and no split.
func (p *caseForm) updateCommand(now time.Time, ctl []string, actor string) (u apiv1.UpdateCase, words []string) {
	note := p.Reason
	switch p.Word {
	case wordOwn:
		u.Owner = new(cmp.Or(p.Owner, actor))
		ctl = append(ctl, "--for", p.For)
		if p.Owner != "" {
			ctl = append(ctl, "--owner", p.Owner)
		}
		if d, err := time.ParseDuration(p.For); err == nil {
			u.OwnedForMinutes = int(d.Minutes())
		}
	case wordRelease:
		u.Owner = new("")
	case wordSnooze:
		ctl = append(ctl, "--for", p.For)
		if d, err := time.ParseDuration(p.For); err == nil {
			u.SnoozeUntil = new(now.Add(d).UTC().Truncate(time.Second))
		}
		if n, err := readAbove(p.Above); err == nil && n != nil {
			u.SnoozeAbove = n
			ctl = append(ctl, "--above", p.Above)
		}
	case wordWake:
		u.Wake = true
	case wordNote:
		note = cmp.Or(note, "what you know")
	case wordFixed:
		u.FixedIn = new(cmp.Or(p.FixedIn, "VERSION"))
		ctl = append(ctl, "--in", *u.FixedIn)
	}
	if note != "" {
		u.Notes = &note
		ctl = append(ctl, "--notes", note)
	}
	return u, ctl
}
