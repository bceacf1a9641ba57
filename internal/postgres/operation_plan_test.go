package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// operationItems are an operation of 10,000 items and a second one, of which the database has no statistics.
const operationItems = `
INSERT INTO tasker.operations (operation_uuid, request_key, digest, act, selection, planned_by, reason, namespaces, state, waves, stop_on_new_cause, wave_timeout, expires_at)
SELECT gen_random_uuid(), n::text, '', 'reset_for_retry', '{}', 'ann', 'r', '{a}', 'planned', '{}', true, '1 min', now() + interval '1 hour' FROM generate_series(1, 2) n;
INSERT INTO tasker.operation_items (operation_uuid, ordinal, task_uuid, step_uuid, entry_uuid, namespace, expected_state, expected_fence)
SELECT o.operation_uuid, row_number() OVER (PARTITION BY o.operation_uuid), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'a', 'error', 1
FROM tasker.operations o CROSS JOIN generate_series(1, 10000);`

// What runs for each part of an operation finds its items by their keys, with statistics and
// without: else a part costs as much as all items.
func TestPartsOfOperationsAreFoundByKey(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for _, when := range []string{"empty", "filled", "analyzed"} {
		switch when {
		case "filled":
			if _, err := admin(t, db).Exec(t.Context(), operationItems, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
		case "analyzed":
			execute(t, db, `ANALYZE tasker.operation_items`)
		}
		for name, tt := range map[string]struct{ sql, cond string }{
			"moveItems": {statement("moveItems"), "(ordinal = m.ordinal)"}, "plannedItems": {statement("plannedItems"), "state <= 'planned'"}, "itemsToVerify": {statement("itemsToVerify"), "state <= $2"},
			"lockedItemsToVerify": {statement("lockedItemsToVerify"), "(ordinal = u.ordinal)"}, "lockItems": {statement("lockItems"), "(ordinal = u.ordinal)"}, "countFailures": {statement("countFailures"), "round = $2"},
			"finishOperations": {statement("finishOperations"), "state <= 'planned'"},
		} {
			t.Run(when+" "+name, func(t *testing.T) {
				plan := explain(t, db, tt.sql)
				found := false
				for line := range strings.Lines(plan) {
					found = found || strings.Contains(line, "Index Cond: ") && strings.Contains(line, tt.cond)
				}
				if !found {
					t.Errorf("it is not found by %s:\n%s", tt.cond, plan)
				}
			})
		}
	}
}

// taskWithItems is a task with two map steps of 10,000 items, of which three have failed.
const taskWithItems = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'complete', now(), '{}', '', now(), now() FROM tasker.task_templates;
INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
    parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, map_step_uuid, item_ordinal, item)
SELECT t.task_uuid, tasker.uuid_generate_v7(), m.k || '[' || n || ']', 'standard', 'a', 'run', 0, CASE WHEN n % 3000 = 1 THEN 'error' ELSE 'complete' END, now(), '{}', '{}',
    0, 1, 3, true, 'constant', 1, 1, false, now(), now(), m.id, n, '1'
FROM tasker.tasks t, (SELECT k, gen_random_uuid() AS id FROM generate_series(1, 2) k) m, generate_series(0, 9999) n;`

// A page of items is read from where it begins, with statistics and without.
func TestPagesOfItemsAreFoundByKey(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for _, when := range []string{"empty", "filled", "analyzed"} {
		switch when {
		case "filled":
			if _, err := admin(t, db).Exec(t.Context(), taskWithItems, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
		case "analyzed":
			execute(t, db, `ANALYZE tasker.workflow_steps`)
		}
		t.Run(when, func(t *testing.T) {
			plan := explain(t, db, statement("selectItemsOfMap"))
			_, from, found := strings.Cut(plan, "using steps_by_map")
			if lines := strings.SplitN(from, "\n", 3); !found || !strings.Contains(lines[1], "(item_ordinal >= $3)") {
				t.Errorf("has the plan\n%s", plan)
			}
		})
	}
}
