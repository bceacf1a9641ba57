package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/endpoint"
)

var stepVerbs = []verb{
	{
		Word: "reset", Name: "Reset", Key: "r", Does: "reset the step so that it runs again", Done: "reset",
		Long:   "The step gets all its attempts again and runs as soon as a worker claims it. Fix the cause first.",
		Action: tasker.ResetForRetry, endpoint: endpoint.OperateStep,
	},
	{
		Word: "resolve", Name: "Resolve", Key: "m", Does: "resolve the step: the task continues without its result",
		Done:   "resolved",
		Long:   "The step counts as done and does not run again. Dependent steps continue and receive no result (null).",
		Action: tasker.ResolveManually, endpoint: endpoint.OperateStep,
	},
	{
		Word: "complete", Name: "Complete", Key: "c", Does: "complete the step with a result", Done: "completed",
		Long:   "The step completes with the result below, and its handler does not run. Dependent steps receive the result.",
		Action: tasker.CompleteManually, endpoint: endpoint.OperateStep,
	},
}

// isAllowed reports whether a step accepts the action. A step that waits for its child task can be
// reset to start another one.
func (v verb) isAllowed(s tasker.Step) bool {
	return slices.Contains(core.Target{Step: s.State}.Allowed(), v.Action) || v.Action == tasker.ResetForRetry && isWaitingForChild(s)
}

func isWaitingForChild(s tasker.Step) bool {
	return s.Type == tasker.ChildStep && s.State == tasker.StepPending && s.ChildTaskUUID != nil
}

// stepForm is the form for an action on a step.
type stepForm struct {
	form
	verb
	Task      tasker.Task
	Step      tasker.Step
	Failure   tasker.StepFailure
	Entry     *tasker.ID // investigation to return to
	Held      string     // current owner of the step; empty if there is none
	Next      forecast
	Parents   []parentResult
	Seen      string // identifies the displayed state of the step
	Result    string
	Metadata  string
	Interrupt bool
	NewChild  bool
	Discard   bool // discard the checkpoints
}

// parentResult is the result of a dependency.
type parentResult struct {
	Name  string
	State tasker.StepState
	Doc   json.RawMessage
}

// Completes reports whether the form has a field for the result.
func (p *stepForm) Completes() bool { return p.Action == tasker.CompleteManually }

// HasSaved reports whether the form offers to discard checkpoints.
func (p *stepForm) HasSaved() bool {
	return p.Action == tasker.ResetForRetry && (p.Step.Checkpoint != nil || p.Step.Items != nil)
}

// StartsTask reports whether the form offers to start a new child task.
func (p *stepForm) StartsTask() bool {
	return p.Action == tasker.ResetForRetry && p.Step.Type == tasker.ChildStep
}

// LeavesChild reports whether the action requires a new child task.
func (p *stepForm) LeavesChild() bool {
	return p.Action == tasker.ResetForRetry && isWaitingForChild(p.Step)
}

func (s *server) newStepForm(req *request, v verb) *stepForm {
	id := req.pathID("step")
	p := &stepForm{verb: v, Task: loadByID(req, "task", s.DB.Task)}
	steps, err := s.DB.StepsAndFailedItems(req.Context(), p.Task.UUID, id)
	req.fail(err)
	i := slices.IndexFunc(steps, func(st tasker.Step) bool { return st.UUID == id })
	if i < 0 {
		req.fail(tasker.Errorf(tasker.NotFound, "task %s has no step %s", p.Task.UUID, id))
		return p
	}
	req.fail(s.DB.RedactErrors(req.Context(), steps[i:i+1]))
	p.Step, p.Failure = steps[i], parseFailure(steps[i].Error)
	p.Seen = fmt.Sprintf("%d-%d", p.Step.Attempts, p.Step.StateSince.UnixMicro())
	p.Next, p.Held, p.Parents = newForecast(steps, id,
		v.Action), v.describeHolder(p.Step), collectParentResults(steps, p.Step)
	title := v.Name + " step " + p.Step.Name
	p.form = req.newForm(form{page: "stepaction", title: title, nav: "Tasks", Button: title, maxReason: maxNotes})
	p.readBack(req)
	p.Refused = explainUnrepairable(p.Task, s.findEntry(req, p.Task.UUID))
	if p.Refused == "" && !v.isAllowed(p.Step) {
		p.Refused = fmt.Sprintf("The step is %s: it cannot be %s.", formatWords(p.Step.State), v.Done)
	}
	p.Result, p.Metadata, p.Interrupt = req.rawField("result"), req.rawField("metadata"), req.isChecked("interrupt")
	p.NewChild = p.StartsTask() && req.isChecked("new_child")
	p.Discard = p.HasSaved() && req.isChecked("discard_checkpoint")
	if req.Method == http.MethodGet {
		p.Interrupt, p.NewChild = p.Held != "", p.LeavesChild()
	}
	p.Command = p.command()
	if req.Method == http.MethodGet {
		p.Interrupt = false
		if p.Completes() {
			p.Result = "{\n  \n}"
		}
	}
	return p
}

// readBack determines the page to return to: the investigation of the form or the task.
func (p *stepForm) readBack(req *request) {
	p.Back = taskPath(p.Task.UUID)
	if p.Step.MapStepUUID != nil {
		p.Back = itemsPath(p.Task.UUID, *p.Step.MapStepUUID)
	}
	q := req.query()
	if req.Form != nil {
		q.values = req.Form
	}
	if p.Entry = q.readID("entry"); p.Entry == nil || req.err() != nil {
		return
	}
	if e := load(req, p.DB.Entry, *p.Entry); e.TaskUUID != p.Task.UUID {
		req.fail(tasker.Errorf(tasker.NotFound, "investigation %s belongs to another task", e.UUID))
	}
	p.Back = entryPath(*p.Entry)
}

// explainUnrepairable returns why no step of a task accepts an action, or "" if some may. newest is
// the newest investigation of the task, if any.
func explainUnrepairable(task tasker.Task, newest *tasker.Entry) string {
	target := core.Target{TaskUUID: task.UUID, Task: task.State, WrittenOff: newest != nil &&
		newest.ResolutionStatus == tasker.EntryPermanentlyFailed}
	switch {
	case target.CheckTask() == nil:
		return ""
	case task.State == tasker.TaskPending:
		return "The task has not started yet: wait for its start time or cancel it."
	case task.State == tasker.TaskComplete || task.State == tasker.TaskCancelled:
		return fmt.Sprintf("The task is %s: its steps can no longer be changed.", formatWords(task.State))
	default:
		return "The task is marked as permanently failed: its steps can no longer be changed."
	}
}

// describeHolder returns why the action must interrupt the step, or "" if it need not.
func (v verb) describeHolder(s tasker.Step) string {
	switch {
	case isWaitingForChild(s) && v.Action == tasker.ResetForRetry:
		return "The step waits for its child task " + s.ChildTaskUUID.String() + "."
	case s.State == tasker.StepEnqueued:
		return "The step is enqueued: a worker can claim it at any time."
	case s.State == tasker.StepInProgress && s.WorkerUUID != nil:
		return "Worker " + s.WorkerUUID.String() + " is running the step."
	case core.IsHeld(s.State):
		return "A worker has reported the step, and the server is applying the report."
	default:
		return ""
	}
}

// collectParentResults returns the results of the dependencies of a step.
func collectParentResults(steps []tasker.Step, of tasker.Step) []parentResult {
	var list []parentResult
	for _, s := range steps {
		if slices.Contains(of.Parents, s.UUID) {
			list = append(list, parentResult{Name: s.Name, State: s.State, Doc: parseMembers(s.Results)["result"]})
		}
	}
	return list
}

func (p *stepForm) do(req *request) (*view, error) {
	switch seen := req.PostFormValue("seen"); {
	case p.Completes() && strings.TrimSpace(p.Result) == "":
		return nil, tasker.Errorf(tasker.Invalid, "the result is missing: dependent steps receive it; null is allowed")
	case p.Completes() && strings.TrimSpace(p.Metadata) != "" && !strings.HasPrefix(strings.TrimSpace(p.Metadata), "{"):
		return nil, tasker.Errorf(tasker.Invalid, `the metadata must be a JSON object such as {"checked_by": "phone"}`)
	case seen != "" && seen != p.Seen:
		return nil, tasker.Errorf(tasker.Conflict, "the step has changed since you opened this page, which now shows its current state: check it and submit again")
	}
	if _, err := p.Engine.OperateStep(req.Context(), p.Task.UUID, p.Step.UUID, p.toActionRequest()); err != nil {
		return nil, err
	}
	return &view{next: p.Back, note: p.computeResult(req.Context())}, nil
}

// toActionRequest returns the action as a request to the engine.
func (p *stepForm) toActionRequest() tasker.ActionRequest {
	op := tasker.ActionRequest{Action: p.Action, Actor: p.Actor, Reason: p.Reason, Interrupt: p.Interrupt, NewChild: p.NewChild, DiscardCheckpoint: p.Discard}
	if p.Completes() {
		op.Result, op.Metadata = parseTypedJSON(p.Result), parseTypedJSON(p.Metadata)
	}
	return op
}

// computeResult describes the states of the step and the task after the action, as far as they can
// be read.
func (p *stepForm) computeResult(ctx context.Context) string {
	note := fmt.Sprintf("Step %s was %s", p.Step.Name, p.Done)
	step, err := p.DB.Step(ctx, p.Task.UUID, p.Step.UUID)
	if err != nil {
		return note + "."
	}
	task, err := p.DB.Task(ctx, p.Task.UUID)
	if err != nil {
		return note + "."
	}
	return fmt.Sprintf("%s. It is now %s, and the task %s.", note, formatWords(step.State), formatState(task.State))
}

// parseTypedJSON returns the JSON of a field, or nil if it is empty.
func parseTypedJSON(text string) json.RawMessage {
	if text = strings.Trim(text, " \t\r\n\ufeff"); text == "" {
		return nil
	}
	return json.RawMessage(text)
}

func (p *stepForm) command() command {
	op := p.toActionRequest()
	c := p.newCall(p.endpoint, "task "+p.Word+"-step", p.Task.UUID.String(), p.Step.UUID.String())
	c.member("action_type", p.Action)
	if p.Completes() {
		data := apiv1.CompletionData{Result: validJSONOr(op.Result, `{"ok":true}`)}
		if len(op.Metadata) > 0 {
			data.Metadata = validJSONOr(op.Metadata, `{}`)
		}
		c.flag("--result", data.Result)
		c.flag("--metadata", data.Metadata)
		c.member("completion_data", data)
	}
	c.setReason()
	c.setNamedActor("--"+p.Done+"-by", p.Done+"_by")
	c.set("--interrupt", "interrupt", op.Interrupt)
	if op.NewChild {
		c.flag("--new-child", true)
		c.member("child", apiv1.NewChild)
	}
	c.set("--discard-checkpoint", "discard_checkpoint", op.DiscardCheckpoint)
	return c.format()
}

// validJSONOr returns doc in compact form, or example if doc is empty or not valid JSON.
func validJSONOr(doc json.RawMessage, example string) json.RawMessage {
	if len(doc) == 0 || !json.Valid(doc) {
		return json.RawMessage(example)
	}
	return json.RawMessage(compactJSON(doc))
}

// stepRow is a row of a table of steps.
type stepRow struct {
	tasker.Step
	Needs   []stepAnchor // dependencies
	Actions []link
	Bar     stepBar
}

// stepAnchor links to a step on the same page.
type stepAnchor struct {
	Name, Href string
	Done       bool
}

// newStepRows returns the table rows for steps. After an action, the browser returns to the
// investigation entry unless it is nil.
func newStepRows(steps []tasker.Step, actions bool, entry *tasker.ID) []stepRow {
	byID := make(map[tasker.ID]tasker.Step, len(steps))
	for _, s := range steps {
		byID[s.UUID] = s
	}
	rows := make([]stepRow, len(steps))
	for i, s := range steps {
		rows[i].Step = s
		for _, id := range s.Parents {
			parent := byID[id]
			rows[i].Needs = append(rows[i].Needs, stepAnchor{parent.Name, stepHref(parent), parent.State.Done()})
		}
		if actions {
			rows[i].Actions = newStepLinks(s, entry)
		}
	}
	return rows
}

// newStepLinks returns the actions that the state of a step allows.
func newStepLinks(st tasker.Step, entry *tasker.ID) (links []link) {
	path := stepPath(tasker.StepRef{TaskUUID: st.TaskUUID, StepUUID: st.UUID})
	for _, v := range stepVerbs {
		if v.isAllowed(st) {
			l := v.link(path)
			if entry != nil {
				l.Path += "?entry=" + entry.String()
			}
			links = append(links, l)
		}
	}
	if !isHumanStep(st) {
		return links
	}
	links = append(links, link{Name: "Answer", Key: "a", Does: "answer the step", Path: path + "/answer"},
		link{Name: "Assign", Key: "y", Does: "assign the step", Path: path + "/assign"})
	if st.Assignee != "" {
		links = append(links, link{Name: "Answer link", Key: "w", Does: "create a link to answer the step without signing in", Path: path + "/links"})
	}
	return links
}

// Failure returns the last error of the step, truncated, or "" if the step is done.
func (r stepRow) Failure() string {
	if r.State.Done() {
		return ""
	}
	return truncate(parseFailure(r.Step.Error).Message, shownError)
}

// Document returns a document of the step.
func (r stepRow) Document(name string, doc json.RawMessage) document {
	return newDocument(name, doc, maxResult, stepAPIPath(r.Step)).withID(strings.ToLower(name) + "-" + r.UUID.String())
}

// hasFailedPermanently reports whether a step is in error and has no retry.
func hasFailedPermanently(s tasker.Step) bool {
	return s.State == tasker.StepError && s.NextRetryAt == nil
}

func isWorkerStep(s tasker.Step) bool {
	return s.Type == tasker.StandardStep || s.Type == tasker.DecisionStep
}

// forecast is the expected result of an action on a step.
type forecast struct {
	Step     tasker.StepState // state of the step itself
	Enqueued []string         // other steps that become claimable
	Outside  []string         // dependent steps that then wait for an external result
	Waiting  []string         // dependent steps that still wait for other steps
	Task     tasker.TaskState
}

// newForecast applies an action to a copy of the steps. The actual result can differ because of
// concurrent changes.
func newForecast(steps []tasker.Step, id tasker.ID, action tasker.StepAction) forecast {
	after := slices.Clone(steps)
	done := map[tasker.ID]bool{}
	var f forecast
	for i, s := range after {
		if s.UUID == id {
			if next, err := core.StepMoves.Next(s.State, core.StepEvent(action)); err == nil {
				after[i].State, after[i].NextRetryAt = next, nil
			}
		}
		done[s.UUID] = after[i].State.Done()
	}
	for i, s := range after {
		ready := s.State == tasker.StepPending && !slices.ContainsFunc(s.Parents, func(p tasker.ID) bool { return !done[p] })
		if ready && isWorkerStep(s) {
			after[i].State = tasker.StepEnqueued
		}
		switch {
		case s.UUID == id:
			f.Step = after[i].State
		case ready && isWorkerStep(s):
			f.Enqueued = append(f.Enqueued, s.Name)
		case ready && slices.Contains(s.Parents, id):
			f.Outside = append(f.Outside, s.Name)
		case s.State == tasker.StepPending && slices.Contains(s.Parents, id):
			f.Waiting = append(f.Waiting, s.Name)
		}
	}
	f.Task = core.RestingState(after)
	return f
}
