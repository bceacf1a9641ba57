package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker/internal/pgtest"
)

// standing writes a task that has stood in process for an hour, with one step in
// progress under a live lease.
func (p *findPosition) standing() string {
	p.Helper()
	id := p.big(pgtest.BigTask{Steps: 1, Rest: "in_progress"})
	p.exec(`UPDATE tasker.tasks SET state_since = state_since - interval '1 hour', warn_at = warn_at - interval '1 hour',
		stale_at = stale_at - interval '1 hour', created_at = created_at - interval '1 hour' WHERE task_uuid = '` + id + `'`)
	return id
}

const sweepOnce = `SELECT format('%s %s', right(task_uuid::text, 6), action_taken) FROM tasker.detect_and_transition_stale_tasks(false, 10)`

// A step that is being worked on within its own timeout is no standstill.
func TestStepWithinItsTimeoutIsNotStale(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change string
		stale  bool
	}{
		"within its timeout, under a live lease": {`timeout_at = now() + interval '1 hour'`, false},
		"without a timeout":                      {`timeout_at = NULL`, true},
		// After an outage workers get a moment to be heard of again, and the sweep runs at once.
		"its lease ran out in an outage": {`timeout_at = now() + interval '1 hour', lease_expires_at = now() - interval '20 minutes'`, false},
		"its timeout is about to end it": {`timeout_at = now() - interval '40 seconds'`, false},
		"past its timeout":               {`timeout_at = now() - interval '61 seconds'`, true},
		"it cannot be taken back": {
			`timeout_at = now() + interval '1 hour', lease_expires_at = now() - interval '20 minutes';
			INSERT INTO tasker.deferred_work (kind, task_uuid, step_uuid, last_error, retry_at)
			SELECT 'reclaim', task_uuid, step_uuid, 'broken', now() FROM tasker.workflow_steps`, true,
		},
		"the template has a limit of its own": {
			`timeout_at = now() + interval '1 hour'; UPDATE tasker.task_templates SET max_steps_in_process_minutes = 30`, true,
		},
		"the whole duration is over": {
			`timeout_at = now() + interval '1 hour'; UPDATE tasker.tasks SET ends_at = now() - interval '1 second'`, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := migrated(t)
			p.standing()
			p.exec(`UPDATE tasker.workflow_steps SET ` + tt.change)
			if name != "the whole duration is over" { // which is not the monitor's concern
				want := map[bool]string{true: "stale stale", false: "healthy healthy"}[tt.stale]
				if got := p.text(`SELECT v.health_status || ' ' || m.health_status FROM tasker.v_task_staleness_monitoring v, tasker.get_task_staleness() m`); got != want {
					t.Errorf("the monitor says %s, want %s", got, want)
				}
			}
			if got := len(p.texts(sweepOnce)); got != 0 != tt.stale {
				t.Errorf("the sweep finds %d tasks", got)
			}
		})
	}
}

// slow makes the sweep take longer at a task than a statement may.
func (p *findPosition) slow(task string) {
	p.Helper()
	p.exec(`CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$`)
	p.exec(`CREATE TRIGGER slow BEFORE INSERT ON tasker.task_history FOR EACH ROW WHEN (NEW.task_uuid = '` + task + `') EXECUTE FUNCTION public.wait()`)
	p.exec(`SET statement_timeout = '1s'`)
}

// A task at which the time of the sweep ends takes that of one batch: the next one
// leaves it alone, finds the others, and it is tried again later.
func TestATaskThatTakesTheTimeOfTheSweepIsSetAside(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	task := p.standing()
	p.exec(`UPDATE tasker.tasks SET state_since = state_since - interval '1 hour', stale_at = stale_at - interval '1 hour'`) // the longest overdue
	sound := p.standing()
	p.slow(task)
	if diff := cmp.Diff([]string{task[30:] + " transition_failed"}, p.texts(sweepOnce)); diff != "" {
		t.Errorf("the first batch: %s", diff)
	}
	p.exec(`SET statement_timeout = '30s'`) // a loaded machine needs them
	if diff := cmp.Diff([]string{sound[30:] + " transitioned_to_dlq_and_error"}, p.texts(sweepOnce)); diff != "" {
		t.Errorf("the second batch: %s", diff)
	}
	p.exec(`SET statement_timeout = '1s'; UPDATE tasker.deferred_work SET retry_at = now()`)
	p.texts(sweepOnce)
	if got := p.text(`SELECT format('%s %s %s', kind, failures, last_error) FROM tasker.deferred_work`); got != "sweep 2 canceling statement due to statement timeout (SQLSTATE 57014)" {
		t.Errorf("set aside: %s", got)
	}
	p.exec(`SET statement_timeout = '30s'; DROP TRIGGER slow ON tasker.task_history; UPDATE tasker.deferred_work SET retry_at = now()`)
	if diff := cmp.Diff([]string{task[30:] + " transitioned_to_dlq_and_error"}, p.texts(sweepOnce)); diff != "" {
		t.Errorf("once it is fixed: %s", diff)
	}
	if got := p.text(`SELECT count(*)::text FROM tasker.deferred_work`); got != "0" {
		t.Errorf("%s rows are still set aside", got)
	}
}

// The row of a task at which something failed says what: a server need not be able to
// read the log of PostgreSQL.
func TestTheSweepSaysWhatFailedAtATask(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	failing, sound := p.standing(), p.standing()
	p.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no %', repeat('x', 2000) USING ERRCODE = 'disk_full'; END $$`)
	p.exec(`CREATE TRIGGER refuse BEFORE INSERT ON tasker.tasks_dlq FOR EACH ROW WHEN (NEW.task_uuid = '` + failing + `') EXECUTE FUNCTION public.refuse()`)
	got := p.texts(`SELECT concat_ws(' ', right(task_uuid::text, 6), action_taken, error_code, left(error_message, 4), length(error_message))
		FROM tasker.detect_and_transition_stale_tasks(false, 10) ORDER BY task_uuid = '` + sound + `'`)
	want := []string{failing[30:] + " transition_failed 53100 no x 1000", sound[30:] + " transitioned_to_dlq_and_error"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Stale tasks are found beside tasks of any size: a hundred results of a mebibyte, and results that are fifty times larger when they are read.
func TestSweepFindsStaleTasksBesideLargeOnes(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	var large []string
	for _, b := range []pgtest.BigTask{
		{Steps: 100, Complete: 99, Result: `to_jsonb(repeat(md5(i::text), 32767))`},
		{Steps: 20, Complete: 19, Result: `(SELECT jsonb_agg(1e308) FROM generate_series(1, 174000))`},
		{Steps: 1000, Complete: 500, Chain: true, Rest: "pending"},
	} {
		large = append(large, p.big(b))
	}
	p.exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 hours', warn_at = now(), stale_at = stale_at - interval '2 hours' WHERE stale_at IS NOT NULL`)
	small := p.standing()
	p.exec(`SET statement_timeout = '30s'`)
	var lines []string
	for range 4 { // a batch ends in time, what is left comes with the next
		lines = append(lines, p.texts(sweepOnce)...)
	}
	got := strings.Join(lines, "; ")
	for _, task := range append(large, small) {
		if want := task[30:] + " transitioned_to_dlq_and_error"; !strings.Contains(got, want) {
			t.Errorf("the sweep did %q, which lacks %q", got, want)
		}
	}
	if got := p.text(`SELECT max(octet_length(task_snapshot::text))::text FROM tasker.tasks_dlq WHERE NOT task_snapshot ? 'snapshot_failed'`); len(got) > 7 {
		t.Errorf("a snapshot has %s bytes", got)
	}
	if got := p.text(`SELECT count(*)::text FROM tasker.tasks_dlq WHERE task_snapshot ? 'snapshot_failed'`); got != "0" {
		t.Errorf("%s snapshots failed", got)
	}
}
