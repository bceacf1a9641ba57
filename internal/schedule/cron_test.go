package schedule

import (
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

func ruleOf(t *testing.T, spec tasker.ScheduleRule) *Rule {
	t.Helper()
	rule, faults := Compile(spec, time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
	if len(faults) > 0 {
		t.Fatalf("%+v: %s", spec, faults)
	}
	return rule
}

func instantOf(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestCronIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ cron, match, says string }{
		{"", "", "set exactly one of cron"},
		{"* * * *", "", "has 4 fields"},
		{"* * * * * * *", "", "has 7 fields"},
		{"60 * * * *", "", `minute "60": must be *, or a value from 0 to 59`},
		{"60 * * * * *", "", `second "60"`},
		{"* 24 * * *", "", `hour "24"`},
		{"* * 0 * *", "", `day of month "0": must be *, or a value from 1 to 31`},
		{"* * * 13 *", "", `month "13"`},
		{"* * * * 8", "", `day of week "8"`},
		{"* * * * fun", "", `day of week "fun"`},
		{"5-1 * * * *", "", `minute "5-1": the range ends before it begins`},
		{"*/0 * * * *", "", `minute "*/0": the step must be a number from 1 to 59`},
		{"*/60 * * * *", "", `the step must be a number from 1 to 59`},
		{"1,, * * * *", "", `minute ""`},
		{"0 0 30 2 *", "", `"0 0 30 2 *" never occurs`},
		{"0 0 31 4,6,9,11 *", "", "never occurs"},
		{"0 0 13 * 5", "", "restricts both day of month and day of week: set day_match to any or all"},
		{"0 0 * * 5", "any", "does not restrict both"},
		{"0 0 13 * 5", "both", "must be any or all"},
		{"@reboot", "", `unknown macro "@reboot"`},
		{strings.Repeat("1,", 200) + "1 * * * *", "", "the limit is 256"},
	} {
		_, faults := Compile(tasker.ScheduleRule{Cron: tt.cron, DayMatch: tt.match}, time.Time{})
		var all string
		for _, f := range faults {
			all += f.String() + "; "
		}
		if !strings.Contains(all, tt.says) {
			t.Errorf("%q: %q does not say %q", tt.cron, all, tt.says)
		}
	}
}

func TestARuleIsRefused(t *testing.T) {
	t.Parallel()
	early := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	start, end := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for says, spec := range map[string]tasker.ScheduleRule{
		"set exactly one of cron, every_seconds and after_end_seconds":    {Cron: "@daily", Every: time.Hour},
		`zone: invalid time zone "Mars/Olympus"`:                          {Cron: "@daily", Zone: "Mars/Olympus"},
		`zone: invalid time zone "Local"`:                                 {Cron: "@daily", Zone: "Local"},
		"zone: requires cron or except":                                   {Every: time.Hour, Zone: "Europe/Berlin"},
		"every_seconds: must be a whole number of seconds":                {Every: 1500 * time.Millisecond},
		"after_end_seconds: must be a whole number of seconds":            {AfterEnd: 400 * 24 * time.Hour},
		"jitter_seconds: must be a whole number of seconds, at most 3600": {Every: time.Hour, Jitter: 2 * time.Hour},
		"cannot be used with after_end_seconds":                           {AfterEnd: time.Hour, Except: []string{"sat"}},
		"day_match: requires cron":                                        {Every: time.Hour, DayMatch: "any"},
		`except[1]: invalid exception "2026-13-01"`:                       {Cron: "@daily", Except: []string{"sun", "2026-13-01"}},
		`except[0]: invalid exception "2026-12-31..2026-12-01"`:           {Cron: "@daily", Except: []string{"2026-12-31..2026-12-01"}},
		"the limit is 100":                                                {Cron: "@daily", Except: make([]string, 101)},
		"start_at: must be between":                                       {Cron: "@daily", StartAt: &early},
		"end_at: must not be before start_at":                             {Cron: "@daily", StartAt: &start, EndAt: &end},
	} {
		_, faults := Compile(spec, time.Time{})
		var all []string
		for _, f := range faults {
			all = append(all, f.String())
		}
		if len(all) != 1 || !strings.Contains(all[0], says) {
			t.Errorf("%q is not the fault: %q", says, all)
		}
	}
}

// What instants an expression has, without any change of the clock.
func TestCronInstants(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ cron, match, after, want string }{
		{"0 9 * * *", "", "2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z 2026-01-03T09:00:00Z"},
		{"0 9 * * *", "", "2026-01-01T08:59:59Z", "2026-01-01T09:00:00Z"},
		{"*/20 * * * *", "", "2026-01-01T23:41:00Z", "2026-01-02T00:00:00Z 2026-01-02T00:20:00Z 2026-01-02T00:40:00Z 2026-01-02T01:00:00Z"},
		{"30 15 10 * * *", "", "2026-01-01T10:15:29Z", "2026-01-01T10:15:30Z 2026-01-02T10:15:30Z"},
		{"*/30 * * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z 2026-01-01T00:01:00Z"},
		{"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{"0 0 29 2 *", "", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 29 2 1", "all", "2024-03-01T00:00:00Z", "2044-02-29T00:00:00Z"},
		{"0 0 29 2 1", "all", "2072-03-01T00:00:00Z", "2112-02-29T00:00:00Z"},
		{"0 0 31 * *", "", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z 2026-05-31T00:00:00Z"},
		{"0 0 13 * fri", "all", "2026-01-01T00:00:00Z", "2026-02-13T00:00:00Z 2026-03-13T00:00:00Z"},
		{"0 0 13 * fri", "any", "2026-01-08T00:00:00Z", "2026-01-09T00:00:00Z 2026-01-13T00:00:00Z 2026-01-16T00:00:00Z"},
		{"0 12 * jan-mar/2 mon", "", "2026-01-26T12:00:00Z", "2026-03-02T12:00:00Z"},
		{"0 0 * * 7", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"0 0 * * 5-7", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-09T00:00:00Z"},
		{"5/25 0 1 1 *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z 2026-01-01T00:30:00Z 2026-01-01T00:55:00Z 2027-01-01T00:05:00Z"},
		{"@yearly", "", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"@annually", "", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"@midnight", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		{"@monthly", "", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"@weekly", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"@hourly", "", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"},
	} {
		wantInstants(t, tasker.ScheduleRule{Cron: tt.cron, DayMatch: tt.match}, tt.after, tt.want)
	}
}

func wantInstants(t *testing.T, spec tasker.ScheduleRule, after, want string) {
	t.Helper()
	rule, at := ruleOf(t, spec), instantOf(t, after)
	var got []string
	for range strings.FieldsSeq(want) {
		var ok bool
		if at, ok = rule.Next(at); !ok {
			break
		}
		got = append(got, at.UTC().Format(time.RFC3339))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%s%s in %s after %s: %s, want %s", spec.Cron, spec.Every, spec.Zone, after, strings.Join(got, " "), want)
	}
}

// At the changes of the clocks of twenty zones: the expression fires once at the end of a leap
// over its time, and once, the first time, where the clock shows it twice. One that has every
// hour follows the time that passes.
func TestChangesOfTheClock(t *testing.T) {
	t.Parallel()
	n := 0
	for _, tt := range []struct{ zone, cron, after, want string }{
		// Europe: 01:00 UTC. Berlin leaps from 02:00 to 03:00, and back from 03:00 to 02:00.
		{"Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"Europe/Berlin", "0 2,3 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:00:00Z"},
		{"Europe/Berlin", "*/20 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:00:00Z"},
		{"Europe/Berlin", "*/20 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:00:00Z 2026-10-25T00:20:00Z 2026-10-25T00:40:00Z 2026-10-26T01:00:00Z"},
		{"Europe/Berlin", "30 * * * *", "2026-03-29T00:00:00Z", "2026-03-29T00:30:00Z 2026-03-29T01:30:00Z"},
		{"Europe/Berlin", "30 * * * *", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z 2026-10-25T01:30:00Z 2026-10-25T02:30:00Z"},
		{"Europe/Berlin", "0 0 * * *", "2026-03-28T12:00:00Z", "2026-03-28T23:00:00Z 2026-03-29T22:00:00Z"},
		{"Europe/Berlin", "0 3 * * *", "2026-10-24T12:00:00Z", "2026-10-25T02:00:00Z 2026-10-26T02:00:00Z"},
		{"Europe/London", "30 1 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"Europe/London", "30 1 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"Europe/London", "0 1 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:00:00Z 2026-10-26T01:00:00Z"},
		{"Europe/Dublin", "30 1 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"Europe/Dublin", "30 1 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"Europe/Helsinki", "30 3 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"Atlantic/Azores", "30 0 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"Atlantic/Azores", "30 0 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		// America: 02:00 local time.
		{"America/New_York", "30 2 * * *", "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z 2026-03-09T06:30:00Z"},
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z", "2026-11-01T05:30:00Z 2026-11-02T06:30:00Z"},
		{"America/New_York", "30 2 * * *", "2026-10-31T12:00:00Z", "2026-11-01T07:30:00Z 2026-11-02T07:30:00Z"},
		{"America/New_York", "15 * * * *", "2026-11-01T05:00:00Z", "2026-11-01T05:15:00Z 2026-11-01T06:15:00Z 2026-11-01T07:15:00Z"},
		{"America/Los_Angeles", "0 2 * * *", "2026-03-07T12:00:00Z", "2026-03-08T10:00:00Z 2026-03-09T09:00:00Z"},
		{"America/Los_Angeles", "59 1 * * *", "2026-10-31T12:00:00Z", "2026-11-01T08:59:00Z 2026-11-02T09:59:00Z"},
		{"America/St_Johns", "30 2 * * *", "2026-03-07T12:00:00Z", "2026-03-08T05:30:00Z 2026-03-09T05:00:00Z"},
		{"America/St_Johns", "30 1 * * *", "2026-10-31T12:00:00Z", "2026-11-01T04:00:00Z 2026-11-02T05:00:00Z"},
		{"America/Havana", "30 0 * * *", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00Z 2026-03-09T04:30:00Z"},
		{"America/Havana", "30 0 * * *", "2026-10-31T12:00:00Z", "2026-11-01T04:30:00Z 2026-11-02T05:30:00Z"},
		{"America/Havana", "0 0 * * *", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00Z 2026-03-09T04:00:00Z"},
		{"America/Santiago", "0 0 * * *", "2026-09-05T12:00:00Z", "2026-09-06T04:00:00Z 2026-09-07T03:00:00Z"},
		{"America/Santiago", "30 23 * * *", "2026-04-04T12:00:00Z", "2026-04-05T02:30:00Z 2026-04-06T03:30:00Z"},
		{"America/Asuncion", "0 0 * * *", "2023-09-30T12:00:00Z", "2023-10-01T04:00:00Z 2023-10-02T03:00:00Z"},
		{"America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z 2018-11-05T02:00:00Z"},
		{"America/Sao_Paulo", "30 23 * * *", "2019-02-16T12:00:00Z", "2019-02-17T01:30:00Z 2019-02-18T02:30:00Z"},
		{"America/Caracas", "45 2 * * *", "2016-04-30T12:00:00Z", "2016-05-01T07:00:00Z 2016-05-02T06:45:00Z"},
		// Asia and Africa, some at midnight.
		{"Asia/Beirut", "0 0 * * *", "2026-03-28T12:00:00Z", "2026-03-28T22:00:00Z 2026-03-29T21:00:00Z"},
		{"Asia/Beirut", "30 23 * * *", "2026-10-24T12:00:00Z", "2026-10-24T20:30:00Z 2026-10-25T21:30:00Z"},
		{"Asia/Jerusalem", "30 2 * * *", "2026-03-26T12:00:00Z", "2026-03-27T00:00:00Z 2026-03-27T23:30:00Z"},
		{"Asia/Jerusalem", "30 1 * * *", "2026-10-24T12:00:00Z", "2026-10-24T22:30:00Z 2026-10-25T23:30:00Z"},
		{"Asia/Tehran", "30 0 * * *", "2021-03-21T12:00:00Z", "2021-03-21T20:30:00Z 2021-03-22T20:00:00Z"},
		{"Asia/Tehran", "30 23 * * *", "2021-09-21T12:00:00Z", "2021-09-21T19:00:00Z 2021-09-22T20:00:00Z"},
		{"Asia/Pyongyang", "45 23 * * *", "2018-05-04T00:00:00Z", "2018-05-04T15:00:00Z 2018-05-05T14:45:00Z"},
		{"Asia/Kolkata", "30 5 * * *", "2026-03-28T12:00:00Z", "2026-03-29T00:00:00Z 2026-03-30T00:00:00Z"},
		{"Asia/Kathmandu", "45 5 * * *", "2026-03-28T12:00:00Z", "2026-03-29T00:00:00Z"},
		{"Asia/Tokyo", "0 9 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"Africa/Cairo", "30 0 * * *", "2026-04-23T12:00:00Z", "2026-04-23T22:00:00Z 2026-04-24T21:30:00Z"},
		{"Africa/Cairo", "30 23 * * *", "2026-10-29T00:00:00Z", "2026-10-29T20:30:00Z 2026-10-30T21:30:00Z"},
		{"Africa/Casablanca", "30 2 * * *", "2026-02-14T12:00:00Z", "2026-02-15T01:30:00Z 2026-02-16T02:30:00Z"},
		{"Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00:00Z", "2026-03-22T02:00:00Z 2026-03-23T01:30:00Z"},
		// The south, and leaps that are not an hour.
		{"Australia/Sydney", "30 2 * * *", "2026-10-03T12:00:00Z", "2026-10-03T16:00:00Z 2026-10-04T15:30:00Z"},
		{"Australia/Sydney", "30 2 * * *", "2026-04-04T12:00:00Z", "2026-04-04T15:30:00Z 2026-04-05T16:30:00Z"},
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00Z", "2026-10-03T15:30:00Z 2026-10-04T15:15:00Z"},
		{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00:00Z", "2026-04-04T14:45:00Z 2026-04-05T15:15:00Z"},
		{"Australia/Lord_Howe", "45 * * * *", "2026-04-04T14:00:00Z", "2026-04-04T14:45:00Z 2026-04-04T15:15:00Z 2026-04-04T16:15:00Z"},
		{"Australia/Lord_Howe", "15 * * * *", "2026-10-03T14:00:00Z", "2026-10-03T14:45:00Z 2026-10-03T16:15:00Z"},
		{"Pacific/Auckland", "30 2 * * *", "2026-09-26T00:00:00Z", "2026-09-26T14:00:00Z 2026-09-27T13:30:00Z"},
		{"Pacific/Auckland", "30 2 * * *", "2026-04-04T00:00:00Z", "2026-04-04T13:30:00Z 2026-04-05T14:30:00Z"},
		{"Pacific/Chatham", "0 3 * * *", "2026-09-26T00:00:00Z", "2026-09-26T14:00:00Z 2026-09-27T13:15:00Z"},
		{"Pacific/Apia", "0 12 * * *", "2011-12-29T00:00:00Z", "2011-12-29T22:00:00Z 2011-12-30T10:00:00Z 2011-12-30T22:00:00Z"},
		{"Pacific/Apia", "0 12 30 12 *", "2011-12-01T00:00:00Z", "2011-12-30T10:00:00Z 2012-12-29T22:00:00Z"},
		{"Pacific/Kwajalein", "0 9 * * *", "1993-08-20T00:00:00Z", "1993-08-20T21:00:00Z 1993-08-21T12:00:00Z 1993-08-21T21:00:00Z"},
		{"Antarctica/Troll", "30 1 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-29T23:30:00Z"},
		{"Antarctica/Troll", "30 1 * * *", "2026-10-24T12:00:00Z", "2026-10-24T23:30:00Z 2026-10-26T01:30:00Z"},
		{"UTC", "30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T02:30:00Z 2026-03-30T02:30:00Z"},
	} {
		n++
		wantInstants(t, tasker.ScheduleRule{Cron: tt.cron, Zone: tt.zone}, tt.after, tt.want)
	}
	if n < 60 {
		t.Errorf("%d cases", n)
	}
}

// In each season of the changes, the next instants are those of a walk through every minute: each time of
// the expression comes once, in order.
func TestInstantsAreThoseOfTheMinutes(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Cairo", "Asia/Kolkata"} {
		for _, text := range []string{"30 2 * * *", "15,45 0-3 * * *", "*/10 * * * *", "0 0 29 2 *", "0 23 * * sun"} {
			rule := ruleOf(t, tasker.ScheduleRule{Cron: text, Zone: zone})
			for _, from := range []time.Time{time.Date(2028, 2, 25, 12, 0, 0, 0, time.UTC), time.Date(2028, 9, 25, 12, 0, 0, 0, time.UTC)} {
				at := from
				for i, w := range minutesOf(t, text, zone, from, from.AddDate(0, 0, 45)) {
					var ok bool
					if at, ok = rule.Next(at); !ok || !at.Equal(w) {
						t.Fatalf("%s in %s: instant %d is %s, want %s", text, zone, i, at, w.UTC())
					}
				}
			}
		}
	}
}

// minutesOf finds the instants of an expression by looking at the clock each minute.
func minutesOf(t *testing.T, text, zone string, from, to time.Time) (list []time.Time) {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseCron(text, "")
	if err != nil {
		t.Fatal(err)
	}
	has := func(w time.Time) bool {
		return c.hasDay(w) && c.hours&(1<<w.Hour()) != 0 && c.minutes&(1<<w.Minute()) != 0
	}
	seen := map[time.Time]bool{}
	before := toWallTime(from.In(loc))
	for at := from.Add(time.Minute); at.Before(to); at = at.Add(time.Minute) {
		wall := toWallTime(at.In(loc))
		fires := has(wall) && (c.firesEveryHour() || !seen[wall])
		seen[wall] = true
		if !c.firesEveryHour() {
			for w := before.Add(time.Minute); w.Before(wall); w = w.Add(time.Minute) { // the clock has leapt over it
				fires = fires || has(w)
			}
		}
		if fires {
			list = append(list, at)
		}
		before = wall
	}
	return list
}
