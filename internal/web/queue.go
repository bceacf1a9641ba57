package web

import (
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// queuePage lists cases, most costly first, or, with ?view=entries, investigations, most urgent
// first.
type queuePage struct {
	Filter  queueFilter
	Chips   []link
	Cases   []caseLine
	Entries []tasker.InvestigationQueueEntry
	Pager   pager

	Totals  tasker.CaseTotals // of all pages
	Nearest *tasker.StaleTask // task closest to its staleness limit, if nothing is open
	Hides   bool              // errors are hidden
	Selects bool              // rows can be selected
	Acts    []link            // operations on all that match the filter
}

// caseLine is a case in a list.
type caseLine struct {
	tasker.Case
	Cause    tasker.Cause
	Path     string
	Progress progress
}

// queueFilter contains the submitted fields of the form above the list.
type queueFilter struct {
	Single                                    bool // investigations, not cases
	Reason, Namespace, Name, State, Age, Text string
	Case                                      string
	Recovered                                 string
	CaseState, Owner, Unowned, FailedAgain    string       // chips
	Case1                                     *tasker.Case // with the id Case

	Any      bool // not empty
	Narrowed bool // a field of the form is set
	Resolved bool // cases without open investigations
	ByCase   string
	ByEntry  string
	Clear    string
	Reasons  []tasker.Reason
	States   []tasker.TaskState
	Ages     []ageChoice
	Names    suggestions
}

type ageChoice struct{ Value, Name string }

var ages = []ageChoice{{"15m", "15 min"}, {"1h", "1 h"}, {"4h", "4 h"}, {"24h", "1 day"}, {"168h", "7 days"}}

func (s *server) showQueue(req *request) (*view, error) {
	f, q, err := s.readFilter(req)
	if err != nil {
		return nil, err
	}
	p := queuePage{Filter: f, Selects: !s.ReadOnly && req.canSee(access.OperateSteps) && !f.Resolved}
	if err := s.listCases(req, &p, q); err != nil {
		return nil, err
	}
	if err := s.addAll(req, &p, q.InvestigationFilter); err != nil {
		return nil, err
	}
	if len(p.Entries)+len(p.Cases) == 0 && !f.Any && p.Totals.Unclassified == 0 {
		list, err := s.DB.Staleness(req.withPermission(access.ReadTasks).Context(), tasker.StalenessFilter{Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			p.Nearest = &list[0]
		}
	}
	return &view{page: "queue", title: "Cases", nav: navCases, live: true, body: p}, nil
}

// addAll adds links to plan operations on all investigations that match the filter. It adds none
// if a chip is active, because operations cannot select by it.
func (s *server) addAll(req *request, p *queuePage, f tasker.InvestigationFilter) error {
	if !p.Selects || !p.Filter.Narrowed && f.Case == nil || p.Filter.CaseState+p.Filter.Owner+p.Filter.Unowned+p.Filter.FailedAgain != "" {
		return nil
	}
	possible, err := s.Operations.CountPossible(req.withPermission(access.OperateSteps).Context(), tasker.OperationSelection{Filter: f}, maxFitting)
	if err != nil {
		return err
	}
	var view []string
	if p.Filter.Single {
		view = []string{"view", "entries"}
	}
	p.Acts = buildActLinks(req, possible, "all ", "plan an operation on all that match the filter", func(act tasker.Act) string {
		if act == tasker.ActReset {
			return planLink(f, view...)
		}
		return planLink(f, append(view, "act", string(act))...)
	})
	return nil
}

// listCases reads the cases or the investigations of the page.
func (s *server) listCases(req *request, p *queuePage, f tasker.CaseFilter) error {
	if p.Filter.Single {
		list, more, err := s.DB.InvestigationQueue(req.Context(), f.InvestigationFilter)
		p.Entries, p.Pager = list, req.newPager(f.Offset, f.Limit, len(list), more)
		p.Hides = slices.ContainsFunc(list, func(e tasker.InvestigationQueueEntry) bool {
			return e.ErrorMessage == access.Hidden || e.ErrorPattern == access.Hidden
		})
		return err
	}
	p.Chips = newFilterChips(req, p.Filter)
	list, totals, more, err := s.DB.CasePage(req.Context(), f)
	if err != nil {
		return err
	}
	p.Totals = totals
	p.Pager = req.newPager(f.Offset, f.Limit, len(list), more)
	p.Cases = newCaseLines(list)
	p.Hides = slices.ContainsFunc(list, func(c tasker.Case) bool { return c.ErrorPattern == access.Hidden })
	return nil
}

func newCaseLines(list []tasker.Case) (lines []caseLine) {
	for _, c := range list {
		lines = append(lines, caseLine{Case: c, Cause: tasker.CauseOf(c.Reason, c.DetailCode), Path: casePath(c.ID), Progress: newCaseProgress(c.CaseCounts)})
	}
	return lines
}

// chipParameters are the query parameters of the chips. At most one chip is active at a time.
var chipParameters = []string{"unowned", "owner", "case_state", "failed_again"}

// newFilterChips returns the quick filters of the list of cases.
func newFilterChips(req *request, f queueFilter) (chips []link) {
	add := func(name, parameter, value, now string) {
		pairs := []string{"offset", ""}
		for _, p := range chipParameters {
			if p == parameter && now != value {
				pairs = append(pairs, p, value)
			} else {
				pairs = append(pairs, p, "")
			}
		}
		chips = append(chips, link{Name: name, Here: now == value, Path: req.buildLink(pairs...)})
	}
	add("unowned", "unowned", "true", f.Unowned)
	if req.actor != "" {
		add("mine", "owner", req.actor, f.Owner)
	}
	for _, c := range []struct {
		name  string
		state tasker.CaseState
	}{{"new", tasker.CaseNew}, {"growing", tasker.CaseEscalating}, {"regressed", tasker.CaseRegressed}} {
		add(c.name, "case_state", string(c.state), f.CaseState)
	}
	add("failed again", "failed_again", "true", f.FailedAgain)
	add("snoozed", "case_state", string(tasker.CaseResting), f.CaseState)
	add("resolved", "case_state", string(tasker.CaseResolved), f.CaseState)
	return chips
}

// readFilter parses the query. It returns the fields of the form and the filter for the database.
func (s *server) readFilter(req *request) (f queueFilter, q tasker.CaseFilter, err error) {
	in := req.query()
	q = tasker.CaseFilter{
		InvestigationFilter: in.readInvestigationFilter(),
		Owner:               in.readText("owner", maxName), Unowned: in.isOn("unowned"), FailedAgain: in.isOn("failed_again"),
	}
	q.Limit, q.Offset = in.readNumber("limit", pageRows, 1, maxRows), in.readOffset()
	if state := readChoice(in, "case_state", tasker.CaseStates()); state != "" {
		q.CaseState = state
	}
	if in.err != nil {
		return f, q, in.err
	}
	f = queueFilter{
		Single: in.Get("view") == "entries", Reason: in.Get("reason"), Namespace: q.Namespace, Name: q.Name, State: in.Get("state"),
		Age: in.Get("age"), Text: q.Text, Case: in.Get("case"), Recovered: in.Get("recovered"),
		CaseState: in.Get("case_state"), Owner: q.Owner, Unowned: in.Get("unowned"), FailedAgain: in.Get("failed_again"),
		Reasons: tasker.Reasons(), States: tasker.TaskStates(), Ages: ages,
		ByCase: req.buildLink("offset", "", "view", "", "case", ""),
		ByEntry: req.buildLink("offset", "", "view", "entries", "unowned", "", "owner", "", "case_state", "", "failed_again",
			""),
		Clear: Root + "/",
	}
	if f.Single {
		f.Clear += "?view=entries"
	}
	f.Narrowed = f.Reason+f.Namespace+f.Name+f.State+f.Age+f.Text+f.Recovered != ""
	f.Any = f.Narrowed || f.Case+f.CaseState+f.Owner+f.Unowned+f.FailedAgain != ""
	f.Resolved = f.CaseState == string(tasker.CaseResolved)
	if q.Case != nil {
		c, err := s.DB.Case(req.Context(), *q.Case)
		if err == nil {
			f.Case1 = &c
		} else if tasker.CodeOf(err) != tasker.NotFound {
			return f, q, err
		}
	}
	f.Names, err = s.suggestMatches(req)
	return f, q, err
}

// suggestions contains the values that the fields of a filter suggest.
type suggestions struct{ Namespaces, Templates []string }

func (s *server) suggestMatches(req *request) (out suggestions, err error) {
	names, err := s.DB.TemplateNames(req.withPermission(access.ReadTemplates).Context(), maxSuggestions)
	for _, n := range names {
		out.Namespaces = append(out.Namespaces, n.Namespace)
		out.Templates = append(out.Templates, n.Name)
	}
	slices.Sort(out.Templates)
	out.Namespaces, out.Templates = slices.Compact(out.Namespaces), slices.Compact(out.Templates)
	return out, err
}

const maxSuggestions = 200

// newCaseProgress shows the repair states of the investigations of a case.
func newCaseProgress(c tasker.CaseCounts) progress {
	return newProgress(int(c.Entries), []portion{
		{c.Waiting, "warn", "waiting"}, {c.Proving, "busy", "verifying"}, {c.FailedAgain, "bad", "failed again"},
		{c.Recovered, "good", "recovered"},
	})
}

func isSnoozed(c tasker.Case, now time.Time) bool {
	return c.SnoozedUntil != nil && c.SnoozedUntil.After(now)
}
