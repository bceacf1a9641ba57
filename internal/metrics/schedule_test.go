package metrics_test

import (
	"context"
	"errors"
	"testing"

	"tasker.example/tasker"
)

// Tasks that are overdue are counted; while the database cannot be read the last count stays.
func TestOverdueTasksAreCounted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	n, failing := int64(3), error(nil)
	if err := p.ObserveDeadlines(func(context.Context) (int64, error) { return n, failing }); err != nil {
		t.Fatal(err)
	}
	p.want(map[string]string{"tasker.tasks.overdue": "3"})
	n, failing = 0, errors.New("no database")
	p.want(map[string]string{"tasker.tasks.overdue": "3"})
	failing = nil
	p.want(map[string]string{"tasker.tasks.overdue": "0"})
}

// Schedules whose tasks fail are counted, once a minute, and how late a server fires them; while the
// database cannot be read the last count stays.
func TestSchedulesAreMeasured(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	n, failing := int64(2), errors.New("no database")
	p.ScheduleFired([]tasker.Firing{{Kind: tasker.ClockFiring, LateMS: 5}}) // before anything is observed
	if err := p.ObserveSchedules(func(context.Context) (int64, error) { return n, failing }); err != nil {
		t.Fatal(err)
	}
	p.want(map[string]string{"tasker.schedules.failing": "0"})
	failing = nil
	p.want(map[string]string{"tasker.schedules.failing": "2"})
	n = 7 // which is looked for a minute later, however many scrape
	p.want(map[string]string{"tasker.schedules.failing": "2"})
	p.ScheduleFired([]tasker.Firing{{Kind: tasker.ClockFiring, LateMS: 1500}, {Kind: tasker.BackfillFiring, LateMS: 900_000}})
	series, kinds := p.collect()
	if kinds["tasker.schedule.late_seconds"] == "" || series["tasker.schedule.late_seconds"] == "" {
		t.Errorf("how late schedules are is missing: %v", series)
	}
}
