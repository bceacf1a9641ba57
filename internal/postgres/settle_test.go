package postgres

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// chain makes one task of so many steps in a row, of which the first is claimed, and
// returns the outcome of its success.
func chain(t *testing.T, db *DB, steps int) core.Outcome {
	t.Helper()
	worker := tasker.NewID()
	execute(t, db, `INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '')`)
	execute(t, db, `INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease) VALUES ($1, 'w', '{a}', '{x}', '', 1, '10 s', '30 s')`, worker)
	execute(t, db, `
		INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, context_bytes, correlation_id, created_at, updated_at)
		SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'steps_in_process', now(), now() + interval '1 hour', now() + interval '2 hours', '{}', 2, '', now(), now()
		FROM tasker.task_templates`)
	execute(t, db, `
		WITH ids AS MATERIALIZED (SELECT array_agg(tasker.uuid_generate_v7()) AS of FROM generate_series(1, $1::int))
		INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
			parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, lease_expires_at, fence, worker_uuid, created_at, updated_at, inputs_bytes)
		SELECT t.task_uuid, i.of[n], 's' || n, 'standard', 'a', 'x', 0, CASE n WHEN 1 THEN 'in_progress' ELSE 'pending' END, now(),
			array_remove(ARRAY[i.of[n - 1]], NULL), array_remove(ARRAY[i.of[n + 1]], NULL),
			CASE n WHEN 1 THEN 0 ELSE 1 END, 1, 3, true, 'constant', 1, 1, false, CASE n WHEN 1 THEN now() + interval '1 hour' END, 1, $2, now(), now(), 2
		FROM tasker.tasks t, ids i, generate_series(1, $1::int) n`, steps, worker)
	first, err := queryOne[tasker.StepRef](t.Context(), db.pool, `SELECT task_uuid, step_uuid FROM tasker.workflow_steps WHERE name = 's1'`)
	if err != nil {
		t.Fatal(err)
	}
	return core.Outcome{
		TaskUUID: first.TaskUUID, StepUUID: first.StepUUID, From: tasker.StepInProgress, Fence: 1,
		Event: core.Succeed, Worker: &worker, ResultSize: 2, Body: []byte(`{"result": {}}`), Digest: []byte{1},
	}
}

// stepsRead is how many rows of steps a transaction has read.
func stepsRead(t *testing.T, tx pgx.Tx) (n int) {
	t.Helper()
	if err := tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
		WHERE relid = 'tasker.workflow_steps'::regclass`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// concludeInTx applies an outcome in a transaction. It returns how many rows of steps this read, and
// whether the steps of the task must be counted to settle it.
func concludeInTx(t *testing.T, db *DB, tx pgx.Tx, c core.Outcome) (concluded Concluded, read int, counts bool) {
	t.Helper()
	before := stepsRead(t, tx)
	list := []core.Outcome{c}
	joined := &Tx{Tx: tx, queue: db.queue}
	states, err := loadTasks(t.Context(), joined, newOutcomeRequest(list))
	if err != nil {
		t.Fatal(err)
	}
	decided := conclude(states, list, concludeOptions{})
	stored, err := joined.store(t.Context(), states, decided.changes)
	if err != nil {
		t.Fatal(err)
	}
	_, uncounted := restsOf(states, decided.changes)
	return decided.addStored(stored), stepsRead(t, tx) - before, len(uncounted) > 0
}

// The cost of a report does not grow with the number of steps of its task, as long as it makes
// another step ready.
func TestAReportDoesNotCountTheStepsOfItsTask(t *testing.T) {
	t.Parallel()
	for _, steps := range []int{smallTask, 300, 3000} {
		t.Run(strconv.Itoa(steps), func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{})
			c := chain(t, db, steps)
			execute(t, db, `ANALYZE tasker.workflow_steps`)
			tx, err := db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			concluded, read, counts := concludeInTx(t, db, tx, c)
			if len(concluded.Moved) != 1 || len(concluded.Enqueued) != 1 {
				t.Fatalf("concluded %+v", concluded)
			}
			if most := smallTask + 20; read > most || counts {
				t.Errorf("%d rows of steps were read, want at most %d; the steps are counted: %v", read, most, counts)
			}
		})
	}
}

// mapOf makes one task of a map step with so many items, of which the first is claimed
// and the others are enqueued, and returns the outcome of its success.
func mapOf(t *testing.T, db *DB, n int) core.Outcome {
	t.Helper()
	c := chain(t, db, n+1)
	execute(t, db, `
		UPDATE tasker.workflow_steps
		SET step_type = 'map', join_rule = 'all', decided_at = now(), items_total = $1, parents_open = $1, parent_uuids = '{}'
		WHERE name = 's' || $1::int + 1`, n)
	execute(t, db, `
		UPDATE tasker.workflow_steps s
		SET name = 'm[' || p.place - 1 || ']', map_step_uuid = m.step_uuid, item_ordinal = p.place - 1, item = '1',
			parent_uuids = '{}', child_uuids = ARRAY[m.step_uuid], parents_open = 0, state = p.state,
			expires_at = CASE p.state WHEN 'enqueued' THEN now() + interval '1 hour' END
		FROM tasker.workflow_steps m, (
			SELECT x.step_uuid, substr(x.name, 2)::int AS place, CASE x.name WHEN 's1' THEN x.state ELSE 'enqueued' END AS state
			FROM tasker.workflow_steps x
		) p
		WHERE m.step_type = 'map' AND s.step_type <> 'map' AND p.step_uuid = s.step_uuid`)
	execute(t, db, `ANALYZE tasker.workflow_steps`)
	return c
}

// What a report of an item costs does not grow with the items of its map step, as long as one
// of them is under way: also when the last ones have failed, and the rows are looked through once.
func TestAReportDoesNotCountTheItemsOfItsMap(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ items, failed, most int }{
		"100 items":                 {items: 100, most: 20},
		"10000 items":               {items: 10_000, most: 20},
		"the last ones have failed": {items: 10_000, failed: 90, most: 120},
		"it is known that the last ones have failed": {items: 10_000, failed: 5000, most: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{})
			c := mapOf(t, db, tt.items)
			execute(t, db, `UPDATE tasker.tasks SET state_since = now() + interval '1 minute'`) // a moment ago, however slow the test is
			execute(t, db, `
				UPDATE tasker.workflow_steps SET state = 'error', expires_at = NULL, error = '{"message": "x"}', last_failure_at = now()
				WHERE item_ordinal >= $1`, tt.items-tt.failed)
			if tt.most < tt.failed {
				execute(t, db, `UPDATE tasker.workflow_steps SET item_under_way = $1 WHERE step_type = 'map'`, tt.items-tt.failed+2)
			}
			execute(t, db, `ANALYZE tasker.workflow_steps`)
			tx, err := db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			concluded, read, counts := concludeInTx(t, db, tx, c)
			if len(concluded.Moved) != 1 || len(concluded.Enqueued) != 0 {
				t.Fatalf("concluded %+v", concluded)
			}
			if most := tt.most + smallTask; read > most || counts {
				t.Errorf("%d rows of steps were read for a report of one of %d items, want at most %d; the steps are counted: %v", read, tt.items, most, counts)
			}
			at, err := queryOne[struct{ ItemUnderWay int }](t.Context(), tx, `SELECT item_under_way FROM tasker.workflow_steps WHERE step_type = 'map'`)
			if err != nil || at.ItemUnderWay != tt.items-tt.failed-1 {
				t.Errorf("item %+v is known to be under way, %v", at, err)
			}
		})
	}
}

// A report of an item leads its task to where it rests when none of the other items is under way.
func TestAReportOfTheLastItemSettlesItsTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		last tasker.StepState
		set  string
		want tasker.TaskState
	}{
		"enqueued":    {tasker.StepEnqueued, `updated_at = now()`, tasker.TaskStepsInProcess},
		"in progress": {tasker.StepInProgress, `expires_at = NULL, lease_expires_at = now() + interval '1 hour'`, tasker.TaskStepsInProcess},
		"failed":      {tasker.StepError, `expires_at = NULL, error = '{"message": "x"}', last_failure_at = now()`, tasker.TaskError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{})
			c := mapOf(t, db, 2)
			execute(t, db, `UPDATE tasker.workflow_steps SET state = $1, `+tt.set+` WHERE item_ordinal = 1`, string(tt.last))
			if got, _, err := db.Report(t.Context(), []core.Outcome{c}, nil); err != nil || len(got.Moved) != 1 {
				t.Fatalf("concluded %+v, %v", got, err)
			}
			state, err := collectColumn[tasker.TaskState](t.Context(), db.pool, `SELECT state FROM tasker.tasks`)
			if err != nil || state[0] != tt.want {
				t.Errorf("the task is %v, want %s, %v", state, tt.want, err)
			}
		})
	}
}

// A report of a task that made no progress for a while moves its deadline, and one that
// makes no other step ready moves it to where its steps are.
func TestAReportSettlesItsTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		steps  int
		before string
		want   tasker.TaskState
		moved  bool
	}{
		"a moment ago": {2, `now() + interval '1 minute'`, tasker.TaskStepsInProcess, false}, // however slow the test is
		"a while ago":  {2, `now() - interval '2 seconds'`, tasker.TaskStepsInProcess, true},
		"its last":     {1, `now()`, tasker.TaskComplete, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{})
			c := chain(t, db, tt.steps)
			execute(t, db, `UPDATE tasker.tasks SET state_since = `+tt.before)
			type state struct {
				State tasker.TaskState
				Since time.Time
			}
			is := func() state {
				t.Helper()
				s, err := queryOne[state](t.Context(), db.pool, `SELECT state, state_since AS since FROM tasker.tasks`)
				if err != nil {
					t.Fatal(err)
				}
				return *s
			}
			before := is()
			if got, _, err := db.Report(t.Context(), []core.Outcome{c}, nil); err != nil || len(got.Moved) != 1 {
				t.Fatalf("concluded %+v, %v", got, err)
			}
			if after := is(); after.State != tt.want || after.Since.After(before.Since) != tt.moved {
				t.Errorf("task is %s since %s, was %s since %s", after.State, after.Since, before.State, before.Since)
			}
		})
	}
}
