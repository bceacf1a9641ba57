package notice

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
)

var (
	now      = time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	incident = tasker.NewID()
)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// known returns a case that is part of the open incident, of which nothing has changed
// since it was told of: 50 stuck tasks, nobody's.
func known(change ...func(*Case)) Case {
	c := fresh(change...)
	c.IncidentID = &incident
	c.NotifiedState, c.ToldStuck = tasker.CaseNew, 50
	for _, f := range change {
		f(&c)
	}
	return c
}

// fresh returns a case of which nothing was told.
func fresh(change ...func(*Case)) Case {
	oldest := ago(time.Minute)
	c := Case{Severity: tasker.High, Case: tasker.Case{ID: tasker.NewID(), Namespace: "orders", State: tasker.CaseNew}}
	c.Entries, c.Oldest = 50, &oldest
	for _, f := range change {
		f(&c)
	}
	return c
}

func open(n int64) func(*Case)                 { return func(c *Case) { c.Entries = n } }
func recovered(n int64) func(*Case)            { return func(c *Case) { c.Recovered = n } }
func state(s tasker.CaseState) func(*Case)     { return func(c *Case) { c.State = s } }
func told(s tasker.CaseState) func(*Case)      { return func(c *Case) { c.NotifiedState = s } }
func owner(c *Case)                            { c.Owner = "anna" }
func again(c *Case)                            { c.Regressed = true }
func severity(s tasker.Severity) func(*Case)   { return func(c *Case) { c.Severity = s } }
func oldest(d time.Duration) func(*Case)       { return func(c *Case) { at := ago(d); c.Oldest = &at } }
func toldAgo(d time.Duration) func(*Incident)  { return func(i *Incident) { i.ToldAt = ago(d) } }
func beganAgo(d time.Duration) func(*Incident) { return func(i *Incident) { i.BeganAt = ago(d) } }
func toldOwned(i *Incident)                    { i.ToldOwned, i.UnownedSince = true, nil }
func escalated(n int) func(*Incident)          { return func(i *Incident) { i.Escalation = n } }
func unowned(d time.Duration) func(*Incident) {
	return func(i *Incident) { at := ago(d); i.UnownedSince = &at }
}
func inc(change ...func(*Incident)) []Incident {
	i := Incident{ID: incident, Namespace: "orders", Severity: tasker.High, BeganAt: ago(20 * time.Minute), ToldAt: ago(6 * time.Minute)}
	since := ago(6 * time.Minute)
	i.UnownedSince = &since
	for _, f := range change {
		f(&i)
	}
	return []Incident{i}
}

// What people are told of, and what not.
func TestWhatIsTold(t *testing.T) {
	for _, c := range []struct {
		name      string
		incidents []Incident
		cases     []Case
		want      string // topics with how many cases of how many joined, and escalation
	}{
		{"nothing", nil, nil, "[]"},
		{"four are too few", nil, []Case{fresh(open(4))}, "[]"},
		{"the fifth", nil, []Case{fresh(open(5))}, "[case.opened 1/1]"},
		{"tasks that went on do not count", nil, []Case{fresh(open(5), recovered(1))}, "[]"},
		{"one is enough if critical", nil, []Case{fresh(open(1), severity(tasker.Critical))}, "[case.opened 1/1]"},
		{"not before 15 seconds", nil, []Case{fresh(oldest(14 * time.Second))}, "[]"},
		{"nor if critical", nil, []Case{fresh(open(1), severity(tasker.Critical), oldest(14*time.Second))}, "[]"},
		{"after 15 seconds", nil, []Case{fresh(oldest(15 * time.Second))}, "[case.opened 1/1]"},
		{"one that rests", nil, []Case{fresh(state(tasker.CaseResting))}, "[]"},
		{"three at once are one incident", nil, []Case{fresh(), fresh(), fresh()}, "[case.opened 3/3]"},
		{"again a case that was told of", nil, []Case{fresh(open(1), state(tasker.CaseRegressed), again)}, "[case.regressed 1/1]"},
		{"opened by hand", nil, []Case{fresh(manual)}, "[]"},
		{"opened by hand, beside an incident", inc(beganAgo(time.Minute)), []Case{known(), fresh(manual)}, "[]"},
		{"only those opened by hand remain, 45 minutes without an owner", inc(unowned(45 * time.Minute)), []Case{known(state(tasker.CaseResolved), open(0)), known(manual)}, "[case.owned 2/0]"},
		{"49 small cases", nil, small(49), "[]"},
		{"50 small cases are one incident", nil, small(50), "[case.opened 50/50]"},
		{"50 small cases, some seconds old", nil, small(50, oldest(time.Second)), "[]"},
		{"50 small cases that are hours old", nil, small(50, oldest(time.Hour)), "[]"},
		{"50 small cases with an owner", nil, small(50, owner), "[]"},
		{"50 small cases join", inc(beganAgo(6 * time.Minute)), append(small(50), known()), "[case.grew 51/50]"},
		{"50 small cases after ten minutes", inc(), append(small(50), known()), "[case.opened 50/50]"},
		{"49 small cases join nothing", inc(beganAgo(6 * time.Minute)), append(small(49), known()), "[]"},
		{"50 more of 60 small cases, hours later", inc(beganAgo(3 * time.Hour)), append(small(50), knownSmall(60)...), "[case.grew 110/50]"},
		{"50 more of 250 small cases", inc(beganAgo(3 * time.Hour)), append(small(50), knownSmall(250)...), "[ 300/50]"},
		{"owner of the named small case stands for all", inc(), append(knownSmall(60), known(open(4), told(tasker.CaseNew), owner)), "[case.owned 61/0]"},

		{"the named case is repaired", lead(named), []Case{*named(state(tasker.CaseResolved), open(0)), known(open(7))}, "[case.changed 2/0]"},
		{"the named case is repaired, the other owned", lead(named, toldOwned), []Case{*named(state(tasker.CaseResolved), open(0)), known(open(7), owner)}, "[case.changed 2/0]"},
		{"the named case is snoozed", lead(named), []Case{*named(state(tasker.CaseResting), told(tasker.CaseResting)), known()}, "[case.changed 2/0]"},
		{"all of the named case continued", lead(named), []Case{*named(recovered(50)), known()}, "[case.changed 2/0]"},
		{"the other is twice as large", lead(named), []Case{*named(open(45)), known(open(90))}, "[case.changed 2/0]"},
		{"the other is a little larger", lead(named), []Case{*named(open(45)), known(open(89))}, "[]"},
		{"a message a moment ago", lead(named, toldAgo(time.Minute)), []Case{*named(state(tasker.CaseResolved), open(0)), known()}, "[]"},
		{"again a small one", nil, []Case{fresh(open(1), state(tasker.CaseRegressed))}, "[]"},

		{"nothing new", inc(), []Case{known()}, "[]"},
		{"it joins, and is told of later", inc(beganAgo(2*time.Minute), toldAgo(2*time.Minute)), []Case{known(), fresh()}, "[ 2/1]"},
		{"it joins, and is told of", inc(beganAgo(6 * time.Minute)), []Case{known(), fresh()}, "[case.grew 2/1]"},
		{"one that had joined is told of", inc(), []Case{known(), known(told(""))}, "[case.grew 2/0]"},
		{"after ten minutes it is another incident", inc(), []Case{known(), fresh()}, "[case.opened 1/1]"},
		{"past 100", inc(), []Case{known(open(101))}, "[case.grew 1/0]"},
		{"past 100, told a moment ago", inc(toldAgo(299 * time.Second)), []Case{known(open(101))}, "[]"},
		{"past 100, told five minutes ago", inc(toldAgo(300 * time.Second)), []Case{known(open(101))}, "[case.grew 1/0]"},
		{"growing fast", inc(), []Case{known(state(tasker.CaseEscalating))}, "[case.grew 1/0]"},
		{"growing fast still", inc(), []Case{known(state(tasker.CaseEscalating), told(tasker.CaseEscalating))}, "[]"},
		{"past 100, but owned", inc(toldOwned), []Case{known(open(499), owner)}, "[]"},
		{"ten times as many, though owned", inc(toldOwned), []Case{known(open(500), owner)}, "[case.grew 1/0]"},
		{"owned", inc(), []Case{known(owner)}, "[case.owned 1/0]"},
		{"one of two owned", inc(), []Case{known(owner), known()}, "[]"},
		{"owned, told already", inc(toldOwned), []Case{known(owner)}, "[]"},
		{"owned a moment after", inc(toldAgo(time.Minute)), []Case{known(owner)}, "[ 1/0]"},
		{"nobody's again", inc(toldOwned), []Case{known()}, "[ 1/0]"},
		{"failing again", inc(), []Case{known(state(tasker.CaseRegressed), told(tasker.CaseResolved), again)}, "[case.regressed 1/0]"},
		{"failing again, somebody has it", inc(toldOwned), []Case{known(owner, told(tasker.CaseResolved), again)}, "[case.regressed 1/0]"},
		{"failing again still", inc(), []Case{known(state(tasker.CaseRegressed), told(tasker.CaseRegressed))}, "[]"},
		{"resting no more", inc(), []Case{known(told(tasker.CaseResting))}, "[case.woke 1/0]"},
		{"one of two resolved", inc(), []Case{known(), known(state(tasker.CaseResolved), open(0))}, "[]"},
		{"all resolved", inc(), []Case{known(state(tasker.CaseResolved), open(0)), known(state(tasker.CaseResolved), open(0))}, "[case.resolved 2/0 ended]"},
		{"all resolved a moment after", inc(toldAgo(time.Minute)), []Case{known(state(tasker.CaseResolved), open(0))}, "[ 1/0]"},

		{"15 minutes nobody's", inc(unowned(15 * time.Minute)), []Case{known()}, "[case.unowned 1/0 escalated 1]"},
		{"almost", inc(unowned(15*time.Minute - time.Second)), []Case{known()}, "[]"},
		{"said already", inc(unowned(20*time.Minute), escalated(1)), []Case{known()}, "[]"},
		{"45 minutes nobody's", inc(unowned(45*time.Minute), escalated(1)), []Case{known()}, "[case.unowned 1/0 escalated 2]"},
		{"taken after it escalated", inc(unowned(45*time.Minute), escalated(1)), []Case{known(owner)}, "[case.owned 1/0]"},
		{"it grew as well", inc(unowned(15 * time.Minute)), []Case{known(open(101))}, "[case.grew 1/0 escalated 1]"},
		{"resolved meanwhile", inc(unowned(45 * time.Minute)), []Case{known(state(tasker.CaseResolved), open(0))}, "[case.resolved 1/0 ended]"},
		{"one that rests is nobody's need", inc(unowned(time.Hour)), []Case{known(state(tasker.CaseResting), told(tasker.CaseResting))}, "[case.owned 1/0]"},
		{"worse, and told with the next", inc(beganAgo(time.Minute), toldAgo(time.Minute)), []Case{known(), fresh(severity(tasker.Critical), open(1))}, "[ 2/1]"},
	} {
		var got []string
		for _, d := range Decide(now, c.incidents, c.cases) {
			text := fmt.Sprintf("%s %d/%d", d.Topic, len(d.Cases), len(d.Joined))
			if d.Escalation > 0 {
				text += fmt.Sprintf(" escalated %d", d.Escalation)
			}
			if d.Ended {
				text += " ended"
			}
			got = append(got, text)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

// The case that the message of lead names.
func named(change ...func(*Case)) *Case {
	c := known(change...)
	c.ID = leadCase
	return &c
}

var leadCase = tasker.NewID()

// lead returns the open incident, whose last message named the case of named.
func lead(_ func(...func(*Case)) *Case, change ...func(*Incident)) []Incident {
	return inc(append(change, func(i *Incident) { i.Lead = leadCase })...)
}

func manual(c *Case) { c.Reason = tasker.ManualDLQ }

// small returns cases of one investigation each.
func small(n int, change ...func(*Case)) (list []Case) {
	for range n {
		list = append(list, fresh(append([]func(*Case){open(1)}, change...)...))
	}
	return list
}

func knownSmall(n int) (list []Case) {
	for range n {
		list = append(list, known(open(1), func(c *Case) { c.ToldStuck = 1 }))
	}
	return list
}

// A message names a case and counts its tasks.
func TestMessagesNameTheLargestOpenCase(t *testing.T) {
	place := func(task, step, text string) func(*Case) {
		return func(c *Case) { c.TaskName, c.StepName, c.ErrorPattern = task, step, text }
	}
	charge, post, refused := place("fulfil", "charge", "HTTP 503"), place("post", "", "SQLSTATE 23503"), place("post", "entry", "refused")
	for _, c := range []struct {
		name  string
		cases []Case
		want  string
	}{
		{"first", []Case{*named(charge), known(post, open(49), told(""))}, "99 tasks stuck by now: fulfil > charge: HTTP 503, and 1 other case"},
		{"larger", []Case{*named(charge), known(post, open(3750))}, "3,800 tasks stuck by now: post: SQLSTATE 23503, and 1 other case"},
		{"repaired", []Case{*named(charge, open(0), state(tasker.CaseResolved)), known(post, open(7))}, "7 tasks stuck by now: post: SQLSTATE 23503"},
		{"in repair", []Case{*named(charge, open(80), func(c *Case) { c.Proving = 80 }), known(post, told(""))}, "130 tasks stuck by now: post: SQLSTATE 23503, and 1 other case"},
		{"continued", []Case{*named(charge, recovered(50)), known(post)}, "50 tasks stuck by now: post: SQLSTATE 23503, and 1 other case"},
		{"opened by hand", []Case{*named(charge, manual), known(post, told(""))}, "50 tasks stuck by now: post: SQLSTATE 23503, and 1 other case"},
		{"many small", append(small(70, refused), *named(charge)), "120 tasks stuck by now: 70 tasks in 70 small cases such as post > entry: refused, and 1 other case"},
		{"some small", append(small(50, refused), *named(charge, open(55), told(""))), "105 tasks stuck by now: fulfil > charge: HTTP 503, and 50 other cases"},
		{"the end", []Case{*named(charge, open(0), state(tasker.CaseResolved)), known(post, open(0), state(tasker.CaseResolved))}, "resolved: fulfil > charge: HTTP 503, and 1 other case"},
	} {
		d := Decide(now, lead(named, beganAgo(6*time.Minute)), c.cases)
		if len(d) != 1 || d[0].Topic == "" {
			t.Errorf("%s: %+v", c.name, d)
			continue
		}
		if m := d[0].Data(); m.Summary != "orders: "+c.want || *m.Case != d[0].Lead {
			t.Errorf("%s: %s\nwant %s", c.name, m.Summary, c.want)
		}
	}
}

// Until the incident ends, every message names a case that needs an operator.
func TestMessagesNeverNameARepairedCase(t *testing.T) {
	states := []tasker.CaseState{tasker.CaseNew, tasker.CaseOngoing, tasker.CaseResting, tasker.CaseRegressed, tasker.CaseEscalating, tasker.CaseResolved}
	random := rand.New(rand.NewPCG(30, 48))
	messages := 0
	for range 20_000 {
		var cases []Case
		for range 1 + random.IntN(5) {
			c := fresh(open(random.Int64N(200)), state(states[random.IntN(len(states))]))
			if random.IntN(2) == 0 {
				c = known(open(c.Entries), state(c.State), told(states[random.IntN(len(states))]))
			}
			if c.State == tasker.CaseResolved {
				c.Entries = 0
			}
			if random.IntN(4) == 0 {
				c.Recovered = c.Entries
			}
			c.Regressed = random.IntN(6) == 0
			if random.IntN(5) == 0 {
				c.Reason = tasker.ManualDLQ
			}
			cases = append(cases, c)
		}
		if cases[0].IncidentID != nil {
			cases[0].ID = leadCase
		}
		in := lead(named, beganAgo(time.Duration(random.IntN(90))*time.Minute), unowned(time.Duration(random.IntN(90))*time.Minute))
		for _, d := range Decide(now, in, cases) {
			if d.Topic == "" || d.Topic == tasker.CaseResolvedTopic || d.Topic == tasker.CaseOwnedTopic {
				continue
			}
			messages++
			i := slices.IndexFunc(d.Cases, func(c Case) bool { return c.ID == d.Lead })
			if i < 0 || d.Cases[i].State == tasker.CaseResolved || d.Cases[i].State == tasker.CaseResting || d.Cases[i].Stuck() == 0 {
				t.Fatalf("%s names %s of %+v", d.Topic, d.Lead, d.Cases)
			}
		}
	}
	if messages < 1000 {
		t.Errorf("only %d messages", messages)
	}
}

// Of an incident whose cases are not among those that are looked at nothing is said, least of all that it is over.
func TestAnIncidentOfWhichNothingIsKnown(t *testing.T) {
	for _, cases := range [][]Case{nil, {fresh()}} {
		for _, d := range Decide(now, inc(beganAgo(time.Minute)), cases) {
			if !d.New {
				t.Errorf("%+v", d)
			}
		}
	}
}

// Routes are asked in their order; escalation asks the next one, and then all.
func TestRoutes(t *testing.T) {
	list, err := ParseRoutes("namespace=orders severity=high -> pager\n# a comment\nreason=max_retries_exceeded cause=503 -> chat, log; -> log\nnamespace=other -> other")
	if err != nil {
		t.Fatal(err)
	}
	r := Routes{List: list, Takes: map[string][]string{"pager": {"case.*", "operation.paused"}}, Default: []string{"rest"}}
	m := tasker.NotificationData{Namespace: "orders", Severity: tasker.Critical, Reason: tasker.MaxRetriesExceeded, ErrorType: "HTTPError", Text: "HTTP 503"}
	low := m
	low.Severity = tasker.Low
	for _, c := range []struct {
		topic      string
		escalation int
		m          tasker.NotificationData
		told       []string
		want       string
	}{
		{tasker.CaseOpenedTopic, 0, m, nil, "[pager]"},
		{tasker.CaseOpenedTopic, 0, low, nil, "[chat log]"},
		{tasker.CaseOpenedTopic, 0, tasker.NotificationData{Namespace: "x"}, nil, "[log]"},
		{tasker.CaseUnownedTopic, 1, m, []string{"pager"}, "[chat log]"},
		{tasker.CaseUnownedTopic, 1, low, []string{"chat", "log"}, "[]"},
		{tasker.CaseUnownedTopic, 2, m, []string{"pager", "chat"}, "[pager chat log]"},
		{tasker.CaseGrewTopic, 1, m, []string{"pager"}, "[pager chat log]"},
		{tasker.CaseResolvedTopic, 0, m, []string{"chat", "log", "pager"}, "[pager chat log]"},
		{tasker.CaseResolvedTopic, 0, low, []string{"pager"}, "[chat log pager]"},
		{tasker.OperationStartedTopic, 0, m, nil, "[rest]"},
		{tasker.OperationDoneTopic, 0, m, []string{"pager"}, "[pager]"},
		{tasker.OperationPausedTopic, 0, m, nil, "[pager]"},
		{tasker.DigestTopic, 0, low, []string{"pager"}, "[chat log]"},
	} {
		if got := fmt.Sprint(r.Choose(c.topic, c.escalation, c.m, c.told)); got != c.want {
			t.Errorf("%s %d told %v: %s, want %s", c.topic, c.escalation, c.told, got, c.want)
		}
	}
	for _, wrong := range []string{"namespace=orders", "-> ", "-> a,,b", "place=x -> a", "namespace= -> a", "namespace=a namespace=b -> a", "severity=bad -> a", "reason=bad -> a"} {
		if _, err := ParseRoutes(wrong); err == nil {
			t.Errorf("%q is a route", wrong)
		}
	}
}
