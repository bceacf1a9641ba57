package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// dashboardPage shows statistics of investigations and the state of sinks and queues.
type dashboardPage struct {
	Open, Ended int64
	Oldest      *time.Time // open investigation
	Cases       []caseLine // most costly
	AllCases    int64      // number of open cases
	ToResolve   float64    // average in minutes
	Reasons     []reasonLine
	Windows     []link // of the charts
	Charts      []chart
	Times       []phaseLine // of the last 24 hours
	Capped      bool        // the charts are limited
	SeesSinks   bool
	Sinks       []sinkLine
	Unserved    []unservedQueue
}

// unservedQueue is a queue without a live worker.
type unservedQueue struct {
	tasker.Queue
	Steps int // enqueued or waiting for a worker
	Path  string
}

// reasonLine contains the statistics of one reason.
type reasonLine struct {
	tasker.EntryStats
	Path string // list of the open ones
}

func (s *server) showDashboard(req *request) (*view, error) {
	p := dashboardPage{}
	list, err := s.DB.EntryStats(req.Context())
	if err != nil {
		return nil, err
	}
	p.addReasons(list)
	if err := s.addCases(req, &p); err != nil {
		return nil, err
	}
	if err := s.addCharts(req, &p); err != nil {
		return nil, err
	}
	return &view{page: "dashboard", title: "Dashboard", nav: "Dashboard", live: true, body: p}, s.addParts(req, &p)
}

// addReasons adds the statistics of each reason and computes the totals.
func (p *dashboardPage) addReasons(list []tasker.EntryStats) {
	minutes := 0.0
	for _, r := range list {
		p.Reasons = append(p.Reasons, reasonLine{r, Root + "/?reason=" + string(r.Reason)})
		ended := r.Total - r.Pending
		p.Open, p.Ended = p.Open+r.Pending, p.Ended+ended
		if r.AvgResolutionTimeMinutes != nil {
			minutes += *r.AvgResolutionTimeMinutes * float64(ended)
		}
	}
	if p.Ended > 0 {
		p.ToResolve = minutes / float64(p.Ended)
	}
}

const worstCases = 10

// addCases adds the most costly cases and the oldest open investigation.
func (s *server) addCases(req *request, p *dashboardPage) error {
	if p.Open == 0 {
		return nil
	}
	list, totals, _, err := s.DB.CasePage(req.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: worstCases}})
	p.Cases, p.AllCases, p.Oldest = newCaseLines(list), totals.Cases, totals.Oldest
	return err
}

// window is the time range of the charts.
type window struct {
	Name   string // parameter value
	Title  string
	Width  time.Duration // of a column
	Count  int           // of columns
	Layout string        // of labels
	Each   int           // labels every nth column
}

var windows = []window{
	{"hour", "the last hour", time.Minute, 60, "15:04", 10},
	{"day", "the last 24 hours", time.Hour, 24, "15:04", 4},
	{"month", "the last 30 days", 24 * time.Hour, 30, "01-02", 5},
}

type chart struct {
	ID, Title string
	plot
}

// phaseLine is the duration of a phase of recently ended cases.
type phaseLine struct {
	tasker.PhaseTime
	Does string
}

var phaseDoes = map[tasker.Phase]string{
	tasker.PhaseAcknowledge: "until the first operator action", tasker.PhaseOwn: "until the case had an owner", tasker.PhaseRepair: "until the last repair",
	tasker.PhaseProve: "from the repair to its verification", tasker.PhaseResolve: "until the investigations ended",
}

// addCharts draws the selected window; the default is the last hour. It draws only one, because the
// cost grows with the investigations of the window.
func (s *server) addCharts(req *request, p *dashboardPage) error {
	q := req.query()
	over := max(slices.IndexFunc(windows, func(w window) bool { return w.Name == q.Get("over") }), 0)
	w := windows[over]
	if readChoice(q, "over", []string{"hour", "day", "month"}); q.err != nil {
		return q.err
	}
	for _, each := range windows {
		p.Windows = append(p.Windows, link{Name: each.Title, Path: Root + "/dashboard?over=" + each.Name, Here: each == w})
	}
	since := req.now.UTC().Truncate(w.Width).Add(-time.Duration(w.Count-1) * w.Width)
	counts, err := s.DB.EntryCounts(req.Context(), since, w.Width)
	if err != nil {
		return err
	}
	p.draw(w, counts)
	if w.Name != "day" {
		return nil
	}
	times, err := s.DB.EntryTimes(req.Context(), req.now.Add(-24*time.Hour))
	for _, t := range times.Times {
		p.Times = append(p.Times, phaseLine{t, phaseDoes[t.Phase]})
	}
	return err
}

// draw draws the charts of a window.
func (p *dashboardPage) draw(w window, counts []tasker.EntryCount) {
	var changes, open []point
	texts := []string{"Open in " + w.Title}
	for i, c := range counts {
		at := c.From.UTC()
		pt := point{Name: at.Format("2006-01-02 15:04") + " UTC", Values: []int64{c.Opened, c.Ended, c.Proved}}
		if i%w.Each == 0 {
			pt.Label = at.Format(w.Layout)
		}
		changes = append(changes, pt)
		if pt.Values = []int64{0}; c.Open == nil {
			p.Capped = true
		} else {
			pt.Values[0] = *c.Open
		}
		open = append(open, pt)
		if i == 0 || i == len(counts)-1 {
			texts = append(texts, fmt.Sprintf("%s at the end of %s", formatCount(pt.Values[0], ""), pt.Name))
		}
	}
	openPlot := drawPlot("", []series{{"open", "busy"}}, open)
	openPlot.Label = strings.Join(texts, ", ")
	p.Charts = []chart{
		{"open", "Open in " + w.Title, openPlot},
		{"counts", "Opened, ended and verified in " + w.Title, drawPlot("In "+w.Title, []series{{"opened", "bad"}, {"ended", "busy"}, {"verified", "good"}}, changes)},
	}
}

// addParts adds the sinks and the queues without a live worker.
func (s *server) addParts(req *request, p *dashboardPage) error {
	if p.SeesSinks = req.canSee(access.ReadSystem); p.SeesSinks {
		names, err := s.DB.Sinks(req.Context())
		if err != nil {
			return err
		}
		if p.Sinks, err = s.listSinkLines(req, names); err != nil {
			return err
		}
	}
	queues, err := s.DB.Queues(req.withPermission(access.ReadWorkers).Context(), "", pageRows)
	for _, q := range queues {
		if q.Unserved {
			p.Unserved = append(p.Unserved, unservedQueue{Queue: q, Steps: q.Queued + q.AwaitingWorker, Path: queuePath(q.Namespace, q.Handler)})
		}
	}
	return err
}

// stalenessPage lists the watched tasks, closest to their staleness limit first.
type stalenessPage struct {
	Filter     tasker.StalenessFilter
	Namespaces []string
	Clear      string // the page without namespace and name; empty if neither is set
	Counts     []healthCount
	Rows       []stalenessRow
	Pager      pager
}

// healthCount links to the tasks of one health.
type healthCount struct {
	Health tasker.Health // empty for all
	Tasks  int64
	More   bool // there may be more
	Href   string
	Here   bool
	Key    string
}

type stalenessRow struct {
	tasker.StaleTask
	Bar bar
}

func (s *server) showStaleness(req *request) (*view, error) {
	q := req.query()
	f := tasker.StalenessFilter{
		Health: readChoice(q, "health", tasker.Healths()), Namespace: q.readText("namespace", 128),
		Name:  q.readText("name", 128),
		Limit: pageRows + 1, Offset: q.readOffset(),
	}
	if q.err != nil {
		return nil, q.err
	}
	list, err := s.DB.Staleness(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := stalenessPage{Filter: f}
	if f.Namespace+f.Name != "" {
		p.Clear = req.buildLink("namespace", "", "name", "", "offset", "")
	}
	for _, l := range list[:min(len(list), pageRows)] {
		p.Rows = append(p.Rows, stalenessRow{l, newBar(l.TimeInStateMinutes, l.ThresholdMinutes)})
	}
	p.Pager = req.newPager(f.Offset, pageRows, len(p.Rows), len(list) > pageRows)
	if p.Counts, err = s.countHealth(req, f); err != nil {
		return nil, err
	}
	if p.Namespaces, err = s.DB.Namespaces(req.Context()); err != nil {
		return nil, err
	}
	return &view{page: "staleness", title: "Staleness", nav: "Staleness", live: true, body: p}, nil
}

// countHealth counts the tasks of each health that match the rest of the filter. Counting stops
// at maxRows.
func (s *server) countHealth(req *request, f tasker.StalenessFilter) ([]healthCount, error) {
	f.Limit = maxRows
	counts, err := s.DB.CountStaleness(req.Context(), f, tasker.Healths()...)
	if err != nil {
		return nil, err
	}
	out := []healthCount{{Key: "a"}}
	for i, h := range tasker.Healths() {
		c := healthCount{Health: h, Key: []string{"s", "w", "h"}[i]}
		for _, n := range counts {
			if n.Health == h {
				c.Tasks += n.Tasks
			}
		}
		c.More = c.Tasks >= maxRows
		out[0].Tasks, out[0].More = out[0].Tasks+c.Tasks, out[0].More || c.More
		out = append(out, c)
	}
	for i := range out {
		out[i].Href, out[i].Here = req.buildLink("health", string(out[i].Health), "offset", ""), out[i].Health == f.Health
	}
	return out, nil
}

// workersPage lists workers, queues and weights.
type workersPage struct {
	Workers    []tasker.Worker
	Pager      pager
	Queues     []queueLine
	MoreQueues bool
	Unserved   int // of the listed queues
	Weights    []tasker.NamespaceWeight
	Weigh      string // form to set a weight; empty without permission
}

type queueLine struct {
	tasker.Queue
	Path string
}

// FewHandlers returns the number of a worker's handlers up to which the list is not folded.
func (workersPage) FewHandlers() int { return 4 }

func (s *server) showWorkers(req *request) (*view, error) {
	q := req.query()
	offset := q.readOffset()
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.DB.Workers(req.Context(), pageRows, offset)
	if err != nil {
		return nil, err
	}
	queues, err := s.DB.Queues(req.Context(), "", pageRows+1)
	if err != nil {
		return nil, err
	}
	p := workersPage{Workers: list, Pager: req.newPager(offset, pageRows, len(list), more), MoreQueues: len(queues) > pageRows}
	for _, queue := range queues[:min(len(queues), pageRows)] {
		p.Queues = append(p.Queues, queueLine{queue, queuePath(queue.Namespace, queue.Handler)})
		if queue.Unserved {
			p.Unserved++
		}
	}
	if p.Weights, err = s.DB.NamespaceWeights(req.Context()); err != nil {
		return nil, err
	}
	if !s.ReadOnly && req.canSee(access.Administer) {
		p.Weigh = Root + weightPath
	}
	return &view{page: "workers", title: "Workers", nav: "Workers", live: true, body: p}, nil
}

// newDrainForm is the form to drain a worker.
type drainForm struct {
	*server
	form
	tasker.Worker
	Silent bool // no recent heartbeat
}

func (s *server) newDrainForm(req *request) (*drainForm, error) {
	w, err := findByID(req, "worker", s.DB.WorkerWithHealth)
	if err != nil {
		return nil, err
	}
	f := form{page: "drain", title: "Drain worker " + w.Name, nav: "Workers", Button: "Drain this worker", Shortcut: "x", Back: Root + "/workers"}
	f.Command = newCommand(req, []string{"worker", "drain", w.UUID.String()}, http.MethodPost, "/v1/workers/"+w.UUID.String()+"/drain", nil)
	return &drainForm{server: s, form: f, Worker: w, Silent: w.Health == tasker.WorkerStale || w.Health == tasker.WorkerGone}, nil
}

func (f *drainForm) do(req *request) (*view, error) {
	err := f.Engine.DrainWorker(req.Context(), f.UUID)
	if tasker.CodeOf(err) == tasker.NotFound {
		err = tasker.Errorf(tasker.Conflict, "worker %s no longer exists", f.UUID)
	}
	return &view{next: f.Back, note: fmt.Sprintf("Worker %s is draining: it claims no steps, finishes its current ones and leaves.", f.Name)}, err
}
