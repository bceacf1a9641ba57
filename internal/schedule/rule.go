// Package schedule computes the firing times of schedules and decides which of them create tasks.
// It is pure: the caller supplies the time and the running tasks. Every past firing time belongs to
// a row of a [Plan]. The row contains the reason if the firing creates no task.
package schedule

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// A Rule computes the firing times of a schedule.
type Rule struct {
	spec   tasker.ScheduleRule
	cron   *cron
	zone   *time.Location
	anchor time.Time
	except []exception
}

// An exception is a weekday or a range of days without firings.
type exception struct {
	text     string
	from, to string // dates, such as 2026-12-25
	weekday  time.Weekday
	weekly   bool
}

// Compile validates and compiles a rule. The argument anchor is the origin of a fixed rate. The
// paths of the faults are field names of the API.
func Compile(spec tasker.ScheduleRule, anchor time.Time) (*Rule, []tasker.Fault) {
	r := &Rule{spec: spec, anchor: anchor.UTC().Truncate(time.Second), zone: time.UTC}
	var faults []tasker.Fault
	fault := func(path, format string, args ...any) {
		faults = append(faults, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	kinds := 0
	for _, has := range []bool{spec.Cron != "", spec.Every != 0, spec.AfterEnd != 0} {
		if has {
			kinds++
		}
	}
	if kinds != 1 {
		fault("cron", "set exactly one of cron, every_seconds and after_end_seconds")
	}
	if spec.Cron != "" {
		var err error
		if r.cron, err = parseCron(spec.Cron, spec.DayMatch); err != nil {
			fault("cron", "%s", err)
		}
	}
	if spec.Zone != "" {
		zone, err := time.LoadLocation(spec.Zone)
		if err != nil || spec.Zone == "Local" {
			fault("zone", "invalid time zone %q: must be a name such as Europe/Berlin or UTC", spec.Zone)
		} else {
			r.zone = zone
		}
	}
	r.checkFields(fault)
	if len(spec.Except) > tasker.MaxScheduleExcept {
		fault("except", "has %d exceptions; the limit is %d", len(spec.Except), tasker.MaxScheduleExcept)
		return r, faults
	}
	for i, text := range spec.Except {
		x, ok := parseException(text)
		if !ok {
			fault(fmt.Sprintf("except[%d]", i), "invalid exception %q: must be a date such as 2026-12-25, "+
				"a range such as 2026-12-24..2027-01-01, or a weekday such as sat", text)
		}
		r.except = append(r.except, x)
	}
	return r, faults
}

// checkFields validates the ranges and combinations of fields.
func (r *Rule) checkFields(fault func(path, format string, args ...any)) {
	spec := r.spec
	span := func(path string, d, limit time.Duration) {
		if d < 0 || d > limit || d%time.Second != 0 {
			fault(path, "must be a whole number of seconds, at most %d", int64(limit/time.Second))
		}
	}
	span("every_seconds", spec.Every, tasker.MaxScheduleInterval)
	span("after_end_seconds", spec.AfterEnd, tasker.MaxScheduleInterval)
	span("jitter_seconds", spec.Jitter, tasker.MaxScheduleJitter)
	if spec.DayMatch != "" && spec.DayMatch != "any" && spec.DayMatch != "all" {
		fault("day_match", "must be any or all, not %q", spec.DayMatch)
	}
	if spec.DayMatch != "" && spec.Cron == "" {
		fault("day_match", "requires cron")
	}
	if spec.AfterEnd != 0 && len(spec.Except) > 0 {
		fault("except", "cannot be used with after_end_seconds")
	}
	if spec.Zone != "" && spec.Cron == "" && len(spec.Except) == 0 {
		fault("zone", "requires cron or except")
	}
	for path, at := range map[string]*time.Time{"start_at": spec.StartAt, "end_at": spec.EndAt} {
		if at != nil && (at.Year() < 2000 || at.Year() > 2200) {
			fault(path, "must be between the years 2000 and 2200")
		}
	}
	if spec.StartAt != nil && spec.EndAt != nil && spec.EndAt.Before(*spec.StartAt) {
		fault("end_at", "must not be before start_at")
	}
}

const dateLayout = "2006-01-02"

func parseException(text string) (exception, bool) {
	if i := slices.Index(fields[5].names, strings.ToLower(text)); i >= 0 {
		return exception{text: text, weekday: time.Weekday(i), weekly: true}, true
	}
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		to = from
	}
	for _, date := range []string{from, to} {
		if _, err := time.Parse(dateLayout, date); err != nil {
			return exception{}, false
		}
	}
	return exception{text: text, from: from, to: to}, from <= to
}

// ExceptionAt returns the text of the exception that applies to a firing time, or "".
func (r *Rule) ExceptionAt(at time.Time) string {
	if len(r.except) == 0 {
		return ""
	}
	local := at.In(r.zone)
	date := local.Format(dateLayout)
	for _, x := range r.except {
		if x.weekly && local.Weekday() == x.weekday || !x.weekly && x.from <= date && date <= x.to {
			return x.text
		}
	}
	return ""
}

// nextWithoutException returns the first firing time in (after, until] to which no exception
// applies. It skips hours and minutes within an exception quickly.
func (r *Rule) nextWithoutException(after, until time.Time) (time.Time, bool) {
	for at, ok := r.Next(after); ok && !at.After(until); at, ok = r.Next(at) {
		if r.ExceptionAt(at) == "" {
			return at, true
		}
		for _, step := range []time.Duration{time.Hour, time.Minute} {
			for next := at.Add(step); !next.After(until) && r.ExceptionAt(next) != ""; next = next.Add(step) {
				at = next
			}
		}
	}
	return time.Time{}, false
}

// Next returns the first firing time after the given time, ignoring exceptions. It returns false if
// there is none. A fixed delay has none, because its firing times depend on its tasks.
func (r *Rule) Next(after time.Time) (at time.Time, ok bool) {
	if start := r.spec.StartAt; start != nil && after.Before(*start) {
		after = start.Add(-time.Nanosecond)
	}
	switch {
	case r.cron != nil:
		at, ok = r.cron.nextAfter(after, r.zone)
	case r.spec.Every > 0:
		at, ok = r.anchor, true
		if passed := after.Sub(r.anchor); passed >= 0 {
			at = r.anchor.Add(passed - passed%r.spec.Every + r.spec.Every)
		}
	}
	if end := r.spec.EndAt; ok && end != nil && at.After(*end) {
		return time.Time{}, false
	}
	return at, ok
}

// First returns the first firing time of a schedule that is created or changed at the given time.
func (r *Rule) First(from time.Time) (time.Time, bool) {
	if r.spec.AfterEnd > 0 {
		return r.AfterEnd(from)
	}
	return r.Next(from)
}

// AfterEnd returns the firing time of a fixed delay after one of its tasks has ended.
func (r *Rule) AfterEnd(ended time.Time) (time.Time, bool) {
	at := ended.UTC().Add(r.spec.AfterEnd).Truncate(time.Second)
	if start := r.spec.StartAt; start != nil && at.Before(*start) {
		at = start.UTC()
	}
	if end := r.spec.EndAt; end != nil && at.After(*end) {
		return time.Time{}, false
	}
	return at, true
}

// maxScan limits the number of firing times that are checked for exceptions.
const maxScan = 10_000

// Upcoming returns up to limit firing times to which no exception applies. The first candidate is
// from itself.
func (r *Rule) Upcoming(from time.Time, limit int) []time.Time {
	list := []time.Time{}
	at, ok := from, true
	for range maxScan {
		if !ok || len(list) == limit {
			break
		}
		if r.ExceptionAt(at) == "" {
			list = append(list, at)
		}
		at, ok = r.Next(at)
	}
	return list
}

// Between returns up to limit firing times in [from, to] and reports whether there are more.
func (r *Rule) Between(from, to time.Time, limit int) (list []time.Time, more bool) {
	for at, ok := r.Next(from.Add(-time.Nanosecond)); ok && !at.After(to); at, ok = r.Next(at) {
		if len(list) == limit {
			return list, true
		}
		list = append(list, at)
	}
	return list, false
}

// Jitter returns the delay of a firing time. It is derived from the schedule and the time, so all
// servers compute the same delay.
func Jitter(schedule tasker.ID, nominal time.Time, limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write(schedule[:])
	var text [8]byte
	binary.BigEndian.PutUint64(text[:], uint64(nominal.Unix()))
	h.Write(text[:])
	ms := uint64(limit/time.Millisecond) + 1
	return time.Duration(mixBits(h.Sum64())%ms) * time.Millisecond
}

// mixBits spreads hash values whose inputs differ only in their last bits.
func mixBits(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// FollowsTasks reports whether the rule is a fixed delay after the end of a task.
func (r *Rule) FollowsTasks() bool { return r.spec.AfterEnd > 0 }

// FireAt returns a firing time including its jitter.
func (r *Rule) FireAt(id tasker.ID, nominal time.Time) time.Time {
	return nominal.Add(Jitter(id, nominal, r.spec.Jitter))
}
