package web

import (
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const (
	inboxPath = Root + "/inbox"
	navInbox  = "Inbox"
	inboxRows = 50

	wordMine       = "mine"
	wordUnassigned = "unassigned"
)

// inboxLine is a human step in the inbox.
type inboxLine struct {
	tasker.HumanStep
	Path string // form to answer it, or its task
}

// inboxPage lists human steps by due time.
type inboxPage struct {
	Of     string // mine, unassigned or empty for all
	Choice []link
	Steps  []inboxLine
	Pager  pager
}

// listAssignees returns the names by which steps are assigned to the caller: the subject and its
// groups, or the entered name if the caller is not signed in.
func (req *request) listAssignees() []string {
	list := req.caller.Assignees()
	if len(list) == 0 && req.actor != "" && tasker.AssigneeFault(req.actor) == "" {
		list = append(list, req.actor)
	}
	return list
}

func (s *server) showInbox(req *request) (*view, error) {
	q := req.query()
	of := readChoice(q, "of", []string{wordMine, wordUnassigned})
	f := tasker.InboxFilter{Namespace: q.readText("namespace", maxText), Template: q.readText("template", maxText), Overdue: q.isOn("overdue"), Limit: inboxRows}
	who := q.readText("assignee", tasker.MaxAssigneeBytes)
	switch {
	case who != "":
		f.Assignees = []string{who}
	case of == wordMine:
		f.Assignees = append([]string{}, req.listAssignees()...)
	case of == wordUnassigned:
		f.Assignees = []string{""}
	}
	if text := q.Get("after"); text != "" {
		cursor, err := tasker.ParseInboxCursor(text)
		if err != nil {
			q.addFault("after", "the cursor of the previous page")
		}
		f.After = &cursor
	}
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.Engine.Inbox(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := inboxPage{Of: of}
	p.Choice = append(p.Choice, link{Name: "all", Path: inboxPath, Here: of == "" && who == ""})
	for _, word := range []string{wordMine, wordUnassigned} {
		p.Choice = append(p.Choice, link{Name: word, Path: inboxPath + "?of=" + word, Here: word == of && who == ""})
	}
	for _, h := range list {
		line := inboxLine{HumanStep: h, Path: taskPath(h.TaskUUID) + "#step-" + h.StepUUID.String()}
		if s.canShowAction(req, access.CompleteSteps, h.Namespace) {
			line.Path = stepPath(h.StepRef) + "/answer"
		}
		p.Steps = append(p.Steps, line)
	}
	if more {
		last := list[len(list)-1]
		p.Pager.After = req.buildLink("after", tasker.InboxCursor{DueAt: last.DueAt, Step: last.StepUUID}.String())
	}
	return &view{page: "inbox", title: navInbox, nav: navInbox, live: true, body: p}, nil
}

func stepPath(s tasker.StepRef) string { return taskPath(s.TaskUUID) + "/steps/" + s.StepUUID.String() }

// isHumanStep reports whether a step waits for an answer.
func isHumanStep(s tasker.Step) bool {
	return s.Type == tasker.ExternalStep && s.State == tasker.StepPending && s.DependenciesSatisfied && !s.DecisionDue
}

// newHumanForm is the common part of forms for a human step.
type humanForm struct {
	*server
	form
	Task tasker.Task
	Step tasker.Step
	tasker.HumanStepDetail
}

func (s *server) newHumanForm(req *request, f form) (h humanForm, err error) {
	var ref tasker.StepRef
	if ref.StepUUID, err = req.parseID("step"); err != nil {
		return h, err
	}
	h.server = s
	if h.Task, err = findByID(req, "task", s.DB.Task); err != nil {
		return h, err
	}
	ref.TaskUUID = h.Task.UUID
	if h.Step, err = s.DB.Step(req.Context(), ref.TaskUUID, ref.StepUUID); err != nil {
		return h, err
	}
	if h.HumanStepDetail, err = s.Engine.HumanStep(req.Context(), ref); err != nil {
		return h, err
	}
	f.title, f.nav, f.Back = f.title+" "+h.Step.Name, navInbox, taskPath(ref.TaskUUID)
	h.form = req.newForm(f)
	if !isHumanStep(h.Step) {
		h.Refused = "The step is " + formatWords(h.Step.State) + " and does not wait for an answer."
	}
	return h, nil
}

// newAssignForm is the form to assign a human step.
type assignForm struct {
	humanForm
	To string
}

func (s *server) newAssignForm(req *request) (*assignForm, error) {
	h, err := s.newHumanForm(req, form{page: "assign", title: "Assign step", Button: "Assign"})
	if err != nil {
		return nil, err
	}
	p := &assignForm{humanForm: h, To: h.Assignee}
	switch mine := req.listAssignees(); {
	case req.Method == http.MethodPost:
		p.To = req.rawField("assignee")
	case p.To == "" && len(mine) > 0:
		p.To = mine[0]
	}
	p.Command = p.command(req)
	return p, nil
}

func (p *assignForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	if !req.Form.Has("assignee") {
		return nil, tasker.Errorf(tasker.Invalid,
			"the assignee is missing: enter a person or a group, or leave it empty to unassign the step")
	}
	now, err := p.Engine.Assign(req.Context(), p.StepRef, tasker.AssignRequest{Assignee: p.To, Actor: p.Actor, Reason: p.Reason})
	note := "Step " + p.StepName + " is assigned to " + now.Assignee + "."
	if now.Assignee == "" {
		note = "Step " + p.StepName + " is unassigned."
	}
	return &view{next: p.Back, note: note}, err
}
