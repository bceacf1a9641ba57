package web

import (
	"cmp"
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
		Long: "The step gets all of its attempts again and runs as soon as a worker takes it. Do this once the cause is mended.",
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

// allowed tells whether a step may be acted on so.
func (v stepVerb) allowed(state tasker.StepState) bool {
	_, err := lifecycle.Step.Next(state, lifecycle.StepEvent(v.Action))
	return err == nil
}

func (v stepVerb) path(s tasker.Step) string {
	return taskPath(s.TaskUUID) + "/steps/" + s.UUID.String() + "/" + v.Word
}

func (s *server) stepActionRoutes() []route {
	var list []route
	for _, v := range stepVerbs {
		path := "/tasks/{task}/steps/{step}/" + v.Word
		list = append(list,
			route{http.MethodGet, path, func(x *exchange) (*view, error) { return s.stepForm(x, v) }},
			route{http.MethodPost, path, func(x *exchange) (*view, error) { return s.stepAct(x, v) }})
	}
	return list
}

// stepActionPage is the form of an action on a step, which says what it will do.
type stepActionPage struct {
	stepVerb
	Task      tasker.Task
	Step      tasker.Step
	Failure   tasker.StepFailure
	Back      string     // where the action was chosen
	Entry     *tasker.ID // the investigation to return to
	Refused   string     // why the action is not possible at all
	Problem   string     // what was wrong with what was sent
	Held      string     // who holds the step; empty when nobody does
	Next      forecast
	Parents   []parentResult
	Seen      string // the step as this page shows it, to notice that it has moved
	Reason    string
	Result    string
	Metadata  string
	Interrupt bool
	Elsewhere command
}

// A parentResult is what a step before left behind.
type parentResult struct {
	Name  string
	State tasker.StepState
	Doc   json.RawMessage
}

func (p stepActionPage) Completes() bool { return p.Action == tasker.CompleteManually }

// stepForm shows the form.
func (s *server) stepForm(x *exchange, v stepVerb) (*view, error) {
	if err := s.mayChange(); err != nil {
		return nil, err
	}
	p, err := s.stepActionOf(x, v)
	if err != nil {
		return nil, err
	}
	if v.Action == tasker.CompleteManually && p.Refused == "" {
		p.Result = "{\n  \n}"
	}
	p.Elsewhere = p.command(x, tasker.Operation{Actor: x.actor, Interrupt: p.Held != ""})
	return p.view(http.StatusOK), nil
}

func (p *stepActionPage) view(status int) *view {
	if p.Refused != "" {
		status = http.StatusConflict
	}
	return &view{page: "stepaction", title: p.Name + " step " + p.Step.Name, nav: "Tasks", body: p, status: status}
}

// stepActionOf reads what the form shows.
func (s *server) stepActionOf(x *exchange, v stepVerb) (*stepActionPage, error) {
	task, err := x.id("task")
	if err != nil {
		return nil, err
	}
	step, err := x.id("step")
	if err != nil {
		return nil, err
	}
	p := &stepActionPage{stepVerb: v}
	if p.Entry, err = x.entryField(); err != nil {
		return nil, err
	}
	if p.Task, err = s.DB.Task(x.Context(), task); err != nil {
		return nil, err
	}
	steps, err := s.DB.Steps(x.Context(), task)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(steps, func(st tasker.Step) bool { return st.UUID == step })
	if i < 0 {
		return nil, tasker.Errorf(tasker.NotFound, "task %s has no step %s", task, step)
	}
	if err := s.DB.HideErrors(x.Context(), steps[i:i+1]); err != nil {
		return nil, err
	}
	p.Step, p.Failure = steps[i], failureOf(steps[i].Error)
	p.Seen = fmt.Sprintf("%d-%d", p.Step.Attempts, p.Step.StateSince.UnixMicro())
	p.Next, p.Held, p.Parents = forecastOf(steps, step, v.Action), holder(p.Step), parentsOf(steps, p.Step)
	p.Back = taskPath(task)
	if p.Entry != nil {
		e, err := s.DB.Entry(x.Context(), *p.Entry)
		if err == nil && e.TaskUUID != task {
			err = tasker.Errorf(tasker.NotFound, "investigation %s is of another task", e.UUID)
		}
		if err != nil {
			return nil, err
		}
		p.Back = entryPath(*p.Entry)
	}
	p.Refused, err = s.unrepairable(x.Context(), p.Task)
	if err == nil && p.Refused == "" && !v.allowed(p.Step.State) {
		p.Refused = fmt.Sprintf("The step is %s: it cannot be %s.", words(p.Step.State), strings.TrimPrefix(v.Done, "was "))
	}
	return p, err
}

// entryField is the investigation that a form names to return to.
func (x *exchange) entryField() (*tasker.ID, error) {
	text := x.FormValue("entry")
	if text == "" {
		return nil, nil //nolint:nilnil // none is named
	}
	var id tasker.ID
	if err := id.UnmarshalText([]byte(text)); err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "entry is no id: %q", clip(text, 40))
	}
	return &id, nil
}

// unrepairable says why nothing can be done to the steps of a task; empty when
// something can.
func (s *server) unrepairable(ctx context.Context, task tasker.Task) (string, error) {
	if task.State == tasker.TaskComplete || task.State == tasker.TaskCancelled {
		return fmt.Sprintf("The task is %s: nothing can be done to its steps any more.", words(task.State)), nil
	}
	if task.State == tasker.TaskPending {
		return "The task has not started yet: wait for its start time, or cancel it.", nil
	}
	e, err := s.DB.EntryOfTask(ctx, task.UUID)
	if tasker.CodeOf(err) == tasker.NotFound {
		return "", nil
	}
	if err == nil && e.ResolutionStatus == tasker.EntryPermanentlyFailed {
		return "The task was written off as permanently failed: nothing can be done to its steps any more.", nil
	}
	return "", err
}

// holder says in whose hands a step is.
func holder(s tasker.Step) string {
	switch {
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

// stepAct does it.
func (s *server) stepAct(x *exchange, v stepVerb) (*view, error) {
	p, err := s.stepActionOf(x, v)
	if err != nil {
		return nil, err
	}
	p.Reason, p.Result, p.Metadata, p.Interrupt = x.typed("reason"), x.typed("result"), x.typed("metadata"), x.PostFormValue("interrupt") != ""
	op := tasker.Operation{Action: v.Action, Reason: p.Reason, Interrupt: p.Interrupt}
	if p.Completes() {
		op.Result, op.Metadata = document(p.Result), document(p.Metadata)
	}
	op.Actor, err = x.actorOf()
	p.Elsewhere = p.command(x, op)
	if err == nil {
		err = p.check()
	}
	if seen := x.PostFormValue("seen"); err == nil && seen != "" && seen != p.Seen {
		err = tasker.Errorf(tasker.Conflict, "the step has moved since you opened this page: it is shown as it is now; if you still mean it, send it again")
	}
	if err == nil {
		_, err = s.Engine.OperateStep(x.Context(), p.Task.UUID, p.Step.UUID, op)
	}
	if err != nil {
		return p.refusal(err)
	}
	return &view{next: p.Back, note: s.afterwards(x.Context(), p)}, nil
}

// check says in the words of the form what the engine would say in those of the API.
func (p *stepActionPage) check() error {
	switch {
	case strings.TrimSpace(p.Reason) == "":
		return tasker.Errorf(tasker.Invalid, "say why: the reason is kept in the history of the step")
	case p.Completes() && strings.TrimSpace(p.Result) == "":
		return tasker.Errorf(tasker.Invalid, "give the result: steps that depend on this one receive it; null is one")
	case p.Completes() && strings.TrimSpace(p.Metadata) != "" && !strings.HasPrefix(strings.TrimSpace(p.Metadata), "{"):
		return tasker.Errorf(tasker.Invalid, `the metadata must be a JSON object such as {"checked_by": "phone"}`)
	default:
		return nil
	}
}

// refusal shows the form again with what was typed. What nobody at a form can mend is
// an error of its own.
func (p *stepActionPage) refusal(err error) (*view, error) {
	code := tasker.CodeOf(err)
	if code == tasker.Internal || code == tasker.Unavailable {
		return nil, err
	}
	p.Problem = messageOf(err)
	return p.view(apiv1.Status(code)), nil
}

// afterwards says what has come of an action.
func (s *server) afterwards(ctx context.Context, p *stepActionPage) string {
	note := fmt.Sprintf("Step %s %s.", p.Step.Name, p.Done)
	step, err := s.DB.Step(ctx, p.Task.UUID, p.Step.UUID)
	if err != nil {
		return note // it is done all the same
	}
	if task, err := s.DB.Task(ctx, p.Task.UUID); err == nil {
		note = fmt.Sprintf("Step %s %s: it is %s now, and the task %s.", p.Step.Name, p.Done, words(step.State), standing(task.State))
	}
	return note
}

// document is what somebody typed as JSON; nothing where nothing was typed.
func document(text string) json.RawMessage {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// command is the same action from a terminal. What was not typed yet stands there
// as a word to be replaced.
func (p *stepActionPage) command(x *exchange, op tasker.Operation) command {
	actor, reason := cmp.Or(op.Actor, "you@example.com"), cmp.Or(strings.TrimSpace(op.Reason), "why")
	ctl := []string{"task", p.Word + "-step", p.Task.UUID.String(), p.Step.UUID.String()}
	body := apiv1.StepAction{ActionType: string(p.Action), Reason: reason, Interrupt: op.Interrupt}
	by := "--reset-by"
	switch p.Action {
	case tasker.ResetForRetry:
		body.ResetBy = actor
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
	ctl = append(ctl, "--reason", reason, by, actor)
	if op.Interrupt {
		ctl = append(ctl, "--interrupt")
	}
	return commandOf(x, ctl, http.MethodPatch, "/v1/tasks/"+p.Task.UUID.String()+"/workflow_steps/"+p.Step.UUID.String(), body)
}

// validOr is a document on one line, or an example in place of what is none.
func validOr(doc json.RawMessage, example string) json.RawMessage {
	if len(doc) == 0 || !json.Valid(doc) {
		return json.RawMessage(example)
	}
	return json.RawMessage(compactJSON(doc))
}
