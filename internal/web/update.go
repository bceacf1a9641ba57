package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// An entryForm is an action on an investigation.
type entryForm struct {
	*server
	form
	Entry    tasker.Entry
	Task     tasker.Task
	Open     bool
	Assignee string // as typed
	Had      string // the assignee now
}

// entryForm reads the investigation that an action is about.
func (s *server) entryForm(req *request, f form) (entryForm, error) {
	p := entryForm{server: s}
	id, err := req.id("investigation")
	if err != nil {
		return p, err
	}
	if p.Entry, err = s.DB.Entry(req.Context(), id); err != nil {
		return p, err
	}
	if p.Task, err = s.DB.Task(req.Context(), p.Entry.TaskUUID); err != nil {
		return p, err
	}
	f.title += " the investigation of " + p.Task.Namespace + "/" + p.Task.Name
	f.nav, f.Back = navCases, entryPath(id)
	p.form, p.Open = req.formOf(f), p.Entry.ResolutionStatus == tasker.EntryPending
	p.Had = assigneeOf(p.Entry.Metadata)
	p.Assignee = p.Had
	return p, nil
}

// An updateForm records what was found, and ends an investigation.
type updateForm struct {
	entryForm
	Cause     tasker.Cause
	Seen      string             // when the entry was last updated, as this page shows it
	update    tasker.EntryUpdate // what the fields change
	Notes     string
	Status    tasker.ResolutionStatus
	Endings   []ending
	Failed    []tasker.Step        // in error, without a retry to come
	Undoes    int                  // steps that can be undone
	Undo      bool                 // with permanently failed: undo them
	Meanwhile []tasker.EntryChange // by others, since the form was opened
}

// An ending is a choice for the status, with what it means.
type ending struct {
	Status     tasker.ResolutionStatus
	Name, Long string
}

var endings = []ending{
	{tasker.EntryPending, "Stays open", "Only the notes and the assignee change."},
	{
		tasker.EntryManuallyResolved, "Resolved",
		"The task was repaired, or needs no repair. The task itself does not change: if it is still in error, a new investigation is opened after a while.",
	},
	{
		tasker.EntryPermanentlyFailed, "Permanently failed",
		"The task is written off: its steps can never be repaired again, and results of external steps are refused. Only a new task can replace it.",
	},
	{
		tasker.EntryCancelled, "Cancelled",
		"The investigation was not needed. The task is not reported again until something happens to it.",
	},
}

func (s *server) updateForm(req *request) (*updateForm, error) {
	e, err := s.entryForm(req, form{page: "entryupdate", title: "Update", Button: "Update the investigation"})
	if err != nil {
		return nil, err
	}
	p := &updateForm{entryForm: e, Status: tasker.EntryPending, Endings: endings, Cause: tasker.CauseOf(e.Entry.Reason, e.Entry.DetailCode)}
	p.Seen = e.Entry.UpdatedAt.UTC().Format(time.RFC3339Nano)
	steps, err := s.DB.StepsAndFailedItems(req.Context(), e.Entry.TaskUUID, tasker.ID{})
	for _, st := range steps {
		if failedForGood(st) {
			p.Failed = append(p.Failed, st)
		}
		if s.canUndo(req.Context(), p.Task, st) {
			p.Undoes++
		}
	}
	ends := req.query().has("end")
	if req.Method == http.MethodPost {
		p.read(req)
		p.Command = p.command(req, p.update)
	} else {
		if p.Open && ends {
			p.Status = tasker.EntryManuallyResolved
		}
		u := p.change()
		u.IfUnchangedSince, u.Notes = &p.Entry.UpdatedAt, new("what you found")
		p.Command = p.command(req, u)
	}
	if !p.Open {
		p.Status = tasker.EntryPending
	}
	return p, err
}

// read reads what was sent, and what others have changed since the form was opened.
func (p *updateForm) read(req *request) {
	p.Notes = req.typed("notes")
	if name := strings.TrimSpace(req.typed("assignee")); name != req.typed("had") { // else it stays as it is now
		p.Assignee = name
	}
	p.Status = cmp.Or(tasker.ResolutionStatus(req.PostFormValue("status")), tasker.EntryPending)
	p.Undo = p.Undoes > 0 && req.PostFormValue("compensate") != ""
	p.update = p.change()
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
	if err := p.identify(req); err != nil {
		return nil, err
	}
	u := p.update
	switch {
	case u.IfUnchangedSince == nil:
		return nil, tasker.Errorf(tasker.Invalid, "the form does not say which state of the investigation it shows: open it again")
	case u.Status != nil && u.Notes == nil:
		return nil, tasker.Errorf(tasker.Invalid, "say in the notes what was found: an investigation cannot end without notes")
	case u.Status == nil && u.Notes == nil && len(u.Metadata) == 0:
		return nil, tasker.Errorf(tasker.Invalid, "nothing would change: write a note, name an assignee, or end the investigation")
	case p.Undo && !u.Compensate:
		return nil, tasker.Errorf(tasker.Invalid, "what the task has done is undone only when the investigation ends as permanently failed")
	case nameFault(p.Assignee) != nil:
		return nil, tasker.Errorf(tasker.Invalid, "invalid assignee: must have up to %d bytes, on one line", maxName)
	}
	_, warnings, err := p.DLQ.Update(req.Context(), p.Entry.UUID, u)
	if tasker.CodeOf(err) == tasker.Conflict && len(p.Meanwhile) > 0 {
		err = tasker.Errorf(tasker.Conflict, "somebody has changed the investigation while you had this form open. "+
			"Read what is new; what you typed is still here, and can be sent again.")
	}
	if err != nil {
		return nil, err
	}
	return &view{next: p.Back, note: p.done(u), warn: warningText(warnings)}, nil
}

// warningText joins warnings into sentences.
func warningText(warnings []string) string {
	var sentences []string
	for _, w := range warnings {
		sentences = append(sentences, sentence(w)+".")
	}
	return strings.Join(sentences, " ")
}

// change returns what the fields change about the entry.
func (p *updateForm) change() tasker.EntryUpdate {
	u := tasker.EntryUpdate{Actor: p.Actor}
	if p.Status != tasker.EntryPending {
		status := p.Status
		u.Status = &status
	}
	u.Compensate = p.Undo && p.Status == tasker.EntryPermanentlyFailed
	if strings.TrimSpace(p.Notes) != "" {
		u.Notes = &p.Notes
	}
	if p.Assignee != p.Had {
		u.Metadata = assignment(p.Assignee)
	}
	return u
}

// assignment returns the metadata that names an assignee; null for nobody.
func assignment(name string) json.RawMessage {
	if name == "" {
		return json.RawMessage(`{"assignee":null}`)
	}
	return json.RawMessage(compactJSON(map[string]string{"assignee": name}))
}

// done says what was changed.
func (p *updateForm) done(u tasker.EntryUpdate) string {
	switch {
	case u.Compensate:
		return "The investigation has ended: " + words(*u.Status) + ". What the task has done is being undone; then it is cancelled."
	case u.Status != nil:
		return "The investigation has ended: " + words(*u.Status) + "."
	case u.Notes != nil:
		return "Your note is in the history."
	case p.Assignee == "":
		return "Nobody has the investigation now."
	default:
		return p.Assignee + " has the investigation now."
	}
}

// command returns the same change from a terminal.
func (p *entryForm) command(req *request, u tasker.EntryUpdate) command {
	actor, _ := p.placeholders()
	ctl := []string{"dlq", "update", p.Entry.UUID.String()}
	body := apiv1.UpdateEntry{ResolutionNotes: u.Notes, Metadata: u.Metadata, ExpectedUpdatedAt: u.IfUnchangedSince}
	if p.Subject == "" {
		body.UpdatedBy = actor
	}
	if u.Status != nil {
		body.ResolutionStatus = new(string(*u.Status))
		if p.Subject == "" {
			body.ResolvedBy = &actor
		}
		ctl = append(append(ctl, "--status", string(*u.Status)), p.by("--resolved-by", actor)...)
	}
	if body.Compensate = u.Compensate; u.Compensate {
		ctl = append(ctl, "--compensate")
	}
	if u.Notes != nil {
		ctl = append(ctl, "--notes", *u.Notes)
	}
	if len(u.Metadata) > 0 {
		ctl = append(ctl, "--metadata", string(u.Metadata))
	}
	if u.IfUnchangedSince != nil {
		ctl = append(ctl, "--if-unchanged-since", u.IfUnchangedSince.UTC().Format(time.RFC3339Nano))
	}
	c := commandOf(req, ctl, http.MethodPatch, "/v1/dlq/entry/"+p.Entry.UUID.String(), body)
	if u.Status == nil && p.Subject == "" { // the only flag for the actor says who resolved it
		c.CLI = "TASKER_ACTOR=" + shellQuote(actor) + " " + c.CLI
	}
	return c
}

// An ownForm makes the operator the assignee of an investigation.
type ownForm struct{ entryForm }

func (s *server) ownForm(req *request) (*ownForm, error) {
	e, err := s.entryForm(req, form{page: "entryown", title: "Take", Button: "Assign to me"})
	if err != nil {
		return nil, err
	}
	if !e.Open {
		e.Refused = "The investigation has ended: it cannot be assigned."
	}
	p := &ownForm{e}
	actor, _ := p.placeholders()
	p.Command = p.command(req, tasker.EntryUpdate{Metadata: assignment(actor)})
	return p, nil
}

func (p *ownForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	note := p.Actor + " has the investigation now."
	if p.Had != "" && p.Had != p.Actor {
		if p.Had != req.PostFormValue("had") {
			return nil, tasker.Errorf(tasker.Conflict, "%s has it since you opened the page; take it from there if you mean it", p.Had)
		}
		note = p.Actor + " has the investigation now; it was " + p.Had + "'s."
	}
	_, _, err := p.DLQ.Update(req.Context(), p.Entry.UUID, tasker.EntryUpdate{Actor: p.Actor, Metadata: assignment(p.Actor), IfUnchangedSince: &p.Entry.UpdatedAt})
	if err != nil {
		return nil, err
	}
	return &view{next: p.Back, note: note}, nil
}
