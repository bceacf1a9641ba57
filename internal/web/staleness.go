package web

import (
	"net/http"
	"net/url"

	"tasker.example/tasker"
)

func (s *server) stalenessRoutes() []route {
	return []route{{http.MethodGet, "/staleness", s.staleness}}
}

// stalenessPage is how near the watched tasks are to their thresholds.
type stalenessPage struct {
	Health tasker.Health // empty means all
	All    bool          // nothing is left out: there are no more tasks
	Counts []healthCount
	Rows   []stalenessRow
	Pager  pager
}

// A healthCount is a link that shows the tasks of one health.
type healthCount struct {
	Health tasker.Health // empty means all
	Tasks  int
	Href   string
	Here   bool
	Key    string
}

type stalenessRow struct {
	tasker.StalenessLine
	Bar bar
}

// healths are all, the most urgent first, as the store lists them.
var healths = []tasker.Health{tasker.Stale, tasker.Warning, tasker.Healthy}

// staleness shows the most urgent of the watched tasks. All that are read are
// counted, also those that a filter leaves out.
func (s *server) staleness(x *exchange) (*view, error) {
	health, err := choice(x, "health", healths)
	if err != nil {
		return nil, err
	}
	offset, err := x.number("offset", 0, 0, maxRows)
	if err != nil {
		return nil, err
	}
	list, err := s.DB.Staleness(x.Context(), maxRows)
	if err != nil {
		return nil, err
	}
	p := stalenessPage{Health: health, All: len(list) < maxRows, Counts: healthCounts(list, health)}
	for _, l := range list {
		if health == "" || l.Health == health {
			p.Rows = append(p.Rows, stalenessRow{l, barOf(l.TimeInStateMinutes, l.ThresholdMinutes)})
		}
	}
	from := min(offset, len(p.Rows))
	to := min(from+pageRows, len(p.Rows))
	p.Pager = pagerOf(x, from, pageRows, to-from, to < len(p.Rows))
	p.Rows = p.Rows[from:to]
	return &view{page: "staleness", title: "Staleness", nav: "Staleness", live: true, body: p}, nil
}

func healthCounts(list []tasker.StalenessLine, here tasker.Health) []healthCount {
	tasks := map[tasker.Health]int{"": len(list)}
	for _, l := range list {
		tasks[l.Health]++
	}
	out := []healthCount{{Tasks: tasks[""], Href: Root + "/staleness", Here: here == "", Key: "a"}}
	keys := map[tasker.Health]string{tasker.Stale: "s", tasker.Warning: "w", tasker.Healthy: "h"}
	for _, h := range healths {
		out = append(out, healthCount{
			Health: h, Tasks: tasks[h], Href: Root + "/staleness?" + url.Values{"health": {string(h)}}.Encode(), Here: here == h, Key: keys[h],
		})
	}
	return out
}
