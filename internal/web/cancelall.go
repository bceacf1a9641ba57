package web

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
)

const cancelAllPath = "/cancel-tasks"

// newCancelAllForm is the form to cancel the open tasks that match the filter of the task list, in
// batches.
type cancelAllForm struct {
	*server
	form
	Filter     tasker.TaskFilter
	Compensate bool
	Plan       tasker.CancelBatch
	First      []taskLine
	Until      string     // time when the form was opened; newer tasks are not cancelled
	query      url.Values // filter of the list
}

// newCancelAllForm reads the filter from the query and plans the next batch.
func (s *server) newCancelAllForm(req *request) (*cancelAllForm, error) {
	q := req.query()
	f := &cancelAllForm{server: s, query: q.values}
	var err error
	if f.Filter, err = readTaskFilter(q); err != nil {
		return nil, err
	}
	back := tasksPath
	if len(f.query) > 0 {
		back += "?" + f.query.Encode()
	}
	f.form = req.newForm(form{page: "cancelall", title: "Cancel all matching tasks", nav: "Tasks", Button: "Cancel these tasks", Back: back, Danger: true})
	f.Compensate = req.isChecked("compensate")
	if err := f.readUntil(req); err != nil {
		return nil, err
	}
	f.Plan, err = f.cancel(req, true)
	switch code := tasker.CodeOf(err); {
	case code == tasker.Invalid:
		f.Refused = errorMessage(err)
		return f, nil
	case err != nil:
		return nil, err
	case f.Plan.Cancelled == 0:
		f.Refused = "No open task matches the filter."
		return f, nil
	}
	f.First, f.Command = newTaskLines(f.Plan.Sample), f.command(req)
	return f, nil
}

// readUntil limits the filter to tasks that existed when the form was opened.
func (f *cancelAllForm) readUntil(req *request) error {
	if req.Method != http.MethodPost {
		f.Until = req.now.UTC().Format(time.RFC3339Nano)
		return nil
	}
	f.Until = truncate(req.PostFormValue("until"), 40)
	until, err := parseTime(f.Until)
	if err == nil && !until.IsZero() && (f.Filter.CreatedBefore.IsZero() || until.Before(f.Filter.CreatedBefore)) {
		f.Filter.CreatedBefore = until
	}
	return err
}

func (f *cancelAllForm) command(req *request) command {
	actor, reason := f.placeholders()
	ctl := []string{"task", "cancel-all"}
	words := [][2]string{
		{"state", "--status"}, {"namespace", "--namespace"}, {"name", "--name"}, {"tag", "--tag"}, {"correlation_id", "--correlation-id"}, {"idempotency_key", "--idempotency-key"},
		{"initiator", "--initiator"}, {"source_system", "--source-system"}, {"attribute", "--attribute"}, {"created_after", "--created-after"}, {"created_before", "--created-before"}, {"parent", "--parent"}, {"due_before", "--due-before"},
	}
	query := url.Values{}
	for _, w := range words {
		for _, value := range f.query[w[0]] {
			if value == "" {
				continue
			}
			ctl = append(ctl, w[1], value)
			key := w[0]
			if key == "state" {
				key = "status"
			}
			query.Add(key, value)
		}
	}
	if dead := f.query.Get("dead_lettered"); dead != "" {
		ctl = append(ctl, "--dead-lettered="+dead)
		query.Set("dead_lettered", dead)
	}
	if f.query.Get("overdue") != "" {
		ctl = append(ctl, "--overdue")
		query.Set("overdue", "true")
	}
	if f.Compensate {
		ctl = append(ctl, "--compensate")
	}
	body := apiv1.CancelTasks{Compensate: f.Compensate, Reason: reason, By: f.actorInBody(actor)}
	ctl = append(append(ctl, "--reason", reason), f.actorFlags("--by", actor)...)
	return newCommand(req, ctl, http.MethodPost, "/v1/tasks/cancel?"+query.Encode(), body)
}

func (f *cancelAllForm) cancel(req *request, dryRun bool) (tasker.CancelBatch, error) {
	return f.Engine.CancelTasks(req.Context(), tasker.CancelBatchRequest{
		Filter: f.Filter, Compensate: f.Compensate, DryRun: dryRun, Actor: f.Actor, Reason: f.Reason,
	})
}

func (f *cancelAllForm) do(req *request) (*view, error) {
	if err := f.checkReason(req, maxReason); err != nil {
		return nil, err
	}
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
