package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// A taskForm is an action on a task.
type taskForm struct {
	form
	Task  tasker.Task
	Entry *taskEntry
}

// taskForm reads the task that an action is about.
func (s *server) taskForm(req *request, f form) (taskForm, error) {
	id, err := req.id("task")
	if err != nil {
		return taskForm{}, err
	}
	t, err := s.DB.Task(req.Context(), id)
	if err != nil {
		return taskForm{}, err
	}
	entry, err := s.entryOf(req, id)
	f.title, f.nav, f.Back = f.title+" "+t.Namespace+"/"+t.Name, "Tasks", taskPath(id)
	return taskForm{form: req.formOf(f), Task: t, Entry: entry}, err
}

// A cancelForm cancels a task.
type cancelForm struct {
	*server
	taskForm
	Ends []cancelledStep
	Stay int // steps that have ended, and stay as they are

	Compensate bool // undo what can be undone
	Undoes     int  // how many steps that is; 0 as well if they are being undone
}

// A cancelledStep is a step that the cancelling of its task ends.
type cancelledStep struct {
	tasker.Step
	Worker string // loses its lease
}

// Held counts the steps whose worker loses its lease.
func (f *cancelForm) Held() (n int) {
	for _, s := range f.Ends {
		if s.Worker != "" {
			n++
		}
	}
	return n
}

func (s *server) cancelForm(req *request) (*cancelForm, error) {
	t, err := s.taskForm(req, form{page: "taskcancel", title: "Cancel", Button: "Cancel this task", Danger: true})
	if err != nil {
		return nil, err
	}
	f := &cancelForm{server: s, taskForm: t}
	if !cancellable(t.Task) {
		f.Refused = fmt.Sprintf("The task is %s: there is nothing to cancel.", words(t.Task.State))
	}
	steps, err := s.DB.Steps(req.Context(), t.Task.UUID)
	if err != nil {
		return nil, err
	}
	names, err := s.workerNames(req, steps)
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if _, ended := lifecycle.Step.Next(step.State, lifecycle.Cancel); ended != nil {
			f.Stay++
			if s.canUndo(req.Context(), t.Task, step) {
				f.Undoes++
			}
			continue
		}
		c := cancelledStep{Step: step}
		if step.WorkerUUID != nil {
			if c.Worker = names[*step.WorkerUUID]; c.Worker == "" {
				c.Worker = short(*step.WorkerUUID)
			}
		}
		f.Ends = append(f.Ends, c)
	}
	f.Compensate = f.Undoes > 0 && req.PostFormValue("compensate") != ""
	actor, reason := f.placeholders()
	q := url.Values{"reason": {reason}}
	if t.Subject == "" {
		q.Set("cancelled_by", actor)
	}
	ctl := append([]string{"task", "cancel", t.Task.UUID.String(), "--reason", reason}, t.by("--cancelled-by", actor)...)
	if f.Compensate {
		q.Set("compensate", "true")
		ctl = append(ctl, "--compensate")
	}
	f.Command = commandOf(req, ctl, http.MethodDelete, apiOfTask(t.Task)+"?"+q.Encode(), nil)
	return f, nil
}

// canUndo reports whether a step has done something that a handler undoes. While the task is
// being undone, nothing more can be.
func (s *server) canUndo(ctx context.Context, task tasker.Task, step tasker.Step) bool {
	if step.State != tasker.StepComplete || task.Phase != "" || task.State == tasker.TaskComplete || task.State == tasker.TaskCancelled || step.UndoOf() != "" {
		return false
	}
	_, _, err := s.Engine.StepTemplate(ctx, task.TemplateUUID, tasker.UndoPrefix+step.Name)
	return err == nil
}

// workerNames returns the names of workers, if any of them holds one of the steps.
func (s *server) workerNames(req *request, steps []tasker.Step) (map[tasker.ID]string, error) {
	held := false
	for _, step := range steps {
		held = held || step.WorkerUUID != nil
	}
	if !held {
		return nil, nil
	}
	list, _, err := s.DB.Workers(req.Context(), maxRows, 0)
	names := make(map[tasker.ID]string, len(list))
	for _, w := range list {
		names[w.UUID] = w.Name
	}
	return names, err
}

func (f *cancelForm) do(req *request) (*view, error) {
	if err := f.check(req, maxReason); err != nil {
		return nil, err
	}
	if f.Compensate {
		if err := f.Engine.CompensateTask(req.Context(), f.Task.UUID, f.Actor, f.Reason); err != nil {
			return nil, err
		}
		return &view{next: f.Back, note: "What the task has done is being undone; then it is cancelled."}, nil
	}
	if err := f.Engine.CancelTask(req.Context(), f.Task.UUID, f.Actor, f.Reason); err != nil {
		return nil, err
	}
	return &view{next: f.Back, note: "The task is cancelled."}, nil
}

// An investigateForm opens an investigation of a task.
type investigateForm struct {
	*server
	taskForm
}

func (s *server) investigateForm(req *request) (*investigateForm, error) {
	t, err := s.taskForm(req, form{page: "taskinvestigate", title: "Investigate", Button: "Open an investigation"})
	if err != nil {
		return nil, err
	}
	f := &investigateForm{server: s, taskForm: t}
	switch {
	case t.Entry == nil:
	case t.Entry.Open:
		f.Refused = "An investigation is open already. A task has one at a time."
	case t.Entry.WrittenOff:
		f.Refused = "The task was written off as permanently failed. Create a new task with recreated_from instead."
	}
	actor, reason := f.placeholders()
	ctl := append([]string{"dlq", "create", t.Task.UUID.String(), "--reason", reason}, t.by("--created-by", actor)...)
	f.Command = commandOf(req, ctl, http.MethodPost, "/v1/dlq/task/"+t.Task.UUID.String(), map[string]string{"reason": reason, "created_by": actor})
	return f, nil
}

func (f *investigateForm) do(req *request) (*view, error) {
	if err := f.check(req, maxNotes); err != nil {
		return nil, err
	}
	opened, err := f.DLQ.Open(req.Context(), f.Task.UUID, tasker.NewEntry{Actor: f.Actor, Reason: f.Reason})
	if err != nil {
		return nil, err
	}
	return &view{next: entryPath(opened.UUID), note: "The investigation is open."}, nil
}
