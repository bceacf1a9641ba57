package app_test

import (
	"net/http"
	"testing"

	"tasker.example/tasker/internal/pgtest"
)

const sweepLoop = `tasker_loop_passes_total{loop="staleness sweep"}`

var sweepEffects = map[string]func(*keyTest){
	"staleness_detection.enabled": func(k *keyTest) {
		k.create(1)
		k.age()
		k.set("false")
		s := k.start()
		s.until("the first passes", func() bool { return s.scraped(`tasker_loop_passes_total{loop="staleness thresholds"}`) > 0 })
		if n := s.scraped(sweepLoop); n != -1 {
			k.Errorf("the sweep has made %g passes", n)
		}
		k.expect("0", `SELECT count(*) FROM tasker.tasks_dlq`)
	},
	"staleness_detection.dry_run": func(k *keyTest) {
		k.create(1)
		k.age()
		k.set("true")
		s := k.start()
		s.log.wait(k.T, "would_transition_to_dlq_and_error", s.ended)
		k.expect("steps_in_process", `SELECT state FROM tasker.tasks`)
		k.expect("0", `SELECT count(*) FROM tasker.tasks_dlq`)
	},
	"staleness_detection.batch_size": func(k *keyTest) {
		k.create(3)
		k.age()
		k.set("1")
		k.start()
		k.until("3", `SELECT count(*) FROM tasker.tasks_dlq`)
		k.expect("3", `SELECT count(DISTINCT metadata->>'sweep_id') FROM tasker.tasks_dlq`)
	},
	"staleness_detection.detection_interval_seconds": func(k *keyTest) {
		k.set("1")
		s := k.start()
		s.until("the second pass", func() bool { return s.scraped(sweepLoop) >= 2 })
	},
	"staleness_detection.thresholds.waiting_for_dependencies_minutes": threshold("waiting_for_dependencies_minutes"),
	"staleness_detection.thresholds.waiting_for_retry_minutes":        threshold("waiting_for_retry_minutes"),
	"staleness_detection.thresholds.steps_in_process_minutes":         threshold("steps_in_process_minutes"),
	"staleness_detection.thresholds.error_recovery_minutes":           threshold("error_recovery_minutes"),
	"investigations.base_priority.dependency_cycle_detected":          basePriority("dependency_cycle_detected"),
	"investigations.base_priority.max_retries_exceeded":               basePriority("max_retries_exceeded"),
	"investigations.base_priority.worker_unavailable":                 basePriority("worker_unavailable"),
	"investigations.base_priority.manual_dlq":                         basePriority("manual_dlq"),
	"investigations.base_priority.staleness_timeout": func(k *keyTest) { // of an investigation that the server opens
		k.create(1)
		k.age()
		k.set("17")
		k.start()
		k.until("17", `SELECT round(extract(epoch FROM dlq_timestamp - priority_at) / 60) FROM tasker.tasks_dlq`)
	},
}

// threshold sees a threshold where every rule of the sweep reads it.
func threshold(column string) func(*keyTest) {
	return func(k *keyTest) {
		k.set("17")
		k.start()
		k.expect("17", `SELECT `+column+` FROM tasker.staleness_thresholds`)
	}
}

// basePriority sees a base priority where every new investigation gets it.
func basePriority(reason string) func(*keyTest) {
	return func(k *keyTest) {
		k.set("17")
		k.start()
		k.expect("17", `SELECT tasker.dlq_base_priority('`+reason+`')`)
	}
}

// A server runs all its loops; one that it forgot would leave tasks stuck in silence.
func TestAServerRunsItsLoops(t *testing.T) {
	t.Parallel()
	k := &keyTest{T: t, database: pgtest.New(t)}
	k.options = options(k.database.URL)
	k.also("retention.finished_days", "30")
	k.create(1)
	k.age()
	s := k.start()
	for _, name := range []string{
		"start tasks", "retry steps", "reclaim leases", "kept reports", "reject inputs", "due work", "deferred work", "workers",
		"queue limits", "queues without workers", "redispatch", "retention of complete tasks", "retention of cancelled tasks",
		"staleness sweep", "staleness thresholds", "worker signs of life", "go on with holds", "put held steps aside", "count for breakers",
	} {
		s.until("a pass of "+name, func() bool { return s.scraped(`tasker_loop_passes_total{loop="`+name+`"}`) > 0 })
	}
	k.until("staleness_timeout error", `SELECT d.dlq_reason::text || ' ' || t.state FROM tasker.tasks t JOIN tasker.tasks_dlq d USING (task_uuid)`)
	if n := s.scraped(`tasker_staleness_detection_runs_total{outcome="success"}`); n < 1 {
		t.Errorf("%g runs of the detection are counted", n)
	}
	for _, kind := range []string{"start", "decide", "wait", "remind", "attributes", "child_ended", "cancel_child"} {
		if late := s.scraped(`tasker_due_late_seconds{kind="` + kind + `"}`); late < 0 {
			t.Errorf("how late work of kind %s is, is not told", kind)
		}
	}
	k.until("1", `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tasker' AND query LIKE 'LISTEN %'`)
}

// Without sinks there is nobody to send to, and the server goes on.
func TestAServerWithoutSinks(t *testing.T) {
	t.Parallel()
	k := &keyTest{T: t, database: pgtest.New(t)}
	k.options = options(k.database.URL)
	k.also("emission.sinks", "")
	k.create(1)
	k.age()
	s := k.start()
	k.until("1", `SELECT count(*) FROM tasker.tasks_dlq`)
	k.expectAnswer(s, http.MethodGet, "/health/ready", "", http.StatusOK)
	k.expect("0", `SELECT count(*) FROM tasker.emissions`)
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
