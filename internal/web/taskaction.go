package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/endpoint"
)

// taskForm is the common part of forms for actions on a task.
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

// cancelForm is the form to cancel a task.
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
	f := &cancelForm{taskForm: s.newTaskForm(req, form{page: "taskcancel", title: "Cancel",
		Button: "Cancel this task", Danger: true, maxReason: maxReason})}
	if !isCancellable(f.Task) {
		f.Refused = fmt.Sprintf("The task is %s: there is nothing to cancel.", formatWords(f.Task.State))
	}
	steps := load(req, s.DB.Steps, f.Task.UUID)
	names := s.findWorkerNames(req, steps)
	for _, step := range steps {
		if _, ended := core.StepMoves.Next(step.State, core.Cancel); ended != nil {
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
	f := &investigateForm{s.newTaskForm(req, form{page: "taskinvestigate", title: "Investigate",
		Button: "Open an investigation", maxReason: maxNotes})}
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

// dueForm is the form to change the due time of a task or a step.
type dueForm struct {
	taskForm
	Due   *tasker.Deadline // current due time
	Steps []tasker.Step    // that have not ended
	Step  string           // name of the step; empty for the task
	At    string           // as typed; empty for none
	id    tasker.ID        // of the step
}

func (s *server) newDueForm(req *request) *dueForm {
	t := s.newTaskForm(req, form{page: "taskdue", title: "Change the due time of", Button: "Change the due time",
		maxReason: maxReason})
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

// versionForm is the form to move a task to another version of its template.
type versionForm struct {
	taskForm
	From     string // version when the form was opened
	To       string
	Versions []string // possible versions, newest first
	Plan     tasker.VersionChange
}

// newVersionForm returns the form with a plan for the requested version. The default is the newest
// other version.
func (s *server) newVersionForm(req *request) *versionForm {
	t := s.newTaskForm(req, form{page: "taskversion", title: "Change the version of", Button: "Change the version",
		maxReason: maxReason})
	f := &versionForm{taskForm: t, From: cmp.Or(truncate(req.rawField("from"), maxVersion), t.Task.Version)}
	f.Versions = load(req, s.DB.OtherVersions, templateVersion(t.Task))
	if f.To = cmp.Or(append([]string{req.PostFormValue("to"), req.query().Get("to")}, f.Versions...)...); f.To == "" {
		f.Refused = "The template has no other version for new tasks."
		return f
	}
	var err error
	f.Plan, err = s.Engine.ChangeVersion(req.Context(), t.Task.UUID, tasker.VersionRequest{To: f.To, DryRun: true})
	switch {
	case err != nil:
		f.refuse(err)
		return f
	case f.To == t.Task.Version:
		f.Refused = fmt.Sprintf("The task already has version %s.", f.To)
	case len(f.Plan.Refusals) > 0:
		f.Refused = fmt.Sprintf("The task cannot move to version %s.", f.To)
	}
	c := f.newCall(endpoint.ChangeVersion, "task change-version", t.Task.UUID.String())
	c.set("--to", "to_version", f.To)
	c.setReason()
	c.setActor("--by", "by")
	f.Command = c.format()
	return f
}

func templateVersion(t tasker.Task) tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: t.Namespace, Name: t.Name, Version: t.Version}
}

func (f *versionForm) do(req *request) (*view, error) {
	_, err := f.Engine.ChangeVersion(req.Context(), f.Task.UUID, tasker.VersionRequest{From: f.From, To: f.To, Actor: f.Actor, Reason: f.Reason})
	return &view{next: f.Back, note: "The task has version " + f.To + "."}, err
}

const cancelAllPath = "/cancel-tasks"

// cancelAllForm is the form to cancel the open tasks that match the filter of the task list, in
// batches.
type cancelAllForm struct {
	form
	Filter     tasker.TaskFilter
	Compensate bool
	Plan       tasker.CancelBatch
	First      []tasker.Task
	Until      string // time when the form was opened; newer tasks are not cancelled
}

// newCancelAllForm reads the filter from the query and plans the next batch.
func (s *server) newCancelAllForm(req *request) *cancelAllForm {
	q := req.query()
	f := &cancelAllForm{Filter: readTaskFilter(q)}
	back := tasksPath
	if len(q.values) > 0 {
		back += "?" + q.values.Encode()
	}
	f.form = req.newForm(form{page: "cancelall", title: "Cancel all matching tasks", nav: "Tasks",
		Button: "Cancel these tasks", Back: back, Danger: true, maxReason: maxReason})
	f.Compensate = req.isChecked("compensate")
	f.Command = f.command() // without the limit of readUntil
	f.readUntil(req)
	if req.err() != nil {
		return f
	}
	var err error
	f.Plan, err = f.cancel(req, true)
	switch code := tasker.CodeOf(err); {
	case code == tasker.Invalid:
		f.Refused = errorMessage(err)
	case err != nil:
		req.fail(err)
	case f.Plan.Cancelled == 0:
		f.Refused = "No open task matches the filter."
	}
	f.First = f.Plan.Sample
	return f
}

// readUntil limits the filter to tasks that existed when the form was opened.
func (f *cancelAllForm) readUntil(req *request) {
	if req.Method != http.MethodPost {
		f.Until = req.now.UTC().Format(time.RFC3339Nano)
		return
	}
	f.Until = truncate(req.PostFormValue("until"), 40)
	until, err := parseTime(f.Until)
	req.fail(err)
	if !until.IsZero() && (f.Filter.CreatedBefore.IsZero() || until.Before(f.Filter.CreatedBefore)) {
		f.Filter.CreatedBefore = until
	}
}

func (f *cancelAllForm) command() command {
	c := f.newCall(endpoint.CancelTasks, "task cancel-all")
	c.setFilter(&f.Filter)
	c.set("--compensate", "compensate", f.Compensate)
	c.setReason()
	c.setActor("--by", "by")
	return c.format()
}

func (f *cancelAllForm) cancel(req *request, dryRun bool) (tasker.CancelBatch, error) {
	return f.Engine.CancelTasks(req.Context(), tasker.CancelBatchRequest{
		Filter: f.Filter, Compensate: f.Compensate, DryRun: dryRun, Actor: f.Actor, Reason: f.Reason,
	})
}

func (f *cancelAllForm) do(req *request) (*view, error) {
	done, err := f.cancel(req, false)
	if err != nil {
		return nil, err
	}
	v := &view{next: f.Back, note: formatCount(done.Cancelled, "task") + " cancelled."}
	if done.Failed > 0 {
		v.warn = fmt.Sprintf("%s could not be cancelled. See the server log.", formatCount(done.Failed, "task"))
	}
	if done.HasMore && done.Cancelled > 0 {
		v.next, v.note = req.URL.RequestURI(), v.note+" This page shows the next batch."
	}
	return v, nil
}

// buildCancelAllLink returns the link to the form for the filter of the list. It returns "" if the
// list is not filtered or the caller lacks the permission.
func (s *server) buildCancelAllLink(req *request, narrowed bool) string {
	if s.ReadOnly || !narrowed || !req.canSee(access.CancelTasks) {
		return ""
	}
	q := req.URL.Query()
	q.Del("offset")
	q.Del("id")
	return Root + cancelAllPath + "?" + q.Encode()
}
