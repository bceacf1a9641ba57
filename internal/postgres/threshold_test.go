package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchedTasks are tasks that came to their state one after another in the last 15
// minutes, with the thresholds of the server.
const watchedTasks = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'steps_in_process', s.at, s.at + interval '24 minutes', s.at + interval '30 minutes', '{}', '', s.at, s.at
FROM tasker.task_templates, generate_series(1, 30000) n, LATERAL (SELECT now() - interval '30 milliseconds' * n AS at) s;
ANALYZE tasker.tasks;`

// A server that starts with other thresholds waits for no task and holds none: a
// loop applies them in batches, and leaves what others hold for later.
func TestChangedThresholdsAreAppliedInTheBackground(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	exec := func(sql string) { t.Helper(); execute(t, db, sql) }
	count := func(where string) (n int) {
		t.Helper()
		if err := db.pool.QueryRow(t.Context(), `SELECT count(*) FROM tasker.tasks WHERE `+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	set := func(minutes int, wantChanged bool) {
		t.Helper()
		changed, err := db.SetStalenessThresholds(t.Context(), Thresholds{
			WaitingForDependencies: 60, WaitingForRetry: 30, StepsInProcess: minutes, ErrorRecovery: 60,
		})
		if err != nil || changed != wantChanged {
			t.Fatalf("thresholds are set: %v, %v", changed, err)
		}
	}
	pass := func(settled time.Duration) (batches, changed int) {
		t.Helper()
		var p ThresholdPass
		for more := true; more; batches++ {
			var n int
			var err error
			if n, more, err = db.ApplyThresholds(t.Context(), &p, settled, 1000); err != nil {
				t.Fatal(err)
			}
			if changed += n; n > 1000 || batches > 1000 {
				t.Fatalf("batch %d changed %d tasks", batches, n)
			}
		}
		return batches, changed
	}
	exec(watchedTasks)
	set(30, false)
	holder, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(t.Context()) }()
	if _, err := holder.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM tasker.tasks ORDER BY state_since LIMIT 1 FOR UPDATE`,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if _, changed := pass(0); changed != 0 {
		t.Errorf("thresholds that have not changed change %d tasks", changed)
	}

	set(10, true) // which would wait for the holder if it touched the tasks
	set(10, false)
	if n := count(`stale_at <> state_since + interval '30 minutes'`); n != 0 {
		t.Errorf("the server that starts has changed %d tasks", n)
	}
	if _, changed := pass(time.Hour); changed != 0 {
		t.Errorf("thresholds that are new changed %d tasks", changed)
	}
	if batches, changed := pass(0); changed != 29_999 || batches < 30 {
		t.Errorf("%d tasks were changed in %d batches, want all but the one that is held", changed, batches)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, changed := pass(0); changed != 1 {
		t.Errorf("%d tasks were changed afterwards, want the one that was held", changed)
	}
	if n := count(`stale_at <> state_since + interval '10 minutes' OR warn_at <> state_since + interval '8 minutes'`); n != 0 {
		t.Errorf("%d tasks have other thresholds", n)
	}
	if batches, changed := pass(0); batches != 1 || changed != 0 {
		t.Errorf("once applied, they are looked at in %d batches and %d tasks change", batches, changed)
	}
	want, due := count(`state_since <= now() - interval '10 minutes'`), 0
	if err := db.pool.QueryRow(t.Context(), `SELECT count(*) FROM tasker.get_stale_tasks_for_dlq(200000)`).Scan(&due); err != nil {
		t.Fatal(err)
	}
	if due < want || due < 9_000 {
		t.Errorf("the sweep finds %d tasks, want at least %d", due, want)
	}

	set(30, true) // and back, with one that moves on meanwhile
	exec(`UPDATE tasker.tasks SET state = 'waiting_for_dependencies', state_since = now(), warn_at = now() + interval '48 minutes', stale_at = now() + interval '60 minutes'
		WHERE task_uuid = (SELECT task_uuid FROM tasker.tasks LIMIT 1)`)
	if _, changed := pass(0); changed != 29_999 {
		t.Errorf("%d tasks were changed back, want 29999", changed)
	}
}
