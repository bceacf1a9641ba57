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
	Cases   []tasker.Case
	Entries []tasker.InvestigationQueueEntry
	Pager   pager

	Totals  tasker.CaseTotals // of all pages
	Nearest *tasker.StaleTask // task closest to its staleness limit, if nothing is open
	Hides   bool              // errors are hidden
	Selects bool              // rows can be selected
	Acts    []link            // operations on all that match the filter
}

// queueFilter describes the form above the list. The form shows the query parameters.
type queueFilter struct {
	Single   bool         // investigations, not cases
	Case     *tasker.Case // whose investigations are listed
	Any      bool         // not empty
	Narrowed bool         // a field of the form is set
	HasChip  bool
	Resolved bool // cases without open investigations
	ByCase   string
	ByEntry  string
	Clear    string
	Names    suggestions
}

func (s *server) showQueue(req *request) (*view, error) {
	f, q := s.readFilter(req)
	p := queuePage{Filter: f, Selects: !s.ReadOnly && req.canSee(access.OperateSteps) && !f.Resolved}
	s.listCases(req, &p, q)
	s.addAll(req, &p, q.InvestigationFilter)
	if len(p.Entries)+len(p.Cases) == 0 && !f.Any && p.Totals.Unclassified == 0 {
		list := load(req.withPermission(access.ReadTasks), s.DB.Staleness, tasker.StalenessFilter{Limit: 1})
		if len(list) > 0 {
			p.Nearest = &list[0]
		}
	}
	return &view{page: "queue", title: "Cases", nav: navCases, live: true, body: p}, nil
}

// addAll adds links to plan operations on all investigations that match the filter. It adds none
// if a chip is active, because operations cannot select by it.
func (s *server) addAll(req *request, p *queuePage, f tasker.InvestigationFilter) {
	if !p.Selects || !p.Filter.Narrowed && f.Case == nil || p.Filter.HasChip {
		return
	}
	possible := s.countPossible(req, tasker.OperationSelection{Filter: f}, maxFitting)
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
}

// listCases reads the cases or the investigations of the page.
func (s *server) listCases(req *request, p *queuePage, f tasker.CaseFilter) {
	if p.Filter.Single {
		list, more := loadPage(req, s.DB.InvestigationQueue, f.InvestigationFilter)
		p.Entries, p.Pager = list, req.newPager(f.Offset, f.Limit, len(list), more)
		p.Hides = slices.ContainsFunc(list, func(e tasker.InvestigationQueueEntry) bool {
			return e.ErrorMessage == access.Hidden || e.ErrorPattern == access.Hidden
		})
		return
	}
	p.Chips = newFilterChips(req)
	list, totals, more, err := s.DB.CasePage(req.Context(), f)
	req.fail(err)
	p.Totals = totals
	p.Pager = req.newPager(f.Offset, f.Limit, len(list), more)
	p.Cases = list
	p.Hides = slices.ContainsFunc(list, func(c tasker.Case) bool { return c.ErrorPattern == access.Hidden })
}

// chipParameters are the query parameters of the chips. At most one chip is active at a time.
var chipParameters = []string{"unowned", "owner", "case_state", "failed_again"}

// newFilterChips returns the quick filters of the list of cases.
func newFilterChips(req *request) (chips []link) {
	add := func(name, parameter, value string) {
		pairs, here := []string{"offset", ""}, req.query().Get(parameter) == value
		for _, p := range chipParameters {
			if p == parameter && !here {
				pairs = append(pairs, p, value)
			} else {
				pairs = append(pairs, p, "")
			}
		}
		chips = append(chips, link{Name: name, Here: here, Path: req.buildLink(pairs...)})
	}
	add("unowned", "unowned", "true")
	if req.actor != "" {
		add("mine", "owner", req.actor)
	}
	add("new", "case_state", string(tasker.CaseNew))
	add("growing", "case_state", string(tasker.CaseEscalating))
	add("regressed", "case_state", string(tasker.CaseRegressed))
	add("failed again", "failed_again", "true")
	add("snoozed", "case_state", string(tasker.CaseResting))
	add("resolved", "case_state", string(tasker.CaseResolved))
	return chips
}

// readFilter parses the query. It returns the form and the filter for the database.
func (s *server) readFilter(req *request) (f queueFilter, q tasker.CaseFilter) {
	in := req.query()
	q = tasker.CaseFilter{
		InvestigationFilter: in.readInvestigationFilter(), CaseState: readChoice(in, "case_state", tasker.CaseStates()),
		Owner: in.readText("owner", maxName), Unowned: in.isOn("unowned"), FailedAgain: in.isOn("failed_again"),
	}
	q.Limit, q.Offset = in.readNumber("limit", pageRows, 1, maxRows), in.readOffset()
	f = queueFilter{
		Single: in.Get("view") == "entries", HasChip: in.hasAny(chipParameters...),
		Resolved: q.CaseState == tasker.CaseResolved,
		Narrowed: in.hasAny("reason", "namespace", "template", "state", "age", "text", "recovered"),
		ByCase:   req.buildLink("offset", "", "view", "", "case", ""),
		ByEntry: req.buildLink("offset", "", "view", "entries", "unowned", "", "owner", "", "case_state", "", "failed_again",
			""),
		Clear: Root + "/", Names: s.suggestMatches(req),
	}
	if f.Single {
		f.Clear += "?view=entries"
	}
	f.Any = f.Narrowed || f.HasChip || q.Case != nil
	if q.Case != nil {
		c, err := s.DB.Case(req.Context(), *q.Case)
		if err == nil {
			f.Case = &c
		} else if tasker.CodeOf(err) != tasker.NotFound {
			req.fail(err)
		}
	}
	return f, q
}

// suggestions contains the values that the fields of a filter suggest.
type suggestions struct{ Namespaces, Templates []string }

func (s *server) suggestMatches(req *request) (out suggestions) {
	for _, n := range load(req.withPermission(access.ReadTemplates), s.DB.TemplateNames, maxSuggestions) {
		out.Namespaces = append(out.Namespaces, n.Namespace)
		out.Templates = append(out.Templates, n.Name)
	}
	slices.Sort(out.Templates)
	out.Namespaces, out.Templates = slices.Compact(out.Namespaces), slices.Compact(out.Templates)
	return out
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
