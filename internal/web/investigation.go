package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/evidencefile"
)

// Limits of an investigation page.
const (
	shownChanges  = 100 // state changes of a task
	openChanges   = 8   // of them without folding
	readChanges   = 400 // state changes of a step
	shownAttempts = 5
	shownRelated  = 5
	shownError    = 200 // characters, in a list
)

func entryPath(id tasker.ID) string { return Root + "/investigations/" + id.String() }

func taskPath(id tasker.ID) string { return Root + "/tasks/" + id.String() }

// investigationPage shows an investigation: evidence, current state and actions.
type investigationPage struct {
	Entry        tasker.Entry
	Task         tasker.Task
	Cause        tasker.Cause
	Other        bool // the failed step is not the one that the investigation was opened for
	Story        []string
	Why          *tasker.Condition
	Assignee     string
	Open         bool
	Graph        graph
	Steps        []stepRow
	OtherSteps   int    // hidden steps
	Verbs        []link // actions on the failed step
	Stuck        string // why no action is possible
	Failed       *tasker.Step
	Attempts     []attempt // newest first
	EarlierTries []attempt
	Compared     comparison
	Related      tasker.RelatedEntries // other investigations of the case
	Changes      []historyLine         // of the task, newest first
	Earlier      []historyLine
	More         int                  // number of shown changes if there are more
	History      []tasker.EntryChange // newest first
	Documents    []document
	Hidden       string // why part of the evidence is withheld
	Incomplete   string // why there is no snapshot
}

func (s *server) showInvestigation(req *request) (*view, error) {
	p := s.loadInvestigation(req)
	return &view{
		page: "investigation", title: p.Task.Namespace + "/" + p.Task.Name + ": " + p.Cause.Label, nav: navCases, live: true, body: p,
	}, nil
}

// downloadEvidence sends the evidence as a file.
func (s *server) downloadEvidence(req *request) (*view, error) {
	f := loadByID(req, "investigation", evidencefile.New(s.DB, s.Engine).Export)
	if req.err() != nil {
		return nil, req.err()
	}
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(f); err != nil {
		return nil, fmt.Errorf("encode the evidence file: %w", err)
	}
	return download(req, "evidence-"+f.Investigation.EntryUUID.String()+".json", "application/json", doc.Bytes())
}

func download(req *request, name, media string, doc []byte) (*view, error) {
	if err := req.checkQuery(); err != nil {
		return nil, err
	}
	req.w.Header().Set("Content-Type", media)
	req.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	req.leave()
	_, _ = req.w.Write(doc) // the browser may have disconnected
	return nil, nil         //nolint:nilnil // the response is written
}

func (s *server) loadInvestigation(req *request) *investigationPage {
	ctx := req.Context()
	e := loadByID(req, "investigation", s.DB.Entry)
	task := load(req, s.DB.Task, e.TaskUUID)
	var item tasker.ID
	if e.StepUUID != nil {
		item = *e.StepUUID
	}
	steps, err := s.DB.StepsAndFailedItems(ctx, e.TaskUUID, item)
	req.fail(err)
	req.fail(s.DB.RedactErrors(ctx, steps))
	then := readSnapshot(e.Snapshot)
	failed := failedStepID(e)
	p := &investigationPage{
		Entry: e, Task: task, Cause: tasker.CauseOf(e.Reason, e.DetailCode), Open: e.ResolutionStatus == tasker.EntryPending,
		Other: failed != nil && (e.StepUUID == nil || *e.StepUUID != *failed),

		Story:    buildNarrative(narrativeInput{entry: e, task: task, then: then, steps: steps}),
		Assignee: parseAssignee(e.Metadata),
		Graph:    drawGraph(stepsAround(steps, failed), failed, func(st tasker.Step) string { return taskPath(task.UUID) + "#step-" + st.UUID.String() }),
		Compared: compareSnapshot(then, task, steps), Hidden: then.RedactionFailed,
		Incomplete: then.SnapshotFailed, Why: s.findCondition(req, e.UUID), History: slices.Clone(e.History),
	}
	whole := "/v1/dlq/entry/" + e.UUID.String()
	p.Documents = []document{
		newDocument("Thresholds in minutes", then.Thresholds, maxShown, whole), newDocument("Template", then.Template, maxContext, whole),
		newDocument("Metadata", e.Metadata, maxShown, whole), newDocument("Complete evidence", e.Snapshot, maxShown, whole),
	}
	p.Related, err = s.DB.RelatedEntries(ctx, e.UUID, shownRelated)
	req.fail(err)
	slices.Reverse(p.History)
	moves, more, err := s.DB.NewestTaskTransitions(ctx, task.UUID, shownChanges)
	req.fail(err)
	if more {
		p.More = len(moves)
	}
	n := min(len(moves), openChanges)
	lines := newHistoryLines(moves, steps)
	p.Changes, p.Earlier = lines[:n], lines[n:]
	s.addSteps(req, p, steps)
	s.addAttempts(req, p)
	return p
}

// failedStepID returns the step that currently blocks the task, or nil if there is none.
func failedStepID(e tasker.Entry) *tasker.ID {
	if e.FailedStep == nil {
		return nil
	}
	return &e.FailedStep.UUID
}

// addSteps adds the current steps and the possible actions.
func (s *server) addSteps(req *request, p *investigationPage, steps []tasker.Step) {
	p.Stuck = explainUnrepairable(p.Task, s.findEntry(req, p.Task.UUID))
	about := cmp.Or(failedStepID(p.Entry), p.Entry.StepUUID)
	p.Steps = newStepRows(steps, p.Stuck == "" && s.canShowAction(req, access.OperateSteps, p.Task.Namespace),
		&p.Entry.UUID)
	if len(steps) > manySteps {
		p.OtherSteps = len(steps) - shownSteps
		slices.SortStableFunc(p.Steps, func(a, b stepRow) int { return stepRank(a.Step) - stepRank(b.Step) })
	}
	for i, row := range p.Steps {
		if about != nil && row.UUID == *about {
			p.Failed, p.Verbs = &p.Steps[i].Step, row.Actions
		}
	}
	p.Steps = p.Steps[:len(p.Steps)-p.OtherSteps]
}

// addAttempts adds the attempts of the failed step.
func (s *server) addAttempts(req *request, p *investigationPage) {
	if p.Failed == nil {
		return
	}
	moves, _, err := s.DB.NewestStepTransitions(req.Context(), p.Task.UUID, p.Failed.UUID, readChanges)
	req.fail(err)
	list := collectAttempts(moves, p.Entry.At)
	n := min(len(list), shownAttempts)
	p.Attempts, p.EarlierTries = list[:n], list[n:]
}

// attempt is an execution of a step.
type attempt struct {
	Number  int
	Began   time.Time // zero if not claimed
	Ended   time.Time // zero while running
	Event   string    // at the end
	State   string    // of the step after the attempt
	Worker  *tasker.ID
	Failure tasker.StepFailure
	Later   bool // began after the investigation was opened
}

// Took formats the duration of the attempt, or returns "" if it is unknown.
func (a attempt) Took() string {
	if a.Began.IsZero() || a.Ended.IsZero() {
		return ""
	}
	return formatBrief(a.Ended.Sub(a.Began))
}

// collectAttempts derives the attempts of a step from its history. Both are newest first.
func collectAttempts(moves []tasker.Transition, opened time.Time) []attempt {
	var list []attempt
	var running *attempt
	for _, m := range slices.Backward(moves) {
		switch {
		case m.To == string(tasker.StepInProgress):
			running = &attempt{Number: attemptNumber(m), Began: m.CreatedAt, Worker: m.WorkerUUID, State: m.To, Later: m.CreatedAt.After(opened)}
			continue
		case m.To == string(tasker.StepEnqueuedForOrchestration):
			continue // reported, not applied
		case running == nil && m.To != string(tasker.StepError):
			continue
		case running == nil: // not claimed, or the claim is not in the history
			running = &attempt{Number: attemptNumber(m), Worker: m.WorkerUUID, Later: m.CreatedAt.After(opened)}
		}
		running.Ended, running.Event, running.State = m.CreatedAt, m.Event, m.To
		if m.To == string(tasker.StepError) {
			running.Failure = parseFailure(m.Detail)
		}
		list = append(list, *running)
		running = nil
	}
	if running != nil {
		list = append(list, *running)
	}
	slices.Reverse(list)
	return list
}

func attemptNumber(m tasker.Transition) int {
	if m.Attempt == nil {
		return 0
	}
	return *m.Attempt
}

// comparison lists how the states in the evidence differ from the current ones.
type comparison struct {
	Changed, Same       []comparedStep // limited
	AllChanged, AllSame int
}

type comparedStep struct {
	Name, Then, Now string
	Note            string // a change besides the state
}

func compareSnapshot(then snapshot, task tasker.Task, steps []tasker.Step) comparison {
	var c comparison
	add := func(l comparedStep) {
		if l.Then == l.Now && l.Note == "" {
			c.Same = append(c.Same, l)
		} else {
			c.Changed = append(c.Changed, l)
		}
	}
	if then.State != "" {
		add(comparedStep{Name: "The task", Then: string(then.State), Now: string(task.State)})
	}
	for _, st := range steps {
		was, ok := then.findStep(st.UUID)
		if !ok {
			continue
		}
		l := comparedStep{Name: st.Name, Then: string(was.State), Now: string(st.State)}
		if was.Attempts != st.Attempts {
			l.Note = formatCount(was.Attempts, "attempt") + " then, " + formatCount(st.Attempts, "") + " now"
		}
		add(l)
	}
	c.AllChanged, c.AllSame = len(c.Changed), len(c.Same)
	if c.AllChanged > manySteps {
		c.Changed = c.Changed[:shownSteps]
	}
	if c.AllSame > manySteps {
		c.Same = c.Same[:shownSteps]
	}
	return c
}

// entryForm is the common part of forms about an investigation.
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

// updateForm is the form to add notes to an investigation, assign it or end it.
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

// ownForm is the form with which operators assign an investigation to themselves.
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
