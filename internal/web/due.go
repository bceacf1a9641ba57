package web

import (
	"net/http"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// newDueForm is the form to change the due time of a task or a step.
type dueForm struct {
	*server
	taskForm
	Due   *tasker.Deadline // current due time
	Steps []tasker.Step    // that have not ended
	Step  string           // name of the step; empty for the task
	At    string           // as typed; empty for none
	id    tasker.ID        // of the step
}

func (s *server) newDueForm(req *request) (*dueForm, error) {
	t, err := s.newTaskForm(req, form{page: "taskdue", title: "Change the due time of", Button: "Change the due time"})
	if err != nil {
		return nil, err
	}
	f := &dueForm{server: s, taskForm: t, Step: req.FormValue("step"), At: strings.TrimSpace(req.FormValue("due_at")), Due: t.Task.Due}
	if !isCancellable(t.Task) {
		f.Refused = "The task is " + formatWords(t.Task.State) + ": its due time cannot be changed."
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
	body := apiv1.ChangeDue{Step: f.Step, Reason: reason, By: f.actorInBody(actor)}
	ctl := []string{"task", "due", t.Task.UUID.String(), "--none"}
	if at, err := time.Parse(time.RFC3339, f.At); err == nil {
		body.DueAt = &at
		ctl = append(ctl[:3], "--at", f.At)
	}
	if f.Step != "" {
		ctl = append(ctl, "--step", f.Step)
	}
	f.Command = newCommand(req, append(append(ctl, "--reason", reason), f.actorFlags("--by", actor)...), http.MethodPut, taskAPIPath(t.Task)+"/due", body)
	return f, nil
}

func (f *dueForm) do(req *request) (*view, error) {
	if err := f.checkReason(req, maxReason); err != nil {
		return nil, err
	}
	if !req.Form.Has("due_at") {
		return nil, tasker.Errorf(tasker.Invalid, "the due time is missing: enter a time, or leave it empty for none")
	}
	if f.Step != "" && f.id == (tasker.ID{}) {
		return nil, tasker.Errorf(tasker.Conflict, "step %s does not exist or has ended", truncate(f.Step, 128))
	}
	change := tasker.DueUpdate{StepUUID: f.id, Actor: f.Actor, Reason: f.Reason}
	if f.At != "" {
		at, err := time.Parse(time.RFC3339, f.At)
		if err != nil {
			return nil, tasker.Errorf(tasker.Invalid, "invalid due time %q: must be a time such as 2026-01-31T12:00:00Z", truncate(f.At, 40))
		}
		change.DueAt = &at
	}
	due, err := f.Engine.ChangeDue(req.Context(), f.Task.UUID, change)
	subject, note := "The task", " has no due time any more."
	if f.Step != "" {
		subject = "Step " + f.Step
	}
	if due != nil {
		note = " is due at " + formatClock(due.DueAt) + "."
	}
	return &view{next: f.Back, note: subject + note}, err
}
