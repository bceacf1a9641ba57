package web

import (
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/endpoint"
)

const (
	inboxPath = Root + "/inbox"
	navInbox  = "Inbox"

	wordMine       = "mine"
	wordUnassigned = "unassigned"
)

type inboxPage struct {
	listPage[tasker.HumanStep]
	Of     string // mine, unassigned or empty for all
	Choice []link
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
	f := tasker.InboxFilter{Namespace: q.readText("namespace", maxText), Template: q.readText("template", maxText),
		Overdue: q.isOn("overdue"), Limit: listRows}
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
	p := inboxPage{Of: of}
	p.Choice = append(p.Choice, link{Name: "all", Path: inboxPath, Here: of == "" && who == ""})
	for _, word := range []string{wordMine, wordUnassigned} {
		p.Choice = append(p.Choice, link{Name: word, Path: inboxPath + "?of=" + word, Here: word == of && who == ""})
	}
	list, more := loadPage(req, s.Engine.Inbox, f)
	p.listPage = newListPage(req, list, more, "after",
		func(h tasker.HumanStep) any { return tasker.InboxCursor{DueAt: h.DueAt, Step: h.StepUUID} })
	return &view{page: "inbox", title: navInbox, nav: navInbox, live: true, body: p}, nil
}

func stepPath(s tasker.StepRef) string { return taskPath(s.TaskUUID) + "/steps/" + s.StepUUID.String() }

// isHumanStep reports whether a step waits for an answer.
func isHumanStep(s tasker.Step) bool {
	return s.Type == tasker.ExternalStep && s.State == tasker.StepPending && s.DependenciesSatisfied && !s.DecisionDue
}

// humanForm is the common part of forms for a human step.
type humanForm struct {
	form
	Task tasker.Task
	Step tasker.Step
	tasker.HumanStepDetail
}

func (s *server) newHumanForm(req *request, f form) (h humanForm) {
	ref := tasker.StepRef{StepUUID: req.pathID("step")}
	h.Task = loadByID(req, "task", s.DB.Task)
	ref.TaskUUID = h.Task.UUID
	var err error
	h.Step, err = s.DB.Step(req.Context(), ref.TaskUUID, ref.StepUUID)
	req.fail(err)
	h.HumanStepDetail = load(req, s.Engine.HumanStep, ref)
	f.title, f.nav, f.Back = f.title+" "+h.Step.Name, navInbox, taskPath(ref.TaskUUID)
	h.form = req.newForm(f)
	if !isHumanStep(h.Step) {
		h.Refused = "The step is " + formatWords(h.Step.State) + " and does not wait for an answer."
	}
	return h
}

// newStepCall returns a call about the step. The command names the step, not its id.
func (h *humanForm) newStepCall(e described, word string) *call {
	c := h.newCall(e, "task "+word, h.Task.UUID.String(), h.Step.UUID.String())
	c.words[len(c.words)-1] = h.Step.Name
	return c
}

// assignForm is the form to assign a human step.
type assignForm struct {
	humanForm
	To string
}

func (s *server) newAssignForm(req *request) *assignForm {
	p := &assignForm{humanForm: s.newHumanForm(req, form{page: "assign", title: "Assign step", Button: "Assign"})}
	p.To = string(p.Assignee)
	switch mine := req.listAssignees(); {
	case req.Method == http.MethodPost:
		p.To = req.rawField("assignee")
	case p.To == "" && len(mine) > 0:
		p.To = mine[0]
	}
	c := p.newStepCall(endpoint.AssignStep, "assign-step")
	c.flag("--to", p.To)
	c.flag("--nobody", p.To == "")
	c.member("assignee", &p.To)
	c.set("--reason", "reason", p.Reason)
	c.setActor("--by", "by")
	p.Command = c.format()
	return p
}

func (p *assignForm) do(req *request) (*view, error) {
	if !req.Form.Has("assignee") {
		return nil, tasker.Errorf(tasker.Invalid,
			"the assignee is missing: enter a person or a group, or leave it empty to unassign the step")
	}
	now, err := p.Engine.Assign(req.Context(), p.StepRef, tasker.AssignRequest{Assignee: p.To, Actor: p.Actor, Reason: p.Reason})
	note := "Step " + p.StepName + " is assigned to " + string(now.Assignee) + "."
	if now.Assignee == "" {
		note = "Step " + p.StepName + " is unassigned."
	}
	return &view{next: p.Back, note: note}, err
}
