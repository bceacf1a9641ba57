package web

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/lifecycle"
)

// newTaskForm is the common part of forms for actions on a task.
type taskForm struct {
	form
	Task  tasker.Task
	Entry *tasker.Entry // newest investigation
}

func (s *server) newTaskForm(req *request, f form) taskForm {
	t := loadByID(req, "task", s.DB.Task)
	f.title, f.nav, f.Back = f.title+" "+t.Namespace+"/"+t.Name, "Tasks", taskPath(t.UUID)
	return taskForm{form: req.newForm(f), Task: t, Entry: s.findEntry(req, t.UUID)}
}

type cancelForm struct {
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

func (s *server) newCancelForm(req *request) *cancelForm {
	f := &cancelForm{taskForm: s.newTaskForm(req, form{page: "taskcancel", title: "Cancel", Button: "Cancel this task", Danger: true, maxReason: maxReason})}
	if !isCancellable(f.Task) {
		f.Refused = fmt.Sprintf("The task is %s: there is nothing to cancel.", formatWords(f.Task.State))
	}
	steps := load(req, s.DB.Steps, f.Task.UUID)
	names := s.findWorkerNames(req, steps)
	for _, step := range steps {
		if _, ended := lifecycle.Step.Next(step.State, lifecycle.Cancel); ended != nil {
			f.Stay++
			if s.canUndo(req.Context(), f.Task, step) {
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
	c := f.newCall(endpoint.CancelTask, "task cancel", f.Task.UUID.String())
	c.setReason()
	c.setActor("--cancelled-by", "cancelled_by")
	c.set("--compensate", "compensate", f.Compensate)
	f.Command = c.format()
	return f
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
func (s *server) findWorkerNames(req *request, steps []tasker.Step) map[tasker.ID]string {
	if !slices.ContainsFunc(steps, func(s tasker.Step) bool { return s.WorkerUUID != nil }) {
		return nil
	}
	list, _, err := s.DB.Workers(req.Context(), maxRows, 0)
	req.fail(err)
	names := make(map[tasker.ID]string, len(list))
	for _, w := range list {
		names[w.UUID] = w.Name
	}
	return names
}

func (f *cancelForm) do(req *request) (*view, error) {
	if f.Compensate {
		err := f.Engine.CompensateTask(req.Context(), f.Task.UUID, f.Actor, f.Reason)
		return &view{next: f.Back, note: "Compensation is running; then the task is cancelled."}, err
	}
	return &view{next: f.Back, note: "The task was cancelled."}, f.Engine.CancelTask(req.Context(), f.Task.UUID, f.Actor, f.Reason)
}

// explainNoInvestigation returns why no investigation can be opened after the newest one, or "".
func explainNoInvestigation(newest *tasker.Entry) string {
	switch {
	case newest != nil && newest.ResolutionStatus == tasker.EntryPending:
		return "The task already has an open investigation."
	case newest != nil && newest.ResolutionStatus == tasker.EntryPermanentlyFailed:
		return "The task is marked as permanently failed. Create a new task with recreated_from instead."
	default:
		return ""
	}
}

// investigateForm is the form to open an investigation of a task.
type investigateForm struct{ taskForm }

func (s *server) newInvestigateForm(req *request) *investigateForm {
	f := &investigateForm{s.newTaskForm(req, form{page: "taskinvestigate", title: "Investigate", Button: "Open an investigation", maxReason: maxNotes})}
	f.Refused = explainNoInvestigation(f.Entry)
	c := f.newCall(endpoint.OpenEntry, "dlq create", f.Task.UUID.String())
	c.setReason()
	c.setNamedActor("--created-by", "created_by")
	f.Command = c.format()
	return f
}

func (f *investigateForm) do(req *request) (*view, error) {
	e, err := f.DLQ.Open(req.Context(), f.Task.UUID, tasker.NewEntry{Actor: f.Actor, Reason: f.Reason})
	return &view{next: entryPath(e.UUID), note: "The investigation is open."}, err
}
