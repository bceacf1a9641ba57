package postgres

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// Steps that are due in tasks in error are many and stay so. What becomes due is
// found at once, what was due long ago in so many turns as it has such before it.
func TestDueRetriesAreFoundBehindThoseOfTasksInError(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	task := func(n int, state, due string) tasker.ID {
		t.Helper()
		var id tasker.ID
		if err := id.UnmarshalText(fmt.Appendf(nil, "00000000-0000-7000-8000-%012d", n)); err != nil {
			t.Fatal(err)
		}
		if _, err := admin(t, db).Exec(t.Context(), fmt.Sprintf(`
			INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '') ON CONFLICT DO NOTHING;
			INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id, created_at, updated_at)
			SELECT '%[1]s', template_uuid, 'a', 'b', '1.0.0', '%[2]s', now(), w.at, w.at, '{}', '', now(), now()
			FROM tasker.task_templates, (SELECT CASE WHEN '%[2]s' <> 'error' THEN now() END AS at) w;
			INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
				parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, next_retry_at, created_at, updated_at)
			SELECT '%[1]s', tasker.uuid_generate_v7(), s, 'standard', 'a', 'run', 0, 'error', now(), '{}', '{}', 0, 1, 3, true, 'constant', 1, 1, false, %[3]s, now(), now()
			FROM unnest('{a,b}'::text[]) s`, id, state, due), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		return id
	}
	const longAgo, justNow = "timestamptz '2026-01-01 00:00+00'", "clock_timestamp()"
	for n := range 5 {
		task(n+1, "error", longAgo)
		task(n+101, "error", justNow)
	}
	late, recent := task(6, "waiting_for_retry", longAgo), task(106, "waiting_for_retry", justNow) // at the same instant, and behind them
	task(7, "error", longAgo)

	var mark RetryMark
	const limit = 3 // of 14 that are due since long, 2 of them of the task
	for turn := range 12 {
		var tasks []tasker.ID
		var err error
		if tasks, mark, err = db.TasksWithDueRetries(t.Context(), mark, limit); err != nil {
			t.Fatal(err)
		}
		want := map[tasker.ID]bool{recent: true}
		if turn%5 == 3 { // the tenth to the twelfth
			want[late] = true
		}
		for _, id := range tasks {
			if !want[id] {
				t.Errorf("turn %d finds task %s", turn, id)
			}
			delete(want, id)
		}
		if len(want) > 0 {
			t.Errorf("turn %d finds %s, not %v", turn, tasks, want)
		}
	}
	tasks, mark, err := db.TasksWithDueRetries(t.Context(), RetryMark{Recent: true}, limit)
	if err != nil || !slices.Equal(tasks, []tasker.ID{recent}) || mark != (RetryMark{}) {
		t.Errorf("of what came lately %v are found, up to %+v, %v", tasks, mark, err)
	}
}
