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

	// allParameter says that a plan is of all investigations that fit the filter of its address.
	allParameter = "all"
)

// selectionForm plans operations on what was selected in a list: ?case= and ?id=, or, with
// ?all=1, everything that fits the filter of the list.
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
		err = tasker.Errorf(tasker.Invalid, "nothing is selected: go back, and select cases or investigations")
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

// readSelected reads ids that a list has sent.
func readSelected(texts []string, what string, most int) (ids []tasker.ID, err error) {
	if len(texts) > most {
		return nil, tasker.Errorf(tasker.Invalid, "%d %s are selected; a page plans for %d at most: use a filter", len(texts), what, most)
	}
	for _, text := range texts {
		var id tasker.ID
		if err := id.UnmarshalText([]byte(text)); err != nil {
			return nil, tasker.Errorf(tasker.Invalid, "invalid selection %q: must be a whole UUID", clip(text, 60))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// filterForm plans one operation on everything that fits the filter of a list.
func (s *server) filterForm(req *request, q *query) (*planForm, error) {
	for _, name := range append([]string{"id"}, chipParameters...) {
		if q.Get(name) != "" {
			q.refuse(name, "absent: an operation does not select by it")
		}
	}
	f := q.investigations()
	f.Age = (f.Age + time.Minute - 1).Truncate(time.Minute) // as the API has it
	sel := tasker.OperationSelection{Filter: f, WorkerVersion: q.text("failed_on", maxText), FailedSince: known(q.instant("failed_since"))}
	switch {
	case q.err != nil:
		return nil, q.err
	case sel.IsEmpty():
		return nil, tasker.Errorf(tasker.Invalid, "the filter is empty, and fits everything: go back, and say which investigations, such as those of a namespace")
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
	p := &planForm{Filter: &f, Says: filterWords(f)}
	var err error
	if p.Fit, err = s.fitting(req, f); err != nil {
		return nil, err
	}
	if p.First, _, err = s.firstOf(req, f); err != nil {
		return nil, err
	}
	return s.planOf(req, p, nil, Root+"/?"+back.Encode())
}

// known returns a time that is there, and nil for none.
func known(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// fitting counts the open investigations that fit a filter, of those that the caller may
// operate on, up to maxFitting.
func (s *server) fitting(req *request, f tasker.InvestigationFilter) (int, error) {
	return s.DB.CountArrivals(req.within(access.OperateSteps).Context(), tasker.OperationSelection{Filter: f}, time.Time{}, maxFitting)
}

// actLinks are the acts on investigations that a page offers by name: those that can work, and
// for how many. all says that these are all of a list.
func actLinks(req *request, possible map[tasker.Act]int, all, does string, path func(tasker.Act) string) (links []caseLink) {
	for _, a := range []struct {
		act  tasker.Act
		name string
	}{{tasker.ActReset, "Retry"}, {tasker.ActAnswer, "Answer"}, {tasker.ActEnd, "End"}} {
		n := possible[a.act]
		if n == 0 || operation.MayPlan(req.within(access.OperateSteps).Context(), req.caller, a.act) != nil {
			continue
		}
		l := caseLink{Name: a.name + " " + all + count(n, ""), Href: path(a.act), Does: does}
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

// firstOf returns the most urgent investigations of a filter.
func (s *server) firstOf(req *request, f tasker.InvestigationFilter) ([]tasker.InvestigationQueueEntry, bool, error) {
	f.Limit, f.Offset = shownItems, 0
	return s.DB.InvestigationQueue(req.Context(), f)
}

// investigations reads the part of a filter that an operation can select by.
func (q *query) investigations() tasker.InvestigationFilter {
	return tasker.InvestigationFilter{
		Reason: choice(q, "reason", tasker.Reasons()), State: choice(q, "state", tasker.TaskStates()), Age: q.duration("age"), Recovered: q.flag("recovered"),
		Namespace: q.text("namespace", maxText), Name: q.text("template", maxText), Text: q.text("text", maxText), Case: q.id("case"),
	}
}

// filterQuery spells a filter as the address of a list has it.
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

// planLink is where everything that fits a filter is planned for.
func planLink(f tasker.InvestigationFilter, more ...string) string {
	q := filterQuery(f)
	q.Set(allParameter, "1")
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return planPath + "?" + q.Encode()
}

// shortDuration spells a duration of whole minutes: 4h, 90m is 1h30m.
func shortDuration(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "0s")
	if whole, found := strings.CutSuffix(text, "h0m"); found {
		return whole + "h"
	}
	return text
}

// filterWords says what fits a filter; its case aside, which a page links to.
func filterWords(f tasker.InvestigationFilter) (list []string) {
	for _, p := range []struct{ name, value string }{{"namespace", f.Namespace}, {"template", f.Name}, {"reason", words(string(f.Reason))}, {"task now", words(string(f.State))}} {
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

// filterFlags spells a selection as flags of tasker-ctl operation plan.
func filterFlags(s tasker.OperationSelection) (flags []string) {
	f := s.Filter
	for _, p := range []struct{ flag, value string }{
		{"--case", text(f.Case)}, {"--namespace", f.Namespace}, {"--name", f.Name}, {"--dlq-reason", string(f.Reason)}, {"--state", string(f.State)}, {"--text", f.Text},
		{"--failed-on", s.WorkerVersion}, {"--correlation-id", f.CorrelationID},
	} {
		if p.value != "" {
			flags = append(flags, p.flag, p.value)
		}
	}
	for _, tag := range f.Tags {
		flags = append(flags, "--tag", tag)
	}
	for _, a := range f.Attributes {
		flags = append(flags, "--attribute", a.String())
	}
	if f.Age > 0 {
		flags = append(flags, "--min-age", shortDuration(f.Age))
	}
	if f.Recovered != nil {
		flags = append(flags, "--recovered="+strconv.FormatBool(*f.Recovered))
	}
	if s.FailedSince != nil {
		flags = append(flags, "--failed-since", s.FailedSince.UTC().Format(time.RFC3339Nano))
	}
	return flags
}

// selectionWords says what an operation has selected, besides the case.
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

// attributedPath returns the address of the list of the tasks of a namespace that have an attribute.
func attributedPath(namespace, attribute string) string {
	return tasksPath + "?namespace=" + url.QueryEscape(namespace) + "&attribute=" + url.QueryEscape(attribute)
}
