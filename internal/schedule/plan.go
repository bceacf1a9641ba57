package schedule

import (
	"fmt"
	"time"

	"tasker.example/tasker"
)

// Bounds of one plan. What is left is planned again.
const (
	MaxWalk   = 10_000  // instants that are due
	MaxPause  = 200_000 // instants that fell into a pause
	MaxStarts = 20      // tasks
)

// A Situation is what decides about the instants of a schedule that are due.
type Situation struct {
	Schedule tasker.Schedule
	Now      time.Time
	Open     *tasker.ID // the oldest of its tasks that have not ended
	Queued   bool       // an instant waits for them to end
	Replaced bool       // the rule ends now: instants until now are passed before their jitter, or their pause, is over
}

// A Row is what becomes of an instant, or of instants in a row.
type Row struct {
	From, Until time.Time
	Instants    int64
	Outcome     tasker.FiringOutcome // started: a task is to be made
	Reason      string
	Late        time.Duration
}

// A Plan is what becomes of the instants that are due. They are passed when it is done.
type Plan struct {
	StartQueued bool // a task is made for the instant that waits
	CancelOpen  bool // the tasks that have not ended are cancelled first
	Unpause     bool // the pause is over
	Rows        []Row
	NextAt      *time.Time // the first instant that is not passed
	FireAt      *time.Time // when to plan again
}

// planner makes a plan.
type planner struct {
	Situation
	rule    *Rule
	plan    Plan
	cursor  time.Time // the first instant that is not passed
	more    bool      // there is one
	busy    string    // the task that has not ended, as it is told; empty: none
	started int
}

// Decide says what becomes of the instants of a schedule that are due, and how it goes on.
func Decide(rule *Rule, s Situation) Plan {
	p := planner{Situation: s, rule: rule}
	if s.Open != nil {
		p.busy = fmt.Sprintf("task %s has not ended", s.Open)
	}
	if at := s.Schedule.NextAt; at != nil {
		p.cursor, p.more = *at, true
	}
	if s.Schedule.PausedAt != nil {
		until := s.Schedule.PausedUntil
		if until == nil || until.After(s.Now) {
			if s.Replaced && s.Schedule.AfterEnd == 0 {
				p.passPause(s.Now.Add(time.Nanosecond))
			}
			p.end()
			p.plan.FireAt = until
			return p.plan
		}
		p.plan.Unpause = true
		if !p.passPause(*until) {
			p.plan.Unpause = false
			p.end()
			p.plan.FireAt = &s.Now
			return p.plan
		}
	}
	if s.Queued && p.busy == "" {
		p.plan.StartQueued = true
		p.Queued = false
		p.busy = "the task of the instant that waited has not ended"
	}
	p.passDue()
	p.end()
	return p.plan
}

// passPause passes the instants that fell into a pause. It is false when there are too many at
// once.
func (p *planner) passPause(until time.Time) bool {
	if p.Schedule.AfterEnd > 0 { // its instant comes later, by the pause
		if p.more && p.cursor.Before(until) {
			p.cursor = until.UTC().Truncate(time.Second)
		}
		return true
	}
	for range MaxPause {
		if !p.more || !p.cursor.Before(until) {
			return true
		}
		p.pass(tasker.FiringSkipped, "paused", 0)
	}
	return !p.more || !p.cursor.Before(until)
}

// An instant that is due.
type instant struct {
	at     time.Time
	late   time.Duration
	except string
}

// due lists the instants that are due, and whether there are more than can be listed.
func (p *planner) due() (list []instant, more bool) {
	for at, ok := p.cursor, p.more; ok; at, ok = p.rule.Next(at) {
		late, due := p.isDue(at)
		if !due {
			return list, false
		}
		if len(list) == MaxWalk {
			return list, true
		}
		list = append(list, instant{at, late, p.rule.Excepted(at)})
	}
	return list, false
}

// isDue reports whether an instant has come, and how late that is noticed.
func (p *planner) isDue(at time.Time) (late time.Duration, due bool) {
	late = p.Now.Sub(p.rule.FireAt(p.Schedule.UUID, at))
	return max(late, 0), late >= 0 || p.Replaced && !at.After(p.Now)
}

// isLate reports whether an instant is one to catch up with. It may wait for the jitter of one
// before it, so it is not late before the whole jitter is over.
func (p *planner) isLate(at time.Time) bool {
	return p.Now.Sub(at.Add(p.Schedule.Jitter)) > p.Schedule.StartWithin && p.Schedule.AfterEnd == 0
}

// behind counts the instants after one that are due and not excepted, up to most.
func (p *planner) behind(at time.Time, most int, lateOnly bool) (n int) {
	for n < most {
		next, ok := p.rule.nextWithoutException(at, p.Now)
		if !ok {
			break
		}
		if _, due := p.isDue(next); !due {
			break
		}
		if !lateOnly || p.isLate(next) {
			n++
		}
		at = next
	}
	return n
}

// passDue passes the instants that are due.
func (p *planner) passDue() {
	list, more := p.due()
	late, eligible := 0, 0
	for _, i := range list {
		switch {
		case i.except != "":
		case p.isLate(i.at):
			late++
			eligible++
		default:
			eligible++
		}
	}
	others, othersLate := 0, 0 // of those that are due and not listed
	if more {
		last := list[len(list)-1].at
		others = p.behind(last, 1, false)
		if late > 0 {
			othersLate = p.behind(last, p.Schedule.CatchUpMax, true)
		}
	}
	keep := 0 // of those that are late, the last so many
	switch p.Schedule.CatchUp {
	case tasker.CatchUpAll:
		keep = min(p.Schedule.CatchUpMax-othersLate, late)
	case tasker.CatchUpLast:
		if late == eligible && others == 0 {
			keep = min(1, late)
		}
	case tasker.CatchUpNone:
	}
	dropped := late - keep
	for _, i := range list {
		switch {
		case i.except != "":
			p.pass(tasker.FiringSkipped, "except "+i.except, i.late)
			continue
		case p.isLate(i.at) && dropped > 0:
			dropped--
			eligible--
			p.pass(tasker.FiringMissed, p.catchUp(), i.late)
			continue
		}
		if p.started == MaxStarts {
			return
		}
		eligible--
		p.start(i, eligible+others > 0)
	}
}

// catchUp says why an instant that came late is not made up for.
func (p *planner) catchUp() string {
	switch p.Schedule.CatchUp {
	case tasker.CatchUpAll:
		return fmt.Sprintf("late, and catch_up is all, at most %d", p.Schedule.CatchUpMax)
	case tasker.CatchUpLast:
		return "late, and catch_up is last"
	default:
		return "late, and catch_up is none"
	}
}

// start passes an instant at which a task is due. others says that more such instants are due.
func (p *planner) start(i instant, others bool) {
	if p.Schedule.AfterEnd > 0 {
		p.passStart(i)
		p.more = false // until its end
		return
	}
	switch p.Schedule.Overlap {
	case tasker.OverlapSkip:
		if p.busy != "" {
			p.pass(tasker.FiringSkipped, "overlap is skip: "+p.busy, i.late)
			return
		}
	case tasker.OverlapQueue:
		switch {
		case p.busy != "" && !p.Queued:
			p.Queued = true
			p.pass(tasker.FiringQueued, "overlap is queue: "+p.busy, i.late)
			return
		case p.busy != "":
			p.pass(tasker.FiringMerged, "overlap is queue: another instant waits already", i.late)
			return
		}
	case tasker.OverlapCancel:
		if others {
			p.pass(tasker.FiringMerged, "overlap is cancel: a later instant is due as well", i.late)
			return
		}
		p.plan.CancelOpen = p.Open != nil
	case tasker.OverlapAllow:
	}
	p.busy = "the task of an instant before has not ended"
	p.passStart(i)
}

func (p *planner) passStart(i instant) {
	p.started++
	p.pass(tasker.FiringStarted, "", i.late)
}

// pass passes the instant of the cursor, in a row with those before it if their fate is the
// same and made no task.
func (p *planner) pass(outcome tasker.FiringOutcome, reason string, late time.Duration) {
	at := p.cursor
	p.cursor, p.more = p.rule.Next(at)
	if n := len(p.plan.Rows); n > 0 && Joins(outcome) {
		if last := &p.plan.Rows[n-1]; last.Outcome == outcome && last.Reason == reason {
			last.Until, last.Instants = at, last.Instants+1
			return
		}
	}
	p.plan.Rows = append(p.plan.Rows, Row{From: at, Until: at, Instants: 1, Outcome: outcome, Reason: reason, Late: late})
}

// Joins reports whether instants in a row that have this outcome share a firing.
func Joins(o tasker.FiringOutcome) bool {
	return o == tasker.FiringSkipped || o == tasker.FiringMerged || o == tasker.FiringMissed
}

// end notes how the schedule goes on.
func (p *planner) end() {
	if !p.more {
		return
	}
	next := p.cursor
	fire := next.Add(Jitter(p.Schedule.UUID, next, p.Schedule.Jitter))
	p.plan.NextAt, p.plan.FireAt = &next, &fire
}
