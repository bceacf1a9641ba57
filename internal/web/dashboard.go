package web

import (
	"net/http"
	"time"

	"tasker.example/tasker"
)

func (s *server) dashboardRoutes() []route {
	return []route{{http.MethodGet, "/dashboard", s.dashboard}}
}

// dashboardPage is how many investigations there are, why, and how they went; and
// whether the parts of the system are well.
type dashboardPage struct {
	Open, Ended int64
	Oldest      *time.Time // of the open ones
	ToResolve   float64    // minutes, on average of all that ended
	Reasons     []reasonLine
	Hours, Days plot
	Capped      bool // counting over time has stopped at its limit
	Sinks       []sinkLine
	Unserved    []unservedQueue
}

// An unservedQueue is a queue that no live worker serves, with all steps that wait
// there: those that may be claimed, and those that wait until a worker lives.
type unservedQueue struct {
	tasker.Queue
	Steps int
}

// A reasonLine is the investigations of one reason.
type reasonLine struct {
	tasker.EntryStats
	Path string // those that are open
}

func (s *server) dashboard(x *exchange) (*view, error) {
	p := dashboardPage{}
	list, err := s.DB.EntryStats(x.Context())
	if err != nil {
		return nil, err
	}
	p.addReasons(list)
	if err := s.addOldest(x, &p); err != nil {
		return nil, err
	}
	if err := s.addTimes(x, &p); err != nil {
		return nil, err
	}
	return &view{page: "dashboard", title: "Dashboard", nav: "Dashboard", live: true, body: p}, s.addParts(x, &p)
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

// addOldest adds since when the oldest of the open ones waits.
func (s *server) addOldest(x *exchange, p *dashboardPage) error {
	if p.Open == 0 {
		return nil
	}
	totals, err := s.DB.CaseTotals(x.Context(), tasker.QueueFilter{})
	p.Oldest = totals.Oldest
	return err
}

// A stretch of time that the dashboard draws, in columns of one width.
type stretch struct {
	Name   string
	Since  time.Time
	Width  time.Duration
	Layout string // of what stands below a column
	Each   int    // below so-manieth
}

// addTimes draws the last day by the hour and the last month by the day.
func (s *server) addTimes(x *exchange, p *dashboardPage) (err error) {
	now := x.now.UTC()
	day := stretch{"In the last 24 hours", now.Truncate(time.Hour).Add(-23 * time.Hour), time.Hour, "15:04", 4}
	month := stretch{"In the last 30 days", now.Truncate(24 * time.Hour).Add(-29 * 24 * time.Hour), 24 * time.Hour, "01-02", 5}
	if p.Hours, err = s.counted(x, p, day); err != nil {
		return err
	}
	p.Days, err = s.counted(x, p, month)
	return err
}

// counted draws what was opened and what ended in a stretch of time.
func (s *server) counted(x *exchange, p *dashboardPage, of stretch) (plot, error) {
	counts, err := s.DB.EntryCounts(x.Context(), of.Since, of.Width)
	if err != nil {
		return plot{}, err
	}
	var points []point
	var opened, ended int64
	for i, c := range counts {
		at := c.From.UTC()
		pt := point{Name: at.Format("2006-01-02 15:04") + " UTC", Values: []int64{c.Opened, c.Ended}}
		if i%of.Each == 0 {
			pt.Label = at.Format(of.Layout)
		}
		points = append(points, pt)
		opened, ended = opened+c.Opened, ended+c.Ended
	}
	p.Capped = p.Capped || opened >= tasker.MaxEntryCount || ended >= tasker.MaxEntryCount
	return drawPlot(of.Name, []series{{"opened", "bad"}, {"ended", "good"}}, points), nil
}

// addParts adds how the sinks are, and the queues that nobody takes from.
func (s *server) addParts(x *exchange, p *dashboardPage) error {
	names, err := s.DB.Sinks(x.Context())
	if err != nil {
		return err
	}
	if p.Sinks, err = s.sinkLines(x, names); err != nil {
		return err
	}
	queues, err := s.DB.Queues(x.Context(), "", pageRows)
	for _, q := range queues {
		if q.Unserved {
			p.Unserved = append(p.Unserved, unservedQueue{Queue: q, Steps: q.Queued + q.AwaitingWorker})
		}
	}
	return err
}
