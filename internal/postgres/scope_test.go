package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// twoNamespaces is a database in which the namespace large has 8,000 tasks with an
// investigation each, half of them open, and small has 5.
const twoNamespaces = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum)
VALUES ('large', 'b', '1.0.0', '{}', '', ''), ('small', 'b', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), m.template_uuid, m.namespace, 'b', '1.0.0', 'complete', now(), '{}', '', now(), now()
FROM tasker.task_templates m, generate_series(1, 8000) n
WHERE m.namespace = 'large' OR n <= 5;
INSERT INTO tasker.tasks_dlq (task_uuid, original_state, dlq_reason, detail_code, detected_by, priority_at, task_snapshot, namespace, task_name, case_key,
    resolution_status, resolution_notes, resolved_at, resolved_by, dlq_timestamp)
SELECT t.task_uuid, 'error', 'manual_dlq', 'operator_request', 'operator', now() - make_interval(secs => t.n), '{}', t.namespace, t.name, t.template_uuid,
    CASE WHEN t.n % 2 = 0 THEN 'cancelled' ELSE 'pending' END::tasker.dlq_resolution_status,
    CASE WHEN t.n % 2 = 0 THEN 'x' END, CASE WHEN t.n % 2 = 0 THEN now() - make_interval(secs => t.n) END, CASE WHEN t.n % 2 = 0 THEN 'x' END, now() - make_interval(secs => t.n)
FROM (SELECT *, row_number() OVER (ORDER BY namespace DESC, task_uuid) AS n FROM tasker.tasks) t;
INSERT INTO tasker.case_members (dlq_entry_uuid, namespace, opened_at, ended_at, resolution_status, task_name, task_version, step_name, dlq_reason, detail_code)
SELECT dlq_entry_uuid, namespace, dlq_timestamp, resolved_at, nullif(resolution_status, 'pending'), task_name, '1.0.0', '', dlq_reason, detail_code FROM tasker.tasks_dlq;
INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data)
SELECT 'dlq.entry.updated', d.task_uuid, d.dlq_entry_uuid, '{}' FROM (SELECT * FROM tasker.tasks_dlq ORDER BY dlq_timestamp DESC) d;
INSERT INTO tasker.emission_sinks (sink) VALUES ('log'), ('webhook');
INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid, state, published_at)
SELECT s.sink, o.position, o.event_uuid, o.task_uuid, CASE WHEN position % 3 = 0 THEN 'pending' ELSE 'published' END, CASE WHEN position % 3 <> 0 THEN now() END
FROM tasker.outbox o, tasker.emission_sinks s;
ANALYZE;`

var pagesRead = regexp.MustCompile(`Buffers: shared (?:hit=(\d+))?(?: ?read=(\d+))?`)

// pages returns how many pages of the database a statement reads.
func pages(ctx context.Context, t *testing.T, conn *pgx.Conn, sql string, args ...any) (n int, plan string) {
	t.Helper()
	rows, err := conn.Query(ctx, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range list {
		plan += line + "\n"
		if m := pagesRead.FindStringSubmatch(line); m != nil && n == 0 { // the first is of the whole
			hit, _ := strconv.Atoi(m[1])
			read, _ := strconv.Atoi(m[2])
			n = hit + read
		}
	}
	return n, plan
}

// What somebody pays who may see a small namespace must not grow with what others have:
// with 8,000 investigations of others a list reads some pages, and not hundreds.
func TestAListOfASmallNamespaceCostsNothingOfOthers(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	if _, err := admin(t, db).Exec(t.Context(), twoNamespaces, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	scope := access.NamespaceScope("small", "none")
	ctx := access.WithScope(t.Context(), scope)
	type query struct {
		sql  string
		args []any
	}
	queries := map[string]query{
		"events":           {statement("feedEventsOf"), []any{0, 1 << 40, 200, scope.List()}},
		"bounds of events": {statement("feedBoundsOf"), []any{"3", "1000000000000", scope.List()}},
		"counts over time": {statement("selectEntryCountsOf"), []any{time.Now().Add(-24 * time.Hour), tasker.MaxEntryCount, time.Hour, scope.List()}},
		"times":            {statement("selectEntryTimesOf"), []any{time.Now().Add(-24 * time.Hour), tasker.MaxTimedEntries, tasker.SystemActor, scope.List()}},
		"incidents":        {statement("selectIncidents"), []any{100, 0, "", scope.List()}},
		"counts by reason": {statement("countEntryStats"), []any{scope.List()}},
		"workers":          {statement("selectWorkers"), []any{100, 0, scope.List()}},
		"templates":        {statement("selectTemplateNames"), []any{100, scope.List()}},
		"queues":           {statement("selectQueues"), []any{"", 100, 1000, scope.List()}},
	}
	for _, state := range []tasker.EmissionState{"", tasker.EmissionPending, tasker.EmissionSetAside, tasker.EmissionPublished} {
		sql, args := newEmissionQuery(tasker.EmissionFilter{State: state}, scope, 100)
		queries["emissions "+string(state)] = query{sql, args}
	}
	sql, args := newEmissionQuery(tasker.EmissionFilter{Topic: tasker.EntryUpdatedTopic}, scope, 100)
	queries["emissions of a topic"] = query{sql, args}
	for _, state := range []tasker.TaskState{"", tasker.TaskComplete, tasker.TaskError} {
		sql, args := buildTasksPage(tasker.TaskFilter{State: state, Limit: 100}, scope, nil)
		queries["tasks "+string(state)] = query{sql, args}
	}
	sql, args = buildQueueQuery(ctx, tasker.InvestigationFilter{Limit: 100}, nil)
	queries["investigation queue"] = query{sql, args}
	sql, args = buildCasesQuery(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 100}})
	queries["cases"] = query{sql, args}

	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
		}
		for name, q := range queries {
			t.Run(fmt.Sprint(name, " ", mode), func(t *testing.T) {
				const most = 150
				if n, plan := pages(t.Context(), t, conn.Conn(), q.sql, q.args...); n > most || n == 0 {
					t.Errorf("reads %d pages, want 1 to %d:\n%s", n, most, plan)
				}
			})
		}
	}
}

// Pages of the events of some namespaces have each event once, in the order of their
// positions, whatever lies between.
func TestEventsOfSomeNamespaces(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	if _, err := admin(t, db).Exec(t.Context(), strings.ReplaceAll(twoNamespaces, "8000", "40"), pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"small"}, {"small", "large"}, {"none"}} {
		want, err := collectColumn[int64](t.Context(), db.pool, `SELECT position FROM tasker.outbox WHERE namespace = ANY ($1) ORDER BY position`, names)
		if err != nil {
			t.Fatal(err)
		}
		ctx := access.WithScope(t.Context(), access.NamespaceScope(names...))
		const before = 1 << 62 // all transactions
		first, last, err := db.FeedBounds(ctx, 0, before)
		if err != nil || len(want) > 0 && (first != want[0] || last != want[len(want)-1]) || len(want) == 0 && last != 0 {
			t.Errorf("%v: from %d to %d, %v, want %v", names, first, last, err, want)
		}
		var got []int64
		part := FeedPart{Before: before, After: first - 1, Last: last}
		for part.After < part.Last {
			var list []FeedEvent
			if list, part, err = db.FeedEvents(ctx, part, 7); err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				got = append(got, e.Position)
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("events of %v (-want +got):\n%s", names, diff)
		}
		emitted := map[int64]int{}
		for f := (tasker.EmissionFilter{Limit: 5}); ; {
			list, more, err := db.Emissions(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				emitted[e.Position]++
				f.Before = e.Position
			}
			if !more {
				break
			}
		}
		for _, position := range want {
			if emitted[position] != 2 {
				t.Errorf("%v: event %d is listed for %d sinks, want 2", names, position, emitted[position])
			}
		}
		if len(emitted) != len(want) {
			t.Errorf("%v: emissions of %d events, want %d", names, len(emitted), len(want))
		}
	}
}
