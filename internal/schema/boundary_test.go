package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// arrived is when the task of a watched database came to its state.
const arrived = `timestamptz '2026-01-01 00:00:00+00'`

// watched is a database with one task in process since a known instant: it warns
// after 24 minutes and is stale after 30. The functions are told what time it is.
func watched(t *testing.T) *findPosition {
	t.Helper()
	p := migrated(t)
	p.exec(`SET TimeZone = 'UTC'`)
	p.exec(`
		INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '');
		INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, priority, context, correlation_id, created_at, updated_at)
		SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'steps_in_process', ` + arrived + `,
			` + arrived + ` + interval '24 minutes', ` + arrived + ` + interval '30 minutes', 7, '{}', '', ` + arrived + ` - interval '2 hours', ` + arrived + `
		FROM tasker.task_templates`)
	return p
}

// An instant is so long after the task came to its state, as an interval; what a
// function says then.
type instant struct{ after, want string }

// check asks with a query, in which %s stands for the time.
func (p *findPosition) check(query string, instants ...instant) {
	p.Helper()
	for _, i := range instants {
		got := strings.Join(p.texts(fmt.Sprintf(query, arrived+" + interval '"+i.after+"'")), "; ")
		if got != i.want {
			p.Errorf("after %s: %q, want %q", i.after, got, i.want)
		}
	}
}

const (
	staleThen      = `SELECT format('%%s at %%s of %%s, age %%s', detail_code, time_in_state_minutes, threshold_minutes, task_age_minutes) FROM tasker.get_stale_tasks_for_dlq(10, p_now => %s)`
	unattendedThen = `SELECT format('%%s at %%s of %%s', dlq_reason, time_in_state_minutes, threshold_minutes) FROM tasker.get_unattended_tasks_for_dlq(10, p_now => %s)`
	healthThen     = `SELECT format('%%s at %%s of %%s', health_status, round(time_in_state_minutes::numeric, 5), staleness_threshold_minutes) FROM tasker.get_task_staleness(10, p_now => %s)`
)

func TestStaleFromExactlyItsThreshold(t *testing.T) {
	t.Parallel()
	p := watched(t)
	p.check(
		staleThen,
		instant{"29 minutes 59.999 seconds", ""},
		instant{"30 minutes", "steps_in_process at 30.000 of 30.000, age 150.000"},
		instant{"30 minutes 0.001 seconds", "steps_in_process at 30.000 of 30.000, age 150.000"},
		instant{"29.7 minutes", ""}, // which is not 30
		instant{"31.5 minutes", "steps_in_process at 31.500 of 30.000, age 151.500"},
	)
}

// A task that never stands still may run for too long all the same.
func TestOverdueFromExactlyItsWholeDuration(t *testing.T) {
	t.Parallel()
	p := watched(t)
	p.exec(`UPDATE tasker.tasks SET ends_at = ` + arrived + ` + interval '10 minutes'`)
	p.check(
		staleThen,
		instant{"9 minutes 59.999 seconds", ""},
		instant{"10 minutes", "max_duration at 10.000 of 30.000, age 130.000"},
		instant{"10 minutes 0.001 seconds", "max_duration at 10.000 of 30.000, age 130.000"},
		instant{"40 minutes", "max_duration at 40.000 of 30.000, age 160.000"}, // what was due first
	)
	p.exec(`UPDATE tasker.tasks SET ends_at = ` + arrived + ` + interval '35 minutes'`)
	p.check(
		staleThen,
		instant{"29 minutes 59.999 seconds", ""},
		instant{"40 minutes", "steps_in_process at 40.000 of 30.000, age 160.000"},
	)
}

func TestUnattendedFromExactlyTheEndOfTheRecoveryWindow(t *testing.T) {
	t.Parallel()
	p := watched(t)
	p.exec(`UPDATE tasker.tasks SET state = 'error', warn_at = NULL, stale_at = NULL`)
	p.exec(`UPDATE tasker.tasks SET attend_by = ` + arrived + ` + interval '60 minutes'`)
	p.check(
		unattendedThen,
		instant{"59 minutes 59.999 seconds", ""},
		instant{"60 minutes", "staleness_timeout at 60.000 of 60.000"},
		instant{"60 minutes 0.001 seconds", "staleness_timeout at 60.000 of 60.000"},
	)
	p.check(staleThen, instant{"1 year", ""})  // is not watched any more
	p.check(healthThen, instant{"1 year", ""}) // nor monitored
}

func TestHealthChangesAtExactly80And100Percent(t *testing.T) {
	t.Parallel()
	p := watched(t)
	p.check(
		healthThen,
		instant{"0 minutes", "healthy at 0.00000 of 30"},
		instant{"23 minutes 59.999 seconds", "healthy at 23.99998 of 30"},
		instant{"24 minutes", "warning at 24.00000 of 30"},
		instant{"24 minutes 0.001 seconds", "warning at 24.00002 of 30"},
		instant{"29.7 minutes", "warning at 29.70000 of 30"}, // which is not 30, and not stale
		instant{"29 minutes 59.999 seconds", "warning at 29.99998 of 30"},
		instant{"30 minutes", "stale at 30.00000 of 30"},
		instant{"30 minutes 0.001 seconds", "stale at 30.00002 of 30"},
	)
	p.check(`SELECT time_in_state_minutes::text FROM tasker.get_task_staleness(10, p_now => %s)`, instant{"29.7 minutes", "29.7"})
}

// The classes are cut in the same place whatever the threshold, also where 80 %
// of it is no whole number of seconds, or more than a day.
func TestHealthOfEveryThreshold(t *testing.T) {
	t.Parallel()
	p := watched(t)
	for _, minutes := range []int{1, 7, 31, 61, 1441, 43200, 525600} {
		p.exec(fmt.Sprintf(`UPDATE tasker.tasks SET stale_at = %s + make_interval(mins => %d), warn_at = %s + 0.8 * make_interval(mins => %d)`,
			arrived, minutes, arrived, minutes))
		for _, limit := range []struct {
			ms            int
			before, after string
		}{{minutes * 48_000, "healthy", "warning"}, {minutes * 60_000, "warning", "stale"}} {
			var got, want []string
			for _, ms := range []int{limit.ms - 1, limit.ms, limit.ms + 1} {
				now := fmt.Sprintf(`%s + %d * interval '1 millisecond'`, arrived, ms)
				got = append(got, p.text(fmt.Sprintf(`SELECT format('%%s %%s', health_status, (SELECT count(*) FROM tasker.get_stale_tasks_for_dlq(10, p_now => %s)))
					FROM tasker.get_task_staleness(10, p_now => %s)`, now, now)))
				health, stale := limit.after, 0
				if ms < limit.ms {
					health = limit.before
				}
				if health == "stale" {
					stale = 1
				}
				want = append(want, fmt.Sprintf("%s %d", health, stale))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("around %d ms of %d minutes: %s", limit.ms, minutes, diff)
			}
		}
	}
}

// failures puts into the task a step that failed three times and one that never did.
const failures = `
	INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
		parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, error)
	SELECT task_uuid, s.id, s.name, 'standard', 'a', 'run', 0, s.state, state_since, '{}', '{}',
		0, s.attempts, 3, true, 'constant', 1, 1, false, created_at, updated_at, s.error::jsonb
	FROM tasker.tasks, (VALUES
		(uuid '00000000-0000-7000-8000-00000000000a', 'charge', 'error', 3, '{"message": "no 3"}'),
		(uuid '00000000-0000-7000-8000-00000000000b', 'ship', 'pending', 0, NULL)
	) AS s (id, name, state, attempts, error);
	INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, detail, created_at)
	SELECT task_uuid, '00000000-0000-7000-8000-00000000000a', x.from_state, x.to_state, x.event, n, x.worker::uuid,
		CASE WHEN x.to_state = 'error' THEN jsonb_build_object('message', format('no %s', n)) END, state_since + n * interval '1 minute'
	FROM tasker.tasks, generate_series(1, 3) n, LATERAL (VALUES
		(1, CASE n WHEN 1 THEN 'pending' ELSE 'error' END, 'enqueued', CASE n WHEN 1 THEN 'enqueue' ELSE 'retry' END, NULL),
		(2, 'enqueued', 'in_progress', 'claim', '00000000-0000-7000-8000-0000000000ff'),
		(3, 'in_progress', 'error', CASE n WHEN 2 THEN 'lose' ELSE 'fail' END, '00000000-0000-7000-8000-0000000000ff')
	) AS x (turn, from_state, to_state, event, worker)
	ORDER BY n, x.turn;`

// A snapshot says how urgent the task was, how old, when it was taken, and how each attempt ended.
func TestTheSnapshotHasAgePriorityAndEveryFailure(t *testing.T) {
	t.Parallel()
	p := watched(t)
	p.exec(failures)
	const snapshot = `tasker.task_snapshot(task_uuid, state, state_since, 'sweep', state_since + interval '31 minutes 12.345 seconds')`
	got := p.text(`
		SELECT jsonb_build_array(s -> 'namespace', s -> 'task_name', s -> 'task_version', s -> 'task_age_minutes', s -> 'time_in_state_minutes',
			s -> 'threshold_minutes', s -> 'priority', s -> 'detected_at', s -> 'detected_by', s -> 'schema_version')::text
		FROM tasker.tasks, ` + snapshot + ` AS s`)
	want := `["a", "b", "1.0.0", 151.206, 31.206, 30.000, 7, "2026-01-01T00:31:12.345+00:00", "sweep", 1]`
	if got != want {
		t.Errorf("the snapshot says\n%s, want\n%s", got, want)
	}
	lines := p.texts(`
		SELECT format('%s %s %s %s %s %s', step ->> 'name', f -> 'attempt', f ->> 'event', f ->> 'at', right(f ->> 'worker_uuid', 2), f -> 'error' ->> 'message')
		FROM tasker.tasks, ` + snapshot + ` AS s, jsonb_array_elements(s -> 'steps') AS step, jsonb_array_elements(nullif(step -> 'failures', 'null')) AS f`)
	if diff := cmp.Diff([]string{
		"charge 1 fail 2026-01-01T00:01:00+00:00 ff no 1",
		"charge 2 lose 2026-01-01T00:02:00+00:00 ff no 2",
		"charge 3 fail 2026-01-01T00:03:00+00:00 ff no 3",
	}, lines); diff != "" {
		t.Error(diff)
	}
	steps := p.texts(`
		SELECT format('%s %s %s', step ->> 'name', step -> 'attempts', jsonb_typeof(step -> 'failures'))
		FROM tasker.tasks, ` + snapshot + ` AS s, jsonb_array_elements(s -> 'steps') AS step`)
	if diff := cmp.Diff([]string{"charge 3 array", "ship 0 null"}, steps); diff != "" {
		t.Error(diff)
	}

	// What is kept is this picture, taken when the investigation was opened.
	p.exec(`SELECT tasker.create_dlq_entry(task_uuid, 'staleness_timeout', 'steps_in_process', 'sweep', state) FROM tasker.tasks`)
	got = p.text(`
		SELECT format('%s %s %s %s', (task_snapshot ->> 'detected_at')::timestamptz = dlq_timestamp, task_snapshot ->> 'priority',
			jsonb_array_length(task_snapshot -> 'steps' -> 0 -> 'failures'), d.task_snapshot = tasker.task_snapshot(task_uuid, state, state_since, 'sweep', dlq_timestamp))
		FROM tasker.tasks_dlq d JOIN tasker.tasks USING (task_uuid)`)
	if got != "t 7 3 t" {
		t.Errorf("the entry's snapshot: %s", got)
	}
}
