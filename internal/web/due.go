package web

import (
	"net/http"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// A dueForm gives a task, or a step of it, another due time.
type dueForm struct {
	*server
	taskForm
	Due   *tasker.Deadline // as it is
	Steps []tasker.Step    // that have not ended
	Step  string           // the name of the one that is due; empty: the task
	At    string           // as typed; empty: at no time
	id    tasker.ID        // of the step
}

func (s *server) dueForm(req *request) (*dueForm, error) {
	t, err := s.taskForm(req, form{page: "taskdue", title: "Change when due:", Button: "Change the due time"})
	if err != nil {
		return nil, err
	}
	f := &dueForm{server: s, taskForm: t, Step: req.FormValue("step"), At: strings.TrimSpace(req.FormValue("due_at")), Due: t.Task.Due}
	if !cancellable(t.Task) {
		f.Refused = "The task is " + words(t.Task.State) + ": it is not due any more."
	}
	steps, err := s.DB.Steps(req.Context(), t.Task.UUID)
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if step.State.Done() || step.State == tasker.StepCancelled {
			continue
		}
		f.Steps = append(f.Steps, step)
		if step.Name == f.Step {
			f.id, f.Due = step.UUID, step.Due
		}
	}
	if req.Method != http.MethodPost && f.Due != nil {
		f.At = f.Due.DueAt.UTC().Format(time.RFC3339)
	}
	actor, reason := f.placeholders()
	body := apiv1.ChangeDue{Step: f.Step, Reason: reason, By: f.byInBody(actor)}
	ctl := []string{"task", "due", t.Task.UUID.String(), "--none"}
	if at, err := time.Parse(time.RFC3339, f.At); err == nil {
		body.DueAt = &at
		ctl = append(ctl[:3], "--at", f.At)
	}
	if f.Step != "" {
		ctl = append(ctl, "--step", f.Step)
	}
	f.Command = commandOf(req, append(append(ctl, "--reason", reason), f.by("--by", actor)...), http.MethodPut, apiOfTask(t.Task)+"/due", body)
	return f, nil
}

func (f *dueForm) do(req *request) (*view, error) {
	if err := f.check(req, maxReason); err != nil {
		return nil, err
	}
	if !req.Form.Has("due_at") {
		return nil, tasker.Errorf(tasker.Invalid, "the due time is missing: type a time, or leave the field empty for none")
	}
	if f.Step != "" && f.id == (tasker.ID{}) {
		return nil, tasker.Errorf(tasker.Conflict, "step %s is not there, or has ended", clip(f.Step, 128))
	}
	change := tasker.DueUpdate{StepUUID: f.id, Actor: f.Actor, Reason: f.Reason}
	if f.At != "" {
		at, err := time.Parse(time.RFC3339, f.At)
		if err != nil {
			return nil, tasker.Errorf(tasker.Invalid, "invalid due time %q: must be a time such as 2026-01-31T12:00:00Z", clip(f.At, 40))
		}
		change.DueAt = &at
	}
	due, err := f.Engine.ChangeDue(req.Context(), f.Task.UUID, change)
	if err != nil {
		return nil, err
	}
	what, note := "The task", " has no due time any more."
	if f.Step != "" {
		what = "Step " + f.Step
	}
	if due != nil {
		note = " is due at " + due.DueAt.UTC().Format("2006-01-02 15:04:05 UTC") + "."
	}
	return &view{next: f.Back, note: what + note}, nil
}
