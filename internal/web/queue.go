package web

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"tasker.example/tasker"
)

func (s *server) queueRoutes() []route {
	return []route{{http.MethodGet, "/{$}", s.queue}}
}

// A queuePage is what needs a human, the most urgent first: cases, or, with
// ?view=entries, single investigations.
type queuePage struct {
	Filter  queueFilter
	Cases   []caseLine
	Entries []tasker.QueueEntry
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

func (s *server) queue(x *exchange) (*view, error) {
	f, q, err := s.readQueueFilter(x)
	if err != nil {
		return nil, err
	}
	p := queuePage{Filter: f}
	var more bool
	if f.Single {
		p.Entries, more, err = s.DB.InvestigationQueue(x.Context(), q)
		p.Pager = pagerOf(x, q.Offset, q.Limit, len(p.Entries), more)
	} else {
		var cases []tasker.Case
		cases, more, err = s.DB.Cases(x.Context(), q)
		p.Pager = pagerOf(x, q.Offset, q.Limit, len(cases), more)
		p.setCases(x, cases)
		if err == nil && (more || q.Offset > 0) {
			p.Totals, err = s.DB.CaseTotals(x.Context(), q)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(p.Entries)+len(p.Cases) == 0 && !f.Any {
		list, err := s.DB.Staleness(x.Context(), 1)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			p.Nearest = &list[0]
		}
	}
	return &view{page: "queue", title: "Investigation queue", nav: "Queue", live: true, body: p}, nil
}

// setCases links each case to its entries; a case of one leads to it.
func (p *queuePage) setCases(x *exchange, cases []tasker.Case) {
	for _, c := range cases {
		q := x.URL.Query()
		q.Del("offset")
		q.Set("view", "entries")
		q.Set("case", c.Key.String())
		line := caseLine{Case: c, Cause: tasker.CauseOf(c.Reason, c.DetailCode), Path: Root + "/?" + q.Encode()}
		if c.Entries == 1 {
			line.Path = Root + "/investigations/" + c.EntryUUID.String()
		}
		p.Cases = append(p.Cases, line)
		p.Totals.Entries += c.Entries
	}
	p.Totals.Cases = int64(len(cases))
}

// readQueueFilter reads the query, for the form and for the store.
func (s *server) readQueueFilter(x *exchange) (f queueFilter, q tasker.QueueFilter, err error) {
	in := x.URL.Query()
	f = queueFilter{
		Single: in.Get("view") == "entries", Reason: in.Get("reason"), Namespace: in.Get("namespace"), Name: in.Get("template"), State: in.Get("state"),
		Age: in.Get("age"), Text: in.Get("text"), Case: in.Get("case"), Recovered: in.Get("recovered"),
		Reasons: tasker.Reasons(), States: tasker.TaskStates(), Ages: ages,
	}
	f.ByCase, f.ByEntry = otherView(in, ""), otherView(in, "entries")
	for name, field := range map[string]*string{"namespace": &f.Namespace, "template": &f.Name, "text": &f.Text} {
		if *field, err = x.word(name); err != nil {
			return f, q, err
		}
	}
	q = tasker.QueueFilter{Namespace: f.Namespace, Name: f.Name, Text: f.Text}
	if q.Reason, err = choice(x, "reason", tasker.Reasons()); err != nil {
		return f, q, err
	}
	if q.State, err = choice(x, "state", tasker.TaskStates()); err != nil {
		return f, q, err
	}
	if q.Limit, err = x.number("limit", pageRows, 1, maxRows); err != nil {
		return f, q, err
	}
	if q.Offset, err = x.number("offset", 0, 0, maxOffset); err != nil {
		return f, q, err
	}
	if f.Age != "" {
		if q.Age, err = time.ParseDuration(f.Age); err != nil || q.Age < 0 {
			return f, q, tasker.Errorf(tasker.Invalid, "age must be a length such as 15m or 4h, not %q", clip(f.Age, 40))
		}
	}
	if f.Recovered != "" {
		recovered, err := strconv.ParseBool(f.Recovered)
		if err != nil {
			return f, q, tasker.Errorf(tasker.Invalid, "recovered must be true or false, not %q", clip(f.Recovered, 40))
		}
		q.Recovered = &recovered
	}
	if f.Case != "" {
		var key tasker.ID
		if key.UnmarshalText([]byte(f.Case)) != nil {
			return f, q, tasker.Errorf(tasker.Invalid, "case must be the key of a case, not %q", clip(f.Case, 40))
		}
		q.Case = &key
		if f.Case1, err = s.caseOf(x, key); err != nil {
			return f, q, err
		}
	}
	f.Any = f.Reason+f.Namespace+f.Name+f.State+f.Age+f.Text+f.Case+f.Recovered != ""
	f.Names, err = s.suggest(x)
	return f, q, err
}

// suggestions are what the fields of a filter propose.
type suggestions struct{ Namespaces, Templates []string }

func (s *server) suggest(x *exchange) (out suggestions, err error) {
	names, err := s.DB.TemplateNames(x.Context(), maxSuggestions)
	for _, n := range names {
		out.Namespaces = append(out.Namespaces, n.Namespace)
		out.Templates = append(out.Templates, n.Name)
	}
	slices.Sort(out.Templates)
	out.Namespaces, out.Templates = slices.Compact(out.Namespaces), slices.Compact(out.Templates)
	return out, err
}

const maxSuggestions = 200

// caseOf is the open case of a key; nil when there is none any more.
func (s *server) caseOf(x *exchange, key tasker.ID) (*tasker.Case, error) {
	list, _, err := s.DB.Cases(x.Context(), tasker.QueueFilter{Case: &key, Limit: 1})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// otherView is this list by case, or by entry.
func otherView(q url.Values, name string) string {
	other := maps.Clone(q)
	other.Del("offset")
	other.Del("view")
	if name != "" {
		other.Set("view", name)
	} else {
		other.Del("case")
	}
	if len(other) == 0 {
		return Root + "/"
	}
	return Root + "/?" + other.Encode()
}
