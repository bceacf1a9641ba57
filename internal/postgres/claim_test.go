package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// yard is a database with enqueued steps and a worker.
type yard struct {
	*testing.T
	db     *DB
	worker tasker.ID
}

// newYard creates a number of steps for each handler, one after the other, each in its own task.
func newYard(t *testing.T, handlers, each int) *yard {
	t.Helper()
	db := openNew(t, Options{})
	y := &yard{T: t, db: db, worker: tasker.NewID()}
	y.exec(`INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '')`)
	y.exec(`INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease) VALUES ($1, 'w', '{a}', '{x}', '', 1, '10 s', '30 s')`, y.worker)
	y.exec(`
		INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, context_bytes, correlation_id, created_at, updated_at)
		SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'steps_in_process', now(), now() + interval '1 hour', now() + interval '2 hours', '{}', 2, '', now(), now()
		FROM tasker.task_templates, generate_series(1, $1::int * $2::int)`, handlers, each)
	y.exec(`
		INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
			parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, expires_at, created_at, updated_at, inputs_bytes)
		SELECT task_uuid, tasker.uuid_generate_v7(), 'a', 'standard', 'a', 'h' || (n - 1) / $1::int, 0, 'enqueued', now() + interval '1 millisecond' * n, '{}', '{}',
			0, 1, 3, true, 'constant', 1, 1, false, now() + interval '1 hour', now(), now(), 2
		FROM (SELECT task_uuid, row_number() OVER () AS n FROM tasker.tasks) t`, each)
	y.exec(`ANALYZE`)
	return y
}

func (y *yard) exec(sql string, args ...any) {
	y.Helper()
	execute(y.T, y.db, sql, args...)
}

func (y *yard) claimant(handlers int) Claimant {
	c := Claimant{WorkerUUID: y.worker, Namespaces: []string{"a"}, Lease: time.Minute}
	for i := range handlers {
		c.Handlers = append(c.Handlers, fmt.Sprint("h", i))
	}
	return c
}

// claimIn claims steps in a transaction and returns their number.
func (y *yard) claimIn(tx pgx.Tx, c Claimant, limit int, t *fairOrder) int {
	y.Helper()
	sql, args := y.claimSQL(c, limit, t)
	rows, err := collect[claimRow](y.Context(), tx, sql, args...)
	if err != nil {
		y.Fatal(err)
	}
	return len(newClaimResult(rows).Steps)
}

// claimSQL returns the statement and the arguments of a claim.
func (y *yard) claimSQL(c Claimant, limit int, t *fairOrder) (sql string, args []any) {
	y.Helper()
	r, err := y.db.rangesFor(y.Context(), c, t)
	if err != nil {
		y.Fatal(err)
	}
	return c.claimSteps(claimSize{limit, tasker.MaxClaimBytes, limit}, claimMode{turn: t, ranges: r})
}

// begin returns a transaction that is rolled back at the end of the test.
func (y *yard) begin() pgx.Tx {
	y.Helper()
	tx, err := y.db.pool.Begin(y.Context())
	if err != nil {
		y.Fatal(err)
	}
	y.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// Concurrent claims of the same queues get as many steps each, for any number of queues.
func TestAClaimHoldsNoMoreThanItHandsOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ handlers, each, asked int }{
		"one queue":      {1, 300, 1},
		"several queues": {20, 15, 20},
		"many queues":    {20, 15, manyQueues + 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, c.handlers, c.each)
			for i := range 2 {
				if n := y.claimIn(y.begin(), y.claimant(c.asked), 100, nil); i == 0 && n != 100 {
					t.Errorf("the first claim got %d of 300", n)
				}
			}
			third, err := y.db.ClaimSteps(t.Context(), y.claimant(c.asked), 50)
			if err != nil || len(third.Steps) != 50 {
				t.Errorf("got %d steps beside two claims of 100, want 50 (%v)", len(third.Steps), err)
			}
		})
	}
}

// Claims order steps by urgency across queues.
func TestTheMostUrgentOfAllQueuesComesFirst(t *testing.T) {
	t.Parallel()
	y := newYard(t, 10, 10)
	y.exec(`UPDATE tasker.workflow_steps SET priority = 5 WHERE handler = 'h7'`)
	for _, handlers := range []int{10, manyQueues + 10} {
		tx := y.begin()
		if n := y.claimIn(tx, y.claimant(handlers), 25, nil); n != 25 {
			t.Fatalf("claimed %d", n)
		}
		got, err := queryValue[string](t.Context(), tx, `
			SELECT string_agg(format('%s %s', handler, n), ', ' ORDER BY handler)
			FROM (SELECT handler, count(*) AS n FROM tasker.workflow_steps WHERE state = 'in_progress' GROUP BY handler) s`)
		if want := "h0 10, h1 5, h7 10"; err != nil || got != want {
			t.Errorf("claimed %s, %v, want %s", got, err, want)
		}
		_ = tx.Rollback(t.Context())
	}
}

// The cost of a claim depends on the number of non-empty queues, not of registered ones.
func TestEmptyQueuesCostNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t, 20, 5)
	c := y.claimant(1000)
	for i := range 99 {
		c.Namespaces = append(c.Namespaces, fmt.Sprint("n", i))
	}
	for age, most := range map[time.Duration]int{0: 200, time.Minute: 250} {
		tx := y.begin()
		before := y.scans(tx) // may include earlier transactions of the connection
		turn := y.db.turns.startOrder(c.Namespaces)
		turn.age = age
		if _, err := tx.Exec(t.Context(), statement("selectLevels"), c.Namespaces, c.Handlers, maxHeads); err != nil {
			t.Fatal(err)
		}
		if n := y.claimIn(tx, c, 10, turn); n != 10 {
			t.Errorf("claimed %d", n)
		}
		if scans := y.scans(tx) - before; scans == 0 || scans > most {
			t.Errorf("a claim by the age %v looked %d times into the index", age, scans)
		}
		_ = tx.Rollback(t.Context())
	}
}

// scans returns the number of scans of the claim index in a transaction.
func (y *yard) scans(tx pgx.Tx) int {
	y.Helper()
	n, err := queryValue[int](y.Context(), tx, `SELECT coalesce(pg_stat_get_xact_numscans('tasker.ready_steps_to_claim'::regclass), 0)`)
	if err != nil {
		y.Fatal(err)
	}
	return n
}

// The cost of a claim does not depend on the size of tasks, although the planner expects small ones.
func TestAClaimCostsTheSameInALargeTask(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1, 2100)
	// One task has 2,000 enqueued steps that depend on its last step.
	y.exec(`UPDATE tasker.workflow_steps SET namespace = 'other' WHERE step_uuid IN (SELECT step_uuid FROM tasker.workflow_steps ORDER BY state_since OFFSET 100)`)
	y.exec(`
		WITH large AS (SELECT task_uuid AS id, 'ffffffff-ffff-7fff-bfff-ffffffffffff'::uuid AS last FROM tasker.tasks ORDER BY task_uuid DESC LIMIT 1)
		INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
			parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, expires_at, created_at, updated_at, inputs_bytes, results, results_bytes)
		SELECT l.id, CASE n WHEN 2000 THEN l.last ELSE tasker.uuid_generate_v7() END, 's' || n, 'standard', 'large', 'h0', 0, CASE n WHEN 2000 THEN 'complete' ELSE 'enqueued' END, now() + interval '1 millisecond' * n,
			CASE n WHEN 2000 THEN '{}'::uuid[] ELSE ARRAY[l.last] END, '{}', 0, 1, 3, true, 'constant', 1, 1, false, CASE n WHEN 2000 THEN NULL ELSE now() + interval '1 hour' END, now(), now(), 3,
			CASE n WHEN 2000 THEN '{"result": 1}'::jsonb END, CASE n WHEN 2000 THEN 1 END
		FROM large l, generate_series(1, 2000) n`)
	y.exec(`UPDATE tasker.workflow_steps SET parent_uuids = ARRAY[step_uuid], inputs_bytes = 3 WHERE namespace = 'a'`)
	y.exec(`ANALYZE`)
	read := map[string]int{}
	for _, namespace := range []string{"a", "large"} {
		tx := y.begin()
		c := y.claimant(1)
		c.Namespaces = []string{namespace}
		sql, args := y.claimSQL(c, 100, nil)
		n, plan := pages(t.Context(), t, tx.Conn(), sql, args...)
		if !strings.Contains(plan, "rows=100 ") {
			t.Fatalf("not 100 steps:\n%s", plan)
		}
		read[namespace] = n
		_ = tx.Rollback(t.Context())
	}
	if read["large"] > read["a"]*3/2 {
		t.Errorf("a claim of 100 steps reads %d pages in one task of 2,000, and %d in tasks of one", read["large"], read["a"])
	}
}
