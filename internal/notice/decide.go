// Package notice decides which notifications to send about cases, when, and by which routes. It is
// pure: it has no clock and no database. Notifications are about incidents: cases of one namespace
// whose first notifications are due within ten minutes of each other. Many small cases form one
// incident; a single small case is not reported.
package notice

import (
	"cmp"
	"slices"
	"time"

	"tasker.example/tasker"
)

// Thresholds and delays of notifications.
const (
	Members = 5                // minimum investigations of a case for a notification of its own
	Many    = 50               // minimum investigations in small cases of one namespace for a common notification
	Recent  = time.Hour        // age up to which small cases count for Many
	Gather  = 15 * time.Second // delay after the first investigation, to collect the others
	Join    = 10 * time.Minute // period in which new cases join an incident
	Rest    = 5 * time.Minute  // minimum interval of notifications about one incident
	Grown   = 10               // growth factor that is reported although the case has an owner
	Outgrow = 2                // size factor by which another case replaces the named one

	PauseAfter = 5 * time.Minute // delay after a guard paused an operation, unless it was resumed or ended

	EscalateNext = 15 * time.Minute // time without an owner until the next route is notified
	EscalateAll  = 45 * time.Minute // time without an owner until all routes are notified

	DigestAfter = 15 * time.Minute // time without an owner until a small case is listed in a digest
	DigestEvery = time.Hour
)

// A Case is the current state of a case and of its notifications.
type Case struct {
	tasker.Case
	Severity      tasker.Severity
	IncidentID    *tasker.ID       // the open incident that it belongs to
	Regressed     bool             // it has regressed since the last notification
	NotifiedState tasker.CaseState // state at the last notification; empty if there was none
	ToldStuck     int64
}

// Stuck counts investigations that need an operator, except for those opened manually.
func (c Case) Stuck() int64 {
	if c.Reason == tasker.ManualDLQ {
		return 0
	}
	return c.Entries - c.Recovered
}

// isActive reports whether the case needs an operator now.
func (c Case) isActive() bool {
	return c.State != tasker.CaseResolved && c.State != tasker.CaseResting && c.Stuck() > 0
}

// isSmall reports whether the case is too small for a notification of its own.
func (c Case) isSmall() bool {
	return c.Stuck() < Members && c.Severity != tasker.Critical && !c.Regressed
}

// An Incident is an open incident and the state of its notifications.
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

// A Decision is the new state of an incident and the notification about it.
type Decision struct {
	Incident
	New    bool
	Ended  bool
	Topic  string // of the notification; empty if there is none
	Cases  []Case // all cases of the incident, most harmful first
	Joined []tasker.ID
}

// Decide returns the changes to the incidents of one namespace, including a new incident for cases
// that have none. It omits unchanged incidents.
func Decide(now time.Time, incidents []Incident, cases []Case) []Decision {
	slices.SortFunc(cases, func(a, b Case) int {
		return cmp.Or(cmp.Compare(b.Harm, a.Harm), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	var fresh, swarm []Case
	of := map[tasker.ID][]Case{}
	for _, c := range cases {
		switch {
		case c.IncidentID != nil:
			of[*c.IncidentID] = append(of[*c.IncidentID], c)
		case !c.isActive() || c.Oldest == nil:
		case !c.isSmall() && now.Sub(*c.Oldest) >= Gather:
			fresh = append(fresh, c)
		case c.isSmall() && c.Owner == "" && now.Sub(*c.Oldest) < Recent:
			swarm = append(swarm, c)
		}
	}
	if countReady(now, swarm) < Many {
		swarm = nil
	}
	slices.SortFunc(incidents, func(a, b Incident) int { return b.BeganAt.Compare(a.BeganAt) })
	var list []Decision
	for _, in := range incidents {
		if len(of[in.ID]) == 0 { // its cases are not among the loaded ones
			continue
		}
		var joining []Case
		if now.Sub(in.BeganAt) <= Join {
			joining, fresh = fresh, nil
		}
		if now.Sub(in.BeganAt) <= Join || len(fresh) == 0 && hasSwarm(of[in.ID]) {
			joining, swarm = slices.Concat(joining, swarm), nil
		}
		if d := updateIncident(now, in, of[in.ID], joining); d.hasChanged(in) {
			list = append(list, d)
		}
	}
	if fresh = append(fresh, swarm...); len(fresh) > 0 {
		list = append(list, beginIncident(now, fresh))
	}
	return list
}

// countReady counts the stuck investigations of cases that are old enough for a notification.
func countReady(now time.Time, cases []Case) (n int64) {
	for _, c := range cases {
		if now.Sub(*c.Oldest) >= Gather {
			n += c.Stuck()
		}
	}
	return n
}

// hasSwarm reports whether an incident has so many small cases that further ones belong to it.
func hasSwarm(cases []Case) bool {
	n := 0
	for _, c := range cases {
		if c.isActive() && c.isSmall() {
			n++
		}
	}
	return n >= Many/Members
}

// findLargest returns the case that a notification names: the one with the most tasks to repair. It
// treats all small cases together as one. It returns false if no case needs an operator.
func findLargest(cases []Case) (lead Case, ok bool) {
	var small Case
	var sum, best [2]int64 // tasks without repair in progress, then all
	for _, c := range cases {
		if !c.isActive() {
			continue
		}
		n := [2]int64{c.Stuck() - c.Proving, c.Stuck()}
		if c.isSmall() {
			sum[0], sum[1] = sum[0]+n[0], sum[1]+n[1]
			if small.ID == (tasker.ID{}) || c.Stuck() > small.Stuck() {
				small = c
			}
		} else if !ok || slices.Compare(n[:], best[:]) > 0 {
			lead, best, ok = c, n, true
		}
	}
	if small.ID != (tasker.ID{}) && (!ok || slices.Compare(sum[:], best[:]) > 0) {
		return small, true
	}
	return lead, ok
}

// stuckWeight counts the stuck investigations of a case or, if the case is small, of all small
// cases.
func stuckWeight(c Case, cases []Case) (n int64) {
	if !c.isActive() || !c.isSmall() {
		return max(0, c.Stuck())
	}
	for _, other := range cases {
		if other.isActive() && other.isSmall() {
			n += other.Stuck()
		}
	}
	return n
}

// beginIncident returns a new incident for the cases.
func beginIncident(now time.Time, cases []Case) Decision {
	lead, _ := findLargest(cases)
	d := Decision{New: true, Topic: tasker.CaseOpenedTopic, Cases: cases, Incident: Incident{
		Namespace: lead.Namespace, Lead: lead.ID, BeganAt: now, ToldAt: now,
	}}
	if lead.Regressed {
		d.Topic = tasker.CaseRegressedTopic
	}
	for _, c := range cases {
		d.Joined = append(d.Joined, c.ID)
	}
	d.Severity = highestSeverity(cases)
	d.trackOwnership(now)
	d.ToldOwned = d.UnownedSince == nil
	return d
}

// updateIncident decides what to store and to send about an incident. joining are the cases that
// join it.
func updateIncident(now time.Time, in Incident, cases, joining []Case) Decision {
	d := Decision{Incident: in, Cases: slices.Concat(cases, joining)}
	for _, c := range joining {
		d.Joined = append(d.Joined, c.ID)
	}
	d.Severity = maxSeverity(in.Severity, highestSeverity(joining))
	d.trackOwnership(now)
	if now.Sub(in.ToldAt) < Rest {
		return d
	}
	d.Topic = transitionKind(d)
	if level := escalationLevel(now, d.UnownedSince); level > d.Escalation && d.Topic != tasker.CaseResolvedTopic {
		d.Escalation, d.Topic = level, cmp.Or(d.Topic, tasker.CaseUnownedTopic)
	}
	if d.Topic != "" {
		d.ToldAt, d.ToldOwned, d.Ended = now, d.UnownedSince == nil, d.Topic == tasker.CaseResolvedTopic
		if lead, ok := findLargest(d.Cases); ok {
			d.Lead = lead.ID
		}
	}
	return d
}

// trackOwnership updates the time since which the incident has had no owner, which determines the
// escalation. Of the small cases, only the lead case counts.
func (d *Decision) trackOwnership(now time.Time) {
	lead, _ := findLargest(d.Cases)
	unowned := func(c Case) bool { return c.isActive() && c.Owner == "" && (!c.isSmall() || c.ID == lead.ID) }
	switch {
	case !slices.ContainsFunc(d.Cases, unowned):

		d.UnownedSince, d.Escalation = nil, 0
	case d.UnownedSince == nil:
		d.UnownedSince, d.ToldOwned = &now, false
	}
}

// hasChanged reports whether the decision requires anything to be stored or sent.
func (d Decision) hasChanged(was Incident) bool {
	return d.Topic != "" || len(d.Joined) > 0 || d.Severity != was.Severity || d.Escalation != was.Escalation ||
		d.ToldOwned != was.ToldOwned ||
		(d.UnownedSince == nil) != (was.UnownedSince == nil)
}

// transitionKind returns the topic of the most important change since the last notification, or "".
func transitionKind(d Decision) string {
	some := func(is func(Case) bool) bool { return slices.ContainsFunc(d.Cases, is) }
	switch {
	case !some(func(c Case) bool { return c.State != tasker.CaseResolved }):
		return tasker.CaseResolvedTopic
	case some(func(c Case) bool { return c.Regressed && c.isActive() }):
		return tasker.CaseRegressedTopic
	case some(func(c Case) bool { return c.NotifiedState == tasker.CaseResting && c.isActive() }):
		return tasker.CaseWokeTopic
	case some(hasGrown) || hasSwarmGrown(d.Cases):
		return tasker.CaseGrewTopic
	case !d.ToldOwned && d.UnownedSince == nil:
		return tasker.CaseOwnedTopic
	case d.hasNewLead():
		return tasker.CaseChangedTopic
	}
	return ""
}

// hasNewLead reports whether the case that the last notification named is repaired, or another
// case has outgrown it.
func (d Decision) hasNewLead() bool {
	lead, ok := findLargest(d.Cases)
	i := slices.IndexFunc(d.Cases, func(c Case) bool { return c.ID == d.Lead })
	if !ok || i < 0 || lead.ID == d.Lead || lead.isSmall() && d.Cases[i].isSmall() && d.Cases[i].ToldStuck < Members {
		return false
	}
	named := d.Cases[i]
	return !named.isActive() || stuckWeight(lead, d.Cases) >= Outgrow*stuckWeight(named, d.Cases)
}

// hasGrown reports whether a case has grown enough for another notification.
func hasGrown(c Case) bool {
	switch {
	case !c.isActive() || c.isSmall():
		return false
	case c.NotifiedState == "":
		return true
	case c.Owner != "" && c.Stuck() < Grown*c.ToldStuck:
		return false
	}
	return growthLevel(c.Stuck()) > growthLevel(c.ToldStuck) || c.State == tasker.CaseEscalating && c.NotifiedState != tasker.CaseEscalating
}

// hasSwarmGrown is like grew for all small cases together.
func hasSwarmGrown(cases []Case) bool {
	var stuck, told, joined int64
	for _, c := range cases {
		if !c.isActive() || !c.isSmall() {
			continue
		}
		stuck, told = stuck+c.Stuck(), told+c.ToldStuck
		if c.NotifiedState == "" {
			joined += c.Stuck()
		}
	}
	return joined >= Many && told < Many || growthLevel(stuck) > growthLevel(told)
}

// growthLevel returns the highest threshold that n exceeds, or 0. It must match tasker.case_level
// in SQL.
func growthLevel(n int64) int64 {
	for _, l := range []int64{10_000, 1000, 100} {
		if n > l {
			return l
		}
	}
	return 0
}

// escalationLevel returns the escalation level of an incident that has had no owner since a time: 0
// for the first route, 1 for the first two routes, 2 for all.
func escalationLevel(now time.Time, since *time.Time) int {
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

// maxSeverity returns the higher of two severities.
func maxSeverity(a, b tasker.Severity) tasker.Severity {
	if slices.Index(severities, b) > slices.Index(severities, a) {
		return b
	}
	return a
}

func highestSeverity(cases []Case) (s tasker.Severity) {
	for _, c := range cases {
		s = maxSeverity(s, c.Severity)
	}
	return s
}

// IsKnownSeverity reports whether s is a valid severity.
func IsKnownSeverity(s tasker.Severity) bool { return slices.Contains(severities, s) }
