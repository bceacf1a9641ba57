package web

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
)

type dashboardPage struct {
	Open, Ended int64
	Oldest      *time.Time    // open investigation
	Cases       []tasker.Case // most costly
	AllCases    int64         // number of open cases
	ToResolve   float64       // average in minutes
	Reasons     []tasker.EntryStats
	Windows     []link // of the charts
	Charts      []chart
	Times       []tasker.PhaseTime // of the last 24 hours
	Capped      bool               // the charts are limited
	SeesSinks   bool
	Sinks       []tasker.SinkState
	Unserved    []tasker.Queue // without a live worker
}

func (s *server) showDashboard(req *request) (*view, error) {
	p := dashboardPage{}
	p.addReasons(loadAll(req, s.DB.EntryStats))
	if p.Open > 0 {
		list, totals, _, err := s.DB.CasePage(req.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: worstCases}})
		req.fail(err)
		p.Cases, p.AllCases, p.Oldest = list, totals.TotalCases, totals.OldestEntry
	}
	s.addCharts(req, &p)
	s.addParts(req, &p)
	return &view{page: "dashboard", title: "Dashboard", nav: "Dashboard", live: true, body: p}, nil
}

// addReasons adds the statistics of each reason and computes the totals.
func (p *dashboardPage) addReasons(list []tasker.EntryStats) {
	p.Reasons = list
	minutes := 0.0
	for _, r := range list {
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

// addCharts draws the selected window; the default is the last hour. It draws only one, because the
// cost grows with the investigations of the window.
func (s *server) addCharts(req *request, p *dashboardPage) {
	q := req.query()
	over := max(slices.IndexFunc(windows, func(w window) bool { return w.Name == q.Get("over") }), 0)
	w := windows[over]
	readChoice(q, "over", []string{"hour", "day", "month"})
	for _, each := range windows {
		p.Windows = append(p.Windows, link{Name: each.Title, Path: Root + "/dashboard?over=" + each.Name, Here: each == w})
	}
	since := req.now.UTC().Truncate(w.Width).Add(-time.Duration(w.Count-1) * w.Width)
	counts, err := s.DB.EntryCounts(req.Context(), since, w.Width)
	req.fail(err)
	p.draw(w, counts)
	if w.Name == "day" {
		p.Times = load(req, s.DB.EntryTimes, req.now.Add(-24*time.Hour)).Times
	}
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
func (s *server) addParts(req *request, p *dashboardPage) {
	if p.SeesSinks = req.canSee(access.ReadSystem); p.SeesSinks {
		p.Sinks = s.listSinks(req, loadAll(req, s.DB.Sinks))
	}
	queues, err := s.DB.Queues(req.withPermission(access.ReadWorkers).Context(), "", pageRows)
	req.fail(err)
	p.Unserved = slices.DeleteFunc(queues, func(q tasker.Queue) bool { return !q.Unserved })
}

type stalenessPage struct {
	Filter     tasker.StalenessFilter
	Namespaces []string
	Clear      string // the page without namespace and name; empty if neither is set
	Counts     []healthCount
	Rows       []tasker.StaleTask
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

func (s *server) showStaleness(req *request) (*view, error) {
	q := req.query()
	f := tasker.StalenessFilter{
		Health: readChoice(q, "health", tasker.Healths()), Namespace: q.readText("namespace", 128),
		Name:  q.readText("name", 128),
		Limit: pageRows + 1, Offset: q.readOffset(),
	}
	p := stalenessPage{Filter: f}
	if f.Namespace+f.Name != "" {
		p.Clear = req.buildLink("namespace", "", "name", "", "offset", "")
	}
	p.Rows, p.Pager = cutPage(req, load(req, s.DB.Staleness, f), f.Offset, pageRows)
	p.Counts, p.Namespaces = s.countHealth(req, f), loadAll(req, s.DB.Namespaces)
	return &view{page: "staleness", title: "Staleness", nav: "Staleness", live: true, body: p}, nil
}

// countHealth counts the tasks of each health that match the rest of the filter. Counting stops
// at maxRows.
func (s *server) countHealth(req *request, f tasker.StalenessFilter) []healthCount {
	f.Limit = maxRows
	counts, err := s.DB.CountStaleness(req.Context(), f, tasker.Healths()...)
	req.fail(err)
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
	return out
}

type workersPage struct {
	Workers    []tasker.Worker
	Pager      pager
	Queues     []tasker.Queue
	MoreQueues bool
	Unserved   int // of the listed queues
	Weights    []tasker.NamespaceWeight
}

func (s *server) showWorkers(req *request) (*view, error) {
	offset := req.query().readOffset()
	list, more, err := s.DB.Workers(req.Context(), pageRows, offset)
	req.fail(err)
	queues, err := s.DB.Queues(req.Context(), "", pageRows+1)
	req.fail(err)
	p := workersPage{
		Workers: list, Pager: req.newPager(offset, pageRows, len(list), more),
		Weights: loadAll(req, s.DB.NamespaceWeights),
		Queues:  queues[:min(len(queues), pageRows)], MoreQueues: len(queues) > pageRows,
	}
	for _, queue := range p.Queues {
		if queue.Unserved {
			p.Unserved++
		}
	}
	return &view{page: "workers", title: "Workers", nav: "Workers", live: true, body: p}, nil
}

// drainForm is the form to drain a worker.
type drainForm struct {
	form
	tasker.Worker
	Silent bool // no recent heartbeat
}

// check accepts the form, which records no actor.
func (*drainForm) check() error { return nil }

func (s *server) newDrainForm(req *request) *drainForm {
	w := loadByID(req, "worker", s.DB.WorkerWithHealth)
	f := req.newForm(form{page: "drain", title: "Drain worker " + w.Name, nav: "Workers", Button: "Drain this worker",
		Shortcut: "x", Back: Root + "/workers"})
	f.Command = f.newCall(endpoint.DrainWorker, "worker drain", w.UUID.String()).format()
	return &drainForm{form: f, Worker: w, Silent: w.Health == tasker.WorkerStale || w.Health == tasker.WorkerGone}
}

func (f *drainForm) do(req *request) (*view, error) {
	err := f.Engine.DrainWorker(req.Context(), f.UUID)
	if tasker.CodeOf(err) == tasker.NotFound {
		err = tasker.Errorf(tasker.Conflict, "worker %s no longer exists", f.UUID)
	}
	return &view{next: f.Back, note: fmt.Sprintf("Worker %s is draining: it claims no steps, finishes its current ones and leaves.", f.Name)}, err
}

const weightPath = "/set-weight"

// weightForm is the form to set the weight of a namespace.
type weightForm struct {
	form
	Namespace, Weight string // as typed
}

func (s *server) newWeightForm(req *request) *weightForm {
	p := &weightForm{Namespace: req.trimmedValue("namespace"), Weight: req.trimmedValue("weight")}
	p.form = req.newForm(form{page: "weight", title: "Weight of a namespace", nav: "Workers", Button: "Set the weight", Back: Root + "/workers"})
	weight, err := strconv.ParseFloat(p.Weight, 64)
	if err != nil {
		weight = 1
	}
	c := p.newCall(endpoint.SetNamespace, "namespace weight", cmp.Or(p.Namespace, "NAMESPACE"))
	c.words = append(c.words, strconv.FormatFloat(weight, 'f', -1, 64))
	c.member("weight", &weight)
	p.Command = c.format()
	return p
}

func (p *weightForm) do(req *request) (*view, error) {
	weight, err := strconv.ParseFloat(p.Weight, 64)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid weight %q: must be a number from 0.01 to 1000",
			truncate(p.Weight, 40))
	}
	_, err = p.Engine.SetNamespaceWeight(req.Context(), p.Namespace, weight, p.Actor)
	return &view{next: p.Back, note: "The weight of namespace " + p.Namespace + " is " + p.Weight + "."}, err
}
