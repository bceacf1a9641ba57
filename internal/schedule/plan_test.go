package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

// noon is the clock of these tests.
var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// hourly is a schedule that fires every hour, and whose next instant is so long before noon.
func hourly(overdue time.Duration, change func(*tasker.Schedule)) tasker.Schedule {
	next := noon.Add(-overdue)
	s := tasker.Schedule{UUID: tasker.ID{1}, Anchor: noon.Add(-1000 * time.Hour), NextAt: &next, FireAt: &next, ScheduleSpec: tasker.ScheduleSpec{
		ScheduleRule: tasker.ScheduleRule{Every: time.Hour}, Overlap: tasker.OverlapAllow, CatchUp: tasker.CatchUpLast, StartWithin: 5 * time.Minute,
	}}
	if change != nil {
		change(&s)
	}
	return s
}

// text says what a plan is, one word a row.
func text(p Plan) string {
	var words []string
	if p.CancelOpen {
		words = append(words, "cancel")
	}
	if p.StartQueued {
		words = append(words, "start-queued")
	}
	if p.Unpause {
		words = append(words, "unpause")
	}
	for _, r := range p.Rows {
		words = append(words, fmt.Sprintf("%s@%s*%d", r.Outcome, r.From.Format("15:04"), r.Instants))
	}
	if p.NextAt != nil {
		words = append(words, "next@"+p.NextAt.Format("15:04"))
	}
	return strings.Join(words, " ")
}

func TestWhatBecomesOfInstants(t *testing.T) {
	t.Parallel()
	busy := &tasker.ID{9}
	at := func(hour int) *time.Time { v := noon.Add(time.Duration(hour-12) * time.Hour); return &v }
	for name, tt := range map[string]struct {
		overdue time.Duration
		change  func(*tasker.Schedule)
		open    *tasker.ID
		queued  bool
		want    string
	}{
		"not due":            {-time.Hour, nil, nil, false, "next@13:00"},
		"due now":            {0, nil, nil, false, "started@12:00*1 next@13:00"},
		"last of an outage":  {5 * time.Hour, nil, nil, false, "missed@07:00*5 started@12:00*1 next@13:00"},
		"last, none on time": {5*time.Hour + 30*time.Minute, func(s *tasker.Schedule) { s.Anchor = s.Anchor.Add(30 * time.Minute) }, nil, false, "missed@06:30*5 started@11:30*1 next@12:30"},
		"none":               {2 * time.Hour, func(s *tasker.Schedule) { s.CatchUp = tasker.CatchUpNone }, nil, false, "missed@10:00*2 started@12:00*1 next@13:00"},
		"none, none on time": {2*time.Hour + 30*time.Minute, func(s *tasker.Schedule) {
			s.CatchUp, s.Anchor = tasker.CatchUpNone, s.Anchor.Add(30*time.Minute)
		}, nil, false, "missed@09:30*3 next@12:30"},
		"all": {3 * time.Hour, func(s *tasker.Schedule) { s.CatchUp, s.CatchUpMax = tasker.CatchUpAll, 10 }, nil, false,
			"started@09:00*1 started@10:00*1 started@11:00*1 started@12:00*1 next@13:00"},
		"all, at most two": {4 * time.Hour, func(s *tasker.Schedule) { s.CatchUp, s.CatchUpMax = tasker.CatchUpAll, 2 }, nil, false,
			"missed@08:00*2 started@10:00*1 started@11:00*1 started@12:00*1 next@13:00"},
		"all, too many at once": {30 * time.Hour, func(s *tasker.Schedule) { s.CatchUp, s.CatchUpMax = tasker.CatchUpAll, 100 }, nil, false,
			strings.Join(starts(6, 20), " ") + " next@02:00"},
		"skip":               {2 * time.Hour, overlap(tasker.OverlapSkip), busy, false, "missed@10:00*2 skipped@12:00*1 next@13:00"},
		"skip, free":         {0, overlap(tasker.OverlapSkip), nil, false, "started@12:00*1 next@13:00"},
		"queue":              {0, overlap(tasker.OverlapQueue), busy, false, "queued@12:00*1 next@13:00"},
		"queue, one waits":   {0, overlap(tasker.OverlapQueue), busy, true, "merged@12:00*1 next@13:00"},
		"queue, free":        {0, overlap(tasker.OverlapQueue), nil, true, "start-queued queued@12:00*1 next@13:00"},
		"queue, not due":     {-time.Hour, overlap(tasker.OverlapQueue), nil, true, "start-queued next@13:00"},
		"cancel":             {0, overlap(tasker.OverlapCancel), busy, false, "cancel started@12:00*1 next@13:00"},
		"cancel, free":       {0, overlap(tasker.OverlapCancel), nil, false, "started@12:00*1 next@13:00"},
		"allow":              {0, overlap(tasker.OverlapAllow), busy, false, "started@12:00*1 next@13:00"},
		"cancel all but one": {2 * time.Hour, func(s *tasker.Schedule) { s.Overlap, s.StartWithin = tasker.OverlapCancel, 24*time.Hour }, busy, false, "cancel merged@10:00*2 started@12:00*1 next@13:00"},
		"skip after a start": {2 * time.Hour, func(s *tasker.Schedule) { s.Overlap, s.StartWithin = tasker.OverlapSkip, 24*time.Hour }, nil, false, "started@10:00*1 skipped@11:00*2 next@13:00"},
		"on an excepted day": {14 * time.Hour, func(s *tasker.Schedule) { s.Except = []string{"2026-03-09", "wed"} }, nil, false, "skipped@22:00*2 missed@00:00*12 started@12:00*1 next@13:00"},
		"last but excepted": {2*time.Hour + 30*time.Minute, func(s *tasker.Schedule) {
			s.Anchor, s.Except = s.Anchor.Add(30*time.Minute), []string{"2026-03-10"}
		}, nil, false, "skipped@09:30*3 next@12:30"},
		"paused":            {2 * time.Hour, func(s *tasker.Schedule) { s.PausedAt = at(9) }, nil, false, "next@10:00"},
		"paused until one":  {2 * time.Hour, func(s *tasker.Schedule) { s.PausedAt, s.PausedUntil = at(9), at(13) }, nil, false, "next@10:00"},
		"paused, queued":    {-time.Hour, func(s *tasker.Schedule) { s.PausedAt, s.Overlap = at(9), tasker.OverlapQueue }, nil, true, "next@13:00"},
		"pause is over":     {2 * time.Hour, func(s *tasker.Schedule) { s.PausedAt, s.PausedUntil = at(9), at(12) }, nil, false, "unpause skipped@10:00*2 started@12:00*1 next@13:00"},
		"pause was over":    {4 * time.Hour, func(s *tasker.Schedule) { s.PausedAt, s.PausedUntil = at(7), at(9) }, nil, false, "unpause skipped@08:00*1 missed@09:00*3 started@12:00*1 next@13:00"},
		"at its end":        {time.Hour, func(s *tasker.Schedule) { s.EndAt = at(12) }, nil, false, "missed@11:00*1 started@12:00*1"},
		"over":              {0, func(s *tasker.Schedule) { s.NextAt, s.FireAt = nil, nil }, nil, false, ""},
		"fixed delay, late": {3 * time.Hour, func(s *tasker.Schedule) { s.Every, s.AfterEnd, s.CatchUp = 0, time.Hour, tasker.CatchUpLast }, nil, false, "started@09:00*1"},
		"fixed delay after a pause": {3 * time.Hour, func(s *tasker.Schedule) {
			s.Every, s.AfterEnd, s.PausedAt, s.PausedUntil = 0, time.Hour, at(8), at(11)
		}, nil, false, "unpause started@11:00*1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := hourly(tt.overdue, tt.change)
			p := Decide(ruleAt(t, s), Situation{Schedule: s, Now: noon, Open: tt.open, Queued: tt.queued})
			if got := text(p); got != tt.want {
				t.Errorf("the plan is %s, want %s", got, tt.want)
			}
			for _, r := range p.Rows {
				if (r.Outcome == tasker.FiringStarted) != (r.Reason == "") {
					t.Errorf("%s has the reason %q", r.Outcome, r.Reason)
				}
			}
		})
	}
}

// When a rule is replaced its instants until now are passed, also those whose jitter or pause is not over.
func TestWhatBecomesOfInstantsWhenTheRuleIsReplaced(t *testing.T) {
	t.Parallel()
	at := func(hour int) *time.Time { return new(noon.Add(time.Duration(hour-12) * time.Hour)) }
	for name, tt := range map[string]struct {
		change func(*tasker.Schedule)
		want   string
	}{
		"jitter": {func(s *tasker.Schedule) { s.Jitter, s.StartWithin = time.Hour, 24*time.Hour }, "started@11:00*1 started@12:00*1 next@13:00"},
		"paused": {func(s *tasker.Schedule) { s.PausedAt = at(9) }, "skipped@11:00*2 next@13:00"},
		"paused until one, jitter": {func(s *tasker.Schedule) { s.Jitter, s.PausedAt, s.PausedUntil = time.Hour, at(9), at(13) },
			"skipped@11:00*2 next@13:00"},
		"pause is over, jitter": {func(s *tasker.Schedule) { s.Jitter, s.PausedAt, s.PausedUntil = time.Hour, at(9), at(12) },
			"unpause skipped@11:00*1 started@12:00*1 next@13:00"},
		"paused at its end":   {func(s *tasker.Schedule) { s.PausedAt, s.EndAt = at(9), at(12) }, "skipped@11:00*2"},
		"paused, fixed delay": {func(s *tasker.Schedule) { s.Every, s.AfterEnd, s.PausedAt = 0, time.Hour, at(9) }, "next@11:00"},
		"fixed delay, jitter": {func(s *tasker.Schedule) { s.Every, s.AfterEnd, s.Jitter = 0, time.Hour, time.Hour }, "started@11:00*1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := hourly(time.Hour, tt.change)
			p := Decide(ruleAt(t, s), Situation{Schedule: s, Now: noon, Replaced: true})
			if got := text(p); got != tt.want {
				t.Errorf("the plan is %s, want %s", got, tt.want)
			}
			for _, r := range p.Rows {
				if r.Late < 0 {
					t.Errorf("%s is late by %s", r.Outcome, r.Late)
				}
			}
		})
	}
}

func overlap(o tasker.Overlap) func(*tasker.Schedule) {
	return func(s *tasker.Schedule) { s.Overlap = o }
}

func starts(hour, n int) (words []string) {
	for i := range n {
		words = append(words, fmt.Sprintf("started@%02d:00*1", (hour+i)%24))
	}
	return words
}

func ruleAt(t *testing.T, s tasker.Schedule) *Rule {
	t.Helper()
	rule, faults := Compile(s.ScheduleRule, s.Anchor)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return rule
}

// However long nobody handled a schedule, plan after plan passes each instant once.
func TestLongOutages(t *testing.T) {
	t.Parallel()
	for _, catchUp := range tasker.CatchUps() {
		t.Run(string(catchUp), func(t *testing.T) {
			t.Parallel()
			next := noon.Add(-25_000 * time.Second)
			s := tasker.Schedule{UUID: tasker.ID{1}, NextAt: &next, ScheduleSpec: tasker.ScheduleSpec{
				ScheduleRule: tasker.ScheduleRule{Cron: "* * * * * *"}, Overlap: tasker.OverlapAllow, CatchUp: catchUp, StartWithin: 10 * time.Second,
			}}
			want := map[tasker.CatchUp]int{tasker.CatchUpNone: 11, tasker.CatchUpLast: 11, tasker.CatchUpAll: 11 + 300}[catchUp]
			if catchUp == tasker.CatchUpAll {
				s.CatchUpMax = 300
			}
			started, plans := 0, 0
			for at := next; s.NextAt != nil && !s.NextAt.After(noon); plans++ {
				if plans > 100 {
					t.Fatal("it does not come to an end")
				}
				p := Decide(ruleAt(t, s), Situation{Schedule: s, Now: noon})
				for _, r := range p.Rows {
					if !r.From.Equal(at) {
						t.Fatalf("a row begins at %s, want %s", r.From, at)
					}
					at = r.Until.Add(time.Second)
					if n := int64(r.Until.Sub(r.From)/time.Second) + 1; n != r.Instants {
						t.Errorf("%d instants, want %d", r.Instants, n)
					}
					if r.Outcome == tasker.FiringStarted {
						started++
					}
				}
				if !p.NextAt.Equal(at) {
					t.Fatalf("the next instant is %s, want %s", p.NextAt, at)
				}
				s.NextAt = p.NextAt
			}
			if started != want {
				t.Errorf("%d tasks in %d plans, want %d", started, plans, want)
			}
		})
	}
}

// Of an outage of more instants than one plan looks at, the last ones without an exception are made up for, though
// all that come behind them are excepted.
func TestLongOutagesThatEndExcepted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*tasker.Schedule)
		want   string
	}{
		"last":           {nil, "missed*11999 started*1 skipped*43201"},
		"none":           {func(s *tasker.Schedule) { s.CatchUp = tasker.CatchUpNone }, "missed*12000 skipped*43201"},
		"all, at most 3": {func(s *tasker.Schedule) { s.CatchUp, s.CatchUpMax = tasker.CatchUpAll, 3 }, "missed*11997 started*1 started*1 started*1 skipped*43201"},
		"cancel":         {func(s *tasker.Schedule) { s.Overlap = tasker.OverlapCancel }, "missed*11999 started*1 skipped*43201"},
		"cancel, in time": {func(s *tasker.Schedule) { s.Overlap, s.StartWithin = tasker.OverlapCancel, 24*time.Hour },
			"merged*11999 started*1 skipped*43201"},
		"last, the first days excepted as well": {func(s *tasker.Schedule) {
			s.Except = []string{"2026-03-08", "tue"}
			s.NextAt = new(s.NextAt.Add(-24 * time.Hour))
		}, "skipped*12000 missed*86399 started*1 skipped*43201"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			midnight := noon.Add(-12 * time.Hour)
			next := midnight.Add(-12_000 * time.Second)
			s := tasker.Schedule{UUID: tasker.ID{1}, Anchor: next.Add(-24 * time.Hour), NextAt: &next, ScheduleSpec: tasker.ScheduleSpec{
				ScheduleRule: tasker.ScheduleRule{Every: time.Second, Except: []string{"2026-03-10"}}, Overlap: tasker.OverlapAllow,
				CatchUp: tasker.CatchUpLast, StartWithin: 10 * time.Second,
			}}
			if tt.change != nil {
				tt.change(&s)
			}
			if got := outage(t, s); got != tt.want {
				t.Errorf("the firings are %s, want %s", got, tt.want)
			}
		})
	}
}

// outage has plan after plan pass the instants of a schedule until noon, and says what became of them.
func outage(t *testing.T, s tasker.Schedule) string {
	t.Helper()
	var rows []Row
	for plans := 0; !s.NextAt.After(noon); plans++ {
		if plans > 100 {
			t.Fatal("it does not come to an end")
		}
		p := Decide(ruleAt(t, s), Situation{Schedule: s, Now: noon})
		for _, r := range p.Rows {
			if n := len(rows); n > 0 && Joins(r.Outcome) && rows[n-1].Outcome == r.Outcome {
				rows[n-1].Instants += r.Instants
				continue
			}
			rows = append(rows, r)
		}
		s.NextAt = p.NextAt
	}
	words := make([]string, len(rows))
	for i, r := range rows {
		words[i] = fmt.Sprintf("%s*%d", r.Outcome, r.Instants)
	}
	return strings.Join(words, " ")
}

// A pause of many instants is passed in parts, and it lasts until all are.
func TestALongPause(t *testing.T) {
	t.Parallel()
	next := noon.Add(-(MaxPause + 100) * time.Second)
	s := tasker.Schedule{UUID: tasker.ID{1}, NextAt: &next, PausedAt: &next, PausedUntil: &noon, ScheduleSpec: tasker.ScheduleSpec{
		ScheduleRule: tasker.ScheduleRule{Every: time.Second}, Overlap: tasker.OverlapAllow, CatchUp: tasker.CatchUpLast, StartWithin: 10 * time.Second,
	}, Anchor: next}
	p := Decide(ruleAt(t, s), Situation{Schedule: s, Now: noon})
	if p.Unpause || len(p.Rows) != 1 || p.Rows[0].Instants != MaxPause || !p.FireAt.Equal(noon) {
		t.Errorf("the first plan is %+v", p)
	}
	s.NextAt = p.NextAt
	if p = Decide(ruleAt(t, s), Situation{Schedule: s, Now: noon}); !p.Unpause || p.Rows[0].Instants != 100 || len(p.Rows) != 2 {
		t.Errorf("the second plan is %+v", p)
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		at := noon.Add(time.Duration(i) * time.Minute)
		j := Jitter(tasker.ID{1}, at, time.Minute)
		if j < 0 || j > time.Minute || j != Jitter(tasker.ID{1}, at, time.Minute) {
			t.Fatalf("the jitter is %s", j)
		}
		seen[j.Truncate(time.Second)] = true
	}
	if len(seen) < 55 {
		t.Errorf("the jitters fall into %d of 60 seconds", len(seen))
	}
	if Jitter(tasker.ID{1}, noon, time.Minute) == Jitter(tasker.ID{2}, noon, time.Minute) {
		t.Error("two schedules have the same jitter")
	}
	s := hourly(0, func(s *tasker.Schedule) { s.Jitter = time.Minute })
	fire := noon.Add(Jitter(s.UUID, noon, time.Minute))
	if p := Decide(ruleAt(t, s), Situation{Schedule: s, Now: fire.Add(-time.Millisecond)}); len(p.Rows) != 0 || !p.FireAt.Equal(fire) {
		t.Errorf("before its time the plan is %+v", p)
	}
	if p := Decide(ruleAt(t, s), Situation{Schedule: s, Now: fire}); len(p.Rows) != 1 || p.Rows[0].Late != 0 || !p.Rows[0].From.Equal(noon) {
		t.Errorf("at its time the plan is %+v", p)
	}
}

// With a jitter that is longer than the interval instants wait for the jitter of those before
// them. That is nobody's delay: while servers are healthy none is missed.
func TestAJitterThatIsLongerThanTheInterval(t *testing.T) {
	t.Parallel()
	for _, catchUp := range tasker.CatchUps() {
		s := hourly(0, func(s *tasker.Schedule) {
			s.Every, s.Jitter, s.CatchUp, s.CatchUpMax = time.Minute, time.Hour, catchUp, 10
		})
		rule := ruleAt(t, s)
		of := map[tasker.FiringOutcome]int64{}
		for now := noon; now.Before(noon.Add(6 * time.Hour)); {
			p := Decide(rule, Situation{Schedule: s, Now: now})
			for _, r := range p.Rows {
				of[r.Outcome] += r.Instants
			}
			s.NextAt, s.FireAt = p.NextAt, p.FireAt
			if p.FireAt.After(now) {
				now = *p.FireAt
			}
		}
		if of[tasker.FiringStarted] < 5*60 || len(of) > 1 {
			t.Errorf("catch_up %s: %v", catchUp, of)
		}
	}
}

func TestFixedRates(t *testing.T) {
	t.Parallel()
	start, end := instantOf(t, "2026-02-01T00:10:00Z"), instantOf(t, "2026-02-01T00:40:00Z")
	rule, _ := Compile(tasker.ScheduleRule{Every: 15 * time.Minute, StartAt: &start, EndAt: &end}, start)
	list, more := rule.Between(instantOf(t, "2026-01-01T00:00:00Z"), instantOf(t, "2027-01-01T00:00:00Z"), 10)
	if len(list) != 3 || more || !list[0].Equal(start) || !list[2].Equal(end) {
		t.Errorf("the instants are %v", list)
	}
	if list, more = rule.Between(start, end, 2); len(list) != 2 || !more {
		t.Errorf("two of the instants are %v, more %t", list, more)
	}
	if at, ok := rule.First(end); ok {
		t.Errorf("%s is behind the end", at)
	}
	delay, _ := Compile(tasker.ScheduleRule{AfterEnd: time.Hour, EndAt: &end}, start)
	if at, ok := delay.First(instantOf(t, "2026-01-31T23:30:00Z")); !ok || !at.Equal(instantOf(t, "2026-02-01T00:30:00Z")) {
		t.Errorf("the first is %s", at)
	}
	if at, ok := delay.AfterEnd(end); ok {
		t.Errorf("%s is behind the end", at)
	}
}

func TestUpcoming(t *testing.T) {
	t.Parallel()
	rule := ruleOf(t, tasker.ScheduleRule{Cron: "0 9 * * *", Zone: "Europe/Berlin", Except: []string{"sat", "sun", "2026-12-24..2027-01-01"}})
	list := rule.Upcoming(instantOf(t, "2026-12-23T08:00:00Z"), 2)
	if len(list) != 2 || !list[1].Equal(instantOf(t, "2027-01-04T08:00:00Z")) {
		t.Errorf("the next instants are %v", list)
	}
	never := ruleOf(t, tasker.ScheduleRule{Cron: "0 9 * * sat", Except: []string{"sat"}})
	first, _ := never.Next(noon)
	if list := never.Upcoming(first, 2); len(list) != 0 {
		t.Errorf("the next instants are %v", list)
	}
}
