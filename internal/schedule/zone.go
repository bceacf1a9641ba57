package schedule

import (
	"time"
	_ "time/tzdata" // for systems without time zone data
)

// nextAfter returns the first firing time after t in a time zone.
//
// An expression that allows every hour follows elapsed time: it fires twice when the clock is set
// back and never at local times that are skipped. Any other expression fires once per matching
// local time: at its first occurrence or, if it is skipped, at the end of the gap.
func (c *cron) nextAfter(t time.Time, zone *time.Location) (time.Time, bool) {
	if c.firesEveryHour() {
		return c.nextShownAfter(t, zone)
	}
	wall := toWallTime(t.In(zone))
	for {
		var ok bool
		if wall, ok = c.nextWallTime(wall.Add(time.Second)); !ok {
			return time.Time{}, false
		}
		if at := firstShownAt(wall, zone); at.After(t) {
			return at, true
		}
	}
}

// nextShownAfter returns the first time after t whose local time matches the expression. A local
// time that occurs twice matches twice.
func (c *cron) nextShownAfter(t time.Time, zone *time.Location) (time.Time, bool) {
	for t = t.Truncate(time.Second).Add(time.Second).In(zone); ; {
		wall := toWallTime(t)
		found, ok := c.nextWallTime(wall)
		if !ok {
			return time.Time{}, false
		}
		at := t.Add(found.Sub(wall))
		_, end := t.ZoneBounds()
		if end.IsZero() || at.Before(end) {
			return at.UTC(), true
		}
		t = end // the offset of the zone changes here
	}
}

// toWallTime returns the local time of t, represented in UTC.
func toWallTime(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// firstShownAt returns the first time with the given local time in a zone. If the local time is
// skipped, it returns the end of the gap.
func firstShownAt(wall time.Time, zone *time.Location) time.Time {
	near := wall.In(zone)
	_, offset := near.Zone()
	near = wall.Add(-time.Duration(offset) * time.Second).In(zone)
	start, end := near.ZoneBounds()
	// The local time is in this period of constant offset or in an adjacent one.
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
			continue // in a later period, or skipped
		}
		if !from.IsZero() && at.Before(from) {
			return from.UTC() // skipped
		}
		return at.UTC()
	}
	return wall.Add(-time.Duration(offset) * time.Second).UTC()
}
