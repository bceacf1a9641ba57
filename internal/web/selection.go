package web

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/operation"
	apiquery "tasker.example/tasker/internal/query"
)

const (
	planPath = Root + "/plan"

	// allParameter is the parameter that selects all investigations matching the filter in the URL.
	allParameter = "all"
)

// newSelectionForm returns the form to plan operations on the selected rows of a list (?case= and
// ?id=), or, with ?all=1, on all investigations that match its filter.
func (s *server) newSelectionForm(req *request) *planForm {
	q := req.query()
	if q.isOn(allParameter) || req.err() != nil {
		return s.newFilterForm(req, q)
	}
	cases := q.readSelected("case", "cases", maxSelectedCases)
	ids := q.readSelected("id", "investigations", maxSelectedIDs)
	if len(cases)+len(ids) == 0 {
		req.fail(tasker.Errorf(tasker.Invalid, "the selection is empty: go back and select cases or investigations"))
	}
	back := Root + "/"
	if len(cases) == 0 {
		back += "?view=entries"
	}
	return s.newPlanFormFor(req, &planForm{IDs: ids}, cases, back)
}

func (q *query) readSelected(name, what string, most int) (ids []tasker.ID) {
	texts := q.all(name)
	if len(texts) > most {
		q.req.fail(tasker.Errorf(tasker.Invalid, "%d %s are selected: select at most %d, or use a filter", len(texts),
			what, most))
		return nil
	}
	for _, text := range texts {
		id, err := uuid.Parse(text)
		if err != nil {
			q.req.fail(tasker.Errorf(tasker.Invalid, "invalid selection %q: must be a UUID", truncate(text, 60)))
		}
		ids = append(ids, id)
	}
	return ids
}

// newFilterForm returns the form to plan one operation on all investigations that match the filter
// of a list.
func (s *server) newFilterForm(req *request, q *query) *planForm {
	for _, name := range append([]string{"id"}, chipParameters...) {
		if q.Get(name) != "" {
			q.addFault(name, "absent: operations cannot select by it")
		}
	}
	f := q.readInvestigationFilter()
	f.Age = (f.Age + time.Minute - 1).Truncate(time.Minute) // the API uses minutes
	sel := tasker.OperationSelection{Filter: f, WorkerVersion: q.readText("failed_on", maxText), FailedSince: nilIfZeroTime(q.readTime("failed_since"))}
	if sel.IsEmpty() {
		req.fail(tasker.Errorf(tasker.Invalid,
			"the filter is empty: go back and narrow the list, for example to a namespace"))
	}
	if f.Namespace != "" {
		req.fail(req.caller.RequirePermission(access.OperateSteps, f.Namespace))
	}
	back := encodeFilter(f)
	if q.Get("view") != "" {
		back.Set("view", q.Get("view"))
	}
	p := &planForm{Filter: &f, Terms: describeFilter(f)}
	p.Fit = s.countFitting(req, f)
	p.First = s.listFirst(req, f)
	return s.newPlanFormFor(req, p, nil, Root+"/?"+back.Encode())
}

// nilIfZeroTime returns a pointer to at, or nil for the zero time.
func nilIfZeroTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// countFitting counts the open investigations that match a filter and that the caller may operate
// on, up to maxFitting.
func (s *server) countFitting(req *request, f tasker.InvestigationFilter) int {
	n, err := s.DB.CountArrivals(req.withPermission(access.OperateSteps).Context(),
		tasker.OperationSelection{Filter: f}, time.Time{}, maxFitting)
	req.fail(err)
	return n
}

// countPossible returns for how many of the selected investigations each act is possible, up to
// most.
func (s *server) countPossible(req *request, of tasker.OperationSelection, most int) map[tasker.Act]int {
	possible, err := s.Operations.CountPossible(req.withPermission(access.OperateSteps).Context(), of, most)
	req.fail(err)
	return possible
}

// buildActLinks returns links to plan the possible acts, each with the number of investigations.
func buildActLinks(req *request, possible map[tasker.Act]int, all, does string, path func(tasker.Act) string) (links []link) {
	for _, a := range []struct {
		act  tasker.Act
		name string
	}{{tasker.ActReset, "Retry"}, {tasker.ActAnswer, "Answer"}, {tasker.ActEnd, "End"}} {
		n := possible[a.act]
		if n == 0 || operation.CheckPlanPermission(req.withPermission(access.OperateSteps).Context(), req.caller,
			a.act) != nil {
			continue
		}
		l := link{Name: a.name + " " + all + formatCount(n, ""), Path: path(a.act), Does: does}
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

// listFirst returns the most urgent investigations that match a filter.
func (s *server) listFirst(req *request, f tasker.InvestigationFilter) []tasker.InvestigationQueueEntry {
	f.Limit, f.Offset = shownItems, 0
	list, _ := loadPage(req, s.DB.InvestigationQueue, f)
	return list
}

// readInvestigationFilter reads the filter parameters that operations support.
func (q *query) readInvestigationFilter() tasker.InvestigationFilter {
	return tasker.InvestigationFilter{
		Reason: readChoice(q, "reason", tasker.Reasons()), State: readChoice(q, "state", tasker.TaskStates()), Age: q.readDuration("age"), Recovered: q.readFlag("recovered"),
		Namespace: q.readText("namespace", maxText), Name: q.readText("template", maxText), Text: q.readText("text", maxText), Case: q.readID("case"),
	}
}

// filterNames are the parameters of pages whose names differ from those of the API.
var filterNames = map[string]string{"dlq_reason": "reason", "current_state": "state", "name": "template"}

// encodeFilter returns the query parameters of a filter. Pages have no parameters for the search
// attributes of tasks.
func encodeFilter(f tasker.InvestigationFilter) url.Values {
	q := url.Values{}
	if f.Age > 0 {
		q.Set("age", formatDuration(f.Age))
	}
	f.Age, f.Limit, f.Offset, f.CaseKey, f.Tags, f.CorrelationID, f.Attributes = 0, 0, 0, nil, nil, "", nil
	for name, values := range apiquery.Encode(f) {
		q[cmp.Or(filterNames[name], name)] = values
	}
	return q
}

// planLink returns the link to the form that plans an operation on all investigations that match a
// filter.
func planLink(f tasker.InvestigationFilter, more ...string) string {
	q := encodeFilter(f)
	q.Set(allParameter, "1")
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return planPath + "?" + q.Encode()
}

// formatDuration formats whole minutes, such as 4h or 1h30m.
func formatDuration(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "0s")
	if whole, found := strings.CutSuffix(text, "h0m"); found {
		return whole + "h"
	}
	return text
}

// describeFilter describes each condition of a filter.
func describeFilter(f tasker.InvestigationFilter) (list []string) {
	for _, p := range []struct{ name, value string }{{"namespace", f.Namespace}, {"template", f.Name}, {"reason", formatWords(string(f.Reason))}, {"task state", formatWords(string(f.State))}} {
		if p.value != "" {
			list = append(list, p.name+" "+p.value)
		}
	}
	if f.Text != "" {
		list = append(list, "text “"+f.Text+"”")
	}
	if f.Age > 0 {
		list = append(list, "open for at least "+formatDuration(f.Age))
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

// describeSelection describes the selection of an operation, except for its case.
func describeSelection(o tasker.Operation) string {
	f := o.Selection.Filter
	f.Case = nil
	list := describeFilter(f)
	if o.Selection.WorkerVersion != "" {
		list = append(list, "failed on workers of version "+o.Selection.WorkerVersion)
	}
	if o.Selection.FailedSince != nil {
		list = append(list, "failed since "+o.Selection.FailedSince.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if o.Selected > 0 {
		list = slices.Insert(list, 0, formatCount(o.Selected, "id"))
	}
	return strings.Join(list, ", ")
}
