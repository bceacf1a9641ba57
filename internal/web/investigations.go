package web

import (
	"slices"

	"tasker.example/tasker"
)

// An investigationsPage lists what needs a human, the most urgent first: cases, or, with
// ?view=entries, single investigations.
type investigationsPage struct {
	Filter  queueFilter
	Cases   []caseLine
	Entries []tasker.InvestigationQueueEntry
	Pager   pager

	Totals  tasker.CaseTotals     // of all pages
	Nearest *tasker.StalenessLine // when nothing is open: the task that may be next
}

// A caseLine is one case, with where its link leads.
type caseLine struct {
	tasker.Case
	Cause tasker.Cause
	Path  string
}

// A queueFilter is the form above the list, as it was sent.
type queueFilter struct {
	Single                                    bool // entries, not cases
	Reason, Namespace, Name, State, Age, Text string
	Case                                      string
	Recovered                                 string
	Case1                                     *tasker.Case // the one that Case names, while it is open

	Any     bool // it leaves something out
	ByCase  string
	ByEntry string
	Reasons []tasker.Reason
	States  []tasker.TaskState
	Ages    []ageChoice
	Names   suggestions
}

// An ageChoice is one of the ages to choose from.
type ageChoice struct{ Value, Name string }

var ages = []ageChoice{{"15m", "15 min"}, {"1h", "1 h"}, {"4h", "4 h"}, {"24h", "1 day"}, {"168h", "7 days"}}

func (s *server) investigations(req *request) (*view, error) {
	f, q, err := s.readFilter(req)
	if err != nil {
		return nil, err
	}
	p := investigationsPage{Filter: f}
	if err := s.list(req, &p, q); err != nil {
		return nil, err
	}
	if len(p.Entries)+len(p.Cases) == 0 && !f.Any {
		list, err := s.DB.Staleness(req.Context(), 1)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			p.Nearest = &list[0]
		}
	}
	return &view{page: "queue", title: "Investigation queue", nav: navInvestigations, live: true, body: p}, nil
}

// list reads the cases, or the single investigations, of a page.
func (s *server) list(req *request, p *investigationsPage, q tasker.InvestigationFilter) error {
	if p.Filter.Single {
		list, more, err := s.DB.InvestigationQueue(req.Context(), q)
		p.Entries, p.Pager = list, req.pager(q.Offset, q.Limit, len(list), more)
		return err
	}
	cases, more, err := s.DB.Cases(req.Context(), q)
	if err != nil {
		return err
	}
	p.Pager = req.pager(q.Offset, q.Limit, len(cases), more)
	for _, c := range cases {
		line := caseLine{Case: c, Cause: tasker.CauseOf(c.Reason, c.DetailCode), Path: entryPath(c.EntryUUID)}
		if c.Entries > 1 {
			line.Path = req.link("offset", "", "view", "entries", "case", c.Key.String())
		}
		p.Cases = append(p.Cases, line)
		p.Totals.Entries += c.Entries
	}
	if p.Totals.Cases = int64(len(cases)); more || q.Offset > 0 {
		p.Totals, err = s.DB.CaseTotals(req.Context(), q)
	}
	return err
}

// readFilter reads the query, for the form and for the store.
func (s *server) readFilter(req *request) (f queueFilter, q tasker.InvestigationFilter, err error) {
	in := req.query()
	q = tasker.InvestigationFilter{
		Reason: choice(in, "reason", tasker.Reasons()), State: choice(in, "state", tasker.TaskStates()), Age: in.duration("age"), Recovered: in.flag("recovered"),
		Namespace: in.text("namespace", maxText), Name: in.text("template", maxText), Text: in.text("text", maxText), Case: in.id("case"),
		Limit: in.number("limit", pageRows, 1, maxRows), Offset: in.offset(),
	}
	if in.err != nil {
		return f, q, in.err
	}
	f = queueFilter{
		Single: in.Get("view") == "entries", Reason: in.Get("reason"), Namespace: q.Namespace, Name: q.Name, State: in.Get("state"),
		Age: in.Get("age"), Text: q.Text, Case: in.Get("case"), Recovered: in.Get("recovered"),
		Reasons: tasker.Reasons(), States: tasker.TaskStates(), Ages: ages,
		ByCase: req.link("offset", "", "view", "", "case", ""), ByEntry: req.link("offset", "", "view", "entries"),
	}
	f.Any = f.Reason+f.Namespace+f.Name+f.State+f.Age+f.Text+f.Case+f.Recovered != ""
	if q.Case != nil {
		list, _, err := s.DB.Cases(req.Context(), tasker.InvestigationFilter{Case: q.Case, Limit: 1})
		if err != nil {
			return f, q, err
		}
		if len(list) > 0 {
			f.Case1 = &list[0]
		}
	}
	f.Names, err = s.suggest(req)
	return f, q, err
}

// suggestions are what the fields of a filter propose.
type suggestions struct{ Namespaces, Templates []string }

func (s *server) suggest(req *request) (out suggestions, err error) {
	names, err := s.DB.TemplateNames(req.Context(), maxSuggestions)
	for _, n := range names {
		out.Namespaces = append(out.Namespaces, n.Namespace)
		out.Templates = append(out.Templates, n.Name)
	}
	slices.Sort(out.Templates)
	out.Namespaces, out.Templates = slices.Compact(out.Namespaces), slices.Compact(out.Templates)
	return out, err
}

const maxSuggestions = 200
