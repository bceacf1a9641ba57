package schedule

import (
	"time"
	_ "time/tzdata" // zones are known where the system has none
)

// after returns the first instant after t at which the expression fires in a zone.
//
// An expression for every hour follows elapsed time: it fires twice where the clock is set back
// and never for skipped times. Any other fires once per local time: the first of two, or at the
// end of a gap.
func (c *cron) after(t time.Time, zone *time.Location) (time.Time, bool) {
	if c.everyHour() {
		return c.shownAfter(t, zone)
	}
	wall := wallOf(t.In(zone))
	for {
		var ok bool
		if wall, ok = c.wallAt(wall.Add(time.Second)); !ok {
			return time.Time{}, false
		}
		if at := firstShown(wall, zone); at.After(t) {
			return at, true
		}
	}
}

// shownAfter returns the first instant after another one at which the clock on the wall shows
// a time of the expression.
func (c *cron) shownAfter(t time.Time, zone *time.Location) (time.Time, bool) {
	for t = t.Truncate(time.Second).Add(time.Second).In(zone); ; {
		wall := wallOf(t)
		found, ok := c.wallAt(wall)
		if !ok {
			return time.Time{}, false
		}
		at := t.Add(found.Sub(wall))
		_, end := t.ZoneBounds()
		if end.IsZero() || at.Before(end) {
			return at.UTC(), true
		}
		t = end // the clock is set
	}
}

// wallOf returns what the clock on the wall shows, spelled in UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// firstShown returns the first instant at which the clock of a zone shows a time, or else the
// end of the leap over it.
func firstShown(wall time.Time, zone *time.Location) time.Time {
	near := wall.In(zone)
	_, offset := near.Zone()
	near = wall.Add(-time.Duration(offset) * time.Second).In(zone)
	start, end := near.ZoneBounds()
	// The period of the zone in which the time is shown is this one or one beside it.
	periods := []time.Time{near}
	if !start.IsZero() {
		periods = []time.Time{start.Add(-time.Nanosecond), near}
	}
	if !end.IsZero() {
		periods = append(periods, end)
	}
	for _, in := range periods {
		_, offset := in.Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		from, to := in.ZoneBounds()
		if !to.IsZero() && !at.Before(to) {
			continue // shown later, or never
		}
		if !from.IsZero() && at.Before(from) {
			return from.UTC() // the clock has leapt over it
		}
		return at.UTC()
	}
	return wall.Add(-time.Duration(offset) * time.Second).UTC()
}
