package schedule

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A cron is a parsed cron expression. It contains the set of allowed values of each field.
type cron struct {
	seconds, minutes, hours, days, months, weekdays uint64
	everyDay, everyWeekday                          bool // the field does not restrict the day
	both                                            bool // a day must match both fields instead of one of them
}

// A field describes one field of a cron expression.
type field struct {
	name     string
	min, max int
	names    []string // names of the values, starting with min
}

var fields = [...]field{
	{name: "second", max: 59},
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{name: "day of week", max: 7, names: strings.Fields("sun mon tue wed thu fri sat")},
}

// macros maps the predefined expressions to their definitions.
var macros = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// maxCron limits the length of an expression in bytes.
const maxCron = 256

// parseCron parses an expression with five fields, or with six of which the first is the second.
// dayMatch must be any or all if both day fields are restricted, and empty otherwise.
func parseCron(text, dayMatch string) (*cron, error) {
	if len(text) > maxCron {
		return nil, fmt.Errorf("has %d bytes; the limit is %d", len(text), maxCron)
	}
	known := text
	if strings.HasPrefix(text, "@") {
		var found bool
		if known, found = macros[text]; !found {
			return nil, fmt.Errorf("unknown macro %q: must be one of %s", text, strings.Join(slices.Sorted(maps.Keys(macros)), ", "))
		}
	}
	parts := strings.Fields(known)
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != len(fields) {
		return nil, fmt.Errorf("has %d fields; must have 5 (minute, hour, day of month, month, day of week) "+
			"or 6, beginning with the second", len(parts))
	}
	var sets [len(fields)]uint64
	for i, f := range fields {
		var err error
		if sets[i], err = f.parse(parts[i]); err != nil {
			return nil, err
		}
	}
	c := &cron{seconds: sets[0], minutes: sets[1], hours: sets[2], days: sets[3], months: sets[4], weekdays: sets[5]}
	if c.weekdays&(1<<7) != 0 {
		c.weekdays = c.weekdays&^(1<<7) | 1 // both 0 and 7 are Sunday
	}
	c.everyDay, c.everyWeekday = bits.OnesCount64(c.days) == 31, bits.OnesCount64(c.weekdays) == 7
	switch restricted := !c.everyDay && !c.everyWeekday; {
	case restricted && dayMatch == "":
		return nil, fmt.Errorf("restricts both day of month and day of week: set day_match to any or all")
	case !restricted && dayMatch != "":
		return nil, fmt.Errorf("does not restrict both day of month and day of week: remove day_match")
	default:
		c.both = dayMatch == "all"
	}
	if _, ok := c.nextWallTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return nil, fmt.Errorf("%q never occurs", text)
	}
	return c, nil
}

// parse parses a list of *, values and ranges, each with an optional step.
func (f field) parse(text string) (set uint64, err error) {
	for item := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > f.max {
				return 0, fmt.Errorf("%s %q: the step must be a number from 1 to %d", f.name, item, f.max)
			}
		}
		from, to, err := f.parseSpan(span, stepped)
		if err != nil {
			return 0, err
		}
		for v := from; v <= to; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

// parseSpan parses one item without its step. The flag stepped reports whether it has one.
func (f field) parseSpan(text string, stepped bool) (from, to int, err error) {
	if text == "*" {
		if f.max == 7 {
			return f.min, 6, nil // 7 is Sunday, like 0
		}
		return f.min, f.max, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if from, err = f.parseValue(first); err != nil {
		return 0, 0, err
	}
	switch {
	case isRange:
		if to, err = f.parseValue(last); err != nil {
			return 0, 0, err
		}
	case stepped:
		to = f.max
	default:
		to = from
	}
	if to < from {
		return 0, 0, fmt.Errorf("%s %q: the range ends before it begins", f.name, text)
	}
	return from, to, nil
}

func (f field) parseValue(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.min + i, nil
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < f.min || v > f.max {
		return 0, fmt.Errorf("%s %q: must be *, or a value from %d to %d", f.name, text, f.min, f.max)
	}
	return v, nil
}

// farYears limits the search. It can take 40 years until 29 February falls on a given weekday, if a
// century has no leap day.
const farYears = 41

// nextWallTime returns the first matching local time that is not before from. Both times are
// represented in UTC, without a time zone. It returns false if no local time matches.
func (c *cron) nextWallTime(from time.Time) (time.Time, bool) {
	day := time.Date(from.Year(), from.Month(), from.Day(), 0, 0, 0, 0, time.UTC)
	if at, ok := c.nextInDay(day, from.Hour(), from.Minute(), from.Second()); ok {
		return at, true
	}
	for last := from.Year() + farYears; day.Year() <= last; {
		day = day.AddDate(0, 0, 1)
		if c.months&(1<<day.Month()) == 0 {
			day = time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC) // the last day of this month
			continue
		}
		if at, ok := c.nextInDay(day, 0, 0, 0); ok {
			return at, true
		}
	}
	return time.Time{}, false
}

// nextInDay returns the first matching time of a day that is not before the given time of day.
func (c *cron) nextInDay(day time.Time, hour, minute, second int) (time.Time, bool) {
	if !c.hasDay(day) {
		return time.Time{}, false
	}
	for h := nextBit(c.hours, hour); h >= 0; h = nextBit(c.hours, h+1) {
		if h > hour {
			minute, second = 0, 0
		}
		for m := nextBit(c.minutes, minute); m >= 0; m = nextBit(c.minutes, m+1) {
			if h > hour || m > minute {
				second = 0
			}
			if s := nextBit(c.seconds, second); s >= 0 {
				return day.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second), true
			}
		}
	}
	return time.Time{}, false
}

func (c *cron) hasDay(day time.Time) bool {
	if c.months&(1<<day.Month()) == 0 {
		return false
	}
	ofMonth, ofWeek := c.days&(1<<day.Day()) != 0, c.weekdays&(1<<day.Weekday()) != 0
	if c.everyDay || c.everyWeekday || c.both {
		return ofMonth && ofWeek
	}
	return ofMonth || ofWeek
}

// firesEveryHour reports whether the expression allows every hour.
func (c *cron) firesEveryHour() bool { return bits.OnesCount64(c.hours) == 24 }

// nextBit returns the smallest member of a set that is at least from, or -1 if there is none.
func nextBit(set uint64, from int) int {
	if set >>= from; set == 0 {
		return -1
	}
	return from + bits.TrailingZeros64(set)
}
