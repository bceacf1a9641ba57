package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// tenThousandEnded creates 10,000 investigations that ended in the last hour after a repair, and
// 1,000 open investigations of 40 cases.
const tenThousandEnded = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('shop', 'order', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), m.template_uuid, m.namespace, m.name, '1.0.0', 'error', now(), '{}', '', now(), now()
FROM tasker.task_templates m, generate_series(1, 11000);
INSERT INTO tasker.tasks_dlq (task_uuid, original_state, dlq_reason, detail_code, detected_by, priority_at, task_snapshot, namespace, task_name, case_key,
    resolution_status, resolution_notes, resolved_at, resolved_by, dlq_timestamp)
SELECT t.task_uuid, 'error', 'manual_dlq', 'operator_request', 'operator', now(), jsonb_build_object('text', repeat(md5(t.n::text), 40)), t.namespace, t.name, md5((t.n % 40)::text)::uuid,
    CASE WHEN t.n > 1000 THEN 'manually_resolved' ELSE 'pending' END::tasker.dlq_resolution_status,
    CASE WHEN t.n > 1000 THEN 'x' END, CASE WHEN t.n > 1000 THEN now() - t.n % 50 * interval '1 minute' END, CASE WHEN t.n > 1000 THEN 'x' END, now() - interval '55 minutes'
FROM (SELECT *, row_number() OVER () AS n FROM tasker.tasks) t;
INSERT INTO tasker.cases (namespace, task_name, step_name, dlq_reason, detail_code, error_type, error_pattern, state_since, first_seen_at, updated_at)
SELECT 'shop', 'order', '', 'manual_dlq', '', '', n::text, now(), now(), now() FROM generate_series(0, 39) n;
INSERT INTO tasker.case_fingerprints (fingerprint, case_id, home_case_id, version, error_type, error_pattern, first_seen_at)
SELECT md5(error_pattern)::uuid, case_id, case_id, 1, '', '', now() FROM tasker.cases;
INSERT INTO tasker.case_members (dlq_entry_uuid, namespace, fingerprint, fingerprint_version, opened_at, ended_at, resolution_status, acted_at, task_name, task_version, step_name, dlq_reason, detail_code, error_message)
SELECT dlq_entry_uuid, namespace, case_key, 1, dlq_timestamp, resolved_at, nullif(resolution_status, 'pending'), CASE WHEN resolved_at IS NOT NULL THEN dlq_timestamp END, task_name, '1.0.0', '', dlq_reason, detail_code, repeat('x', 200)
FROM tasker.tasks_dlq;
`

// The statements of the dashboard read at most three times the pages that the list of cases reads.
func TestTheDashboardCostsAtMostThreeTimesTheList(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	conn := admin(t, db)
	if _, err := conn.Exec(t.Context(), tenThousandEnded, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for visible := false; !visible; { // a concurrent autovacuum can delay the visibility map
		execute(t, db, "VACUUM ANALYZE")
		var err error
		if visible, err = queryValue[bool](t.Context(), conn, `
			SELECT bool_and(relallvisible >= relpages) FROM pg_class WHERE oid IN ('tasker.tasks_dlq'::regclass, 'tasker.case_members'::regclass)`); err != nil {
			t.Fatal(err)
		}
	}
	c, err := conn.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	hour := time.Now().Truncate(time.Minute).Add(-59 * time.Minute)
	for name, scope := range map[string]access.Scope{"all": {}, "one": access.NamespaceScope("shop")} {
		ctx := t.Context()
		counts, args := statement("selectEntryCounts"), []any{hour, tasker.MaxEntryCount, time.Minute}
		stats, of := statement("selectEntryStats"), []any{}
		if name == "one" {
			stats, of = statement("countEntryStats"), []any{scope.List()}
			ctx = access.WithScope(ctx, scope)
			counts, args = statement("selectEntryCountsOf"), append(args, scope.List())
		}
		cases := func(limit int) int {
			sql, args := buildCasesQuery(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: limit}})
			n, _ := pages(ctx, t, c.Conn(), sql, args...)
			return n
		}
		list, top := cases(50), cases(10)
		charts, plan := pages(ctx, t, c.Conn(), counts, args...)
		reasons, planOfReasons := pages(ctx, t, c.Conn(), stats, of...)
		if dashboard := top + charts + reasons; dashboard > 3*list {
			t.Errorf("%s: the dashboard reads %d pages (cases %d, charts %d, reasons %d), the list %d:\n%s\n%s", name, dashboard, top, charts, reasons, list, plan, planOfReasons)
		}
	}
}
