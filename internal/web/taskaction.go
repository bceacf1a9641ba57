package web

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/lifecycle"
)

// maxReason is what is taken as the reason of a cancelling, and of sending again.
const maxReason = 2000

// A taskForm is an action on a task that somebody is about to take: what will
// happen, and what he has typed so far.
type taskForm struct {
	Do      string // in one word
	Task    tasker.Task
	Path    string // of the task
	Entry   *taskEntry
	Actor   string
	Reason  string
	Problem string // why it was refused
	Command command

	// Of a cancelling.
	Possible bool
	Ends     []cancelledStep
	Stay     int // steps that have ended, and stay as they are
}

// A cancelledStep is a step that a cancelling ends.
type cancelledStep struct {
	tasker.Step
	Worker string // loses its lease
}

// Held counts the steps that are taken out of a worker's hands.
func (f taskForm) Held() (n int) {
	for _, s := range f.Ends {
		if s.Worker != "" {
			n++
		}
	}
	return n
}

// taskForm reads a task that somebody is about to act on.
func (s *server) taskForm(x *exchange) (taskForm, error) {
	if err := s.mayChange(); err != nil {
		return taskForm{}, err
	}
	id, err := x.id("id")
	if err != nil {
		return taskForm{}, err
	}
	t, err := s.DB.Task(x.Context(), id)
	if err != nil {
		return taskForm{}, err
	}
	entry, err := s.entryOf(x, id)
	return taskForm{
		Task: t, Path: taskPath(id), Entry: entry, Actor: x.actor, Reason: strings.TrimSpace(x.typed("reason")),
	}, err
}

// refuse keeps why an action was refused, to be shown above what was typed, and
// returns the status of the page; what nobody there can act on stays an error.
func (f *taskForm) refuse(err error) (status int, left error) {
	if err == nil {
		return http.StatusOK, nil
	}
	code := tasker.CodeOf(err)
	if code == tasker.Internal || code == tasker.NotFound {
		return 0, err
	}
	f.Problem = messageOf(err)
	return apiv1.Status(code), nil
}

// whoAndWhy reads the fields that every action has.
func (f *taskForm) whoAndWhy(x *exchange, most int) (err error) {
	f.Actor = strings.TrimSpace(x.PostFormValue("actor"))
	actor, err := x.actorOf()
	if err != nil {
		return err
	}
	f.Actor = actor
	switch {
	case f.Reason == "":
		return tasker.Errorf(tasker.Invalid, "say why: the reason is recorded in the history")
	case utf8.RuneCountInString(f.Reason) > most:
		return tasker.Errorf(tasker.Invalid, "the reason has %d characters; %d is the limit", utf8.RuneCountInString(f.Reason), most)
	case !utf8.ValidString(f.Reason) || strings.ContainsRune(f.Reason, 0):
		return tasker.Errorf(tasker.Invalid, "the reason has a NUL or is not valid UTF-8, which cannot be stored")
	}
	return nil
}

func (s *server) cancelForm(x *exchange) (*view, error) {
	f, err := s.taskForm(x)
	if err != nil {
		return nil, err
	}
	return s.showCancel(x, f, nil)
}

// showCancel shows the form, with why it was refused if it was.
func (s *server) showCancel(x *exchange, f taskForm, refused error) (*view, error) {
	status, err := f.refuse(refused)
	if err != nil {
		return nil, err
	}
	steps, err := s.DB.Steps(x.Context(), f.Task.UUID)
	if err != nil {
		return nil, err
	}
	names, err := s.workerNames(x, steps)
	if err != nil {
		return nil, err
	}
	_, never := lifecycle.Task.Next(f.Task.State, lifecycle.CancelTask)
	f.Possible = never == nil
	for _, step := range steps {
		if _, ended := lifecycle.Step.Next(step.State, lifecycle.Cancel); ended != nil {
			f.Stay++
			continue
		}
		f.Ends = append(f.Ends, cancelledStep{step, heldBy(step, names)})
	}
	f.Do, f.Command = "Cancel", f.cancelCommand(x)
	return &view{page: "taskcancel", title: "Cancel " + f.Task.Namespace + "/" + f.Task.Name, nav: "Tasks", status: status, body: f}, nil
}

// workerNames names the workers that hold steps, if any does.
func (s *server) workerNames(x *exchange, steps []tasker.Step) (map[tasker.ID]string, error) {
	held := false
	for _, step := range steps {
		held = held || step.WorkerUUID != nil
	}
	if !held {
		return nil, nil
	}
	list, _, err := s.DB.Workers(x.Context(), maxRows, 0)
	names := make(map[tasker.ID]string, len(list))
	for _, w := range list {
		names[w.UUID] = w.Name
	}
	return names, err
}

func (s *server) cancel(x *exchange) (*view, error) {
	f, err := s.taskForm(x)
	if err != nil {
		return nil, err
	}
	if f.Task.State == tasker.TaskCancelled {
		return s.showCancel(x, f, tasker.Errorf(tasker.Conflict, "it is cancelled already; nothing was changed"))
	}
	if err = f.whoAndWhy(x, maxReason); err == nil {
		err = s.Engine.CancelTask(x.Context(), f.Task.UUID, f.Actor, f.Reason)
	}
	if err != nil {
		return s.showCancel(x, f, err)
	}
	return &view{next: f.Path, note: "The task is cancelled."}, nil
}

func (s *server) investigateForm(x *exchange) (*view, error) {
	f, err := s.taskForm(x)
	if err != nil {
		return nil, err
	}
	return showInvestigate(x, f, nil)
}

func showInvestigate(x *exchange, f taskForm, refused error) (*view, error) {
	status, err := f.refuse(refused)
	if err != nil {
		return nil, err
	}
	f.Possible = f.Entry == nil || !f.Entry.Open && !f.Entry.WrittenOff
	f.Do, f.Command = "Investigate", f.investigateCommand(x)
	return &view{page: "taskinvestigate", title: "Investigate " + f.Task.Namespace + "/" + f.Task.Name, nav: "Tasks", status: status, body: f}, nil
}

func (s *server) investigate(x *exchange) (*view, error) {
	f, err := s.taskForm(x)
	if err != nil {
		return nil, err
	}
	var opened tasker.Entry
	if err = f.whoAndWhy(x, maxNotes); err == nil {
		opened, err = s.DLQ.Open(x.Context(), f.Task.UUID, tasker.EntryOpening{Actor: f.Actor, Reason: f.Reason})
	}
	if tasker.CodeOf(err) == tasker.Conflict {
		// Somebody was faster, maybe since the form was read: show what is there now.
		entry, readErr := s.entryOf(x, f.Task.UUID)
		if readErr != nil {
			return nil, readErr
		}
		f.Entry = entry
	}
	if err != nil {
		return showInvestigate(x, f, err)
	}
	return &view{next: entryPath(opened.UUID), note: "The investigation is open."}, nil
}

// maxNotes is what an investigation takes as the reason to open it.
const maxNotes = 20_000

// heldBy names the worker that has a step in its hands.
func heldBy(s tasker.Step, names map[tasker.ID]string) string {
	if s.WorkerUUID == nil {
		return ""
	}
	if name := names[*s.WorkerUUID]; name != "" {
		return name
	}
	return short(*s.WorkerUUID)
}
