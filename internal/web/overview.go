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

// dashboardPage is how many investigations there are, why, and how they went; and
// whether the parts of the system are well.
type dashboardPage struct {
	Open, Ended int64
	Oldest      *time.Time // of the open ones
	Cases       []caseLine // that cost most
	AllCases    int64      // that are open
	ToResolve   float64    // minutes, on average of all that ended
	Reasons     []reasonLine
	Windows     []link // of the charts
	Charts      []chart
	Times       []phaseLine // of the last 24 hours, with their chart only
	Capped      bool        // counting over time has stopped at its limit
	SeesSinks   bool
	Sinks       []sinkLine
	Unserved    []unservedQueue
}

// An unservedQueue is a queue that no live worker serves, with all steps that wait
// there: those that may be claimed, and those that wait until a worker lives.
type unservedQueue struct {
	tasker.Queue
	Steps int
	Path  string
}

// A reasonLine is the investigations of one reason.
type reasonLine struct {
	tasker.EntryStats
	Path string // those that are open
}

func (s *server) dashboard(req *request) (*view, error) {
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

// addReasons adds up what the statistics say of each reason.
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

// worstCases is how many cases the dashboard shows.
const worstCases = 10

// addCases adds the cases that cost most, and since when the oldest of all that are open waits.
func (s *server) addCases(req *request, p *dashboardPage) error {
	if p.Open == 0 {
		return nil
	}
	list, totals, _, err := s.DB.CasePage(req.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: worstCases}})
	p.Cases, p.AllCases, p.Oldest = caseLines(list), totals.Cases, totals.Oldest
	return err
}

// A window is the time that the dashboard draws, in columns of one width.
type window struct {
	Name   string // as the page's parameter has it
	Title  string
	Width  time.Duration
	Count  int    // of the columns
	Layout string // of what stands below a column
	Each   int    // labels every nth column
}

var windows = []window{
	{"hour", "the last hour", time.Minute, 60, "15:04", 10},
	{"day", "the last 24 hours", time.Hour, 24, "15:04", 4},
	{"month", "the last 30 days", 24 * time.Hour, 30, "01-02", 5},
}

// A chart is a plot below its heading.
type chart struct {
	ID, Title string
	plot
}

// A phaseLine is how long a phase of the cases took whose investigations ended of late.
type phaseLine struct {
	tasker.PhaseTime
	Does string
}

var phaseDoes = map[tasker.Phase]string{
	tasker.PhaseAcknowledge: "until a person did anything about it", tasker.PhaseOwn: "until somebody had the case", tasker.PhaseRepair: "until the last repair",
	tasker.PhaseProve: "from the repair to its proof", tasker.PhaseResolve: "until it ended",
}

// addCharts draws one window, the last hour unless the caller selects another. Each page draws one, because
// its cost grows with the investigations of the window.
func (s *server) addCharts(req *request, p *dashboardPage) error {
	var names []string
	for _, w := range windows {
		names = append(names, w.Name)
	}
	q := req.query()
	over := max(slices.Index(names, choice(q, "over", names)), 0)
	if q.err != nil {
		return q.err
	}
	for i, w := range windows {
		p.Windows = append(p.Windows, link{Name: w.Title, Path: Root + "/dashboard?over=" + w.Name, Here: i == over})
	}
	w := windows[over]
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

// draw draws the counts of a window.
func (p *dashboardPage) draw(w window, counts []tasker.EntryCount) {
	var came, open []point
	says := []string{"Open in " + w.Title}
	for i, c := range counts {
		at := c.From.UTC()
		pt := point{Name: at.Format("2006-01-02 15:04") + " UTC", Values: []int64{c.Opened, c.Ended, c.Proved}}
		if i%w.Each == 0 {
			pt.Label = at.Format(w.Layout)
		}
		came = append(came, pt)
		if pt.Values = []int64{0}; c.Open == nil {
			p.Capped = true
		} else {
			pt.Values[0] = *c.Open
		}
		open = append(open, pt)
		if i == 0 || i == len(counts)-1 {
			says = append(says, fmt.Sprintf("%s at the end of %s", count(pt.Values[0], ""), pt.Name))
		}
	}
	openPlot := drawPlot("", []series{{"open", "busy"}}, open)
	openPlot.Says = strings.Join(says, ", ")
	p.Charts = []chart{
		{"open", "Open in " + w.Title, openPlot},
		{"counts", "Opened, ended and proved in " + w.Title, drawPlot("In "+w.Title, []series{{"opened", "bad"}, {"ended", "busy"}, {"proved", "good"}}, came)},
	}
}

// addParts adds how the sinks are, and the queues that nobody takes from.
func (s *server) addParts(req *request, p *dashboardPage) error {
	if p.SeesSinks = req.sees(access.ReadSystem); p.SeesSinks {
		names, err := s.DB.Sinks(req.Context())
		if err != nil {
			return err
		}
		if p.Sinks, err = s.sinkLines(req, names); err != nil {
			return err
		}
	}
	queues, err := s.DB.Queues(req.within(access.ReadWorkers).Context(), "", pageRows)
	for _, q := range queues {
		if q.Unserved {
			p.Unserved = append(p.Unserved, unservedQueue{Queue: q, Steps: q.Queued + q.AwaitingWorker, Path: queuePath(q.Namespace, q.Handler)})
		}
	}
	return err
}

// stalenessPage is how near the watched tasks are to their thresholds.
type stalenessPage struct {
	Filter     tasker.StalenessFilter
	Namespaces []string
	Clear      string // the page without namespace and name; empty when there is neither
	Counts     []healthCount
	Rows       []stalenessRow
	Pager      pager
}

// A healthCount is a link that shows the tasks of one health.
type healthCount struct {
	Health tasker.Health // empty means all
	Tasks  int64
	More   bool // at least this many
	Href   string
	Here   bool
	Key    string
}

type stalenessRow struct {
	tasker.StaleTask
	Bar bar
}

// staleness shows a page of the watched tasks, the most urgent first.
func (s *server) staleness(req *request) (*view, error) {
	q := req.query()
	f := tasker.StalenessFilter{
		Health: choice(q, "health", tasker.Healths()), Namespace: q.text("namespace", 128), Name: q.text("name", 128),
		Limit: pageRows + 1, Offset: q.offset(),
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
		p.Clear = req.link("namespace", "", "name", "", "offset", "")
	}
	for _, l := range list[:min(len(list), pageRows)] {
		p.Rows = append(p.Rows, stalenessRow{l, barOf(l.TimeInStateMinutes, l.ThresholdMinutes)})
	}
	p.Pager = req.pager(f.Offset, pageRows, len(p.Rows), len(list) > pageRows)
	if p.Counts, err = s.healthCounts(req, f); err != nil {
		return nil, err
	}
	if p.Namespaces, err = s.DB.Namespaces(req.Context()); err != nil {
		return nil, err
	}
	return &view{page: "staleness", title: "Staleness", nav: "Staleness", live: true, body: p}, nil
}

// healthCounts counts up to maxRows tasks of each health that match the rest of the filter.
func (s *server) healthCounts(req *request, f tasker.StalenessFilter) ([]healthCount, error) {
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
		out[i].Href, out[i].Here = req.link("health", string(out[i].Health), "offset", ""), out[i].Health == f.Health
	}
	return out, nil
}

// workersPage is who executes steps, and what waits for them.
type workersPage struct {
	Workers    []tasker.Worker
	Pager      pager
	Queues     []queueLine
	MoreQueues bool // than are shown
	Unserved   int  // of those shown
	Weights    []tasker.NamespaceWeight
	Weigh      string // the form that sets one; empty where the caller may not
}

// A queueLine is a queue as a list shows it.
type queueLine struct {
	tasker.Queue
	Path string
}

// fewHandlers is how many handlers of a worker are shown without being asked for.
const fewHandlers = 4

// FewHandlers is how many handlers are shown at once.
func (workersPage) FewHandlers() int { return fewHandlers }

func (s *server) workers(req *request) (*view, error) {
	q := req.query()
	offset := q.offset()
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
	p := workersPage{Workers: list, Pager: req.pager(offset, pageRows, len(list), more), MoreQueues: len(queues) > pageRows}
	for _, queue := range queues[:min(len(queues), pageRows)] {
		p.Queues = append(p.Queues, queueLine{queue, queuePath(queue.Namespace, queue.Handler)})
		if queue.Unserved {
			p.Unserved++
		}
	}
	if p.Weights, err = s.DB.NamespaceWeights(req.Context()); err != nil {
		return nil, err
	}
	if !s.ReadOnly && req.sees(access.Administer) {
		p.Weigh = Root + weightPath
	}
	return &view{page: "workers", title: "Workers", nav: "Workers", live: true, body: p}, nil
}

// A drainForm stops a worker from claiming new steps.
type drainForm struct {
	*server
	form
	tasker.Worker
	Silent bool // no heartbeat for so long that the worker may be dead
}

func (s *server) drainForm(req *request) (*drainForm, error) {
	id, err := req.id("worker")
	if err != nil {
		return nil, err
	}
	w, err := s.DB.WorkerWithHealth(req.Context(), id)
	if err != nil {
		return nil, err
	}
	f := form{page: "drain", title: "Drain worker " + w.Name, nav: "Workers", Button: "Drain this worker", Shortcut: "x", Back: Root + "/workers"}
	f.Command = commandOf(req, []string{"worker", "drain", id.String()}, http.MethodPost, "/v1/workers/"+id.String()+"/drain", nil)
	return &drainForm{server: s, form: f, Worker: w, Silent: w.Health == tasker.WorkerStale || w.Health == tasker.WorkerGone}, nil
}

func (f *drainForm) do(req *request) (*view, error) {
	err := f.Engine.DrainWorker(req.Context(), f.UUID)
	if tasker.CodeOf(err) == tasker.NotFound {
		err = tasker.Errorf(tasker.Conflict, "worker %s has left: there is nothing to drain", f.UUID)
	}
	if err != nil {
		return nil, err
	}
	return &view{next: f.Back, note: fmt.Sprintf("Worker %s gets no new work. It finishes what it holds and leaves.", f.Name)}, nil
}
