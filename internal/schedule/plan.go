package schedule

import (
	"fmt"
	"time"

	"tasker.example/tasker"
)

// Limits of one plan. The remainder is left to the next plan.
const (
	MaxWalk   = 10_000  // due firing times
	MaxPause  = 200_000 // firing times during a pause
	MaxStarts = 20      // tasks
)

// A Situation is the state of a schedule on which [Decide] bases its plan.
type Situation struct {
	Schedule tasker.Schedule
	Now      time.Time
	Open     *tasker.ID // oldest open task of the schedule, or nil
	Queued   bool       // a firing waits for open tasks to end
	Replaced bool       // the rule is being replaced: times up to now are due, regardless of jitter and pause
}

// A Row records the outcome of one firing time or several consecutive ones.
type Row struct {
	From, Until time.Time
	Instants    int64
	Outcome     tasker.FiringOutcome // if it is started, the caller must create a task
	Reason      string
	Late        time.Duration
}

// A Plan contains the outcomes of the due firing times. Once it is applied, these times are past.
type Plan struct {
	StartQueued bool // create a task for the queued firing
	CancelOpen  bool // cancel the open tasks first
	Unpause     bool // the pause is over
	Rows        []Row
	NextAt      *time.Time // first remaining firing time, or nil
	FireAt      *time.Time // when to plan again, or nil
}

// A planner builds the plan for a situation.
type planner struct {
	Situation
	rule    *Rule
	plan    Plan
	cursor  time.Time // first remaining firing time
	more    bool      // cursor is valid
	busy    string    // description of an open task, or empty
	started int
}

// Decide returns a plan with the outcomes of the due firing times and the next firing time.
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
			p.finish()
			p.plan.FireAt = until
			return p.plan
		}
		p.plan.Unpause = true
		if !p.passPause(*until) {
			p.plan.Unpause = false
			p.finish()
			p.plan.FireAt = &s.Now
			return p.plan
		}
	}
	if s.Queued && p.busy == "" {
		p.plan.StartQueued = true
		p.Queued = false
		p.busy = "the task of the queued firing has not ended"
	}
	p.passDue()
	p.finish()
	return p.plan
}

// passPause skips the firing times during a pause. It returns false if there are too many for one
// plan.
func (p *planner) passPause(until time.Time) bool {
	if p.Schedule.AfterEnd > 0 { // its firing time is delayed until the pause ends
		if p.more && p.cursor.Before(until) {
			p.cursor = until.UTC().Truncate(time.Second)
		}
		return true
	}
	for range MaxPause {
		if !p.more || !p.cursor.Before(until) {
			return true
		}
		p.skipDue(tasker.FiringSkipped, "paused", 0)
	}
	return !p.more || !p.cursor.Before(until)
}

// An instant is a due firing time.
type instant struct {
	at     time.Time
	late   time.Duration
	except string
}

// listDue returns at most MaxWalk due firing times and reports whether there are more.
func (p *planner) listDue() (list []instant, more bool) {
	for at, ok := p.cursor, p.more; ok; at, ok = p.rule.Next(at) {
		late, due := p.isDue(at)
		if !due {
			return list, false
		}
		if len(list) == MaxWalk {
			return list, true
		}
		list = append(list, instant{at, late, p.rule.ExceptionAt(at)})
	}
	return list, false
}

// isDue reports whether a firing time is due and how late it is.
func (p *planner) isDue(at time.Time) (late time.Duration, due bool) {
	late = p.Now.Sub(p.rule.FireAt(p.Schedule.UUID, at))
	return max(late, 0), late >= 0 || p.Replaced && !at.After(p.Now)
}

// isLate reports whether a firing time is late, so that the catch-up policy applies. An earlier
// firing can delay it by that firing's jitter, so it is late only after the maximum jitter.
func (p *planner) isLate(at time.Time) bool {
	return p.Now.Sub(at.Add(p.Schedule.Jitter)) > p.Schedule.StartWithin && p.Schedule.AfterEnd == 0
}

// countBehind returns how many due firing times follow one, ignoring exceptions. It counts at most
// limit and, if lateOnly is set, only late ones.
func (p *planner) countBehind(at time.Time, limit int, lateOnly bool) (n int) {
	for n < limit {
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

// passDue decides the due firing times.
func (p *planner) passDue() {
	list, more := p.listDue()
	late, eligible := 0, 0
	for _, i := range list {
		if i.except != "" {
			continue
		}
		eligible++
		if p.isLate(i.at) {
			late++
		}
	}
	others, othersLate := 0, 0 // due firing times that are not listed
	if more {
		last := list[len(list)-1].at
		others = p.countBehind(last, 1, false)
		if late > 0 {
			othersLate = p.countBehind(last, p.Schedule.CatchUpMax, true)
		}
	}
	keep := 0 // number of late firing times to start, from the last ones
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
			p.skipDue(tasker.FiringSkipped, "except "+i.except, i.late)
			continue
		case p.isLate(i.at) && dropped > 0:
			dropped--
			eligible--
			p.skipDue(tasker.FiringMissed, p.applyCatchUp(), i.late)
			continue
		}
		if p.started == MaxStarts {
			return
		}
		eligible--
		p.startAt(i, eligible+others > 0)
	}
}

// applyCatchUp returns the reason for dropping a late firing.
func (p *planner) applyCatchUp() string {
	switch p.Schedule.CatchUp {
	case tasker.CatchUpAll:
		return fmt.Sprintf("late, and catch_up is all, at most %d", p.Schedule.CatchUpMax)
	case tasker.CatchUpLast:
		return "late, and catch_up is last"
	default:
		return "late, and catch_up is none"
	}
}

// startAt decides a due firing time. The flag others reports whether more are due.
func (p *planner) startAt(i instant, others bool) {
	if p.Schedule.AfterEnd > 0 {
		p.passStart(i)
		p.more = false // until its task ends
		return
	}
	switch p.Schedule.Overlap {
	case tasker.OverlapSkip:
		if p.busy != "" {
			p.skipDue(tasker.FiringSkipped, "overlap is skip: "+p.busy, i.late)
			return
		}
	case tasker.OverlapQueue:
		switch {
		case p.busy != "" && !p.Queued:
			p.Queued = true
			p.skipDue(tasker.FiringQueued, "overlap is queue: "+p.busy, i.late)
			return
		case p.busy != "":
			p.skipDue(tasker.FiringMerged, "overlap is queue: another instant waits already", i.late)
			return
		}
	case tasker.OverlapCancel:
		if others {
			p.skipDue(tasker.FiringMerged, "overlap is cancel: a later instant is due as well", i.late)
			return
		}
		p.plan.CancelOpen = p.Open != nil
	case tasker.OverlapAllow:
	}
	p.busy = "the task of an earlier firing has not ended"
	p.passStart(i)
}

func (p *planner) passStart(i instant) {
	p.started++
	p.skipDue(tasker.FiringStarted, "", i.late)
}

// skipDue records the outcome of the current firing time and advances to the next one. Consecutive
// firing times with the same outcome and reason share a row if they create no tasks.
func (p *planner) skipDue(outcome tasker.FiringOutcome, reason string, late time.Duration) {
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

// Joins reports whether consecutive firing times with the outcome share a row.
func Joins(o tasker.FiringOutcome) bool {
	return o == tasker.FiringSkipped || o == tasker.FiringMerged || o == tasker.FiringMissed
}

// finish sets the next firing time of the plan, without and with jitter.
func (p *planner) finish() {
	if !p.more {
		return
	}
	next := p.cursor
	fire := next.Add(Jitter(p.Schedule.UUID, next, p.Schedule.Jitter))
	p.plan.NextAt, p.plan.FireAt = &next, &fire
}
