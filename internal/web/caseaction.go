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

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/endpoint"
)

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

var caseVerbs = []verb{
	{Word: wordOwn, Name: "Take it", Key: "o", Does: "take the case", endpoint: endpoint.UpdateCase,
		Long: "You become the owner for this time. Owned cases are listed after unowned ones."},
	{Word: wordRelease, Name: "Release", Does: "release the case", endpoint: endpoint.UpdateCase,
		Long: "The case has no owner, so that another operator can take it."},
	{Word: wordWake, Name: "Unsnooze", Key: "l", Does: "unsnooze the case", endpoint: endpoint.UpdateCase,
		Long: "The case returns to its place in the list."},
	{Word: wordSnooze, Name: "Snooze…", Key: "l", Does: "snooze the case", endpoint: endpoint.UpdateCase,
		Long: "The case is listed last until the time is over or more investigations are open than the threshold."},
	{Word: wordNote, Name: "Note…", Key: "n", Does: "add a note", endpoint: endpoint.UpdateCase,
		Long: "Adds a note to the history of the case."},
	{Word: wordFixed, Name: "Fixed in…", Does: "set the worker version that fixes the cause",
		endpoint: endpoint.UpdateCase,
		Long:     "After the case is resolved, failures of older worker versions do not count as a regression."},
	{Word: wordMerge, Name: "Merge into…", Does: "merge the case into another case", endpoint: endpoint.MergeCase,
		Long: "Existing and future investigations belong to the other case. No investigation changes, and you can undo the merge."},
	{Word: wordUnmerge, Name: "Undo merge…", Does: "undo the merge", endpoint: endpoint.UnmergeCase,
		Long: "Restores the case as it was before the merge, with the investigations opened since."},
	{Word: wordSplit, Name: "Split…", Does: "split the case", endpoint: endpoint.SplitCase,
		Long: "Existing and future failures that match the text become a separate case. To undo it, merge that case into this one."},
}

// checkCaseVerb returns why a case does not accept an action, or "" if it does.
func checkCaseVerb(v verb, c tasker.Case, now time.Time) string {
	switch {
	case c.MergedInto != nil && v.Word != wordUnmerge:
		return "The case was merged into another case: change that one."
	case c.MergedInto == nil && v.Word == wordUnmerge:
		return "The case is not merged into another case."
	case v.Word == wordRelease && c.Owner == "":
		return "The case has no owner."
	case v.Word == wordWake && !isSnoozed(c, now):
		return "The case is not snoozed."
	case (v.Word == wordSnooze || v.Word == wordOwn) && c.State == tasker.CaseResolved:
		return "The case is resolved: only open cases can be owned or snoozed."
	default:
		return ""
	}
}

// caseForm is the form for an action on a case.
type caseForm struct {
	form
	verb
	Case      tasker.Case
	Seen      string              // update time of the displayed case
	Meanwhile []tasker.CaseChange // changes since the form was opened
	Others    []tasker.Case       // merge targets

	Owner, For, Above, FixedIn, Into, Field, Literal string // as typed

	update  tasker.CaseUpdate // requested change
	note    string            // describes it
	invalid error             // of the input
}

// TakesTime reports whether the form has a field for a duration.
func (p *caseForm) TakesTime() bool { return p.Word == wordOwn || p.Word == wordSnooze }

// NeedsReason reports whether the note is required.
func (p *caseForm) NeedsReason() bool {
	return p.Word == wordMerge || p.Word == wordUnmerge || p.Word == wordSplit
}

// Typed returns the submitted fields other than the note.
func (p *caseForm) Typed() []string {
	return slices.DeleteFunc([]string{p.Owner, p.Above, p.FixedIn, p.Into, p.Literal}, func(text string) bool { return text == "" })
}

func lastSeenCase(c tasker.Case) string { return c.UpdatedAt.UTC().Format(time.RFC3339Nano) }

func (s *server) newCaseForm(req *request, v verb) *caseForm {
	c := loadByID(req, "case", s.DB.Case)
	p := &caseForm{verb: v, Case: c}
	p.form = req.newForm(form{page: "caseaction", title: v.button() + ": " + formatPlace(c), nav: navCases, Button: v.button(), Back: casePath(c.ID)})
	p.Refused, p.Seen = checkCaseVerb(v, c, req.now), lastSeenCase(c)
	p.Owner, p.Above, p.FixedIn = req.trimmedField("owner"), req.trimmedField("above"), req.trimmedField("fixed_in")
	p.For = cmp.Or(req.PostFormValue("for"), "4h")
	p.Into, p.Field = strings.TrimSpace(req.FormValue("into")), cmp.Or(req.PostFormValue("field"), cases.SplitFields()[0])
	p.Literal = req.rawField("literal")
	if req.Method == http.MethodPost {
		p.readMeanwhile(req)
	} else {
		p.FixedIn = p.Case.FixedIn
	}
	if v.Word == wordMerge { // within the namespace
		f := tasker.InvestigationFilter{Namespace: c.Namespace, Limit: maxOthers}
		p.Others, _ = loadPage(req, s.DB.Cases, tasker.CaseFilter{InvestigationFilter: f})
		p.Others = slices.DeleteFunc(p.Others, func(other tasker.Case) bool { return other.ID == c.ID })
	}
	p.Command = p.prepare(req.now)
	return p
}

// readMeanwhile reads the changes since the form was opened.
func (p *caseForm) readMeanwhile(req *request) {
	seen, err := time.Parse(time.RFC3339Nano, req.PostFormValue("seen"))
	if err != nil || seen.Equal(p.Case.UpdatedAt) {
		return // do reports the error
	}
	for _, c := range load(req, p.server.Cases.FindDetail, p.Case.ID).History {
		if c.At.After(seen) {
			p.Meanwhile = append(p.Meanwhile, c)
		}
	}
}

// maxOthers limits the suggested merge targets.
const maxOthers = 50

func (p *caseForm) do(req *request) (*view, error) {
	seen, err := time.Parse(time.RFC3339Nano, req.PostFormValue("seen"))
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "the form has no state of the case: reload the page")
	}
	if !seen.Equal(p.Case.UpdatedAt) {
		return nil, newConflictError()
	}
	v := &view{next: p.Back}
	switch p.Word {
	case wordMerge:
		v.next, v.note, err = p.merge(req.Context())
	case wordUnmerge:
		v.note, err = "The merge was undone.", p.Cases.Unmerge(req.Context(), p.Case.ID, p.Actor, p.Reason)
	case wordSplit:
		v.note, err = p.split(req.Context())
	default:
		v.note, err = p.change(req.Context(), seen)
	}
	return v, err
}

func newConflictError() error {
	return tasker.Errorf(tasker.Conflict, "the case has changed since you opened this page. Your input is preserved: check the changes and submit again.")
}

// merge merges the case into another one, given by its id or the address of its page.
func (p *caseForm) merge(ctx context.Context) (next, note string, err error) {
	into, err := uuid.Parse(p.Into[strings.LastIndexByte(p.Into, '/')+1:])
	if err != nil {
		return "", "", tasker.Errorf(tasker.Invalid, "invalid case %q: must be the id of a case or the address of its page", truncate(p.Into, 60))
	}
	err = p.Cases.Merge(ctx, p.Case.ID, into, p.Actor, p.Reason)
	if tasker.CodeOf(err) == tasker.NotFound { // keeps the input
		err = tasker.Errorf(tasker.Invalid, "case %s to merge into not found", into)
	}
	return casePath(into), "The cases were merged. To undo it, open the merged case: " + casePath(p.Case.ID), err
}

func (p *caseForm) split(ctx context.Context) (note string, err error) {
	n, err := p.Cases.Split(ctx, p.Case.ID, tasker.CaseSplit{Field: p.Field, Literal: p.Literal, Actor: p.Actor, Reason: p.Reason})
	return fmt.Sprintf("%s will move to a separate case within seconds.", formatCount(n, "investigation")), err
}

// change applies an action that updates only the case.
func (p *caseForm) change(ctx context.Context, seen time.Time) (note string, err error) {
	if p.invalid != nil {
		return "", p.invalid
	}
	p.update.Actor, p.update.IfUnchangedSince = p.Actor, &seen
	_, err = p.Cases.Update(ctx, p.Case.ID, p.update)
	if tasker.CodeOf(err) == tasker.Conflict {
		err = newConflictError()
	}
	return p.note, err
}

// parseThreshold reads the optional snooze threshold.
func parseThreshold(text string) (*int64, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // optional
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, tasker.Errorf(tasker.Invalid, "invalid number of investigations %q: must be 0 or more",
			truncate(text, 40))
	}
	return &n, nil
}

// prepare sets the requested change and returns its commands.
func (p *caseForm) prepare(now time.Time) command {
	c, u, note := p.newCall(p.endpoint, "case "+p.Word, p.Case.ID.String()), &p.update, p.Reason
	if p.Reason != "" {
		u.Notes = &p.Reason
	}
	d, err := parseDuration(p.For)
	if p.TakesTime() {
		p.invalid = err
		c.flag("--for", p.For)
	}
	switch p.Word {
	case wordMerge:
		c.set("--into", "into", cmp.Or(p.Into[strings.LastIndexByte(p.Into, '/')+1:], "CASE"))
	case wordSplit:
		c.set("--field", "field", p.Field)
		c.set("--literal", "literal", cmp.Or(p.Literal, "TEXT"))
	case wordOwn:
		owner := cmp.Or(p.Owner, p.Actor)
		u.Owner, u.OwnedFor, p.note = &owner, d, "The case is owned by "+owner+"."
		if p.invalid == nil && checkName(owner) != nil {
			p.invalid = tasker.Errorf(tasker.Invalid, "invalid owner: must be one line of at most %d bytes", maxName)
		}
		c.flag("--owner", p.Owner)
		c.member("owner", cmp.Or(owner, p.actorOrExample()))
		c.member("owned_for_minutes", int(d.Minutes()))
	case wordRelease:
		u.Owner, p.note = new(""), "The case is unowned."
		c.member("owner", u.Owner)
	case wordSnooze:
		u.Snooze, p.note = new(now.Add(d)), "The case is snoozed."
		u.SnoozeThreshold, err = parseThreshold(p.Above)
		p.invalid = cmp.Or(p.invalid, err)
		c.flag("--above", p.Above)
		c.member("snooze_until", u.Snooze.UTC().Truncate(time.Second))
		c.member("snooze_above", u.SnoozeThreshold)
	case wordWake:
		u.Snooze, p.note = &time.Time{}, "The case is not snoozed any more."
		c.member("wake", true)
	case wordNote:
		p.note, note = "The note was added.", cmp.Or(note, "NOTE")
		if p.Reason == "" {
			p.invalid = tasker.Errorf(tasker.Invalid, "the note is missing")
		}
	case wordFixed:
		p.prepareFixed()
		c.set("--in", "fixed_in", cmp.Or(p.FixedIn, "VERSION"))
	}
	if p.NeedsReason() {
		c.setReason()
	} else {
		c.set("--notes", "notes", note)
	}
	if p.Subject == "" {
		c.member("actor", p.actorOrExample())
	}
	return c.formatWithActor()
}

func (p *caseForm) prepareFixed() {
	p.update.FixedIn, p.note = &p.FixedIn, "The case is fixed in "+p.FixedIn+"."
	if p.FixedIn == "" {
		p.note = "The fixed version was removed."
		if p.Case.FixedIn == "" {
			p.invalid = tasker.Errorf(tasker.Invalid,
				"the version is missing: enter the worker version that fixes the cause")
		}
	}
}
