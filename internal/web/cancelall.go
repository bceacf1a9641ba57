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

// A cancelAllForm cancels the open tasks that fit the filter of the list of tasks, a part at a time.
type cancelAllForm struct {
	*server
	form
	Filter     tasker.TaskFilter
	Compensate bool
	Plan       tasker.CancelBatch
	First      []taskLine
	Until      string     // when the form was opened: tasks that are newer are not cancelled
	query      url.Values // the filter, in the words of the list
}

// cancelAllForm reads the filter, which stands in the address, and the first tasks that fit it.
func (s *server) cancelAllForm(req *request) (*cancelAllForm, error) {
	q := req.query()
	f := &cancelAllForm{server: s, query: q.values}
	var err error
	if f.Filter, err = filterOf(q); err != nil {
		return nil, err
	}
	back := tasksPath
	if len(f.query) > 0 {
		back += "?" + f.query.Encode()
	}
	f.form = req.formOf(form{page: "cancelall", title: "Cancel all tasks of a filter", nav: "Tasks", Button: "Cancel these tasks", Back: back, Danger: true})
	f.Compensate = req.PostFormValue("compensate") != ""
	if err := f.readUntil(req); err != nil {
		return nil, err
	}
	f.Plan, err = f.cancel(req, true)
	switch code := tasker.CodeOf(err); {
	case code == tasker.Invalid:
		f.Refused = messageOf(err)
		return f, nil
	case err != nil:
		return nil, err
	case f.Plan.Cancelled == 0:
		f.Refused = "No open task fits the filter."
		return f, nil
	}
	for _, t := range f.Plan.Sample {
		f.First = append(f.First, taskLine{t, taskPath(t.UUID), taskProgressOf(t.Counts)})
	}
	f.Command = f.command(req)
	return f, nil
}

// readUntil has the form cancel what there was when it was opened: whoever sends it has seen no other.
func (f *cancelAllForm) readUntil(req *request) error {
	if req.Method != http.MethodPost {
		f.Until = req.now.UTC().Format(time.RFC3339Nano)
		return nil
	}
	f.Until = clip(req.PostFormValue("until"), 40)
	until, err := readInstant(f.Until)
	if err == nil && !until.IsZero() && (f.Filter.CreatedBefore.IsZero() || until.Before(f.Filter.CreatedBefore)) {
		f.Filter.CreatedBefore = until
	}
	return err
}

// command returns the same from a terminal.
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
	body := apiv1.CancelTasks{Compensate: f.Compensate, Reason: reason, By: f.byInBody(actor)}
	ctl = append(append(ctl, "--reason", reason), f.by("--by", actor)...)
	return commandOf(req, ctl, http.MethodPost, "/v1/tasks/cancel?"+query.Encode(), body)
}

func (f *cancelAllForm) cancel(req *request, dryRun bool) (tasker.CancelBatch, error) {
	return f.Engine.CancelTasks(req.Context(), tasker.CancelBatchRequest{
		Filter: f.Filter, Compensate: f.Compensate, DryRun: dryRun, Actor: f.Actor, Reason: f.Reason,
	})
}

func (f *cancelAllForm) do(req *request) (*view, error) {
	if err := f.check(req, maxReason); err != nil {
		return nil, err
	}
	done, err := f.cancel(req, false)
	if err != nil {
		return nil, err
	}
	v := &view{next: f.Back, note: count(done.Cancelled, "task") + " cancelled."}
	if done.Failed > 0 {
		v.warn = fmt.Sprintf("%s could not be cancelled: the log of the server says why.", count(done.Failed, "task"))
	}
	if done.HasMore && done.Cancelled > 0 {
		v.next, v.note = req.URL.RequestURI(), v.note+" These are the next."
	}
	return v, nil
}

// cancelAllLink is the form for the filter of this list; empty where the caller may not, or where
// the list has no filter.
func (s *server) cancelAllLink(req *request, narrowed bool) string {
	if s.ReadOnly || !narrowed || !req.sees(access.CancelTasks) {
		return ""
	}
	q := req.URL.Query()
	q.Del("offset")
	q.Del("id")
	return Root + cancelAllPath + "?" + q.Encode()
}
