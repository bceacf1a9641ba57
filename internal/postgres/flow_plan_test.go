package postgres

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// flowHistory adds due times, a latest start, a unique key, a debounce key and a firing to each task
// of history. Complete tasks have ended due times.
const flowHistory = `
INSERT INTO tasker.deadlines (task_uuid, step_uuid, namespace, due_at, warn_at, look_at, investigate, orders, source, ended_at)
SELECT t.task_uuid, s.step_uuid, 'a', now() + interval '1 hour', now(), CASE WHEN t.state = 'complete' THEN 'infinity' ELSE now() + interval '1 minute' END, true, true, 'template',
    CASE WHEN t.state = 'complete' THEN now() END
FROM tasker.tasks t
JOIN tasker.workflow_steps w ON w.task_uuid = t.task_uuid
CROSS JOIN LATERAL unnest(ARRAY['00000000-0000-0000-0000-000000000000'::uuid, w.step_uuid]) AS s (step_uuid);
INSERT INTO tasker.task_starts (task_uuid, start_by) SELECT task_uuid, now() + interval '1 hour' FROM tasker.tasks;
INSERT INTO tasker.unique_tasks (namespace, name, unique_key, task_uuid) SELECT 'a', 'b', task_uuid::text, task_uuid FROM tasker.tasks;
INSERT INTO tasker.debounced_tasks (namespace, name, debounce_key, task_uuid, latest_start) SELECT 'a', 'b', task_uuid::text, task_uuid, now() FROM tasker.tasks;
INSERT INTO tasker.schedules (schedule_uuid, namespace, name, template_name, every_s, overlap, catch_up, start_within_s, anchor, next_at, fire_at, created_by, deleted_at)
SELECT task_uuid, 'a', task_uuid::text, 'b', 3600, 'skip', 'last', 60, now(), now() + interval '1 hour', CASE WHEN n % 2 = 0 THEN now() + interval '1 hour' END, 'ann', CASE WHEN n % 2 = 1 THEN now() END
FROM (SELECT task_uuid, row_number() OVER () AS n FROM tasker.tasks LIMIT 8000) t;
INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, kind, outcome, task_uuid, task_open, actor)
SELECT schedule_uuid, now(), now(), 'clock', 'started', schedule_uuid, true, 'tasker' FROM tasker.schedules;
INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, kind, outcome, reason, actor)
SELECT schedule_uuid, now() + n * interval '1 second', now() + n * interval '1 second', 'clock', 'skipped', 'x', 'tasker' FROM tasker.schedules, generate_series(1, 2) n;
INSERT INTO tasker.schedule_signals (task_uuid, schedule_uuid) SELECT task_uuid, task_uuid FROM tasker.tasks;
INSERT INTO tasker.tasks_dlq (task_uuid, original_state, dlq_reason, detail_code, detected_by, priority_at, task_snapshot, resolution_status, resolution_notes, resolved_at, resolved_by, namespace, task_name, case_key)
SELECT task_uuid, 'error', 'manual_dlq', 'x', 'operator', now(), '{}', 'permanently_failed', 'x', now(), 'x', namespace, name, template_uuid FROM tasker.tasks OFFSET 5000 LIMIT 5000;
INSERT INTO tasker.due_queues VALUES ('a', 'run');
UPDATE tasker.task_templates SET configuration = '{"order": "due", "steps": [{"handler": {"callable": "run"}}]}', retired_at = now(), retired_by = 'ann', retired_reason = 'old';
ANALYZE;`

// flowStatements returns the statements about due times, starts, limits and schedules that run often.
func flowStatements() map[string]string {
	list := map[string]string{
		"insertDeadlines": statement("insertDeadlines"), "replaceDeadlines": statement("replaceDeadlines"), "selectDues": statement("selectDues"), "deadlinesToNotify": statement("deadlinesToNotify"), "watchedDeadlines": statement("watchedDeadlines"),
		"markDeadlines": statement("markDeadlines"), "dueTask": statement("dueTask"), "changeDeadline": statement("changeDeadline"), "removeDeadline": statement("removeDeadline"), "reorderReady": statement("reorderReady"), "countOverdue": statement("countOverdue"),
		"pruneLimitKeys": statement("pruneLimitKeys"), "findParkedKeys": statement("findParkedKeys"), "moveParkedSteps": statement("moveParkedSteps"), "insertTaskLimits": statement("insertTaskLimits"), "changeLimitKeys": statement("changeLimitKeys"),
		"bindTask": statement("bindTask"), "delaySteps": statement("delaySteps"), "tasksToExpire": statement("tasksToExpire"), "lockUnstarted": statement("lockUnstarted"),
		"selectUnique": statement("selectUnique"), "waitingTask": statement("waitingTask"),
		"mergeRequest":    statement("mergeRequest"),
		"schedulesToFire": statement("schedulesToFire"), "lockDueSchedules": statement("lockDueSchedules"), "scheduleProgress": statement("scheduleProgress"), "scheduledToCancel": statement("scheduledToCancel"), "extendFirings": statement("extendFirings"), "endQueued": statement("endQueued"),
		"moveSchedules": statement("moveSchedules"), "scheduledTasksEnded": statement("scheduledTasksEnded"), "lockSchedulesOf": statement("lockSchedulesOf"), "takeEndedScheduled": statement("takeEndedScheduled"), "firingsBetween": statement("firingsBetween"),
		"selectFirings": statement("selectFirings"), "triggeredBy": statement("triggeredBy"), "pruneFirings": statement("pruneFirings"), "pruneSchedules": statement("pruneSchedules"), "updateSchedule": statement("updateSchedule"), "oneSchedule": statement("oneSchedule"),
		"pruneTasks": statement("pruneTasks"), "unparkSteps": statement("unparkSteps"), "limitedSteps": statement("limitedSteps"),
	}
	for i, f := range []tasker.TaskFilter{
		{Overdue: true}, {Overdue: true, Namespace: "a", Name: "b", State: tasker.TaskError}, {DueBefore: time.Now(), Tags: []string{"x"}}, {Overdue: true, DueBefore: time.Now()},
	} {
		list[fmt.Sprintf("duePage%d", i)], _ = buildDuePage(f, access.EverywhereScope(), nil)
		list[fmt.Sprintf("duePageOfSome%d", i)], _ = buildDuePage(f, access.NamespaceScope("a", "c"), nil)
	}
	return list
}

// oneOf is the required index of a statement for which another index would only suffice in this
// database.
var oneOf = map[string]string{
	"waitingTask": "tasks_pkey", "takeEndedScheduled": "firing_of_task", "selectFirings": "Backward using schedule_firings_pkey",
	"deadlinesToLookAt": "deadlines_to_look_at", "countOverdue": "deadlines_of_open_tasks", "duePage0": "deadlines_of_open_tasks", "tasksToExpire": "task_starts_by_time",
}

// The cost of these statements does not grow with ended or future work.
func TestStatementsOfTheFlowReadIndexRanges(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for _, sql := range []string{history, limitHistory, flowHistory} {
		if _, err := admin(t, db).Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	whole := wholeIndexes(t, db)
	for name, sql := range flowStatements() {
		t.Run(name, func(t *testing.T) {
			plan := readsRanges(t, db, sql, whole)
			if !strings.Contains(plan, oneOf[name]) {
				t.Errorf("does not find its rows by %s:\n%s", oneOf[name], plan)
			}
		})
	}
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	handlers := make([]string, 100)
	for i := range handlers {
		handlers[i] = fmt.Sprint("other-", i)
	}
	for name, tt := range map[string]struct {
		sql  string
		args []any
		most int // pages
	}{
		"due":        {statement("findDueWork"), []any{time.Second, time.Minute, true}, 150},
		"overdue":    {statement("overdue"), nil, 80},
		"keys":       {statement("pruneLimitKeys"), []any{time.Hour, 0, 100}, 30},
		"sweep":      {`SELECT FROM tasker.get_stale_tasks_for_dlq(100)`, nil, 600},
		"queues":     {statement("anyUnorderedQueue"), []any{[]string{"pending", "steps_in_process", "error"}, maxOpenExamined}, 200},
		"other work": {statement("findParkedKeys"), []any{[]string{"a"}, handlers, 0}, 800},
	} {
		if n, plan := pages(t.Context(), t, conn.Conn(), tt.sql, tt.args...); n > tt.most {
			t.Errorf("%s reads %d pages, want at most %d:\n%s", name, n, tt.most, plan)
		}
	}
}
