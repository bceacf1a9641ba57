package notice

import (
	"fmt"
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
	c.ToldState, c.ToldStuck = tasker.CaseNew, 50
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
func told(s tasker.CaseState) func(*Case)      { return func(c *Case) { c.ToldState = s } }
func owner(c *Case)                            { c.Owner = "anna" }
func again(c *Case)                            { c.Again = true }
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

// A message of an incident leads with its first case, though another is worse by now.
func TestMessagesLeadWithTheFirstCase(t *testing.T) {
	lead := known(func(c *Case) { c.TaskName, c.StepName, c.ErrorPattern = "fulfil", "charge", "HTTP 503" })
	other := known(open(3750), func(c *Case) { c.TaskName, c.Harm = "post", 50 })
	in := inc()
	in[0].Lead = lead.ID
	d := Decide(now, in, []Case{lead, other})
	if len(d) != 1 {
		t.Fatal(d)
	}
	m := d[0].Data()
	if want := "orders: 3,800 tasks stuck by now: fulfil > charge: HTTP 503, and 1 other case"; m.Summary != want || m.Members[0].Case != other.ID || m.Cases != 2 {
		t.Errorf("%+v, want %s", m, want)
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
	r := Routes{List: list, Takes: map[string][]string{"pager": {"case.*", "operation.paused"}}, Rest: []string{"rest"}}
	m := tasker.MessageData{Namespace: "orders", Severity: tasker.Critical, Reason: tasker.MaxRetriesExceeded, ErrorType: "HTTPError", Text: "HTTP 503"}
	low := m
	low.Severity = tasker.Low
	for _, c := range []struct {
		topic      string
		escalation int
		m          tasker.MessageData
		told       []string
		want       string
	}{
		{tasker.CaseOpenedTopic, 0, m, nil, "[pager]"},
		{tasker.CaseOpenedTopic, 0, low, nil, "[chat log]"},
		{tasker.CaseOpenedTopic, 0, tasker.MessageData{Namespace: "x"}, nil, "[log]"},
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
