package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/operation"
)

const (
	planPath = Root + "/plan"

	// allParameter is the parameter that selects all investigations matching the filter in the URL.
	allParameter = "all"
)

// selectionForm returns the form to plan operations on the selected rows of a list (?case= and
// ?id=), or, with ?all=1, on all investigations that match its filter.
func (s *server) selectionForm(req *request) (*planForm, error) {
	q := req.query()
	if q.on(allParameter) || q.err != nil {
		return s.filterForm(req, q)
	}
	cases, err := readSelected(q.all("case"), "cases", maxSelectedCases)
	if err != nil {
		return nil, err
	}
	ids, err := readSelected(q.all("id"), "investigations", maxSelectedIDs)
	if err == nil && len(cases)+len(ids) == 0 {
		err = tasker.Errorf(tasker.Invalid, "the selection is empty: go back and select cases or investigations")
	}
	if err != nil {
		return nil, err
	}
	back := Root + "/"
	if len(cases) == 0 {
		back += "?view=entries"
	}
	return s.planOf(req, &planForm{IDs: ids}, cases, back)
}

func readSelected(texts []string, what string, most int) (ids []tasker.ID, err error) {
	if len(texts) > most {
		return nil, tasker.Errorf(tasker.Invalid, "%d %s are selected: select at most %d, or use a filter", len(texts), what, most)
	}
	for _, text := range texts {
		var id tasker.ID
		if err := id.UnmarshalText([]byte(text)); err != nil {
			return nil, tasker.Errorf(tasker.Invalid, "invalid selection %q: must be a UUID", clip(text, 60))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// filterForm returns the form to plan one operation on all investigations that match the filter of
// a list.
func (s *server) filterForm(req *request, q *query) (*planForm, error) {
	for _, name := range append([]string{"id"}, chipParameters...) {
		if q.Get(name) != "" {
			q.refuse(name, "absent: operations cannot select by it")
		}
	}
	f := q.investigations()
	f.Age = (f.Age + time.Minute - 1).Truncate(time.Minute) // the API uses minutes
	sel := tasker.OperationSelection{Filter: f, WorkerVersion: q.text("failed_on", maxText), FailedSince: known(q.time("failed_since"))}
	switch {
	case q.err != nil:
		return nil, q.err
	case sel.IsEmpty():
		return nil, tasker.Errorf(tasker.Invalid, "the filter is empty: go back and narrow the list, for example to a namespace")
	}
	if f.Namespace != "" {
		if err := req.caller.MayUse(access.OperateSteps, f.Namespace); err != nil {
			return nil, err
		}
	}
	back := filterQuery(f)
	if q.Get("view") != "" {
		back.Set("view", q.Get("view"))
	}
	p := &planForm{Filter: &f, Terms: filterWords(f)}
	var err error
	if p.Fit, err = s.fitting(req, f); err != nil {
		return nil, err
	}
	if p.First, _, err = s.firstOf(req, f); err != nil {
		return nil, err
	}
	return s.planOf(req, p, nil, Root+"/?"+back.Encode())
}

// known returns a pointer to at, or nil for the zero time.
func known(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// fitting counts the open investigations that match a filter and that the caller may operate on, up
// to maxFitting.
func (s *server) fitting(req *request, f tasker.InvestigationFilter) (int, error) {
	return s.DB.CountArrivals(req.within(access.OperateSteps).Context(), tasker.OperationSelection{Filter: f}, time.Time{}, maxFitting)
}

// actLinks returns links to plan the possible acts, each with the number of investigations.
func actLinks(req *request, possible map[tasker.Act]int, all, does string, path func(tasker.Act) string) (links []link) {
	for _, a := range []struct {
		act  tasker.Act
		name string
	}{{tasker.ActReset, "Retry"}, {tasker.ActAnswer, "Answer"}, {tasker.ActEnd, "End"}} {
		n := possible[a.act]
		if n == 0 || operation.MayPlan(req.within(access.OperateSteps).Context(), req.caller, a.act) != nil {
			continue
		}
		l := link{Name: a.name + " " + all + count(n, ""), Path: path(a.act), Does: does}
		if n == maxFitting {
			l.Name += " or more"
		}
		if l.Name += "…"; len(links) == 0 {
			l.Key = "r"
		}
		links = append(links, l)
	}
	return links
}

// firstOf returns the most urgent investigations that match a filter.
func (s *server) firstOf(req *request, f tasker.InvestigationFilter) ([]tasker.InvestigationQueueEntry, bool, error) {
	f.Limit, f.Offset = shownItems, 0
	return s.DB.InvestigationQueue(req.Context(), f)
}

// investigations reads the filter parameters that operations support.
func (q *query) investigations() tasker.InvestigationFilter {
	return tasker.InvestigationFilter{
		Reason: choice(q, "reason", tasker.Reasons()), State: choice(q, "state", tasker.TaskStates()), Age: q.duration("age"), Recovered: q.flag("recovered"),
		Namespace: q.text("namespace", maxText), Name: q.text("template", maxText), Text: q.text("text", maxText), Case: q.id("case"),
	}
}

// filterQuery returns the query parameters of a filter.
func filterQuery(f tasker.InvestigationFilter) url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("reason", string(f.Reason))
	set("state", string(f.State))
	set("namespace", f.Namespace)
	set("template", f.Name)
	set("text", f.Text)
	set("case", text(f.Case))
	if f.Age > 0 {
		set("age", shortDuration(f.Age))
	}
	if f.Recovered != nil {
		set("recovered", strconv.FormatBool(*f.Recovered))
	}
	return q
}

// planLink returns the link to the form that plans an operation on all investigations that match a
// filter.
func planLink(f tasker.InvestigationFilter, more ...string) string {
	q := filterQuery(f)
	q.Set(allParameter, "1")
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return planPath + "?" + q.Encode()
}

// shortDuration formats whole minutes, such as 4h or 1h30m.
func shortDuration(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "0s")
	if whole, found := strings.CutSuffix(text, "h0m"); found {
		return whole + "h"
	}
	return text
}

// filterWords describes each condition of a filter.
func filterWords(f tasker.InvestigationFilter) (list []string) {
	for _, p := range []struct{ name, value string }{{"namespace", f.Namespace}, {"template", f.Name}, {"reason", words(string(f.Reason))}, {"task state", words(string(f.State))}} {
		if p.value != "" {
			list = append(list, p.name+" "+p.value)
		}
	}
	if f.Text != "" {
		list = append(list, "text “"+f.Text+"”")
	}
	if f.Age > 0 {
		list = append(list, "open for at least "+shortDuration(f.Age))
	}
	switch {
	case f.Recovered == nil:
	case *f.Recovered:
		list = append(list, "recovered")
	default:
		list = append(list, "not recovered")
	}
	for _, tag := range f.Tags {
		list = append(list, "tag "+tag)
	}
	if f.CorrelationID != "" {
		list = append(list, "correlation id "+f.CorrelationID)
	}
	for _, a := range f.Attributes {
		list = append(list, "attribute "+a.String())
	}
	if f.Case != nil {
		list = append(list, "of one case")
	}
	return list
}

// filterFlags returns the flags of `tasker-ctl operation plan` for a selection.
func filterFlags(s tasker.OperationSelection) []string {
	f := s.Filter
	list := flags("--case", text(f.Case), "--namespace", f.Namespace, "--name", f.Name, "--dlq-reason", string(f.Reason),
		"--state", string(f.State), "--text", f.Text, "--failed-on", s.WorkerVersion, "--correlation-id", f.CorrelationID)
	for _, tag := range f.Tags {
		list = append(list, "--tag", tag)
	}
	for _, a := range f.Attributes {
		list = append(list, "--attribute", a.String())
	}
	if f.Age > 0 {
		list = append(list, "--min-age", shortDuration(f.Age))
	}
	if f.Recovered != nil {
		list = append(list, "--recovered="+strconv.FormatBool(*f.Recovered))
	}
	if s.FailedSince != nil {
		list = append(list, "--failed-since", s.FailedSince.UTC().Format(time.RFC3339Nano))
	}
	return list
}

// selectionWords describes the selection of an operation, except for its case.
func selectionWords(o tasker.Operation) string {
	f := o.Selection.Filter
	f.Case = nil
	list := filterWords(f)
	if o.Selection.WorkerVersion != "" {
		list = append(list, "failed on workers of version "+o.Selection.WorkerVersion)
	}
	if o.Selection.FailedSince != nil {
		list = append(list, "failed since "+o.Selection.FailedSince.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if o.Selected > 0 {
		list = slices.Insert(list, 0, count(o.Selected, "id"))
	}
	return strings.Join(list, ", ")
}

func attributedPath(namespace, attribute string) string {
	return tasksPath + "?namespace=" + url.QueryEscape(namespace) + "&attribute=" + url.QueryEscape(attribute)
}
