package web

import (
	"encoding/json"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/endpoint"
)

type dueForm struct {
	taskForm
	Due   *tasker.Deadline // current due time
	Steps []tasker.Step    // that have not ended
	Step  string           // name of the step; empty for the task
	At    string           // as typed; empty for none
	id    tasker.ID        // of the step
}

func (s *server) newDueForm(req *request) *dueForm {
	t := s.newTaskForm(req, form{page: "taskdue", title: "Change the due time of", Button: "Change the due time", maxReason: maxReason})
	f := &dueForm{taskForm: t, Step: req.FormValue("step"), At: req.trimmedValue("due_at"), Due: t.Task.Due}
	if !isCancellable(t.Task) {
		f.Refused = "The task is " + formatWords(t.Task.State) + ": its due time cannot be changed."
	}
	for _, step := range load(req, s.DB.Steps, t.Task.UUID) {
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
	c := f.newCall(endpoint.ChangeDue, "task due", t.Task.UUID.String())
	if at, err := time.Parse(time.RFC3339, f.At); err == nil {
		c.flag("--at", f.At)
		c.member("due_at", at)
	} else {
		c.flag("--none", true)
		c.member("due_at", json.RawMessage("null"))
	}
	c.set("--step", "step", f.Step)
	c.setReason()
	c.setActor("--by", "by")
	f.Command = c.format()
	return f
}

func (f *dueForm) do(req *request) (*view, error) {

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
