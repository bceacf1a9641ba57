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
	"tasker.example/tasker/internal/lifecycle"
)

// A stepVerb is one of the three actions on a step, in the words of this page and of
// tasker-ctl.
type stepVerb struct {
	Action tasker.StepAction
	Word   string // in a path
	Name   string // on a button
	Key    string
	Does   string
	Done   string // what was done to the step
	Long   string // what it means
}

var stepVerbs = []stepVerb{
	{
		Action: tasker.ResetForRetry, Word: "reset", Name: "Reset", Key: "r", Does: "reset the step: it runs again", Done: "was reset",
		Long: "The step gets all of its attempts again and runs as soon as a worker takes it. Do this once the cause is fixed.",
	},
	{
		Action: tasker.ResolveManually, Word: "resolve", Name: "Resolve", Key: "m", Does: "resolve the step: the task goes on without its result",
		Done: "was resolved",
		Long: "The step counts as done and never runs again. The steps behind it go on, and receive no result of it (null).",
	},
	{
		Action: tasker.CompleteManually, Word: "complete", Name: "Complete", Key: "c", Does: "complete the step with a result that you give",
		Done: "was completed",
		Long: "The step is complete with the result that you give here in place of its handler. The steps behind it receive that result.",
	},
}

// allowed reports whether a step accepts the action. One that waits for its child task can be
// reset, to start another one.
func (v stepVerb) allowed(s tasker.Step) bool {
	return slices.Contains(lifecycle.Target{Step: s.State}.Allowed(), v.Action) || v.Action == tasker.ResetForRetry && waitsForChild(s)
}

func waitsForChild(s tasker.Step) bool {
	return s.Type == tasker.ChildStep && s.State == tasker.StepPending && s.ChildTaskUUID != nil
}

func (v stepVerb) path(s tasker.Step) string {
	return taskPath(s.TaskUUID) + "/steps/" + s.UUID.String() + "/" + v.Word
}

// A stepForm is an action on a step.
type stepForm struct {
	*server
	form
	stepVerb
	Task      tasker.Task
	Step      tasker.Step
	Failure   tasker.StepFailure
	Entry     *tasker.ID // the investigation to return to
	Held      string     // who holds the step; empty when nobody does
	Next      forecast
	Parents   []parentResult
	Seen      string // identifies the state of the step that this page shows
	Result    string
	Metadata  string
	Interrupt bool
	NewChild  bool
	Discard   bool // what workers have saved
}

// A parentResult is what a step before left behind.
type parentResult struct {
	Name  string
	State tasker.StepState
	Doc   json.RawMessage
}

// Completes reports whether the action needs a result.
func (p *stepForm) Completes() bool { return p.Action == tasker.CompleteManually }

// HasSaved reports whether the action may discard what workers have saved.
func (p *stepForm) HasSaved() bool {
	return p.Action == tasker.ResetForRetry && (p.Step.Checkpoint != nil || p.Step.Items != nil)
}

// StartsTask reports whether the action may ask for a new child task.
func (p *stepForm) StartsTask() bool {
	return p.Action == tasker.ResetForRetry && p.Step.Type == tasker.ChildStep
}

// LeavesChild reports whether the action is only possible with a new child task.
func (p *stepForm) LeavesChild() bool {
	return p.Action == tasker.ResetForRetry && waitsForChild(p.Step)
}

func (s *server) stepForm(req *request, v stepVerb) (*stepForm, error) {
	task, err := req.id("task")
	if err != nil {
		return nil, err
	}
	step, err := req.id("step")
	if err != nil {
		return nil, err
	}
	p := &stepForm{server: s, stepVerb: v}
	if p.Task, err = s.DB.Task(req.Context(), task); err != nil {
		return nil, err
	}
	steps, err := s.DB.StepsAndFailedItems(req.Context(), task, step)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(steps, func(st tasker.Step) bool { return st.UUID == step })
	if i < 0 {
		return nil, tasker.Errorf(tasker.NotFound, "task %s has no step %s", task, step)
	}
	if err := s.DB.HideErrors(req.Context(), steps[i:i+1]); err != nil {
		return nil, err
	}
	p.Step, p.Failure = steps[i], failureOf(steps[i].Error)
	p.Seen = fmt.Sprintf("%d-%d", p.Step.Attempts, p.Step.StateSince.UnixMicro())
	p.Next, p.Held, p.Parents = forecastOf(steps, step, v.Action), v.holder(p.Step), parentsOf(steps, p.Step)
	f := form{page: "stepaction", title: v.Name + " step " + p.Step.Name, nav: "Tasks", Button: v.Name + " step " + p.Step.Name}
	p.form = req.formOf(f)
	if err := p.returnsTo(req); err != nil {
		return nil, err
	}
	p.Refused, err = s.unrepairable(req, p.Task)
	if err == nil && p.Refused == "" && !v.allowed(p.Step) {
		p.Refused = fmt.Sprintf("The step is %s: it cannot be %s.", words(p.Step.State), strings.TrimPrefix(v.Done, "was "))
	}
	p.Result, p.Metadata, p.Interrupt = req.typed("result"), req.typed("metadata"), req.PostFormValue("interrupt") != ""
	p.NewChild = p.StartsTask() && req.PostFormValue("new_child") != ""
	p.Discard = p.HasSaved() && req.PostFormValue("discard_checkpoint") != ""
	if req.Method == http.MethodGet {
		p.Interrupt, p.NewChild = p.Held != "", p.LeavesChild()
	}
	p.Command = p.command(req)
	if req.Method == http.MethodGet {
		p.Interrupt = false
		if p.Completes() {
			p.Result = "{\n  \n}"
		}
	}
	return p, err
}

// returnsTo finds the page to return to: the investigation that the form names, or
// the task.
func (p *stepForm) returnsTo(req *request) error {
	p.Back = taskPath(p.Task.UUID)
	if p.Step.Map != nil {
		p.Back = itemsPath(p.Task.UUID, p.Step.Map.StepUUID)
	}
	q := req.query()
	if req.Form != nil {
		q.values = req.Form
	}
	if p.Entry = q.id("entry"); p.Entry == nil || q.err != nil {
		return q.err
	}
	e, err := p.DB.Entry(req.Context(), *p.Entry)
	if err == nil && e.TaskUUID != p.Task.UUID {
		err = tasker.Errorf(tasker.NotFound, "investigation %s is of another task", e.UUID)
	}
	p.Back = entryPath(*p.Entry)
	return err
}

// unrepairable says why no step of a task accepts an action; empty when some do.
func (s *server) unrepairable(req *request, task tasker.Task) (string, error) {
	newest, err := s.entryOf(req, task.UUID)
	return whyUnrepairable(task, newest), err
}

// whyUnrepairable is unrepairable for a task whose newest investigation is known; nil: it has none.
func whyUnrepairable(task tasker.Task, newest *taskEntry) string {
	target := lifecycle.Target{TaskUUID: task.UUID, Task: task.State, WrittenOff: newest != nil && newest.WrittenOff}
	switch {
	case target.TaskRefusal() == nil:
		return ""
	case task.State == tasker.TaskPending:
		return "The task has not started yet: wait for its start time, or cancel it."
	case task.State == tasker.TaskComplete || task.State == tasker.TaskCancelled:
		return fmt.Sprintf("The task is %s: nothing can be done to its steps any more.", words(task.State))
	default:
		return "The task was written off as permanently failed: nothing can be done to its steps any more."
	}
}

// holder says who has a step now, from whom the action takes it; empty when nobody does.
func (v stepVerb) holder(s tasker.Step) string {
	switch {
	case waitsForChild(s) && v.Action == tasker.ResetForRetry:
		return "The step waits for its child task " + s.ChildTaskUUID.String() + "."
	case s.State == tasker.StepEnqueued:
		return "The step is in the queue: a worker may take it at any moment."
	case s.State == tasker.StepInProgress && s.WorkerUUID != nil:
		return "Worker " + s.WorkerUUID.String() + " is executing the step right now."
	case lifecycle.Held(s.State):
		return "A worker has reported the step, and what follows from it is under way."
	default:
		return ""
	}
}

// parentsOf is what the steps before one left behind.
func parentsOf(steps []tasker.Step, of tasker.Step) []parentResult {
	var list []parentResult
	for _, s := range steps {
		if slices.Contains(of.Parents, s.UUID) {
			list = append(list, parentResult{Name: s.Name, State: s.State, Doc: members(s.Results)["result"]})
		}
	}
	return list
}

func (p *stepForm) do(req *request) (*view, error) {
	if err := p.check(req, maxNotes); err != nil {
		return nil, err
	}
	switch seen := req.PostFormValue("seen"); {
	case p.Completes() && strings.TrimSpace(p.Result) == "":
		return nil, tasker.Errorf(tasker.Invalid, "give the result: steps that depend on this one receive it; null is one")
	case p.Completes() && strings.TrimSpace(p.Metadata) != "" && !strings.HasPrefix(strings.TrimSpace(p.Metadata), "{"):
		return nil, tasker.Errorf(tasker.Invalid, `the metadata must be a JSON object such as {"checked_by": "phone"}`)
	case seen != "" && seen != p.Seen:
		return nil, tasker.Errorf(tasker.Conflict, "the step has changed since you opened this page: it is shown as it is now; if you still mean it, send it again")
	}
	if _, err := p.Engine.OperateStep(req.Context(), p.Task.UUID, p.Step.UUID, p.operation()); err != nil {
		return nil, err
	}
	return &view{next: p.Back, note: p.afterwards(req.Context())}, nil
}

// operation returns what the form asks of the engine.
func (p *stepForm) operation() tasker.ActionRequest {
	op := tasker.ActionRequest{Action: p.Action, Actor: p.Actor, Reason: p.Reason, Interrupt: p.Interrupt, NewChild: p.NewChild, DiscardCheckpoint: p.Discard}
	if p.Completes() {
		op.Result, op.Metadata = typedJSON(p.Result), typedJSON(p.Metadata)
	}
	return op
}

// afterwards says what has come of an action.
func (p *stepForm) afterwards(ctx context.Context) string {
	note := fmt.Sprintf("Step %s %s.", p.Step.Name, p.Done)
	step, err := p.DB.Step(ctx, p.Task.UUID, p.Step.UUID)
	if err != nil {
		return note // it is done all the same
	}
	if task, err := p.DB.Task(ctx, p.Task.UUID); err == nil {
		note = fmt.Sprintf("Step %s %s: it is %s now, and the task %s.", p.Step.Name, p.Done, words(step.State), statePhrase(task.State))
	}
	return note
}

// typedJSON returns what was typed as JSON; nil where nothing was typed.
func typedJSON(text string) json.RawMessage {
	if text = strings.Trim(text, " \t\r\n\ufeff"); text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// command is the same action from a terminal. What was not typed yet stands there
// as a word to be replaced.
func (p *stepForm) command(req *request) command {
	op := p.operation()
	actor, reason := p.placeholders()
	ctl := []string{"task", p.Word + "-step", p.Task.UUID.String(), p.Step.UUID.String()}
	body := apiv1.StepAction{ActionType: string(p.Action), Reason: reason, Interrupt: op.Interrupt}
	by := "--reset-by"
	switch p.Action {
	case tasker.ResetForRetry:
		body.ResetBy, body.DiscardCheckpoint = actor, op.DiscardCheckpoint
		if op.NewChild {
			body.Child = apiv1.NewChild
		}
	case tasker.ResolveManually:
		body.ResolvedBy, by = actor, "--resolved-by"
	case tasker.CompleteManually:
		body.CompletedBy, by = actor, "--completed-by"
		body.CompletionData = &apiv1.CompletionData{Result: validOr(op.Result, `{"ok":true}`)}
		ctl = append(ctl, "--result", string(body.CompletionData.Result))
		if len(op.Metadata) > 0 {
			body.CompletionData.Metadata = validOr(op.Metadata, `{}`)
			ctl = append(ctl, "--metadata", string(body.CompletionData.Metadata))
		}
	}
	ctl = append(append(ctl, "--reason", reason), p.by(by, actor)...)
	if op.Interrupt {
		ctl = append(ctl, "--interrupt")
	}
	if op.NewChild {
		ctl = append(ctl, "--new-child")
	}
	if op.DiscardCheckpoint {
		ctl = append(ctl, "--discard-checkpoint")
	}
	return commandOf(req, ctl, http.MethodPatch, "/v1/tasks/"+p.Task.UUID.String()+"/workflow_steps/"+p.Step.UUID.String(), body)
}

// validOr is a document on one line, or an example in place of what is not JSON.
func validOr(doc json.RawMessage, example string) json.RawMessage {
	if len(doc) == 0 || !json.Valid(doc) {
		return json.RawMessage(example)
	}
	return json.RawMessage(compactJSON(doc))
}

// A stepRow is a step as a table shows it, with what can be done to it.
type stepRow struct {
	tasker.Step
	Needs   []stepAnchor // the steps that it depends on
	Actions []stepLink
	Bar     stepBar
}

// ChildPath returns the page of the task that the step started last; empty when it has not.
func (r stepRow) ChildPath() string {
	if r.ChildTaskUUID == nil {
		return ""
	}
	return taskPath(*r.ChildTaskUUID)
}

// A stepAnchor leads to a step on the same page.
type stepAnchor struct {
	Name, Href string
	Done       bool
}

// A stepLink leads to an action on a step.
type stepLink struct{ Name, Href, Key, Does string }

// withBars gives each row what its step did when.
func withBars(rows []stepRow, bars map[tasker.ID]stepBar) []stepRow {
	for i := range rows {
		rows[i].Bar = bars[rows[i].UUID]
	}
	return rows
}

// stepRows returns the rows of a task's steps; entry is the investigation to return
// to after an action, if any.
func stepRows(steps []tasker.Step, actions bool, entry *tasker.ID) []stepRow {
	byID := make(map[tasker.ID]tasker.Step, len(steps))
	for _, s := range steps {
		byID[s.UUID] = s
	}
	rows := make([]stepRow, len(steps))
	for i, s := range steps {
		rows[i].Step = s
		for _, id := range s.Parents {
			parent := byID[id]
			rows[i].Needs = append(rows[i].Needs, stepAnchor{parent.Name, hrefOfStep(parent), parent.State.Done()})
		}
		if actions {
			rows[i].Actions = stepLinks(s, entry)
		}
	}
	return rows
}

// stepLinks returns the actions that the state of a step allows.
func stepLinks(st tasker.Step, entry *tasker.ID) []stepLink {
	var links []stepLink
	query := ""
	if entry != nil {
		query = "?entry=" + entry.String()
	}
	for _, v := range stepVerbs {
		if v.allowed(st) {
			links = append(links, stepLink{Name: v.Name, Key: v.Key, Does: v.Does, Href: v.path(st) + query})
		}
	}
	if ref := (tasker.StepRef{TaskUUID: st.TaskUUID, StepUUID: st.UUID}); asksPeople(st) {
		links = append(links, stepLink{Name: "Answer", Key: "a", Does: "answer the step", Href: stepPath(ref) + "/answer"},
			stepLink{Name: "Assign", Key: "y", Does: "say who is to answer the step", Href: stepPath(ref) + "/assign"})
		if st.Assignee != "" {
			links = append(links, stepLink{Name: "Answer link", Key: "w", Does: "make a link by which the step is answered without signing in", Href: stepPath(ref) + "/links"})
		}
	}
	return links
}

// Failure returns the message of the step's last failure.
func (r stepRow) Failure() string {
	if r.State.Done() { // an earlier attempt failed
		return ""
	}
	return clip(failureOf(r.Step.Error).Message, shownError)
}

// ErrorDoc returns the step's last failure in full.
func (r stepRow) ErrorDoc() document {
	return documentOf("Error", r.Step.Error, maxResult, apiOfStep(r.Step)).withID("error-" + r.UUID.String())
}

// ResultDoc returns the step's result.
func (r stepRow) ResultDoc() document {
	return documentOf("Result", r.Step.Results, maxResult, apiOfStep(r.Step)).withID("result-" + r.UUID.String())
}

// Waits says what the step waits for, if it has not ended.
func (r stepRow) Waits() string {
	switch s := r.Step; {
	case s.DecisionDue:
		return "is about to be decided"
	case s.State == tasker.StepSkipped:
		return s.SkipReason
	case s.State == tasker.StepPending && s.Items != nil:
		return fmt.Sprintf("waits for %d of its %s", s.Items.Open(), count(s.Items.Total, "item"))
	case s.State == tasker.StepPending && !s.DependenciesSatisfied:
		return fmt.Sprintf("waits for %d of its %d dependencies", s.TotalParents-s.CompletedParents, s.TotalParents)
	case s.State == tasker.StepPending && s.Type == tasker.ExternalStep:
		what := "waits for an external result"
		if s.Assignee != "" {
			what = "waits for an answer of " + s.Assignee
		}
		if s.WaitUntil != nil {
			what += "; its timeout is " + ago(*s.WaitUntil)
		}
		return what
	case s.State == tasker.StepPending && s.Type == tasker.ChildStep && s.ChildTaskUUID != nil:
		return "waits for its child task " + s.ChildTaskUUID.String()
	case s.State == tasker.StepPending && s.Type == tasker.WaitStep && s.WaitUntil != nil:
		return "its wait ends " + ago(*s.WaitUntil)
	case s.State == tasker.StepEnqueued:
		return "waits for a worker with handler " + s.Handler
	case s.State == tasker.StepInProgress && s.WorkerUUID != nil:
		return "run by worker " + short(*s.WorkerUUID)
	default:
		return ""
	}
}

// failedForGood reports whether a step is in error, without a retry to come.
func failedForGood(s tasker.Step) bool { return s.State == tasker.StepError && s.NextRetryAt == nil }

// forWorkers reports whether a worker executes a step.
func forWorkers(s tasker.Step) bool {
	return s.Type == tasker.StandardStep || s.Type == tasker.DecisionStep
}

// A forecast is what an action on a step will most likely lead to.
type forecast struct {
	Step     tasker.StepState // of the step itself, once the task has gone on
	Enqueued []string         // other steps that a worker can take then
	Outside  []string         // other steps that wait for an answer from outside then
	Waiting  []string         // steps behind it that wait for something else, too
	Task     tasker.TaskState
}

// forecastOf plays an action through on a copy of the steps. Others may be faster:
// it says what will be if nothing else happens.
func forecastOf(steps []tasker.Step, id tasker.ID, action tasker.StepAction) forecast {
	after := slices.Clone(steps)
	done := map[tasker.ID]bool{}
	var f forecast
	for i, s := range after {
		if s.UUID == id {
			if next, err := lifecycle.Step.Next(s.State, lifecycle.StepEvent(action)); err == nil {
				after[i].State, after[i].NextRetryAt = next, nil
			}
		}
		done[s.UUID] = after[i].State.Done()
	}
	for i, s := range after {
		ready := s.State == tasker.StepPending && !slices.ContainsFunc(s.Parents, func(p tasker.ID) bool { return !done[p] })
		if ready && forWorkers(s) {
			after[i].State = tasker.StepEnqueued
		}
		switch {
		case s.UUID == id:
			f.Step = after[i].State
		case ready && forWorkers(s):
			f.Enqueued = append(f.Enqueued, s.Name)
		case ready && slices.Contains(s.Parents, id):
			f.Outside = append(f.Outside, s.Name)
		case s.State == tasker.StepPending && slices.Contains(s.Parents, id):
			f.Waiting = append(f.Waiting, s.Name)
		}
	}
	f.Task = lifecycle.RestingState(after)
	return f
}
