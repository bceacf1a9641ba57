// Package notice decides what people are told of cases, when, and by which routes.
//
// It is a function of what is known, what was told, and the clock: it reads and writes
// nothing. People are told of incidents: cases of one namespace that they were first told of within
// ten minutes. A case that is small, or that somebody works on, is not worth a message.
package notice

import (
	"cmp"
	"slices"
	"time"

	"tasker.example/tasker"
)

// When people are told.
const (
	Members = 5                // investigations that make a case worth a message
	Gather  = 15 * time.Second // from its first investigation on, so that one message has all
	Join    = 10 * time.Minute // cases that are told of within it are one incident
	Rest    = 5 * time.Minute  // between two messages of one incident
	Grown   = 10               // times as many investigations are told of although somebody has the case

	EscalateNext = 15 * time.Minute // without an owner, until the next route is told
	EscalateAll  = 45 * time.Minute // and until all are

	DigestAfter = 15 * time.Minute // that a small case was nobody's
	DigestEvery = time.Hour
)

// A Case is a case as it is now, with what was told of it.
type Case struct {
	tasker.Case
	Severity   tasker.Severity
	IncidentID *tasker.ID       // the open incident that it is part of
	Again      bool             // since it was last told of it failed again after it had been resolved
	ToldState  tasker.CaseState // empty: nothing was told of it yet
	ToldStuck  int64
}

// stuck is how many of its investigations need somebody.
func (c Case) stuck() int64 { return c.Entries - c.Recovered }

// unowned reports whether somebody has to look after it who does not yet.
func (c Case) unowned() bool {
	return c.State != tasker.CaseResolved && c.State != tasker.CaseResting && c.Owner == ""
}

// An Incident is an open incident, with what was told of it.
type Incident struct {
	ID           tasker.ID
	Namespace    string
	Lead         tasker.ID
	DedupKey     string
	Severity     tasker.Severity
	BeganAt      time.Time
	ToldAt       time.Time
	UnownedSince *time.Time
	Escalation   int
	ToldOwned    bool
	Revision     int
}

// A Decision is what becomes of an incident, and what people are told of it.
type Decision struct {
	Incident
	New    bool
	Ended  bool
	Topic  string // of the message; empty: nothing is said
	Cases  []Case // all of it, those of most harm first
	Joined []tasker.ID
}

// Decide says what becomes of the incidents of one namespace: those that are open, and one
// that begins with cases that are part of none. Incidents without a change are left out.
func Decide(now time.Time, incidents []Incident, cases []Case) []Decision {
	slices.SortFunc(cases, func(a, b Case) int {
		return cmp.Or(cmp.Compare(b.Harm, a.Harm), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	var fresh []Case
	of := map[tasker.ID][]Case{}
	for _, c := range cases {
		switch {
		case c.IncidentID != nil:
			of[*c.IncidentID] = append(of[*c.IncidentID], c)
		case c.worthTelling(now):
			fresh = append(fresh, c)
		}
	}
	slices.SortFunc(incidents, func(a, b Incident) int { return b.BeganAt.Compare(a.BeganAt) })
	var list []Decision
	for _, in := range incidents {
		if len(of[in.ID]) == 0 { // more cases are open than are looked at: nothing is known of it
			continue
		}
		var joining []Case
		if now.Sub(in.BeganAt) <= Join {
			joining, fresh = fresh, nil
		}
		if d := next(now, in, of[in.ID], joining); d.changes(in) {
			list = append(list, d)
		}
	}
	if len(fresh) > 0 {
		list = append(list, begin(now, fresh))
	}
	return list
}

// worthTelling reports whether people are to be told of a case that is part of no incident.
func (c Case) worthTelling(now time.Time) bool {
	if c.State == tasker.CaseResolved || c.State == tasker.CaseResting || c.stuck() == 0 || c.Oldest == nil || now.Sub(*c.Oldest) < Gather {
		return false
	}
	return c.stuck() >= Members || c.Severity == tasker.Critical || c.Again
}

// begin opens an incident with cases, the first of which leads.
func begin(now time.Time, cases []Case) Decision {
	d := Decision{New: true, Topic: tasker.CaseOpenedTopic, Cases: cases, Incident: Incident{
		Namespace: cases[0].Namespace, Lead: cases[0].ID, BeganAt: now, ToldAt: now,
	}}
	if cases[0].Again {
		d.Topic = tasker.CaseRegressedTopic
	}
	for _, c := range cases {
		d.Joined = append(d.Joined, c.ID)
	}
	d.Severity = highest(cases)
	d.own(now)
	d.ToldOwned = d.UnownedSince == nil
	return d
}

// next is what becomes of an incident with the cases that it has and those that join it.
func next(now time.Time, in Incident, cases, joining []Case) Decision {
	d := Decision{Incident: in, Cases: slices.Concat(cases, joining)}
	for _, c := range joining {
		d.Joined = append(d.Joined, c.ID)
	}
	d.Severity = worse(in.Severity, highest(joining))
	d.own(now)
	if now.Sub(in.ToldAt) < Rest {
		return d
	}
	d.Topic = transition(d)
	if level := escalation(now, d.UnownedSince); level > d.Escalation && d.Topic != tasker.CaseResolvedTopic {
		d.Escalation, d.Topic = level, cmp.Or(d.Topic, tasker.CaseUnownedTopic)
	}
	if d.Topic != "" {
		d.ToldAt, d.ToldOwned, d.Ended = now, d.UnownedSince == nil, d.Topic == tasker.CaseResolvedTopic
	}
	return d
}

// own keeps since when the incident is nobody's. While somebody has it nothing escalates.
func (d *Decision) own(now time.Time) {
	switch unowned := slices.ContainsFunc(d.Cases, Case.unowned); {
	case !unowned:
		d.UnownedSince, d.Escalation = nil, 0
	case d.UnownedSince == nil:
		d.UnownedSince, d.ToldOwned = &now, false
	}
}

// changes reports whether there is anything to store or to say.
func (d Decision) changes(was Incident) bool {
	return d.Topic != "" || len(d.Joined) > 0 || d.Severity != was.Severity || d.Escalation != was.Escalation || d.ToldOwned != was.ToldOwned ||
		(d.UnownedSince == nil) != (was.UnownedSince == nil)
}

// transition is the topic of what has changed since people were last told, the most
// important first; empty when nothing has.
func transition(d Decision) string {
	some := func(is func(Case) bool) bool { return slices.ContainsFunc(d.Cases, is) }
	switch {
	case !some(func(c Case) bool { return c.State != tasker.CaseResolved }):
		return tasker.CaseResolvedTopic
	case some(func(c Case) bool { return c.Again && c.State != tasker.CaseResolved }):
		return tasker.CaseRegressedTopic
	case some(func(c Case) bool {
		return c.ToldState == tasker.CaseResting && c.State != tasker.CaseResting && c.State != tasker.CaseResolved
	}):
		return tasker.CaseWokeTopic
	case some(grew):
		return tasker.CaseGrewTopic
	case !d.ToldOwned && d.UnownedSince == nil:
		return tasker.CaseOwnedTopic
	}
	return ""
}

// grew reports whether a case is worth another message because there is more of it.
func grew(c Case) bool {
	if c.State == tasker.CaseResolved || c.State == tasker.CaseResting {
		return false
	}
	if c.ToldState == "" {
		return true
	}
	if c.Owner != "" && c.stuck() < Grown*c.ToldStuck {
		return false
	}
	return level(c.stuck()) > level(c.ToldStuck) || c.State == tasker.CaseEscalating && c.ToldState != tasker.CaseEscalating
}

// level is what tasker.case_level is in SQL.
func level(n int64) int64 {
	for _, l := range []int64{10_000, 1000, 100} {
		if n > l {
			return l
		}
	}
	return 0
}

// escalation is which routes are to know of an incident that is nobody's: 0 the first, 1
// the next one too, 2 all.
func escalation(now time.Time, since *time.Time) int {
	switch {
	case since == nil || now.Sub(*since) < EscalateNext:
		return 0
	case now.Sub(*since) < EscalateAll:
		return 1
	default:
		return 2
	}
}

var severities = []tasker.Severity{tasker.Low, tasker.Medium, tasker.High, tasker.Critical}

// worse is the higher of two severities.
func worse(a, b tasker.Severity) tasker.Severity {
	if slices.Index(severities, b) > slices.Index(severities, a) {
		return b
	}
	return a
}

func highest(cases []Case) (s tasker.Severity) {
	for _, c := range cases {
		s = worse(s, c.Severity)
	}
	return s
}

// KnownSeverity reports whether a case may have a severity.
func KnownSeverity(s tasker.Severity) bool { return slices.Contains(severities, s) }
