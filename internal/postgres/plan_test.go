package postgres

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// openNew opens a database of the test's own.
func openNew(t *testing.T, o Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), pgtest.New(t).URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// admin is the database for what the test itself prepares.
func admin(t *testing.T, db *DB) *pgxpool.Pool {
	t.Helper()
	return pgtest.Admin(t, db.Pool().Config().ConnString())
}

func execute(t *testing.T, db *DB, sql string, args ...any) {
	t.Helper()
	if _, err := admin(t, db).Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// history fills a database with finished tasks of one step, with a hundred that
// are under way: what a server sees after a while.
const history = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0',
    CASE WHEN n > 100 THEN 'complete' ELSE 'steps_in_process' END, now(),
    CASE WHEN n <= 100 THEN now() + interval '1 hour' END, CASE WHEN n <= 100 THEN now() + interval '2 hours' END, '{}', '', now(), now()
FROM tasker.task_templates, generate_series(1, 20000) n;
INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
    parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, lease_expires_at, expires_at, created_at, updated_at)
SELECT task_uuid, tasker.uuid_generate_v7(), 'a', 'standard', 'a', 'run', 0,
    CASE WHEN state = 'complete' THEN 'complete' ELSE 'enqueued' END, now(), '{}', '{}', 0, 1, 3, true, 'constant', 1, 1, false, NULL, CASE WHEN state <> 'complete' THEN now() + interval '1 hour' END, now(), now()
FROM tasker.tasks;
INSERT INTO tasker.tasks_dlq (task_uuid, original_state, dlq_reason, detail_code, detected_by, priority_at, task_snapshot, resolution_status, resolution_notes, resolved_at, resolved_by, namespace, task_name, case_key)
SELECT task_uuid, 'error', 'manual_dlq', 'x', 'operator', now(), '{}', 'cancelled', 'x', now(), 'x', namespace, name, template_uuid FROM tasker.tasks LIMIT 5000;
INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at)
SELECT task_uuid, 'pending', 'initializing', 'initialize', now() FROM tasker.tasks;
INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at)
SELECT task_uuid, step_uuid, 'pending', 'enqueued', 'enqueue', 1, now() FROM tasker.workflow_steps;
ANALYZE;`

// limitHistory adds a limit with a key for each of the tasks, of which all have had a place, and for half of which a step waits.
const limitHistory = `
INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by) SELECT 'name', 'a', n::text, 1, true, 'x' FROM generate_series(1, 900) n;
INSERT INTO tasker.limit_queues (namespace, handler, limit_id) SELECT 'a', 'run', limit_id FROM tasker.limits;
INSERT INTO tasker.task_limits (task_uuid, limit_id, key) SELECT task_uuid, 1, task_uuid::text FROM tasker.tasks;
INSERT INTO tasker.limit_keys (limit_id, key) SELECT 1, key FROM tasker.task_limits;
INSERT INTO tasker.limit_slots (limit_key_id, task_uuid, step_uuid, fence)
SELECT k.limit_key_id, s.task_uuid, s.step_uuid, s.fence FROM tasker.workflow_steps s JOIN tasker.limit_keys k ON k.key = s.task_uuid::text;
INSERT INTO tasker.held_steps (limit_key_id, namespace, handler, priority, state_since, step_uuid, task_uuid)
SELECT h.limit_key_id, 'a', 'run', 0, now(), h.step_uuid, h.task_uuid FROM tasker.limit_slots h WHERE h.limit_key_id % 2 = 0;
ANALYZE;`

// Costs must not grow with history: no plan of a statement that runs often reads a whole table.
func TestNoStatementThatRunsOftenReadsAWholeTable(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for _, sql := range []string{history, limitHistory} {
		if _, err := admin(t, db).Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	whole := wholeIndexes(t, db)
	for name, sql := range map[string]string{
		"claimSteps": statement("claimSteps"), "readDirectClaims": statement("readDirectClaims"), "selectLevels": statement("selectLevels"), "holdNamespace": statement("holdNamespace"), "holdHandler": statement("holdHandler"), "releaseHeldSteps": statement("releaseHeldSteps"), "dropHeld": statement("dropHeld"), "pruneReleaseFailures": statement("pruneReleaseFailures"), "stepResult": statement("stepResult"), "tooLargeInputs": statement("tooLargeInputs"), "extendLeases": statement("extendLeases"), "releaseSteps": statement("releaseSteps"),
		"keyHolders": statement("keyHolders"), "settleTasks": statement("settleTasks"), "countSteps": statement("countSteps"), "loadTasks": statement("loadTasks"), "loadSteps": statement("loadSteps"), "loadWholeTasks": statement("loadWholeTasks"), "loadItems": statement("loadItems"), "moveSteps": statement("moveSteps"), "touchSteps": statement("touchSteps"), "leaveQueue": statement("leaveQueue"), "findQueueFront": statement("findQueueFront"), "uncountedAttempts": statement("uncountedAttempts"), "lockTasks": statement("lockTasks"), "lockFreeTasks": statement("lockFreeTasks"), "insertTasks": statement("insertTasks"), "insertSteps": statement("insertSteps"),
		"insertTaskMoves": statement("insertTaskMoves"), "insertAttributes": statement("insertAttributes"), "announceNew": statement("announceNew"),
		"stepsWithDueRetry": statement("stepsWithDueRetry"), "tasksWithDueRetries": statement("tasksWithDueRetries"), "tasksToStart": statement("tasksToStart"), "startedTasks": statement("startedTasks"),
		"expiredLeases": statement("expiredLeases"), "pendingReports": statement("pendingReports"), "stepsWithExpiredLease": statement("stepsWithExpiredLease"), "stepsWithPendingReport": statement("stepsWithPendingReport"), "leaveChildTasks": statement("leaveChildTasks"), "findDueWork": statement("findDueWork"),
		"deferWork": statement("deferWork"), "takeDeferredWork": statement("takeDeferredWork"), "selectSteps": statement("selectSteps"), "taskHistory": statement("taskHistory"), "taskChanges": statement("taskChanges"), "taskStates": statement("taskStates"), "taskPosition": statement("taskPosition"),
		"cancelTasks": statement("cancelTasks"), "lockEnqueuedOf": statement("lockEnqueuedOf"), "selectTaskTargets": statement("selectTaskTargets"), "selectRecreateTargets": statement("selectRecreateTargets"), "selectQueues": statement("selectQueues"), "extendQueueDeadlines": statement("extendQueueDeadlines"), "hearWorker": statement("recordHeartbeat"), "hearWorkers": statement("recordHeartbeats"), "selectInvestigationQueue": statement("selectInvestigationQueue"), "selectEntryCounts": statement("selectEntryCounts"), "marks": statement("stepLeases"), "selectEntry": statement("selectEntry"), "updateEntry": statement("updateEntry"), "lockOldTasks": statement("lockOldTasks"), "expiredSteps": statement("expiredSteps"), "unservedSteps": statement("unservedSteps"), "queuedSteps": statement("queuedSteps"), "tasksWithServedSteps": statement("tasksWithServedSteps"), "servedSteps": statement("servedSteps"), "recoverServed": statement("recoverServed"), "pruneTasks": statement("pruneTasks"),
		"announceAgain": statement("announceAgain"), "dueAnnouncements": statement("dueAnnouncements"), "waitingNamespaces": statement("waitingNamespaces"), "announceLost": statement("announceLost"),
		"newestTaskTransitions": statement("newestTaskTransitions"),
		"newestStepTransitions": statement("newestStepTransitions"),
		"lockTargets":           statement("lockTargets"), "recordRepairs": statement("recordRepairs"), "endEntries": statement("endEntries"), "failuresDuring": statement("failuresDuring"), "stepsEnqueuedByTx": statement("stepsEnqueuedByTx"),
		"applyStaleness": statement("applyStaleness"), "applyRecovery": statement("applyRecovery"),
		"findExplained": statement("findExplained"), "explainTasks": statement("selectExplainedTasks"), "explainQueues": statement("selectExplainedQueues"), "explainWaiting": statement("selectExplainedWaiting"),
		"explainMembers": statement("selectExplainedMembers"), "explainItems": statement("selectExplainedItems"),
		"selectHeads": statement("selectHeads"), "selectAllHeads": statement("selectAllHeads"),
		"makeTaskKeys": statement("makeTaskKeys"), "limitedSteps": statement("limitedSteps"), "unparkSteps": statement("unparkSteps"),
	} {
		t.Run(name, func(t *testing.T) { readsRanges(t, db, sql, whole) })
	}
}

// limitStatements are the statements of claims with limits.
func limitStatements() map[string]string {
	list := map[string]string{}
	for _, name := range []string{
		"findClaimConditions", "lockSharedKeys", "countSharedSlots", "findParkedKeys", "parkedKeysOfSteps", "selectReadyCandidates", "selectParkedCandidates", "selectNamedCandidates",
		"makeLimitKeys", "lockLimitKeys", "lockFreeLimitKeys", "countFreeSlots", "deleteEndedSlots", "leaseLimitedSteps", "parkSteps", "moveParkedSteps",
		"stepsOfFullKeys", "limitedSteps", "unparkSteps", "selectLimitKeys",
	} {
		list[name] = statement(name)
	}
	return list
}

// The plans of claims with limits must not depend on the statistics.
func TestLimitPlansIgnoreStatistics(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for _, sql := range []string{history, limitHistory} {
		if _, err := admin(t, db).Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	whole := wholeIndexes(t, db)
	for _, s := range []struct{ name, sql string }{
		{"even", `SELECT`},
		{"one key", `
			UPDATE tasker.limit_slots SET limit_key_id = (SELECT min(limit_key_id) FROM tasker.limit_slots);
			UPDATE tasker.held_steps SET limit_key_id = (SELECT min(limit_key_id) FROM tasker.limit_slots);
			ANALYZE tasker.limit_slots; ANALYZE tasker.held_steps`},
		{"empty", `
			CREATE TABLE x AS SELECT * FROM tasker.limit_slots; DELETE FROM tasker.limit_slots; ANALYZE tasker.limit_slots;
			INSERT INTO tasker.limit_slots SELECT * FROM x;
			CREATE TABLE y AS SELECT * FROM tasker.held_steps; DELETE FROM tasker.held_steps; ANALYZE tasker.held_steps;
			INSERT INTO tasker.held_steps SELECT * FROM y`},
	} {
		if _, err := admin(t, db).Exec(t.Context(), s.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		for name, sql := range limitStatements() {
			t.Run(s.name+"/"+name, func(t *testing.T) { readsRanges(t, db, sql, whole) })
		}
	}
}

// wholeIndexes returns the indexes of all rows of large tables.
func wholeIndexes(t *testing.T, db *DB) []string {
	t.Helper()
	whole, err := collectColumn[string](t.Context(), db.pool, `
		SELECT c.relname::text
		FROM pg_index i
		JOIN pg_class c ON c.oid = i.indexrelid
		JOIN pg_class o ON o.oid = i.indrelid
		WHERE i.indpred IS NULL AND o.relnamespace = 'tasker'::regnamespace AND o.reltuples >= 5000`)
	if err != nil || len(whole) < 10 {
		t.Fatalf("the indexes of all rows of large tables are %q, %v", whole, err)
	}
	return whole
}

// readsRanges fails the test if a statement reads a whole table, or all of one of the indexes, and returns its plan.
func readsRanges(t *testing.T, db *DB, sql string, whole []string) string {
	t.Helper()
	// Not one that is small, either: its penalty would hide what the rest costs.
	plan := explain(t, db, sql)
	if strings.Contains(plan, "Seq Scan on ") || strings.Contains(plan, "JIT") || strings.Contains(plan, "Hash Join") {
		t.Errorf("reads a whole table, or is compiled:\n%s", plan)
	}
	if index := wholeIndex(plan, whole); index != "" {
		t.Errorf("reads all of the index %s, and so a whole table:\n%s", index, plan)
	}
	return plan
}

var indexScan = regexp.MustCompile(`Index (?:Only )?Scan(?: Backward)? using (\S+) on .*\n(.*)`)

// wholeIndex returns the one of the indexes that a plan reads from one end to the other.
func wholeIndex(plan string, whole []string) string {
	for _, m := range indexScan.FindAllStringSubmatch(plan, -1) {
		if slices.Contains(whole, m[1]) && !strings.Contains(m[2], "Index Cond: ") {
			return m[1]
		}
	}
	return ""
}

// The few tasks that are old and live stand behind all that are finished: a page
// of them is read from the index of its condition, and none besides.
func TestAPageOfTasksIsReadFromItsIndex(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	if _, err := admin(t, db).Exec(t.Context(), history, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for index, f := range map[string]tasker.TaskFilter{
		"tasks_by_state":    {State: tasker.TaskError, Namespace: "a", Name: "b"},
		"tasks_of_template": {Namespace: "a"},
		"tasks_pkey":        {},
	} {
		sql, _ := buildTasksPage(f, access.EverywhereScope(), nil)
		t.Run(index, func(t *testing.T) {
			// The newest of several templates are put in order, not all of them.
			plan := explain(t, db, sql)
			if !strings.Contains(plan, "using "+index) || strings.Contains(plan, "Incremental Sort") || strings.LastIndex(plan, "Sort") > strings.LastIndex(plan, "Limit") {
				t.Errorf("%s has the plan\n%s", sql, plan)
			}
		})
	}
}

// What looks for what is due reads an index up to now, and not what waits behind.
func TestWhatIsDueIsReadFromARange(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for index, sql := range map[string]string{
		"steps_to_retry": statement("tasksWithDueRetries"), "tasks_to_start": statement("tasksToStart"), "task_starts_by_time": statement("tasksToExpire"), "claims_to_look_at": statement("stepsWithExpiredLease"), "ready_steps_by_expiry": statement("expiredSteps"),
	} {
		t.Run(index, func(t *testing.T) {
			plan := explain(t, db, sql)
			_, from, found := strings.Cut(plan, "using "+index)
			if lines := strings.SplitN(from, "\n", 3); !found || !strings.Contains(lines[1], "Index Cond: ") || !strings.Contains(lines[1], "<= ") {
				t.Errorf("has the plan\n%s", plan)
			}
		})
	}
}

// explain returns the plan that a statement has for any values.
func explain(t *testing.T, db *DB, sql string) string {
	t.Helper()
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	prepared, err := conn.Conn().Prepare(t.Context(), "plan_"+t.Name(), sql)
	if err != nil {
		t.Fatal(err)
	}
	execute := "EXPLAIN EXECUTE " + pgx.Identifier{prepared.Name}.Sanitize()
	if n := len(prepared.ParamOIDs); n > 0 {
		execute += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
	}
	return lines(t.Context(), t, conn.Conn(), execute)
}

func lines(ctx context.Context, t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "\n")
}
