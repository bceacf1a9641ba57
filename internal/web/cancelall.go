package web

import (
	"fmt"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
)

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
	f.form = req.newForm(form{page: "cancelall", title: "Cancel all matching tasks", nav: "Tasks", Button: "Cancel these tasks", Back: back, Danger: true, maxReason: maxReason})
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
