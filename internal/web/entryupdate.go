package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) entryUpdateRoutes() []route {
	return []route{
		{http.MethodGet, "/investigations/{id}/update", s.entryForm},
		{http.MethodPost, "/investigations/{id}/update", s.entryChange},
		{http.MethodGet, "/investigations/{id}/own", s.ownForm},
		{http.MethodPost, "/investigations/{id}/own", s.own},
	}
}

// entryUpdatePage is the form for what was found, and for the end of an
// investigation.
type entryUpdatePage struct {
	Entry     tasker.Entry
	Task      tasker.Task
	Cause     tasker.Cause
	Open      bool
	Seen      string // when the entry was last updated, as this page knows it
	Notes     string
	Assignee  string
	Had       string // who had it when the form was opened
	Status    tasker.ResolutionStatus
	Endings   []ending
	Failed    []tasker.Step // in error and not tried again
	Problem   string
	Meanwhile []tasker.EntryChange // what others did since the form was opened
	Elsewhere command
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
		"The task was repaired, or needs nothing. It does nothing to the task: if that is still in error, there will be a new investigation after a while.",
	},
	{
		tasker.EntryPermanentlyFailed, "Permanently failed",
		"The task is written off: its steps can never be repaired again, and no answer from outside counts. Only a new task can take its place.",
	},
	{
		tasker.EntryCancelled, "Cancelled",
		"The investigation was not needed. What the system found is left alone until something happens to the task again.",
	},
}

// entryForm shows the form.
func (s *server) entryForm(x *exchange) (*view, error) {
	if err := s.mayChange(); err != nil {
		return nil, err
	}
	p, err := s.entryUpdateOf(x)
	if err != nil {
		return nil, err
	}
	if p.Open && x.URL.Query().Has("end") {
		p.Status = tasker.EntryManuallyResolved
	}
	u := p.change(x.actor)
	u.Unchanged = &p.Entry.UpdatedAt
	if u.Notes == nil {
		u.Notes = new("what you found")
	}
	p.Elsewhere = p.command(x, u)
	return p.view(http.StatusOK), nil
}

func (p *entryUpdatePage) view(status int) *view {
	return &view{page: "entryupdate", title: "Update the investigation of " + p.Task.Namespace + "/" + p.Task.Name, nav: "Queue", body: p, status: status}
}

// entryUpdateOf reads what the form shows.
func (s *server) entryUpdateOf(x *exchange) (*entryUpdatePage, error) {
	id, err := x.id("id")
	if err != nil {
		return nil, err
	}
	p := &entryUpdatePage{Status: tasker.EntryPending, Endings: endings}
	if p.Entry, err = s.DB.Entry(x.Context(), id); err != nil {
		return nil, err
	}
	if p.Task, err = s.DB.Task(x.Context(), p.Entry.TaskUUID); err != nil {
		return nil, err
	}
	steps, err := s.DB.Steps(x.Context(), p.Entry.TaskUUID)
	for _, st := range steps {
		if st.State == tasker.StepError && st.NextRetryAt == nil {
			p.Failed = append(p.Failed, st)
		}
	}
	p.Had = assigneeOf(p.Entry.Metadata)
	p.Assignee = p.Had
	p.Cause = tasker.CauseOf(p.Entry.Reason, p.Entry.DetailCode)
	p.Open = p.Entry.ResolutionStatus == tasker.EntryPending
	p.Seen = p.Entry.UpdatedAt.UTC().Format(time.RFC3339Nano)
	return p, err
}

// entryChange does what the form says.
func (s *server) entryChange(x *exchange) (*view, error) {
	p, err := s.entryUpdateOf(x)
	if err != nil {
		return nil, err
	}
	p.Notes = x.typed("notes")
	if name := strings.TrimSpace(x.typed("assignee")); name != x.typed("had") { // or he left it alone, and it stays as it is now
		p.Assignee = name
	}
	p.Status = cmp.Or(tasker.ResolutionStatus(x.PostFormValue("status")), tasker.EntryPending)
	seen, err := time.Parse(time.RFC3339Nano, x.PostFormValue("seen"))
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "the form does not say which state of the investigation it shows: open it again")
	}
	actor, err := x.actorOf()
	u := p.change(actor)
	u.Unchanged = &seen
	p.Elsewhere = p.command(x, u)
	if err == nil {
		err = p.check(u)
	}
	var warnings []string
	if err == nil {
		_, warnings, err = s.DLQ.Update(x.Context(), p.Entry.UUID, u)
	}
	if err != nil {
		return p.refusal(err, seen)
	}
	return &view{next: entryPath(p.Entry.UUID), note: p.done(u), warn: warned(warnings)}, nil
}

// warned joins warnings, without the requests that they name: the page has links.
func warned(warnings []string) string {
	var sentences []string
	for _, w := range warnings {
		before, after, found := strings.Cut(w, " (PATCH /v1/")
		if _, rest, closed := strings.Cut(after, ")"); found && closed {
			w = before + rest
		}
		first, size := utf8.DecodeRuneInString(w)
		sentences = append(sentences, string(unicode.ToUpper(first))+w[size:]+".")
	}
	return strings.Join(sentences, " ")
}

// change is what the fields change about the entry.
func (p *entryUpdatePage) change(actor string) tasker.EntryUpdate {
	u := tasker.EntryUpdate{Actor: actor}
	if p.Status != tasker.EntryPending {
		u.Status = &p.Status
	}
	if strings.TrimSpace(p.Notes) != "" {
		u.Notes = &p.Notes
	}
	if p.Assignee != p.Had {
		u.Metadata = assignment(p.Assignee)
	}
	return u
}

// assignment is the metadata that says who has an investigation; nobody is null.
func assignment(name string) json.RawMessage {
	if name == "" {
		return json.RawMessage(`{"assignee":null}`)
	}
	return json.RawMessage(compactJSON(map[string]string{"assignee": name}))
}

// check says in the words of the form what would be refused in those of the API.
func (p *entryUpdatePage) check(u tasker.EntryUpdate) error {
	switch {
	case u.Status != nil && u.Notes == nil:
		return tasker.Errorf(tasker.Invalid, "say in the notes what was found: an investigation does not end without")
	case u.Status == nil && u.Notes == nil && len(u.Metadata) == 0:
		return tasker.Errorf(tasker.Invalid, "nothing would change: write a note, name somebody, or end the investigation")
	case len(p.Assignee) > maxName:
		return tasker.Errorf(tasker.Invalid, "the name of who has it is longer than %d bytes", maxName)
	default:
		return nil
	}
}

// refusal shows the form again with what was typed, and what others did meanwhile.
// Sent once more, it changes the investigation as it is now.
func (p *entryUpdatePage) refusal(err error, seen time.Time) (*view, error) {
	code := tasker.CodeOf(err)
	if code == tasker.Internal || code == tasker.Unavailable {
		return nil, err
	}
	p.Problem = messageOf(err)
	for _, c := range slices.Backward(p.Entry.History) {
		if c.At.After(seen) {
			p.Meanwhile = append(p.Meanwhile, c)
		}
	}
	if code == tasker.Conflict && len(p.Meanwhile) > 0 {
		p.Problem = "Somebody has changed the investigation while you had this form open. Read what is new; what you typed is still here, and can be sent again."
	}
	if !p.Open {
		p.Status = tasker.EntryPending
	}
	return p.view(apiv1.Status(code)), nil
}

// done says what was changed.
func (p *entryUpdatePage) done(u tasker.EntryUpdate) string {
	switch {
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

// command is the same change from a terminal.
func (p *entryUpdatePage) command(x *exchange, u tasker.EntryUpdate) command {
	actor := cmp.Or(u.Actor, "you@example.com")
	ctl := []string{"dlq", "update", p.Entry.UUID.String()}
	body := apiv1.UpdateEntry{ResolutionNotes: u.Notes, Metadata: u.Metadata, UpdatedBy: actor, ExpectedUpdatedAt: u.Unchanged}
	if u.Status != nil {
		body.ResolutionStatus, body.ResolvedBy = new(string(*u.Status)), &actor
		ctl = append(ctl, "--status", string(*u.Status), "--resolved-by", actor)
	}
	if u.Notes != nil {
		ctl = append(ctl, "--notes", *u.Notes)
	}
	if len(u.Metadata) > 0 {
		ctl = append(ctl, "--metadata", string(u.Metadata))
	}
	if u.Unchanged != nil {
		ctl = append(ctl, "--if-unchanged-since", u.Unchanged.UTC().Format(time.RFC3339Nano))
	}
	c := commandOf(x, ctl, http.MethodPatch, "/v1/dlq/entry/"+p.Entry.UUID.String(), body)
	if u.Status == nil { // a flag would say who resolved it
		c.CLI = "TASKER_ACTOR=" + shellQuote(actor) + " " + c.CLI
	}
	return c
}

// ownPage asks who takes an investigation, where the page's head does not say.
type ownPage struct {
	Entry     tasker.Entry
	Assignee  string // who has it now
	Problem   string
	Elsewhere command
}

func (s *server) ownForm(x *exchange) (*view, error) {
	if err := s.mayChange(); err != nil {
		return nil, err
	}
	p, err := s.entryUpdateOf(x)
	if err != nil {
		return nil, err
	}
	return p.ownView(x, "", http.StatusOK), nil
}

func (p *entryUpdatePage) ownView(x *exchange, problem string, status int) *view {
	who := cmp.Or(x.actor, "you@example.com")
	return &view{page: "entryown", title: "Take the investigation of " + p.Task.Namespace + "/" + p.Task.Name, nav: "Queue", status: status, body: ownPage{
		Entry: p.Entry, Assignee: assigneeOf(p.Entry.Metadata), Problem: problem, Elsewhere: p.command(x, tasker.EntryUpdate{Actor: who, Metadata: assignment(who)}),
	}}
}

// own gives an investigation to who asks for it.
func (s *server) own(x *exchange) (*view, error) {
	p, err := s.entryUpdateOf(x)
	if err != nil {
		return nil, err
	}
	actor, err := x.actorOf()
	has, note := assigneeOf(p.Entry.Metadata), actor+" has the investigation now."
	switch {
	case err != nil:
	case p.Entry.ResolutionStatus != tasker.EntryPending:
		err = tasker.Errorf(tasker.Conflict, "the investigation has ended: there is nothing to take")
	case has != "" && has != actor && has != x.PostFormValue("had"):
		err = tasker.Errorf(tasker.Conflict, "%s has it since you opened the page; take it from there if you mean it", has)
	}
	if err == nil {
		_, _, err = s.DLQ.Update(x.Context(), p.Entry.UUID, tasker.EntryUpdate{Actor: actor, Metadata: assignment(actor), Unchanged: &p.Entry.UpdatedAt})
	}
	if has != "" && has != actor {
		note = actor + " has the investigation now; it was " + has + "'s."
	}
	if code := tasker.CodeOf(err); code == tasker.Invalid || code == tasker.Conflict {
		return p.ownView(x, messageOf(err), apiv1.Status(code)), nil
	}
	if err != nil {
		return nil, err
	}
	return &view{next: entryPath(p.Entry.UUID), note: note}, nil
}
