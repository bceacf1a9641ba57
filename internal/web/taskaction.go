package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// newTaskForm is the common part of forms for actions on a task.
type taskForm struct {
	form
	Task  tasker.Task
	Entry *taskEntry
}

func (s *server) newTaskForm(req *request, f form) (taskForm, error) {
	t, err := findByID(req, "task", s.DB.Task)
	if err != nil {
		return taskForm{}, err
	}
	entry, err := s.findEntry(req, t.UUID)
	f.title, f.nav, f.Back = f.title+" "+t.Namespace+"/"+t.Name, "Tasks", taskPath(t.UUID)
	return taskForm{form: req.newForm(f), Task: t, Entry: entry}, err
}

// newCancelForm is the form to cancel a task.
type cancelForm struct {
	*server
	taskForm
	Ends []cancelledStep
	Held int // steps whose worker loses its lease
	Stay int // steps that have ended

	Compensate bool
	Undoes     int // steps that can be compensated; 0 while compensation is running
}

// cancelledStep is a step that will be cancelled with its task.
type cancelledStep struct {
	tasker.Step
	Worker string // loses its lease
}

func (s *server) newCancelForm(req *request) (*cancelForm, error) {
	t, err := s.newTaskForm(req, form{page: "taskcancel", title: "Cancel", Button: "Cancel this task", Danger: true})
	if err != nil {
		return nil, err
	}
	f := &cancelForm{server: s, taskForm: t}
	if !isCancellable(t.Task) {
		f.Refused = fmt.Sprintf("The task is %s: there is nothing to cancel.", formatWords(t.Task.State))
	}
	steps, err := s.DB.Steps(req.Context(), t.Task.UUID)
	if err != nil {
		return nil, err
	}
	names, err := s.findWorkerNames(req, steps)
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
			c.Worker = cmp.Or(names[*step.WorkerUUID], formatShortID(*step.WorkerUUID))
			f.Held++
		}
		f.Ends = append(f.Ends, c)
	}
	f.Compensate = f.Undoes > 0 && req.isChecked("compensate")
	actor, reason := f.placeholders()
	q := url.Values{"reason": {reason}}
	if t.Subject == "" {
		q.Set("cancelled_by", actor)
	}
	ctl := append([]string{"task", "cancel", t.Task.UUID.String(), "--reason", reason},
		t.actorFlags("--cancelled-by", actor)...)
	if f.Compensate {
		q.Set("compensate", "true")
		ctl = append(ctl, "--compensate")
	}
	f.Command = newCommand(req, ctl, http.MethodDelete, taskAPIPath(t.Task)+"?"+q.Encode(), nil)
	return f, nil
}

// canUndo reports whether a step can be compensated. It returns false while compensation is running.
func (s *server) canUndo(ctx context.Context, task tasker.Task, step tasker.Step) bool {
	if step.State != tasker.StepComplete || task.Phase != "" || task.State == tasker.TaskComplete || task.State == tasker.TaskCancelled || step.UndoOf() != "" {
		return false
	}
	_, _, err := s.Engine.StepTemplate(ctx, task.TemplateUUID, tasker.UndoPrefix+step.Name)
	return err == nil
}

// findWorkerNames returns the names of all workers by id, or nil if no worker runs one of the
// steps.
func (s *server) findWorkerNames(req *request, steps []tasker.Step) (map[tasker.ID]string, error) {
	if !slices.ContainsFunc(steps, func(s tasker.Step) bool { return s.WorkerUUID != nil }) {
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
	if err := f.checkReason(req, maxReason); err != nil {
		return nil, err
	}
	if f.Compensate {
		err := f.Engine.CompensateTask(req.Context(), f.Task.UUID, f.Actor, f.Reason)
		return &view{next: f.Back, note: "Compensation is running; then the task is cancelled."}, err
	}
	return &view{next: f.Back, note: "The task was cancelled."}, f.Engine.CancelTask(req.Context(), f.Task.UUID, f.Actor, f.Reason)
}

// newInvestigateForm is the form to open an investigation of a task.
type investigateForm struct {
	*server
	taskForm
}

func (s *server) newInvestigateForm(req *request) (*investigateForm, error) {
	t, err := s.newTaskForm(req, form{page: "taskinvestigate", title: "Investigate", Button: "Open an investigation"})
	if err != nil {
		return nil, err
	}
	f := &investigateForm{server: s, taskForm: t}
	switch {
	case t.Entry == nil:
	case t.Entry.Open:
		f.Refused = "The task already has an open investigation."
	case t.Entry.WrittenOff:
		f.Refused = "The task is marked as permanently failed. Create a new task with recreated_from instead."
	}
	actor, reason := f.placeholders()
	ctl := append([]string{"dlq", "create", t.Task.UUID.String(), "--reason", reason},
		t.actorFlags("--created-by", actor)...)
	f.Command = newCommand(req, ctl, http.MethodPost, "/v1/dlq/task/"+t.Task.UUID.String(), map[string]string{"reason": reason, "created_by": actor})
	return f, nil
}

func (f *investigateForm) do(req *request) (*view, error) {
	if err := f.checkReason(req, maxNotes); err != nil {
		return nil, err
	}
	e, err := f.DLQ.Open(req.Context(), f.Task.UUID, tasker.NewEntry{Actor: f.Actor, Reason: f.Reason})
	return &view{next: entryPath(e.UUID), note: "The investigation is open."}, err
}
