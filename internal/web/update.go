package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/endpoint"
)

type entryForm struct {
	form
	Entry    tasker.Entry
	Task     tasker.Task
	Open     bool
	Assignee string // as typed
	Had      string // current assignee
}

func (s *server) newEntryForm(req *request, f form) (p entryForm) {
	p.Entry = loadByID(req, "investigation", s.DB.Entry)
	p.Task = load(req, s.DB.Task, p.Entry.TaskUUID)
	f.title += " the investigation of " + p.Task.Namespace + "/" + p.Task.Name
	f.nav, f.Back = navCases, entryPath(p.Entry.UUID)
	p.form, p.Open = req.newForm(f), p.Entry.ResolutionStatus == tasker.EntryPending
	p.Had = parseAssignee(p.Entry.Metadata)
	p.Assignee = p.Had
	return p
}

// newUpdateForm is the form to add notes to an investigation, assign it or end it.
type updateForm struct {
	entryForm
	Cause     tasker.Cause
	Seen      string             // update time of the displayed entry
	update    tasker.EntryUpdate // requested changes
	Notes     string
	Status    tasker.ResolutionStatus
	Endings   []endingOption
	Failed    []tasker.Step        // steps in error without a retry
	Undoes    int                  // number of steps that can be compensated
	Undo      bool                 // compensate them; only with permanently_failed
	Meanwhile []tasker.EntryChange // changes since the form was opened
}

// endingOption is a resolution status that the form offers.
type endingOption struct {
	Status     tasker.ResolutionStatus
	Name, Long string
}

var endings = []endingOption{
	{tasker.EntryPending, "Stays open", "Changes only the notes and the assignee."},
	{
		tasker.EntryManuallyResolved, "Resolved",
		"The task is repaired or needs no repair. Does not change the task: if it stays in error, a new investigation opens.",
	},
	{
		tasker.EntryPermanentlyFailed, "Permanently failed",
		"The task is marked as permanently failed. Its steps cannot be repaired, and external results are rejected. Only a new task can replace it.",
	},
	{
		tasker.EntryCancelled, "Cancelled",
		"The investigation was unnecessary. A new one opens only after the task changes.",
	},
}

func (s *server) newUpdateForm(req *request) *updateForm {
	e := s.newEntryForm(req, form{page: "entryupdate", title: "Update", Button: "Update the investigation"})
	p := &updateForm{entryForm: e, Status: tasker.EntryPending, Endings: endings, Cause: tasker.CauseOf(e.Entry.Reason, e.Entry.DetailCode)}
	p.Seen = e.Entry.UpdatedAt.UTC().Format(time.RFC3339Nano)
	steps, err := s.DB.StepsAndFailedItems(req.Context(), e.Entry.TaskUUID, tasker.ID{})
	req.fail(err)
	for _, st := range steps {
		if hasFailedPermanently(st) {
			p.Failed = append(p.Failed, st)
		}
		if s.canUndo(req.Context(), p.Task, st) {
			p.Undoes++
		}
	}
	ends := req.query().has("end")
	if req.Method == http.MethodPost {
		p.read(req)
		p.Command = p.command(p.update)
	} else {
		if p.Open && ends {
			p.Status = tasker.EntryManuallyResolved
		}
		u := p.toEntryUpdate()
		u.IfUnchangedSince, u.Notes = &p.Entry.UpdatedAt, new("findings")
		p.Command = p.command(u)
	}
	if !p.Open {
		p.Status = tasker.EntryPending
	}
	return p
}

// read reads the submitted fields and the changes since the form was opened.
func (p *updateForm) read(req *request) {
	p.Notes = req.rawField("notes")
	if name := req.trimmedField("assignee"); name != req.rawField("had") { // keeps a concurrent assignment
		p.Assignee = name
	}
	p.Status = cmp.Or(tasker.ResolutionStatus(req.PostFormValue("status")), tasker.EntryPending)
	p.Undo = p.Undoes > 0 && req.isChecked("compensate")
	p.update = p.toEntryUpdate()
	if seen, err := time.Parse(time.RFC3339Nano, req.PostFormValue("seen")); err == nil {
		p.update.IfUnchangedSince = &seen
		for _, c := range slices.Backward(p.Entry.History) {
			if c.At.After(seen) {
				p.Meanwhile = append(p.Meanwhile, c)
			}
		}
	}
}

func (p *updateForm) do(req *request) (*view, error) {
	u := p.update
	switch {
	case u.IfUnchangedSince == nil:
		return nil, tasker.Errorf(tasker.Invalid, "the form has no state of the investigation: reload the page")
	case u.Status != nil && u.Notes == nil:
		return nil, tasker.Errorf(tasker.Invalid, "the notes are missing: an investigation cannot end without notes")
	case u.Status == nil && u.Notes == nil && len(u.Metadata) == 0:
		return nil, tasker.Errorf(tasker.Invalid, "nothing would change: add a note, change the assignee or end the investigation")
	case p.Undo && !u.Compensate:
		return nil, tasker.Errorf(tasker.Invalid, "compensation requires the status permanently failed")
	case checkName(p.Assignee) != nil:
		return nil, tasker.Errorf(tasker.Invalid, "invalid assignee: must be one line of at most %d bytes", maxName)
	}
	_, warnings, err := p.DLQ.Update(req.Context(), p.Entry.UUID, u)
	if tasker.CodeOf(err) == tasker.Conflict && len(p.Meanwhile) > 0 {
		err = tasker.Errorf(tasker.Conflict, "the investigation has changed since you opened this page. "+
			"Your input is preserved: check the changes and submit again.")
	}
	return &view{next: p.Back, note: p.doneMessage(u), warn: formatWarnings(warnings)}, err
}

func formatWarnings(warnings []string) string {
	var sentences []string
	for _, w := range warnings {
		sentences = append(sentences, toSentence(w)+".")
	}
	return strings.Join(sentences, " ")
}

// toEntryUpdate returns the requested changes.
func (p *updateForm) toEntryUpdate() tasker.EntryUpdate {
	u := tasker.EntryUpdate{Actor: p.Actor}
	if p.Status != tasker.EntryPending {
		u.Status = new(p.Status)
	}
	u.Compensate = p.Undo && p.Status == tasker.EntryPermanentlyFailed
	if strings.TrimSpace(p.Notes) != "" {
		u.Notes = &p.Notes
	}
	if p.Assignee != p.Had {
		u.Metadata = encodeAssignment(p.Assignee)
	}
	return u
}

// encodeAssignment returns the metadata that sets or removes the assignee.
func encodeAssignment(name string) json.RawMessage {
	if name == "" {
		return json.RawMessage(`{"assignee":null}`)
	}
	return json.RawMessage(compactJSON(map[string]string{"assignee": name}))
}

// doneMessage describes the applied change.
func (p *updateForm) doneMessage(u tasker.EntryUpdate) string {
	switch {
	case u.Compensate:
		return "The investigation has ended: " + formatWords(*u.Status) +
			". Compensation is running; then the task is cancelled."
	case u.Status != nil:
		return "The investigation has ended: " + formatWords(*u.Status) + "."
	case u.Notes != nil:
		return "The note was added."
	case p.Assignee == "":
		return "The investigation is unassigned."
	default:
		return "The investigation is assigned to " + p.Assignee + "."
	}
}

func (p *entryForm) command(u tasker.EntryUpdate) command {
	c := p.newCall(endpoint.UpdateEntry, "dlq update", p.Entry.UUID.String())
	c.set("--status", "resolution_status", u.Status)
	if u.Status != nil {
		c.setActor("--resolved-by", "resolved_by")
	}
	c.set("--compensate", "compensate", u.Compensate)
	c.set("--notes", "resolution_notes", u.Notes)
	c.set("--metadata", "metadata", u.Metadata)
	if u.IfUnchangedSince != nil {
		c.flag("--if-unchanged-since", u.IfUnchangedSince.UTC().Format(time.RFC3339Nano))
		c.member("expected_updated_at", u.IfUnchangedSince)
	}
	if p.Subject == "" {
		c.member("updated_by", p.actorOrExample())
	}
	if u.Status == nil { // --resolved-by requires a status
		return c.formatWithActor()
	}
	return c.format()
}

// newOwnForm is the form with which operators assign an investigation to themselves.
type ownForm struct{ entryForm }

func (s *server) newOwnForm(req *request) *ownForm {
	p := &ownForm{s.newEntryForm(req, form{page: "entryown", title: "Assign", Button: "Assign to me"})}
	if !p.Open {
		p.Refused = "The investigation has ended: it cannot be assigned."
	}
	p.Command = p.command(tasker.EntryUpdate{Metadata: encodeAssignment(p.actorOrExample())})
	return p
}

func (p *ownForm) do(req *request) (*view, error) {
	note := "The investigation is assigned to " + p.Actor + "."
	if p.Had != "" && p.Had != p.Actor {
		if p.Had != req.PostFormValue("had") {
			return nil, tasker.Errorf(tasker.Conflict, "the investigation has been assigned to %s since you opened this page: submit again to take it over", p.Had)
		}
		note = "The investigation is assigned to " + p.Actor + " instead of " + p.Had + "."
	}
	_, _, err := p.DLQ.Update(req.Context(), p.Entry.UUID, tasker.EntryUpdate{Actor: p.Actor, Metadata: encodeAssignment(p.Actor), IfUnchangedSince: &p.Entry.UpdatedAt})
	return &view{next: p.Back, note: note}, err
}
