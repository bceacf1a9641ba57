package core

import (
	"encoding/json"
	"testing"
	"time"

	"tasker.example/tasker"
)

func TestMessageOfAnExpiry(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(s float64) *time.Time {
		x := now.Add(-time.Duration(s * float64(time.Second)))
		return &x
	}
	q := Queued{Namespace: "shop", Handler: "run", QueuedAt: *at(300), ExpiresAt: now, Deadline: &now}
	with := func(change func(*Queued)) Queued {
		changed := q
		change(&changed)
		return changed
	}
	for _, tt := range []struct {
		queued Queued
		want   string
	}{
		{q, "worker queue TTL expired: no worker took the step within 300 s; none for handler run of namespace shop is alive"},
		{with(func(q *Queued) { q.Workers, q.QueuedAt = 1, *at(0.25) }), "worker queue TTL expired: no worker took the step within 0.25 s; one for handler run of namespace shop is alive"},
		{with(func(q *Queued) { q.Workers, q.Kept, q.BusyAt = 3, true, at(61.4) }), "worker queue TTL expired: no worker took the step within 300 s; 3 for handler run of namespace shop are alive, and no step of the queue was claimed for 61 s"},
		{with(func(q *Queued) { q.Deadline, q.Deserted = nil, true }), "no worker is alive: for 60 s there was none for handler run of namespace shop"},
	} {
		s := &Step{State: tasker.StepEnqueued, Attempts: 1}
		c := Begin(&Task{Steps: []*Step{s}}, now)
		if !c.Expire(tt.queued, 1, time.Minute) {
			t.Fatalf("%+v has not expired", tt.queued)
		}
		var f tasker.StepFailure
		if err := json.Unmarshal(s.Stored.Error, &f); err != nil || f.Message != tt.want || f.Type != tasker.QueueExpiry || !f.Retryable {
			t.Errorf("the failure is %+v (%v), want %q", f, err, tt.want)
		}
	}
}
